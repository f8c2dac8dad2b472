// SPDX-License-Identifier: Apache-2.0
#include "image.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <link.h>
#include <memory>

// One variable of the thread's storage whose address and offset are both known; found by this name.
extern "C" thread_local char mp_blocks_anchor;
thread_local char mp_blocks_anchor = 0;

namespace mp::blocks {

namespace {

[[noreturn]] void give_up(const char* reason) {
    (void)std::fprintf(stderr, "the machine for blocks reads its program's symbols: %s\n", reason);
    std::abort();
}

std::string demangled(const char* name) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(
        abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
    return status == 0 ? text.get() : name;
}

template <typename T> const T* at(const std::vector<char>& file, std::size_t offset) {
    if (offset + sizeof(T) > file.size()) {
        give_up("the file ends before it should");
    }
    return reinterpret_cast<const T*>(file.data() + offset);
}

const Symbol* find(const std::vector<Symbol>& symbols, uintptr_t address) {
    auto after = std::upper_bound(
        symbols.begin(), symbols.end(), address,
        [](uintptr_t value, const Symbol& symbol) { return value < symbol.range.begin; });
    return after == symbols.begin() || !std::prev(after)->range.has(address) ? nullptr
                                                                             : &*std::prev(after);
}

void sort(std::vector<Symbol>& symbols) {
    std::sort(symbols.begin(), symbols.end(),
              [](const Symbol& a, const Symbol& b) { return a.range.begin < b.range.begin; });
}

} // namespace

std::string short_name(const Symbol& symbol) {
    std::string text = demangled(symbol.name.c_str());
    for (const char* dropped :
         {"mp::backends::cuda::", "mp::blocks::", "(anonymous namespace)::", "mp::", "void "}) {
        for (std::size_t at = text.find(dropped); at != std::string::npos;
             at = text.find(dropped)) {
            text.erase(at, std::strlen(dropped));
        }
    }
    const std::size_t variable = text.rfind(")::");
    if (variable != std::string::npos) {
        return text.substr(variable + 3);
    }
    // Parameters begin at the first bracket outside of template arguments.
    int depth = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        depth += text[i] == '<' ? 1 : (text[i] == '>' ? -1 : 0);
        if (text[i] == '(' && depth == 0) {
            return text.substr(0, i);
        }
    }
    return text;
}

const Image& Image::of_program() {
    static const Image image;
    return image;
}

Image::Image() {
    // The program itself comes first.
    (void)dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t /*size*/, void* to) {
            auto& image = *static_cast<Image*>(to);
            image.bias_ = info->dlpi_addr;
            uintptr_t first = UINTPTR_MAX;
            uintptr_t last = 0;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& part = info->dlpi_phdr[i];
                if (part.p_type == PT_LOAD) {
                    first = std::min<uintptr_t>(first, part.p_vaddr);
                    last = std::max<uintptr_t>(last, part.p_vaddr + part.p_memsz);
                } else if (part.p_type == PT_TLS) {
                    image.thread_storage_.size = part.p_memsz;
                }
            }
            image.program_ = {image.bias_ + first, last - first};
            return 1;
        },
        this);
    read_symbols();
}

void Image::read_symbols() {
    std::ifstream stream("/proc/self/exe", std::ios::binary);
    const std::vector<char> file{std::istreambuf_iterator<char>(stream), {}};
    const auto* header = at<ElfW(Ehdr)>(file, 0);
    for (int i = 0; i < header->e_shnum; ++i) {
        const auto section_at = [&](std::size_t index) {
            return at<ElfW(Shdr)>(file, header->e_shoff + index * header->e_shentsize);
        };
        const auto* section = section_at(static_cast<std::size_t>(i));
        if (section->sh_type != SHT_SYMTAB) {
            continue;
        }
        const char* names = file.data() + section_at(section->sh_link)->sh_offset;
        for (std::size_t done = 0; done < section->sh_size; done += section->sh_entsize) {
            const auto* symbol = at<ElfW(Sym)>(file, section->sh_offset + done);
            const auto type = symbol->st_info & 0xfU;
            const char* name = names + symbol->st_name;
            if (symbol->st_shndx == SHN_UNDEF || symbol->st_size == 0) {
                continue;
            }
            if (type == STT_TLS && std::strcmp(name, "mp_blocks_anchor") == 0) {
                thread_storage_.begin =
                    reinterpret_cast<uintptr_t>(&mp_blocks_anchor) - symbol->st_value;
            } else if (type == STT_TLS) {
                arrays_.push_back({{symbol->st_value, symbol->st_size}, name});
            } else if (type == STT_FUNC) {
                functions_.push_back({{bias_ + symbol->st_value, symbol->st_size}, name});
            }
        }
    }
    if (thread_storage_.begin == 0) {
        give_up("there are none; it must not be stripped");
    }
    for (Symbol& array : arrays_) {
        array.range.begin += thread_storage_.begin;
    }
    sort(arrays_);
    sort(functions_);
}

// A variable of _Zname is _ZZnameE and its own name.
std::vector<Symbol> Image::arrays_of(const Symbol& function) const {
    std::vector<Symbol> inside;
    const std::string prefix = "_ZZ" + function.name.substr(2) + "E";
    std::copy_if(arrays_.begin(), arrays_.end(), std::back_inserter(inside),
                 [&](const Symbol& array) { return array.name.starts_with(prefix); });
    return inside;
}

const Symbol* Image::function_at(uintptr_t address) const { return find(functions_, address); }

std::string Image::instruction_text(uintptr_t address) const {
    // It lies before the address that a call of it returns to.
    const Symbol* function = function_at(address - 1);
    char offset[40];
    (void)std::snprintf(offset, sizeof offset, " (addr2line %#zx)",
                        static_cast<std::size_t>(address - 1 - bias_));
    return (function == nullptr ? "?" : short_name(*function)) + offset;
}

} // namespace mp::blocks
