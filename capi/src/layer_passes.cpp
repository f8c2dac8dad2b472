// SPDX-License-Identifier: Apache-2.0
// Layers of a model, whose parameters come and go around their passes (sharding.h).
#include "boundary.hpp"
#include "mixedprec/sharding.h"
#include "sharding_of.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

static_assert(MP_PASS_FORWARD == static_cast<int32_t>(optim::LayerPass::forward) &&
              MP_PASS_BACKWARD == static_cast<int32_t>(optim::LayerPass::backward) &&
              MP_PASS_ACCUMULATE == static_cast<int32_t>(optim::LayerPass::accumulate));

optim::LayerPass pass_of(int32_t pass) {
    if (pass < MP_PASS_FORWARD || pass > MP_PASS_ACCUMULATE) {
        fail(Code::invalid_argument,
             "pass is %d; it must be MP_PASS_FORWARD, BACKWARD or ACCUMULATE", pass);
    }
    return static_cast<optim::LayerPass>(pass);
}

// Runs a body with the layers and the stream.
template <typename Body> mp_status on_layers(mp_optimizer* handle, mp_queue* queue, Body body) {
    return boundary([&] {
        optim::Optimizer& optimizer = *object_of(handle, "optimizer");
        if (optimizer.options().is_sharded()) {
            (void)sharding_of(optimizer);
        }
        body(optimizer.layer_passes(), stream_of(queue, *optimizer.context()));
    });
}

} // namespace

mp_status mp_optimizer_set_layer_params(mp_optimizer* optimizer, int32_t layer_count,
                                        const int32_t* counts, const int32_t* indices,
                                        int32_t prefetch) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        const std::span<const int32_t> sizes =
            list_of(counts, layer_count, "counts", "layer_count");
        int64_t total = 0;
        for (const int32_t size : sizes) {
            if (size < 0) {
                fail(Code::invalid_argument, "counts has %d; all must be >= 0", size);
            }
            total += size;
        }
        std::span<const int32_t> rest = list_of(indices, total, "indices", "the sum of counts");
        std::vector<std::vector<int32_t>> layers;
        for (const int32_t size : sizes) {
            const auto own = rest.first(static_cast<std::size_t>(size));
            layers.emplace_back(own.begin(), own.end());
            rest = rest.subspan(own.size());
        }
        object.layer_passes().set_layers(std::move(layers), prefetch);
    });
}

mp_status mp_optimizer_layer_begin(mp_optimizer* optimizer, mp_queue* queue, int32_t layer,
                                   int32_t pass) {
    return on_layers(optimizer, queue, [&](optim::LayerPasses& layers, Stream& stream) {
        layers.begin_layer(stream, layer, pass_of(pass));
    });
}

mp_status mp_optimizer_layer_end(mp_optimizer* optimizer, mp_queue* queue, int32_t layer,
                                 int32_t pass) {
    return on_layers(optimizer, queue, [&](optim::LayerPasses& layers, Stream& stream) {
        layers.end_layer(stream, layer, pass_of(pass));
    });
}
