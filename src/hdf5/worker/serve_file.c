/* The bytes of files, which are where the program is: reading them over the socket, and telling it
 * of changes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/worker/channel.h"
#include "hdf5/worker/serve_private.h"
#include "store/store.h"

/* Metadata is read in pages, of which some are kept. Which ones they are is looked at for every
 * call: beside their bytes that alone would touch memory by the megabyte. */
#define PAGE_BYTES ((uint64_t)16 << 10)
#define N_PAGES    128

static struct page {
    bool is_there;
    uint64_t file, address;
} pages[N_PAGES];

static unsigned char bytes_of_pages[N_PAGES][PAGE_BYTES];

static unsigned char *bytes_of(const struct page *page)
{
    return bytes_of_pages[page - pages];
}

static int read_there(const struct served_file *file, uint64_t address, void *buffer, size_t n,
                      bool is_ahead)
{
    struct cursor cursor;
    wire_uints(serve_question(), (uint64_t[]){file->number, address, n, is_ahead}, 4);
    int error = serve_ask(MESSAGE_READ, &cursor);
    const unsigned char *bytes = error ? NULL : cursor_bytes(&cursor, n);
    if (bytes)
        memcpy(buffer, bytes, n);
    return error ? error : bytes ? 0 : -EIO;
}

static struct page *page_of(const struct served_file *file, uint64_t address)
{
    uint64_t start = address - address % PAGE_BYTES;
    struct page *page = &pages[(start / PAGE_BYTES + file->number * 31) % N_PAGES];
    if (page->is_there && page->file == file->number && page->address == start)
        return page;
    uint64_t left = file->size - start;
    page->is_there = false;
    size_t n = left < PAGE_BYTES ? (size_t)left : PAGE_BYTES;
    if (read_there(file, start, bytes_of(page), n, true) < 0)
        return NULL;
    page->is_there = true;
    page->file = file->number;
    page->address = start;
    return page;
}

/* Of a page that cannot be read some part may be. */
static int read_part(const struct served_file *file, uint64_t address, void *buffer, size_t n)
{
    const struct page *page = n < PAGE_BYTES && !file->is_live ? page_of(file, address) : NULL;
    if (page)
        memcpy(buffer, bytes_of(page) + (address - page->address), n);
    return page ? 0 : read_there(file, address, buffer, n, false);
}

static int read_file(void *context, uint64_t address, void *buffer, size_t n)
{
    const struct served_file *file = context;
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

void serve_forget_pages(const struct served_file *file)
{
    for (size_t i = 0; i < N_PAGES; i++)
        pages[i].is_there &= pages[i].file != file->number;
}

static uint64_t end_of(void *context)
{
    const struct served_file *file = context;
    struct cursor cursor;
    wire_uint(serve_question(), file->number);
    int error = serve_ask(MESSAGE_END_OF, &cursor);
    uint64_t end = take_uint(&cursor, INT64_MAX);
    return error || cursor.failed ? file->size : end;
}

/* ---- Changing it: the program answers only what is asked ---- */

static bool is_payload(const char *bytes, size_t n)
{
    return served.payload && bytes >= served.payload && n <= served.payload_n &&
           (size_t)(bytes - served.payload) <= served.payload_n - n;
}

static void forget_bytes(const struct served_file *file, uint64_t address, size_t n)
{
    for (size_t i = 0; i < N_PAGES; i++) {
        struct page *page = &pages[i];
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
        wire_uints(serve_question(), (uint64_t[]){address, offset, n}, 3);
        serve_tell(MESSAGE_WRITE_NAMED);
        return 0;
    }
    for (size_t part; n > 0; n -= part, from += part, address += part) {
        part = n < CHANNEL_MOST_READ ? n : CHANNEL_MOST_READ;
        wire_uint(serve_question(), address);
        wire_bytes(&served.wire, from, part);
        serve_tell(MESSAGE_WRITE);
    }
    return 0;
}

static int allocate_in_file(void *context, uint64_t n, uint64_t *address, uint64_t *size)
{
    struct served_file *file = context;
    struct cursor cursor;
    wire_uint(serve_question(), n);
    int error = serve_ask(MESSAGE_ALLOCATE, &cursor);
    *address = take_uint(&cursor, UINT64_MAX);
    *size = file->size = take_uint(&cursor, INT64_MAX);
    return error;
}

static int free_in_file(void *context, uint64_t address, uint64_t n)
{
    (void)context;
    wire_uints(serve_question(), (uint64_t[]){address, n}, 2);
    serve_tell(MESSAGE_FREE);
    return 0;
}

static uint64_t end_in_use(void *context)
{
    (void)context;
    struct cursor cursor;
    serve_question();
    (void)serve_ask(MESSAGE_END_IN_USE, &cursor);
    return take_uint(&cursor, INT64_MAX);
}

void serve_take_size(struct cursor *cursor)
{
    uint64_t size = take_uint(cursor, INT64_MAX);
    if (cursor->failed || !served.store)
        return;
    served.file->size = size;
    store_resize_reader(served.store, size);
}

static void close_file(void *context)
{
    struct served_file *file = context;
    serve_forget_pages(file);
    if (file->number > 0) {
        wire_uint(serve_question(), file->number);
        serve_need(channel_send(served.socket, MESSAGE_LET_GO, &served.wire, UINT64_MAX));
    }
    free(file);
}

/* As the program describes its store. */
static struct store_reader take_reader(struct cursor *cursor, struct served_file *file)
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

int serve_open_store(struct cursor *cursor, const char *name, struct store **store,
                     struct served_file **out)
{
    struct served_file *file = malloc(sizeof(*file));
    if (!file)
        return -ENOMEM;
    struct store_reader reader = take_reader(cursor, file);
    int error = cursor->failed ? -EIO : store_open_reader(name, &reader, store);
    if (error)
        free(file);
    else if (out)
        *out = file;
    return error;
}

void serve_renew_store(struct cursor *cursor)
{
    const struct store_reader reader = take_reader(cursor, served.file);
    store_renew_reader(served.store, &reader);
    serve_forget_pages(served.file);
}

int serve_find_other(const struct store *from, const char *name, struct store **store,
                     bool *is_refused)
{
    struct cursor cursor;
    wire_string(serve_question(), name);
    wire_uint(&served.wire, serve_is_source(from));
    int error = serve_ask(MESSAGE_FIND, &cursor);
    *is_refused = take_bool(&cursor);
    return error ? error : serve_open_store(&cursor, name, store, NULL);
}

const char *serve_path_of_copy(uint64_t address)
{
    static char *path;
    struct cursor cursor;
    free(path);
    path = NULL;
    wire_uint(serve_question(), address);
    if (serve_ask(MESSAGE_PATH_OF_COPY, &cursor) < 0 || take_string(&cursor, true, &path) < 0)
        return NULL;
    return path;
}
