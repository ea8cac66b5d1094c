/* libFuzzer: any bytes as a file: its superblock, the header of a sparse dataset at the address of
 * its root group, and all chunks of its index. Linked with --wrap=structure_summed, so that no
 * checksum stands in the way; that of the superblock is not in the way if its version is below 2.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/dataset_header.h"
#include "format/structure.h"
#include "index/index.h"
#include "sparsefs/sparsefs.h"
#include "store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int __wrap_structure_summed(const char *name, uint64_t address, const unsigned char *bytes,
                            size_t n, struct why *why);

int __wrap_structure_summed(const char *name, uint64_t address, const unsigned char *bytes,
                            size_t n, struct why *why)
{
    (void)name, (void)address, (void)bytes, (void)n, (void)why;
    return 0;
}

static void ignore(int level, const char *line)
{
    (void)level, (void)line;
}

static int look_up(void *context, const uint64_t *scaled, const struct chunk_record *record)
{
    struct chunk_record found;
    struct why why;
    (void)record;
    index_lookup(context, scaled, &found, &why);
    return 0;
}

static void use(struct store *store)
{
    struct superblock superblock;
    struct dataset_header dataset;
    struct chunk_record_format format;
    struct index *index;
    struct why why;
    if (superblock_read(store, &superblock, &why) != 0 ||
        dataset_header_read(store, &superblock, superblock.root, &dataset, &why) != 0)
        return;
    if (layout_message_records(&dataset.layout, dataset.filtered, &format, &why) == 0 &&
        index_open(store, &superblock, &dataset.layout, &format, dataset.dataspace.max_dims, &index,
                   &why) == 0) {
        index_iterate(index, look_up, index, &why);
        index_close(index);
    }
    dataset_header_free(&dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char path[64];
    struct store *store;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    sfs_set_log(ignore, 0);
    if (store_open(path, &store) == 0) {
        use(store);
        store_close(store);
    }
    close(fd);
    return 0;
}
