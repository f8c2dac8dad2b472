// SPDX-License-Identifier: Apache-2.0
// A pass over a layer and the adapters that are active, and what it keeps of each.
#pragma once

#include <memory>
#include <vector>

#include "linear/layer_pass.hpp"
#include "objects.hpp"

namespace mp::capi {

// Of a layer, in the order in which they were made. The call holds them.
std::vector<std::shared_ptr<AdapterObject>> adapters_of(const LinearObject& object);
// Layers, then the two of each of their adapters: what has scales of its own, and a step that ends.
std::vector<std::shared_ptr<LinearObject>>
with_adapters(const std::vector<std::shared_ptr<LinearObject>>& layers);

// What is kept lies in the layers themselves.
linear::LayerPass own_pass(LinearObject& object);
// It lies in `saved`; null: nothing is kept.
linear::LayerPass saved_pass(LinearObject& object, SavedObject* saved);
// Throws where a backward without `saved` would leave an adapter's gradients out.
void check_saved_gradients(const LinearObject& object, const SavedObject* saved);
// MP_STATUS_WARNING, once each, where the end of a step was forgotten, or a micro-batch was added into codes.
mp_status warn_of_backward(const linear::LayerPass& pass);
// Gradients of adapters are not wanted.
linear::LayerPass without_gradients(linear::LayerPass pass);

// Throws where a backward is to compute nothing, or a bias gradient alone.
void check_wanted(const linear::LayerPass& pass, const Tensor* dx, const Tensor* dw,
                  const Tensor* dbias);

// After a forward: what an adapter that took no part in it has kept of an earlier one is for no backward.
void forget_others(const LinearObject& object, SavedObject* saved);

// Where memory is lent for what a forward keeps: the parts lie one after another, each aligned to 256 bytes.
std::size_t saved_bytes(const LinearObject& object, int64_t rows);
bool has_kept(const SavedObject& saved);
// Whether any of it is the caller's own tensor.
bool borrows(const SavedObject& saved);
std::size_t kept_bytes(const SavedObject& saved);
// It lies there from now on; null: what is kept goes.
void move_parts(SavedObject& saved, void* memory, std::size_t bytes);

// The parts' places for a forward of so many rows that keeps something, until it has failed.
class LentParts {
  public:
    // Throws where the memory is too small.
    LentParts(SavedObject& saved, int64_t rows, bool keeps);
    LentParts(const LentParts&) = delete;
    LentParts& operator=(const LentParts&) = delete;
    ~LentParts();
    void commit() noexcept { is_done_ = true; }

  private:
    SavedObject& saved_;
    std::vector<SavedObject::Part> before_;
    bool is_done_ = false;
};
// A place for each adapter that there is now, so that a forward need not make it.
void make_places(SavedObject& saved);

} // namespace mp::capi
