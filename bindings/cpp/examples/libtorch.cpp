// SPDX-License-Identifier: Apache-2.0
// libtorch in C++, whose weights, moments and gradients are bf16 and lose nothing: the library updates torch's own tensors,
// which it gets by DLPack without a copy. libtorch for C++ has neither this optimizer nor a loss scaler.
//
//   c++ -std=c++17 libtorch.cpp $(pkg-config --cflags --libs mixedprec) -ltorch -ltorch_cpu -lc10
#include <ATen/DLConvertor.h>
#include <torch/torch.h>

#include <cstdio>
#include <mixedprec.hpp>

// DLPack 1.0's struct, for releases of torch whose dlpack.h is older.
#ifndef DLPACK_FLAG_BITMASK_READ_ONLY
struct DLPackVersion {
    std::uint32_t major, minor;
};
struct DLManagedTensorVersioned {
    DLPackVersion version;
    void* manager_ctx;
    void (*deleter)(DLManagedTensorVersioned* self);
    std::uint64_t flags;
    DLTensor dl_tensor;
};
#endif

namespace {

// The same memory as the library's tensor. Torch gives DLPack's first struct; the library takes the versioned one.
mixedprec::Tensor shared(const mixedprec::Context& context, const torch::Tensor& tensor) {
    DLManagedTensor* managed = at::toDLPack(tensor.detach());
    auto* versioned = new DLManagedTensorVersioned{{1, 0}, managed, nullptr, 0, managed->dl_tensor};
    versioned->deleter = [](DLManagedTensorVersioned* self) {
        auto* inner = static_cast<DLManagedTensor*>(self->manager_ctx);
        inner->deleter(inner);
        delete self;
    };
    return mixedprec::Tensor::from_dlpack(context, versioned);
}

// A torch-shaped optimizer: made of a module's parameters, then step() and zero_grad().
class MixedPrecAdamW {
  public:
    MixedPrecAdamW(const mixedprec::Context& context, const std::string& recipe,
                   torch::nn::Module& module, double lr)
        : recipe_(mixedprec::Recipe::create(context, recipe)),
          optimizer_(mixedprec::Optimizer::create(context, recipe_)) {
        mixedprec::GroupOptions group;
        group.lr = lr;
        group.weight_decay = 0.01;
        group.beta2 = 0.99;
        optimizer_.add_group(group);
        for (auto& parameter : module.named_parameters()) {
            // The gradient must stay where it is: zero_grad writes zeros, it does not drop it.
            parameter.value().mutable_grad() = torch::zeros_like(parameter.value());
            optimizer_.add_param(parameter.key(), shared(context, parameter.value()),
                                 {shared(context, parameter.value().grad())});
        }
    }
    void step() { optimizer_.step(); }
    void zero_grad() { optimizer_.zero_grad(); }
    std::int64_t bytes() const { return optimizer_.memory().total_bytes; }

  private:
    mixedprec::Recipe recipe_;
    mixedprec::Optimizer optimizer_;
};

double train(torch::ScalarType type, const std::string& recipe) {
    torch::manual_seed(1);
    torch::nn::Sequential model(torch::nn::Linear(16, 64), torch::nn::ReLU(),
                                torch::nn::Linear(64, 1));
    model->to(type);
    const auto context = mixedprec::Context::create();
    MixedPrecAdamW optimizer(context, recipe, *model, 3e-3);
    const auto x = torch::randn({256, 16});
    const auto y = (x.slice(1, 0, 4).sum(1, true) * 0.5).tanh();
    double loss = 0.0;
    for (int step = 0; step < 300; ++step) {
        optimizer.zero_grad();
        const auto error = torch::mse_loss(model->forward(x.to(type)).to(torch::kFloat32), y);
        error.backward();
        optimizer.step();
        loss = error.item<double>();
    }
    std::printf("%-16s %5lld bytes  loss %.6f\n", recipe.c_str(),
                static_cast<long long>(optimizer.bytes()), loss);
    return loss;
}

} // namespace

int main() {
    const double exact = train(torch::kFloat32, "fp32");
    const double kahan = train(torch::kBFloat16, "bf16_pure_kahan");
    // A test runs this: bf16 with compensation must have learned what fp32 has, up to the noise of its products.
    return exact < 0.01 && kahan < 0.02 ? 0 : 1;
}
