// SPDX-License-Identifier: Apache-2.0
// Which compiled instruction set the host's kernels run on.
#include "host/kernels/isa.hpp"

#include <atomic>
#include <cstring>

#include "process/environment.hpp"

namespace mp::backends::host {

// Defined by isa_table.inc.hpp in each of these files.
namespace baseline {
extern const IsaTable kTable;
}
#if MP_HAS_AVX2
namespace avx2 {
extern const IsaTable kTable;
}
#endif
#if MP_HAS_AVX512
namespace avx512 {
extern const IsaTable kTable;
}
namespace avx512_vbmi {
extern const IsaTable kTable;
}
#endif

} // namespace mp::backends::host

namespace mp::backends::host {

namespace {

std::atomic<const IsaTable*> active{nullptr};

constexpr const char* kVariable = "MIXEDPREC_ISA";

#if MP_HAS_AVX512
// AVX-512 with the bodies that look bytes up.
const IsaTable& with_byte_lookups() noexcept {
    static const IsaTable table = [] {
        const IsaTable& vbmi = avx512_vbmi::kTable;
        IsaTable both = avx512::kTable;
        both.name = vbmi.name;
        both.cast = vbmi.cast;
        both.quantize = vbmi.quantize;
        return both;
    }();
    return table;
}
#endif

} // namespace

// The features are those of the flags in CMakeLists.txt.
IsaList runnable_isas() noexcept {
    IsaList list = {};
#if MP_HAS_AVX2
    __builtin_cpu_init();
    // F16C, which clang 14 cannot be asked for, came one generation before AVX2, FMA and BMI2.
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("bmi2");
#if MP_HAS_AVX512
    const bool has_avx512 =
        has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (has_avx512 && __builtin_cpu_supports("avx512vbmi")) {
        list.items[list.count++] = &with_byte_lookups();
    }
    if (has_avx512) {
        list.items[list.count++] = &avx512::kTable;
    }
#endif
    if (has_avx2) {
        list.items[list.count++] = &avx2::kTable;
    }
#endif
    list.items[list.count++] = &baseline::kTable;
    return list;
}

Status select_isa_from_environment() noexcept {
    const IsaList list = runnable_isas();
    const char* wanted = process::environment(kVariable);
    if (wanted == nullptr || *wanted == '\0') {
        active.store(list.items[0], std::memory_order_release);
        return {};
    }
    TextLine<128> names;
    for (int32_t i = 0; i < list.count; ++i) {
        if (std::strcmp(list.items[i]->name, wanted) == 0) {
            active.store(list.items[i], std::memory_order_release);
            return {};
        }
        const TextLine<128> before = names;
        names.set("%s%s%s", before.c_str(), i == 0 ? "" : ", ", list.items[i]->name);
    }
    return Status::error(Code::invalid_argument, "%s is '%s'; this machine and build have %s",
                         kVariable, wanted, names.c_str());
}

const IsaTable& active_isa() noexcept {
    const IsaTable* table = active.load(std::memory_order_acquire);
    if (table == nullptr) {
        table = runnable_isas().items[0];
        active.store(table, std::memory_order_release);
    }
    return *table;
}

} // namespace mp::backends::host
