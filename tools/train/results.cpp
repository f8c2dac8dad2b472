// SPDX-License-Identifier: Apache-2.0
// Runs as JSON: results.json, and CBOR between processes.
#include <nlohmann/json.hpp>

#include "report.hpp"

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(mp_memory_report, parameter_count, weight_bytes, master_bytes,
                                   grad_bytes, state_bytes, compensation_bytes, reduced_grad_bytes,
                                   total_bytes)

namespace train {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MonitorCounts, elements, saturated, underflowed, amax)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SkippedStep, step, scale, loss, is_outlier)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MonitorPoint, step, operands)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Run, recipe, outcome, threads, steps, skipped, train_loss,
                                   val_loss, tokens_per_second, step_seconds, parameter_count,
                                   expected, measured, share_of_peak, outliers, bad_tensor, ranks,
                                   wire_expected, wire_counted, rank_bytes_planned, rank_bytes_held,
                                   peak_memory, losses, val_losses, scales, skips, points, sample)

std::vector<uint8_t> pack(const Run& run) { return nlohmann::json::to_cbor(run); }
Run unpack(const std::vector<uint8_t>& bytes) {
    return nlohmann::json::from_cbor(bytes).get<Run>();
}

using Json = nlohmann::ordered_json; // which writes null for NaN

static Json json_of(const mp_memory_report& m) {
    Json json{{"weights", m.weight_bytes}, {"master", m.master_bytes}, {"grads", m.grad_bytes}};
    for (const auto& [name, bytes] : states_of(m)) {
        json[name] = bytes;
    }
    json.update({{"compensation", m.compensation_bytes},
                 {"reduced_grads", m.reduced_grad_bytes},
                 {"total", m.total_bytes}});
    return json;
}

static Json json_of(const Run& r, const Options& o) {
    constexpr std::array kOutcomes{"failed", "stopped", "done"};
    Json json{{"recipe", r.recipe},
              {"outcome", kOutcomes.at(size(r.outcome))},
              {"threads", r.threads},
              {"parameters", r.parameter_count},
              {"steps", r.steps},
              {"skipped", r.skipped},
              {"outliers", r.outliers},
              {"first_bad", r.bad_tensor},
              {"train_loss", r.train_loss},
              {"val_loss", r.val_loss},
              {"tokens_per_second", r.tokens_per_second},
              {"share_of_peak", r.share_of_peak},
              {"step_seconds_median", r.step_seconds},
              {"bytes_expected", json_of(r.expected)},
              {"bytes_measured", json_of(r.measured)}};
    if (r.ranks > 0) {
        json.update({{"ranks", r.ranks},
                     {"zero", o.zero},
                     {"shard_ranks", o.shard_ranks},
                     {"order", o.order_name},
                     {"step_bytes_sent_expected", r.wire_expected},
                     {"step_bytes_sent", r.wire_counted},
                     {"rank_bytes_planned", r.rank_bytes_planned},
                     {"rank_bytes_held", r.rank_bytes_held}});
    }
    json["peak_memory_bytes"] = r.peak_memory;
    return json;
}

std::string results_json(const std::vector<Run>& runs, const Options& o) {
    Json json{{"layers", o.layers},
              {"dim", o.dim},
              {"heads", o.heads},
              {"context", o.context},
              {"batch", o.batch},
              {"accum", o.accum},
              {"library", mp_library_build_info()}};
    json["runs"] = Json::array();
    for (const Run& run : runs) {
        json["runs"].push_back(json_of(run, o));
    }
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

} // namespace train
