// SPDX-License-Identifier: Apache-2.0
// The parameters, in the types of a recipe, with the optimizer that owns their gradients and states.
// Matrices of linear layers and their biases are used by the library only. The others (embeddings, gains and biases of
// layer normalizations) are used by kernels.c, which wants fp32: where the recipe stores 16-bit weights or gradients,
// these have an fp32 copy, refreshed after each step, and an fp32 gradient, rounded into the main one after each pass.
// Scaled codes of weights or gradients (MS-AMP) are for the matrices of linear layers; beside them all else is fp32.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "options.hpp"
#include "ranks.hpp"
#include "support.hpp"

namespace train {

// "h3": what the names of a block's parameters and layers begin with.
inline std::string block_name(std::size_t block) {
    std::string name = "h";
    return name.append(std::to_string(block)); // gcc 12 warns of "h" + std::to_string() by mistake
}

struct Param {
    std::string name;
    int64_t rows = 0, cols = 0; // cols 0: a vector
    bool own_kernels = false;   // used by kernels.c
    double std = 0.0;           // of the initial values; 0: constant
    float constant = 0.0F;
    int32_t index = 0;         // in the optimizer
    int32_t planned_dtype = 0; // of mp_planned_tensor
    Array weight{};
    Array grad{};      // the main gradient
    Array copy{};      // own kernels, 16-bit weights: in fp32
    Array pass_grad{}; // own kernels, 16-bit main gradients: the fp32 gradient of this pass

    [[nodiscard]] int64_t elements() const { return rows * (cols > 0 ? cols : 1); }
    // What the kernels read and what they add gradients to.
    [[nodiscard]] float* value() const { return (copy.tensor ? copy : weight).floats(); }
    [[nodiscard]] float* gradient() const { return (pass_grad.tensor ? pass_grad : grad).floats(); }
};

// The order of all parameters; those of block b begin at kBlocks + b * kPerBlock.
enum { kWte, kWpe, kBlocks };
enum {
    kLn1Gain,
    kLn1Bias,
    kQkvWeight,
    kQkvBias,
    kProjWeight,
    kProjBias,
    kLn2Gain,
    kLn2Bias,
    kFcWeight,
    kFcBias,
    kFc2Weight,
    kFc2Bias,
    kPerBlock
};
enum { kLnfGain, kLnfBias, kHeadWeight, kBehindBlocks };
// Groups of parameters are the embeddings, each block by its number, and what is behind the blocks by the next number.
enum { kEmbeddings = -1 };

class Params {
  public:
    // Initial values from --seed or --init.
    Params(mp_context* context, mp_recipe* recipe, const Options& options, const Ranks& ranks);

    mp_context* context;
    mp_recipe* recipe;
    const Options& options;
    const Ranks& ranks;
    Optimizer optimizer;
    std::vector<Param> list;

    Param* block(int64_t block) { return &list[static_cast<size_t>(kBlocks + block * kPerBlock)]; }
    Param* behind() { return &list[list.size() - kBehindBlocks]; }

    // The bytes that the recipe promises for these parameters, on this rank.
    [[nodiscard]] mp_memory_report expected_memory() const;
    // The bytes that a rank should send in a step, the mean over ranks: the last one, where weights are gathered for each use.
    double expected_traffic();

    void refresh(); // after a step: the fp32 copies

    // Whether weights have memory only between gather_wait and release: --zero 3. Else these do nothing.
    [[nodiscard]] bool come_and_go() const { return ranks.comm != nullptr && options.zero == 3; }
    void gather_begin(int64_t group);
    void gather_wait(int64_t group);
    void release(int64_t group);

    // Whether the gradients of each pass are kept apart, for sums that do not depend on the number of ranks.
    [[nodiscard]] bool have_slots() const {
        return ranks.comm != nullptr && options.order != MP_COMM_ORDER_RANK;
    }
    // Around the backward pass of a group: memory, zeros where own kernels add in the first pass of a step, and then those
    // kernels' fp32 gradients rounded into 16-bit main gradients; after the last pass they are on their way to other ranks.
    void begin_gradients(int64_t group, bool first);
    void end_gradients(int64_t group, bool first, bool last);
    void end_pass();

    // Writes all weights in fp32, as exactly as the recipe knows them, to a file for --init.
    void save(const std::string& path);

  private:
    void list_all();
    void create_optimizer();
    void create_on_ranks(const mp_optimizer_desc& desc);
    void add_to_optimizer(Param& p, const Array& initial);
    [[nodiscard]] bool is_in_recipe(const Param& p) const;
    [[nodiscard]] Recipe layer_recipe(const Param& p) const;
    [[nodiscard]] bool is_codes(const Param& p) const;
    // What the library says of some of them, beforehand; null: not wanted.
    void plan(std::span<const Param> params, mp_memory_report* memory,
              mp_comm_traffic* traffic) const;
    [[nodiscard]] std::span<Param> group(int64_t group);
    [[nodiscard]] std::vector<int32_t> indices(int64_t group);
    void round_gradient(Param& p, bool first);
    void exact_values(const Param& p, float* values);

    mp_sharding_desc sharding_ = MP_SHARDING_DESC_INIT;
    double gathered_ = 0.0;      // bytes of weights gathered since expected_traffic
    int32_t dtype_ = 0;          // of weights
    bool scaled_ = false;        // which are codes of this type with a scale
    bool matrices_only_ = false; // only those of linear layers are of this type, the others fp32
    Array scratch_;              // as large as the largest parameter of own kernels
};

// The file of --save and --init. (weights_file.cpp)
std::vector<float> weights_load(const std::string& path, const Options& options);
void weights_save(const std::string& path, const Options& options,
                  const std::vector<float>& values);

} // namespace train
