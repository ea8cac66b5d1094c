/* Preloaded into the daemon: a libhdf5 that fails as it does with damaged files, at will. Reading
 * an attribute named crash, hang or allocate does just that; so does making a group named crash or
 * hang, when all of it has been written. Making one named write-ADDRESS or free-ADDRESS does what
 * code could do that has taken libhdf5's process over: 16 bytes of the file are changed, or freed.
 * A datatype with a first member named crash or hang does that when it is decoded; one named rest
 * only when elements are converted that are not all zero. An attribute of 64 bytes named doors is what try_doors.h
 * finds there.
 */
#include <dlfcn.h>
#include <hdf5.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hdf5/worker/channel.h"
#include "try_doors.h"

#define BLOCK ((size_t)16 << 20)
#define MOST  4096 /* blocks: no limit has been met */
#define FILES 64   /* descriptors that are tried: the one that is a socket */
#define BYTES 16
#define DOORS 64

static herr_t allocate(void)
{
    for (int i = 0; i < MOST; i++) {
        char *block = malloc(BLOCK);
        if (!block)
            return -1;
        memset(block, 1, BLOCK);
    }
    abort();
}

static bool ends_with(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return slash && !strcmp(slash + 1, name);
}

/* The messages are those of channel.h: address, number, and if they are to be written the bytes. */
static void ask_for(enum message_kind kind, const char *address)
{
    struct {
        uint64_t kind, n, address, count;
        char bytes[BYTES];
    } message = {kind, kind == MESSAGE_FREE ? 16 : 16 + BYTES, strtoull(address, NULL, 10), BYTES,
                 "overwritten here"};
    for (int fd = STDERR_FILENO + 1; fd < FILES; fd++) /* the first ones are null */
        if (write(fd, &message, 16 + message.n) > 0)
            return;
    abort();
}

static void take_over(const char *path)
{
    const char *name = strrchr(path, '/');
    if (name && !strncmp(name, "/write-", 7))
        ask_for(MESSAGE_WRITE, name + 7);
    if (name && !strncmp(name, "/free-", 6))
        ask_for(MESSAGE_FREE, name + 6);
}

__attribute__((visibility("default"))) hid_t H5Gcreate2(hid_t place, const char *path, hid_t lcpl,
                                                        hid_t gcpl, hid_t gapl)
{
    static hid_t (*real)(hid_t place, const char *path, hid_t lcpl, hid_t gcpl, hid_t gapl);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "H5Gcreate2");
    hid_t group = real(place, path, lcpl, gcpl, gapl);
    take_over(path);
    bool crashes = ends_with(path, "crash"), hangs = ends_with(path, "hang");
    if (crashes || hangs)
        H5Fflush(place, H5F_SCOPE_LOCAL);
    if (crashes)
        raise(SIGSEGV);
    while (hangs)
        ;
    return group;
}

__attribute__((visibility("default"))) herr_t H5Aread(hid_t attribute, hid_t type, void *buffer)
{
    static herr_t (*real)(hid_t attribute, hid_t type, void *buffer);
    char name[16] = "";
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "H5Aread");
    H5Aget_name(attribute, sizeof(name), name);
    if (!strcmp(name, "crash"))
        raise(SIGSEGV);
    while (!strcmp(name, "hang"))
        ;
    if (!strcmp(name, "doors") && H5Aget_storage_size(attribute) == DOORS) {
        try_doors(buffer, DOORS);
        return 0;
    }
    return !strcmp(name, "allocate") ? allocate() : real(attribute, type, buffer);
}

/* Of a compound, else "". */
static void name_first_member(hid_t type, char *name, size_t n)
{
    name[0] = '\0';
    if (H5Tget_class(type) != H5T_COMPOUND)
        return;
    char *first = H5Tget_member_name(type, 0);
    if (first)
        strncat(name, first, n - 1);
    H5free_memory(first);
}

__attribute__((visibility("default"))) hid_t H5Tdecode(const void *bytes)
{
    static hid_t (*real)(const void *bytes);
    char name[16];
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "H5Tdecode");
    hid_t type = real(bytes);
    name_first_member(type, name, sizeof(name));
    if (!strcmp(name, "crash"))
        raise(SIGSEGV);
    while (!strcmp(name, "hang"))
        ;
    return type;
}

__attribute__((visibility("default"))) herr_t H5Tconvert(hid_t from, hid_t to, size_t n,
                                                         void *bytes, void *background, hid_t how)
{
    static herr_t (*real)(hid_t from, hid_t to, size_t n, void *bytes, void *background, hid_t how);
    char name[16];
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "H5Tconvert");
    name_first_member(from, name, sizeof(name));
    size_t size = n * H5Tget_size(from);
    for (size_t i = 0; i < size && !strcmp(name, "rest"); i++)
        if (((const char *)bytes)[i])
            raise(SIGSEGV);
    return real(from, to, n, bytes, background, how);
}
