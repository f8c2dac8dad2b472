// SPDX-License-Identifier: Apache-2.0
// Checkpoints by the library.
#include "saver.hpp"

#include <cstdio>

#include "text.hpp"

namespace train {

size_t Saver::capacity(int64_t steps) {
    size_t capacity = kFewest;
    while (capacity < size(steps)) {
        capacity *= 2;
    }
    return capacity;
}

Saver::Saver(Params& params, mp_scaler* scaler, const Network& network, const Text& text,
             std::vector<Curve> curves)
    : params_(params), scaler_(scaler), network_(network), curves_(std::move(curves)),
      options_(params.options) {
    if (options_.checkpoint.empty() && options_.resume.empty()) {
        return;
    }
    for (const auto& [name, value] : options_.identity()) {
        settings_ += join(name, " ", value, "\n");
    }
    settings_ += join("--data a text with hash ", text.hash(), "\n");
    settings_.resize(kSettings, '\0');
    saved_settings_ = settings_;
    const size_t all = capacity(options_.steps);
    make(all);
    if (!options_.resume.empty()) {
        load();
        saved_settings_ = settings_; // of those that follow
        make(all);
    }
}

void Saver::make(size_t capacity) {
    mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
    desc.keep = static_cast<int32_t>(options_.keep);
    MP_CHECK(mp_checkpoint_create(params_.context, params_.ranks.comm, &desc, out(checkpoint_)));
    mp_checkpoint* checkpoint = checkpoint_.get();
    MP_CHECK(mp_checkpoint_add_optimizer(checkpoint, params_.optimizer.get()));
    MP_CHECK(mp_checkpoint_add_scaler(checkpoint, scaler_));
    for (size_t i = 0; i < network_.linears().size(); i++) {
        MP_CHECK(mp_checkpoint_add_linear(checkpoint, network_.linear_name(i).c_str(),
                                          network_.linears()[i]));
    }
    MP_CHECK(mp_checkpoint_add_data(checkpoint, "next_step", &next_step_, sizeof next_step_));
    MP_CHECK(mp_checkpoint_add_data(checkpoint, "settings", saved_settings_.data(), kSettings));
    for (const Curve& curve : curves_) {
        MP_CHECK(mp_checkpoint_add_data(checkpoint, curve.name, curve.values,
                                        curve.element_size * capacity));
    }
}

void Saver::load() {
    mp_checkpoint_info info{};
    info.struct_size = sizeof info;
    mp_status status = MP_STATUS_OK;
    for (size_t count = capacity(options_.steps);; count /= 2) { // saved by a run of fewer steps
        status = mp_checkpoint_load(checkpoint_.get(), options_.resume.c_str(), 0, &info);
        if (status != MP_STATUS_INVALID_SHAPE || count == kFewest) {
            break;
        }
        make(count / 2);
    }
    if (check(status, "mp_checkpoint_load") == MP_STATUS_WARNING) {
        print(stderr, join("mixedprec_train: note: ", mp_last_error_message(), "\n"));
    }
    must<Failure>(next_step_ >= 0 && next_step_ <= options_.steps, "'", options_.resume,
                  "' is at step ", next_step_, " of ", options_.steps);
    saved_step_ = next_step_;
    if (params_.ranks.rank == 0) {
        compare_settings();
        print(stdout, join("resumed after step ", next_step_, "\n"));
    }
    params_.refresh();
}

// What may be meant, and must not go unseen: line by line.
void Saver::compare_settings() const {
    std::istringstream saved(saved_settings_), here(settings_);
    for (std::string was, is; std::getline(saved, was) && std::getline(here, is);) {
        if (was != is && was.front() != '\0') {
            print(stderr, join("mixedprec_train: note: goes on with ", is, ", but was begun with ",
                               was, "\n"));
        }
    }
}

void Saver::save(int64_t taken) {
    next_step_ = taken;
    saved_step_ = taken;
    MP_CHECK(mp_checkpoint_wait(checkpoint_.get())); // the one before
    MP_CHECK(mp_checkpoint_save(checkpoint_.get(), options_.checkpoint.c_str(), taken,
                                MP_SAVE_BACKGROUND));
}

void Saver::step(int64_t taken) {
    const int64_t every = options_.checkpoint_every;
    if (!options_.checkpoint.empty() && every > 0 && taken % every == 0) {
        save(taken);
    }
}

void Saver::finish(int64_t taken) {
    if (options_.checkpoint.empty()) {
        return;
    }
    if (saved_step_ != taken) {
        save(taken);
    }
    MP_CHECK(mp_checkpoint_wait(checkpoint_.get()));
}

void save_weights(Params& params, const std::string& path) {
    if (!path.ends_with(".safetensors")) {
        params.save(path);
        return;
    }
    Checkpoint checkpoint;
    MP_CHECK(mp_checkpoint_create(params.context, nullptr, nullptr, out(checkpoint)));
    MP_CHECK(mp_checkpoint_add_optimizer(checkpoint.get(), params.optimizer.get()));
    MP_CHECK(mp_checkpoint_export_weights(checkpoint.get(), path.c_str()));
}

} // namespace train
