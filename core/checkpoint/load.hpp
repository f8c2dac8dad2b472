// SPDX-License-Identifier: Apache-2.0
// Loading on any number of ranks: a rank reads of the saved slices what its own need, into memory of
// its own; when every rank has found everything in order, all of it goes into the live state at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/catalog.hpp"
#include "checkpoint/ranks.hpp"
#include "system/file.hpp"
#include "system/host_bytes.hpp"

namespace mp::checkpoint {

class Loaded;

// Whether a manifest's recipe is this one, as recipe_to_json() writes it. A key that came after the file was written has the
// value that it had before there was a key: its default.
bool is_same_recipe(const std::string& saved, const std::string& here);

struct LoadOptions {
    std::string path; // of one checkpoint, or of a directory of them: then the newest intact one
    bool verify_all = false; // check all chunks of all files, not only those that are read
    const Catalog* others =
        nullptr;                // of a conversion: what another load of the same checkpoint takes
    bool leaves_scales = false; // there may be layers' scales that nobody takes
    bool other_recipe =
        false;         // the recipe's text may differ, as long as the formats of tensors do not
    Progress progress; // of this rank's bytes
    // Whether what was read can be applied; throws where not. Counts in the agreement.
    std::function<void(const Loaded&)> check;
};

class Loaded {
  public:
    [[nodiscard]] const Manifest& manifest() const noexcept { return manifest_; }
    [[nodiscard]] const std::string& directory() const noexcept { return directory_; }
    // Why newer checkpoints were passed over; empty where none was.
    [[nodiscard]] const std::string& skipped() const noexcept { return skipped_; }
    // Arrays of the file that are states of parameters which are frozen here, and need none.
    [[nodiscard]] int64_t passed_over() const noexcept { return passed_over_; }
    // Copies into the slices of the catalog that was read for. Waits.
    void commit(const Catalog& catalog) const;
    // What was read for a slice, for those who convert it.
    [[nodiscard]] const system::HostBytes& bytes(std::size_t entry, std::size_t slice) const {
        return staged_[entry][slice];
    }

  private:
    friend class Loader;
    Manifest manifest_;
    std::string directory_;
    std::string skipped_;
    int64_t passed_over_ = 0;
    std::vector<std::vector<system::HostBytes>> staged_; // by entry, by slice
};

// Collective; waits. Throws on every rank where any found a fault; the live state is not touched.
Loaded load_checkpoint(Ranks& ranks, system::FileTable& files, const Catalog& catalog,
                       const LoadOptions& options);

} // namespace mp::checkpoint
