/* A filter plugin of libhdf5 that leaves bytes as they are, and counts in the first 4 bytes of the
 * file that SPARSEFS_TEST_DECODED names the chunks that it decodes. It encodes none as long as the
 * first byte of the file that SPARSEFS_TEST_REFUSES names is not 0. Both files are there, of 4
 * bytes, when it is loaded: later it cannot open any. */
#include <H5PLextern.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint32_t nothing;
static _Atomic uint32_t *decoded = &nothing, *refuses = &nothing;

static void map(const char *name, _Atomic uint32_t **to)
{
    const char *path = getenv(name);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(**to), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED)
        *to = at;
    if (fd >= 0)
        close(fd);
}

__attribute__((constructor)) static void map_all(void)
{
    map("SPARSEFS_TEST_DECODED", &decoded);
    map("SPARSEFS_TEST_REFUSES", &refuses);
}

static size_t filter(unsigned flags, size_t n_values, const unsigned values[], size_t n,
                     size_t *room, void **bytes)
{
    (void)n_values, (void)values, (void)room, (void)bytes;
    if (flags & H5Z_FLAG_REVERSE)
        atomic_fetch_add(decoded, 1);
    else if (atomic_load(refuses))
        return 0;
    return n;
}

static const H5Z_class2_t class = {.version = H5Z_CLASS_T_VERS,
                                   .id = 480,
                                   .encoder_present = 1,
                                   .decoder_present = 1,
                                   .name = "counting",
                                   .filter = filter};

H5PL_type_t H5PLget_plugin_type(void)
{
    return H5PL_TYPE_FILTER;
}

const void *H5PLget_plugin_info(void)
{
    return &class;
}
