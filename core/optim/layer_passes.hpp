// SPDX-License-Identifier: Apache-2.0
// LayerPasses: which parameters each layer of a model uses, and what becomes of them around its passes: weights come and go,
// gradients get memory and leave.
#pragma once

#include <map>
#include <vector>

#include "optim/parameters.hpp"
#include "optim/step_participant.hpp"

namespace mp::optim {

enum class LayerPass : int32_t {
    forward,
    backward,   // gradients have their last addition
    accumulate, // backward too, but more is added to them
};

class LayerPasses final : public StepParticipant {
  public:
    // `parameters` outlives this.
    explicit LayerPasses(const Parameters& parameters);

    // By layer, in the order of forward: numbers of parameters. Throws while a layer has begun.
    void set_layers(std::vector<std::vector<int32_t>> layers, int32_t prefetch);

    // Around a layer's pass. Collective where ranks share the parameters. Where they throw for a wrong call nothing has changed.
    // One that could not begin may be begun again. One has ended also where its gradients could not be sent.
    void begin_layer(Stream& stream, int32_t layer, LayerPass pass);
    void end_layer(Stream& stream, int32_t layer, LayerPass pass);

    void refuse_begun() const; // throws where a layer has begun
    void propose(comm::Agreement& agreement) override;
    // Weights are gone: no pass is under way.
    void end(Stream& /*stream*/) noexcept override { start_over(); }
    void restore(Stream& /*stream*/, RestoredCounts& /*restored*/) noexcept override {
        start_over();
    }

  private:
    [[nodiscard]] const std::vector<int32_t>& parameters_of(int32_t layer) const;
    void check_begin(int32_t layer, LayerPass pass) const;
    void start_over() noexcept;
    // Those that follow in this pass.
    [[nodiscard]] std::vector<int32_t> next(int32_t layer, LayerPass pass) const;
    // Those of a layer that nobody else uses, or will use next.
    [[nodiscard]] std::vector<int32_t> unused_after(int32_t layer) const;

    const Parameters& parameters_;
    std::vector<std::vector<int32_t>> layers_;
    std::vector<int32_t> first_layer_; // by parameter; -1: it belongs to none
    int32_t prefetch_ = 0;
    uint64_t definition_;                // a hash of these, for agreements
    std::map<int32_t, LayerPass> begun_; // layers
    std::vector<int32_t> fetched_;       // layers that are on their way and have not begun
    std::vector<bool> has_left_; // by parameter: its gradient, since the last forward pass began
};

} // namespace mp::optim
