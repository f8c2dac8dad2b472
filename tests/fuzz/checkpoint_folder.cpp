// SPDX-License-Identifier: Apache-2.0
// Checkpoints of optimizers on 1 to 3 ranks, mutated and loaded on 1 to 3 ranks. The bytes choose both numbers and the
// mutations: of any file, also with all checksums made right again. Every rank gets the same verdict. A load that fails
// has changed nothing. One that succeeds has what was saved, bit for bit, but for the legal changes:
//   - bytes of a shard's data whose checksums are right: those bytes, wherever they are, are what changes
//   - a shard's header whose checksums are right: it says itself where a tensor lies
//   - numbers of a manifest whose checksum is right: steps, seed, hyperparameters become what it says
//   - a checkpoint of another recipe, where the caller asks for that to be converted
#include <algorithm>
#include <cstring>
#include <optional>
#include <random>

#include "checkpoint/directory.hpp"
#include "fuzz/checkpoint_mutations.hpp"
#include "fuzz/target.hpp"

using namespace mp;
using namespace mp::checkpoint;
using namespace mp::fuzz;

namespace {

constexpr int32_t kSteps = 2; // checkpoints of each folder

std::string folder(const char* kind, int32_t ranks) { return kind + std::to_string(ranks); }

Family::Saved remember(test::SimulatedFiles& files, const std::string& path) {
    Family::Saved saved;
    saved.path = path;
    std::vector<std::string> names;
    check(files.list(path.c_str(), &names));
    for (const std::string& name : names) {
        saved.files.emplace_back(path + "/" + name, *files.content(path + "/" + name));
    }
    return saved;
}

void save(Group& group, const std::string& parent, int32_t step) {
    group.each([&](std::size_t r) { group.rank(r).checkpointer().save(parent, step, false); });
}

std::unique_ptr<Family> make_family(int32_t number) {
    auto family = std::make_unique<Family>();
    for (int32_t n = 1; n <= kMostRanks; ++n) {
        Group group(number, n, 0.001F, family->files);
        const std::string parent = folder("/c", n);
        for (int32_t step = 0; step < kSteps; ++step) {
            group.each([&](std::size_t r) { group.rank(r).step(step); });
            save(group, parent, step);
            const Committed newest = list_committed(family->files, parent)[0];
            family->saved[n - 1].push_back(remember(family->files, parent + "/" + newest.name));
            family->saved[n - 1].back().tensors = joined(group.held());
        }
        auto& live = family->live[n - 1];
        live = std::make_unique<Group>(number, n, 0.5F, family->files);
        live->each([&](std::size_t r) { live->rank(r).step(7); });
        save(*live, folder("/live", n), 0);
        family->before[n - 1] = live->held();
    }
    return family;
}

Family& family_of(std::size_t number) {
    static auto* families = new std::unique_ptr<Family>[kFamilies]; // as long as the program
    if (families[number] == nullptr) {
        families[number] = make_family(static_cast<int32_t>(number));
    }
    return *families[number];
}

// How many bytes of a shard are others, in chunks whose checksum in the manifest is right; none where also the header is.
std::optional<std::size_t> changed_data(const std::string& was, const std::string& is,
                                        const StoredFile& file, std::size_t chunk) {
    uint64_t header = 0;
    std::memcpy(&header, was.data(), sizeof header);
    header += sizeof header;
    std::size_t changed = 0;
    for (std::size_t begin = 0, c = 0; begin < is.size(); begin += chunk, ++c) {
        const std::size_t end = std::min(begin + chunk, is.size());
        if (c >= file.chunks.size() ||
            system::crc32c(0, is.data() + begin, end - begin) != file.chunks[c]) {
            continue;
        }
        for (std::size_t i = begin; i < end; ++i) {
            const bool is_same = i < was.size() && is[i] == was[i];
            if (!is_same && (i < header || is.size() != was.size())) {
                return {};
            }
            changed += is_same ? 0 : 1;
        }
    }
    return changed;
}

std::optional<std::size_t> changed_data(Family& family, const Family::Saved& saved,
                                        const Manifest& manifest) {
    std::size_t changed = 0;
    for (const StoredFile& file : manifest.files) {
        const std::string path = saved.path + "/" + file.name;
        for (const auto& [name, was] : saved.files) {
            const std::string& is = *family.files.content(name);
            if (name == path && is != was) {
                const auto some =
                    changed_data(was, is, file, static_cast<std::size_t>(manifest.chunk_bytes));
                if (!some.has_value()) {
                    return {};
                }
                changed += *some;
            }
        }
    }
    return changed;
}

struct Verdict {
    Code code = Code::ok;
    std::string text;
    std::string directory;
    bool is_converted = false;
    std::optional<Manifest> manifest;
};

std::vector<Verdict> load(Group& group, const std::string& path, const LoadFlags& flags) {
    std::vector<Verdict> verdicts(group.size());
    group.each([&](std::size_t r) {
        Verdict& verdict = verdicts[r];
        try {
            Conversion conversion;
            const Loaded loaded = group.rank(r).checkpointer().load(path, flags, &conversion);
            verdict.directory = loaded.directory();
            verdict.manifest = loaded.manifest();
            verdict.is_converted = conversion.happened || flags.convert;
        } catch (const Error& error) {
            verdict.code = error.status().code();
            verdict.text = error.status().text();
        }
    });
    return verdicts;
}

void check_numbers(const Held& held, const Manifest& manifest) {
    for (const auto& [name, bits] : held.numbers) {
        if (name == "t" || name == "seed") {
            require(bits ==
                        (name == "t" ? static_cast<uint64_t>(manifest.rng_step) : manifest.seed),
                    name + " is what the manifest says");
            continue;
        }
        const Scalar* scalar = manifest.find_scalar(name);
        if (scalar == nullptr && ((manifest.minor == 0 && name.ends_with(".rule")) ||
                                  (manifest.minor < 3 && name.ends_with(".group")))) {
            continue; // a flag said the rule; groups were in the same order
        }
        require(scalar != nullptr && scalar->bits == bits, name + " is what the manifest says");
    }
}

void check_success(Family& family, const std::vector<Family::Saved>& folder, Group& group,
                   const Verdict& verdict) {
    const auto saved = std::find_if(folder.begin(), folder.end(), [&](const Family::Saved& s) {
        return s.path == verdict.directory;
    });
    require(saved != folder.end(), "what was loaded is one of the checkpoints");
    const std::vector<Held> held = group.held();
    for (const Held& one : held) {
        check_numbers(one, *verdict.manifest);
    }
    const std::map<std::string, std::string> now = joined(held);
    const std::optional<std::size_t> allowed = changed_data(family, *saved, *verdict.manifest);
    if (verdict.is_converted || !allowed.has_value()) {
        return;
    }
    std::size_t changed = 0;
    for (const auto& [key, was] : saved->tensors) {
        const auto is = now.find(key);
        require(is != now.end() && is->second.size() == was.size(), key + " has its size");
        for (std::size_t i = 0; is->second != was && i < was.size(); ++i) {
            changed += is->second[i] != was[i] ? 1 : 0;
        }
    }
    require(changed <= *allowed, "the states are what was saved");
}

struct Counts {
    long loads = 0;
    long taken = 0;
    ~Counts() { std::printf("%ld loads, %ld taken\n", loads, taken); }
};

// Gives the live optimizers their own states back.
void restore(Family& family, std::size_t live, const std::vector<Family::Saved>& folder_saved) {
    for (const Family::Saved& saved : folder_saved) {
        for (const auto& [path, content] : saved.files) {
            *family.files.content(path) = content;
        }
    }
    Group& group = *family.live[live];
    if (group.held() == family.before[live]) {
        return;
    }
    for (const Verdict& verdict :
         load(group, folder("/live", static_cast<int32_t>(live) + 1), {})) {
        require(verdict.code == Code::ok, "an intact checkpoint loads: " + verdict.text);
    }
    require(group.held() == family.before[live], "an intact checkpoint has every bit");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
    static Counts counts;
    Bytes bytes(data, size);
    Family& family = family_of(bytes.below(kFamilies));
    const std::size_t saving = bytes.below(kMostRanks);
    const std::size_t live = bytes.below(kMostRanks);
    const std::vector<Family::Saved>& folder_saved = family.saved[saving];
    const std::size_t which = bytes.below(kSteps);
    const std::size_t how = bytes.next();
    LoadFlags flags;
    flags.verify_all = (how & 1) != 0;
    flags.other_recipe = (how & 6) == 6;
    flags.convert = (how & 24) == 24;
    const auto& others = family.saved[bytes.below(kMostRanks)];
    const std::size_t mutations = 1 + bytes.below(8) / 2; // mostly few
    for (std::size_t i = 0; i < mutations && !bytes.empty(); ++i) {
        mutate(bytes, family, folder_saved[which], others[kSteps - 1 - which]);
    }
    Group& group = *family.live[live];
    const std::vector<Verdict> verdicts = load(
        group,
        (how & 32) != 0 ? folder("/c", static_cast<int32_t>(saving) + 1) : folder_saved[which].path,
        flags);
    ++counts.loads;
    for (const Verdict& verdict : verdicts) {
        require(verdict.code == verdicts[0].code,
                "all ranks have one verdict: " + verdicts[0].text + " / " + verdict.text);
        require((verdict.code == Code::ok) == verdict.text.empty(), "a failure has words");
        require(verdict.code != Code::internal, verdict.text);
    }
    require(family.files.open_handles() == 0, "every file is closed");
    if (verdicts[0].code == Code::ok) {
        ++counts.taken;
        check_success(family, folder_saved, group, verdicts[0]);
    } else {
        require(group.held() == family.before[live], "a load that fails changes nothing");
    }
    restore(family, live, folder_saved);
    return 0;
}

// Each pair of ranks in each family, each with another kind of mutation.
std::vector<std::string> fuzz_seeds() {
    std::vector<std::string> seeds;
    std::mt19937_64 random(7);
    for (int32_t i = 0; i < 54; ++i) {
        const auto byte = [](int32_t value) { return static_cast<char>(value); };
        std::string seed = {byte(i % 3), byte(i / 3 % 3), byte(i / 9 % 3), byte(i % 2),
                            byte(i % 7 == 0 ? 0xFF : i % 64)};
        seed += byte(i % 3); // the folder others come from
        seed += byte(i % 5); // how many mutations
        seed += byte(i / 2); // file
        seed += byte(i % 6); // mutation
        for (int32_t k = 0; k < 12; ++k) {
            seed += static_cast<char>(random());
        }
        seeds.push_back(seed);
    }
    return seeds;
}
