// SPDX-License-Identifier: Apache-2.0
// write_params.h
#include <numeric>
#include <vector>

#include "boundary.hpp"
#include "checkpoint/params_to_file.hpp"
#include "objects.hpp"
#include "status/guarded.hpp"

using namespace mp;
using namespace mp::capi;

mp_status mp_optimizer_write_params(mp_optimizer* optimizer, mp_queue* queue,
                                    mp_model_writer* writer, const char* prefix,
                                    const int32_t* indices, int32_t count, uint32_t flags) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        checkpoint::ParamsToFile what;
        std::vector<int32_t> all;
        // All ranks that share the optimizer are to know of it.
        const Status own = guarded("arguments", [&]() -> Status {
            check_flags(flags, MP_WRITE_PARAMS_EXACT, "flags");
            what.writer = writer != nullptr ? object_of(writer, "writer").get() : nullptr;
            if (indices != nullptr || count != 0) {
                what.indices = list_of(indices, count, "indices", "count");
            } else {
                all.resize(static_cast<std::size_t>(object.parameters().count()));
                std::iota(all.begin(), all.end(), 0);
                what.indices = all;
            }
            return {};
        });
        what.is_exact = (flags & MP_WRITE_PARAMS_EXACT) != 0;
        what.prefix = prefix != nullptr ? prefix : "";
        checkpoint::write_params(object, stream_of(queue, *object.context()), what, own);
    });
}
