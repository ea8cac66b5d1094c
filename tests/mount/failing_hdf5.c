/* Preloaded into the daemon: a libhdf5 that fails as it does with damaged files, at will. Reading
 * an attribute named crash, hang or allocate does just that; so does making a group named crash or
 * hang, when all of it has been written. */
#include <dlfcn.h>
#include <hdf5.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)16 << 20)
#define MOST  4096 /* blocks: no limit has been met */

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

__attribute__((visibility("default"))) hid_t H5Gcreate2(hid_t place, const char *path, hid_t lcpl,
                                                        hid_t gcpl, hid_t gapl)
{
    static hid_t (*real)(hid_t place, const char *path, hid_t lcpl, hid_t gcpl, hid_t gapl);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "H5Gcreate2");
    hid_t group = real(place, path, lcpl, gcpl, gapl);
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
    return !strcmp(name, "allocate") ? allocate() : real(attribute, type, buffer);
}
