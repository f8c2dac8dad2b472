/* SPDX-License-Identifier: Apache-2.0 */
/* A file of one tensor is written and read again. */
#include "frame.h"

int main(void) {
    remove("tiny.gguf");
    /* snippet: write */
    mp_model_file* model = NULL;
    MP_TRY(mp_model_file_open("tiny.gguf", 0, &model));
    MP_TRY(mp_model_file_read_floats(model, 0, 0, values, 64));
    mp_model_file_destroy(model);
    return values[63] == 0.0F ? 0 : 1;
}
