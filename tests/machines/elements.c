/* SPDX-License-Identifier: Apache-2.0
 * Casts between all types, the largest magnitudes, and every scaling and rule of the quantizers. */
#include "bits.h"

#include <stdio.h>
#include <string.h>

enum { kCodes = 65536 + 5, kRows = 133, kColumns = 140 }; /* not multiples of a vector or a block */

/* Random bits of fp32, NaN and infinity among them; every code of the other types. */
static mp_tensor* make_codes(Bits* bits, int32_t dtype) {
    mp_tensor* tensor = make(bits, dtype, 1, kCodes);
    unsigned char* data = data_of(tensor);
    const size_t size = mp_dtype_size(dtype);
    uint32_t state = 7;
    size_t i = 0;
    for (i = 0; i < kCodes; ++i) {
        const uint32_t random = next_bits(&state);
        const uint32_t code = (uint32_t)i;
        const uint16_t code16 = (uint16_t)i;
        if (size == 1) {
            data[i] = (unsigned char)(code & 0xffU);
        } else {
            memcpy(data + i * size, size == 2 ? (const void*)&code16 : (const void*)&random, size);
        }
    }
    return tensor;
}

static void show_cast(Bits* bits, int32_t from, const mp_tensor* source, int32_t to) {
    static const char* const kNames[] = {"nearest", "nearest_other", "stochastic",
                                         "stochastic_other"};
    const int is_fp8 = to == MP_DTYPE_FP8_E4M3 || to == MP_DTYPE_FP8_E5M2;
    mp_tensor* destination = make(bits, to, 1, kCodes);
    int mode = 0;
    for (mode = 0; mode < 4; ++mode) {
        mp_cast_desc desc = MP_CAST_DESC_INIT;
        desc.rounding = mode < 2 ? MP_ROUND_NEAREST : MP_ROUND_STOCHASTIC;
        desc.seed = 5;
        desc.uid = 9;
        desc.step = 3;
        if (mode % 2 == 1) { /* the behaviour at overflow that is not the type's usual one */
            desc.flags = is_fp8 ? MP_CAST_NO_SATURATE : MP_CAST_SATURATE;
        }
        OK(mp_tensor_cast(source, NULL, destination, &desc));
        show(data_of(destination), bytes_of(destination), "cast.%s.%s.%s", mp_dtype_name(from),
             mp_dtype_name(to), kNames[mode]);
    }
    mp_tensor_destroy(destination);
}

static void show_amax(Bits* bits, int32_t dtype, const mp_tensor* codes) {
    mp_tensor* numbers = make_numbers(bits, dtype, 3, 4099, 11, 8.0F);
    mp_tensor* amax = make(bits, MP_DTYPE_FP32, 1, 1);
    OK(mp_tensor_amax(codes, NULL, amax));
    show(data_of(amax), sizeof(float), "amax.codes.%s", mp_dtype_name(dtype));
    OK(mp_tensor_amax(numbers, NULL, amax));
    show(data_of(amax), sizeof(float), "amax.numbers.%s", mp_dtype_name(dtype));
    mp_tensor_destroy(numbers);
    mp_tensor_destroy(amax);
}

void show_casts(Bits* bits) {
    int32_t from = 0;
    int32_t to = 0;
    for (from = MP_DTYPE_FP32; from <= MP_DTYPE_FP8_E5M2; ++from) {
        mp_tensor* source = make_codes(bits, from);
        for (to = MP_DTYPE_FP32; to <= MP_DTYPE_FP8_E5M2; ++to) {
            show_cast(bits, from, source, to);
        }
        show_amax(bits, from, source);
        mp_tensor_destroy(source);
    }
}

static void show_values(Bits* bits, const char* name, const mp_tensor* codes, int32_t dtype) {
    mp_tensor* values = make(bits, dtype, kRows, kColumns);
    OK(mp_tensor_dequantize(codes, NULL, values));
    show_tensor(name, mp_dtype_name(dtype), values);
    mp_tensor_destroy(values);
}

static void show_quantized(Bits* bits, const char* name, const mp_tensor* source,
                           mp_tensor* codes) {
    mp_quant_stats stats = MP_QUANT_STATS_INIT;
    mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
    mp_tensor* scales = NULL;
    mp_tensor* amax = NULL;
    mp_tensor* transposed = NULL;
    OK(mp_tensor_get_desc(codes, &desc));
    if (desc.dtype != MP_DTYPE_FP4_E2M1) { /* two to a byte are not transposed */
        transposed = make(bits, desc.dtype, kColumns, kRows);
    }
    OK(mp_tensor_quantize(source, NULL, codes, transposed, NULL, &stats));
    OK(mp_tensor_get_scales(codes, &scales));
    OK(mp_tensor_get_quantized_amax(codes, &amax));
    show_tensor(name, "codes", codes);
    show_tensor(name, "scales", scales);
    show_tensor(name, "amax", amax);
    show(&stats, sizeof stats, "%s.stats", name);
    if (transposed != NULL) {
        show_tensor(name, "turned", transposed);
    }
    show_values(bits, name, codes, MP_DTYPE_FP32);
    mp_tensor_destroy(scales);
    mp_tensor_destroy(amax);
    mp_tensor_destroy(transposed);
}

/* Numbers of many magnitudes, some of them 0, with a row that is all 0. */
static mp_tensor* make_uneven(Bits* bits, int32_t dtype) {
    mp_tensor* exact = make_numbers(bits, MP_DTYPE_FP32, kRows, kColumns, 23, 1.0F);
    mp_tensor* rounded = make(bits, dtype, kRows, kColumns);
    float* at = data_of(exact);
    int i = 0;
    for (i = 0; i < kRows * kColumns; ++i) {
        at[i] *= (float)(1 << (i % 13));
        if (i % 17 == 0 || i / kColumns == 5) {
            at[i] = 0.0F;
        }
    }
    OK(mp_tensor_cast(exact, NULL, rounded, NULL));
    mp_tensor_destroy(exact);
    return rounded;
}

static int show_quantizer(Bits* bits, const mp_quant_desc* quant, int32_t code_dtype,
                          int32_t from) {
    char name[128];
    mp_tensor* codes = make_quantized(bits, code_dtype, kRows, kColumns, quant);
    mp_tensor* source = NULL;
    if (codes == NULL) {
        return 0;
    }
    source = make_uneven(bits, from);
    (void)snprintf(name, sizeof name, "quantize.scaling%d.rule%d%s.%s.%s", (int)quant->scaling,
                   (int)quant->rule, quant->flags != 0 ? ".power" : "", mp_dtype_name(code_dtype),
                   mp_dtype_name(from));
    show_quantized(bits, name, source, codes);
    if (quant->flags == 0) {
        show_values(bits, name, codes, MP_DTYPE_BF16);
        show_values(bits, name, codes, MP_DTYPE_FP16);
    }
    mp_tensor_destroy(source);
    mp_tensor_destroy(codes);
    return 1;
}

void show_quantizers(Bits* bits) {
    static const int32_t kCodeTypes[] = {MP_DTYPE_FP8_E4M3, MP_DTYPE_FP8_E5M2, MP_DTYPE_FP16,
                                         MP_DTYPE_FP4_E2M1};
    mp_quant_desc quant = MP_QUANT_DESC_INIT;
    int accepted = 0;
    int type = 0;
    int32_t from = 0;
    for (quant.scaling = MP_SCALING_TENSOR; quant.scaling <= MP_SCALING_NVFP4; ++quant.scaling) {
        for (quant.rule = MP_SCALE_RULE_CURRENT; quant.rule <= MP_SCALE_RULE_NVFP4; ++quant.rule) {
            for (quant.flags = 0; quant.flags <= MP_QUANT_POWER_OF_TWO; ++quant.flags) {
                for (type = 0; type < 4; ++type) {
                    for (from = MP_DTYPE_FP32; from <= MP_DTYPE_BF16; ++from) {
                        accepted += show_quantizer(bits, &quant, kCodeTypes[type], from);
                    }
                }
            }
        }
    }
    show(&accepted, sizeof accepted, "quantize.accepted.%d", accepted);
}
