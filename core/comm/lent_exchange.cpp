// SPDX-License-Identifier: Apache-2.0
#include "comm/lent_exchange.hpp"

#include "status/guarded.hpp"

namespace mp::comm {

// Who steps or waits, for as long as that lasts.
class LentExchange::Driver {
  public:
    Driver(LentExchange& exchange, Stream& stream, bool may_take_long) : exchange_(exchange) {
        exchange_.stream_ = &stream;
        exchange_.may_take_long_ = may_take_long;
    }
    ~Driver() {
        exchange_.stream_ = nullptr;
        exchange_.may_take_long_ = false;
    }
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

  private:
    LentExchange& exchange_;
};

void LentExchange::begin(AllToAll what, const CallOptions& options) {
    what.reader = this;
    check(comm_.begin(what, options, &request_));
}

void LentExchange::begin(AllGather what, const CallOptions& options) {
    what.reader = this;
    check(comm_.begin(what, options, &request_));
}

Status LentExchange::read(const void* const* lent, bool* finished) noexcept {
    return guarded("reading what other ranks lend", [&] {
        *finished = read_(stream_ != nullptr ? *stream_ : between_, lent, may_take_long_);
        ++runs_;
        return Status();
    });
}

Advance LentExchange::step(Stream& stream) {
    const Driver driver(*this, stream, false);
    const int64_t before = runs_;
    const Advance advance = comm::step(request_);
    return advance == Advance::waits && runs_ != before ? Advance::moved : advance;
}

void LentExchange::wait(Stream& stream) {
    const Driver driver(*this, stream, true);
    check(request_.wait());
}

} // namespace mp::comm
