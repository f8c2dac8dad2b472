// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/params_to_file.hpp"

#include <algorithm>
#include <vector>

#include "checkpoint/tensor_to_file.hpp"
#include "optim/exact_weight.hpp"
#include "status/guarded.hpp"
#include "system/fnv.hpp"

namespace mp::checkpoint {
namespace {

using optim::Parameter;
using optim::Parameters;

// Where a parameter goes, on the rank that writes. Throws where it cannot.
std::size_t place_of(const model::ModelWriter& writer, const Parameter& p,
                     const std::string& prefix) {
    const std::string name = prefix + p.name;
    const std::size_t place = writer.model().find(name);
    if (place == writer.model().tensors().size()) {
        fail(Code::unknown_name,
             "model writer: there is no tensor '%.300s', for parameter '%.200s'; add it before, or "
             "leave the parameter out",
             name.c_str(), p.name.c_str());
    }
    check_shape_in_file(writer.tensor(place), p.param->shape(),
                        ("parameter '" + p.name + "'").c_str());
    writer.check_floats(place);
    return place;
}

class Export {
  public:
    Export(optim::Optimizer& optimizer, Stream& stream, const ParamsToFile& what) noexcept
        : optimizer_(optimizer), parameters_(optimizer.parameters()),
          sharding_(optimizer.sharding()), stream_(stream), what_(what) {}

    // Of this rank alone: all that may be wrong before a message is sent.
    void prepare() {
        Stream& host = optimizer_.context()->host_stream();
        const auto bytes = static_cast<std::size_t>(bytes_of(DType::fp32, kFilePieceElements));
        piece_ = host.allocate(bytes);
        own_ = sharding_ != nullptr ? host.allocate(bytes) : Buffer();
        places_.resize(what_.indices.size());
        for (std::size_t i = 0; i < places_.size(); ++i) {
            const Parameter& p = parameters_[what_.indices[i]];
            if (!p.has_values) {
                fail(Code::bad_state,
                     "optimizer: '%.200s' has no values to write: it was deferred, or giving it "
                     "some failed",
                     p.name.c_str());
            }
            if (is_writer()) {
                places_[i] = place_of(*what_.writer, p, what_.prefix);
            }
        }
    }

    // Before anything is written: that all can, and who writes.
    void agree(const Status& own) {
        if (sharding_ == nullptr) {
            check(own);
            check_writers(is_writer() ? 0 : -1, 0);
            return;
        }
        const comm::Communicator& all = sharding_->groups().all();
        system::Fnv64 hash;
        for (const int32_t index : what_.indices) {
            hash.add(index);
        }
        uint32_t writers[2] = {};
        if (is_writer()) {
            writers[0] = static_cast<uint32_t>(all.rank() + 1);
            writers[1] = static_cast<uint32_t>(all.size() - all.rank());
        }
        comm::Agreement agreement;
        agreement.must_equal("the parameters that are written", hash.value());
        agreement.must_equal("whether exact values are written", what_.is_exact ? 1 : 0);
        agreement.decline(own);
        const std::size_t place = agreement.add_maxima(writers);
        check(sharding_->reach(agreement));
        root_ = static_cast<int32_t>(agreement.maximum(place)) - 1;
        check_writers(root_, all.size() - static_cast<int32_t>(agreement.maximum(place + 1)));
    }

    void write_all() {
        for (std::size_t i = 0; i < places_.size(); ++i) {
            const int32_t index = what_.indices[i];
            const int64_t count = parameters_[index].param->count();
            for (int64_t start = 0; start < count; start += kFilePieceElements) {
                write_piece(index, places_[i], start, std::min(kFilePieceElements, count - start));
            }
            agree_on_end(parameters_[index]);
        }
    }

  private:
    static void check_writers(int32_t last, int32_t first) {
        if (last < 0) {
            fail(Code::null_argument,
                 "writer is NULL on every rank; one of them must give one, which writes for all");
        }
        if (last != first) {
            fail(Code::invalid_argument,
                 "optimizer: ranks %d and %d have a writer both; one rank writes for all", first,
                 last);
        }
    }

    [[nodiscard]] bool is_writer() const noexcept { return what_.writer != nullptr; }
    [[nodiscard]] bool is_everywhere(int32_t index) const {
        return sharding_ == nullptr || parameters_[index].layout.states == optim::Placement::whole;
    }

    // After a failure of this rank alone the messages go on, of which others know.
    template <typename Body> void attempt(const Body& body) {
        if (failure_.ok()) {
            failure_ = guarded("write of parameters", [&]() -> Status {
                body();
                return {};
            });
        }
    }

    void write_piece(int32_t index, std::size_t place, int64_t start, int64_t count) {
        if (is_everywhere(index)) {
            if (is_writer()) {
                attempt([&] { read(index, start, count, piece_.data()); });
            }
        } else {
            gather(index, start, count);
        }
        if (!is_writer()) {
            return;
        }
        attempt([&] {
            what_.writer->write_floats(
                place, start,
                {static_cast<const float*>(piece_.data()), static_cast<std::size_t>(count)});
        });
    }

    // Elements that are here, by their place in the whole.
    void read(int32_t index, int64_t start, int64_t count, void* to) {
        const int64_t first = start - (is_everywhere(index) ? 0 : parameters_.slice(index).start);
        optim::read_param(stream_, parameters_, index, what_.is_exact, first,
                          {static_cast<float*>(to), static_cast<std::size_t>(count)});
    }

    // Each owner's part of a piece to the rank that writes, inside its group, which has all of it.
    void gather(int32_t index, int64_t start, int64_t count) {
        const shard::ShardGroups& groups = sharding_->groups();
        if (root_ / groups.shard_ranks() != groups.group()) {
            return;
        }
        const auto ranks = static_cast<std::size_t>(groups.shard_ranks());
        const int32_t to = root_ % groups.shard_ranks();
        std::vector<int64_t> sent(ranks), received(ranks), none(ranks), offsets(ranks);
        for (const shard::ShardSlice& slice : sharding_->plan().slices_of(index)) {
            const int64_t from = std::max(start, slice.start);
            const int64_t n = std::min(start + count, slice.start + slice.count) - from;
            if (n <= 0) {
                continue;
            }
            const auto owner = static_cast<std::size_t>(slice.rank);
            if (slice.rank == groups.shard()) {
                attempt([&] { read(index, from, n, own_.data()); });
                sent[static_cast<std::size_t>(to)] = bytes_of(DType::fp32, n);
            }
            if (groups.shard() == to) {
                received[owner] = bytes_of(DType::fp32, n);
                offsets[owner] = bytes_of(DType::fp32, from - start);
            }
        }
        comm::CallOptions options;
        options.site = "a piece of a parameter that is written";
        const auto lock = sharding_->progress().lock();
        check(groups.shards().run(comm::AllToAll{own_.data(), sent.data(), none.data(),
                                                 piece_.data(), received.data(), offsets.data()},
                                  options));
    }

    void agree_on_end(const Parameter& p) {
        if (sharding_ == nullptr) {
            check(failure_);
            return;
        }
        comm::Agreement agreement;
        agreement.must_equal("the parameter that is written", p.uid());
        agreement.decline(failure_);
        check(sharding_->reach(agreement));
    }

    optim::Optimizer& optimizer_;
    Parameters& parameters_;
    shard::Sharding* sharding_; // null: this rank alone has it
    Stream& stream_;
    const ParamsToFile& what_;
    std::vector<std::size_t> places_; // in the file, on the rank that writes

    int32_t root_ = 0;
    Buffer piece_;
    Buffer own_; // of a piece what this rank has
    Status failure_;
};

} // namespace

void write_params(optim::Optimizer& optimizer, Stream& stream, const ParamsToFile& what,
                  const Status& own) {
    if (optimizer.options().is_sharded() && optimizer.sharding() == nullptr) {
        fail(Code::bad_state,
             "optimizer: parameters are written after mp_optimizer_shard, which decides who has "
             "which elements");
    }
    stream.refuse_capture("optimizer: parameters are to be written");
    Export work(optimizer, stream, what);
    const Status ready = guarded("write of parameters", [&]() -> Status {
        check(own);
        work.prepare();
        return {};
    });
    work.agree(ready);
    work.write_all();
}

} // namespace mp::checkpoint
