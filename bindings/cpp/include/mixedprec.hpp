/* SPDX-License-Identifier: Apache-2.0
 *
 * libmixedprec for C++17 and later: RAII over the C ABI. This header includes all those of mixedprec/.
 *
 *   mixedprec::Context context = mixedprec::Context::create();
 *   mixedprec::Recipe recipe = mixedprec::Recipe::create(context, "bf16_mixed");
 *
 * - Objects are handles: they move, do not copy, and give their reference back when they end. The order of ends is free;
 *   what an object of the library needs it keeps. get() is the C handle, for everything of the C headers, whose comments
 *   say what each call does, which threads may make it, and whether it blocks.
 * - Errors: a failed call throws mixedprec::Error. With MIXEDPREC_EXPECTED defined before this header is included no call
 *   throws: each returns expected<T>, and the header compiles with -fno-exceptions. Both may be in one program.
 * - A note (MP_STATUS_WARNING) is success: note() has the text of this thread's last call.
 * - Options are the C structs with their defaults: GroupOptions group; group.lr = 3e-4; As in C, a zero that is meant as one is
 *   given by name: const mp_hyper none = {"beta1", 0.0}; group.hypers = &none; group.hyper_count = 1;
 * - Memory that is wrapped stays the caller's: it must not move or end before the objects that were given it. A
 *   shared_ptr may be handed over instead, which the tensor then keeps.
 * - Functions given as callbacks must not throw. Those of log, monitor and progress are held by the object; an
 *   exception in them is caught and lost, in a Transport it is MP_STATUS_CALLBACK_FAILED, in `parallel` it ends the program. */
#pragma once

#include <mixedprec.h>

#include "mixedprec/adapter.hpp"
#include "mixedprec/call.hpp"
#include "mixedprec/checkpoint.hpp"
#include "mixedprec/comm.hpp"
#include "mixedprec/context.hpp"
#include "mixedprec/error.hpp"
#include "mixedprec/handle.hpp"
#include "mixedprec/linear.hpp"
#include "mixedprec/model_file.hpp"
#include "mixedprec/model_writer.hpp"
#include "mixedprec/optimizer.hpp"
#include "mixedprec/options.hpp"
#include "mixedprec/recipe.hpp"
#include "mixedprec/scaler.hpp"
#include "mixedprec/step.hpp"
#include "mixedprec/tensor.hpp"
#include "mixedprec/values.hpp"
