/* Sending and receiving whole messages, until some time. */
#include "hdf5/worker/channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "common/clock.h"

struct header {
    uint64_t kind;
    uint64_t n; /* bytes that follow */
};

#define MOST_MILLIS 60000    /* in one wait */
#define ASK_NANOS   50000000 /* between two questions whether to wait on */

/* While so many bytes are moved. */
struct waiting {
    const struct channel_wait *wait;
    uint64_t asked; /* when it was last, or the waiting began; 0: it has not */
};

/* By the clock: who moves a byte now and then makes no pause to ask in. */
static int go_on(struct waiting *waiting)
{
    const struct channel_wait *wait = waiting->wait;
    if (*wait->until == UINT64_MAX && !wait->ask)
        return 0;
    uint64_t now = clock_now();
    if (waiting->asked == 0)
        waiting->asked = now;
    int error = 0;
    if (wait->ask && (now >= *wait->until || now >= waiting->asked + ASK_NANOS)) {
        waiting->asked = now;
        error = wait->ask(wait->context);
    }
    return error ? error : now >= *wait->until ? -ETIMEDOUT : 0;
}

/* A worker may not poll: it waits in recv and writev. */
static int wait_for(int socket, short events, struct waiting *waiting)
{
    const struct channel_wait *wait = waiting->wait;
    struct pollfd poller = {.fd = socket, .events = events};
    int error = go_on(waiting);
    if (error)
        return error;
    uint64_t now = clock_now(), left = *wait->until > now ? *wait->until - now : 0;
    if (wait->ask && left > ASK_NANOS)
        left = ASK_NANOS;
    uint64_t millis = left / 1000000 + 1;
    int n = poll(&poller, 1, (int)(millis < MOST_MILLIS ? millis : MOST_MILLIS));
    if (n < 0 && errno != EINTR)
        return -errno;
    return n < 0 && wait->ask ? wait->ask(wait->context) : 0;
}

/* After a call that moved no bytes. */
static int look_at(int socket, short events, struct waiting *waiting, ssize_t n)
{
    if (n == 0)
        return -EPIPE;
    if (errno == EAGAIN)
        return wait_for(socket, events, waiting);
    return errno == EINTR ? 0 : errno == ENOMEM || errno == ENOBUFS ? -ENOMEM : -EPIPE;
}

static int send_parts(int socket, struct iovec parts[2], const struct channel_wait *wait)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    struct waiting waiting = {.wait = wait};
    bool waits = *wait->until == UINT64_MAX;
    int error = 0;
    while (!error && parts[0].iov_len + parts[1].iov_len > 0) {
        ssize_t n = waits ? writev(socket, parts, 2)
                          : sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0)
            error = look_at(socket, POLLOUT, &waiting, n);
        for (size_t i = 0; i < 2 && n > 0; i++) {
            size_t part = (size_t)n < parts[i].iov_len ? (size_t)n : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + part;
            parts[i].iov_len -= part;
            n -= (ssize_t)part;
        }
    }
    return error;
}

static int send_message(int socket, enum message_kind kind, const struct wire *wire,
                        const struct channel_wait *wait)
{
    struct header header = {kind, wire->n};
    struct iovec parts[2] = {{&header, sizeof(header)}, {wire->bytes, wire->n}};
    return wire->failed ? -ENOMEM : send_parts(socket, parts, wait);
}

int channel_send(int socket, enum message_kind kind, const struct wire *wire, uint64_t until)
{
    return send_message(socket, kind, wire, &(struct channel_wait){.until = &until});
}

int channel_send_asking(int socket, enum message_kind kind, const struct wire *wire,
                        const struct channel_wait *wait)
{
    return send_message(socket, kind, wire, wait);
}

void channel_put(struct wire *batch, enum message_kind kind, const struct wire *wire)
{
    struct header header = {kind, wire->n};
    wire_put(batch, &header, sizeof(header));
    wire_put(batch, wire->bytes, wire->n);
    batch->failed |= wire->failed;
}

int channel_send_batch(int socket, const struct wire *batch, uint64_t until)
{
    return batch->failed ? -ENOMEM : channel_send_bytes(socket, batch->bytes, batch->n, until);
}

int channel_send_bytes(int socket, const void *bytes, size_t n, uint64_t until)
{
    struct iovec parts[2] = {{(void *)bytes, n}, {NULL, 0}};
    return send_parts(socket, parts, &(struct channel_wait){.until = &until});
}

static int receive_bytes(int socket, void *to, size_t n, const struct channel_wait *wait)
{
    int flags = *wait->until != UINT64_MAX ? MSG_DONTWAIT : MSG_WAITALL, error = 0;
    struct waiting waiting = {.wait = wait};
    for (size_t done = 0; done < n && !error;) {
        ssize_t got = recv(socket, (char *)to + done, n - done, flags);
        if (got <= 0)
            error = look_at(socket, POLLIN, &waiting, got);
        else if ((done += (size_t)got) < n) /* they may come one by one */
            error = go_on(&waiting);
    }
    return error;
}

int channel_receive_bytes(int socket, void *to, size_t n, uint64_t until)
{
    return receive_bytes(socket, to, n, &(struct channel_wait){.until = &until});
}

int channel_receive(int socket, enum message_kind *kind, struct wire *wire, uint64_t until)
{
    return channel_receive_asking(socket, kind, wire, WIRE_MOST_BYTES,
                                  &(struct channel_wait){.until = &until});
}

int channel_receive_asking(int socket, enum message_kind *kind, struct wire *wire, uint64_t most,
                           const struct channel_wait *wait)
{
    struct header header;
    wire->n = 0;
    wire->failed = false;
    int error = receive_bytes(socket, &header, sizeof(header), wait);
    if (error)
        return error;
    if (header.kind >= MESSAGE_KINDS || header.n > most)
        return -EPROTO;
    *kind = (enum message_kind)header.kind;
    error = wait->make_room ? wait->make_room(wait->context, *kind, (size_t)header.n) : 0;
    if (error)
        return error;
    void *to = wire_room(wire, (size_t)header.n);
    return to ? receive_bytes(socket, to, (size_t)header.n, wait) : -ENOMEM;
}
