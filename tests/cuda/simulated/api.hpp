// SPDX-License-Identifier: Apache-2.0
// CUDA's run time as a program calls it that uses CUDA beside the library. The simulated one lies in the simulated module. On a
// machine with a GPU MP_CUDA_RUNTIME names the real one: scripts/gpu.sh.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <utility>

#include "runtime.hpp"

namespace mp::test {

using simulated::Control;

// Of a real GPU; null: it is simulated.
inline const char* real_runtime() { return std::getenv("MP_CUDA_RUNTIME"); }

template <typename Function> Function* symbol(const char* name) {
    const char* const real = real_runtime();
    const char* const file = real != nullptr ? real : std::getenv("MIXEDPREC_CUBLASLT_LIBRARY");
    void* module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    auto* function = module != nullptr ? reinterpret_cast<Function*>(dlsym(module, name)) : nullptr;
    if (function == nullptr) {
        std::fprintf(stderr, "%s has no %s\n", file, name);
        std::abort();
    }
    return function;
}

// A function there, of CUDA's or of its own.
#define MP_SIMULATED(function) (*::mp::test::symbol<decltype(function)>(#function))

// A real GPU counts nothing.
inline Control& control() {
    static Control nothing;
    static Control& instance =
        real_runtime() != nullptr ? nothing : *MP_SIMULATED(mp_simulated_control)();
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
