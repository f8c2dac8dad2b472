// SPDX-License-Identifier: Apache-2.0
// The options that must not change the bits of a training (bits_training.hpp), and what follows from a choice of them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "mixedprec.h"

namespace mp_test::bits {

enum Option : std::size_t {
    kRecipe,
    kRanks,
    kTransport,
    kOrder,
    kSlotCount,
    kWire,
    kGather,
    kGroups,
    kStage,
    kPlan,
    kBuckets,
    kReady,
    kProgress,
    kHash,
    kSavedOn,
    kSavedStage,
    kSaving,
    kThreads,
    kOffload,
    kInputs,
    kInFlight,
    kWorkspace,
    kCache,
    kLayers,
    kFrozen,
    kDeferred,
    kRules,
    kUnused,
    kArrays,
    kOptionCount
};

// Values of kTransport, kGroups, kFrozen, kInputs and kOffload, by their place in the table below.
enum Transport { kNone, kSelf, kThreadRanks, kCallbacks };
enum Groups { kOneCopy, kTwoCopies, kManyCopies, kNodes };
enum Frozen { kNotFrozen, kFrozenAlways, kFrozenAtFirst, kFrozenLater, kFrozenInCodes };
enum Offload { kOnTheDevice, kStatesOffloaded, kGradientsToo };
enum Inputs { kInTheLayer, kSaved, kRecomputed, kLent };
// Of kFrozen from kFrozenInCodes on.
struct FrozenCodes {
    int32_t dtype, scaling;
};
inline constexpr FrozenCodes kFrozenCodes[] = {{MP_DTYPE_FP8_E4M3, MP_SCALING_BLOCK_1X128},
                                               {MP_DTYPE_FP8_E5M2, MP_SCALING_BLOCK_128X128},
                                               {MP_DTYPE_FP4_E2M1, MP_SCALING_MX_1X32},
                                               {MP_DTYPE_FP4_E2M1, MP_SCALING_NVFP4}};

struct OptionInfo {
    const char* name;
    std::vector<const char*> values; // the first is the plain one
};

inline const std::array<OptionInfo, kOptionCount>& options() {
    static const std::array<OptionInfo, kOptionCount> table = {{
        {"recipe",
         {"fp32", "bf16_mixed", "bf16_pure_sr", "bf16_pure_kahan", "bf16_pure_remainder",
          "fp16_mixed", "fp8_delayed", "fp8_current", "fp8_rowwise", "fp8_block", "mxfp8",
          "msamp_o2", "msamp_o3", "int8_blocks", "lion", "fp8_gather", "fp8_stochastic"}},
        {"ranks", {"1", "2", "3", "4", "5", "6", "7", "8"}},
        {"transport", {"none", "self", "threads", "callbacks"}},
        {"order", {"rank", "tree", "exact"}}, // as MP_COMM_ORDER_* numbers them
        {"slots", {"8", "11"}},
        {"wire", {"the recipe's", "bf16", "fp8"}},
        {"weights gathered as", {"numbers", "codes"}},
        {"groups", {"one copy", "two copies or more", "most copies", "nodes"}},
        {"stage", {"0", "1", "2", "3"}},
        {"plan", {"flat", "per parameter", "greedy"}}, // as MP_SHARD_* numbers them
        {"buckets", {"one", "small"}},
        {"gradients leave", {"in the step", "when ready"}},
        {"progress thread", {"yes", "no"}},
        {"hash of weights", {"never", "every step"}},
        {"saved on ranks", {"never", "1", "2", "3", "4", "5", "6", "7", "8"}},
        {"saved in stage", {"0", "1", "2", "3"}},
        {"saved", {"at once", "in the background"}},
        {"threads", {"1", "2"}},
        {"states", {"on the device", "offloaded", "offloaded, and gradients"}},
        {"inputs", {"in the layer", "saved", "recomputed", "in lent memory"}},
        {"micro-batches", {"one by one", "in flight together"}},
        {"workspace", {"the library's", "the caller's"}},
        {"weights", {"rounded each time", "cached"}},
        {"end of layers' step", {"a call", "the optimizer's"}},
        {"frozen",
         {"nothing", "the embedding", "the embedding, at first", "the embedding, later",
          "the embedding, fp8 in 1x128", "the embedding, fp8 in 128x128", "the embedding, mxfp4",
          "the embedding, nvfp4"}}, // the last four: kFrozenCodes
        {"first values", {"whole", "deferred", "deferred, from one rank"}},
        {"rules", {"none", "a matrix with its first moments in fp32"}},
        {"without gradients", {"nothing", "some in two steps"}},
        {"weights and gradients", {"the library's", "the caller's"}},
    }};
    return table;
}

using Configuration = std::array<int32_t, kOptionCount>;

inline const char* value_of(const Configuration& c, Option option) {
    return options()[option].values[static_cast<std::size_t>(c[option])];
}
inline int32_t ranks_of(const Configuration& c) { return c[kRanks] + 1; }
inline int32_t slots_of(const Configuration& c) { return c[kSlotCount] == 0 ? 8 : 11; }

// Ranks that share a copy, or a node, of so many; 0 where all do.
inline int32_t group_ranks(const Configuration& c) {
    std::vector<int32_t> divisors;
    for (int32_t d = 1; d < ranks_of(c); ++d) {
        if (ranks_of(c) % d == 0) {
            divisors.push_back(d);
        }
    }
    if (c[kGroups] == kOneCopy || divisors.empty()) {
        return 0;
    }
    return c[kGroups] == kTwoCopies ? divisors.back() : divisors[divisors.size() > 1 ? 1 : 0];
}

// States and weights with one scale for a tensor.
inline bool is_scaled(const Configuration& c) {
    return std::string(value_of(c, kRecipe)).rfind("msamp", 0) == 0;
}
// Its owner keeps an fp32 weight exactly and everybody computes with a bf16 one, which stage 0 does not do.
inline bool rounds_gathered(const Configuration& c) {
    const std::string name = value_of(c, kRecipe);
    return name == "bf16_mixed" || name == "mxfp8" ||
           (name.rfind("fp8_", 0) == 0 && name != "fp8_gather");
}

// By bits that follow from the number of a micro-batch, among those of all ranks whose optimizer knows the layers.
inline bool rounds_operands(const Configuration& c) {
    return std::string(value_of(c, kRecipe)) == "fp8_stochastic";
}

inline std::string recipe_text(const Configuration& c) {
    const std::string name = value_of(c, kRecipe);
    if (name == "int8_blocks") {
        return R"({"recipe": "bf16_pure", "optimizer.exp_avg.dtype": "int8_block256",
                   "optimizer.exp_avg_sq.dtype": "fp8_e4m3_block128"})";
    }
    if (name == "fp16_mixed" || is_scaled(c)) { // a loss scale that moves both ways
        return R"({"recipe": ")" + name +
               R"(", "scaler.init_scale": 1024, "scaler.growth_interval": 2})";
    }
    if (name == "fp8_gather") {
        return std::string(R"({"recipe": "fp8_current", "weight.gather.dtype": "fp32",
                               "weight.gather.codes": ")") +
               (c[kGather] != 0 ? "on" : "off") + "\"}";
    }
    if (rounds_operands(c)) {
        return R"({"recipe": "fp8_rowwise", "gemm.input.rounding": "stochastic",
                   "gemm.weight.rounding": "stochastic", "gemm.grad_output.rounding": "stochastic"})";
    }
    return name == "lion" ? "bf16_pure_sr" : name;
}

} // namespace mp_test::bits
