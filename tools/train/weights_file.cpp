// SPDX-License-Identifier: Apache-2.0
// The file of --save and --init: a header of eight 64-bit integers, then all weights in fp32, in this machine's byte
// order. For this program only; the library's own checkpoints are something else.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "params.hpp"

namespace train {

using Header = std::array<int64_t, 8>;

static Header header_of(const Options& o) {
    return {0x3154504754504d,
            /* "MPTGPT1" */ o.layers, o.dim, o.heads, o.context, 256, o.parameter_count(), 0};
}

std::vector<float> weights_load(const std::string& path, const Options& o) {
    const Header wanted = header_of(o);
    Header found{};
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw Failure("cannot open the weights '" + path + "': " + std::strerror(errno));
    }
    file.read(reinterpret_cast<char*>(found.data()), sizeof found);
    if (!file || found[0] != wanted[0]) {
        throw Failure("'" + path + "' is not a file that --save has written");
    }
    if (found != wanted) {
        throw Failure(format("'%s' holds a model with --layers %lld --dim %lld --heads %lld "
                             "--context %lld: pass the same",
                             path.c_str(), static_cast<long long>(found[1]),
                             static_cast<long long>(found[2]), static_cast<long long>(found[3]),
                             static_cast<long long>(found[4])));
    }
    std::vector<float> values(static_cast<size_t>(o.parameter_count()));
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    if (!file || file.get() != std::ifstream::traits_type::eof()) {
        throw Failure(format("'%s' is damaged: it must hold exactly %zu weights", path.c_str(),
                             values.size()));
    }
    return values;
}

void weights_save(const std::string& path, const Options& o, const std::vector<float>& values) {
    const Header header = header_of(o);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(header.data()), sizeof header);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
    file.close();
    if (!file) {
        throw Failure("cannot write the weights '" + path + "': " + std::strerror(errno));
    }
}

} // namespace train
