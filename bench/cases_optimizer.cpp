// SPDX-License-Identifier: Apache-2.0
// The optimizer step for each mix of dtypes, as one tensor and as the 148 tensors of GPT-2 124M, against the
// streaming kernel that reads and writes the same bytes in place, in as many passes, and in the caches.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "array.hpp"
#include "report.hpp"
#include "streaming.hpp"

namespace mp_bench {
namespace {

struct Mix {
    const char* name;
    int32_t param, grad, exp_avg, exp_avg_sq, compensation, master;
    uint32_t flags;
    bool with_norm;
    const char* scaled = ""; // which of p, g, m, v, w (the master weight) have one scale
    int32_t moment_coding = MP_CODING_PLAIN;
    int32_t master_coding = MP_CODING_PLAIN;
};

constexpr int32_t kNone = MP_DTYPE_NONE, kF32 = MP_DTYPE_FP32, kF16 = MP_DTYPE_FP16,
                  kB16 = MP_DTYPE_BF16, kE4m3 = MP_DTYPE_FP8_E4M3, kU8 = MP_DTYPE_UINT8,
                  kI16 = MP_DTYPE_INT16;

constexpr Mix kMixes[] = {
    {"adamw fp32", kF32, kF32, kF32, kF32, kNone, kNone, 0, false},
    {"adamw fp32 with norm and clip", kF32, kF32, kF32, kF32, kNone, kNone, 0, true},
    {"adamw bf16 p,g; fp32 m,v", kB16, kB16, kF32, kF32, kNone, kNone, 0, false},
    {"adamw bf16 p,g; fp32 master,m,v", kB16, kB16, kF32, kF32, kNone, kF32, 0, false},
    {"adamw bf16 p; fp32 g,master,m,v", kB16, kF32, kF32, kF32, kNone, kF32, 0, false},
    {"adamw fp16 p; fp32 g,master,m,v", kF16, kF32, kF32, kF32, kNone, kF32, 0, false},
    {"adamw AnyPrecision defaults (fp32 p,g,m; bf16 v)", kF32, kF32, kF32, kB16, kNone, kNone, 0,
     false},
    {"adamw bf16 everywhere", kB16, kB16, kB16, kB16, kNone, kNone, 0, false},
    {"adamw bf16 everywhere, stochastic p,v", kB16, kB16, kB16, kB16, kNone, kNone,
     MP_STEP_SR_PARAM | MP_STEP_SR_STATE << 1, false},
    {"adamw bf16 everywhere, Kahan", kB16, kB16, kB16, kB16, kB16, kNone, 0, false},
    {"adamw bf16 p,g, remainder; fp32 m,v", kB16, kB16, kF32, kF32, kNone, kI16, 0, false, "",
     MP_CODING_PLAIN, MP_CODING_REMAINDER},
    {"adamw bf16 p,g, remainder; bf16 m,v", kB16, kB16, kB16, kB16, kNone, kI16, 0, false, "",
     MP_CODING_PLAIN, MP_CODING_REMAINDER},
    {"adamw MS-AMP O2 (fp16 p,v; fp8 g,m), two passes", kF16, kE4m3, kE4m3, kF16, kNone, kNone, 0,
     false, "pgmv"},
    {"adamw MS-AMP O3 (fp8 p,g,m; fp16 v,master), two passes", kE4m3, kE4m3, kE4m3, kF16, kNone,
     kF16, 0, false, "pgmvw"},
    {"adamw bf16 p,g; fp8 blocks m,v", kB16, kB16, kE4m3, kE4m3, kNone, kNone, 0, false, "",
     MP_CODING_FP8_BLOCK},
    {"adamw bf16 p,g; int8 blocks m,v", kB16, kB16, kU8, kU8, kNone, kNone, 0, false, "",
     MP_CODING_DYNAMIC8},
    {"adamw fp32 p,g; int8 blocks m,v", kF32, kF32, kU8, kU8, kNone, kNone, 0, false, "",
     MP_CODING_DYNAMIC8},
    {"adamw bf16 p,g; 4-bit blocks m,v", kB16, kB16, kU8, kU8, kNone, kNone, 0, false, "",
     MP_CODING_DYNAMIC4},
    {"adamw bf16 p,g, remainder; int8 blocks m,v", kB16, kB16, kU8, kU8, kNone, kI16, 0, false, "",
     MP_CODING_DYNAMIC8, MP_CODING_REMAINDER},
    {"adamw bf16 p,g; fp8 blocks of 128 m,v", kB16, kB16, kE4m3, kE4m3, kNone, kNone, 0, false, "",
     MP_CODING_FP8_BLOCK128},
    {"adamw bf16 p,g; companded m,v", kB16, kB16, kU8, kU8, kNone, kNone, 0, false, "",
     MP_CODING_COMPANDED8},
};

// Elements of a block, or of the smallest where there is more than one size.
std::size_t block_of(const Mix& mix) {
    switch (mix.moment_coding) {
    case MP_CODING_COMPANDED8:
        return 32;
    case MP_CODING_DYNAMIC4:
    case MP_CODING_FP8_BLOCK128:
        return 128;
    default:
        return 256;
    }
}

// Sizes of GPT-2 124M's 148 tensors: embeddings, 12 blocks of 12, the last layer norm. Brief: each a thousandth.
std::vector<int64_t> gpt2_sizes(bool brief) {
    constexpr int64_t kDim = 768;
    std::vector<int64_t> sizes = {50257 * kDim, 1024 * kDim};
    for (int block = 0; block < 12; ++block) {
        for (const int64_t size : {kDim, kDim, 3 * kDim * kDim, 3 * kDim, kDim * kDim, kDim, kDim,
                                   kDim, 4 * kDim * kDim, 4 * kDim, 4 * kDim * kDim, kDim}) {
            sizes.push_back(size);
        }
    }
    sizes.push_back(kDim);
    sizes.push_back(kDim);
    for (int64_t& size : sizes) {
        size = brief ? size / 1000 + 1 : size;
    }
    return sizes;
}

void fill_gradients(char* data, int32_t dtype, std::size_t count) {
    auto* wide = reinterpret_cast<float*>(data);
    auto* narrow = reinterpret_cast<uint16_t*>(data);
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < count; ++i) {
        const auto pattern = static_cast<uint16_t>(i * 40503u);
        if (dtype == MP_DTYPE_FP32) {
            wide[i] = static_cast<float>(pattern) * 1e-7F - 3e-3F;
        } else if (dtype == MP_DTYPE_FP8_E4M3) {
            data[i] = static_cast<char>(pattern & 0xb7); // below 2
        } else {
            // small numbers of either sign: exponents just below 1, any mantissa
            narrow[i] = static_cast<uint16_t>((pattern & 0x807f) |
                                              (dtype == MP_DTYPE_BF16 ? 0x3b00 : 0x1400));
        }
    }
}

// The streams of one mix, each in memory of its own.
class Memory {
  public:
    Memory(mp_context* context, const Mix& mix, std::size_t count) : context_(context), mix_(mix) {
        for (const int32_t dtype :
             {mix.param, mix.grad, mix.exp_avg, mix.exp_avg_sq, mix.compensation, mix.master}) {
            arrays_.push_back(dtype == kNone
                                  ? nullptr
                                  : std::make_unique<Array>(context, count * mp_dtype_size(dtype)));
        }
        arrays_[1]->fill([&](char* data) { fill_gradients(data, mix.grad, count); });
    }

    // What belongs to slot number `index` beside its arrays. Scales are 1 at first, those of blocks 0.
    void add_scales(mp_step_slot& s) {
        const auto one = [&](char role) -> float* {
            if (std::strchr(mix_.scaled, role) == nullptr) {
                return nullptr;
            }
            float* scale = add_floats(1);
            scales_.back()->fill([](char* data) { *reinterpret_cast<float*>(data) = 1.0F; });
            return scale;
        };
        const auto blocks = [&](float* scale) -> float* {
            if (mix_.moment_coding == MP_CODING_PLAIN) {
                return scale;
            }
            return add_floats(static_cast<std::size_t>(s.count) / block_of(mix_) + 1);
        };
        s.param.scale_inv = one('p');
        s.grad.scale_inv = one('g');
        s.states[0].scale_inv = blocks(one('m'));
        s.states[1].scale_inv = blocks(one('v'));
        s.master.scale_inv = one('w');
        s.states[0].coding = s.states[1].coding = mix_.moment_coding;
        s.master.coding = mix_.master_coding;
    }

    [[nodiscard]] mp_step_slot slot(std::size_t start, int64_t count, uint64_t uid) const {
        mp_step_slot s{};
        s.struct_size = sizeof s;
        s.count = count;
        s.uid = uid;
        s.param.dtype = mix_.param;
        s.grad.dtype = mix_.grad;
        s.states[0].dtype = mix_.exp_avg;
        s.states[1].dtype = mix_.exp_avg_sq;
        s.compensation.dtype = mix_.compensation;
        s.master.dtype = mix_.master;
        s.param.data = at(0, start, mix_.param);
        s.grad.data = at(1, start, mix_.grad);
        s.states[0].data = at(2, start, mix_.exp_avg);
        s.states[1].data = at(3, start, mix_.exp_avg_sq);
        s.compensation.data = at(4, start, mix_.compensation);
        s.master.data = at(5, start, mix_.master);
        return s;
    }

    // With a master the parameter is only written.
    [[nodiscard]] std::vector<Stream> streams() const {
        const int32_t dtypes[] = {mix_.param,      mix_.grad,         mix_.exp_avg,
                                  mix_.exp_avg_sq, mix_.compensation, mix_.master};
        std::vector<Stream> streams;
        for (std::size_t i = 0; i < std::size(dtypes); ++i) {
            // Two arrays of half a byte count as one.
            const bool is_counted = mix_.moment_coding == MP_CODING_DYNAMIC4 && i == 3;
            if (dtypes[i] != kNone && !is_counted) {
                Access access = i == 1 ? Access::read : Access::read_write;
                const bool is_read = mix_.master == kNone || mix_.master_coding != MP_CODING_PLAIN;
                access = i == 0 && !is_read ? Access::write : access;
                streams.push_back({arrays_[i]->data(), mp_dtype_size(dtypes[i]), access});
            }
        }
        return streams;
    }

    // What the step goes over, pass by pass. A norm is known once all gradients are read, and one scale for a tensor
    // once all its new values are: before anything is written.
    [[nodiscard]] std::vector<Pass> passes(std::size_t count) const {
        const std::vector<Stream> all = streams();
        std::vector<Stream> first;
        for (Stream stream : all) {
            const bool is_read =
                mix_.with_norm ? stream.data == arrays_[1]->data() : stream.access != Access::write;
            stream.access = Access::read;
            if (is_read) {
                first.push_back(stream);
            }
        }
        const bool is_one = !mix_.with_norm && std::strlen(mix_.scaled) == 0;
        return is_one ? std::vector<Pass>{{all, count}}
                      : std::vector<Pass>{{first, count}, {all, count}};
    }

  private:
    float* add_floats(std::size_t count) {
        scales_.push_back(std::make_unique<Array>(context_, count * sizeof(float)));
        return reinterpret_cast<float*>(scales_.back()->data());
    }
    [[nodiscard]] void* at(std::size_t index, std::size_t start, int32_t dtype) const {
        return arrays_[index] == nullptr ? nullptr
                                         : arrays_[index]->data() + start * mp_dtype_size(dtype);
    }

    mp_context* context_;
    Mix mix_;
    std::vector<std::unique_ptr<Array>> arrays_;
    std::vector<std::unique_ptr<Array>> scales_;
};

// A mix in memory, ready to be stepped.
class Steps {
  public:
    Steps(mp_context* context, const Mix& mix, const std::vector<int64_t>& sizes)
        : context_(context),
          count_(static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}))),
          memory_(context, mix, count_) {
        std::size_t start = 0;
        for (const int64_t size : sizes) {
            slots_.push_back(memory_.slot(start, size, slots_.size()));
            memory_.add_scales(slots_.back());
            start += static_cast<std::size_t>(size);
        }
        args_.flags |= mix.flags;
        args_.lr = 1e-3;
        args_.beta2 = 0.95;
        args_.weight_decay = 0.1;
        args_.max_grad_norm = mix.with_norm ? 1.0 : 0.0;
    }

    void run() {
        check(mp_optimizer_step_pointers(context_, nullptr, &args_, slots_.data(),
                                         static_cast<int64_t>(slots_.size()), nullptr, nullptr));
        ++args_.step;
    }

    [[nodiscard]] std::vector<Pass> passes() const { return memory_.passes(count_); }

  private:
    mp_context* context_;
    std::size_t count_;
    Memory memory_;
    std::vector<mp_step_slot> slots_;
    mp_step_args args_ = MP_STEP_ARGS_INIT;
};

Row measure(mp_context* context, const Options& options, const Mix& mix, const std::string& name,
            const std::vector<int64_t>& sizes) {
    Steps steps(context, mix, sizes);
    return measure_streaming(
        context, name, steps.passes(), [&] { steps.run(); }, options);
}

// Of a parameter more or less among so many that all fit the second-level cache: the difference leaves out what a call
// takes that large arrays do not notice, some microseconds. By one thread, for waking a second one takes as long.
double in_cache_ns(const Options& options, const Mix& mix) {
    constexpr int64_t kCount = 32768; // at most 900 KB
    constexpr int64_t kHalf = kCount / 2;
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.num_threads = 1;
    mp_context* context = nullptr;
    check(mp_context_create(&desc, &context));
    double seconds = 0;
    {
        Steps all(context, mix, {kCount});
        Steps half(context, mix, {kHalf});
        seconds = shortest_seconds([&] { all.run(); }, 1000) -
                  shortest_seconds([&] { half.run(); }, 1000);
    }
    mp_context_destroy(context);
    return seconds / static_cast<double>(kCount - kHalf) / options.threads * 1e9;
}

} // namespace

std::vector<Row> optimizer_rows(mp_context* context, const Options& options) {
    std::vector<Row> rows;
    for (const Mix& mix : kMixes) {
        const std::string name = std::string(mix.name) + ", 148 tensors of GPT-2 124M";
        const bool flat = is_wanted(options, mix.name);
        const bool model = is_wanted(options, name);
        const bool has_caches =
            options.device == MP_DEVICE_HOST && !options.brief; // of our threads
        const double in_cache = has_caches && (flat || model) ? in_cache_ns(options, mix) : 0;
        if (flat) {
            add_row(rows, mix.name, [&] {
                return measure(context, options, mix, mix.name,
                               {static_cast<int64_t>(options.elements)});
            });
            rows.back().in_cache_ns = in_cache;
        }
        if (model) {
            add_row(rows, name, [&] {
                return measure(context, options, mix, name, gpt2_sizes(options.brief));
            });
            rows.back().in_cache_ns = in_cache;
        }
    }
    return rows;
}

std::vector<Row> linear_rows(mp_context* context, const Options& options) {
    const Mix* mix = std::find_if(std::begin(kMixes), std::end(kMixes), [](const Mix& candidate) {
        return std::strcmp(candidate.name, "adamw bf16 p,g; int8 blocks m,v") == 0;
    });
    std::vector<Row> rows;
    for (const int64_t count : {100'000, 1'000'000, 10'000'000, 100'000'000, 1'000'000'000}) {
        Steps steps(context, *mix, {count});
        rows.push_back({std::string(mix->name) + ", " + std::to_string(count) + " parameters",
                        compare(
                            {}, [&] { steps.run(); }, options.turns),
                        bytes_moved(steps.passes()), "GB/s", static_cast<double>(count)});
    }
    return rows;
}

} // namespace mp_bench
