/* Anonymous mappings. */
#include "fs/staged_content.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/staging_limit.h"

/* Clears what lies behind n bytes, and gives its memory back. */
static void clear_behind(struct content *content, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (n + page - 1) / page * page;
    size_t end = content->n < whole ? content->n : whole;
    if (end > n)
        memset(content->bytes + n, 0, end - n);
    if (content->n > whole)
        (void)madvise(content->bytes + whole, content->room - whole, MADV_DONTNEED);
}

int content_resize(struct content *content, uint64_t n, struct staging_limit *limit)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (n > SIZE_MAX - page)
        return -EFBIG;
    if (n < content->n)
        clear_behind(content, (size_t)n);
    if (n > content->room) {
        size_t room = ((size_t)n + page - 1) / page * page, more = room - content->room;
        if (limit && staging_limit_take(limit, more) != 0)
            return -ENOSPC;
        char *bytes = content->bytes ? mremap(content->bytes, content->room, room, MREMAP_MAYMOVE)
                                     : mmap(NULL, room, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (bytes == MAP_FAILED) {
            if (limit)
                staging_limit_give_back(limit, more);
            return -ENOMEM;
        }
        content->bytes = bytes;
        content->room = room;
    }
    content->n = (size_t)n;
    return 0;
}

void content_free(struct content *content, struct staging_limit *limit)
{
    if (content->bytes)
        munmap(content->bytes, content->room);
    if (content->bytes && limit)
        staging_limit_give_back(limit, content->room);
    *content = (struct content){0};
}

int content_take(struct content *content, struct views *views, enum view_kind view, uint64_t frame,
                 uint64_t size, struct staging_limit *limit)
{
    int error = content_resize(content, size, limit);
    for (uint64_t at = 0; at < size && !error;) {
        struct view_part part;
        error = view_read(views, view, frame,
                          &(struct view_room){at, (size_t)(size - at), content->bytes + at, true},
                          &part);
        if (error)
            break;
        at += part.n;
        bool is_end = part.n == 0; /* the frame was written meanwhile */
        view_return(views, &part);
        if (is_end)
            return content_resize(content, at, limit);
    }
    return error;
}

size_t content_read(const struct content *content, uint64_t offset, size_t n, void *buffer)
{
    size_t left = offset < content->n ? content->n - (size_t)offset : 0;
    size_t got = left < n ? left : n;
    if (got > 0)
        memcpy(buffer, content->bytes + offset, got);
    return got;
}
