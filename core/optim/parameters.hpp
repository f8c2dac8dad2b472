// SPDX-License-Identifier: Apache-2.0
// Parameters: the tensors that an optimizer steps, and the states of the elements that are here: all of them, or this
// rank's slice of each once ranks share them. Knows nothing of groups but their numbers, and nothing of steps.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "optim/host_gradients.hpp"
#include "optim/overlap.hpp"
#include "optim/saved_state.hpp"
#include "shard/sharding.hpp"

namespace mp::optim {

struct NewParameter {
    std::string name;
    std::shared_ptr<Tensor> param;
    std::shared_ptr<Tensor> grad;      // null: made here
    std::shared_ptr<Tensor> init_fp32; // null: the parameter as it is
    bool counts_elsewhere = false;     // in the norm of another rank, which holds it too
    bool is_frozen = false;            // not trained: no gradient, no states
};

struct Parameter {
    // Its identity for random numbers: of its name, so that they do not depend on the order in which parameters were added.
    [[nodiscard]] uint64_t uid() const;

    std::string name;
    int32_t group = 0;
    std::shared_ptr<Tensor> param;
    std::shared_ptr<Tensor> grad;      // null: it is frozen, or steps are given one
    std::shared_ptr<Tensor> init_fp32; // until its states are made
    bool counts_elsewhere = false;     // as in NewParameter
    bool has_values = true;            // a deferred one has none until somebody gives it some
    Layout layout;
    std::optional<ParamStates>
        states; // of the elements that are here; none before shard(), or frozen
    // As layout.host_weight; else null.
    std::shared_ptr<Tensor> host_weight;
};

// Where exact values lie that a parameter is to get: on the host, or on the context's device.
enum class ValuesOn { host, device };

// What steps write of all parameters, and in words what it is: "weight of 'w'", say.
using ClaimedMemory = DisjointArrays<std::string>;

class Parameters {
  public:
    // Where ranks share them, states are made when they are cut.
    Parameters(std::shared_ptr<Context> context, const LayoutOptions& options);

    [[nodiscard]] int32_t count() const noexcept { return static_cast<int32_t>(list_.size()); }
    [[nodiscard]] const Parameter& operator[](int32_t index) const; // throws where there is none
    [[nodiscard]] auto begin() const noexcept { return list_.begin(); }
    [[nodiscard]] auto end() const noexcept { return list_.end(); }
    // Throws where a number that steps read lies in a parameter, its gradient or its states. Null: nothing.
    void check_number(const Tensor* number, const char* name) const;

    // From here on ranks share them. make_states() follows, and may fail on one rank alone.
    void share(std::unique_ptr<shard::Sharding> sharding) { sharding_ = std::move(sharding); }
    void make_states(Stream& stream);
    // Null before share().
    [[nodiscard]] shard::Sharding* sharding() const noexcept { return sharding_.get(); }

    // The way of gradients, or their sums, to host memory; null: they stay on the device.
    [[nodiscard]] const std::shared_ptr<HostLane>& lane() const noexcept { return lane_; }
    // Those of parameters that nobody shares; null: there are none there.
    [[nodiscard]] HostGradients* host_gradients() const noexcept { return host_gradients_.get(); }
    // Whether gradients go anywhere: to other ranks, or to the host.
    [[nodiscard]] bool moves_gradients() const noexcept {
        return sharding_ != nullptr || host_gradients_ != nullptr;
    }
    // A gradient gets its memory, or has its last addition: nothing where they do not.
    void acquire_grad(Stream& stream, int32_t index) const;
    void grad_ready(Stream& stream, int32_t index) const;

    // The step's arrays of one parameter. Its gradient is where gradient() is; the others are where the states are.
    [[nodiscard]] UpdateSegment segment(int32_t index) const;
    // Its weights where the step finds them, on the device, and what the step reads of their gradient.
    [[nodiscard]] ArrayRef weight(int32_t index) const;
    [[nodiscard]] ArrayRef device_weight(int32_t index) const;
    [[nodiscard]] ArrayRef gradient(int32_t index) const;
    // What works on gradient().
    [[nodiscard]] Stream& gradient_stream(Stream& stream) const noexcept {
        return lane_ != nullptr ? context_->host_stream() : stream;
    }
    // After somebody else wrote parameters: master weights follow them, compensations are forgotten. -1: all.
    void sync_master(Stream& stream, int32_t index);
    // Gives the elements that are here their exact values, in fp32: the weight rounds them, master or compensation keep the
    // rest. Ranks know nothing of it yet. `amax`, on the device: of the whole parameter, where shares_amax(); else null. Waits.
    void write_exact(Stream& stream, int32_t index, TensorRef exact, ValuesOn place,
                     const float* amax = nullptr);
    // Whether these have values; a step wants them.
    void mark_values(std::span<const int32_t> indices, bool have_values) noexcept;
    // After all states were written from outside: the weights follow.
    void publish(Stream& stream);

    // "param", "grad", "exp_avg", "exp_avg_sq", "compensation", "master", and with "_scale_inv" the scale
    // or scales of each; throws where there is none.
    [[nodiscard]] std::shared_ptr<Tensor> state(int32_t index, const std::string& name) const;
    // The elements whose states are here.
    [[nodiscard]] shard::ShardSlice slice(int32_t index) const;
    [[nodiscard]] Context& context() const noexcept { return *context_; }
    // What works on arrays in a place; `stream`: the device's.
    [[nodiscard]] Stream& stream_at(Place place, Stream& stream) const noexcept {
        return is_on_host(place) ? context_->host_stream() : stream;
    }
    // Of one that is frozen, the device's, where its weight is.
    [[nodiscard]] Stream& state_stream(int32_t index, Stream& stream) const noexcept {
        return stream_at(list_[static_cast<std::size_t>(index)].layout.states_place, stream);
    }
    [[nodiscard]] MemoryReport memory() const noexcept;

  private:
    friend class Relayout; // which changes the list

    // The states of the elements that are here, with their first values.
    void make_states(Stream& stream, int32_t index);
    // All zero; false: there are none.
    bool allocate_states(Stream& stream, int32_t index);
    void initialize(Stream& stream, int32_t index);

    std::shared_ptr<Context> context_;
    LayoutOptions options_;
    std::vector<Parameter> list_;
    std::unordered_map<std::string, int32_t> names_;
    ClaimedMemory memory_;
    std::shared_ptr<HostLane> lane_;
    std::unique_ptr<HostGradients> host_gradients_;
    std::unique_ptr<shard::Sharding> sharding_;
};

void claim(ClaimedMemory& memory, const Tensor& tensor, const char* what, const Parameter& owner);
// Whether codes of a slice depend on the amax of the whole parameter, of which other ranks have a part: a frozen one's with one
// scale for all, or scales relative to it.
bool shares_amax(const Parameter& parameter);
// Throws, and names one that has no values.
void check_have_values(const Parameters& parameters);
// What of a parameter goes into a checkpoint, and where it is.
StatesPlace states_place(const Parameters& parameters, int32_t index);
// The values of a state, see state_values.hpp; `values` is fp32, fp16 or bf16 with the count of the elements whose states are
// here. Wait.
void read_state(Stream& stream, const Parameters& parameters, int32_t index,
                const std::string& name, const Tensor& values);
void write_state(Stream& stream, Parameters& parameters, int32_t index, const std::string& name,
                 const Tensor& values);

} // namespace mp::optim
