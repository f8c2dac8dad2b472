// SPDX-License-Identifier: Apache-2.0
// The order of the host's matrix products: a permutation of all there are, by rates that are reported, and
// by a rule that noise cannot tip.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "host/gemm/ranking.hpp"
#include "host_device.hpp"

namespace mp::test {
namespace {

using backends::host::default_ranking;
using backends::host::kClearlyFaster;
using backends::host::measure_ranking;
using backends::host::rank_by_rates;
using backends::host::Ranking;
using backends::host::Rate;

std::vector<std::string> names(const Ranking& ranking) {
    std::vector<std::string> result;
    for (int32_t i = 0; i < ranking.count; ++i) {
        result.emplace_back(ranking.order[static_cast<std::size_t>(i)]->name);
    }
    return result;
}

std::set<std::string> all_names() {
    const std::vector<std::string> list = names(default_ranking());
    return {list.begin(), list.end()};
}

Ranking ranked(const std::vector<std::pair<std::string, double>>& rates) {
    Ranking ranking = default_ranking();
    for (Rate& rate : ranking.rates) {
        for (const auto& [name, gflops] : rates) {
            if (rate.implementation != nullptr && name == rate.implementation->name) {
                rate.gflops = gflops;
            }
        }
    }
    rank_by_rates(ranking);
    return ranking;
}

// Which of the names that take bf16 comes first.
std::vector<std::string> only(const Ranking& ranking, const std::set<std::string>& wanted) {
    std::vector<std::string> result;
    for (const std::string& name : names(ranking)) {
        if (wanted.count(name) == 1) {
            result.push_back(name);
        }
    }
    return result;
}

const std::set<std::string> kBf16 = {"blocked_bf16", "widen_fp32", "onednn_bf16"};
const std::set<std::string> kOwnBf16 = {"blocked_bf16", "widen_fp32"};

using Names = std::vector<std::string>;

// The dot instruction twice as fast as fp32.
TEST(Ranking, PutsTheDotInstructionFirstWhereItIsFast) {
    EXPECT_EQ(only(ranked({{"blocked_bf16", 220}, {"widen_fp32", 110}}), kOwnBf16),
              (Names{"blocked_bf16", "widen_fp32"}));
}

// Half as fast as fp32, as on server processors that split it: widening is exact and faster.
TEST(Ranking, PutsWideningFirstWhereTheDotInstructionIsSlow) {
    EXPECT_EQ(only(ranked({{"blocked_bf16", 87}, {"widen_fp32", 170}}), kOwnBf16),
              (Names{"widen_fp32", "blocked_bf16"}));
}

TEST(Ranking, PutsWideningFirstWhereThereIsNoDotInstruction) {
    EXPECT_EQ(only(ranked({{"widen_fp32", 100}}), kOwnBf16), (Names{"widen_fp32", "blocked_bf16"}));
}

TEST(Ranking, IsNotTippedByNoise) {
    const Names in_order = names(default_ranking());
    for (const double noise : {0.9, 1.0, 1.1, 1.2, kClearlyFaster}) {
        EXPECT_EQ(names(ranked({{"blocked_fp32", 100},
                                {"onednn_fp32", 100 * noise},
                                {"blocked_bf16", 100},
                                {"widen_fp32", 100 * noise},
                                {"onednn_bf16", 100 * noise}})),
                  in_order);
    }
}

TEST(Ranking, LeavesTheOrderWhereNothingWasMeasured) {
    EXPECT_EQ(names(ranked({})), names(default_ranking()));
}

TEST(Ranking, LetsAMatrixUnitOvertakeAll) {
    if (all_names().count("onednn_bf16") == 0) {
        GTEST_SKIP() << "skipped: built without oneDNN";
    }
    EXPECT_EQ(
        only(ranked({{"blocked_bf16", 87}, {"widen_fp32", 170}, {"onednn_bf16", 1500}}), kBf16),
        (Names{"onednn_bf16", "widen_fp32", "blocked_bf16"}));
    EXPECT_EQ(
        only(ranked({{"blocked_bf16", 220}, {"widen_fp32", 110}, {"onednn_bf16", 225}}), kBf16),
        (Names{"blocked_bf16", "onednn_bf16", "widen_fp32"}));
}

TEST(Ranking, MeasuresEveryImplementationThatRuns) {
    CheckedMemory memory;
    backends::host::ScratchPool pool(memory.table());
    const Ranking ranking = measure_ranking(pool);
    const Names order = names(ranking);
    EXPECT_EQ(std::set<std::string>(order.begin(), order.end()), all_names());
    EXPECT_EQ(order.size(), all_names().size());
    for (const Rate& rate : ranking.rates) {
        if (rate.implementation == nullptr) {
            continue;
        }
        GemmDesc op{};
        op.kind = OpKind::gemm;
        op.m = op.n = op.k = op.lda = op.ldb = op.ldc = op.ldd = 8;
        op.dtype_a = op.dtype_b = rate.dtype;
        op.dtype_d = DType::fp32;
        Reason reason;
        EXPECT_EQ(rate.gflops > 0.0, rate.implementation->supports(op, reason))
            << rate.implementation->name;
    }
}

TEST(Ranking, OfTheDeviceIsReportedAndStays) {
    OpenHost host(2);
    const CandidateList list = host.device().candidates(OpKind::gemm);
    ASSERT_EQ(list.count, static_cast<int32_t>(all_names().size()) + 1);
    std::vector<char> text(8192);
    host.device().describe(text.data(), text.size());
    const nlohmann::json description = nlohmann::json::parse(text.data());
    Names order;
    for (int32_t i = 0; i < list.count; ++i) {
        order.emplace_back(list.items[i].name);
    }
    EXPECT_EQ(description.at("gemm").at("order").get<Names>(), order);
    EXPECT_EQ(order.back(), "kokkos");
    EXPECT_EQ(description.at("gemm").at("gflops_of_one_thread").size(), all_names().size());
    EXPECT_FALSE(description.at("gemm").at("rule").get<std::string>().empty());
    EXPECT_EQ(description.at("threads"), 2);
    OpenHost other(1);
    const CandidateList again = other.device().candidates(OpKind::gemm);
    EXPECT_EQ(again.items, list.items);
    EXPECT_EQ(again.count, list.count);
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
                EXPECT_NE(why.find("fp8_e4m3"), std::string::npos)
                    << list.items[i].name << ": " << why;
            }
        }
        EXPECT_TRUE(is_taken) << dtype_name(dtype);
    }
}

} // namespace
} // namespace mp::test
