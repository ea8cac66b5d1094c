/* libFuzzer: chunks that filters are undone of and applied to, and processes for plugins that say,
 * and leave in the memory that they share with us, what the input wants. What comes of it is an
 * error, or what stood there; nothing is written but what the caller has room for, and the shared
 * memory stays as large as it is. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hdf5/local.h"
#include "hdf5/worker/plugin_pool.h"
#include "peer.h"

#define MOST_SHARED  64 /* sockets whose shared memory is known */
#define MOST_BYTES   3000
#define MOST_FILTERS 33 /* one more than a process takes */
#define MOST_VALUES  4
#define SECOND       1000000000

struct shared {
    int socket, fd;
    unsigned char *bytes;
    size_t n;
};

static struct shared shared[MOST_SHARED];
static unsigned left_there; /* in the shared memory, where the result has to be */
static const void *given;
static size_t given_n;

int __wrap_descriptor_send(int socket, const void *bytes, size_t n, int fd);

int __wrap_descriptor_send(int socket, const void *bytes, size_t n, int fd)
{
    struct shared *there = &shared[0];
    for (size_t i = 0; i < MOST_SHARED && there->bytes && there->socket != socket; i++)
        there = &shared[i];
    if (there->bytes) { /* of one that is no more */
        munmap(there->bytes, there->n);
        close(there->fd);
    }
    require(n == sizeof(there->n));
    memcpy(&there->n, bytes, n);
    there->socket = socket;
    there->fd = dup(fd);
    there->bytes = mmap(NULL, there->n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    require(there->fd >= 0 && there->bytes != MAP_FAILED);
    return 0;
}

static struct shared *shared_with(int socket)
{
    struct shared *there = NULL;
    for (size_t i = 0; i < MOST_SHARED; i++)
        if (shared[i].bytes && shared[i].socket == socket)
            there = &shared[i];
    require(there);
    return there;
}

/* ---- What the process says ---- */

static void put_loaded(struct wire *wire, struct cursor *request)
{
    char *folder;
    (void)take_uint(request, UINT64_MAX);
    for (uint64_t n = take_uint(request, PLUGINS_MOST_FOLDERS); n > 0; n--)
        if (take_string(request, true, &folder) == 0)
            free(folder);
    unsigned but = peer_byte();
    uint64_t n = take_uint(request, PLUGINS_MOST_IDS);
    for (uint64_t i = 0; i < n; i++)
        wire_uint(wire, i != but);
}

static void put_result(struct wire *wire, uint64_t call, struct cursor *request)
{
    struct shared *there = shared_with(peer_socket());
    size_t before = (size_t)take_uint(request, there->n);
    size_t after = (size_t)take_uint(request, there->n), place = plugins_place(before);
    require(!request->failed && place <= there->n && after <= there->n - place);
    require(before == given_n && !memcmp(there->bytes, given, before));
    require(ftruncate(there->fd, 0) < 0 && ftruncate(there->fd, (off_t)(2 * there->n)) < 0);
    left_there = peer_byte();
    memset(there->bytes, (int)left_there, there->n);
    if (call == PLUGINS_ENCODE)
        wire_uints(wire, (uint64_t[]){peer_byte() % (after + 1), peer_byte()}, 2);
    if (call == PLUGINS_COMPLETE && after == sizeof(struct completed)) {
        struct completed completed = {.n = peer_byte() % 2 ? 3 : (size_t)peer_number()};
        memset(completed.name, 'n', sizeof(completed.name) - peer_byte() % 2);
        memcpy(there->bytes + place, &completed, sizeof(completed));
        wire_uints(wire, (uint64_t[]){peer_byte() % 4 ? after : peer_number(), 0}, 2);
    }
}

bool peer_speaks(enum message_kind asked, struct cursor *last)
{
    struct wire wire = {0};
    uint64_t call = take_uint(last, PLUGINS_CALLS - 1);
    unsigned how = peer_byte();
    if (peer_is_over() || asked != MESSAGE_CALL || how == 255)
        return false;
    wire_uint(&wire, how & 1 ? peer_number() : 0);
    wire_string(&wire, how & 1 ? "why" : "");
    if (call == PLUGINS_LOAD)
        put_loaded(&wire, last);
    else
        put_result(&wire, call, last);
    if ((how & 6) == 6)
        peer_spoil(&wire);
    if (how & 8)
        peer_content(&wire);
    peer_say(how >= 248 ? how & 15 : MESSAGE_REPLY, &wire);
    wire_free(&wire);
    return true;
}

/* ---- Chunks ---- */

struct pipeline {
    size_t n;
    struct sfs_filter filters[MOST_FILTERS];
    unsigned values[MOST_VALUES];
};

static void choose_filters(struct pipeline *pipeline)
{
    unsigned n = peer_byte();
    pipeline->n = n < 250 ? n % 4 : n % (MOST_FILTERS + 1);
    for (size_t i = 0; i < MOST_VALUES; i++)
        pipeline->values[i] = i;
    for (size_t i = 0; i < pipeline->n; i++)
        pipeline->filters[i] = (struct sfs_filter){.id = 1000 + (int)peer_byte() % 80,
                                                   .optional = peer_byte() % 2,
                                                   .n_values = peer_byte() % (MOST_VALUES + 1),
                                                   .values = pipeline->values};
}

static void decode(const struct pipeline *pipeline, const void *in, size_t n)
{
    size_t size = 1 + peer_byte() * 10;
    unsigned char *out = malloc(size);
    require(out);
    uint32_t mask = peer_byte() % 4 ? 0 : peer_byte();
    int error = plugins_decode(&(struct filter_pipeline){pipeline->n, pipeline->filters, mask}, in,
                               n, out, size);
    peer_note_end(PLUGINS_DECODE, !error);
    if (!error && n > 0 && pipeline->n < MOST_FILTERS)
        for (size_t i = 0; i < size; i++)
            require(out[i] == left_there);
    free(out);
}

static void encode(const struct pipeline *pipeline, const void *in, size_t n)
{
    struct filter_pipeline filters = {pipeline->n, pipeline->filters};
    void *out;
    size_t size;
    int error = plugins_encode(&filters, in, n, &out, &size);
    peer_note_end(PLUGINS_ENCODE, !error);
    if (error)
        return;
    for (size_t i = 0; i < size && n > 0 && pipeline->n < MOST_FILTERS; i++)
        require(((unsigned char *)out)[i] == left_there);
    free(out);
}

static void complete(const struct pipeline *pipeline, const void *type, size_t n)
{
    struct completed completed;
    const struct sfs_encoded encoded = {type, n};
    const uint64_t dims[] = {3, 4};
    if (pipeline->n == 0)
        return;
    int error = plugins_complete(&pipeline->filters[0], &encoded, 2, dims, &completed);
    peer_note_end(PLUGINS_COMPLETE, !error);
    if (error)
        return;
    require(completed.n <= COMPLETED_MOST);
    require(memchr(completed.name, '\0', sizeof(completed.name)));
}

static void try(void)
{
    struct pipeline pipeline;
    choose_filters(&pipeline);
    size_t n = peer_byte() * 11 % MOST_BYTES;
    void *in = malloc(n ? n : 1);
    require(in);
    memset(in, (int)peer_byte(), n);
    given = in;
    given_n = n;
    unsigned what = peer_byte();
    if (what % 2)
        decode(&pipeline, in, n);
    else if (what % 8 == 2)
        complete(&pipeline, in, n);
    else
        encode(&pipeline, in, n);
    free(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static bool is_started;
    be_quiet();
    if (!is_started)
        require(plugins_start((size_t)1 << 30, SECOND) == 0);
    is_started = true;
    peer_begin(bytes, n);
    while (!peer_is_over())
        try();
    return 0;
}
