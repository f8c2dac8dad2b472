/* SPDX-License-Identifier: Apache-2.0
 * docs/model_files.md: an adapter for llama.cpp and for PEFT, which are read again. */
#include <sys/stat.h>

#include "frame.h"

enum { in = 8, out = 6, rank = 2 };
static float as[rank * in], bs[out * rank], again[out * rank];

static void check(const char* path, const char* name, const float* expected, int64_t count) {
    mp_model_file* model = NULL;
    int64_t index = 0;
    MP_TRY(mp_model_file_open(path, 0, &model));
    MP_TRY(mp_model_file_get_index(model, name, &index));
    MP_TRY(mp_model_file_read_floats(model, index, 0, again, count));
    must(memcmp(again, expected, (size_t)count * sizeof(float)) == 0, name);
    mp_model_file_destroy(model);
}

int main(void) {
    mp_context* context;
    mp_model_writer* writer = NULL;
    MP_TRY(mp_context_create(NULL, &context));
    fill(as, rank * in, 1);
    fill(bs, out * rank, 2);
    mp_tensor *a = wrapped(context, as, rank, in), *b = wrapped(context, bs, out, rank);
    remove("adapter.gguf");
    /* snippet: gguf */
    mp_model_writer_destroy(writer);
    check("adapter.gguf", "blk.0.attn_q.weight.lora_b", bs, out * rank);

    (void)mkdir("adapter", 0777);
    remove("adapter/adapter_model.safetensors");
    FILE* config = fopen("adapter/adapter_config.json", "w");
    must(config != NULL, "the folder can be written to");
    /* snippet: peft */
    fclose(config);
    mp_model_writer_destroy(writer);
    check("adapter/adapter_model.safetensors",
          "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", as, rank * in);

    mp_tensor_destroy(a);
    mp_tensor_destroy(b);
    mp_context_destroy(context);
    return 0;
}
