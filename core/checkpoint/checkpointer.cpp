// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpointer.hpp"

#include <algorithm>
#include <new>
#include <span>

#include "checkpoint/directory.hpp"
#include "process/own_thread.hpp"
#include "runtime/describe.hpp"

namespace mp::checkpoint {

Checkpointer::Checkpointer(std::shared_ptr<Context> context, comm::Communicator* communicator,
                           const CheckpointerOptions& options)
    : context_(std::move(context)), options_(options) {
    if (communicator != nullptr && communicator->size() > 1) {
        check(communicator->split(0, communicator->rank(), &front_));
        check(communicator->split(0, communicator->rank(), &back_));
    }
    ranks_ = make_ranks(front_.get());
    back_ranks_ = make_ranks(back_.get());
}

Checkpointer::~Checkpointer() { (void)wait(); }

void Checkpointer::add(std::unique_ptr<Stateful> stateful) {
    if (worker_.joinable()) {
        worker_.join(); // its result is still there for wait()
    }
    stateful_.push_back(std::move(stateful));
}

Catalog Checkpointer::catalog() const {
    Catalog catalog;
    for (const std::unique_ptr<Stateful>& one : stateful_) {
        one->add_to(catalog);
    }
    return catalog;
}

std::string Checkpointer::maxima() const {
    std::vector<uint32_t> all;
    for (const std::unique_ptr<Stateful>& one : stateful_) {
        const std::vector<uint32_t> own = one->maxima();
        all.insert(all.end(), own.begin(), own.end());
    }
    return system::to_bytes(all);
}

void Checkpointer::set_maxima(const std::vector<std::string>& ranks) {
    auto largest = system::from_bytes<std::vector<uint32_t>>(ranks[0]);
    for (const std::string& bytes : ranks) {
        const auto theirs = system::from_bytes<std::vector<uint32_t>>(bytes);
        if (theirs.size() != largest.size()) {
            return; // other layers: the save says so
        }
        for (std::size_t i = 0; i < largest.size(); ++i) {
            largest[i] = std::max(largest[i], theirs[i]);
        }
    }
    std::span<const uint32_t> rest = largest;
    for (const std::unique_ptr<Stateful>& one : stateful_) {
        const std::size_t count = one->maxima().size();
        one->set_maxima(rest.first(count));
        rest = rest.subspan(count);
    }
}

bool Checkpointer::is_idle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !running_;
}

Status Checkpointer::wait() {
    if (worker_.joinable()) {
        worker_.join();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const Status result = result_;
    result_ = Status();
    return result;
}

// One rank's save may end a little before another's, so the ranks agree.
void Checkpointer::refuse_if_busy() {
    together(*ranks_, [this] {
        if (!is_idle()) {
            fail(Code::bad_state,
                 "checkpoint: a save is still running; wait for it with mp_checkpoint_wait");
        }
    });
}

// The same on all ranks, which add the same things.
void Checkpointer::refuse_if_empty() const {
    if (stateful_.empty()) {
        fail(Code::bad_state,
             "checkpoint: nothing was added to it; add an optimizer, a scaler, layers "
             "or data with mp_checkpoint_add_...");
    }
}

void Checkpointer::save(const std::string& parent, int64_t step, bool in_background) {
    refuse_if_busy();
    refuse_if_empty();
    SaveOptions options;
    options.parent = parent;
    options.step = step;
    options.library = options_.library;
    options.device = products_text(context_->stream().device());
    options.keep = options_.keep;
    options.progress = options_.progress;
    Catalog current;
    if (!in_background) {
        set_maxima(together(*ranks_, [&] {
            current = catalog();
            wait_for(current);
            return maxima();
        }));
        log_saved(save_checkpoint(*ranks_, files(), current, options), options.step);
        return;
    }
    std::shared_ptr<Snapshot> snapshot;
    set_maxima(together(*ranks_, [&] {
        if (back_ != nullptr && back_->why_one_thread() != nullptr) {
            fail(Code::unsupported,
                 "checkpoint: a save in the background talks to the other ranks from a thread of "
                 "its own, which this communicator does not allow: %s",
                 back_->why_one_thread());
        }
        current = catalog();
        if (worker_.joinable()) {
            worker_.join(); // it has ended; a result nobody waited for is forgotten
        }
        return maxima();
    }));
    // Now, so that a folder that cannot be made is reported now, and a change of the process's own folder changes nothing.
    const auto folder =
        std::make_shared<system::OpenFile>(open_folder(*ranks_, files(), options.parent));
    together(*ranks_, [&] {
        snapshot = std::make_shared<Snapshot>(current);
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            running_ = true;
            result_ = Status();
        }
        try {
            worker_ = process::start_thread("mixedprec-save", [this, snapshot, folder, options] {
                run(*snapshot, *folder, options);
            });
        } catch (const std::exception& error) {
            const std::lock_guard<std::mutex> lock(mutex_);
            running_ = false;
            fail(Code::out_of_memory, "checkpoint: no thread for the save: %s", error.what());
        }
    });
}

void Checkpointer::log_saved(const std::string& path, int64_t step) const noexcept {
    context_->log(LogLevel::info, [&] {
        return "checkpoint: step " + std::to_string(step) + " is saved as " + path;
    });
}

void Checkpointer::run(const Snapshot& snapshot, const system::OpenFile& folder,
                       const SaveOptions& options) noexcept {
    Status status;
    try {
        log_saved(save_into(*back_ranks_, files(), folder, snapshot.catalog(), options),
                  options.step);
    } catch (const Error& error) {
        status = error.status();
    } catch (const std::bad_alloc&) {
        status = Status::error(Code::out_of_memory, "checkpoint: out of memory");
    } catch (const std::exception& error) {
        status = Status::error(Code::internal, "checkpoint: %s", error.what());
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    result_ = status;
    running_ = false;
}

Loaded Checkpointer::load(const std::string& path, const LoadFlags& flags, Conversion* conversion) {
    if (worker_.joinable()) {
        worker_.join(); // its result is still there for wait()
    }
    refuse_if_empty();
    const Conversions what =
        flags.convert ? together(*ranks_, [&] { return conversions(path); })[0] : Conversions::none;
    Loaded loaded = what != Conversions::none ? load_converted(path, flags, what, conversion)
                                              : load_all(path, flags);
    log_loaded(loaded);
    return loaded;
}

// Products may have other bits on other processors, with another oneDNN or number of threads.
void Checkpointer::log_loaded(const Loaded& loaded) const noexcept {
    try {
        const Manifest& manifest = loaded.manifest();
        if (loaded.passed_over() > 0) {
            context_->log(LogLevel::info, [&] {
                return "checkpoint: " + std::to_string(loaded.passed_over()) +
                       " states of parameters that are frozen here were not read";
            });
        }
        const std::string here = products_text(context_->stream().device());
        if (!manifest.device.empty() && manifest.device != here) {
            context_->log(LogLevel::warning, [&] {
                return "checkpoint: saved on " + manifest.device + "; products here are those of " +
                       here + ", and may differ in their last bits";
            });
        }
    } catch (const std::exception&) { // what is reported here has been done
    }
}

LoadOptions Checkpointer::options_of(const std::string& path, const LoadFlags& flags) const {
    LoadOptions options;
    options.path = path;
    options.verify_all = flags.verify_all;
    options.other_recipe = flags.other_recipe || flags.convert;
    options.progress = options_.progress;
    return options;
}

Loaded Checkpointer::read(LoadOptions options, const Catalog& catalog,
                          std::span<Stateful* const> targets) {
    options.check = [targets](const Loaded& loaded) {
        for (Stateful* target : targets) {
            target->prepare(loaded);
        }
    };
    return load_checkpoint(*ranks_, files(), catalog, options);
}

Loaded Checkpointer::load_all(const std::string& path, const LoadFlags& flags) {
    Catalog current;
    std::vector<Stateful*> targets;
    together(*ranks_, [&] {
        check_any(files(), path); // before the catalog, which shares out an optimizer
        current = catalog();
        wait_for(current);
        for (const std::unique_ptr<Stateful>& one : stateful_) {
            targets.push_back(one.get());
        }
    });
    Loaded loaded = read(options_of(path, flags), current, targets);
    loaded.commit(current); // from here on nothing needs memory
    for (Stateful* target : targets) {
        target->apply();
    }
    return loaded;
}

Conversions Checkpointer::conversions(const std::string& path) const {
    const Manifest manifest = find_checkpoint(files(), path).manifest;
    if (!is_same_recipe(manifest.recipe, catalog().recipe)) {
        return Conversions::recipe;
    }
    const bool has_other_types =
        std::any_of(stateful_.begin(), stateful_.end(),
                    [&](const auto& one) { return one->is_kept_otherwise(manifest); });
    return has_other_types ? Conversions::types : Conversions::none;
}

Loaded Checkpointer::load_converted(const std::string& path, const LoadFlags& flags,
                                    Conversions what, Conversion* conversion) {
    std::unique_ptr<Converter> converter;
    Catalog saved;   // of the other recipe, beside the live state
    Catalog current; // of those that belong to no recipe
    std::vector<Stateful*> targets;
    together(*ranks_, [&] {
        const Manifest manifest = find_checkpoint(files(), path).manifest;
        for (const std::unique_ptr<Stateful>& one : stateful_) {
            std::unique_ptr<Converter> own = one->converter(manifest);
            if (own != nullptr) {
                converter = std::move(own);
            } else if (what == Conversions::types || one->survives_conversion()) {
                one->add_to(current);
            } else {
                continue;
            }
            targets.push_back(one.get());
        }
        if (converter == nullptr) {
            fail(Code::bad_state, "checkpoint: there is no optimizer to convert for");
        }
        converter->add_to(saved);
        wait_for(current);
    });
    LoadOptions options = options_of(path, flags);
    options.leaves_scales = what == Conversions::recipe;
    options.others = &current;
    read(options, saved, {}).commit(saved);
    options.others = &saved;
    Loaded loaded = read(options, current, targets);
    const Conversion result = converter->convert(*ranks_);
    loaded.commit(current); // from here on nothing needs memory
    converter->commit();
    for (Stateful* target : targets) {
        target->apply();
    }
    if (conversion != nullptr) {
        *conversion = result;
    }
    return loaded;
}

void Checkpointer::export_weights(const std::string& path) {
    Catalog weights;
    for (const std::unique_ptr<Stateful>& one : stateful_) {
        one->add_weights(weights);
    }
    wait_for(weights);
    on_first(*ranks_, [&] { write_weights(files(), path, weights); });
}

} // namespace mp::checkpoint
