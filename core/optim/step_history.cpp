// SPDX-License-Identifier: Apache-2.0
#include "optim/step_history.hpp"

#include <cmath>

#include "status/guarded.hpp"
#include "system/json_writer.hpp"
#include "system/place.hpp"

namespace mp::optim {
namespace {

constexpr int32_t kMostRecords = 1 << 20;

const char* name_of(StepOutcome outcome) noexcept {
    switch (outcome) {
    case StepOutcome::non_finite:
        return "not finite";
    case StepOutcome::outlier:
        return "outlier";
    default:
        return "taken";
    }
}

// Shortest text that reads back as the same number; JSON has no others than finite ones.
void add_number(system::JsonWriter& json, const char* name, double value) {
    TextLine<40> text;
    text.set("%.17g", value);
    json.key(name);
    json.literal(std::isfinite(value) ? text.c_str() : "null");
}

void add_record(system::JsonWriter& json, const StepRecord& r) {
    json.begin('{');
    json.number("call", r.call);
    json.number("step", r.step);
    json.text("outcome", name_of(r.outcome));
    add_number(json, "loss", r.loss);
    add_number(json, "loss_scale", r.loss_scale);
    add_number(json, "lr", r.lr);
    add_number(json, "grad_norm", r.grad_norm);
    add_number(json, "grad_mul", r.grad_mul);
    add_number(json, "grad_norm_z", r.grad_norm_z);
    add_number(json, "loss_z", r.loss_z);
    json.end();
}

} // namespace

StepHistory::StepHistory(int32_t capacity, std::string path)
    : capacity_(capacity), path_(std::move(path)) {
    if (capacity < 0 || capacity > kMostRecords) {
        fail(Code::invalid_argument, "history: steps is %d; it must be from 0 to %d", capacity,
             kMostRecords);
    }
    if (capacity == 0 && !path_.empty()) {
        fail(Code::invalid_argument, "history: there is a path, but no steps to keep for it");
    }
    if (!path_.empty()) {
        path_ = system::absolute_path(path_);
        system::check_replaceable(system::posix_files(), system::kCurrentDirectory, path_);
    }
    ring_.resize(static_cast<std::size_t>(capacity));
}

void StepHistory::add(const StepRecord& record) noexcept {
    StepRecord& place = ring_[static_cast<std::size_t>(calls_ % capacity_)];
    place = record;
    place.call = ++calls_;
}

const StepRecord& StepHistory::at(int32_t index) const {
    if (index < 0 || index >= count()) {
        fail(Code::invalid_argument, "history: index is %d, but there are %d records", index,
             count());
    }
    return ring_[static_cast<std::size_t>((calls_ - count() + index) % capacity_)];
}

std::string StepHistory::to_json() const {
    system::JsonWriter json(system::JsonForm::indented);
    json.begin('{');
    json.text("first_bad", bad_.first);
    json.key("operands");
    json.begin('[');
    for (const BadOperand& bad : bad_.operands) {
        json.begin('{');
        json.text("layer", bad.layer);
        json.text("operand", bad.operand);
        json.number("non_finite", bad.count);
        json.end();
    }
    json.end();
    json.key("steps");
    json.begin('[');
    for (int32_t i = 0; i < count(); ++i) {
        add_record(json, at(i));
    }
    json.end();
    json.end();
    return json.take() + "\n";
}

Status StepHistory::write() const noexcept {
    if (path_.empty()) {
        return {};
    }
    return guarded("the history of steps", [&]() -> Status {
        system::replace_text(system::posix_files(), path_, to_json());
        return {};
    });
}

} // namespace mp::optim
