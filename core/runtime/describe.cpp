// SPDX-License-Identifier: Apache-2.0
#include "runtime/describe.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "runtime/select.hpp"

namespace mp {
namespace {

class Writer final : public Properties {
  public:
    explicit Writer(system::JsonWriter& json) noexcept : json_(json) {}

    void text(const char* name, const char* value) noexcept override {
        write([&] { json_.text(name, system::is_utf8(value) ? value : "?"); });
    }
    void number(const char* name, int64_t value) noexcept override {
        write([&] { json_.number(name, value); });
    }
    void flag(const char* name, bool value) noexcept override {
        write([&] {
            json_.key(name);
            json_.literal(value ? "true" : "false");
        });
    }
    // What went wrong, as nothing may be thrown through a device.
    void check() const {
        if (failure_) {
            std::rethrow_exception(failure_);
        }
    }

  private:
    template <typename Work> void write(Work&& work) noexcept {
        if (!failure_) {
            try {
                work();
            } catch (...) {
                failure_ = std::current_exception();
            }
        }
    }

    system::JsonWriter& json_;
    std::exception_ptr failure_;
};

// Of what a device says of itself the names that products depend on.
class ProductsLine final : public Properties {
  public:
    void text(const char* name, const char* value) noexcept override {
        constexpr std::array kNames = {"backend", "name", "instruction_set", "onednn"};
        const bool is_known = std::any_of(kNames.begin(), kNames.end(), [&](const char* known) {
            return std::strcmp(name, known) == 0;
        });
        try {
            if (is_known && system::is_utf8(value)) {
                line_.append(line_.empty() ? "" : ", ").append(value);
            }
        } catch (...) {
            failure_ = std::current_exception();
        }
    }
    void number(const char* /*name*/, int64_t /*value*/) noexcept override {}
    void flag(const char* /*name*/, bool /*value*/) noexcept override {}
    [[nodiscard]] const std::string& line() const {
        if (failure_) {
            std::rethrow_exception(failure_);
        }
        return line_;
    }

  private:
    std::string line_;
    std::exception_ptr failure_;
};

} // namespace

std::string products_text(const Device& device) {
    ProductsLine line;
    device.describe(line);
    const int32_t threads = device.num_threads();
    return line.line() + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

void describe(const Device& device, system::JsonWriter& json) {
    json.begin('{');
    json.text("kind", row_of(device.kind()).label);
    json.number("index", device.index());
    json.number("threads", device.num_threads());
    Writer writer(json);
    device.describe(writer);
    writer.check();
    json.key("candidates");
    json.begin('{');
    for (int32_t kind = 0; kind < kOpKindCount; ++kind) {
        json.key(op_kind_name(static_cast<OpKind>(kind)));
        json.begin('[');
        const CandidateList list = device.candidates(static_cast<OpKind>(kind));
        for (int32_t i = 0; i < list.count; ++i) {
            json.text(list.items[i].name);
        }
        json.end();
    }
    json.end();
    json.end();
}

std::string describe(const Device& device) {
    system::JsonWriter json(system::JsonForm::indented);
    describe(device, json);
    return json.take();
}

} // namespace mp
