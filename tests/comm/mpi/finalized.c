/* SPDX-License-Identifier: Apache-2.0
 * A program that calls MPI_Finalize while communicators, an optimizer, a checkpoint and a request live: whatever it then calls
 * is MP_STATUS_BAD_STATE, each on a communicator that has not failed before, and all of it can be destroyed. What a single rank
 * does without talking to anybody may succeed.
 *
 * usage: finalized RESULT_FOLDER */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mixedprec.h"

static void must(mp_status status, const char* what) {
    if (status < 0) {
        fprintf(stderr, "%s: %s: %s\n", what, mp_status_string(status), mp_last_error_message());
        exit(1);
    }
}
#define MUST(call) must(call, #call)

static mp_context* context;
static const char* folder;

/* What one operation needs, made before MPI_Finalize. */
typedef struct Kit {
    mp_comm* comm;
    mp_optimizer* optimizer;
    mp_checkpoint* checkpoint;
    mp_comm_request* request;
    mp_tensor* tensor;
    mp_tensor* other;
} Kit;

static mp_tensor* make_tensor(int64_t count) {
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* tensor = NULL;
    desc.dtype = MP_DTYPE_FP32;
    desc.ndim = 1;
    desc.shape[0] = count;
    MUST(mp_tensor_create(context, &desc, &tensor));
    return tensor;
}

static Kit make_kit(mp_recipe* recipe) {
    Kit kit;
    mp_comm_desc desc = MP_COMM_DESC_INIT;
    mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
    mp_param_group_desc group = MP_PARAM_GROUP_DESC_INIT;
    mp_param_desc param = MP_PARAM_DESC_INIT;
    memset(&kit, 0, sizeof kit);
    desc.deadline_ms = 20000;
    MUST(mp_comm_create_mpi(&desc, NULL, &kit.comm));
    kit.tensor = make_tensor(64);
    kit.other = make_tensor(64);
    sharding.stage = 2;
    MUST(mp_optimizer_create_sharded(context, recipe, NULL, kit.comm, &sharding, &kit.optimizer));
    MUST(mp_optimizer_add_group(kit.optimizer, &group, NULL));
    param.name = "weight";
    param.param = kit.tensor;
    MUST(mp_optimizer_add_param(kit.optimizer, 0, &param, NULL));
    MUST(mp_optimizer_shard(kit.optimizer, NULL));
    MUST(mp_checkpoint_create(context, kit.comm, NULL, &kit.checkpoint));
    MUST(mp_checkpoint_add_optimizer(kit.checkpoint, kit.optimizer));
    return kit;
}

static mp_status exchange(Kit* kit, int to_all) {
    static char memory[2][64];
    static int64_t bytes[8] = {8, 8, 8, 8, 8, 8, 8, 8};
    static int64_t offsets[8] = {0, 8, 16, 24, 32, 40, 48, 56};
    mp_comm_exchange what = MP_COMM_EXCHANGE_INIT;
    what.send = memory[0];
    what.receive = memory[1];
    what.send_bytes = what.receive_bytes = bytes;
    what.send_offsets = what.receive_offsets = offsets;
    return to_all ? mp_comm_all_to_all(kit->comm, NULL, &what, NULL)
                  : mp_comm_all_gather(kit->comm, NULL, &what, NULL);
}

static mp_status barrier(Kit* kit) { return mp_comm_barrier(kit->comm, NULL); }
static mp_status all_to_all(Kit* kit) { return exchange(kit, 1); }
static mp_status all_gather(Kit* kit) { return exchange(kit, 0); }
static mp_status broadcast(Kit* kit) {
    char byte = 0;
    return mp_comm_broadcast(kit->comm, NULL, &byte, 1, 0, NULL);
}
static mp_status max_u32(Kit* kit) {
    uint32_t value = 1;
    return mp_comm_max_u32(kit->comm, &value, 1, NULL);
}
static mp_status all_reduce(Kit* kit) {
    const mp_tensor* const sources[] = {kit->tensor};
    return mp_comm_all_reduce(kit->comm, NULL, NULL, sources, 1, kit->other, NULL);
}
static mp_status fast_sum(Kit* kit) {
    const mp_tensor* const sources[] = {kit->tensor};
    mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
    desc.order = MP_COMM_ORDER_FAST;
    return mp_comm_all_reduce(kit->comm, NULL, &desc, sources, 1, kit->other, NULL);
}
static mp_status split(Kit* kit) {
    mp_comm* part = NULL;
    return mp_comm_split(kit->comm, 0, 0, &part);
}
static mp_status request(Kit* kit) { return mp_comm_barrier(kit->comm, &kit->request); }
static mp_status step(Kit* kit) { return mp_optimizer_step(kit->optimizer, NULL, NULL); }
static mp_status save(Kit* kit) { return mp_checkpoint_save(kit->checkpoint, folder, 1, 0); }
static mp_status save_behind(Kit* kit) {
    const mp_status begun = mp_checkpoint_save(kit->checkpoint, folder, 1, MP_SAVE_BACKGROUND);
    return begun < 0 ? begun : mp_checkpoint_wait(kit->checkpoint);
}
static mp_status load(Kit* kit) { return mp_checkpoint_load(kit->checkpoint, folder, 0, NULL); }
static mp_status create(Kit* kit) {
    mp_comm* again = NULL;
    (void)kit;
    return mp_comm_create_mpi(NULL, NULL, &again);
}

static const struct {
    const char* name;
    mp_status (*call)(Kit*);
} operations[] = {{"barrier", barrier},
                  {"all_to_all", all_to_all},
                  {"all_gather", all_gather},
                  {"broadcast", broadcast},
                  {"max_u32", max_u32},
                  {"all_reduce", all_reduce},
                  {"fast_sum", fast_sum},
                  {"split", split},
                  {"request", request},
                  {"step", step},
                  {"save", save},
                  {"save_behind", save_behind},
                  {"load", load},
                  {"create", create}};
enum { COUNT = sizeof operations / sizeof operations[0] };

static void destroy(Kit* kit) {
    mp_comm_request_destroy(kit->request);
    mp_checkpoint_destroy(kit->checkpoint);
    mp_optimizer_destroy(kit->optimizer);
    mp_tensor_destroy(kit->tensor);
    mp_tensor_destroy(kit->other);
    mp_comm_destroy(kit->comm);
}

int main(int count, char** arguments) {
    int level = 0;
    int32_t rank = 0;
    int32_t size = 0;
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    mp_recipe* recipe = NULL;
    Kit kits[COUNT];
    Kit waits;
    char path[1000];
    char wrong[2000] = "ok";
    if (count != 2) {
        return 1;
    }
    folder = arguments[1];
    desc.num_threads = 1;
    MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &level);
    MUST(mp_context_create(&desc, &context));
    MUST(mp_recipe_create(context, "fp32", &recipe));
    for (int i = 0; i < COUNT; ++i) {
        kits[i] = make_kit(recipe);
    }
    waits = make_kit(recipe);
    MUST(mp_comm_get_rank(waits.comm, &rank));
    MUST(mp_comm_get_size(waits.comm, &size));
    MUST(mp_comm_barrier(waits.comm, &waits.request));
    MUST(mp_comm_request_wait(waits.request)); /* or it is this program's mistake */
    MPI_Finalize();

    for (int i = 0; i < COUNT; ++i) {
        const mp_status status = operations[i].call(&kits[i]);
        const char* text = mp_last_error_message();
        const int is_refused =
            status == MP_STATUS_BAD_STATE && strstr(text, "MPI was finalized") != NULL;
        if (!is_refused && !(size == 1 && status >= 0)) {
            (void)snprintf(wrong, sizeof wrong, "%s: %s: %s", operations[i].name,
                           mp_status_string(status), text);
        }
    }
    for (int i = 0; i < COUNT; ++i) {
        destroy(&kits[i]);
    }
    destroy(&waits);
    mp_recipe_destroy(recipe);
    mp_context_destroy(context);
    (void)snprintf(path, sizeof path, "%s/rank%d", folder, (int)rank);
    FILE* file = fopen(path, "w");
    if (file == NULL) {
        return 1;
    }
    fputs(wrong, file);
    fclose(file);
    return 0;
}
