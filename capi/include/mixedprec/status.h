/* SPDX-License-Identifier: Apache-2.0
 * Status codes and error text.
 *
 * Groups: -1..-19 mistakes of the caller, -20..-39 not supported here, -40..-59 resources,
 * -60..-79 a vendor library, -80.. our own defects. Treat any unknown negative number as failure and any
 * unknown positive one as success with a note. */
#ifndef MIXEDPREC_STATUS_H
#define MIXEDPREC_STATUS_H

#include "types.h"

/** What a call came to: 0 is success, a negative number a failure, a positive one success with a note. */
typedef int32_t mp_status;

#define MP_STATUS_OK 0        /* success */
#define MP_STATUS_WARNING 1   /* done, and mp_last_error_message() has advice worth reading */
#define MP_STATUS_NOT_READY 2 /* not done yet; ask again */

#define MP_STATUS_NULL_ARGUMENT (-1)    /* a pointer that must not be NULL is */
#define MP_STATUS_INVALID_ARGUMENT (-2) /* out of range, or arguments that do not fit together */
#define MP_STATUS_INVALID_SHAPE (-3)    /* a size out of range, or unlike another's */
#define MP_STATUS_INVALID_DTYPE (-4)    /* a type that is none, or not for this argument */
#define MP_STATUS_UNKNOWN_NAME (-5)     /* recipe, preset, key, state or backend name */
#define MP_STATUS_STRUCT_TOO_NEW (-6)   /* has fields, not 0, that this library does not know */
#define MP_STATUS_BAD_STATE                                                                        \
    (-7) /* right call, wrong moment (frozen recipe, backward before forward) */
#define MP_STATUS_INVALID_HANDLE (-8) /* destroyed, or of another type */
#define MP_STATUS_PARSE_ERROR (-9) /* text or bytes that are not in the format they should be in */

#define MP_STATUS_UNSUPPORTED (-20)        /* nothing here can do it; the message has the reasons */
#define MP_STATUS_DEVICE_UNAVAILABLE (-21) /* not there, or not usable by this driver or build */
#define MP_STATUS_MODULE_NOT_FOUND (-22)   /* no libmixedprec-*.so of that kind could be opened */
#define MP_STATUS_VERSION_MISMATCH (-23)   /* a module, file or header that fits another version */

#define MP_STATUS_OUT_OF_MEMORY (-40)   /* of the host or of a device */
#define MP_STATUS_IO_ERROR (-41)        /* the system refused to read or write a file */
#define MP_STATUS_CALLBACK_FAILED (-42) /* a caller's function returned an unknown failure */
#define MP_STATUS_TIMEOUT (-43)         /* a rank did not come before the deadline */
#define MP_STATUS_PEER_LOST (-44)       /* another rank died, left, or gave up */
#define MP_STATUS_PEER_ERROR (-45)      /* another rank reported an error of its own */
#define MP_STATUS_RANK_MISMATCH (-46)   /* the ranks do not ask for the same */
#define MP_STATUS_ABORTED (-47)         /* this rank gave the communicator up */
#define MP_STATUS_CORRUPT_DATA (-48)    /* a checksum does not fit what was read or received */

#define MP_STATUS_ONEDNN_ERROR (-60) /* a failure of oneDNN's */
#define MP_STATUS_CUDA_ERROR (-61)   /* a failure of the CUDA driver or runtime */
#define MP_STATUS_CUBLAS_ERROR (-62) /* a failure of cuBLASLt's */
#define MP_STATUS_NCCL_ERROR (-63)   /* a failure of NCCL's */
#define MP_STATUS_MPI_ERROR (-64)    /* a failure of the MPI library's */
#define MP_STATUS_KOKKOS_ERROR (-65) /* a failure of Kokkos, or it did not start */
#define MP_STATUS_DEVICE_ERROR (-66) /* as CUDA_ERROR, of another kind of device */

#define MP_STATUS_INTERNAL (-80) /* a defect of this library; please report it */

MP_BEGIN_DECLS

/** Symbolic name of a code, for logs ("MP_STATUS_INVALID_SHAPE").
 * @param[in] status  any number
 * @returns a static string; "MP_STATUS_UNKNOWN" for a code this library does not know
 * @threads A
 * @since 0.2 */
MP_API const char* mp_status_string(mp_status status);

/** What went wrong in this thread's last call, in one line: the argument, what was found, what was
 * expected, what to do. Every call except the query functions of this header and mp_*_destroy clears it on entry.
 * @returns a borrowed string, "" after a success without a note; valid until this thread's next call
 * @threads A
 * @since 0.2 */
MP_API const char* mp_last_error_message(void);

/** Copy of mp_last_error_message() into the caller's memory, for languages that cannot borrow.
 * @param[out] buffer    receives the text, always NUL-terminated; may be NULL when capacity is 0
 * @param[in]  capacity  bytes of buffer
 * @param[out] needed    bytes the whole text needs with its NUL; may be NULL
 * @returns MP_STATUS_OK, also when the text was cut to capacity
 * @threads A
 * @since 0.2 */
MP_API mp_status mp_last_error_copy(char* buffer, size_t capacity, size_t* needed);

MP_END_DECLS

#endif /* MIXEDPREC_STATUS_H */
