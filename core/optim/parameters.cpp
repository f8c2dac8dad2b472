// SPDX-License-Identifier: Apache-2.0
#include "optim/parameters.hpp"

#include <algorithm>

#include "optim/parameters_checks.hpp"
#include "optim/state_values.hpp"
#include "optim/step_memory.hpp"
#include "quant/quantize.hpp"
#include "system/fnv.hpp"

namespace mp::optim {
namespace {

// Between the device and where the step finds the weight, where that is the host; else nothing. Wait.
void fetch_weight(Stream& stream, const Parameters& parameters, int32_t index) {
    if (parameters[index].host_weight != nullptr) {
        copy_array(stream, parameters.device_weight(index), parameters.weight(index),
                   CopyKind::device_to_host);
        stream.sync();
    }
}
void send_weight(Stream& stream, const Parameters& parameters, int32_t index) {
    if (parameters[index].host_weight != nullptr) {
        parameters.context().host_stream().sync();
        copy_array(stream, parameters.weight(index), parameters.device_weight(index),
                   CopyKind::host_to_device);
        stream.sync();
    }
}

} // namespace

Parameters::Parameters(std::shared_ptr<Context> context, const LayoutOptions& options)
    : context_(std::move(context)), options_(options) {
    if (options_.offload_grads) {
        lane_ = std::make_shared<HostLane>(context_->host_stream(), context_->open_stream(nullptr));
    }
    if (options_.offload_grads && options_.stage < 0) {
        host_gradients_ = std::make_unique<HostGradients>(lane_, *this);
    }
}

uint64_t Parameter::uid() const {
    system::Fnv64 hash;
    hash.add(name);
    return hash.value();
}

void claim(ClaimedMemory& memory, const Tensor& tensor, const char* what, const Parameter& owner) {
    memory.add(tensor.data(), tensor.bytes(), what + (" of '" + owner.name + "'"));
}

// Claims of memory that was given back would meet what came to lie there.
void Parameters::make_states(Stream& stream) {
    memory_ = {};
    for (const Parameter& p : list_) {
        if (p.layout.weight.lifetime == Lifetime::always) {
            claim(memory_, *p.param, "weight", p);
        }
        if (p.grad != nullptr && p.layout.grad.lifetime == Lifetime::always) {
            claim(memory_, *p.grad, "gradient", p);
        }
    }
    for (int32_t i = 0; i < count(); ++i) {
        make_states(stream, i);
    }
}

void Parameters::make_states(Stream& stream, int32_t index) {
    if (allocate_states(stream, index)) {
        initialize(stream, index);
    }
    list_[static_cast<std::size_t>(index)].init_fp32 = nullptr;
}

bool Parameters::allocate_states(Stream& stream, int32_t index) {
    Parameter& p = list_[static_cast<std::size_t>(index)];
    const shard::ShardSlice own = slice(index);
    if (p.layout.is_frozen || (own.count == 0 && p.layout.states != Placement::whole)) {
        return false;
    }
    const Shape shape = own.count == p.param->count() ? p.param->shape() : Shape{{own.count}, 1};
    if (p.layout.host_weight.exists()) {
        p.host_weight = make_tensor(context_, stream_at(p.layout.host_weight.place, stream),
                                    device_weight(index).format, shape);
    }
    p.states.emplace(context_, state_stream(index, stream), p.layout.formats, shape);
    p.states->for_each([&](const Tensor& state) { claim(memory_, state, "states", p); });
    const bool comes_later =
        sharding_ == nullptr && (p.grad == nullptr || p.layout.host_grad.exists());
    const auto check_arrays = comes_later ? check_kept : check_segment;
    check_arrays(segment(index), p.name.c_str(), p.layout.formats.rule);
    return true;
}

void Parameters::initialize(Stream& stream, int32_t index) {
    const Parameter& p = list_[static_cast<std::size_t>(index)];
    if (p.init_fp32 == nullptr) {
        fetch_weight(stream, *this, index);
        p.states->initialize(state_stream(index, stream), weight(index), nullptr);
        return;
    }
    const shard::ShardSlice own = slice(index);
    write_exact(stream, index, slice_of(*p.init_fp32, own.start, own.count).elements(),
                ValuesOn::device);
}

void Parameters::write_exact(Stream& stream, int32_t index, TensorRef exact, ValuesOn place,
                             const float* amax) {
    const Parameter& p = list_[static_cast<std::size_t>(index)];
    Stream& owner = p.states.has_value() ? state_stream(index, stream) : stream;
    const bool is_on_host = place == ValuesOn::host || stream.device().is_host();
    Buffer near; // where they are to go
    if (is_on_host != owner.device().is_host()) {
        near = owner.allocate(static_cast<std::size_t>(bytes_of(exact.dtype, exact.count)));
        stream.copy(near.data(), exact.data, near.bytes(),
                    is_on_host ? CopyKind::host_to_device : CopyKind::device_to_host);
        stream.sync();
        exact.data = near.data();
    }
    if (p.states.has_value()) {
        p.states->initialize(owner, weight(index), &exact);
        send_weight(stream, *this, index);
    } else {
        const ArrayRef to = weight(index);
        quant::convert(owner, plain_array(exact, to.rows, to.columns), to, amax);
    }
    owner.sync();
}

void Parameters::mark_values(std::span<const int32_t> indices, bool have_values) noexcept {
    for (const int32_t index : indices) {
        list_[static_cast<std::size_t>(index)].has_values = have_values;
    }
}

void Parameters::sync_master(Stream& stream, int32_t index) {
    if (index != -1) {
        (void)(*this)[index];
    }
    const int32_t end = index == -1 ? count() : index + 1;
    for (int32_t i = std::max(index, 0); i < end; ++i) {
        (*this)[i].param->require_memory("optimizer: a parameter that the caller wrote");
    }
    for (int32_t i = std::max(index, 0); i < end; ++i) {
        Parameter& p = list_[static_cast<std::size_t>(i)];
        if (sharding_ != nullptr) {
            sharding_->weights().update_own(stream, i);
        }
        fetch_weight(stream, *this, i);
        if (p.states.has_value()) {
            p.states->sync_master(state_stream(i, stream), weight(i));
        }
        p.has_values = true; // the caller's
    }
}

shard::ShardSlice Parameters::slice(int32_t index) const {
    const Parameter& p = list_[static_cast<std::size_t>(index)];
    return sharding_ != nullptr ? sharding_->weights().own_slice(index)
                                : shard::ShardSlice{index, 0, 0, p.param->count()};
}

ArrayRef Parameters::device_weight(int32_t index) const {
    return sharding_ != nullptr ? sharding_->weights().own(index)
                                : slice_of(*list_[static_cast<std::size_t>(index)].param);
}

ArrayRef Parameters::gradient(int32_t index) const {
    const std::shared_ptr<Tensor>& own = list_[static_cast<std::size_t>(index)].grad;
    return sharding_ != nullptr         ? sharding_->gradient_of(index)
           : host_gradients_ != nullptr ? host_gradients_->array(index)
           : own != nullptr             ? slice_of(*own)
                                        : ArrayRef();
}

void Parameters::acquire_grad(Stream& stream, int32_t index) const {
    if (sharding_ != nullptr) {
        sharding_->acquire_grad(stream, index);
    } else if (host_gradients_ != nullptr) {
        host_gradients_->acquire(stream, index);
    } else if (options_.stage >= 2 && list_[static_cast<std::size_t>(index)].grad->is_placed()) {
        fail(Code::bad_state,
             "optimizer: the gradient of '%s' has its memory from mp_optimizer_shard on; call that "
             "first",
             list_[static_cast<std::size_t>(index)].name.c_str());
    }
}

void Parameters::grad_ready(Stream& stream, int32_t index) const {
    if (sharding_ != nullptr) {
        sharding_->grad_ready(stream, index);
    } else if (host_gradients_ != nullptr) {
        host_gradients_->ready(stream, index);
    }
}

ArrayRef Parameters::weight(int32_t index) const {
    const Parameter& p = list_[static_cast<std::size_t>(index)];
    return p.host_weight != nullptr ? slice_of(*p.host_weight) : device_weight(index);
}

UpdateSegment Parameters::segment(int32_t index) const {
    const Parameter& p = list_[static_cast<std::size_t>(index)];
    const ArrayRef param = weight(index);
    const ArrayRef grad = gradient(index);
    UpdateSegment s;
    s.count = param.count();
    s.first = slice(index).start;
    s.uid = p.uid();
    s.group = p.group;
    s.param = {param.data, param.scale_inv, param.dtype(), Coding::plain};
    s.grad = {grad.data, grad.scale_inv, grad.dtype(), Coding::plain};
    p.states->fill(s);
    return s;
}

const Parameter& Parameters::operator[](int32_t index) const {
    if (index < 0 || index >= count()) {
        fail(Code::invalid_argument, "optimizer: parameter %d does not exist; there are %d", index,
             count());
    }
    return list_[static_cast<std::size_t>(index)];
}

std::shared_ptr<Tensor> Parameters::state(int32_t index, const std::string& name) const {
    const Parameter& p = (*this)[index];
    std::vector<NamedTensor> states = {{"param", p.param},
                                       {"param_scale_inv", scale_of(p.param)},
                                       {"grad", p.grad},
                                       {"grad_scale_inv", scale_of(p.grad)}};
    if (p.states.has_value()) {
        for (NamedTensor& entry : p.states->list()) {
            states.push_back(std::move(entry));
        }
    }
    std::string present;
    for (const auto& [state_name, tensor] : states) {
        if (tensor == nullptr) {
            continue;
        }
        if (name == state_name) {
            return tensor;
        }
        present += (present.empty() ? "" : ", ") + std::string(state_name);
    }
    fail(Code::unknown_name, "optimizer: parameter '%s' has no state '%.64s'; it has: %s",
         p.name.c_str(), name.c_str(), present.c_str());
}

MemoryReport Parameters::memory() const noexcept {
    MemoryReport report;
    for (int32_t i = 0; i < count(); ++i) {
        const Parameter& p = list_[static_cast<std::size_t>(i)];
        report.parameter_count += p.param->count();
        report.weight += bytes_of(p.param);
        report.grad += bytes_of(p.grad);
        report.weight += sharding_ != nullptr ? sharding_->weights().bytes(i) : 0;
        if (p.states.has_value()) {
            const int64_t before = report.total();
            p.states->add_bytes(report);
            report.offload += bytes_of(p.host_weight);
            report.host += is_on_host(p.layout.states_place) ? report.total() - before : 0;
        }
    }
    if (sharding_ != nullptr) {
        report.reduced_grad = sharding_->gradient_bytes();
        report.host += sharding_->host_gradient_bytes();
    }
    report.add_host_grad(host_gradients_ != nullptr ? host_gradients_->bytes() : 0);
    return report;
}

void Parameters::check_number(const Tensor* number, const char* name) const {
    if (number == nullptr) {
        return;
    }
    const auto refuse = [name](const std::string& theirs) {
        fail(Code::invalid_argument,
             "optimizer: %s overlaps the %s in memory; it needs memory of its own", name,
             theirs.c_str());
    };
    if (const std::string* const theirs = memory_.find(number->data(), number->bytes());
        theirs != nullptr) {
        refuse(*theirs);
    }
    for (const Parameter& p : list_) { // also what is not in use now
        if (p.param->is_lent() && number->overlaps(*p.param)) {
            refuse("weight of '" + p.name + "'");
        }
        if (p.grad != nullptr && p.grad->is_lent() && number->overlaps(*p.grad)) {
            refuse("gradient of '" + p.name + "'");
        }
    }
}

void Parameters::publish(Stream& stream) {
    for (int32_t i = 0; i < count(); ++i) {
        list_[static_cast<std::size_t>(i)].has_values = true;
        send_weight(stream, *this, i);
    }
    if (sharding_ != nullptr) {
        sharding_->publish(stream); // from the owners' slices
    }
}

bool shares_amax(const Parameter& parameter) {
    const Format format = parameter.param->format();
    return parameter.layout.is_frozen && parameter.layout.states == Placement::slice &&
           (format.grid.is_one() || format.policy.rule == numerics::ScaleRule::nvfp4) &&
           format.is_quantized();
}

void check_have_values(const Parameters& parameters) {
    for (const Parameter& p : parameters) {
        if (!p.has_values) {
            fail(
                Code::bad_state,
                "optimizer: '%s' has no values yet: it was deferred, or giving it some failed; see "
                "mp_optimizer_init_params, mp_optimizer_load_params and mp_optimizer_fill_params",
                p.name.c_str());
        }
    }
}

StatesPlace states_place(const Parameters& parameters, int32_t index) {
    const Parameter& p = parameters[index];
    const Shape& shape = p.param->shape();
    const shard::ShardSlice own = parameters.slice(index);
    StatesPlace place;
    place.weight = p.layout.kept; // of codes for use: the owner's exact numbers
    place.formats = p.layout.formats;
    place.shape.assign(shape.sizes.begin(), shape.sizes.begin() + shape.ndim);
    place.whole = p.param->count();
    place.start = own.start;
    place.count = own.count;
    place.is_everywhere = p.layout.states == Placement::whole;
    place.is_copy = !place.is_everywhere && parameters.sharding()->groups().group() > 0;
    place.stream = &parameters.state_stream(index, parameters.context().stream());
    place.states = p.states.has_value() ? &*p.states : nullptr;
    if (p.states.has_value() || p.layout.is_frozen) {
        place.param = parameters.weight(index);
    }
    return place;
}

void read_state(Stream& stream, const Parameters& parameters, int32_t index,
                const std::string& name, const Tensor& values) {
    const Parameter& p = parameters[index];
    check_values(parameters, index, values);
    read_values(parameters.state_stream(index, stream), *p.states, parameters.weight(index), name,
                values.ref(), p.name);
}

void write_state(Stream& stream, Parameters& parameters, int32_t index, const std::string& name,
                 const Tensor& values) {
    const Parameter& p = parameters[index];
    check_values(parameters, index, values);
    write_values(parameters.state_stream(index, stream), *p.states, parameters.weight(index), name,
                 values.ref(), p.name);
    send_weight(stream, parameters, index);
}

} // namespace mp::optim
