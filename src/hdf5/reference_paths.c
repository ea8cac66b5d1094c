/* The paths of what references lead to that libhdf5 does not read. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/escape_lines.h"
#include "hdf5/local.h"
#include "hdf5/private.h"

static int put_path(FILE *out, const struct names *names, uint64_t address)
{
    char *path = NULL;
    int error = address ? names_path(names, address, &path) : -ENOENT;
    if (error == -ENOMEM)
        return error;
    if (error == -EFBIG)
        fprintf(out, "object at address %" PRIu64, address);
    else if (error)
        fputs("null", out);
    else
        lines_escape(out, path, strlen(path));
    putc('\n', out); /* what fails here, fails in fclose, too */
    free(path);
    return 0;
}

int local_paths(struct hdf5 *hdf5, const struct hdf5_addresses *addresses, size_t most,
                char **lines, size_t *lines_n)
{
    struct names *names = NULL;
    int error = names_get(hdf5, &names);
    FILE *out = error ? NULL : open_memstream(lines, lines_n);
    if (!error && !out)
        error = -ENOMEM;
    for (size_t i = 0; i < addresses->n && !error; i++) {
        error = put_path(out, names, addresses->address[i]);
        if (!error && (uint64_t)ftello(out) > most)
            error = -EFBIG;
    }
    names_put(hdf5, names);
    if (out && fclose(out) != 0 && !error)
        error = -ENOMEM;
    if (error && out) {
        free(*lines);
        *lines = NULL;
    }
    return error;
}
