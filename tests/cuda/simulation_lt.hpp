// SPDX-License-Identifier: Apache-2.0
// What tests of products on the simulated device share.
#pragma once

#include "simulated/cublaslt.hpp"
#include "simulation.hpp"

namespace mp::test {

inline simulated::LtControl& lt() {
    static simulated::LtControl& instance =
        *symbol<simulated::LtControl*()>("mp_simulated_cublaslt")();
    return instance;
}

// The compute capability of devices that are opened, until the scope ends.
class On {
  public:
    explicit On(int capability) { control().capability = capability; }
    ~On() { control().capability = 90; }
    On(const On&) = delete;
    On& operator=(const On&) = delete;
};

// The heuristics refuse so many of a hundred questions, until the scope ends.
class Refusing {
  public:
    explicit Refusing(uint32_t percent) { lt().refused_percent = percent; }
    ~Refusing() { lt().refused_percent = 0; }
    Refusing(const Refusing&) = delete;
    Refusing& operator=(const Refusing&) = delete;
};

} // namespace mp::test
