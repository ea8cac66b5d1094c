/* A filter plugin of libhdf5 that leaves bytes as they are, and makes the file that
 * SPARSEFS_TEST_DECODED names one byte longer for each chunk that it decodes. It encodes none as
 * long as there is the file that SPARSEFS_TEST_REFUSES names. */
#include <H5PLextern.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdlib.h>
#include <unistd.h>

static size_t filter(unsigned flags, size_t n_values, const unsigned values[], size_t n,
                     size_t *room, void **bytes)
{
    (void)n_values, (void)values, (void)room, (void)bytes;
    const char *path = getenv("SPARSEFS_TEST_DECODED"), *refuses = getenv("SPARSEFS_TEST_REFUSES");
    if (!(flags & H5Z_FLAG_REVERSE) && refuses && access(refuses, F_OK) == 0)
        return 0;
    int fd =
        flags & H5Z_FLAG_REVERSE && path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    if (fd >= 0) {
        if (write(fd, "", 1) != 1)
            n = 0; /* an error */
        close(fd);
    }
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
