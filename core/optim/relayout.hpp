// SPDX-License-Identifier: Apache-2.0
// Relayout: a change of the list of parameters, or of which of them are trained, with all that follows from it: gradients,
// states, and where ranks share them another cut. It is made beside what is there, which comes back unless keep() is called.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "optim/moved_slices.hpp"
#include "optim/parameters.hpp"

namespace mp::optim {

class Relayout {
  public:
    // Both outlive it.
    Relayout(Parameters& parameters, Stream& stream)
        : parameters_(parameters), stream_(stream), old_count_(parameters.count()) {}
    Relayout(const Relayout&) = delete;
    Relayout& operator=(const Relayout&) = delete;
    ~Relayout();

    // Throw for what cannot be. `recipe` and `rule` are those of the group.
    void add(int32_t group, const recipe::Recipe& recipe, numerics::RuleId rule,
             const NewParameter& parameter);
    // Nothing where it is so already.
    void set_frozen(int32_t index, const recipe::Recipe& recipe, bool is_frozen);

    // Where ranks have cut the parameters; of the whole list as it is now. Of this rank alone.
    void cut(std::vector<shard::ShardedTensor> tensors);
    // Gradients and states of what is new, where there are to be some.
    void make_states();

    // Collective: before cut(), weights in slices that become frozen, or trained, are whole. Where it throws all groups have
    // ended.
    void fetch();
    // Collective, likewise: states and weights come to where they belong now. Waits.
    void exchange();

    void keep() noexcept;

    [[nodiscard]] int32_t first_added() const noexcept { return old_count_; }
    // Those that are frozen, or trained, since.
    [[nodiscard]] const std::vector<int32_t>& switched() const noexcept { return switched_; }

  private:
    struct Changed {
        int32_t index;
        Parameter before;
    };
    struct Deferral {
        bool param;
        bool grad;
    };
    struct Saved {
        std::shared_ptr<Tensor> weight;
        std::shared_ptr<Tensor> values; // that it had
    };

    [[nodiscard]] Parameter& at(int32_t index) const;
    [[nodiscard]] bool is_cut() const noexcept { return parameters_.sharding() != nullptr; }
    [[nodiscard]] bool has_slices_in_use(const Parameter& p) const noexcept;
    [[nodiscard]] std::vector<SliceArray> arrays_of(int32_t index) const;
    void end_deferral(Tensor& tensor, const LayoutArray& layout) const;
    void find_moves(const shard::ShardPlan& next);
    void make_states_of(int32_t index);
    void save(const std::shared_ptr<Tensor>& weight);
    // The claims of what only one of the two has.
    void forget_claims(const Parameter& of, const Parameter& other) noexcept;
    void take_back(int32_t index) noexcept;
    void undo() noexcept;

    Parameters& parameters_;
    Stream& stream_;
    int32_t old_count_;
    std::vector<Deferral> were_deferred_; // by place behind the old ones
    std::vector<Changed> changed_;        // of the old ones
    std::vector<int32_t> switched_;       // of changed_
    std::vector<int32_t> moved_;          // of changed_: this rank has another slice
    std::vector<Saved> saved_;            // weights that are written before all ranks have agreed
    std::vector<int32_t> published_;      // whose weights this rank's slices give to the others
    std::vector<int32_t> moves_of_;       // parameters, by place in moves_
    std::vector<MovedSlices> moves_;
    Buffer memory_;                              // of one exchange
    std::unique_ptr<shard::ShardCut> other_cut_; // the one that does not count; null: there is none
    bool is_kept_ = false;
};

} // namespace mp::optim
