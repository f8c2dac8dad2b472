// SPDX-License-Identifier: Apache-2.0
// Checkpoints of optimizers, scalers, layers and data of the caller's.
#pragma once

#include "optimizer.hpp"
#include "scaler.hpp"

namespace mixedprec {
inline namespace MIXEDPREC_RESULTS {

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
                detail::guarded(
                    [&] { return static_cast<Kept*>(payload)->progress(done, total), 0; });
            };
        }
        mp_checkpoint* raw = nullptr;
        return detail::made<Checkpoint>(
            mp_checkpoint_create(context.get(), comm.get(), &desc, &raw), raw, kept);
    }
    result<void> add(const Optimizer& optimizer) {
        return call(mp_checkpoint_add_optimizer, optimizer);
    }
    result<void> add(const Scaler& scaler) { return call(mp_checkpoint_add_scaler, scaler); }
    result<void> add(const std::string& name, const Linear& linear) {
        return call(mp_checkpoint_add_linear, name, linear);
    }
    /** Bytes of the caller's, which must stay until this object ends. */
    template <class T> result<void> add_data(const std::string& name, T& data) {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                      "a load writes the bytes");
        return call(mp_checkpoint_add_data, name, &data, sizeof(data));
    }
    result<void> add_data(const std::string& name, span<std::byte> data) {
        return call(mp_checkpoint_add_data, name, data.data(), data.size());
    }
    result<void> save(const std::string& directory, std::int64_t step, std::uint32_t flags = 0) {
        return call(mp_checkpoint_save, directory, step, flags);
    }
    result<CheckpointInfo> load(const std::string& path, std::uint32_t flags = 0) {
        return value<CheckpointInfo>(mp_checkpoint_load, path, flags);
    }
    /** Of a save in the background. */
    result<bool> finished() { return detail::tested(mp_checkpoint_test, raw_); }
    result<void> wait() { return call(mp_checkpoint_wait); }
    static result<CheckpointInfo> inspect(const std::string& path) {
        return detail::value<CheckpointInfo>(mp_checkpoint_inspect, path);
    }
    static result<std::string> describe(const std::string& path) {
        return detail::text(mp_checkpoint_describe, path);
    }
    /** The manifest that a load would take, as JSON; note() says which newer ones were passed over. */
    static result<std::string> read_manifest(const std::string& path) {
        return detail::text(mp_checkpoint_read_manifest, path);
    }
    /** Compares every byte of a file, by its place in the manifest, or of all (-1), with its checksum. */
    static result<void> verify(const std::string& path, std::int64_t file = -1,
                               const Progress& progress = {}) {
        const mp_checkpoint_progress_fn told = [](std::int64_t done, std::int64_t total,
                                                  void* payload) {
            detail::guarded(
                [&] { return (*static_cast<const Progress*>(payload))(done, total), 0; });
        };
        return detail::call(mp_checkpoint_verify, path, file, progress ? told : nullptr,
                            static_cast<void*>(const_cast<Progress*>(&progress)));
    }
    result<void> export_weights(const std::string& file) {
        return call(mp_checkpoint_export_weights, file);
    }
};

} // namespace MIXEDPREC_RESULTS
} // namespace mixedprec
