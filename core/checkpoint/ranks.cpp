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
    std::string broadcast(const std::string& text) override { return text; }
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
        check(communicator_.all_gather(
            {&length, sizeof length, lengths.data(), bytes.data(), offsets.data()}, kOptions));
        std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), int64_t{0});
        std::string all(static_cast<std::size_t>(offsets.back() + lengths.back()), '\0');
        check(communicator_.all_gather(
            {mine.data(), length, all.data(), lengths.data(), offsets.data()}, kOptions));
        std::vector<std::string> texts;
        for (std::size_t r = 0; r < n; ++r) {
            texts.push_back(all.substr(static_cast<std::size_t>(offsets[r]),
                                       static_cast<std::size_t>(lengths[r])));
        }
        return texts;
    }

    std::string broadcast(const std::string& text) override {
        auto length = static_cast<int64_t>(text.size());
        check(communicator_.broadcast(&length, sizeof length, 0, kOptions));
        std::string all = text;
        all.resize(static_cast<std::size_t>(length));
        check(communicator_.broadcast(all.data(), length, 0, kOptions));
        return all;
    }

  private:
    static constexpr comm::CallOptions kOptions = {0, "checkpoint", nullptr};

    comm::Communicator& communicator_;
};

// "+" and the result, or "-", the code, a space and the words.
std::string attempt(const std::function<std::string()>& work) {
    const auto failure = [](Code code, const char* text) {
        return '-' + std::to_string(static_cast<int32_t>(code)) + " " + text;
    };
    try {
        return '+' + work();
    } catch (const Error& error) {
        return failure(error.status().code(), error.status().text());
    } catch (const std::bad_alloc&) {
        return failure(Code::out_of_memory, "out of memory");
    } catch (const std::exception& error) {
        return failure(Code::internal, error.what());
    }
}

void check_outcome(const std::string& outcome, int32_t rank, int32_t size) {
    if (!outcome.empty() && outcome[0] == '+') {
        return;
    }
    const std::size_t space = outcome.find(' ');
    if (outcome.empty() || outcome[0] != '-' || space == std::string::npos) {
        fail(Code::internal, "checkpoint: rank %d sent what cannot be read", rank);
    }
    const auto code = static_cast<Code>(std::strtol(outcome.c_str() + 1, nullptr, 10));
    const char* text = outcome.c_str() + space + 1;
    if (size == 1) {
        fail(code, "%s", text);
    }
    fail(code, "rank %d: %s", rank, text);
}

} // namespace

std::unique_ptr<Ranks> make_ranks(comm::Communicator* communicator) {
    if (communicator == nullptr) {
        return std::make_unique<AloneRanks>();
    }
    return std::make_unique<CommunicatorRanks>(*communicator);
}

std::vector<std::string> together(Ranks& ranks, const std::function<std::string()>& work) {
    std::vector<std::string> outcomes = ranks.gather(attempt(work));
    int32_t rank = 0;
    for (std::string& outcome : outcomes) {
        check_outcome(outcome, rank++, ranks.size());
        outcome.erase(0, 1);
    }
    return outcomes;
}

std::string on_first(Ranks& ranks, const std::function<std::string()>& work) {
    std::string outcome = ranks.broadcast(ranks.rank() == 0 ? attempt(work) : std::string());
    check_outcome(outcome, 0, ranks.size());
    outcome.erase(0, 1);
    return outcome;
}

} // namespace mp::checkpoint
