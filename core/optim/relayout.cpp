// SPDX-License-Identifier: Apache-2.0
#include "optim/relayout.hpp"

#include <algorithm>

#include "optim/parameters_checks.hpp"
#include "status/guarded.hpp"

namespace mp::optim {
namespace {

bool have_same_slices(const std::vector<shard::ShardSlice>& a,
                      const std::vector<shard::ShardSlice>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const shard::ShardSlice& x, const shard::ShardSlice& y) {
                          return x.rank == y.rank && x.start == y.start && x.count == y.count;
                      });
}

SliceArray array_of(const Tensor& tensor, int64_t unit_bytes, bool is_on_host) {
    return {static_cast<char*>(tensor.data()), static_cast<int64_t>(tensor.bytes()), unit_bytes,
            is_on_host};
}

// With its scales: of blocks, those of each unit; else one number, or none.
void add_weight(std::vector<SliceArray>& arrays, const ArrayRef& weight, int64_t unit,
                bool is_on_host) {
    const auto add = [&](void* data, int64_t bytes, int64_t unit_bytes) {
        if (data != nullptr) {
            arrays.push_back({static_cast<char*>(data), bytes, unit_bytes, is_on_host});
        }
    };
    const ScaleGrid& grid = weight.format.grid;
    const Shape in_unit = slice_shape(grid, weight.columns, unit);
    add(weight.data, bytes_of(weight.dtype(), weight.count()), bytes_of(weight.dtype(), unit));
    add(weight.scale_inv, bytes_of(grid.dtype, weight.scale_count()),
        has_blocks(grid) ? bytes_of(grid.dtype, grid.count(in_unit.sizes[0], in_unit.sizes[1]))
                         : 0);
    add(weight.amax, sizeof(float), 0);
}

// Of its slices, wherever they are cut; that of blocks alone is more than a chunk.
int64_t unit_of(const Parameter& p) { return round_up(kChunkElements, p.layout.unit()); }

} // namespace

Parameter& Relayout::at(int32_t index) const {
    return parameters_.list_[static_cast<std::size_t>(index)];
}

bool Relayout::has_slices_in_use(const Parameter& p) const noexcept {
    return is_cut() && p.layout.weight.lifetime == Lifetime::in_use;
}

void Relayout::add(int32_t group, const recipe::Recipe& recipe, numerics::RuleId rule,
                   const NewParameter& source) {
    Parameters& all = parameters_;
    check_new(all.context_->stream().device(), recipe, all.options_, source);
    if (all.names_.contains(source.name)) {
        fail(Code::invalid_argument, "optimizer: there already is a parameter '%s'",
             source.name.c_str());
    }
    Parameter made;
    made.name = source.name;
    made.group = group;
    made.param = source.param;
    made.init_fp32 = source.init_fp32;
    made.counts_elsewhere = source.counts_elsewhere;
    const Deferral was = {source.param->is_deferred(),
                          source.grad != nullptr && source.grad->is_deferred()};
    if (!was.param) { // also the second of two that are added at once
        source.param->require_memory("desc.param");
    }
    if (source.grad != nullptr && !was.grad) {
        source.grad->require_memory("desc.grad");
    }
    const Shape& shape = source.param->shape();
    LayoutTensor tensor = layout_tensor(*source.param, rule, source.is_frozen);
    tensor.grad_stays = source.grad != nullptr && shard::stays(*source.grad);
    made.layout = make_layout(recipe, tensor, all.options_);
    check_apart(all.memory_, source, made.layout);
    made.grad = source.grad != nullptr
                    ? source.grad
                    : make_state(all.context_, stream_, made.layout.grad.format, shape);
    were_deferred_.push_back(was);
    try {
        all.list_.push_back(std::move(made));
    } catch (...) {
        were_deferred_.pop_back();
        throw;
    }
    Parameter& added = all.list_.back();
    all.names_.emplace(source.name, all.count() - 1);
    if (was.param) {
        added.has_values = added.init_fp32 != nullptr;
        end_deferral(*added.param, added.layout.weight);
    }
    const bool has_no_use =
        was.param || (is_cut() && source.grad == nullptr) || added.layout.host_grad.exists();
    if (was.grad) {
        end_deferral(*added.grad, added.layout.grad);
    } else if (has_no_use && added.grad != nullptr &&
               added.layout.grad.lifetime == Lifetime::in_use) {
        added.grad->drop_memory(stream_);
    }
    claim(all.memory_, *added.param, "weight", added);
    if (added.grad != nullptr) {
        claim(all.memory_, *added.grad, "gradient", added);
    }
}

// It gets memory, unless ranks cut it.
void Relayout::end_deferral(Tensor& tensor, const LayoutArray& layout) const {
    if (layout.lifetime == Lifetime::in_use) {
        tensor.set_deferred(false);
    } else {
        tensor.restore_memory(stream_);
    }
}

void Relayout::set_frozen(int32_t index, const recipe::Recipe& recipe, bool is_frozen) {
    const Parameter& now = parameters_[index]; // throws where there is none
    if (now.layout.is_frozen == is_frozen) {
        return;
    }
    if (now.init_fp32 != nullptr) {
        fail(Code::bad_state,
             "optimizer: '%s' gets its exact first values when ranks cut it; call "
             "mp_optimizer_shard before it is frozen, or add it frozen",
             now.name.c_str());
    }
    if (!is_frozen) {
        check_trained(recipe, parameters_.options_, now.name, *now.param);
    }
    stream_.sync(); // nobody works on what it loses
    changed_.push_back({index, now});
    switched_.push_back(index);
    Parameter& p = at(index);
    const Shape& shape = p.param->shape();
    p.layout = make_layout(recipe, layout_tensor(*p.param, p.layout.formats.rule, is_frozen),
                           parameters_.options_);
    p.states.reset();
    p.host_weight = nullptr;
    p.grad = make_state(parameters_.context_, stream_, p.layout.grad.format, shape);
    if (p.grad != nullptr) {
        const bool has_no_use = is_cut() || p.layout.host_grad.exists() || !p.param->has_memory();
        if (p.layout.grad.lifetime == Lifetime::in_use && has_no_use) {
            p.grad->drop_memory(stream_);
        }
        claim(parameters_.memory_, *p.grad, "gradient", p);
    }
    if (has_slices_in_use(p)) { // for fetch(); the caller's memory may be for one at a time
        p.param->restore_memory(stream_, true);
    }
}

void Relayout::fetch() {
    if (is_cut() && parameters_.sharding()->stage() == 3 && !switched_.empty()) {
        parameters_.sharding()->fetch(stream_, switched_);
    }
}

void Relayout::cut(std::vector<shard::ShardedTensor> tensors) {
    for (int32_t i = old_count_; i < parameters_.count(); ++i) {
        const Parameter& p = at(i);
        if (p.layout.weight.lifetime == Lifetime::in_use) {
            p.param->require_droppable();
        }
        if (p.grad != nullptr && p.layout.grad.lifetime == Lifetime::in_use) {
            p.grad->require_droppable();
        }
    }
    shard::Sharding& sharding = *parameters_.sharding();
    std::unique_ptr<shard::ShardCut> next =
        sharding.make_cut(parameters_.context_, stream_, std::move(tensors));
    find_moves(next->plan);
    sharding.exchange(next);
    other_cut_ = std::move(next);
    for (const int32_t index : moved_) {
        at(index).states.reset();
        at(index).host_weight = nullptr;
    }
}

void Relayout::find_moves(const shard::ShardPlan& next) {
    const shard::Sharding& sharding = *parameters_.sharding();
    const int32_t rank = sharding.groups().shards().rank();
    std::vector<bool> is_switched(static_cast<std::size_t>(old_count_));
    for (const int32_t index : switched_) {
        is_switched[static_cast<std::size_t>(index)] = true;
    }
    for (int32_t i = 0; i < old_count_; ++i) {
        const Parameter& p = at(i);
        const std::vector<shard::ShardSlice>& from = sharding.plan().slices_of(i);
        if (p.layout.states != Placement::slice || is_switched[static_cast<std::size_t>(i)] ||
            have_same_slices(from, next.slices_of(i))) {
            continue;
        }
        moves_of_.push_back(i);
        moves_.push_back({from, next.slices_of(i), unit_of(p), arrays_of(i), {}});
        const shard::ShardSlice before = sharding.plan().slice_on(i, rank);
        const shard::ShardSlice after = next.slice_on(i, rank);
        if (before.start != after.start || before.count != after.count) {
            changed_.push_back({i, p});
            moved_.push_back(i);
        }
    }
}

std::vector<SliceArray> Relayout::arrays_of(int32_t index) const {
    const Parameter& p = at(index);
    std::vector<SliceArray> arrays;
    if (parameters_.slice(index).count == 0) {
        return arrays;
    }
    if (p.layout.own_weight.exists()) {
        add_weight(arrays, parameters_.device_weight(index), unit_of(p),
                   is_on_host(p.layout.own_weight.place));
    }
    if (p.host_weight != nullptr) {
        add_weight(arrays, slice_of(*p.host_weight), unit_of(p),
                   is_on_host(p.layout.host_weight.place));
    }
    if (p.states.has_value()) {
        p.states->for_each_array([&](const Tensor& tensor, int64_t unit_bytes) {
            arrays.push_back(array_of(tensor, unit_bytes, is_on_host(p.layout.states_place)));
        });
    }
    return arrays;
}

void Relayout::make_states() {
    if (parameters_.options_.stage >= 0 && !is_cut()) {
        return; // they come with the cut
    }
    for (const int32_t index : moved_) {
        (void)parameters_.allocate_states(stream_, index);
    }
    for (const int32_t index : switched_) {
        make_states_of(index);
    }
    for (int32_t i = old_count_; i < parameters_.count(); ++i) {
        make_states_of(i);
    }
    int64_t most = 0;
    for (std::size_t k = 0; k < moves_.size(); ++k) {
        moves_[k].after = arrays_of(moves_of_[k]);
        most = std::max(
            most, exchange_bytes(moves_[k], parameters_.sharding()->groups().shards().rank()));
    }
    memory_ = stream_.allocate(static_cast<std::size_t>(most));
    stream_.sync();
}

// What is written of weights before all have agreed is saved: the last one of a rank alone needs none.
void Relayout::make_states_of(int32_t index) {
    const Parameter& p = at(index);
    const bool is_alone = !is_cut() && index + 1 == parameters_.count();
    const int32_t stage = is_cut() ? parameters_.sharding()->stage() : -1;
    const bool has_exact = p.init_fp32 != nullptr;
    const bool is_sent = (stage == 1 || stage == 2) && !p.layout.is_frozen &&
                         (has_exact || p.layout.own_weight.exists());
    if ((has_exact && !is_alone) || is_sent) {
        save(p.param);
    }
    if (is_sent) {
        published_.push_back(index);
    }
    parameters_.make_states(stream_, index);
}

void Relayout::save(const std::shared_ptr<Tensor>& weight) {
    if (weight->has_memory()) {
        saved_.push_back({weight, make_tensor(parameters_.context_, stream_, weight->format(),
                                              weight->shape())});
        copy_tensor(stream_, *weight, *saved_.back().values);
    }
}

void Relayout::exchange() {
    shard::Sharding& sharding = *parameters_.sharding();
    {
        const auto lock = sharding.progress().lock();
        sharding.or_abort([&] {
            for (const MovedSlices& moved : moves_) {
                move_slices(stream_, parameters_.context_->host_stream(),
                            sharding.groups().shards(), moved, memory_.data());
            }
        });
    }
    sharding.publish_some(stream_, published_);
    sharding.or_abort([&] { stream_.sync(); });
}

void Relayout::forget_claims(const Parameter& of, const Parameter& other) noexcept {
    const auto remove = [this](const Tensor& tensor) {
        parameters_.memory_.remove(tensor.data(), tensor.bytes());
    };
    if (of.grad != nullptr && of.grad != other.grad) {
        remove(*of.grad);
    }
    if (of.states.has_value()) {
        of.states->for_each(remove);
    }
}

void Relayout::keep() noexcept {
    is_kept_ = true;
    for (const Changed& changed : changed_) {
        forget_claims(changed.before, at(changed.index));
    }
    if (!is_cut()) {
        return;
    }
    const auto drop = [this](Tensor& tensor) {
        parameters_.memory_.remove(tensor.data(), tensor.bytes());
        tensor.drop_memory(stream_);
    };
    for (const int32_t index : switched_) {
        if (has_slices_in_use(at(index))) {
            drop(*at(index).param);
        }
    }
    for (int32_t i = old_count_; i < parameters_.count(); ++i) {
        const Parameter& p = at(i);
        if (has_slices_in_use(p)) {
            drop(*p.param);
        }
        if (p.grad != nullptr && p.layout.grad.lifetime == Lifetime::in_use) {
            drop(*p.grad);
        }
    }
}

// The last one of the list.
void Relayout::take_back(int32_t index) noexcept {
    const Parameter& p = at(index);
    forget_claims(p, Parameter());
    parameters_.memory_.remove(p.param->data(), p.param->bytes());
    const auto named = parameters_.names_.find(p.name);
    if (named != parameters_.names_.end() && named->second == index) {
        parameters_.names_.erase(named);
    }
    const Deferral& was = were_deferred_[static_cast<std::size_t>(index - old_count_)];
    const auto defer = [this](Tensor& tensor) {
        tensor.drop_memory(stream_);
        tensor.set_deferred(true);
    };
    if (was.param) {
        defer(*p.param);
    }
    if (was.grad) {
        defer(*p.grad);
    }
    parameters_.list_.pop_back();
}

void Relayout::undo() noexcept {
    stream_.finish(); // nobody works on what is given up
    if (other_cut_ != nullptr) {
        parameters_.sharding()->exchange(other_cut_);
    }
    (void)guarded("weights", [&]() -> Status {
        for (const Saved& saved : saved_) {
            copy_tensor(stream_, *saved.values, *saved.weight);
        }
        stream_.sync();
        return {};
    });
    while (parameters_.count() > old_count_) {
        take_back(parameters_.count() - 1);
    }
    for (Changed& changed : changed_) {
        Parameter& p = at(changed.index);
        forget_claims(p, changed.before);
        if (has_slices_in_use(p) && p.layout.is_frozen != changed.before.layout.is_frozen) {
            p.param->drop_memory(stream_); // fetched
        }
        p = std::move(changed.before);
    }
}

Relayout::~Relayout() {
    if (!is_kept_) {
        undo();
    }
}

} // namespace mp::optim
