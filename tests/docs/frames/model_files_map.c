/* SPDX-License-Identifier: Apache-2.0 */
/* A layer of GPT-2 whose weights have other names here. */
#include "frame.h"

static void write_model(void) {
    mp_model_writer* writer = NULL;
    const int64_t table[2] = {3, 2}, attention[2] = {2, 6};
    float values[12];
    int64_t index = 0;
    for (int i = 0; i < 12; ++i) {
        values[i] = (float)i;
    }
    remove("gpt2.safetensors");
    MP_TRY(mp_model_writer_create("gpt2.safetensors", NULL, &writer));
    MP_TRY(mp_model_writer_add_tensor(writer, "transformer.wte.weight", MP_DTYPE_FP32, 2, table,
                                      &index));
    MP_TRY(mp_model_writer_add_tensor(writer, "transformer.h.0.attn.c_attn.weight", MP_DTYPE_FP32,
                                      2, attention, &index));
    MP_TRY(mp_model_writer_write_floats(writer, 0, 0, values, 6));
    MP_TRY(mp_model_writer_write_floats(writer, 1, 0, values, 12));
    MP_TRY(mp_model_writer_finish(writer));
    mp_model_writer_destroy(writer);
}

int main(void) {
    mp_context* context = NULL;
    mp_tensor* slice = NULL;
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    const int64_t first_row = 1;
    unsigned short row[2] = {0, 0};
    write_model();
    MP_TRY(mp_context_create(NULL, &context));
    desc.dtype = MP_DTYPE_BF16;
    desc.ndim = 2;
    desc.shape[0] = 1;
    desc.shape[1] = 2;
    MP_TRY(mp_tensor_create(context, &desc, &slice));
    /* snippet: map */
    MP_TRY(mp_tensor_read(slice, NULL, row, sizeof row));
    must(row[0] == 0x4040 && row[1] == 0x4110, "the second row of k is 3 and 9");
    mp_model_file_destroy(model);
    mp_tensor_destroy(slice);
    mp_context_destroy(context);
    return 0;
}
