// SPDX-License-Identifier: Apache-2.0
// mp_linear_merge_adapters
#include "boundary.hpp"
#include "layer_pass_of.hpp"
#include "linear/merge.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

mp_status mp_linear_merge_adapters(mp_linear* linear, mp_queue* queue, int64_t first_row,
                                   mp_tensor* target, uint32_t flags, mp_merge_report* report) {
    return boundary([&] {
        LinearObject& object = *object_of(linear, "linear");
        check_flags(flags, MP_MERGE_REQUANTIZE, "flags");
        Tensor& to = *object_of(target, "target");
        if ((to.scales() != nullptr || is_in_blocks(to.dtype())) &&
            (flags & MP_MERGE_REQUANTIZE) == 0) {
            fail(Code::invalid_dtype,
                 "linear: target is codes, in which a small change may be lost; pass "
                 "MP_MERGE_REQUANTIZE where that is meant, and a report to see what is lost");
        }
        if (report != nullptr) {
            (void)size_of_struct(report, "report");
        }
        linear::MergeReport found;
        linear::merge(stream_of(queue, *object.layer.context()), saved_pass(object, nullptr),
                      first_row, to, report != nullptr ? &found : nullptr);
        if (report != nullptr) {
            mp_merge_report result = MP_MERGE_REPORT_INIT;
            result.elements = found.elements;
            result.rms_change = found.rms_change;
            result.rms_error = found.rms_error;
            result.max_error = found.max_error;
            write_struct(report, result, "report");
        }
    });
}
