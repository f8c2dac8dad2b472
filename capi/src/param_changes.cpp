// SPDX-License-Identifier: Apache-2.0
// param_changes.h, and optimizer.h's parameters.
#include <functional>
#include <vector>

#include "boundary.hpp"
#include "mixedprec/param_changes.h"
#include "objects.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

namespace {

optim::NewParameter parameter_of(const mp_param_desc& source) {
    check_flags(source.flags, MP_PARAM_NORM_ELSEWHERE | MP_PARAM_FROZEN, "desc.flags");
    optim::NewParameter parameter;
    parameter.counts_elsewhere = (source.flags & MP_PARAM_NORM_ELSEWHERE) != 0;
    parameter.is_frozen = (source.flags & MP_PARAM_FROZEN) != 0;
    parameter.name = required(source.name, "desc.name");
    parameter.param = shape_of(source.param, "desc.param");
    if (source.grad != nullptr) {
        parameter.grad = shape_of(source.grad, "desc.grad");
    }
    if (source.init_fp32 != nullptr) {
        parameter.init_fp32 = object_of(source.init_fp32, "desc.init_fp32");
    }
    return parameter;
}

// Returns the number of the first one. What is wrong with them other ranks hear, too.
int32_t add_parameters(optim::Optimizer& object, int32_t group,
                       const std::function<std::vector<mp_param_desc>()>& descs) {
    Stream& stream = object.context()->stream();
    const int32_t first = object.add_parameters(stream, group, [&] {
        stream.refuse_capture("optimizer: a parameter is to be added");
        std::vector<optim::NewParameter> parameters;
        for (const mp_param_desc& desc : descs()) {
            parameters.push_back(parameter_of(desc));
        }
        return parameters;
    });
    complete(stream);
    return first;
}

} // namespace

mp_status mp_optimizer_add_param(mp_optimizer* optimizer, int32_t group, const mp_param_desc* desc,
                                 int32_t* index) {
    return boundary([&] {
        const int32_t number = add_parameters(*object_of(optimizer, "optimizer"), group, [&] {
            return std::vector{read_struct(desc, "desc")};
        });
        if (index != nullptr) {
            *index = number;
        }
    });
}

mp_status mp_optimizer_add_params(mp_optimizer* optimizer, int32_t group,
                                  const mp_param_desc* descs, int32_t count, int32_t* first) {
    return boundary([&] {
        const int32_t number = add_parameters(*object_of(optimizer, "optimizer"), group, [&] {
            (void)list_of(descs, count, "descs", "count");
            return read_structs(descs, count, "descs");
        });
        if (first != nullptr) {
            *first = number;
        }
    });
}

mp_status mp_optimizer_set_frozen(mp_optimizer* optimizer, mp_queue* queue, const int32_t* indices,
                                  int32_t count, int32_t frozen) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        Stream& stream = stream_of(queue, *object.context());
        object.set_frozen(
            stream,
            [&] {
                stream.refuse_capture("optimizer: parameters are to be frozen, or trained");
                return list_of(indices, count, "indices", "count");
            },
            frozen != 0);
    });
}

mp_status mp_optimizer_get_frozen(const mp_optimizer* optimizer, int32_t index, int32_t* frozen) {
    return boundary([&] {
        *required(frozen, "frozen") =
            object_of(optimizer, "optimizer")->parameters()[index].layout.is_frozen ? 1 : 0;
    });
}
