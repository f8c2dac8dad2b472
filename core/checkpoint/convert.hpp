// SPDX-License-Identifier: Apache-2.0
// Loading a checkpoint of another recipe, or of other types of weights, or of what was frozen: through states of the saved
// recipe and fp32, and what that loses.
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/catalog.hpp"
#include "checkpoint/ranks.hpp"
#include "checkpoint/weight_in_file.hpp"
#include "optim/optimizer.hpp"

namespace mp::checkpoint {

// |stored now - exact value of the checkpoint|, over all elements of all parameters.
struct Difference {
    double largest = 0.0;
    double rms = 0.0; // root of the mean of squares
};

struct Conversion {
    bool happened = false;
    Difference weights; // fp32_param: with master weight, remainder or compensation
    Difference states[numerics::kStateIdCount]; // by StateId
};

// One parameter's elements that are here, in states that no optimizer owns.
struct LooseStates {
    LooseStates(const optim::StatesPlace& like, const WeightFormat& weight,
                const optim::StateFormats& formats, const std::shared_ptr<Context>& context,
                Stream& stream);
    std::shared_ptr<Tensor> param;
    optim::ParamStates states;
    optim::StatesPlace place; // points to the two
};

// Whether a parameter is trained here that the checkpoint has frozen; and whether its weight is of another type there, or with
// other scales. Both false where the checkpoint does not have it.
bool has_new_states(const Manifest& manifest, const optim::Parameters& parameters, int32_t index);
bool has_other_weight(const Manifest& manifest, const optim::Parameters& parameters, int32_t index);

// Each rank converts the elements that it owns; what is kept here as there it takes as it is. In three steps: a load writes the
// saved states beside the live ones;
// from there the numbers go through fp32 into new states of this optimizer's types, with new scales; and where every
// rank has come so far, those take the live ones' place. Only the last step changes anything, and it cannot fail.
class Converter {
  public:
    // Throws corrupt_data where the manifest's recipe is none, invalid_shape or unknown_name where the parameters are
    // others. The optimizer outlives it, and does nothing meanwhile.
    Converter(const Manifest& manifest, const optim::Optimizer& target);
    // For the load: the saved states of the elements that are here.
    void add_to(Catalog& catalog) const;
    // Collective. Gives the saved states' memory back.
    Conversion convert(Ranks& ranks);
    void commit() const;

  private:
    struct Losses;
    struct Copy {
        const Stream* stream = nullptr;
        void* to = nullptr;
        const void* from = nullptr;
        std::size_t bytes = 0;
    };

    [[nodiscard]] Stream& stream_of(int32_t index) const;
    // The largest |weight| in the file of the elements that are here, by its bits, of what shares_amax(); else 0.
    [[nodiscard]] std::vector<uint32_t> own_amaxes() const;
    void convert_one(int32_t index, uint32_t amax, Losses& losses);
    void plan_copies(Stream& stream, const optim::StatesPlace& from, const optim::StatesPlace& to);

    const optim::Optimizer& target_;
    std::vector<std::unique_ptr<LooseStates>> saved_; // by parameter
    std::vector<std::unique_ptr<LooseStates>> fresh_; // by parameter
    std::vector<Copy> copies_;
};

// The entry under which a checkpoint keeps an array of an optimizer's parameter.
Entry entry_of(const std::string& parameter, const optim::SavedTensor& saved);

} // namespace mp::checkpoint
