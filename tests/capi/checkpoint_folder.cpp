// SPDX-License-Identifier: Apache-2.0
// The folder that mp_checkpoint writes to: how many checkpoints stay, what is cleaned up, who else writes there.
#include <filesystem>
#include <fstream>
#include <thread>

#include "optimizers.hpp"
#include "training.hpp"

using namespace mp_test;

namespace {

std::string manifest_of(const std::string& path, mp_status wanted = MP_STATUS_OK) {
    const auto read = [&](char* to, size_t capacity, size_t* needed) {
        return mp_checkpoint_read_manifest(path.c_str(), to, capacity, needed);
    };
    return written_by(read, wanted);
}

} // namespace

TEST(CheckpointFolder, KeepsAsManyAsAsked) {
    const Folder folder("keep");
    mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
    desc.keep = 2;
    Training training("bf16_pure", 3, nullptr, &desc);
    for (int64_t step = 1; step <= 4; ++step) {
        MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), step, 0));
    }
    EXPECT_EQ(folder.entries(), 2U);
    mp_checkpoint_info info{};
    info.struct_size = sizeof info;
    MP_OK(mp_checkpoint_inspect(folder.c_str(), &info));
    EXPECT_EQ(info.step, 4);
    EXPECT_EQ(info.sequence, 4);
    EXPECT_EQ(info.world, 1);
    EXPECT_EQ(info.format, 1);
    std::string text(1 << 16, '\0');
    MP_OK(mp_checkpoint_describe(folder.c_str(), text.data(), text.size(), nullptr));
    EXPECT_NE(text.find("step-4-4-"), std::string::npos) << text;
    EXPECT_NE(text.find("step-3-3-"), std::string::npos) << text;
    const std::string newest = text.substr(0, text.find(':'));
    MP_OK(
        mp_checkpoint_describe((folder.path / newest).c_str(), text.data(), text.size(), nullptr));
    EXPECT_NE(text.find("tensor layer.129 (param) bf16 [129]"), std::string::npos) << text;
}

// The manifest is the one that a load takes; what lies beside it under a newer name is passed over with a word, whatever it is.
TEST(CheckpointFolder, ReadsTheManifestThatALoadTakes) {
    namespace fs = std::filesystem;
    const Folder folder("manifest");
    Training training("bf16_pure");
    MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 7, 0));
    const std::string name = fs::directory_iterator(folder.path)->path().filename().string();
    const std::string whole = manifest_of(folder.c_str());
    EXPECT_EQ(whole.rfind("{\"name\":\"" + name + "\",\"manifest\":{\"format\"", 0), 0U) << whole;
    EXPECT_EQ(whole.back(), '}');
    const std::string alone = manifest_of(folder.path / name);
    EXPECT_EQ(alone, "{\"name\":\"\"" + whole.substr(whole.find(",\"manifest\"")));
    const fs::path newer = folder.path / ("step-9-99-" + std::string(32, 'a'));
    const auto damages = {
        +[](const fs::path& to) { fs::create_directory(to); },
        +[](const fs::path& to) { std::ofstream(to) << "a file"; },
        +[](const fs::path& to) { fs::create_directory_symlink(to.parent_path() / "other", to); },
        +[](const fs::path& to) {
            fs::create_directory(to);
            std::ofstream(to / "manifest.json") << "{}";
        },
        +[](const fs::path& to) {
            fs::create_directory(to);
            EXPECT_EQ(mkfifo((to / "manifest.json").c_str(), 0600), 0);
        },
    };
    fs::copy(folder.path / name, folder.path / "other"); // what the link leads to
    for (const auto& damage : damages) {
        damage(newer);
        EXPECT_EQ(manifest_of(folder.c_str(), MP_STATUS_WARNING), whole);
        std::string text(1 << 16, '\0');
        MP_OK(mp_checkpoint_describe(folder.c_str(), text.data(), text.size(), nullptr));
        EXPECT_EQ(text.find("rank(s)"), text.rfind("rank(s)")) << text; // one of them is intact
        fs::remove_all(newer);
    }
    const std::string beyond = "step-9-100000000000000000000000-" + std::string(32, 'a');
    fs::copy(folder.path / name, folder.path / beyond);
    EXPECT_EQ(manifest_of(folder.c_str()), whole);
    std::size_t needed = 7;
    MP_FAILS(mp_checkpoint_read_manifest("/none", nullptr, 0, &needed), MP_STATUS_IO_ERROR,
             "/none");
    EXPECT_EQ(needed, 7U);
}

TEST(CheckpointFolder, WeightsAlone) {
    const Folder folder("weights");
    fs::create_directory(folder.path);
    const std::string file = (folder.path / "weights.safetensors").string();
    const Training training("bf16_pure");
    MP_OK(mp_checkpoint_export_weights(training.checkpoint, file.c_str()));
    EXPECT_GT(fs::file_size(file), 2U * (1 + 129 + 6000));
    EXPECT_EQ(folder.entries(), 1U);
    MP_FAILS(mp_checkpoint_export_weights(training.checkpoint, file.c_str()), MP_STATUS_IO_ERROR,
             "exists");
    EXPECT_EQ(folder.entries(), 1U);
}

// Whoever may write into the folder may put links there under the names of leftovers and of old checkpoints. Cleaning up
// must not reach what they point to.
TEST(CheckpointFolder, CleaningUpFollowsNoLinks) {
    const std::string id(32, 'c');
    for (const std::string& name : {".tmp-0-" + id, ".trash-0-" + id, "step-1-0-" + id}) {
        SCOPED_TRACE(name);
        for (const int32_t keep : {0, 1}) {
            const Folder outside("outside");
            fs::create_directories(outside.path / "empty");
            std::ofstream(outside.path / "precious") << "data";
            const Folder folder("links");
            mp_checkpoint_desc desc = MP_CHECKPOINT_DESC_INIT;
            desc.keep = keep;
            Training training("fp32", 3, nullptr, &desc);
            MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, 0));
            fs::create_directory_symlink(outside.path, folder.path / name);
            MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 2, 0));
            EXPECT_TRUE(fs::exists(outside.path / "precious"));
            EXPECT_TRUE(fs::exists(outside.path / "empty"));
        }
    }
}

// A load of such a folder would take the checkpoint that it is.
TEST(CheckpointFolder, IsNoCheckpointItself) {
    const Folder folder("nested");
    Training training("fp32");
    MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, 0));
    const std::string step = fs::directory_iterator(folder.path)->path().string();
    for (const uint32_t flags : {0U, MP_SAVE_BACKGROUND}) {
        MP_FAILS(mp_checkpoint_save(training.checkpoint, step.c_str(), 2, flags),
                 MP_STATUS_INVALID_ARGUMENT, "is a checkpoint itself");
    }
    EXPECT_EQ(folder.entries(), 1U);
}

// What a load would refuse is not saved: the second moment of a finite gradient, where a block has no scale for it.
TEST(CheckpointFolder, GetsNothingThatALoadRefuses) {
    for (const char* format :
         {"fp8_e4m3_block256", "int8_block256", "int8_companded32", "int4_block128"}) {
        const std::string recipe =
            R"({"recipe": "fp32", "optimizer.exp_avg_sq.dtype": ")" + std::string(format) + R"("})";
        const Folder folder("too_large");
        Training training(recipe);
        MP_OK(mp_checkpoint_save(training.checkpoint, folder.c_str(), 1, 0));
        const Tensor grad = state_of(training.optimizer, 2, "grad");
        const std::vector<float> large(6000, 6e20F);
        MP_OK(mp_tensor_write(grad, nullptr, large.data(), large.size() * sizeof(float)));
        MP_OK(mp_optimizer_step(training.optimizer, nullptr, nullptr));
        MP_FAILS(mp_checkpoint_save(training.checkpoint, folder.c_str(), 2, 0), MP_STATUS_BAD_STATE,
                 "exp_avg_sq_scale_inv", "a load would refuse it");
        MP_OK(mp_checkpoint_load(training.checkpoint, folder.c_str(), 0, nullptr));
        EXPECT_EQ(folder.entries(), 1U);
    }
}

// Whoever saves cleans up what others left; a save that goes on is none of it.
TEST(CheckpointFolder, TakesTwoWritersAtOnce) {
    const Folder folder("writers");
    const auto write = [&] {
        Training training("fp32");
        for (int64_t i = 0; i < 40; ++i) {
            EXPECT_TRUE(succeeded(mp_checkpoint_save(training.checkpoint, folder.c_str(), i, 0)));
        }
    };
    std::thread other(write);
    write();
    other.join();
    Training resumed("fp32", 99);
    mp_checkpoint_info info{};
    info.struct_size = sizeof info;
    MP_OK(mp_checkpoint_load(resumed.checkpoint, folder.c_str(), MP_LOAD_VERIFY_ALL, &info));
    EXPECT_EQ(info.step, 39);
    EXPECT_EQ(folder.entries(), 80U);
}
