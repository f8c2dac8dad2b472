// SPDX-License-Identifier: Apache-2.0
// GGUF: blocks become the numbers that the format's own package makes of them, its files are read as it reads them, and what is
// wrong in a header is called what it is.
#include "model/gguf.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "fixture_file.hpp"
#include "model/gguf_parts.hpp"
#include "model/gguf_text.hpp"
#include "numerics/block_quantize.hpp"
#include "numerics/block_types.hpp"
#include "status/status.hpp"

using namespace mp;
using namespace mp::model;
using mp::test::GgufText;

namespace {

// Bits, but of what is no number only that.
void expect_same(const std::vector<float>& got, const float* wanted) {
    for (std::size_t i = 0; i < got.size(); ++i) {
        const bool same = std::isnan(wanted[i])
                              ? std::isnan(got[i])
                              : std::memcmp(&got[i], &wanted[i], sizeof(float)) == 0;
        ASSERT_TRUE(same) << "element " << i << ": " << got[i] << ", not " << wanted[i];
    }
}

const float* floats_of(const mp_test::FixtureArray& array) {
    return reinterpret_cast<const float*>(array.bytes.data());
}

Header read(const std::string& file) {
    auto header = read_gguf(file, static_cast<int64_t>(file.size()));
    EXPECT_TRUE(header.has_value());
    return std::move(*header);
}

void expect_refused(const std::string& file, const char* words) {
    try {
        (void)read(file);
        ADD_FAILURE() << "taken: " << words;
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::corrupt_data);
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
}

constexpr uint32_t kF32 = 0, kQ80 = 8, kText = 8, kU32 = 4, kListType = 9;

} // namespace

TEST(Gguf, BlocksAreTheNumbersOfItsOwnPackage) {
    const mp_test::FixtureFile fixture("gguf");
    const std::pair<DType, const char*> types[] = {
        {DType::q4_0, "Q4_0"}, {DType::q4_1, "Q4_1"}, {DType::q5_0, "Q5_0"},
        {DType::q5_1, "Q5_1"}, {DType::q8_0, "Q8_0"}, {DType::q4_k, "Q4_K"},
        {DType::q5_k, "Q5_K"}, {DType::q6_k, "Q6_K"}, {DType::mxfp4_block, "MXFP4"}};
    for (const auto& [type, name] : types) {
        SCOPED_TRACE(name);
        const mp_test::FixtureArray& blocks = fixture.array(std::string("blocks/") + name);
        const mp_test::FixtureArray& wanted = fixture.array(std::string("floats/") + name);
        std::vector<float> got(static_cast<std::size_t>(wanted.count()));
        ASSERT_EQ(bytes_of(type, wanted.count()), blocks.count());
        numerics::load_floats(type, blocks.bytes.data(), 0, wanted.count(), got.data());
        expect_same(got, floats_of(wanted));
        for (const int64_t first : {1, 31, 32, 77}) { // within blocks
            got.resize(100);
            numerics::load_floats(type, blocks.bytes.data(), first, 100, got.data());
            expect_same(got, floats_of(wanted) + first);
        }
    }
}

TEST(Gguf, TheFilesOfItsOwnWriterAreReadWhole) {
    const mp_test::FixtureFile fixture("gguf");
    for (const char* name : {"all.gguf", "version2.gguf", "split-00002-of-00003.gguf"}) {
        const mp_test::FixtureArray& bytes = fixture.array(std::string("file/") + name);
        const std::string file(bytes.bytes.begin(), bytes.bytes.end());
        const Header header = read(file);
        const auto tensors = fixture.facts(std::string("tensor ") + name);
        ASSERT_EQ(header.tensors().size(), tensors.size());
        for (const auto& [tensor, words] : tensors) {
            const FileTensor* found = header.find(tensor);
            ASSERT_NE(found, nullptr) << tensor;
            std::string said = file_type_name(found->type);
            for (const int64_t size : header.shape(*found)) {
                said += " " + std::to_string(size);
            }
            EXPECT_EQ(said, words);
        }
        // Where the header ends within the text that is there, nothing is made of it.
        const auto begin = static_cast<std::size_t>(header.data_begin());
        for (const std::size_t length : {std::size_t{24}, begin / 2, begin - 64}) {
            EXPECT_FALSE(
                read_gguf(file.substr(0, length), static_cast<int64_t>(file.size())).has_value());
        }
        EXPECT_TRUE(
            read_gguf(file.substr(0, begin), static_cast<int64_t>(file.size())).has_value());
    }
}

TEST(Gguf, WhatIsWrongIsCalledWhatItIs) {
    expect_refused(GgufText(0, 0, 1).file(0), "version 1");
    expect_refused(GgufText(0, 0, 0x03000000).file(0), "big-endian");
    expect_refused(GgufText(UINT64_MAX, 0).file(0), "tensors");
    expect_refused(GgufText(0, uint64_t{1} << 40).file(0), "keys");
    expect_refused(GgufText(0, 1).add(UINT64_MAX).file(64), "the file is cut");
    expect_refused(GgufText(0, 1).key("\xff", kText).add_text("").file(0), "UTF-8");
    expect_refused(GgufText(1, 0).tensor("\xc0\xaf", {8}, kF32, 0).file(32), "UTF-8");
    expect_refused(GgufText(0, 1).key("k", 13).file(64), "unknown type 13");
    expect_refused(GgufText(0, 1).key("k", kListType).add(kListType).add(uint64_t{0}).file(64),
                   "lists in a list");
    expect_refused(GgufText(0, 1).key("k", kListType).add(kU32).add(UINT64_MAX / 4).file(64),
                   "items");
    expect_refused(
        GgufText(0, 1).key("k", kListType).add(kText).add(uint64_t{1}).add(uint64_t{9}).text(),
        "cut");
    expect_refused(GgufText(0, 2).key("k", kText).add_text("").key("k", kText).add_text("").file(0),
                   "key 'k' appears twice");
    for (const uint32_t alignment : {0U, 3U, 48U}) {
        expect_refused(GgufText(0, 1).key("general.alignment", kU32).add(alignment).file(0),
                       "power of two");
    }
    expect_refused(GgufText(0, 1).key("general.alignment", kText).add_text("32").file(0), "32-bit");
    expect_refused(GgufText(1, 0).tensor("t", {1, 1, 1, 1, 1}, kF32, 0).file(64), "5 dimensions");
    expect_refused(GgufText(1, 0).tensor("t", {1}, 4, 0).file(64), "unknown type 4");
    expect_refused(GgufText(1, 0).tensor("t", {31}, kQ80, 0).file(64), "blocks of 32 elements");
    expect_refused(GgufText(1, 0).tensor("t", {UINT64_MAX}, kF32, 0).file(64), "overflow");
    expect_refused(GgufText(1, 0).tensor("t", {uint64_t{1} << 62, 4}, kF32, 0).file(64),
                   "overflow");
    expect_refused(GgufText(1, 0).tensor("t", {0, uint64_t{1} << 62, 4}, kF32, 0).file(64),
                   "overflow");
    expect_refused(GgufText(1, 0).tensor("t", {8}, kF32, 8).file(64), "no multiple of 32");
    expect_refused(GgufText(1, 0).tensor("t", {8}, kF32, uint64_t{1} << 63).file(64),
                   "behind the end");
    expect_refused(GgufText(1, 0).tensor("t", {8}, kF32, 64).file(64), "the file is cut");
    expect_refused(GgufText(2, 0).tensor("a", {16}, kF32, 0).tensor("b", {8}, kF32, 32).file(96),
                   "before it ends");
    expect_refused(GgufText(2, 0).tensor("a", {8}, kF32, 0).tensor("a", {8}, kF32, 32).file(64),
                   "tensor 'a' appears twice");
}

TEST(Gguf, WhatIsUnusualIsTaken) {
    EXPECT_EQ(read(GgufText(0, 0).text()).tensors().size(), 0U); // no padding where nothing follows
    const Header header = read(GgufText(4, 1)
                                   .key("general.alignment", kU32)
                                   .add(uint32_t{1})
                                   .tensor("late", {2}, kF32, 9)
                                   .tensor("none", {0}, kF32, 1)
                                   .tensor("early", {1, 2}, kF32, 1)
                                   .tensor("one", {}, kF32, 20) // behind a hole
                                   .file(24, 1));
    ASSERT_EQ(header.tensors().size(), 4U);
    EXPECT_EQ(header.tensors()[0].name, "none");
    EXPECT_EQ(header.tensors()[1].name, "early");
    EXPECT_EQ(header.shape(header.tensors()[1]), (std::vector<int64_t>{2, 1}));
    EXPECT_EQ(header.tensors()[2].name, "late");
    EXPECT_EQ(header.tensors()[3].end, 24);
}

TEST(Gguf, PartsAreKnownByTheirNames) {
    EXPECT_EQ(gguf_part("/x/m-00002-of-00003.gguf"), (GgufPart{"/x/m", 2, 3}));
    EXPECT_EQ(gguf_path({"/x/m", 12, 345}), "/x/m-00012-of-00345.gguf");
    for (const char* name :
         {"m.gguf", "m-00002-of-00003.ggu", "m-0002-of-00003.gguf", "proof-of-concept.gguf",
          "m-00002-of-0000x.gguf", "m_00002-of-00003.gguf", "-+0002-of-00003.gguf",
          "m-00000-of-00003.gguf", "m-00004-of-00003.gguf", ""}) {
        EXPECT_FALSE(gguf_part(name).has_value()) << name;
    }
}

TEST(Gguf, NumbersBecomeTheBlocksOfItsOwnPackage) {
    const mp_test::FixtureFile fixture("gguf");
    const mp_test::FixtureArray& numbers = fixture.array("stored/numbers");
    const std::pair<DType, const char*> types[] = {
        {DType::fp16, "F16"}, {DType::bf16, "BF16"}, {DType::q8_0, "Q8_0"}, {DType::q4_0, "Q4_0"}};
    for (const auto& [dtype, name] : types) {
        const std::vector<unsigned char>& wanted =
            fixture.array(std::string("stored/") + name).bytes;
        std::vector<unsigned char> got(wanted.size(), 0xAA);
        ASSERT_EQ(bytes_of(dtype, numbers.count()), static_cast<int64_t>(wanted.size()));
        EXPECT_EQ(numerics::unstorable(dtype, floats_of(numbers), numbers.count()), -1);
        numerics::store_floats(dtype, floats_of(numbers), numbers.count(), got.data());
        EXPECT_EQ(got, wanted) << name;
    }
}

TEST(Gguf, ABlockHoldsNoNumberThatItsScaleCannot) {
    for (const DType dtype : {DType::q8_0, DType::q4_0}) {
        const float codes = dtype == DType::q8_0 ? 127.0F : 8.0F;
        std::vector<float> values(96, 1.0F);
        values[70] = -65504.0F * codes; // the largest scale
        EXPECT_EQ(numerics::unstorable(dtype, values.data(), 96), -1);
        values[70] = 65520.0F * codes;
        EXPECT_EQ(numerics::unstorable(dtype, values.data(), 96), 64);
        for (const float none : {INFINITY, -INFINITY, NAN}) {
            values[33] = none;
            EXPECT_EQ(numerics::unstorable(dtype, values.data(), 96), 32);
        }
    }
}
