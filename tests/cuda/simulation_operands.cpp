// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding of what products take, on the simulated device: the codes of the host, and no captures.
#include "../capi/linear_rounding.hpp"
#include "library.hpp"
#include "simulated/api.hpp"

namespace mp::test {
namespace {

using namespace mp_test;
using namespace mp_test::rounding;

TEST(SimulatedOperands, HaveTheCodesOfTheHost) {
    const Context host = open_context(MP_DEVICE_HOST);
    const Context cuda = open_context(MP_DEVICE_CUDA);
    for (const std::string preset :
         {"fp8_delayed", "fp8_current", "fp8_rowwise", "fp8_block", "mxfp8"}) {
        SCOPED_TRACE(preset);
        const Layer here(host, with_rounding(preset), "h0.qkv");
        const Layer there(cuda, with_rounding(preset), "h0.qkv");
        for (int microbatch = 0; microbatch < 2; ++microbatch) {
            for (const auto& [product, operand] :
                 {std::pair(MP_PRODUCT_FPROP, MP_OPERAND_INPUT),
                  std::pair(MP_PRODUCT_WGRAD, MP_OPERAND_INPUT),
                  std::pair(MP_PRODUCT_DGRAD, MP_OPERAND_WEIGHT),
                  std::pair(MP_PRODUCT_WGRAD, MP_OPERAND_GRAD_OUTPUT)}) {
                EXPECT_EQ(here.quantized(product, operand), there.quantized(product, operand))
                    << operand << " of product " << product;
            }
            (void)here.pass();
            (void)there.pass();
        }
        here.end_step();
        there.end_step();
    }
}

TEST(SimulatedOperands, AreNotCaptured) {
    const Context cuda = open_context(MP_DEVICE_CUDA);
    const Layer layer(cuda, with_rounding("fp8_current"), "h0.qkv");
    const Tensor x = layer.x(), dy = layer.dy();
    const Tensor y = layer.empty(kRows, kOut), dx = layer.empty(kRows, kIn);
    const Results before = layer.pass();
    mp_queue* made = nullptr;
    MP_OK(mp_queue_create(cuda, &made));
    const Queue queue(made);
    cudaStream_t stream = nullptr;
    MP_OK(mp_queue_get_native(queue, &stream, sizeof stream));
    ASSERT_EQ(MP_SIMULATED(cudaStreamBeginCapture)(stream, cudaStreamCaptureModeGlobal),
              cudaSuccess);
    MP_FAILS(mp_linear_forward(layer.linear, queue, x, y), MP_STATUS_BAD_STATE,
             "rounded stochastically", "captured into a graph");
    MP_FAILS(mp_linear_backward_data(layer.linear, queue, dy, dx), MP_STATUS_BAD_STATE,
             "rounded stochastically", "captured into a graph");
    mp_linear* const one = layer.linear;
    MP_FAILS(mp_linear_end_step(&one, 1, queue, nullptr), MP_STATUS_BAD_STATE,
             "rounded stochastically", "captured into a graph");
    Graph graph;
    EXPECT_EQ(graph.capture(stream), cudaSuccess) << "the capture was ended";
    const Layer again(cuda, with_rounding("fp8_current"), "h0.qkv");
    EXPECT_EQ(again.pass(), before);
    EXPECT_EQ(again.pass(), layer.pass()) << "what was refused has taken a number";
}

} // namespace
} // namespace mp::test
