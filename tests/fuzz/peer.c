#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hdf5/worker/zygote.h"

#define MOST_KEPT 4096 /* bytes of a message that was sent */
#define MOST_LONG                                                                                  \
    ((size_t)1 << 17) /* bytes of what stands in a message without being in the input */
#define MOST_ITEMS 64 /* in a message */

static const uint8_t *input;
static size_t left;
static struct wire said;   /* and not received yet: */
static size_t said_before; /* these bytes are */
static unsigned char last[MOST_KEPT];
static size_t last_n;
static bool in_pieces;
static int sent_over;

void (*peer_hears)(enum message_kind kind, struct cursor *message);

void peer_begin(const uint8_t *bytes, size_t n)
{
    input = bytes;
    left = n;
    said.n = said_before = last_n = 0;
    said.failed = false;
    in_pieces = peer_byte() & 1;
}

unsigned peer_byte(void)
{
    if (left == 0)
        return 0;
    left--;
    return *input++;
}

int peer_socket(void)
{
    return sent_over;
}

bool peer_is_over(void)
{
    return left == 0;
}

static uint64_t next_bytes(size_t n)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n; i++)
        number |= (uint64_t)peer_byte() << 8 * i;
    return number;
}

uint64_t peer_number(void)
{
    static const uint64_t edges[] = {UINT64_MAX, INT64_MAX, (uint64_t)1 << 63,
                                     UINT32_MAX, INT32_MAX, EIO,
                                     EACCES,     ENOMEM,    ENOSPC,
                                     4096,       65536,     CHANNEL_MOST_READ,
                                     EBADF,      ESTALE,    WIRE_MOST_BYTES,
                                     0};
    unsigned how = peer_byte();
    if (how < 160)
        return how;
    if (how < 200)
        return next_bytes(2);
    if (how < 208)
        return next_bytes(8);
    uint64_t edge = edges[how % 16];
    return how < 224 ? edge : how < 240 ? edge - 1 : edge + 1;
}

static void put_bytes(struct wire *wire, size_t n)
{
    unsigned char *to = wire_room(wire, n);
    for (size_t i = 0; to && i < n; i++)
        to[i] = (unsigned char)peer_byte();
}

static void put_string(struct wire *wire, size_t n)
{
    wire_uint(wire, n + 1);
    put_bytes(wire, n);
}

/* More bytes than an input has. */
static void put_long(struct wire *wire, size_t n)
{
    wire_uint(wire, n);
    unsigned char *to = wire_room(wire, n);
    if (to)
        memset(to, (int)peer_byte(), n);
}

void peer_content(struct wire *wire)
{
    for (int i = 0; i < MOST_ITEMS && left > 0; i++) {
        unsigned item = peer_byte();
        size_t n = item >> 3;
        switch (item & 7) {
        case 0:
            return;
        case 1:
        case 2:
        case 3:
            wire_uint(wire, peer_number());
            break;
        case 4:
            put_string(wire, n);
            break;
        case 5:
            wire_uint(wire, n);
            put_bytes(wire, n);
            break;
        case 6:
            put_bytes(wire, n);
            break;
        default:
            put_long(wire, n * (MOST_LONG / 32));
        }
    }
}

void peer_spoil(struct wire *wire)
{
    for (unsigned times = peer_byte() % 4; times > 0; times--) {
        unsigned how = peer_byte();
        size_t at = (size_t)next_bytes(2);
        if (how < 32)
            wire->n = at < wire->n ? at : wire->n;
        else if (how < 64)
            peer_content(wire);
        else if (how < 160 && wire->n >= sizeof(uint64_t)) { /* integers stand mostly so */
            uint64_t number = peer_number();
            at = at % (wire->n / sizeof(number)) * sizeof(number);
            memcpy(wire->bytes + at, &number, sizeof(number));
        } else if (wire->n > 0) {
            wire->bytes[at % wire->n] = (unsigned char)peer_byte();
        }
    }
}

void peer_say(unsigned kind, const struct wire *wire)
{
    uint64_t header[2] = {kind, wire->n};
    if (kind >= MESSAGE_KINDS)
        header[0] = peer_number(), header[1] = peer_number();
    wire_put(&said, header, sizeof(header));
    wire_put(&said, wire->bytes, wire->n);
    require(!said.failed && !wire->failed);
}

/* ---- What was reached ---- */

static unsigned long reached[WORKER_CALLS][2];

static void print_reached(void)
{
    for (size_t i = 0; i < WORKER_CALLS; i++)
        fprintf(stderr, "call %zu: %lu done, %lu failed\n", i, reached[i][1], reached[i][0]);
}

void peer_note_end(uint64_t call, bool is_done)
{
    static bool is_registered;
    if (!is_registered && getenv("SPARSEFS_FUZZ_REACHED"))
        require(atexit(print_reached) == 0);
    is_registered = true;
    if (call < WORKER_CALLS)
        reached[call][is_done]++;
}

/* ---- What stands in the place of system calls ---- */

ssize_t __wrap_recv(int socket, void *to, size_t n, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *message, int flags);
ssize_t __wrap_writev(int socket, const struct iovec *parts, int n);
int __wrap_zygote_start(struct zygote *zygote, void (*prepare)(void), void (*work)(int socket),
                        size_t memory);
int __wrap_zygote_fork(struct zygote *zygote, pid_t *pid, int *socket);
int __wrap_zygote_end(struct zygote *zygote, pid_t pid, uint64_t patience, struct worker_end *end);

/* What it waits for is said only now. */
static bool say_more(void)
{
    uint64_t kind = MESSAGE_KINDS;
    said.n = said_before = 0;
    if (last_n >= 2 * sizeof(kind))
        memcpy(&kind, last, sizeof(kind));
    struct cursor cursor =
        cursor_over(last + 2 * sizeof(kind), kind < MESSAGE_KINDS ? last_n - 2 * sizeof(kind) : 0);
    return peer_speaks((enum message_kind)kind, &cursor) && said.n > 0;
}

ssize_t __wrap_recv(int socket, void *to, size_t n, int flags)
{
    (void)socket, (void)flags;
    if (said_before == said.n && !say_more())
        return 0;
    size_t there = said.n - said_before;
    n = n < there ? n : there;
    if (in_pieces && n > 1)
        n -= n / 3;
    memcpy(to, said.bytes + said_before, n);
    said_before += n;
    return (ssize_t)n;
}

/* All that were sent at once. */
static void hear(const struct msghdr *sent)
{
    static struct wire heard;
    heard.n = 0;
    for (size_t i = 0; i < sent->msg_iovlen; i++)
        wire_put(&heard, sent->msg_iov[i].iov_base, sent->msg_iov[i].iov_len);
    struct cursor cursor = cursor_over(heard.bytes, heard.n);
    while (cursor.left > 0 && !cursor.failed) {
        uint64_t kind = take_uint(&cursor, MESSAGE_KINDS - 1), n = take_uint(&cursor, SIZE_MAX);
        struct cursor message = cursor_over(cursor.at, (size_t)n);
        cursor_skip(&cursor, n);
        require(!cursor.failed);
        peer_hears((enum message_kind)kind, &message);
    }
}

ssize_t __wrap_writev(int socket, const struct iovec *parts, int n)
{
    return __wrap_sendmsg(
        socket, &(struct msghdr){.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)n}, 0);
}

/* Each is a whole message, or several of which the last has an answer. */
ssize_t __wrap_sendmsg(int socket, const struct msghdr *message, int flags)
{
    (void)flags;
    ssize_t n = 0;
    sent_over = socket;
    last_n = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const struct iovec *part = &message->msg_iov[i];
        size_t room = sizeof(last) - last_n, taken = part->iov_len < room ? part->iov_len : room;
        if (taken > 0)
            memcpy(last + last_n, part->iov_base, taken);
        last_n += taken;
        n += (ssize_t)part->iov_len;
    }
    if (peer_hears)
        hear(message);
    return n;
}

int __wrap_zygote_start(struct zygote *zygote, void (*prepare)(void), void (*work)(int socket),
                        size_t memory)
{
    (void)zygote, (void)prepare, (void)work, (void)memory;
    return 0;
}

int __wrap_zygote_fork(struct zygote *zygote, pid_t *pid, int *socket)
{
    (void)zygote;
    *pid = 1;
    *socket = open("/dev/null", O_RDWR | O_CLOEXEC);
    said.n = said_before = 0; /* another one says something else */
    return *socket < 0 ? -errno : 0;
}

/* A signal, SIGKILL by somebody else included, or an exit code. */
int __wrap_zygote_end(struct zygote *zygote, pid_t pid, uint64_t patience, struct worker_end *end)
{
    (void)zygote;
    require(pid == 1);
    unsigned how = peer_byte();
    end->status = how < 64 ? SIGKILL : how < 128 ? SIGSEGV : (int)(how % 8) << 8;
    end->lived_on = patience == 0 || how < 32;
    said.n = said_before = 0;
    return 0;
}
