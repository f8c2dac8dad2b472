// SPDX-License-Identifier: Apache-2.0
// The kernels of backends/cuda on the simulated device: the same code, one thread after another. The
// candidates "kokkos" are the reference's, in stream order.
#include <memory>
#include <stdexcept>
#include <vector>

#include "cuda/amax.cuh"
#include "cuda/candidates.hpp"
#include "cuda/cast.cuh"
#include "cuda/codes.cuh"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/kernel_image.hpp"
#include "cuda/lt_addend.cuh"
#include "cuda/optimizer_update.cuh"
#include "cuda/queue.hpp"
#include "cuda/with_kokkos_space.hpp"
#include "kokkos/supports.hpp"
#include "reference/backend.hpp"
#include "runtime.hpp"

namespace mp::backends {

namespace cuda {

namespace {

// A small grid, so that threads take several groups.
constexpr int kBlock = 256;
constexpr int64_t kGrid = 3 * kBlock;

Status enqueue(Device& device, Queue& queue, std::function<void()> work) noexcept {
    auto& cuda_queue = static_cast<CudaQueue&>(queue);
    const ContextGuard guard(static_cast<CudaDevice&>(device).context());
    if (!simulated::enqueue(cuda_queue.stream(), std::move(work))) {
        return cuda_status(cudaPeekAtLastError(), "launching a simulated kernel");
    }
    return {};
}

template <class Desc>
bool supports(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    const auto& desc = static_cast<const Desc&>(op);
    if constexpr (std::is_same_v<Desc, GemmDesc>) {
        if (!takes_naive_gemm(desc, reason)) {
            return false;
        }
    }
    return kokkos::is_supported(desc, reason);
}

bool supports_cast(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return takes_cast(static_cast<const CastDesc&>(op), reason);
}

bool supports_amax(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return takes_amax(static_cast<const AmaxDesc&>(op), reason);
}

bool supports_update(const Device& /*device*/, const OpDesc& op, Reason& reason) noexcept {
    return takes_update(static_cast<const OptimizerUpdateDesc&>(op), reason);
}

Status run_cast(Device& device, Queue& queue, const OpDesc& op) noexcept {
    return enqueue(device, queue, [work = cast_work(static_cast<const CastDesc&>(op))] {
        for (int64_t thread = 0; thread < kGrid; ++thread) {
            cast_thread(work, thread, kGrid);
        }
    });
}

Status run_amax(Device& device, Queue& queue, const OpDesc& op) noexcept {
    return enqueue(device, queue, [amax = static_cast<const AmaxDesc&>(op)] {
        const bool is_aligned = is_group_aligned(amax.source.data, dtype_size(amax.source.dtype));
        uint32_t largest = 0;
        for (int64_t thread = 0; thread < kGrid; ++thread) {
            const uint32_t found = amax_thread(amax.source, is_aligned, thread, kGrid);
            largest = found > largest ? found : largest;
        }
        *amax.result = numerics::float_from_bits(largest);
    });
}

Status run_update(Device& device, Queue& queue, const OpDesc& op) noexcept {
    const auto& update = static_cast<const OptimizerUpdateDesc&>(op);
    if (update.table.chunk_count == 0) {
        return {};
    }
    const UpdateWork work = update_work(update);
    const int64_t blocks = update.table.chunk_count;
    return with_update_layout(update.table, work.stochastic, [&](auto layout) {
        return enqueue(device, queue, [work, blocks] {
            for (int64_t block = 0; block < blocks; ++block) {
                for (int thread = 0; thread < kBlock; ++thread) {
                    update_thread<decltype(layout)>(work, block, thread, kBlock);
                }
            }
        });
    });
}

} // namespace

const Candidate kCast = {kName, supports_cast, run_cast, nullptr, nullptr};
const Candidate kAmax = {kName, supports_amax, run_amax, nullptr, nullptr};
const Candidate kOptimizerUpdate = {kName, supports_update, run_update, nullptr, nullptr};

namespace {

Status enqueue(CudaQueue& queue, std::function<void()> work) noexcept {
    if (!simulated::enqueue(queue.stream(), std::move(work))) {
        return cuda_status(cudaPeekAtLastError(), "launching a simulated kernel");
    }
    return {};
}

} // namespace

Status arrange_codes(const CudaDevice& /*device*/, CudaQueue& queue,
                     const CodesWork& work) noexcept {
    return enqueue(queue, [work] {
        for (int64_t thread = 0; thread < kGrid; ++thread) {
            codes_thread(work, thread, kGrid);
        }
    });
}

Status raise_amax(CudaQueue& queue, float* amax, const float* found) noexcept {
    return enqueue(queue, [amax, found] { raise_amax_thread(amax, found); });
}

Status write_addend(const CudaDevice& /*device*/, CudaQueue& queue,
                    const AddendWork& work) noexcept {
    return enqueue(queue, [work] {
        for (int64_t thread = 0; thread < kGrid; ++thread) {
            addend_thread(work, thread, kGrid);
        }
    });
}

const char* built_architectures() noexcept { return "80 90 simulated"; }
Status check_kernel_image(const char* /*name*/, int32_t /*capability*/) noexcept { return {}; }

class KokkosSpace {};

Status make_kokkos_space(cudaStream_t /*stream*/, KokkosSpace** out) noexcept {
    static KokkosSpace instance;
    *out = &instance;
    return {};
}
void destroy_kokkos_space(KokkosSpace* /*space*/) noexcept {}
void shut_down_kokkos() noexcept {}

namespace {

struct Reference {
    Reference() {
        DeviceConfig config;
        Device* opened = nullptr;
        (void)reference::backend()->open(config, &opened);
        device.reset(opened);
        Queue* made = nullptr;
        (void)device->create_queue(nullptr, &made);
        queue.reset(made);
    }
    [[nodiscard]] const Candidate& of(OpKind kind) const { return *device->candidates(kind).items; }
    std::unique_ptr<Device> device;
    std::unique_ptr<Queue> queue;
};

Reference& oracle() {
    static Reference instance;
    return instance;
}

// As Kokkos launches: it selects the device, throws where that fails, and leaves an error of the launch itself behind for
// cudaGetLastError.
Status launch_as_kokkos(Device& device, Queue& queue, std::function<void()> work) noexcept {
    try {
        return with_kokkos_space(device, queue, [&](const KokkosSpace&) {
            if (cudaSetDevice(device.index()) != cudaSuccess) {
                throw std::runtime_error("cudaSetDevice failed");
            }
            (void)simulated::enqueue(static_cast<CudaQueue&>(queue).stream(), std::move(work));
        });
    } catch (const std::exception& error) {
        return Status::error(Code::kokkos_error, "kokkos: %s", error.what());
    }
}

// What a launch takes along. All else is read when its turn comes.
template <class Desc> struct Launched {
    explicit Launched(const Desc& op) : desc(op) {}
    [[nodiscard]] Desc now() const { return desc; }

    Desc desc;
};
template <> struct Launched<SumPartsDesc> {
    explicit Launched(const SumPartsDesc& op) : desc(op) {
        if (op.parts == nullptr) {
            few.assign(op.host_parts, op.host_parts + op.part_count);
        }
        desc.host_parts = nullptr;
    }
    [[nodiscard]] SumPartsDesc now() const {
        SumPartsDesc op = desc;
        op.host_parts = op.parts != nullptr ? op.parts : few.data();
        return op;
    }

    SumPartsDesc desc;
    std::vector<SumPart> few;
};

template <class Desc>
Status run_reference(Device& device, Queue& queue, const OpDesc& op) noexcept {
    return launch_as_kokkos(device, queue, [launched = Launched(static_cast<const Desc&>(op))] {
        const Desc desc = launched.now();
        (void)oracle().of(desc.kind).run(*oracle().device, *oracle().queue, desc);
    });
}

// Work that was enqueued may outlive its plan, as on a device.
struct SharedPlan final : Plan {
    explicit SharedPlan(Plan* made) : plan(made) {}
    std::shared_ptr<Plan> plan;
};

Status prepare_reference(Device& /*device*/, const GemmDesc& op, Plan** out) noexcept {
    Plan* made = nullptr;
    const Status status = oracle().of(OpKind::gemm).prepare(*oracle().device, op, &made);
    *out = status.ok() ? std::make_unique<SharedPlan>(made).release() : nullptr;
    return status;
}

Status run_reference_plan(Device& device, Queue& queue, Plan& plan,
                          const GemmBuffers& buffers) noexcept {
    return launch_as_kokkos(device, queue, [shared = static_cast<SharedPlan&>(plan).plan, buffers] {
        (void)oracle()
            .of(OpKind::gemm)
            .run_plan(*oracle().device, *oracle().queue, *shared, buffers);
    });
}

template <class Desc> constexpr Candidate make_candidate() noexcept {
    if constexpr (std::is_same_v<Desc, GemmDesc>) {
        return {"kokkos", supports<Desc>, nullptr, prepare_reference, run_reference_plan};
    } else {
        return {"kokkos", supports<Desc>, run_reference<Desc>, nullptr, nullptr};
    }
}
template <class Desc> constexpr Candidate kReference = make_candidate<Desc>();

} // namespace

CandidateList kokkos_candidates(OpKind kind) noexcept {
    static constexpr const Candidate* kAll[] = {
#define X(name, desc, candidate) &kReference<desc>,
#include "device/op_kinds.def"
#undef X
    };
    return {kAll[static_cast<std::size_t>(kind)], 1};
}

} // namespace cuda

} // namespace mp::backends
