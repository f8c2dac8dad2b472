// SPDX-License-Identifier: Apache-2.0
// First values of parameters, from wherever they come, for the elements that a rank has: no rank holds a whole model. What a
// weight cannot hold of them goes into its master, remainder or compensation.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "numerics/first_values.hpp"
#include "optim/optimizer.hpp"

namespace mp::optim {

// Where values come from: those of elements from `first` on of a parameter.
class ValueSource {
  public:
    ValueSource() = default;
    ValueSource(const ValueSource&) = delete;
    ValueSource& operator=(const ValueSource&) = delete;
    virtual ~ValueSource() = default;
    virtual void read(int32_t index, int64_t first, std::span<float> values) = 0;
    // What ranks must have in common of it.
    [[nodiscard]] virtual uint64_t hash() const { return 0; }
};

// By a rule of each parameter's own; random numbers are keyed by its name.
class RuleSource final : public ValueSource {
  public:
    // `parameters` outlives this; a rule for each index that is asked for. Throws for bounds that are none.
    RuleSource(const Parameters& parameters, uint64_t seed, std::span<const int32_t> indices,
               std::vector<numerics::InitRule> rules);
    void read(int32_t index, int64_t first, std::span<float> values) override;
    [[nodiscard]] uint64_t hash() const override;

  private:
    const Parameters& parameters_;
    uint64_t seed_;
    std::vector<int32_t> places_; // by parameter: of its rule; -1: it has none
    std::vector<numerics::InitRule> rules_;
};

// Every rank reads what it has.
inline constexpr int32_t kEveryRank = -1;

// Made where it is known whether all ranks can go on; throws where this one cannot.
using MakeSource = std::function<std::unique_ptr<ValueSource>()>;

// Gives these parameters their values; moments and counts stay. `root`: who reads, piece by piece, and sends the others theirs;
// or kEveryRank. Collective where ranks share the optimizer, after shard(). Where it fails in between, the parameters have no
// values, and a step says so.
void set_first_values(Optimizer& optimizer, Stream& stream, std::span<const int32_t> indices,
                      const MakeSource& make_source, int32_t root = kEveryRank);

} // namespace mp::optim
