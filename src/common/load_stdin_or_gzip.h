/* Files that are used out of memory: standard input and compressed files. */
#ifndef SPARSEFS_COMMON_LOAD_STDIN_OR_GZIP_H
#define SPARSEFS_COMMON_LOAD_STDIN_OR_GZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#define LOAD_STANDARD_INPUT "-"

struct loaded {
    void *bytes; /* the caller frees them; NULL: there are none */
    size_t n;
    struct stat st; /* its owner as mounts_owner has it */
    mode_t shown; /* its mode without what an ACL keeps from some of group and others, but for
                   * writing: an image is not written to, and who may write the file counts */
    mode_t narrow; /* the same, also for writing */
    bool has_st;  /* it came from a file */
};

/* Whether this is standard input, or a file that begins as gzip has it. */
bool load_is_wanted(const char *path);

/* Half of the memory of the machine, in bytes. */
size_t load_default_limit(void);

/* Reads all of standard input or a file, and inflates it if it is compressed. Errors are logged:
 * -EFBIG: it has more than limit bytes, and `advice` is added to that, what allows more; -EILSEQ:
 * what is compressed is damaged or cut short; -EPERM: standard input is a terminal; -EINVAL: the path is not
 * that of a regular file; -ENOMEM and those of open(2) and read(2). */
int load_image(const char *path, size_t limit, const char *advice, struct loaded *loaded);

#endif
