// SPDX-License-Identifier: Apache-2.0
// AdamW where arrays hold codes with a scale of their own: the reference's bits on every backend.
#include <array>

#include "scaled_layouts.hpp"
#include "trajectory.hpp"

namespace mp::test {
namespace {

class AdamwScaled : public AdamwComparison {};

TEST_P(AdamwScaled, EqualsTheReferenceForEveryLayoutContentAndFlag) {
    for (const Content content : kAllContents) {
        for (uint32_t bits = 0; bits < 16; ++bits) {
            SCOPED_TRACE(std::string(content_name(content)) + ", flags " + std::to_string(bits));
            StepCase c = with_flags(bits);
            uint64_t seed = 7000;
            for (const Layout& layout : scaled_layouts()) {
                c.params.push_back(make_param(layout, 777, content, seed));
                c.params.back().group = static_cast<int32_t>(seed % 3);
                ++seed;
            }
            compare(c);
        }
    }
}

TEST_P(AdamwScaled, EqualsTheReferenceForEverySize) {
    for (const int64_t count : kSizes) {
        for (const Layout& layout : {msamp_o2(), msamp_o3()}) {
            StepCase c = with_flags(0);
            c.params.push_back(make_param(layout, count, Content::normal, 72));
            compare(c);
        }
    }
}

// Scaled and other segments of one launch, at addresses that are aligned to elements only.
TEST_P(AdamwScaled, EqualsTheReferenceForMixedSegmentsInOneLaunch) {
    constexpr std::array<int64_t, 10> kCounts = {16385, 0, 7, 4097, 1, 33000, 4095, 257, 0, 255};
    StepCase c = with_flags(8);
    c.grad_mul = 1.0 / 3.0;
    std::vector<Layout> layouts = scaled_layouts();
    layouts.push_back({});
    layouts.push_back({kB, kB, kB, kB, kB, kNone, {}});
    for (std::size_t i = 0; i < 30; ++i) {
        c.params.push_back(
            make_param(layouts[i % layouts.size()], kCounts[i % 10], Content::normal, 80 + i));
        c.params.back().group = static_cast<int32_t>(i % 3);
        c.params.back().offset = static_cast<int64_t>(i % 5);
    }
    compare(c);
}

MP_COMPARE_BACKENDS(AdamwScaled);

} // namespace
} // namespace mp::test
