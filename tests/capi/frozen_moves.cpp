// SPDX-License-Identifier: Apache-2.0
// Frozen weights in blocks where the list of parameters changes after the cut: in stage 3 they do not move. And tensors that are
// added twice.
#include "optimizers.hpp"
#include "ranks.hpp"

using namespace mp_test;

namespace {

class Base {
  public:
    Base(mp_comm* comm, int32_t plan) : context_(make_context(1)) {
        mp_sharding_desc sharding = MP_SHARDING_DESC_INIT;
        sharding.stage = 3;
        sharding.kind = plan;
        recipe_ = make_recipe(context_, "fp32");
        optimizer_ = make_optimizer_on(comm, context_, recipe_, nullptr, &sharding);
        add_group(optimizer_);
        EXPECT_EQ(add("base", codes(3 * 128), MP_PARAM_FROZEN), MP_STATUS_OK);
        EXPECT_EQ(add("trained", make_tensor(context_, MP_DTYPE_FP32, {50000}), 0), MP_STATUS_OK);
        EXPECT_EQ(mp_optimizer_shard(optimizer_, nullptr), MP_STATUS_OK);
    }
    [[nodiscard]] mp_status add(const char* name, Tensor tensor, uint32_t flags) {
        tensors_.push_back(std::move(tensor));
        return add_param_flags(optimizer_, name, tensors_.back(), flags);
    }
    // Of 512 columns, in blocks of 128 x 128.
    [[nodiscard]] Tensor codes(int64_t rows) const {
        mp_quant_desc quant = MP_QUANT_DESC_INIT;
        quant.scaling = MP_SCALING_BLOCK_128X128;
        Tensor made = make_quantized(context_, MP_DTYPE_FP8_E4M3, {rows, 512}, &quant);
        std::vector<float> values(static_cast<std::size_t>(rows) * 512);
        for (std::size_t i = 0; i < values.size(); ++i) {
            const std::size_t row = i / 512;
            values[i] = 0.25F * static_cast<float>(i % 37) - 3.0F + 1e-3F * static_cast<float>(row);
        }
        const Tensor exact = make_tensor(context_, MP_DTYPE_FP32, {rows, 512}, values);
        EXPECT_TRUE(succeeded(mp_tensor_quantize(exact, nullptr, made, nullptr, nullptr, nullptr)));
        return made;
    }
    // The codes and scales of the base, gathered.
    [[nodiscard]] std::vector<std::vector<unsigned char>> base() const {
        const int32_t first = 0;
        EXPECT_TRUE(succeeded(mp_optimizer_gather_begin(optimizer_, nullptr, &first, 1)));
        EXPECT_TRUE(succeeded(mp_optimizer_gather_wait(optimizer_, nullptr, &first, 1)));
        std::vector<std::vector<unsigned char>> all = {bytes_of(tensors_[0]),
                                                       bytes_of(scales_of(tensors_[0]))};
        EXPECT_TRUE(succeeded(mp_optimizer_gather_free(optimizer_, nullptr, &first, 1)));
        return all;
    }
    [[nodiscard]] mp_optimizer* optimizer() const { return optimizer_; }
    [[nodiscard]] mp_context* context() const { return context_; }

  private:
    Context context_;
    Recipe recipe_;
    std::vector<Tensor> tensors_;
    Optimizer optimizer_;
};

TEST(FrozenMoves, AreRefusedWithNothingChanged) {
    run_ranks(3, [](mp_comm* comm, int32_t /*rank*/) {
        Base model(comm, MP_SHARD_FLAT);
        const auto before = model.base();
        MP_FAILS(model.add("more", model.codes(5 * 128), MP_PARAM_FROZEN), MP_STATUS_UNSUPPORTED,
                 "'base'", "would go to other ranks", "MP_SHARD_PER_PARAMETER");
        EXPECT_EQ(model.base(), before);
        int32_t count = 0;
        MP_OK(mp_optimizer_get_param_count(model.optimizer(), &count));
        EXPECT_EQ(count, 2);
    });
}

TEST(FrozenMoves, AreNoneWhereEachParameterIsCutByItself) {
    run_ranks(3, [](mp_comm* comm, int32_t /*rank*/) {
        Base model(comm, MP_SHARD_PER_PARAMETER);
        const auto before = model.base();
        MP_OK(model.add("more", model.codes(5 * 128), MP_PARAM_FROZEN));
        const int32_t trained = 1;
        MP_OK(mp_optimizer_set_frozen(model.optimizer(), nullptr, &trained, 1, 1));
        EXPECT_EQ(model.base(), before);
    });
}

TEST(FrozenMoves, ADeferredTensorIsAddedOnce) {
    run_ranks(2, [](mp_comm* comm, int32_t /*rank*/) {
        const Base model(comm, MP_SHARD_FLAT);
        mp_tensor_desc shape = tensor_desc(MP_DTYPE_FP32, {40000});
        shape.flags = MP_TENSOR_DEFERRED;
        mp_tensor* raw = nullptr;
        MP_OK(mp_tensor_create(model.context(), &shape, &raw));
        const Tensor deferred(raw);
        mp_param_desc both[2] = {MP_PARAM_DESC_INIT, MP_PARAM_DESC_INIT};
        both[0].name = "a";
        both[1].name = "b";
        both[0].param = both[1].param = deferred;
        MP_FAILS(mp_optimizer_add_params(model.optimizer(), 0, both, 2, nullptr),
                 MP_STATUS_BAD_STATE, "desc.param");
        int32_t count = 0;
        MP_OK(mp_optimizer_get_param_count(model.optimizer(), &count));
        EXPECT_EQ(count, 2);
    });
}

} // namespace
