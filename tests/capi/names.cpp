// SPDX-License-Identifier: Apache-2.0
// Names are refused where they are given, not at the first save: what is not UTF-8, and what safetensors files keep.
#include <filesystem>
#include <fstream>

#include "layers.hpp"
#include "optimizers.hpp"
#include "support.hpp"

using namespace mp_test;

namespace {

// Lone, cut, overlong, a surrogate, beyond the last character; with a good beginning; the reserved key; too long; none.
std::vector<std::string> bad_names() {
    std::vector<std::string> names = {"__metadata__", "", std::string(256, 'n')};
    for (const char* bytes :
         {"\xff", "\x80", "\xc3", "\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf",
          "\xed\xa0\x80", "\xed\xbf\xbf", "\xf4\x90\x80\x80"}) {
        names.emplace_back(bytes);
        names.push_back("h0." + names.back() + ".weight");
    }
    return names;
}

} // namespace

TEST(Names, AreRefusedWhereTheyAreGiven) {
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    const Tensor param = make_tensor(context, MP_DTYPE_FP32, {4}, {1.0F, 2.0F, 3.0F, 4.0F});
    const Optimizer optimizer = make_optimizer(context, recipe);
    MP_OK(mp_optimizer_add_group(optimizer, nullptr, nullptr));
    const Checkpoint checkpoint = make_checkpoint(context);
    const Tensor weight = make_tensor(context, MP_DTYPE_FP32, {4, 4}, std::vector<float>(16, 1.0F));
    mp_linear_desc layer = linear_desc(4, 4);
    const Linear linear = make_linear(context, recipe, layer, weight);
    int64_t data = 0;
    mp_param_desc desc = MP_PARAM_DESC_INIT;
    desc.param = param;
    int calls = 0;
    for (const std::string& name : bad_names()) {
        desc.name = layer.name = name.c_str();
        mp_linear* none = nullptr;
        for (const mp_status status :
             {mp_optimizer_add_param(optimizer, 0, &desc, nullptr),
              mp_checkpoint_add_data(checkpoint, name.c_str(), &data, sizeof data),
              mp_checkpoint_add_linear(checkpoint, name.c_str(), linear),
              mp_linear_create(context, recipe, &layer, weight, nullptr, &none)}) {
            EXPECT_EQ(status, MP_STATUS_INVALID_ARGUMENT) << name;
            ++calls;
        }
    }
    const Tensor params = make_tensor(context, MP_DTYPE_FP32, {32}, std::vector<float>(32, 1.0F));
    int64_t added = 0;
    for (const char* name : {"w", "\xc3\xa9", "\xf0\x9f\x98\x80", "a b\"\\\n", "__metadata"}) {
        desc.name = layer.name = name;
        const Tensor owned = view_of(params, 4 * added++, {4}); // parameters share no memory
        desc.param = owned;
        mp_linear* made = nullptr;
        MP_OK(mp_optimizer_add_param(optimizer, 0, &desc, nullptr));
        MP_OK(mp_checkpoint_add_data(checkpoint, name, &data, sizeof data));
        MP_OK(mp_checkpoint_add_linear(checkpoint, name, linear));
        MP_OK(mp_linear_create(context, recipe, &layer, weight, nullptr, &made));
        mp_linear_destroy(made);
    }
    std::printf("%d calls with bad names\n", calls);
    const Recipe fp8 = make_recipe(context, "fp8_current");
    mp_recipe* clone = nullptr;
    MP_OK(mp_recipe_clone(fp8, &clone));
    const Recipe own(clone);
    MP_FAILS(mp_recipe_set_string(own, "layers", "h0.\xff"), MP_STATUS_INVALID_ARGUMENT, "layers");
    MP_OK(mp_recipe_set_string(own, "layers", "h0.\xc3\xa9*"));
}

// Refused in the call, before a training that would lose it.
TEST(Names, OfTheHistoryAreARegularFilesOrNobodys) {
    namespace fs = std::filesystem;
    const Context context = make_context(1);
    const Recipe recipe = make_recipe(context, "fp32");
    const Optimizer optimizer = make_optimizer(context, recipe);
    const fs::path folder =
        fs::path(::testing::TempDir()) / ("mp_history_names_" + std::to_string(::getpid()));
    fs::create_directories(folder / "folder");
    std::ofstream(folder / "file") << "of a run before";
    fs::create_symlink(folder / "file", folder / "link");
    fs::create_symlink(folder / "nothing", folder / "dangling");
    for (const char* good : {"file", "new"}) {
        MP_OK(mp_optimizer_set_history(optimizer, 2, (folder / good).c_str()));
    }
    for (const char* bad : {"folder", "link", "dangling"}) {
        MP_FAILS(mp_optimizer_set_history(optimizer, 2, (folder / bad).c_str()),
                 MP_STATUS_INVALID_ARGUMENT, "only a regular file is replaced");
    }
    MP_FAILS(mp_optimizer_set_history(optimizer, 2, "/dev/null"), MP_STATUS_INVALID_ARGUMENT,
             "only a regular file is replaced");
    EXPECT_EQ(fs::file_size(folder / "file"), 15U);
    fs::remove_all(folder);
}
