/* Exercises one file of fixed size with random operations - reads and writes at odd places, stores
 * into a shared mapping, truncating, punching, zeroing, seeking for data, fsync, opening anew - and
 * compares everything it sees with what expected.h says. The same seed gives the same operations.
 * It knows of the filesystem only that.
 *
 * exercise [options] FILE      exit code 0: all as expected, 1: not, 2: usage
 *   -N OPERATIONS   how many (1000)
 *   -S SEED         (1)
 *   -e BYTES        of an element (1): only whole elements are erased
 *   -f HEX          the fill value, BYTES bytes as they stand in the file (zero)
 *   -l BYTES        most bytes of one operation (64 KiB)
 *   -d FILE         an encoded dataspace that selects the defined elements of the file
 *   -o FILE         where to write the content expected at the end; FILE.states: a byte for each
 *                   element, 0 undefined, 1 defined, 2 not known
 *   -r              only operations that change nothing
 *   -m              no mappings
 *   -s              elements written with the fill value are undefined afterwards
 *   -D              no element can be undefined: erasing gives it the fill value
 *   -t              truncate the file to 0 first, instead of taking what it contains
 *   -p              an ordinary file: it is made as large again after each truncation */
#include "expected.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOGGED        128 /* operations that a failure shows */
#define WHOLE_EVERY   500 /* operations between comparisons of the whole file */
#define ENCODED_MAX   ((size_t)256 << 20)
#define ELEMENT_MAX   256 /* bytes */
#define NO_DIFFERENCE SIZE_MAX

struct options {
    const char *path, *defined, *output;
    uint64_t operations, seed;
    size_t longest;
    bool reads_only, no_mappings, truncate_first, ordinary;
};

struct operation {
    uint64_t number;
    const char *name;
    size_t offset, n;
};

struct exercise {
    struct options options;
    struct expected expected;
    struct operation log[LOGGED]; /* the last ones, at their number modulo LOGGED */
    uint64_t done;
    uint64_t random;
    int fd;
    uint8_t *mapping; /* all of the file, or NULL */
    uint8_t *buffer;  /* of the file's size */
    size_t difference;
    bool opened_truncated; /* other files show that when this one is written, or synced */
};

static struct exercise *running; /* for the handler of SIGBUS */

/* ---- Telling what happened ---- */

static struct operation *note(struct exercise *x, const char *name, size_t offset, size_t n)
{
    struct operation *operation = &x->log[x->done % LOGGED];
    *operation = (struct operation){x->done, name, offset, n};
    return operation;
}

/* The last operations; a star marks those that touched where the difference is. */
static void print_log(const struct exercise *x)
{
    uint64_t first = x->done >= LOGGED ? x->done - LOGGED + 1 : 0;
    for (uint64_t number = first; number <= x->done; number++) {
        const struct operation *o = &x->log[number % LOGGED];
        if (o->name && o->number == number)
            fprintf(stderr, "%c %8llu %-10s offset %10zu, %8zu bytes\n",
                    x->difference >= o->offset && x->difference - o->offset < o->n ? '*' : ' ',
                    (unsigned long long)o->number, o->name, o->offset, o->n);
    }
    fprintf(stderr, "exercise: %s: failed at operation %llu with -S %llu\n", x->options.path,
            (unsigned long long)x->done, (unsigned long long)x->options.seed);
}

static bool failed_call(const struct exercise *x, const char *call)
{
    fprintf(stderr, "exercise: %s: %s: %s\n", x->options.path, call, strerror(errno));
    return false;
}

/* A load or store of ours beyond what the filesystem gives: nothing of stdio is under way then. */
static void on_bus_error(int number)
{
    (void)number;
    fprintf(stderr, "exercise: SIGBUS\n");
    print_log(running);
    _exit(1);
}

/* ---- Chance ---- */

static uint64_t draw(struct exercise *x)
{
    uint64_t z = x->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(struct exercise *x, size_t limit)
{
    return (size_t)(draw(x) % limit);
}

/* A range with at least a byte inside the file: anywhere or at pages, most often short. */
static void draw_range(struct exercise *x, size_t *offset, size_t *n)
{
    size_t size = x->expected.size, longest = x->options.longest;
    size_t kind = below(x, 8);
    *offset = below(x, size);
    *n = 1 + (kind < 2 ? below(x, 2 * x->expected.element) : below(x, longest));
    if (kind == 7) {
        *offset -= *offset % PAGE;
        *n += PAGE - 1 - (*n + PAGE - 1) % PAGE;
    }
    if (*n > size - *offset)
        *n = size - *offset;
}

/* Bytes to write, at buffer + offset: noise, the fill value, or a mixture. */
static const uint8_t *draw_bytes(struct exercise *x, size_t offset, size_t n)
{
    const struct expected *e = &x->expected;
    size_t kind = below(x, 4), fill_for = 0;
    for (size_t at = offset; at < offset + n; at++) {
        if (kind == 1 && fill_for == 0 && below(x, 64) == 0)
            fill_for = below(x, 256);
        bool fill = kind == 0 || fill_for > 0;
        x->buffer[at] = fill ? e->fill[at % e->element] : (uint8_t)draw(x);
        fill_for -= fill_for > 0;
    }
    return x->buffer + offset;
}

/* ---- Operations: false means that something is not as expected, and has been said ---- */

/* What was stored through the mapping goes to the file now. */
static bool flush_mapping(struct exercise *x)
{
    if (x->expected.n_dirty > 0 && msync(x->mapping, x->expected.size, MS_SYNC))
        return failed_call(x, "msync");
    expected_flush(&x->expected, 0, x->expected.size);
    return true;
}

static bool same_size(struct exercise *x)
{
    struct stat st;
    if (fstat(x->fd, &st))
        return failed_call(x, "fstat");
    if ((size_t)st.st_size == x->expected.size)
        return true;
    fprintf(stderr, "exercise: %s: size %lld instead of %zu\n", x->options.path,
            (long long)st.st_size, x->expected.size);
    return false;
}

static bool read_range(struct exercise *x, size_t offset, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t bytes = pread(x->fd, x->buffer + done, n - done, (off_t)(offset + done));
        if (bytes < 0)
            return failed_call(x, "pread");
        if (bytes == 0) {
            fprintf(stderr, "exercise: the file ends at %zu\n", offset + done);
            return false;
        }
        done += (size_t)bytes;
    }
    return expected_same(&x->expected, offset, x->buffer, n, "pread", &x->difference);
}

static bool do_read(struct exercise *x)
{
    size_t offset, n;
    draw_range(x, &offset, &n);
    note(x, "read", offset, n);
    return read_range(x, offset, n);
}

static bool do_write(struct exercise *x)
{
    size_t offset, n;
    draw_range(x, &offset, &n);
    note(x, "write", offset, n);
    const uint8_t *bytes = draw_bytes(x, offset, n);
    for (size_t done = 0; done < n;) {
        ssize_t written = pwrite(x->fd, bytes + done, n - done, (off_t)(offset + done));
        if (written <= 0)
            return failed_call(x, "pwrite");
        done += (size_t)written;
    }
    expected_write(&x->expected, offset, bytes, n);
    return true;
}

static bool do_load(struct exercise *x)
{
    size_t offset, n;
    draw_range(x, &offset, &n);
    note(x, "load", offset, n);
    memcpy(x->buffer, x->mapping + offset, n);
    return expected_same(&x->expected, offset, x->buffer, n, "load", &x->difference);
}

static bool do_store(struct exercise *x)
{
    size_t offset, n;
    draw_range(x, &offset, &n);
    note(x, "store", offset, n);
    const uint8_t *bytes = draw_bytes(x, offset, n);
    memcpy(x->mapping + offset, bytes, n);
    expected_store(&x->expected, offset, bytes, n);
    return true;
}

static bool do_msync(struct exercise *x)
{
    note(x, "msync", 0, 0);
    return flush_mapping(x);
}

/* The kernel writes stored pages from the offset on before it has a range punched or zeroed. */
static bool allocate(struct exercise *x, int mode, size_t offset, size_t n)
{
    expected_flush(&x->expected, offset, x->expected.size - offset);
    if (fallocate(x->fd, mode, (off_t)offset, (off_t)n))
        return failed_call(x, "fallocate");
    return same_size(x);
}

static bool do_punch(struct exercise *x)
{
    size_t offset, n;
    draw_range(x, &offset, &n);
    note(x, "punch", offset, n);
    bool good = allocate(x, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, n);
    expected_punch(&x->expected, offset, n);
    return good;
}

static bool do_zero(struct exercise *x)
{
    size_t offset, n;
    draw_range(x, &offset, &n);
    note(x, "zero", offset, n);
    bool good = allocate(x, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset, n);
    expected_write(&x->expected, offset, NULL, n);
    return good;
}

/* What is stored in the mapping is flushed first: whether it or the truncation of a file that stays
 * as large comes last is otherwise left to the kernel. */
static bool truncate_to(struct exercise *x, size_t size)
{
    note(x, "truncate", size, x->expected.size - size);
    if (!flush_mapping(x))
        return false;
    if (ftruncate(x->fd, (off_t)size))
        return failed_call(x, "ftruncate");
    if (x->options.ordinary && ftruncate(x->fd, (off_t)x->expected.size))
        return failed_call(x, "ftruncate");
    expected_truncate(&x->expected, size);
    return same_size(x);
}

static bool do_truncate(struct exercise *x)
{
    size_t size = x->expected.size, kept = below(x, size + 1);
    return truncate_to(x, below(x, 4) ? kept : size - below(x, size < PAGE ? size : PAGE));
}

static bool do_fsync(struct exercise *x)
{
    note(x, "fsync", 0, 0);
    if (fsync(x->fd))
        return failed_call(x, "fsync");
    expected_flush(&x->expected, 0, x->expected.size);
    return true;
}

static bool map(struct exercise *x)
{
    int protection = PROT_READ | (x->options.reads_only ? 0 : PROT_WRITE);
    x->mapping = mmap(NULL, x->expected.size, protection, MAP_SHARED, x->fd, 0);
    if (x->mapping != MAP_FAILED)
        return true;
    x->mapping = NULL;
    return failed_call(x, "mmap");
}

/* Pages stored into are left to munmap, or flushed before. */
static bool unmap(struct exercise *x)
{
    if (!x->mapping)
        return true;
    uint8_t *mapping = x->mapping;
    x->mapping = NULL;
    expected_flush(&x->expected, 0, x->expected.size);
    return munmap(mapping, x->expected.size) == 0 || failed_call(x, "munmap");
}

/* Over the end only what has room is written, behind it nothing. Nothing is mapped meanwhile: when
 * a write ends early, Linux (6.18) reads the last page of a FUSE file anew sometime, and loses what
 * was stored into it by then. */
static bool do_write_over_end(struct exercise *x)
{
    size_t size = x->expected.size, n = 1 + below(x, size < 1000 ? size : 1000);
    size_t offset = size - below(x, n + 1), inside = size - offset;
    note(x, "over end", offset, n);
    const uint8_t *bytes = draw_bytes(x, size - n, n);
    if (!unmap(x))
        return false;
    ssize_t written = pwrite(x->fd, bytes, n, (off_t)offset);
    bool good = inside == 0 ? written < 0 && errno == EFBIG : written == (ssize_t)inside;
    if (!good) {
        fprintf(stderr, "exercise: pwrite of %zu bytes, %zu before the end: %zd (%s)\n", n, inside,
                written, written < 0 ? strerror(errno) : "written");
        return false;
    }
    expected_write(&x->expected, offset, bytes, inside);
    return same_size(x) && (x->options.no_mappings || map(x));
}

static bool do_remap(struct exercise *x)
{
    note(x, "remap", 0, 0);
    return unmap(x) && map(x);
}

static bool open_file(struct exercise *x, int flags)
{
    x->fd = open(x->options.path, (x->options.reads_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | flags);
    return x->fd >= 0 || failed_call(x, "open");
}

static bool close_file(struct exercise *x)
{
    int fd = x->fd;
    x->fd = -1;
    return close(fd) == 0 || failed_call(x, "close");
}

/* A mapping outlives the descriptor that it was made with. */
static bool do_reopen(struct exercise *x)
{
    note(x, "reopen", 0, 0);
    return close_file(x) && open_file(x, 0);
}

static bool do_reopen_truncated(struct exercise *x)
{
    note(x, "O_TRUNC", 0, x->expected.size);
    if (x->options.ordinary)
        return truncate_to(x, 0);
    if (!flush_mapping(x) || !close_file(x) || !open_file(x, O_TRUNC))
        return false;
    x->opened_truncated = true;
    expected_truncate(&x->expected, 0);
    return same_size(x);
}

/* Asks for the next data or hole; SEEK_DATA behind the last data is the end. */
static bool seek(struct exercise *x, size_t from, int whence, size_t *to)
{
    off_t at = lseek(x->fd, (off_t)from, whence);
    if (at < 0 && (errno != ENXIO || whence == SEEK_HOLE))
        return failed_call(x, "lseek");
    *to = at < 0 ? x->expected.size : (size_t)at;
    if (*to >= from && *to <= x->expected.size)
        return true;
    fprintf(stderr, "exercise: lseek from %zu gives %zu\n", from, *to);
    return false;
}

/* What is skipped as a hole reads as zeros, or cp and tar would make another file of this one. */
static bool do_seek(struct exercise *x)
{
    const struct expected *e = &x->expected;
    size_t from = below(x, 2) ? 0 : below(x, e->size), data, hole;
    note(x, "seek", from, e->size - from);
    if (!flush_mapping(x))
        return false;
    while (from < e->size) {
        if (!seek(x, from, SEEK_DATA, &data))
            return false;
        memset(x->buffer, 0, data - from);
        if (!expected_same(e, from, x->buffer, data - from, "hole", &x->difference))
            return false;
        if (data == e->size)
            break;
        if (!seek(x, data, SEEK_HOLE, &hole))
            return false;
        if (hole == data) {
            fprintf(stderr, "exercise: data and a hole at offset %zu\n", data);
            return false;
        }
        from = hole;
    }
    return true;
}

static uint8_t *read_all(const struct exercise *x, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) || (size_t)st.st_size > ENCODED_MAX) {
        failed_call(x, path);
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    uint8_t *bytes = calloc((size_t)st.st_size + 1, 1);
    ssize_t n = bytes ? read(fd, bytes, (size_t)st.st_size + 1) : -1;
    close(fd);
    if (n == st.st_size)
        return bytes;
    fprintf(stderr, "exercise: %s: %zd bytes instead of %lld\n", path, n, (long long)st.st_size);
    free(bytes);
    return NULL;
}

static bool do_defined(struct exercise *x)
{
    note(x, "defined", 0, 0);
    if (!flush_mapping(x) || (x->opened_truncated && fsync(x->fd)))
        return false;
    x->opened_truncated = false;
    uint8_t *encoded = read_all(x, x->options.defined);
    bool good = encoded && expected_same_defined(&x->expected, encoded);
    free(encoded);
    return good;
}

/* ---- The exercise ---- */

enum needs { NOTHING, CHANGES = 1, MAPPINGS = 2, SELECTION = 4, FIXED_SIZE = 8 };

static const struct {
    bool (*run)(struct exercise *);
    size_t weight;
    unsigned needs;
} kinds[] = {
    {do_read, 40, NOTHING},
    {do_write, 40, CHANGES},
    {do_write_over_end, 2, CHANGES | FIXED_SIZE},
    {do_load, 20, MAPPINGS},
    {do_store, 16, MAPPINGS | CHANGES},
    {do_msync, 4, MAPPINGS | CHANGES},
    {do_punch, 14, CHANGES},
    {do_zero, 8, CHANGES | FIXED_SIZE}, /* tmpfs cannot */
    {do_truncate, 4, CHANGES},
    {do_fsync, 4, CHANGES},
    {do_remap, 4, MAPPINGS},
    {do_reopen, 6, NOTHING},
    {do_reopen_truncated, 1, CHANGES},
    {do_seek, 6, NOTHING},
    {do_defined, 6, SELECTION},
};
#define N_KINDS (sizeof(kinds) / sizeof(*kinds))

static bool step(struct exercise *x)
{
    const struct options *o = &x->options;
    unsigned has = (o->reads_only ? 0 : CHANGES) | (o->no_mappings ? 0 : MAPPINGS) |
                   (o->defined ? SELECTION : 0) | (o->ordinary ? 0 : FIXED_SIZE);
    size_t total = 0;
    for (size_t i = 0; i < N_KINDS; i++)
        total += (kinds[i].needs & ~has) ? 0 : kinds[i].weight;
    size_t drawn = below(x, total);
    for (size_t i = 0;; i++) {
        if (kinds[i].needs & ~has)
            continue;
        if (drawn < kinds[i].weight)
            return kinds[i].run(x);
        drawn -= kinds[i].weight;
    }
}

static bool compare_all(struct exercise *x)
{
    note(x, "compare", 0, x->expected.size);
    return same_size(x) && read_range(x, 0, x->expected.size);
}

/* The first reading is what later ones are compared with. */
static bool begin(struct exercise *x)
{
    if (x->options.truncate_first && !truncate_to(x, 0))
        return false;
    for (size_t done = 0; done < x->expected.size && !x->options.truncate_first;) {
        ssize_t n = pread(x->fd, x->expected.content + done, x->expected.size - done, (off_t)done);
        if (n <= 0)
            return failed_call(x, "pread");
        done += (size_t)n;
    }
    return (!x->options.defined || do_defined(x)) && (x->options.no_mappings || map(x));
}

static bool run(struct exercise *x)
{
    if (!begin(x))
        return false;
    while (x->done < x->options.operations) {
        x->done++;
        if (!step(x) || (x->done % WHOLE_EVERY == 0 && !compare_all(x)))
            return false;
    }
    x->done++;
    if (!compare_all(x) || (x->options.defined && !do_defined(x)) || !unmap(x))
        return false;
    return x->options.reads_only || do_fsync(x);
}

static bool write_file(const char *path, const char *suffix, const uint8_t *bytes, size_t n)
{
    char name[4096];
    snprintf(name, sizeof(name), "%s%s", path, suffix);
    FILE *file = fopen(name, "wb");
    bool good = file && fwrite(bytes, 1, n, file) == n;
    if (file && fclose(file))
        good = false;
    if (!good)
        fprintf(stderr, "exercise: %s: %s\n", name, strerror(errno));
    return good;
}

static bool exercise(struct exercise *x)
{
    x->fd = -1;
    x->random = x->options.seed;
    x->difference = NO_DIFFERENCE;
    running = x;
    struct expected *e = &x->expected;
    bool good = open_file(x, 0) && run(x);
    if (!good)
        print_log(x);
    if (x->fd >= 0 && !close_file(x))
        good = false;
    if (good && x->options.output)
        good = write_file(x->options.output, "", e->content, e->size) &&
               write_file(x->options.output, ".states", e->states, e->size / e->element);
    return good;
}

/* Bytes in hexadecimal digits, exactly n. */
static bool parse_fill(const char *text, uint8_t *fill, size_t n)
{
    if (strlen(text) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return false;
        fill[i] = (uint8_t)byte;
    }
    return true;
}

static int usage(void)
{
    fprintf(stderr, "usage: exercise [-N OPERATIONS] [-S SEED] [-e BYTES] [-f HEX] [-l BYTES] "
                    "[-d FILE] [-o FILE] [-rmsDtp] FILE\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct exercise x = {.options = {.operations = 1000, .seed = 1, .longest = (size_t)64 << 10}};
    struct options *o = &x.options;
    uint8_t fill[ELEMENT_MAX] = {0};
    const char *fill_text = NULL;
    size_t element = 1;
    bool dense = false, sparsify = false;
    int option;
    while ((option = getopt(argc, argv, "N:S:e:f:l:d:o:rmsDtp")) != -1) {
        switch (option) {
        case 'N':
            o->operations = strtoull(optarg, NULL, 10);
            break;
        case 'S':
            o->seed = strtoull(optarg, NULL, 10);
            break;
        case 'e':
            element = strtoul(optarg, NULL, 10);
            break;
        case 'f':
            fill_text = optarg;
            break;
        case 'l':
            o->longest = strtoul(optarg, NULL, 10);
            break;
        case 'd':
            o->defined = optarg;
            break;
        case 'o':
            o->output = optarg;
            break;
        case 'r':
            o->reads_only = true;
            break;
        case 'm':
            o->no_mappings = true;
            break;
        case 's':
            sparsify = true;
            break;
        case 'D':
            dense = true;
            break;
        case 't':
            o->truncate_first = true;
            break;
        case 'p':
            o->ordinary = true;
            break;
        default:
            return usage();
        }
    }
    struct stat st;
    if (optind + 1 != argc || element == 0 || element > ELEMENT_MAX || o->longest == 0 ||
        (fill_text && !parse_fill(fill_text, fill, element)) ||
        (o->truncate_first && o->reads_only))
        return usage();
    o->path = argv[optind];
    if (stat(o->path, &st) || st.st_size == 0 || (size_t)st.st_size % element != 0) {
        fprintf(stderr, "exercise: %s: not a file of elements of %zu bytes\n", o->path, element);
        return 2;
    }
    signal(SIGBUS, on_bus_error);
    x.buffer = malloc((size_t)st.st_size);
    bool good = expected_create(&x.expected, (size_t)st.st_size, element, fill) && x.buffer;
    x.expected.erases = !dense;
    x.expected.sparsify = sparsify;
    good = good && exercise(&x);
    expected_destroy(&x.expected);
    free(x.buffer);
    return good ? 0 : 1;
}
