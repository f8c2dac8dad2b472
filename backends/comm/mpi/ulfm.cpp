// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/ulfm.hpp"

#include <array>
#include <cstring>
#include <dlfcn.h>
#include <numeric>

namespace mp::comm {
namespace {

void* open_mpi(int flags) noexcept {
    Dl_info info = {};
    if (dladdr(reinterpret_cast<const void*>(&MPI_Init_thread), &info) == 0 ||
        info.dli_fname == nullptr) {
        return nullptr;
    }
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | flags);
}

template <typename F> F find(void* library, const char* name) noexcept {
    return reinterpret_cast<F>(dlsym(library, name));
}

Ulfm look_up() noexcept {
    Ulfm functions;
    void* library = open_mpi(RTLD_LOCAL);
    if (library == nullptr || !is_open_mpi()) {
        return functions; // MPICH 5 has functions of these names that end the process
    }
    functions.failure_ack = find<decltype(functions.failure_ack)>(library, "MPIX_Comm_failure_ack");
    functions.failure_get_acked =
        find<decltype(functions.failure_get_acked)>(library, "MPIX_Comm_failure_get_acked");
    return functions;
}

} // namespace

bool is_open_mpi() noexcept {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    (void)MPI_Get_library_version(text.data(), &length);
    return std::strncmp(text.data(), "Open MPI", 8) == 0;
}

const Ulfm& ulfm() noexcept {
    static const Ulfm functions = look_up();
    return functions;
}

std::vector<int> failed_ranks(MPI_Comm comm) {
    const Ulfm& functions = ulfm();
    MPI_Group failed = MPI_GROUP_NULL;
    MPI_Group all = MPI_GROUP_NULL;
    if (functions.failure_ack == nullptr || functions.failure_get_acked == nullptr ||
        functions.failure_ack(comm) != MPI_SUCCESS ||
        functions.failure_get_acked(comm, &failed) != MPI_SUCCESS) {
        return {};
    }
    int count = 0;
    (void)MPI_Group_size(failed, &count);
    std::vector<int> places(static_cast<std::size_t>(count));
    std::vector<int> ranks(places.size());
    std::iota(places.begin(), places.end(), 0);
    (void)MPI_Comm_group(comm, &all);
    (void)MPI_Group_translate_ranks(failed, count, places.data(), all, ranks.data());
    (void)MPI_Group_free(&failed);
    (void)MPI_Group_free(&all);
    return ranks;
}

void publish_mpi() noexcept { (void)open_mpi(RTLD_GLOBAL); }

} // namespace mp::comm
