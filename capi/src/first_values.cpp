// SPDX-License-Identifier: Apache-2.0
// first_values.h
#include <numeric>
#include <vector>

#include "boundary.hpp"
#include "callers_function.hpp"
#include "checkpoint/file_values.hpp"
#include "objects.hpp"
#include "status/guarded.hpp"
#include "versioned_struct.hpp"

using namespace mp;
using namespace mp::capi;

static_assert(MP_INIT_CONSTANT == static_cast<int>(numerics::InitKind::constant));
static_assert(MP_INIT_UNIFORM == static_cast<int>(numerics::InitKind::uniform));
static_assert(MP_INIT_NORMAL == static_cast<int>(numerics::InitKind::normal));

namespace {

numerics::InitRule rule_of(const mp_param_init& init) {
    if (init.kind < MP_INIT_CONSTANT || init.kind > MP_INIT_NORMAL) {
        fail(Code::invalid_argument, "inits.kind is %d; it must be one of MP_INIT_* (0..2)",
             static_cast<int>(init.kind));
    }
    check_reserved(init.reserved);
    return {static_cast<numerics::InitKind>(init.kind), init.a, init.b};
}

// Values that the caller's function writes.
class CallersValues final : public optim::ValueSource {
  public:
    CallersValues(const optim::Parameters& parameters, mp_fill_fn fill, void* payload)
        : parameters_(parameters), fill_(fill), payload_(payload) {}
    void read(int32_t index, int64_t first, std::span<float> values) override {
        if (values.empty()) {
            return;
        }
        const mp_status status = call_callers([&] {
            return required(fill_, "fill")(index, first, static_cast<int64_t>(values.size()),
                                           values.data(), payload_);
        });
        if (status != MP_STATUS_OK) {
            fail(failure_code(status),
                 "optimizer: fill returned %d for %zu elements from %lld on of '%s'",
                 static_cast<int>(status), values.size(), static_cast<long long>(first),
                 parameters_[index].name.c_str());
        }
    }

  private:
    const optim::Parameters& parameters_;
    mp_fill_fn fill_;
    void* payload_;
};

// What of a rank's arguments is wrong, which all ranks that share the optimizer are to know of.
template <typename Body> Status parsed(const Body& body) {
    return guarded("arguments", [&]() -> Status {
        body();
        return {};
    });
}

} // namespace

mp_status mp_optimizer_init_params(mp_optimizer* optimizer, mp_queue* queue, uint64_t seed,
                                   const mp_param_init* inits, int32_t count) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        std::vector<int32_t> indices;
        std::vector<numerics::InitRule> rules;
        const Status own = parsed([&] {
            (void)list_of(inits, count, "inits", "count");
            for (const mp_param_init& init : read_structs(inits, count, "inits")) {
                rules.push_back(rule_of(init));
                indices.push_back(init.index);
            }
        });
        optim::set_first_values(object, stream_of(queue, *object.context()), indices, [&] {
            check(own);
            return std::make_unique<optim::RuleSource>(object.parameters(), seed, indices, rules);
        });
    });
}

mp_status mp_optimizer_load_params(mp_optimizer* optimizer, mp_queue* queue, mp_model_file* model,
                                   const char* prefix, const int32_t* indices, int32_t count) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        std::shared_ptr<ModelFileObject> files;
        std::vector<int32_t> named(static_cast<std::size_t>(object.parameters().count()));
        std::iota(named.begin(), named.end(), 0);
        const Status own = parsed([&] {
            files = object_of(model, "model");
            if (indices != nullptr || count != 0) {
                const auto list = list_of(indices, count, "indices", "count");
                named.assign(list.begin(), list.end());
            }
        });
        optim::set_first_values(object, stream_of(queue, *object.context()), named, [&] {
            check(own);
            return std::make_unique<checkpoint::FileValues>(*files->source, object.parameters(),
                                                            named, prefix != nullptr ? prefix : "");
        });
    });
}

mp_status mp_optimizer_fill_params(mp_optimizer* optimizer, mp_queue* queue, const int32_t* indices,
                                   int32_t count, mp_fill_fn fill, void* payload, int32_t root) {
    return boundary([&] {
        optim::Optimizer& object = *object_of(optimizer, "optimizer");
        std::span<const int32_t> named;
        const Status own = parsed([&] {
            const shard::Sharding* const sharding = object.sharding();
            const bool is_asked =
                root < 0 || sharding == nullptr || sharding->groups().all().rank() == root;
            if (is_asked) {
                (void)required(fill, "fill");
            }
            named = list_of(indices, count, "indices", "count");
        });
        optim::set_first_values(
            object, stream_of(queue, *object.context()), named,
            [&] {
                check(own);
                return std::make_unique<CallersValues>(object.parameters(), fill, payload);
            },
            root);
    });
}
