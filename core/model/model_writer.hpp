// SPDX-License-Identifier: Apache-2.0
// ModelWriter: a model's files while they are written: first what there will be, then its bytes, in pieces of any order, and at
// the end the files under their names. No more than a piece is ever in memory.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/new_file.hpp"
#include "model/new_model.hpp"
#include "model/written_ranges.hpp"
#include "system/place.hpp"

namespace mp::model {

class TensorSource;

class ModelWriter {
  public:
    // `path`: of the file. max_file_bytes, of safetensors: where the tensors have more bytes they are split over files and an
    // index, as hubs name them; 0: never. Throws where something has the name already, or the directory is missing.
    ModelWriter(system::FileTable& files, const std::string& path, FileFormat format,
                int64_t max_file_bytes);

    [[nodiscard]] const NewModel& model() const noexcept { return model_; }
    // As those of NewModel. Throw bad_state once something was written.
    std::size_t add(std::string_view name, DType dtype, std::span<const int64_t> shape);
    void set(NewValue value);
    // All keys of a model's files that are not set yet, as they are there.
    void copy_values(const TensorSource& files);

    // Bytes of a tensor from `offset` on, as the file has them. What has been written may be written again. Throws
    // invalid_argument, io_error; after that the writer writes nothing more.
    void write(std::size_t index, int64_t offset, const void* data, std::size_t bytes);
    // Its elements from `first` on, whole blocks, as the nearest of its type. Throws invalid_dtype where nothing makes that type
    // of numbers, and invalid_argument for numbers that a block cannot hold; then nothing is written.
    void write_floats(std::size_t index, int64_t first, std::span<const float> values);
    // Throws where it would, whatever the values.
    void check_floats(std::size_t index) const;
    [[nodiscard]] const NewTensor& tensor(std::size_t index) const;

    // All files are on the disk, under their names. Throws bad_state where bytes of a tensor are missing, which may be
    // written then; after an io_error there is nothing left.
    void finish();

  private:
    struct Place {
        std::size_t file = 0;
        int64_t begin = 0; // in the file
        WrittenRanges written;
    };
    enum class State { declaring, writing, finished, failed };

    void require_open() const;
    void require_declaring() const;
    void begin();
    void lay_out(std::size_t file, const std::vector<std::size_t>& tensors);
    [[nodiscard]] std::vector<std::vector<std::size_t>> split() const;
    [[nodiscard]] std::string file_name(std::size_t file, std::size_t count) const;
    [[nodiscard]] std::string index_text(const std::vector<std::vector<std::size_t>>& files) const;
    void check_complete() const;
    template <class Body> void or_fail(const Body& body);

    system::FileTable& table_;
    system::Place where_;
    int64_t max_file_bytes_;
    NewModel model_;
    std::vector<Place> places_; // by tensor, once it is known
    std::unique_ptr<NewFiles> files_;
    State state_ = State::declaring;
};

} // namespace mp::model
