// SPDX-License-Identifier: Apache-2.0
// Rules that name tensors of a model's files anew: what stars stand for, who takes what, and all that is refused.
#include "mapped_rules.hpp"
#include "model/name_pattern.hpp"
#include "status/status.hpp"

using namespace mp;
using namespace mp::model;
using namespace mp::test;

namespace {

std::string captured(const char* pattern, const char* name) {
    std::vector<std::string_view> stars;
    if (!NamePattern(pattern, false).match(name, stars)) {
        return "no";
    }
    std::string text;
    for (const std::string_view star : stars) {
        text += "[" + std::string(star) + "]";
    }
    EXPECT_EQ(NamePattern(pattern, false).fill(stars), name);
    return text;
}

const std::vector<MapTensor> kModel = {
    {"emb", FileType::F32, {4, 2}},   {"l.0.q", FileType::F32, {4, 2}},
    {"l.0.k", FileType::F32, {2, 2}}, {"l.0.n", FileType::F32, {2}},
    {"l.1.q", FileType::F32, {4, 2}}, {"l.1.k", FileType::F32, {2, 2}},
    {"l.1.n", FileType::F32, {2}}};

void expect_refused(const MapFixture& model, const std::string& rules, Code code,
                    const std::string& words) {
    try {
        (void)model.map(rules);
        ADD_FAILURE() << rules << " was taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), code) << rules << ": " << error.what();
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos)
            << rules << ": " << error.what();
    }
}

} // namespace

TEST(NamePattern, StarsStandForAsLittleAsTheyCan) {
    EXPECT_EQ(captured("a", "a"), "");
    EXPECT_EQ(captured("a", "b"), "no");
    EXPECT_EQ(captured("*", "a.b"), "[a.b]");
    EXPECT_EQ(captured("*", ""), "no");
    EXPECT_EQ(captured("a*", "a"), "no");
    EXPECT_EQ(captured("*a", "a"), "no");
    EXPECT_EQ(captured("*a", "aa"), "[a]");
    EXPECT_EQ(captured("a*a", "aa"), "no");
    EXPECT_EQ(captured("*.*", "a.b.c"), "[a][b.c]");
    EXPECT_EQ(captured("*.*", ".b"), "no");
    EXPECT_EQ(captured("*.*", "..b"), "[.][b]");
    EXPECT_EQ(captured("*.*.w", "a.b.w"), "[a][b]");
    EXPECT_EQ(captured("*.*.w", "a.w"), "no");
    EXPECT_EQ(captured("*.*.w", "a..w"), "no"); // the second would be empty
    EXPECT_EQ(captured("x.*.y.*.z", "x.1.y.y.y.z"), "[1][y.y]");
    EXPECT_EQ(captured("l.*.q", "l.10.q"), "[10]");
    std::vector<std::string_view> stars;
    EXPECT_TRUE(NamePattern("a*", true).match("a*", stars));
    EXPECT_FALSE(NamePattern("a*", true).match("ab", stars));
}

TEST(MappedNames, RulesTakeWhatTheySay) {
    const MapFixture model(kModel);
    EXPECT_EQ(model.names("b.*.n = l.*.n\n* = *"), "b.0.n b.1.n emb l.0.q l.0.k l.1.q l.1.k");
    EXPECT_EQ(model.names("  # a comment\n\n\"l.0.q\"=\"emb\" # another\r\n"), "l.0.q");
    EXPECT_EQ(model.names("out = emb\nin = emb"), "out in"); // tied
    // An operation takes again, a mere name does not.
    EXPECT_EQ(model.names("a.* = l.*.n\nb.* = rows(l.*.n, 0/2)\nc.* = l.*.n"), "a.0 a.1 b.0 b.1");
    // What has its name is left as it is.
    EXPECT_EQ(model.names("b.0 = emb\nb.* = l.*.n"), "b.0 b.1");
    EXPECT_EQ(model.names("* = *\n* = *"), "emb l.0.q l.0.k l.0.n l.1.q l.1.k l.1.n");
    EXPECT_EQ(model.names("qk.* = join(l.*.q, l.*.k)"), "qk.0 qk.1");
    EXPECT_EQ(model.names("* = *"), "emb l.0.q l.0.k l.0.n l.1.q l.1.k l.1.n");
}

TEST(MappedNames, AMapOfAMapIsOneMore) {
    const MapFixture model(kModel);
    const auto first = std::make_shared<MappedTensors>(model.origin, "a.* = l.*.q");
    const MappedTensors second(first, "b.* = rows(a.*, 1:3)");
    EXPECT_EQ(second.facts(1).shape, (std::vector<int64_t>{2, 2}));
    EXPECT_EQ(test::bytes_of(second, "b.1"), test::bytes_of(*model.origin, "l.1.q").substr(8, 16));
    EXPECT_EQ(second.find("a.1"), second.count());
    EXPECT_EQ(second.find("l.1.q"), second.count());
}

TEST(MappedNames, WhatCannotBeReadIsRefusedWithItsLine) {
    const MapFixture model(kModel);
    const std::pair<const char*, const char*> texts[] = {
        {"", "no rule"},
        {"# x = emb", "no rule"},
        {"\n x", "line 2: it ends where '=', behind the name"},
        {"x y = emb", "'y = emb' stands where '='"},
        {"x =", "it ends where a name or an operation"},
        {"x = # emb", "it ends where a name or an operation"},
        {"= emb", "'= emb' stands where the name"},
        {"x = emb emb", "'emb' stands where the end of the line"},
        {"x = emb)", "')' stands where the end of the line"},
        {"x = \"emb", "no end"},
        {"x = \"\"", "empty"},
        {"x = jion(emb, emb)", "there is no 'jion('"},
        {"x = join(emb", "join(EXPR, EXPR, ...)"},
        {"x = join(emb,)", "')' stands where a name"},
        {"x = join()", "')' stands where a name"},
        {"x = transpose(emb, emb)", "transpose(EXPR)"},
        {"x = rows(emb)", "before FIRST:END or PART/PARTS"},
        {"x = rows(emb, a)", "numbers from 0 on"},
        {"x = rows(emb, -1:2)", "numbers from 0 on"},
        {"x = rows(emb, 99999999999999999999:2)", "numbers from 0 on"},
        {"x = rows(emb, 1)", "'/' of PART/PARTS"},
        {"x = rows(emb, 1:)", "the number behind it"},
        {"x = rows(emb, 3:2)", "rows 3 to 2: the end is before the first"},
        {"x = rows(emb, 2/2)", "part 2 of 2: parts count from 0"},
        {"x = rows(emb, 0/0)", "part 0 of 0"},
        {"x = half_to_pairs(emb)", "before the number of heads"},
        {"x = half_to_pairs(emb, 0)", "0 heads"},
        {"x.* = emb", "'x.*' has 1 stars and 'emb' 0"},
        {"x = l.*.q", "'x' has 0 stars and 'l.*.q' 1"},
        {"x.* = join(l.*.q, emb)", "'emb' 0"},
        {"x.** = l.**", "two stars side by side"},
        {"*a*a*a*a*a*a*a*a* = x", "has 9 stars; there may be 8"},
        {"x\xff = emb", "not UTF-8"}};
    for (const auto& [rules, words] : texts) {
        expect_refused(model, rules, Code::invalid_argument, words);
    }
    expect_refused(model, std::string("x\0 = emb", 8), Code::invalid_argument, "zero byte");
}

TEST(MappedNames, NamesThatAreNotThereOrTwiceAreRefused) {
    const MapFixture model(kModel);
    expect_refused(model, "a = emb\nx = amb", Code::unknown_name,
                   "line 2: there is no tensor 'amb'");
    expect_refused(model, "x.* = L.*.q", Code::unknown_name, "such as 'L.*.q'");
    expect_refused(model, "x.* = join(l.*.q, l.*.v)", Code::unknown_name, "no tensor 'l.0.v'");
    expect_refused(model, "x = emb\nx = emb", Code::invalid_argument,
                   "line 2: 'x' is there already, by line 1");
    expect_refused(model, "* = *\nemb = l.0.q", Code::invalid_argument, "by line 1");
    const MapFixture dots({{"a.bc", FileType::U8, {1}}, {"ab.c", FileType::U8, {1}}});
    expect_refused(dots, "*\"x\" = a", Code::invalid_argument, "stands where '='");
    const MapFixture same({{"a.bxc", FileType::U8, {1}}, {"axb.c", FileType::U8, {1}}});
    expect_refused(same, "*x* = *.*", Code::invalid_argument,
                   "gives the name 'axbxc' to two tensors, the second of which is 'axb.c'");
}

TEST(MappedNames, WhatIsTooMuchIsRefused) {
    const MapFixture model(kModel);
    std::string deep = "emb";
    for (int i = 0; i < 15; ++i) {
        deep = "join(" + deep + ")";
    }
    EXPECT_EQ(model.names("x = " + deep), "x");
    expect_refused(model, "x = join(" + deep + ")", Code::invalid_argument, "more than 15 deep");
    std::string joined = "emb", patterns;
    for (int i = 1; i < 1024; ++i) {
        joined += ",emb";
    }
    EXPECT_EQ(model.names("x = join(" + joined + ")"), "x");
    expect_refused(model, "x = join(" + joined + ",emb)", Code::invalid_argument, "more than 1024");
    for (int i = 0; i < 1024; ++i) {
        patterns += "x" + std::to_string(i) + ".* = rows(l.*.q, 0/2)\n";
    }
    EXPECT_EQ(model.map(patterns).count(), 2048U);
    expect_refused(model, patterns + "y.* = l.*.q", Code::invalid_argument, "line 1025");
    expect_refused(model, std::string((std::size_t{1} << 20) + 1, '\n'), Code::invalid_argument,
                   "1048577 bytes");
    // 2^20 tensors and operations: 64 names a rule, for both layers.
    std::string many, names = "l.*.q";
    for (int i = 1; i < 64; ++i) {
        names += ",l.*.q";
    }
    for (int i = 0; i < 1000; ++i) {
        many += "x" + std::to_string(i) + ".* = join(" + names + ")\n";
    }
    EXPECT_EQ(model.map(many).count(), 2000U);
    std::vector<MapTensor> layers;
    for (int i = 0; i < 40; ++i) {
        layers.push_back({"l." + std::to_string(i) + ".q", FileType::U8, {1}});
    }
    expect_refused(MapFixture(layers), many, Code::invalid_argument,
                   "1048576 tensors and operations");
    const std::string longer = std::string(200000, 'x') + ".";
    std::string texts;
    for (int i = 0; i < 5; ++i) {
        texts += longer + std::to_string(i) + ".* = rows(l.*.q, 0/1)\n";
    }
    for (int i = 40; i < 80; ++i) {
        layers.push_back({"l." + std::to_string(i) + ".q", FileType::U8, {1}});
    }
    expect_refused(MapFixture(layers), texts, Code::invalid_argument, "names of 67108864 bytes");
}
