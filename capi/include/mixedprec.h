/* SPDX-License-Identifier: Apache-2.0
 *
 * libmixedprec: low-precision training behind one C ABI.
 *
 * The three ways in:
 *   (a) you own everything and want the update only:   mixedprec/step.h alone: mp_optimizer_step_pointers, mp_scaler
 *   (b) your matmuls too:                              mp_linear / mp_gemm driven by one mp_recipe
 *   (c) tensors, groups, state kept by the library:    mp_tensor + mp_optimizer
 *
 * Rules that hold for every function
 * - Result: an mp_status. 0 is success, negative is a failure that changed nothing, positive is success
 *   with a note. mp_last_error_message() has the words, per thread, until the thread's next call.
 * - Handles are opaque. mp_<noun>_create gives the caller one reference; mp_<noun>_destroy(NULL) is fine.
 *   Children keep what they need alive, so destroy order is free. On failure *out is NULL.
 * - Work is enqueued on an mp_queue (NULL: the context's default one) and may run after the call returns;
 *   a function that waits says "Blocks". Data reaches the caller by a function that blocks.
 * - Threads: class A, any thread at any time; class B, one thread at a time per object (of a layer, optimizer, scaler,
 *   checkpoint or plan a second thread is refused with MP_STATUS_BAD_STATE; a callback may come in again); class C,
 *   collective, the same order on every rank. Each function names its class after @threads. A call under
 *   way keeps what it was given: another thread may destroy a handle meanwhile, and a deleter then runs
 *   when the call ends. Memory of the caller's own must stay until then.
 * - Structs: set struct_size to sizeof, zero the rest; zero means "default" in every field.
 * - fork: a child may use what works on the host alone, which gets threads of its own there. What has ranks, an accelerator or a
 *   save in the background is the parent's. No call may be under way in another thread when the process forks.
 * - Floating point: whatever rounding, flushing of subnormals and traps the calling thread has set, every call computes under
 *   the default environment and gives the thread's back, sticky flags too. Callbacks run under the caller's; on a thread of the
 *   library's, under that of the call that began the thread.
 * - Callbacks return. One that is left by longjmp or by a C++ exception is a mistake: the program may end there
 *   (std::terminate), or the call fails with MP_STATUS_INTERNAL.
 * - Nothing throws, aborts, exits or prints; there is no work at load time and no environment is read
 *   before mp_context_create.
 */
#ifndef MIXEDPREC_H
#define MIXEDPREC_H

#include "mixedprec/export.h"

#include "mixedprec/adapter.h"
#include "mixedprec/array.h"
#include "mixedprec/checkpoint.h"
#include "mixedprec/comm.h"
#include "mixedprec/comm_callbacks.h"
#include "mixedprec/context.h"
#include "mixedprec/convert.h"
#include "mixedprec/dlpack.h"
#include "mixedprec/event.h"
#include "mixedprec/first_values.h"
#include "mixedprec/gemm.h"
#include "mixedprec/linear.h"
#include "mixedprec/model_file.h"
#include "mixedprec/model_writer.h"
#include "mixedprec/optimizer.h"
#include "mixedprec/optimizer_state.h"
#include "mixedprec/param_changes.h"
#include "mixedprec/quant.h"
#include "mixedprec/queue.h"
#include "mixedprec/recipe.h"
#include "mixedprec/recipe_keys.h"
#include "mixedprec/reduce.h"
#include "mixedprec/rule.h"
#include "mixedprec/saved.h"
#include "mixedprec/scaler.h"
#include "mixedprec/sharding.h"
#include "mixedprec/status.h"
#include "mixedprec/step.h"
#include "mixedprec/step_parts.h"
#include "mixedprec/tensor.h"
#include "mixedprec/types.h"
#include "mixedprec/version.h"
#include "mixedprec/watch.h"
#include "mixedprec/write_params.h"

#endif /* MIXEDPREC_H */
