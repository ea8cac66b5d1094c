/* Preloaded: ends every process but those of libhdf5 and of plugins where bytes of a file, or what
 * was made of them, would come to libhdf5. Nobody opens objects who has not opened a file. */
#include <dlfcn.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static void check(const char *function)
{
    char name[16] = "";
    if (prctl(PR_GET_NAME, name) < 0) /* what is confined may not ask, either */
        return;
    if (!strcmp(name, "sparsefs-hdf5") || !strcmp(name, "sparsefs-plugin"))
        return;
    fprintf(stderr, "%s in %s\n", function, name);
    abort();
}

#define EXPORT __attribute__((visibility("default")))

EXPORT hid_t H5Fopen(const char *path, unsigned flags, hid_t how)
{
    static hid_t (*real)(const char *path, unsigned flags, hid_t how);
    check("H5Fopen");
    *(void **)&real = dlsym(RTLD_NEXT, "H5Fopen");
    return real(path, flags, how);
}

EXPORT hid_t H5Tdecode(const void *bytes)
{
    static hid_t (*real)(const void *bytes);
    check("H5Tdecode");
    *(void **)&real = dlsym(RTLD_NEXT, "H5Tdecode");
    return real(bytes);
}

EXPORT herr_t H5Tconvert(hid_t from, hid_t to, size_t n, void *bytes, void *background, hid_t how)
{
    static herr_t (*real)(hid_t from, hid_t to, size_t n, void *bytes, void *background, hid_t how);
    check("H5Tconvert");
    *(void **)&real = dlsym(RTLD_NEXT, "H5Tconvert");
    return real(from, to, n, bytes, background, how);
}

EXPORT hid_t H5Sdecode(const void *bytes)
{
    static hid_t (*real)(const void *bytes);
    check("H5Sdecode");
    *(void **)&real = dlsym(RTLD_NEXT, "H5Sdecode");
    return real(bytes);
}
