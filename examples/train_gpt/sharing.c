/* SPDX-License-Identifier: Apache-2.0
 * Parameters on ranks: what they share, memory that comes and goes (--zero 2 and 3), gradients on their way, and what
 * all that should cost. On a single rank only gradients of own kernels are left of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"

/* A bucket of gradients leaves once it has so many elements. Small beside the library's default: so are the models. */
enum { BUCKET_ELEMENTS = 1 << 20 };

static int64_t elements(const Param* p) { return p->rows * (p->cols > 0 ? p->cols : 1); }

bool params_come_and_go(const Params* params) {
    return params->ranks->comm != NULL && params->options->zero == 3;
}

bool params_have_slots(const Params* params) {
    return params->ranks->comm != NULL && params->options->order != MP_COMM_ORDER_RANK;
}

/* States with one scale for a tensor cannot be cut. */
static bool has_scaled_states(const Params* params, bool* scaled) {
    static const char* const keys[] = {MP_RECIPE_WEIGHT_DTYPE, MP_RECIPE_MASTER_DTYPE,
                                       MP_RECIPE_EXP_AVG_DTYPE, MP_RECIPE_EXP_AVG_SQ_DTYPE};
    *scaled = false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char* name = NULL;
        TRY(mp_recipe_get_string(params->recipe, keys[i], &name));
        *scaled = *scaled || strstr(name, "_scaled") != NULL;
    }
    return true;
}

bool params_create_optimizer(Params* params, const mp_optimizer_desc* desc) {
    const Options* o = params->options;
    if (params->ranks->comm == NULL) {
        TRY(mp_optimizer_create(params->context, params->recipe, desc, &params->optimizer));
        return true;
    }
    bool scaled = false;
    TRY_OWN(has_scaled_states(params, &scaled));
    params->plan = scaled ? MP_SHARDING_GREEDY : MP_SHARDING_FLAT;
    mp_zero_desc zero = MP_ZERO_DESC_INIT;
    zero.flags = MP_ZERO_SUM_GRADIENTS; /* each loss is divided by the number of passes */
    zero.zero_stage = (int32_t)o->zero;
    zero.kind = params->plan;
    zero.bucket_elements = BUCKET_ELEMENTS;
    zero.wire_dtype = o->wire_dtype;
    zero.order = o->order;
    zero.slots = params_have_slots(params) ? (int32_t)o->accum : 0;
    zero.shard_ranks = (int32_t)o->shard_ranks;
    zero.node_ranks = (int32_t)o->node_ranks;
    TRY(mp_optimizer_create_sharded(params->context, params->recipe, desc, params->ranks->comm,
                                    &zero, &params->optimizer));
    return true;
}

bool params_shard(Params* params) {
    if (params->ranks->comm != NULL) {
        TRY(mp_optimizer_shard(params->optimizer, NULL));
    }
    return true;
}

bool params_sharded_memory(const Params* params, const int64_t* counts, mp_memory_report* report) {
    mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
    sharding.ranks = params->ranks->count;
    sharding.rank = params->ranks->rank;
    sharding.zero_stage = (int32_t)params->options->zero;
    sharding.kind = params->plan;
    sharding.bucket_elements = BUCKET_ELEMENTS;
    sharding.shard_ranks = (int32_t)params->options->shard_ranks;
    TRY(mp_recipe_memory_sharded(params->recipe, MP_RULE_ADAMW, counts, params->count, &sharding,
                                 report));
    return true;
}

/* The parameters of a group: PARAMS_EMBEDDINGS, a block, or what comes behind the blocks. */
static int group_first(const Params* params, int64_t group) {
    const int64_t behind = params->count - PARAMS_BEHIND_BLOCKS;
    const int64_t first = PARAM_BLOCKS + group * PARAMS_PER_BLOCK;
    return group == PARAMS_EMBEDDINGS ? 0 : (int)(first < behind ? first : behind);
}

static int group_size(const Params* params, int64_t group) {
    const int first = group_first(params, group);
    return group == PARAMS_EMBEDDINGS                      ? PARAM_BLOCKS
           : first + PARAMS_BEHIND_BLOCKS == params->count ? PARAMS_BEHIND_BLOCKS
                                                           : PARAMS_PER_BLOCK;
}

static int32_t list_group(const Params* params, int64_t group, int32_t* indices) {
    const int first = group_first(params, group), size = group_size(params, group);
    for (int i = 0; i < size; i++) {
        indices[i] = params->list[first + i].index;
    }
    return size;
}

/* Bytes of one element of a weight between ranks. */
static double gathered_bytes(const Params* params, const Param* p) {
    const char* name = NULL;
    int32_t dtype = MP_DTYPE_FP32, size = 0, narrow = 0;
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    if (mp_tensor_get_desc(p->weight.tensor, &desc) >= 0) {
        dtype = desc.dtype;
    }
    size = (int32_t)mp_dtype_size(dtype);
    if (dtype != params->dtype || params->scaled ||
        mp_recipe_get_string(params->recipe, MP_RECIPE_WEIGHT_GATHER_DTYPE, &name) < 0) {
        return size;
    }
    for (int32_t i = MP_DTYPE_FP32; i <= MP_DTYPE_FP8_E5M2; i++) {
        narrow = strcmp(mp_dtype_name(i), name) == 0 ? (int32_t)mp_dtype_size(i) : narrow;
    }
    return narrow > 0 && narrow < size ? narrow : size;
}

bool params_gather_begin(Params* params, int64_t group) {
    if (!params_come_and_go(params)) {
        return true;
    }
    int32_t indices[PARAMS_PER_BLOCK];
    const int32_t count = list_group(params, group, indices);
    TRY(mp_optimizer_gather_begin(params->optimizer, NULL, indices, count));
    for (int32_t i = 0; i < count; i++) {
        const Param* p = &params->list[group_first(params, group) + i];
        params->gathered += (double)elements(p) * gathered_bytes(params, p);
    }
    return true;
}

bool params_gather_wait(Params* params, int64_t group) {
    if (!params_come_and_go(params)) {
        return true;
    }
    int32_t indices[PARAMS_PER_BLOCK];
    const int32_t count = list_group(params, group, indices);
    TRY(mp_optimizer_gather_wait(params->optimizer, NULL, indices, count));
    for (int32_t i = 0; i < count; i++) {
        Param* p = &params->list[group_first(params, group) + i];
        TRY(mp_tensor_data(p->weight.tensor, &p->weight.memory));
        if (p->value.tensor != NULL) {
            TRY(mp_tensor_cast(NULL, p->weight.tensor, p->value.tensor, NULL));
        }
    }
    return true;
}

bool params_release(Params* params, int64_t group) {
    if (!params_come_and_go(params)) {
        return true;
    }
    int32_t indices[PARAMS_PER_BLOCK];
    const int32_t count = list_group(params, group, indices);
    TRY(mp_optimizer_release(params->optimizer, NULL, indices, count));
    return true;
}

bool params_begin_gradients(Params* params, int64_t group, bool first) {
    for (int i = 0; i < group_size(params, group); i++) {
        Param* p = &params->list[group_first(params, group) + i];
        if (params->ranks->comm != NULL && params->options->zero >= 2) {
            TRY(mp_optimizer_acquire_grad(params->optimizer, NULL, p->index));
            TRY(mp_tensor_data(p->grad.tensor, &p->grad.memory));
        }
        if (p->own_kernels && (first || p->gradient.tensor != NULL)) {
            memset(param_gradient(p), 0, sizeof(float) * (size_t)p->weight.count);
        }
    }
    return true;
}

/* Rounds the fp32 gradient of a pass into the main one. */
static bool round_gradient(Params* params, Param* p, bool first) {
    if (p->gradient.tensor == NULL) {
        return true;
    }
    if (!first) { /* added in fp32, rounded once */
        Array so_far = {0};
        TRY_OWN(array_wrap(&so_far, params->context, floats(&params->scratch), p->rows, p->cols));
        const bool converted = tensor_convert(p->grad.tensor, so_far.tensor);
        array_destroy(&so_far);
        TRY_OWN(converted);
        for (int64_t j = 0; j < p->weight.count; j++) {
            floats(&p->gradient)[j] += floats(&params->scratch)[j];
        }
    }
    return tensor_convert(p->gradient.tensor, p->grad.tensor);
}

bool params_end_gradients(Params* params, int64_t group, bool first, bool last) {
    const bool leave = last && params->ranks->comm != NULL && !params_have_slots(params);
    for (int i = group_size(params, group) - 1; i >= 0; i--) {
        Param* p = &params->list[group_first(params, group) + i];
        TRY_OWN(round_gradient(params, p, first));
        if (leave) {
            TRY(mp_optimizer_grad_ready(params->optimizer, NULL, p->index));
        }
    }
    return true;
}

bool params_end_pass(Params* params) {
    if (params_have_slots(params)) {
        TRY(mp_optimizer_end_microbatch(params->optimizer, NULL));
    }
    return true;
}

/* Bytes of one element's gradients from this rank to its owner. A rank with several slots sends partial sums: in order
 * tree one in fp32 for each whole subtree of slots that are all its own, in order exact one of 8 bytes. */
static double reduced_bytes(const Params* params, double wire) {
    const Options* o = params->options;
    const int64_t first = ranks_first(params->ranks, o->accum);
    const int64_t end = ranks_end(params->ranks, o->accum);
    if (o->order == MP_COMM_ORDER_RANK) {
        return wire;
    }
    if (o->order == MP_COMM_ORDER_EXACT) {
        return end - first > 1 ? 8.0 : wire;
    }
    double bytes = 0.0;
    for (int64_t slot = first; slot < end;) {
        int64_t size = 1;
        while (slot % (2 * size) == 0 && size < o->accum &&
               (slot + 2 * size <= end || end == o->accum)) {
            size *= 2;
        }
        const int64_t next = slot + size < end ? slot + size : end;
        bytes += next - slot > 1 ? 4.0 : wire;
        slot = next;
    }
    return bytes;
}

/* Bytes of all gradients from this rank to their owners: those of its group, and then their sums in fp32 to the
 * replicas and back; or, where the order would not be kept that way, those of every group. */
static double gradient_bytes(const Params* params, double count, double wire) {
    const Options* o = params->options;
    const double ranks = params->ranks->count;
    const double group = o->shard_ranks > 0 ? (double)o->shard_ranks : ranks;
    const double groups = ranks / group;
    const int64_t slots = o->accum / (int64_t)groups; /* of a group */
    const bool whole_subtree = o->accum % (int64_t)groups == 0 && (slots & (slots - 1)) == 0;
    const double each = reduced_bytes(params, wire);
    if (groups > 1.0 &&
        (o->order == MP_COMM_ORDER_EXACT || (o->order == MP_COMM_ORDER_TREE && !whole_subtree))) {
        return each * count * (ranks - 1.0) / group;
    }
    if (o->node_ranks > 0) { /* inside a node, then among nodes */
        const double node = (double)o->node_ranks, nodes = ranks / node;
        return each * count * ((node - 1.0) / node + (nodes - 1.0) / nodes / node);
    }
    const double across = 2.0 * 4.0 * (groups - 1.0) / groups / group;
    return count * (each * (group - 1.0) / group + across);
}

bool params_expected_traffic(Params* params, double* bytes) {
    const Options* o = params->options;
    const double ranks = params->ranks->count;
    const double group = o->shard_ranks > 0 ? (double)o->shard_ranks : ranks;
    double weights = 0.0;
    *bytes = 0.0;
    if (params->ranks->comm == NULL) {
        return true;
    }
    int64_t count = 0, wire_bytes = 0;
    int32_t wire = o->wire_dtype;
    const char* name = NULL;
    TRY(mp_recipe_get_string(params->recipe, MP_RECIPE_GRAD_REDUCE_DTYPE, &name));
    for (int32_t i = MP_DTYPE_FP32; o->wire_dtype == MP_DTYPE_NONE && i <= MP_DTYPE_FP8_E5M2; i++) {
        wire = strcmp(mp_dtype_name(i), name) == 0 ? i : wire;
    }
    for (int i = 0; i < params->count; i++) {
        const Param* p = &params->list[i];
        count += elements(p);
        weights += (double)elements(p) * (o->zero == 0 ? 4.0 : gathered_bytes(params, p));
    }
    TRY(mp_comm_wire_bytes(count, wire, MP_COMM_SCALE_DEFAULT, &wire_bytes));
    const double wire_each = (double)wire_bytes / (double)count;
    *bytes = gradient_bytes(params, (double)count, wire_each) +
             (group - 1.0) / group * (o->zero == 3 ? params->gathered : weights);
    params->gathered = 0.0;
    if (o->order == MP_COMM_ORDER_EXACT && params->ranks->count > 1) {
        *bytes += 4.0 * (double)count / 128.0 * ranks / group; /* each block's magnitude */
    }
    return true;
}
