/* libFuzzer: any bytes as the journal beside a file. Unless they are a whole journal, by a second
 * reading of the format, the file stays as it was; if they are, it becomes what the journal says,
 * or stays. The first byte says whether the journal's sum is repaired, and whether the file is
 * opened for writing. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "fuzz.h"
#include "store/store.h"

#define PAGE       4096
#define FILE_BYTES (2 * PAGE + 1000)
#define HEADER     80
#define MARK       64
#define HEAD       (HEADER + MARK)
#define WITNESS    16
#define RECORD     (8 + 32 + PAGE)

static char path[64], journal[80];
static unsigned char original[3 * PAGE];

static uint64_t word(const unsigned char *bytes)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static void put(unsigned char *bytes, uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
}

/* Of all but the mark, record by record. */
static uint64_t sum_of(const unsigned char *bytes, size_t n)
{
    uint64_t sum = XXH3_64bits_withSeed(bytes, HEADER, 0), witnesses = word(bytes + 16);
    size_t at = HEAD;
    for (uint64_t i = 0; i < witnesses; i++, at += WITNESS)
        sum = XXH3_64bits_withSeed(bytes + at, WITNESS, sum);
    for (; at < n; at += RECORD)
        sum = XXH3_64bits_withSeed(bytes + at, RECORD, sum);
    return sum;
}

/* Where the sum of a journal of this length stands; 0: its counts do not fit. */
static size_t sum_at(const unsigned char *bytes, size_t n)
{
    if (n < HEAD)
        return 0;
    uint64_t witnesses = word(bytes + 16), pages = word(bytes + 24);
    if (witnesses > 16 || pages > n / RECORD)
        return 0;
    size_t at = HEAD + WITNESS * (size_t)witnesses + RECORD * (size_t)pages;
    return n >= at + 8 ? at : 0;
}

static bool is_whole(const unsigned char *bytes, size_t n)
{
    size_t at = sum_at(bytes, n);
    return at > 0 && memcmp(bytes, "sfsjourn\4\0\0\0\0\20\0\0", 16) == 0 &&
           word(bytes + at) == sum_of(bytes, at);
}

/* What the file is when the journal is carried out; its length. */
static size_t carried_out(const unsigned char *bytes, unsigned char *file)
{
    uint64_t end = word(bytes + 40);
    const unsigned char *record = bytes + HEAD + WITNESS * word(bytes + 16);
    require(end <= FILE_BYTES);
    memcpy(file, original, sizeof(original));
    for (uint64_t i = 0; i < word(bytes + 24); i++, record += RECORD) {
        require(word(record) < 3);
        memcpy(file + PAGE * word(record), record + 40, PAGE);
    }
    return (size_t)end;
}

static void store_bytes(const char *name, const void *bytes, size_t n)
{
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

static size_t load_bytes(const char *name, unsigned char *bytes, size_t most)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, bytes, most);
    require(fd >= 0 && n >= 0);
    close(fd);
    return (size_t)n;
}

static void begin(void)
{
    char folder[] = "/dev/shm/fuzz-XXXXXX";
    if (path[0])
        return;
    require(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/file", folder);
    snprintf(journal, sizeof(journal), "%s.journal", path);
    for (size_t i = 0; i < FILE_BYTES; i++)
        original[i] = (unsigned char)(i / 7);
    be_quiet();
}

static void check(const unsigned char *bytes, size_t n, bool writable)
{
    unsigned char now[4 * PAGE], then[3 * PAGE];
    size_t n_now = load_bytes(path, now, sizeof(now));
    if (n_now == FILE_BYTES && memcmp(now, original, n_now) == 0)
        return;
    require(writable && is_whole(bytes, n) && n_now == carried_out(bytes, then));
    require(memcmp(now, then, n_now) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct store *store;
    if (n < 1)
        return 0;
    begin();
    bool writable = bytes[0] & 2;
    unsigned char *copy = malloc(n);
    require(copy != NULL);
    memcpy(copy, bytes + 1, n - 1);
    size_t at = sum_at(copy, n - 1);
    if (bytes[0] & 1 && at > 0)
        put(copy + at, sum_of(copy, at), 8);
    store_bytes(path, original, FILE_BYTES);
    store_bytes(journal, copy, n - 1);

    if ((writable ? store_open_writable : store_open)(path, &store) == 0) {
        unsigned char last;
        if (store_size(store) > 0)
            require(store_read(store, store_size(store) - 1, &last, 1) == 0);
        store_close(store);
    }
    check(copy, n - 1, writable);
    unlink(journal);
    free(copy);
    return 0;
}

/* Too short an input becomes a journal that changes one page of the file. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    const size_t whole = 1 + HEAD + WITNESS + RECORD + 8;
    if (n > 1 || most < whole)
        return LLVMFuzzerMutate(bytes, n, most);
    begin();
    unsigned char *at = bytes + 1;
    memset(bytes, 0, whole);
    bytes[0] = (uint8_t)(1 | (seed & 2));
    memcpy(at, "sfsjourn\4\0\0\0\0\20\0\0", 16);
    put(at + 16, 1, 8);
    put(at + 24, 1, 8);
    put(at + 32, FILE_BYTES, 8);
    put(at + 40, seed & 4 ? FILE_BYTES : PAGE + 8, 8);
    put(at + HEAD + 8, XXH3_64bits(original, PAGE), 8);
    at += HEAD + WITNESS;
    put(at, 1, 8);
    for (size_t i = 0; i < 8; i++)
        put(at + 8 + 4 * i, (uint32_t)XXH3_64bits(original + PAGE + 512 * i, 512), 4);
    memset(at + 40, 'x', PAGE);
    return whole;
}
