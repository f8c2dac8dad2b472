// SPDX-License-Identifier: Apache-2.0
// The one place that knows about CUDA: marks the functions of core/numerics for host and device.
#pragma once

#if defined(__CUDACC__)
#define MP_HD __host__ __device__
#else
#define MP_HD
#endif

// Inlining is forced, not asked for: one binary holds kernels compiled for several instruction
// sets, and an out-of-line copy of an inline function made in an AVX-512 file could be the one the
// linker keeps for the baseline file. A forced function leaves no copy to pick.
#if defined(__GNUC__) || defined(__clang__)
#define MP_HD_INLINE MP_HD inline __attribute__((always_inline))
#else
#define MP_HD_INLINE MP_HD inline
#endif
