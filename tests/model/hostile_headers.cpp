// SPDX-License-Identifier: Apache-2.0
// Large hostile headers: each is refused, with no allocation above twice the file's size and 1 MiB (a string that the
// JSON parser's buffer grows for), and with work that grows as the file does. Work is judged by what is allocated and which
// names are looked at; the time is only printed.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "allocations.hpp"
#include "checkpoint/manifest.hpp"
#include "model/gguf.hpp"
#include "model/gguf_text.hpp"
#include "model/name_index.hpp"
#include "model/safetensors.hpp"
#include "status/status.hpp"
#include "system/crc32c.hpp"

using namespace mp;
using namespace mp::checkpoint;
using namespace mp::model;
using mp::test::allocated_bytes;
using mp::test::largest_allocation;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

template <typename Parse> void expect_refused(std::size_t bytes, const char* words, Parse&& parse) {
    const auto start = std::chrono::steady_clock::now();
    largest_allocation = 0;
    allocated_bytes = 0;
    std::string text;
    try {
        parse();
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::corrupt_data);
        text = error.status().text();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_NE(text.find(words), std::string::npos) << words << ": " << text;
    EXPECT_LE(largest_allocation, 2 * bytes + kMiB) << words;
    // The shortest text of a thing, 6 bytes of metadata, becomes 48 bytes and a share of what finds them. One string fills
    // two buffers of the JSON parser, each doubled until it is there; and where it is refused its message copies it.
    EXPECT_LE(allocated_bytes, 20 * bytes + kMiB) << words;
    std::printf("%-40s %9zu bytes %6.0f ms, allocated %zu, at most %zu at once\n", words, bytes,
                seconds.count() * 1e3, allocated_bytes.load(), largest_allocation.load());
}

void header(const std::string& text, int64_t data, const char* words) {
    expect_refused(text.size() + 8, words, [&] {
        (void)read_safetensors(text, static_cast<int64_t>(text.size()) + 8 + data);
    });
}

std::string repeat(const std::string& slice, std::size_t times) {
    std::string text;
    text.reserve(slice.size() * times);
    for (std::size_t i = 0; i < times; ++i) {
        text += slice;
    }
    return text;
}

template <typename Offset>
std::string many(std::size_t count, const std::string& name, Offset&& offset) {
    std::string text = "{";
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t begin = offset(i);
        text += "\"" + name + std::to_string(i) +
                "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" + std::to_string(begin) +
                "," + std::to_string(begin + 1) + "]},";
    }
    text.back() = '}';
    return text;
}
std::size_t nowhere_else(std::size_t /*index*/) { return 0; }

} // namespace

TEST(SafetensorsHostile, LargeHeaders) {
    header("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 0,
           "nested too deeply");
    header("{\"a\":" + repeat("{\"a\":", 100000) + "1" + std::string(100001, '}'), 0,
           "nested too deeply");
    header("{" + repeat("\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},", 1000000) +
               "\"x\":1}",
           0, "where '{' must");
    header("{" + repeat("\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},", 999999) +
               "\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
           0, "appears twice");
    header("{\"" + std::string(10000000, 'k') + "\":1}", 0, "where '{' must");
    header("{\"a\":{\"dtype\":\"U8\",\"shape\":[" + repeat("1,", 1000000) +
               "1],\"data_offsets\":[0,1]}}",
           1, "more than 8 dimensions");
    header(many(1000000, "t", nowhere_else), 1, "no hole and no overlap");
    // From the last to the first, with names that differ late; the data are a byte short.
    const auto backwards = [](std::size_t i) { return 999999 - i; };
    header(many(1000000, std::string(20, 'n'), backwards), 999999, "end at byte 1000000 of 999999");
    header("{\"__metadata__\":{" + repeat("\"\":\"\",", 1000000) + "\"\":\"\"}}", 0,
           "appears twice");
    std::string keys;
    for (int i = 0; i < 1000000; ++i) {
        keys += "\"" + std::to_string(i) + "\":\"\",";
    }
    header("{\"__metadata__\":{" + keys + "\"0\":\"\"}}", 0, "appears twice");
    header("{" + std::string(10000000, ' '), 0, "unexpected end of input");
    header("{}" + std::string(10000000, ' ') + "x", 0, "invalid literal");
    header(many(10, "t", nowhere_else), -1, "longer than the file");
}

// Of GGUF the shortest things are texts of a list, keys, and tensors.
TEST(GgufHostile, LargeHeaders) {
    const auto refused = [](const std::string& file, const char* words) {
        expect_refused(file.size(), words,
                       [&] { (void)read_gguf(file, static_cast<int64_t>(file.size())); });
    };
    constexpr uint32_t kText = 8, kList = 9;
    test::GgufText texts(1, 1);
    texts.key("k", kList).add(kText).add(uint64_t{1000000});
    test::GgufText keys(0, 500000), tensors(500000, 0);
    for (int i = 0; i < 500000; ++i) {
        texts.add_text("").add_text("");
        keys.key("", 7).add(uint8_t{0});
        tensors.tensor("", {}, 24, 0);
    }
    refused(texts.tensor("t", {1}, 999, 0).text(), "unknown type 999");
    refused(keys.text(), "key '' appears twice");
    refused(tensors.file(1), "tensor '' appears twice");
}

// Eight sizes a tensor, and names with a long common beginning.
TEST(SafetensorsHostile, WhatIsAcceptedStaysWithinItsSizeToo) {
    std::string text = "{";
    for (int i = 0; i < 100000; ++i) {
        text += "\"" + std::string(100, 'n') + std::to_string(i) +
                "\":{\"dtype\":\"U8\",\"shape\":[0,0,0,0,0,0,0,0],\"data_offsets\":[0,0]},";
    }
    text.back() = '}';
    largest_allocation = 0;
    const Header parsed = read_safetensors(text, static_cast<int64_t>(text.size()) + 8);
    EXPECT_LE(largest_allocation, text.size() + kMiB);
    EXPECT_EQ(parsed.tensors().size(), 100000U);
    EXPECT_NE(parsed.find(std::string(100, 'n') + "77777"), nullptr);
}

// Names are looked at once each to be ordered where their hashes differ, and as often as a sort does where somebody has
// made them all equal.
TEST(SafetensorsHostile, NamesOfOneHash) {
    constexpr std::size_t kNames = 100000;
    const auto looks_at = [](const std::vector<std::string>& names) {
        int64_t looks = 0;
        const auto name_of = [&](std::size_t i) -> std::string_view {
            ++looks;
            return names[i];
        };
        NameIndex index;
        index.build(names.size(), name_of);
        const int64_t result = looks;
        EXPECT_EQ(index.duplicate(name_of), NameIndex::kNone);
        for (const std::size_t i : {std::size_t{0}, names.size() / 2, names.size() - 1}) {
            EXPECT_EQ(index.find(names[i], name_of), i);
        }
        EXPECT_EQ(index.find("none", name_of), NameIndex::kNone);
        return result;
    };
    std::vector<std::string> ordinary;
    std::vector<std::string> crafted;
    for (uint64_t i = 0; i < kNames; ++i) {
        ordinary.push_back(std::string(50, 'n') + std::to_string(i));
        // The second word takes away what the first one did.
        system::Fnv64 hash;
        hash.add_words(&i, sizeof i);
        const uint64_t words[] = {i, hash.value()};
        crafted.emplace_back(reinterpret_cast<const char*>(words), sizeof words);
    }
    EXPECT_EQ(looks_at(ordinary), static_cast<int64_t>(kNames));
    const int64_t looks = looks_at(crafted);
    EXPECT_GT(looks, static_cast<int64_t>(10 * kNames)); // they have one hash indeed
    EXPECT_LT(looks,
              static_cast<int64_t>(2 * 2 * 17 * kNames)); // two a comparison, n log2 n of those
}

TEST(SafetensorsHostile, LengthsAtTheBorders) {
    const auto length = [](uint64_t value, int64_t file_bytes) {
        unsigned char prefix[8] = {};
        std::memcpy(prefix, &value, sizeof value);
        expect_refused(8, "safetensors", [&] { (void)header_bytes(prefix, file_bytes); });
    };
    for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 63, ~uint64_t{0},
                                 ~uint64_t{0} - 7, uint64_t{100000001}}) {
        length(value, INT64_MAX);
    }
    length(100, 107);
    length(2, 0);
    length(2, 9);
}

TEST(SafetensorsHostile, LargeManifests) {
    const auto manifest = [](const std::string& body, const char* words) {
        std::string text =
            "{\"format\":\"mixedprec-checkpoint\",\"version\":1,\"minor\":0,\"chunk_bytes\":64," +
            body;
        const uint32_t crc = system::crc32c(0, text.data(), text.size());
        text += ",\"crc32c\":\"" + hex(crc, 8) + "\"}\n";
        expect_refused(text.size(), words, [&] { (void)read_manifest(text); });
    };
    manifest("\"files\":[" + repeat("{\"name\":\"a\",\"bytes\":0,\"crc32c\":\"\"},", 500000) +
                 "{\"name\":\"a\",\"bytes\":0,\"crc32c\":\"\"}]",
             "is missing");
    manifest(
        "\"tensors\":[" +
            repeat(
                "{\"name\":\"a\",\"state\":\"b\",\"format\":\"fp32\",\"shape\":[],\"pieces\":[]},",
                500000) +
            "{}]",
        "key 'name' must stand here");
    manifest("\"tensors\":[{\"name\":\"a\",\"state\":\"b\",\"format\":\"fp32\",\"shape\":[9],"
             "\"pieces\":[" +
                 repeat("[0,0,9],", 1000000) + "[0,0,9]]}]",
             "more than 32768 slices");
    manifest("\"scalars\":[" + repeat("[\"a\",\"0123456789abcdef\"],", 500000) + "[]]", "ordered");
    manifest("\"library\":\"" + std::string(10000000, 'x') + "\"", "a text has 10000000 bytes");
    manifest("\"later\":" + std::string(1000000, '['), "nested too deeply");
}
