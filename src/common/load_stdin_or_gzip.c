/* Reading a whole image into memory, through zlib if it is compressed (RFC 1952). */
#include "common/load_stdin_or_gzip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "common/acl.h"
#include "common/io.h"
#include "common/log.h"
#include "common/machine_memory.h"
#include "common/mounts.h"
#include "common/size.h"

#define BLOCK_BYTES ((size_t)256 << 10)
#define FIRST_BYTES ((size_t)1 << 20)
#define MAGIC_BYTES 2

struct load {
    const char *path, *advice;
    int fd;
    size_t limit;
    unsigned char *bytes;
    size_t n, capacity;
    unsigned char block[BLOCK_BYTES];
    z_stream inflate;
    bool in_member; /* of the compressed ones that follow one another */
};

static bool is_standard_input(const char *path)
{
    return !strcmp(path, LOAD_STANDARD_INPUT);
}

static bool has_magic(const unsigned char *bytes, size_t n)
{
    return n >= MAGIC_BYTES && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

bool load_is_wanted(const char *path)
{
    unsigned char magic[MAGIC_BYTES];
    if (is_standard_input(path))
        return true;
    int fd = io_open_regular(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : pread(fd, magic, sizeof(magic), 0);
    if (fd >= 0)
        close(fd);
    return n > 0 && has_magic(magic, (size_t)n);
}

size_t load_default_limit(void)
{
    uint64_t memory = machine_memory();
    return memory > 0 ? size_of(memory / 2) : (size_t)1 << 30;
}

static int check_limit(const struct load *load)
{
    if (load->n <= load->limit)
        return 0;
    log_error("%s: the image has more than %zu bytes (%s)", load->path, load->limit, load->advice);
    return -EFBIG;
}

static int no_memory(const char *path, size_t n)
{
    log_error("%s: no memory for an image of more than %zu bytes", path, n);
    return -ENOMEM;
}

/* Room for at least one byte more. One byte over the limit is room, too: it shows that there is
 * more. */
static int make_room(struct load *load)
{
    int error = check_limit(load);
    if (error || load->n < load->capacity)
        return error;
    size_t capacity = load->capacity ? 2 * load->capacity : FIRST_BYTES;
    if (capacity > load->limit)
        capacity = load->limit + 1;
    unsigned char *bytes = realloc(load->bytes, capacity);
    if (!bytes)
        return no_memory(load->path, load->n);
    load->bytes = bytes;
    load->capacity = capacity;
    return 0;
}

/* Up to a block; *n is 0 at the end. */
static int read_block(struct load *load, size_t *n)
{
    int error = io_read(load->fd, load->block, BLOCK_BYTES, n);
    if (error)
        log_error("%s: cannot read it: %s", load->path, strerror(-error));
    return error;
}

static int take_plain(struct load *load, size_t n)
{
    int error = 0;
    for (size_t done = 0, part; done < n && !error; done += part) {
        error = make_room(load);
        part = load->capacity - load->n < n - done ? load->capacity - load->n : n - done;
        if (!error)
            memcpy(load->bytes + load->n, load->block + done, part);
        load->n += error ? 0 : part;
    }
    return error;
}

static int damaged(const struct load *load, const char *why)
{
    log_error("%s: the compressed image is damaged behind %zu bytes of it: %s", load->path, load->n,
              why);
    return -EILSEQ;
}

/* Members follow one another; zeros may fill up the last block of a tape behind them. */
static bool begin_member(struct load *load)
{
    z_stream *z = &load->inflate;
    while (z->total_in > 0 && z->avail_in > 0 && *z->next_in == 0) {
        z->next_in++;
        z->avail_in--;
    }
    load->in_member = z->avail_in > 0 && inflateReset(z) == Z_OK;
    return load->in_member;
}

static int take_compressed(struct load *load, size_t n)
{
    z_stream *z = &load->inflate;
    z->next_in = load->block;
    z->avail_in = (uInt)n;
    for (;;) {
        if (!load->in_member && !begin_member(load))
            return 0;
        int error = make_room(load);
        if (error)
            return error;
        size_t room = load->capacity - load->n;
        z->next_out = load->bytes + load->n;
        z->avail_out = room < BLOCK_BYTES ? (uInt)room : (uInt)BLOCK_BYTES;
        unsigned before = z->avail_out;
        int result = inflate(z, Z_NO_FLUSH);
        load->n += before - z->avail_out;
        if (result == Z_MEM_ERROR)
            return no_memory(load->path, load->n);
        if (result == Z_STREAM_END)
            load->in_member = false;
        else if (result != Z_OK && result != Z_BUF_ERROR)
            return damaged(load, z->msg ? z->msg : "it is not what gzip makes");
        else if (z->avail_in == 0 && z->avail_out > 0)
            return 0;
    }
}

static int load_all(struct load *load)
{
    size_t n;
    int error = read_block(load, &n);
    bool is_compressed = has_magic(load->block, n);
    for (; !error && n > 0; error = error ? error : read_block(load, &n))
        error = is_compressed ? take_compressed(load, n) : take_plain(load, n);
    if (!error && is_compressed && load->in_member)
        error = damaged(load, "it is cut short");
    return error ? error : check_limit(load);
}

/* What is compressed ends where the last member does. */
static int load_opened(struct load *load, struct loaded *loaded)
{
    if (isatty(load->fd)) {
        log_error("%s: standard input is a terminal: an HDF5 image is wanted there", load->path);
        return -EPERM;
    }
    if (inflateInit2(&load->inflate, MAX_WBITS + 16) != Z_OK) /* + 16: what gzip makes */
        return no_memory(load->path, 0);
    int error = load_all(load);
    inflateEnd(&load->inflate);
    if (error)
        return error;
    void *bytes = load->n > 0 ? realloc(load->bytes, load->n) : NULL;
    if (bytes)
        load->bytes = bytes;
    *loaded = (struct loaded){.bytes = load->bytes, .n = load->n};
    loaded->has_st = fstat(load->fd, &loaded->st) == 0 && S_ISREG(loaded->st.st_mode);
    if (loaded->has_st)
        loaded->st.st_uid = mounts_owner(load->fd, &loaded->st);
    struct stat narrow = loaded->st;
    if (loaded->has_st)
        acl_narrow(load->fd, &narrow);
    loaded->narrow = narrow.st_mode;
    loaded->shown = narrow.st_mode | (loaded->st.st_mode & (S_IWGRP | S_IWOTH));
    return 0;
}

int load_image(const char *path, size_t limit, const char *advice, struct loaded *loaded)
{
    struct load *load = calloc(1, sizeof(*load));
    if (!load)
        return no_memory(path, 0);
    load->path = path;
    load->advice = advice;
    load->limit = limit < SIZE_MAX ? limit : SIZE_MAX - 1;
    bool is_file = !is_standard_input(path);
    load->fd = is_file ? io_open_regular(path, O_RDONLY) : STDIN_FILENO;
    int error = load->fd < 0 ? load->fd : 0;
    if (error)
        log_error("%s: %s", path, strerror(-error));
    else
        error = load_opened(load, loaded);
    if (is_file && load->fd >= 0)
        close(load->fd);
    if (error)
        free(load->bytes);
    free(load);
    return error;
}
