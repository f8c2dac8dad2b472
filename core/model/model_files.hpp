// SPDX-License-Identifier: Apache-2.0
// ModelFiles: the safetensors or GGUF files that a model consists of, which may come from anybody: nothing is believed that the
// files do not bear out, and nothing but headers is read before it is asked for.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "model/header.hpp"
#include "model/name_index.hpp"
#include "model/tensor_source.hpp"
#include "system/file.hpp"

namespace mp::model {

class ModelFiles final : public TensorSource {
  public:
    struct Tensor {
        const FileTensor* entry;
        std::size_t file;
    };

    // One file, with the others where GGUF was split; an index (....index.json) with the files that it names; or a folder: of its
    // index where it has one, else of all its safetensors files, else of its one GGUF. Throws io_error and corrupt_data, which
    // say what a file is that is none.
    ModelFiles(system::FileTable& files, const std::string& path, bool follows_links = true);

    // By files, and by their place in them.
    [[nodiscard]] const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
    [[nodiscard]] std::vector<int64_t> shape(std::size_t index) const;
    [[nodiscard]] std::size_t count() const noexcept override { return tensors_.size(); }
    [[nodiscard]] TensorFacts facts(std::size_t index) const override;
    [[nodiscard]] std::size_t find(std::string_view name) const noexcept override;
    [[nodiscard]] const std::vector<Value>& values() const noexcept override { return values_; }
    [[nodiscard]] std::size_t find_value(std::string_view key) const noexcept override;
    [[nodiscard]] const std::string& path(std::size_t file) const override {
        return files_.at(file).path;
    }
    [[nodiscard]] const Header& header(std::size_t file) const override {
        return files_.at(file).header;
    }

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
    void read_bytes(std::size_t index, int64_t offset, void* data,
                    std::size_t bytes) const override;

    system::FileTable& table_;
    system::OpenMode mode_;
    std::deque<File> files_;
    std::vector<Tensor> tensors_;
    std::vector<Value> values_;
    NameIndex by_name_;
};

} // namespace mp::model
