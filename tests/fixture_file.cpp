// SPDX-License-Identifier: Apache-2.0
#include "fixture_file.hpp"

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "fixture_path.hpp"

namespace mp_test {

namespace {

std::string dtype_of(const std::string& word) {
    static const std::map<std::string, std::string> kWords = {
        {"F64", "fp64"},         {"F32", "fp32"},         {"F16", "fp16"},     {"BF16", "bf16"},
        {"F8_E4M3", "fp8_e4m3"}, {"F8_E5M2", "fp8_e5m2"}, {"F8_E8M0", "e8m0"}, {"U8", "uint8"}};
    return kWords.at(word);
}

} // namespace

int64_t FixtureArray::count() const {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

FixtureFile::FixtureFile(const std::string& name) {
    const std::string path = fixture_path(name + ".safetensors");
    std::ifstream in(path, std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(in), {}};
    uint64_t length = 0;
    if (file.size() < sizeof length) {
        throw std::runtime_error("cannot read the fixture " + path);
    }
    std::memcpy(&length, file.data(), sizeof length);
    const auto header = nlohmann::ordered_json::parse(file.substr(sizeof length, length));
    const std::string_view data = std::string_view(file).substr(sizeof length + length);
    for (const auto& [key, entry] : header.items()) {
        if (key == "__metadata__") {
            for (const auto& [fact, words] : entry.items()) {
                in_order_.emplace_back(fact, words);
            }
            continue;
        }
        const auto [begin, end] = entry["data_offsets"].get<std::pair<std::size_t, std::size_t>>();
        const std::string_view bytes = data.substr(begin, end - begin);
        if (bytes.size() != end - begin) {
            throw std::runtime_error("the fixture " + path + " is cut short");
        }
        arrays_[key] = {dtype_of(entry["dtype"]), entry["shape"], {bytes.begin(), bytes.end()}};
    }
    facts_.insert(in_order_.begin(), in_order_.end());
    for (const auto& [same, first] : facts("same")) {
        arrays_[same] = arrays_.at(first);
    }
}

const FixtureArray& FixtureFile::array(const std::string& name) const {
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) {
        throw std::out_of_range("the fixture has no array " + name);
    }
    return found->second;
}

const std::string& FixtureFile::fact(const std::string& name) const {
    const auto found = facts_.find(name);
    if (found == facts_.end()) {
        throw std::out_of_range("the fixture has no fact " + name);
    }
    return found->second;
}

std::vector<std::pair<std::string, std::string>> FixtureFile::facts(const std::string& kind) const {
    const std::string prefix = kind + " ";
    std::vector<std::pair<std::string, std::string>> found;
    for (const auto& [name, words] : in_order_) {
        if (name.compare(0, prefix.size(), prefix) == 0) {
            found.emplace_back(name.substr(prefix.size()), words);
        }
    }
    return found;
}

} // namespace mp_test
