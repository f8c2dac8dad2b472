// SPDX-License-Identifier: Apache-2.0
// Making the parameters and their optimizer, and moving own kernels' parameters between fp32 and the recipe's types.
#include "params.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "random.h"
#include "text.hpp"

namespace train {

// GPT-2's initial values: deviation 0.02, for matrices that write into the residual stream 0.02 / sqrt(2 layers).
void Params::list_all() {
    const int64_t dim = options.dim;
    const double residual = 0.02 / std::sqrt(2.0 * real(options.layers));
    const auto matrix = [this](const std::string& name, int64_t rows, int64_t cols, double std,
                               bool own) {
        list.push_back({name, rows, cols, own, std});
    };
    const auto vector = [this](const std::string& name, int64_t rows, float constant, bool own) {
        list.push_back({name, rows, 0, own, 0.0, constant});
    };
    matrix("wte", 256, dim, 0.02, true);
    matrix("wpe", options.context, dim, 0.02, true);
    for (int64_t block = 0; block < options.layers; block++) {
        const std::string h = block_name(static_cast<std::size_t>(block)).append(".");
        vector(h + "ln1.gain", dim, 1.0F, true);
        vector(h + "ln1.bias", dim, 0.0F, true);
        matrix(h + "qkv.weight", 3 * dim, dim, 0.02, false);
        vector(h + "qkv.bias", 3 * dim, 0.0F, false);
        matrix(h + "proj.weight", dim, dim, residual, false);
        vector(h + "proj.bias", dim, 0.0F, false);
        vector(h + "ln2.gain", dim, 1.0F, true);
        vector(h + "ln2.bias", dim, 0.0F, true);
        matrix(h + "fc.weight", 4 * dim, dim, 0.02, false);
        vector(h + "fc.bias", 4 * dim, 0.0F, false);
        matrix(h + "fc2.weight", dim, 4 * dim, residual, false);
        vector(h + "fc2.bias", dim, 0.0F, false);
    }
    vector("lnf.gain", dim, 1.0F, true);
    vector("lnf.bias", dim, 0.0F, true);
    matrix("head.weight", 256, dim, 0.02, false);
}

// Whether the parameter is stored as the recipe says; in fp32 otherwise.
bool Params::is_in_recipe(const Param& p) const {
    return !matrices_only_ || (p.cols > 0 && !p.own_kernels);
}

// As the layer over this weight has it.
Recipe Params::layer_recipe(const Param& p) const {
    Recipe own;
    const std::string layer = p.name.substr(0, p.name.rfind('.'));
    MP_CHECK(mp_recipe_clone_for_layer(recipe, layer.c_str(), out(own)));
    return own;
}

// Whether ranks gather it as the codes that its fp8 layer multiplies.
bool Params::is_codes(const Param& p) const {
    if (ranks.comm == nullptr || options.zero == 0 || p.cols == 0 || p.own_kernels) {
        return false;
    }
    const Recipe own = layer_recipe(p);
    if (recipe_string(own.get(), MP_RECIPE_WEIGHT_GATHER_CODES) != "on" ||
        recipe_string(own.get(), MP_RECIPE_GEMM_FILTER_SIZE) != "none") {
        return false;
    }
    int64_t multiple = 0;
    MP_CHECK(mp_recipe_get_int(own.get(), MP_RECIPE_GEMM_FILTER_MULTIPLE_OF, &multiple));
    const bool is_last = p.name == list.back().name;
    return p.rows % multiple == 0 && p.cols % multiple == 0 &&
           !(is_last && recipe_string(own.get(), MP_RECIPE_GEMM_FILTER_FIRST_LAST) == "on");
}

// Group 0: matrices, with weight decay. Group 1: vectors, without.
void Params::create_optimizer() {
    mp_optimizer_desc desc = MP_OPTIMIZER_DESC_INIT;
    desc.seed = static_cast<uint64_t>(options.seed);
    desc.max_grad_norm = options.clip;
    if (ranks.comm == nullptr) {
        MP_CHECK(mp_optimizer_create(context, recipe, &desc, out(optimizer)));
    } else {
        create_on_ranks(desc);
    }
    for (int group = 0; group < 2; group++) {
        mp_param_group_desc g = MP_PARAM_GROUP_DESC_INIT;
        const mp_hyper hypers[] = {{"lr", options.lr}, // what was asked for, 0 too
                                   {"beta1", options.beta1},
                                   {"beta2", options.beta2},
                                   {"eps", options.eps},
                                   {"weight_decay", group == 0 ? options.weight_decay : 0.0}};
        g.hypers = hypers;
        g.hyper_count = static_cast<int32_t>(std::size(hypers));
        int32_t index = 0;
        const mp_status status = MP_CHECK(mp_optimizer_add_group(optimizer.get(), &g, &index));
        if (status == MP_STATUS_WARNING && group == 0 && ranks.rank == 0) {
            print(stderr, join("mixedprec_train: note: ", mp_last_error_message(), "\n"));
        }
    }
}

void Params::add_to_optimizer(Param& p, const Array& initial) {
    const int32_t dtype = is_in_recipe(p) ? dtype_ : MP_DTYPE_FP32;
    p.weight = is_codes(p) ? make_weight_codes(context, layer_recipe(p).get(), p.rows, p.cols,
                                               initial.floats())
               : scaled_ && is_in_recipe(p) ? make_scaled_array(context, dtype, p.rows, p.cols)
                                            : make_array(context, dtype, p.rows, p.cols);
    mp_tensor_desc weight = MP_TENSOR_DESC_INIT;
    MP_CHECK(mp_tensor_get_desc(p.weight.tensor.get(), &weight));
    p.planned_dtype = is_codes(p) ? weight.dtype : is_in_recipe(p) ? MP_DTYPE_NONE : MP_DTYPE_FP32;
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    desc.name = p.name.c_str();
    desc.param = p.weight.tensor.get();
    desc.init_fp32 = initial.tensor.get();
    MP_CHECK(mp_optimizer_add_param(optimizer.get(), p.cols > 0 ? 0 : 1, &desc, &p.index));
    MP_CHECK(mp_optimizer_get_state(optimizer.get(), p.index, "grad", out(p.grad.tensor)));
    MP_CHECK(mp_tensor_get_data(p.grad.tensor.get(), &p.grad.memory));
    mp_tensor_desc grad = MP_TENSOR_DESC_INIT;
    MP_CHECK(mp_tensor_get_desc(p.grad.tensor.get(), &grad));
    if (p.own_kernels && !matrices_only_ && dtype_ != MP_DTYPE_FP32) {
        p.copy = make_array(context, MP_DTYPE_FP32, p.rows, p.cols);
    }
    if (p.own_kernels && grad.dtype != MP_DTYPE_FP32) {
        p.pass_grad = make_array(context, MP_DTYPE_FP32, p.rows, p.cols);
    }
}

static void fill_initial(float* values, const Param& p, uint64_t stream, uint64_t seed) {
    for (int64_t i = 0; i < p.elements(); i++) {
        values[i] =
            p.std > 0.0
                ? static_cast<float>(random_normal(seed, stream, static_cast<uint64_t>(i)) * p.std)
                : p.constant;
    }
}

Params::Params(mp_context* c, mp_recipe* r, const Options& o, const Ranks& n)
    : context(c), recipe(r), options(o), ranks(n) {
    list_all();
    const std::string weight = recipe_string(recipe, MP_RECIPE_WEIGHT_DTYPE);
    dtype_ = dtype_by_name(weight, &scaled_);
    must<Failure>(dtype_ != MP_DTYPE_NONE, "the recipe stores weights as ", weight,
                  ", which this program cannot use");
    (void)dtype_by_name(recipe_string(recipe, MP_RECIPE_GRAD_DTYPE), &matrices_only_);
    matrices_only_ = matrices_only_ || scaled_;
    std::vector<float> initial =
        o.init.empty() ? std::vector<float>(size(o.parameter_count())) : weights_load(o.init, o);
    create_optimizer();
    float* values = initial.data();
    int64_t largest = 0;
    uint64_t stream = STREAM_PARAM;
    for (Param& p : list) {
        if (o.init.empty()) {
            fill_initial(values, p, stream++, static_cast<uint64_t>(o.seed));
        }
        add_to_optimizer(p, wrap_array(context, values, p.rows, p.cols));
        values += p.elements();
        largest = p.own_kernels ? std::max(largest, p.elements()) : largest;
    }
    scratch_ = make_array(context, MP_DTYPE_FP32, largest);
    if (ranks.comm != nullptr) {
        MP_CHECK(mp_optimizer_shard(optimizer.get(), nullptr));
    }
    refresh();
}

void Params::plan(std::span<const Param> params, mp_memory_report* memory,
                  mp_comm_traffic* traffic) const {
    std::vector<mp_planned_tensor> tensors;
    for (const Param& p : params) {
        mp_planned_tensor tensor = MP_PLANNED_TENSOR_INIT;
        tensor.count = p.elements();
        tensor.weight_dtype = p.planned_dtype;
        tensor.ndim = p.cols > 0 ? 2 : 1;
        tensor.name = p.name.c_str();
        tensors.push_back(tensor);
    }
    MP_CHECK(mp_recipe_plan_tensors(
        recipe, nullptr, tensors.data(), static_cast<int64_t>(tensors.size()),
        ranks.comm != nullptr ? &sharding_ : nullptr, ranks.rank, ranks.count, memory, traffic));
}

mp_memory_report Params::expected_memory() const {
    mp_memory_report report = MP_MEMORY_REPORT_INIT;
    plan(list, &report, nullptr);
    return report;
}

void Params::refresh() {
    for (const Param& p : list) {
        if (p.copy.tensor && !come_and_go()) { // else when they are gathered
            MP_CHECK(mp_tensor_cast(p.weight.tensor.get(), nullptr, p.copy.tensor.get(), nullptr));
        }
    }
}

// A master weight kept as the 16 bits that a bf16 weight lacks: fp32 bits = (weight << 16) + remainder.
static void join_remainders(float* values, const Array& weight, const mp_tensor* master) {
    void* memory = nullptr;
    MP_CHECK(mp_tensor_get_data(master, &memory));
    const auto* remainders = static_cast<const int16_t*>(memory);
    const auto* weights = static_cast<const uint16_t*>(weight.memory);
    for (int64_t i = 0; i < weight.count; i++) {
        const uint32_t bits = (static_cast<uint32_t>(weights[i]) << 16) +
                              static_cast<uint32_t>(static_cast<int32_t>(remainders[i]));
        std::memcpy(&values[i], &bits, sizeof bits);
    }
}

// The master weight where there is one, else the weight plus what Kahan summation holds back from it.
void Params::exact_values(const Param& p, float* values) {
    const Array whole = wrap_array(context, values, p.rows, p.cols);
    Tensor master, compensation;
    if (mp_optimizer_get_state(optimizer.get(), p.index, "master", out(master)) >= 0) {
        mp_tensor_desc desc = MP_TENSOR_DESC_INIT;
        MP_CHECK(mp_tensor_get_desc(master.get(), &desc));
        if (desc.dtype == MP_DTYPE_INT16) {
            join_remainders(values, p.weight, master.get());
        } else {
            convert(master.get(), whole.tensor.get());
        }
        return;
    }
    convert(p.weight.tensor.get(), whole.tensor.get());
    if (mp_optimizer_get_state(optimizer.get(), p.index, "compensation", out(compensation)) >= 0) {
        const Array rest = make_array(context, MP_DTYPE_FP32, p.rows, p.cols);
        convert(compensation.get(), rest.tensor.get());
        for (int64_t i = 0; i < rest.count; i++) {
            values[i] += rest.floats()[i];
        }
    }
}

void Params::save(const std::string& path) {
    std::vector<float> values(size(options.parameter_count()));
    float* next = values.data();
    for (const Param& p : list) {
        exact_values(p, next);
        next += p.elements();
    }
    weights_save(path, options, values);
}

} // namespace train
