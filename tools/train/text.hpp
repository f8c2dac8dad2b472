// SPDX-License-Identifier: Apache-2.0
// Text from anybody - names in files, settings in checkpoints, paths - on its way to a terminal, into JSON, SVG, HTML and CSV.
#pragma once

#include <cstdio>
#include <istream>
#include <string>
#include <vector>

namespace train {

// Nothing that steers a terminal (C0, DEL, C1 also as UTF-8) and only UTF-8: control characters become '?', a newline a
// blank, bytes that are no UTF-8 U+FFFD.
std::string clean(const std::string& text);
// The same for text of several lines: newlines and tabs stay.
std::string clean_lines(const std::string& text);
// Whatever goes to the terminal goes through here. Newlines and tabs stay.
void print(FILE* to, const std::string& text);
// JSON as it is written by its library, in which DEL and C1 still stand as they are: they become escapes.
std::string clean_json(const std::string& json);

// For the text of SVG and HTML: what XML 1.0 does not allow is gone, and nothing is markup.
std::string escaped(const std::string& text);

// A field of CSV: in quotes where it needs them (RFC 4180).
std::string csv_field(const std::string& text);
// The next row, over several lines where a quoted field goes on; false at the end. Throws a Failure for rows of more than
// 64 KiB, which no file of ours has, so that memory stays bounded whatever is read.
bool read_csv_row(std::istream& file, std::vector<std::string>& fields);

} // namespace train
