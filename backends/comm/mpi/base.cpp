// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/base.hpp"

#include <algorithm>
#include <cstring>

#include "comm/mpi/ulfm.hpp"

namespace mp::comm {
namespace {

// Numbers of Open MPI 5: dead process, pending on one, revoked.
constexpr std::array<int, 3> kFailedClasses = {75, 76, 77};

} // namespace

ProcessState& process_state() noexcept {
    static ProcessState state;
    return state;
}

bool mpi_is_alive() noexcept {
    int is_initialized = 0;
    int is_finalized = 0;
    (void)MPI_Initialized(&is_initialized);
    (void)MPI_Finalized(&is_finalized);
    return is_initialized != 0 && is_finalized == 0;
}

Status check_not_finalized() noexcept {
    int is_finalized = 0;
    (void)MPI_Finalized(&is_finalized);
    return is_finalized == 0
               ? Status()
               : Status::error(
                     Code::bad_state,
                     "MPI was finalized in this process; call MPI_Finalize after the last "
                     "call that talks to other ranks");
}

Base::Base(MPI_Comm comm) : comm_(comm), next_context_(std::make_shared<int32_t>(1)) {
    ++process_state().live;
}

Base::~Base() {
    --process_state().live;
    if (!is_broken_ && mpi_is_alive()) {
        (void)MPI_Comm_free(&comm_);
    }
}

void Base::set_broken() noexcept {
    is_broken_ = true;
    process_state().has_broken = true;
}

Buffer Base::take(bool is_large) {
    {
        const std::lock_guard lock(mutex_);
        auto& pool = free_.at(is_large ? 1 : 0);
        if (!pool.empty()) {
            Buffer buffer = std::move(pool.back());
            pool.pop_back();
            return buffer;
        }
    }
    // Not zeroed: MPI, or a copy, fills it.
    const int64_t bytes =
        is_large ? kChunkBytes : kFirstBytes + static_cast<int64_t>(sizeof(ChannelHeader));
    return Buffer(new unsigned char[static_cast<std::size_t>(bytes)]);
}

void Base::give(Buffer buffer, bool is_large) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        free_.at(is_large ? 1 : 0).push_back(std::move(buffer));
    } catch (const std::exception&) { // then it is freed
        return;
    }
}

int64_t Base::highest_tag() const noexcept {
    void* value = nullptr;
    int is_set = 0;
    (void)MPI_Comm_get_attr(comm_, MPI_TAG_UB, &value, &is_set);
    return is_set != 0 ? *static_cast<const int*>(value) : 32767; // what every MPI has
}

Status mpi_status(int error, const char* what) noexcept {
    if (error == MPI_SUCCESS) {
        return {};
    }
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    int category = 0;
    (void)MPI_Error_string(error, text.data(), &length);
    (void)MPI_Error_class(error, &category);
    const bool is_lost =
        std::find(kFailedClasses.begin(), kFailedClasses.end(), category) != kFailedClasses.end();
    return Status::error(is_lost ? Code::peer_lost : Code::mpi_error, "%s: %.300s (MPI error %d)",
                         what, text.data(), error);
}

} // namespace mp::comm
