// SPDX-License-Identifier: Apache-2.0
// The one place that knows about CUDA and HIP: marks the functions of core/base/numerics for host and device.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define MP_HD __host__ __device__
#else
#define MP_HD
#endif

// Where code for an accelerator is being made, which cannot read the host's constants at an index it works out.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define MP_ON_ACCELERATOR 1
#else
#define MP_ON_ACCELERATOR 0
#endif

// Inlining is forced, not asked for: one binary holds kernels compiled for several instruction
// sets, and an out-of-line copy of an inline function made in an AVX-512 file could be the one the
// linker keeps for the baseline file. A forced function leaves no copy to pick.
#if defined(__GNUC__) || defined(__clang__)
#define MP_HD_INLINE MP_HD inline __attribute__((always_inline))
// The same for a lambda, behind its parameters. In device code it also keeps captures out of memory.
#define MP_INLINED __attribute__((always_inline))
#else
#define MP_HD_INLINE MP_HD inline
#define MP_INLINED
#endif

// Before a loop whose index must be known to the compiler, so that an array it indexes can stay in registers.
#if defined(__CUDA_ARCH__) || defined(__clang__)
#define MP_HD_UNROLL _Pragma("unroll")
#elif defined(__CUDACC__) // nvcc's pass over host code, which knows neither
#define MP_HD_UNROLL
#else
#define MP_HD_UNROLL _Pragma("GCC unroll 16")
#endif
