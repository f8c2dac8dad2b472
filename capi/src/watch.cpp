// SPDX-License-Identifier: Apache-2.0
// watch.h
#include "boundary.hpp"
#include "objects.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

mp_status mp_optimizer_set_guard(mp_optimizer* optimizer, mp_queue* queue,
                                 const mp_guard_desc* desc) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        Stream& stream = stream_of(queue, *object.context());
        if (desc == nullptr) {
            object.guard().set(stream, {});
            return;
        }
        const auto source = read_struct(desc, "desc");
        optim::GuardOptions options;
        options.window = source.window != 0 ? source.window : options.window;
        options.max_grad_norm_z = source.max_grad_norm_z;
        options.max_loss_z = source.max_loss_z;
        object.guard().set(stream, options);
    });
}

mp_status mp_optimizer_get_guard(const mp_optimizer* optimizer, mp_guard_desc* desc) {
    return boundary([&] {
        const optim::GuardOptions& options = object_of(optimizer, "optimizer")->guard().options();
        mp_guard_desc result{};
        result.window = options.window;
        result.max_grad_norm_z = options.max_grad_norm_z;
        result.max_loss_z = options.max_loss_z;
        write_struct(desc, result, "desc");
    });
}

mp_status mp_optimizer_set_loss(mp_optimizer* optimizer, double loss) {
    return boundary([&] { object_of(optimizer, "optimizer")->guard().set_loss(loss); });
}

mp_status mp_optimizer_set_history(mp_optimizer* optimizer, int32_t steps, const char* path) {
    return boundary([&] {
        object_of(optimizer, "optimizer")->history() =
            optim::StepHistory(steps, path != nullptr ? path : "");
    });
}

mp_status mp_optimizer_get_record_count(const mp_optimizer* optimizer, int32_t* count) {
    return boundary(
        [&] { *required(count, "count") = object_of(optimizer, "optimizer")->history().count(); });
}

mp_status mp_optimizer_get_record(const mp_optimizer* optimizer, int32_t index,
                                  mp_step_record* record) {
    return boundary([&] {
        const optim::StepRecord& source = object_of(optimizer, "optimizer")->history().at(index);
        mp_step_record result{};
        result.outcome = static_cast<uint32_t>(source.outcome);
        result.call = source.call;
        result.step = source.step;
        result.loss = source.loss;
        result.loss_scale = source.loss_scale;
        result.lr = source.lr;
        result.grad_norm = source.grad_norm;
        result.grad_mul = source.grad_mul;
        result.grad_norm_z = source.grad_norm_z;
        result.loss_z = source.loss_z;
        write_struct(record, result, "record");
    });
}

mp_status mp_optimizer_get_bad_tensor(const mp_optimizer* optimizer, char* buffer, size_t capacity,
                                      size_t* needed) {
    return boundary([&] {
        copy_text(object_of(optimizer, "optimizer")->history().bad().first, buffer, capacity,
                  needed);
    });
}
