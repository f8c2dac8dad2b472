// SPDX-License-Identifier: Apache-2.0
// The transport over NCCL as the module hands it out: NCCL as it is found, and this device's stream, memory and events.
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "comm/nccl/transport.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "status/guarded.hpp"
#include "transport/transport_module.hpp"

namespace mp::backends::cuda {

namespace {

class StreamDevice final : public comm::NcclDevice {
  public:
    static Status make(int32_t index, CUcontext context,
                       std::shared_ptr<comm::NcclDevice>* out) noexcept {
        return guarded("a stream for NCCL", [&] {
            auto device = std::make_shared<StreamDevice>(index, context);
            const Status status = device->open();
            if (status.ok()) {
                *out = std::move(device);
            }
            return status;
        });
    }
    StreamDevice(int32_t index, CUcontext context) noexcept : index_(index), context_(context) {}

    ~StreamDevice() override {
        const ContextGuard guard(context_);
        if (is_broken_ || stream_ == nullptr) {
            return;
        }
        for (const PinnedBlock& block : blocks_) {
            (void)cudaFree(block.device);
            (void)cudaFreeHost(block.pinned);
        }
        (void)cudaStreamDestroy(stream_);
    }

    Status open() noexcept {
        const ContextGuard guard(context_);
        return cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                           "cudaStreamCreateWithFlags");
    }

    [[nodiscard]] int32_t index() const noexcept override { return index_; }
    Status make_another(std::shared_ptr<comm::NcclDevice>* out) const noexcept override {
        return make(index_, context_, out);
    }
    [[nodiscard]] void* stream() const noexcept override { return stream_; }
    void* enter() noexcept override { return new (std::nothrow) ContextGuard(context_); }
    void leave(void* before) noexcept override { delete static_cast<ContextGuard*>(before); }

    [[nodiscard]] bool is_device_memory(const void* pointer) noexcept override {
        cudaPointerAttributes attributes{};
        return cuda_status(cudaPointerGetAttributes(&attributes, pointer),
                           "cudaPointerGetAttributes")
                   .ok() &&
               (attributes.type == cudaMemoryTypeDevice ||
                attributes.type == cudaMemoryTypeManaged);
    }

    Status allocate(int64_t bytes, void** device, void** pinned) noexcept override {
        const std::lock_guard lock(mutex_);
        for (PinnedBlock& block : blocks_) {
            if (block.is_free && block.bytes >= bytes) {
                block.is_free = false;
                *device = block.device;
                *pinned = block.pinned;
                return {};
            }
        }
        try {
            blocks_.reserve(blocks_.size() + 1);
        } catch (const std::exception&) {
            return Status::error(Code::out_of_memory, "no memory for a staging block");
        }
        PinnedBlock block;
        block.bytes = bytes;
        const auto size = static_cast<std::size_t>(bytes);
        Status status = cuda_status(cudaMalloc(&block.device, size), "cudaMalloc");
        if (status.ok()) {
            status = cuda_status(cudaMallocHost(&block.pinned, size), "cudaMallocHost");
        }
        if (!status.ok()) {
            return status; // a device block without its host half is lost, as is the run
        }
        blocks_.push_back(block);
        *device = block.device;
        *pinned = block.pinned;
        return {};
    }

    void release(void* device, void* /*pinned*/) noexcept override {
        const std::lock_guard lock(mutex_);
        for (PinnedBlock& block : blocks_) {
            block.is_free = block.is_free || block.device == device;
        }
    }

    void set_broken() noexcept override { is_broken_ = true; }

    Status copy(void* to, const void* from, int64_t bytes) noexcept override {
        return cuda_status(
            cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream_),
            "cudaMemcpyAsync");
    }

    Status mark(void** event) noexcept override { return mark_in(stream_, event); }
    Status mark_other(void* stream, void** event) noexcept override {
        return mark_in(static_cast<cudaStream_t>(stream), event);
    }

    Status wait_for_mark(void* event) noexcept override { return make_wait(stream_, event); }

    Status make_wait(void* stream, void* event) noexcept override {
        return cuda_status(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream),
                                               static_cast<cudaEvent_t>(event), 0),
                           "cudaStreamWaitEvent");
    }

    Status reached(void* event, bool* done) noexcept override {
        const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
        *done = error == cudaSuccess;
        if (error == cudaErrorNotReady) {
            (void)cudaGetLastError();
            return {};
        }
        return cuda_status(error, "cudaEventQuery");
    }

    void drop_mark(void* event) noexcept override {
        (void)cudaEventDestroy(static_cast<cudaEvent_t>(event));
    }

  private:
    struct PinnedBlock {
        int64_t bytes = 0;
        void* device = nullptr;
        void* pinned = nullptr;
        bool is_free = false;
    };

    static Status mark_in(cudaStream_t stream, void** out) noexcept {
        cudaEvent_t event = nullptr;
        Status status = cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                    "cudaEventCreateWithFlags");
        if (status.ok()) {
            status = cuda_status(cudaEventRecord(event, stream), "cudaEventRecord");
            *out = event;
        }
        return status;
    }

    int32_t index_;
    CUcontext context_;
    cudaStream_t stream_ = nullptr;
    std::atomic<bool> is_broken_{false};
    std::mutex mutex_; // of the blocks
    std::vector<PinnedBlock> blocks_;
};

Status missing() noexcept {
    return Status::error(Code::unsupported, "%s", comm::nccl().reason.c_str());
}

Status create_checked(const TransportConfig& config, Transport** out) {
    const comm::NcclApi& api = comm::nccl();
    if (!api.is_there()) {
        return missing();
    }
    const auto& gpu = *static_cast<CudaDevice*>(config.device);
    std::shared_ptr<comm::NcclDevice> device;
    check(StreamDevice::make(gpu.index(), gpu.context(), &device));
    if (config.native != nullptr) {
        return comm::wrap_nccl_transport(api, std::move(device),
                                         *static_cast<const comm::NcclComm*>(config.native), out);
    }
    comm::NcclUniqueId id{};
    std::memcpy(&id, config.unique_id, sizeof id);
    return comm::make_nccl_transport(api, std::move(device), id, config.rank, config.size,
                                     config.deadline_ms, out);
}

Status create(const TransportConfig& config, Transport** out) noexcept {
    return guarded("a transport", [&] { return create_checked(config, out); });
}

Status unique_id(void* id) noexcept {
    static_assert(sizeof(comm::NcclUniqueId) == kUniqueIdBytes);
    const comm::NcclApi& api = comm::nccl();
    return api.is_there()
               ? comm::nccl_status(api, api.GetUniqueId(static_cast<comm::NcclUniqueId*>(id)),
                                   "ncclGetUniqueId", nullptr)
               : missing();
}

constexpr TransportModule kTransport = {kTransportVersion, "nccl", create, unique_id, nullptr};

} // namespace

} // namespace mp::backends::cuda

extern "C" [[gnu::visibility("default")]] const mp::TransportModule*
mp_transport_entry_v1(uint32_t version);

extern "C" const mp::TransportModule* mp_transport_entry_v1(uint32_t version) {
    return version == mp::kTransportVersion ? &mp::backends::cuda::kTransport : nullptr;
}
