// SPDX-License-Identifier: Apache-2.0
#include "optim/first_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "comm/capture.hpp"
#include "numerics/bits.hpp"
#include "status/guarded.hpp"
#include "system/fnv.hpp"

namespace mp::optim {
namespace {

// Of a piece that a rank reads for the others: 4 MiB.
constexpr int64_t kPieceElements = int64_t{1} << 20;

void check_rule(const Parameters& parameters, int32_t index, const numerics::InitRule& rule) {
    const char* const name = parameters[index].name.c_str();
    if (!std::isfinite(rule.a) || !std::isfinite(rule.b) || std::fabs(rule.a) > 1e30 ||
        std::fabs(rule.b) > 1e30) {
        fail(Code::invalid_argument,
             "optimizer: first values of '%s' by a %g and b %g; both must be finite, of at most "
             "1e30",
             name, rule.a, rule.b);
    }
    if (rule.kind == numerics::InitKind::uniform && rule.a > rule.b) {
        fail(Code::invalid_argument,
             "optimizer: first values of '%s' are uniform from %g to %g; the first must not be "
             "larger",
             name, rule.a, rule.b);
    }
    if (rule.kind == numerics::InitKind::normal && rule.b < 0.0) {
        fail(Code::invalid_argument,
             "optimizer: first values of '%s' have the standard deviation %g; it must be >= 0",
             name, rule.b);
    }
}

void check_indices(const Parameters& parameters, std::span<const int32_t> indices) {
    std::vector<bool> is_named(static_cast<std::size_t>(parameters.count()));
    for (const int32_t index : indices) {
        const Parameter& p = parameters[index];
        if (is_named[static_cast<std::size_t>(index)]) {
            fail(Code::invalid_argument, "optimizer: parameter %d ('%s') is named twice", index,
                 p.name.c_str());
        }
        is_named[static_cast<std::size_t>(index)] = true;
    }
}

void check_values(const Parameter& p, int64_t first, std::span<const float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) {
            fail(Code::invalid_argument,
                 "optimizer: element %lld of the first values of '%s' is %g; it must be finite",
                 static_cast<long long>(first) + static_cast<long long>(i), p.name.c_str(),
                 static_cast<double>(values[i]));
        }
    }
}

// Reads a piece at a time on one rank, and sends it to all, whose own part of it stays with them.
class Sent final : public ValueSource {
  public:
    Sent(shard::Sharding& sharding, const Parameters& parameters, ValueSource& source, int32_t root,
         Stream& host)
        : sharding_(sharding), parameters_(parameters), source_(source), root_(root),
          memory_(
              host.allocate(static_cast<std::size_t>(bytes_of(DType::fp32, kPieceElements + 1)))),
          piece_(static_cast<float*>(memory_.data())) {
        std::memset(memory_.data(), 0, memory_.bytes()); // a piece that fails is sent, too
    }

    // Collective, also where `values` is empty. After a failure of the root's, whose piece says so to all, throws: its own
    // failure on the root, peer_error elsewhere.
    void read(int32_t index, int64_t first, std::span<float> values) override {
        const Parameter& p = parameters_[index];
        const auto end = first + static_cast<int64_t>(values.size());
        for (int64_t start = 0; start < p.param->count(); start += kPieceElements) {
            const int64_t count = std::min(kPieceElements, p.param->count() - start);
            send(index, start, count);
            const int64_t from = std::max(first, start);
            const int64_t to = std::min(end, start + count);
            if (from < to) {
                std::copy_n(piece_ + 1 + (from - start), to - from, values.data() + (from - first));
            }
        }
        check(status_);
    }

  private:
    void send(int32_t index, int64_t start, int64_t count) {
        if (!status_.ok()) { // the piece with the failure was the last one
            return;
        }
        const bool is_root = sharding_.groups().all().rank() == root_;
        const std::span<float> values(piece_ + 1, static_cast<std::size_t>(count));
        if (is_root) {
            status_ = guarded("first values", [&]() -> Status {
                source_.read(index, start, values);
                check_values(parameters_[index], start, values);
                return {};
            });
            piece_[0] = status_.ok() ? 1.0F : 0.0F;
        }
        comm::CallOptions options;
        options.site = "first values";
        const auto lock = sharding_.progress().lock();
        check(sharding_.groups().all().run(
            comm::Broadcast{piece_, (count + 1) * static_cast<int64_t>(sizeof(float)), root_},
            options));
        if (!is_root && piece_[0] == 0.0F) {
            status_ = Status::error(Code::peer_error,
                                    "optimizer: rank %d could not read the first values of '%s'",
                                    root_, parameters_[index].name.c_str());
        }
    }

    shard::Sharding& sharding_;
    const Parameters& parameters_;
    ValueSource& source_;
    int32_t root_;
    Buffer memory_;
    float* piece_; // whether the rest is good, and the rest
    Status status_;
};

std::size_t largest_slice_bytes(const Parameters& parameters, std::span<const int32_t> indices) {
    int64_t largest = 0;
    for (const int32_t index : indices) {
        largest = std::max(largest, parameters.slice(index).count);
    }
    return static_cast<std::size_t>(bytes_of(DType::fp32, largest));
}

// One after another, so that memory is needed for the largest slice alone.
class Writer {
  public:
    // Allocates: on the host for the largest slice.
    Writer(Parameters& parameters, Stream& stream, std::span<const int32_t> indices)
        : parameters_(parameters), stream_(stream),
          memory_(parameters.context().host_stream().allocate(
              largest_slice_bytes(parameters, indices))),
          amax_(stream.allocate(sizeof(float))) {}

    // After a failure of this rank alone it goes on with what all ranks do together: the agreements on amaxes, and reading,
    // where that is collective.
    void write_all(std::span<const int32_t> indices, ValueSource& source, bool is_collective) {
        for (const int32_t index : indices) {
            const shard::ShardSlice own = parameters_.slice(index);
            const std::span<float> values(static_cast<float*>(memory_.data()),
                                          static_cast<std::size_t>(own.count));
            attempt(is_collective, [&] {
                source.read(index, own.start, values);
                check_values(parameters_[index], own.start, values);
            });
            const bool is_shared =
                parameters_.sharding() != nullptr && shares_amax(parameters_[index]);
            attempt(is_shared, [&] {
                if (is_shared) {
                    agree_on_amax(failure_.ok() ? values : std::span<float>());
                }
            });
            attempt(false, [&] {
                if (!values.empty()) {
                    parameters_.write_exact(
                        stream_, index, {values.data(), own.count, DType::fp32}, ValuesOn::host,
                        is_shared ? static_cast<float*>(amax_.data()) : nullptr);
                }
            });
        }
    }
    [[nodiscard]] const Status& failure() const noexcept { return failure_; }

  private:
    // Unless something has failed before, and others do not wait for it.
    template <typename Body> void attempt(bool is_collective, const Body& body) {
        if (!failure_.ok() && !is_collective) {
            return;
        }
        const Status own = guarded("first values", [&]() -> Status {
            body();
            return {};
        });
        failure_ = failure_.ok() ? own : failure_;
    }

    // Of the whole parameter, from these values of this rank's.
    void agree_on_amax(std::span<const float> values) {
        uint32_t largest = numerics::amax_bits(values.data(), static_cast<int64_t>(values.size()));
        shard::Sharding& sharding = *parameters_.sharding();
        comm::CallOptions options;
        options.site = "amax of first values";
        {
            const auto lock = sharding.progress().lock();
            check(sharding.groups().all().run(comm::MaxU32{&largest, 1}, options));
        }
        stream_.copy(amax_.data(), &largest, sizeof largest, CopyKind::host_to_device);
        stream_.sync();
    }

    Parameters& parameters_;
    Stream& stream_;
    Buffer memory_;
    Buffer amax_; // on the device: of the whole parameter, where ranks agree on it
    Status failure_;
};

uint64_t hash_of(std::span<const int32_t> indices, const ValueSource& source) {
    system::Fnv64 hash;
    for (const int32_t index : indices) {
        hash.add(index);
    }
    hash.add(source.hash());
    return hash.value();
}

void check_root(int32_t root, const shard::Sharding* sharding) {
    const int32_t ranks = sharding != nullptr ? sharding->groups().all().size() : 1;
    if (root < kEveryRank || root >= ranks) {
        fail(Code::invalid_argument,
             "optimizer: root is %d; it must be a rank of the %d, or -1: each reads what it has",
             root, ranks);
    }
}

// Before and after: whether every rank can, and could.
void agree(shard::Sharding* sharding, const Status& own, uint64_t what, int32_t root) {
    if (sharding == nullptr) {
        check(own);
        return;
    }
    comm::Agreement agreement;
    agreement.must_equal("the first values' parameters, rules or seed", what);
    agreement.must_equal("the first values' root", static_cast<uint64_t>(root + 1));
    agreement.decline(own);
    check(sharding->reach(agreement));
}

// After it something has changed, whoever failed.
void agree_on_end(shard::Sharding* sharding, const Status& own, uint64_t what, int32_t root) {
    try {
        agree(sharding, own, what, root);
    } catch (const Error& error) {
        if (error.status().code() != Code::peer_error) {
            throw;
        }
        const std::string said = error.status().text();
        fail(Code::peer_error,
             "optimizer: %s. The parameters that were named have no values now; that rank's own "
             "message says why",
             said.substr(0, said.find(';')).c_str());
    }
}

} // namespace

RuleSource::RuleSource(const Parameters& parameters, uint64_t seed,
                       std::span<const int32_t> indices, std::vector<numerics::InitRule> rules)
    : parameters_(parameters), seed_(seed),
      places_(static_cast<std::size_t>(parameters.count()), -1), rules_(std::move(rules)) {
    for (std::size_t i = 0; i < indices.size(); ++i) {
        check_rule(parameters, indices[i], rules_[i]);
        places_[static_cast<std::size_t>(indices[i])] = static_cast<int32_t>(i);
    }
}

void RuleSource::read(int32_t index, int64_t first, std::span<float> values) {
    const auto place = static_cast<std::size_t>(places_.at(static_cast<std::size_t>(index)));
    numerics::first_values(rules_.at(place), seed_, parameters_[index].uid(), first,
                           static_cast<int64_t>(values.size()), values.data());
}

uint64_t RuleSource::hash() const {
    system::Fnv64 hash;
    hash.add(seed_);
    for (const numerics::InitRule& rule : rules_) {
        hash.add(rule.kind);
        hash.add(numerics::bits_from_double(rule.a));
        hash.add(numerics::bits_from_double(rule.b));
    }
    return hash.value();
}

void set_first_values(Optimizer& optimizer, Stream& stream, std::span<const int32_t> indices,
                      const MakeSource& make_source, int32_t root) {
    Parameters& parameters = optimizer.parameters();
    shard::Sharding* const sharding = optimizer.sharding();
    if (optimizer.options().is_sharded() && sharding == nullptr) {
        fail(Code::bad_state,
             "optimizer: first values come after mp_optimizer_shard, which decides who has which "
             "elements");
    }
    stream.refuse_capture("optimizer: parameters are to get their first values");
    std::unique_ptr<ValueSource> source;
    std::unique_ptr<Sent> sent;
    std::unique_ptr<Writer> writer;
    uint64_t what = 0;
    const Status ready = guarded("first values", [&]() -> Status {
        check_indices(parameters, indices);
        check_root(root, sharding);
        source = make_source();
        what = hash_of(indices, *source);
        Stream& host = optimizer.context()->host_stream();
        writer = std::make_unique<Writer>(parameters, stream, indices);
        if (root != kEveryRank && sharding != nullptr) {
            sent = std::make_unique<Sent>(*sharding, parameters, *source, root, host);
        }
        return {};
    });
    agree(sharding, ready, what, root);
    parameters.mark_values(indices, false);
    ValueSource& from = sent != nullptr ? *sent : *source;
    writer->write_all(indices, from, sent != nullptr);
    agree_on_end(sharding, writer->failure(), what, root);
    if (sharding != nullptr) {
        sharding->publish(stream);
    }
    parameters.mark_values(indices, true);
}

} // namespace mp::optim
