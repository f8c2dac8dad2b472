// SPDX-License-Identifier: Apache-2.0
// The training loop.
#include "run.hpp"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "machine.hpp"
#include "saver.hpp"
#include "setup.hpp"
#include "text.hpp"

namespace train {

double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

namespace {

constexpr int kMostBadLosses = 10;
constexpr int64_t kLastSteps = 20; // whose mean is the training loss

// Linear warm-up, then half a cosine. `taken` are the steps really taken: a skipped one does not count.
double learning_rate(const Options& o, int64_t taken) {
    if (taken < o.warmup) {
        return o.lr * real(taken + 1) / real(o.warmup);
    }
    const auto length = real(std::max<int64_t>(o.steps - o.warmup, 1));
    const double progress = real(taken - o.warmup) / length;
    return o.min_lr + 0.5 * (o.lr - o.min_lr) * (1.0 + std::cos(M_PI * progress));
}

// Everything alive while one recipe trains.
class Training {
  public:
    Training(Run& run, const Options& options, const Text& text, const Ranks& ranks, double peak);
    // Leaves in the run what was reached, also when it throws.
    void run_to_the_end();

  private:
    [[nodiscard]] bool is_first() const { return ranks_.rank == 0; }
    // Ctrl-C reaches ranks at different times.
    bool agree_to_stop() { return stop_ = stop_ || ranks_.any(interrupted != 0); }
    void train();
    double train_step(int64_t step, double& scale);
    void passes(int64_t step, double scale);
    void watch_steps();
    double validate();
    double traffic();
    double mean_of_passes(int64_t count);
    void watch(double loss);
    void tell_skip(double scale, double loss);
    void work();
    void summarize_steps();
    void summarize_ranks();

    Run& run_;
    const Options& o_;
    const Text& text_;
    const Ranks& ranks_;
    double peak_;
    Context context_;
    Recipe recipe_;
    Scaler scaler_;
    Params params_;
    Network network_;
    std::vector<uint8_t> tokens_, targets_;
    std::vector<double> step_seconds_;
    std::vector<double> pass_losses_; // of a step, or of a validation, over all ranks
    double steps_counted_ = 0.0, sent_ = 0.0, sent_expected_ = 0.0; // by this rank
    bool stop_ = false;                                             // all ranks are to
    int bad_losses_ = 0;
    mp_optimizer_stats stats_{};
    Saver saver_;
    std::optional<Monitor> monitor_;
};

std::vector<float>& sized(std::vector<float>& curve, size_t count) {
    curve.assign(count, 0.0F);
    return curve;
}

Training::Training(Run& run, const Options& o, const Text& text, const Ranks& ranks, double peak)
    : run_(run), o_(o), text_(text), ranks_(ranks), peak_(peak),
      context_(make_context(o, ranks, run.threads)),
      recipe_(make_recipe(context_.get(), o, ranks, run.recipe)),
      scaler_(make_scaler(context_.get(), recipe_.get())),
      params_(context_.get(), recipe_.get(), o, ranks), network_(params_, o.batch, false),
      tokens_(size(o.batch * o.context)), targets_(tokens_.size()),
      step_seconds_(Saver::capacity(o.steps)), pass_losses_(size(std::max(o.accum, o.val_batches))),
      saver_(params_, scaler_.get(), network_, text,
             {{"losses", sized(run.losses, Saver::capacity(o.steps)).data(), sizeof(float)},
              {"val_losses", sized(run.val_losses, Saver::capacity(o.steps)).data(), sizeof(float)},
              {"step_seconds", step_seconds_.data(), sizeof(double)}}) {
    run.parameter_count = o.parameter_count();
    run.measured.struct_size = sizeof run.measured;
    MP_CHECK(mp_optimizer_get_memory(params_.optimizer.get(), &run.measured));
    // A single rank that goes the way of ranks has their sums, which no plan for one rank has.
    run.expected =
        ranks.comm != nullptr && ranks.count == 1 ? run.measured : params_.expected_memory();
    watch_steps();
    stats_.struct_size = sizeof stats_;
    MP_CHECK(mp_optimizer_get_stats(params_.optimizer.get(), nullptr, &stats_));
    run.steps = saver_.next_step(); // 0, or where a checkpoint was
    if (is_first()) {
        print(stdout, join(run.recipe, ": ", memory_text(params_, run.measured), "\n"));
        monitor_.emplace(o, run.recipe, network_);
    }
}

// The guard of all ranks, and on the first the last steps, for the first gradient that is not finite.
void Training::watch_steps() {
    constexpr int32_t kSteps = 64;
    if (o_.guards()) {
        mp_guard_desc guard = MP_GUARD_DESC_INIT;
        guard.window = static_cast<int32_t>(o_.guard_window);
        guard.max_grad_norm_z = o_.guard_norm;
        guard.max_loss_z = o_.guard_loss;
        MP_CHECK(mp_optimizer_set_guard(params_.optimizer.get(), nullptr, &guard));
    }
    if (is_first()) {
        const std::string path = o_.last_steps_file(run_.recipe);
        MP_CHECK(mp_optimizer_set_history(params_.optimizer.get(), kSteps,
                                          o_.out.empty() ? nullptr : path.c_str()));
    }
}

double Training::mean_of_passes(int64_t count) {
    ranks_.share(pass_losses_, count);
    double mean = 0.0;
    for (int64_t i = 0; i < count; i++) {
        mean += pass_losses_[size(i)] / real(count);
    }
    return mean;
}

// This rank's part of the step's passes.
void Training::passes(int64_t step, double scale) {
    const int64_t first = ranks_.first(o_.accum), end = ranks_.end(o_.accum);
    const int64_t last = first + (o_.accum + ranks_.count - 1) / ranks_.count; // of who has most
    const auto part = static_cast<float>(scale / real(o_.accum));
    for (int64_t pass = first; pass < last; pass++) {
        if (pass > first && agree_to_stop()) {
            return; // what is begun of this step is dropped
        }
        if (pass >= end) {
            continue;
        }
        text_.batch(o_, STREAM_TRAIN, step * o_.accum + pass, tokens_.data(), targets_.data());
        pass_losses_[size(pass)] = network_.forward(tokens_.data(), targets_.data(), part);
        network_.backward(tokens_.data(), params_.have_slots() || pass == first, pass + 1 == end);
    }
}

double Training::traffic() {
    mp_comm_traffic total{};
    total.struct_size = sizeof total;
    if (ranks_.comm != nullptr) {
        MP_CHECK(mp_optimizer_get_traffic(params_.optimizer.get(), &total));
    }
    return real(total.total_bytes);
}

double Training::train_step(int64_t step, double& scale) {
    mp_optimizer* optimizer = params_.optimizer.get();
    MP_CHECK(mp_optimizer_set_lr(optimizer, -1, learning_rate(o_, stats_.step)));
    MP_CHECK(mp_scaler_get_scale(scaler_.get(), nullptr, &scale));
    const double before = traffic();
    params_.expected_traffic(); // forgets what was gathered for other purposes
    passes(step, scale);
    if (stop_) {
        return Run::kNone;
    }
    if (monitor_) {
        monitor_->set_step(step + 1); // whose rows the optimizer's step will write
    }
    const double loss = mean_of_passes(o_.accum);
    MP_CHECK(mp_optimizer_set_loss(optimizer, loss));
    MP_CHECK(mp_optimizer_step(optimizer, nullptr, scaler_.get()));
    MP_CHECK(mp_scaler_update(scaler_.get(), nullptr));
    steps_counted_ += 1.0;
    sent_ += traffic() - before;
    sent_expected_ += params_.expected_traffic();
    MP_CHECK(mp_optimizer_get_stats(optimizer, nullptr, &stats_));
    params_.refresh();
    return loss;
}

// Where weights are gathered all ranks do as many passes, some of which do not count.
double Training::validate() {
    const int64_t first = ranks_.first(o_.val_batches), own = ranks_.end(o_.val_batches) - first;
    const int64_t most = (o_.val_batches + ranks_.count - 1) / ranks_.count;
    for (int64_t i = 0; i < most; i++) {
        if (i > 0 && agree_to_stop()) {
            break;
        }
        if (i >= own && !params_.come_and_go()) {
            continue;
        }
        text_.batch(o_, STREAM_VAL, i < own ? first + i : 0, tokens_.data(), targets_.data());
        const double loss = network_.forward(tokens_.data(), targets_.data(), 0.0F);
        if (i < own) {
            pass_losses_[size(first + i)] = loss;
        }
    }
    const double mean = mean_of_passes(o_.val_batches);
    return stop_ ? Run::kNone : mean;
}

void Training::watch(double loss) {
    bad_losses_ = std::isfinite(loss) ? 0 : bad_losses_ + 1;
    if (bad_losses_ >= kMostBadLosses) {
        throw Failure(run_.recipe, ": the last ", kMostBadLosses, " losses are not finite",
                      run_.bad_tensor.empty() ? "" : "; first was " + run_.bad_tensor,
                      "; try a smaller --lr or a longer --warmup");
    }
}

// What stands out by the guard, and the first tensor that is not finite. Overflows of a loss scale that still falls are
// ordinary, and in the table.
void Training::tell_skip(double scale, double loss) {
    if (!is_first()) {
        return;
    }
    if (stats_.found_inf == 0) {
        print(stderr, join(run_.recipe, ": step ", run_.steps, " skipped: its gradient norm ",
                           format("%.4g lies %.1f and its loss %.4f %.1f standard deviations above "
                                  "the last ones\n",
                                  stats_.grad_norm, stats_.grad_norm_z, loss, stats_.loss_z)));
        return;
    }
    if (run_.bad_tensor.empty()) {
        std::string name(512, '\0');
        MP_CHECK(mp_optimizer_get_bad_tensor(params_.optimizer.get(), name.data(), name.size(),
                                             nullptr));
        run_.bad_tensor = name.c_str();
        print(stderr, join(run_.recipe, ": step ", run_.steps, " skipped at loss scale ", scale,
                           ": first not finite was ", run_.bad_tensor,
                           o_.out.empty() ? "" : "; the last steps are in --out", "\n"));
    }
}

void Training::train() {
    Progress progress(run_.recipe, o_.steps);
    const int64_t first = run_.steps;
    double training = 0.0;
    run_.scales.assign(size(o_.steps), static_cast<float>(Run::kNone));
    agree_to_stop();
    for (int64_t step = first; step < o_.steps && !stop_; step++) {
        const auto at = size(step);
        double scale = 0.0;
        const int64_t skipped = stats_.skipped_steps;
        const double start = seconds();
        const double loss = train_step(step, scale);
        if (stop_) {
            break;
        }
        step_seconds_[at] = seconds() - start;
        training += step_seconds_[at];
        const bool looks = o_.val_every > 0 && (step + 1) % o_.val_every == 0;
        run_.val_losses[at] = static_cast<float>(looks ? validate() : Run::kNone);
        run_.losses[at] = static_cast<float>(loss);
        run_.steps = step + 1;
        run_.scales[at] = static_cast<float>(scale);
        if (stats_.skipped_steps > skipped) {
            run_.skips.push_back({run_.steps, scale, loss, stats_.found_inf == 0});
            tell_skip(scale, loss);
        }
        run_.skipped = stats_.skipped_steps;
        run_.outliers = stats_.outlier_steps;
        run_.tokens_per_second =
            real((run_.steps - first) * o_.accum * o_.batch * o_.context) / training;
        run_.share_of_peak =
            peak_ > 0.0 ? run_.tokens_per_second * operations_per_token(o_) / peak_ : 0.0;
        if (is_first()) {
            progress.update(run_.steps, loss, run_, scale, stats_.grad_norm);
        }
        watch(loss);
        saver_.step(run_.steps);
        agree_to_stop();
    }
    saver_.finish(run_.steps);
}

void Training::summarize_steps() {
    const auto steps = size(run_.steps);
    const auto last = size(std::min(run_.steps, kLastSteps));
    if (last > 0) {
        run_.train_loss = 0.0;
        for (size_t i = steps - last; i < steps; i++) {
            run_.train_loss += real(run_.losses[i]) / real(last);
        }
        const auto middle = step_seconds_.begin() + run_.steps / 2;
        std::nth_element(step_seconds_.begin(), middle, step_seconds_.begin() + run_.steps);
        run_.step_seconds = *middle;
    }
}

// What each rank has sent, the mean, and holds, the most.
void Training::summarize_ranks() {
    constexpr size_t kFigures = 4;
    const double steps = std::max(steps_counted_, 1.0);
    std::vector<double> all(size(ranks_.count) * kFigures);
    double* mine = &all[size(ranks_.rank) * kFigures];
    mine[0] = real(run_.measured.total_bytes);
    mine[1] = real(run_.expected.total_bytes);
    mine[2] = sent_ / steps;
    mine[3] = sent_expected_ / steps;
    ranks_.share(all, static_cast<int64_t>(all.size()));
    run_.ranks = ranks_.comm != nullptr ? ranks_.count : 0;
    for (size_t i = 0; i < all.size(); i += kFigures) {
        run_.rank_bytes_held = std::max(run_.rank_bytes_held, all[i]);
        run_.rank_bytes_planned = std::max(run_.rank_bytes_planned, all[i + 1]);
        run_.wire_counted += all[i + 2] / real(ranks_.count);
        run_.wire_expected += all[i + 3] / real(ranks_.count);
    }
}

void Training::work() {
    try {
        train();
    } catch (...) {
        summarize_steps();
        throw;
    }
    summarize_steps();
    summarize_ranks();
    if (!stop_) {
        run_.val_loss = validate();
    }
    run_.peak_memory = peak_memory();
    if (stop_ || run_.steps == 0) {
        return;
    }
    run_.val_losses[size(run_.steps - 1)] = static_cast<float>(run_.val_loss);
    if (!o_.save.empty()) {
        save_weights(params_, o_.save);
    }
    // Where weights are gathered all ranks do it, and rank 0 keeps it.
    if (o_.sample > 0 && (is_first() || params_.come_and_go())) {
        run_.sample = sample_text(params_, network_, text_);
    }
}

void Training::run_to_the_end() {
    std::exception_ptr failure;
    try {
        work();
    } catch (...) {
        failure = std::current_exception();
    }
    if (monitor_) {
        run_.points = std::move(monitor_->points);
        monitor_->finish();
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
    run_.outcome = stop_ ? kRunInterrupted : kRunDone;
}

} // namespace

bool run_recipe(Run& run, const Options& options, const Processes& processes, const Text& text,
                const std::string& recipe, double peak) {
    run = Run{};
    run.recipe = recipe;
    const bool good = processes.run(options, [&](const Ranks& ranks) {
        Run other;
        other.recipe = recipe;
        Training(ranks.rank == 0 ? run : other, options, text, ranks, peak).run_to_the_end();
    });
    run.outcome = good ? run.outcome : kRunFailed;
    run.losses.resize(size(run.steps));
    run.val_losses.resize(size(run.steps));
    run.scales.resize(size(run.steps));
    return good;
}

} // namespace train
