// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/directory.hpp"
#include "checkpoint/shard_writer.hpp"
#include "checkpoint/temporary_directory.hpp"
#include "system/crc32c.hpp"
#include "system/fnv.hpp"
#include "system/place.hpp"

namespace mp::checkpoint {
namespace {

std::string shard_name(int32_t rank, int32_t size) {
    return "shard-" + std::to_string(rank) + "-of-" + std::to_string(size) + ".safetensors";
}

// What does not differ between ranks: rank 0 chose it.
struct Plan {
    int64_t sequence = 0;
    std::string id;
    void exchange(auto& bytes) { bytes(sequence, id); }
};

bool writes(const Entry& entry, int32_t rank) {
    return !entry.is_copy && (!entry.replicated || rank == 0);
}

uint32_t agreed_checksum(const Catalog& catalog) {
    uint32_t crc = 0;
    for (const Entry& entry : catalog.entries) {
        if (entry.agrees) {
            std::vector<unsigned char> bytes(entry.bytes(entry.slices[0]));
            copy_out(entry, entry.slices[0], 0, bytes.data(), bytes.size());
            if (entry.stream != nullptr) {
                entry.stream->sync();
            }
            crc = system::crc32c(crc, bytes.data(), bytes.size());
        }
    }
    return crc;
}

class Saver {
  public:
    Saver(Ranks& ranks, system::FileTable& files, int32_t folder, const Catalog& catalog,
          const SaveOptions& options)
        : ranks_(ranks), files_(files), folder_(folder), catalog_(catalog), options_(options) {}

    std::string save() {
        plan_ = on_first(ranks_, [&] { return begin(); });
        const std::vector<std::string> shards = together(ranks_, [&] { return write_own(); });
        return on_first(ranks_, [&] { return commit(shards); });
    }

  private:
    Plan begin() {
        const int64_t newest = newest_sequence(files_, folder_, list_committed(files_, folder_));
        clean(files_, folder_, newest);
        directory_ = std::make_unique<TemporaryDirectory>(files_, folder_, newest + 1);
        return {newest + 1, directory_->id()};
    }

    [[nodiscard]] Manifest head() const {
        Manifest manifest;
        manifest.library = options_.library;
        manifest.id = plan_.id;
        manifest.step = options_.step;
        manifest.sequence = plan_.sequence;
        manifest.world = ranks_.size();
        manifest.recipe = catalog_.recipe;
        manifest.preset = catalog_.preset;
        manifest.device = options_.device;
        manifest.chunk_bytes = options_.chunk_bytes;
        manifest.seed = catalog_.seed;
        manifest.rng_step = catalog_.rng_step;
        manifest.scalars.assign(catalog_.scalars.begin(), catalog_.scalars.end());
        std::sort(manifest.scalars.begin(), manifest.scalars.end(),
                  [](const Scalar& a, const Scalar& b) { return a.name < b.name; });
        return manifest;
    }

    // This rank's file, and what the manifest says of it.
    std::string write_own() const {
        check_catalog(catalog_);
        system::OpenFile shared; // what rank 0 has made
        if (directory_ == nullptr) {
            shared = {files_, folder_, temporary_name(plan_.sequence, plan_.id),
                      system::OpenMode::plain_directory};
        }
        const int32_t temporary = directory_ != nullptr ? directory_->handle() : shared.handle();
        Manifest shard = head();
        std::vector<ShardTensor> tensors;
        for (const Entry& entry : catalog_.entries) {
            StoredTensor stored = {entry.name, entry.state, entry.format, entry.shape, {}};
            for (const LocalSlice& slice : entry.slices) {
                if (slice.length > 0 && writes(entry, ranks_.rank())) {
                    stored.slices.push_back({0, slice.start, slice.length});
                    tensors.push_back({stored.key(stored.slices.back()), &entry, &slice});
                }
            }
            shard.tensors.push_back(std::move(stored));
        }
        const std::string name = shard_name(ranks_.rank(), ranks_.size());
        const Metadata metadata = {{"checkpoint_id", plan_.id},
                                   {"rank", std::to_string(ranks_.rank())},
                                   {"world", std::to_string(ranks_.size())}};
        StoredFile file = write_shard(files_, temporary, name, tensors, metadata,
                                      options_.chunk_bytes, options_.progress);
        file.name = name;
        shard.files.push_back(std::move(file));
        shard.plan = agreed_checksum(catalog_);
        return system::to_bytes(shard);
    }

    std::string commit(const std::vector<std::string>& shards) {
        Manifest manifest = merge(shards);
        const int32_t temporary = directory_->handle();
        write_synced(files_, temporary, kManifestName, write_manifest(manifest));
        check(files_.sync(temporary));
        check_sizes(manifest, temporary);
        const std::string name = committed_name(options_.step, plan_.sequence, plan_.id);
        directory_->commit(name);
        directory_.reset();
        forget_old(name);
        return options_.parent + "/" + name;
    }

    [[nodiscard]] Manifest merge(const std::vector<std::string>& shards) const {
        Manifest whole = head();
        Tensors tensors;
        std::vector<std::size_t> counts; // of names, in which none appears twice
        const auto first = system::from_bytes<Manifest>(shards[0]);
        for (std::size_t rank = 0; rank < shards.size(); ++rank) {
            const auto shard = system::from_bytes<Manifest>(shards[rank]);
            check_same(first, shard, rank);
            whole.files.push_back(shard.files.at(0));
            for (const StoredTensor& tensor : shard.tensors) {
                add(tensors[{tensor.name, tensor.state}], tensor, rank);
            }
            counts.push_back(shard.tensors.size());
        }
        for (std::size_t rank = 0; rank < shards.size(); ++rank) {
            if (counts[rank] != tensors.size()) {
                name_missing(tensors, system::from_bytes<Manifest>(shards[rank]), rank);
            }
        }
        for (auto& [key, tensor] : tensors) {
            whole.tensors.push_back(std::move(tensor));
        }
        whole.plan = plan_hash(whole);
        return whole;
    }

    using Tensors = std::map<std::pair<std::string, std::string>, StoredTensor>;

    [[noreturn]] static void name_missing(const Tensors& all, const Manifest& shard,
                                          std::size_t rank) {
        std::set<std::pair<std::string, std::string>> own;
        for (const StoredTensor& tensor : shard.tensors) {
            own.emplace(tensor.name, tensor.state);
        }
        const auto missing = std::find_if(
            all.begin(), all.end(), [&](const auto& row) { return !own.contains(row.first); });
        fail(Code::rank_mismatch,
             "checkpoint: rank %zu has nothing called '%s' (%s), which another rank saves: all "
             "ranks add the same, under the same names",
             rank, missing->first.first.c_str(), missing->first.second.c_str());
    }

    static void add(StoredTensor& whole, const StoredTensor& shard, std::size_t rank) {
        if (whole.name.empty()) {
            whole = {shard.name, shard.state, shard.format, shard.shape, {}};
        }
        if (whole.format != shard.format || whole.shape != shard.shape) {
            fail(Code::rank_mismatch,
                 "checkpoint: rank %zu has '%s' (%s) in another shape or format than a rank before "
                 "it",
                 rank, shard.name.c_str(), shard.state.c_str());
        }
        for (StoredSlice slice : shard.slices) {
            slice.file = static_cast<int64_t>(rank);
            whole.slices.push_back(slice);
        }
    }

    static void check_same(const Manifest& first, const Manifest& shard, std::size_t rank) {
        const char* what = nullptr;
        if (first.step != shard.step || first.rng_step != shard.rng_step) {
            what = "step";
        } else if (first.recipe != shard.recipe) {
            what = "recipe";
        } else if (first.seed != shard.seed) {
            what = "seed";
        } else if (first.plan != shard.plan) {
            what = "scales";
        }
        if (what != nullptr) {
            fail(Code::rank_mismatch, "checkpoint: rank %zu and rank 0 have different %s", rank,
                 what);
        }
        check_same_scalars(first, shard, rank);
    }

    // Loss scale, learning rates, groups of parameters, counters. Each rank lists them in its own order.
    static void check_same_scalars(const Manifest& first, const Manifest& shard, std::size_t rank) {
        const auto [a, b] = std::mismatch(
            first.scalars.begin(), first.scalars.end(), shard.scalars.begin(), shard.scalars.end(),
            [](const Scalar& x, const Scalar& y) { return x.name == y.name && x.bits == y.bits; });
        if (a == first.scalars.end() && b == shard.scalars.end()) {
            return;
        }
        const Scalar& odd =
            b == shard.scalars.end() || (a != first.scalars.end() && a->name <= b->name) ? *a : *b;
        fail(Code::rank_mismatch,
             "checkpoint: rank %zu and rank 0 have different scalars (loss scale, learning rates, "
             "groups of parameters, counters), first '%s'",
             rank, odd.name.c_str());
    }

    // All that says how tensors are cut.
    static uint64_t plan_hash(const Manifest& manifest) {
        system::Fnv64 hash;
        for (const StoredTensor& tensor : manifest.tensors) {
            hash.add(tensor.name);
            hash.add(std::string_view("\0", 1)); // which no name has
            hash.add(tensor.state);
            for (const StoredSlice& slice : tensor.slices) {
                hash.add(slice.file);
                hash.add(slice.start);
                hash.add(slice.length);
            }
        }
        return hash.value();
    }

    // Other hosts' files are here only where the file system is really shared.
    void check_sizes(const Manifest& manifest, int32_t directory) const {
        for (const StoredFile& file : manifest.files) {
            system::OpenFile open(files_, directory, file.name, system::OpenMode::read_plain);
            int64_t bytes = 0;
            check(files_.size(open.handle(), &bytes));
            check(open.close());
            if (bytes != file.bytes) {
                fail(Code::io_error,
                     "checkpoint: '%s' has %lld bytes after its sync instead of %lld",
                     file.name.c_str(), static_cast<long long>(bytes),
                     static_cast<long long>(file.bytes));
            }
        }
    }

    // What is older than the new one, which stays, and so does what pretends to be newer.
    void forget_old(const std::string& own) const {
        if (options_.keep <= 0) {
            return;
        }
        try {
            const std::vector<Committed> all = list_committed(files_, folder_);
            const auto place = std::find_if(all.begin(), all.end(),
                                            [&](const Committed& c) { return c.name == own; });
            for (auto i = static_cast<std::size_t>(place - all.begin()) +
                          static_cast<std::size_t>(options_.keep);
                 i < all.size(); ++i) {
                discard(files_, folder_, all[i].name);
            }
        } catch (const std::exception&) { // NOLINT(bugprone-empty-catch)
            // The new checkpoint is committed; the old ones go at the next save.
        }
    }

    Ranks& ranks_;
    system::FileTable& files_;
    int32_t folder_;
    const Catalog& catalog_;
    const SaveOptions& options_;
    Plan plan_;
    std::unique_ptr<TemporaryDirectory> directory_; // of rank 0
};

// Of the ranks after the first, which has made or found it.
system::OpenFile shared_folder(system::FileTable& files, const std::string& parent) {
    int32_t handle = -1;
    const Status opened =
        files.open(system::kCurrentDirectory, parent.c_str(), system::OpenMode::directory, &handle);
    if (!opened.ok()) {
        fail(opened.code(), "%s; rank 0 sees the folder, and all ranks must see the same one",
             opened.text());
    }
    return {files, handle};
}

} // namespace

system::OpenFile open_folder(Ranks& ranks, system::FileTable& files, const std::string& parent) {
    system::OpenFile folder;
    on_first(ranks, [&] { folder = open_parent(files, parent); });
    together(ranks, [&] {
        if (ranks.rank() > 0) {
            folder = shared_folder(files, parent);
        }
    });
    return folder;
}

std::string save_into(Ranks& ranks, system::FileTable& files, const system::OpenFile& folder,
                      const Catalog& catalog, const SaveOptions& options) {
    return Saver(ranks, files, folder.handle(), catalog, options).save();
}

std::string save_checkpoint(Ranks& ranks, system::FileTable& files, const Catalog& catalog,
                            const SaveOptions& options) {
    return save_into(ranks, files, open_folder(ranks, files, options.parent), catalog, options);
}

void write_weights(system::FileTable& files, const std::string& path, const Catalog& catalog) {
    check_catalog(catalog);
    std::vector<ShardTensor> tensors;
    std::map<std::string, std::string> keys;
    for (const Entry& entry : catalog.entries) {
        if (entry.slices.size() != 1 || entry.slices[0].length != entry.count()) {
            fail(Code::unsupported, "checkpoint: %s is not whole on this rank",
                 entry.text().c_str());
        }
        const std::string key =
            entry.state == "param" ? entry.name : entry.name + "_" + entry.state;
        const auto [earlier, is_new] = keys.emplace(key, entry.text());
        if (!is_new) {
            fail(Code::invalid_argument,
                 "checkpoint: in one file %s and %s would both be called '%s'; give one of these "
                 "parameters another name",
                 earlier->second.c_str(), entry.text().c_str(), key.c_str());
        }
        tensors.push_back({key, &entry, &entry.slices[0]});
    }
    const system::Place place(files, path);
    const int32_t directory = place.directory.handle();
    system::FileIdentity found;
    check(files.look(directory, place.name.c_str(), &found));
    if (found.kind != system::FileKind::none) {
        fail(Code::io_error, "checkpoint: '%s' exists already, and is not replaced", path.c_str());
    }
    const std::string temporary = place.temporary();
    try {
        (void)write_shard(files, directory, temporary, tensors, {{"format", "pt"}}, kDefaultChunk,
                          {});
        check(files.rename(directory, temporary.c_str(), place.name.c_str()));
    } catch (const std::exception&) {
        (void)files.remove(directory, temporary.c_str());
        throw;
    }
    check(files.sync(directory));
}

} // namespace mp::checkpoint
