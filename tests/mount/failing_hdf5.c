/* Preloaded into the daemon: a libhdf5 that fails as it does with damaged files, at will. Reading
 * an attribute named crash, hang or allocate does just that. */
#include <dlfcn.h>
#include <hdf5.h>
#include <signal.h>
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
