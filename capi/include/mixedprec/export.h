/* SPDX-License-Identifier: Apache-2.0
 * Linkage macros. MP_API marks every public function; nothing else is exported. */
#ifndef MIXEDPREC_EXPORT_H
#define MIXEDPREC_EXPORT_H

#if defined(__GNUC__) || defined(__clang__)
/* A public function. */
#define MP_API __attribute__((visibility("default")))
/* A function whose result is not to be ignored. */
#define MP_MUST_CHECK __attribute__((warn_unused_result))
#else
#define MP_API
#define MP_MUST_CHECK
#endif

#ifdef __cplusplus
/* From here to MP_END_DECLS: C linkage, in C++ too. */
#define MP_BEGIN_DECLS extern "C" {
/* See MP_BEGIN_DECLS. */
#define MP_END_DECLS }
#else
#define MP_BEGIN_DECLS
#define MP_END_DECLS
#endif

#endif /* MIXEDPREC_EXPORT_H */
