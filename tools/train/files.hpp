// SPDX-License-Identifier: Apache-2.0
// Files that programs leave behind. An earlier file of the name stays until the new one is whole and on the disk, and nothing but
// an ordinary file is ever replaced: no link, no device, no pipe, and nothing that is being read.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace train {

// Grows beside its name, under one that nobody had, and takes the name in commit(). Without that nothing has changed.
class NewFile {
  public:
    // `what` is for messages: "" or "the weights ". Throws a Failure where `path` cannot become such a file.
    NewFile(std::string what, std::string path);
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;
    ~NewFile();

    void write(const void* data, size_t bytes);
    // Where others may append until then.
    [[nodiscard]] int descriptor() const { return file_; }
    [[nodiscard]] bool is_empty() const;
    void commit();

  private:
    [[noreturn]] void fail(const std::string& reason) const;
    // The mode that the new file is to have; none: the usual one.
    [[nodiscard]] std::optional<unsigned> check_place() const;

    std::string what_, path_, folder_, temporary_;
    int file_ = -1;
};

void write_file(const std::string& path, const std::string& content);
// Writes all of it; false, with errno set, where that is not possible.
bool write_all(int file, const char* data, size_t bytes);

// Throws a Failure for an input that is no ordinary file: a pipe, say, may never end. What is missing is for whoever opens it.
void must_be_ordinary(const std::string& what, const std::string& path);
// At the start of a program: files never get the numbers of standard streams that are closed, and streams stay closed.
void reserve_standard_streams();

// A file and the option that names it.
struct NamedFile {
    std::string option, path;
};
// Throws a Failure where an output is one of the inputs, under whatever name, or two outputs are one.
void must_differ(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs);
// The files of a checkpoint, or of all in a folder of them; none where there is no such folder.
std::vector<NamedFile> files_below(const std::string& option, const std::string& folder);

} // namespace train
