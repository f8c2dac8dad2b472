// SPDX-License-Identifier: Apache-2.0
#include "layer_pass_of.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "boundary.hpp"
#include "dtype/divide.hpp"

namespace mp::capi {
namespace {

constexpr std::size_t kAlignment = 256;

SavedObject::OfAdapter& kept_of(SavedObject& saved, const AdapterObject& adapter) {
    return saved.adapters.try_emplace(adapter.number, saved.linear->layer.context()->stream())
        .first->second;
}

// `kept` null: an evaluation, which wants no gradient.
linear::AdapterPass part_of(const AdapterObject& adapter, linear::Saved* a, linear::Saved* b,
                            linear::KeptDirection* kept) {
    const auto wanted = [&](const std::shared_ptr<Tensor>& gradient) {
        return kept != nullptr ? gradient.get() : nullptr;
    };
    return {&adapter.a->layer,
            &adapter.b->layer,
            a,
            b,
            wanted(adapter.da),
            wanted(adapter.db),
            {adapter.magnitude.get(), wanted(adapter.dmagnitude), kept}};
}

linear::Saved& saved_of(SavedObject& saved, const SavedObject::Part& part) {
    if (part.adapter == 0) {
        return saved.saved;
    }
    SavedObject::OfAdapter& of = saved.adapters.at(part.adapter);
    return part.is_a ? of.a : of.b;
}

// What a forward of so many rows keeps.
std::vector<SavedObject::Part> layout_of(const LinearObject& object, int64_t rows) {
    std::vector<SavedObject::Part> layout;
    std::size_t end = 0;
    const auto add = [&](const linear::Linear& layer, uint64_t adapter, bool is_a) {
        const std::size_t place = round_up(end, kAlignment);
        layout.push_back({adapter, is_a, place, linear::saved_bytes(layer, rows)});
        end = place + layout.back().bytes;
    };
    const auto adapters = adapters_of(object);
    if (object.layer.keeps_input() || adapters.empty()) {
        add(object.layer, 0, false);
    }
    for (const auto& adapter : adapters) {
        if (adapter->is_active) {
            add(adapter->a->layer, adapter->number, true);
            add(adapter->b->layer, adapter->number, false);
        }
    }
    return layout;
}

// The layer's own x is all, and has all of the memory.
bool is_alone(const std::vector<SavedObject::Part>& layout) {
    return layout.size() == 1 && layout.front().adapter == 0;
}

std::size_t end_of(const std::vector<SavedObject::Part>& layout) {
    return layout.empty() ? 0 : layout.back().place + layout.back().bytes;
}

void lend(SavedObject& saved) {
    for (const SavedObject::Part& part : saved.layout) {
        auto* const place = static_cast<unsigned char*>(saved.lent) + part.place;
        saved_of(saved, part).lend(place, part.bytes);
    }
}

mp_status warn_of_layer(linear::Linear& layer) {
    if (const char* const what = layer.notes().forgotten_end_step(layer.weight().tensor());
        what != nullptr) {
        return warn(std::string("linear: ") + what +
                    ", and mp_linear_end_step has not ended the step before: its "
                    "scales and cached weights are still those of that step");
    }
    const std::string note = layer.notes().accumulation();
    return note.empty() ? MP_STATUS_OK : warn(note);
}

} // namespace

std::vector<std::shared_ptr<AdapterObject>> adapters_of(const LinearObject& object) {
    std::vector<std::shared_ptr<AdapterObject>> found;
    for (const std::weak_ptr<AdapterObject>& weak : object.adapters) {
        if (std::shared_ptr<AdapterObject> adapter = weak.lock(); adapter != nullptr) {
            HeldObjects::hold(adapter);
            found.push_back(std::move(adapter));
        }
    }
    return found;
}

std::vector<std::shared_ptr<LinearObject>>
with_adapters(const std::vector<std::shared_ptr<LinearObject>>& layers) {
    std::vector<std::shared_ptr<LinearObject>> all = layers;
    const std::set<std::shared_ptr<LinearObject>> named(layers.begin(), layers.end());
    for (const auto& layer : layers) {
        for (const auto& adapter : adapters_of(*layer)) {
            for (const auto& part : {adapter->a, adapter->b}) {
                if (!named.contains(part)) { // by itself, too (mp_adapter_get_linears)
                    all.push_back(part);
                }
            }
        }
    }
    return all;
}

linear::LayerPass own_pass(LinearObject& object) {
    linear::LayerPass pass{&object.layer, object.layer.last(), {}};
    for (const auto& adapter : adapters_of(object)) {
        if (adapter->is_active) {
            pass.saved =
                object.layer.options().inference ? nullptr : &object.layer.last_with_adapters();
            pass.adapters.push_back(part_of(*adapter, adapter->a->layer.last(),
                                            adapter->b->layer.last(), &adapter->kept));
        }
    }
    return pass;
}

linear::LayerPass saved_pass(LinearObject& object, SavedObject* saved) {
    linear::LayerPass pass{&object.layer, saved != nullptr ? &saved->saved : nullptr, {}};
    for (const auto& adapter : adapters_of(object)) {
        if (adapter->is_active && saved == nullptr) {
            pass.adapters.push_back(part_of(*adapter, nullptr, nullptr, nullptr));
        } else if (adapter->is_active) {
            SavedObject::OfAdapter& kept = kept_of(*saved, *adapter);
            pass.adapters.push_back(part_of(*adapter, &kept.a, &kept.b, &kept.kept));
        }
    }
    return pass;
}

linear::LayerPass without_gradients(linear::LayerPass pass) {
    for (linear::AdapterPass& adapter : pass.adapters) {
        adapter.da = nullptr;
        adapter.db = nullptr;
        adapter.magnitude.gradient = nullptr;
    }
    return pass;
}

mp_status warn_of_backward(const linear::LayerPass& pass) {
    mp_status status = warn_of_layer(*pass.base);
    for (const linear::AdapterPass& adapter : pass.adapters) {
        for (linear::Linear* const layer : {adapter.a, adapter.b}) {
            status = status == MP_STATUS_OK ? warn_of_layer(*layer) : status;
        }
    }
    return status;
}

void check_wanted(const linear::LayerPass& pass, const Tensor* dx, const Tensor* dw,
                  const Tensor* dbias) {
    bool any = dx != nullptr || dw != nullptr;
    for (const linear::AdapterPass& adapter : pass.adapters) {
        any = any || adapter.da != nullptr || adapter.db != nullptr ||
              adapter.magnitude.gradient != nullptr;
    }
    if (!any) {
        fail(Code::invalid_argument,
             "linear: dx and dw are both NULL, and no adapter's gradient was asked for "
             "(mp_adapter_set_grads); one must be wanted");
    }
    if (dw == nullptr && dbias != nullptr) {
        fail(Code::invalid_argument, "linear: dbias is given without dw");
    }
}

void check_saved_gradients(const LinearObject& object, const SavedObject* saved) {
    for (const auto& adapter : adapters_of(object)) {
        const bool is_wanted =
            adapter->da != nullptr || adapter->db != nullptr || adapter->dmagnitude != nullptr;
        if (saved == nullptr && adapter->is_active && is_wanted) {
            fail(Code::null_argument,
                 "saved is NULL, but gradients of adapter '%s' need what a forward kept "
                 "(mp_linear_forward_saved); for dx alone use mp_linear_backward_data",
                 adapter->options.name.c_str());
        }
    }
}

std::size_t saved_bytes(const LinearObject& object, int64_t rows) {
    int64_t columns = object.layer.options().in_features;
    for (const auto& adapter : adapters_of(object)) {
        columns += adapter->a->layer.options().in_features + adapter->options.rank;
    }
    const int64_t sizes[] = {rows, columns};
    (void)checked_shape(2, sizes, DType::fp32, "rows");
    return end_of(layout_of(object, rows));
}

bool has_kept(const SavedObject& saved) {
    return saved.saved.has_input() ||
           std::any_of(saved.adapters.begin(), saved.adapters.end(), [](const auto& entry) {
               return entry.second.a.has_input() || entry.second.b.has_input();
           });
}

bool borrows(const SavedObject& saved) {
    return saved.saved.borrows() ||
           std::any_of(saved.adapters.begin(), saved.adapters.end(),
                       [](const auto& entry) { return entry.second.a.borrows(); });
}

std::size_t kept_bytes(const SavedObject& saved) {
    if (!has_kept(saved)) {
        return 0;
    }
    return is_alone(saved.layout) ? linear::saved_bytes(saved.linear->layer, saved.saved.rows())
                                  : end_of(saved.layout);
}

void move_parts(SavedObject& saved, void* memory, std::size_t bytes) {
    const bool holds = has_kept(saved);
    saved.lent = memory;
    saved.lent_bytes = bytes;
    if (memory != nullptr && holds) {
        if (is_alone(saved.layout)) {
            saved.layout.front().bytes = bytes;
        }
        lend(saved);
        return;
    }
    saved.layout.clear();
    saved.saved.lend(nullptr, 0);
    for (auto& entry : saved.adapters) {
        entry.second.a.lend(nullptr, 0);
        entry.second.b.lend(nullptr, 0);
    }
}

LentParts::LentParts(SavedObject& saved, int64_t rows, bool keeps) : saved_(saved) {
    make_places(saved);
    if (saved.lent == nullptr || !keeps) {
        is_done_ = true;
        return;
    }
    std::vector<SavedObject::Part> layout = layout_of(*saved.linear, rows);
    if (is_alone(layout)) { // it says itself what it lacks
        layout.front().bytes = saved.lent_bytes;
    } else if (end_of(layout) > saved.lent_bytes) {
        fail(Code::invalid_argument,
             "linear: what is kept of %lld rows takes %zu bytes, but the memory lent for it has "
             "%zu; see mp_linear_get_saved_bytes",
             static_cast<long long>(rows), end_of(layout), saved.lent_bytes);
    }
    for (SavedObject::Part& part : saved.layout) {
        part.generation = saved_of(saved, part).generation();
    }
    before_ = std::exchange(saved.layout, std::move(layout));
    lend(saved);
}

LentParts::~LentParts() {
    if (is_done_) {
        return;
    }
    // What the forward has kept before it failed is for no backward.
    for (const SavedObject::Part& part : saved_.layout) {
        linear::Saved& place = saved_of(saved_, part);
        const bool is_as_before = std::any_of(before_.begin(), before_.end(), [&](const auto& old) {
            return old.adapter == part.adapter && old.is_a == part.is_a &&
                   old.generation == place.generation();
        });
        if (!is_as_before) {
            place.drop(-1);
        }
    }
    saved_.layout = std::move(before_);
    lend(saved_);
}

void make_places(SavedObject& saved) {
    for (const auto& adapter : adapters_of(*saved.linear)) {
        (void)kept_of(saved, *adapter);
    }
}

void forget_others(const LinearObject& object, SavedObject* saved) {
    std::set<uint64_t> there;
    for (const auto& adapter : adapters_of(object)) {
        there.insert(adapter->number);
        if (adapter->is_active) {
            continue;
        }
        if (saved != nullptr) {
            if (const auto found = saved->adapters.find(adapter->number);
                found != saved->adapters.end()) {
                found->second.a.drop(-1);
                found->second.b.drop(-1);
                found->second.kept.drop();
            }
        } else if (linear::Saved* const a = adapter->a->layer.last(); a != nullptr) {
            a->drop(-1);
            adapter->b->layer.last()->drop(-1);
            adapter->kept.drop();
        }
    }
    if (saved != nullptr) {
        std::erase_if(saved->adapters,
                      [&](const auto& entry) { return !there.contains(entry.first); });
    }
}

} // namespace mp::capi
