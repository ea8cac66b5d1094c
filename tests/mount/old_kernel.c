/* Preloaded into sparsefs: the kernel offers what an older one would. Of the first message of a
 * FUSE connection (FUSE_INIT) it lowers the minor version to FUSE_MINOR and keeps those of the
 * flags that are in FUSE_FLAGS. What the kernel then does it does as what it is. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Words of the message: struct fuse_in_header, struct fuse_init_in. */
enum { LENGTH = 0, OPCODE = 1, MAJOR = 10, MINOR = 11, FLAGS = 13, WORDS = 14 };

#define INIT_OPCODE 26
#define HAS_MORE    ((uint32_t)1 << 30) /* of the flags: there are words behind them */

static uint32_t setting(const char *name)
{
    const char *text = getenv(name);
    return text ? (uint32_t)strtoul(text, NULL, 0) : UINT32_MAX;
}

static ssize_t lower(void *message, ssize_t n)
{
    uint32_t words[WORDS];
    memcpy(words, message, sizeof(words));
    if (words[LENGTH] != (uint32_t)n || words[OPCODE] != INIT_OPCODE || words[MAJOR] != 7)
        return n;
    uint32_t minor = setting("FUSE_MINOR"), before = words[MINOR];
    words[MINOR] = minor < before ? minor : before;
    words[FLAGS] &= setting("FUSE_FLAGS");
    if (!(words[FLAGS] & HAS_MORE))
        words[LENGTH] = sizeof(words);
    fprintf(stderr, "kernel: FUSE 7.%u of 7.%u\n", words[MINOR], before);
    memcpy(message, words, sizeof(words));
    return words[LENGTH];
}

__attribute__((visibility("default"))) ssize_t read(int fd, void *buffer, size_t size)
{
    static ssize_t (*next)(int, void *, size_t);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "read"); /* as dlsym(3) has it */
    ssize_t n = next(fd, buffer, size);
    return n >= (ssize_t)(WORDS * sizeof(uint32_t)) ? lower(buffer, n) : n;
}
