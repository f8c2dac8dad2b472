// SPDX-License-Identifier: Apache-2.0
// ModelFiles: the safetensors or GGUF files that a model consists of, which may come from anybody: nothing is believed that the
// files do not bear out, and nothing but headers is read before it is asked for.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "model/header.hpp"
#include "model/name_index.hpp"
#include "system/file.hpp"

namespace mp::model {

class ModelFiles {
  public:
    struct Tensor {
        const FileTensor* entry;
        std::size_t file;
    };
    struct Value {
        const FileValue* entry;
        std::size_t file;
    };

    // One file, with the others where GGUF was split; an index (....index.json) with the files that it names; or a folder: of its
    // index where it has one, else of all its safetensors files, else of its one GGUF. Throws io_error and corrupt_data, which
    // say what a file is that is none.
    ModelFiles(system::FileTable& files, const std::string& path, bool follows_links = true);

    // By files, and by their place in them.
    [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
    [[nodiscard]] std::vector<int64_t> shape(std::size_t index) const;
    // What the files say of themselves, by files and in their order there; a key may be in several files.
    [[nodiscard]] const std::vector<Value>& values() const noexcept { return values_; }
    // The first with this key; `values().size()` where there is none.
    [[nodiscard]] std::size_t find_value(std::string_view key) const noexcept;
    // `tensors().size()` where there is none.
    [[nodiscard]] std::size_t find(std::string_view name) const noexcept;
    [[nodiscard]] const std::string& path(std::size_t file) const { return files_.at(file).path; }
    [[nodiscard]] const Header& header(std::size_t file) const { return files_.at(file).header; }
    // Bytes of one tensor, from `offset` on. Throws invalid_argument for what it does not have, and io_error.
    void read(std::size_t index, int64_t offset, void* data, std::size_t bytes) const;
    // Its elements from `first` on as numbers, exactly; of fp32, fp16, bf16 and types of blocks. Throws invalid_dtype for others.
    void read_floats(std::size_t index, int64_t first, std::span<float> values) const;
    void check_floats(std::size_t index) const; // throws so

  private:
    struct File {
        std::string path;
        system::OpenFile handle;
        Header header;
    };

    void add(const std::string& path);
    void add_folder(const std::string& path);
    void add_index(const std::string& path);
    void add_split(const std::string& path);
    void add_file(const std::string& path);
    void index_names();

    system::FileTable& table_;
    system::OpenMode mode_;
    std::deque<File> files_;
    std::vector<Tensor> tensors_;
    std::vector<Value> values_;
    NameIndex by_name_;
};

} // namespace mp::model
