/* The FUSE ceiling: a filesystem of equal files that lie in locked memory, so that what remains of
 * every request is the kernel's and libfuse's own cost. Its root shows 000000.raw, 000001.raw, ...:
 * consecutive pieces of file_bytes bytes of a source file. It never touches the source again once
 * mounted, and knows nothing of HDF5. With `writable` the files take writes within their size,
 * which stays; all other changes are answered and not made. With `directories` the root shows that
 * many directories instead, each with as many files and directories as a dataset of sparsefs has,
 * all files empty.
 *
 * memfs -o source=FILE,file_bytes=N[,directories=N][,writable][,direct_io][,threads=N] MNT
 * It stays in the foreground. */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIMEOUT    86400.0 /* seconds that names and attributes stay valid: nothing ever changes */
#define FIRST_FILE (FUSE_ROOT_ID + 1)
#define LISTING_MAX                                                                                \
    ((size_t)64 << 10) /* bytes in one answer to READDIR; the kernel asks for less */
#define NAME_SIZE 32

/* A directory among `directories`: its inode numbers are its own, those of its directories, those
 * of its files, and those of its directories' files. */
#define SUBDIRECTORIES     5
#define FILES              4
#define SUBDIRECTORY_FILES 2
#define INODES             (1 + SUBDIRECTORIES + FILES + SUBDIRECTORIES * SUBDIRECTORY_FILES)

struct memfs {
    char *source;
    uint64_t file_bytes;
    uint64_t directories;
    int direct_io;
    int writable;
    unsigned threads;
    char *memory;
    size_t memory_bytes;
    uint64_t files;
    struct timespec time;
};

static const struct fuse_opt options[] = {
    {"source=%s", offsetof(struct memfs, source), 0},
    {"file_bytes=%" SCNu64, offsetof(struct memfs, file_bytes), 0},
    {"directories=%" SCNu64, offsetof(struct memfs, directories), 0},
    {"direct_io", offsetof(struct memfs, direct_io), 1},
    {"writable", offsetof(struct memfs, writable), 1},
    {"threads=%u", offsetof(struct memfs, threads), 0},
    FUSE_OPT_END,
};

static const struct memfs *memfs_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* At least six digits and a suffix; by hand, because long listings are mostly this. */
static void name_file(uint64_t index, char name[NAME_SIZE])
{
    char digits[24];
    int count = 0;
    for (; index > 0 || count < 6; index /= 10)
        digits[count++] = (char)('0' + index % 10);
    while (count > 0)
        *name++ = digits[--count];
    strcpy(name, ".raw");
}

/* Which of its directory's inodes a number is. */
static unsigned part_of(fuse_ino_t ino)
{
    return (unsigned)((ino - FIRST_FILE) % INODES);
}

static bool is_directory(const struct memfs *fs, fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID || (fs->directories > 0 && part_of(ino) <= SUBDIRECTORIES);
}

static uint64_t count_children(const struct memfs *fs, fuse_ino_t ino)
{
    if (ino == FUSE_ROOT_ID)
        return fs->directories > 0 ? fs->directories : fs->files;
    return part_of(ino) == 0 ? SUBDIRECTORIES + FILES : SUBDIRECTORY_FILES;
}

static fuse_ino_t child_of(const struct memfs *fs, fuse_ino_t ino, uint64_t index)
{
    if (ino == FUSE_ROOT_ID)
        return FIRST_FILE + index * (fs->directories > 0 ? INODES : 1);
    if (part_of(ino) == 0)
        return ino + 1 + index;
    uint64_t files = 1 + SUBDIRECTORIES + FILES + (part_of(ino) - 1) * SUBDIRECTORY_FILES;
    return ino - part_of(ino) + files + index;
}

static struct stat attributes(const struct memfs *fs, fuse_ino_t ino)
{
    struct stat st = {.st_ino = ino,
                      .st_mode = S_IFREG | (fs->writable ? 0644 : 0444),
                      .st_nlink = 1,
                      .st_size = (off_t)fs->file_bytes,
                      .st_blocks = (blkcnt_t)((fs->file_bytes + 511) / 512),
                      .st_atim = fs->time,
                      .st_mtim = fs->time,
                      .st_ctim = fs->time};
    if (is_directory(fs, ino)) {
        st.st_mode = S_IFDIR | 0555;
        st.st_nlink = 2;
        st.st_size = 0;
        st.st_blocks = 0;
    }
    return st;
}

static struct fuse_entry_param entry(const struct memfs *fs, fuse_ino_t ino)
{
    return (struct fuse_entry_param){
        .ino = ino, .attr = attributes(fs, ino), .attr_timeout = TIMEOUT, .entry_timeout = TIMEOUT};
}

static void memfs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    const struct memfs *fs = memfs_of(req);
    uint64_t index = strtoull(name, NULL, 10);
    char expected[NAME_SIZE];
    name_file(index, expected);
    if (index >= count_children(fs, parent) || strcmp(name, expected) != 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    struct fuse_entry_param found = entry(fs, child_of(fs, parent, index));
    fuse_reply_entry(req, &found);
}

static void memfs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)fi;
    struct stat st = attributes(memfs_of(req), ino);
    fuse_reply_attr(req, &st, TIMEOUT);
}

/* ls -l asks for an ACL and a security label of every file, until it is told that there are none on
 * this filesystem: EOPNOTSUPP. ENODATA would have it go on, at two requests per file. */
static void memfs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    (void)ino;
    (void)name;
    (void)size;
    fuse_reply_err(req, EOPNOTSUPP);
}

static void memfs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    (void)ino;
    if (size == 0)
        fuse_reply_xattr(req, 0);
    else
        fuse_reply_buf(req, NULL, 0);
}

static void memfs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    if ((fi->flags & O_ACCMODE) != O_RDONLY && !memfs_of(req)->writable) {
        fuse_reply_err(req, EROFS);
        return;
    }
    fi->direct_io = memfs_of(req)->direct_io != 0;
    fi->keep_cache = 1;
    fi->noflush = 1;
    fuse_reply_open(req, fi);
}

static void memfs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    (void)fi;
    const struct memfs *fs = memfs_of(req);
    uint64_t start = (uint64_t)offset;
    if (start >= fs->file_bytes) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    if (size > fs->file_bytes - start)
        size = fs->file_bytes - start;
    fuse_reply_buf(req, fs->memory + (ino - FIRST_FILE) * fs->file_bytes + start, size);
}

static void memfs_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size,
                        off_t offset, struct fuse_file_info *fi)
{
    (void)fi;
    const struct memfs *fs = memfs_of(req);
    uint64_t start = (uint64_t)offset;
    if (start >= fs->file_bytes) {
        fuse_reply_err(req, EFBIG);
        return;
    }
    if (size > fs->file_bytes - start)
        size = fs->file_bytes - start;
    memcpy(fs->memory + (ino - FIRST_FILE) * fs->file_bytes + start, bytes, size);
    fuse_reply_write(req, size);
}

static void memfs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *wanted, int which,
                          struct fuse_file_info *fi)
{
    (void)wanted;
    (void)which;
    memfs_getattr(req, ino, fi);
}

static void memfs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                            struct fuse_file_info *fi)
{
    (void)ino;
    (void)mode;
    (void)offset;
    (void)length;
    (void)fi;
    fuse_reply_err(req, 0);
}

static void memfs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)ino;
    (void)datasync;
    (void)fi;
    fuse_reply_err(req, 0);
}

static void memfs_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
                        struct fuse_file_info *fi)
{
    (void)ino;
    (void)fi;
    off_t end = (off_t)memfs_of(req)->file_bytes;
    if (offset < 0 || offset >= end)
        fuse_reply_err(req, ENXIO);
    else
        fuse_reply_lseek(req, whence == SEEK_DATA ? offset : end);
}

static void memfs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fi->cache_readdir = 1;
    fi->keep_cache = 1;
    fuse_reply_open(req, fi);
}

/* Entry number at of the listing of a directory: ".", "..", then what is in it. Returns its size
 * in the listing. */
static size_t add_entry(fuse_req_t req, fuse_ino_t directory, char *listing, size_t size,
                        uint64_t at, int plus)
{
    const struct memfs *fs = memfs_of(req);
    char name[NAME_SIZE];
    fuse_ino_t ino = FUSE_ROOT_ID;
    if (at < 2) {
        strcpy(name, at == 0 ? "." : "..");
    } else {
        name_file(at - 2, name);
        ino = child_of(fs, directory, at - 2);
    }
    off_t next = (off_t)at + 1;
    if (plus) {
        struct fuse_entry_param found = entry(fs, ino);
        return fuse_add_direntry_plus(req, listing, size, name, &found, next);
    }
    struct stat st = {.st_ino = ino, .st_mode = is_directory(fs, ino) ? S_IFDIR : S_IFREG};
    return fuse_add_direntry(req, listing, size, name, &st, next);
}

static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, int plus)
{
    static _Thread_local char listing[LISTING_MAX];
    if (size > sizeof(listing))
        size = sizeof(listing);
    size_t used = 0;
    uint64_t count = 2 + count_children(memfs_of(req), ino);
    for (uint64_t at = (uint64_t)offset; at < count; at++) {
        size_t bytes = add_entry(req, ino, listing + used, size - used, at, plus);
        if (bytes > size - used)
            break;
        used += bytes;
    }
    fuse_reply_buf(req, listing, used);
}

static void memfs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                          struct fuse_file_info *fi)
{
    (void)fi;
    list(req, ino, size, offset, 0);
}

static void memfs_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                              struct fuse_file_info *fi)
{
    (void)fi;
    list(req, ino, size, offset, 1);
}

static const struct fuse_lowlevel_ops operations = {
    .lookup = memfs_lookup,
    .getattr = memfs_getattr,
    .getxattr = memfs_getxattr,
    .listxattr = memfs_listxattr,
    .open = memfs_open,
    .read = memfs_read,
    .write = memfs_write,
    .setattr = memfs_setattr,
    .fallocate = memfs_fallocate,
    .fsync = memfs_fsync,
    .lseek = memfs_lseek,
    .opendir = memfs_opendir,
    .readdir = memfs_readdir,
    .readdirplus = memfs_readdirplus,
};

/* Fills memory with all of an open file of size bytes. Returns 0 or -errno. */
static int read_all(int fd, char *memory, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t bytes = pread(fd, memory + done, size - done, (off_t)done);
        if (bytes <= 0)
            return bytes < 0 ? -errno : -EIO;
        done += (size_t)bytes;
    }
    return 0;
}

/* Brings the source into an in-memory file, mapped and locked: the pages that a file on tmpfs has.
 */
static int load(struct memfs *fs)
{
    int fd = open(fs->source, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct stat st;
    int error = fstat(fd, &st) ? -errno : 0;
    if (error)
        goto close_source;
    fs->time = st.st_mtim;
    fs->files = (uint64_t)st.st_size / fs->file_bytes;
    int memory_fd = memfd_create("memfs", MFD_CLOEXEC);
    if (memory_fd < 0 || ftruncate(memory_fd, st.st_size) < 0) {
        error = -errno;
        goto close_source;
    }
    fs->memory = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    close(memory_fd);
    if (fs->memory == MAP_FAILED) {
        fs->memory = NULL;
        error = -ENOMEM;
        goto close_source;
    }
    fs->memory_bytes = (size_t)st.st_size;
    error = read_all(fd, fs->memory, fs->memory_bytes);
    if (!error && mlock(fs->memory, fs->memory_bytes))
        perror("memfs: mlock (going on without)");
close_source:
    close(fd);
    return error;
}

static int serve(struct fuse_session *session, const struct memfs *fs, const char *mountpoint)
{
    if (fuse_session_mount(session, mountpoint))
        return 1;
    int result = 1;
    struct fuse_loop_config *config = fuse_loop_cfg_create();
    if (config && fuse_set_signal_handlers(session) == 0) {
        fuse_loop_cfg_set_max_threads(config, fs->threads);
        fuse_loop_cfg_set_idle_threads(config, fs->threads);
        result = fuse_session_loop_mt(session, config) ? 1 : 0;
        fuse_remove_signal_handlers(session);
    }
    fuse_loop_cfg_destroy(config);
    fuse_session_unmount(session);
    return result;
}

int main(int argc, char **argv)
{
    struct memfs fs = {.threads = (unsigned)sysconf(_SC_NPROCESSORS_ONLN)};
    struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
    struct fuse_cmdline_opts command = {0};
    int result = 1;
    if (fuse_opt_parse(&args, &fs, options, NULL) ||
        fuse_opt_add_arg(&args, fs.writable ? "-orw" : "-oro") ||
        fuse_opt_add_arg(&args, "-onosuid,nodev,noexec,default_permissions,fsname=memfs") ||
        fuse_parse_cmdline(&args, &command))
        goto free_args;
    if (!command.mountpoint || !fs.source || fs.file_bytes == 0) {
        fprintf(stderr, "usage: memfs -o source=FILE,file_bytes=N[,directories=N]"
                        "[,writable][,direct_io][,threads=N] MNT\n");
        goto free_args;
    }
    int error = load(&fs);
    if (error) {
        fprintf(stderr, "memfs: %s: %s\n", fs.source, strerror(-error));
        goto free_args;
    }
    struct fuse_session *session = fuse_session_new(&args, &operations, sizeof(operations), &fs);
    if (session) {
        result = serve(session, &fs, command.mountpoint);
        fuse_session_destroy(session);
    }
free_args:
    if (fs.memory)
        munmap(fs.memory, fs.memory_bytes);
    free(fs.source);
    free(command.mountpoint);
    fuse_opt_free_args(&args);
    return result;
}
