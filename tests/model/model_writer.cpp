// SPDX-License-Identifier: Apache-2.0
// Files of models that are written: every call of the file table fails once, or from then on, and nothing has a final name then;
// what was written is read again; headers are what they should be.
#include "model/model_writer.hpp"

#include <gtest/gtest.h>

#include "checkpoint/simulated_files.hpp"
#include "model/model_files.hpp"

using namespace mp;
using namespace mp::model;
using namespace mp::test;

namespace {

const std::string kContent = "0123456789abcdefghijklmnopqrstuvwxyzABCD"; // 40 bytes

struct Case {
    FileFormat format;
    int64_t max_file_bytes;
    std::vector<std::string> names; // of the files that it leaves
};
const Case kCases[] = {
    {FileFormat::safetensors, 0, {"m.safetensors"}},
    {FileFormat::gguf, 0, {"m.gguf"}},
    {FileFormat::safetensors,
     60,
     {"m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors", "m.safetensors.index.json"}}};

std::string path_of(const Case& c) {
    return c.format == FileFormat::gguf ? "/d/m.gguf" : "/d/m.safetensors";
}

std::unique_ptr<ModelWriter> declared(SimulatedFiles& files, const Case& c) {
    auto writer = std::make_unique<ModelWriter>(files, path_of(c), c.format, c.max_file_bytes);
    const int64_t shape[] = {2, 5};
    const int64_t bytes[] = {40};
    NewValue value;
    value.key = "k";
    value.texts = {"v"};
    writer->set(value);
    (void)writer->add("a", DType::fp32, shape);
    (void)writer->add("b", DType::int8, bytes);
    return writer;
}

// In pieces, from the end on.
void write_all(SimulatedFiles& files, const Case& c) {
    const auto writer = declared(files, c);
    for (int64_t at = 36; at >= 0; at -= 12) {
        const auto n = static_cast<std::size_t>(std::min<int64_t>(12, 40 - at));
        writer->write(0, at, kContent.data() + at, n);
        writer->write(1, at, kContent.data() + at, n);
    }
    writer->finish();
}

std::vector<std::string> names_in(SimulatedFiles& files) {
    std::vector<std::string> names;
    EXPECT_TRUE(files.list("/d", &names).ok());
    return names;
}

// A model's files, which are whole.
void expect_whole(const ModelFiles& model) {
    for (const char* name : {"a", "b"}) {
        std::string got(40, '\0');
        model.read(model.find(name), 0, got.data(), got.size());
        EXPECT_EQ(got, kContent);
    }
    EXPECT_EQ(model.shape(model.find("a")), (std::vector<int64_t>{2, 5}));
    EXPECT_EQ(model.header(0).metadata("k"), "v");
}

void expect_written(SimulatedFiles& files, const Case& c) {
    EXPECT_EQ(names_in(files), c.names);
    expect_whole(ModelFiles(files, "/d"));
}

// Of a file system that does not take names back: a reader finds no model, or a whole one.
void expect_whole_or_refused(SimulatedFiles& files) {
    std::unique_ptr<ModelFiles> model;
    try {
        model = std::make_unique<ModelFiles>(files, "/d");
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), Code::io_error);
        return;
    }
    expect_whole(*model);
}

// How many calls it takes.
int64_t fail_every_call(const Case& c, Fault fault, bool for_ever) {
    for (int64_t k = 1;; ++k) {
        SimulatedFiles files;
        EXPECT_TRUE(files.make_directory("/d").ok());
        files.fail_at(k, fault, for_ever);
        bool is_written = true;
        try {
            write_all(files, c);
        } catch (const Error& error) {
            is_written = false;
            EXPECT_NE(error.status().text()[0], '\0');
        }
        const bool reached = files.calls() >= k;
        files.fail_at(0, Fault::none);
        EXPECT_EQ(files.open_handles(), 0) << k;
        if (is_written) {
            expect_written(files, c);
        } else if (for_ever) {
            expect_whole_or_refused(files);
        } else {
            EXPECT_TRUE(names_in(files).empty()) << k << ": " << names_in(files).front();
        }
        if (!reached) {
            EXPECT_TRUE(is_written);
            return k;
        }
    }
}

void expect_state(const std::function<void()>& body, Code code, const char* words) {
    try {
        body();
        ADD_FAILURE() << "taken: " << words;
    } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), code) << error.what();
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
}

} // namespace

TEST(ModelWriter, NothingHasAFinalNameWhereACallFails) {
    for (const Case& c : kCases) {
        for (const Fault fault : {Fault::error, Fault::torn}) {
            EXPECT_GT(fail_every_call(c, fault, false), 12);
        }
        EXPECT_GT(fail_every_call(c, Fault::error, true), 12);
    }
}

// Whatever of what was not synced a crash has kept, and also half of a write.
TEST(ModelWriter, ACrashLeavesAWholeModelOrNone) {
    for (const Case& c : kCases) {
        SimulatedFiles first;
        ASSERT_TRUE(first.make_directory("/d").ok());
        SimulatedFiles files(first.nodes());
        write_all(files, c);
        for (std::size_t length = 0; length <= files.journal().size(); ++length) {
            const std::vector<std::size_t> pending = pending_ops(files.journal(), length);
            const std::size_t some = std::min<std::size_t>(pending.size(), 10); // the first ones
            for (uint64_t kept = 0; kept < uint64_t{1} << some; ++kept) {
                for (const bool torn : {false, true}) {
                    SimulatedFiles left(crash_state(first.nodes(), files.journal(), length, pending,
                                                    kept | ~uint64_t{0} << some, torn));
                    expect_whole_or_refused(left);
                }
            }
            ASSERT_FALSE(HasFailure()) << "after " << length << " operations";
        }
        SimulatedFiles end(crash_state(first.nodes(), files.journal(), files.journal().size(),
                                       pending_ops(files.journal(), files.journal().size()), 0,
                                       false));
        expect_written(end, c);
    }
}

TEST(ModelWriter, AFailureIsFinal) {
    SimulatedFiles files;
    ASSERT_TRUE(files.make_directory("/d").ok());
    const auto writer = declared(files, kCases[0]);
    writer->write(0, 0, kContent.data(), 40);
    files.fail_at(1, Fault::torn);
    expect_state([&] { writer->write(1, 0, kContent.data(), 40); }, Code::io_error, "simulated");
    EXPECT_TRUE(names_in(files).empty());
    const char* const gone = "could not be written";
    expect_state([&] { writer->write(1, 0, kContent.data(), 40); }, Code::bad_state, gone);
    expect_state([&] { writer->finish(); }, Code::bad_state, gone);
}

TEST(ModelWriter, AWriterThatIsDroppedLeavesNothing) {
    for (const Case& c : kCases) {
        SimulatedFiles files;
        ASSERT_TRUE(files.make_directory("/d").ok());
        {
            const auto writer = declared(files, c);
            EXPECT_TRUE(names_in(files).empty());
            writer->write(0, 4, kContent.data(), 8);
            EXPECT_EQ(names_in(files).size(), c.names.size());
        }
        EXPECT_TRUE(names_in(files).empty());
        EXPECT_EQ(files.open_handles(), 0);
    }
}

TEST(ModelWriter, WhatIsMissingIsNamedAndMayFollow) {
    for (const Case& c : kCases) {
        SimulatedFiles files;
        ASSERT_TRUE(files.make_directory("/d").ok());
        const auto writer = declared(files, c);
        expect_state([&] { writer->finish(); }, Code::bad_state, "2 of 2 tensors");
        writer->write(1, 0, kContent.data(), 40);
        writer->write(0, 0, kContent.data(), 10);
        writer->write(0, 20, kContent.data() + 20, 10);
        writer->write(0, 5, kContent.data() + 5, 7); // again
        expect_state([&] { writer->finish(); }, Code::bad_state,
                     "'a', of 40 bytes, lacks those from byte 12 on");
        writer->write(0, 30, kContent.data() + 30, 10);
        writer->write(0, 11, kContent.data() + 11, 10);
        writer->finish();
        expect_written(files, c);
        expect_state([&] { writer->finish(); }, Code::bad_state, "is finished");
        expect_state([&] { writer->write(0, 0, "", 1); }, Code::bad_state, "is finished");
    }
}

// Whichever of the names something gets meanwhile: it stays as it is.
TEST(ModelWriter, NothingIsOverwritten) {
    for (const Case& c : kCases) {
        for (const std::string& name : c.names) {
            SimulatedFiles files;
            ASSERT_TRUE(files.make_directory("/d").ok());
            const auto writer = declared(files, c);
            writer->write(0, 0, kContent.data(), 40);
            writer->write(1, 0, kContent.data(), 40);
            {
                system::OpenFile other(files, system::kCurrentDirectory, "/d/" + name,
                                       system::OpenMode::create_new);
                ASSERT_TRUE(files.write(other.handle(), 0, "x", 1).ok());
            }
            expect_state([&] { writer->finish(); }, Code::io_error, "exists");
            EXPECT_EQ(names_in(files), std::vector<std::string>{name});
            EXPECT_EQ(*files.content("/d/" + name), "x");
            expect_state([&] { write_all(files, c); }, Code::invalid_argument, name.c_str());
        }
    }
}

TEST(ModelWriter, TheLargestHeaderIsWhatReadersTake) {
    SimulatedFiles files;
    ASSERT_TRUE(files.make_directory("/d").ok());
    for (const Case& c : {kCases[0], kCases[1]}) {
        const auto writer = declared(files, c);
        NewValue value;
        value.key = "long";
        value.texts = {std::string(static_cast<std::size_t>(kMaxHeaderBytes), 'x')};
        writer->set(std::move(value));
        expect_state([&] { writer->write(0, 0, kContent.data(), 40); }, Code::invalid_argument,
                     "readers take at most");
        EXPECT_TRUE(names_in(files).empty());
    }
}

TEST(WrittenRanges, AreJoined) {
    WrittenRanges ranges;
    EXPECT_EQ(ranges.first_gap(), 0);
    for (const auto& [begin, end, bytes] : {std::array<int64_t, 3>{10, 20, 10},
                                            {30, 40, 20},
                                            {20, 25, 25},
                                            {5, 5, 25},
                                            {0, 10, 35},
                                            {12, 35, 40},
                                            {50, 60, 50},
                                            {39, 51, 60},
                                            {0, 60, 60},
                                            {70, 80, 70}}) {
        ranges.add(begin, end);
        EXPECT_EQ(ranges.bytes(), bytes) << begin << ", " << end;
    }
    EXPECT_EQ(ranges.first_gap(), 60);
}
