// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/ranks.hpp"

#include <new>
#include <numeric>

namespace mp::checkpoint {
namespace {

class AloneRanks final : public Ranks {
  public:
    [[nodiscard]] int32_t rank() const noexcept override { return 0; }
    [[nodiscard]] int32_t size() const noexcept override { return 1; }
    std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
    std::string broadcast(const std::string& mine) override { return mine; }
};

class CommunicatorRanks final : public Ranks {
  public:
    explicit CommunicatorRanks(comm::Communicator& communicator) noexcept
        : communicator_(communicator) {}
    [[nodiscard]] int32_t rank() const noexcept override { return communicator_.rank(); }
    [[nodiscard]] int32_t size() const noexcept override { return communicator_.size(); }

    std::vector<std::string> gather(const std::string& mine) override {
        const auto n = static_cast<std::size_t>(size());
        const std::vector<int64_t> bytes(n, sizeof(int64_t));
        std::vector<int64_t> offsets(n);
        std::vector<int64_t> lengths(n);
        for (std::size_t r = 0; r < n; ++r) {
            offsets[r] = static_cast<int64_t>(r * sizeof(int64_t));
        }
        const auto length = static_cast<int64_t>(mine.size());
        check(communicator_.run(
            comm::AllGather{&length, sizeof length, lengths.data(), bytes.data(), offsets.data()},
            kOptions));
        std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), int64_t{0});
        std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), '\0');
        check(communicator_.run(
            comm::AllGather{mine.data(), length, all.data(), lengths.data(), offsets.data()},
            kOptions));
        std::vector<std::string> each;
        for (std::size_t r = 0; r < n; ++r) {
            each.push_back(all.substr(static_cast<std::size_t>(offsets[r]),
                                      static_cast<std::size_t>(lengths[r])));
        }
        return each;
    }

    std::string broadcast(const std::string& mine) override {
        auto length = static_cast<int64_t>(mine.size());
        check(communicator_.run(comm::Broadcast{&length, sizeof length, 0}, kOptions));
        std::string all = mine;
        all.resize(static_cast<std::size_t>(length));
        check(communicator_.run(comm::Broadcast{all.data(), length, 0}, kOptions));
        return all;
    }

  private:
    static constexpr comm::CallOptions kOptions = {0, "checkpoint", nullptr};

    comm::Communicator& communicator_;
};

// What became of the work of one rank.
struct Outcome {
    Code code = Code::ok;
    std::string bytes; // the result, or the words of the failure
    void exchange(auto& to) { to(code, bytes); }
};

std::string attempt(const std::function<std::string()>& work) {
    Outcome outcome;
    try {
        outcome.bytes = work();
    } catch (const Error& error) {
        outcome = {error.status().code(), error.status().text()};
    } catch (const std::bad_alloc&) {
        outcome = {Code::out_of_memory, "out of memory"};
    } catch (const std::exception& error) {
        outcome = {Code::internal, error.what()};
    }
    return system::to_bytes(outcome);
}

std::string result_of(const std::string& bytes, int32_t rank, int32_t size) {
    auto outcome = system::from_bytes<Outcome>(bytes);
    if (outcome.code == Code::ok) {
        return std::move(outcome.bytes);
    }
    if (size == 1) {
        fail(outcome.code, "%s", outcome.bytes.c_str());
    }
    fail(outcome.code, "rank %d: %s", rank, outcome.bytes.c_str());
}

} // namespace

std::unique_ptr<Ranks> make_ranks(comm::Communicator* communicator) {
    if (communicator == nullptr) {
        return std::make_unique<AloneRanks>();
    }
    return std::make_unique<CommunicatorRanks>(*communicator);
}

std::vector<std::string> detail::together(Ranks& ranks, const std::function<std::string()>& work) {
    std::vector<std::string> all = ranks.gather(attempt(work));
    int32_t rank = 0;
    for (std::string& one : all) {
        one = result_of(one, rank++, ranks.size());
    }
    return all;
}

std::string detail::on_first(Ranks& ranks, const std::function<std::string()>& work) {
    return result_of(ranks.broadcast(ranks.rank() == 0 ? attempt(work) : std::string()), 0,
                     ranks.size());
}

} // namespace mp::checkpoint
