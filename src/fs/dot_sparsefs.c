/* .sparsefs at the root of the mount: the daemon's process id, its counters, its last messages, the
 * memory limit of its cache, and the file itself as it was committed last. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/parse_size.h"
#include "fs/daemon/last_messages.h"
#include "fs/mount.h"
#include "fs/refusal.h"

#define SIZE_TEXT_BYTES 32

static const struct {
    const char *name;
    unsigned entry;
} files[] = {{"pid", ENTRY_PID},
             {"stats.json", ENTRY_STATISTICS},
             {"log", ENTRY_LOG},
             {"cache_size", ENTRY_CACHE_SIZE},
             {"image.h5", ENTRY_IMAGE}};

/* The image, which is the last, exists in writers only: a follower would have to copy the whole
 * file before it changes. */
static size_t number_of_files(const struct mount *mount)
{
    size_t n = sizeof(files) / sizeof(*files);
    return mount->follow || mount->files ? n - 1 : n;
}

int control_lookup(const struct mount *mount, const char *name, struct inode *inode)
{
    for (size_t i = 0; i < number_of_files(mount); i++) {
        if (!strcmp(name, files[i].name)) {
            *inode = (struct inode){.entry = files[i].entry};
            return 0;
        }
    }
    return -ENOENT;
}

const char *control_name(const struct mount *mount, unsigned n, struct inode *inode)
{
    if (n >= number_of_files(mount))
        return NULL;
    *inode = (struct inode){.entry = files[n].entry};
    return files[n].name;
}

/* By device and inode programs tell whose mount it is when the file has another name. */
static void write_statistics(FILE *out, const struct stat *st, const struct sfs_statistics *s,
                             size_t n_nodes, bool is_read_only, enum sfs_lock lock,
                             const struct mounted_statistics *of_folder)
{
    static const char *const locks[] = {
        [SFS_LOCK_NONE] = "none", [SFS_LOCK_SHARED] = "shared", [SFS_LOCK_EXCLUSIVE] = "exclusive"};
    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {
        {"cache_limit", s->cache_limit},
        {"cache_bytes", s->cache_bytes},
        {"cache_bytes_used", s->cache_bytes_used},
        {"cache_chunks", s->cache_chunks},
        {"cache_hits", s->cache_hits},
        {"cache_misses", s->cache_misses},
        {"cache_evictions", s->cache_evictions},
        {"chunks_decoded", s->chunks_decoded},
        {"cache_dirty_bytes", s->cache_dirty_bytes},
        {"chunks_encoded", s->chunks_encoded},
        {"store_reads", s->store_reads},
        {"store_bytes_read", s->store_bytes_read},
        {"store_commits", s->store_commits},
        {"chunks_left", s->chunks_left},
        {"nodes", n_nodes},
        {"read_only", is_read_only},
    };
    for (size_t i = 0; i < sizeof(counters) / sizeof(*counters); i++)
        fprintf(out, "%s\n  \"%s\": %" PRIu64, i ? "," : "{", counters[i].name, counters[i].value);
    fprintf(out, ",\n  \"lock\": \"%s\"", locks[lock]);
    if (of_folder)
        fprintf(out, ",\n  \"max_open\": %u,\n  \"files_open\": %u,\n  \"files_opened\": %" PRIu64,
                of_folder->most, of_folder->open, of_folder->opened);
    fprintf(out, ",\n  \"file_device\": %" PRIu64 ",\n  \"file_inode\": %" PRIu64 "\n}\n",
            (uint64_t)st->st_dev, (uint64_t)st->st_ino);
}

/* Sums over all files; each open file has its own lock, of which the strongest is shown. */
static void write_of_folder(FILE *out, struct mount *mount)
{
    struct mounted_statistics statistics;
    struct stat st = {0};
    int fd = folder_find(mounted_files_folder(mount->files), "", &st);
    if (fd >= 0)
        close(fd);
    mounted_files_statistics(mount->files, &statistics);
    write_statistics(out, &st, &statistics.sums, nodes_count(mount->nodes), !mount->is_writable,
                     statistics.lock, &statistics);
}

static size_t cache_size(struct mount *mount)
{
    struct mounted_statistics of_folder;
    struct sfs_statistics statistics;
    if (mount->files) {
        mounted_files_statistics(mount->files, &of_folder);
        return of_folder.sums.cache_limit;
    }
    sfs_statistics(mount->file, &statistics);
    return statistics.cache_limit;
}

int control_text(struct mount *mount, unsigned entry, char **text, size_t *n)
{
    FILE *out = open_memstream(text, n);
    if (!out)
        return -ENOMEM;
    if (entry == ENTRY_PID) {
        fprintf(out, "%d\n", (int)getpid());
    } else if (entry == ENTRY_LOG) {
        messages_print(out);
    } else if (entry == ENTRY_CACHE_SIZE) {
        fprintf(out, "%zu\n", cache_size(mount));
    } else if (mount->files) {
        write_of_folder(out, mount);
    } else {
        struct sfs_statistics statistics;
        struct stat st = {0};
        (void)sfs_stat(mount->file, &st);
        sfs_statistics(mount->file, &statistics);
        write_statistics(out, &st, &statistics, nodes_count(mount->nodes),
                         !sfs_is_writable(mount->file), sfs_lock(mount->file), NULL);
    }
    if (fclose(out) == 0)
        return 0;
    free(*text);
    return -ENOMEM;
}

bool control_is_writable(const struct mount *mount, unsigned entry)
{
    return mount->is_writable && entry == ENTRY_CACHE_SIZE;
}

int control_write(struct mount *mount, const char *bytes, size_t n)
{
    char text[SIZE_TEXT_BYTES];
    size_t size;
    n -= n > 0 && bytes[n - 1] == '\n';
    bool is_text = n < sizeof(text) && !memchr(bytes, '\0', n);
    if (is_text) {
        memcpy(text, bytes, n);
        text[n] = '\0';
    }
    if (!is_text || !size_parse(text, &size))
        return refusal_say(mount, NULL, REFUSAL_SIZE);
    return mount->files ? mounted_files_set_cache_size(mount->files, size)
                        : sfs_set_cache_size(mount->file, size);
}
