// SPDX-License-Identifier: Apache-2.0
#include "optim/layer_passes.hpp"

#include <algorithm>

#include "system/fnv.hpp"

namespace mp::optim {
namespace {

constexpr int32_t kMostPrefetched = 64;

bool contains(const std::vector<int32_t>& list, int32_t value) {
    return std::find(list.begin(), list.end(), value) != list.end();
}

uint64_t definition_of(const std::vector<std::vector<int32_t>>& layers, int32_t prefetch) {
    system::Fnv64 hash;
    hash.add(prefetch);
    for (const std::vector<int32_t>& layer : layers) {
        hash.add(static_cast<int64_t>(layer.size()));
        for (const int32_t index : layer) {
            hash.add(index);
        }
    }
    return hash.value();
}

} // namespace

LayerPasses::LayerPasses(const Parameters& parameters)
    : parameters_(parameters), definition_(definition_of({}, 0)) {}

void LayerPasses::refuse_begun() const {
    if (!begun_.empty()) {
        fail(Code::bad_state, "optimizer: layer %d has begun; end its pass, or step, first",
             begun_.begin()->first);
    }
}

void LayerPasses::set_layers(std::vector<std::vector<int32_t>> layers, int32_t prefetch) {
    refuse_begun();
    if (prefetch < 0 || prefetch > kMostPrefetched) {
        fail(Code::invalid_argument, "optimizer: prefetch is %d; it must be 0..%d", prefetch,
             kMostPrefetched);
    }
    std::vector<int32_t> first_layer(static_cast<std::size_t>(parameters_.count()), -1);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        std::vector<int32_t> sorted = layers[layer];
        std::sort(sorted.begin(), sorted.end());
        const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
        if (twice != sorted.end()) {
            fail(Code::invalid_argument, "optimizer: layer %zu names parameter %d twice", layer,
                 *twice);
        }
        for (const int32_t index : sorted) {
            (void)parameters_[index]; // throws where there is none
            int32_t& first = first_layer[static_cast<std::size_t>(index)];
            first = first < 0 ? static_cast<int32_t>(layer) : first;
        }
    }
    definition_ = definition_of(layers, prefetch);
    layers_ = std::move(layers);
    first_layer_ = std::move(first_layer);
    has_left_.assign(first_layer_.size(), false);
    prefetch_ = prefetch;
    fetched_.clear();
}

const std::vector<int32_t>& LayerPasses::parameters_of(int32_t layer) const {
    if (layer < 0 || layer >= static_cast<int32_t>(layers_.size())) {
        fail(Code::invalid_argument,
             "optimizer: layer %d does not exist; there are %zu (mp_optimizer_set_layer_params)",
             layer, layers_.size());
    }
    return layers_[static_cast<std::size_t>(layer)];
}

void LayerPasses::start_over() noexcept {
    begun_.clear();
    fetched_.clear();
    has_left_.assign(has_left_.size(), false);
}

std::vector<int32_t> LayerPasses::next(int32_t layer, LayerPass pass) const {
    const int32_t step = pass == LayerPass::forward ? 1 : -1;
    const auto count = static_cast<int32_t>(layers_.size());
    std::vector<int32_t> layers;
    for (int32_t k = 1; k <= prefetch_; ++k) {
        const int32_t one = layer + k * step;
        if (one >= 0 && one < count && !begun_.contains(one)) {
            layers.push_back(one);
        }
    }
    return layers;
}

void LayerPasses::check_begin(int32_t layer, LayerPass pass) const {
    if (begun_.contains(layer)) {
        fail(Code::bad_state, "optimizer: layer %d has begun already; end that pass first", layer);
    }
    for (const int32_t index : parameters_of(layer)) {
        const auto place = static_cast<std::size_t>(index);
        if (pass != LayerPass::forward && has_left_[place] && first_layer_[place] != layer) {
            fail(Code::bad_state,
                 "optimizer: the gradient of '%s' has left with layer %d, but layer %d adds to it; "
                 "the backward pass of its first layer must be the last",
                 parameters_[index].name.c_str(), first_layer_[place], layer);
        }
    }
}

// What comes next is asked for before this one is waited for.
void LayerPasses::begin_layer(Stream& stream, int32_t layer, LayerPass pass) {
    const std::vector<int32_t>& own = parameters_of(layer);
    check_begin(layer, pass);
    shard::Sharding* const sharding = parameters_.sharding();
    const std::vector<int32_t> following = next(layer, pass);
    if (sharding != nullptr) {
        sharding->begin_gather(stream, own);
        for (const int32_t one : following) {
            sharding->begin_gather(stream, parameters_of(one)); // but what has its memory
            if (!contains(fetched_, one)) {
                fetched_.push_back(one);
            }
        }
        sharding->wait_gather(stream, own);
    }
    for (const int32_t index : own) {
        if (pass != LayerPass::forward && !parameters_[index].layout.is_frozen) {
            parameters_.acquire_grad(stream, index);
        }
    }
    begun_.emplace(layer, pass);
    if (pass == LayerPass::forward) { // of another micro-batch
        has_left_.assign(has_left_.size(), false);
    }
    fetched_.erase(std::remove(fetched_.begin(), fetched_.end(), layer), fetched_.end());
}

std::vector<int32_t> LayerPasses::unused_after(int32_t layer) const {
    const auto uses = [this](int32_t other, int32_t index) {
        return contains(layers_[static_cast<std::size_t>(other)], index);
    };
    std::vector<int32_t> unused;
    for (const int32_t index : layers_[static_cast<std::size_t>(layer)]) {
        const bool is_used = std::any_of(begun_.begin(), begun_.end(),
                                         [&](const auto& one) {
                                             return one.first != layer && uses(one.first, index);
                                         }) ||
                             std::any_of(fetched_.begin(), fetched_.end(),
                                         [&](int32_t one) { return uses(one, index); });
        if (!is_used) {
            unused.push_back(index);
        }
    }
    return unused;
}

void LayerPasses::end_layer(Stream& stream, int32_t layer, LayerPass pass) {
    const std::vector<int32_t>& own = parameters_of(layer);
    const auto begun = begun_.find(layer);
    const bool is_forward = pass == LayerPass::forward;
    if (begun == begun_.end() || (begun->second == LayerPass::forward) != is_forward) {
        fail(Code::bad_state, "optimizer: layer %d has not begun this pass%s", layer,
             begun == begun_.end() ? "" : ", but another one");
    }
    shard::Sharding* const sharding = parameters_.sharding();
    if (sharding != nullptr) {
        sharding->release(stream, unused_after(layer));
    }
    begun_.erase(begun);
    if (pass != LayerPass::backward || !parameters_.moves_gradients()) {
        return;
    }
    for (auto index = own.rbegin(); index != own.rend(); ++index) { // as backward makes them
        const auto place = static_cast<std::size_t>(*index);
        if (first_layer_[place] == layer && !parameters_[*index].layout.is_frozen) {
            has_left_[place] = true;
            parameters_.grad_ready(stream, *index);
        }
    }
}

void LayerPasses::propose(comm::Agreement& agreement) {
    agreement.must_equal("the parameters of layers", definition_);
}

} // namespace mp::optim
