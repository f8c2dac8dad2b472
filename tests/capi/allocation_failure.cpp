// SPDX-License-Identifier: Apache-2.0
// Every allocation of create, step, save and load fails in turn, once or from then on: both of operator new and of the
// context's allocator. The call says MP_STATUS_OUT_OF_MEMORY, what was there before is there still, everything is given
// back, and the same call succeeds when there is memory again.
#include "running_out.hpp"
#include "training.hpp"

using namespace mp_test;
using namespace mp_test::running_out;

namespace {

constexpr const char* kRecipes[] = {
    "fp32",
    "fp16_mixed",
    "bf16_pure_kahan",
    "bf16_pure_sr",
    "bf16_pure_remainder",
    R"({"recipe": "bf16_mixed", "optimizer.exp_avg.dtype": "int8_block256", "optimizer.exp_avg_sq.dtype": "int8_block256"})"};

Training make_training(const std::string& recipe, uint64_t seed = 3) {
    return {own_context(), recipe, seed, nullptr, nullptr};
}

mp_status create_checkpoint(mp_context* context, mp_optimizer* optimizer) {
    mp_scaler* raw_scaler = nullptr;
    if (const mp_status status = mp_scaler_create(context, nullptr, &raw_scaler); status < 0) {
        return status;
    }
    const Scaler scaler(raw_scaler);
    mp_checkpoint* raw_checkpoint = nullptr;
    if (const mp_status status = mp_checkpoint_create(context, nullptr, nullptr, &raw_checkpoint);
        status < 0) {
        return status;
    }
    const Checkpoint checkpoint(raw_checkpoint);
    int64_t position = 0;
    if (const mp_status status = mp_checkpoint_add_optimizer(checkpoint, optimizer); status < 0) {
        return status;
    }
    if (const mp_status status = mp_checkpoint_add_scaler(checkpoint, scaler); status < 0) {
        return status;
    }
    return mp_checkpoint_add_data(checkpoint, "position", &position, sizeof position);
}

// The first failure of everything that a training is made of, as a program would meet it.
mp_status create_all(const std::string& recipe_text, int32_t dtype) {
    const mp_context_desc desc = context_desc();
    mp_context* raw_context = nullptr;
    if (const mp_status status = mp_context_create(&desc, &raw_context); status < 0) {
        return status;
    }
    const Context context(raw_context);
    mp_recipe* raw_recipe = nullptr;
    const mp_status recipe_status =
        recipe_text.front() == '{' ? mp_recipe_create_from_json(context, recipe_text.data(),
                                                                recipe_text.size(), &raw_recipe)
                                   : mp_recipe_create(context, recipe_text.c_str(), &raw_recipe);
    if (recipe_status < 0) {
        return recipe_status;
    }
    const Recipe recipe(raw_recipe);
    mp_optimizer* raw_optimizer = nullptr;
    if (const mp_status status = mp_optimizer_create(context, recipe, nullptr, &raw_optimizer);
        status < 0) {
        return status;
    }
    const Optimizer optimizer(raw_optimizer);
    int32_t group = -1;
    if (const mp_status status = mp_optimizer_add_group(optimizer, nullptr, &group); status < 0) {
        return status;
    }
    mp_tensor_desc shape = MP_TENSOR_DESC_INIT;
    shape.dtype = dtype;
    shape.ndim = 1;
    shape.shape[0] = 6000;
    mp_tensor* raw_param = nullptr;
    if (const mp_status status = mp_tensor_create(context, &shape, &raw_param); status < 0) {
        return status;
    }
    const Tensor param(raw_param);
    mp_param_desc param_desc = MP_PARAM_DESC_INIT;
    param_desc.name = "weight";
    param_desc.param = param;
    if (const mp_status status = mp_optimizer_add_param(optimizer, group, &param_desc, nullptr);
        status < 0) {
        return status;
    }
    return create_checkpoint(context, optimizer);
}

// Of the parameters, by their exact values, beside keys.
mp_status write_model(const Training& training, const std::string& path, int64_t max_file_bytes) {
    mp_model_writer_desc desc = MP_MODEL_WRITER_DESC_INIT;
    desc.max_file_bytes = max_file_bytes;
    mp_model_writer* writer = nullptr;
    mp_status status = mp_model_writer_create(path.c_str(), &desc, &writer);
    for (std::size_t i = 0; i < std::size(kSizes) && status == MP_STATUS_OK; ++i) {
        const std::string name = "layer." + std::to_string(kSizes[i]);
        int64_t index = 0;
        status =
            mp_model_writer_add_tensor(writer, name.c_str(), MP_DTYPE_FP32, 1, &kSizes[i], &index);
    }
    if (status == MP_STATUS_OK) {
        status = mp_model_writer_set_text(writer, "general.architecture", "none of those that are");
    }
    if (status == MP_STATUS_OK) {
        status = mp_optimizer_write_params(training.optimizer, nullptr, writer, nullptr, nullptr, 0,
                                           MP_WRITE_PARAMS_EXACT);
    }
    if (status == MP_STATUS_OK) {
        status = mp_model_writer_finish(writer);
    }
    mp_model_writer_destroy(writer);
    return status;
}

} // namespace

TEST(AllocationFailure, OfCreating) {
    for (const std::string recipe : kRecipes) { // a text of the test's, made before memory fails
        const Context context = own_context();
        const int32_t dtype = weight_dtype(recipe_of(context, recipe));
        each_allocation("create", [&](int64_t k, bool for_ever) {
            return fails_at(k, for_ever, [&] { return create_all(recipe, dtype); });
        });
    }
}

// A step that fails has changed nothing: the same step afterwards has the bits of one that never failed.
TEST(AllocationFailure, OfAStep) {
    for (const char* recipe : kRecipes) {
        const auto prepare = [](Training& training) {
            for (int32_t i = 0; i < static_cast<int32_t>(std::size(kSizes)); ++i) {
                mp_tensor* grad = nullptr;
                EXPECT_TRUE(
                    succeeded(mp_optimizer_get_state(training.optimizer, i, "grad", &grad)));
                const Tensor owned(grad);
                const Tensor exact = make_tensor(
                    training.context, MP_DTYPE_FP32, {kSizes[i]},
                    numbers(static_cast<std::size_t>(kSizes[i]), static_cast<uint64_t>(i + 1)));
                EXPECT_TRUE(succeeded(mp_tensor_cast(exact, nullptr, grad, nullptr)));
            }
        };
        std::vector<unsigned char> expected;
        {
            Training straight = make_training(recipe);
            prepare(straight);
            MP_OK(mp_optimizer_step(straight.optimizer, nullptr, straight.scaler));
            expected = straight.everything();
        }
        each_allocation("step", [&](int64_t k, bool for_ever) {
            Training training = make_training(recipe);
            prepare(training);
            const std::vector<unsigned char> before = training.everything();
            mp_status status = MP_STATUS_OK;
            const bool failed = fails_at(k, for_ever, [&] {
                status = mp_optimizer_step(training.optimizer, nullptr, training.scaler);
                return status;
            });
            if (status != MP_STATUS_OK) {
                EXPECT_EQ(training.everything(), before);
                EXPECT_TRUE(
                    succeeded(mp_optimizer_step(training.optimizer, nullptr, training.scaler)));
            }
            EXPECT_EQ(training.everything(), expected);
            return failed;
        });
    }
}

TEST(AllocationFailure, OfASave) {
    for (const uint32_t flags : {0U, MP_SAVE_BACKGROUND}) {
        Training training = make_training("bf16_pure_kahan");
        training.step();
        const std::vector<unsigned char> before = training.everything();
        { // a first load keeps memory for those to come
            const Folder folder("allocation");
            EXPECT_TRUE(succeeded(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, 0)));
            EXPECT_TRUE(
                succeeded(mp_checkpoint_load(training.checkpoint, folder.c_str(), 0, nullptr)));
        }
        each_allocation(flags == 0 ? "save" : "save in the background", [&](int64_t k,
                                                                            bool for_ever) {
            const Folder folder("allocation");
            EXPECT_TRUE(succeeded(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, 0)));
            mp_status status = MP_STATUS_OK;
            const bool failed = fails_at(k, for_ever, [&] {
                status = mp_checkpoint_save(training.checkpoint, folder.c_str(), 2, flags);
                if (status == MP_STATUS_OK) {
                    status = mp_checkpoint_wait(training.checkpoint);
                }
                return status;
            });
            if (status != MP_STATUS_OK) { // it may be the waiting that had no memory
                (void)mp_checkpoint_wait(training.checkpoint);
            }
            EXPECT_EQ(training.everything(), before);
            mp_checkpoint_info info{};
            info.struct_size = sizeof info;
            EXPECT_TRUE(succeeded(mp_checkpoint_inspect(folder.c_str(), &info)));
            EXPECT_EQ(info.step, status == MP_STATUS_OK ? 2 : info.step);
            EXPECT_TRUE(succeeded(mp_checkpoint_save(training.checkpoint, folder.c_str(), 3, 0)));
            EXPECT_TRUE(
                succeeded(mp_checkpoint_load(training.checkpoint, folder.c_str(), 0, nullptr)));
            EXPECT_EQ(training.everything(), before);
            return failed;
        });
    }
}

// Also through another recipe.
TEST(AllocationFailure, OfALoad) {
    const char* const kPairs[][2] = {{"bf16_pure_kahan", "bf16_pure_kahan"},
                                     {"fp16_mixed", "fp16_mixed"},
                                     {kRecipes[5], kRecipes[5]},
                                     {"bf16_pure_kahan", "fp16_mixed"},
                                     {"fp32", kRecipes[5]}};
    for (const auto& pair : kPairs) {
        const char* const from = pair[0];
        const char* const to = pair[1];
        const Folder folder("allocation");
        std::vector<unsigned char> expected;
        {
            Training saved = make_training(from);
            saved.step();
            MP_OK(mp_checkpoint_save(saved.checkpoint, folder.c_str(), 1, 0));
            Training target = make_training(to, 99);
            MP_OK(mp_checkpoint_load(target.checkpoint, folder.c_str(), MP_LOAD_CONVERT, nullptr));
            expected = target.everything();
        }
        each_allocation(from == to ? "load" : "load of another recipe", [&](int64_t k,
                                                                            bool for_ever) {
            Training target = make_training(to, 99);
            const std::vector<unsigned char> before = target.everything();
            mp_status status = MP_STATUS_OK;
            const bool failed = fails_at(k, for_ever, [&] {
                status =
                    mp_checkpoint_load(target.checkpoint, folder.c_str(), MP_LOAD_CONVERT, nullptr);
                return status;
            });
            EXPECT_EQ(target.everything(), status == MP_STATUS_OK ? expected : before);
            if (status != MP_STATUS_OK) {
                EXPECT_TRUE(succeeded(mp_checkpoint_load(target.checkpoint, folder.c_str(),
                                                         MP_LOAD_CONVERT, nullptr)));
                EXPECT_EQ(target.everything(), expected);
            }
            return failed;
        });
    }
}

TEST(AllocationFailure, OfAModelFile) {
    Training training = make_training("bf16_pure_kahan");
    training.step();
    struct Case {
        const char* name;
        int64_t most;
    };
    for (const Case& c : {Case{"m.gguf", 0}, {"m.safetensors", 0}, {"m.safetensors", 600}}) {
        each_allocation(c.most == 0 ? c.name : "several files", [&](int64_t k, bool for_ever) {
            const Folder folder("allocation");
            fs::create_directories(folder.path);
            const std::string path = (folder.path / c.name).string();
            mp_status status = MP_STATUS_OK;
            const bool failed = fails_at(k, for_ever, [&] {
                status = write_model(training, path, c.most);
                return status;
            });
            EXPECT_EQ(fs::is_empty(folder.path), status != MP_STATUS_OK);
            if (status != MP_STATUS_OK) {
                EXPECT_TRUE(succeeded(write_model(training, path, c.most)));
            }
            return failed;
        });
    }
}

// A file is opened, mapped, and a slice of what is made of it becomes codes.
TEST(AllocationFailure, OfAMapOfAModelFile) {
    Training training = make_training("fp32");
    const Folder folder("allocation_map");
    fs::create_directories(folder.path);
    const std::string path = (folder.path / "m.gguf").string();
    MP_OK(write_model(training, path, 0));
    const std::string name = "layer." + std::to_string(kSizes[0]);
    const std::string rules = "a.* = join(layer.*, rows(layer.*, 0/1))\nb = " + name + "\n* = *";
    const Tensor codes = make_quantized(training.context, MP_DTYPE_FP8_E4M3, {kSizes[0]}, nullptr);
    std::vector<unsigned char> expected;
    const auto load = [&] {
        mp_model_file *model = nullptr, *map = nullptr;
        int64_t index = 0;
        mp_status status = mp_model_file_open(path.c_str(), 0, &model);
        status = status != MP_STATUS_OK ? status : mp_model_file_map(model, rules.c_str(), &map);
        mp_model_file_destroy(model);
        status = status != MP_STATUS_OK ? status : mp_model_file_get_index(map, "b", &index);
        status =
            status != MP_STATUS_OK ? status : mp_model_file_load(map, nullptr, index, 0, codes);
        mp_model_file_destroy(map);
        return status;
    };
    MP_OK(load());
    expected = bytes_of(codes);
    each_allocation("map of a model file", [&](int64_t k, bool for_ever) {
        EXPECT_TRUE(succeeded(mp_tensor_zero(codes, nullptr)));
        mp_status status = MP_STATUS_OK;
        const bool failed = fails_at(k, for_ever, [&] { return status = load(); });
        if (status != MP_STATUS_OK) {
            EXPECT_TRUE(succeeded(load()));
        }
        EXPECT_EQ(bytes_of(codes), expected);
        return failed;
    });
}
