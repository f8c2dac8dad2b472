/* SPDX-License-Identifier: Apache-2.0
 *
 * libmixedprec for C++17 and later: RAII over the C ABI, in this header alone.
 *
 *   mixedprec::Context context = mixedprec::Context::create();
 *   mixedprec::Recipe recipe = mixedprec::Recipe::create(context, "bf16_mixed");
 *
 * - Objects are handles: they move, do not copy, and give their reference back when they end. The order of ends is free;
 *   what an object of the library needs it keeps. get() is the C handle, for everything of the C headers, whose comments
 *   say what each call does, which threads may make it, and whether it blocks.
 * - Errors: a failed call throws mixedprec::Error. With MIXEDPREC_EXPECTED defined before this header is included no call
 *   throws: each returns expected<T>, and the header compiles with -fno-exceptions. Both may be in one program.
 * - A note (MP_STATUS_WARNING) is success: note() has the text of this thread's last call.
 * - Options are the C structs with their defaults: GroupOptions group; group.lr = 3e-4; As in C, a zero that is meant as one is
 *   given by name: const mp_hyper none = {"beta1", 0.0}; group.hypers = &none; group.hyper_count = 1;
 * - Memory that is wrapped stays the caller's: it must not move or end before the objects that were given it. A
 *   shared_ptr may be handed over instead, which the tensor then keeps.
 * - Functions given as callbacks must not throw. Those of log, monitor and progress are held by the object; an
 *   exception in them is caught and lost, in a Transport it is MP_STATUS_CALLBACK_FAILED, in `parallel` it ends the program. */
#ifndef MIXEDPREC_HPP
#define MIXEDPREC_HPP

#include <mixedprec.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#if defined(__cpp_exceptions)
#define MIXEDPREC_TRY try
#define MIXEDPREC_CATCH_ALL catch (...)
#else
#define MIXEDPREC_TRY if (true)
#define MIXEDPREC_CATCH_ALL else
#endif

namespace mixedprec {

/* What does not depend on how errors are reported. */

/** Elements behind one another: what std::span is, for C++17 too. Made of a pointer and a size, an array, or a container. */
template <class T> class span {
  public:
    constexpr span() = default;
    constexpr span(T* data, std::size_t size) : data_(data), size_(size) {}
    template <std::size_t N> constexpr span(T (&array)[N]) : data_(array), size_(N) {}
    /* A temporary only for reading: it lives until the call that takes the span is over. */
    template <class Container,
              class = std::enable_if_t<
                  std::is_convertible_v<decltype(std::declval<Container&>().data()), T*> &&
                  (std::is_const_v<T> || std::is_lvalue_reference_v<Container>)&&!std::is_same_v<
                      std::decay_t<Container>, span>>>
    constexpr span(Container&& container) : data_(container.data()), size_(container.size()) {}

    constexpr T* data() const { return data_; }
    constexpr std::size_t size() const { return size_; }
    constexpr T* begin() const { return data_; }
    constexpr T* end() const { return data_ + size_; }
    constexpr T& operator[](std::size_t i) const { return data_[i]; }

  private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/** Sizes of a tensor's dimensions, the slowest first: {rows, columns}. */
class Shape {
  public:
    Shape(std::initializer_list<std::int64_t> sizes) : Shape(sizes.begin(), sizes.size()) {}
    Shape(span<const std::int64_t> sizes) : Shape(sizes.data(), sizes.size()) {}
    Shape(const std::vector<std::int64_t>& sizes) : Shape(sizes.data(), sizes.size()) {}
    Shape(const std::int64_t* sizes, std::size_t ndim) : ndim_(ndim) {
        for (std::size_t i = 0; i < ndim && i < MP_MAX_DIMS; ++i)
            sizes_[i] = sizes[i];
    }
    /** More than MP_MAX_DIMS are counted, not kept: the library refuses them. */
    std::int32_t ndim() const { return static_cast<std::int32_t>(ndim_); }
    const std::int64_t* data() const { return sizes_.data(); }
    std::int64_t operator[](std::size_t i) const { return sizes_[i]; }
    std::int64_t elements() const {
        std::int64_t count = 1;
        for (std::size_t i = 0; i < ndim_ && i < MP_MAX_DIMS; ++i)
            count *= sizes_[i];
        return count;
    }

  private:
    std::array<std::int64_t, MP_MAX_DIMS> sizes_{};
    std::size_t ndim_ = 0;
};

/** A status below zero, with the library's sentence about it. */
class Error : public std::runtime_error {
  public:
    Error(mp_status status, const std::string& message)
        : std::runtime_error(std::string(mp_status_string(status)) + ": " + message),
          status_(status) {}
    mp_status status() const { return status_; } /* MP_STATUS_* */
    const char* name() const { return mp_status_string(status_); }

  private:
    mp_status status_;
};

/** A value, or the Error in its place. value() without one ends the program, or throws the Error where exceptions are on. */
template <class T> class [[nodiscard]] expected {
  public:
    expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
    expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
    bool has_value() const { return state_.index() == 0; }
    explicit operator bool() const { return has_value(); }
    T& value() & { return check(), *std::get_if<0>(&state_); }
    const T& value() const& { return check(), *std::get_if<0>(&state_); }
    T&& value() && { return check(), std::move(*std::get_if<0>(&state_)); }
    T& operator*() & { return value(); }
    const T& operator*() const& { return value(); }
    T&& operator*() && { return std::move(*this).value(); }
    T* operator->() { return &value(); }
    const T* operator->() const { return &value(); }
    const Error& error() const { return *std::get_if<1>(&state_); }

  private:
    void check() const {
        if (has_value())
            return;
#if defined(__cpp_exceptions)
        throw error();
#else
        std::abort();
#endif
    }
    std::variant<T, Error> state_;
};

template <> class [[nodiscard]] expected<void> {
  public:
    expected() = default;
    expected(Error error) : error_(std::make_unique<Error>(std::move(error))) {}
    bool has_value() const { return error_ == nullptr; }
    explicit operator bool() const { return has_value(); }
    const Error& error() const { return *error_; }
    void value() const {
        if (has_value())
            return;
#if defined(__cpp_exceptions)
        throw error();
#else
        std::abort();
#endif
    }

  private:
    std::unique_ptr<Error> error_;
};

/** The C structs with the defaults of their initializers. */
struct CastOptions : mp_cast_desc {
    CastOptions() : mp_cast_desc MP_CAST_DESC_INIT {}
};
struct CheckpointInfo : mp_checkpoint_info {
    CheckpointInfo() : mp_checkpoint_info MP_CHECKPOINT_INFO_INIT {}
};
struct CommOptions : mp_comm_desc {
    CommOptions() : mp_comm_desc MP_COMM_DESC_INIT {}
};
struct CommExchange : mp_comm_exchange {
    CommExchange() : mp_comm_exchange MP_COMM_EXCHANGE_INIT {}
};
struct CommTraffic : mp_comm_traffic {
    CommTraffic() : mp_comm_traffic MP_COMM_TRAFFIC_INIT {}
};
struct ReduceOptions : mp_comm_reduce_desc {
    ReduceOptions() : mp_comm_reduce_desc MP_COMM_REDUCE_DESC_INIT {}
};
struct GemmArgs : mp_gemm_args {
    GemmArgs() : mp_gemm_args MP_GEMM_ARGS_INIT {}
};
struct GemmOptions : mp_gemm_desc {
    GemmOptions() : mp_gemm_desc MP_GEMM_DESC_INIT {}
};
struct GroupOptions : mp_param_group_desc {
    GroupOptions() : mp_param_group_desc MP_PARAM_GROUP_DESC_INIT {}
};
struct GuardOptions : mp_guard_desc {
    GuardOptions() : mp_guard_desc MP_GUARD_DESC_INIT {}
};
struct LinearStats : mp_linear_stats {
    LinearStats() : mp_linear_stats MP_LINEAR_STATS_INIT {}
};
struct MemoryReport : mp_memory_report {
    MemoryReport() : mp_memory_report MP_MEMORY_REPORT_INIT {}
};
struct OptimizerOptions : mp_optimizer_desc {
    OptimizerOptions() : mp_optimizer_desc MP_OPTIMIZER_DESC_INIT {}
};
struct OptimizerStats : mp_optimizer_stats {
    OptimizerStats() : mp_optimizer_stats MP_OPTIMIZER_STATS_INIT {}
};
/** A parameter before there is one. The C texts of its formats live as long as the call. */
struct PlannedTensor : mp_planned_tensor {
    PlannedTensor(std::int64_t elements = 0) : mp_planned_tensor MP_PLANNED_TENSOR_INIT {
        count = elements;
    }
};
struct QuantOptions : mp_quant_desc {
    QuantOptions() : mp_quant_desc MP_QUANT_DESC_INIT {}
};
struct QuantizeArgs : mp_quantize_args {
    QuantizeArgs() : mp_quantize_args MP_QUANTIZE_ARGS_INIT {}
};
struct QuantizedMemory : mp_quantized_memory {
    QuantizedMemory() : mp_quantized_memory MP_QUANTIZED_MEMORY_INIT {}
};
struct QuantStats : mp_quant_stats {
    QuantStats() : mp_quant_stats MP_QUANT_STATS_INIT {}
};
struct RecipeKey : mp_recipe_key_desc {
    RecipeKey() : mp_recipe_key_desc MP_RECIPE_KEY_DESC_INIT {}
};
struct ScalerOptions : mp_scaler_desc {
    ScalerOptions() : mp_scaler_desc MP_SCALER_DESC_INIT {}
};
struct ScalerState : mp_scaler_state {
    ScalerState() : mp_scaler_state MP_SCALER_STATE_INIT {}
};
struct ShardingOptions : mp_sharding_desc {
    ShardingOptions() : mp_sharding_desc MP_SHARDING_DESC_INIT {}
};
struct ShardingProgress : mp_sharding_progress {
    ShardingProgress() : mp_sharding_progress MP_SHARDING_PROGRESS_INIT {}
};
struct StepArgs : mp_step_args {
    StepArgs() : mp_step_args MP_STEP_ARGS_INIT {}
};
struct StepRecord : mp_step_record {
    StepRecord() : mp_step_record MP_STEP_RECORD_INIT {}
};
struct StepSlot : mp_step_slot {
    StepSlot() : mp_step_slot MP_STEP_SLOT_INIT {}
};

/** Host threads, device, memory and log of a context; the fields of mp_context_desc, with functions as C++ has them. */
struct ContextOptions : mp_context_desc {
    ContextOptions() : mp_context_desc MP_CONTEXT_DESC_INIT {}
    /** Receives lines of the log, at most one call at a time for a thread, from any thread. Overrides the C pointer. */
    std::function<void(int level, std::string_view line)> on_log;
};

/** Which elements a C++ type holds. Specialize it for a 16-bit float type of your own. */
template <class T> struct dtype_of;
template <> struct dtype_of<float> { static constexpr std::int32_t value = MP_DTYPE_FP32; };
template <> struct dtype_of<std::int8_t> { static constexpr std::int32_t value = MP_DTYPE_INT8; };
template <> struct dtype_of<std::int16_t> { static constexpr std::int32_t value = MP_DTYPE_INT16; };
template <> struct dtype_of<std::int32_t> { static constexpr std::int32_t value = MP_DTYPE_INT32; };
template <> struct dtype_of<std::int64_t> { static constexpr std::int32_t value = MP_DTYPE_INT64; };
template <> struct dtype_of<std::uint8_t> { static constexpr std::int32_t value = MP_DTYPE_UINT8; };

/** Codes of a type that C++ has none for, as their bits. */
template <std::int32_t Dtype, class Bits> struct Codes { Bits bits; };
using Fp16 = Codes<MP_DTYPE_FP16, std::uint16_t>;
using Bf16 = Codes<MP_DTYPE_BF16, std::uint16_t>;
using Fp8E4m3 = Codes<MP_DTYPE_FP8_E4M3, std::uint8_t>;
using Fp8E5m2 = Codes<MP_DTYPE_FP8_E5M2, std::uint8_t>;
using E8m0 = Codes<MP_DTYPE_E8M0, std::uint8_t>;
template <std::int32_t Dtype, class Bits> struct dtype_of<Codes<Dtype, Bits>> {
    static constexpr std::int32_t value = Dtype;
};

/** Of an array, a container or a span: the type of its elements, with const where they cannot be written. */
template <class Values>
using element_of = std::remove_pointer_t<decltype(std::data(std::declval<Values&>()))>;
template <class Values>
constexpr std::int32_t dtype_in = dtype_of<std::remove_const_t<element_of<Values>>>::value;

#ifdef MIXEDPREC_EXPECTED
inline namespace with_expected {
template <class T> using result = expected<T>;
#else
inline namespace with_exceptions {
template <class T> using result = T;
#endif

class Checkpoint;
class Comm;
class Optimizer;
class Scaler;

namespace detail {

inline std::string& note_of_thread() {
    static thread_local std::string text;
    return text;
}

template <class T = void> result<T> fail(mp_status status, const std::string& message) {
#ifdef MIXEDPREC_EXPECTED
    return Error(status, message);
#else
    throw Error(status, message);
#endif
}

/* Remembers a note; true for success. */
inline bool succeeded(mp_status status) {
    if (status == MP_STATUS_WARNING)
        note_of_thread() = mp_last_error_message();
    else
        note_of_thread().clear();
    return status >= 0;
}

inline result<void> done(mp_status status) {
    if (!succeeded(status))
        return fail(status, mp_last_error_message());
    return result<void>();
}

/* The value that a call has written, which is read after the call. */
template <class T> result<T> give(mp_status status, T& value) {
    if (!succeeded(status))
        return fail<T>(status, mp_last_error_message());
    return std::move(value);
}

/* An object over the handle that a call has written. */
template <class Object, class Raw>
result<Object> made(mp_status status, Raw*& handle, std::shared_ptr<void> keep = nullptr) {
    if (!succeeded(status))
        return fail<Object>(status, mp_last_error_message());
    return Object(handle, std::move(keep));
}

/* The text of a call that fills a buffer: text(buffer, capacity, needed). */
template <class Call> result<std::string> text(Call call) {
    std::size_t needed = 0;
    mp_status status = call(nullptr, 0, &needed);
    std::string buffer(needed, '\0');
    if (status >= 0)
        status = call(buffer.data(), needed, &needed);
    if (!succeeded(status))
        return fail<std::string>(status, mp_last_error_message());
    if (!buffer.empty())
        buffer.pop_back();
    return buffer;
}

inline mp_tensor_desc tensor_desc(std::int32_t dtype, const Shape& shape) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    desc.dtype = dtype;
    desc.ndim = shape.ndim();
    for (std::size_t i = 0; i < MP_MAX_DIMS; ++i)
        desc.shape[i] = shape[i];
    return desc;
}

template <class Values> std::int64_t count_of(const Values& values) {
    return static_cast<std::int64_t>(std::size(values));
}
template <class Values> std::size_t bytes_of(const Values& values) {
    return std::size(values) * sizeof(element_of<Values>);
}
/* Of an argument that is kept by its address: what it is made of does not end with the call. That is an lvalue, or a span, whose
 * const one leads to the same elements. */
template <class Values, class Own = std::remove_cv_t<std::remove_reference_t<Values>>>
constexpr bool outlives_call = std::is_lvalue_reference_v<Values> ||
                               std::is_same_v<decltype(std::data(std::declval<Own&>())),
                                              decltype(std::data(std::declval<const Own&>()))>;
template <class... Values> using KeptByAddress = std::enable_if_t<(... && outlives_call<Values>)>;

} // namespace detail

/** The note of this thread's last call through this header; empty without one. */
inline const std::string& note() { return detail::note_of_thread(); }

/** Owns one reference to an object of the library. */
template <class Raw, void (*Destroy)(Raw*)> class Handle {
  public:
    using raw_type = Raw;
    Handle() = default;
    /** Takes over a reference; keep is held as long as this object. */
    explicit Handle(Raw* raw, std::shared_ptr<void> keep = nullptr)
        : keep_(std::move(keep)), raw_(raw) {}
    Handle(Handle&& other) noexcept
        : keep_(std::move(other.keep_)), raw_(std::exchange(other.raw_, nullptr)) {}
    Handle& operator=(Handle&& other) noexcept {
        if (this != &other) {
            Destroy(raw_);
            raw_ = std::exchange(other.raw_, nullptr);
            keep_ = std::move(other.keep_);
        }
        return *this;
    }
    ~Handle() { Destroy(raw_); }

    Raw* get() const { return raw_; }
    explicit operator bool() const { return raw_ != nullptr; }
    /** Gives the reference to the caller, who destroys it. */
    Raw* release() { return std::exchange(raw_, nullptr); }
    /** What callbacks of this object need to live; shared with the objects made from it. */
    const std::shared_ptr<void>& keep() const { return keep_; }

  protected:
    std::shared_ptr<void> keep_; // ends after the destroy call in ~Handle
    Raw* raw_ = nullptr;
};

/** A handle where a call takes one that may be absent: an object, a C handle, or nullptr. */
template <class Raw> class Ref {
  public:
    Ref(std::nullptr_t = nullptr) {}
    Ref(Raw* raw) : raw_(raw) {}
    template <void (*Destroy)(Raw*)> Ref(const Handle<Raw, Destroy>& handle) : raw_(handle.get()) {}
    Raw* get() const { return raw_; }

  private:
    Raw* raw_ = nullptr;
};
using QueueRef = Ref<mp_queue>; /* nullptr: the default queue */
using TensorRef = Ref<mp_tensor>;
using ScalerRef = Ref<mp_scaler>;
using CommRef = Ref<mp_comm>;

/* ---- The library */

/** Version of the loaded library, in the form of MP_VERSION. */
inline std::uint32_t version() { return mp_library_version(); }
inline const char* build_info() { return mp_library_build_info(); }
/** Final; see mp_library_shutdown. */
inline result<void> shutdown() { return detail::done(mp_library_shutdown()); }

/* ---- Contexts, queues, events */

class Context : public Handle<mp_context, mp_context_destroy> {
  public:
    using Handle::Handle;
    static result<Context> create(const ContextOptions& options = {}) {
        mp_context_desc desc = options;
        std::shared_ptr<void> keep;
        if (options.on_log) {
            auto log = std::make_shared<decltype(options.on_log)>(options.on_log);
            desc.log_payload = log.get();
            desc.log = [](std::int32_t level, const char* message, void* payload) {
                MIXEDPREC_TRY {
                    (*static_cast<decltype(options.on_log)*>(payload))(level, message);
                }
                MIXEDPREC_CATCH_ALL {}
            };
            keep = log;
        }
        mp_context* raw = nullptr;
        return detail::made<Context>(mp_context_create(&desc, &raw), raw, keep);
    }
    result<void> sync() const { return detail::done(mp_context_sync(raw_)); }
    result<int> num_threads() const {
        std::int32_t count = 0;
        return detail::give<int>(mp_context_get_num_threads(raw_, &count), count);
    }
    /** JSON. */
    result<std::string> describe() const {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_context_describe(raw_, b, c, n);
        });
    }
    static result<int> device_count(std::int32_t kind) {
        std::int32_t count = 0;
        return detail::give<int>(mp_device_get_count(kind, &count), count);
    }
    /** Success where the device can be opened; the error says why not. */
    static result<void> device_available(std::int32_t kind, std::int32_t index = 0) {
        return detail::done(mp_device_available(kind, index));
    }
    static result<std::string> device_name(std::int32_t kind, std::int32_t index = 0) {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_device_get_name(kind, index, b, c, n);
        });
    }
    static result<std::int64_t> device_memory(std::int32_t kind, std::int32_t index = 0) {
        std::int64_t bytes = 0;
        return detail::give(mp_device_get_memory(kind, index, &bytes), bytes);
    }
};

class Event : public Handle<mp_event, mp_event_destroy> {
  public:
    using Handle::Handle;
    static result<Event> create(const Context& context) {
        mp_event* raw = nullptr;
        return detail::made<Event>(mp_event_create(context.get(), &raw), raw, context.keep());
    }
    result<void> record(QueueRef queue = {}) {
        return detail::done(mp_event_record(raw_, queue.get()));
    }
    result<bool> reached() const {
        const mp_status status = mp_event_test(raw_);
        bool is = status == MP_STATUS_OK;
        return detail::give(status, is);
    }
    result<void> sync() { return detail::done(mp_event_sync(raw_)); }
};

class Queue : public Handle<mp_queue, mp_queue_destroy> {
  public:
    using Handle::Handle;
    static result<Queue> create(const Context& context) {
        mp_queue* raw = nullptr;
        return detail::made<Queue>(mp_queue_create(context.get(), &raw), raw, context.keep());
    }
    /** Over a stream of the caller's: wrap(context, cuda_stream). */
    template <class Stream>
    static result<Queue> wrap(const Context& context, const Stream& stream) {
        mp_queue* raw = nullptr;
        return detail::made<Queue>(mp_queue_wrap_native(context.get(), &stream, &raw), raw,
                                   context.keep());
    }
    template <class Stream> result<Stream> native() const {
        Stream stream{};
        return detail::give(mp_queue_get_native(raw_, &stream, sizeof(stream)), stream);
    }
    result<void> sync() { return detail::done(mp_queue_sync(raw_)); }
    result<void> wait(const Event& event) {
        return detail::done(mp_queue_wait_event(raw_, event.get()));
    }
};

/** The most scratch bytes a queue's work has needed; the default queue is nullptr where the C function takes one. */
inline result<std::size_t> workspace_peak(QueueRef queue) {
    std::size_t bytes = 0;
    return detail::give(mp_queue_get_workspace_peak(queue.get(), &bytes), bytes);
}
/** Scratch memory of the caller's, which stays until it is replaced or the queue ends. */
inline result<void> set_workspace(QueueRef queue, void* memory, std::size_t bytes) {
    return detail::done(mp_queue_set_workspace(queue.get(), memory, bytes));
}

/* ---- Tensors */

/** Dense row-major elements of one type, owned by the library or borrowed. */
class Tensor : public Handle<mp_tensor, mp_tensor_destroy> {
  public:
    using Handle::Handle;
    /** The library's memory, zeros. */
    static result<Tensor> create(const Context& context, std::int32_t dtype, const Shape& shape) {
        const mp_tensor_desc desc = detail::tensor_desc(dtype, shape);
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_tensor_create(context.get(), &desc, &raw), raw,
                                    context.keep());
    }
    /** The library's memory, filled. */
    template <class Values>
    static result<Tensor> from(const Context& context, const Values& values, const Shape& shape) {
        const mp_tensor_desc desc = detail::tensor_desc(dtype_in<Values>, shape);
        mp_tensor* raw = nullptr;
        mp_status status = mp_tensor_create(context.get(), &desc, &raw);
        if (status >= 0)
            status = mp_tensor_write(raw, nullptr, std::data(values), detail::bytes_of(values));
        if (status >= 0)
            return detail::made<Tensor>(status, raw, context.keep());
        const std::string message = mp_last_error_message();
        mp_tensor_destroy(raw);
        return detail::fail<Tensor>(status, message);
    }
    /** The caller's memory: `values` must stay where it is while this tensor, or what was given it, lives; or is kept by `keep`. */
    template <class Values>
    static result<Tensor> wrap(const Context& context, Values&& values, const Shape& shape,
                               std::shared_ptr<void> keep = nullptr) {
        static_assert(
            !std::is_const_v<element_of<Values>>,
            "tensors are writable: wrap memory that is not const, or copy it with from()");
        if (shape.elements() != detail::count_of(values)) {
            return detail::fail<Tensor>(MP_STATUS_INVALID_SHAPE,
                                        "wrap: the shape has " + std::to_string(shape.elements()) +
                                            " elements, but the memory has " +
                                            std::to_string(std::size(values)));
        }
        return wrap_pointer(context, std::data(values),
                            detail::tensor_desc(dtype_in<Values>, shape), std::move(keep));
    }
    /** Memory of which only the address is known, also on an accelerator (desc.device_kind). */
    static result<Tensor> wrap_pointer(const Context& context, void* data,
                                       const mp_tensor_desc& desc,
                                       std::shared_ptr<void> keep = nullptr) {
        mp_tensor* raw = nullptr;
        auto held = keep ? std::make_unique<std::shared_ptr<void>>(std::move(keep)) : nullptr;
        const mp_status status =
            mp_tensor_wrap(context.get(), &desc, data, held ? drop : nullptr, held.get(), &raw);
        if (status >= 0)
            static_cast<void>(held.release()); // the deleter's now
        return detail::made<Tensor>(status, raw, context.keep());
    }
    /** Codes and scales of the caller's. */
    static result<Tensor> wrap_quantized(const Context& context, const mp_tensor_desc& desc,
                                         const QuantOptions& quant, void* codes, void* scale_inv,
                                         float* amax = nullptr) {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_tensor_wrap_quantized(context.get(), &desc, &quant, codes,
                                                             scale_inv, amax, nullptr, nullptr,
                                                             &raw),
                                    raw, context.keep());
    }
    static result<Tensor> create_quantized(const Context& context, std::int32_t dtype,
                                           const Shape& shape, const QuantOptions& quant = {}) {
        const mp_tensor_desc desc = detail::tensor_desc(dtype, shape);
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_tensor_create_quantized(context.get(), &desc, &quant, &raw),
                                    raw, context.keep());
    }
    /** Takes a DLPack tensor over, also where it fails. */
    static result<Tensor> from_dlpack(const Context& context, DLManagedTensorVersioned* managed) {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_dlpack_import(context.get(), managed, &raw), raw,
                                    context.keep());
    }
    /** The consumer calls the deleter. */
    result<DLManagedTensorVersioned*> to_dlpack() const {
        DLManagedTensorVersioned* out = nullptr;
        return detail::give(mp_dlpack_export(raw_, &out), out);
    }
    /** Some elements as a tensor of their own, without a copy. */
    result<Tensor> view(std::int64_t offset, const Shape& shape) const {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(
            mp_tensor_create_view(raw_, offset, shape.ndim(), shape.data(), &raw), raw, keep_);
    }

    result<mp_tensor_desc> desc() const {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        return detail::give(mp_tensor_get_desc(raw_, &desc), desc);
    }
    /** The memory, on its device, as long as the tensor lives. */
    result<void*> data() const {
        void* data = nullptr;
        return detail::give(mp_tensor_get_data(raw_, &data), data);
    }
    /** The elements of a tensor on the host, of type T. Work that was enqueued must be over (Context::sync). */
    template <class T> result<span<T>> elements() const {
        if (const mp_status status = check_type<span<T>>(); status < 0)
            return wrong_type<span<T>, span<T>>(status);
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        void* data = nullptr;
        mp_status status = mp_tensor_get_desc(raw_, &desc);
        if (status >= 0)
            status = mp_tensor_get_data(raw_, &data);
        if (status < 0)
            return detail::fail<span<T>>(status, mp_last_error_message());
        if (desc.device_kind != MP_DEVICE_HOST) {
            return detail::fail<span<T>>(
                MP_STATUS_INVALID_ARGUMENT,
                "elements: the tensor is not on the host: read() copies it");
        }
        return span<T>(static_cast<T*>(data), static_cast<std::size_t>(count_of(desc)));
    }
    /** From and into an array, a container or a span of elements of this type. */
    template <class Values> result<void> write(const Values& values, QueueRef queue = {}) {
        if (const mp_status status = check_type<Values>(); status < 0)
            return wrong_type<void, Values>(status);
        return detail::done(
            mp_tensor_write(raw_, queue.get(), std::data(values), detail::bytes_of(values)));
    }
    template <class Values> result<void> read(Values&& values, QueueRef queue = {}) const {
        if (const mp_status status = check_type<Values>(); status < 0)
            return wrong_type<void, Values>(status);
        return detail::done(
            mp_tensor_read(raw_, queue.get(), std::data(values), detail::bytes_of(values)));
    }
    template <class T> result<std::vector<T>> to_vector(QueueRef queue = {}) const {
        using Values = std::vector<T>;
        if (const mp_status status = check_type<Values>(); status < 0)
            return wrong_type<Values, Values>(status);
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        mp_status status = mp_tensor_get_desc(raw_, &desc);
        std::vector<T> values;
        if (status >= 0) {
            values.resize(static_cast<std::size_t>(count_of(desc)));
            status = mp_tensor_read(raw_, queue.get(), values.data(), values.size() * sizeof(T));
        }
        return detail::give(status, values);
    }
    result<void> copy_to(const Tensor& destination, QueueRef queue = {}) const {
        return detail::done(mp_tensor_copy(raw_, queue.get(), destination.get()));
    }
    result<void> zero(QueueRef queue = {}) {
        return detail::done(mp_tensor_zero(raw_, queue.get()));
    }
    result<void> cast_to(const Tensor& destination, const CastOptions& options = {},
                         QueueRef queue = {}) const {
        return detail::done(mp_tensor_cast(raw_, queue.get(), destination.get(), &options));
    }
    /** amax: fp32, one element. */
    result<void> amax_to(const Tensor& amax, QueueRef queue = {}) const {
        return detail::done(mp_tensor_amax(raw_, queue.get(), amax.get()));
    }

    /** Into a quantized tensor, and its transpose where wanted; stats makes the call wait. */
    result<void> quantize_to(const Tensor& destination, TensorRef transposed = {},
                             const QuantizeArgs& args = {}, QuantStats* stats = nullptr,
                             QueueRef queue = {}) const {
        return detail::done(mp_tensor_quantize(raw_, queue.get(), destination.get(),
                                               transposed.get(), &args, stats));
    }
    result<void> dequantize_to(const Tensor& destination, QueueRef queue = {}) const {
        return detail::done(mp_tensor_dequantize(raw_, queue.get(), destination.get()));
    }
    result<Tensor> scales() const {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_tensor_get_scales(raw_, &raw), raw, keep_);
    }
    result<Tensor> quantized_amax() const {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_tensor_get_quantized_amax(raw_, &raw), raw, keep_);
    }
    result<QuantOptions> quant_options() const {
        QuantOptions options;
        return detail::give(mp_tensor_get_quant_desc(raw_, &options), options);
    }

  private:
    /* Bytes go straight between the tensor and memory, so the types must be the same. */
    template <class Values> mp_status check_type() const {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        const mp_status status = mp_tensor_get_desc(raw_, &desc);
        return status >= 0 && desc.dtype != dtype_in<Values> ? MP_STATUS_INVALID_DTYPE : status;
    }
    template <class T, class Values> result<T> wrong_type(mp_status status) const {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        if (mp_tensor_get_desc(raw_, &desc) < 0)
            return detail::fail<T>(status, mp_last_error_message());
        return detail::fail<T>(status, std::string("the tensor has elements of ") +
                                           mp_dtype_name(desc.dtype) + ", but the memory has " +
                                           mp_dtype_name(dtype_in<Values>));
    }
    static std::int64_t count_of(const mp_tensor_desc& desc) {
        return Shape(desc.shape, static_cast<std::size_t>(desc.ndim)).elements();
    }
    static void drop(void* held) { delete static_cast<std::shared_ptr<void>*>(held); }
};

/** mp_tensor_cast on memory of the caller's. */
template <class From, class To>
result<void> cast(const Context& context, const From& source, To&& destination,
                  const CastOptions& options = {}, QueueRef queue = {}) {
    if (std::size(source) != std::size(destination)) {
        return detail::fail(MP_STATUS_INVALID_SHAPE, "cast: the source has " +
                                                         std::to_string(std::size(source)) +
                                                         " elements, the destination " +
                                                         std::to_string(std::size(destination)));
    }
    return detail::done(mp_tensor_cast_pointers(context.get(), queue.get(), std::data(source),
                                                dtype_in<From>, std::data(destination),
                                                dtype_in<To>, detail::count_of(source), &options));
}

/** mp_tensor_quantize on memory of the caller's; the sizes in `destination` are believed. */
inline result<void> quantize(const Context& context, const void* source, std::int32_t dtype,
                             const QuantOptions& quant, const QuantizedMemory& destination,
                             const QuantizeArgs& args = {}, QueueRef queue = {}) {
    return detail::done(mp_tensor_quantize_pointers(context.get(), queue.get(), source, dtype,
                                                    &quant, &destination, &args));
}
inline result<void> dequantize(const Context& context, const QuantizedMemory& source,
                               const QuantOptions& quant, void* destination, std::int32_t dtype,
                               QueueRef queue = {}) {
    return detail::done(mp_tensor_dequantize_pointers(context.get(), queue.get(), &source, &quant,
                                                      destination, dtype));
}
struct ScaleGrid {
    std::int64_t rows = 0, columns = 0;
    std::int32_t dtype = 0;
};
inline result<ScaleGrid> scale_grid(const QuantOptions& quant, std::int64_t rows,
                                    std::int64_t columns) {
    ScaleGrid grid;
    return detail::give(
        mp_tensor_get_scale_grid(&quant, rows, columns, &grid.rows, &grid.columns, &grid.dtype),
        grid);
}

/* ---- Recipes */

/** Dtypes, rounding and scaling of every class of tensor. */
class Recipe : public Handle<mp_recipe, mp_recipe_destroy> {
  public:
    using Handle::Handle;
    struct Preset {
        const char* name;
        const char* text;
    };

    static result<Recipe> create(const Context& context, const std::string& name) {
        mp_recipe* raw = nullptr;
        return detail::made<Recipe>(mp_recipe_create(context.get(), name.c_str(), &raw), raw,
                                    context.keep());
    }
    static result<Recipe> from_json(const Context& context, std::string_view json) {
        mp_recipe* raw = nullptr;
        return detail::made<Recipe>(
            mp_recipe_create_from_json(context.get(), json.data(), json.size(), &raw), raw,
            context.keep());
    }
    static result<Recipe> from_file(const Context& context, const std::string& path) {
        mp_recipe* raw = nullptr;
        return detail::made<Recipe>(mp_recipe_create_from_file(context.get(), path.c_str(), &raw),
                                    raw, context.keep());
    }
    static std::vector<Preset> presets() {
        std::vector<Preset> all(static_cast<std::size_t>(mp_recipe_preset_count()));
        for (std::size_t i = 0; i < all.size(); ++i) {
            static_cast<void>(mp_recipe_get_preset_info(static_cast<std::int32_t>(i), &all[i].name,
                                                        &all[i].text));
        }
        return all;
    }
    static std::vector<RecipeKey> keys() {
        std::vector<RecipeKey> all(static_cast<std::size_t>(mp_recipe_key_count()));
        for (std::size_t i = 0; i < all.size(); ++i) {
            static_cast<void>(mp_recipe_get_key_info(static_cast<std::int32_t>(i), &all[i]));
        }
        return all;
    }

    /** Keys are the MP_RECIPE_* of recipe_keys.h; the value's type must be the key's. */
    result<void> set(const char* key, const char* value) {
        return detail::done(mp_recipe_set_string(raw_, key, value));
    }
    result<void> set(const char* key, const std::string& value) { return set(key, value.c_str()); }
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    result<void> set(const char* key, T value) {
        if constexpr (std::is_integral_v<T>)
            return detail::done(mp_recipe_set_int(raw_, key, static_cast<std::int64_t>(value)));
        else
            return detail::done(mp_recipe_set_float(raw_, key, static_cast<double>(value)));
    }
    result<std::string> get_string(const char* key) const {
        const char* value = "";
        const mp_status status = mp_recipe_get_string(raw_, key, &value);
        std::string text = status >= 0 ? value : "";
        return detail::give(status, text);
    }
    result<double> get_float(const char* key) const {
        double value = 0.0;
        return detail::give(mp_recipe_get_float(raw_, key, &value), value);
    }
    result<std::int64_t> get_int(const char* key) const {
        std::int64_t value = 0;
        return detail::give(mp_recipe_get_int(raw_, key, &value), value);
    }
    result<std::string> to_json() const {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_recipe_to_json(raw_, b, c, n);
        });
    }
    /** Why the device's choice fell on it; empty for a recipe not made by "auto". */
    result<std::string> reason() const {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_recipe_get_reason(raw_, b, c, n);
        });
    }
    /** The error names every problem; advice is in note(). */
    result<void> validate() const { return detail::done(mp_recipe_validate(raw_)); }
    result<Recipe> clone() const {
        mp_recipe* raw = nullptr;
        return detail::made<Recipe>(mp_recipe_clone(raw_, &raw), raw, keep_);
    }
    result<bool> frozen() const {
        std::int32_t frozen = 0;
        const mp_status status = mp_recipe_get_frozen(raw_, &frozen);
        bool is = frozen != 0;
        return detail::give(status, is);
    }

    /** The weight that the recipe wants, from its values in fp32; without values zeros. */
    result<Tensor> weight(const Context& context, const Shape& shape,
                          span<const float> values = {}) const {
        return make_weight(mp_recipe_create_weight, context, shape, values);
    }
    /** The weight as the codes that its fp8 products take. */
    result<Tensor> weight_codes(const Context& context, const Shape& shape,
                                span<const float> values = {}) const {
        return make_weight(mp_recipe_create_weight_codes, context, shape, values);
    }

    /** Bytes by class of tensor, before anything is allocated. */
    result<MemoryReport> plan_memory(std::int32_t rule, std::int64_t parameter_count) const {
        MemoryReport report;
        return detail::give(mp_recipe_plan_memory(raw_, rule, parameter_count, &report), report);
    }
    result<MemoryReport> plan_memory(std::int32_t rule,
                                     const std::vector<std::int64_t>& counts) const {
        MemoryReport report;
        return detail::give(
            mp_recipe_plan_memory_of_tensors(raw_, rule, counts.data(),
                                             static_cast<std::int64_t>(counts.size()), &report),
            report);
    }
    result<MemoryReport> plan_memory(std::int32_t rule, const std::vector<std::int64_t>& counts,
                                     const ShardingOptions& sharding, int rank, int ranks) const {
        MemoryReport report;
        return detail::give(mp_recipe_plan_memory_sharded(raw_, rule, counts.data(),
                                                          static_cast<std::int64_t>(counts.size()),
                                                          &sharding, rank, ranks, &report),
                            report);
    }
    /** The same tensor by tensor, each with formats and a rule of its own, and what a rank sends a step. */
    struct Plan {
        MemoryReport memory;
        CommTraffic traffic;
    };
    result<Plan> plan_tensors(span<const PlannedTensor> tensors,
                              const ShardingOptions& sharding = {}, int rank = 0,
                              int ranks = 1) const {
        static_assert(sizeof(PlannedTensor) == sizeof(mp_planned_tensor));
        Plan plan;
        return detail::give(
            mp_recipe_plan_tensors(raw_, tensors.data(), static_cast<std::int64_t>(tensors.size()),
                                   &sharding, rank, ranks, &plan.memory, &plan.traffic),
            plan);
    }

  private:
    template <class Make>
    result<Tensor> make_weight(Make make, const Context& context, const Shape& shape,
                               span<const float> values) const {
        if (values.data() != nullptr &&
            shape.elements() != static_cast<std::int64_t>(values.size())) {
            return detail::fail<Tensor>(
                MP_STATUS_INVALID_SHAPE,
                "weight: the shape has " + std::to_string(shape.elements()) +
                    " elements, but there are " + std::to_string(values.size()) + " values");
        }
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(
            make(context.get(), raw_, shape.ndim(), shape.data(), values.data(), &raw), raw,
            context.keep());
    }
};

/* ---- Ranks */

/** An operation under way. */
class Request : public Handle<mp_comm_request, mp_comm_request_destroy> {
  public:
    using Handle::Handle;
    result<void> wait() { return detail::done(mp_comm_request_wait(raw_)); }
    result<bool> finished() {
        const mp_status status = mp_comm_request_test(raw_);
        bool is = status == MP_STATUS_OK;
        return detail::give(status, is);
    }
};

/** A transport of the caller's own: mp_comm_callbacks as a class. What it must do is said there. */
class Transport {
  public:
    virtual ~Transport() = default;
    virtual mp_status begin(const mp_comm_operation& operation, void** request) = 0;
    virtual mp_status poll(void* request, bool& done) = 0;
    virtual void release(void* request) = 0;
    virtual void abort(mp_status status, std::string_view reason) {
        static_cast<void>(status), static_cast<void>(reason);
    }
    /** The transport of a group that this rank is in: what a sharded optimizer needs. nullptr: there are no groups. */
    virtual std::shared_ptr<Transport> split(const mp_comm_group& group) {
        return static_cast<void>(group), nullptr;
    }
};

class Comm : public Handle<mp_comm, mp_comm_destroy> {
  public:
    using Handle::Handle;
    static result<Comm> self(const CommOptions& options = {}) {
        mp_comm* raw = nullptr;
        return detail::made<Comm>(mp_comm_create_self(&options, &raw), raw);
    }
    /** One communicator for each rank; each is used by a thread of its own. */
    static result<std::vector<Comm>> threads(int count, const CommOptions& options = {}) {
        std::vector<mp_comm*> raw(count > 0 ? static_cast<std::size_t>(count) : 1);
        const mp_status status = mp_comm_create_threads(&options, count, raw.data());
        std::vector<Comm> comms;
        if (status >= 0) {
            for (mp_comm* one : raw)
                comms.emplace_back(one);
        }
        return detail::give(status, comms);
    }
    /** Over an MPI_Comm of the caller's, or MPI_COMM_WORLD without one. */
    template <class Native>
    static result<Comm> mpi(const Native& communicator, const CommOptions& options = {}) {
        mp_comm* raw = nullptr;
        return detail::made<Comm>(mp_comm_create_mpi(&options, &communicator, &raw), raw);
    }
    static result<Comm> mpi(const CommOptions& options = {}) {
        mp_comm* raw = nullptr;
        return detail::made<Comm>(mp_comm_create_mpi(&options, nullptr, &raw), raw);
    }
    using NcclId = std::array<unsigned char, MP_COMM_UNIQUE_ID_BYTES>;
    static result<NcclId> nccl_unique_id() {
        NcclId id{};
        return detail::give(mp_comm_get_nccl_unique_id(id.data(), id.size()), id);
    }
    static result<Comm> nccl(const Context& context, const NcclId& id, int rank, int size,
                             const CommOptions& options = {}) {
        mp_comm* raw = nullptr;
        return detail::made<Comm>(
            mp_comm_create_nccl(context.get(), &options, id.data(), rank, size, &raw), raw,
            context.keep());
    }
    template <class Native>
    static result<Comm> wrap_nccl(const Context& context, const Native& communicator,
                                  const CommOptions& options = {}) {
        mp_comm* raw = nullptr;
        return detail::made<Comm>(mp_comm_wrap_nccl(context.get(), &options, &communicator, &raw),
                                  raw, context.keep());
    }
    /** Over a transport, which is kept until the last reference is gone. */
    static result<Comm> over(std::shared_ptr<Transport> transport, int rank, int size,
                             const CommOptions& options = {}, std::uint32_t flags = 0) {
        mp_comm_callbacks table = table_of(new Held{std::move(transport), flags}, rank, size);
        mp_comm* raw = nullptr;
        const mp_status status = mp_comm_create_callbacks(&options, &table, &raw);
        if (status < 0)
            table.destroy(table.payload);
        return detail::made<Comm>(status, raw);
    }

    result<int> rank() const {
        std::int32_t rank = 0;
        return detail::give<int>(mp_comm_get_rank(raw_, &rank), rank);
    }
    result<int> size() const {
        std::int32_t size = 0;
        return detail::give<int>(mp_comm_get_size(raw_, &size), size);
    }
    result<int> node(int rank) const {
        std::int32_t node = 0;
        return detail::give<int>(mp_comm_get_node(raw_, rank, &node), node);
    }
    result<Comm> split(int color, int key) {
        mp_comm* raw = nullptr;
        return detail::made<Comm>(mp_comm_split(raw_, color, key, &raw), raw, keep_);
    }
    result<void> barrier() { return detail::done(mp_comm_barrier(raw_, nullptr)); }
    template <class Values> result<void> broadcast(Values&& values, int root, QueueRef queue = {}) {
        return detail::done(mp_comm_broadcast(raw_, queue.get(), std::data(values),
                                              static_cast<std::int64_t>(detail::bytes_of(values)),
                                              root, nullptr));
    }
    result<void> max(span<std::uint32_t> values) {
        return detail::done(mp_comm_max_u32(raw_, values.data(),
                                            static_cast<std::int64_t>(values.size()), nullptr));
    }
    result<void> all_to_all(const CommExchange& exchange, QueueRef queue = {}) {
        return detail::done(mp_comm_all_to_all(raw_, queue.get(), &exchange, nullptr));
    }
    result<void> all_gather(const CommExchange& exchange, QueueRef queue = {}) {
        return detail::done(mp_comm_all_gather(raw_, queue.get(), &exchange, nullptr));
    }
    /** The same begun only: the memory belongs to the operation until the request is done. */
    result<Request> begin_all_to_all(const CommExchange& exchange, QueueRef queue = {}) {
        mp_comm_request* raw = nullptr;
        return detail::made<Request>(mp_comm_all_to_all(raw_, queue.get(), &exchange, &raw), raw);
    }
    result<Request> begin_all_gather(const CommExchange& exchange, QueueRef queue = {}) {
        mp_comm_request* raw = nullptr;
        return detail::made<Request>(mp_comm_all_gather(raw_, queue.get(), &exchange, &raw), raw);
    }
    result<Request> begin_barrier() {
        mp_comm_request* raw = nullptr;
        return detail::made<Request>(mp_comm_barrier(raw_, &raw), raw);
    }

    /** destination = the sum over ranks of `sources`, the contributions of this rank; see reduce.h. */
    result<void> all_reduce(const std::vector<const Tensor*>& sources, const Tensor& destination,
                            const ReduceOptions& options = {}, QueueRef queue = {}) {
        const auto raw = handles(sources);
        return detail::done(mp_comm_all_reduce(raw_, queue.get(), &options, raw.data(),
                                               static_cast<std::int32_t>(raw.size()),
                                               destination.get(), nullptr));
    }
    result<void> reduce_scatter(const std::vector<const Tensor*>& sources,
                                span<const std::int64_t> counts, const Tensor& destination,
                                const ReduceOptions& options = {}, QueueRef queue = {}) {
        if (!fits(counts))
            return detail::fail(MP_STATUS_INVALID_SHAPE,
                                "reduce_scatter: counts must have a number for each rank");
        const auto raw = handles(sources);
        return detail::done(mp_comm_reduce_scatter(raw_, queue.get(), &options, raw.data(),
                                                   static_cast<std::int32_t>(raw.size()),
                                                   counts.data(), destination.get(), nullptr));
    }
    result<void> all_gather(const Tensor& shard, span<const std::int64_t> counts,
                            const Tensor& destination, const ReduceOptions& options = {},
                            QueueRef queue = {}) {
        if (!fits(counts))
            return detail::fail(MP_STATUS_INVALID_SHAPE,
                                "all_gather: counts must have a number for each rank");
        return detail::done(mp_comm_all_gather_values(raw_, queue.get(), &options, shard.get(),
                                                      counts.data(), destination.get(), nullptr));
    }
    static result<std::int64_t> wire_bytes(std::int64_t count, std::int32_t dtype,
                                           std::int32_t scale = MP_COMM_SCALE_DEFAULT) {
        std::int64_t bytes = 0;
        return detail::give(mp_comm_get_wire_bytes(count, dtype, scale, &bytes), bytes);
    }

    result<void> set_deadline(std::int64_t milliseconds) {
        return detail::done(mp_comm_set_deadline(raw_, milliseconds));
    }
    result<std::int64_t> deadline() const {
        std::int64_t milliseconds = 0;
        return detail::give(mp_comm_get_deadline(raw_, &milliseconds), milliseconds);
    }
    result<void> abort(const std::string& reason) {
        return detail::done(mp_comm_abort(raw_, reason.c_str()));
    }
    /** The failure that ended it, or success. */
    result<void> status() const { return detail::done(mp_comm_get_status(raw_)); }
    result<CommTraffic> traffic() const {
        CommTraffic traffic;
        return detail::give(mp_comm_get_traffic(raw_, &traffic), traffic);
    }
    result<std::string> describe() const {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_comm_describe(raw_, b, c, n);
        });
    }

  private:
    static std::vector<const mp_tensor*> handles(const std::vector<const Tensor*>& tensors) {
        std::vector<const mp_tensor*> raw;
        for (const Tensor* tensor : tensors)
            raw.push_back(tensor->get());
        return raw;
    }
    bool fits(span<const std::int64_t> counts) const {
        std::int32_t size = 0;
        return mp_comm_get_size(raw_, &size) < 0 ||
               counts.size() == static_cast<std::size_t>(size); // a bad handle is the call's to say
    }
    /* What the library holds of a transport until its destroy. */
    struct Held {
        std::shared_ptr<Transport> transport;
        std::uint32_t flags;
    };
    static Held& of(void* payload) { return *static_cast<Held*>(payload); }
    static mp_comm_callbacks table_of(Held* held, int rank, int size) {
        mp_comm_callbacks table = MP_COMM_CALLBACKS_INIT;
        table.flags = held->flags;
        table.rank = rank;
        table.size = size;
        table.payload = held;
        table.begin = [](const mp_comm_operation* operation, void** request,
                         void* payload) -> mp_status {
            MIXEDPREC_TRY { return of(payload).transport->begin(*operation, request); }
            MIXEDPREC_CATCH_ALL { return MP_STATUS_CALLBACK_FAILED; }
        };
        table.poll = [](void* request, std::int32_t* done, void* payload) -> mp_status {
            MIXEDPREC_TRY {
                bool is = false;
                const mp_status status = of(payload).transport->poll(request, is);
                *done = is ? 1 : 0;
                return status;
            }
            MIXEDPREC_CATCH_ALL { return MP_STATUS_CALLBACK_FAILED; }
        };
        table.release = [](void* request, void* payload) {
            MIXEDPREC_TRY { of(payload).transport->release(request); }
            MIXEDPREC_CATCH_ALL {}
        };
        table.abort = [](mp_status status, const char* reason, void* payload) {
            MIXEDPREC_TRY { of(payload).transport->abort(status, reason); }
            MIXEDPREC_CATCH_ALL {}
        };
        table.split = [](const mp_comm_group* group, mp_comm_callbacks* out,
                         void* payload) -> mp_status {
            MIXEDPREC_TRY {
                auto transport = of(payload).transport->split(*group);
                if (group->color < 0)
                    return MP_STATUS_OK; // in no group: out is not read
                if (!transport)
                    return MP_STATUS_UNSUPPORTED;
                *out = table_of(new Held{std::move(transport), of(payload).flags}, group->rank,
                                group->count);
                return MP_STATUS_OK;
            }
            MIXEDPREC_CATCH_ALL { return MP_STATUS_CALLBACK_FAILED; }
        };
        table.destroy = [](void* payload) { delete static_cast<Held*>(payload); };
        return table;
    }
};

/* ---- Loss scaling */

class Scaler : public Handle<mp_scaler, mp_scaler_destroy> {
  public:
    using Handle::Handle;
    static result<Scaler> create(const Context& context, const ScalerOptions& options = {}) {
        mp_scaler* raw = nullptr;
        return detail::made<Scaler>(mp_scaler_create(context.get(), &options, &raw), raw,
                                    context.keep());
    }
    static result<Scaler> create(const Context& context, const Recipe& recipe) {
        mp_scaler* raw = nullptr;
        return detail::made<Scaler>(mp_scaler_create_from_recipe(context.get(), recipe.get(), &raw),
                                    raw, context.keep());
    }
    /** "torch", "megatron", "deepspeed" or "apex". */
    static result<ScalerOptions> preset(const std::string& name) {
        ScalerOptions options;
        return detail::give(mp_scaler_desc_preset(&options, sizeof(mp_scaler_desc), name.c_str()),
                            options);
    }
    result<double> scale(QueueRef queue = {}) {
        double scale = 0.0;
        return detail::give(mp_scaler_get_scale(raw_, queue.get(), &scale), scale);
    }
    result<void> update(QueueRef queue = {}) {
        return detail::done(mp_scaler_update(raw_, queue.get()));
    }
    /** Whether gradients in the caller's memory are finite: pointers, their types, and their sizes. */
    result<void> check(span<const void* const> grads, span<const std::int32_t> dtypes,
                       span<const std::int64_t> elements, QueueRef queue = {}) {
        if (grads.size() != dtypes.size() || grads.size() != elements.size()) {
            return detail::fail(MP_STATUS_INVALID_ARGUMENT,
                                "check: pointers, types and sizes differ in number");
        }
        return detail::done(mp_scaler_check_pointers(raw_, queue.get(),
                                                     static_cast<std::int64_t>(grads.size()),
                                                     grads.data(), dtypes.data(), elements.data()));
    }
    result<Tensor> scale_tensor() const {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_scaler_get_scale_tensor(raw_, &raw), raw, keep_);
    }
    result<Tensor> found_inf_tensor() const {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_scaler_get_found_inf_tensor(raw_, &raw), raw, keep_);
    }
    result<void> combine(Comm& comm, QueueRef queue = {}) {
        return detail::done(mp_scaler_combine(raw_, queue.get(), comm.get()));
    }
    result<ScalerState> state(QueueRef queue = {}) {
        ScalerState state;
        return detail::give(mp_scaler_get_state(raw_, queue.get(), &state), state);
    }
    result<void> set_state(const ScalerState& state, QueueRef queue = {}) {
        return detail::done(mp_scaler_set_state(raw_, queue.get(), &state));
    }
};

/* ---- Products */

/** A planned matrix product. */
class Gemm : public Handle<mp_gemm, mp_gemm_destroy> {
  public:
    using Handle::Handle;
    static result<Gemm> create(const Context& context, const GemmOptions& options) {
        mp_gemm* raw = nullptr;
        return detail::made<Gemm>(mp_gemm_create(context.get(), &options, &raw), raw,
                                  context.keep());
    }
    result<void> run(const Tensor& a, const Tensor& b, const Tensor& d, TensorRef bias = {},
                     TensorRef c = {}, QueueRef queue = {}) {
        return detail::done(
            mp_gemm_run(raw_, queue.get(), a.get(), b.get(), bias.get(), c.get(), d.get()));
    }
    /** Operands with scales, results with a factor. */
    result<void> run(const GemmArgs& args, QueueRef queue = {}) {
        return detail::done(mp_gemm_run_scaled(raw_, queue.get(), &args));
    }
    result<std::string> describe() const {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_gemm_describe(raw_, b, c, n);
        });
    }
};

class Linear;

/** What one forward keeps for its backward. */
class Saved : public Handle<mp_saved, mp_saved_destroy> {
  public:
    using Handle::Handle;
    /** Memory of the caller's for it, linear.saved_bytes(rows) of it. */
    result<void> set_memory(void* memory, std::size_t bytes) {
        return detail::done(mp_saved_set_memory(raw_, memory, bytes));
    }
    result<span<std::byte>> memory() const {
        void* memory = nullptr;
        std::size_t bytes = 0;
        const mp_status status = mp_saved_get_memory(raw_, &memory, &bytes);
        span<std::byte> found(static_cast<std::byte*>(memory), bytes);
        return detail::give(status, found);
    }
};

/** A linear layer whose products follow a recipe: y = x w^T + bias. */
class Linear : public Handle<mp_linear, mp_linear_destroy> {
  public:
    using Handle::Handle;
    using Monitor = std::function<void(std::string_view name, const mp_linear_stats& stats,
                                       std::string_view advice)>;
    Linear(Linear&&) = default;
    Linear& operator=(Linear&& other) noexcept {
        end_monitor();
        monitor_ = std::move(other.monitor_);
        Handle::operator=(std::move(other));
        return *this;
    }
    ~Linear() { end_monitor(); }

    /** Over the caller's weight [out, in] and bias [out] (or nullptr), which are kept alive. The name is for gemm.filter.names. */
    static result<Linear> create(const Context& context, const Recipe& recipe,
                                 std::int64_t in_features, std::int64_t out_features,
                                 const Tensor& weight, TensorRef bias = {}, std::uint32_t flags = 0,
                                 const std::string& name = {}) {
        mp_linear_desc desc = desc_of(in_features, out_features, flags);
        desc.name = name.empty() ? nullptr : name.c_str();
        mp_linear* raw = nullptr;
        return detail::made<Linear>(
            mp_linear_create(context.get(), recipe.get(), &desc, weight.get(), bias.get(), &raw),
            raw, context.keep());
    }
    /** Over plain memory, which the caller keeps where it is while the layer lives: a temporary vector does not compile. x of
     * forward is another matter: the layer never keeps its address (MP_LINEAR_COPY_INPUT). */
    template <class Weight, class = detail::KeptByAddress<Weight>>
    static result<Linear> over(const Context& context, const Recipe& recipe,
                               std::int64_t in_features, std::int64_t out_features, Weight&& weight,
                               std::uint32_t flags = 0) {
        return over(context, recipe, in_features, out_features, weight, span<const float>(), flags);
    }
    template <class Weight, class Bias, class = element_of<const Bias>,
              class = detail::KeptByAddress<Weight, Bias>>
    static result<Linear> over(const Context& context, const Recipe& recipe,
                               std::int64_t in_features, std::int64_t out_features, Weight&& weight,
                               Bias&& bias, std::uint32_t flags = 0) {
        return over_memory(context, recipe, in_features, out_features, weight, bias,
                           flags | MP_LINEAR_COPY_INPUT);
    }
    /** The same for forward_by_address, without a copy of an x that has the recipe's own type. */
    template <class Weight, class = detail::KeptByAddress<Weight>>
    static result<Linear> over_by_address(const Context& context, const Recipe& recipe,
                                          std::int64_t in_features, std::int64_t out_features,
                                          Weight&& weight, std::uint32_t flags = 0) {
        return over_memory(context, recipe, in_features, out_features, weight, span<const float>(),
                           flags);
    }
    template <class Weight, class Bias, class = element_of<const Bias>,
              class = detail::KeptByAddress<Weight, Bias>>
    static result<Linear> over_by_address(const Context& context, const Recipe& recipe,
                                          std::int64_t in_features, std::int64_t out_features,
                                          Weight&& weight, Bias&& bias, std::uint32_t flags = 0) {
        return over_memory(context, recipe, in_features, out_features, weight, bias, flags);
    }

    result<void> forward(const Tensor& x, const Tensor& y, QueueRef queue = {}) {
        return detail::done(mp_linear_forward(raw_, queue.get(), x.get(), y.get()));
    }
    /** dx and dbias may be nullptr; flags: MP_BACKWARD_ACCUMULATE. */
    result<void> backward(const Tensor& dy, TensorRef dx, TensorRef dw, TensorRef dbias = {},
                          std::uint32_t flags = 0, QueueRef queue = {}) {
        return detail::done(mp_linear_backward(raw_, queue.get(), dy.get(), dx.get(), dw.get(),
                                               dbias.get(), flags));
    }
    result<void> backward_data(const Tensor& dy, const Tensor& dx, QueueRef queue = {}) {
        return detail::done(mp_linear_backward_data(raw_, queue.get(), dy.get(), dx.get()));
    }
    result<void> backward_weight(const Tensor& dy, const Tensor& dw, TensorRef dbias = {},
                                 std::uint32_t flags = 0, QueueRef queue = {}) {
        return detail::done(
            mp_linear_backward_weight(raw_, queue.get(), dy.get(), dw.get(), dbias.get(), flags));
    }
    /** On plain memory: x is [rows, in_features], y is [rows, out_features]. x may change or go when this returns: a layer that
     * would keep its address is refused. Those of Linear::over do not. */
    template <class X, class Y>
    result<void> forward(std::int64_t rows, const X& x, Y&& y, QueueRef queue = {}) {
        return forward_memory(rows, x, y, queue, false);
    }
    /** The same without a copy: where x has the recipe's own type (fp32 of an fp32 recipe) it must stay what and where it is until
     * backward. A temporary vector does not compile. */
    template <class X, class Y, class = detail::KeptByAddress<X>>
    result<void> forward_by_address(std::int64_t rows, X&& x, Y&& y, QueueRef queue = {}) {
        return forward_memory(rows, x, y, queue, true);
    }
    /** dx, dw and dbias may be empty spans. */
    template <class Dy, class Dx, class Dw, class Dbias>
    result<void> backward(std::int64_t rows, const Dy& dy, Dx&& dx, Dw&& dw, Dbias&& dbias,
                          std::uint32_t flags = 0, QueueRef queue = {}) {
        static_assert(dtype_in<const Dy> == dtype_in<Dx> && dtype_in<Dw> == dtype_in<Dbias>,
                      "dy and dx have one type, and dw and dbias have one");
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        if (const mp_status status = mp_linear_get_desc(raw_, &desc); status < 0)
            return detail::done(status);
        const auto fits = [](const auto& s, std::int64_t count) {
            return std::data(s) == nullptr || detail::count_of(s) == count;
        };
        if (!fits(dy, rows * desc.out_features) || !fits(dx, rows * desc.in_features) ||
            !fits(dw, desc.in_features * desc.out_features) || !fits(dbias, desc.out_features)) {
            return detail::fail(
                MP_STATUS_INVALID_SHAPE,
                "linear: dy must have rows * out_features elements, dx rows * in_features, "
                "dw in_features * out_features, dbias out_features");
        }
        return detail::done(mp_linear_backward_pointers(raw_, queue.get(), rows, std::data(dy),
                                                        std::data(dx), dtype_in<Dx>, std::data(dw),
                                                        std::data(dbias), dtype_in<Dw>, flags));
    }
    /** The end of a step for many layers; not beside Optimizer::set_linears. */
    static result<void> end_step(const std::vector<Linear*>& layers, CommRef comm = {},
                                 QueueRef queue = {}) {
        std::vector<mp_linear*> raw;
        for (Linear* layer : layers)
            raw.push_back(layer->get());
        return detail::done(mp_linear_end_step(raw.data(), static_cast<std::int32_t>(raw.size()),
                                               queue.get(), comm.get()));
    }

    result<Saved> make_saved() {
        mp_saved* raw = nullptr;
        return detail::made<Saved>(mp_saved_create(raw_, &raw), raw, keep_);
    }
    /** y may be nullptr with MP_FORWARD_RECOMPUTE. */
    result<void> forward(const Tensor& x, TensorRef y, Saved& saved, std::uint32_t flags = 0,
                         QueueRef queue = {}) {
        return detail::done(
            mp_linear_forward_saved(raw_, queue.get(), x.get(), y.get(), saved.get(), flags));
    }
    result<void> backward(const Saved& saved, const Tensor& dy, TensorRef dx, TensorRef dw,
                          TensorRef dbias = {}, std::uint32_t flags = 0, QueueRef queue = {}) {
        return detail::done(mp_linear_backward_saved(raw_, queue.get(), saved.get(), dy.get(),
                                                     dx.get(), dw.get(), dbias.get(), flags));
    }
    result<std::size_t> saved_bytes(std::int64_t rows) const {
        std::size_t bytes = 0;
        return detail::give(mp_linear_get_saved_bytes(raw_, rows, &bytes), bytes);
    }
    result<void> set_gradient_rounding(const CastOptions& options) {
        return detail::done(mp_linear_set_gradient_rounding(raw_, &options));
    }
    /** What an operand of a product is rounded to: MP_PRODUCT_*, MP_OPERAND_*. */
    struct Form {
        std::int32_t dtype = 0;
        QuantOptions quant;
    };
    result<Form> operand_format(std::int32_t product, std::int32_t operand) const {
        Form form;
        return detail::give(
            mp_linear_get_operand_format(raw_, product, operand, &form.dtype, &form.quant), form);
    }
    result<void> quantize(std::int32_t product, std::int32_t operand, const Tensor& source,
                          const Tensor& codes, QueueRef queue = {}) {
        return detail::done(
            mp_linear_quantize(raw_, queue.get(), product, operand, source.get(), codes.get()));
    }
    result<void> set_weight_codes(TensorRef fprop, TensorRef dgrad) {
        return detail::done(mp_linear_set_weight_codes(raw_, fprop.get(), dgrad.get()));
    }
    result<Tensor> weight_codes(std::int32_t product) const {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_linear_get_weight_codes(raw_, product, &raw), raw, keep_);
    }
    result<Tensor> multiply_tensor(std::int32_t operand) const {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_linear_get_multiply_tensor(raw_, operand, &raw), raw, keep_);
    }

    result<std::string> describe() const {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_linear_describe(raw_, b, c, n);
        });
    }
    result<LinearStats> stats(std::int32_t operand) const {
        LinearStats stats;
        return detail::give(mp_linear_get_stats(raw_, operand, &stats), stats);
    }
    result<void> clear_stats(QueueRef queue = {}) {
        return detail::done(mp_linear_clear_stats(raw_, queue.get()));
    }
    result<std::string> advice(std::int32_t operand) const {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_linear_get_advice(raw_, operand, b, c, n);
        });
    }
    /** Hands every so many steps' statistics to a function; an empty one ends it. It lasts as long as this object. */
    result<void> set_monitor(const std::string& name, int every, Monitor monitor) {
        auto next = monitor ? std::make_unique<Monitor>(std::move(monitor)) : nullptr;
        const mp_linear_monitor_fn call = [](void* payload, const char* layer,
                                             const mp_linear_stats* stats, const char* advice) {
            MIXEDPREC_TRY {
                (*static_cast<Monitor*>(payload))(layer, *stats, advice ? advice : "");
            }
            MIXEDPREC_CATCH_ALL {}
        };
        const mp_status status =
            mp_linear_set_monitor(raw_, name.c_str(), every, next ? call : nullptr, next.get());
        if (status >= 0)
            monitor_ = std::move(next);
        return detail::done(status);
    }
    /** What the layer must remember for training to go on bit for bit. */
    result<std::vector<std::byte>> scaling() const {
        std::size_t needed = 0;
        mp_status status = mp_linear_get_scaling(raw_, nullptr, 0, &needed);
        std::vector<std::byte> bytes(needed);
        if (status >= 0)
            status = mp_linear_get_scaling(raw_, bytes.data(), bytes.size(), &needed);
        return detail::give(status, bytes);
    }
    result<void> set_scaling(span<const std::byte> bytes) {
        return detail::done(mp_linear_set_scaling(raw_, bytes.data(), bytes.size()));
    }

  private:
    static mp_linear_desc desc_of(std::int64_t in_features, std::int64_t out_features,
                                  std::uint32_t flags) {
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        desc.flags = flags;
        desc.in_features = in_features;
        desc.out_features = out_features;
        return desc;
    }
    template <class Weight, class Bias>
    static result<Linear> over_memory(const Context& context, const Recipe& recipe,
                                      std::int64_t in_features, std::int64_t out_features,
                                      const Weight& weight, const Bias& bias, std::uint32_t flags) {
        const mp_linear_desc desc = desc_of(in_features, out_features, flags);
        const bool has_bias = std::data(bias) != nullptr;
        if (detail::count_of(weight) != in_features * out_features ||
            (has_bias && detail::count_of(bias) != out_features)) {
            return detail::fail<Linear>(
                MP_STATUS_INVALID_SHAPE,
                "linear: the weight must have in_features * out_features elements "
                "and the bias out_features");
        }
        mp_linear* raw = nullptr;
        return detail::made<Linear>(
            mp_linear_create_pointers(context.get(), recipe.get(), &desc, std::data(weight),
                                      dtype_in<const Weight>, std::data(bias),
                                      has_bias ? dtype_in<const Bias> : MP_DTYPE_NONE, &raw),
            raw, context.keep());
    }
    /* Whether forward keeps an x of this type by its address. */
    bool refers_to(std::int32_t dtype, std::uint32_t flags) const {
        constexpr std::uint32_t kKeepsNoAddress =
            MP_LINEAR_COPY_INPUT | MP_LINEAR_INFERENCE | MP_LINEAR_FROZEN;
        std::int32_t kept = MP_DTYPE_NONE;
        mp_quant_desc form = MP_QUANT_DESC_INIT;
        const mp_status status =
            mp_linear_get_operand_format(raw_, MP_PRODUCT_WGRAD, MP_OPERAND_INPUT, &kept, &form);
        return (flags & kKeepsNoAddress) == 0 && status >= 0 && kept == dtype && form.scaling == 0;
    }
    template <class X, class Y>
    result<void> forward_memory(std::int64_t rows, const X& x, Y& y, QueueRef queue,
                                bool by_address) {
        static_assert(dtype_in<const X> == dtype_in<Y>, "x and y have one type");
        mp_linear_desc desc = MP_LINEAR_DESC_INIT;
        if (const mp_status status = mp_linear_get_desc(raw_, &desc); status < 0)
            return detail::done(status);
        if (detail::count_of(x) != rows * desc.in_features ||
            detail::count_of(y) != rows * desc.out_features) {
            return detail::fail(
                MP_STATUS_INVALID_SHAPE,
                "linear: x must have rows * in_features elements and y rows * out_features");
        }
        if (!by_address && refers_to(dtype_in<const X>, desc.flags)) {
            return detail::fail(
                MP_STATUS_INVALID_ARGUMENT,
                "linear: this layer would keep the address of x, which has the recipe's own type; "
                "make it by Linear::over or with MP_LINEAR_COPY_INPUT, or call forward_by_address");
        }
        return detail::done(mp_linear_forward_pointers(raw_, queue.get(), rows, std::data(x),
                                                       std::data(y), dtype_in<Y>));
    }
    /* An optimizer may keep the layer for longer than this object keeps the function. */
    void end_monitor() {
        if (monitor_ && raw_)
            static_cast<void>(mp_linear_set_monitor(raw_, "", 0, nullptr, nullptr));
        monitor_.reset();
    }
    std::unique_ptr<Monitor> monitor_;
};

/* ---- Optimizers */

/** A slot over arrays of one size, all fp32 or 16 bits; the rest of mp_step_slot may be set after. grad may be const, but not under
 * MP_OPTIMIZER_ZERO_GRAD, which writes it. */
template <class Param, class Grad, class M, class V>
result<StepSlot> slot(Param&& param, Grad&& grad, M&& exp_avg, V&& exp_avg_sq) {
    StepSlot slot;
    slot.count = detail::count_of(param);
    if (detail::count_of(grad) != slot.count || detail::count_of(exp_avg) != slot.count ||
        detail::count_of(exp_avg_sq) != slot.count) {
        return detail::fail<StepSlot>(
            MP_STATUS_INVALID_SHAPE,
            "slot: param has " + std::to_string(slot.count) +
                " elements, and grad, exp_avg, exp_avg_sq must have as many");
    }
    slot.param.data = std::data(param), slot.param.dtype = dtype_in<Param>;
    slot.grad.data = const_cast<std::remove_const_t<element_of<Grad>>*>(std::data(grad));
    slot.grad.dtype = dtype_in<Grad>;
    slot.states[0].data = std::data(exp_avg), slot.states[0].dtype = dtype_in<M>;
    slot.states[1].data = std::data(exp_avg_sq), slot.states[1].dtype = dtype_in<V>;
    return slot;
}

/** One step on the caller's own memory. */
inline result<OptimizerStats> step(const Context& context, const StepArgs& args,
                                   span<const mp_step_slot> slots, ScalerRef scaler = {},
                                   QueueRef queue = {}) {
    OptimizerStats stats;
    return detail::give(mp_optimizer_step_pointers(context.get(), queue.get(), &args, slots.data(),
                                                   static_cast<std::int64_t>(slots.size()),
                                                   scaler.get(), &stats),
                        stats);
}
inline result<OptimizerStats> step(const Context& context, const StepArgs& args,
                                   const StepSlot& slot, ScalerRef scaler = {},
                                   QueueRef queue = {}) {
    return step(context, args, span<const mp_step_slot>(&slot, 1), scaler, queue);
}

/** The same, checked once and run often. */
class StepPlan : public Handle<mp_step_plan, mp_step_plan_destroy> {
  public:
    using Handle::Handle;
    static result<StepPlan> create(const Context& context, const StepArgs& args,
                                   span<const mp_step_slot> slots) {
        mp_step_plan* raw = nullptr;
        return detail::made<StepPlan>(mp_step_plan_create(context.get(), &args, slots.data(),
                                                          static_cast<std::int64_t>(slots.size()),
                                                          &raw),
                                      raw, context.keep());
    }
    result<void> run(ScalerRef scaler = {}, QueueRef queue = {}) {
        return detail::done(mp_step_plan_run(raw_, queue.get(), scaler.get()));
    }
    result<void> set_args(const StepArgs& args, QueueRef queue = {}) {
        return detail::done(mp_step_plan_set_args(raw_, queue.get(), &args));
    }
    result<StepArgs> args() const {
        StepArgs args;
        return detail::give(mp_step_plan_get_args(raw_, &args), args);
    }
    result<OptimizerStats> stats(QueueRef queue = {}) {
        OptimizerStats stats;
        return detail::give(mp_step_plan_get_stats(raw_, queue.get(), &stats), stats);
    }
};

/** What Optimizer::add_param takes beside the weight. */
struct ParamOptions {
    TensorRef grad = {};      /* main gradient; none: one is made in the recipe's grad.dtype */
    TensorRef init_fp32 = {}; /* exact initial values */
    std::uint32_t flags = 0;
    std::int32_t group = 0;
};

/** Named parameters in groups, with states in the recipe's dtypes; sharded where it is made with a communicator. */
class Optimizer : public Handle<mp_optimizer, mp_optimizer_destroy> {
  public:
    using Handle::Handle;
    static result<Optimizer> create(const Context& context, const Recipe& recipe,
                                    const OptimizerOptions& options = {}) {
        mp_optimizer* raw = nullptr;
        return detail::made<Optimizer>(
            mp_optimizer_create(context.get(), recipe.get(), &options, &raw), raw, context.keep());
    }
    /** The communicator is kept alive. */
    static result<Optimizer> create_sharded(const Context& context, const Recipe& recipe,
                                            Comm& comm, const ShardingOptions& sharding = {},
                                            const OptimizerOptions& options = {}) {
        mp_optimizer* raw = nullptr;
        return detail::made<Optimizer>(mp_optimizer_create_sharded(context.get(), recipe.get(),
                                                                   &options, comm.get(), &sharding,
                                                                   &raw),
                                       raw, context.keep());
    }

    result<int> add_group(const GroupOptions& options = {}) {
        std::int32_t index = 0;
        return detail::give<int>(mp_optimizer_add_group(raw_, &options, &index), index);
    }
    result<int> add_param(const std::string& name, const Tensor& param,
                          const ParamOptions& options = {}) {
        mp_param_desc desc = MP_PARAM_DESC_INIT;
        desc.flags = options.flags;
        desc.name = name.c_str();
        desc.param = param.get();
        desc.grad = options.grad.get();
        desc.init_fp32 = options.init_fp32.get();
        std::int32_t index = 0;
        return detail::give<int>(mp_optimizer_add_param(raw_, options.group, &desc, &index), index);
    }
    result<void> step(ScalerRef scaler = {}, QueueRef queue = {}) {
        return detail::done(mp_optimizer_step(raw_, queue.get(), scaler.get()));
    }
    result<void> zero_grad(QueueRef queue = {}) {
        return detail::done(mp_optimizer_zero_grad(raw_, queue.get()));
    }
    /** A step then ends these layers' step too. */
    result<void> set_linears(const std::vector<Linear*>& layers) {
        std::vector<mp_linear*> raw;
        for (Linear* layer : layers)
            raw.push_back(layer->get());
        return detail::done(
            mp_optimizer_set_linears(raw_, raw.data(), static_cast<std::int32_t>(raw.size())));
    }
    result<OptimizerStats> stats(QueueRef queue = {}) {
        OptimizerStats stats;
        return detail::give(mp_optimizer_get_stats(raw_, queue.get(), &stats), stats);
    }
    result<void> set_lr(int group, double lr) {
        return detail::done(mp_optimizer_set_lr(raw_, group, lr));
    }
    result<void> set_lr(int group, const Tensor& lr) {
        return detail::done(mp_optimizer_set_lr_tensor(raw_, group, lr.get()));
    }
    result<void> set_enabled(int group, bool enabled) {
        return detail::done(mp_optimizer_set_enabled(raw_, group, enabled));
    }
    result<void> set_max_grad_norm(double norm) {
        return detail::done(mp_optimizer_set_max_grad_norm(raw_, norm));
    }
    result<void> set_grad_scale(TensorRef scale) {
        return detail::done(mp_optimizer_set_grad_scale_tensor(raw_, scale.get()));
    }
    result<void> set_norm_comm(CommRef comm) {
        return detail::done(mp_optimizer_set_norm_comm(raw_, comm.get()));
    }
    result<Tensor> grad_norm_tensor() const {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_optimizer_get_grad_norm_tensor(raw_, &raw), raw, keep_);
    }
    result<Tensor> found_inf_tensor() const {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_optimizer_get_found_inf_tensor(raw_, &raw), raw, keep_);
    }

    /** "param", "grad", "exp_avg", "exp_avg_sq", ...: the state itself. */
    result<Tensor> state(int index, const std::string& name) const {
        mp_tensor* raw = nullptr;
        return detail::made<Tensor>(mp_optimizer_get_state(raw_, index, name.c_str(), &raw), raw,
                                    keep_);
    }
    result<Tensor> grad(int index) const { return state(index, "grad"); }
    /** Its values, decoded into a tensor in fp32, and back. */
    result<void> read_state(int index, const std::string& name, const Tensor& values,
                            QueueRef queue = {}) const {
        return detail::done(
            mp_optimizer_read_state(raw_, queue.get(), index, name.c_str(), values.get()));
    }
    result<void> write_state(int index, const std::string& name, const Tensor& values,
                             QueueRef queue = {}) {
        return detail::done(
            mp_optimizer_write_state(raw_, queue.get(), index, name.c_str(), values.get()));
    }
    /** After the caller wrote into a parameter. */
    result<void> sync_master(int index, QueueRef queue = {}) {
        return detail::done(mp_optimizer_sync_master(raw_, queue.get(), index));
    }
    result<void> set_step(std::int64_t step, QueueRef queue = {}) {
        return detail::done(mp_optimizer_set_step(raw_, queue.get(), step));
    }
    result<std::int64_t> group_step(int group, QueueRef queue = {}) const {
        std::int64_t step = 0;
        return detail::give(mp_optimizer_get_group_step(raw_, queue.get(), group, &step), step);
    }
    result<void> set_group_step(int group, std::int64_t step, QueueRef queue = {}) {
        return detail::done(mp_optimizer_set_group_step(raw_, queue.get(), group, step));
    }

    result<OptimizerOptions> options() const {
        OptimizerOptions options;
        return detail::give(mp_optimizer_get_desc(raw_, &options), options);
    }
    result<int> group_count() const {
        std::int32_t count = 0;
        return detail::give<int>(mp_optimizer_get_group_count(raw_, &count), count);
    }
    result<GroupOptions> group(int index) const {
        GroupOptions options;
        return detail::give(mp_optimizer_get_group(raw_, index, &options), options);
    }
    result<bool> enabled(int group) const {
        std::int32_t enabled = 0;
        const mp_status status = mp_optimizer_get_enabled(raw_, group, &enabled);
        bool is = enabled != 0;
        return detail::give(status, is);
    }
    result<int> param_count() const {
        std::int32_t count = 0;
        return detail::give<int>(mp_optimizer_get_param_count(raw_, &count), count);
    }
    result<std::string> param_name(int index) const {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_optimizer_get_param_name(raw_, index, b, c, n);
        });
    }
    result<int> param_group(int index) const {
        std::int32_t group = 0;
        return detail::give<int>(mp_optimizer_get_param_group(raw_, index, &group), group);
    }
    result<MemoryReport> memory() const {
        MemoryReport report;
        return detail::give(mp_optimizer_get_memory(raw_, &report), report);
    }

    /* What stands out, and the last steps; see watch.h. */
    /** Skips steps that stand out from now on. */
    result<void> set_guard(const GuardOptions& guard, QueueRef queue = {}) {
        return detail::done(mp_optimizer_set_guard(raw_, queue.get(), &guard));
    }
    result<void> clear_guard(QueueRef queue = {}) {
        return detail::done(mp_optimizer_set_guard(raw_, queue.get(), nullptr));
    }
    /** Both bounds are 0 where there is none. */
    result<GuardOptions> guard() const {
        GuardOptions guard;
        return detail::give(mp_optimizer_get_guard(raw_, &guard), guard);
    }
    /** Of the step to come. */
    result<void> set_loss(double loss) { return detail::done(mp_optimizer_set_loss(raw_, loss)); }
    /** Keeps so many of the last steps, 0: none; and writes them to path when the first goes wrong. */
    result<void> set_history(int steps, const std::string& path = {}) {
        return detail::done(
            mp_optimizer_set_history(raw_, steps, path.empty() ? nullptr : path.c_str()));
    }
    result<int> record_count() const {
        std::int32_t count = 0;
        return detail::give<int>(mp_optimizer_get_record_count(raw_, &count), count);
    }
    /** 0: the oldest. */
    result<StepRecord> record(int index) const {
        StepRecord record;
        return detail::give(mp_optimizer_get_record(raw_, index, &record), record);
    }
    /** The first tensor that was not finite, in words; empty: there was none. */
    result<std::string> bad_tensor() const {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_optimizer_get_bad_tensor(raw_, b, c, n);
        });
    }

    /* Of a sharded one; see sharding.h. */
    result<void> shard(QueueRef queue = {}) {
        return detail::done(mp_optimizer_shard(raw_, queue.get()));
    }
    result<void> grad_ready(int index, QueueRef queue = {}) {
        return detail::done(mp_optimizer_grad_ready(raw_, queue.get(), index));
    }
    result<void> end_microbatch(QueueRef queue = {}) {
        return detail::done(mp_optimizer_end_microbatch(raw_, queue.get()));
    }
    result<void> acquire_grad(int index, QueueRef queue = {}) {
        return detail::done(mp_optimizer_acquire_grad(raw_, queue.get(), index));
    }
    result<void> gather_begin(span<const std::int32_t> indices, QueueRef queue = {}) {
        return detail::done(mp_optimizer_gather_begin(raw_, queue.get(), indices.data(),
                                                      static_cast<std::int32_t>(indices.size())));
    }
    result<void> gather_wait(span<const std::int32_t> indices, QueueRef queue = {}) {
        return detail::done(mp_optimizer_gather_wait(raw_, queue.get(), indices.data(),
                                                     static_cast<std::int32_t>(indices.size())));
    }
    result<void> gather_free(span<const std::int32_t> indices, QueueRef queue = {}) {
        return detail::done(mp_optimizer_gather_free(raw_, queue.get(), indices.data(),
                                                     static_cast<std::int32_t>(indices.size())));
    }
    struct Slice {
        std::int64_t start = 0, count = 0;
    };
    result<Slice> slice(int index, int rank) const {
        Slice slice;
        return detail::give(mp_optimizer_get_slice(raw_, index, rank, &slice.start, &slice.count),
                            slice);
    }
    result<ShardingProgress> progress() const {
        ShardingProgress progress;
        return detail::give(mp_optimizer_get_progress(raw_, &progress), progress);
    }
    result<double> grad_mu(int index) const {
        double mu = 0.0;
        return detail::give(mp_optimizer_get_grad_mu(raw_, index, &mu), mu);
    }
    result<CommTraffic> traffic() const {
        CommTraffic traffic;
        return detail::give(mp_optimizer_get_traffic(raw_, &traffic), traffic);
    }
};

/* ---- Checkpoints */

class Checkpoint : public Handle<mp_checkpoint, mp_checkpoint_destroy> {
  public:
    using Handle::Handle;
    using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

    /** keep: older checkpoints beyond so many are deleted after a save; 0: none is. */
    static result<Checkpoint> create(const Context& context, CommRef comm = {}, int keep = 0,
                                     Progress progress = {}) {
        mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
        desc.keep = keep;
        struct Kept {
            std::shared_ptr<void> context;
            Progress progress;
        };
        auto kept = std::make_shared<Kept>(Kept{context.keep(), std::move(progress)});
        if (kept->progress) {
            desc.payload = kept.get();
            desc.progress = [](std::int64_t done, std::int64_t total, void* payload) {
                MIXEDPREC_TRY { static_cast<Kept*>(payload)->progress(done, total); }
                MIXEDPREC_CATCH_ALL {}
            };
        }
        mp_checkpoint* raw = nullptr;
        return detail::made<Checkpoint>(
            mp_checkpoint_create(context.get(), comm.get(), &desc, &raw), raw, kept);
    }
    result<void> add(const Optimizer& optimizer) {
        return detail::done(mp_checkpoint_add_optimizer(raw_, optimizer.get()));
    }
    result<void> add(const Scaler& scaler) {
        return detail::done(mp_checkpoint_add_scaler(raw_, scaler.get()));
    }
    result<void> add(const std::string& name, const Linear& linear) {
        return detail::done(mp_checkpoint_add_linear(raw_, name.c_str(), linear.get()));
    }
    /** Bytes of the caller's, which must stay until this object ends. */
    template <class T> result<void> add_data(const std::string& name, T& data) {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                      "a load writes the bytes");
        return detail::done(mp_checkpoint_add_data(raw_, name.c_str(), &data, sizeof(data)));
    }
    result<void> add_data(const std::string& name, span<std::byte> data) {
        return detail::done(mp_checkpoint_add_data(raw_, name.c_str(), data.data(), data.size()));
    }
    result<void> save(const std::string& directory, std::int64_t step, std::uint32_t flags = 0) {
        return detail::done(mp_checkpoint_save(raw_, directory.c_str(), step, flags));
    }
    result<CheckpointInfo> load(const std::string& path, std::uint32_t flags = 0) {
        CheckpointInfo info;
        return detail::give(mp_checkpoint_load(raw_, path.c_str(), flags, &info), info);
    }
    /** Of a save in the background. */
    result<bool> finished() {
        const mp_status status = mp_checkpoint_test(raw_);
        bool is = status == MP_STATUS_OK;
        return detail::give(status, is);
    }
    result<void> wait() { return detail::done(mp_checkpoint_wait(raw_)); }
    static result<CheckpointInfo> inspect(const std::string& path) {
        CheckpointInfo info;
        return detail::give(mp_checkpoint_inspect(path.c_str(), &info), info);
    }
    static result<std::string> describe(const std::string& path) {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_checkpoint_describe(path.c_str(), b, c, n);
        });
    }
    /** The manifest that a load would take, as JSON; note() says which newer ones were passed over. */
    static result<std::string> read_manifest(const std::string& path) {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_checkpoint_read_manifest(path.c_str(), b, c, n);
        });
    }
    /** Compares every byte of a file, by its place in the manifest, or of all (-1) with its checksum. */
    static result<void> verify(const std::string& path, std::int64_t file = -1,
                               const Progress& progress = {}) {
        const auto told = [](std::int64_t done, std::int64_t total, void* payload) {
            MIXEDPREC_TRY { (*static_cast<const Progress*>(payload))(done, total); }
            MIXEDPREC_CATCH_ALL {}
        };
        return detail::done(mp_checkpoint_verify(path.c_str(), file, progress ? +told : nullptr,
                                                 const_cast<Progress*>(&progress)));
    }
    result<void> export_weights(const std::string& file) {
        return detail::done(mp_checkpoint_export_weights(raw_, file.c_str()));
    }
};

/** The tensors of a model that comes as files: safetensors, an index of them, or their folder. */
class ModelFile : public Handle<mp_model_file, mp_model_file_destroy> {
  public:
    using Handle::Handle;

    static result<ModelFile> open(const std::string& path, std::uint32_t flags = 0) {
        mp_model_file* raw = nullptr;
        return detail::made<ModelFile>(mp_model_file_open(path.c_str(), flags, &raw), raw);
    }
    result<std::int64_t> count() const {
        std::int64_t count = 0;
        return detail::give(mp_model_file_get_count(raw_, &count), count);
    }
    /** Its texts live as long as this object. */
    result<mp_file_tensor> tensor(std::int64_t index) const {
        mp_file_tensor tensor = MP_FILE_TENSOR_INIT;
        return detail::give(mp_model_file_get_tensor(raw_, index, &tensor), tensor);
    }
    result<std::int64_t> index(const std::string& name) const {
        std::int64_t index = 0;
        return detail::give(mp_model_file_get_index(raw_, name.c_str(), &index), index);
    }
    result<std::string> metadata(const std::string& key) const {
        return detail::text([&](char* b, std::size_t c, std::size_t* n) {
            return mp_model_file_get_metadata(raw_, key.c_str(), b, c, n);
        });
    }
    /** Bytes of a tensor from the offset on, as many as data has. */
    result<void> read(std::int64_t index, std::int64_t offset, span<std::byte> data) const {
        return detail::done(mp_model_file_read(raw_, index, offset, data.data(), data.size()));
    }
};

} // namespace with_exceptions or with_expected
} // namespace mixedprec

#undef MIXEDPREC_TRY
#undef MIXEDPREC_CATCH_ALL
#endif /* MIXEDPREC_HPP */
