// SPDX-License-Identifier: Apache-2.0
// The monitor of the linear layers.
#include "monitor.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "files.hpp"
#include "run.hpp"
#include "text.hpp"

namespace train {

std::string Monitor::heads() {
    return "recipe,step,layer,tensor,dtype,elements,amax,scale_inv,saturated,underflowed,"
           "non_finite,history_amax\n";
}

Monitor::Monitor(const Options& o, std::string recipe, const Network& network)
    : recipe_(std::move(recipe)), file_(o.monitor == 0 ? -1 : o.monitor_rows) {
    if (file_ < 0) {
        return;
    }
    must<Failure>(lseek(file_, 0, SEEK_END) > 0, "monitor.csv has lost rows of an earlier recipe");
    for (size_t i = 0; i < network.linears().size(); i++) {
        MP_CHECK(mp_linear_set_monitor(network.linears()[i], network.linear_name(i).c_str(),
                                       static_cast<int32_t>(o.monitor), on_stats, this));
    }
}

void Monitor::on_stats(void* self, const char* layer, const mp_linear_stats* s,
                       const char* advice) noexcept {
    auto* m = static_cast<Monitor*>(self);
    const bool is_fp8 = s->dtype == MP_DTYPE_FP8_E4M3 || s->dtype == MP_DTYPE_FP8_E5M2;
    if (s->elements == 0 || !is_fp8) {
        return;
    }
    m->write_row(layer, *s);
    m->add_to_point(*s);
    if (advice != nullptr) {
        m->add_advice(layer, s->operand, advice);
    }
}

void Monitor::write_row(const char* layer, const mp_linear_stats& s) {
    constexpr std::array kOperands{"input", "weight", "grad_output"};
    const bool lasting = s.history_len > 0; // other scalings have no scale that lasts
    const auto elements = real(s.elements);
    rows_ += join(csv_field(recipe_),
                  format(",%lld,%s,%s,%s,%lld,%.7g,", static_cast<long long>(step_), layer,
                         kOperands.at(size(s.operand)), mp_dtype_name(s.dtype),
                         static_cast<long long>(s.elements), s.amax),
                  lasting ? format("%.7g", s.scale_inv) : "",
                  format(",%.7g,%.7g,%lld,", real(s.saturated) / elements,
                         real(s.underflowed) / elements, static_cast<long long>(s.non_finite)),
                  lasting ? format("%.7g", s.history_amax) : "", "\n");
    constexpr size_t kMost = 1 << 16;
    if (rows_.size() >= kMost) {
        flush();
    }
}

// Rows that are cut replace none that are whole: where one is lost, the file has none.
void Monitor::flush() {
    if (error_ == 0 && !write_all(file_, rows_.data(), rows_.size())) {
        error_ = errno;
        (void)!ftruncate(file_, 0);
    }
    rows_.clear();
}

// NaN beats infinity beats numbers.
static double larger_amax(double a, double b) { return std::isnan(a) || a > b ? a : b; }

void Monitor::add_to_point(const mp_linear_stats& s) {
    if (points.empty() || points.back().step != step_) {
        points.push_back({step_, {}});
    }
    MonitorCounts& counts = points.back().operands.at(size(s.operand));
    counts.elements += s.elements;
    counts.saturated += s.saturated;
    counts.underflowed += s.underflowed;
    counts.amax = larger_amax(s.amax, counts.amax);
}

// "input: 0.02 % saturated: raise gemm.margin": behind the last colon is what stays the same.
static std::string remedy(const std::string& advice) {
    const size_t colon = advice.rfind(':');
    return colon == std::string::npos ? advice : advice.substr(colon);
}

void Monitor::add_advice(const std::string& layer, int32_t operand, const std::string& text) {
    const auto known = std::find_if(advice_.begin(), advice_.end(), [&](const Advice& a) {
        return a.layer == layer && a.operand == operand && remedy(a.text) == remedy(text);
    });
    if (known == advice_.end()) {
        advice_.push_back({layer, operand, 1, text});
    } else {
        known->times++;
        known->text = text;
    }
}

void Monitor::finish() {
    if (file_ < 0) {
        return;
    }
    if (!advice_.empty()) {
        print(stdout, join("\nWhat ", clean(recipe_), "'s operands went through (--monitor):\n"));
    }
    for (const Advice& a : advice_) {
        const std::string times = a.times > 1 ? join(" (the last of ", a.times, " times)") : "";
        print(stdout, join("advice: ", a.layer, " ", a.text, times, "\n"));
    }
    flush();
    must<Failure>(error_ == 0, "cannot write monitor.csv: ", std::strerror(error_));
}

} // namespace train
