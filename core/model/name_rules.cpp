// SPDX-License-Identifier: Apache-2.0
#include "model/name_rules.hpp"

#include <algorithm>
#include <charconv>
#include <cstdarg>
#include <string>

#include "status/status.hpp"
#include "system/json_writer.hpp"
#include "system/name.hpp"

namespace mp::model {
namespace {

struct Operation {
    std::string_view name;
    ViewKind kind;
    const char* form;
};
constexpr Operation kOperations[] = {
    {"join", ViewKind::join, "join(EXPR, EXPR, ...)"},
    {"rows", ViewKind::rows, "rows(EXPR, FIRST:END) or rows(EXPR, PART/PARTS)"},
    {"transpose", ViewKind::transpose, "transpose(EXPR)"},
    {"half_to_pairs", ViewKind::half_to_pairs, "half_to_pairs(EXPR, HEADS)"},
    {"pairs_to_half", ViewKind::pairs_to_half, "pairs_to_half(EXPR, HEADS)"}};

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kEnds = " \t\r=(),#\""; // of a name

// One line.
class RuleReader {
  public:
    RuleReader(std::string_view text, int64_t line) : text_(text), line_(line) { skip(); }

    [[nodiscard]] bool is_at_end() const noexcept { return at_ == text_.size(); }

    NameRule read() {
        NameRule rule;
        rule.line = line_;
        rule.target = name("the name that there is to be");
        expect('=', "behind the name that there is to be");
        rule.source = expression(1);
        if (!is_at_end()) {
            refuse("the end of the line, or a comment");
        }
        check_stars(rule.target, rule.source);
        return rule;
    }

  private:
    [[noreturn, gnu::format(printf, 2, 3)]] void fault(const char* format, ...) const {
        va_list arguments;
        va_start(arguments, format);
        const Status status = Status::verror(Code::invalid_argument, format, arguments);
        va_end(arguments);
        fail(Code::invalid_argument, "model map: line %lld: %.700s", static_cast<long long>(line_),
             status.text());
    }
    [[noreturn]] void refuse(const char* wanted) const {
        const std::string_view rest = text_.substr(at_);
        if (rest.empty()) {
            fault("it ends where %.200s must stand", wanted);
        }
        fault("'%.*s' stands where %.200s must", system::shown(rest, 60), rest.data(), wanted);
    }

    // Blanks, and a comment.
    void skip() {
        at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size());
        if (at_ < text_.size() && text_[at_] == '#') {
            at_ = text_.size();
        }
    }
    bool take(char c) {
        if (is_at_end() || text_[at_] != c) {
            return false;
        }
        ++at_;
        skip();
        return true;
    }
    void expect(char c, const char* where) {
        if (!take(c)) {
            const std::string wanted = std::string("'") + c + "', " + where + ",";
            refuse(wanted.c_str());
        }
    }

    // In quotes a name may have any characters but these, and a star is a star.
    NamePattern quoted() {
        const std::size_t end = text_.find('"', at_ + 1);
        if (end == std::string_view::npos) {
            fault("a name in quotes has no end");
        }
        const std::string_view text = text_.substr(at_ + 1, end - at_ - 1);
        if (text.empty()) {
            fault("a name in quotes is empty");
        }
        at_ = end + 1;
        skip();
        return {text, true};
    }
    std::string_view word() {
        const std::size_t end = std::min(text_.find_first_of(kEnds, at_), text_.size());
        const std::string_view text = text_.substr(at_, end - at_);
        at_ = end;
        skip();
        return text;
    }
    NamePattern name(const char* what) {
        if (!is_at_end() && text_[at_] == '"') {
            return quoted();
        }
        const std::size_t begin = at_;
        const std::string_view text = word();
        if (text.empty()) {
            at_ = begin;
            refuse(what);
        }
        if (text.find("**") != std::string_view::npos) {
            fault("'%.*s' has two stars side by side, so none says where it ends",
                  system::shown(text, 200), text.data());
        }
        NamePattern pattern(text, false);
        if (pattern.stars() > kMostStars) {
            fault("'%.*s' has %zu stars; there may be %zu", system::shown(text, 200), text.data(),
                  pattern.stars(), kMostStars);
        }
        return pattern;
    }
    int64_t number(const char* what) {
        int64_t value = 0;
        const char* end = text_.data() + text_.size();
        const auto [stop, error] = std::from_chars(text_.data() + at_, end, value);
        if (error != std::errc{} || value < 0) {
            refuse(what);
        }
        at_ = static_cast<std::size_t>(stop - text_.data());
        skip();
        return value;
    }

    ViewExpression expression(int32_t depth) {
        if (depth > kMostViewDepth) {
            fault("operations are nested more than %d deep", kMostViewDepth - 1);
        }
        const std::size_t begin = at_;
        ViewExpression result;
        result.name = name("a name or an operation");
        if (text_[begin] == '"' || !take('(')) {
            return result;
        }
        const Operation& operation = operation_of(result.name.text());
        result = {};
        result.kind = operation.kind;
        result.parts.push_back(expression(depth + 1));
        while (operation.kind == ViewKind::join && take(',')) {
            if (result.parts.size() == kMostJoined) {
                fault("more than %zu are joined; join joins", kMostJoined);
            }
            result.parts.push_back(expression(depth + 1));
        }
        read_numbers(result);
        expect(')', operation.form);
        return result;
    }
    [[nodiscard]] const Operation& operation_of(std::string_view name) const {
        for (const Operation& operation : kOperations) {
            if (operation.name == name) {
                return operation;
            }
        }
        fault("there is no '%.*s('; operations are join, rows, transpose, half_to_pairs and "
              "pairs_to_half, and a name with ( stands in quotes",
              system::shown(name, 200), name.data());
    }
    void read_numbers(ViewExpression& of) {
        if (of.kind == ViewKind::half_to_pairs || of.kind == ViewKind::pairs_to_half) {
            expect(',', "before the number of heads");
            of.first = number("the number of heads");
            if (of.first == 0) {
                fault("there are 0 heads; there must be 1 or more");
            }
        } else if (of.kind == ViewKind::rows) {
            expect(',', "before FIRST:END or PART/PARTS");
            of.first = number("FIRST:END or PART/PARTS, numbers from 0 on,");
            of.kind = take('/') ? ViewKind::part : ViewKind::rows;
            if (of.kind == ViewKind::rows) {
                expect(':', "of FIRST:END, or '/' of PART/PARTS");
            }
            of.second = number("the number behind it");
            if (of.kind == ViewKind::part ? of.first >= of.second : of.first > of.second) {
                fault(of.kind == ViewKind::part ? "part %lld of %lld: parts count from 0"
                                                : "rows %lld to %lld: the end is before the first",
                      static_cast<long long>(of.first), static_cast<long long>(of.second));
            }
        }
    }

    void check_stars(const NamePattern& target, const ViewExpression& source) const {
        for (const ViewExpression& part : source.parts) {
            check_stars(target, part);
        }
        if (source.kind == ViewKind::name && source.name.stars() != target.stars()) {
            fault(
                "'%.200s' has %zu stars and '%.200s' %zu; all names of a rule have the same number",
                target.text().c_str(), target.stars(), source.name.text().c_str(),
                source.name.stars());
        }
    }

    std::string_view text_;
    int64_t line_;
    std::size_t at_ = 0;
};

} // namespace

std::vector<NameRule> read_name_rules(std::string_view text) {
    if (text.size() > kMostRulesBytes) {
        fail(Code::invalid_argument, "model map: the rules have %zu bytes; there may be %zu",
             text.size(), kMostRulesBytes);
    }
    if (!system::is_utf8(text) || text.find('\0') != std::string_view::npos) {
        fail(Code::invalid_argument,
             "model map: the rules, of %zu bytes, are not UTF-8, or have a zero byte", text.size());
    }
    std::vector<NameRule> rules;
    std::size_t patterns = 0;
    int64_t line = 0;
    for (std::size_t begin = 0; begin < text.size(); ++line) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        RuleReader reader(text.substr(begin, end - begin), line + 1);
        begin = end + 1;
        if (reader.is_at_end()) {
            continue;
        }
        rules.push_back(reader.read());
        patterns += rules.back().target.stars() > 0 ? 1 : 0;
        if (patterns > kMostPatternRules) {
            fail(Code::invalid_argument,
                 "model map: line %lld: more than %zu rules have stars; name the tensors instead",
                 static_cast<long long>(line + 1), kMostPatternRules);
        }
    }
    if (rules.empty()) {
        fail(Code::invalid_argument,
             "model map: there is no rule; one is a line such as \"new.name = old.name\"");
    }
    return rules;
}

const NamePattern& first_name(const ViewExpression& expression) noexcept {
    const ViewExpression* at = &expression;
    while (at->kind != ViewKind::name) {
        at = &at->parts.front();
    }
    return at->name;
}

} // namespace mp::model
