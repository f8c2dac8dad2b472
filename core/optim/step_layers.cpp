// SPDX-License-Identifier: Apache-2.0
#include "optim/step_layers.hpp"

#include <unordered_set>
#include <utility>

#include "optim/saved_counts.hpp"
#include "recipe/keys.hpp"
#include "system/fnv.hpp"

namespace mp::optim {
namespace {

std::vector<linear::Linear*> plain(const std::vector<std::shared_ptr<linear::Linear>>& layers) {
    std::vector<linear::Linear*> all;
    all.reserve(layers.size());
    for (const std::shared_ptr<linear::Linear>& layer : layers) {
        all.push_back(layer.get());
    }
    return all;
}

} // namespace

StepLayers::StepLayers(const Device& device, std::vector<std::shared_ptr<linear::Linear>> layers)
    : layers_(std::move(layers)) {
    std::unordered_set<const linear::Linear*> seen;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        if (&layers_[i]->context()->stream().device() != &device) {
            fail(Code::invalid_argument,
                 "optimizer: layer %zu is on another device than the parameters", i);
        }
        if (!seen.insert(layers_[i].get()).second) {
            fail(Code::invalid_argument,
                 "optimizer: layer %zu was listed before; its step can end only once", i);
        }
    }
    plain_ = plain(layers_);
    amaxes_ = linear::RankAmaxes(plain_);
    if (amaxes_.count() > 0) {
        agreed_ = layers_[0]->context()->stream().allocate(
            static_cast<std::size_t>(amaxes_.count()) * sizeof(float));
    }
}

uint64_t StepLayers::definition() const {
    system::Fnv64 hash;
    for (const std::shared_ptr<linear::Linear>& layer : layers_) {
        hash.add(layer->options().in_features);
        hash.add(layer->options().out_features);
        hash.add(layer->policy().is_fp8() ? 1 : 0);
        hash.add(recipe::recipe_to_json(layer->policy().recipe(), ""));
        if (layer->policy().rounds_stochastically()) { // random bits follow from the name
            hash.add(layer->options().name);
        }
    }
    return hash.value();
}

void StepLayers::follow(const StepLayers& before, const linear::Trainer& trainer) {
    const std::unordered_set<const linear::Linear*> staying(plain_.begin(), plain_.end());
    for (linear::Linear* const layer : before.plain_) {
        if (!staying.contains(layer)) {
            layer->set_trainer({});
        }
    }
    set_trainer(trainer);
}

void StepLayers::set_trainer(const linear::Trainer& trainer) noexcept {
    trainer_ = trainer;
    for (linear::Linear* const layer : plain_) {
        layer->set_trainer(trainer);
    }
}

void StepLayers::restore(Stream& /*stream*/, RestoredCounts& restored) {
    set_trainer({restored.counts.seed, trainer_.rank, trainer_.ranks});
}

void StepLayers::begin(Stream& stream) {
    is_agreed_ = false;
    for (const linear::Linear* const layer : plain_) {
        layer->refuse_frozen_bits(stream);
    }
}

void StepLayers::propose(comm::Agreement& agreement) {
    agreement.add_maxima_of_device(agreed_.as<uint32_t>(), amaxes_.count());
}

// Amaxes that are not exchanged settle here; of the others nothing is larger than what was agreed.
void StepLayers::end(Stream& stream) {
    if (std::exchange(is_agreed_, false)) {
        amaxes_.write(stream, agreed_.as<float>());
    }
    linear::settle_amaxes(stream, plain_);
    for (linear::Linear* const layer : plain_) {
        layer->end_step(stream);
    }
}

std::vector<BadOperand> StepLayers::bad_operands(Stream& stream) const {
    std::vector<BadOperand> bad;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
        const linear::Linear& layer = *layers_[i];
        const std::string& name = layer.options().name;
        for (const recipe::Operand operand :
             {recipe::Operand::weight, recipe::Operand::input, recipe::Operand::grad_output}) {
            const int64_t count = layer.scaling().read(stream, operand).stats.non_finite;
            if (count > 0) {
                bad.push_back({name.empty() ? std::to_string(i) : name,
                               recipe::operand_name(operand), count});
            }
        }
    }
    return bad;
}

} // namespace mp::optim
