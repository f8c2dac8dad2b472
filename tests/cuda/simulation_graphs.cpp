// SPDX-License-Identifier: Apache-2.0
// Graphs of layers on the simulated device, through the C ABI as a program uses it: memory that a graph uses stays, what a
// capture cannot have is refused and leaves it as it was, and the caller's memory is given back when no work uses it.
#include "../capi/layers.hpp"
#include "../capi/optimizers.hpp"
#include "simulated/api.hpp"

using namespace mp_test;

namespace mp::test {
namespace {

constexpr int64_t kIn = 64;
constexpr int64_t kOut = 96;
constexpr int64_t kRows = 32;
constexpr int64_t kMoreRows = 4096;

Context open_context() {
    mp_context_desc desc = MP_CONTEXT_DESC_INIT;
    desc.device_kind = MP_DEVICE_CUDA;
    mp_context* context = nullptr;
    EXPECT_TRUE(succeeded(mp_context_create(&desc, &context)));
    return Context(context);
}

Tensor filled(mp_context* context, int32_t dtype, int64_t rows, int64_t columns, uint64_t seed) {
    return make_tensor(context, dtype, {rows, columns},
                       numbers(static_cast<std::size_t>(rows * columns), seed));
}

// What one pass of a layer reads and writes.
struct Batch {
    Batch(mp_context* context, int64_t rows)
        : x(filled(context, MP_DTYPE_BF16, rows, kIn, 1)),
          dy(filled(context, MP_DTYPE_BF16, rows, kOut, 2)),
          y(make_tensor(context, MP_DTYPE_BF16, {rows, kOut})),
          dx(make_tensor(context, MP_DTYPE_BF16, {rows, kIn})),
          dw(make_tensor(context, MP_DTYPE_FP32, {kOut, kIn})) {}
    void clear(mp_queue* queue) const {
        for (mp_tensor* tensor : {static_cast<mp_tensor*>(y), static_cast<mp_tensor*>(dx),
                                  static_cast<mp_tensor*>(dw)}) {
            MP_OK(mp_tensor_zero(tensor, queue));
        }
    }
    [[nodiscard]] std::vector<std::vector<unsigned char>> results() const {
        return {bytes_of(y), bytes_of(dx), bytes_of(dw)};
    }
    Tensor x, dy, y, dx, dw;
};

class Graphs : public ::testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        ASSERT_EQ(MP_SIMULATED(cudaSetDevice)(0), cudaSuccess);
        context_ = open_context();
        recipe_ = make_recipe(context_, GetParam());
        weight_ = filled(context_, MP_DTYPE_BF16, kOut, kIn, 3);
        layer_ = make_layer();
        queue_ = make_queue();
        small_ = std::make_unique<Batch>(context_, kRows);
        large_ = std::make_unique<Batch>(context_, kMoreRows);
        MP_OK(mp_context_sync(context_));
    }
    void TearDown() override {
        EXPECT_EQ(control().wrong_context, 0);
        EXPECT_EQ(control().misuse, 0);
        control().misuse = 0;
    }

    Linear make_layer(uint32_t flags = 0) {
        return make_linear(context_, recipe_, linear_desc(kIn, kOut, flags), weight_);
    }
    Queue make_queue() {
        mp_queue* queue = nullptr;
        EXPECT_TRUE(succeeded(mp_queue_create(context_, &queue)));
        return Queue(queue);
    }
    static cudaStream_t stream_of(mp_queue* queue) {
        void* stream = nullptr;
        EXPECT_TRUE(succeeded(mp_queue_get_native(queue, &stream, sizeof stream)));
        return static_cast<cudaStream_t>(stream);
    }
    static mp_status pass(mp_linear* layer, mp_queue* queue, const Batch& batch) {
        const mp_status status = mp_linear_forward(layer, queue, batch.x, batch.y);
        return status != MP_STATUS_OK
                   ? status
                   : mp_linear_backward(layer, queue, batch.dy, batch.dx, batch.dw, nullptr, 0);
    }
    void begin() const {
        ASSERT_EQ(
            MP_SIMULATED(cudaStreamBeginCapture)(stream_of(queue_), cudaStreamCaptureModeGlobal),
            cudaSuccess);
    }
    // A pass of the small batch as a graph, after the same without one.
    void capture_pass(Graph& graph) {
        MP_OK(pass(layer_, queue_, *small_));
        MP_OK(mp_queue_sync(queue_));
        expected_ = small_->results();
        // So that a layer that keeps its rounded weight has one when the capture begins.
        mp_linear* const layer = layer_;
        MP_OK(mp_linear_end_step(&layer, 1, queue_, nullptr));
        MP_OK(mp_linear_forward(layer_, queue_, small_->x, small_->y));
        begin();
        MP_OK(pass(layer_, queue_, *small_));
        ASSERT_EQ(graph.capture(stream_of(queue_)), cudaSuccess);
    }
    void expect_replay(const Graph& graph) {
        small_->clear(queue_);
        ASSERT_EQ(graph.launch(stream_of(queue_)), cudaSuccess);
        MP_OK(mp_queue_sync(queue_));
        EXPECT_EQ(small_->results(), expected_);
    }

    Context context_;
    Recipe recipe_;
    Tensor weight_;
    Linear layer_;
    Queue queue_;
    std::unique_ptr<Batch> small_, large_;
    std::vector<std::vector<unsigned char>> expected_;
};

// ---- what is done between two replays -----------------------------------------------------------

TEST_P(Graphs, StayRightAfterMoreRowsOfTheSameLayer) {
    Graph graph;
    capture_pass(graph);
    expect_replay(graph);
    MP_OK(pass(layer_, queue_, *large_));
    MP_OK(mp_queue_sync(queue_));
    expect_replay(graph);
}

TEST_P(Graphs, StayRightAfterMoreRowsOfAnotherLayer) {
    Graph graph;
    capture_pass(graph);
    expect_replay(graph);
    const Linear other = make_layer();
    MP_OK(pass(other, queue_, *large_));
    MP_OK(mp_queue_sync(queue_));
    expect_replay(graph);
}

TEST_P(Graphs, StayRightAfterMoreRowsOnAnotherQueue) {
    Graph graph;
    capture_pass(graph);
    expect_replay(graph);
    const Queue other = make_queue();
    MP_OK(pass(layer_, other, *large_));
    MP_OK(mp_queue_sync(other));
    expect_replay(graph);
}

TEST_P(Graphs, StayRightWhenOtherObjectsAreDestroyed) {
    Graph graph;
    {
        const Linear other = make_layer();
        const Queue second = make_queue();
        MP_OK(pass(other, second, *large_));
        MP_OK(pass(other, queue_, *large_));
        capture_pass(graph);
        MP_OK(pass(other, second, *large_));
        MP_OK(mp_queue_sync(second));
    }
    large_.reset();
    expect_replay(graph);
}

// A copy of the weight that was made before the capture is not what a replay should use.
TEST_P(Graphs, ReadTheWeightAsItIsAtEachReplay) {
    layer_ = make_layer(MP_LINEAR_CACHE_WEIGHT);
    Graph graph;
    capture_pass(graph);
    expect_replay(graph);
    const Tensor other = filled(context_, MP_DTYPE_BF16, kOut, kIn, 4);
    MP_OK(mp_context_sync(context_));
    MP_OK(mp_tensor_copy(other, queue_, weight_));
    const Linear fresh = make_layer();
    MP_OK(pass(fresh, queue_, *small_));
    MP_OK(mp_queue_sync(queue_));
    expected_ = small_->results();
    expect_replay(graph);
}

// ---- what a capture cannot have -----------------------------------------------------------------

TEST_P(Graphs, RefuseMoreRowsInACapture) {
    MP_OK(pass(layer_, queue_, *small_));
    MP_OK(mp_queue_sync(queue_));
    expected_ = small_->results();
    const Outstanding before;
    const auto untouched = large_->results();
    begin();
    if (std::string(GetParam()).rfind("bf16", 0) == 0) { // x is taken as it is: no memory is needed
        MP_OK(mp_linear_forward(layer_, queue_, large_->x, large_->y));
    } else {
        MP_FAILS(mp_linear_forward(layer_, queue_, large_->x, large_->y), MP_STATUS_BAD_STATE,
                 "captured into a graph");
    }
    MP_OK(pass(layer_, queue_, *small_));
    Graph graph;
    EXPECT_EQ(graph.capture(stream_of(queue_)), cudaSuccess) << "the capture was ended";
    Outstanding after;
    after.handles = before.handles; // the layer has a plan for so many rows now
    EXPECT_TRUE(before == after) << "memory was lost or taken";
    EXPECT_EQ(large_->results(), untouched);
    expect_replay(graph);
    MP_OK(pass(layer_, queue_, *large_)); // now it may
    MP_OK(mp_queue_sync(queue_));
    expect_replay(graph);
}

// In CUDA's default mode an allocation by whoever ends the captures of all.
TEST_P(Graphs, AnotherQueueMayAllocateDuringACapture) {
    const Queue other = make_queue();
    const Linear second = make_layer();
    MP_OK(pass(second, other, *small_));
    MP_OK(pass(layer_, queue_, *small_));
    MP_OK(mp_context_sync(context_));
    MP_OK(mp_queue_sync(other));
    MP_OK(mp_queue_sync(queue_));
    expected_ = small_->results();
    begin();
    MP_OK(mp_linear_forward(layer_, queue_, small_->x, small_->y));
    MP_OK(pass(second, other, *large_));
    MP_OK(mp_linear_backward(layer_, queue_, small_->dy, small_->dx, small_->dw, nullptr, 0));
    Graph graph;
    EXPECT_EQ(graph.capture(stream_of(queue_)), cudaSuccess) << "the capture was ended";
    MP_OK(mp_queue_sync(other));
    expect_replay(graph);
}

TEST_P(Graphs, RefuseToWaitInACapture) {
    MP_OK(pass(layer_, queue_, *small_));
    MP_OK(mp_queue_sync(queue_));
    expected_ = small_->results();
    begin();
    MP_FAILS(mp_queue_sync(queue_), MP_STATUS_BAD_STATE, "captured into a graph");
    MP_OK(pass(layer_, queue_, *small_));
    Graph graph;
    EXPECT_EQ(graph.capture(stream_of(queue_)), cudaSuccess) << "the capture was ended";
    expect_replay(graph);
}

// A replay would pass over the parameters each time.
TEST_P(Graphs, RefuseMarksOfOneStepInACapture) {
    const Optimizer optimizer = make_optimizer_on(nullptr, context_, make_recipe(context_, "fp32"));
    add_group(optimizer);
    const Tensor weight = filled(context_, MP_DTYPE_FP32, 4, 4, 1);
    MP_OK(add_param(optimizer, 0, "w", weight));
    constexpr int32_t kFirst = 0;
    for (int i = 0; i < 2; ++i) { // the second time with tables that are without it
        MP_OK(mp_optimizer_mark_unused(optimizer, queue_, &kFirst, 1));
        begin();
        MP_OK(mp_tensor_zero(small_->y, queue_));
        MP_FAILS(mp_optimizer_mark_unused(optimizer, queue_, &kFirst, 1), MP_STATUS_BAD_STATE,
                 "not for each replay", "captured into a graph");
        MP_FAILS(mp_optimizer_step(optimizer, queue_, nullptr), MP_STATUS_BAD_STATE,
                 "unused for this step alone", "captured into a graph");
        Graph graph;
        EXPECT_EQ(graph.capture(stream_of(queue_)), cudaSuccess) << "the capture was ended";
        const auto before = bytes_of(weight);
        MP_OK(mp_optimizer_step(optimizer, queue_, nullptr));
        MP_OK(mp_queue_sync(queue_));
        EXPECT_EQ(bytes_of(weight), before);
    }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Graphs,
                         ::testing::Values("bf16_pure", "bf16_mixed", "fp8_current", "fp8_rowwise",
                                           "fp8_block", "mxfp8"),
                         [](const auto& recipe) { return std::string(recipe.param); });

// ---- memory of the caller's ---------------------------------------------------------------------

// A piece of device memory that somebody else uses again as soon as it is given back.
struct Lent {
    void* memory = nullptr;
    cudaStream_t stream = nullptr; // of the work on it
    int times = 0;
    bool was_pending = false;

    static void give_back(void* payload) {
        auto& lent = *static_cast<Lent*>(payload);
        ++lent.times;
        const CUcontext caller = MP_SIMULATED(mp_simulated_context)();
        (void)MP_SIMULATED(cudaSetDevice)(0);
        lent.was_pending = MP_SIMULATED(cudaStreamQuery)(lent.stream) == cudaErrorNotReady;
        MP_SIMULATED(mp_simulated_set_context)(caller);
    }
};

class LentMemory : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(MP_SIMULATED(cudaSetDevice)(0), cudaSuccess);
        context_ = open_context();
        mp_queue* queue = nullptr;
        MP_OK(mp_queue_create(context_, &queue));
        queue_ = Queue(queue);
        void* stream = nullptr;
        MP_OK(mp_queue_get_native(queue_, &stream, sizeof stream));
        lent_.stream = static_cast<cudaStream_t>(stream);
        ASSERT_EQ(MP_SIMULATED(cudaMalloc)(&lent_.memory, kCount * sizeof(float)), cudaSuccess);
    }
    void TearDown() override {
        EXPECT_EQ(MP_SIMULATED(cudaFree)(lent_.memory), cudaSuccess);
        EXPECT_EQ(control().misuse, 0);
    }
    // A tensor over it, with work that has not begun.
    void use_and_destroy() {
        const Tensor other = make_tensor(context_, MP_DTYPE_FP32, {kCount});
        MP_OK(mp_context_sync(context_));
        const mp_tensor_desc desc = tensor_desc(MP_DTYPE_FP32, {kCount});
        mp_tensor* raw = nullptr;
        MP_OK(mp_tensor_wrap(context_, &desc, lent_.memory, Lent::give_back, &lent_, &raw));
        const Tensor tensor(raw);
        MP_OK(mp_tensor_zero(tensor, queue_));
        ASSERT_EQ(MP_SIMULATED(cudaStreamQuery)(lent_.stream), cudaErrorNotReady);
        (void)MP_SIMULATED(cudaGetLastError)();
    }

    static constexpr int64_t kCount = 4096;
    Context context_;
    Queue queue_;
    Lent lent_;
};

TEST_F(LentMemory, IsGivenBackWhenItsWorkIsDone) {
    use_and_destroy();
    EXPECT_FALSE(lent_.times == 1 && lent_.was_pending) << "its work was still pending";
    MP_OK(mp_queue_sync(queue_));
    EXPECT_EQ(lent_.times, 1);
    EXPECT_FALSE(lent_.was_pending);
}

TEST_F(LentMemory, IsGivenBackWhenTheContextEnds) {
    use_and_destroy();
    context_ = Context(); // its queue still lives
    EXPECT_EQ(lent_.times, 1);
    EXPECT_FALSE(lent_.was_pending);
}

} // namespace
} // namespace mp::test
