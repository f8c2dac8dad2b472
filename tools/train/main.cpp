// SPDX-License-Identifier: Apache-2.0
// mixedprec_train: trains a small GPT on text, in one or several libmixedprec recipes. The C ABI at work: parameters and
// optimizer in params.cpp, linear layers in passes.cpp, attention's products in attention.cpp, the loop in run.cpp.
#include <cstdio>
#include <optional>

#include "files.hpp"
#include "machine.hpp"
#include "outputs.hpp"
#include "report.hpp"
#include "text.hpp"

namespace train {

volatile std::sig_atomic_t interrupted = 0;

static void on_interrupt(int number) {
    interrupted = 1;
    signal_child(number);
}

static void print_model(const Options& o, const Text& text) {
    const std::string model =
        join("GPT: ", o.layers, " layers, dim ", o.dim, ", ", o.heads, " heads, context ",
             o.context, format(": %.2f million parameters", real(o.parameter_count()) / 1e6));
    const std::string data =
        join("Text: ", o.data, format(", %.2f MB", real(text.bytes.size()) / 1e6),
             ". Batch: ", o.batch * o.accum, " x ", o.context, " bytes",
             o.accum > 1 ? " (accumulated)" : "");
    print(stdout, join(model, "\n", data, ". ", o.steps, " steps\n"));
}

static int run_all(const Options& o, const Processes& processes, const Text& text, double peak,
                   std::optional<Outputs>& outputs) {
    const bool many = o.recipes.size() > 1;
    std::vector<Run> runs;
    bool good = true;
    for (const std::string& recipe : o.recipes) {
        if (interrupted == 0) {
            good = (many ? run_forked : run_recipe)(runs.emplace_back(), o, processes, text, recipe,
                                                    peak) &&
                   good;
        }
    }
    if (outputs) {
        outputs->finish_monitor(); // also of a run that failed
    }
    if ((many || good) && processes.is_first()) {
        print_table(runs);
        print_samples(runs);
        if (!o.out.empty()) {
            write_files(runs, o);
        }
    }
    return !good ? kFailed : interrupted != 0 ? kInterrupted : kDone;
}

static int run(int argc, char** argv) {
    Options o;
    if (!o.parse(argc, argv)) {
        check_stdout();
        return kDone;
    }
    const Processes processes(o);
    std::optional<Text> text;
    std::optional<Outputs> outputs; // the folder is locked until the end
    double peak = 0.0;              // of one machine
    processes.begin([&] {
        text.emplace(o);
        if (!processes.is_first()) {
            return;
        }
        outputs.emplace(o);
        o.monitor_rows = outputs->monitor_rows();
        print_model(o, *text);
        peak = measured_peak(o); // while the other processes wait
        print(stdout, format("Fastest matrix product here: %.1f billion operations a second\n",
                             peak / 1e9));
    });
    std::vector<Options::Setting> settings = o.common();
    settings.emplace_back("--data", join("a text with hash ", text->hash()));
    processes.must_agree(settings);
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    struct sigaction before {};
    sigaction(SIGHUP, nullptr, &before);
    if (before.sa_handler != SIG_IGN) { // nohup
        sigaction(SIGHUP, &action, nullptr);
    }
    const int code = run_all(o, processes, *text, peak * processes.machines(), outputs);
    check_stdout();
    return code;
}

} // namespace train

int main(int argc, char** argv) {
    train::reserve_standard_streams();
    try {
        return train::run(argc, argv);
    } catch (const train::UsageError& error) {
        train::print(stderr, train::join("mixedprec_train: ", error.what(),
                                         ". See mixedprec_train --help\n"));
        return train::kUsage;
    } catch (const std::exception& error) {
        train::print_failure(error);
        return train::kFailed;
    }
}
