/* sparsectl image: the whole file as it was committed last, also while it is mounted and written.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/image_in_mount.h"
#include "cli/open_source.h"
#include "cli/options.h"
#include "common/io.h"

static const char help[] =
    "usage: sparsectl image FILE\n"
    "\n"
    "Writes a consistent image of an HDF5 file to standard output: every byte of it, as it was\n"
    "committed last. A file that is mounted for writing goes on being written meanwhile; its "
    "image\n"
    "comes from .sparsefs/image.h5 in the mount.\n"
    "\n"
    "A terminal is refused.";

static const struct option options[] = {{0}};

#define BLOCK_BYTES ((size_t)1 << 20)

static int write_block(const char *bytes, size_t n)
{
    size_t done;
    int error = io_write(STDOUT_FILENO, bytes, n, &done);
    return error ? fail_because("standard output: %s", strerror(-error)) : DONE;
}

static int write_snapshot(const char *path, struct sfs_snapshot *snapshot, char *block)
{
    uint64_t end = sfs_snapshot_size(snapshot);
    int code = DONE;
    for (uint64_t at = 0; at < end && code == DONE; at += BLOCK_BYTES) {
        size_t n = end - at < BLOCK_BYTES ? (size_t)(end - at) : BLOCK_BYTES;
        int error = sfs_snapshot_read(snapshot, at, block, n);
        code = error ? fail(error, "%s", path) : write_block(block, n);
    }
    return code;
}

static int image_of_file(struct sfs_file *file, char *block)
{
    struct sfs_snapshot *snapshot;
    int error = sfs_snapshot_open(file, &snapshot);
    if (error)
        return fail(error, "%s", sfs_path(file));
    int code = write_snapshot(sfs_path(file), snapshot, block);
    sfs_snapshot_close(snapshot);
    return code;
}

static int image_in_mount(const struct mounted_image *image, char *block)
{
    int code = DONE;
    size_t n = 0;
    int error = io_read(image->fd, block, BLOCK_BYTES, &n);
    while (!error && n > 0 && code == DONE) {
        code = write_block(block, n);
        error = code == DONE ? io_read(image->fd, block, BLOCK_BYTES, &n) : 0;
    }
    return error ? fail_because("%s: %s", image->path, strerror(-error)) : code;
}

/* A writer has the file exclusively: if it is a mount, the image comes from there. */
static int write_image(const char *path, char *block)
{
    struct sfs_options how = {.hdf5_worker = files_are_apart()};
    struct sfs_file *file;
    struct mounted_image image;
    int error = source_open_as(path, &how, &file);
    if (!error) {
        int code = image_of_file(file, block);
        sfs_discard(file);
        return code;
    }
    if (error != -EBUSY || mounted_image_open(path, &image) < 0)
        return fail(error, "%s", path);
    int code = image_in_mount(&image, block);
    mounted_image_close(&image);
    return code;
}

static int run(int argc, char **argv)
{
    const char *path;
    int code = take_file(argc, argv, options, &path);
    if (code)
        return code;
    if (isatty(STDOUT_FILENO))
        return refuse(argv[0], "standard output is a terminal: an image is nothing to look at");
    char *block = malloc(BLOCK_BYTES);
    code = block ? write_image(path, block) : fail(-ENOMEM, "image");
    free(block);
    return code ? code : finish_output(code);
}

const struct command image_command = {"image", help, run, READ_HDF5};
