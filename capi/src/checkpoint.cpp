// SPDX-License-Identifier: Apache-2.0
// checkpoint.h
#include <algorithm>

#include "boundary.hpp"
#include "checkpoint/checkpointer.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/verify.hpp"
#include "layer_pass_of.hpp"
#include "objects.hpp"
#include "system/name.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;
using namespace mp::checkpoint;

namespace {

std::string version_text() {
    const uint32_t version = mp_library_version();
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

mp_checkpoint_info info_of(const Manifest& manifest) {
    mp_checkpoint_info info{};
    info.format = static_cast<int32_t>(manifest.version);
    info.step = manifest.step;
    info.sequence = manifest.sequence;
    info.world = manifest.world;
    info.tensor_count = static_cast<int64_t>(manifest.tensors.size());
    for (const StoredFile& file : manifest.files) {
        info.bytes += file.bytes;
    }
    info.applied_step = manifest.rng_step;
    info.seed = manifest.seed;
    return info;
}

void add_errors(const Conversion& conversion, mp_checkpoint_info& info) {
    info.converted = conversion.happened ? 1 : 0;
    info.weight_largest_error = conversion.weights.largest;
    info.weight_rms_error = conversion.weights.rms;
    for (int k = 0; k < numerics::kStateIdCount; ++k) {
        info.state_largest_error[k] = conversion.states[k].largest;
        info.state_rms_error[k] = conversion.states[k].rms;
    }
}

mp_status passed_over(const std::string& skipped) {
    return skipped.empty() ? MP_STATUS_OK
                           : warn("newer checkpoints are damaged and were passed over: " + skipped);
}

std::string text_of(const Manifest& manifest) {
    std::string text = "checkpoint " + manifest.id + "\nstep " + std::to_string(manifest.step) +
                       ", saved by " + std::to_string(manifest.world) +
                       " rank(s) of libmixedprec " + manifest.library + ", format " +
                       std::to_string(manifest.version) + "." + std::to_string(manifest.minor) +
                       "\nrecipe " + manifest.recipe;
    for (const StoredFile& file : manifest.files) {
        text += "file " + file.name + ", " + std::to_string(file.bytes) + " bytes\n";
    }
    for (const StoredTensor& tensor : manifest.tensors) {
        text += "tensor " + tensor.name + " (" + tensor.state + ") " + format_name(tensor.format) +
                " " + shape_text(tensor.shape) + " in " + std::to_string(tensor.slices.size()) +
                " slice(s)\n";
    }
    return text;
}

std::string describe(const std::string& path) {
    system::FileTable& files = system::posix_files();
    if (is_checkpoint(files, path)) {
        return text_of(find_checkpoint(files, path).manifest);
    }
    const std::vector<Committed> committed = list_committed(files, path);
    if (committed.empty()) {
        fail(Code::io_error, "checkpoint: '%s' is no checkpoint, and has none", path.c_str());
    }
    std::string text;
    for (const Committed& one : committed) {
        text += one.name + ": ";
        try {
            const Manifest manifest = read_committed(files, path, one);
            text += "step " + std::to_string(manifest.step) + ", " +
                    std::to_string(manifest.world) + " rank(s), " +
                    std::to_string(info_of(manifest).bytes) + " bytes\n";
        } catch (const Error& error) {
            text += std::string(error.status().text()) + "\n";
        }
    }
    return text;
}

CheckpointObject& live(mp_checkpoint* checkpoint) { return *object_of(checkpoint, "checkpoint"); }

// One of a kind: its states have no prefix of their own.
void take_place(bool& taken, const char* what) {
    if (taken) {
        fail(Code::bad_state, "checkpoint: there already is %s", what);
    }
    taken = true;
}

std::string name_of(const char* name) {
    std::string text = required(name, "name");
    system::check_name("checkpoint: a name", text);
    return text;
}

void check_new(const std::set<std::string>& names, const std::string& name, const char* what) {
    if (names.contains(name)) {
        fail(Code::invalid_argument, "checkpoint: there already is %s with the name '%s'", what,
             name.c_str());
    }
}

// A failed call changes nothing: the name is free again.
template <typename Add>
void add_named(std::set<std::string>& names, const std::string& name, const char* what, Add add) {
    check_new(names, name, what);
    const auto place = names.insert(name).first;
    try {
        add();
    } catch (...) {
        names.erase(place);
        throw;
    }
}

void check_context(const CheckpointObject& object, const std::shared_ptr<Context>& context,
                   const char* what) {
    if (object.checkpointer.context() != context) {
        fail(Code::invalid_argument, "checkpoint: the %s is of another context", what);
    }
}

} // namespace

mp_status mp_checkpoint_create(mp_context* context, mp_comm* comm, const mp_checkpoint_desc* desc,
                               mp_checkpoint** out) {
    return boundary([&] {
        output(out);
        const std::shared_ptr<Context>& owner = object_of(context, "context");
        const mp_checkpoint_desc read = read_optional_struct(desc, "desc");
        check_flags(read.flags, 0, "flags");
        if (read.keep < 0) {
            fail(Code::invalid_argument, "checkpoint: keep is %d; it must be >= 0", read.keep);
        }
        CheckpointerOptions options;
        options.keep = read.keep;
        options.progress = {read.progress, read.payload};
        options.library = version_text();
        comm::Communicator* communicator =
            comm == nullptr ? nullptr : &ready(*object_of(comm, "comm"));
        *out = make_handle<mp_checkpoint>(
            std::make_shared<CheckpointObject>(owner, communicator, options));
    });
}

mp_status mp_checkpoint_add_optimizer(mp_checkpoint* checkpoint, mp_optimizer* optimizer) {
    return boundary([&] {
        CheckpointObject& object = live(checkpoint);
        const std::shared_ptr<optim::Optimizer>& added = object_of(optimizer, "optimizer");
        check_context(object, added->context(), "optimizer");
        take_place(object.has_optimizer, "an optimizer");
        object.checkpointer.add(stateful_optimizer(added));
    });
}

mp_status mp_checkpoint_add_scaler(mp_checkpoint* checkpoint, mp_scaler* scaler) {
    return boundary([&] {
        CheckpointObject& object = live(checkpoint);
        const std::shared_ptr<scaler::LossScaler>& added = object_of(scaler, "scaler");
        check_context(object, added->context(), "scaler");
        take_place(object.has_scaler, "a scaler");
        object.checkpointer.add(stateful_scaler(added));
    });
}

mp_status mp_checkpoint_add_linear(mp_checkpoint* checkpoint, const char* name, mp_linear* linear) {
    return boundary([&] {
        CheckpointObject& object = live(checkpoint);
        const std::shared_ptr<LinearObject>& added = object_of(linear, "linear");
        check_context(object, added->layer.context(), "layer");
        const std::string text = name_of(name);
        std::map<std::string, std::shared_ptr<LinearObject>> parts = {{text, added}};
        for (const auto& adapter : adapters_of(*added)) {
            parts.emplace(text + ".lora_A." + adapter->options.name, adapter->a);
            parts.emplace(text + ".lora_B." + adapter->options.name, adapter->b);
        }
        for (const auto& part : parts) { // before any is added
            check_new(object.layers, part.first, "a layer");
        }
        for (const auto& part : parts) {
            add_named(object.layers, part.first, "a layer", [&] {
                object.checkpointer.add(
                    stateful_linear(part.first, part.second->layer, part.second));
            });
        }
    });
}

mp_status mp_checkpoint_add_data(mp_checkpoint* checkpoint, const char* name, void* data,
                                 size_t bytes) {
    return boundary([&] {
        CheckpointObject& object = live(checkpoint);
        if (bytes == 0 || bytes > (size_t{1} << 48)) {
            fail(Code::invalid_argument, "checkpoint: data of %zu bytes; there must be some",
                 bytes);
        }
        const std::string text = name_of(name);
        void* const memory = required(data, "data");
        add_named(object.data, text, "data",
                  [&] { object.checkpointer.add(stateful_data(text, memory, bytes)); });
    });
}

mp_status mp_checkpoint_save(mp_checkpoint* checkpoint, const char* directory, int64_t step,
                             uint32_t flags) {
    return boundary([&] {
        CheckpointObject& object = live(checkpoint);
        check_flags(flags, MP_SAVE_BACKGROUND, "flags");
        if (step < 0) {
            fail(Code::invalid_argument, "checkpoint: step is %lld; it must be >= 0",
                 static_cast<long long>(step));
        }
        object.checkpointer.save(required(directory, "directory"), step,
                                 (flags & MP_SAVE_BACKGROUND) != 0);
    });
}

mp_status mp_checkpoint_test(mp_checkpoint* checkpoint) {
    return boundary([&]() -> mp_status {
        return live(checkpoint).checkpointer.is_idle() ? MP_STATUS_OK : MP_STATUS_NOT_READY;
    });
}

mp_status mp_checkpoint_wait(mp_checkpoint* checkpoint) {
    return boundary([&] { check(live(checkpoint).checkpointer.wait()); });
}

mp_status mp_checkpoint_load(mp_checkpoint* checkpoint, const char* path, uint32_t flags,
                             mp_checkpoint_info* info) {
    return boundary([&] {
        CheckpointObject& object = live(checkpoint);
        check_flags(flags, MP_LOAD_VERIFY_ALL | MP_LOAD_OTHER_RECIPE | MP_LOAD_CONVERT, "flags");
        if (info != nullptr) {
            (void)size_of_struct(info, "info"); // so that nothing fails after the state has changed
        }
        LoadFlags options;
        options.verify_all = (flags & MP_LOAD_VERIFY_ALL) != 0;
        options.other_recipe = (flags & MP_LOAD_OTHER_RECIPE) != 0;
        options.convert = (flags & MP_LOAD_CONVERT) != 0;
        Conversion conversion;
        const Loaded loaded =
            object.checkpointer.load(required(path, "path"), options, &conversion);
        const Context& context = *object.checkpointer.context();
        complete(context.stream());
        context.log(LogLevel::info, [&] {
            return "checkpoint: step " + std::to_string(loaded.manifest().step) +
                   " is loaded from " + path;
        });
        if (!loaded.skipped().empty()) {
            context.log(LogLevel::warning, [&] {
                return "checkpoint: newer ones are damaged and were passed over: " +
                       loaded.skipped();
            });
        }
        if (info != nullptr) {
            mp_checkpoint_info result = info_of(loaded.manifest());
            add_errors(conversion, result);
            write_struct(info, result, "info");
        }
        return passed_over(loaded.skipped());
    });
}

mp_status mp_checkpoint_inspect(const char* path, mp_checkpoint_info* info) {
    return boundary([&] {
        (void)size_of_struct(info, "info");
        const Found found = find_checkpoint(system::posix_files(), required(path, "path"));
        write_struct(info, info_of(found.manifest), "info");
        return passed_over(found.skipped);
    });
}

mp_status mp_checkpoint_verify(const char* path, int64_t file, mp_checkpoint_progress_fn progress,
                               void* payload) {
    return boundary([&] {
        const Found found = find_checkpoint(system::posix_files(), required(path, "path"));
        const auto count = static_cast<int64_t>(found.manifest.files.size());
        if (file < -1 || file >= count) {
            fail(Code::invalid_argument,
                 "checkpoint: file is %lld; there are %lld, and -1 is all of them",
                 static_cast<long long>(file), static_cast<long long>(count));
        }
        const int64_t end = file < 0 ? count : file + 1;
        for (int64_t i = std::max<int64_t>(file, 0); i < end; ++i) {
            verify_file(system::posix_files(), found, static_cast<std::size_t>(i),
                        {progress, payload});
        }
        return passed_over(found.skipped);
    });
}

mp_status mp_checkpoint_read_manifest(const char* path, char* buffer, size_t capacity,
                                      size_t* needed) {
    return boundary([&] {
        const std::string where = required(path, "path");
        Found found = find_checkpoint(system::posix_files(), where);
        const bool is_itself = found.directory == where;
        const std::string name = is_itself ? "" : found.directory.substr(where.size() + 1);
        std::string manifest = manifest_text(found.manifest);
        manifest.resize(manifest.find_last_of('}') + 1); // without its newline
        copy_text("{\"name\":\"" + name + "\",\"manifest\":" + manifest + "}", buffer, capacity,
                  needed);
        return passed_over(found.skipped);
    });
}

mp_status mp_checkpoint_describe(const char* path, char* buffer, size_t capacity, size_t* needed) {
    return boundary([&] { copy_text(describe(required(path, "path")), buffer, capacity, needed); });
}

mp_status mp_checkpoint_export_weights(mp_checkpoint* checkpoint, const char* file) {
    return boundary([&] { live(checkpoint).checkpointer.export_weights(required(file, "file")); });
}

void mp_checkpoint_destroy(mp_checkpoint* checkpoint) { destroy_handle(checkpoint); }
