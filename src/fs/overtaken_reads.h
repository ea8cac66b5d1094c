/* Whether reading a view may have overtaken a write to it.
 *
 * Written bytes are in the kernel's pages before the WRITE is sent. If these pages are invalidated
 * then, and filled again before the WRITE is served, they hold the old content, and nothing would
 * correct them: normally the writer's pages are right. When pages were filled, and when the kernel
 * sent a request, is not known here. So a WRITE is doubtful if its inode was invalidated a short
 * while ago, and its range read then, too, and not certainly invalidated after that. Mostly nothing
 * was wrong then. Thread-safe. */
#ifndef SPARSEFS_FS_OVERTAKEN_READS_H
#define SPARSEFS_FS_OVERTAKEN_READS_H

#include <stdbool.h>
#include <stdint.h>

struct recent;

/* NULL: no memory. */
struct recent *recent_create(void);
void recent_destroy(struct recent *recent);

/* n bytes of an inode are about to be read. */
void recent_read(struct recent *recent, uint64_t inode, uint64_t offset, uint64_t n);

/* The kernel is about to be told to forget n bytes (0: all) of an inode; and has been told. */
void recent_begin_forgetting(struct recent *recent, uint64_t inode, uint64_t offset, uint64_t n);
void recent_end_forgetting(struct recent *recent, uint64_t inode);

/* n bytes have been written. */
bool recent_is_doubtful(struct recent *recent, uint64_t inode, uint64_t offset, uint64_t n);

#endif
