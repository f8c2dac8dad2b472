// SPDX-License-Identifier: Apache-2.0
#include "plan_model.hpp"

#include <fnmatch.h>

#include "model_files.hpp"

namespace command {
namespace {

struct Tensor {
    std::string name;
    int64_t count;
    size_t dims;
};

constexpr size_t kMostTensors = 1'000'000;

int64_t extent_of(const std::string& text, const std::string& part) {
    char* end = nullptr;
    errno = 0;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    must<UsageError>(!text.empty() && *end == '\0' && errno == 0 && value > 0, "--shapes: '", part,
                     "' is no shape such as 4096x4096 or 4096x4096*32");
    return value;
}

// "4096x4096*32,50257x768"
std::vector<Tensor> parse_shapes(const std::string& list) {
    std::vector<Tensor> tensors;
    for (const std::string& part : split(list, ',')) {
        const std::vector<std::string> halves = split(part, '*');
        must<UsageError>(halves.size() <= 2, "--shapes: '", part,
                         "' is no shape such as 4096x4096*32");
        const std::vector<std::string> extents = split(halves[0], 'x');
        must<UsageError>(extents.size() <= MP_MAX_DIMS, "--shapes: '", part, "' has more than ",
                         MP_MAX_DIMS, " dimensions");
        int64_t count = 1;
        for (const std::string& extent : extents) {
            must<UsageError>(!__builtin_mul_overflow(count, extent_of(extent, part), &count) &&
                                 count <= int64_t{1} << 55,
                             "--shapes: '", part, "' is above 2^55 elements");
        }
        const int64_t times = halves.size() == 2 ? extent_of(halves[1], part) : 1;
        must<UsageError>(tensors.size() + size(times) <= kMostTensors, "--shapes: more than ",
                         kMostTensors, " tensors");
        tensors.insert(tensors.end(), size(times), Tensor{halves[0], count, extents.size()});
    }
    return tensors;
}

// `passed` are the tensors that nothing trains, in words.
std::vector<Tensor> tensors_of(const ModelOptions& options, std::vector<std::string>& passed) {
    const int given =
        !options.parameters.empty() + !options.shapes.empty() + !options.safetensors.empty();
    must<UsageError>(given == 1, "plan wants one of --params, --shapes and --safetensors");
    if (!options.shapes.empty()) {
        return parse_shapes(options.shapes);
    }
    if (!options.parameters.empty()) {
        const double count = parse_size(options.parameters, true, "--params");
        must<UsageError>(count >= 1.0, "--params must be at least 1");
        return {{"all", static_cast<int64_t>(count), 2}};
    }
    std::vector<Tensor> tensors;
    const ModelFiles model = read_model(options.safetensors);
    for (const ModelTensor& entry : model.tensors) {
        must<Failure>(!entry.type.starts_with("F6_"), "'", entry.path, "': tensor '", entry.name,
                      "' is of the type '", entry.type, "', which is not supported");
        if (is_trained(entry)) {
            tensors.push_back({entry.name, entry.count, entry.shape.size()});
        } else {
            passed.push_back(join(entry.name, " (", entry.type, ")"));
        }
    }
    must<Failure>(!tensors.empty() && tensors.size() <= kMostTensors, "'", options.safetensors[0],
                  "' has ", counted(tensors.size(), "tensor"), " to train: a plan takes 1 to ",
                  kMostTensors);
    return tensors;
}

int32_t rule_of(const std::string& name) {
    int32_t rule = 0;
    must<UsageError>(mp_rule_get_number(name.c_str(), &rule) == MP_STATUS_OK,
                     "--rule: ", mp_last_error_message());
    return rule;
}

// Patterns as in a shell: their matching takes no memory, and time by the lengths alone.
class Patterns {
  public:
    explicit Patterns(const std::string& list) {
        constexpr size_t kLongest = 4096;
        must<UsageError>(list.size() <= kLongest, "--keep-fp32 has more than ", kLongest, " bytes");
        for (const std::string& part :
             list.empty() ? std::vector<std::string>() : split(list, ',')) {
            must<UsageError>(!part.empty(), "--keep-fp32: '", list, "' has an empty pattern");
            const size_t open = part.find('[');
            must<UsageError>(open == std::string::npos || part.find(']', open + 2) != part.npos,
                             "--keep-fp32: '", part, "' has a [ without its ]");
            parts_.emplace_back(part, false);
        }
    }
    bool match(const std::string& name) {
        bool any = false;
        for (auto& [pattern, used] : parts_) {
            const bool fits = fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
            used = used || fits;
            any = any || fits;
        }
        return any;
    }
    [[nodiscard]] std::vector<std::string> unused() const {
        std::vector<std::string> names;
        for (const auto& [pattern, used] : parts_) {
            if (!used) {
                names.push_back(pattern);
            }
        }
        return names;
    }

  private:
    std::vector<std::pair<std::string, bool>> parts_;
};

} // namespace

Model model_of(const ModelOptions& options) {
    Model model;
    Patterns patterns(options.keep_fp32);
    const int32_t rule = rule_of(options.rule);
    for (const Tensor& tensor : tensors_of(options, model.passed)) {
        const bool kept = patterns.match(tensor.name) || (options.keep_vectors && tensor.dims < 2);
        mp_planned_tensor planned = MP_PLANNED_TENSOR_INIT;
        planned.count = tensor.count;
        planned.rule = rule;
        planned.weight_dtype = kept ? MP_DTYPE_FP32 : MP_DTYPE_NONE;
        planned.ndim = tensor.dims < 2 ? 1 : 2;
        planned.name = model.names.emplace_back(tensor.name).c_str();
        model.tensors.push_back(planned);
        model.kept += kept ? 1 : 0;
        must<UsageError>(
            !__builtin_add_overflow(model.parameters, tensor.count, &model.parameters) &&
                model.parameters <= int64_t{1} << 55,
            "the model has more than 2^55 parameters");
    }
    model.unused = patterns.unused();
    return model;
}

} // namespace command
