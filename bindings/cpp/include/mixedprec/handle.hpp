// SPDX-License-Identifier: Apache-2.0
// Handle, the base of every class, and Ref, an argument that may be absent.
#pragma once

#include "call.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

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
    /* Those of call.hpp for functions whose first argument is this object. */
    template <class Function, class... Arguments>
    result<void> call(Function function, const Arguments&... arguments) const {
        return detail::call(function, raw_, arguments...);
    }
    template <class T, class Function, class... Arguments>
    result<T> value(Function function, const Arguments&... arguments) const {
        return detail::value<T>(function, raw_, arguments...);
    }
    template <class Buffer = std::string, class Function, class... Arguments>
    result<Buffer> text(Function function, const Arguments&... arguments) const {
        return detail::text<Buffer>(function, raw_, arguments...);
    }
    template <class Object, class Function, class... Arguments>
    result<Object> make(Function function, const Arguments&... arguments) const {
        return detail::make<Object>(function, *this, arguments...);
    }

    std::shared_ptr<void> keep_; // ends after the destroy call in ~Handle
    Raw* raw_ = nullptr;
};

/** A handle where a call takes one that may be absent: an object, a C handle, or nullptr. */
template <class Raw> class Ref {
  public:
    using raw_type = Raw;
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

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
