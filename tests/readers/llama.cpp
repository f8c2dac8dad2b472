// SPDX-License-Identifier: Apache-2.0
// What llama.cpp makes of an adapter and of a merged model that the library has written: the same logits.
//
//     llama MODEL.gguf FOLDER     FOLDER: an empty one, for what is written
//
// Three files: the model's numbers as F32, the same with an adapter of some matrices merged, and the adapter. llama.cpp rounds
// activations for products with codes, and one rounding that turns out otherwise moves all logits; so there are none.
#include <llama.h>
#include <mixedprec.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace mp = mixedprec;

namespace {

constexpr std::int64_t kRank = 8;
constexpr float kAlpha = 16.0F;
const std::vector<std::string> kMatrices = {"blk.0.attn_q.weight", "blk.7.ffn_down.weight",
                                            "blk.15.attn_v.weight", "blk.29.ffn_up.weight"};

// Evenly in [-most, most].
std::vector<float> numbers(std::int64_t count, float most) {
    static std::uint32_t state = 1;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
        state = state * 1664525U + 1013904223U;
        value = (static_cast<float>(state >> 8) / 8388608.0F - 1.0F) * most;
    }
    return values;
}

// A matrix of the model, frozen, with an adapter.
struct Adapted {
    std::int64_t rows, columns;
    mp::Tensor weight, merged, a, b;
    mp::Linear layer;
    mp::Adapter adapter;

    Adapted(const mp::Context& context, const mp::Recipe& recipe, const mp::ModelFile& model,
            std::int64_t index, const mp::FileTensor& info)
        : rows(info.shape[0]), columns(info.shape[1]),
          weight(mp::Tensor::create(context, info.dtype, {rows, columns})),
          merged(mp::Tensor::create(context, MP_DTYPE_FP32, {rows, columns})),
          a(mp::Tensor::from(context, numbers(kRank * columns, 0.04F), {kRank, columns})),
          b(mp::Tensor::from(context, numbers(rows * kRank, 0.1F), {rows, kRank})),
          layer(mp::Linear::create(context, recipe, columns, rows, weight, nullptr,
                                   MP_LINEAR_FROZEN)),
          adapter(mp::Adapter::create(layer, recipe, a, b, options())) {
        model.load(index, 0, weight);
        mp::merge_adapters(layer, merged);
    }

  private:
    static mp::AdapterOptions options() {
        mp::AdapterOptions options;
        options.alpha = static_cast<double>(kAlpha);
        return options;
    }
};
using Matrices = std::map<std::string, std::unique_ptr<Adapted>>;

void write_adapter(const std::string& path, const Matrices& matrices) {
    auto writer = mp::ModelWriter::create(path);
    writer.set("general.type", "adapter");
    writer.set("general.architecture", "llama");
    writer.set("adapter.type", "lora");
    writer.set("adapter.lora.alpha", kAlpha);
    std::vector<std::pair<std::int64_t, const mp::Tensor*>> tensors;
    for (const auto& [name, matrix] : matrices) {
        tensors.emplace_back(
            writer.add_tensor(name + ".lora_a", MP_DTYPE_FP32, {kRank, matrix->columns}),
            &matrix->a);
        tensors.emplace_back(
            writer.add_tensor(name + ".lora_b", MP_DTYPE_FP32, {matrix->rows, kRank}), &matrix->b);
    }
    for (const auto& [index, tensor] : tensors) {
        writer.write_tensor(index, *tensor);
    }
    writer.finish();
}

// The model in F32, with these matrices in place of its own.
void write_model(const std::string& path, const mp::ModelFile& model,
                 const std::map<std::string, const mp::Tensor*>& replaced) {
    constexpr std::int64_t kPiece = std::int64_t{1} << 18;
    auto writer = mp::ModelWriter::create(path);
    writer.copy_metadata(model);
    for (std::int64_t i = 0; i < model.count(); ++i) {
        const mp::FileTensor info = model.tensor(i);
        writer.add_tensor(info.name, MP_DTYPE_FP32,
                          std::vector<std::int64_t>(info.shape, info.shape + info.ndim));
    }
    std::vector<float> values;
    for (std::int64_t i = 0; i < model.count(); ++i) {
        const mp::FileTensor info = model.tensor(i);
        if (const auto found = replaced.find(info.name); found != replaced.end()) {
            writer.write_tensor(i, *found->second);
            continue;
        }
        for (std::int64_t first = 0; first < info.count; first += kPiece) {
            values.resize(static_cast<std::size_t>(std::min(kPiece, info.count - first)));
            model.read_floats(i, first, values);
            writer.write_floats(i, first, values);
        }
    }
    writer.finish();
}

// Of the last of a few tokens.
std::vector<float> logits(const std::string& path, const std::string& adapter) {
    llama_model* const model =
        llama_model_load_from_file(path.c_str(), llama_model_default_params());
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 64;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    llama_context* const context =
        model != nullptr ? llama_init_from_model(model, params) : nullptr;
    if (context == nullptr) {
        std::fprintf(stderr, "llama.cpp does not open %s\n", path.c_str());
        std::exit(1);
    }
    if (!adapter.empty()) {
        llama_adapter_lora* const lora = llama_adapter_lora_init(model, adapter.c_str());
        if (lora == nullptr || llama_set_adapter_lora(context, lora, 1.0F) != 0) {
            std::fprintf(stderr, "llama.cpp does not take the adapter %s\n", adapter.c_str());
            std::exit(1);
        }
    }
    std::vector<llama_token> tokens;
    for (int i = 0; i < 20; ++i) {
        tokens.push_back(100 + 37 * i);
    }
    if (llama_decode(context, llama_batch_get_one(tokens.data(), 20)) != 0) {
        std::exit(1);
    }
    const float* const found = llama_get_logits_ith(context, -1);
    std::vector<float> values(found, found + llama_vocab_n_tokens(llama_model_get_vocab(model)));
    llama_free(context);
    llama_model_free(model);
    return values;
}

// Root of the mean square of the difference.
double distance(const std::vector<float>& one, const std::vector<float>& other) {
    double sum = 0;
    for (std::size_t i = 0; i < one.size(); ++i) {
        const double difference = static_cast<double>(one[i]) - static_cast<double>(other[i]);
        sum += difference * difference;
    }
    return std::sqrt(sum / static_cast<double>(one.size()));
}

int check(const std::string& path, const std::string& folder) {
    const auto context = mp::Context::create();
    const auto recipe = mp::Recipe::create(context, "fp32");
    const auto model = mp::ModelFile::open(path);
    Matrices matrices;
    std::map<std::string, const mp::Tensor*> merged;
    for (const std::string& name : kMatrices) {
        const std::int64_t index = model.index(name);
        const auto& made = matrices[name] =
            std::make_unique<Adapted>(context, recipe, model, index, model.tensor(index));
        merged[name] = &made->merged;
    }
    write_adapter(folder + "/adapter.gguf", matrices);
    write_model(folder + "/wide.gguf", model, {});
    write_model(folder + "/merged.gguf", model, merged);
    const auto without = logits(folder + "/wide.gguf", "");
    const auto with = logits(folder + "/wide.gguf", folder + "/adapter.gguf");
    const auto expected = logits(folder + "/merged.gguf", "");
    const double change = distance(with, without), error = distance(with, expected);
    std::printf("logits change by %g with the adapter, and differ by %g from the merged model's\n",
                change, error);
    return change > 0.1 && error <= change * 1e-3 ? 0 : 1;
}

} // namespace

int main(int count, char** arguments) {
    if (count != 3) {
        std::fprintf(stderr, "usage: llama MODEL.gguf FOLDER\n");
        return 2;
    }
    llama_backend_init();
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    try {
        return check(arguments[1], arguments[2]);
    } catch (const mp::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
