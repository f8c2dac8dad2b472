// SPDX-License-Identifier: Apache-2.0
// The manifest: its canonical bytes, what must hold between its fields, and versions to come.
#include <gtest/gtest.h>

#include <functional>

#include "checkpoint/manifest.hpp"
#include "status/status.hpp"
#include "system/crc32c.hpp"

using namespace mp;
using namespace mp::checkpoint;

namespace {

Manifest example() {
    Manifest manifest;
    manifest.library = "0.1.0";
    manifest.id = "0123456789abcdef0123456789abcdef";
    manifest.step = 10;
    manifest.sequence = 3;
    manifest.world = 2;
    manifest.recipe = "{\n  \"recipe\": \"fp32\"\n}\n";
    manifest.preset = "bf16_mixed";
    manifest.device = "host, 2 threads";
    manifest.plan = 0xFEDCBA9876543210ULL;
    manifest.chunk_bytes = 200;
    manifest.seed = 7;
    manifest.rng_step = 9;
    manifest.files = {{"shard-0-of-2.safetensors", 300, {1, 0xFFFFFFFF}},
                      {"shard-1-of-2.safetensors", 360, {2, 3}}};
    manifest.tensors = {
        {"w\"\\\xC3\xA9\n", "param", FormatId::bf16, {3, 4}, {{0, 0, 7}, {1, 7, 5}}},
        {"x", "exp_avg", FormatId::dynamic8, {600}, {{1, 256, 344}, {0, 0, 256}}},
        {"none", "param", FormatId::fp32, {0, 3}, {}},
        {"scalar", "param", FormatId::fp32, {}, {{0, 0, 1}}}};
    manifest.scalars = {{"scaler.scale", 0x40F0000000000000ULL}, {"optimizer.t", 9}};
    return manifest;
}

// The text with other words, and the checksum that belongs to it.
std::string with(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const std::size_t tail = text.rfind(",\"crc32c\"");
    return text.substr(0, tail) + ",\"crc32c\":\"" + hex(system::crc32c(0, text.data(), tail), 8) +
           "\"}\n";
}

std::string refusal(const std::string& text) {
    try {
        (void)read_manifest(text);
    } catch (const Error& error) {
        EXPECT_TRUE(error.status().code() == Code::corrupt_data ||
                    error.status().code() == Code::version_mismatch);
        return error.status().text();
    }
    return "";
}

void expect_refused(const std::string& from, const std::string& to, const char* why) {
    Manifest manifest = example();
    const std::string text = refusal(with(write_manifest(manifest), from, to));
    EXPECT_NE(text.find(why), std::string::npos) << to << ": " << text;
}

} // namespace

TEST(Manifest, WritesOneFormAndReadsItBack) {
    Manifest manifest = example();
    const std::string text = write_manifest(manifest);
    Manifest again = read_manifest(text);
    EXPECT_EQ(write_manifest(again), text);
    EXPECT_EQ(again.step, 10);
    EXPECT_EQ(again.plan, 0xFEDCBA9876543210ULL);
    EXPECT_EQ(again.preset, "bf16_mixed");
    EXPECT_EQ(again.device, "host, 2 threads");
    ASSERT_NE(again.find("x", "exp_avg"), nullptr);
    EXPECT_EQ(again.find("x", "exp_avg")->slices[0].start, 0);
    EXPECT_EQ(again.find("x", "exp_avg")->format, FormatId::dynamic8);
    EXPECT_EQ(again.find("w\"\\\xC3\xA9\n", "param")->count(), 12);
    EXPECT_EQ(again.find("x", "param"), nullptr);
    EXPECT_EQ(again.find_scalar("scaler.scale")->bits, 0x40F0000000000000ULL);
    EXPECT_EQ(again.find_scalar("scaler"), nullptr);
}

TEST(Manifest, Versions) {
    expect_refused("\"version\":1", "\"version\":0", "no format version 0");
    expect_refused("\"version\":1", "\"version\":2", "format version 2 is not known");
    expect_refused("\"version\":1", "\"version\":4294967295", "format version 4294967295");
    expect_refused("mixedprec-checkpoint", "other", "no checkpoint of this library");
    expect_refused("\"step\":10", "\"later\":[1],\"step\":10", "key 'later' is unknown");
    expect_refused("\"version\":1,\"minor\":3", "\"minor\":3,\"version\":1,\"version\":1", "twice");
    // What came with a minor version stands in no earlier one, and is missed in its own.
    expect_refused("\"minor\":3", "\"minor\":1", "'preset' came with minor version 2");
    expect_refused("\"device\":\"host, 2 threads\",", "", "'device' is missing");
    // A later minor version may have more keys, with values of any kind but not of any depth.
    Manifest manifest = example();
    const std::string text = write_manifest(manifest);
    const std::string later = with(with(text, "\"minor\":3", "\"minor\":4"), "\"step\":10",
                                   R"("later":{"a":[1,"]",{"b":true}],"c":null},"step":10)");
    EXPECT_EQ(refusal(later), "");
    std::string deep = "\"minor\":4,\"deep\":";
    deep += std::string(100000, '[') + std::string(100000, ']');
    EXPECT_NE(refusal(with(text, "\"minor\":3", deep)).find("too deeply"), std::string::npos);
}

TEST(Manifest, NumbersAndTexts) {
    for (const char* number : {"-1", "1.0", "1e3", "01", "9223372036854775808", "\"10\"", "0x10",
                               "", "18446744073709551616", "9007199254740993", "NaN", "-0"}) {
        expect_refused("\"step\":10", std::string("\"step\":") + number, "manifest");
    }
    expect_refused("\"world\":2", "\"world\":0", "world is 0");
    expect_refused("\"world\":2", "\"world\":2147483648", "world is 2147483648");
    expect_refused("\"world\":2", "\"world\":3", "the number of files");
    expect_refused("\"chunk_bytes\":200", "\"chunk_bytes\":0", "chunk_bytes is 0");
    expect_refused("philox4x32-10", "philox", "unknown algorithm");
    expect_refused("\"seed\":\"0000000000000007\",", "", "'seed' must stand here");
    expect_refused("0123456789abcdef0123456789abcdef", "0123456789abcdef", "16 bytes");
    expect_refused("0123456789abcdef0123456789abcdef", "0123456789ABCDEF0123456789abcdef",
                   "another character");
    expect_refused("\"name\":\"x\"", "\"name\":\"\\ud800\"", "surrogate");
    expect_refused("\"name\":\"x\"", "\"name\":\"\xFF\"", "UTF-8");
    expect_refused("\"scalars\"", "\"step\":10,\"scalars\"", "'step' appears twice");
}

TEST(Manifest, Files) {
    for (const char* name :
         {"../x", "/etc/passwd", "a/b", ".", "..", ".hidden", "manifest.json", "", "a\\u0000b"}) {
        expect_refused("shard-0-of-2.safetensors", name, "manifest");
    }
    expect_refused("shard-0-of-2.safetensors", "shard-1-of-2.safetensors", "listed twice");
    expect_refused("\"bytes\":300", "\"bytes\":700", "number of checksums");
    expect_refused("\"bytes\":300", "\"bytes\":9223372036854775807", "bytes is");
    expect_refused("00000001ffffffff", "00000001fffffff", "8 digits");
}

// Whatever claims more bytes than its file has, of every tensor and in every number of elements that no other rule refuses.
TEST(Manifest, FilesHaveRoomForTheirTensors) {
    for (const int64_t more : {int64_t{37}, int64_t{1} << 31, int64_t{1} << 36, int64_t{1} << 58}) {
        for (const char* file : {"0", "1"}) {
            Manifest manifest = example();
            manifest.tensors.push_back(
                {"z", "data", format_id(DType::uint8), {more}, {{file[0] - '0', 0, more}}});
            const std::string text = manifest_text(manifest);
            EXPECT_NE(refusal(text).find("larger than what is left of its file"), std::string::npos)
                << more << ": " << refusal(text);
        }
    }
    Manifest fits = example(); // 300 - 14 - 256 - 4, and 360 - 10 - 344
    fits.tensors.push_back({"z", "data", format_id(DType::uint8), {26}, {{0, 0, 26}}});
    fits.tensors.push_back({"zz", "data", format_id(DType::uint8), {6}, {{1, 0, 6}}});
    EXPECT_EQ(refusal(write_manifest(fits)), "");
    expect_refused("\"shape\":[600],\"pieces\":[[0,0,256],[1,256,344]]",
                   "\"shape\":[633],\"pieces\":[[0,0,256],[1,256,377]]", "larger than");
}

TEST(Manifest, Slices) {
    expect_refused("[0,0,7]", "[0,0,6]", "hole or an overlap at element 6");
    expect_refused("[0,0,7]", "[0,0,8]", "hole or an overlap at element 8");
    expect_refused("[1,7,5]", "[1,7,4]", "end at element 11 of 12");
    expect_refused("[1,7,5]", "[1,7,6]", "beyond its tensor");
    expect_refused("[1,7,5]", "[2,7,5]", "not listed");
    expect_refused("[1,7,5]", "[1,7,5],[1,12,0]", "empty");
    expect_refused("[1,7,5]", "[1,9223372036854775807,9223372036854775807]", "beyond its tensor");
    expect_refused("[0,0,256],[1,256,344]", "[0,0,255],[1,255,345]", "block");
    expect_refused("\"shape\":[3,4]", "\"shape\":[4294967296,4294967296]", "too many elements");
    expect_refused("\"shape\":[3,4]", "\"shape\":[0,9223372036854775807,4]", "too many elements");
    expect_refused("\"shape\":[3,4]", "\"shape\":[9223372036854775807,4,0]", "too many elements");
    expect_refused("\"shape\":[3,4]", "\"shape\":[1,1,1,1,1,1,1,3,4]", "dimensions");
    expect_refused("\"format\":\"bf16\"", "\"format\":\"bf17\"", "unknown format");
    expect_refused("\"state\":\"exp_avg\"", "\"state\":\"exp.avg\"", "dot");
    expect_refused("\"name\":\"x\"", "\"name\":\"a\"", "ordered");
    expect_refused("\"name\":\"x\"", "\"name\":\"scalar\"", "ordered");
}

TEST(Manifest, ChecksumCoversEveryByte) {
    Manifest manifest = example();
    std::string text = write_manifest(manifest);
    for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
        text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
        EXPECT_NE(refusal(text), "") << bit;
        text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    }
    for (std::size_t length = 0; length < text.size(); ++length) {
        EXPECT_NE(refusal(text.substr(0, length)), "") << length;
    }
    EXPECT_NE(refusal(text + "\n"), "");
}

TEST(Manifest, WhatNoReaderWouldTakeIsNotWritten) {
    Manifest manifest = example();
    manifest.tensors[0].slices.pop_back();
    EXPECT_THROW((void)write_manifest(manifest), Error);
    manifest = example();
    manifest.tensors[0].name = "\xFF";
    EXPECT_THROW((void)write_manifest(manifest), Error);
}
