// SPDX-License-Identifier: Apache-2.0
// The order of the host's matrix products: a row of a table for each kind of processor, reported in words.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "host/gemm/ranking.hpp"
#include "host_device.hpp"
#include "runtime/describe.hpp"

namespace mp::test {
namespace {

using backends::host::GemmImplementation;
using backends::host::kImplementationCount;
using backends::host::Processor;
using backends::host::product_order;
using backends::host::ProductOrder;
using backends::host::this_processor;

using Isa = Processor::Isa;
using Names = std::vector<std::string>;

constexpr Isa kIsas[] = {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16};

const std::set<std::string> kFp32 = {"blocked_fp32", "onednn_fp32"};
const std::set<std::string> kNarrow = {"blocked_bf16", "widen_fp32", "onednn_bf16"};
const std::set<std::string> kCoded = {"few_rows"};

Names names(const ProductOrder& order, const std::set<std::string>& wanted) {
    Names result;
    for (const GemmImplementation* item : order.items) {
        if (wanted.count(item->name) == 1) {
            result.emplace_back(item->name);
        }
    }
    return result;
}

TEST(Ranking, HasEveryImplementationInEveryRow) {
    for (const Isa isa : kIsas) {
        for (const bool is_amd : {false, true}) {
            for (const bool has_amx : {false, true}) {
                const ProductOrder& order = product_order({isa, is_amd, {has_amx, has_amx}});
                EXPECT_EQ(names(order, kFp32), (Names{"onednn_fp32", "blocked_fp32"}));
                EXPECT_EQ(names(order, kNarrow).size(), kNarrow.size());
                EXPECT_EQ(names(order, kCoded), Names{"few_rows"});
                EXPECT_EQ(order.items.size(), kFp32.size() + kNarrow.size() + kCoded.size());
                EXPECT_STRNE(order.processor, "");
            }
        }
    }
}

// At twice the rate of fp32, as on AMD's.
TEST(Ranking, PutsTheDotInstructionFirstWhereItIsFast) {
    const ProductOrder& order = product_order({Isa::avx512_bf16, true, {}});
    EXPECT_EQ(names(order, kNarrow).front(), "blocked_bf16");
    EXPECT_TRUE(order.has_fast_bf16);
}

// At half the rate, as on Intel's: widening is exact and faster.
TEST(Ranking, PutsWideningFirstWhereTheDotInstructionIsSlow) {
    const ProductOrder& order = product_order({Isa::avx512_bf16, false, {}});
    EXPECT_EQ(names(order, kNarrow), (Names{"widen_fp32", "blocked_bf16", "onednn_bf16"}));
    EXPECT_FALSE(order.has_fast_bf16);
}

TEST(Ranking, PutsWideningFirstWhereThereIsNoDotInstruction) {
    for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
        for (const bool is_amd : {false, true}) {
            const ProductOrder& order = product_order({isa, is_amd, {true, false}});
            EXPECT_EQ(names(order, kNarrow).front(), "widen_fp32");
            EXPECT_FALSE(order.has_fast_bf16);
        }
    }
}

TEST(Ranking, PutsAMatrixUnitFirst) {
    for (const Isa isa : kIsas) {
        const ProductOrder& order = product_order({isa, false, {true, true}});
        EXPECT_EQ(names(order, kNarrow).front(), "onednn_bf16");
        EXPECT_TRUE(order.has_fast_bf16);
    }
}

// No clock: the same machine has the same answer however often and in whatever company it is asked.
TEST(Ranking, DependsOnTheProcessorAlone) {
    const ProductOrder& first = product_order(this_processor());
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(&product_order(this_processor()), &first);
    }
}

TEST(Ranking, OfTheDeviceIsReportedAndStays) {
    OpenHost host(2);
    const CandidateList list = host.device().candidates(OpKind::gemm);
    ASSERT_EQ(list.count, static_cast<int32_t>(kImplementationCount) + 1);
    const nlohmann::json description = nlohmann::json::parse(describe(host.device()));
    Names order;
    for (int32_t i = 0; i < list.count; ++i) {
        order.emplace_back(list.items[i].name);
    }
    EXPECT_EQ(description.at("candidates").at("gemm").get<Names>(), order);
    EXPECT_EQ(order.back(), "simple");
    EXPECT_EQ(description.at("products_ranked_for"), product_order(this_processor()).processor);
    EXPECT_EQ(description.at("threads"), 2);
    OpenHost other(1);
    const CandidateList again = other.device().candidates(OpKind::gemm);
    EXPECT_EQ(again.items, list.items);
    EXPECT_EQ(again.count, list.count);
}

// Of declining fp8: the type, or what the processor or the machine lacks for it.
bool names_a_cause(const std::string& why) {
    const auto has = [&why](const char* words) { return why.find(words) != std::string::npos; };
    return has("fp8_e4m3") || has("has no bf16 dot instruction") || has("oneDNN") || has("libdnnl");
}

TEST(Candidates, SayWhyTheyDecline) {
    OpenHost host(1);
    const CandidateList list = host.device().candidates(OpKind::gemm);
    for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16, DType::fp8_e4m3}) {
        GemmDesc op{};
        op.kind = OpKind::gemm;
        op.m = op.n = op.k = op.lda = op.ldb = op.ldc = op.ldd = 8;
        op.dtype_a = op.dtype_b = dtype;
        op.dtype_d = DType::fp32;
        bool is_taken = false;
        for (int32_t i = 0; i < list.count; ++i) {
            Reason reason;
            const bool takes = list.items[i].supports(host.device(), op, reason);
            is_taken = is_taken || takes;
            const std::string why = reason.c_str();
            EXPECT_EQ(takes, why.empty()) << list.items[i].name << ": " << why;
            if (!takes && dtype == DType::fp8_e4m3) {
                EXPECT_TRUE(names_a_cause(why)) << list.items[i].name << ": " << why;
            }
        }
        EXPECT_TRUE(is_taken) << dtype_name(dtype);
    }
}

} // namespace
} // namespace mp::test
