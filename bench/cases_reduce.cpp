// SPDX-License-Identifier: Apache-2.0
// A reduce-scatter and an all-gather over two ranks that are threads, each with one thread of its own, against
// streaming what cannot be avoided: each rank reads its half of both sources and writes its sum, then reads the other
// sum and writes it. The ratio says what buffers, and rounding to the wire's type, cost beside that.
#include <memory>

#include "array.hpp"
#include "ranks.hpp"
#include "report.hpp"

namespace mp_bench {
namespace {

struct Rank {
    Rank(std::size_t elements, int32_t dtype)
        : count(static_cast<int64_t>(elements)), source(elements * mp_dtype_size(dtype)),
          sum(elements * 4) {
        mp_context_desc desc = MP_CONTEXT_DESC_INIT;
        desc.num_threads = 1;
        check(mp_context_create(&desc, &context));
        source_tensor = wrap_memory(context, dtype, {count}, source.data());
        sum_tensor = wrap_memory(context, MP_DTYPE_FP32, {count}, sum.data());
        fill_numbers(reinterpret_cast<float*>(sum.data()), elements);
        check(mp_tensor_cast(sum_tensor, nullptr, source_tensor, nullptr));
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    ~Rank() {
        mp_tensor_destroy(source_tensor);
        mp_tensor_destroy(sum_tensor);
        mp_context_destroy(context);
    }

    int64_t count;
    Array source;
    Array sum;
    mp_context* context = nullptr;
    mp_tensor* source_tensor = nullptr;
    mp_tensor* sum_tensor = nullptr;
};

struct Case {
    const char* name;
    int32_t source;
    int32_t wire;
    int32_t order;
};

Row measure(const Case& c, const Options& options, const std::string& name) {
    const std::size_t elements = options.elements;
    std::vector<std::unique_ptr<Rank>> ranks;
    ranks.reserve(kRanks);
    for (int r = 0; r < kRanks; ++r) {
        ranks.push_back(std::make_unique<Rank>(elements, c.source));
    }
    mp_comm* comms[kRanks] = {};
    check(mp_comm_create_threads(nullptr, kRanks, comms));
    mp_comm_reduce_desc desc = MP_COMM_REDUCE_DESC_INIT;
    desc.wire_dtype = c.wire;
    desc.order = c.order;
    // Half of the elements by each of the two threads, as the ranks have them.
    const auto at = [&](const Array& array, std::size_t element, Access access) {
        return Stream{array.data(), element, access};
    };
    const std::size_t source = mp_dtype_size(c.source);
    const std::vector<Pass> passes = {
        {{at(ranks[0]->source, source, Access::read), at(ranks[1]->source, source, Access::read),
          at(ranks[0]->sum, 4, Access::write)},
         elements},
        {{at(ranks[0]->sum, 4, Access::read), at(ranks[1]->sum, 4, Access::write)}, elements}};
    Options both = options;
    both.threads = kRanks;
    const auto reduce = [&](int r) {
        Rank& rank = *ranks[static_cast<std::size_t>(r)];
        const mp_tensor* sources[] = {rank.source_tensor};
        check(mp_comm_all_reduce(comms[r], nullptr, &desc, sources, 1, rank.sum_tensor, nullptr));
    };
    Row row = measure_streaming(
        nullptr, name, passes, [&] { on_ranks(reduce); }, both);
    for (mp_comm* comm : comms) {
        mp_comm_destroy(comm);
    }
    return row;
}

} // namespace

std::vector<Row> reduce_rows(mp_context* /*context*/, const Options& options) {
    const Case cases[] = {
        {"fp32, fp32 wire", MP_DTYPE_FP32, MP_DTYPE_FP32, MP_COMM_ORDER_RANK},
        {"fp32, bf16 wire", MP_DTYPE_FP32, MP_DTYPE_BF16, MP_COMM_ORDER_RANK},
        {"bf16, bf16 wire", MP_DTYPE_BF16, MP_DTYPE_BF16, MP_COMM_ORDER_RANK},
        {"fp32, fp8 wire", MP_DTYPE_FP32, MP_DTYPE_FP8_E4M3, MP_COMM_ORDER_RANK},
        {"fp32, fp32 wire, exact", MP_DTYPE_FP32, MP_DTYPE_FP32, MP_COMM_ORDER_EXACT},
    };
    std::vector<Row> rows;
    for (const Case& c : cases) {
        const std::string name = std::string("all-reduce of two ranks ") + c.name;
        if (is_wanted(options, name)) {
            rows.push_back(measure(c, options, name));
        }
    }
    return rows;
}

} // namespace mp_bench
