// SPDX-License-Identifier: Apache-2.0
// Headers of safetensors: agreement with the Python package on good and bad files, and what is written reads back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "../fixture_file.hpp"
#include "model/safetensors.hpp"
#include "status/status.hpp"

using namespace mp;
using namespace mp::model;

namespace {

Header parse(const std::string& file) {
    unsigned char prefix[8] = {};
    if (file.size() < sizeof prefix) {
        fail(Code::corrupt_data, "too short");
    }
    std::memcpy(prefix, file.data(), sizeof prefix);
    const auto bytes = static_cast<int64_t>(file.size());
    const int64_t length = header_bytes(prefix, bytes);
    return read_safetensors(std::string_view(file).substr(8, static_cast<std::size_t>(length)),
                            bytes);
}

std::string refusal(const std::string& file) {
    try {
        (void)parse(file);
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::corrupt_data);
        return error.status().text();
    }
    return "";
}

// Where we refuse what the package takes: the rule, by words of our refusal.
const char* const kStricterRules[] = {
    "appears twice",          // a tensor's name, a metadata key: the package keeps the last
    "the first byte must be", // the format's own words; the package takes white space before it
    "unknown field",          // of a tensor: the package passes over it
    "where '{' must",         // a tensor or metadata not written as an object
    "more than 8 dimensions", // the library's own limit
    "the sizes of a shape overflow", // also where another size is zero, whatever their order
    "exceeds 2^63 - 1",              // the package reads to 2^64 - 1
};

} // namespace

TEST(Safetensors, AgreesWithThePythonPackage) {
    const mp_test::FixtureFile cases("safetensors_cases");
    const auto refusal_of = [&](const std::string& name) {
        const std::vector<unsigned char>& bytes = cases.array(name).bytes;
        return refusal({bytes.begin(), bytes.end()});
    };
    int accepted = 0;
    int rejected = 0;
    std::map<std::string, int> stricter;
    std::string name;
    for (std::istringstream names(cases.fact("reject")); names >> name; ++rejected) {
        EXPECT_NE(refusal_of(name), "") << name << " is refused by the package but not by us";
    }
    for (std::istringstream names(cases.fact("accept")); names >> name;) {
        const std::string why = refusal_of(name);
        const auto* const rule =
            std::find_if(std::begin(kStricterRules), std::end(kStricterRules),
                         [&](const char* words) { return why.find(words) != std::string::npos; });
        if (why.empty()) {
            ++accepted;
        } else if (rule != std::end(kStricterRules)) {
            ++stricter[*rule];
        } else {
            ADD_FAILURE() << name << " is taken by the package but not by us: " << why;
        }
    }
    std::size_t stricter_cases = 0;
    for (const auto& [rule, count] : stricter) {
        stricter_cases += static_cast<std::size_t>(count);
    }
    EXPECT_GT(accepted, 50);
    EXPECT_EQ(static_cast<std::size_t>(accepted) + stricter_cases, 83U);
    EXPECT_EQ(rejected, 766);
    for (const char* rule : kStricterRules) {
        EXPECT_GT(stricter[rule], 0) << rule << ": no case needs this rule";
    }
    std::printf("%d files accepted and %d rejected as by the package\n", accepted, rejected);
    for (const auto& [rule, count] : stricter) {
        std::printf("  stricter: '%s' %d\n", rule.c_str(), count);
    }
}

TEST(Safetensors, WritesWhatItReads) {
    const std::vector<NewTensor> tensors = {{"w\"\n\xC3\xA9", FileType::F32, {2, 3}, 24},
                                            {"b", FileType::BF16, {}, 2},
                                            {"c", FileType::U8, {0, 4}, 0},
                                            {"d", FileType::F8_E4M3, {5}, 5}};
    const std::vector<std::pair<std::string, std::string>> metadata = {{"checkpoint_id", "x"},
                                                                       {"a", "\\"}};
    const std::string text = write_header(tensors, metadata);
    EXPECT_EQ(text.size() % 8, 0U);
    const Header header = parse(text + std::string(31, 'x'));
    ASSERT_EQ(header.tensors().size(), 4U);
    EXPECT_EQ(header.data_begin(), static_cast<int64_t>(text.size()));
    EXPECT_EQ(header.metadata("checkpoint_id"), "x");
    EXPECT_EQ(header.metadata("a"), "\\");
    EXPECT_EQ(header.metadata("b"), std::nullopt);
    const FileTensor* w = header.find("w\"\n\xC3\xA9");
    ASSERT_NE(w, nullptr);
    EXPECT_EQ(header.shape(*w), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(w->begin, 0);
    EXPECT_EQ(header.find("d")->begin, 26);
    EXPECT_EQ(header.find("d")->end, 31);
    EXPECT_EQ(header.find("e"), nullptr);
    EXPECT_EQ(write_header({}, {}).substr(8), "{}      ");
    EXPECT_THROW((void)write_header(std::vector<NewTensor>{{"\xFF", FileType::U8, {0}, 0}}, {}),
                 Error);
}

TEST(Safetensors, TypesAreThoseOfTheFormat) {
    EXPECT_STREQ(file_type_name(file_type(DType::fp8_e5m2)), "F8_E5M2");
    EXPECT_STREQ(file_type_name(file_type(DType::e8m0)), "F8_E8M0");
    EXPECT_STREQ(file_type_name(file_type(DType::int16)), "I16");
    for (int32_t value = 1; value <= kDTypeCount; ++value) {
        const auto dtype = static_cast<DType>(value);
        if (dtype_bits(dtype) >= 8) {
            EXPECT_EQ(dtype_of(file_type(dtype)), dtype);
            EXPECT_EQ(bytes_of(file_type(dtype), 3), bytes_of(dtype, 3));
        }
    }
}
