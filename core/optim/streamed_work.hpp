// SPDX-License-Identifier: Apache-2.0
// StreamedWork: the step of weights on a device whose states, and a copy of the weights, are on the host. Gradients are there, or
// come in buckets, each while the host steps the one before it; weights go back likewise. The host's kernels are bit-equal
// to the device's, so the results are those of a step on the device.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "context/context.hpp"
#include "optim/host_gradients.hpp"
#include "optim/step.hpp"
#include "runtime/host_lane.hpp"

namespace mp::optim {

// The elements of a parameter that are stepped, as a step over arrays of the device would have them.
struct StreamedArrays {
    ArrayRef param; // on the device
    ArrayRef grad;  // there, or on the host, where nothing of it comes
    UpdateSegment
        segment; // on the host, but for a gradient of the device, whose place there is chosen here
    int32_t parameter = 0;
    bool has_host_grad = false;
    unsigned char* staged = nullptr; // chosen here, too
};

// What was moved, and how long it took.
struct OffloadTraffic {
    int64_t steps = 0;
    int64_t to_host = 0; // bytes
    int64_t to_device = 0;
    std::chrono::nanoseconds step_time{0};
    std::chrono::nanoseconds waited{0}; // of it, for copies
};

class StreamedWork final : public StepWork {
  public:
    // `gradients`: or null; outlives this.
    StreamedWork(const std::shared_ptr<Context>& context, HostGradients* gradients);
    ~StreamedWork() override;

    // What the next steps are of. Waits. Where it throws nothing has changed.
    void plan(std::vector<StreamedArrays> arrays);
    [[nodiscard]] const OffloadTraffic& traffic() const noexcept { return traffic_; }
    // Of host memory for arrays on their way.
    [[nodiscard]] int64_t staging_bytes() const noexcept {
        return static_cast<int64_t>(plan_.staging[0].bytes() + plan_.staging[1].bytes());
    }
    void choose(Stream& stream, const StepMemory& memory, const StepOptions& options) override;
    void apply(Stream& stream, const StepMemory& memory, const StepOptions& options) override;

  private:
    // Arrays that travel together; even buckets have the first queue and staging memory, odd ones the second.
    struct Bucket {
        std::vector<std::size_t> members;
        SegmentPlan plan; // on the host
        OptimizerUpdateDesc update;
        const Candidate* chosen = nullptr;
    };
    struct Plan {
        std::array<PinnedBuffer, 2> staging;
        std::vector<StreamedArrays> arrays;
        std::vector<Bucket> buckets;

        void place(const Context& context);
    };

    void fetch(std::size_t bucket, bool zero_grad);
    void zero_gradients(Stream& stream) const;
    void forget_host_gradients() noexcept;
    void send(std::size_t bucket);
    void wait_for_copies(std::size_t side);

    std::shared_ptr<Context> context_;
    HostGradients* gradients_; // or null
    std::array<std::shared_ptr<Stream>, 2> streams_;
    Plan plan_;
    PreparedStep prepared_; // of the step that is being applied
    OffloadTraffic traffic_;
};

} // namespace mp::optim
