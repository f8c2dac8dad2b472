// SPDX-License-Identifier: Apache-2.0
// The simulated runtime as a program calls it that uses CUDA beside the library: it lies in the simulated module.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <utility>

#include "runtime.hpp"

namespace mp::test {

using simulated::Control;

template <typename Function> Function* symbol(const char* name) {
    void* module = dlopen(std::getenv("MIXEDPREC_CUBLASLT_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    auto* function = module != nullptr ? reinterpret_cast<Function*>(dlsym(module, name)) : nullptr;
    if (function == nullptr) {
        std::fprintf(stderr, "the simulated module has no %s\n", name);
        std::abort();
    }
    return function;
}

// A function there, of CUDA's or of its own.
#define MP_SIMULATED(function) (*::mp::test::symbol<decltype(function)>(#function))

inline Control& control() {
    static Control& instance = *MP_SIMULATED(mp_simulated_control)();
    return instance;
}

// What must come back to zero.
struct Outstanding {
    int64_t allocations = control().allocations;
    int64_t pinned = control().pinned;
    int64_t streams = control().streams;
    int64_t events = control().events;
    int64_t handles = control().handles;
    bool operator==(const Outstanding&) const = default;
};

// A graph that can be launched, or none.
class Graph {
  public:
    Graph() = default;
    // Ends the capture of a stream.
    [[nodiscard]] cudaError_t capture(cudaStream_t stream) {
        cudaGraph_t graph = nullptr;
        const cudaError_t error = MP_SIMULATED(cudaStreamEndCapture)(stream, &graph);
        if (error == cudaSuccess) {
            cudaGraphExec_t executable = nullptr;
            (void)MP_SIMULATED(cudaGraphInstantiate)(&executable, graph, 0);
            (void)MP_SIMULATED(cudaGraphDestroy)(graph);
            executable_.reset(executable);
        }
        return error;
    }
    [[nodiscard]] cudaError_t launch(cudaStream_t stream) const {
        return MP_SIMULATED(cudaGraphLaunch)(executable_.get(), stream);
    }

  private:
    struct Destroy {
        void operator()(cudaGraphExec_t graph) const {
            (void)MP_SIMULATED(cudaGraphExecDestroy)(graph);
        }
    };
    std::unique_ptr<CUgraphExec_st, Destroy> executable_;
};

} // namespace mp::test
