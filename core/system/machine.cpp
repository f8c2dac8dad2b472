// SPDX-License-Identifier: Apache-2.0
#include "system/machine.hpp"

#include <fstream>
#include <string>

#include <unistd.h>

#include "system/fnv.hpp"

namespace mp::system {

// This machine, as one number: the id it was booted with, and its name.
uint64_t machine_hash() {
    std::string text(256, '\0');
    (void)gethostname(text.data(), text.size() - 1);
    std::ifstream boot("/proc/sys/kernel/random/boot_id");
    std::string id;
    if (std::getline(boot, id)) {
        text += id;
    }
    Fnv64 hash;
    hash.add(text);
    return hash.value();
}

} // namespace mp::system
