// SPDX-License-Identifier: Apache-2.0
// Stateful: something with state that a checkpoint keeps. The optimizer, layers, the loss scaler and the caller's own bytes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/catalog.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/load.hpp"
#include "linear/linear.hpp"
#include "optim/optimizer.hpp"
#include "scaler/loss_scaler.hpp"

namespace mp::checkpoint {

class Stateful {
  public:
    Stateful() = default;
    Stateful(const Stateful&) = delete;
    Stateful& operator=(const Stateful&) = delete;
    virtual ~Stateful() = default;

    // Adds what is saved as it is now; memory that an entry points to stays until the next call. Waits for work
    // enqueued before.
    virtual void add_to(Catalog& catalog) = 0;
    // Throws where what was read cannot be applied; makes what apply() needs, and changes nothing else.
    virtual void prepare(const Loaded& loaded) = 0;
    // After the entries' memory was written. Needs no memory of its own.
    virtual void apply() = 0;
    // Of what add_to() took: bits of which the largest over the ranks is saved, as ranks differ in them until a step ends.
    [[nodiscard]] virtual std::vector<uint32_t> maxima() const { return {}; }
    virtual void set_maxima(std::span<const uint32_t> /*bits*/) {} // as many
    // Entries for a file of weights alone.
    virtual void add_weights(Catalog& /*catalog*/) {}
    // Where a checkpoint of another recipe is loaded: what turns its states into this one's, after which the rest is
    // loaded as ever. Null where there is nothing to convert.
    virtual std::unique_ptr<Converter> converter(const Manifest& /*manifest*/) const {
        return nullptr;
    }
    // Whether under one and the same recipe it needs that, too.
    [[nodiscard]] virtual bool is_kept_otherwise(const Manifest& /*manifest*/) const {
        return false;
    }
    // Whether this is loaded as ever where the recipe is another; the states of layers and scalers belong to a recipe, and
    // begin anew.
    [[nodiscard]] virtual bool survives_conversion() const noexcept { return false; }
};

// Every rank has all of the optimizer's states: rank 0 writes them.
std::unique_ptr<Stateful> stateful_optimizer(std::shared_ptr<optim::Optimizer> optimizer);
std::unique_ptr<Stateful> stateful_scaler(std::shared_ptr<scaler::LossScaler> scaler);
// The delayed scales and histories of a layer. `owner` keeps it alive.
std::unique_ptr<Stateful> stateful_linear(const std::string& name, linear::Linear& layer,
                                          std::shared_ptr<void> owner);
// The caller's memory, of rank 0 where there are several.
std::unique_ptr<Stateful> stateful_data(const std::string& name, void* data, std::size_t bytes);

} // namespace mp::checkpoint
