// SPDX-License-Identifier: Apache-2.0
// A multi-tensor launch for the tests: arrays of parameters with their states in the test's memory,
// their copies in a device's memory, and the table of segments and chunks over them.
#pragma once

#include <memory>
#include <vector>

#include "harness.hpp"

namespace mp::test {

// What scaled codes are multiplied by, for each array that may have a scale; 0 where it has none.
struct ScaleInvs {
    float param = 0.0F;
    float grad = 0.0F;
    float exp_avg = 0.0F;
    float exp_avg_sq = 0.0F;
    float master = 0.0F;
    bool operator==(const ScaleInvs&) const = default;
};

// One parameter with what belongs to it. An absent array has dtype none.
struct ParamArrays {
    HostArray param;
    HostArray grad;
    HostArray exp_avg;
    HostArray exp_avg_sq;
    HostArray compensation;
    HostArray master;
    ScaleInvs scale_inv = {};
    Coding exp_avg_coding = Coding::plain; // with scales for its blocks
    Coding exp_avg_sq_coding = Coding::plain;
    Coding master_coding = Coding::plain; // or remainder
    bool half_away = false;               // of a bf16 parameter beside an fp32 master
    HostArray exp_avg_scales;
    HostArray exp_avg_sq_scales;
    Coding compensation_coding = Coding::plain; // with scales for its blocks
    HostArray compensation_scales;
    uint64_t uid = 0;
    int32_t group = 0;
    int64_t offset = 0; // elements past an aligned address, for all arrays
    int64_t first = 0;  // of a slice: where it begins in its parameter

    [[nodiscard]] int64_t count() const { return grad.count; }
};

struct Layout {
    DType param = DType::fp32;
    DType grad = DType::fp32;
    DType exp_avg = DType::fp32;
    DType exp_avg_sq = DType::fp32;
    DType compensation = DType::none;
    DType master = DType::none;
    ScaleInvs scale_inv = {};
    Coding exp_avg_coding = Coding::plain;
    Coding exp_avg_sq_coding = Coding::plain;
    Coding master_coding = Coding::plain;
    bool half_away = false;
    Coding compensation_coding = Coding::plain;
};

// The scales of a moment's or compensation's blocks.
inline HostArray make_scales(Coding coding, int64_t count, Content content, uint64_t seed) {
    if (!has_blocks(coding)) {
        return {};
    }
    const int64_t blocks = (count + block_size(coding) - 1) / block_size(coding);
    HostArray scales = make_array(block_layout(coding).scales.dtype, blocks, content, seed);
    for (int64_t i = 0; i < blocks; ++i) {
        const int64_t bits = 8 * dtype_size(scales.dtype);
        scales.set_code(i, scales.code(i) & ((uint32_t{1} << (bits - 1)) - 1U));
    }
    return scales;
}

// Of codes in blocks each pattern is one, but fp8's contents are as they are elsewhere. dtype none: a rule without it.
inline HostArray make_moment(DType dtype, Coding coding, int64_t count, Content content,
                             uint64_t seed) {
    if (dtype == DType::none) {
        return {};
    }
    const bool is_dynamic = dtype == DType::uint8;
    const int64_t size = is_dynamic ? code_bytes(coding, dtype, count) : count;
    return make_array(dtype, size, is_dynamic ? Content::patterns : content, seed);
}

// All kinds of contents in all arrays; the second moment is never negative, as in training.
inline ParamArrays make_param(const Layout& layout, int64_t count, Content content, uint64_t seed) {
    ParamArrays arrays;
    arrays.param = make_array(layout.param, count, content, seed);
    arrays.grad = make_array(layout.grad, count, content, seed + 1);
    arrays.exp_avg = make_moment(layout.exp_avg, layout.exp_avg_coding, count, content, seed + 2);
    arrays.exp_avg_sq =
        make_moment(layout.exp_avg_sq, layout.exp_avg_sq_coding, count, content, seed + 3);
    arrays.exp_avg_coding = layout.exp_avg_coding;
    arrays.exp_avg_sq_coding = layout.exp_avg_sq_coding;
    arrays.exp_avg_scales = make_scales(layout.exp_avg_coding, count, content, seed + 6);
    arrays.exp_avg_sq_scales = make_scales(layout.exp_avg_sq_coding, count, content, seed + 7);
    const bool is_number = layout.exp_avg_sq != DType::uint8 && layout.exp_avg_sq != DType::none;
    for (int64_t i = 0; is_number && i < count; ++i) {
        const int64_t bits = 8 * dtype_size(layout.exp_avg_sq);
        const uint32_t magnitude = (uint32_t{1} << (bits - 1)) - 1U;
        arrays.exp_avg_sq.set_code(i, arrays.exp_avg_sq.code(i) & magnitude);
    }
    if (layout.compensation != DType::none) {
        // Small beside the parameter, as what its roundings lose is.
        arrays.compensation =
            make_moment(layout.compensation, layout.compensation_coding, count, content, seed + 4);
        arrays.compensation_coding = layout.compensation_coding;
        arrays.compensation_scales =
            make_scales(layout.compensation_coding, count, content, seed + 8);
        const bool is_small = content == Content::normal && !has_blocks(layout.compensation_coding);
        for (int64_t i = 0; is_small && i < count; ++i) {
            arrays.compensation.set(i, arrays.compensation.get(i) * 0x1p-9F);
        }
    }
    if (layout.master != DType::none) {
        arrays.master_coding = layout.master_coding;
        const bool is_remainder = layout.master_coding == Coding::remainder;
        arrays.master =
            make_array(layout.master, count, is_remainder ? Content::patterns : content, seed + 5);
    }
    arrays.scale_inv = layout.scale_inv;
    arrays.half_away = layout.half_away;
    arrays.uid = seed * 0x9E3779B97F4A7C15U;
    return arrays;
}

// The arrays of one launch in a device's memory.
class Launch {
  public:
    Launch(TestDevice& on, const std::vector<ParamArrays>& params) : on_(on) {
        for (const ParamArrays& arrays : params) {
            add(arrays);
        }
        std::vector<Chunk> chunks;
        for (std::size_t i = 0; i < segments_.size(); ++i) {
            for (int64_t start = 0; start < segments_[i].count; start += kChunkElements) {
                chunks.push_back({start, static_cast<int32_t>(i), 0});
            }
        }
        chunk_count_ = static_cast<int64_t>(chunks.size());
        const std::vector<unsigned char> garbage(segments_.size() * sizeof(UpdateScaling), 0xc5);
        scaling_ = std::make_unique<DeviceBytes>(on, garbage.data(), garbage.size());
        device_segments_ = std::make_unique<DeviceBytes>(on, segments_.data(),
                                                         segments_.size() * sizeof(UpdateSegment));
        device_chunks_ =
            std::make_unique<DeviceBytes>(on, chunks.data(), chunks.size() * sizeof(Chunk));
    }

    [[nodiscard]] SegmentTable table() const {
        return {device_segments_->as<UpdateSegment>(), segments_.data(),
                device_chunks_->as<Chunk>(), static_cast<int64_t>(segments_.size()), chunk_count_};
    }
    [[nodiscard]] int64_t chunk_count() const { return chunk_count_; }
    // Scratch of a step; it holds garbage before.
    [[nodiscard]] UpdateScaling* scaling() const { return scaling_->as<UpdateScaling>(); }

    void upload_grad(std::size_t index, const HostArray& grad, float scale_inv = 0.0F) {
        const Roles& roles = roles_[index];
        if (roles.grad_scale != nullptr) {
            check(on_.device().copy(on_.queue(), roles.grad_scale->data(), &scale_inv,
                                    sizeof scale_inv, CopyKind::host_to_device));
        }
        check(on_.device().copy(on_.queue(), segments_[index].grad.data, grad.bytes.data(),
                                grad.bytes.size(), CopyKind::host_to_device));
    }

    void upload_param(std::size_t index, const HostArray& param) {
        check(on_.device().copy(on_.queue(), segments_[index].param.data, param.bytes.data(),
                                param.bytes.size(), CopyKind::host_to_device));
    }

    // Waits for the queue.
    [[nodiscard]] ParamArrays download(std::size_t index) {
        ParamArrays arrays;
        const Roles& roles = roles_[index];
        arrays.param = roles.param->download();
        arrays.grad = roles.grad->download();
        arrays.exp_avg = roles.exp_avg->download();
        if (roles.exp_avg_sq != nullptr) {
            arrays.exp_avg_sq = roles.exp_avg_sq->download();
        }
        if (roles.compensation != nullptr) {
            arrays.compensation = roles.compensation->download();
        }
        if (roles.master != nullptr) {
            arrays.master = roles.master->download();
        }
        const auto scale = [](const std::unique_ptr<DeviceValue<float>>& value) {
            return value != nullptr ? value->download() : 0.0F;
        };
        arrays.exp_avg_coding = segments_[index].states[0].coding;
        arrays.exp_avg_sq_coding = segments_[index].states[1].coding;
        arrays.master_coding = segments_[index].master.coding;
        arrays.compensation_coding = segments_[index].compensation.coding;
        if (roles.compensation_scales != nullptr) {
            arrays.compensation_scales = roles.compensation_scales->download();
        }
        arrays.half_away = segments_[index].param_half_away != 0;
        if (roles.exp_avg_scales != nullptr) {
            arrays.exp_avg_scales = roles.exp_avg_scales->download();
        }
        if (roles.exp_avg_sq_scales != nullptr) {
            arrays.exp_avg_sq_scales = roles.exp_avg_sq_scales->download();
        }
        arrays.scale_inv = {scale(roles.param_scale), scale(roles.grad_scale),
                            scale(roles.exp_avg_scale), scale(roles.exp_avg_sq_scale),
                            scale(roles.master_scale)};
        return arrays;
    }

  private:
    struct Roles {
        std::unique_ptr<DeviceArray> param, grad, exp_avg, exp_avg_sq, compensation, master;
        std::unique_ptr<DeviceArray> exp_avg_scales, exp_avg_sq_scales,
            compensation_scales; // of blocks
        std::unique_ptr<DeviceValue<float>> param_scale, grad_scale, exp_avg_scale,
            exp_avg_sq_scale, master_scale;
    };

    std::unique_ptr<DeviceArray> upload(const HostArray& array, int64_t offset) {
        return array.dtype == DType::none ? nullptr
                                          : std::make_unique<DeviceArray>(on_, array, offset);
    }

    void add(const ParamArrays& arrays) {
        Roles roles;
        roles.param = upload(arrays.param, arrays.offset);
        roles.grad = upload(arrays.grad, arrays.offset);
        roles.exp_avg = upload(arrays.exp_avg, arrays.offset);
        roles.exp_avg_sq = upload(arrays.exp_avg_sq, arrays.offset);
        roles.compensation = upload(arrays.compensation, arrays.offset);
        roles.master = upload(arrays.master, arrays.offset);
        const auto data = [](const std::unique_ptr<DeviceArray>& array) {
            return array != nullptr ? array->data() : nullptr;
        };
        UpdateSegment segment;
        segment.count = arrays.count();
        segment.uid = arrays.uid;
        segment.first = arrays.first;
        segment.group = arrays.group;
        segment.param.data = data(roles.param);
        segment.grad.data = data(roles.grad);
        segment.states[0].data = data(roles.exp_avg);
        segment.states[1].data = data(roles.exp_avg_sq);
        segment.compensation.data = data(roles.compensation);
        segment.master.data = data(roles.master);
        segment.param.dtype = arrays.param.dtype;
        segment.grad.dtype = arrays.grad.dtype;
        segment.states[0].dtype = arrays.exp_avg.dtype;
        segment.states[1].dtype = arrays.exp_avg_sq.dtype;
        segment.compensation.dtype = arrays.compensation.dtype;
        segment.master.dtype = arrays.master.dtype;
        upload_scales(arrays.scale_inv, roles, segment);
        upload_blocks(arrays, roles, segment);
        segments_.push_back(segment);
        roles_.push_back(std::move(roles));
    }

    void upload_scales(const ScaleInvs& scales, Roles& roles, UpdateSegment& segment) {
        const auto upload_one = [this](float value, std::unique_ptr<DeviceValue<float>>& to) {
            if (value == 0.0F) {
                return static_cast<float*>(nullptr);
            }
            to = std::make_unique<DeviceValue<float>>(on_, value);
            return to->data();
        };
        segment.param.scale_inv = upload_one(scales.param, roles.param_scale);
        segment.grad.scale_inv = upload_one(scales.grad, roles.grad_scale);
        segment.states[0].scale_inv = upload_one(scales.exp_avg, roles.exp_avg_scale);
        segment.states[1].scale_inv = upload_one(scales.exp_avg_sq, roles.exp_avg_sq_scale);
        segment.master.scale_inv = upload_one(scales.master, roles.master_scale);
    }

    void upload_blocks(const ParamArrays& arrays, Roles& roles, UpdateSegment& segment) {
        segment.states[0].coding = arrays.exp_avg_coding;
        segment.states[1].coding = arrays.exp_avg_sq_coding;
        segment.master.coding = arrays.master_coding;
        segment.param_half_away = arrays.half_away ? 1 : 0;
        roles.exp_avg_scales = upload(arrays.exp_avg_scales, 0);
        roles.exp_avg_sq_scales = upload(arrays.exp_avg_sq_scales, 0);
        if (roles.exp_avg_scales != nullptr) {
            segment.states[0].scale_inv = roles.exp_avg_scales->data();
        }
        if (roles.exp_avg_sq_scales != nullptr) {
            segment.states[1].scale_inv = roles.exp_avg_sq_scales->data();
        }
        segment.compensation.coding = arrays.compensation_coding;
        roles.compensation_scales = upload(arrays.compensation_scales, 0);
        if (roles.compensation_scales != nullptr) {
            segment.compensation.scale_inv = roles.compensation_scales->data();
        }
    }

    TestDevice& on_;
    std::vector<Roles> roles_;
    std::vector<UpdateSegment> segments_;
    int64_t chunk_count_ = 0;
    std::unique_ptr<DeviceBytes> scaling_;
    std::unique_ptr<DeviceBytes> device_segments_;
    std::unique_ptr<DeviceBytes> device_chunks_;
};

} // namespace mp::test
