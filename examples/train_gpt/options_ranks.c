/* SPDX-License-Identifier: Apache-2.0
 * The options that are about ranks. */
#include "options.h"

#include <string.h>

#include <mixedprec.h>

int options_parse_sharing(Options* o) {
    static const char* const orders[] = {"rank", "tree", "exact"};
    o->shared = o->ranks > 1 || o->mpi || o->zero >= 0 || o->shard_ranks > 0 || o->node_ranks > 0 ||
                o->order_name != NULL || o->wire_name != NULL;
    o->zero = o->zero >= 0 ? o->zero : 1;
    o->order = o->order_name == NULL ? MP_COMM_ORDER_RANK : -1;
    for (int32_t i = 0; o->order < 0 && i < 3; i++) {
        o->order = strcmp(o->order_name, orders[i]) == 0 ? i : -1;
    }
    if (o->order < 0) {
        return usage_error("--order is rank, tree or exact, not '%s'", o->order_name);
    }
    o->wire_dtype = MP_DTYPE_NONE;
    for (int32_t dtype = MP_DTYPE_FP32; o->wire_name != NULL && dtype <= MP_DTYPE_FP8_E5M2;
         dtype++) {
        if (strcmp(o->wire_name, mp_dtype_name(dtype)) == 0) {
            o->wire_dtype = dtype;
        }
    }
    if (o->wire_name != NULL && o->wire_dtype == MP_DTYPE_NONE) {
        return usage_error("--wire-dtype is fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2, not '%s'",
                           o->wire_name);
    }
    return EXIT_OK;
}

int options_check_ranks(const Options* o, int64_t ranks) {
    if (o->accum < ranks) {
        return usage_error("--accum %lld is too few passes for %lld ranks: each takes at least one "
                           "of a step's; say --accum %lld",
                           (long long)o->accum, (long long)ranks, (long long)ranks);
    }
    if (o->shard_ranks > 0 && ranks % o->shard_ranks != 0) {
        return usage_error("--shard-ranks %lld must divide the %lld ranks, so that each group "
                           "has as many",
                           (long long)o->shard_ranks, (long long)ranks);
    }
    if (o->node_ranks > 0 && ranks % o->node_ranks != 0) {
        return usage_error("--node-ranks %lld must divide the %lld ranks", (long long)o->node_ranks,
                           (long long)ranks);
    }
    if (o->zero == 3 && o->accum % ranks != 0) {
        return usage_error("--zero 3 gathers weights for every pass, so all ranks take equally "
                           "many: --accum %lld must be a multiple of %lld ranks",
                           (long long)o->accum, (long long)ranks);
    }
    return EXIT_OK;
}

int options_check_sharing(const Options* o) {
    if (!o->shared) {
        return EXIT_OK;
    }
    if (o->mpi && o->ranks > 1) {
        return usage_error("--mpi has as many ranks as mpirun starts: leave --ranks out");
    }
    if (o->mpi && o->recipe_count > 1) {
        return usage_error("--mpi wants a single recipe: --compare starts processes of its own");
    }
    if (o->node_ranks > 0 && (o->shard_ranks > 0 || o->order != MP_COMM_ORDER_RANK)) {
        return usage_error("--node-ranks rounds the sums of a node to the wire: it goes with "
                           "--order rank, and without --shard-ranks");
    }
    if (o->save != NULL) {
        return usage_error("--save writes what one rank holds, and ranks share the weights' exact "
                           "values: use --checkpoint");
    }
    return o->mpi ? EXIT_OK : options_check_ranks(o, o->ranks);
}
