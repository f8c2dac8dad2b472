// SPDX-License-Identifier: Apache-2.0
#include "sockets.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace mp_test {
namespace {

struct Header {
    uint64_t sequence = 0;
    int64_t bytes = 0;
    int32_t kind = 0;
    int32_t root = 0;
};

// One message: its header, then its payload.
struct Message {
    Header header;
    unsigned char* data = nullptr;
    std::size_t moved = 0; // of header and payload
    [[nodiscard]] std::size_t size() const {
        return sizeof header + static_cast<std::size_t>(header.bytes);
    }
    [[nodiscard]] bool is_done() const { return moved == size(); }
};

// One operation: a message for each peer, and from each.
struct Operation {
    mp_comm_operation what{};
    std::vector<std::unique_ptr<Message>> out; // by peer; null: nothing to that one
    std::vector<std::unique_ptr<Message>> in;
    std::vector<std::vector<uint32_t>> theirs; // of maxima
    [[nodiscard]] bool is_done() const {
        const auto is_moved = [](const auto& m) { return m == nullptr || m->is_done(); };
        return std::all_of(out.begin(), out.end(), is_moved) &&
               std::all_of(in.begin(), in.end(), is_moved);
    }
};

class Rank {
  public:
    Rank(std::vector<int> sockets, int32_t rank, Mesh* spare)
        : sockets_(std::move(sockets)), size_(static_cast<int32_t>(sockets_.size())), rank_(rank),
          spare_(spare) {
        outgoing_.resize(sockets_.size());
        incoming_.resize(sockets_.size());
    }
    ~Rank() {
        for (const int socket : sockets_) {
            (void)close(socket);
        }
    }

    mp_status split(const mp_comm_group& group, mp_comm_callbacks* out) {
        Mesh* sockets = std::exchange(spare_, nullptr);
        if (sockets == nullptr || group.count != size_) {
            return MP_STATUS_UNSUPPORTED;
        }
        *out = socket_callbacks(*sockets, group.rank);
        return MP_STATUS_OK;
    }

    Operation* begin(const mp_comm_operation& what) {
        auto operation = std::make_unique<Operation>();
        operation->what = what;
        operation->out.resize(sockets_.size());
        operation->in.resize(sockets_.size());
        operation->theirs.resize(sockets_.size());
        for (int32_t peer = 0; peer < size_; ++peer) {
            if (peer == rank_) {
                copy_own(what);
            } else {
                add_messages(*operation, peer);
            }
        }
        return operation.release();
    }

    mp_status poll(Operation& operation, int32_t* done) {
        for (std::size_t peer = 0; peer < sockets_.size(); ++peer) {
            mp_status status = pump(outgoing_[peer], sockets_[peer], true);
            if (status == MP_STATUS_OK) {
                status = pump(incoming_[peer], sockets_[peer], false);
            }
            if (status != MP_STATUS_OK) {
                return status;
            }
        }
        *done = operation.is_done() ? 1 : 0;
        if (*done == 1 && operation.what.kind == MP_COMM_MAX_U32) {
            auto* values = static_cast<uint32_t*>(operation.what.receive);
            for (const auto& theirs : operation.theirs) {
                for (std::size_t i = 0; i < theirs.size(); ++i) {
                    values[i] = std::max(values[i], theirs[i]);
                }
            }
        }
        return MP_STATUS_OK;
    }

    void release(Operation* operation) {
        if (!operation->is_done()) {
            abort(); // a message that is half sent can only be followed by the end
            outgoing_.assign(sockets_.size(), {});
            incoming_.assign(sockets_.size(), {});
        }
        delete operation;
    }

    // The peers see the end of their streams.
    void abort() {
        for (const int socket : sockets_) {
            (void)shutdown(socket, SHUT_RDWR);
        }
    }

    void pause(int64_t nanoseconds) {
        std::vector<pollfd> events;
        for (std::size_t peer = 0; peer < sockets_.size(); ++peer) {
            const short wanted = static_cast<short>((incoming_[peer].empty() ? 0 : POLLIN) |
                                                    (outgoing_[peer].empty() ? 0 : POLLOUT));
            events.push_back({wanted == 0 ? -1 : sockets_[peer], wanted, 0});
        }
        const timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
        (void)ppoll(events.data(), events.size(), &time, nullptr);
    }

  private:
    using Queue = std::deque<Message*>;

    static unsigned char* at(const void* base, int64_t bytes, int64_t offset) {
        return bytes == 0
                   ? nullptr
                   : const_cast<unsigned char*>(static_cast<const unsigned char*>(base)) + offset;
    }

    void copy_own(const mp_comm_operation& what) const {
        if (what.kind == MP_COMM_ALL_TO_ALL || what.kind == MP_COMM_ALL_GATHER) {
            const int64_t bytes = what.receive_bytes[rank_];
            const int64_t offset = what.kind == MP_COMM_ALL_TO_ALL ? what.send_offsets[rank_] : 0;
            if (bytes > 0) {
                std::memmove(at(what.receive, bytes, what.receive_offsets[rank_]),
                             at(what.send, bytes, offset), static_cast<std::size_t>(bytes));
            }
        }
    }

    void send(Operation& operation, int32_t peer, unsigned char* data, int64_t bytes) {
        add(operation, operation.out[static_cast<std::size_t>(peer)],
            outgoing_[static_cast<std::size_t>(peer)], data, bytes);
    }
    void receive(Operation& operation, int32_t peer, unsigned char* data, int64_t bytes) {
        add(operation, operation.in[static_cast<std::size_t>(peer)],
            incoming_[static_cast<std::size_t>(peer)], data, bytes);
    }
    static void add(const Operation& operation, std::unique_ptr<Message>& place, Queue& queue,
                    unsigned char* data, int64_t bytes) {
        place = std::make_unique<Message>();
        place->header = {operation.what.sequence, bytes, operation.what.kind, operation.what.root};
        place->data = data;
        queue.push_back(place.get());
    }

    void add_messages(Operation& operation, int32_t peer) {
        const mp_comm_operation& what = operation.what;
        switch (what.kind) {
        case MP_COMM_ALL_TO_ALL:
            send(operation, peer, at(what.send, what.send_bytes[peer], what.send_offsets[peer]),
                 what.send_bytes[peer]);
            receive(operation, peer,
                    at(what.receive, what.receive_bytes[peer], what.receive_offsets[peer]),
                    what.receive_bytes[peer]);
            break;
        case MP_COMM_ALL_GATHER:
            send(operation, peer, at(what.send, what.send_bytes[0], 0), what.send_bytes[0]);
            receive(operation, peer,
                    at(what.receive, what.receive_bytes[peer], what.receive_offsets[peer]),
                    what.receive_bytes[peer]);
            break;
        case MP_COMM_BROADCAST:
            if (rank_ == what.root) {
                send(operation, peer, at(what.receive, 1, 0), what.receive_bytes[0]);
            } else if (peer == what.root) {
                receive(operation, peer, at(what.receive, 1, 0), what.receive_bytes[0]);
            }
            break;
        case MP_COMM_BARRIER:
            send(operation, peer, nullptr, 0);
            receive(operation, peer, nullptr, 0);
            break;
        default: {
            auto& theirs = operation.theirs[static_cast<std::size_t>(peer)];
            theirs.resize(static_cast<std::size_t>(what.count));
            // Sent as it is now: the caller's values change only when all has been sent.
            send(operation, peer, at(what.receive, what.count, 0), 4 * what.count);
            receive(operation, peer, reinterpret_cast<unsigned char*>(theirs.data()),
                    4 * what.count);
        }
        }
    }

    // Moves as many bytes of the queue's messages as the socket takes or has.
    static mp_status pump(Queue& queue, int socket, bool is_out) {
        while (!queue.empty()) {
            Message& message = *queue.front();
            while (!message.is_done()) {
                Header theirs;
                const bool in_header = message.moved < sizeof(Header);
                unsigned char* from =
                    in_header ? reinterpret_cast<unsigned char*>(is_out ? &message.header : &theirs)
                              : message.data - sizeof(Header);
                const std::size_t end = in_header ? sizeof(Header) : message.size();
                const ssize_t moved = is_out
                                          ? ::send(socket, from + message.moved,
                                                   end - message.moved, MSG_NOSIGNAL | MSG_DONTWAIT)
                                          : recv(socket, from + message.moved, end - message.moved,
                                                 MSG_DONTWAIT | (in_header ? MSG_PEEK : 0));
                if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
                    return MP_STATUS_OK;
                }
                if (moved <= 0) {
                    return MP_STATUS_PEER_LOST;
                }
                if (!is_out && in_header) { // looked at until it is whole
                    if (moved < static_cast<ssize_t>(sizeof(Header))) {
                        return MP_STATUS_OK;
                    }
                    if (std::memcmp(&theirs, &message.header, sizeof theirs) != 0) {
                        return MP_STATUS_RANK_MISMATCH;
                    }
                    (void)recv(socket, &theirs, sizeof theirs, MSG_DONTWAIT);
                }
                message.moved += static_cast<std::size_t>(moved);
            }
            queue.pop_front();
        }
        return MP_STATUS_OK;
    }

    std::vector<int> sockets_; // by peer
    int32_t size_;
    int32_t rank_;
    Mesh* spare_;
    std::vector<Queue> outgoing_;
    std::vector<Queue> incoming_;
};

} // namespace

Mesh::Mesh(int32_t size)
    : size_(size), sockets_(static_cast<std::size_t>(size) * static_cast<std::size_t>(size), -1) {
    for (int32_t a = 0; a < size; ++a) {
        for (int32_t b = a + 1; b < size; ++b) {
            std::array<int, 2> pair{};
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) == 0) {
                sockets_[static_cast<std::size_t>(a * size + b)] = pair[0];
                sockets_[static_cast<std::size_t>(b * size + a)] = pair[1];
            }
        }
    }
}

Mesh::~Mesh() { close_all(); }

void Mesh::close_all() {
    for (int& socket : sockets_) {
        if (socket >= 0) {
            (void)close(socket);
        }
        socket = -1;
    }
}

std::vector<int> Mesh::keep(int32_t rank) {
    const auto first = sockets_.begin() + rank * size_;
    std::vector<int> own(first, first + size_);
    std::fill(first, first + size_, -1);
    close_all();
    return own;
}

mp_comm_callbacks socket_callbacks(Mesh& mesh, int32_t rank, Mesh* spare) {
    mp_comm_callbacks table = MP_COMM_CALLBACKS_INIT;
    table.rank = rank;
    table.size = mesh.size();
    table.name = "sockets";
    table.flags = MP_COMM_TAKES_ANY_THREAD; // nothing here belongs to a thread
    table.payload = new Rank(mesh.keep(rank), rank, spare);
    table.begin = [](const mp_comm_operation* operation, void** request, void* payload) {
        *request = static_cast<Rank*>(payload)->begin(*operation);
        return MP_STATUS_OK;
    };
    table.poll = [](void* request, int32_t* done, void* payload) {
        return static_cast<Rank*>(payload)->poll(*static_cast<Operation*>(request), done);
    };
    table.release = [](void* request, void* payload) {
        static_cast<Rank*>(payload)->release(static_cast<Operation*>(request));
    };
    table.abort = [](mp_status, const char*, void* payload) {
        static_cast<Rank*>(payload)->abort();
    };
    table.pause = [](int64_t nanoseconds, void* payload) {
        static_cast<Rank*>(payload)->pause(nanoseconds);
    };
    table.split = [](const mp_comm_group* group, mp_comm_callbacks* out, void* payload) {
        return static_cast<Rank*>(payload)->split(*group, out);
    };
    table.destroy = [](void* payload) { delete static_cast<Rank*>(payload); };
    return table;
}

} // namespace mp_test
