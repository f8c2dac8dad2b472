// SPDX-License-Identifier: Apache-2.0
// Small sharded optimizers on ranks that are threads, with checkpoints in simulated files, and all that they hold as bytes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpointer.hpp"
#include "checkpoint/simulated_files.hpp"
#include "comm/test_model.hpp"
#include "fuzz/target.hpp"

namespace mp::fuzz {

// Fp32; 8-bit blocks with their scales; codes with one power of two for the tensor.
inline constexpr int32_t kFamilies = 3;
inline constexpr int32_t kMostRanks = 3;

inline recipe::Recipe recipe_of(int32_t family) {
    const char* const presets[kFamilies] = {"fp32", "bf16_pure_kahan", "msamp_o2"};
    recipe::Recipe recipe = recipe::find_preset(presets[family]).recipe;
    if (family == 1) {
        recipe.state(numerics::StateId::exp_avg).format =
            recipe.state(numerics::StateId::exp_avg_sq).format = FormatId::dynamic8;
    }
    return recipe;
}

// What one rank has: each slice's bytes by tensor and first element, and the numbers.
struct Held {
    std::map<std::string, std::string> slices;
    std::map<std::string, uint64_t> numbers;

    bool operator==(const Held& other) const = default;
};

class Rank {
  public:
    // `first` is added to every initial value.
    Rank(int32_t family, float first, std::unique_ptr<comm::Communicator> comm,
         test::SimulatedFiles& files)
        : context_(test::make_context()), comm_(std::move(comm)) {
        optim::OptimizerOptions options;
        options.seed = 5;
        options.sharding.comm = comm_;
        options.sharding.stage = comm_->size(); // each stage with a number of ranks of its own
        options.sharding.kind = family == 2 ? shard::ShardKind::greedy : shard::ShardKind::flat;
        optimizer_ = std::make_shared<optim::Optimizer>(context_, recipe_of(family), options);
        optimizer_->groups().add(numerics::usual_hyper(numerics::RuleId::adamw));
        for (const Shape& shape : {Shape{{kChunkElements + 5}, 1}, Shape{{3, 40}, 2}, Shape{{0}, 1},
                                   Shape{{1}, 1}, Shape{{16, 16}, 2}}) {
            add(shape, first);
        }
        optimizer_->shard(stream());
        checkpoint::CheckpointerOptions where;
        where.files = &files;
        checkpointer_ = std::make_unique<checkpoint::Checkpointer>(context_, comm_.get(), where);
        checkpointer_->add(checkpoint::stateful_optimizer(optimizer_));
        stateful_ = checkpoint::stateful_optimizer(optimizer_);
    }

    void step(int32_t number) {
        for (int32_t p = 0; p < optimizer_->parameters().count(); ++p) {
            const auto grad = optimizer_->parameters().state(p, "grad");
            grad->restore_memory(stream());
            std::vector<float> values(static_cast<std::size_t>(grad->count()));
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] =
                    test::noise(0, static_cast<uint64_t>(number), static_cast<uint64_t>(p), i);
            }
            if (grad->scales() != nullptr) {
                const Tensor wide(context_, stream(), DType::fp32, grad->shape(), values.data(),
                                  {});
                quant::quantize_tensor(stream(), wide, *grad, nullptr);
            } else if (grad->count() > 0) {
                cast_tensor(stream(), {values.data(), grad->count(), DType::fp32}, grad->ref());
            }
        }
        optimizer_->step(stream(), nullptr);
    }

    [[nodiscard]] Held held() const {
        checkpoint::Catalog catalog;
        stateful_->add_to(catalog);
        checkpoint::wait_for(catalog);
        Held held;
        for (const checkpoint::Entry& entry : catalog.entries) {
            for (const checkpoint::LocalSlice& slice : entry.slices) {
                std::string bytes(entry.bytes(slice), '\0');
                checkpoint::copy_out(entry, slice, 0, bytes.data(), bytes.size());
                held.slices[entry.text() + '@' + std::to_string(entry.offset(slice.start))] =
                    std::move(bytes);
            }
        }
        checkpoint::wait_for(catalog);
        for (const checkpoint::Scalar& scalar : catalog.scalars) {
            held.numbers[scalar.name] = scalar.bits;
        }
        held.numbers["seed"] = catalog.seed;
        held.numbers["t"] = static_cast<uint64_t>(catalog.rng_step);
        return held;
    }

    [[nodiscard]] checkpoint::Checkpointer& checkpointer() { return *checkpointer_; }

  private:
    [[nodiscard]] Stream& stream() { return context_->stream(); }

    void add(const Shape& shape, float first) {
        const FormatId weight = optimizer_->recipe().weight;
        const bool is_vector = shape.ndim == 1; // kept in high precision
        optim::NewParameter parameter;
        const auto index = static_cast<uint64_t>(optimizer_->parameters().count());
        parameter.name = "p" + std::to_string(index);
        parameter.param =
            is_vector || !is_scaled(weight)
                ? std::make_shared<Tensor>(
                      context_, stream(), is_scaled(weight) ? DType::fp32 : dtype_of(weight), shape)
                : optim::make_state(context_, stream(), weight, shape);
        parameter.init_fp32 = std::make_shared<Tensor>(context_, stream(), DType::fp32, shape);
        auto* init = static_cast<float*>(parameter.init_fp32->data());
        for (int64_t i = 0; i < shape.count(); ++i) {
            init[i] = 0.37F * test::noise(99, 0, index, static_cast<uint64_t>(i)) + first;
        }
        optimizer_->add_parameter(stream(), 0, parameter);
    }

    std::shared_ptr<Context> context_;
    std::shared_ptr<comm::Communicator> comm_;
    std::shared_ptr<optim::Optimizer> optimizer_;
    std::unique_ptr<checkpoint::Checkpointer> checkpointer_;
    std::unique_ptr<checkpoint::Stateful> stateful_;
};

// All ranks of one run.
class Group {
  public:
    Group(int32_t family, int32_t size, float first, test::SimulatedFiles& files)
        : ranks_(static_cast<std::size_t>(size)) {
        auto comms = test::make_ranks({size, 0}, 60000);
        each([&](std::size_t r) {
            ranks_[r] = std::make_unique<Rank>(family, first, std::move(comms[r]), files);
        });
    }

    void each(const std::function<void(std::size_t)>& body) {
        std::vector<std::thread> threads;
        for (std::size_t r = 1; r < ranks_.size(); ++r) {
            threads.emplace_back(body, r);
        }
        body(0);
        for (std::thread& thread : threads) {
            thread.join();
        }
    }

    [[nodiscard]] std::size_t size() const noexcept { return ranks_.size(); }
    [[nodiscard]] Rank& rank(std::size_t r) { return *ranks_[r]; }

    [[nodiscard]] std::vector<Held> held() const {
        std::vector<Held> all;
        for (const auto& rank : ranks_) {
            all.push_back(rank->held());
        }
        return all;
    }

  private:
    std::vector<std::unique_ptr<Rank>> ranks_;
};

// The whole tensors, whoever holds them; what several have must be equal.
inline std::map<std::string, std::string> joined(const std::vector<Held>& all) {
    std::map<std::string, std::string> tensors;
    std::map<std::string, std::string> known; // 1 where a byte was seen
    for (const Held& held : all) {
        for (const auto& [key, bytes] : held.slices) {
            const std::size_t cut = key.rfind('@');
            const std::size_t at = std::stoull(key.substr(cut + 1));
            std::string& whole = tensors[key.substr(0, cut)];
            std::string& seen = known[key.substr(0, cut)];
            whole.resize(std::max(whole.size(), at + bytes.size()));
            seen.resize(whole.size());
            const bool is_first = seen.find('\1', at) >= at + bytes.size();
            require(is_first || whole.compare(at, bytes.size(), bytes) == 0,
                    "what several ranks have is equal: " + key);
            whole.replace(at, bytes.size(), bytes);
            seen.replace(at, bytes.size(), bytes.size(), '\1');
        }
    }
    for (const auto& [key, seen] : known) {
        require(seen.find('\0') == std::string::npos, "every element has a rank: " + key);
    }
    return tensors;
}

} // namespace mp::fuzz
