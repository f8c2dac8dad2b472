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

// A linear layer with its weight in the recipe's dtype, its bias, and the gradients of both.
struct Layer {
    Layer(const mixedprec::Context& context, const mixedprec::Recipe& recipe, Random& random,
          int inputs, int outputs)
        : values(
              random.uniform(static_cast<std::size_t>(outputs * inputs), std::sqrt(1.0 / inputs))),
          initial(mixedprec::Tensor::from(context, values, {outputs, inputs})),
          weight(recipe.weight(context, {outputs, inputs}, values)),
          bias(context, Floats(static_cast<std::size_t>(outputs)), {outputs}),
          dbias(context, Floats(static_cast<std::size_t>(outputs)), {outputs}),
          linear(mixedprec::Linear::create(context, recipe, inputs, outputs, weight, bias.tensor)) {
    }
    void add_to(mixedprec::Optimizer& optimizer, const std::string& number) {
        dweight = optimizer.grad(optimizer.add_param("w" + number, weight, {nullptr, initial}));
        optimizer.add_param("b" + number, bias.tensor, {dbias.tensor});
    }
    Floats values;
    mixedprec::Tensor initial, weight, dweight;
    Array bias, dbias;
    mixedprec::Linear linear;
};

struct Training {
    Training(std::vector<std::uint8_t> bytes_to_learn, const std::string& recipe_name)
        : text(std::move(bytes_to_learn)), recipe(mixedprec::Recipe::create(context, recipe_name)) {
        mixedprec::GroupOptions group;
        group.lr = 1e-2;
        group.weight_decay = 0.01;
        optimizer.add_group(group);
        optimizer.add_param("embed", embed.tensor, {dembed.tensor});
        one.add_to(optimizer, "1");
        two.add_to(optimizer, "2");
        optimizer.set_linears({&one.linear, &two.linear});
        checkpoint.add(optimizer);
        checkpoint.add(scaler);
        checkpoint.add("linear1", one.linear);
        checkpoint.add("linear2", two.linear);
        checkpoint.add_data("random", random.state);
    }

    // Places in the text, and the embeddings of the bytes there.
    void draw() {
        for (int r = 0; r < batch; ++r) {
            position[r] = random.next() % (static_cast<std::int64_t>(text.size()) - context_bytes);
            for (int c = 0; c < context_bytes; ++c) {
                std::copy_n(&embed.values[text[position[r] + c] * embed_size], embed_size,
                            &x.values[r * in + c * embed_size]);
            }
        }
    }
    // The loss of all rows; dlogits are its gradient times scale.
    double forward(double scale) {
        one.linear.forward(x.tensor, h.tensor);
        relu_mask(h.values);
        two.linear.forward(h.tensor, logits.tensor);
        double loss = 0.0;
        for (int r = 0; r < batch; ++r) {
            loss += cross_entropy(&logits.values[r * bytes], text[position[r] + context_bytes],
                                  scale / batch, &dlogits.values[r * bytes]);
        }
        return loss;
    }
    void backward() {
        two.linear.backward(dlogits.tensor, dh.tensor, two.dweight, two.dbias.tensor);
        relu_mask(dh.values);
        one.linear.backward(dh.tensor, dx.tensor, one.dweight, one.dbias.tensor);
        std::fill(dembed.values.begin(), dembed.values.end(), 0.0f);
        for (int r = 0; r < batch; ++r) {
            for (int i = 0; i < in; ++i) {
                dembed.values[text[position[r] + i / embed_size] * embed_size + i % embed_size] +=
                    dx.values[r * in + i];
            }
        }
    }
    void relu_mask(Floats& values) const {
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = h.values[i] > 0.0f ? values[i] : 0.0f;
    }

    std::vector<std::uint8_t> text;
    Random random;
    mixedprec::Context context = mixedprec::Context::create();
    mixedprec::Recipe recipe;
    mixedprec::Scaler scaler = mixedprec::Scaler::create(context, recipe);
    mixedprec::Optimizer optimizer = mixedprec::Optimizer::create(context, recipe);
    mixedprec::Checkpoint checkpoint = mixedprec::Checkpoint::create(context);
    Array embed{context, random.uniform(bytes* embed_size, 1.0), {bytes, embed_size}};
    Array dembed{context, bytes, embed_size};
    Layer one{context, recipe, random, in, hidden}, two{context, recipe, random, hidden, bytes};
    Array x{context, batch, in}, dx{context, batch, in}, h{context, batch, hidden},
        dh{context, batch, hidden}, logits{context, batch, bytes}, dlogits{context, batch, bytes};
    std::int64_t position[batch];
};

void train(const std::string& path, const std::string& recipe_name, std::int64_t steps,
           const std::string& folder) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        throw std::runtime_error(path + ": cannot be read");
    const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
    Training training({chars.begin(), chars.end()}, recipe_name);
    std::int64_t step = 0;
    if (!folder.empty() && std::ifstream(folder)) {
        step = training.checkpoint.load(folder).step;
        std::printf("resumed at step %d\n", static_cast<int>(step));
    }
    while (step < steps) {
        const double scale = training.scaler.scale();
        training.draw();
        const double loss = training.forward(scale);
        training.backward();
        training.optimizer.step(training.scaler);
        training.scaler.update();
        if (++step % 10 == 0)
            std::printf("step %3d  loss %.9f  scale %.0f\n", static_cast<int>(step), loss / batch,
                        scale);
    }
    if (!folder.empty())
        training.checkpoint.save(folder, step);
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
