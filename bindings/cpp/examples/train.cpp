// SPDX-License-Identifier: Apache-2.0
// A small language model on bytes, the same in every language; what it is: bindings/c/train.c.
//   train TEXT [RECIPE [STEPS [FOLDER]]]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <mixedprec.hpp>
#include <string>
#include <vector>

namespace {

constexpr int context_bytes = 8, embed_size = 16, hidden = 128, bytes = 256, batch = 32,
              in = context_bytes * embed_size;

using Floats = std::vector<float>;

struct Random {
    std::int64_t state = 1234;
    std::int64_t next() { return state = state * 48271 % 2147483647; }
    Floats uniform(std::size_t count, double bound) {
        Floats values(count);
        for (float& value : values)
            value = static_cast<float>((2.0 * (static_cast<double>(next()) / 2147483647.0) - 1.0) *
                                       bound);
        return values;
    }
};

// Loss of one row; its gradient times `factor` into `gradient`.
double cross_entropy(const float* row, int target, double factor, float* gradient) {
    const double largest = *std::max_element(row, row + bytes);
    double e[bytes], sum = 0.0;
    for (int j = 0; j < bytes; ++j)
        sum += e[j] = std::exp(row[j] - largest);
    for (int j = 0; j < bytes; ++j)
        gradient[j] = static_cast<float>((e[j] / sum - (j == target ? 1.0 : 0.0)) * factor);
    return std::log(sum) - (row[target] - largest);
}

// An array of the program's, with the tensor over it.
struct Array {
    Array(const mixedprec::Context& context, Floats initial,
          std::initializer_list<std::int64_t> shape)
        : values(std::move(initial)), tensor(mixedprec::Tensor::wrap(context, values, shape)) {}
    Array(const mixedprec::Context& context, std::int64_t rows, std::int64_t columns)
        : Array(context, Floats(static_cast<std::size_t>(rows * columns)), {rows, columns}) {}
    Floats values;
    mixedprec::Tensor tensor;
};

void train(const std::string& path, const std::string& recipe_name, std::int64_t steps,
           const std::string& folder) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        throw std::runtime_error(path + ": cannot be read");
    const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
    const std::vector<std::uint8_t> text(chars.begin(), chars.end());

    auto context = mixedprec::Context::create();
    auto recipe = mixedprec::Recipe::create(context, recipe_name);
    auto scaler = mixedprec::Scaler::create(context, recipe);
    Random random;

    Array embed(context, random.uniform(bytes * embed_size, 1.0), {bytes, embed_size}),
        dembed(context, bytes, embed_size);
    const Floats values1 = random.uniform(hidden * in, std::sqrt(1.0 / in));
    const Floats values2 = random.uniform(bytes * hidden, std::sqrt(1.0 / hidden));
    auto initial1 = mixedprec::Tensor::from(context, values1, {hidden, in});
    auto initial2 = mixedprec::Tensor::from(context, values2, {bytes, hidden});
    auto w1 = recipe.weight(context, {hidden, in}, values1);
    auto w2 = recipe.weight(context, {bytes, hidden}, values2);
    Array b1(context, Floats(hidden), {hidden}), db1(context, Floats(hidden), {hidden});
    Array b2(context, Floats(bytes), {bytes}), db2(context, Floats(bytes), {bytes});

    auto optimizer = mixedprec::Optimizer::create(context, recipe);
    mixedprec::GroupOptions group;
    group.lr = 1e-2;
    group.weight_decay = 0.01;
    optimizer.add_group(group);
    optimizer.add_param("embed", embed.tensor, {dembed.tensor});
    auto dw1 = optimizer.grad(optimizer.add_param("w1", w1, {nullptr, initial1}));
    optimizer.add_param("b1", b1.tensor, {db1.tensor});
    auto dw2 = optimizer.grad(optimizer.add_param("w2", w2, {nullptr, initial2}));
    optimizer.add_param("b2", b2.tensor, {db2.tensor});
    auto linear1 = mixedprec::Linear::create(context, recipe, in, hidden, w1, b1.tensor);
    auto linear2 = mixedprec::Linear::create(context, recipe, hidden, bytes, w2, b2.tensor);
    optimizer.set_linears({&linear1, &linear2});

    Array x(context, batch, in), dx(context, batch, in), h(context, batch, hidden),
        dh(context, batch, hidden);
    Array logits(context, batch, bytes), dlogits(context, batch, bytes);

    std::int64_t step = 0;
    auto checkpoint = mixedprec::Checkpoint::create(context);
    checkpoint.add(optimizer);
    checkpoint.add(scaler);
    checkpoint.add("linear1", linear1);
    checkpoint.add("linear2", linear2);
    checkpoint.add_data("random", random.state);
    if (!folder.empty() && std::ifstream(folder)) {
        step = checkpoint.load(folder).step;
        std::printf("resumed at step %d\n", static_cast<int>(step));
    }

    const auto relu_mask = [](Floats& values, const Floats& by) {
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = by[i] > 0.0f ? values[i] : 0.0f;
    };
    while (step < steps) {
        const double scale = scaler.scale();
        std::int64_t position[batch];
        for (int r = 0; r < batch; ++r) {
            position[r] = random.next() % (static_cast<std::int64_t>(text.size()) - context_bytes);
            for (int c = 0; c < context_bytes; ++c) {
                std::copy_n(&embed.values[text[position[r] + c] * embed_size], embed_size,
                            &x.values[r * in + c * embed_size]);
            }
        }
        linear1.forward(x.tensor, h.tensor);
        relu_mask(h.values, h.values);
        linear2.forward(h.tensor, logits.tensor);
        double loss = 0.0;
        for (int r = 0; r < batch; ++r) {
            loss += cross_entropy(&logits.values[r * bytes], text[position[r] + context_bytes],
                                  scale / batch, &dlogits.values[r * bytes]);
        }

        linear2.backward(dlogits.tensor, dh.tensor, dw2, db2.tensor);
        relu_mask(dh.values, h.values);
        linear1.backward(dh.tensor, dx.tensor, dw1, db1.tensor);
        std::fill(dembed.values.begin(), dembed.values.end(), 0.0f);
        for (int r = 0; r < batch; ++r) {
            for (int i = 0; i < in; ++i) {
                dembed.values[text[position[r] + i / embed_size] * embed_size + i % embed_size] +=
                    dx.values[r * in + i];
            }
        }
        optimizer.step(scaler);
        scaler.update();

        ++step;
        if (step % 10 == 0)
            std::printf("step %3d  loss %.9f  scale %.0f\n", static_cast<int>(step), loss / batch,
                        scale);
    }
    if (!folder.empty())
        checkpoint.save(folder, step);
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 2)
        return std::fprintf(stderr, "usage: train TEXT [RECIPE [STEPS [FOLDER]]]\n"), 2;
    try {
        train(argv[1], argc > 2 ? argv[2] : "bf16_mixed", argc > 3 ? std::stoll(argv[3]) : 60,
              argc > 4 ? argv[4] : "");
    } catch (const std::exception& error) {
        return std::fprintf(stderr, "%s\n", error.what()), 1;
    }
}
