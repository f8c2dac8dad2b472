// SPDX-License-Identifier: Apache-2.0
// weight.gather.codes: ranks that get their weights as codes compute what ranks compute that get them exactly and quantize
// them themselves, bit by bit, over ten steps of training; a quarter of the bytes travel.
#include "linear/layer_pass.hpp"
#include "zero.hpp"

namespace mp::test {
namespace {

constexpr int64_t kIn = 256;
constexpr int64_t kOut = 384;
constexpr int64_t kRows = 32;

std::shared_ptr<Tensor> tensor_of(const std::shared_ptr<Context>& context, int64_t rows,
                                  int64_t columns, uint64_t seed) {
    auto tensor = std::make_shared<Tensor>(context, context->stream(), DType::fp32,
                                           Shape{{rows, columns}, 2});
    for (int64_t i = 0; i < tensor->count(); ++i) {
        static_cast<float*>(tensor->data())[i] = noise(seed, 0, 0, static_cast<uint64_t>(i));
    }
    return tensor;
}

// The layer's weight, as codes or exact.
optim::NewParameter weight_of(const std::shared_ptr<Context>& context, const recipe::Recipe& recipe,
                              bool as_codes) {
    const Shape shape = {{kOut, kIn}, 2};
    const Format form =
        recipe::operand_format(recipe.fp8, recipe::GemmRole::fprop, recipe::Operand::weight);
    optim::NewParameter weight;
    weight.name = "w";
    weight.param = as_codes
                       ? std::make_shared<Tensor>(context, context->stream(), form, shape)
                       : std::make_shared<Tensor>(context, context->stream(), DType::fp32, shape);
    weight.init_fp32 = tensor_of(context, kOut, kIn, 1);
    return weight;
}

// One linear layer, trained; returns all outputs of this rank.
std::vector<float> train_layer(const std::shared_ptr<Communicator>& comm, bool as_codes,
                               int32_t stage, int64_t* gathered) {
    recipe::Recipe recipe = recipe::find_preset("fp8_current").recipe;
    recipe.weight_gather = DType::fp32;
    recipe.fp8.gather = as_codes;
    const auto context = make_context();
    Stream& stream = context->stream();
    optim::OptimizerOptions options;
    options.max_grad_norm = 1.0;
    options.sharding.comm = comm;
    options.sharding.stage = stage;
    optim::Optimizer optimizer(context, recipe, options);
    numerics::GroupHyper hyper = numerics::usual_hyper(numerics::RuleId::adamw);
    hyper.lr = 0.02;
    optimizer.groups().add(hyper);
    const optim::NewParameter weight = weight_of(context, recipe, as_codes);
    optimizer.add_parameter(stream, 0, weight);
    optimizer.shard(stream);
    linear::LinearOptions layer_options;
    layer_options.in_features = kIn;
    layer_options.out_features = kOut;
    linear::Linear layer(context, recipe, layer_options, weight.param, nullptr);

    const auto rank = static_cast<uint64_t>(comm->rank());
    const auto x = tensor_of(context, kRows, kIn, 10 + rank);
    const auto target = tensor_of(context, kRows, kOut, 20 + rank);
    Tensor y(context, stream, DType::fp32, target->shape());
    Tensor dx(context, stream, DType::fp32, x->shape());
    const std::vector<int32_t> all = {0};
    std::vector<float> outputs;
    const comm::Traffic before = comm->traffic();
    for (int32_t step = 0; step < 10; ++step) {
        optimizer.sharding()->begin_gather(stream, all);
        optimizer.sharding()->wait_gather(stream, all);
        const linear::LayerPass pass{&layer, layer.last(), {}};
        linear::forward(stream, pass, x, &y, linear::Keep::input);
        auto* values = static_cast<float*>(y.data());
        outputs.insert(outputs.end(), values, values + y.count());
        for (int64_t i = 0; i < y.count(); ++i) { // dy = y - target
            values[i] -= static_cast<const float*>(target->data())[i];
        }
        optimizer.sharding()->acquire_grad(stream, 0);
        const auto grad = optimizer.parameters().state(0, "grad");
        linear::WeightGradients gradients;
        gradients.dw = grad.get();
        linear::backward(stream, pass, y, &dx, gradients);
        const auto* lost = static_cast<const float*>(dx.data());
        outputs.insert(outputs.end(), lost, lost + dx.count());
        layer.end_step(stream);
        optimizer.step(stream, nullptr);
    }
    const auto kind = static_cast<std::size_t>(CollectiveKind::all_gather);
    *gathered = comm->traffic().bytes[kind] - before.bytes[kind];
    return outputs;
}

TEST(ZeroFp8, CodesOnTheWireTrainAsExactWeightsDo) {
    constexpr int32_t kRanks = 3;
    for (int32_t stage = 1; stage <= 3; ++stage) {
        std::vector<std::vector<float>> outputs[2];
        int64_t bytes[2] = {};
        for (const bool as_codes : {false, true}) {
            outputs[as_codes].resize(kRanks);
            run_ranks(make_ranks({kRanks, 0}, 20000), [&](std::unique_ptr<Communicator>& own) {
                const std::shared_ptr<Communicator> comm = std::move(own);
                const auto rank = static_cast<std::size_t>(comm->rank());
                int64_t gathered = 0;
                try {
                    outputs[as_codes][rank] = train_layer(comm, as_codes, stage, &gathered);
                } catch (const Error& error) {
                    ADD_FAILURE() << error.what();
                }
                if (rank == 0) {
                    bytes[as_codes] = gathered;
                }
            });
        }
        for (std::size_t rank = 0; rank < kRanks; ++rank) {
            SCOPED_TRACE("stage " + std::to_string(stage) + ", rank " + std::to_string(rank));
            ASSERT_FALSE(outputs[0][rank].empty());
            EXPECT_EQ(outputs[0][rank], outputs[1][rank]);
            EXPECT_NE(outputs[0][rank].front(), outputs[0][rank].at(9 * kRows * (kIn + kOut)))
                << "nothing was learned";
        }
        EXPECT_LT(static_cast<double>(bytes[1]), 0.26 * static_cast<double>(bytes[0]));
    }
}

} // namespace
} // namespace mp::test
