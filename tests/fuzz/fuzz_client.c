/* libFuzzer: the calls of remote.h, and a process of libhdf5 that says what the input wants:
 * replies, sound ones that were spoilt, questions for bytes and files, and changes of a file that
 * is written. Whatever it says: no byte of our own space changes, none at all by a call that has
 * failed or only reads, and memory that is given out is sound. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/worker/remote_private.h"
#include "peer.h"
#include "store/store.h"

#define BYTES   ((size_t)16 << 10) /* of the file, at first */
#define MOST    ((size_t)1 << 20)  /* that it can grow to */
#define BLOCK   256                /* bytes that are compared at once */
#define MOST_N  ((size_t)1 << 16)  /* bytes that are read and written */
#define OWN     300                /* bytes of each of these: */
#define N_OWN   4
#define OBJECTS 3
#define FIRST   1000
#define SECOND  1000000000

struct own {
    uint64_t address;
    bool is_there;
};

struct tried {
    struct store *store;
    struct remote *remote;
    bool is_writable;
    struct own own[N_OWN];
    struct sfs_dataset_info info[OBJECTS]; /* of what is open */
    bool is_open[OBJECTS];
};

/* ---- Replies that are as they should be ---- */

static struct sfs_member members[] = {
    {.name = (char *)"a", .offset = 0, .type = {.class = SFS_INTEGER, .size = 4}},
    {.name = (char *)"b", .offset = 4, .type = {.class = SFS_STRING, .size = 4}},
};
/* The encoded datatype of what has these members. */
static const char compound[] = "\x03\x00"                         /* prefix */
                               "\x36\x02\x00\x00\x08\x00\x00\x00" /* a compound of two members */
                               "a\x00\x00\x10\x00\x00\x00\x04\x00\x00\x00\x00\x00\x20\x00"
                               "b\x00\x04\x13\x00\x00\x00\x04\x00\x00\x00";

static unsigned level = 6;
static struct sfs_filter filters[] = {
    {.id = 1, .name = "deflate", .n_values = 1, .values = &level}};
static char fill[8];

static struct sfs_dataset_info an_info(void)
{
    return (struct sfs_dataset_info){
        .encoded_type = {compound, sizeof(compound) - 1},
        .space = SFS_SPACE_SIMPLE,
        .rank = 2,
        .dims = {50, 7},
        .max_dims = {SFS_UNLIMITED, 7},
        .type = {.class = SFS_COMPOUND,
                 .size = 8,
                 .n_members = 2,
                 .members = members,
                 .description = (char *)"compound"},
        .fill = fill,
        .fill_json = (char *)"[0, \"\"]",
        .layout = SFS_CHUNKED,
        .chunk_dims = {2, 7},
        .n_filters = 1,
        .filters = filters,
    };
}

static struct hdf5_segment segments[] = {{(char *)"raw", 8, 1000}, {(char *)"more", 0, UINT64_MAX}};

/* Mostly chunked. */
static void put_described(struct wire *wire)
{
    struct sfs_dataset_info info = an_info();
    struct hdf5_storage storage = {.address = UINT64_MAX, .in_array = true};
    unsigned how = peer_byte();
    if (how >= 192)
        info.layout = (enum sfs_layout)(how % (SFS_VIRTUAL + 1));
    if (info.layout != SFS_CHUNKED)
        info.n_filters = 0;
    if (info.layout == SFS_EXTERNAL) {
        storage.n_segments = 2;
        storage.segments = segments;
    }
    wire_info(wire, &info);
    wire_storage(wire, &storage);
}

static void put_shown(struct wire *wire)
{
    bool has_text = peer_byte() % 4;
    put_described(wire);
    wire_uint(wire, has_text);
    if (has_text)
        wire_bytes(wire, "[2]", 3);
}

static void put_links(struct wire *wire, bool all)
{
    struct sfs_link links[] = {{SFS_LINK_HARD, (char *)"a", FIRST, NULL, NULL},
                               {SFS_LINK_SOFT, (char *)"b", 0, (char *)"/a", NULL},
                               {SFS_LINK_EXTERNAL, (char *)"c", 0, (char *)"/x", (char *)"o.h5"},
                               {SFS_LINK_HARD, (char *)"d", FIRST + 1, NULL, NULL},
                               {SFS_LINK_HARD, (char *)"e", FIRST + 2, NULL, NULL}};
    if (all)
        wire_links(wire, &(struct sfs_links){5, links});
    else
        wire_link(wire, &links[peer_byte() % 5]);
}

static void put_attributes(struct wire *wire)
{
    struct sfs_attribute attributes[] = {{(char *)"k", (char *)"1", (char *)"1"},
                                         {(char *)"l", NULL, NULL}};
    wire_attributes(wire, &(struct sfs_attributes){2, attributes});
}

static void put_mappings(struct wire *wire)
{
    struct hdf5_axis axes[] = {{1, 2, SFS_UNLIMITED, 1}, {0, 1, 1, 3}};
    struct hdf5_mapping mapping = {.file = (char *)"f_%b.h5",
                                   .dataset = (char *)"/d",
                                   .is_regular = true,
                                   .shown = {.rank = 2, .axis = axes},
                                   .source = {.is_all = true}};
    wire_mappings(wire, &(struct hdf5_mappings){1, &mapping});
}

static void put_room(struct wire *wire, uint64_t n)
{
    void *room = wire_room(wire, n < MOST_N ? (size_t)n : MOST_N);
    if (room)
        memset(room, 7, n < MOST_N ? (size_t)n : MOST_N);
}

/* About some of the objects that are asked for, or more. */
static void put_several(struct wire *wire, struct cursor *request)
{
    uint64_t call = take_uint(request, WORKER_CALLS - 1);
    size_t n = request->left / sizeof(uint64_t), but = peer_byte();
    n = but % 8 == 7 ? n + 1 : n;
    for (size_t i = 0; i < n && i < 100; i++) {
        struct wire one = {0};
        if (i != but && call == WORKER_ATTRIBUTES)
            put_attributes(&one);
        else if (i != but)
            wire_uint(&one, SFS_DATASET);
        wire_bytes(wire, one.bytes, one.n);
        wire_free(&one);
    }
}

/* As many bytes as there must be, mostly. */
static void put_parts(struct wire *wire, struct cursor *request)
{
    uint64_t numbers[5] = {0};
    take_uints(request, numbers, 5);
    uint64_t n = numbers[1] == SFS_LENGTHS ? numbers[3] * sizeof(uint64_t) : numbers[3];
    n += peer_byte() % 8 == 7;
    wire_uint(wire, n);
    put_room(wire, n);
}

/* Where the bytes are to be; or elsewhere. */
static void put_place(struct wire *wire, struct cursor *request)
{
    (void)take_uint(request, UINT64_MAX);
    uint64_t address = take_uint(request, UINT64_MAX);
    wire_uint(wire, peer_byte() % 4 ? address : peer_number());
}

/* Behind the call stand the object, and other numbers. */
static void put_chunks(struct wire *wire, struct cursor *request)
{
    uint64_t numbers[3] = {0};
    take_uints(request, numbers, 3);
    for (uint64_t i = 0; i < numbers[2] && i < 100; i++)
        wire_chunk(wire, &(struct hdf5_chunk){4096, 77, 0});
}

static void put_elements(struct wire *wire, struct cursor *request)
{
    uint64_t rank, bytes = 0;
    (void)take_uint(request, UINT64_MAX);
    rank = take_uint(request, SFS_MAX_RANK);
    for (uint64_t i = 0; i <= 2 * rank; i++)
        bytes = take_uint(request, UINT64_MAX);
    put_room(wire, bytes);
}

static void put_result(struct wire *wire, uint64_t call, struct cursor *request)
{
    switch (call) {
    case WORKER_LIST:
    case WORKER_LOOKUP:
        put_links(wire, call == WORKER_LIST);
        break;
    case WORKER_ATTRIBUTES:
        put_attributes(wire);
        break;
    case WORKER_DATASET_OPEN:
        put_described(wire);
        break;
    case WORKER_SHOW:
        put_shown(wire);
        break;
    case WORKER_SEVERAL:
        put_several(wire, request);
        break;
    case WORKER_PARTS:
        put_parts(wire, request);
        break;
    case WORKER_PATHS:
        wire_bytes(wire, "/a\nnull\n/b\n", 12);
        break;
    case WORKER_WRITE_CHUNKS:
        wire_uint(wire, peer_byte());
        break;
    case WORKER_PLACE:
        put_place(wire, request);
        break;
    case WORKER_DATASET_RENEW:
        wire_uints(wire, (uint64_t[]){60, 7, 11, UINT64_MAX}, 4);
        break;
    case WORKER_MAPPINGS:
        put_mappings(wire);
        break;
    case WORKER_LOCATE:
        put_chunks(wire, request);
        break;
    case WORKER_READ:
        put_elements(wire, request);
        break;
    case WORKER_TYPE_DESCRIBE:
        wire_type(wire, &(struct sfs_type){
                            .class = SFS_FLOAT, .size = 4, .description = (char *)"float32"});
        break;
    case WORKER_ELEMENT_PARSE:
        wire_bytes(wire, "1234", 4);
        break;
    case WORKER_TEXT:
    case WORKER_TYPE_OF_MESSAGE:
    case WORKER_ELEMENTS_TEXT:
        wire_bytes(wire, "[1]", 3);
        break;
    case WORKER_DATATYPE_TEXT:
    case WORKER_ELEMENT_JSON:
        wire_string(wire, "1.5");
        break;
    case WORKER_DATASET_CLOSE:
    case WORKER_CACHE_SOURCES:
        break;
    default:
        wire_uint(wire, call == WORKER_OBJECT_TYPE  ? SFS_GROUP
                        : call == WORKER_TYPE_EQUAL ? 1
                                                    : 96);
    }
}

static uint64_t called; /* what was asked for last that was no answer */
static unsigned char called_with[256];
static size_t called_n;
static unsigned said_at_end;
static bool has_called; /* since that was last looked at */

static void note_call(enum message_kind asked, struct cursor *last)
{
    if (asked != MESSAGE_CALL)
        return;
    called = take_uint(last, WORKER_CALLS - 1);
    has_called = true;
    called_n = last->left < sizeof(called_with) ? last->left : sizeof(called_with);
    const unsigned char *bytes = cursor_bytes(last, called_n);
    if (bytes)
        memcpy(called_with, bytes, called_n);
}

static void reply(unsigned how)
{
    struct wire wire = {0};
    struct cursor request = cursor_over(called_with, called_n);
    wire_uint(&wire, how & 1 ? peer_number() : 0);
    wire_string(&wire, how & 1 ? "why" : "");
    if (how & 2)
        peer_content(&wire);
    else
        put_result(&wire, called, &request);
    if (how & 4)
        peer_spoil(&wire);
    peer_say(MESSAGE_REPLY, &wire);
    wire_free(&wire);
}

/* ---- What is asked for, and told, besides ---- */

static uint64_t an_address(void)
{
    unsigned how = peer_byte();
    return how < 128 ? 64 * how : peer_number();
}

static void put_message(struct wire *wire, enum message_kind kind)
{
    switch (kind) {
    case MESSAGE_READ:
        wire_uints(wire, (uint64_t[]){peer_byte() % 2 ? 0 : peer_number(), an_address()}, 2);
        wire_uints(wire, (uint64_t[]){an_address(), peer_byte() % 2}, 2);
        break;
    case MESSAGE_FIND:
        wire_string(wire, "/other.h5");
        wire_uint(wire, peer_byte() % 2);
        break;
    case MESSAGE_WRITE:
        wire_uint(wire, an_address());
        wire_uint(wire, 100);
        put_room(wire, 100);
        break;
    case MESSAGE_WRITE_NAMED:
        wire_uints(wire, (uint64_t[]){an_address(), peer_byte() % 2 ? 0 : peer_number()}, 2);
        wire_uint(wire, peer_number());
        break;
    case MESSAGE_FREE:
        wire_uints(wire, (uint64_t[]){an_address(), an_address()}, 2);
        break;
    case MESSAGE_PATH_OF_COPY:
        wire_uint(wire, FIRST + peer_byte() % (OBJECTS + 1));
        break;
    case MESSAGE_LOG:
        wire_uint(wire, peer_byte());
        wire_string(wire, "a line\nand more\x7f");
        break;
    case MESSAGE_END_OF:
    case MESSAGE_LET_GO:
    case MESSAGE_ALLOCATE:
        wire_uint(wire, peer_byte() % 4 ? peer_byte() : peer_number());
        break;
    default:
        break;
    }
}

/* Half of what it says are replies. At the end of the input it can still be opened. */
bool peer_speaks(enum message_kind asked, struct cursor *last)
{
    struct wire wire = {0};
    note_call(asked, last);
    if (peer_is_over() && (called != WORKER_OPEN || said_at_end++ > 0))
        return false;
    unsigned what = peer_byte();
    if (what == 255)
        return false;
    if (what < 128) {
        reply(what >> 4);
        return true;
    }
    if (what & 32)
        put_message(&wire, (enum message_kind)(what & 15));
    else
        peer_content(&wire);
    if (what & 16)
        peer_spoil(&wire);
    peer_say(what & 15, &wire);
    wire_free(&wire);
    return true;
}

/* ---- The file, and others ---- */

int __wrap_driver_find_other(const struct store *from, const char *name, struct store **store,
                             bool *is_refused);

/* One is there for some names, which are looked for elsewhere. */
int __wrap_driver_find_other(const struct store *from, const char *name, struct store **store,
                             bool *is_refused)
{
    static const struct store_image how = {.name = "other", .copy = true};
    static const char bytes[500] = "other";
    unsigned found = peer_byte() % 4;
    require(from && name);
    *is_refused = found == 1;
    return found == 0   ? -ENOENT
           : found == 1 ? -EACCES
                        : store_open_image((void *)bytes, sizeof(bytes), &how, store);
}

static void *allocate_some(size_t n, enum sfs_image_operation operation, void *user_data)
{
    (void)operation, (void)user_data;
    return n > MOST ? NULL : malloc(n);
}

static void *reallocate_some(void *bytes, size_t n, enum sfs_image_operation operation,
                             void *user_data)
{
    (void)operation, (void)user_data;
    return n > MOST ? NULL : realloc(bytes, n);
}

static void open_store(struct tried *tried)
{
    static const struct sfs_image_callbacks callbacks = {.image_malloc = allocate_some,
                                                         .image_realloc = reallocate_some};
    const struct store_image how = {
        .name = "image", .copy = true, .writable = tried->is_writable, .callbacks = &callbacks};
    static char bytes[BYTES];
    memset(bytes, 'a', sizeof(bytes));
    require(store_open_image(bytes, sizeof(bytes), &how, &tried->store) == 0);
    if (tried->is_writable)
        store_tell_own(tried->store);
}

static void fill_own(struct tried *tried)
{
    char bytes[OWN];
    memset(bytes, 'o', sizeof(bytes));
    for (size_t i = 0; i < N_OWN; i++) {
        struct own *own = &tried->own[i];
        require(store_allocate(tried->store, OWN, &own->address) == 0);
        require(store_write(tried->store, own->address, bytes, OWN) == 0);
        own->is_there = true;
    }
}

static void check_own(struct tried *tried)
{
    char bytes[OWN];
    for (size_t i = 0; i < N_OWN && tried->is_writable; i++) {
        const struct own *own = &tried->own[i];
        if (!own->is_there)
            continue;
        require(store_read(tried->store, own->address, bytes, OWN) == 0);
        for (size_t k = 0; k < OWN; k++)
            require(bytes[k] == 'o');
        require(store_check_lent(tried->store, own->address, OWN) != 0);
        require(store_check_lent(tried->store, own->address + OWN - 1, 1) != 0);
    }
}

/* What was in use before a call. */
struct before {
    size_t n;
    unsigned char *bytes;
    bool is_used[MOST / BLOCK];
};

static void remember(const struct tried *tried, struct before *before)
{
    before->n = (size_t)store_size(tried->store) / BLOCK;
    before->bytes = malloc(before->n * BLOCK + 1);
    require(before->bytes && before->n <= MOST / BLOCK);
    require(store_read(tried->store, 0, before->bytes, before->n * BLOCK) == 0);
    for (size_t i = 0; i < before->n; i++)
        before->is_used[i] = store_check_lent(tried->store, i * BLOCK, BLOCK) == 0;
}

static void compare(const struct tried *tried, const struct before *before)
{
    unsigned char bytes[BLOCK];
    for (size_t i = 0; i < before->n; i++)
        if (before->is_used[i]) {
            require(store_check_lent(tried->store, i * BLOCK, BLOCK) == 0);
            require(store_read(tried->store, i * BLOCK, bytes, BLOCK) == 0);
            require(!memcmp(bytes, before->bytes + i * BLOCK, BLOCK));
        }
}

/* ---- Calls ---- */

/* Some part of an open dataset; false: of too many bytes. */
static bool choose_box(const struct sfs_dataset_info *info, uint64_t *start, uint64_t *count,
                       uint64_t *bytes)
{
    *bytes = info->type.size;
    for (int i = 0; i < info->rank; i++) {
        if (info->dims[i] == 0)
            return false;
        start[i] = peer_byte() % info->dims[i];
        count[i] = 1 + peer_byte() % (info->dims[i] - start[i]);
        if (*bytes > MOST_N || count[i] > MOST_N)
            return false;
        *bytes *= count[i];
    }
    return *bytes <= MOST_N;
}

static int read_or_write(struct tried *tried, uint64_t object, const struct sfs_dataset_info *info,
                         bool is_write)
{
    uint64_t start[SFS_MAX_RANK] = {0}, count[SFS_MAX_RANK] = {0}, bytes;
    if (!choose_box(info, start, count, &bytes))
        return 0;
    char *buffer = calloc((size_t)bytes, 1);
    require(buffer);
    int error = is_write ? remote_write(tried->remote, object, start, count, buffer)
                         : remote_read(tried->remote, object, start, count, count, buffer);
    free(buffer);
    return error;
}

static int locate_or_put(struct tried *tried, uint64_t object, const struct sfs_dataset_info *info,
                         bool is_write)
{
    uint64_t start[SFS_MAX_RANK] = {0}, count[SFS_MAX_RANK] = {0}, bytes;
    static const char stored[5000];
    struct hdf5_stored chunks[3] = {{{0}}};
    struct hdf5_chunk chunk;
    if (info->layout != SFS_CHUNKED || !choose_box(info, start, count, &bytes))
        return 0;
    for (int i = 0; i < info->rank; i++)
        start[i] -= start[i] % info->chunk_dims[i];
    for (size_t i = 0; i < 3; i++) {
        memcpy(chunks[i].start, start, sizeof(start));
        chunks[i].bytes = stored;
        chunks[i].n = 1 + peer_byte() % 2 * 4990;
    }
    return is_write ? remote_write_chunks(tried->remote, object, chunks, 1 + peer_byte() % 3)
                    : remote_locate(tried->remote, object, start, &chunk);
}

static int write_sequences(struct tried *tried, uint64_t object,
                           const struct sfs_dataset_info *info)
{
    uint64_t start[SFS_MAX_RANK] = {0}, count[SFS_MAX_RANK] = {0}, bytes;
    if (info->type.size == 0 || !choose_box(info, start, count, &bytes))
        return 0;
    uint64_t *lengths = calloc((size_t)bytes, sizeof(*lengths));
    require(lengths);
    int error = remote_write_sequences(tried->remote, object, start, count,
                                       &(struct hdf5_sequences){lengths, "12345678", 8});
    free(lengths);
    return error;
}

static int ask_parts(struct tried *tried, uint64_t object)
{
    enum sfs_parts parts = (enum sfs_parts)(peer_byte() % 3);
    uint64_t n = 1 + peer_byte();
    char *bytes;
    size_t bytes_n;
    int error = remote_parts(tried->remote, object, &(struct hdf5_parts){parts, 0, n, MOST_N},
                             &bytes, &bytes_n);
    if (error)
        return error;
    require(bytes_n <= MOST_N && bytes[bytes_n] == '\0');
    require(parts != SFS_LENGTHS || bytes_n == n * sizeof(uint64_t));
    require(parts != SFS_LINES || bytes_n >= n);
    free(bytes);
    return 0;
}

/* A line for each. */
static int ask_paths(struct tried *tried, uint64_t object)
{
    static const uint64_t addresses[] = {FIRST, 0, 12345};
    uint64_t n = peer_byte() % 2 ? 3 : peer_byte() % 4;
    size_t bytes_n, lines = 0;
    char *bytes;
    const struct hdf5_addresses wanted = {addresses, n};
    int error = remote_paths(tried->remote, object, &wanted, MOST_N, &bytes, &bytes_n);
    if (error)
        return error;
    for (size_t i = 0; i < bytes_n; i++)
        lines += bytes[i] == '\n';
    require(bytes_n <= MOST_N && lines == n && (n == 0 || bytes[bytes_n - 1] == '\n'));
    free(bytes);
    return 0;
}

static int place(struct tried *tried, uint64_t object, const struct sfs_dataset_info *info)
{
    struct own *own = &tried->own[peer_byte() % N_OWN];
    uint64_t address = own->address;
    if (info->type.size > MOST_N)
        return 0;
    char *element = calloc(info->type.size, 1);
    require(element);
    int error = own->is_there ? remote_place(tried->remote, object, &address, OWN, element) : 0;
    if (!error && own->is_there) {
        if (address == own->address)
            own->is_there = false;
        require(store_check_lent(tried->store, address, OWN) == 0);
    }
    free(element);
    return error == -EIO ? 0 : error; /* it may have said after a change of its own where it is */
}

static int resize(struct tried *tried, uint64_t object, struct sfs_dataset_info *info,
                  bool is_write)
{
    struct hdf5_renewed renewed;
    memcpy(renewed.dims, info->dims, sizeof(renewed.dims));
    if (is_write && info->rank > 0)
        renewed.dims[0] = peer_byte();
    int error = is_write ? remote_set_extent(tried->remote, object, renewed.dims)
                         : remote_dataset_renew(tried->remote, object, info->rank, &renewed);
    if (!error)
        memcpy(info->dims, renewed.dims, sizeof(renewed.dims));
    return error;
}

static int ask_mappings(struct tried *tried, uint64_t object)
{
    struct hdf5_mappings mappings;
    int error = remote_mappings(tried->remote, object, &mappings);
    if (!error)
        hdf5_mappings_free(&mappings);
    return error;
}

static int ask_text(struct tried *tried, uint64_t object, bool of_datatype)
{
    char *text;
    size_t n;
    int error = of_datatype ? remote_datatype_text(tried->remote, object, &text)
                            : remote_text(tried->remote, object, MOST_N, &text, &n);
    if (error)
        return error;
    require(of_datatype || text[n] == '\0');
    free(text);
    return 0;
}

static int call_dataset(struct tried *tried, unsigned which, unsigned i)
{
    struct sfs_dataset_info *info = &tried->info[i];
    uint64_t object = FIRST + i;
    switch (which) {
    case 0:
    case 1:
        return read_or_write(tried, object, info, which);
    case 2:
    case 3:
        return locate_or_put(tried, object, info, which == 3);
    case 4:
    case 5:
        return resize(tried, object, info, which == 5);
    case 6:
        return tried->is_writable ? place(tried, object, info) : 0;
    case 7:
        return ask_mappings(tried, object);
    case 8:
        return ask_text(tried, object, false);
    case 9:
        return remote_cache_sources(tried->remote, object, "/d", 4096);
    case 11:
        return write_sequences(tried, object, info);
    case 12:
        return ask_parts(tried, object);
    case 13:
        return ask_paths(tried, object);
    default:
        remote_dataset_close(tried->remote, object);
        hdf5_info_free(info);
        tried->is_open[i] = false;
        return 0;
    }
}

static int open_dataset(struct tried *tried, unsigned i)
{
    struct hdf5_storage storage;
    int error = remote_dataset_open(tried->remote, FIRST + i, &tried->info[i], &storage);
    if (error)
        return error;
    tried->is_open[i] = true;
    hdf5_segments_free(storage.n_segments, storage.segments);
    return 0;
}

/* An encoded integer of 4 bytes. */
static const char encoded[] = "\x03\x00\x10\x00\x00\x00\x04\x00\x00\x00\x00\x00\x20\x00";
#define ENCODED_N (sizeof(encoded) - 1)

static int create_dataset(struct tried *tried, struct remote *from)
{
    const uint64_t dims[] = {4, 3};
    const struct hdf5_create create = {.rank = 2,
                                       .dims = dims,
                                       .chunk_dims = dims,
                                       .type = encoded,
                                       .type_size = ENCODED_N,
                                       .fill = "1234",
                                       .n_filters = 1,
                                       .filters = filters,
                                       .attributes_of = FIRST};
    uint64_t address;
    return remote_create_dataset(tried->remote, "/d", peer_byte() % 2, &create, from, &address);
}

static int create_link(struct tried *tried)
{
    struct sfs_link link = {.type = peer_byte() % 2 ? SFS_LINK_SOFT : SFS_LINK_EXTERNAL,
                            .name = (char *)"ignored",
                            .target = (char *)"/a",
                            .target_file = (char *)"o.h5"};
    return remote_create_link(tried->remote, "/l", &link, NULL);
}

/* The other file is one that is only read. */
static int copy(struct tried *tried)
{
    static const struct sfs_moved moved[] = {{FIRST, "/a"}, {FIRST + 1, "/b"}};
    static const struct store_image how = {.name = "source", .copy = true};
    static const char bytes[300] = "source";
    struct remote other = {.number = 1000 + peer_byte() % 2}, *from = &other;
    require(store_open_image((void *)bytes, sizeof(bytes), &how, &other.store) == 0);
    unsigned which = peer_byte();
    if (which >= 128)
        from = tried->remote;
    int error;
    switch (which % 8) {
    case 0:
        error = remote_copy_attributes(tried->remote, FIRST, from, FIRST);
        break;
    case 1:
        error = remote_copy_object(tried->remote, "/o", from, FIRST);
        break;
    case 2:
        error = remote_copy_group(tried->remote, "/g", from, FIRST);
        break;
    case 3:
        error = remote_copy_references(tried->remote, "/a", from, FIRST, moved, 2);
        break;
    case 4:
        error = remote_reopen(tried->remote);
        break;
    case 5:
        error = remote_unlink(tried->remote, "/a");
        break;
    case 6:
        error = create_link(tried);
        break;
    default:
        error = create_dataset(tried, peer_byte() % 2 ? from : NULL);
    }
    require(store_close(other.store) == 0);
    return error;
}

static int ask_links(struct tried *tried, bool all)
{
    struct sfs_links links;
    struct sfs_link link;
    int error = all ? remote_list(tried->remote, FIRST, &links)
                    : remote_lookup(tried->remote, FIRST, "a", &link);
    if (!error && all)
        sfs_links_free(&links);
    else if (!error)
        sfs_link_free(&link);
    return error;
}

static int ask_attributes(struct tried *tried)
{
    struct sfs_attributes attributes;
    int error = remote_attributes(tried->remote, FIRST + peer_byte() % OBJECTS, &attributes);
    if (!error)
        sfs_attributes_free(&attributes);
    return error;
}

static int ask_type(struct tried *tried, unsigned which)
{
    const uint64_t object = FIRST;
    struct about of = {tried->remote, which % 16 < 8 ? &object : NULL};
    struct sfs_encoded type = {encoded, ENCODED_N};
    struct sfs_type description;
    char *text = NULL;
    size_t n;
    int error;
    if (which % 4 == 0) {
        error = remote_type_describe(&of, encoded, ENCODED_N, &description);
        require(error || (description.size == 4 && !description.has_pointers));
        if (!error)
            hdf5_type_free(&description);
    } else if (which % 4 == 1) {
        error = remote_element_json(&of, encoded, ENCODED_N, "1234", &text);
    } else if (which % 4 == 2) {
        const struct hdf5_elements one = {
            .type = &type, .n = 1, .row_length = 1, .elements = {"1234", 4}};
        error = remote_elements_text(&of, &one, &text, &n);
    } else if (which % 8 == 7) {
        char element[4];
        error = remote_element_parse(&of, encoded, ENCODED_N, "12", element);
    } else if (which % 16 == 11) {
        void *made = NULL;
        error = remote_type_of_message(&of, encoded + 2, ENCODED_N - 2, &made, &n);
        text = made;
    } else {
        error = remote_type_size(&of, encoded, ENCODED_N, &n);
        require(error || n == 4);
        (void)remote_type_equal(&of, &type, &type);
    }
    free(error ? NULL : text);
    return error;
}

static int call_object(struct tried *tried, unsigned which)
{
    enum sfs_object_type type;
    uint64_t address;
    switch (which % 8) {
    case 0:
    case 1:
        return ask_links(tried, which % 8);
    case 2:
        return ask_attributes(tried);
    case 3:
        return remote_find(tried->remote, FIRST, "a/b", &address);
    case 4:
        return remote_object_type(tried->remote, FIRST + peer_byte() % OBJECTS, &type);
    case 5:
        return ask_text(tried, FIRST, true);
    case 6:
        return ask_type(tried, peer_byte());
    default:
        return remote_renew(tried->remote, &address);
    }
}

/* Calls of datasets that change the file. */
static bool changes(unsigned which)
{
    return which == 1 || which == 3 || which == 5 || which == 6 || which == 11;
}

/* *may_change: what is in the file, if there is no error. */
static int call(struct tried *tried, bool *may_change)
{
    unsigned which = peer_byte(), i = which / 32 % OBJECTS;
    which %= 32;
    *may_change = which >= 24;
    if (which < 8)
        return call_object(tried, which);
    if (which < 24) {
        unsigned call = which < 20 ? which - 8 : peer_byte() % 14;
        *may_change = tried->is_open[i] && changes(call);
        return tried->is_open[i] ? call_dataset(tried, call, i) : open_dataset(tried, i);
    }
    if (!tried->is_writable)
        return 0;
    if (which < 25)
        return remote_create_group(tried->remote, "/g");
    if (which < 26)
        return remote_remove_group(tried->remote, "/g");
    if (which < 31)
        return copy(tried);
    if (remote_flush(tried->remote) == 0)
        (void)store_commit(tried->store);
    return 0;
}

static void try(struct tried *tried)
{
    struct before before;
    while (!peer_is_over()) {
        bool may_change;
        remember(tried, &before);
        has_called = false;
        int error = call(tried, &may_change);
        if (has_called)
            peer_note_end(called, !error);
        check_own(tried);
        if ((error || !may_change) && tried->is_writable)
            compare(tried, &before);
        free(before.bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct tried tried = {0};
    uint64_t root;
    be_quiet();
    peer_begin(bytes, n);
    called = WORKER_OPEN;
    said_at_end = 0;
    tried.is_writable = peer_byte() % 4;
    open_store(&tried);
    if (tried.is_writable)
        fill_own(&tried);
    int error = remote_open(tried.store, SECOND, false, &tried.remote, &root);
    check_own(&tried);
    if (!error) {
        try(&tried);
        remote_close(tried.remote);
        for (size_t i = 0; i < OBJECTS; i++)
            if (tried.is_open[i])
                hdf5_info_free(&tried.info[i]);
        check_own(&tried);
    }
    require(store_close(tried.store) == 0);
    return 0;
}
