// SPDX-License-Identifier: Apache-2.0
// The opaque structs of the public headers.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpointer.hpp"
#include "comm/communicator.hpp"
#include "context/context.hpp"
#include "gemm/gemm.hpp"
#include "handles.hpp"
#include "linear/adapter.hpp"
#include "linear/linear.hpp"
#include "linear/magnitude.hpp"
#include "mixedprec.h"
#include "model/model_writer.hpp"
#include "model/tensor_source.hpp"
#include "optim/optimizer.hpp"
#include "optim/step_plan.hpp"
#include "recipe/recipe.hpp"
#include "scaler/loss_scaler.hpp"
#include "tensor/tensor.hpp"

namespace mp::capi {

// A queue of the caller's, with the context it belongs to.
struct QueueObject {
    QueueObject(std::shared_ptr<Context> owner, void* native)
        : context(std::move(owner)), stream(context->open_stream(native)) {}

    std::shared_ptr<Context> context;
    std::shared_ptr<Stream> stream;
};

// A point in a queue's work. No event: the device's work is done when a call returns.
struct EventObject {
    std::shared_ptr<Context> context;
    std::unique_ptr<Event> event; // goes first: the context keeps its device open
    Followed::List behind;        // what the queue that it was recorded on follows
};

// A recipe can be changed until something has used it.
struct RecipeObject {
    recipe::Recipe recipe;
    std::string name;
    std::string reason; // why this preset, where the device decided
    std::atomic<bool> frozen{false};
    std::atomic<bool> has_noted_weights{false}; // that only its products apply
};

struct AdapterObject;

// A layer, and who is notified about its operands.
struct LinearObject {
    template <typename... Arguments>
    explicit LinearObject(Arguments&&... arguments)
        : layer(std::forward<Arguments>(arguments)...) {}

    linear::Linear layer;
    std::string name;
    mp_linear_monitor_fn monitor = nullptr;
    void* payload = nullptr;
    uint64_t monitor_setting = 0; // counts mp_linear_set_monitor
    int32_t every = 0;
    int32_t steps = 0;                   // since it was last called
    std::weak_ptr<const void> optimizer; // whose steps end this layer's (mp_optimizer_set_linears)
    std::vector<std::weak_ptr<AdapterObject>> adapters; // in the order in which they were made
    bool is_of_adapter = false;                         // the a or b of one
};

// What mp_adapter_create made, and what the layers behind it need for a pass.
struct AdapterObject {
    std::shared_ptr<LinearObject> base;
    std::shared_ptr<LinearObject> a;
    std::shared_ptr<LinearObject> b;
    linear::AdapterOptions options;
    uint64_t number = 0;        // no other adapter has it
    std::shared_ptr<Tensor> da; // null: not wanted
    std::shared_ptr<Tensor> db;
    std::shared_ptr<Tensor> magnitude; // null: there is none
    std::shared_ptr<Tensor> dmagnitude;
    linear::KeptDirection kept; // of the layer's own forwards
    bool is_active = true;
};

// What one forward of a layer keeps.
struct SavedObject {
    struct OfAdapter {
        explicit OfAdapter(Stream& stream) : a(stream), b(stream) {}
        linear::Saved a;
        linear::Saved b;
        linear::KeptDirection kept;
    };
    explicit SavedObject(std::shared_ptr<LinearObject> owner)
        : linear(std::move(owner)), saved(linear->layer.context()->stream()) {}

    std::shared_ptr<LinearObject> linear;
    linear::Saved saved;
    std::map<uint64_t, OfAdapter> adapters; // by AdapterObject::number
    // What the newest forward keeps in memory of mp_saved_set_memory, and where.
    struct Part {
        uint64_t adapter = 0; // 0: the layer itself
        bool is_a = false;
        std::size_t place = 0;
        std::size_t bytes = 0;
        uint64_t generation = 0; // of what is kept there, while another forward runs
    };
    std::vector<Part> layout;
    void* lent = nullptr;
    std::size_t lent_bytes = 0;
};

// An optimizer, and the layers whose monitors its steps call.
struct OptimizerObject : optim::Optimizer {
    using optim::Optimizer::Optimizer;

    std::vector<std::shared_ptr<LinearObject>> layers;
    std::shared_ptr<scaler::LossScaler> open_scaler; // of the step that is open; or null
    std::shared_ptr<optim::OpenStep> open_step;      // or null
    bool has_warned_of_nothing = false;
    bool has_warned_of_eps = false;
    std::map<int32_t, std::vector<mp_hyper>>
        reported_hypers; // by group: what mp_optimizer_get_group gave out
};

struct StepPlanObject {
    std::shared_ptr<Context> context;
    mp_step_args args; // but hypers
    optim::StepPlan plan;
    std::string last_warning;              // the note on its arguments, if any
    std::vector<mp_hyper> reported_hypers; // what mp_step_plan_get_args gave out
    const void* checked_with = nullptr;    // the scaler that was found apart from the arrays
};

struct GemmObject {
    std::shared_ptr<Context> context;
    gemm::GemmPlan plan;
    Format result; // of D, where it is a quantized tensor: the plan's own D is fp32
};

struct CheckpointObject {
    template <typename... Arguments>
    explicit CheckpointObject(Arguments&&... arguments)
        : checkpointer(std::forward<Arguments>(arguments)...) {}

    checkpoint::Checkpointer checkpointer;
    bool has_optimizer = false;
    bool has_scaler = false;
    std::set<std::string> layers; // names that are taken
    std::set<std::string> data;
};

// A model's files, or what is made of them, with the tensors' names and the keys as C has text.
struct ModelFileObject {
    explicit ModelFileObject(std::shared_ptr<const model::TensorSource> tensors);

    std::shared_ptr<const model::TensorSource> source;
    std::vector<std::string> names; // of tensors
    std::vector<std::string> keys;
};

struct CommRequestObject;

// The request that has messages yet to begin, of which there is one at most: before anything else is begun it has begun them,
// so all ranks begin them in one order. Of a communicator; where streams move the messages, of all of a device's.
struct OpenSum {
    std::mutex mutex; // of the request, too, as long as it is in here
    std::weak_ptr<CommRequestObject> request;
};

// A communicator, and the device it needs open.
struct CommObject {
    explicit CommObject(std::unique_ptr<comm::Communicator> owned,
                        std::shared_ptr<Context> owner = nullptr);

    std::shared_ptr<Context> context;
    std::unique_ptr<comm::Communicator> communicator;
    std::shared_ptr<OpenSum> open_sum;
};
// For whatever begins something there next. Waits.
comm::Communicator& ready(CommObject& object);

// What an operation does with what it receives, in one step or several.
class CommWork {
  public:
    CommWork() = default;
    CommWork(const CommWork&) = delete;
    CommWork& operator=(const CommWork&) = delete;
    virtual ~CommWork() = default;
    [[nodiscard]] virtual const Stream& stream() const = 0;
    virtual void wait() = 0;
    virtual bool test() = 0; // true when it is done
    [[nodiscard]] virtual bool begins_more() const = 0;
    virtual void begin_rest() = 0;
};

// An operation in flight, and how it ended.
struct CommRequestObject {
    explicit CommRequestObject(std::shared_ptr<CommObject> owner) : comm(std::move(owner)) {}
    // When bytes have arrived.
    void note_received() const noexcept {
        for (const auto& [data, bytes] : received) {
            note_write(data, bytes);
        }
    }

    std::shared_ptr<CommObject> comm;
    std::vector<std::pair<const void*, std::size_t>> received; // where, in the caller's memory
    comm::CommRequest request;
    std::unique_ptr<CommWork> work; // has requests of its own
    Status status;
};

} // namespace mp::capi

struct mp_context : mp::capi::Handle<mp::Context, 0x4d504358> {};
struct mp_queue : mp::capi::Handle<mp::capi::QueueObject, 0x4d505155> {};
struct mp_event : mp::capi::Handle<mp::capi::EventObject, 0x4d504556> {};
struct mp_tensor : mp::capi::Handle<mp::Tensor, 0x4d505445> {};
struct mp_recipe : mp::capi::Handle<mp::capi::RecipeObject, 0x4d505243> {};
struct mp_gemm : mp::capi::Handle<mp::capi::GemmObject, 0x4d50474d> {};
struct mp_linear : mp::capi::Handle<mp::capi::LinearObject, 0x4d504c49, true> {};
struct mp_saved : mp::capi::Handle<mp::capi::SavedObject, 0x4d505341, true> {};
struct mp_adapter : mp::capi::Handle<mp::capi::AdapterObject, 0x4d504144, true> {};
struct mp_scaler : mp::capi::Handle<mp::scaler::LossScaler, 0x4d505343, true> {};
struct mp_optimizer : mp::capi::Handle<mp::capi::OptimizerObject, 0x4d504f50, true> {};
struct mp_step_plan : mp::capi::Handle<mp::capi::StepPlanObject, 0x4d505350, true> {};
struct mp_checkpoint : mp::capi::Handle<mp::capi::CheckpointObject, 0x4d50434b, true> {};
struct mp_model_file : mp::capi::Handle<mp::capi::ModelFileObject, 0x4d504d46> {};
struct mp_model_writer : mp::capi::Handle<mp::model::ModelWriter, 0x4d504d57, true> {};
struct mp_comm : mp::capi::Handle<mp::capi::CommObject, 0x4d50434f> {};
struct mp_comm_request : mp::capi::Handle<mp::capi::CommRequestObject, 0x4d504352> {};

namespace mp::capi {

// As the general one, and throws for a tensor whose memory a sharded optimizer has taken for now.
std::shared_ptr<Tensor> object_of(const mp_tensor* handle, const char* name);

// A tensor that need not have memory now.
inline std::shared_ptr<Tensor> shape_of(const mp_tensor* handle, const char* name) {
    return object_of<mp_tensor>(handle, name);
}

// The caller's queue, or the context's default one; throws for a queue of another context's device.
Stream& stream_of(mp_queue* queue, const Context& context);
// The queue for work on a tensor: its device's default, or the caller's if that is on the same device.
Stream& stream_of(mp_queue* queue, const Tensor& tensor);
// What a call that takes no queue has enqueued is done when it returns: no other queue could be made to come after it.
inline void complete(const Stream& stream) { stream.sync(); }

// Throws unless the number is one of MP_DTYPE_*; MP_DTYPE_NONE only where allowed.
DType any_dtype_of(int32_t number, const char* name, bool none_is_fine = false);
// Nor for types of blocks.
DType dtype_of(int32_t number, const char* name, bool none_is_fine = false);

// What a tensor's descriptor asks for, checked.
struct TensorSpec {
    DType dtype;
    Shape shape;
    Stream* stream;
    bool is_deferred;
};
TensorSpec spec_of(const Context& context, const mp_tensor_desc* desc, uint32_t known_flags = 0);
// Throws invalid_shape; `sizes` may be null where there are none.
Shape checked_shape(int32_t ndim, const int64_t* sizes, DType dtype, const char* what);

// The recipe for use from now on: checked, and frozen.
const recipe::Recipe& use_recipe(mp_recipe* recipe);

// A tensor over one fp32 number of an object's in device memory, which keeps the object alive.
mp_tensor* device_number(const std::shared_ptr<Context>& context, std::shared_ptr<const void> owner,
                         float* number);

// Memory that the caller lends: NULL with no bytes, or aligned to 256 bytes.
void check_lent(const void* memory, std::size_t bytes);

// Flags that this version knows; any other bit is refused, so that it can get a meaning later.
void check_flags(uint32_t flags, uint32_t known, const char* name);

} // namespace mp::capi
