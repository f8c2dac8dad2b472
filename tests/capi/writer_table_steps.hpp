// SPDX-License-Identifier: Apache-2.0
// The rest of writer_table.hpp: steps, checkpoints, messages and scratch memory.
#pragma once

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "optimizers.hpp"
#include "writer_table.hpp"
#include "writer_table_adapters.hpp"

namespace mp_test {

// A step whose one array of this name lies in the place; "step" and "amax" are its numbers.
struct PointerStep {
    std::vector<float> p, g, m, v, c;
    mp_step_args args = MP_STEP_ARGS_INIT;
    mp_step_slot slot = MP_STEP_SLOT_INIT;

    PointerStep(const Place& place, const std::string& part)
        : p(numbers(static_cast<std::size_t>(kArea), 1)), g(p), m(p), v(p), c(p) {
        args.lr = 1e-3;
        for (float& value : v) {
            value *= value;
        }
        const auto at = [&](const char* name, std::vector<float>& own) {
            return part == name ? place.memory : own.data();
        };
        slot.count = kArea / 4; // so that no array of the slot leaves the place
        slot.param.dtype = slot.grad.dtype = slot.states[0].dtype = slot.states[1].dtype =
            MP_DTYPE_FP32;
        slot.param.data = at("param", p);
        slot.grad.data = at("grad", g);
        slot.states[0].data = at("exp_avg", m);
        slot.states[1].data = at("exp_avg_sq", v);
        if (part == "exp_avg_sq") {
            std::copy(v.begin(), v.end(), place.memory);
        }
        if (part == "master") {
            slot.param.dtype = MP_DTYPE_BF16;
            slot.master.dtype = MP_DTYPE_FP32;
            slot.master.data = place.memory;
        }
        if (part == "amax") {
            place.memory[0] = 0.5F;
            slot.param.amax = place.memory;
        }
        if (part == "step") {
            const int64_t steps = 4;
            std::memcpy(place.memory, &steps, sizeof steps);
            args.step = 0;
            args.step_pointer = reinterpret_cast<int64_t*>(place.memory);
        }
        args.flags |= MP_OPTIMIZER_ZERO_GRAD;
    }
};

inline void add_pointer_steps(std::vector<Writer>& all) {
    for (const char* part : {"param", "grad", "exp_avg", "exp_avg_sq", "master", "amax", "step"}) {
        all.push_back({"mp_optimizer_step_pointers", [part](const Place& p) {
                           const PointerStep step(p, part);
                           return mp_optimizer_step_pointers(p.context, nullptr, &step.args,
                                                             &step.slot, 1, nullptr, nullptr);
                       }});
        all.push_back(
            {"mp_step_plan_run", [part](const Place& p) {
                 const PointerStep step(p, part);
                 mp_step_plan* raw = nullptr;
                 EXPECT_TRUE(done(mp_step_plan_create(p.context, &step.args, &step.slot, 1, &raw)));
                 const StepPlan plan(raw);
                 return mp_step_plan_run(plan, nullptr, nullptr);
             }});
    }
}

inline std::string scratch_folder() {
    static int number = 0;
    return (std::filesystem::temp_directory_path() /
            ("mp_writers_" + std::to_string(getpid()) + "_" + std::to_string(number++)))
        .string();
}

// Saves other values from the memory, and loads them.
template <class Fill> mp_status load_into(const Place& p, mp_optimizer* optimizer, Fill fill) {
    const Checkpoint checkpoint = make_checkpoint(p.context);
    EXPECT_TRUE(succeeded(optimizer != nullptr
                              ? mp_checkpoint_add_optimizer(checkpoint, optimizer)
                              : mp_checkpoint_add_data(checkpoint, "w", p.memory, kAreaBytes)));
    const std::string folder = scratch_folder();
    const std::vector<float> before(p.memory, p.memory + kArea);
    fill();
    EXPECT_TRUE(succeeded(mp_checkpoint_save(checkpoint, folder.c_str(), 1, 0)));
    std::copy(before.begin(), before.end(), p.memory);
    const mp_status status = mp_checkpoint_load(checkpoint, folder.c_str(), 0, nullptr);
    std::filesystem::remove_all(folder);
    return status;
}

// The numbers as the only tensor of a file, for the body to read.
template <class Body> mp_status with_file(const Place& p, const Body& body) {
    const std::string header = R"({"w":{"dtype":"F32","shape":[32,32],"data_offsets":[0,4096]}})";
    const std::string path = scratch_folder() + ".safetensors";
    const uint64_t length = header.size();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(&length), sizeof length)
        .write(header.data(), static_cast<std::streamsize>(length))
        .write(static_cast<const char*>(data_of(p.numbers_)), kAreaBytes);
    mp_model_file* model = nullptr;
    EXPECT_TRUE(succeeded(mp_model_file_open(path.c_str(), 0, &model)));
    const mp_status status = body(model);
    mp_model_file_destroy(model);
    std::filesystem::remove(path);
    return status;
}

inline void add_model_files(std::vector<Writer>& all) {
    const auto on_weight = [&all](const char* function, auto call) {
        all.push_back({function, [=](const Place& p) {
                           const Tensor grad = p.matrix(10);
                           const Optimizer o = p.optimizer("w", p.fp32, p.target, grad);
                           return call(p, o.operator mp_optimizer*());
                       }});
    };
    all.push_back({"mp_model_file_read", [](const Place& p) {
                       return with_file(p, [&](mp_model_file* model) {
                           return mp_model_file_read(model, 0, 0, p.memory, kAreaBytes);
                       });
                   }});
    all.push_back({"mp_model_file_read_floats", [](const Place& p) {
                       return with_file(p, [&](mp_model_file* model) {
                           return mp_model_file_read_floats(model, 0, 0, p.memory,
                                                            kAreaBytes / sizeof(float));
                       });
                   }});
    all.push_back({"mp_model_file_load", [](const Place& p) {
                       return with_file(p, [&](mp_model_file* model) {
                           return mp_model_file_load(model, nullptr, 0, 0, p.target);
                       });
                   }});
    on_weight("mp_optimizer_load_params", [](const Place& p, mp_optimizer* o) {
        return with_file(p, [&](mp_model_file* model) {
            return mp_optimizer_load_params(o, nullptr, model, nullptr, nullptr, 0);
        });
    });
    on_weight("mp_optimizer_init_params", [](const Place&, mp_optimizer* o) {
        mp_param_init init = MP_PARAM_INIT_INIT;
        init.kind = MP_INIT_NORMAL;
        init.b = 1.0;
        return mp_optimizer_init_params(o, nullptr, 3, &init, 1);
    });
    on_weight("mp_optimizer_fill_params", [](const Place&, mp_optimizer* o) {
        const int32_t indices[] = {0};
        const auto fill = [](int32_t, int64_t first, int64_t count, float* values, void*) {
            for (int64_t i = 0; i < count; ++i) {
                values[i] = 1.0F / static_cast<float>(first + i + 1);
            }
            return MP_STATUS_OK;
        };
        return mp_optimizer_fill_params(o, nullptr, indices, 1, fill, nullptr, -1);
    });
}

inline mp_optimizer* with_begun_step(mp_optimizer* optimizer) {
    EXPECT_TRUE(succeeded(mp_optimizer_step_begin(optimizer, nullptr, nullptr)));
    return optimizer;
}

inline void add_steps_in_parts(std::vector<Writer>& all) {
    static constexpr int32_t kFirst = 0;
    for (const bool is_grad : {false, true}) {
        const auto with = [&all, is_grad](const char* function, auto call) {
            all.push_back({function, [=](const Place& p) {
                               const Tensor own = p.matrix(8);
                               const Optimizer o = p.optimizer(
                                   "w", p.fp32, is_grad ? own : p.target, is_grad ? p.target : own,
                                   is_grad ? MP_OPTIMIZER_ZERO_GRAD : 0);
                               return call(with_begun_step(o));
                           }});
        };
        with("mp_optimizer_step_end",
             [](mp_optimizer* o) { return mp_optimizer_step_end(o, nullptr); });
        with("mp_optimizer_step_params", [](mp_optimizer* o) {
            return mp_optimizer_step_params(o, nullptr, &kFirst, 1, nullptr);
        });
    }
    all.push_back(
        {"mp_optimizer_step_params", [](const Place& p) { // a gradient that is given
             const Tensor weight = p.matrix(8);
             const Optimizer o = p.optimizer("w", p.fp32, weight, nullptr,
                                             MP_OPTIMIZER_GRADS_GIVEN | MP_OPTIMIZER_ZERO_GRAD);
             return mp_optimizer_step_params(with_begun_step(o), nullptr, &kFirst, 1, &p.target);
         }});
}

inline void add_optimizers(std::vector<Writer>& all) {
    const auto with = [&all](const char* function, uint32_t flags, bool is_grad, auto call) {
        all.push_back({function, [=](const Place& p) {
                           const Tensor own = p.matrix(8);
                           const Optimizer o = p.optimizer("w", p.fp32, is_grad ? own : p.target,
                                                           is_grad ? p.target : own, flags);
                           return call(p, o.operator mp_optimizer*());
                       }});
    };
    const auto step = [](const Place&, mp_optimizer* o) {
        return mp_optimizer_step(o, nullptr, nullptr);
    };
    with("mp_optimizer_step", 0, false, step);
    with("mp_optimizer_step", MP_OPTIMIZER_ZERO_GRAD, true, step);
    with("mp_optimizer_step", MP_OPTIMIZER_OFFLOAD, false, step);
    with("mp_optimizer_step", MP_OPTIMIZER_OFFLOAD | MP_OPTIMIZER_ZERO_GRAD, true, step);
    with("mp_optimizer_zero_grad", 0, true,
         [](const Place&, mp_optimizer* o) { return mp_optimizer_zero_grad(o, nullptr); });
    with("mp_optimizer_mark_unused", 0, true, [](const Place&, mp_optimizer* o) {
        constexpr int32_t kFirst = 0;
        return mp_optimizer_mark_unused(o, nullptr, &kFirst, 1);
    });
    with("mp_optimizer_write_state", 0, false, [](const Place& p, mp_optimizer* o) {
        return mp_optimizer_write_state(o, nullptr, 0, "fp32_param", p.numbers_);
    });
    with("mp_checkpoint_load", 0, false, [](const Place& p, mp_optimizer* o) {
        return load_into(p, o, [&] {
            for (int64_t i = 0; i < kArea; ++i) {
                p.memory[i] = 1.0F / static_cast<float>(i + 1);
            }
        });
    });
    all.push_back({"mp_checkpoint_load", [](const Place& p) {
                       return load_into(p, nullptr, [&] { p.memory[3] = 40.0F; });
                   }});
    all.push_back({"mp_optimizer_read_state", [](const Place& p) {
                       const Tensor other = p.matrix(9), grad = p.matrix(10);
                       const Optimizer o = p.optimizer("other", p.fp32, other, grad);
                       return mp_optimizer_read_state(o, nullptr, 0, "fp32_param", p.target);
                   }});
    all.push_back({"mp_optimizer_add_param", [](const Place& p) {
                       const Tensor grad = p.matrix(10);
                       const Optimizer o = p.optimizer("w", p.fp32, p.target, grad, 0, p.numbers_);
                       return MP_STATUS_OK;
                   }});
    all.push_back({"mp_optimizer_shard", [](const Place& p) {
                       mp_comm* raw = nullptr;
                       EXPECT_TRUE(succeeded(mp_comm_create_self(nullptr, &raw)));
                       const Comm self(raw);
                       const Tensor grad = p.matrix(10);
                       const Optimizer o =
                           p.optimizer("w", p.fp32, p.target, grad, 0, nullptr, self);
                       EXPECT_TRUE(done(mp_optimizer_shard(o, nullptr)));
                       return mp_optimizer_step(o, nullptr, nullptr);
                   }});
}

// On two ranks, of which this thread is the first.
template <class Body> mp_status on_two(const Body& body) {
    mp_comm* raw[2] = {nullptr, nullptr};
    EXPECT_TRUE(succeeded(mp_comm_create_threads(nullptr, 2, raw)));
    const Comm comms[2] = {Comm(raw[0]), Comm(raw[1])};
    std::thread peer([&] { EXPECT_TRUE(succeeded(body(comms[1].operator mp_comm*(), 1))); });
    const mp_status status = body(comms[0].operator mp_comm*(), 0);
    peer.join();
    return status;
}

// Without a request, or with one that is waited for or tested until it is done.
enum class Ending { none, wait, test };
template <class Body> mp_status ended(Ending ending, const Body& body) {
    mp_comm_request* raw = nullptr;
    mp_status status = body(ending == Ending::none ? nullptr : &raw);
    const Request request(raw);
    if (status == MP_STATUS_OK && ending == Ending::wait) {
        status = mp_comm_request_wait(request);
    }
    while (status == MP_STATUS_OK && ending == Ending::test &&
           (status = mp_comm_request_test(request)) == MP_STATUS_NOT_READY) {
        status = MP_STATUS_OK;
    }
    return status;
}

inline void add_messages(std::vector<Writer>& all, Ending ending) {
    all.push_back({"mp_comm_broadcast", [ending](const Place& p) {
                       return on_two([&](mp_comm* comm, int rank) {
                           void* data = rank == 0 ? p.memory : data_of(p.numbers_);
                           return ended(ending, [&](mp_comm_request** out) {
                               return mp_comm_broadcast(comm, nullptr, data, kAreaBytes, 1, out);
                           });
                       });
                   }});
    all.push_back({"mp_comm_max_u32", [ending](const Place& p) {
                       std::vector<uint32_t> most(static_cast<std::size_t>(kArea), 0x42280000U);
                       return on_two([&](mp_comm* comm, int rank) {
                           auto* values =
                               rank == 0 ? reinterpret_cast<uint32_t*>(p.memory) : most.data();
                           return ended(ending, [&](mp_comm_request** out) {
                               return mp_comm_max_u32(comm, values, kArea, out);
                           });
                       });
                   }});
    const auto alone = [&all, ending](const char* function, auto call) {
        all.push_back({function, [=](const Place& p) {
                           mp_comm* raw = nullptr;
                           EXPECT_TRUE(succeeded(mp_comm_create_self(nullptr, &raw)));
                           const Comm self(raw);
                           return ended(ending, [&](mp_comm_request** out) {
                               return call(p, self.operator mp_comm*(), out);
                           });
                       }});
    };
    for (const bool gathers : {false, true}) {
        alone(gathers ? "mp_comm_all_gather" : "mp_comm_all_to_all",
              [gathers](const Place& p, mp_comm* self, mp_comm_request** out) {
                  const int64_t bytes = kAreaBytes, offset = 0;
                  mp_comm_exchange what = MP_COMM_EXCHANGE_INIT;
                  what.send = data_of(p.numbers_);
                  what.receive = p.memory;
                  what.send_bytes = what.receive_bytes = &bytes;
                  what.send_offsets = what.receive_offsets = &offset;
                  return gathers ? mp_comm_all_gather(self, nullptr, &what, out)
                                 : mp_comm_all_to_all(self, nullptr, &what, out);
              });
    }
    alone("mp_comm_all_reduce", [](const Place& p, mp_comm* self, mp_comm_request** out) {
        const mp_tensor* source = p.numbers_;
        return mp_comm_all_reduce(self, nullptr, nullptr, &source, 1, p.target, out);
    });
    alone("mp_comm_reduce_scatter", [](const Place& p, mp_comm* self, mp_comm_request** out) {
        const mp_tensor* source = p.numbers_;
        return mp_comm_reduce_scatter(self, nullptr, nullptr, &source, 1, nullptr, p.target, out);
    });
    alone("mp_comm_all_gather_values", [](const Place& p, mp_comm* self, mp_comm_request** out) {
        return mp_comm_all_gather_values(self, nullptr, nullptr, p.numbers_, nullptr, p.target,
                                         out);
    });
}

inline void add_workspaces(std::vector<Writer>& all) {
    all.push_back({"mp_queue_set_workspace", [](const Place& p) {
                       const Queue queue = make_queue(p.context);
                       EXPECT_TRUE(succeeded(mp_queue_set_workspace(queue, p.memory, kAreaBytes)));
                       const Recipe bf16 = make_recipe(p.context, "bf16_mixed");
                       mp_linear_desc desc = MP_LINEAR_DESC_INIT;
                       desc.in_features = desc.out_features = kSide;
                       desc.flags = MP_LINEAR_INFERENCE;
                       mp_linear* made = nullptr;
                       const Tensor w = p.matrix(4), x = p.matrix(5), y = p.matrix(6);
                       EXPECT_TRUE(
                           succeeded(mp_linear_create(p.context, bf16, &desc, w, nullptr, &made)));
                       const Linear layer(made);
                       return mp_linear_forward(layer, queue, x, y);
                   }});
}

inline std::vector<Writer> all_writers() {
    std::vector<Writer> all;
    add_tensor_writers(all);
    add_quantizers(all);
    add_gemms(all);
    add_forwards(all);
    add_backwards(all);
    add_adapters(all);
    add_pointer_steps(all);
    add_optimizers(all);
    add_steps_in_parts(all);
    add_model_files(all);
    for (const Ending ending : {Ending::none, Ending::wait, Ending::test}) {
        add_messages(all, ending);
    }
    add_workspaces(all);
    return all;
}

} // namespace mp_test
