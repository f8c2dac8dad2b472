// SPDX-License-Identifier: Apache-2.0
// Every cast, and amax, against the streaming kernel that reads and writes the same bytes.
#include "array.hpp"
#include "report.hpp"
#include "streaming.hpp"

namespace mp_bench {

std::vector<Row> cast_rows(mp_context* context, const Options& options) {
    const int32_t types[] = {MP_DTYPE_FP32, MP_DTYPE_BF16, MP_DTYPE_FP16, MP_DTYPE_FP8_E4M3,
                             MP_DTYPE_FP8_E5M2};
    const std::size_t count = options.elements;
    const Array exact(context, count * 4), input(context, count * 4), output(context, count * 4);
    exact.fill([&](char* data) { fill_numbers(reinterpret_cast<float*>(data), count); });
    const auto wrap = [&](int32_t dtype, void* data) {
        return wrap_memory(context, dtype, {static_cast<int64_t>(count)}, data);
    };
    mp_tensor* numbers = wrap(MP_DTYPE_FP32, exact.data());
    std::vector<Row> rows;
    for (const int32_t from : types) {
        const std::size_t from_size = mp_dtype_size(from);
        mp_tensor* source = from == MP_DTYPE_FP32 ? numbers : wrap(from, input.data());
        if (from != MP_DTYPE_FP32) {
            check(mp_tensor_cast(numbers, nullptr, source, nullptr));
        }
        char* bytes = from == MP_DTYPE_FP32 ? exact.data() : input.data();
        for (const int32_t to : types) {
            const std::string name =
                std::string("cast ") + mp_dtype_name(from) + " -> " + mp_dtype_name(to);
            if (to == from || !is_wanted(options, name)) {
                continue;
            }
            mp_tensor* target = wrap(to, output.data());
            add_row(rows, name, [&] {
                return measure_streaming(
                    context, name,
                    {{{{bytes, from_size, Access::read},
                       {output.data(), mp_dtype_size(to), Access::write}},
                      count}},
                    [&] { check(mp_tensor_cast(source, nullptr, target, nullptr)); }, options);
            });
            mp_tensor_destroy(target);
        }
        const std::string name = std::string("amax ") + mp_dtype_name(from);
        if (is_wanted(options, name)) {
            mp_tensor* amax = make_tensor(context, MP_DTYPE_FP32, {1});
            add_row(rows, name, [&] {
                return measure_streaming(
                    context, name, {{{{bytes, from_size, Access::read}}, count}},
                    [&] { check(mp_tensor_amax(source, nullptr, amax)); }, options);
            });
            mp_tensor_destroy(amax);
        }
        if (source != numbers) {
            mp_tensor_destroy(source);
        }
    }
    mp_tensor_destroy(numbers);
    return rows;
}

} // namespace mp_bench
