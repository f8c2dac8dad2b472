// SPDX-License-Identifier: Apache-2.0
// The file of --save and --init: a header of eight 64-bit integers, then all weights in fp32, in this machine's byte
// order. For this program only; the library's own checkpoints are something else.
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "files.hpp"
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
    must_be_ordinary("the weights ", path);
    std::ifstream file(path, std::ios::binary);
    must<Failure>(!file.fail(), "cannot open the weights '", path, "': ", std::strerror(errno));
    file.read(reinterpret_cast<char*>(found.data()), sizeof found);
    must<Failure>(file && found[0] == wanted[0], "'", path,
                  "' is not a file that --save has written");
    must<Failure>(found == wanted, "'", path, "' holds a model with --layers ", found[1], " --dim ",
                  found[2], " --heads ", found[3], " --context ", found[4], ": pass the same");
    std::vector<float> values(size(o.parameter_count()));
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    must<Failure>(file && file.get() == std::ifstream::traits_type::eof(), "'", path,
                  "' is damaged: it must hold exactly ", values.size(), " weights");
    return values;
}

void weights_save(const std::string& path, const Options& o, const std::vector<float>& values) {
    const Header header = header_of(o);
    NewFile file("the weights ", path);
    file.write(header.data(), sizeof header);
    file.write(values.data(), values.size() * sizeof(float));
    file.commit();
}

} // namespace train
