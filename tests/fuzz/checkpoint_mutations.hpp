// SPDX-License-Identifier: Apache-2.0
// Mutations of a checkpoint's files, chosen by bytes: as a disk makes them, and as somebody does who makes the checksums right.
#pragma once

#include <algorithm>
#include <vector>

#include "fuzz/bytes.hpp"
#include "fuzz/checkpoint_folder.hpp"
#include "system/crc32c.hpp"

namespace mp::fuzz {

using checkpoint::Manifest;
using checkpoint::StoredFile;
using checkpoint::StoredSlice;
using checkpoint::StoredTensor;

// One family's checkpoints, saved once, and live optimizers to load into.
struct Family {
    struct Saved {
        std::string path;
        std::vector<std::pair<std::string, std::string>> files; // path and content
        std::map<std::string, std::string> tensors;
    };
    test::SimulatedFiles files;
    std::vector<Saved> saved[kMostRanks]; // by ranks - 1
    std::unique_ptr<Group> live[kMostRanks];
    std::vector<Held> before[kMostRanks]; // what the live ones have
};

inline constexpr const char* kTail = ",\"crc32c\":\"";

inline std::string finish(const std::string& body) {
    return body + kTail + checkpoint::hex(mp::system::crc32c(0, body.data(), body.size()), 8) +
           "\"}\n";
}

inline std::string* manifest_of(Family& family, const Family::Saved& saved) {
    return family.files.content(saved.path + "/" + checkpoint::kManifestName);
}

// Bytes, as a disk or a person changes them.
inline void edit(Bytes& bytes, std::string& text) {
    const std::size_t at = bytes.place(text.size());
    const std::size_t length = std::min(bytes.below(64) + 1, text.size() - at);
    switch (bytes.below(9)) {
    case 0:
        text.resize(at);
        break;
    case 1:
        text.erase(at, length);
        break;
    case 2:
        text.insert(at, length, static_cast<char>(bytes.next()));
        break;
    case 3:
        text.insert(at, text.substr(bytes.place(text.size()), length));
        break;
    case 4:
        text.replace(at, std::min(length, text.size() - at), std::to_string(bytes.number()));
        break;
    default:
        if (at < text.size()) {
            text[at] = static_cast<char>(text[at] ^ (1 << bytes.below(8)));
        }
        break;
    }
}

inline void change_tensor(Bytes& bytes, Manifest& manifest) {
    const std::size_t count = manifest.tensors.size();
    if (count == 0) {
        return;
    }
    StoredTensor& tensor = manifest.tensors[bytes.below(count)];
    StoredTensor& other = manifest.tensors[bytes.below(count)];
    switch (bytes.below(8)) {
    case 0:
        std::swap(tensor.name, other.name);
        break;
    case 1:
        std::swap(tensor.state, other.state);
        break;
    case 2:
        std::swap(tensor.slices, other.slices);
        break;
    case 3:
        tensor.format = other.format;
        break;
    case 4:
        if (!tensor.shape.empty()) {
            tensor.shape[bytes.below(tensor.shape.size())] = bytes.number();
        }
        break;
    case 5:
        manifest.tensors.push_back(other);
        break;
    case 6:
        manifest.tensors.erase(manifest.tensors.begin() +
                               static_cast<std::ptrdiff_t>(bytes.below(count)));
        break;
    default:
        if (!tensor.slices.empty()) {
            StoredSlice& slice = tensor.slices[bytes.below(tensor.slices.size())];
            int64_t* const fields[] = {&slice.file, &slice.start, &slice.length};
            *fields[bytes.below(3)] = bytes.number();
        }
        break;
    }
}

inline void change_number(Bytes& bytes, Manifest& manifest) {
    const std::size_t field = bytes.below(9);
    int64_t* const numbers[] = {&manifest.version, &manifest.minor,       &manifest.step,
                                &manifest.world,   &manifest.chunk_bytes, &manifest.rng_step,
                                &manifest.sequence};
    if (field < std::size(numbers)) {
        *numbers[field] = bytes.number();
    } else if (field == std::size(numbers)) {
        manifest.seed = static_cast<uint64_t>(bytes.number());
    } else if (!manifest.scalars.empty()) {
        manifest.scalars[bytes.below(manifest.scalars.size())].bits =
            static_cast<uint64_t>(bytes.number());
    }
}

inline void change_file(Bytes& bytes, Manifest& manifest) {
    if (manifest.files.empty()) {
        return;
    }
    StoredFile& file = manifest.files[bytes.below(manifest.files.size())];
    StoredFile& other = manifest.files[bytes.below(manifest.files.size())];
    switch (bytes.below(4)) {
    case 0:
        std::swap(file.name, other.name);
        break;
    case 1:
        std::swap(file.chunks, other.chunks);
        break;
    case 2:
        file.bytes = bytes.number();
        break;
    default:
        manifest.files.push_back(other);
        break;
    }
}

// Sizes and checksums as the files are.
inline void mend(Family& family, const Family::Saved& saved, Manifest& manifest) {
    for (StoredFile& file : manifest.files) {
        const std::string* content = family.files.content(saved.path + "/" + file.name);
        if (content == nullptr || manifest.chunk_bytes < 1) {
            continue;
        }
        const auto chunk = static_cast<std::size_t>(manifest.chunk_bytes);
        file.bytes = static_cast<int64_t>(content->size());
        file.chunks.clear();
        for (std::size_t at = 0; at < content->size() && file.chunks.size() < 4096;) {
            const std::size_t bytes = std::min(chunk, content->size() - at);
            file.chunks.push_back(mp::system::crc32c(0, content->data() + at, bytes));
            at += bytes;
        }
    }
}

// Another manifest with the right checksum, where there is one.
inline void rewrite(Bytes& bytes, Family& family, const Family::Saved& saved,
                    const Family::Saved& other) {
    std::string& text = *manifest_of(family, saved);
    try {
        Manifest manifest = checkpoint::read_manifest(text);
        switch (bytes.below(6)) {
        case 0:
            change_tensor(bytes, manifest);
            break;
        case 1:
            change_number(bytes, manifest);
            break;
        case 2:
            change_file(bytes, manifest);
            break;
        case 3:
            edit(bytes, manifest.recipe);
            break;
        case 4:
            manifest.id = checkpoint::read_manifest(other.files[0].second)
                              .id; // the manifest is the first file
            break;
        default:
            break;
        }
        mend(family, saved, manifest);
        text = checkpoint::manifest_text(manifest);
    } catch (const Error&) { // it was damaged before, or cannot be written
    }
}

inline void mutate(Bytes& bytes, Family& family, const Family::Saved& saved,
                   const Family::Saved& other) {
    const std::size_t file = bytes.below(saved.files.size());
    std::string& content = *family.files.content(saved.files[file].first);
    switch (bytes.below(6)) {
    case 0:
        edit(bytes, content);
        break;
    case 1:
        std::swap(content,
                  *family.files.content(saved.files[bytes.below(saved.files.size())].first));
        break;
    case 2:
        content = other.files[bytes.below(other.files.size())].second;
        break;
    case 3: {
        std::string& text = *manifest_of(family, saved);
        std::string body = text.substr(0, text.rfind(kTail));
        edit(bytes, body);
        text = finish(body);
        break;
    }
    default:
        rewrite(bytes, family, saved, other);
        break;
    }
}

} // namespace mp::fuzz
