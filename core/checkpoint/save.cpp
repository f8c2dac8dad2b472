// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save.hpp"

#include <algorithm>
#include <map>

#include "checkpoint/directory.hpp"
#include "checkpoint/shard_writer.hpp"
#include "system/crc32c.hpp"
#include "system/fnv.hpp"

namespace mp::checkpoint {
namespace {

// Rank 0's hold on the temporary directory: marked as in use until the commit, removed where there is none.
class TemporaryDirectory {
  public:
    TemporaryDirectory(system::FileTable& files, std::string parent, std::string name)
        : files_(files), parent_(std::move(parent)), name_(std::move(name)) {
        check(files_.make_directory(path().c_str()));
        if (files_.open_directory(path().c_str(), &lock_).ok()) {
            bool taken = false;
            (void)files_.lock(lock_, &taken); // no marks: see clean()
        }
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory() {
        if (!committed_) {
            discard(files_, parent_, name_);
        }
        if (lock_ >= 0) {
            (void)files_.close(lock_);
        }
    }
    [[nodiscard]] std::string path() const { return parent_ + "/" + name_; }
    void commit(const std::string& final_path) {
        check(files_.rename(path().c_str(), final_path.c_str()));
        committed_ = true;
        check(files_.sync_directory(parent_.c_str()));
    }

  private:
    system::FileTable& files_;
    std::string parent_;
    std::string name_;
    int32_t lock_ = -1;
    bool committed_ = false;
};

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
    Saver(Ranks& ranks, system::FileTable& files, const Catalog& catalog,
          const SaveOptions& options)
        : ranks_(ranks), files_(files), catalog_(catalog), options_(options) {}

    std::string save() {
        plan_ = on_first(ranks_, [&] { return begin(); });
        const std::string temporary =
            options_.parent + "/" + temporary_name(plan_.sequence, plan_.id);
        const std::vector<std::string> shards =
            together(ranks_, [&] { return write_own(temporary); });
        const std::string name = committed_name(options_.step, plan_.sequence, plan_.id);
        return on_first(ranks_, [&] { return commit(shards, options_.parent + "/" + name); });
    }

  private:
    Plan begin() {
        make_parent(files_, options_.parent);
        clean(files_, options_.parent);
        const std::vector<Committed> earlier = list_committed(files_, options_.parent);
        Plan plan = {earlier.empty() ? 1 : earlier.front().sequence + 1, random_id()};
        directory_ = std::make_unique<TemporaryDirectory>(files_, options_.parent,
                                                          temporary_name(plan.sequence, plan.id));
        return plan;
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
    std::string write_own(const std::string& temporary) const {
        check_catalog(catalog_);
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
        StoredFile file = write_shard(files_, temporary + "/" + name, tensors, metadata,
                                      options_.chunk_bytes, options_.progress);
        file.name = name;
        shard.files.push_back(std::move(file));
        shard.plan = agreed_checksum(catalog_);
        return system::to_bytes(shard);
    }

    std::string commit(const std::vector<std::string>& shards, const std::string& final_path) {
        Manifest manifest = merge(shards);
        const std::string temporary = directory_->path();
        write_synced(files_, temporary + "/" + kManifestName, write_manifest(manifest));
        check(files_.sync_directory(temporary.c_str()));
        check_sizes(manifest, temporary);
        directory_->commit(final_path);
        directory_.reset();
        forget_old();
        return final_path;
    }

    [[nodiscard]] Manifest merge(const std::vector<std::string>& shards) const {
        Manifest whole = head();
        std::map<std::pair<std::string, std::string>, StoredTensor> tensors;
        const auto first = system::from_bytes<Manifest>(shards[0]);
        for (std::size_t rank = 0; rank < shards.size(); ++rank) {
            const auto shard = system::from_bytes<Manifest>(shards[rank]);
            check_same(first, shard, rank);
            whole.files.push_back(shard.files.at(0));
            for (const StoredTensor& tensor : shard.tensors) {
                add(tensors[{tensor.name, tensor.state}], tensor, rank);
            }
        }
        for (auto& [key, tensor] : tensors) {
            whole.tensors.push_back(std::move(tensor));
        }
        whole.plan = plan_hash(whole);
        return whole;
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
    void check_sizes(const Manifest& manifest, const std::string& directory) const {
        for (const StoredFile& file : manifest.files) {
            int32_t handle = -1;
            int64_t bytes = 0;
            check(files_.open((directory + "/" + file.name).c_str(), system::OpenMode::read_plain,
                              &handle));
            const Status sized = files_.size(handle, &bytes);
            check(files_.close(handle));
            check(sized);
            if (bytes != file.bytes) {
                fail(Code::io_error,
                     "checkpoint: '%s' has %lld bytes after its sync instead of %lld",
                     file.name.c_str(), static_cast<long long>(bytes),
                     static_cast<long long>(file.bytes));
            }
        }
    }

    void forget_old() const {
        if (options_.keep <= 0) {
            return;
        }
        try {
            const std::vector<Committed> all = list_committed(files_, options_.parent);
            for (std::size_t i = static_cast<std::size_t>(options_.keep); i < all.size(); ++i) {
                discard(files_, options_.parent, all[i].name);
            }
        } catch (const std::exception&) { // NOLINT(bugprone-empty-catch)
            // The new checkpoint is committed; the old ones go at the next save.
        }
    }

    Ranks& ranks_;
    system::FileTable& files_;
    const Catalog& catalog_;
    const SaveOptions& options_;
    Plan plan_;
    std::unique_ptr<TemporaryDirectory> directory_; // of rank 0
};

} // namespace

std::string save_checkpoint(Ranks& ranks, system::FileTable& files, const Catalog& catalog,
                            const SaveOptions& options) {
    return Saver(ranks, files, catalog, options).save();
}

void write_weights(system::FileTable& files, const std::string& path, const Catalog& catalog) {
    check_catalog(catalog);
    std::vector<ShardTensor> tensors;
    for (const Entry& entry : catalog.entries) {
        if (entry.slices.size() != 1 || entry.slices[0].length != entry.count()) {
            fail(Code::unsupported, "checkpoint: %s is not whole on this rank",
                 entry.text().c_str());
        }
        const std::string key =
            entry.state == "param" ? entry.name : entry.name + "_" + entry.state;
        tensors.push_back({key, &entry, &entry.slices[0]});
    }
    const std::string temporary = path + ".tmp-" + random_id();
    const auto give_up = [&] { (void)files.remove(temporary.c_str()); };
    try {
        (void)write_shard(files, temporary, tensors, {{"format", "pt"}}, kDefaultChunk, {});
        check(files.rename(temporary.c_str(), path.c_str()));
    } catch (const std::exception&) {
        give_up();
        throw;
    }
    check(files.sync_directory(parent_of(path).c_str()));
}

} // namespace mp::checkpoint
