// SPDX-License-Identifier: Apache-2.0
// Streams that are being captured into a graph, on a simulated device that takes it as strictly as CUDA does: memory,
// waits and copies from pageable memory are errors there. And what a step asks of the device, counted.
#include "optim/step_plan.hpp"
#include "simulation.hpp"
#include "trainer.hpp"

namespace mp::test {
namespace {

// Everything on the queue until it ends is captured, and can then be done again.
class Capture {
  public:
    explicit Capture(Queue& queue) : stream_(static_cast<cudaStream_t>(queue.native())) {
        symbol<void(cudaStream_t)>("mp_simulated_begin_capture")(stream_);
    }
    ~Capture() { end(); }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    void end() {
        if (is_open_) {
            symbol<void(cudaStream_t)>("mp_simulated_end_capture")(stream_);
            is_open_ = false;
        }
    }
    void replay() {
        end();
        symbol<void(cudaStream_t)>("mp_simulated_replay")(stream_);
    }

  private:
    cudaStream_t stream_;
    bool is_open_ = true;
};

void expect_refused(const Status& status, const char* words) {
    EXPECT_EQ(status.code(), Code::bad_state) << status.text();
    EXPECT_NE(std::string(status.text()).find(words), std::string::npos) << status.text();
}

TEST_F(Simulation, AnUploadInACaptureIsRefused) {
    TestDevice on(backend(), 1);
    float value = 1.0F;
    DeviceValue<float> there(on, value);
    const auto copy = [&](CopyKind kind) {
        void* host = &value;
        void* device = there.data();
        const bool is_upload = kind == CopyKind::host_to_device;
        return on.device().copy(on.queue(), is_upload ? device : host, is_upload ? host : device,
                                sizeof value, kind);
    };
    {
        const Capture capture(on.queue());
        expect_refused(copy(CopyKind::host_to_device), "mp_optimizer_set_lr_tensor");
        expect_refused(copy(CopyKind::device_to_host), "copied to the host");
    }
    // More than there are slots: none of them waits for what was captured.
    for (int i = 0; i < 20; ++i) {
        value = static_cast<float>(i);
        check(copy(CopyKind::host_to_device));
    }
    EXPECT_EQ(there.download(), 19.0F);
}

TEST_F(Simulation, AFirstUseInACaptureIsRefused) {
    TestDevice on(backend(), 1);
    const GemmCase c = make_case({{8, 16, 16}});
    const DeviceArray a(on, c.a);
    const DeviceArray b(on, c.b);
    const DeviceArray d(on, c.c);
    ColumnSumDesc sum{};
    sum.kind = OpKind::column_sum;
    sum.source = a.ref();
    sum.destination = {d.data(), 16, DType::fp32};
    sum.rows = 8;
    sum.columns = 16;
    const Candidate& product = on.device().candidates(OpKind::gemm).items[0];
    const Candidate& columns = on.device().candidates(OpKind::column_sum).items[0];
    Plan* plan = nullptr;
    check(product.prepare(on.device(), c.desc, &plan));
    const std::unique_ptr<Plan> owner(plan);
    const auto use = [&] {
        return std::pair{product.run_plan(on.device(), on.queue(), *plan,
                                          {a.data(), b.data(), nullptr, nullptr, d.data()}),
                         columns.run(on.device(), on.queue(), sum)};
    };
    on.sync();
    {
        const Capture capture(on.queue());
        const auto [of_product, of_columns] = use();
        expect_refused(of_product, "more scratch memory is needed");
        expect_refused(of_columns, "a first kernel prepares the queue");
    }
    const int64_t before = control().legacy_syncs;
    EXPECT_TRUE(use().second.ok());
    EXPECT_EQ(control().legacy_syncs, before + 1) << "Kokkos clears its flags on that stream";
    Capture capture(on.queue());
    const auto [of_product, of_columns] = use();
    EXPECT_TRUE(of_product.ok()) << of_product.text();
    EXPECT_TRUE(of_columns.ok()) << of_columns.text();
    EXPECT_EQ(control().legacy_syncs, before + 1);
}

// A graph goes on using the scratch memory that was there when it was captured.
TEST_F(Simulation, ScratchMemoryOfAGraphStays) {
    TestDevice on(backend(), 1);
    const Candidate& candidate = on.device().candidates(OpKind::gemm).items[1]; // fp8, which copies
    struct Product {
        Product(TestDevice& device, const Candidate& how, const Shape& shape)
            : on(device), candidate(how), c(make_case(options(shape))), a(on, c.a), b(on, c.b),
              d(on, c.c) {
            Plan* made = nullptr;
            check(candidate.prepare(on.device(), c.desc, &made));
            plan.reset(made);
        }
        static Options options(const Shape& shape) {
            Options o;
            o.shape = shape;
            o.in = DType::fp8_e4m3;
            o.content = Content::small_integers;
            return o;
        }
        void run() {
            check(candidate.run_plan(on.device(), on.queue(), *plan,
                                     {a.data(), b.data(), nullptr, nullptr, d.data()}));
        }
        TestDevice& on;
        const Candidate& candidate;
        GemmCase c;
        DeviceArray a, b, d;
        std::unique_ptr<Plan> plan;
    };
    Product small(on, candidate, {5, 7, 9});
    Product large(on, candidate, {50, 70, 90});
    small.run();
    Capture capture(on.queue());
    small.run();
    capture.end();
    large.run();
    const HostArray expected = large.d.download();
    capture.replay();
    EXPECT_TRUE(within_bound(small.c, small.d.download()));
    large.run();
    EXPECT_TRUE(same_bits(expected, large.d.download(), NanRule::same_bits));
}

// As Kokkos launches: a kernel that could not be enqueued is only left behind as the runtime's last error.
TEST_F(Simulation, ALaunchOfKokkosThatFailsIsAStatus) {
    TestDevice on(backend(), 1);
    const DeviceArray x(on, make_array(DType::fp32, 64, Content::normal, 1));
    ColumnSumDesc sum{};
    sum.kind = OpKind::column_sum;
    sum.source = x.ref();
    sum.destination = {x.data(), 8, DType::fp32};
    sum.rows = sum.columns = 8;
    const Candidate& candidate = on.device().candidates(OpKind::column_sum).items[0];
    check(candidate.run(on.device(), on.queue(), sum)); // prepares the queue
    int failures = 0;
    for (int64_t call = 1;; ++call) {
        control().fail_in = call;
        const Status status = candidate.run(on.device(), on.queue(), sum);
        if (control().fail_in > 0) { // not reached
            EXPECT_TRUE(status.ok()) << status.text();
            break;
        }
        const Code expected = call == 3 ? Code::kokkos_error : Code::cuda_error;
        EXPECT_EQ(status.code(), expected) << "call " << call << ": " << status.text();
        ++failures;
    }
    control().fail_in = 0;
    EXPECT_EQ(failures,
              4); // two questions about the stream, Kokkos's choice of the device, and the launch
}

TEST_F(Simulation, AGpuOlderThanTheModuleIsRefused) {
    control().capability = 75;
    DeviceConfig config;
    Device* device = nullptr;
    const Status status = backend().open(config, &device);
    control().capability = 90;
    EXPECT_EQ(device, nullptr);
    EXPECT_EQ(status.code(), Code::device_unavailable);
    EXPECT_NE(std::string(status.text()).find("compute capability 7.5"), std::string::npos)
        << status.text();
}

// ---- a step ------------------------------------------------------------------------------------

struct Asked {
    int64_t launches, copies, mallocs, syncs;
    bool operator==(const Asked&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Asked& asked) {
    return out << asked.launches << " launches, " << asked.copies << " copies and fills, "
               << asked.mallocs << " mallocs and frees, " << asked.syncs << " waits";
}
Asked asked() {
    const Control& c = control();
    return {c.launches, c.copies, c.mallocs, c.syncs};
}

// A change of these numbers is a change of speed on every GPU: more launches than before need a reason. An operation by
// Kokkos counts as one here, however many kernels it takes. Delayed scaling takes three launches and three fills more than
// current: amaxes of x and of the weight wait in cells of their own until a backward shows that their forward was of training.
TEST_F(Simulation, WhatASteadyStepAsksOfTheDevice) {
    const struct {
        const char* preset;
        Asked expected;
    } rows[] = {{"fp32", {7, 0, 0, 0}},
                {"bf16_mixed", {8, 0, 0, 0}},
                {"bf16_pure_kahan", {6, 0, 0, 0}},
                {"fp8_current", {12, 1, 0, 0}},
                {"fp8_delayed", {18, 4, 0, 0}},
                {"fp8_block", {16, 0, 0, 0}},
                {"mxfp8", {17, 0, 0, 0}}};
    for (const auto& row : rows) {
        Trainer trainer(backend(), row.preset);
        trainer.step();
        trainer.step();
        const Asked before = asked();
        trainer.step();
        const Asked after = asked();
        const Asked of_step = {after.launches - before.launches, after.copies - before.copies,
                               after.mallocs - before.mallocs, after.syncs - before.syncs};
        EXPECT_EQ(of_step, row.expected) << row.preset << ": " << trainer.layer_text();
    }
}

// mp_step_plan: a step on the caller's memory that is captured at its second run, and then done again.
TEST_F(Simulation, APreparedStepCanBeCaptured) {
    const auto context =
        std::make_shared<Context>(context_options(), enabled_backends(), &backend());
    Stream& stream = context->stream();
    constexpr int64_t kCount = 5000;
    std::vector<std::vector<unsigned char>> results;
    for (const bool captures : {false, true}) {
        std::vector<std::shared_ptr<Tensor>> arrays;
        for (int i = 0; i < 4; ++i) {
            arrays.push_back(
                std::make_shared<Tensor>(context, stream, DType::fp32, mp::Shape{{kCount}, 1}));
        }
        std::vector<float> values(kCount);
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<float>(i % 31) - 15.0F;
        }
        for (int i = 0; i < 2; ++i) {
            stream.copy(arrays[static_cast<std::size_t>(i)]->data(), values.data(),
                        values.size() * sizeof(float), CopyKind::host_to_device);
        }
        UpdateSegment segment;
        segment.count = kCount;
        segment.param = {arrays[0]->data(), nullptr, DType::fp32};
        segment.grad = {arrays[1]->data(), nullptr, DType::fp32};
        segment.states[0] = {arrays[2]->data(), nullptr, DType::fp32};
        segment.states[1] = {arrays[3]->data(), nullptr, DType::fp32};
        optim::StepOptions options;
        options.max_grad_norm = 1.0;
        const optim::StepPlan plan(stream, {segment}, {}, {}, options, 0);
        plan.run(stream, nullptr);
        stream.sync();
        if (captures) {
            Capture capture(stream.queue());
            plan.run(stream, nullptr);
            for (int i = 0; i < 3; ++i) {
                capture.replay();
            }
        } else {
            for (int i = 0; i < 3; ++i) {
                plan.run(stream, nullptr);
            }
        }
        EXPECT_EQ(plan.read_state(stream).step, 4);
        std::vector<unsigned char> bytes(values.size() * sizeof(float));
        stream.copy(bytes.data(), arrays[0]->data(), bytes.size(), CopyKind::device_to_host);
        stream.sync();
        results.push_back(bytes);
    }
    EXPECT_EQ(results[0], results[1]);
}

// What the host gives to each step, or is told by it, a replay has not: refused before anything is in the graph.
TEST_F(Simulation, AStepThatNeedsTheHostIsNotCaptured) {
    struct Case {
        const char* words;
        bool offloads = false;
        std::optional<optim::GuardOptions> guard = {};
        int32_t history = 0;
    };
    const Case cases[] = {{"MP_OPTIMIZER_OFFLOAD", true, {}, 0},
                          {"watches the loss", false, optim::GuardOptions{8, 3.0, 3.0}, 0},
                          {"history", false, {}, 4}};
    for (const Case& c : cases) {
        SCOPED_TRACE(c.words);
        optim::OptimizerOptions options;
        options.offload = c.offloads;
        Trainer trainer(backend(), "bf16_mixed", options);
        optim::Optimizer& optimizer = trainer.optimizer();
        optimizer.guard().set(trainer.stream(), c.guard);
        optimizer.history() = {c.history, ""};
        const auto step = [&] {
            optimizer.guard().set_loss(1.0);
            trainer.step();
        };
        step();
        step();
        const std::vector<unsigned char> before = trainer.bytes();
        Capture capture(trainer.stream().queue());
        optimizer.guard().set_loss(2.0);
        try {
            optimizer.step(trainer.stream(), nullptr);
            ADD_FAILURE() << "it was captured";
        } catch (const Error& error) {
            expect_refused(error.status(), c.words);
        }
        capture.replay();
        EXPECT_EQ(trainer.bytes(), before);
        EXPECT_EQ(optimizer.tables().read_state(trainer.stream()).step, 2);
        EXPECT_EQ(optimizer.guard().loss(), 2.0) << "its step may still come";
        step();
        EXPECT_EQ(optimizer.tables().read_state(trainer.stream()).step, 3);
    }
}

TEST_F(Simulation, AGuardOfTheGradientNormWorksInAGraph) {
    Trainer eager(backend(), "bf16_mixed");
    Trainer captured(backend(), "bf16_mixed");
    for (Trainer* trainer : {&eager, &captured}) {
        trainer->optimizer().guard().set(trainer->stream(), optim::GuardOptions{4, 3.0, 0.0});
        trainer->step();
        trainer->step();
    }
    Capture capture(captured.stream().queue());
    captured.step();
    for (int i = 0; i < 5; ++i) {
        eager.step();
        capture.replay();
    }
    EXPECT_EQ(eager.bytes(), captured.bytes());
    EXPECT_EQ(eager.optimizer().guard().read(eager.stream()).last,
              captured.optimizer().guard().read(captured.stream()).last);
}

TEST_F(Simulation, ACapturedStepHasTheBitsOfOthers) { expect_captured_steps<Capture>(backend()); }

} // namespace
} // namespace mp::test
