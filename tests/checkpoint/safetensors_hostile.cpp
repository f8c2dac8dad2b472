// SPDX-License-Identifier: Apache-2.0
// Large hostile headers: each is refused within a second, with no allocation above the file's size and 1 MiB.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "checkpoint/crc32c.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/safetensors.hpp"
#include "status/status.hpp"

namespace {
thread_local std::size_t largest_allocation = 0;
} // namespace

// Not inlined: a compiler that sees only one of new and delete takes malloc and free for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
    largest_allocation = std::max(largest_allocation, size);
    void* memory = std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
    std::free(memory);
}

using namespace mp;
using namespace mp::checkpoint;

namespace {

template <typename Parse> void expect_refused(std::size_t bytes, const char* words, Parse&& parse) {
    const auto start = std::chrono::steady_clock::now();
    largest_allocation = 0;
    std::string text;
    try {
        parse();
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::corrupt_data);
        text = error.status().text();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_NE(text.find(words), std::string::npos) << words << ": " << text;
    EXPECT_LE(largest_allocation, bytes + (std::size_t{1} << 20)) << words;
    // A second where nothing slows it down, several under the sanitizers; quadratic in a million it would be hours.
    EXPECT_LT(seconds.count(), 100.0) << words;
    std::printf("%-40s %9zu bytes %6.0f ms, largest allocation %zu\n", words, bytes,
                seconds.count() * 1e3, largest_allocation);
}

void header(const std::string& text, int64_t data, const char* words) {
    std::vector<char> bytes(text.begin(), text.end());
    expect_refused(text.size() + 8, words, [&] {
        (void)Header(std::move(bytes), static_cast<int64_t>(text.size()) + 8 + data);
    });
}

std::string repeat(const std::string& piece, std::size_t times) {
    std::string text;
    text.reserve(piece.size() * times);
    for (std::size_t i = 0; i < times; ++i) {
        text += piece;
    }
    return text;
}

std::string many(std::size_t count, const std::string& offsets) {
    std::string text = "{";
    for (std::size_t i = 0; i < count; ++i) {
        text += "\"t" + std::to_string(i) +
                "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":" + offsets + "},";
    }
    text.back() = '}';
    return text;
}

} // namespace

TEST(SafetensorsHostile, LargeHeaders) {
    header("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 0,
           "where '{' must");
    header("{\"a\":" + repeat("{\"a\":", 100000) + "1" + std::string(100001, '}'), 0,
           "unknown field");
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
    header(many(1000000, "[0,1]"), 1, "no hole and no overlap");
    header("{\"__metadata__\":{" + repeat("\"\":\"\",", 1000000) + "\"\":\"\"}}", 0,
           "appears twice");
    header("{" + std::string(10000000, ' '), 0, "ends where");
    header("{}" + std::string(10000000, ' ') + "x", 0, "follows the end");
    header(many(10, "[0,1]"), -1, "longer than the file");
}

// Eight sizes a tensor, and names with a long common beginning.
TEST(SafetensorsHostile, WhatIsAcceptedStaysWithinItsSizeToo) {
    std::string text = "{";
    for (int i = 0; i < 100000; ++i) {
        text += "\"" + std::string(100, 'n') + std::to_string(i) +
                "\":{\"dtype\":\"U8\",\"shape\":[0,0,0,0,0,0,0,0],\"data_offsets\":[0,0]},";
    }
    text.back() = '}';
    std::vector<char> bytes(text.begin(), text.end());
    largest_allocation = 0;
    const Header parsed(std::move(bytes), static_cast<int64_t>(text.size()) + 8);
    EXPECT_LE(largest_allocation, text.size() + (std::size_t{1} << 20));
    EXPECT_EQ(parsed.tensors().size(), 100000U);
    EXPECT_NE(parsed.find(std::string(100, 'n') + "77777"), nullptr);
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
        const uint32_t crc = crc32c(0, text.data(), text.size());
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
        "where '\"' must");
    manifest("\"tensors\":[{\"name\":\"a\",\"state\":\"b\",\"format\":\"fp32\",\"shape\":[9],"
             "\"pieces\":[" +
                 repeat("[0,0,9],", 1000000) + "[0,0,9]]}]",
             "more than 32768 pieces");
    manifest("\"scalars\":[" + repeat("[\"a\",\"0123456789abcdef\"],", 500000) + "[]]", "ordered");
    manifest("\"library\":\"" + std::string(10000000, 'x') + "\"", "a text has 10000000 bytes");
    manifest("\"later\":" + std::string(1000000, '['), "key 'later' is unknown");
}
