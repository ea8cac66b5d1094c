/* libFuzzer: what a process for plugins is told, and what stands in the memory that it shares: it
 * answers each call with a reply, and writes nothing but what it was told there is room for. It has
 * no plugin, and is not confined, here. */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hdf5/local.h"
#include "hdf5/worker/client.h"
#include "hdf5/worker/confine.h"
#include "hdf5/worker/plugin_pool.h"
#include "hdf5/worker/plugin_serve.h"
#include "peer.h"

#define ROOM       ((size_t)64 << 10) /* bytes that are shared */
#define MOST_BYTES 4000
#define UNTOUCHED  0xA5

static jmp_buf end;
static unsigned char *shared;
static unsigned asked_for; /* enum plugin_call */
static size_t room_end;    /* where the room ends that it was told of; 0: nothing was asked for */

void __wrap__exit(int status) __attribute__((noreturn));
bool __wrap_descriptor_receive(int socket, void *bytes, size_t n, int *fd);
void __wrap_confine_surroundings(void);
bool __wrap_confine_worker(size_t memory);

void __wrap__exit(int status)
{
    (void)status;
    longjmp(end, 1);
}

bool __wrap_descriptor_receive(int socket, void *bytes, size_t n, int *fd)
{
    size_t room = ROOM;
    (void)socket;
    *fd = memfd_create("fuzz", MFD_CLOEXEC);
    require(*fd >= 0 && ftruncate(*fd, (off_t)ROOM) == 0 && n == sizeof(room));
    memcpy(bytes, &room, n);
    shared = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    require(shared != MAP_FAILED);
    return true;
}

void __wrap_confine_surroundings(void)
{
}

bool __wrap_confine_worker(size_t memory)
{
    (void)memory;
    return true;
}

/* What it has when it ends is its own affair. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

/* ---- Calls ---- */

static void put_load(struct wire *wire)
{
    wire_uint(wire, peer_number());
    unsigned folders = peer_byte() % 4, ids = peer_byte() % 8;
    wire_uint(wire, folders);
    for (unsigned i = 0; i < folders; i++)
        wire_string(wire, "/nowhere");
    wire_uint(wire, ids);
    for (unsigned i = 0; i < ids; i++)
        wire_uint(wire, peer_byte());
}

static void put_filters(struct wire *wire, unsigned n)
{
    static const unsigned ids[] = {1, 2, 3, 5, 6, 32000, 300, 0};
    wire_uint(wire, n);
    for (unsigned i = 0; i < n; i++) {
        unsigned n_values = peer_byte() % 24;
        wire_uints(wire, (uint64_t[]){ids[peer_byte() % 8], peer_byte() % 2, n_values}, 3);
        for (unsigned k = 0; k < n_values; k++) {
            unsigned value = (unsigned)peer_number();
            wire_put(wire, &value, sizeof(value));
        }
    }
}

/* Behind the bytes of the input nothing is. */
static void put_chunk(struct wire *wire, bool is_decode)
{
    size_t before = peer_byte() % 200, after = peer_byte() * 7;
    memset(shared, UNTOUCHED, ROOM);
    for (size_t i = 0; i < before; i++)
        shared[i] = (unsigned char)peer_byte();
    wire_uints(wire, (uint64_t[]){before, after}, 2);
    room_end = plugins_place(before) + after;
    if (is_decode)
        wire_uint(wire, peer_byte() % 4 ? 0 : peer_number());
    put_filters(wire, peer_byte() % 5);
}

/* The parameters of a filter for chunks of big or small integers, or of what the input says. */
static void put_complete(struct wire *wire)
{
    static const unsigned char type[] = {3, 0, 0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0};
    unsigned how = peer_byte();
    size_t after = how % 8 ? sizeof(struct completed) : how;
    uint64_t rank = 1 + how / 8 % 3;
    memset(shared, UNTOUCHED, ROOM);
    memcpy(shared, type, sizeof(type));
    shared[how % 16 == 15 ? how / 16 : 3] ^= how % 2 ? 0 : 8;
    wire_uints(wire, (uint64_t[]){sizeof(type), after, rank}, 3);
    for (uint64_t i = 0; i < rank; i++)
        wire_uint(wire, how % 4 ? 1 + peer_byte() : peer_number());
    room_end = plugins_place(sizeof(type)) + after;
    put_filters(wire, peer_byte() % 8 ? 1 : 2);
}

static void check_reply(enum message_kind asked, struct cursor *last)
{
    if (asked != MESSAGE_REPLY)
        return;
    char *reason;
    peer_note_end(asked_for, take_uint(last, UINT64_MAX) == 0);
    if (last->left < 3000) /* else it was cut here */
        require(take_string(last, true, &reason) == 0);
    free(last->failed || last->left >= 3000 ? NULL : reason);
    for (size_t i = room_end; i < ROOM && room_end > 0; i++)
        require(shared[i] == UNTOUCHED);
}

bool peer_speaks(enum message_kind asked, struct cursor *last)
{
    struct wire wire = {0};
    check_reply(asked, last);
    room_end = 0;
    if (peer_is_over())
        return false;
    unsigned how = peer_byte();
    unsigned call = how % 16 == 0   ? PLUGINS_LOAD
                    : how % 16 == 2 ? PLUGINS_COMPLETE
                    : how % 2       ? PLUGINS_DECODE
                                    : PLUGINS_ENCODE;
    asked_for = call;
    wire_uint(&wire, how == 255 ? peer_number() : call);
    if (call == PLUGINS_LOAD)
        put_load(&wire);
    else if (call == PLUGINS_COMPLETE)
        put_complete(&wire);
    else
        put_chunk(&wire, call == PLUGINS_DECODE);
    if (how & 64) {
        peer_spoil(&wire);
        room_end = 0;
    }
    peer_say(how == 254 ? peer_byte() : MESSAGE_CALL, &wire);
    wire_free(&wire);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    be_quiet();
    peer_begin(bytes, n);
    room_end = 0;
    if (setjmp(end) == 0)
        plugin_serve(0);
    return 0;
}
