// SPDX-License-Identifier: Apache-2.0
// Checkpoints by the library.
#include "saver.hpp"

#include <cstdio>

namespace train {

Saver::Saver(Params& params, mp_scaler* scaler, const Network& network,
             const std::vector<Curve>& curves)
    : options_(params.options) {
    if (options_.checkpoint.empty() && options_.resume.empty()) {
        return;
    }
    mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
    desc.keep = static_cast<int32_t>(options_.keep);
    MP_CHECK(mp_checkpoint_create(params.context, params.ranks.comm, &desc, out(checkpoint_)));
    mp_checkpoint* checkpoint = checkpoint_.get();
    MP_CHECK(mp_checkpoint_add_optimizer(checkpoint, params.optimizer.get()));
    MP_CHECK(mp_checkpoint_add_scaler(checkpoint, scaler));
    for (size_t i = 0; i < network.linears().size(); i++) {
        MP_CHECK(mp_checkpoint_add_linear(checkpoint, network.linear_name(i).c_str(),
                                          network.linears()[i]));
    }
    MP_CHECK(mp_checkpoint_add_data(checkpoint, "next_step", &next_step_, sizeof next_step_));
    for (const Curve& curve : curves) {
        MP_CHECK(mp_checkpoint_add_data(checkpoint, curve.name, curve.values,
                                        curve.element_size * size(options_.steps)));
    }
    if (!options_.resume.empty()) {
        load(params);
    }
}

void Saver::load(Params& params) {
    mp_checkpoint_info info{};
    info.struct_size = sizeof info;
    if (MP_CHECK(mp_checkpoint_load(checkpoint_.get(), options_.resume.c_str(), 0, &info)) ==
        MP_STATUS_WARNING) {
        std::fprintf(stderr, "mixedprec_train: note: %s\n", mp_last_error_message());
    }
    must<Failure>(next_step_ >= 0 && next_step_ <= options_.steps, "'", options_.resume,
                  "' is at step ", next_step_, " of ", options_.steps);
    saved_step_ = next_step_;
    if (params.ranks.rank == 0) {
        std::puts(join("resumed after step ", next_step_).c_str());
    }
    params.refresh();
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
