/* The calls of hdf5.h, as they come from the program over a socket: each is decoded, done here by
 * libhdf5, and its results are encoded. The file is where the program is, which is asked for its
 * bytes. */
#include "hdf5/worker/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/box.h"
#include "common/clock.h"
#include "common/log.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/worker/channel.h"
#include "hdf5/worker/listed.h"
#include "hdf5/worker/serve_private.h"
#include "store/store.h"

#define MOST_CHUNK_BYTES UINT32_MAX /* that libhdf5 takes */

#define MOST_UNSENT ((size_t)64 << 10) /* bytes */

#define AHEAD_NANOS 20000000 /* for what is asked for of several objects at once */
#define MOST_SHOWN  4096     /* elements of a dataset, bytes of one, whose text is small */
#define ASK_NANOS   50000000 /* between two questions whether a call is to end early */

/* Metadata is read in pages, of which some are kept. */
#define PAGE_BYTES ((uint64_t)16 << 10)
#define N_PAGES    128

struct page {
    bool is_there;
    uint64_t file, address;
    unsigned char bytes[PAGE_BYTES];
};

static struct {
    int socket;
    struct hdf5 *hdf5;
    struct store *store;
    struct file *file;   /* that the store reads */
    struct wire wire;    /* of what is asked for in a call */
    struct wire changes; /* messages that have no answer, and are not sent yet */
    uint64_t asked;      /* when it was asked last whether to end */
    bool is_in_call;
    bool is_ahead; /* nobody waits for what is done */
    struct page pages[N_PAGES];
    /* What stands for the bytes of a call that were not sent: only its addresses count. */
    const char *payload;
    size_t payload_n;
} served;

/* Nobody is there: nothing is left to do. */
static void need(int error)
{
    if (error)
        _exit(0);
}

/* Starts a question. */
static struct wire *question(void)
{
    served.wire.n = 0;
    served.wire.failed = false;
    return &served.wire;
}

/* What was changed before is told before. */
static void send_changes(void)
{
    if (served.changes.n > 0 || served.changes.failed)
        need(channel_send_batch(served.socket, &served.changes, UINT64_MAX));
    served.changes.n = 0;
}

static void tell(enum message_kind kind)
{
    channel_put(&served.changes, kind, &served.wire);
    if (served.changes.n >= MOST_UNSENT || served.changes.failed)
        send_changes();
}

/* Sends it, and gives the answer's error and, in *cursor, the rest. */
static int ask(enum message_kind kind, struct cursor *cursor)
{
    send_changes();
    need(channel_send(served.socket, kind, &served.wire, UINT64_MAX));
    need(channel_receive(served.socket, &kind, &served.wire, UINT64_MAX));
    *cursor = cursor_over(served.wire.bytes, served.wire.n);
    return -(int)take_uint(cursor, INT32_MAX);
}

static void log_line(int level, const char *line)
{
    if (!served.is_in_call)
        return;
    struct wire *wire = question();
    wire_uint(wire, (uint64_t)level);
    wire_string(wire, line);
    need(channel_send(served.socket, MESSAGE_LOG, wire, UINT64_MAX));
}

static bool is_interrupted(void *context)
{
    (void)context;
    struct cursor cursor;
    uint64_t now = clock_now();
    if (now < served.asked + ASK_NANOS)
        return false;
    served.asked = now;
    question();
    return ask(MESSAGE_INTERRUPTED, &cursor) != 0;
}

/* ---- Files ---- */

struct file {
    uint64_t number, size;
    bool is_live; /* it changes meanwhile: nothing of it is kept */
};

static int read_there(const struct file *file, uint64_t address, void *buffer, size_t n,
                      bool is_ahead)
{
    struct cursor cursor;
    wire_uints(question(), (uint64_t[]){file->number, address, n, is_ahead}, 4);
    int error = ask(MESSAGE_READ, &cursor);
    const unsigned char *bytes = error ? NULL : cursor_bytes(&cursor, n);
    if (bytes)
        memcpy(buffer, bytes, n);
    return error ? error : bytes ? 0 : -EIO;
}

static struct page *page_of(const struct file *file, uint64_t address)
{
    uint64_t start = address - address % PAGE_BYTES;
    struct page *page = &served.pages[(start / PAGE_BYTES + file->number * 31) % N_PAGES];
    if (page->is_there && page->file == file->number && page->address == start)
        return page;
    uint64_t left = file->size - start;
    page->is_there = false;
    if (read_there(file, start, page->bytes, left < PAGE_BYTES ? (size_t)left : PAGE_BYTES, true) <
        0)
        return NULL;
    page->is_there = true;
    page->file = file->number;
    page->address = start;
    return page;
}

/* Of a page that cannot be read some part may be. */
static int read_part(const struct file *file, uint64_t address, void *buffer, size_t n)
{
    const struct page *page = n < PAGE_BYTES && !file->is_live ? page_of(file, address) : NULL;
    if (page)
        memcpy(buffer, page->bytes + (address - page->address), n);
    return page ? 0 : read_there(file, address, buffer, n, false);
}

static int read_file(void *context, uint64_t address, void *buffer, size_t n)
{
    const struct file *file = context;
    char *to = buffer;
    int error = 0;
    while (n > 0 && !error) {
        uint64_t room = n < PAGE_BYTES ? PAGE_BYTES - address % PAGE_BYTES : CHANNEL_MOST_READ;
        size_t part = n < room ? n : (size_t)room;
        error = read_part(file, address, to, part);
        address += part;
        to += part;
        n -= part;
    }
    return error;
}

static void forget_pages(const struct file *file)
{
    for (size_t i = 0; i < N_PAGES; i++)
        served.pages[i].is_there &= served.pages[i].file != file->number;
}

static uint64_t end_of(void *context)
{
    const struct file *file = context;
    struct cursor cursor;
    wire_uint(question(), file->number);
    int error = ask(MESSAGE_END_OF, &cursor);
    uint64_t end = take_uint(&cursor, INT64_MAX);
    return error || cursor.failed ? file->size : end;
}

/* ---- Changing it: the program answers only what is asked ---- */

static bool is_payload(const char *bytes, size_t n)
{
    return served.payload && bytes >= served.payload && n <= served.payload_n &&
           (size_t)(bytes - served.payload) <= served.payload_n - n;
}

static void forget_bytes(const struct file *file, uint64_t address, size_t n)
{
    for (size_t i = 0; i < N_PAGES; i++) {
        struct page *page = &served.pages[i];
        page->is_there &= page->file != file->number || page->address >= address + n ||
                          address >= page->address + PAGE_BYTES;
    }
}

static int write_file(void *context, uint64_t address, const void *bytes, size_t n)
{
    const char *from = bytes;
    forget_bytes(context, address, n);
    if (is_payload(from, n)) {
        uint64_t offset = (uint64_t)(from - served.payload);
        wire_uints(question(), (uint64_t[]){address, offset, n}, 3);
        tell(MESSAGE_WRITE_NAMED);
        return 0;
    }
    for (size_t part; n > 0; n -= part, from += part, address += part) {
        part = n < CHANNEL_MOST_READ ? n : CHANNEL_MOST_READ;
        wire_uint(question(), address);
        wire_bytes(&served.wire, from, part);
        tell(MESSAGE_WRITE);
    }
    return 0;
}

static int allocate_in_file(void *context, uint64_t n, uint64_t *address, uint64_t *size)
{
    struct file *file = context;
    struct cursor cursor;
    wire_uint(question(), n);
    int error = ask(MESSAGE_ALLOCATE, &cursor);
    *address = take_uint(&cursor, UINT64_MAX);
    *size = file->size = take_uint(&cursor, INT64_MAX);
    return error;
}

static int free_in_file(void *context, uint64_t address, uint64_t n)
{
    (void)context;
    wire_uints(question(), (uint64_t[]){address, n}, 2);
    tell(MESSAGE_FREE);
    return 0;
}

static uint64_t end_in_use(void *context)
{
    (void)context;
    struct cursor cursor;
    question();
    (void)ask(MESSAGE_END_IN_USE, &cursor);
    return take_uint(&cursor, INT64_MAX);
}

/* Others have allocated space since the last call. */
static void take_size(struct cursor *cursor)
{
    uint64_t size = take_uint(cursor, INT64_MAX);
    if (cursor->failed || !served.store)
        return;
    served.file->size = size;
    store_resize_reader(served.store, size);
}

static void close_file(void *context)
{
    struct file *file = context;
    forget_pages(file);
    if (file->number > 0) {
        wire_uint(question(), file->number);
        need(channel_send(served.socket, MESSAGE_LET_GO, &served.wire, UINT64_MAX));
    }
    free(file);
}

/* As the program describes its store. */
static struct store_reader take_reader(struct cursor *cursor, struct file *file)
{
    struct store_reader reader = {
        .read = read_file, .end = end_of, .close = close_file, .context = file};
    file->number = take_uint(cursor, UINT64_MAX);
    reader.size = file->size = take_uint(cursor, INT64_MAX);
    reader.device = take_uint(cursor, UINT64_MAX);
    reader.inode = take_uint(cursor, UINT64_MAX);
    reader.follows = take_bool(cursor);
    reader.is_live = file->is_live = take_bool(cursor);
    if (take_bool(cursor)) {
        reader.write = write_file;
        reader.allocate = allocate_in_file;
        reader.release = free_in_file;
        reader.end_in_use = end_in_use;
    }
    return reader;
}

/* A store that reads over the socket; its description is what follows in the message. */
static int open_store(struct cursor *cursor, const char *name, struct store **store,
                      struct file **out)
{
    struct file *file = malloc(sizeof(*file));
    if (!file)
        return -ENOMEM;
    struct store_reader reader = take_reader(cursor, file);
    int error = cursor->failed ? -EIO : store_open_reader(name, &reader, store);
    if (error)
        free(file);
    else
        *out = file;
    return error;
}

/* What libhdf5 finds in virtual datasets. */
static int find_other(const struct store *from, const char *name, struct store **store,
                      bool *is_refused)
{
    struct cursor cursor;
    struct file *file;
    wire_string(question(), name);
    wire_uint(&served.wire, serve_is_source(from));
    int error = ask(MESSAGE_FIND, &cursor);
    *is_refused = take_bool(&cursor);
    return error ? error : open_store(&cursor, name, store, &file);
}

struct hdf5 *serve_file(void)
{
    return served.hdf5;
}

int serve_open_store(struct cursor *cursor, const char *name, struct store **store)
{
    struct file *file;
    return open_store(cursor, name, store, &file);
}

const char *serve_path_of_copy(uint64_t address)
{
    static char *path;
    struct cursor cursor;
    free(path);
    path = NULL;
    wire_uint(question(), address);
    if (ask(MESSAGE_PATH_OF_COPY, &cursor) < 0 || take_string(&cursor, true, &path) < 0)
        return NULL;
    return path;
}

/* ---- Calls: each takes its arguments, and puts its results ---- */

static uint64_t take_object(struct cursor *in)
{
    return take_uint(in, UINT64_MAX);
}

static int do_open(struct cursor *in, struct wire *out)
{
    char *name;
    int error = served.store ? -EINVAL : take_string(in, true, &name);
    if (error)
        return error;
    error = open_store(in, name, &served.store, &served.file);
    free(name);
    if (!error)
        error = local_open(served.store, &served.hdf5);
    if (!error)
        wire_uint(out, served.hdf5->root);
    return error;
}

static int do_renew(struct cursor *in, struct wire *out)
{
    char *name;
    int error = take_string(in, true, &name);
    free(name);
    if (error)
        return error;
    const struct store_reader reader = take_reader(in, served.file);
    store_renew_reader(served.store, &reader);
    forget_pages(served.file);
    error = local_renew(served.hdf5);
    if (!error)
        wire_uint(out, served.hdf5->root);
    return error;
}

static int do_list(struct cursor *in, struct wire *out)
{
    struct sfs_links links;
    int error = local_list(served.hdf5, take_object(in), &links);
    if (error)
        return error;
    wire_links(out, &links);
    sfs_links_free(&links);
    return 0;
}

static int do_lookup(struct cursor *in, struct wire *out)
{
    struct sfs_link link;
    char *name;
    uint64_t group = take_object(in);
    int error = take_string(in, true, &name);
    if (!error)
        error = local_lookup(served.hdf5, group, name, &link);
    if (!error) {
        wire_link(out, &link);
        sfs_link_free(&link);
    }
    free(name);
    return error;
}

static int do_find(struct cursor *in, struct wire *out)
{
    char *path;
    uint64_t address, group = take_object(in);
    int error = take_string(in, true, &path);
    if (!error)
        error = local_find(served.hdf5, group, path, &address);
    if (!error)
        wire_uint(out, address);
    free(path);
    return error;
}

static int do_object_type(struct cursor *in, struct wire *out)
{
    enum sfs_object_type type;
    int error = local_object_type(served.hdf5, take_object(in), &type);
    if (!error)
        wire_uint(out, type);
    return error;
}

static int do_attributes(struct cursor *in, struct wire *out)
{
    struct sfs_attributes attributes;
    uint64_t object = take_object(in);
    int error = served.is_ahead ? local_attributes_at_hand(served.hdf5, object, &attributes)
                                : local_attributes(served.hdf5, object, &attributes);
    if (error)
        return error;
    wire_attributes(out, &attributes);
    sfs_attributes_free(&attributes);
    return 0;
}

/* The results of the next object, if there is room. -EFBIG: there is none. */
static int put_next(call_function function, struct cursor *in, struct wire *out)
{
    struct wire results = {0};
    int error = function(in, &results);
    if (served.is_ahead && (error == -EIO || error == -EAGAIN)) {
        results.n = 0; /* it is asked for alone, if at all */
        error = 0;
    }
    if (!error && results.failed)
        error = -ENOMEM;
    if (!error && served.is_ahead && results.n + sizeof(uint64_t) + out->n > LISTED_MOST_BYTES)
        error = -EFBIG;
    if (!error)
        wire_bytes(out, results.bytes, results.n);
    wire_free(&results);
    return error;
}

/* What keeps those behind the first one from being answered is no error: they are asked for again.
 */
static int do_several(struct cursor *in, struct wire *out)
{
    uint64_t begun = clock_now(), call = take_uint(in, WORKER_CALLS - 1);
    call_function function = call == WORKER_OBJECT_TYPE  ? do_object_type
                             : call == WORKER_ATTRIBUTES ? do_attributes
                                                         : NULL;
    if (in->failed || !function)
        return -EINVAL;
    int error = put_next(function, in, out), ahead = error;
    served.is_ahead = true;
    while (!ahead && in->left > 0 && clock_now() - begun < AHEAD_NANOS)
        ahead = put_next(function, in, out);
    served.is_ahead = false;
    return error;
}

/* Text that is soon made, of what the program does not read itself. */
static void put_small_text(uint64_t dataset, const struct sfs_dataset_info *info, size_t limit,
                           struct wire *out)
{
    char *text = NULL;
    size_t n = 0;
    bool is_small = (info->layout == SFS_CONTIGUOUS || info->layout == SFS_COMPACT) &&
                    info->elements <= MOST_SHOWN && info->type.size <= MOST_SHOWN;
    size_t most = limit < LISTED_MOST_BYTES ? limit : LISTED_MOST_BYTES;
    int error = is_small ? local_text_at_hand(served.hdf5, dataset, most, &text, &n) : -EOPNOTSUPP;
    bool is_there = !error && n <= LISTED_MOST_BYTES;
    wire_uint(out, is_there);
    if (is_there)
        wire_bytes(out, text, n);
    free(error ? NULL : text);
}

static int open_dataset(struct cursor *in, struct wire *out, bool with_text)
{
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    uint64_t dataset = take_object(in);
    size_t limit = with_text ? (size_t)take_uint(in, SIZE_MAX) : 0;
    int error = local_dataset_open(served.hdf5, dataset, &info, &storage);
    if (error)
        return error;
    wire_info(out, &info);
    wire_storage(out, &storage);
    if (with_text)
        put_small_text(dataset, &info, limit, out);
    hdf5_info_free(&info);
    hdf5_segments_free(storage.n_segments, storage.segments);
    return 0;
}

static int do_dataset_open(struct cursor *in, struct wire *out)
{
    return open_dataset(in, out, false);
}

static int do_show(struct cursor *in, struct wire *out)
{
    return open_dataset(in, out, true);
}

static int do_dataset_close(struct cursor *in, struct wire *out)
{
    (void)out;
    local_dataset_close(served.hdf5, take_object(in));
    return 0;
}

/* An open dataset of this rank, with all arguments taken. -EBADF: it is to be opened first. */
static int find_open(uint64_t address, int rank, const struct cursor *in,
                     const struct open_dataset **dataset)
{
    library_enter();
    *dataset = dataset_find(served.hdf5, address);
    library_leave();
    return !*dataset ? -EBADF : in->failed || (*dataset)->rank != rank ? -EINVAL : 0;
}

static int do_dataset_renew(struct cursor *in, struct wire *out)
{
    uint64_t dims[SFS_MAX_RANK], data_address, dataset = take_object(in);
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    int error =
        in->failed ? -EIO : local_dataset_renew(served.hdf5, dataset, rank, dims, &data_address);
    if (error)
        return error;
    wire_uints(out, dims, rank);
    wire_uint(out, data_address);
    return 0;
}

static int do_cache_sources(struct cursor *in, struct wire *out)
{
    (void)out;
    char *path;
    uint64_t dataset = take_object(in), bytes = take_uint(in, SIZE_MAX);
    int error = take_string(in, true, &path);
    if (!error)
        error = local_cache_sources(served.hdf5, dataset, path, (size_t)bytes);
    free(path);
    return error;
}

static int do_mappings(struct cursor *in, struct wire *out)
{
    struct hdf5_mappings mappings;
    int error = local_mappings(served.hdf5, take_object(in), &mappings);
    if (error)
        return error;
    wire_mappings(out, &mappings);
    hdf5_mappings_free(&mappings);
    return 0;
}

/* Of several chunks those before the first that cannot be found. */
static int do_locate(struct cursor *in, struct wire *out)
{
    uint64_t start[SFS_MAX_RANK], address = take_object(in);
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    size_t n = (size_t)take_uint(in, SIZE_MAX);
    const struct open_dataset *dataset;
    int error = find_open(address, rank, in, &dataset);
    for (size_t i = 0; i < n && !error; i++) {
        struct hdf5_chunk chunk;
        take_uints(in, start, rank);
        error = in->failed ? -EINVAL : local_locate(served.hdf5, address, start, &chunk);
        if (error)
            return i > 0 ? 0 : error;
        wire_chunk(out, &chunk);
    }
    return error;
}

/* Packed, whatever the array is that it belongs into. */
static int do_read(struct cursor *in, struct wire *out)
{
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK], address = take_object(in), needed;
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    take_uints(in, start, rank);
    take_uints(in, count, rank);
    uint64_t bytes = take_uint(in, WIRE_MOST_BYTES);
    const struct open_dataset *dataset;
    int error = find_open(address, rank, in, &dataset);
    if (!error && (!box_product(count, rank, dataset->size, &needed) || needed > bytes))
        error = -EINVAL;
    void *room = error ? NULL : wire_room(out, (size_t)bytes);
    if (!room)
        return error ? error : -ENOMEM;
    memset(room, 0, (size_t)bytes);
    return local_read(served.hdf5, address, start, count, count, room);
}

static int do_text(struct cursor *in, struct wire *out)
{
    uint64_t dataset = take_object(in), limit = take_uint(in, SIZE_MAX);
    char *text;
    size_t n;
    int error = local_text(served.hdf5, dataset, (size_t)limit, &text, &n);
    if (error)
        return error;
    wire_bytes(out, text, n);
    free(text);
    return 0;
}

static int do_parts(struct cursor *in, struct wire *out)
{
    uint64_t dataset = take_object(in);
    enum sfs_parts parts = (enum sfs_parts)take_uint(in, SFS_LINES);
    uint64_t first = take_uint(in, UINT64_MAX), n = take_uint(in, SFS_MOST_PARTS);
    uint64_t most = take_uint(in, SIZE_MAX);
    char *bytes;
    size_t bytes_n;
    int error = in->failed ? -EINVAL
                           : local_parts(served.hdf5, dataset, parts, first, n, (size_t)most,
                                         &bytes, &bytes_n);
    if (error)
        return error;
    wire_bytes(out, bytes, bytes_n);
    free(bytes);
    return 0;
}

static int put_string(struct wire *out, int error, char *string)
{
    if (error)
        return error;
    wire_string(out, string);
    free(string);
    return 0;
}

static int do_datatype_text(struct cursor *in, struct wire *out)
{
    char *text;
    int error = local_datatype_text(served.hdf5, take_object(in), &text);
    return put_string(out, error, text);
}

/* ---- Calls that change the file: each has an integer for a result ---- */

int serve_put_number(struct wire *out, int error, uint64_t number)
{
    if (!error)
        wire_uint(out, number);
    return error;
}

static int do_write(struct cursor *in, struct wire *out)
{
    uint64_t start[SFS_MAX_RANK], count[SFS_MAX_RANK], address = take_object(in), bytes;
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    take_uints(in, start, rank);
    take_uints(in, count, rank);
    struct sfs_encoded elements = {.n = take_count(in, 1)};
    elements.bytes = cursor_bytes(in, elements.n);
    const struct open_dataset *dataset;
    int error = find_open(address, rank, in, &dataset);
    if (!error && (!box_product(count, rank, dataset->size, &bytes) || bytes > elements.n))
        error = -EINVAL;
    if (error)
        return error;
    return serve_put_number(out, local_write(served.hdf5, address, start, count, elements.bytes),
                            0);
}

static int do_set_extent(struct cursor *in, struct wire *out)
{
    uint64_t dims[SFS_MAX_RANK], address = take_object(in);
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    take_uints(in, dims, rank);
    const struct open_dataset *dataset;
    int error = find_open(address, rank, in, &dataset);
    if (error)
        return error;
    return serve_put_number(out, local_set_extent(served.hdf5, address, dims), 0);
}

/* libhdf5 passes on what it is given: so it is given memory that nobody touches. */
static int do_write_chunk(struct cursor *in, struct wire *out)
{
    uint64_t start[SFS_MAX_RANK], address = take_object(in);
    int rank = (int)take_uint(in, SFS_MAX_RANK);
    take_uints(in, start, rank);
    uint32_t mask = (uint32_t)take_uint(in, UINT32_MAX);
    size_t n = (size_t)take_uint(in, MOST_CHUNK_BYTES);
    struct driver_placed placed = {.address = take_uint(in, UINT64_MAX)};
    const struct open_dataset *dataset;
    int error = find_open(address, rank, in, &dataset);
    if (error)
        return error;
    char *bytes = calloc(n ? n : 1, 1);
    if (!bytes)
        return -ENOMEM;
    placed.n = placed.address == UINT64_MAX ? 0 : n;
    served.payload = bytes;
    served.payload_n = n;
    driver_expect(bytes, n);
    error = dataset_put_chunk(served.hdf5, address, start, mask, bytes, n, &placed);
    driver_expect(NULL, 0);
    served.payload = NULL;
    free(bytes);
    return serve_put_number(out, error, placed.is_taken);
}

static int do_place(struct cursor *in, struct wire *out)
{
    uint64_t address = take_object(in), at = take_uint(in, UINT64_MAX);
    uint64_t n = take_uint(in, UINT64_MAX);
    struct sfs_encoded element = {.n = take_count(in, 1)};
    element.bytes = cursor_bytes(in, element.n);
    library_enter();
    const struct open_dataset *dataset = dataset_find(served.hdf5, address);
    library_leave();
    if (!dataset)
        return -EBADF;
    if (in->failed || element.n < dataset->size)
        return -EINVAL;
    int error = local_place(served.hdf5, address, &at, n, element.bytes);
    return serve_put_number(out, error, at);
}

static int change_at(struct cursor *in, struct wire *out,
                     int (*change)(struct hdf5 *hdf5, const char *path))
{
    char *path;
    int error = take_string(in, true, &path);
    if (!error)
        error = change(served.hdf5, path);
    free(path);
    return serve_put_number(out, error, 0);
}

static int do_create_group(struct cursor *in, struct wire *out)
{
    return change_at(in, out, local_create_group);
}

static int do_remove_group(struct cursor *in, struct wire *out)
{
    return change_at(in, out, local_remove_group);
}

static int do_unlink(struct cursor *in, struct wire *out)
{
    return change_at(in, out, local_unlink);
}

static int do_reopen(struct cursor *in, struct wire *out)
{
    (void)in;
    return serve_put_number(out, local_reopen(served.hdf5), 0);
}

static int do_create_link(struct cursor *in, struct wire *out)
{
    char *path;
    struct sfs_link link;
    int error = take_string(in, true, &path);
    if (error)
        return error;
    error = take_link(in, &link);
    if (!error) {
        error = link.target ? local_create_link(served.hdf5, path, &link) : -EINVAL;
        sfs_link_free(&link);
    }
    free(path);
    return serve_put_number(out, error, 0);
}

/* ---- Calls about datatypes, which need no file ---- */

struct sfs_encoded serve_take_encoded(struct cursor *in)
{
    struct sfs_encoded encoded = {.n = take_count(in, 1)};
    encoded.bytes = cursor_bytes(in, encoded.n);
    if (!encoded.bytes)
        encoded.n = 0;
    return encoded;
}

static int do_type_of_message(struct cursor *in, struct wire *out)
{
    struct sfs_encoded message = serve_take_encoded(in);
    void *type;
    size_t n;
    int error = local_type_of_message(message.bytes, message.n, &type, &n);
    if (error)
        return error;
    wire_bytes(out, type, n);
    free(type);
    return 0;
}

static int do_type_describe(struct cursor *in, struct wire *out)
{
    struct sfs_encoded type = serve_take_encoded(in);
    struct sfs_type description;
    int error = local_type_describe(type.bytes, type.n, &description);
    if (error)
        return error;
    wire_type(out, &description);
    hdf5_type_free(&description);
    return 0;
}

static int do_type_size(struct cursor *in, struct wire *out)
{
    struct sfs_encoded type = serve_take_encoded(in);
    size_t size;
    int error = local_type_size(type.bytes, type.n, &size);
    if (!error)
        wire_uint(out, size);
    return error;
}

static int do_type_equal(struct cursor *in, struct wire *out)
{
    struct sfs_encoded a = serve_take_encoded(in), b = serve_take_encoded(in);
    wire_uint(out, local_type_equal(a.bytes, a.n, b.bytes, b.n));
    return 0;
}

static int do_element_json(struct cursor *in, struct wire *out)
{
    struct sfs_encoded type = serve_take_encoded(in), element = serve_take_encoded(in);
    char *json;
    size_t size;
    int error = local_type_size(type.bytes, type.n, &size);
    if (!error && size > element.n)
        error = -EINVAL;
    if (!error)
        error = local_element_json(type.bytes, type.n, element.bytes, &json);
    return put_string(out, error, error ? NULL : json);
}

static int do_elements_text(struct cursor *in, struct wire *out)
{
    struct sfs_encoded type = serve_take_encoded(in);
    uint64_t first = take_uint(in, UINT64_MAX), n = take_uint(in, UINT64_MAX);
    uint64_t row_length = take_uint(in, UINT64_MAX), bytes;
    struct sfs_encoded elements = serve_take_encoded(in);
    char *text;
    size_t size, text_n;
    int error = local_type_size(type.bytes, type.n, &size);
    if (!error && (!box_product(&n, 1, size, &bytes) || bytes > elements.n))
        error = -EINVAL;
    if (!error)
        error = local_elements_text(&type, first, n, row_length, elements.bytes, &text, &text_n);
    if (error)
        return error;
    wire_bytes(out, text, text_n);
    free(text);
    return 0;
}

static int do_element_parse(struct cursor *in, struct wire *out)
{
    struct sfs_encoded type = serve_take_encoded(in);
    char *text;
    size_t size;
    int error = take_string(in, true, &text);
    if (error)
        return error;
    error = local_type_size(type.bytes, type.n, &size);
    void *element = error ? NULL : calloc(size, 1);
    if (!error)
        error = element ? local_element_parse(type.bytes, type.n, text, element) : -ENOMEM;
    if (!error)
        wire_bytes(out, element, size);
    free(element);
    free(text);
    return error;
}

static const struct {
    call_function function;
    bool needs_file;
} calls[WORKER_CALLS] = {
    [WORKER_OPEN] = {do_open, false},
    [WORKER_RENEW] = {do_renew, true},
    [WORKER_LIST] = {do_list, true},
    [WORKER_LOOKUP] = {do_lookup, true},
    [WORKER_FIND] = {do_find, true},
    [WORKER_OBJECT_TYPE] = {do_object_type, true},
    [WORKER_ATTRIBUTES] = {do_attributes, true},
    [WORKER_DATASET_OPEN] = {do_dataset_open, true},
    [WORKER_DATASET_CLOSE] = {do_dataset_close, true},
    [WORKER_DATASET_RENEW] = {do_dataset_renew, true},
    [WORKER_CACHE_SOURCES] = {do_cache_sources, true},
    [WORKER_MAPPINGS] = {do_mappings, true},
    [WORKER_LOCATE] = {do_locate, true},
    [WORKER_READ] = {do_read, true},
    [WORKER_TEXT] = {do_text, true},
    [WORKER_PARTS] = {do_parts, true},
    [WORKER_DATATYPE_TEXT] = {do_datatype_text, true},
    [WORKER_TYPE_OF_MESSAGE] = {do_type_of_message, false},
    [WORKER_TYPE_DESCRIBE] = {do_type_describe, false},
    [WORKER_TYPE_SIZE] = {do_type_size, false},
    [WORKER_TYPE_EQUAL] = {do_type_equal, false},
    [WORKER_ELEMENT_JSON] = {do_element_json, false},
    [WORKER_ELEMENTS_TEXT] = {do_elements_text, false},
    [WORKER_ELEMENT_PARSE] = {do_element_parse, false},
    [WORKER_SEVERAL] = {do_several, true},
    [WORKER_SHOW] = {do_show, true},
    [WORKER_WRITE] = {do_write, true},
    [WORKER_SET_EXTENT] = {do_set_extent, true},
    [WORKER_WRITE_CHUNK] = {do_write_chunk, true},
    [WORKER_PLACE] = {do_place, true},
    [WORKER_CREATE_GROUP] = {do_create_group, true},
    [WORKER_REMOVE_GROUP] = {do_remove_group, true},
    [WORKER_REOPEN] = {do_reopen, true},
    [WORKER_CREATE_LINK] = {do_create_link, true},
    [WORKER_UNLINK] = {do_unlink, true},
    [WORKER_CREATE_DATASET] = {serve_create_dataset, true},
    [WORKER_COPY_ATTRIBUTES] = {serve_copy_attributes, true},
    [WORKER_COPY_OBJECT] = {serve_copy_object, true},
    [WORKER_COPY_GROUP] = {serve_copy_group, true},
    [WORKER_COPY_REFERENCES] = {serve_copy_references, true},
};

/* All that a call has changed is to be told before its end. What one that failed has left behind is
 * told, too: then the program knows that it has, and ends us. */
static int tell_changes(int error)
{
    int flushed = error ? file_write_changed(served.hdf5) : local_flush(served.hdf5);
    return error ? error : flushed;
}

static int do_call(uint64_t call, struct cursor *in, struct wire *results)
{
    if (in->failed || (calls[call].needs_file && !served.hdf5))
        return -EINVAL;
    if (served.store && store_is_writable(served.store))
        forget_pages(served.file);
    int error = calls[call].function(in, results);
    return call >= WORKER_FIRST_CHANGE ? tell_changes(error) : error;
}

/* Does a call, and makes the reply of it. */
static void answer(struct cursor *in, struct wire *out)
{
    struct wire results = {0};
    uint64_t call = take_uint(in, WORKER_CALLS - 1);
    int error = do_call(call, in, &results);
    if (!error && results.failed)
        error = library_failed_because(-EFBIG, "the answer is too large");
    wire_uint(out, (uint64_t)-error);
    wire_string(out, error ? hdf5_error() : "");
    if (!error)
        wire_put(out, results.bytes, results.n);
    wire_free(&results);
}

void worker_serve(int socket)
{
    struct wire in = {0}, out = {0};
    enum message_kind kind;
    served.socket = socket;
    sfs_set_log(log_line, LOG_INFO);
    sfs_set_interrupt(is_interrupted, NULL);
    driver_set_finder(find_other);
    while (channel_receive(socket, &kind, &in, UINT64_MAX) == 0 &&
           (kind == MESSAGE_CALL || kind == MESSAGE_SIZE)) {
        struct cursor cursor = cursor_over(in.bytes, in.n);
        if (kind == MESSAGE_SIZE) {
            take_size(&cursor);
            continue;
        }
        out.n = 0;
        out.failed = false;
        served.asked = clock_now();
        served.is_in_call = true;
        answer(&cursor, &out);
        send_changes();
        served.is_in_call = false;
        if (channel_send(socket, MESSAGE_REPLY, &out, UINT64_MAX) < 0)
            break;
    }
    wire_free(&in);
    wire_free(&out);
    _exit(0);
}
