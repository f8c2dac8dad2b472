// SPDX-License-Identifier: Apache-2.0
#include "model/mapped_tensors.hpp"

#include <map>
#include <utility>

#include "status/status.hpp"
#include "system/name.hpp"

namespace mp::model {
namespace {

// A file may have many tensors, and rules take each one again: what is made of both has an end.
constexpr std::size_t kMostViews = std::size_t{1} << 20;
constexpr std::size_t kMostNamesBytes = std::size_t{1} << 26;
// Each read goes through all of them.
constexpr int32_t kMostMaps = 64;

std::size_t views_in(const ViewExpression& expression) noexcept {
    std::size_t views = 1;
    for (const ViewExpression& part : expression.parts) {
        views += views_in(part);
    }
    return views;
}

} // namespace

// The tensors, rule by rule.
class MappedTensors::Builder {
  public:
    explicit Builder(const TensorSource& origin) : origin_(origin), used_(origin.count(), 0) {
        for (std::size_t i = 0; i < origin.count(); ++i) {
            names_.push_back(origin.facts(i).name);
        }
    }

    void add(const NameRule& rule) {
        line_ = rule.line;
        try {
            if (rule.target.stars() == 0) {
                add_literal(rule);
            } else {
                add_pattern(rule);
            }
        } catch (const Error& error) {
            fail(error.status().code(), "model map: line %lld: %.900s",
                 static_cast<long long>(line_), error.what());
        }
        for (const std::size_t source : taken_) {
            used_[source] = 1;
        }
        taken_.clear();
    }
    std::vector<Mapped> take() { return std::move(tensors_); }

  private:
    void add_literal(const NameRule& rule) {
        if (const auto made = lines_.find(rule.target.text()); made != lines_.end()) {
            fail(Code::invalid_argument,
                 "'%.200s' is there already, by line %lld; only a rule with stars is passed over "
                 "then, so name it first, or once",
                 rule.target.text().c_str(), static_cast<long long>(made->second));
        }
        put(rule.target.text(), rule.source, {});
    }

    void add_pattern(const NameRule& rule) {
        const NamePattern& first = first_name(rule.source);
        const bool renames = rule.source.kind == ViewKind::name;
        bool has_matched = false;
        std::vector<std::string_view> stars;
        for (std::size_t i = 0; i < names_.size(); ++i) {
            if (!first.match(names_[i], stars)) {
                continue;
            }
            has_matched = true;
            std::string target = rule.target.fill(stars);
            const auto made = lines_.find(target);
            if (made != lines_.end() && made->second == line_) {
                fail(Code::invalid_argument,
                     "it gives the name '%.200s' to two tensors, the second of which is '%.200s'",
                     target.c_str(), std::string(names_[i]).c_str());
            }
            if (made == lines_.end() && !(renames && used_[i] != 0)) {
                put(std::move(target), rule.source, stars);
            }
        }
        if (!has_matched) {
            fail(Code::unknown_name, "no tensor has a name such as '%.200s'", first.text().c_str());
        }
    }

    void put(std::string name, const ViewExpression& source,
             const std::vector<std::string_view>& stars) {
        views_ += views_in(source);
        names_bytes_ += name.size();
        if (views_ > kMostViews || names_bytes_ > kMostNamesBytes) {
            fail(Code::invalid_argument,
                 "the rules make more than can be kept: %zu tensors and operations, or names of "
                 "%zu bytes",
                 kMostViews, kMostNamesBytes);
        }
        Mapped made;
        made.view = view(source, stars);
        made.file = origin_.facts(made.view->first_source()).file;
        made.name = std::move(name);
        lines_.emplace(made.name, line_);
        tensors_.push_back(std::move(made));
    }

    TensorViewPtr view(const ViewExpression& of, const std::vector<std::string_view>& stars) {
        if (of.kind == ViewKind::name) {
            return source(of.name.fill(stars));
        }
        std::vector<TensorViewPtr> parts;
        parts.reserve(of.parts.size());
        for (const ViewExpression& part : of.parts) {
            parts.push_back(view(part, stars));
        }
        switch (of.kind) {
        case ViewKind::rows:
            return rows_of(std::move(parts.front()), of.first, of.second);
        case ViewKind::part:
            return part_of(std::move(parts.front()), of.first, of.second);
        case ViewKind::transpose:
            return transposed(std::move(parts.front()));
        case ViewKind::half_to_pairs:
            return half_to_pairs(std::move(parts.front()), of.first);
        case ViewKind::pairs_to_half:
            return pairs_to_half(std::move(parts.front()), of.first);
        default:
            return join_views(std::move(parts));
        }
    }

    TensorViewPtr source(const std::string& name) {
        const std::size_t found = origin_.find(name);
        if (found == origin_.count()) {
            fail(Code::unknown_name, "there is no tensor '%.300s'", name.c_str());
        }
        taken_.push_back(found);
        return view_of(origin_, found);
    }

    const TensorSource& origin_;
    int64_t line_ = 0;
    std::vector<std::string_view> names_; // of the origin's
    std::vector<char> used_;              // of the origin's, whether a rule before has taken it
    std::vector<std::size_t> taken_;      // by this rule
    std::map<std::string, int64_t>
        lines_; // of the names that are there; hashes could be made to collide
    std::vector<Mapped> tensors_;
    std::size_t views_ = 0;
    std::size_t names_bytes_ = 0;
};

MappedTensors::MappedTensors(std::shared_ptr<const TensorSource> origin, std::string_view rules)
    : origin_(std::move(origin)) {
    const auto* const below = dynamic_cast<const MappedTensors*>(origin_.get());
    depth_ = below != nullptr ? below->depth_ + 1 : 1;
    if (depth_ > kMostMaps) {
        fail(Code::invalid_argument,
             "model map: it would be the %dth over each other; %d may be, so put rules together",
             static_cast<int>(depth_), static_cast<int>(kMostMaps));
    }
    Builder builder(*origin_);
    for (const NameRule& rule : read_name_rules(rules)) {
        builder.add(rule);
    }
    tensors_ = builder.take();
    by_name_.build(tensors_.size(),
                   [this](std::size_t i) { return std::string_view(tensors_[i].name); });
}

TensorFacts MappedTensors::facts(std::size_t index) const {
    const Mapped& tensor = tensors_.at(index);
    return {tensor.name, tensor.view->type(), tensor.view->shape(), tensor.view->bytes(),
            tensor.file};
}

std::size_t MappedTensors::find(std::string_view name) const noexcept {
    const uint32_t found =
        by_name_.find(name, [this](std::size_t i) { return std::string_view(tensors_[i].name); });
    return found == NameIndex::kNone ? tensors_.size() : found;
}

void MappedTensors::read_bytes(std::size_t index, int64_t offset, void* data,
                               std::size_t bytes) const {
    tensors_[index].view->read(offset, static_cast<unsigned char*>(data),
                               static_cast<int64_t>(bytes));
}

} // namespace mp::model
