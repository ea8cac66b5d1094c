/* libFuzzer: calls as the process of libhdf5 gets them, of a sound file that is read or written:
 * names, numbers, boxes and datatypes are the input's. Each has a reply, and nothing is read or
 * written outside of buffers. What the process asks for it gets, and what it writes is there.
 *
 * libhdf5 does not bear what is no object: addresses at which there is none do not come to it, and
 * chunks lie only where nothing else is. */
#include <errno.h>
#include <hdf5.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/local.h"
#include "hdf5/worker/copy_message.h"
#include "hdf5/worker/serve.h"
#include "hdf5/worker/serve_private.h"
#include "objects.h"
#include "peer.h"
#include "store/store.h"

#define SOURCE     256               /* number of the file that is copied from: the same bytes */
#define FOUND      1                 /* of the one that a virtual dataset names: these, too */
#define MOST       ((size_t)1 << 20) /* bytes that the file can grow to */
#define MOST_PLACE ((uint64_t)64 << 10)

static jmp_buf end;
static const struct objects *objects;
static unsigned char image[MOST]; /* the file, as it is now */
static uint64_t image_n;
static bool is_open, is_writable, is_closing;
static size_t current;             /* the object that was used last */
static bool is_told[OBJECTS_MOST]; /* the process has it open, as a dataset */
static struct wire later;          /* a call, before which a dataset has to be opened */
static uint64_t later_call;
static uint64_t asked_for; /* the call that has no reply yet */

void __wrap__exit(int status) __attribute__((noreturn));

void __wrap__exit(int status)
{
    (void)status;
    longjmp(end, 1);
}

/* libhdf5 keeps memory for later, and what it has open. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
    return "detect_leaks=0:allocator_may_return_null=1";
}

/* ---- What comes to libhdf5 ---- */

hid_t __wrap_H5Oopen_by_addr(hid_t file, haddr_t address);
hid_t __real_H5Oopen_by_addr(hid_t file, haddr_t address);
herr_t __wrap_H5Rget_obj_type2(hid_t file, H5R_type_t type, const void *reference, H5O_type_t *out);
herr_t __real_H5Rget_obj_type2(hid_t file, H5R_type_t type, const void *reference, H5O_type_t *out);

/* Among what groups lead to: positive, then. */
static herr_t is_this(hid_t id, const char *name, const H5O_info_t *info, void *address)
{
    (void)id, (void)name;
    return info->addr == *(haddr_t *)address;
}

static bool is_object(hid_t file, haddr_t address)
{
    for (size_t i = 0; i < objects->n && !is_writable; i++)
        if (objects->address[i] == address)
            return true;
    return is_writable &&
           H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_NATIVE, is_this, &address, H5O_INFO_BASIC) > 0;
}

hid_t __wrap_H5Oopen_by_addr(hid_t file, haddr_t address)
{
    return is_object(file, address) ? __real_H5Oopen_by_addr(file, address) : H5I_INVALID_HID;
}

herr_t __wrap_H5Rget_obj_type2(hid_t file, H5R_type_t type, const void *reference, H5O_type_t *out)
{
    haddr_t address;
    memcpy(&address, reference, sizeof(address));
    return is_object(file, address) ? __real_H5Rget_obj_type2(file, type, reference, out) : -1;
}

/* ---- What the process asks for, and writes ---- */

static bool grow(uint64_t n, uint64_t *address)
{
    *address = image_n;
    if (n > MOST - image_n)
        return false;
    memset(image + image_n, 0, (size_t)n);
    image_n += n;
    return true;
}

static void answer_read(struct wire *wire, struct cursor *last)
{
    uint64_t number = take_uint(last, UINT64_MAX), address = take_uint(last, UINT64_MAX);
    uint64_t n = take_uint(last, CHANNEL_MOST_READ);
    const unsigned char *bytes = number == 0 ? image : objects->file;
    uint64_t bytes_n = number == 0                           ? image_n
                       : number == SOURCE || number == FOUND ? objects->file_n
                                                             : 0;
    bool is_there = address <= bytes_n && n <= bytes_n - address;
    wire_uint(wire, is_there ? 0 : EIO);
    wire_put(wire, bytes + address, is_there ? (size_t)n : 0);
}

static void put_description(struct wire *wire, uint64_t number, uint64_t n, bool writable)
{
    static uint64_t inode; /* libhdf5 takes what has the same one for the same file */
    wire_uints(wire, (uint64_t[]){number, n, 1, ++inode, false, false, writable}, 7);
}

static void answer_find(struct wire *wire)
{
    unsigned how = peer_byte();
    wire_uint(wire, how % 4 == 0 ? ENOENT : how % 4 == 1 ? EACCES : 0);
    wire_uint(wire, how % 4 == 1);
    put_description(wire, FOUND, objects->file_n, false);
}

static void answer_allocate(struct wire *wire, struct cursor *last)
{
    uint64_t address, n = take_uint(last, UINT64_MAX);
    bool is_there = grow(n, &address);
    wire_uint(wire, is_there ? 0 : ENOSPC);
    wire_uints(wire, (uint64_t[]){address, image_n}, 2);
}

static void answer_path_of_copy(struct wire *wire)
{
    unsigned how = peer_byte();
    wire_uint(wire, how % 4 == 0 ? ENOENT : 0);
    wire_string(wire, objects_path(how));
}

static void answer(enum message_kind asked, struct cursor *last)
{
    struct wire wire = {0};
    switch (asked) {
    case MESSAGE_READ:
        answer_read(&wire, last);
        break;
    case MESSAGE_FIND:
        answer_find(&wire);
        break;
    case MESSAGE_ALLOCATE:
        answer_allocate(&wire, last);
        break;
    case MESSAGE_PATH_OF_COPY:
        answer_path_of_copy(&wire);
        break;
    default:
        wire_uints(&wire, (uint64_t[]){0, image_n}, 2);
    }
    peer_say(MESSAGE_ANSWER, &wire);
    wire_free(&wire);
}

static bool has_answer(enum message_kind asked)
{
    return asked == MESSAGE_READ || asked == MESSAGE_FIND || asked == MESSAGE_END_OF ||
           asked == MESSAGE_ALLOCATE || asked == MESSAGE_END_IN_USE ||
           asked == MESSAGE_PATH_OF_COPY || asked == MESSAGE_INTERRUPTED;
}

static void end_call(bool is_done)
{
    peer_note_end(asked_for, is_done);
    if (asked_for == WORKER_DATASET_OPEN || asked_for == WORKER_SHOW)
        is_told[current] |= is_done;
    else if (asked_for == WORKER_DATASET_CLOSE)
        is_told[current] = false;
}

/* Those of a chunk that it was not sent are 0. */
static void hear(enum message_kind kind, struct cursor *message)
{
    if (kind == MESSAGE_REPLY)
        end_call(take_uint(message, UINT64_MAX) == 0);
    if (kind != MESSAGE_WRITE && kind != MESSAGE_WRITE_NAMED)
        return;
    uint64_t address = take_uint(message, UINT64_MAX);
    if (kind == MESSAGE_WRITE_NAMED)
        (void)take_uint(message, UINT64_MAX);
    uint64_t n = take_uint(message, UINT64_MAX);
    const unsigned char *bytes = kind == MESSAGE_WRITE ? cursor_bytes(message, n) : NULL;
    require(!message->failed && message->left == 0 && is_writable);
    if (address > image_n || n > image_n - address)
        return;
    if (bytes)
        memcpy(image + address, bytes, (size_t)n);
    else
        memset(image + address, 0, (size_t)n);
}

/* ---- Calls ---- */

static void say_size(void)
{
    struct wire wire = {0};
    wire_uint(&wire, image_n);
    if (!is_writable)
        peer_spoil(&wire);
    peer_say(MESSAGE_SIZE, &wire);
    wire_free(&wire);
}

/* After the size, if it was made larger for what the call has. */
static void say_call(const struct wire *wire, uint64_t call)
{
    asked_for = call;
    if (is_writable && call != WORKER_OPEN)
        say_size();
    peer_say(MESSAGE_CALL, wire);
}

static void open_file(void)
{
    struct wire wire = {0};
    wire_uint(&wire, WORKER_OPEN);
    wire_string(&wire, "fuzz.h5");
    put_description(&wire, 0, image_n, is_writable);
    say_call(&wire, WORKER_OPEN);
    wire_free(&wire);
    is_open = true;
}

/* Often one that the call is for, or the same one as before. */
static uint64_t an_object(uint64_t call)
{
    static const char *const meant[WORKER_CALLS] = {
        [WORKER_LIST] = ".g",
        [WORKER_LOOKUP] = ".g",
        [WORKER_FIND] = ".g",
        [WORKER_DATASET_OPEN] = "abcelprvw",
        [WORKER_DATASET_RENEW] = "abcelprvw",
        [WORKER_CACHE_SOURCES] = "v",
        [WORKER_MAPPINGS] = "v",
        [WORKER_LOCATE] = "acl",
        [WORKER_READ] = "abcpv",
        [WORKER_TEXT] = "abclprvw",
        [WORKER_PARTS] = "lrw",
        [WORKER_PATHS] = "lrw",
        [WORKER_DATATYPE_TEXT] = "t",
        [WORKER_SHOW] = "abcelprvw",
        [WORKER_WRITE] = "abcp",
        [WORKER_WRITE_SEQUENCES] = "lw",
        [WORKER_SET_EXTENT] = "acl",
        [WORKER_WRITE_CHUNKS] = "acl",
        [WORKER_PLACE] = "p",
        [WORKER_COPY_GROUP] = ".g",
        [WORKER_COPY_REFERENCES] = "r",
    };
    unsigned which = peer_byte();
    if (which < 160 && meant[call])
        current = objects_choose(meant[call], which);
    else if (which < 192)
        current = which % objects->n;
    return objects->address[current];
}

static void put_room(struct wire *wire, size_t n)
{
    void *room = wire_room(wire, n);
    if (room)
        memset(room, (int)peer_byte(), n);
    else
        wire->failed = true;
}

static void put_bytes(struct wire *wire, size_t n)
{
    wire_uint(wire, n);
    put_room(wire, n);
}

/* In chunks it may be the corner of one. */
static void put_corner(struct wire *wire)
{
    unsigned row = peer_byte(), column = peer_byte();
    bool is_chunk = row < 128;
    wire_uint(wire, is_chunk ? row % 4 * 7 : row % (OBJECTS_ROWS + 4));
    wire_uint(wire, is_chunk ? column % 3 * 3 : column % (OBJECTS_COLUMNS + 2));
}

static void put_rank(struct wire *wire)
{
    wire_uint(wire, peer_byte() % 16 ? 2 : peer_number());
}

/* Returns how many elements are in it; mostly it lies in the dataset. */
static uint64_t put_box(struct wire *wire)
{
    static const uint64_t dims[] = {OBJECTS_ROWS, OBJECTS_COLUMNS};
    uint64_t start[2], count[2];
    for (size_t i = 0; i < 2; i++) {
        unsigned how = peer_byte();
        start[i] = how % (dims[i] + (how >= 250));
        count[i] = how >= 240 ? how % 32 : 1 + peer_byte() % (dims[i] - start[i]);
    }
    put_rank(wire);
    wire_uints(wire, start, 2);
    wire_uints(wire, count, 2);
    return count[0] * count[1];
}

static size_t element_bytes(void)
{
    static const size_t sizes[] = {4, 8, 12, 16};
    unsigned how = peer_byte();
    return how % 8 ? objects->size[current] : sizes[how / 8 % 4];
}

static void put_sequences(struct wire *wire)
{
    uint64_t n = put_box(wire), length = peer_byte() % 5;
    wire_uint(wire, n * sizeof(length));
    for (uint64_t i = 0; i < n; i++)
        wire_uint(wire, length);
    put_bytes(wire, (size_t)(n * length) * (peer_byte() % 2 ? 1 : 4));
}

static void put_corners(struct wire *wire)
{
    unsigned n = 1 + peer_byte() % 6;
    put_rank(wire);
    wire_uint(wire, n);
    for (unsigned i = 0; i < n; i++)
        put_corner(wire);
}

static void put_chunks(struct wire *wire)
{
    unsigned n = 1 + peer_byte() % 5;
    put_rank(wire);
    wire_uint(wire, peer_byte() % 16 ? n : peer_number());
    for (unsigned i = 0; i < n; i++) {
        unsigned how = peer_byte();
        put_corner(wire);
        wire_uints(wire, (uint64_t[]){how % 8 ? 0 : how, how, how % 4 ? 0 : UINT64_MAX}, 3);
    }
}

static void put_several(struct wire *wire)
{
    wire_uint(wire, peer_byte() % 2 ? WORKER_OBJECT_TYPE : WORKER_ATTRIBUTES);
    for (unsigned n = 1 + peer_byte() % 6; n > 0; n--)
        wire_uint(wire, an_object(WORKER_SEVERAL));
}

/* Of a file, the same one, or none. */
static void put_source(struct wire *wire)
{
    unsigned which = peer_byte() % 4;
    wire_uint(wire, which > 2 ? COPY_FROM_OTHER : which);
    if (which < COPY_FROM_OTHER)
        return;
    wire_uints(wire, (uint64_t[]){7, peer_byte() % 2}, 2);
    wire_string(wire, "source.h5");
    put_description(wire, SOURCE, objects->file_n, false);
}

static void put_creation(struct wire *wire)
{
    static const unsigned char type[] = {3, 0, 0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0};
    const uint64_t dims[] = {4, 3}, most[] = {SFS_UNLIMITED, 3};
    bool is_chunked = peer_byte() % 4;
    wire_uint(wire, peer_byte() % 2);
    wire_string(wire, objects_new_path(peer_byte()));
    put_rank(wire);
    wire_uints(wire, dims, 2);
    wire_uint(wire, is_chunked);
    wire_uints(wire, most, is_chunked ? 2 : 0);
    wire_uint(wire, is_chunked);
    wire_uints(wire, dims, is_chunked ? 2 : 0);
    wire_uints(wire, (uint64_t[]){peer_byte() % 2, peer_byte() % 2, peer_byte() % 4}, 3);
    wire_uint(wire, peer_byte() % 3);
    wire_bytes(wire, type, sizeof(type));
    wire_bytes(wire, "1234", peer_byte() % 2 ? 4 : 0);
    wire_uint(wire, is_chunked);
    if (is_chunked)
        wire_uints(wire, (uint64_t[]){1 + peer_byte() % 6, peer_byte() % 2, 0, 1, 6}, 5);
    wire_uint(wire, an_object(WORKER_CREATE_DATASET));
    put_source(wire);
}

static void put_link(struct wire *wire)
{
    struct sfs_link link = {.type = peer_byte() % 2 ? SFS_LINK_SOFT : SFS_LINK_EXTERNAL,
                            .name = (char *)"",
                            .target = (char *)objects_path(peer_byte()),
                            .target_file = (char *)"other.h5"};
    wire_string(wire, objects_new_path(peer_byte()));
    wire_link(wire, &link);
}

static void put_parts(struct wire *wire)
{
    wire_uint(wire, peer_byte() % 4);
    wire_uint(wire, peer_byte() % 2 ? 0 : peer_number());
    wire_uint(wire, peer_byte() % 2 ? peer_byte() : peer_number());
    wire_uint(wire, peer_byte() % 2 ? 4096 : peer_number());
}

/* Mostly of objects. */
static void put_addresses(struct wire *wire)
{
    uint64_t n = peer_byte() % 8;
    wire_uint(wire, peer_byte() % 2 ? 4096 : peer_number());
    wire_uint(wire, peer_byte() % 16 ? n : peer_number());
    for (uint64_t i = 0; i < n; i++)
        wire_uint(wire,
                  peer_byte() % 4 ? objects->address[peer_byte() % objects->n] : peer_number());
}

/* Behind the object. */
static void put_dataset_call(struct wire *wire, uint64_t call)
{
    switch (call) {
    case WORKER_DATASET_RENEW:
        put_rank(wire);
        break;
    case WORKER_CACHE_SOURCES:
        wire_uint(wire, peer_number());
        wire_string(wire, objects_path(peer_byte()));
        break;
    case WORKER_TEXT:
    case WORKER_SHOW:
        wire_uint(wire, peer_byte() % 2 ? 4096 : peer_number());
        break;
    case WORKER_PARTS:
        put_parts(wire);
        break;
    case WORKER_PATHS:
        put_addresses(wire);
        break;
    case WORKER_LOCATE:
        put_corners(wire);
        break;
    case WORKER_READ:
        wire_uint(wire, put_box(wire) * element_bytes());
        break;
    case WORKER_WRITE:
        put_bytes(wire, (size_t)put_box(wire) * element_bytes());
        break;
    case WORKER_WRITE_SEQUENCES:
        put_sequences(wire);
        break;
    case WORKER_SET_EXTENT:
        put_rank(wire);
        put_corner(wire);
        break;
    case WORKER_WRITE_CHUNKS:
        put_chunks(wire);
        break;
    case WORKER_PLACE:
        wire_uints(wire, (uint64_t[]){0, OBJECTS_ROWS * OBJECTS_COLUMNS * 4}, 2);
        put_bytes(wire, element_bytes());
        break;
    default:
        break;
    }
}

/* Of the predefined kind: big and small integers, floats, strings. */
static void put_type_call(struct wire *wire, uint64_t call)
{
    static const unsigned char types[][16] = {
        {3, 0, 0x10, 8, 0, 0, 4, 0, 0, 0, 0, 0, 32, 0},
        {3, 0, 0x10, 0, 0, 0, 2, 0, 0, 0, 3, 0, 9, 0},
        {3, 0, 0x13, 0, 0, 0, 5, 0, 0, 0},
    };
    static const size_t sizes[] = {14, 14, 10};
    unsigned which = peer_byte() % 3;
    bool has_prefix = call != WORKER_TYPE_OF_MESSAGE;
    wire_bytes(wire, types[which] + (has_prefix ? 0 : 2), sizes[which] - (has_prefix ? 0 : 2));
    if (call == WORKER_TYPE_EQUAL)
        wire_bytes(wire, types[1], sizes[1]);
    if (call == WORKER_ELEMENT_PARSE)
        wire_string(wire, peer_byte() % 2 ? "-12.5" : "nan");
    if (call == WORKER_ELEMENTS_TEXT)
        wire_uints(wire, (uint64_t[]){peer_byte(), peer_byte() % 8, peer_byte() % 4}, 3);
    if (call == WORKER_ELEMENT_JSON || call == WORKER_ELEMENTS_TEXT)
        wire_bytes(wire, "0123456789012345678901234567890123456789", peer_byte() % 40);
}

/* Those that name no object first. */
static void put_file_call(struct wire *wire, uint64_t call)
{
    switch (call) {
    case WORKER_OPEN:
    case WORKER_RENEW:
        wire_string(wire, "fuzz.h5");
        put_description(wire, 0, image_n, is_writable);
        break;
    case WORKER_SEVERAL:
        put_several(wire);
        break;
    case WORKER_CREATE_GROUP:
        wire_string(wire, objects_new_path(peer_byte()));
        break;
    case WORKER_REMOVE_GROUP:
    case WORKER_UNLINK:
        wire_string(wire,
                    peer_byte() % 2 ? objects_path(peer_byte()) : objects_new_path(peer_byte()));
        break;
    case WORKER_CREATE_LINK:
        put_link(wire);
        break;
    case WORKER_CREATE_DATASET:
        put_creation(wire);
        break;
    case WORKER_COPY_ATTRIBUTES:
        wire_uints(wire, (uint64_t[]){an_object(call), an_object(call)}, 2);
        put_source(wire);
        break;
    case WORKER_COPY_OBJECT:
    case WORKER_COPY_GROUP:
    case WORKER_COPY_REFERENCES:
        wire_string(wire, call == WORKER_COPY_REFERENCES ? "/r" : objects_new_path(peer_byte()));
        wire_uint(wire, an_object(call));
        put_source(wire);
        break;
    default:
        break;
    }
}

static bool is_of_type(uint64_t call)
{
    return call >= WORKER_TYPE_OF_MESSAGE && call <= WORKER_ELEMENT_PARSE;
}

static bool is_of_file(uint64_t call)
{
    return call == WORKER_OPEN || call == WORKER_RENEW || call == WORKER_SEVERAL ||
           call >= WORKER_CREATE_GROUP;
}

static bool needs_open(uint64_t call)
{
    return call == WORKER_DATASET_RENEW || (call >= WORKER_CACHE_SOURCES && call <= WORKER_PARTS) ||
           (call >= WORKER_WRITE && call <= WORKER_PLACE);
}

/* So many bytes get space of their own, which is said in the message there. */
static void place_at(const unsigned char *there, uint64_t n)
{
    uint64_t address;
    if (n > MOST_PLACE || !grow(n, &address))
        address = UINT64_MAX;
    memcpy((unsigned char *)there, &address, sizeof(address));
}

/* Whatever stands in it now. */
static void place_chunks(struct wire *wire)
{
    struct cursor cursor = cursor_over(wire->bytes, wire->n);
    uint64_t numbers[SFS_MAX_RANK + 1];
    int rank = (int)take_uint(&cursor, SFS_MAX_RANK);
    for (uint64_t n = take_uint(&cursor, HDF5_MOST_STORED); n > 0; n--) {
        take_uints(&cursor, numbers, rank + 1); /* and the mask */
        uint64_t size = take_uint(&cursor, UINT64_MAX);
        const unsigned char *there = cursor_bytes(&cursor, sizeof(size));
        if (!there)
            break;
        place_at(there, size);
    }
}

static void place_all(struct wire *wire)
{
    struct cursor cursor = cursor_over(wire->bytes, wire->n);
    const unsigned char *there = cursor_bytes(&cursor, sizeof(uint64_t));
    uint64_t size = take_uint(&cursor, UINT64_MAX);
    if (!cursor.failed)
        place_at(there, size);
}

static void say_later(void)
{
    say_call(&later, later_call);
    later.n = 0;
}

static void open_first(const struct wire *wire, uint64_t call)
{
    struct wire open = {0};
    wire_uints(&open, (uint64_t[]){WORKER_DATASET_OPEN, objects->address[current]}, 2);
    wire_put(&later, wire->bytes, wire->n);
    later_call = call;
    say_call(&open, WORKER_DATASET_OPEN);
    wire_free(&open);
}

/* A header that is none, or of more than comes: nothing comes behind it, where an answer could be
 * taken for something else within a call. */
static void say_lie(void)
{
    peer_say(MESSAGE_KINDS, &(struct wire){0});
    is_closing = true;
}

/* An object first, or not; what follows can be spoilt. */
static void put_call(struct wire *wire, struct wire *arguments, uint64_t call)
{
    wire_uint(wire, call);
    if (is_of_type(call)) {
        put_type_call(arguments, call);
    } else if (is_of_file(call)) {
        put_file_call(arguments, call);
    } else {
        wire_uint(wire, an_object(call));
        if (call == WORKER_LOOKUP || call == WORKER_FIND)
            wire_string(arguments, objects_path(peer_byte()));
        put_dataset_call(arguments, call);
    }
}

static void call(void)
{
    struct wire wire = {0}, arguments = {0};
    uint64_t which = peer_byte() % WORKER_CALLS;
    unsigned how = peer_byte();
    put_call(&wire, &arguments, which);
    if (how % 8 == 1)
        peer_content(&arguments);
    if (how % 8 == 6)
        peer_spoil(&arguments);
    if (is_writable && which == WORKER_WRITE_CHUNKS)
        place_chunks(&arguments);
    if (is_writable && which == WORKER_PLACE)
        place_all(&arguments);
    wire_put(&wire, arguments.bytes, arguments.n);
    if (how == 254)
        say_lie();
    else if (how < 248 && needs_open(which) && !is_told[current])
        open_first(&wire, which);
    else
        say_call(&wire, which);
    wire_free(&arguments);
    wire_free(&wire);
}

bool peer_speaks(enum message_kind asked, struct cursor *last)
{
    if (has_answer(asked))
        answer(asked, last);
    else if (is_closing)
        return false;
    else if (!is_open)
        open_file();
    else if (later.n > 0)
        say_later();
    else if (!peer_is_over() && peer_byte() < 250)
        call();
    else if (!peer_is_over())
        say_size();
    else
        return false;
    return true;
}

/* What it has open is closed, and what it writes meanwhile is heard. */
static void close_file(void)
{
    struct cursor cursor;
    is_closing = true;
    if (setjmp(end) == 0) {
        local_close(served.hdf5);
        store_close(served.store);
        serve_question();
        (void)serve_ask(MESSAGE_INTERRUPTED, &cursor);
    }
    served.hdf5 = NULL;
    served.store = NULL;
    is_closing = is_open = false;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    be_quiet();
    hdf5_leave_at_exit(); /* what a broken file has left of it is not to be looked at again */
    objects = objects_make();
    peer_hears = hear;
    current = 0;
    memset(is_told, 0, sizeof(is_told));
    later.n = 0;
    image_n = objects->file_n;
    require(image_n < MOST);
    memcpy(image, objects->file, (size_t)image_n);
    peer_begin(bytes, n);
    is_writable = peer_byte() % 2;
    if (setjmp(end) == 0)
        worker_serve(0);
    close_file();
    return 0;
}
