// SPDX-License-Identifier: Apache-2.0
// Wrong calls of checkpoints (checkpoint.h).
#include "training.hpp"
#include "wrong_calls.hpp"

using namespace mp_test;

TEST(WrongCallsCheckpoint, OfATraining) {
    Training training("fp32");
    const Training stranger("fp32");
    const Checkpoint fresh = make_checkpoint(training.context);
    mp_checkpoint* const c = training.checkpoint;
    mp_checkpoint_info info{};
    int64_t data = 0;
    const auto create = [&](auto field, auto value) {
        const auto desc = with(mp_checkpoint_desc MP_CHECKPOINT_DESC_INIT, field, value);
        mp_checkpoint* out = nullptr;
        return mp_checkpoint_create(training.context, nullptr, &desc, &out);
    };
    const auto save = [&](const char* folder, int64_t step, uint32_t flags = 0) {
        return mp_checkpoint_save(c, folder, step, flags);
    };
    expect_refused<MP_STATUS_INVALID_ARGUMENT>({
        {"keeps -1", create(&mp_checkpoint_desc::keep, -1), {"keep"}},
        {"unknown flags", create(&mp_checkpoint_desc::flags, 1), {"flags"}},
        {"no name", mp_checkpoint_add_linear(c, "", training.linear), {"name"}},
        {"a layer's name twice",
         mp_checkpoint_add_linear(c, "layer", training.linear),
         {"'layer'"}},
        {"a name of data twice",
         mp_checkpoint_add_data(c, "position", &data, sizeof data),
         {"'position'"}},
        {"no bytes", mp_checkpoint_add_data(c, "x", &data, 0), {"bytes"}},
        {"of another context",
         mp_checkpoint_add_optimizer(fresh, stranger.optimizer),
         {"another context"}},
        {"step -1", save("/tmp/x", -1), {"step"}},
        {"saved with unknown flags", save("/tmp/x", 1, 8), {"flags"}},
        {"loaded with unknown flags", mp_checkpoint_load(c, "/none", 64, nullptr), {"flags"}},
        {"info of no size", mp_checkpoint_inspect("/none", &info), {"struct_size"}},
        {"info of a load of no size", mp_checkpoint_load(c, "/none", 0, &info), {"struct_size"}},
    });
    expect_refused<MP_STATUS_BAD_STATE>({
        {"an optimizer twice", mp_checkpoint_add_optimizer(c, training.optimizer), {"already"}},
        {"a scaler twice", mp_checkpoint_add_scaler(c, training.scaler), {"already"}},
    });
    expect_refused<MP_STATUS_NULL_ARGUMENT>({
        {"no data", mp_checkpoint_add_data(c, "x", nullptr, 8), {"data"}},
        {"nowhere", save(nullptr, 1), {"directory"}},
    });
    expect_refused<MP_STATUS_IO_ERROR>({
        {"saved where nothing is", save("/none/none/none", 1), {"/none"}},
        {"loaded from there", mp_checkpoint_load(c, "/none", 0, nullptr), {"/none"}},
    });
    MP_OK(mp_checkpoint_add_data(c, "x", &data, sizeof data));     // what failed has taken no name
    MP_OK(mp_checkpoint_add_data(c, "layer", &data, sizeof data)); // and a layer's is no data's

    // A save in the background that fails is told of, also where something was added meanwhile.
    MP_OK(save("/proc", 1, MP_SAVE_BACKGROUND));
    MP_OK(mp_checkpoint_add_data(c, "y", &data, sizeof data));
    MP_FAILS(mp_checkpoint_wait(c), MP_STATUS_IO_ERROR, "/proc/");
}

TEST(WrongCallsCheckpoint, OfNothing) {
    const Folder folder("nothing");
    const Context context = make_context(1);
    const Checkpoint checkpoint = make_checkpoint(context);
    expect_refused<MP_STATUS_BAD_STATE>({
        {"saves", mp_checkpoint_save(checkpoint, folder.c_str(), 1, 0), {"mp_checkpoint_add_"}},
        {"loads",
         mp_checkpoint_load(checkpoint, folder.c_str(), 0, nullptr),
         {"mp_checkpoint_add_"}},
    });
    EXPECT_FALSE(fs::exists(folder.path));
}
