/* SPDX-License-Identifier: Apache-2.0
 * Version of header and library, and the end of the library. */
#ifndef MIXEDPREC_VERSION_H
#define MIXEDPREC_VERSION_H

#include "status.h"

/* The first number of this header's version. */
#define MP_VERSION_MAJOR 0
/* The second. */
#define MP_VERSION_MINOR 2
/* The third. */
#define MP_VERSION_PATCH 0

/* The version as one number that can be compared: major * 10000 + minor * 100 + patch. */
#define MP_VERSION (MP_VERSION_MAJOR * 10000 + MP_VERSION_MINOR * 100 + MP_VERSION_PATCH)

MP_BEGIN_DECLS

/** Version of the loaded library, in the form of MP_VERSION. From 0.2 on all 0.x versions are additive: a program
 * compiled against header version H works with every library whose version is at least H.
 * @returns the number
 * @threads A
 * @since 0.2 */
MP_API uint32_t mp_library_version(void);

/** Version, compiler, and what was built in, as one line of text for bug reports.
 * @returns a static string
 * @threads A
 * @since 0.2 */
MP_API const char* mp_library_build_info(void);

/** Ends the library's own run-time systems (its private Kokkos). Final: later calls that need a device
 * fail with MP_STATUS_BAD_STATE. Never needed before a normal exit. Refused while contexts are alive.
 * Blocks.
 * @returns MP_STATUS_OK; MP_STATUS_BAD_STATE when a context still exists
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_library_shutdown(void);

MP_END_DECLS

#endif /* MIXEDPREC_VERSION_H */
