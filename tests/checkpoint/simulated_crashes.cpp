// SPDX-License-Identifier: Apache-2.0
// What a crash leaves of the simulated file table: its journal, replayed without what was not kept.
#include <algorithm>

#include "checkpoint/simulated_files.hpp"
#include "hash.hpp"

namespace mp::test {
namespace {

void write_into(std::string& content, int64_t offset, const char* data, std::size_t bytes) {
    const auto end = static_cast<std::size_t>(offset) + bytes;
    if (content.size() < end) {
        content.resize(end, '\0');
    }
    content.replace(static_cast<std::size_t>(offset), bytes, data, bytes);
}

bool changes_names(const Op& op) {
    return op.kind == JournalKind::create || op.kind == JournalKind::rename ||
           op.kind == JournalKind::remove;
}

void add_text(Fnv1a& hash, const std::string& text) {
    hash.add_bytes(text.data(), text.size());
    hash.add(0x1FF);
}
void add_node(Fnv1a& hash, const std::vector<Node>& nodes, std::size_t node) {
    add_text(hash, nodes[node].is_directory ? "directory" : "file");
    add_text(hash, nodes[node].content);
    for (const auto& [name, child] : nodes[node].children) {
        add_text(hash, name);
        add_node(hash, nodes, child);
    }
    add_text(hash, "end");
}

} // namespace

void apply_op(std::vector<Node>& nodes, const Op& op, bool half) {
    Node& node = nodes[op.node];
    switch (op.kind) {
    case JournalKind::create:
        nodes[op.other].is_directory = op.is_directory;
        node.children[op.name] = op.other;
        break;
    case JournalKind::write:
        write_into(node.content, op.offset, op.data.data(),
                   half ? op.data.size() / 2 : op.data.size());
        break;
    case JournalKind::rename:
        if (const auto found = node.children.find(op.name); found != node.children.end()) {
            const std::size_t moved = found->second;
            node.children.erase(found);
            nodes[op.other].children[op.other_name] = moved;
        }
        break;
    case JournalKind::remove:
        node.children.erase(op.name);
        break;
    case JournalKind::sync:
    case JournalKind::sync_directory:
        break;
    }
}

std::vector<std::size_t> pending_ops(const std::vector<Op>& journal, std::size_t length) {
    std::vector<std::size_t> pending;
    for (std::size_t i = 0; i < length; ++i) {
        const Op& op = journal[i];
        if (op.kind == JournalKind::sync) {
            std::erase_if(pending, [&](std::size_t j) {
                return journal[j].kind == JournalKind::write && journal[j].node == op.node;
            });
        } else if (op.kind == JournalKind::sync_directory) {
            std::erase_if(pending, [&](std::size_t j) {
                return changes_names(journal[j]) && journal[j].node == op.node;
            });
        } else {
            pending.push_back(i);
        }
    }
    return pending;
}

std::vector<Node> crash_state(const std::vector<Node>& before, const std::vector<Op>& journal,
                              std::size_t length, const std::vector<std::size_t>& pending,
                              uint64_t kept, bool torn) {
    std::vector<Node> nodes = before;
    std::size_t last_write = journal.size();
    for (std::size_t p = 0; p < pending.size(); ++p) {
        if (((kept >> p) & 1) != 0 && journal[pending[p]].kind == JournalKind::write) {
            last_write = pending[p];
        }
    }
    for (std::size_t i = 0, p = 0; i < length; ++i) {
        const Op& op = journal[i];
        if (op.kind == JournalKind::create) {
            nodes.resize(std::max(nodes.size(), op.other + 1));
            nodes[op.other].is_directory = op.is_directory;
        }
        const bool is_pending = p < pending.size() && pending[p] == i;
        const bool is_kept = !is_pending || ((kept >> p) & 1) != 0;
        p += is_pending ? 1 : 0;
        if (is_kept) {
            apply_op(nodes, op, torn && i == last_write);
        }
    }
    return nodes;
}

uint64_t tree_hash(const std::vector<Node>& nodes) {
    Fnv1a hash;
    add_node(hash, nodes, 0);
    return hash.value();
}

} // namespace mp::test
