// SPDX-License-Identifier: Apache-2.0
// Offload: the step of parameters on a device whose states, and a copy of the weights, are on the host. Gradients
// come to the host in buckets, each while the host steps the one before it; weights go back likewise. The host's
// kernels are bit-equal to the device's, so the results are those of a step on the device.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "optim/param_states.hpp"
#include "optim/step_memory.hpp"

namespace mp::optim {

struct OffloadedParameter {
    std::shared_ptr<Tensor> param; // on the device
    std::shared_ptr<Tensor> grad;
    std::shared_ptr<Tensor> host_param; // the same numbers
    UpdateSegment segment; // of host_param and its states; the gradient's place is chosen here
};

// Zeros in the same form.
std::shared_ptr<Tensor> make_like(const std::shared_ptr<Context>& context, Stream& stream,
                                  const Tensor& tensor);

class Offload {
  public:
    explicit Offload(const std::shared_ptr<Context>& context);
    Offload(Offload&&) = default;
    Offload& operator=(Offload&&) = default;
    Offload(const Offload&) = delete;
    Offload& operator=(const Offload&) = delete;
    ~Offload();

    // What the next steps are of. Waits.
    void plan(std::vector<OffloadedParameter> parameters);
    // One step; `memory` is on the device. Waits.
    void step(Stream& stream, const StepMemory& memory, scaler::LossScaler* scaler,
              const StepOptions& options);

  private:
    // Host memory that the device can reach by itself, where it knows how.
    class Staging {
      public:
        Staging() = default;
        Staging(const Context& context, std::size_t bytes);
        ~Staging();
        Staging(Staging&& other) noexcept { swap(other); }
        Staging& operator=(Staging&& other) noexcept {
            swap(other);
            return *this;
        }
        Staging(const Staging&) = delete;
        Staging& operator=(const Staging&) = delete;
        [[nodiscard]] unsigned char* data() const noexcept { return buffer_.as<unsigned char>(); }

      private:
        void swap(Staging& other) noexcept;

        std::shared_ptr<Device> device_; // null: nothing to unpin
        Buffer buffer_;
    };
    // Parameters that travel together; even buckets have the first queue and staging memory, odd ones the second.
    struct Bucket {
        std::vector<std::size_t> members;
        SegmentPlan plan; // on the host
    };

    void cut();
    void place();
    void fetch(std::size_t bucket, bool zero_grad);
    void zero_gradients(Stream& stream) const;
    void send(std::size_t bucket);

    std::shared_ptr<Context> context_;
    std::array<std::shared_ptr<Stream>, 2> streams_;
    std::array<Staging, 2> staging_;
    std::vector<OffloadedParameter> parameters_;
    std::vector<Bucket> buckets_;
    SegmentPlan device_plan_; // of the gradients, for their norm
};

} // namespace mp::optim
