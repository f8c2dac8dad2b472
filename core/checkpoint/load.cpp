// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "checkpoint/directory.hpp"
#include "checkpoint/shard_reader.hpp"
#include "recipe/automatic.hpp"
#include "system/crc32c.hpp"
#include "tensor/tensor.hpp"

namespace mp::checkpoint {
namespace {

// Bytes of one file that go to one place.
struct Request {
    int64_t file = 0;
    const StoredTensor* tensor = nullptr;
    const StoredSlice* slice = nullptr;
    int64_t skip = 0; // bytes of the slice before the wanted ones
    unsigned char* to = nullptr;
    std::size_t bytes = 0;
};

// The first line in which two texts differ.
std::string difference(const std::string& saved, const std::string& here) {
    const auto [a, b] = std::mismatch(saved.begin(), saved.end(), here.begin(), here.end());
    const auto line = [](const std::string& text, std::string::const_iterator at) {
        const auto position = static_cast<std::size_t>(at - text.begin());
        std::size_t begin = position == 0 ? std::string::npos : text.rfind('\n', position - 1);
        begin = begin == std::string::npos ? 0 : begin + 1;
        begin = text.find_first_not_of(' ', begin);
        begin = begin == std::string::npos ? position : begin;
        return text.substr(begin, std::min(text.find('\n', position), begin + 100) - begin);
    };
    return "its line is '" + line(saved, a) + "', here '" + line(here, b) + "'";
}

// With the keys of now; a text that is no recipe known here stays as it is.
std::string as_written_here(const std::string& saved) {
    try {
        const recipe::NamedRecipe recipe =
            recipe::recipe_from_json(saved.data(), saved.size(), DeviceCapability{});
        return recipe::recipe_to_json(recipe.recipe, "fp32");
    } catch (const Error&) {
        return saved;
    }
}

std::string quoted(const std::string& preset) {
    return preset.empty() ? "one without a name" : "'" + preset + "'";
}

} // namespace

bool is_same_recipe(const std::string& saved, const std::string& here) {
    return saved == here || as_written_here(saved) == here;
}

class Loader {
  public:
    Loader(Ranks& ranks, system::FileTable& files, const Catalog& catalog,
           const LoadOptions& options)
        : ranks_(ranks), files_(files), catalog_(catalog), options_(options) {}

    Loaded load() {
        find();
        together(ranks_, [this] {
            check_catalog(catalog_);
            check_contents();
            read();
            if (options_.check) {
                options_.check(loaded_);
            }
        });
        return std::move(loaded_);
    }

  private:
    // Rank 0 looks, so that all ranks see one answer.
    void find() {
        const std::string bytes = on_first(ranks_, [this] {
            Found found = find_checkpoint(files_, options_.path);
            return system::to_bytes(found);
        });
        together(ranks_, [&] {
            auto found = system::from_bytes<Found>(bytes);
            loaded_.directory_ = std::move(found.directory);
            loaded_.skipped_ = std::move(found.skipped);
            loaded_.manifest_ = std::move(found.manifest);
        });
    }

    void check_contents() {
        const Manifest& manifest = loaded_.manifest_;
        if (!options_.other_recipe && !is_same_recipe(manifest.recipe, catalog_.recipe)) {
            fail(Code::bad_state,
                 "checkpoint: it was saved under another recipe, %s; here it is %s: %s. "
                 "MP_LOAD_CONVERT converts it to the one here; MP_LOAD_OTHER_RECIPE takes it as it "
                 "is, where all types are equal",
                 quoted(manifest.preset).c_str(), quoted(catalog_.preset).c_str(),
                 difference(as_written_here(manifest.recipe), catalog_.recipe).c_str());
        }
        std::set<std::pair<std::string, std::string>> wanted;
        for (const Entry& entry : catalog_.entries) {
            wanted.emplace(entry.name, entry.state);
            check_stored(entry, manifest.find(entry.name, entry.state));
        }
        if (options_.others != nullptr) {
            for (const Entry& entry : options_.others->entries) {
                wanted.emplace(entry.name, entry.state);
            }
        }
        for (const StoredTensor& stored : manifest.tensors) {
            if (is_state_of_frozen(stored) && !wanted.contains({stored.name, stored.state})) {
                ++loaded_.passed_over_;
                continue;
            }
            const bool is_passed = options_.leaves_scales && stored.state == kScalingState;
            if (!is_passed && !wanted.contains({stored.name, stored.state})) {
                fail(Code::unknown_name,
                     "checkpoint: '%s' (%s) is in the file, but nothing here takes it",
                     stored.name.c_str(), stored.state.c_str());
            }
        }
    }

    // Null: the file does not have it.
    void check_stored(const Entry& entry, const StoredTensor* stored) const {
        if (stored == nullptr) {
            const bool was_frozen = loaded_.manifest_.find(entry.name, "param") != nullptr;
            fail(Code::unknown_name, "checkpoint: '%s' does not have %s%s",
                 loaded_.directory_.c_str(), entry.text().c_str(),
                 was_frozen ? ": the parameter was frozen when it was saved, or kept otherwise. "
                              "MP_LOAD_CONVERT takes its weight, and begins new states"
                            : "");
        }
        if (stored->shape != entry.shape) {
            fail(Code::invalid_shape, "checkpoint: %s is %s in the file but %s here",
                 entry.text().c_str(), shape_text(stored->shape).c_str(),
                 shape_text(entry.shape).c_str());
        }
        if (stored->format != entry.format) {
            fail(Code::invalid_dtype,
                 "checkpoint: %s is %s in the file but %s here; MP_LOAD_CONVERT rounds what is "
                 "kept otherwise",
                 entry.text().c_str(), format_name(stored->format), format_name(entry.format));
        }
    }

    [[nodiscard]] bool is_state_of_frozen(const StoredTensor& stored) const {
        const bool is_frozen =
            catalog_.frozen.contains(stored.name) ||
            (options_.others != nullptr && options_.others->frozen.contains(stored.name));
        return is_frozen && !stored.state.starts_with("param") && stored.state != kScalingState;
    }

    void add_requests(const Entry& entry, const LocalSlice& local, unsigned char* to) {
        const StoredTensor& stored = *loaded_.manifest_.find(entry.name, entry.state);
        const int64_t end = local.start + local.length;
        // The slices are ordered and tile the tensor; the first that reaches beyond local.start begins it.
        auto slice = std::upper_bound(
            stored.slices.begin(), stored.slices.end(), local.start,
            [](int64_t start, const StoredSlice& p) { return start < p.start + p.length; });
        for (; slice != stored.slices.end() && slice->start < end; ++slice) {
            const int64_t from = std::max(slice->start, local.start);
            const int64_t until = std::min(slice->start + slice->length, end);
            Request request;
            request.file = slice->file;
            request.tensor = &stored;
            request.slice = &*slice;
            request.skip = entry.offset(from) - entry.offset(slice->start);
            request.to = to + (entry.offset(from) - entry.offset(local.start));
            request.bytes = static_cast<std::size_t>(entry.offset(until) - entry.offset(from));
            total_ += static_cast<int64_t>(request.bytes);
            requests_.push_back(request);
        }
    }

    void read() {
        loaded_.staged_.resize(catalog_.entries.size());
        for (std::size_t e = 0; e < catalog_.entries.size(); ++e) {
            const Entry& entry = catalog_.entries[e];
            for (const LocalSlice& slice : entry.slices) {
                loaded_.staged_[e].emplace_back(entry.bytes(slice));
                if (slice.length > 0) {
                    add_requests(entry, slice, loaded_.staged_[e].back().data());
                }
            }
        }
        std::stable_sort(requests_.begin(), requests_.end(),
                         [](const Request& a, const Request& b) { return a.file < b.file; });
        read_files();
        for (std::size_t e = 0; e < catalog_.entries.size(); ++e) {
            for (const system::HostBytes& bytes : loaded_.staged_[e]) {
                const std::string wrong =
                    wrong_value(catalog_.entries[e], bytes.data(), bytes.size());
                if (!wrong.empty()) {
                    fail(Code::corrupt_data, "checkpoint: %s", wrong.c_str());
                }
            }
        }
    }

    void read_files() {
        const auto count = static_cast<int64_t>(loaded_.manifest_.files.size());
        auto request = requests_.begin();
        for (int64_t file = 0; file < count; ++file) {
            const auto end = std::find_if(request, requests_.end(),
                                          [file](const Request& r) { return r.file != file; });
            const bool verify = options_.verify_all && file % ranks_.size() == ranks_.rank();
            if (request != end || verify) {
                require_folder();
                ShardReader reader(files_, loaded_.directory_, loaded_.manifest_,
                                   static_cast<std::size_t>(file));
                read_file(reader, {request, end});
                if (verify) {
                    reader.verify_all();
                }
            }
            request = end;
        }
    }

    // Only rank 0 has looked.
    void require_folder() const {
        system::FileIdentity found;
        check(files_.look(system::kCurrentDirectory, loaded_.directory_.c_str(), &found));
        if (ranks_.rank() > 0 && found.kind == system::FileKind::none) {
            fail(Code::io_error,
                 "checkpoint: there is no '%s' here, though rank 0 sees it: the ranks look into "
                 "different folders, and must see the same one",
                 loaded_.directory_.c_str());
        }
    }

    void read_file(ShardReader& reader, std::span<const Request> requests) {
        std::vector<std::pair<int64_t, const Request*>>
            order; // by place, so that a chunk is read once
        order.reserve(requests.size());
        for (const Request& request : requests) {
            order.emplace_back(reader.place(*request.tensor, *request.slice) + request.skip,
                               &request);
        }
        std::sort(order.begin(), order.end());
        for (const auto& [offset, request] : order) {
            reader.read(offset, request->to, request->bytes);
            done_ += static_cast<int64_t>(request->bytes);
            options_.progress.report(done_, total_);
        }
    }

    Ranks& ranks_;
    system::FileTable& files_;
    const Catalog& catalog_;
    const LoadOptions& options_;
    Loaded loaded_;
    std::vector<Request> requests_;
    int64_t total_ = 0;
    int64_t done_ = 0;
};

void Loaded::commit(const Catalog& catalog) const {
    for (std::size_t e = 0; e < catalog.entries.size(); ++e) {
        const Entry& entry = catalog.entries[e];
        for (std::size_t p = 0; p < entry.slices.size(); ++p) {
            copy_in(entry, entry.slices[p], staged_[e][p].data());
        }
    }
    wait_for(catalog);
}

Loaded load_checkpoint(Ranks& ranks, system::FileTable& files, const Catalog& catalog,
                       const LoadOptions& options) {
    return Loader(ranks, files, catalog, options).load();
}

} // namespace mp::checkpoint
