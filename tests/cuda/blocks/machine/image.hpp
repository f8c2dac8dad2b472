// SPDX-License-Identifier: Apache-2.0
// The test program as it lies in memory, by its own symbol table: which bytes are a kernel's shared arrays, what a function is
// called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mp::blocks {

// [begin, begin + size).
struct Range {
    uintptr_t begin = 0;
    std::size_t size = 0;
    [[nodiscard]] bool has(uintptr_t address) const { return address - begin < size; }
    [[nodiscard]] bool has(uintptr_t address, std::size_t bytes) const {
        return has(address) && size - (address - begin) >= bytes;
    }
    [[nodiscard]] uintptr_t end() const { return begin + size; }
};

struct Symbol {
    Range range;
    std::string name; // the linker's
};

// Without namespaces, parameters, and the function that a variable stands in.
std::string short_name(const Symbol& symbol);

class Image {
  public:
    // Of this program, for the thread that asks first.
    static const Image& of_program();

    // Code, constants and variables, but for what belongs to a thread.
    [[nodiscard]] const Range& program() const { return program_; }
    // The thread's storage: shared memory.
    [[nodiscard]] const Range& thread_storage() const { return thread_storage_; }
    // What it holds: the variables of a function.
    [[nodiscard]] std::vector<Symbol> arrays_of(const Symbol& function) const;
    // Null where there is none.
    [[nodiscard]] const Symbol* function_at(uintptr_t address) const;
    // Its function, and how addr2line finds its line.
    [[nodiscard]] std::string instruction_text(uintptr_t address) const;

  private:
    Image();
    void read_symbols();

    uintptr_t bias_ = 0; // what the linker's addresses are off by
    Range program_;
    Range thread_storage_;
    std::vector<Symbol> arrays_; // both by address
    std::vector<Symbol> functions_;
};

} // namespace mp::blocks
