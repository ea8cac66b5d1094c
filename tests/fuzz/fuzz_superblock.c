/* libFuzzer: any bytes as a file's beginning, with the checksum of the superblock repaired where
 * one would be. */
#include <stdlib.h>
#include <string.h>

#include "format/checksum.h"
#include "format/superblock.h"
#include "fuzz.h"
#include "store/store.h"

#define SUMMED 12 /* bytes of versions 2 and 3 before four addresses and the checksum */

static void repair(unsigned char *bytes, size_t n)
{
    for (size_t at = 0; at < n; at = at ? 2 * at : 512) {
        if (n - at < SUMMED || bytes[at + 8] < 2 || bytes[at + 8] > 3)
            continue;
        size_t summed = SUMMED + 4 * (size_t)bytes[at + 9];
        if (n - at < summed + 4)
            continue;
        uint32_t sum = checksum(bytes + at, summed);
        for (int i = 0; i < 4; i++)
            bytes[at + summed + i] = (unsigned char)(sum >> 8 * i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct store *store;
    struct superblock superblock;
    struct why why = {""};
    unsigned char *file = malloc(n + 1);
    require(file != NULL);
    memcpy(file, bytes, n);
    repair(file, n);
    be_quiet();
    require(store_open(file_of(file, n), &store) == 0);
    if (superblock_read(store, &superblock, &why) == 0) {
        require(superblock.version <= 3 && superblock.address < n && superblock.base <= n);
        require(superblock.offset_size <= 8 && superblock.length_size <= 8);
    } else {
        require(why.text[0]);
    }
    store_close(store);
    free(file);
    return 0;
}
