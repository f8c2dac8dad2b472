// SPDX-License-Identifier: Apache-2.0
// What rules make of a model's tensors: every range of bytes, against a plain calculation on all of them; what does not fit; and
// files that cannot be read any more.
#include <cstring>

#include "mapped_rules.hpp"
#include "status/status.hpp"

using namespace mp;
using namespace mp::model;
using namespace mp::test;

namespace {

const std::vector<MapTensor> kTensors = {{"a", FileType::F32, {6, 5}},
                                         {"b", FileType::F32, {4, 5}},
                                         {"h", FileType::BF16, {12, 3}},
                                         {"d", FileType::F64, {3, 7}},
                                         {"u", FileType::U8, {5, 9}},
                                         {"v", FileType::F32, {12}},
                                         {"t", FileType::BF16, {3, 2, 2}},
                                         {"e", FileType::F32, {0, 5}},
                                         {"f", FileType::F4, {4, 6}},
                                         {"odd", FileType::F4, {4, 3}},
                                         {"one", FileType::F32, {}},
                                         {"n", FileType::F32, {5, 0}},
                                         {"big", FileType::F32, {0, int64_t{1} << 50}}};

struct Whole {
    std::vector<int64_t> shape;
    std::string bytes;
    [[nodiscard]] std::string row(int64_t i) const {
        const std::size_t size = bytes.size() / static_cast<std::size_t>(shape[0]);
        return bytes.substr(static_cast<std::size_t>(i) * size, size);
    }
};
Whole whole(const TensorSource& source, const std::string& name) {
    return {source.facts(source.find(name)).shape, test::bytes_of(source, name)};
}
Whole transpose(const Whole& of, std::size_t element) {
    Whole result{{of.shape[1], of.shape[0]}, ""};
    for (int64_t i = 0; i < of.shape[1]; ++i) {
        for (int64_t j = 0; j < of.shape[0]; ++j) {
            result.bytes += of.row(j).substr(static_cast<std::size_t>(i) * element, element);
        }
    }
    return result;
}
Whole join(const Whole& a, const Whole& b) {
    Whole result = a;
    result.shape[0] += b.shape[0];
    result.bytes += b.bytes;
    return result;
}
Whole rows(const Whole& of, const std::vector<int64_t>& list) {
    Whole result = of;
    result.shape[0] = static_cast<int64_t>(list.size());
    result.bytes.clear();
    for (const int64_t i : list) {
        result.bytes += of.row(i);
    }
    return result;
}

// All ranges of bytes.
void expect_equal(const MapFixture& model, const std::string& expression, const Whole& wanted) {
    const MappedTensors mapped = model.map("x = " + expression);
    const TensorFacts facts = mapped.facts(0);
    EXPECT_EQ(facts.shape, wanted.shape) << expression;
    ASSERT_EQ(facts.bytes, static_cast<int64_t>(wanted.bytes.size())) << expression;
    std::string got;
    for (std::size_t begin = 0; begin <= wanted.bytes.size(); ++begin) {
        for (std::size_t n = 0; n <= wanted.bytes.size() - begin; ++n) {
            got.assign(n, '\0');
            mapped.read(0, static_cast<int64_t>(begin), got.data(), n);
            ASSERT_EQ(got, wanted.bytes.substr(begin, n)) << expression << " at " << begin;
        }
    }
    EXPECT_THROW(mapped.read(0, 0, got.data(), wanted.bytes.size() + 1), Error);
}

void expect_refused(const MapFixture& model, const std::string& expression, Code code,
                    const char* words) {
    try {
        (void)model.map("\nx = " + expression);
        ADD_FAILURE() << expression << " was taken";
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), code) << error.what();
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("line 2"), std::string::npos) << error.what();
    }
}

} // namespace

TEST(MappedTensors, EveryRangeIsThatOfAPlainCalculation) {
    const MapFixture model(kTensors);
    const TensorSource& files = *model.origin;
    const Whole a = whole(files, "a"), b = whole(files, "b"), h = whole(files, "h"),
                v = whole(files, "v");
    expect_equal(model, "a", a);
    expect_equal(model, "one", whole(files, "one"));
    expect_equal(model, "join(a, b)", join(a, b));
    expect_equal(model, "join(a, e, b, e)", join(a, b));
    expect_equal(model, "rows(a, 1/3)", rows(a, {2, 3}));
    expect_equal(model, "rows(a, 2:2)", Whole{{0, 5}, ""});
    expect_equal(model, "rows(join(a, b), 4:9)", rows(join(a, b), {4, 5, 6, 7, 8}));
    expect_equal(model, "rows(t, 1:3)", rows(whole(files, "t"), {1, 2}));
    expect_equal(model, "rows(f, 1:2)", rows(whole(files, "f"), {1}));
    expect_equal(model, "transpose(a)", transpose(a, 4));
    expect_equal(model, "transpose(h)", transpose(h, 2));
    expect_equal(model, "transpose(d)", transpose(whole(files, "d"), 8));
    expect_equal(model, "transpose(u)", transpose(whole(files, "u"), 1));
    expect_equal(model, "transpose(e)", Whole{{5, 0}, ""});
    expect_equal(model, "transpose(n)", Whole{{0, 5}, ""});
    expect_equal(model, "transpose(transpose(a))", a);
    expect_equal(model, "rows(transpose(h), 1/3)", rows(transpose(h, 2), {1}));
    expect_equal(model, "transpose(join(rows(a, 0:2), rows(b, 3:4)))",
                 transpose(join(rows(a, {0, 1}), rows(b, {3})), 4));
    expect_equal(model, "half_to_pairs(h, 3)", rows(h, {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11}));
    expect_equal(model, "half_to_pairs(v, 2)", rows(v, {0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}));
    expect_equal(model, "pairs_to_half(h, 2)", rows(h, {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
    expect_equal(model, "pairs_to_half(half_to_pairs(h, 2), 2)", h);
    expect_equal(model, "half_to_pairs(f, 1)", rows(whole(files, "f"), {0, 2, 1, 3}));
}

TEST(MappedTensors, NumbersAreReadAsFromAFile) {
    const MapFixture model(kTensors);
    const MappedTensors mapped = model.map("x = transpose(h)");
    std::vector<float> origin(36), all(36), some(20);
    model.origin->read_floats(model.origin->find("h"), 0, origin);
    mapped.read_floats(0, 0, all);
    mapped.read_floats(0, 7, some);
    for (std::size_t i = 0; i < 3; ++i) {
        for (std::size_t j = 0; j < 12; ++j) {
            EXPECT_EQ(std::memcmp(&all[i * 12 + j], &origin[j * 3 + i], sizeof(float)), 0);
        }
    }
    EXPECT_EQ(std::memcmp(some.data(), all.data() + 7, 20 * sizeof(float)), 0);
    EXPECT_THROW(model.map("x = u").read_floats(0, 0, all), Error);
}

// More than is kept at a time, both ways.
TEST(MappedTensors, LargeTensorsAreTransposedInPieces) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{3, 700001}, std::vector<int64_t>{700001, 3},
          std::vector<int64_t>{200, 150}}) {
        const MapFixture model({{"w", FileType::BF16, shape}});
        const std::string from = test::bytes_of(*model.origin, "w");
        const std::string got = test::bytes_of(model.map("x = transpose(w)"), "x");
        ASSERT_EQ(got.size(), from.size());
        const auto rows = static_cast<std::size_t>(shape[0]);
        const auto columns = static_cast<std::size_t>(shape[1]);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < columns; ++i) {
            for (std::size_t j = 0; j < rows; ++j) {
                wrong += static_cast<std::size_t>(
                    std::memcmp(&got[2 * (i * rows + j)], &from[2 * (j * columns + i)], 2) != 0);
            }
        }
        EXPECT_EQ(wrong, 0U);
    }
}

TEST(MappedTensors, WhatDoesNotFitIsRefused) {
    const MapFixture model(kTensors);
    expect_refused(model, "join(a, h)", Code::invalid_dtype, "F32 and BF16");
    expect_refused(model, "join(a, v)", Code::invalid_shape, "6x5 and 12");
    expect_refused(model, "join(h, t)", Code::invalid_shape, "12x3 and 3x2x2");
    expect_refused(model, "join(one, one)", Code::invalid_shape, "a single number has none");
    expect_refused(model, "join(odd, odd)", Code::invalid_shape, "rows of whole blocks");
    expect_refused(model, "rows(one, 0:0)", Code::invalid_shape, "a single number has none");
    expect_refused(model, "rows(odd, 0:2)", Code::invalid_shape, "which of F4 are 2 elements");
    expect_refused(model, "rows(a, 4:7)", Code::invalid_shape, "rows 4 to 7 were asked for; there");
    expect_refused(model, "rows(a, 0/4)", Code::invalid_shape, "6 rows do not make 4 equal parts");
    expect_refused(model, "transpose(v)", Code::invalid_shape, "there are 1");
    expect_refused(model, "transpose(t)", Code::invalid_shape, "there are 3");
    expect_refused(model, "transpose(f)", Code::invalid_dtype, "F4 has blocks of 2");
    expect_refused(model, "half_to_pairs(a, 4)", Code::invalid_shape, "6 rows and 4 heads");
    expect_refused(model, "pairs_to_half(a, 2)", Code::invalid_shape, "an even number of rows");
    expect_refused(model, "half_to_pairs(one, 1)", Code::invalid_shape, "a single number has none");
    expect_refused(model, "pairs_to_half(odd, 2)", Code::invalid_shape, "rows of whole blocks");
    // So many rows that the number of elements has no number, though there are no bytes.
    std::string some, many;
    for (int i = 0; i < 1000; ++i) {
        some += i < 8 ? (i == 0 ? "transpose(big)" : ", transpose(big)") : "";
        many += i == 0 ? "transpose(big)" : ", transpose(big)";
    }
    EXPECT_EQ(model.map("x = join(" + some + ")").facts(0).bytes, 0);
    expect_refused(model, "join(" + many + ")", Code::invalid_shape, "too many");
}

TEST(MappedTensors, AFileThatCannotBeReadIsAnError) {
    MapFixture model(kTensors);
    const MappedTensors mapped = model.map("x = join(transpose(a), transpose(rows(a, 0:6)))");
    std::string got(static_cast<std::size_t>(mapped.facts(0).bytes), '\0');
    model.files.fail_at(2, Fault::error, true);
    try {
        mapped.read(0, 8, got.data(), got.size() - 8);
        ADD_FAILURE();
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::io_error);
    }
    model.files.fail_at(0, Fault::none);
    mapped.read(0, 0, got.data(), got.size());
    const Whole half = transpose(whole(*model.origin, "a"), 4);
    EXPECT_EQ(got, half.bytes + half.bytes);
}
