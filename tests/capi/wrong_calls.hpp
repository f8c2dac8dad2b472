// SPDX-License-Identifier: Apache-2.0
// Tables of wrong calls (wrong_calls_*.cpp, by public header): each is refused, in words. A refused call leaves everything as
// it was, so that the order in a table means nothing.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "support.hpp"

namespace mp_test {

struct WrongCall {
    const char* what; // is called
    mp_status status; // of the call
    std::vector<std::string> words;
    std::string text = mp_last_error_message(); // of this call: what stands in braces runs in order
};

// All of them with this code.
template <mp_status Code> void expect_refused(std::initializer_list<WrongCall> calls) {
    for (const WrongCall& wrong : calls) {
        SCOPED_TRACE(wrong.what);
        EXPECT_TRUE(fails(wrong.status, Code, wrong.words, wrong.text));
    }
}

// A description with these fields: with(desc, &mp_cast_desc::rounding, 9, ...).
template <typename Desc> Desc with(Desc desc) { return desc; }
template <typename Desc, typename Field, typename... Rest>
Desc with(Desc desc, Field Desc::*field, std::type_identity_t<Field> value, Rest... rest) {
    desc.*field = value;
    return with(desc, rest...);
}

} // namespace mp_test
