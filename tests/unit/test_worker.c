/* libhdf5's own process: what is said to it and by it, what it may not do, and what becomes of
 * calls when it lies, dies or hangs. The worker here is none that calls libhdf5, but one that does
 * all of that. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/machine_memory.h"
#include "common/process_status.h"
#include "common/sanitized.h"
#include "hdf5/private.h"
#include "hdf5/worker/channel.h"
#include "hdf5/worker/client_private.h"
#include "hdf5/worker/confine.h"
#include "hdf5/worker/large_messages.h"
#include "hdf5/worker/remote_private.h"
#include "hdf5/worker/zygote.h"
#include "store/store.h"

#define MEMORY   ((size_t)512 << 20)
#define TIMEOUT  5000000000 /* nanoseconds, for what hangs */
#define HURRY    1000000000
#define PATIENT  300000000000
#define BUSY     3000000000 /* for what computes so long: */
#define COMPUTED 1000000000
#define OTHERS   6 /* beside so many others */

/* ---- Messages ---- */

static struct sfs_member members[] = {
    {.name = (char *)"a",
     .offset = 0,
     .type = {.class = SFS_INTEGER, .size = 4, .is_signed = true}},
    {.name = (char *)"b", .offset = 4, .type = {.class = SFS_STRING, .size = 5}},
};

/* The encoded datatype of what has these members. */
static const char compound[] = "\x03\x00"                         /* prefix */
                               "\x36\x02\x00\x00\x09\x00\x00\x00" /* a compound of two members */
                               "a\x00\x00\x10\x08\x00\x00\x04\x00\x00\x00\x00\x00\x20\x00"
                               "b\x00\x04\x13\x00\x00\x00\x05\x00\x00\x00";

static struct sfs_filter filters[] = {
    {.id = 1, .name = "deflate", .n_values = 1, .values = &(unsigned){6}}};

static struct sfs_dataset_info an_info(void)
{
    static char fill[10]; /* a byte more than an element has, for who says so */
    return (struct sfs_dataset_info){
        .encoded_type = {compound, sizeof(compound) - 1},
        .space = SFS_SPACE_SIMPLE,
        .rank = 2,
        .dims = {5, 7},
        .max_dims = {SFS_UNLIMITED, 7},
        .elements = 35,
        .type = {.class = SFS_COMPOUND,
                 .size = 9,
                 .n_members = 2,
                 .members = members,
                 .description = (char *)"compound of 2 members"},
        .fill = fill,
        .fill_is_zero = true,
        .fill_json = (char *)"[0, \"\"]",
        .layout = SFS_CHUNKED,
        .chunk_dims = {2, 7},
        .n_filters = 1,
        .filters = filters,
    };
}

static struct sfs_link links[] = {
    {SFS_LINK_HARD, (char *)"a", 800, NULL, NULL},
    {SFS_LINK_SOFT, (char *)"b", 0, (char *)"/a", NULL},
    {SFS_LINK_EXTERNAL, (char *)"c", 0, (char *)"/x", (char *)"other.h5"},
};
static struct sfs_attribute attributes[] = {{(char *)"k", (char *)"1", (char *)"1"},
                                            {(char *)"l", NULL, NULL}};
static struct hdf5_axis axes[] = {{1, 2, SFS_UNLIMITED, 1}, {0, 1, 1, 3}};
static struct hdf5_mapping mapping = {.file = (char *)"f_%b.h5",
                                      .dataset = (char *)"/d",
                                      .is_regular = true,
                                      .shown = {.rank = 2, .axis = axes},
                                      .source = {.is_all = true}};

/* One message with everything in it. */
static void put_all(struct wire *wire, const struct sfs_dataset_info *info)
{
    wire_info(wire, info);
    wire_storage(wire, &(struct hdf5_storage){.address = UINT64_MAX, .in_array = true});
    wire_links(wire, &(struct sfs_links){COUNT(links), links});
    wire_attributes(wire, &(struct sfs_attributes){COUNT(attributes), attributes});
    wire_mappings(wire, &(struct hdf5_mappings){1, &mapping});
    wire_chunk(wire, &(struct hdf5_chunk){4096, 77, 2});
}

struct all {
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    struct sfs_links links;
    struct sfs_attributes attributes;
    struct hdf5_mappings mappings;
    struct hdf5_chunk chunk;
};

static void free_all(struct all *all)
{
    hdf5_info_free(&all->info);
    hdf5_segments_free(all->storage.n_segments, all->storage.segments);
    sfs_links_free(&all->links);
    sfs_attributes_free(&all->attributes);
    hdf5_mappings_free(&all->mappings);
}

/* What it leaves after an error is nothing. */
static int take_all(const void *bytes, size_t n, struct all *all)
{
    struct cursor cursor = cursor_over(bytes, n);
    *all = (struct all){0};
    int error = take_info(&cursor, &all->info);
    if (!error)
        error = take_storage(&cursor, &all->info, &all->storage);
    if (!error)
        error = take_links(&cursor, &all->links);
    if (!error)
        error = take_attributes(&cursor, &all->attributes);
    if (!error)
        error = take_mappings(&cursor, &all->mappings);
    if (!error)
        error = take_chunk(&cursor, &all->chunk);
    if (!error)
        error = take_end(&cursor, true);
    return error;
}

static void test_messages_come_as_they_were(void **state)
{
    (void)state;
    struct sfs_dataset_info info = an_info();
    struct wire wire = {0}, again = {0};
    struct all all;
    put_all(&wire, &info);
    assert_int_equal(take_all(wire.bytes, wire.n, &all), 0);
    assert_int_equal(all.info.elements, 35);
    assert_true(all.info.fill_is_zero);
    assert_string_equal(all.info.type.members[1].name, "b");
    assert_string_equal(all.links.link[2].target_file, "other.h5");
    assert_null(all.attributes.attribute[1].text);
    assert_int_equal(all.mappings.mapping[0].shown.axis[0].count, SFS_UNLIMITED);
    assert_int_equal(all.chunk.size, 77);

    put_all(&again, &all.info);
    assert_int_equal(again.n, wire.n);
    assert_memory_equal(again.bytes, wire.bytes, wire.n);
    free_all(&all);
    wire_free(&wire);
    wire_free(&again);
}

/* Where nothing follows that its size could be taken from. */
static void test_the_smallest_of_each_comes_alone(void **state)
{
    (void)state;
    struct sfs_member nameless[20];
    for (size_t i = 0; i < COUNT(nameless); i++)
        nameless[i] =
            (struct sfs_member){.name = (char *)"", .type = {.class = SFS_INTEGER, .size = 1}};
    const struct sfs_type type = {.class = SFS_COMPOUND,
                                  .size = 1,
                                  .n_members = COUNT(nameless),
                                  .members = nameless,
                                  .description = (char *)""};
    struct sfs_link link = {.name = (char *)""};
    struct sfs_attribute attribute = {.name = (char *)""};
    const struct hdf5_slab all_of_it = {.is_all = true};
    struct hdf5_mapping irregular = {
        .file = (char *)"", .dataset = (char *)"", .shown = all_of_it, .source = all_of_it};
    struct all all = {0};
    struct wire wire = {0};
    struct cursor cursor;
    wire_type(&wire, &type);
    cursor = cursor_over(wire.bytes, wire.n);
    assert_int_equal(take_type(&cursor, &all.info.type), 0);
    wire.n = 0;
    wire_links(&wire, &(struct sfs_links){1, &link});
    cursor = cursor_over(wire.bytes, wire.n);
    assert_int_equal(take_links(&cursor, &all.links), 0);
    wire.n = 0;
    wire_attributes(&wire, &(struct sfs_attributes){1, &attribute});
    cursor = cursor_over(wire.bytes, wire.n);
    assert_int_equal(take_attributes(&cursor, &all.attributes), 0);
    wire.n = 0;
    wire_mappings(&wire, &(struct hdf5_mappings){1, &irregular});
    cursor = cursor_over(wire.bytes, wire.n);
    assert_int_equal(take_mappings(&cursor, &all.mappings), 0);
    free_all(&all);
    wire_free(&wire);
}

static void test_messages_that_end_early_are_refused(void **state)
{
    (void)state;
    struct sfs_dataset_info info = an_info();
    struct wire wire = {0};
    struct all all;
    put_all(&wire, &info);
    for (size_t n = 0; n < wire.n; n++) {
        void *bytes = allocate(n);
        memcpy(bytes, wire.bytes, n);
        assert_int_equal(take_all(bytes, n, &all), -EIO);
        free_all(&all);
        free(bytes);
    }
    wire_free(&wire);
}

/* What is changed is refused, or sound: it can be freed and sent again. */
static void test_messages_that_are_changed(void **state)
{
    (void)state;
    struct sfs_dataset_info info = an_info();
    struct wire wire = {0};
    struct all all;
    unsigned refused = 0;
    put_all(&wire, &info);
    for (size_t i = 0; i < wire.n; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            wire.bytes[i] ^= (unsigned char)(1 << bit);
            refused += take_all(wire.bytes, wire.n, &all) != 0;
            wire.bytes[i] ^= (unsigned char)(1 << bit);
            free_all(&all);
        }
    }
    assert_true(refused > 4 * wire.n);
    wire_free(&wire);
}

static int take_changed(const struct sfs_dataset_info *info)
{
    struct wire wire = {0};
    struct all all;
    put_all(&wire, info);
    int error = take_all(wire.bytes, wire.n, &all);
    free_all(&all);
    wire_free(&wire);
    return error;
}

static void test_what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct sfs_dataset_info info = an_info();
    assert_int_equal(take_changed(&info), 0);
    members[1].offset = 5; /* its last byte lies outside */
    assert_int_equal(take_changed(&info), -EIO);
    members[1].offset = 4;
    members[0].type.size = 3; /* no machine has it */
    assert_int_equal(take_changed(&info), -EIO);
    members[0].type.size = 4;
    members[0].type.has_pointers = true;
    assert_int_equal(take_changed(&info), -EIO);
    members[0].type.has_pointers = false;
    info.type.size = 10; /* which is not what its datatype says */
    assert_int_equal(take_changed(&info), -EIO);
    info = an_info();
    info.encoded_type.n--;
    assert_int_equal(take_changed(&info), -EIO);
    info = an_info();
    info.chunk_dims[0] = 0;
    assert_int_equal(take_changed(&info), -EIO);
    info = an_info();
    info.layout = SFS_SPARSE; /* libhdf5 knows none */
    assert_int_equal(take_changed(&info), -EIO);
    info = an_info();
    info.rank = 0;
    assert_int_equal(take_changed(&info), -EIO);
    info = an_info();
    links[1].name = (char *)"a/b";
    assert_int_equal(take_changed(&info), -EIO);
    links[1].name = (char *)"a"; /* twice */
    assert_int_equal(take_changed(&info), -EIO);
    links[1].name = (char *)"b";
    axes[0].block = 3; /* blocks that overlap */
    assert_int_equal(take_changed(&info), -EIO);
    axes[0].block = 1;
    axes[1].count = SFS_UNLIMITED;
    axes[1].stride = 3;
    assert_int_equal(take_changed(&info), -EIO);
    axes[1] = (struct hdf5_axis){0, 1, 1, 3};
    assert_int_equal(take_changed(&info), 0);
}

/* Small ones, that would take much more memory than they took to send. */
static void test_lists_without_an_end_are_refused(void **state)
{
    (void)state;
    const size_t n = ((size_t)1 << 20) + 1;
    struct sfs_attributes taken_attributes;
    struct hdf5_mappings taken_mappings;
    struct wire listed = {0}, mapped_there = {0};
    wire_uint(&listed, n);
    wire_uint(&mapped_there, n);
    for (size_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%08zu", i);
        wire_string(&listed, name);
        wire_uints(&listed, (uint64_t[]){0, 0}, 2);
        wire_uints(&mapped_there, (uint64_t[]){1, 1, false}, 3);
    }
    struct cursor cursor = cursor_over(listed.bytes, listed.n);
    assert_int_equal(take_attributes(&cursor, &taken_attributes), -EIO);
    cursor = cursor_over(mapped_there.bytes, mapped_there.n);
    assert_int_equal(take_mappings(&cursor, &taken_mappings), -EIO);
    assert_true(taken_attributes.n == 0 && taken_mappings.n == 0);
    wire_free(&listed);
    wire_free(&mapped_there);
}

/* As many as a group has with which libhdf5 is left alone, but not as many as there is room for in a message. */
static void test_links_without_an_end_are_refused(void **state)
{
    (void)state;
    const uint64_t n = ((uint64_t)1 << 22) + 1;
    struct sfs_links taken;
    struct wire listed = {0};
    size_t room = (size_t)(n + 1) * 6 * sizeof(uint64_t);
    listed.bytes = allocate(room);
    listed.room = room;
    wire_uint(&listed, n);
    for (uint64_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%07x", (unsigned)i);
        wire_link(&listed, &(struct sfs_link){SFS_LINK_HARD, name, 1, NULL, NULL});
    }
    struct cursor cursor = cursor_over(listed.bytes, listed.n);
    assert_int_equal(take_links(&cursor, &taken), -EIO);
    assert_int_equal(taken.n, 0);
    free(listed.bytes);
}

static void test_messages_that_are_too_long_are_none(void **state)
{
    (void)state;
    enum message_kind kind;
    int ends[2];
    const uint64_t until = UINT64_MAX;
    const struct channel_wait wait = {.until = &until};
    struct wire sent = {0}, received = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    wire_bytes(&sent, "twelve bytes", 12);
    for (size_t most = sent.n - 1; most <= sent.n; most++) {
        assert_int_equal(channel_send(ends[0], MESSAGE_REPLY, &sent, UINT64_MAX), 0);
        int error = channel_receive_asking(ends[1], &kind, &received, most, &wait);
        assert_int_equal(error, most == sent.n ? 0 : -EPROTO);
        assert_int_equal(received.n, error ? 0 : sent.n);
        if (error) /* what follows stays */
            assert_int_equal(recv(ends[1], (char[64]){0}, 64, 0), sent.n);
    }
    close(ends[0]);
    close(ends[1]);
    wire_free(&sent);
    wire_free(&received);
}

struct trickle {
    int socket;
    size_t n;
};

/* A byte every millisecond, until nobody listens. */
static void *send_slowly(void *data)
{
    struct trickle *trickle = data;
    while (send(trickle->socket, "", 1, MSG_NOSIGNAL) == 1) {
        trickle->n++;
        usleep(1000);
    }
    return NULL;
}

/* However slowly something comes, the time is that of all. */
static void test_one_that_trickles_is_not_waited_for(void **state)
{
    (void)state;
    static char bytes[1 << 20];
    int ends[2];
    pthread_t thread;
    signal(SIGPIPE, SIG_IGN); /* as in a worker */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct trickle trickle = {.socket = ends[0]};
    start_thread(&thread, send_slowly, &trickle);
    assert_int_equal(channel_receive_bytes(ends[1], bytes, sizeof(bytes), clock_now() + 200000000),
                     -ETIMEDOUT);
    close(ends[1]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_in_range(trickle.n, 1, sizeof(bytes) - 1);
    assert_int_equal(channel_send_bytes(ends[0], bytes, sizeof(bytes), UINT64_MAX), -EPIPE);
    close(ends[0]);
}

/* ---- Doors ---- */

#define OPEN_DOOR 17
#define SHUT_DOOR 3

static bool is_refused(int result, int error)
{
    return result < 0 && errno == error;
}

static int mapped;  /* a descriptor that was open before */
static char *plain; /* a page that may be written to */

static bool opens(void)
{
    return open("/dev/null", O_RDONLY) >= 0 || open("/proc/self/maps", O_RDONLY) >= 0;
}

static bool makes_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || socket(AF_INET, SOCK_STREAM, 0) >= 0;
}

static bool starts_program(void)
{
    char *const arguments[] = {(char *)"true", NULL};
    execve("/bin/true", arguments, NULL);
    return false; /* it would end with 0, which is no answer */
}

static bool forks(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid > 0;
}

static bool signals_parent(void)
{
    return kill(getppid(), 0) == 0;
}

static bool kills_itself(void)
{
    return syscall(SYS_tgkill, getpid(), gettid(), SIGKILL) == 0 ||
           syscall(SYS_tgkill, getpid(), gettid(), SIGKILL | 1L << 32) == 0;
}

static int ends[2]; /* of sockets that were open before */

static bool receives_urgent(void)
{
    char byte;
    return recv(ends[0], &byte, 1, MSG_OOB | MSG_DONTWAIT) >= 0 || errno != EPERM;
}

static bool sends_urgent(void)
{
    return send(ends[0], "x", 1, MSG_OOB | MSG_DONTWAIT) >= 0;
}

static bool sends_descriptor(void)
{
    return descriptor_send(ends[0], "x", 1, mapped) == 0;
}

static bool requeues(void)
{
    static uint32_t words[2];
    return syscall(SYS_futex, &words[0], FUTEX_REQUEUE, 0, 0, &words[1], 0) >= 0 ||
           syscall(SYS_futex, &words[0], FUTEX_LOCK_PI, 0, NULL, NULL, 0) >= 0;
}

static bool advises(void)
{
    return madvise(plain, 4096, MADV_DONTFORK) == 0 || madvise(plain, 4096, MADV_WILLNEED) == 0 ||
           madvise(plain, 4096, MADV_MERGEABLE) == 0;
}

/* What libc and libhdf5 need: a door that is open. */
static bool cannot_do_its_work(void)
{
    static uint32_t word;
    char byte;
    struct iovec part = {(char *)"y", 1};
    bool can = writev(ends[0], &part, 1) == 1 && recv(ends[1], &byte, 1, MSG_WAITALL) == 1 &&
               madvise(plain, 4096, MADV_DONTNEED) == 0 &&
               syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1) == 0 &&
               is_refused((int)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, NULL), EAGAIN);
    return !can;
}

#ifdef __x86_64__
#define X32 0x40000000L

/* The filter ends who uses another table of calls. */
static bool calls_x32(void)
{
    return syscall(X32 | SYS_getpid) > 0;
}

static bool calls_i386(void)
{
    long result = 20; /* getpid */
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    return result > 0;
}

static void try_table(bool (*door)(void))
{
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* by a kernel without that table; cmocka would go on here */
        _exit(confine_worker(MEMORY) && !door() ? SHUT_DOOR : OPEN_DOOR);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (confine_has_filter())
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == SHUT_DOOR);
}
#endif

static bool reads_parent(void)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {&mapped, 1};
    return process_vm_readv(getppid(), &here, 1, &there, 1, 0) > 0;
}

static bool traces_parent(void)
{
    return ptrace(PTRACE_SEIZE, getppid(), NULL, NULL) == 0;
}

static bool maps_code(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
           MAP_FAILED;
}

static bool makes_code(void)
{
    return mprotect(plain, 4096, PROT_READ | PROT_EXEC) == 0;
}

static bool locks_memory(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1,
                0) != MAP_FAILED;
}

static bool maps_file(void)
{
    return mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, mapped, 0) != MAP_FAILED;
}

static bool copies_descriptor(void)
{
    return dup(mapped) >= 0;
}

static bool is_root(void)
{
    return getuid() == 0 || setuid(0) == 0;
}

#if !IS_SANITIZED
static bool takes_memory(void)
{
    return mmap(NULL, 2 * MEMORY, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}
#endif

static void try_door(bool (*door)(void), bool needs_filter)
{
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        bool is_confined = confine_worker(MEMORY);
        _exit(!is_confined ? 1 : door() ? OPEN_DOOR : SHUT_DOOR);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (!needs_filter || confine_has_filter())
        assert_int_equal(WEXITSTATUS(status), SHUT_DOOR);
}

static void test_every_door_is_shut(void **state)
{
    (void)state;
    mapped = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    plain = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(mapped >= 0 && plain != MAP_FAILED);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    try_door(opens, false);
    try_door(makes_socket, false);
    try_door(copies_descriptor, false);
    try_door(starts_program, true);
    try_door(forks, true);
    try_door(signals_parent, true);
    try_door(kills_itself, true);
    try_door(receives_urgent, true);
    try_door(sends_urgent, true);
    try_door(sends_descriptor, true);
    try_door(requeues, true);
    try_door(advises, true);
    try_door(cannot_do_its_work, false);
#ifdef __x86_64__
    try_table(calls_x32);
    try_table(calls_i386);
#endif
    try_door(reads_parent, true);
    try_door(traces_parent, true);
    try_door(maps_code, true);
    try_door(makes_code, true);
    try_door(locks_memory, true);
    try_door(maps_file, true);
    try_door(is_root, false);
#if !IS_SANITIZED
    try_door(takes_memory, false);
#endif
    munmap(plain, 4096);
    close(mapped);
    close(ends[0]);
    close(ends[1]);
}

/* What a root that may not become somebody else is confined to is not enough. */
static bool is_confined_without(int capability)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        bool is_dropped = syscall(SYS_capget, &header, data) == 0;
        data[0].effective &= ~(1U << capability);
        is_dropped = is_dropped && syscall(SYS_capset, &header, data) == 0;
        _exit(is_dropped && !confine_worker(MEMORY) ? SHUT_DOOR : OPEN_DOOR);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status) == OPEN_DOOR;
}

/* There is nobody else in such a user namespace. */
static bool is_confined_among_itself(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        int map = unshare(CLONE_NEWUSER) == 0 ? open("/proc/self/uid_map", O_WRONLY) : -1;
        bool is_root = map >= 0 && write(map, "0 0 1", 5) == 5 && getuid() == 0;
        _exit(!is_root || confine_worker(MEMORY) ? OPEN_DOOR : SHUT_DOOR);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status) == OPEN_DOOR;
}

/* As the kernel sees it from outside: a user namespace, which a root that may make no others may make, would hide who
 * it is. */
static uid_t user_without(int capability)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    struct process_status process = {0};
    int ready[2];
    char byte;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool is_dropped = syscall(SYS_capget, &header, data) == 0;
        data[0].effective &= ~(1U << capability);
        data[0].permitted &= ~(1U << capability);
        is_dropped = is_dropped && syscall(SYS_capset, &header, data) == 0;
        confine_surroundings();
        if (!is_dropped || !confine_worker(MEMORY) || write(ready[1], "", 1) != 1)
            _exit(OPEN_DOOR);
        for (;;)
            ;
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_true(process_look_at(pid, &process));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return process.uid;
}

static void test_root_is_not_kept(void **state)
{
    (void)state;
    if (getuid() != 0)
        skip();
    assert_false(is_confined_without(CAP_SETUID));
    assert_false(is_confined_without(CAP_SETGID));
    assert_true(is_confined_among_itself());
    assert_int_not_equal(user_without(CAP_SYS_ADMIN), 0);
}

/* What Landlock shuts by itself, while the system calls are allowed; since which version of it. */
static char there[64], made[64]; /* files: one that is there, one that can be made */
static struct sockaddr_in listening;
static struct sockaddr_un abstract;

static bool no_folder_opens(void)
{
    return is_refused(open("/", O_RDONLY | O_DIRECTORY), EACCES);
}

static bool no_file_opens(void)
{
    return is_refused(open(there, O_RDONLY), EACCES) && is_refused(open(there, O_WRONLY), EACCES);
}

static bool no_file_is_made(void)
{
    return is_refused(open(made, O_WRONLY | O_CREAT, 0600), EACCES) &&
           is_refused(mkdir(made, 0700), EACCES) && is_refused(symlink("to", made), EACCES) &&
           is_refused(mkfifo(made, 0600), EACCES);
}

static bool no_file_is_removed(void)
{
    return is_refused(unlink(there), EACCES);
}

static bool no_file_is_truncated(void)
{
    return is_refused(truncate(there, 0), EACCES);
}

static bool no_tcp(void)
{
    int client = socket(AF_INET, SOCK_STREAM, 0);
    return is_refused(connect(client, (struct sockaddr *)&listening, sizeof(listening)), EACCES);
}

static bool no_abstract_socket(void)
{
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    return is_refused(connect(client, (struct sockaddr *)&abstract, sizeof(abstract)), EPERM);
}

static bool no_signal(void)
{
    return is_refused(kill(getppid(), 0), EPERM);
}

static bool no_program(void)
{
    char *const arguments[] = {(char *)"true", NULL};
    return is_refused(execve("/bin/true", arguments, NULL), EACCES);
}

static const struct {
    bool (*is_shut)(void);
    unsigned version;
} landlock_doors[] = {
    {no_folder_opens, 1},      {no_file_opens, 1},      {no_file_is_made, 1},
    {no_file_is_truncated, 3}, {no_file_is_removed, 1}, {no_tcp, 4},
    {no_abstract_socket, 6},   {no_signal, 6},          {no_program, 1},
};

#define N_LANDLOCK_DOORS (sizeof(landlock_doors) / sizeof(*landlock_doors))

/* Each in a child from which nothing else is taken: which are shut, as bits. */
static unsigned doors_shut(bool is_entered, unsigned *version)
{
    unsigned *answer = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned shut = 0;
    assert_true(answer != MAP_FAILED);
    for (size_t i = 0; i < N_LANDLOCK_DOORS; i++) {
        pid_t pid = fork();
        int status;
        if (pid == 0) {
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && is_entered)
                *answer = (unsigned)confine_landlock();
            _exit(landlock_doors[i].is_shut() ? SHUT_DOOR : OPEN_DOOR);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        shut |= WIFEXITED(status) && WEXITSTATUS(status) == SHUT_DOOR ? 1U << i : 0;
    }
    *version = *answer;
    munmap(answer, 4096);
    return shut;
}

static void test_landlock_by_itself(void **state)
{
    (void)state;
    char folder[] = "/tmp/sparsefs-landlock-XXXXXX";
    unsigned version, none;
    socklen_t n = sizeof(listening);
    int tcp = socket(AF_INET, SOCK_STREAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_non_null(mkdtemp(folder));
    snprintf(there, sizeof(there), "%s/there", folder);
    snprintf(made, sizeof(made), "%s/made", folder);
    listening = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    abstract = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(abstract.sun_path + 1, sizeof(abstract.sun_path) - 1, "%s", folder);
    assert_int_equal(bind(tcp, (struct sockaddr *)&listening, n), 0);
    assert_int_equal(getsockname(tcp, (struct sockaddr *)&listening, &n), 0);
    assert_int_equal(bind(local, (struct sockaddr *)&abstract, sizeof(abstract)), 0);
    assert_true(listen(tcp, 9) == 0 && listen(local, 9) == 0);
    close(open(there, O_WRONLY | O_CREAT, 0600));
    unsigned shut = doors_shut(true, &version), shut_without = doors_shut(false, &none);
    close(tcp);
    close(local);
    unlink(there);
    unlink(made);
    rmdir(folder);
    assert_int_equal(shut_without, 0);
    for (size_t i = 0; i < N_LANDLOCK_DOORS; i++)
        assert_true(version < landlock_doors[i].version || shut >> i & 1);
    if (version == 0)
        skip();
}

/* ---- A worker that is not to be trusted ---- */

enum {
    SOUND = 1000,
    CRASHES,
    ENDS_IF_IT_KNOWS,
    COMPUTES, /* for a second, if nobody else has its processor */
    HANGS,
    IS_CUT,
    ASKS_BEYOND,
    ASKS_MUCH,
    SHOUTS,
    NEVER_STOPS,
    NEVER_LISTENS, /* to answers */
    TRICKLES,      /* its reply, without a pause */
    SAYS_64_MIB,
    GIVES_UP,
    LEAVES, /* its socket, and lives on */
    UNKNOWN_KIND,
    FINDS_ONE, /* very often */
    LETS_GO,   /* all but once */
    LETS_ALL_GO,
    FINDS_MANY,
    FINDS_REFUSED,
    /* These lie where they are asked for with others: */
    SAYS_MORE,
    SAYS_LESS,
    SAYS_NOTHING,
    SAYS_WRONG,
    SAYS_NONE, /* which is no lie */
    /* These do where they are shown with their text: */
    DIES_SHOWN,
    IS_CUT_SHOWN,
    GOES_ON_SHOWN,
    SHOWS_NO_TEXT, /* which is no lie */
    /* These say that a dataset is not open when they are asked for its text: */
    FORGETS,
    IS_SLOW_AND_DIES, /* slow to open, and to give its text */
    ROW = 2000,       /* and those behind it: sound ones */
};

#define N_LISTED 100
#define THERE    50   /* in a group: where the object is that makes it what it is */
#define GROUPS   3000 /* and that object's number: the group's */

static void reply(int socket, const struct wire *results)
{
    struct wire wire = {0};
    wire_uint(&wire, 0);
    wire_string(&wire, "");
    wire_put(&wire, results->bytes, results->n);
    (void)channel_send(socket, MESSAGE_REPLY, &wire, UINT64_MAX);
    wire_free(&wire);
}

static void reply_error(int socket, int error)
{
    struct wire wire = {0};
    wire_uint(&wire, (uint64_t)error);
    wire_string(&wire, "");
    (void)channel_send(socket, MESSAGE_REPLY, &wire, UINT64_MAX);
    wire_free(&wire);
}

/* Groups, if they are asked for alone: so it is known how they were. */
static void reply_object_type(int socket)
{
    struct wire type = {0};
    wire_uint(&type, SFS_GROUP);
    reply(socket, &type);
    wire_free(&type);
}

static void ask_for(int socket, uint64_t address, uint64_t n)
{
    enum message_kind kind;
    struct wire wire = {0};
    wire_uints(&wire, (uint64_t[]){0, address, n, false}, 4);
    (void)channel_send(socket, MESSAGE_READ, &wire, UINT64_MAX);
    (void)channel_receive(socket, &kind, &wire, UINT64_MAX);
    struct cursor cursor = cursor_over(wire.bytes, wire.n);
    uint64_t error = take_uint(&cursor, UINT64_MAX);
    wire_free(&wire);
    if (error != EIO)
        _exit(1); /* it was read: the test fails, as nothing is answered */
    reply_object_type(socket);
}

#define FINDS 300
#define NAMED 60 /* other files */

static char folder[PATH_MAX]; /* where the tests are */

/* An answer of the program to a question; *number: what it is, if it is one. */
static uint64_t ask_program(int socket, enum message_kind question, struct wire *wire, unsigned at,
                            uint64_t *number)
{
    enum message_kind kind;
    (void)channel_send(socket, question, wire, UINT64_MAX);
    (void)channel_receive(socket, &kind, wire, UINT64_MAX);
    struct cursor cursor = cursor_over(wire->bytes, wire->n);
    uint64_t error = take_uint(&cursor, UINT64_MAX);
    for (unsigned i = 0; i <= at && !error; i++)
        *number = take_uint(&cursor, UINT64_MAX);
    wire_free(wire);
    return error;
}

static uint64_t find(int socket, const char *path)
{
    struct wire wire = {0};
    uint64_t number = 0;
    wire_string(&wire, path);
    wire_uint(&wire, false);
    (void)ask_program(socket, MESSAGE_FIND, &wire, 1, &number); /* behind whether it is refused */
    return number;
}

static void find_many(int socket, unsigned n, bool is_one)
{
    for (unsigned i = 0; i < n; i++) {
        char path[PATH_MAX + 32];
        snprintf(path, sizeof(path), "%s/named%u", folder, is_one ? 0 : i);
        (void)find(socket, path);
    }
    reply_object_type(socket);
}

static void let_go(int socket, unsigned n)
{
    struct wire wire = {0};
    wire_uint(&wire, 1);
    for (unsigned i = 0; i < n; i++)
        (void)channel_send(socket, MESSAGE_LET_GO, &wire, UINT64_MAX);
    wire_free(&wire);
    reply_object_type(socket);
}

static uint64_t ask_for_space(int socket, uint64_t n)
{
    struct wire wire = {0};
    uint64_t address = 0;
    wire_uint(&wire, n);
    (void)ask_program(socket, MESSAGE_ALLOCATE, &wire, 0, &address);
    return address;
}

static void write_byte(int socket, uint64_t address)
{
    struct wire wire = {0};
    wire_uint(&wire, address);
    wire_bytes(&wire, "x", 1);
    if (channel_send(socket, MESSAGE_WRITE, &wire, UINT64_MAX) < 0)
        _exit(0);
    wire_free(&wire);
}

#define PAGES  17000 /* more than are small changes */
#define PIECES 5000

/* Each byte that it writes is looked for in all that it has allocated, without an end. */
static void change_slowly(int socket)
{
    uint64_t first = ask_for_space(socket, (uint64_t)PAGES * 4096);
    for (unsigned i = 0; i < PIECES; i++)
        (void)ask_for_space(socket, 1);
    for (uint64_t i = 0;; i++)
        write_byte(socket, first + i % PAGES * 4096);
}

static uint64_t hash_before; /* of nothing, in the program */

static uint64_t cpu_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void behave(int socket, uint64_t object)
{
    struct wire nothing = {0}, line = {0};
    const uint64_t head[] = {MESSAGE_REPLY, (uint64_t)200 << 20};
    switch (object) {
    case CRASHES:
        abort();
    case ENDS_IF_IT_KNOWS: /* with which secret keys are hashed where it is asked from */
        if (hash_keyed("", 0) == hash_before)
            abort();
        reply_object_type(socket);
        break;
    case COMPUTES:
        for (uint64_t until = cpu_time() + COMPUTED; cpu_time() < until;)
            ;
        reply_object_type(socket);
        break;
    case HANGS:
        for (;;)
            ;
    case SAYS_64_MIB:
        memset(wire_room(&line, (size_t)64 << 20), 0, (size_t)64 << 20);
        reply(socket, &line);
        wire_free(&line);
        break;
    case LEAVES:
        close(socket);
        for (;;)
            ;
    case IS_CUT:
        reply(socket, &nothing);
        break;
    case ASKS_BEYOND:
        ask_for(socket, 1 << 20, 100);
        break;
    case ASKS_MUCH:
        ask_for(socket, 0, CHANNEL_MOST_READ + 1);
        break;
    case SHOUTS:
        wire_uint(&line, 3);
        wire_string(&line, "two\nlines");
        for (int i = 0; i < 1000; i++)
            (void)channel_send(socket, MESSAGE_LOG, &line, UINT64_MAX);
        wire_free(&line);
        reply_object_type(socket);
        break;
    case NEVER_STOPS:
        wire_uint(&line, 3);
        wire_string(&line, "and so on");
        while (channel_send(socket, MESSAGE_LOG, &line, UINT64_MAX) == 0)
            ;
        _exit(0);
    case NEVER_LISTENS:
        wire_uints(&line, (uint64_t[]){0, 0, 4096, false}, 4);
        while (channel_send(socket, MESSAGE_READ, &line, UINT64_MAX) == 0)
            ;
        _exit(0);
    case TRICKLES:
        if (channel_send_bytes(socket, head, sizeof(head), UINT64_MAX) < 0)
            _exit(0);
        while (channel_send_bytes(socket, "", 1, UINT64_MAX) == 0)
            ;
        _exit(0);
    case GIVES_UP:
        reply_error(socket, EINTR);
        break;
    case FINDS_ONE:
        find_many(socket, FINDS, true);
        break;
    case LETS_GO:
        let_go(socket, FINDS - 1);
        break;
    case LETS_ALL_GO:
        let_go(socket, FINDS);
        break;
    case FINDS_MANY:
        find_many(socket, NAMED, false);
        break;
    case FINDS_REFUSED:
        for (int i = 0; i < 1000; i++)
            (void)find(socket, "/etc/passwd");
        reply_object_type(socket);
        break;
    case UNKNOWN_KIND:
        (void)channel_send(socket, MESSAGE_CALL, &nothing, UINT64_MAX);
        break;
    default:
        reply_object_type(socket);
    }
}

static uint64_t listed_object(uint64_t group, unsigned i)
{
    return i == THERE ? group - GROUPS : ROW + i;
}

static void reply_links(int socket, uint64_t group)
{
    struct wire wire = {0};
    wire_uint(&wire, N_LISTED);
    for (unsigned i = 0; i < N_LISTED; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%06u", i);
        wire_link(&wire,
                  &(struct sfs_link){SFS_LINK_HARD, name, listed_object(group, i), NULL, NULL});
    }
    reply(socket, &wire);
    wire_free(&wire);
}

/* One answer: its bytes, and what they are. */
static void put_type(struct wire *wire, uint64_t type)
{
    wire_uint(wire, sizeof(type));
    wire_uint(wire, type);
}

static void put_answer(struct wire *wire, uint64_t object)
{
    if (object == CRASHES)
        abort();
    while (object == HANGS)
        ;
    if (object == SAYS_NONE)
        wire_uint(wire, 0);
    else if (object != SAYS_LESS)
        put_type(wire, object == SAYS_WRONG ? 77 : SFS_DATASET);
    if (object == SAYS_MORE)
        for (unsigned i = 0; i < N_LISTED; i++)
            put_type(wire, SFS_DATASET);
    if (object == SAYS_LESS)
        wire_uint(wire, UINT64_MAX);
}

static void reply_several(int socket, struct cursor *cursor)
{
    struct wire wire = {0};
    if (take_uint(cursor, UINT64_MAX) != WORKER_OBJECT_TYPE)
        _exit(1);
    while (cursor->left > 0) {
        uint64_t object = take_uint(cursor, UINT64_MAX);
        put_answer(&wire, object);
        if (object == SAYS_NOTHING)
            wire.n = 0;
        if (object == SAYS_NOTHING || object == SAYS_LESS)
            break;
    }
    reply(socket, &wire);
    wire_free(&wire);
}

static void reply_text(int socket, const char *text)
{
    struct wire wire = {0};
    wire_bytes(&wire, text, strlen(text));
    reply(socket, &wire);
    wire_free(&wire);
}

#define SLOWNESS (TIMEOUT / 4 * 3) /* three are more than two calls may take together */

static bool has_opened;

static void take_time(void)
{
    for (uint64_t until = cpu_time() + SLOWNESS; cpu_time() < until;)
        ;
}

static void reply_dataset(int socket, uint64_t object, bool with_text)
{
    struct wire wire = {0};
    struct sfs_dataset_info info = an_info();
    if (with_text && object == DIES_SHOWN)
        abort();
    if (object == IS_SLOW_AND_DIES)
        take_time();
    has_opened = true;
    wire_info(&wire, &info);
    wire_storage(&wire, &(struct hdf5_storage){.address = UINT64_MAX, .in_array = true});
    if (with_text)
        wire_uint(&wire, object != SHOWS_NO_TEXT);
    if (with_text && object != SHOWS_NO_TEXT)
        wire_bytes(&wire, "shown", 5);
    if (with_text && object == IS_CUT_SHOWN)
        wire.n--;
    if (with_text && object == GOES_ON_SHOWN)
        wire_uint(&wire, 0);
    reply(socket, &wire);
    wire_free(&wire);
}

/* Refuses to write, once. */
static void reply_to_write(int socket)
{
    static int times;
    if (times++ > 0)
        abort();
    reply_error(socket, EFBIG);
}

static void reply_to_text(int socket, uint64_t object)
{
    if (object == FORGETS || !has_opened) {
        reply_error(socket, EBADF);
        return;
    }
    if (object == IS_SLOW_AND_DIES) {
        take_time();
        abort();
    }
    reply_text(socket, "asked for");
}

static void answer(int socket, uint64_t call, struct cursor *cursor)
{
    if (call == WORKER_SEVERAL)
        reply_several(socket, cursor);
    else if (call == WORKER_DATASET_OPEN || call == WORKER_SHOW)
        reply_dataset(socket, take_uint(cursor, UINT64_MAX), call == WORKER_SHOW);
    else if (call == WORKER_TEXT)
        reply_to_text(socket, take_uint(cursor, UINT64_MAX));
    else if (call == WORKER_LIST)
        reply_links(socket, take_uint(cursor, UINT64_MAX));
    else
        behave(socket, take_uint(cursor, UINT64_MAX));
}

#define SLOW "/slow"

static bool is_slow(struct cursor *cursor)
{
    char *path;
    bool is_slow = take_string(cursor, true, &path) == 0 && strcmp(path, SLOW) == 0;
    free(path);
    return is_slow;
}

static void work(int socket)
{
    enum message_kind kind;
    struct wire wire = {0}, root = {0};
    wire_uint(&root, 96);
    while (channel_receive(socket, &kind, &wire, UINT64_MAX) == 0) {
        struct cursor cursor = cursor_over(wire.bytes, wire.n);
        uint64_t call = take_uint(&cursor, UINT64_MAX);
        if (call == WORKER_WRITE)
            reply_to_write(socket);
        else if (call == WORKER_CREATE_GROUP && is_slow(&cursor))
            change_slowly(socket);
        else if (call == WORKER_OPEN || call == WORKER_RENEW || call >= WORKER_FIRST_CHANGE)
            reply(socket, &root);
        else
            answer(socket, call, &cursor);
    }
    _exit(0);
}

static void prepare(void)
{
}

static struct store *a_store(void)
{
    struct store *store;
    const struct store_image how = {.name = "image", .copy = true};
    char bytes[4096] = "";
    assert_int_equal(store_open_image(bytes, sizeof(bytes), &how, &store), 0);
    return store;
}

static int ask(uint64_t timeout, uint64_t object, int times)
{
    struct store *store = a_store();
    struct remote *remote;
    uint64_t root;
    enum sfs_object_type type = SFS_DATATYPE;
    int error = 0;
    assert_int_equal(remote_open(store, timeout, false, &remote, &root), 0);
    assert_int_equal(root, 96);
    for (int i = 0; i < times; i++)
        error = remote_object_type(remote, object, &type);
    /* Whatever that one did, others are served. */
    assert_int_equal(remote_object_type(remote, SOUND, &type), 0);
    assert_int_equal(type, SFS_GROUP);
    remote_close(remote);
    store_close(store);
    return error;
}

static void test_one_that_dies_is_started_again(void **state)
{
    (void)state;
    unsigned before = log_errors();
    assert_int_equal(ask(PATIENT, CRASHES, 1), -EIO);
    assert_int_equal(log_errors() - before, 2); /* it was asked twice */
    assert_int_equal(ask(PATIENT, CRASHES, 10), -EIO);
    assert_int_equal(log_errors() - before, 4); /* and no more */
    assert_non_null(strstr(hdf5_error(), "has ended the process"));
}

/* Whoever takes one over does not learn how keys of tables of the program are hashed. */
static void test_it_has_not_the_secret_of_tables(void **state)
{
    (void)state;
    assert_true(hash_keyed("", 0) == hash_before);
    assert_int_equal(ask(PATIENT, ENDS_IF_IT_KNOWS, 1), 0);
}

static void test_one_that_hangs_is_ended(void **state)
{
    (void)state;
    unsigned before = log_errors();
    assert_int_equal(ask(TIMEOUT, HANGS, 1), -EIO);
    assert_non_null(strstr(hdf5_error(), "did not answer"));
    assert_true(log_errors() > before);
}

/* The time of calls of a file of which many hang: here of 10 s each. */
static void test_there_is_less_time_for_a_file_that_takes_all_of_it(void **state)
{
    (void)state;
    const uint64_t second = 1000000000, all = 10 * second;
    struct patience patience = {0};
    uint64_t together = 0;
    for (int i = 0; i < 60; i++) {
        assert_int_equal(patience_time(&patience, second / 2), second / 2);
        together += patience_time(&patience, all);
        assert_true(patience_fail(&patience) == (i + 1 == PATIENCE_FAILURES));
        patience_answer(&patience); /* some that are sound do not make up for it */
    }
    assert_in_range(together, 60 * second, 100 * second);
    assert_int_equal(patience_time(&patience, all), second);
    for (int i = 0; i < PATIENCE_ANSWERS; i++)
        patience_answer(&patience);
    for (int i = 0; i < PATIENCE_FAILURES; i++) {
        assert_int_equal(patience_time(&patience, all), all);
        (void)patience_fail(&patience);
    }
    assert_int_equal(patience_time(&patience, all), all / 2);
}

/* That it is killed then is nobody else's doing. */
static void test_one_that_leaves_is_to_blame(void **state)
{
    (void)state;
    unsigned before = log_errors();
    assert_int_equal(ask(PATIENT, LEAVES, 1), -EIO);
    assert_non_null(strstr(hdf5_error(), "went on"));
    assert_int_equal(log_errors() - before, 2);
    assert_int_equal(ask(PATIENT, LEAVES, 10), -EIO);
    assert_int_equal(log_errors() - before, 4);
}

/* Neither does it answer: there is always something to be read. */
static void test_one_that_never_stops_is_ended(void **state)
{
    (void)state;
    assert_int_equal(ask(TIMEOUT, NEVER_STOPS, 1), -EIO);
    assert_non_null(strstr(hdf5_error(), "did not answer"));
}

static void test_lies_are_refused(void **state)
{
    (void)state;
    assert_int_equal(ask(PATIENT, GIVES_UP, 1), -EIO); /* it was not told that it may */
    assert_int_equal(ask(PATIENT, IS_CUT, 1), -EIO);
    assert_int_equal(ask(PATIENT, ASKS_MUCH, 1), -EIO);
    assert_int_equal(ask(PATIENT, UNKNOWN_KIND, 1), -EIO);
    assert_int_equal(ask(PATIENT, ASKS_BEYOND, 1), 0); /* it is told that nothing is there */
}

static void test_a_log_is_not_flooded(void **state)
{
    (void)state;
    unsigned before = log_errors();
    assert_int_equal(ask(PATIENT, SHOUTS, 1), 0);
    assert_int_equal(log_errors() - before, 50);
}

/* ---- Files that it asks for ---- */

struct file {
    struct store *store;
    struct remote *remote;
};

static void open_file(struct file *file, uint64_t timeout)
{
    uint64_t root;
    file->store = a_store();
    assert_int_equal(remote_open(file->store, timeout, false, &file->remote, &root), 0);
}

static void close_file(struct file *file)
{
    remote_close(file->remote);
    store_close(file->store);
}

static int ask_client(struct client *client, uint64_t object)
{
    struct wire request;
    struct cursor results;
    client_request(&request, WORKER_OBJECT_TYPE);
    wire_uint(&request, object);
    client_lock(client);
    int error = client_ask(client, WORKER_OBJECT_TYPE, object, &request, &results);
    client_unlock(client);
    wire_free(&request);
    return error;
}

static void make_named(void)
{
    for (unsigned i = 0; i < NAMED; i++) {
        char name[32];
        snprintf(name, sizeof(name), "named%u", i);
        int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
        assert_int_equal(write(fd, "named", 5), 5);
        close(fd);
    }
}

static struct client *a_client(struct store **store)
{
    struct client *client;
    char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/named0", folder);
    assert_int_equal(store_open(path, store), 0);
    assert_int_equal(client_create(*store, PATIENT, &client), 0);
    return client;
}

/* A file may have any number of objects that end it. */
static void test_few_objects_that_have_ended_one_are_known(void **state)
{
    (void)state;
    struct store *store;
    make_named();
    struct client *client = a_client(&store);
    for (uint64_t object = 0; object < CLIENT_MOST_STRUCK + 1; object++)
        for (int i = 0; i < CLIENT_MOST_STRIKES; i++)
            client_strike(client, object);
    assert_int_equal(HASH_COUNT(client->strikes), CLIENT_MOST_STRUCK);
    assert_false(client_is_struck(client, 0));
    assert_true(client_refuses(client, 1));
    assert_true(client_refuses(client, CLIENT_MOST_STRUCK));
    client_destroy(client);
    store_close(store);
}

static void strike_out(struct client *client, uint64_t object)
{
    for (int i = 0; i < CLIENT_MOST_STRIKES; i++)
        client_strike(client, object);
    assert_true(client_refuses(client, object));
}

/* A stall may pass: each commit has its own tries, but not each look at a file that is as it was. */
static void test_what_has_ended_one_is_asked_about_in_the_next_state(void **state)
{
    (void)state;
    struct store *store;
    struct client *client;
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char path[PATH_MAX + 32];
    uint64_t root;
    bool moved;
    make_named();
    snprintf(path, sizeof(path), "%s/named0", folder);
    assert_int_equal(store_open_following(path, &store), 0);
    assert_int_equal(client_create(store, PATIENT, &client), 0);
    for (int i = 0; i < 3; i++) {
        strike_out(client, SOUND);
        store_outdate(store);
        assert_int_equal(store_refresh(store, &moved), 0);
        assert_true(moved);
        assert_int_equal(client_renew(client, &root), 0);
        assert_true(client_refuses(client, SOUND));
        times[1].tv_sec++;
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
        assert_int_equal(store_refresh(store, &moved), 0);
        assert_int_equal(client_renew(client, &root), 0);
        assert_false(client_is_struck(client, SOUND));
    }
    client_destroy(client);
    store_close(store);
}

static void test_a_file_that_is_found_again_is_open(void **state)
{
    (void)state;
    struct store *store;
    make_named();
    struct client *client = a_client(&store);
    assert_int_equal(ask_client(client, FINDS_ONE), 0);
    assert_int_equal(client->n_others, 1);
    assert_int_equal(ask_client(client, LETS_GO), 0);
    assert_int_equal(client->n_others, 1);
    assert_int_equal(ask_client(client, LETS_ALL_GO), 0);
    assert_int_equal(client->n_others, 0);
    client_destroy(client);
    store_close(store);
}

/* How many the program can open besides. */
static size_t descriptors_left(void)
{
    int fds[1024];
    size_t n = 0;
    while (n < COUNT(fds) && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    return n;
}

#define DESCRIPTORS 160 /* for 40 files, then */

static void test_descriptors_are_left(void **state)
{
    (void)state;
    struct store *store[3];
    struct client *client[COUNT(store)];
    struct rlimit before;
    make_named();
    unsigned errors = log_errors();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){DESCRIPTORS, before.rlim_max}), 0);
    for (size_t i = 0; i < COUNT(store); i++) {
        client[i] = a_client(&store[i]);
        assert_int_equal(ask_client(client[i], FINDS_MANY), 0);
    }
    assert_int_equal(client[0]->n_others, 20);
    assert_int_equal(client[1]->n_others, 10);
    assert_int_equal(client[2]->n_others, 5);
    assert_true(log_errors() > errors);
    assert_true(descriptors_left() > DESCRIPTORS / 8);
    for (size_t i = 0; i < COUNT(store); i++) {
        client_destroy(client[i]);
        store_close(store[i]);
    }
    client[0] = a_client(&store[0]);
    assert_int_equal(ask_client(client[0], FINDS_MANY), 0);
    assert_int_equal(client[0]->n_others, 20);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(ask_client(client[0], FINDS_MANY), 0);
    assert_int_equal(client[0]->n_others, NAMED);
    client_destroy(client[0]);
    store_close(store[0]);
}

/* Of files that are only read. One that was ended is started again when it is asked. */
static void test_those_not_asked_for_longest_are_ended(void **state)
{
    (void)state;
    enum { N = CLIENT_MOST_RUNNING + 2 };
    struct store *store[N];
    struct client *client[N];
    unsigned running = 0;
    make_named();
    for (size_t i = 0; i < N; i++) {
        client[i] = a_client(&store[i]);
        assert_int_equal(ask_client(client[i], FINDS_ONE), 0);
        assert_int_equal(ask_client(client[0], FINDS_ONE), 0);
    }
    for (size_t i = 0; i < N; i++)
        running += client[i]->socket >= 0;
    assert_int_equal(running, CLIENT_MOST_RUNNING);
    assert_true(client[0]->socket >= 0);
    assert_true(client[1]->socket < 0);
    assert_int_equal(client[1]->n_others, 0);
    client_lock(client[3]); /* it is busy */
    assert_int_equal(ask_client(client[1], FINDS_ONE), 0);
    client_unlock(client[3]);
    assert_true(client[1]->socket >= 0 && client[3]->socket >= 0);
    assert_true(client[4]->socket < 0);
    for (size_t i = 0; i < N; i++) {
        client_destroy(client[i]);
        store_close(store[i]);
    }
}

static void test_refusals_do_not_flood_the_log(void **state)
{
    (void)state;
    struct store *store;
    make_named();
    struct client *client = a_client(&store);
    unsigned before = log_errors();
    assert_int_equal(ask_client(client, FINDS_REFUSED), 0);
    assert_int_equal(log_errors() - before, 50);
    log_message(LOG_ERR, "others are not kept from it");
    assert_int_equal(log_errors() - before, 51);
    client_destroy(client);
    store_close(store);
}

/* Only what is waited for gives a call more time, not what it has us do. */
static void test_our_own_time_counts(void **state)
{
    (void)state;
    struct file file;
    open_file(&file, HURRY);
    uint64_t before = cpu_time();
    assert_int_equal(remote_create_group(file.remote, SLOW), -EIO);
    assert_in_range(cpu_time() - before, 0, 2 * HURRY);
    close_file(&file);
}

/* To one processor that it may use. */
static void keep_to_first(pid_t pid)
{
    cpu_set_t all, first;
    int n = 0;
    CPU_ZERO(&first);
    assert_int_equal(sched_getaffinity(pid, sizeof(all), &all), 0);
    while (!CPU_ISSET(n, &all))
        n++;
    CPU_SET(n, &first);
    assert_int_equal(sched_setaffinity(pid, sizeof(first), &first), 0);
}

/* Others on its processor give it more time. */
static void test_one_that_has_no_processor_is_waited_for(void **state)
{
    (void)state;
    struct file file;
    enum sfs_object_type type;
    pid_t others[OTHERS];
    unsigned before = log_errors();
    open_file(&file, BUSY);
    assert_int_equal(remote_object_type(file.remote, SOUND, &type), 0);
    keep_to_first(file.remote->client->pid);
    for (size_t i = 0; i < OTHERS; i++) {
        others[i] = fork();
        if (others[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            setsid(); /* Linux shares a processor among sessions first */
            for (;;)
                ;
        }
        keep_to_first(others[i]);
    }
    int error = remote_object_type(file.remote, COMPUTES, &type);
    for (size_t i = 0; i < OTHERS; i++) {
        kill(others[i], SIGKILL);
        (void)waitpid(others[i], NULL, 0);
    }
    assert_int_equal(error, 0);
    assert_int_equal(log_errors() - before, 0); /* nor is another one asked */
    close_file(&file);
}

/* ---- Rows of objects ---- */

static void list(struct file *file, uint64_t object)
{
    struct sfs_links found;
    assert_int_equal(remote_list(file->remote, GROUPS + object, &found), 0);
    assert_int_equal(found.n, N_LISTED);
    sfs_links_free(&found);
}

/* How many of a group's objects are asked for with others. */
static unsigned go_through(struct file *file, uint64_t object)
{
    unsigned n = 0;
    for (unsigned i = 0; i < N_LISTED; i++) {
        enum sfs_object_type type = SFS_DATATYPE;
        int error = remote_object_type(file->remote, listed_object(GROUPS + object, i), &type);
        bool is_bad = i == THERE && (object == CRASHES || object == HANGS);
        assert_int_equal(error, is_bad ? -EIO : 0);
        assert_true(is_bad || type == SFS_GROUP || type == SFS_DATASET);
        n += !error && type == SFS_DATASET;
    }
    return n;
}

static enum sfs_object_type kind_of(struct file *file, uint64_t object)
{
    enum sfs_object_type type = SFS_DATATYPE;
    assert_int_equal(remote_object_type(file->remote, object, &type), 0);
    return type;
}

static void test_those_listed_are_asked_for_together(void **state)
{
    (void)state;
    struct file file;
    open_file(&file, PATIENT);
    unsigned before = log_errors();
    assert_int_equal(go_through(&file, SOUND), 0); /* nobody knows that they are */
    list(&file, SOUND);
    assert_int_equal(go_through(&file, SOUND), N_LISTED);
    list(&file, SOUND);
    assert_int_equal(kind_of(&file, ROW + 20), SFS_GROUP); /* who takes one may want no more */
    assert_int_equal(kind_of(&file, ROW + 21), SFS_DATASET);
    assert_int_equal(kind_of(&file, ROW + 1), SFS_GROUP);
    assert_int_equal(log_errors(), before);
    close_file(&file);
}

/* What was said ahead counts for the file as it was then. */
static void test_what_was_said_ahead_is_forgotten(void **state)
{
    (void)state;
    struct file file;
    uint64_t root;
    open_file(&file, PATIENT);
    list(&file, SOUND);
    assert_int_equal(kind_of(&file, ROW), SFS_DATASET);
    assert_int_equal(kind_of(&file, ROW + 1), SFS_DATASET);
    assert_int_equal(remote_renew(file.remote, &root), 0);
    assert_int_equal(kind_of(&file, ROW + 1), SFS_GROUP);
    list(&file, SOUND);
    assert_int_equal(kind_of(&file, ROW), SFS_DATASET);
    assert_int_equal(remote_create_group(file.remote, "/new"), 0);
    assert_int_equal(kind_of(&file, ROW + 1), SFS_GROUP);
    close_file(&file);
}

/* Where one among them ends the worker, only that one is to blame. */
static void test_one_that_dies_among_others(void **state)
{
    (void)state;
    static const uint64_t objects[] = {CRASHES, HANGS};
    for (size_t i = 0; i < COUNT(objects); i++) {
        struct file file;
        uint64_t timeout = objects[i] == HANGS ? TIMEOUT : PATIENT;
        open_file(&file, timeout);
        unsigned before = log_errors();
        list(&file, objects[i]);
        unsigned together = go_through(&file, objects[i]);
        assert_in_range(together, 1, N_LISTED - 2);
        assert_int_equal(log_errors() - before, objects[i] == HANGS ? 2 : 3);
        before = log_errors();
        list(&file, objects[i]);
        assert_true(go_through(&file, objects[i]) > together);
        if (objects[i] == CRASHES)
            assert_int_equal(log_errors(), before); /* it is not asked for again, nor in a row */
        close_file(&file);
    }
}

static void test_lies_about_several(void **state)
{
    (void)state;
    for (uint64_t object = SAYS_MORE; object <= SAYS_NONE; object++) {
        struct file file;
        open_file(&file, PATIENT);
        unsigned before = log_errors();
        for (int i = 0; i < 10; i++) {
            list(&file, object);
            unsigned together = go_through(&file, object);
            assert_true(object != SAYS_NONE || together == N_LISTED - 1);
        }
        /* After some of them nothing is asked for in rows any more. */
        assert_int_equal(log_errors() - before, object == SAYS_NONE ? 0 : 4);
        close_file(&file);
    }
}

/* The text of an open dataset. */
static void expect_text_of_open(struct file *file, uint64_t object, const char *expected)
{
    char *text;
    size_t n;
    assert_int_equal(remote_text(file->remote, object, 1000, &text, &n), 0);
    assert_int_equal(n, strlen(expected));
    assert_string_equal(text, expected);
    free(text);
}

/* The text of a dataset, which is opened for that only. */
static void expect_text(struct file *file, uint64_t object, const char *expected)
{
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    assert_int_equal(remote_dataset_open(file->remote, object, &info, &storage), 0);
    assert_int_equal(info.elements, 35);
    hdf5_info_free(&info);
    hdf5_segments_free(storage.n_segments, storage.segments);
    if (expected)
        expect_text_of_open(file, object, expected);
    remote_dataset_close(file->remote, object);
}

static void test_text_comes_with_the_description(void **state)
{
    (void)state;
    struct file file;
    unsigned before = log_errors();
    open_file(&file, PATIENT);
    expect_text(&file, SOUND, "asked for"); /* nobody knows that it is wanted */
    expect_text(&file, SOUND, "shown");
    expect_text(&file, SHOWS_NO_TEXT, "asked for");
    expect_text(&file, SOUND, "shown");
    expect_text(&file, SOUND, NULL); /* it was not */
    expect_text(&file, SOUND, "asked for");
    expect_text(&file, SOUND, "shown");
    assert_int_equal(log_errors(), before);
    for (uint64_t object = DIES_SHOWN; object <= GOES_ON_SHOWN; object++) {
        expect_text(&file, object, "asked for");
        expect_text(&file, SOUND, "shown");
        assert_int_equal(log_errors() - before, object - DIES_SHOWN + 1);
    }
    expect_text(&file, DIES_SHOWN, "asked for"); /* one more is enough */
    expect_text(&file, SOUND, "asked for");
    close_file(&file);
}

static int open_dataset(struct file *file, uint64_t object)
{
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    int error = remote_dataset_open(file->remote, object, &info, &storage);
    if (error)
        return error;
    hdf5_info_free(&info);
    hdf5_segments_free(storage.n_segments, storage.segments);
    return 0;
}

static int text_error(struct file *file, uint64_t object)
{
    char *text = NULL;
    size_t n;
    int error = remote_text(file->remote, object, 1000, &text, &n);
    free(text);
    return error;
}

/* As one that was described without it, or by another. */
static void test_text_comes_with_the_opening_by_one_that_did_not_know_it(void **state)
{
    (void)state;
    enum sfs_object_type type;
    struct file file;
    open_file(&file, PATIENT);
    assert_int_equal(open_dataset(&file, SOUND), 0);
    assert_int_equal(open_dataset(&file, SHOWS_NO_TEXT), 0);
    expect_text_of_open(&file, SOUND, "asked for");
    assert_int_equal(remote_object_type(file.remote, CRASHES, &type), -EIO);
    expect_text(&file, ROW, "asked for"); /* another one is started */
    expect_text_of_open(&file, SOUND, "shown");
    expect_text_of_open(&file, SOUND, "asked for");
    expect_text_of_open(&file, SHOWS_NO_TEXT, "asked for");
    remote_dataset_close(file.remote, SOUND);
    remote_dataset_close(file.remote, SHOWS_NO_TEXT);
    close_file(&file);
}

/* Only of those that were opened last, however many are open. */
static void test_texts_that_nobody_asks_for_are_not_all_kept(void **state)
{
    (void)state;
    struct file file;
    unsigned n = 0;
    open_file(&file, PATIENT);
    expect_text(&file, SOUND, "asked for");
    for (uint64_t object = ROW; object < ROW + 2 * MOST_TEXTS; object++)
        assert_int_equal(open_dataset(&file, object), 0);
    for (uint64_t object = ROW; object < ROW + 2 * MOST_TEXTS; object++)
        n += remote_dataset_find(file.remote, object)->text != NULL;
    assert_int_equal(n, MOST_TEXTS);
    assert_non_null(remote_dataset_find(file.remote, ROW + 2 * MOST_TEXTS - 1)->text);
    assert_int_equal(text_error(&file, ROW), 0); /* it is asked for again */
    close_file(&file);
}

/* Who has opened a dataset knows it: what says the opposite is not believed more often than other lies. */
static void test_one_that_forgets_is_to_blame(void **state)
{
    (void)state;
    struct file file;
    unsigned before = log_errors();
    open_file(&file, PATIENT);
    assert_int_equal(open_dataset(&file, FORGETS), 0);
    assert_int_equal(text_error(&file, FORGETS), -EIO);
    assert_non_null(strstr(hdf5_error(), "cannot be"));
    assert_int_equal(log_errors() - before, 1);
    assert_int_equal(text_error(&file, FORGETS), -EIO); /* one that did not know it, and was told */
    assert_int_equal(log_errors() - before, 2);
    assert_int_equal(text_error(&file, FORGETS), -EIO);
    assert_int_equal(log_errors() - before, 2);
    assert_non_null(strstr(hdf5_error(), "has ended the process"));
    expect_text(&file, SOUND, "asked for");
    close_file(&file);
}

/* Being told of a dataset again has no time of its own. */
static void test_one_that_is_slow_and_dies_is_ended(void **state)
{
    (void)state;
    struct file file;
    open_file(&file, TIMEOUT);
    assert_int_equal(open_dataset(&file, IS_SLOW_AND_DIES), 0);
    assert_int_equal(text_error(&file, IS_SLOW_AND_DIES), -EIO);
    assert_non_null(strstr(hdf5_error(), "did not answer"));
    close_file(&file);
}

/* It is not asked again for each half, and each half of that. */
static void test_a_refused_write_is_refused(void **state)
{
    (void)state;
    static const uint64_t start[2], count[] = {50, 7};
    static const char elements[50 * 7 * 9];
    struct file file;
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    unsigned before = log_errors();
    open_file(&file, PATIENT);
    assert_int_equal(remote_dataset_open(file.remote, SOUND, &info, &storage), 0);
    assert_int_equal(count[0] * count[1] * info.type.size, sizeof(elements));
    assert_int_equal(remote_write(file.remote, SOUND, start, count, elements), -EFBIG);
    assert_int_equal(log_errors(), before);
    hdf5_info_free(&info);
    hdf5_segments_free(storage.n_segments, storage.segments);
    remote_dataset_close(file.remote, SOUND);
    close_file(&file);
}

/* What is open may be many files. */
static void test_large_messages_are_not_kept(void **state)
{
    (void)state;
    struct store *store = a_store();
    struct client *client;
    assert_int_equal(client_create(store, PATIENT, &client), 0);
    assert_int_equal(ask_client(client, SAYS_64_MIB), 0);
    assert_in_range(client->in.room, 0, CLIENT_MOST_KEPT);
    assert_int_equal(ask_client(client, SOUND), 0);
    client_destroy(client);
    store_close(store);
}

/* Whoever is asked for next has nothing to do with it. */
static void test_one_that_dies_of_what_it_was_told(void **state)
{
    (void)state;
    struct store *store = a_store();
    struct client *client;
    struct wire request;
    uint64_t root;
    unsigned before = log_errors();
    assert_int_equal(client_create(store, PATIENT, &client), 0);
    client_lock(client);
    assert_int_equal(client_start(client, &root), 0);
    client_unlock(client);
    client_request(&request, WORKER_DATASET_CLOSE);
    wire_uint(&request, CRASHES);
    for (unsigned i = 1; i <= 3; i++) {
        client_lock(client);
        client_tell(client, WORKER_DATASET_CLOSE, CRASHES, &request);
        client_unlock(client);
        assert_int_equal(ask_client(client, SOUND), 0);
        assert_int_equal(log_errors() - before, i);
        assert_true(client_is_struck(client, CRASHES));
        assert_false(client_is_struck(client, SOUND));
    }
    assert_int_equal(ask_client(client, CRASHES), -EIO);
    assert_int_equal(log_errors() - before, 3); /* it was not asked for */
    wire_free(&request);
    client_destroy(client);
    store_close(store);
}

/* The process of its file has opened it before, in its own time. */
static void test_the_last_that_hung_had_less_time(void **state)
{
    (void)state;
    struct store *store = a_store();
    struct client *client;
    uint64_t root;
    assert_int_equal(client_create(store, PATIENT, &client), 0);
    client_lock(client);
    assert_int_equal(client_start(client, &root), 0);
    client_unlock(client);
    client->timeout = 1500000000;
    client->patience.failures = PATIENCE_FAILURES - 1;
    assert_int_equal(ask_client(client, HANGS), -EIO);
    assert_non_null(strstr(hdf5_error(), "did not answer for 1.5 s"));
    assert_true(client->said_impatient);
    client->timeout = PATIENT;
    client->patience.failures = 64;
    assert_int_equal(ask_client(client, HANGS), -EIO);
    assert_non_null(strstr(hdf5_error(), "did not answer for 1.0 s"));
    client->patience = (struct patience){0};
    assert_int_equal(ask_client(client, SOUND), 0);
    client_destroy(client);
    store_close(store);
}

static pid_t only_child(pid_t parent)
{
    char path[64], text[64] = "";
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    close(fd);
    return n > 0 ? (pid_t)strtol(text, NULL, 10) : -1;
}

/* Somebody else has killed it: no object is to blame, and nobody is to notice. */
static void test_one_that_is_killed_is_started_again(void **state)
{
    (void)state;
    struct store *store = a_store();
    struct remote *remote;
    uint64_t root;
    enum sfs_object_type type;
    pid_t worker;
    assert_int_equal(remote_open(store, PATIENT, false, &remote, &root), 0);
    pid_t zygote = only_child(getpid());
    for (int i = 0; i < 10; i++) {
        worker = zygote > 0 ? only_child(zygote) : -1;
        if (worker < 0) {
            remote_close(remote);
            store_close(store);
            skip(); /* the kernel does not tell who is whose child */
        }
        kill(worker, SIGKILL);
        assert_int_equal(remote_object_type(remote, SOUND, &type), 0);
    }
    remote_close(remote);
    store_close(store);
}

struct killing {
    pid_t zygote;
    atomic_bool is_over;
};

/* Each when it has had half of its time. */
static void *kill_workers(void *context)
{
    struct killing *killing = context;
    pid_t killed = 0;
    while (!atomic_load(&killing->is_over)) {
        pid_t worker = only_child(killing->zygote);
        bool is_new = worker > 0 && worker != killed;
        usleep(is_new ? HURRY / 2000 : 1000);
        if (is_new && kill(worker, SIGKILL) == 0)
            killed = worker;
    }
    return NULL;
}

/* Nobody is to blame, but a call has an end. */
static void test_one_that_is_killed_late_each_time(void **state)
{
    (void)state;
    struct killing killing = {.zygote = only_child(getpid())};
    struct store *store = a_store();
    struct client *client;
    pthread_t thread;
    if (killing.zygote < 0) {
        store_close(store);
        skip();
    }
    assert_int_equal(client_create(store, HURRY, &client), 0);
    start_thread(&thread, kill_workers, &killing);
    assert_int_equal(ask_client(client, HANGS), -EIO);
    atomic_store(&killing.is_over, true);
    pthread_join(thread, NULL);
    assert_in_range(client_starts(client), 1, 10);
    client_destroy(client);
    store_close(store);
}

/* Its number is nobody else's until then, whatever the program makes of the ends of its children. */
static void test_how_one_ended_is_told_later(void **state)
{
    (void)state;
    pid_t pid;
    struct worker_end end;
    int socket;
    char byte;
    assert_int_equal(zygote_fork(&zygote_of_libhdf5, &pid, &socket), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(recv(socket, &byte, 1, 0), 0); /* it has ended, or is about to */
    close(socket);
    assert_int_equal(zygote_end(&zygote_of_libhdf5, pid, PATIENT, &end), 0);
    assert_true(!end.lived_on && WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGKILL);
}

/* A zygote that is stopped holds nobody up for ever, and answers when it goes on. */
static void test_a_zygote_that_is_stopped(void **state)
{
    (void)state;
    pid_t zygote = only_child(getpid()), pid;
    struct worker_end end;
    int socket;
    if (zygote < 0)
        skip();
    kill(zygote, SIGSTOP);
    assert_int_equal(zygote_fork(&zygote_of_libhdf5, &pid, &socket), -ETIMEDOUT);
    for (int i = 0; i < 1000; i++) /* none of these waits */
        assert_int_equal(zygote_fork(&zygote_of_libhdf5, &pid, &socket), -ETIMEDOUT);
    assert_int_equal(zygote_end(&zygote_of_libhdf5, 1, 0, &end), -ETIMEDOUT);
    kill(zygote, SIGCONT);
    int error;
    while ((error = zygote_fork(&zygote_of_libhdf5, &pid, &socket)) == -ETIMEDOUT)
        usleep(1000);
    assert_int_equal(error, 0);
    close(socket);
    assert_int_equal(zygote_end(&zygote_of_libhdf5, pid, PATIENT, &end), 0);
    assert_true(!end.lived_on && WIFEXITED(end.status));
}

/* ---- Waiting for the calls of others ---- */

/* Whoever asks does not want to know any more. */
static bool says_yes(void *context)
{
    (void)context;
    return true;
}

#define MOST_HOLDERS 3 /* of a little more than 64 MiB, each with what is made of it, in 1 GiB */

/* One who does not give back what he was told before he may. */
struct holder {
    bool is_unwanted;
    int error;
    sem_t has, may_end;
};

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) < 0)
        ;
}

static void *hold_large(void *context)
{
    struct holder *holder = context;
    struct store *store = a_store();
    struct client *client;
    struct wire request;
    struct cursor results;
    int error = client_create(store, PATIENT, &client);
    assert_int_equal(error, 0);
    client_request(&request, WORKER_OBJECT_TYPE);
    wire_uint(&request, SAYS_64_MIB);
    if (holder->is_unwanted)
        sfs_set_interrupt(says_yes, NULL);
    client_lock(client);
    holder->error = client_ask(client, WORKER_OBJECT_TYPE, SAYS_64_MIB, &request, &results);
    if (!holder->is_unwanted) {
        sem_post(&holder->has);
        wait_for(&holder->may_end);
    }
    client_unlock(client);
    sfs_set_interrupt(NULL, NULL);
    wire_free(&request);
    client_destroy(client);
    store_close(store);
    return NULL;
}

static void start_holder(struct holder *holder, pthread_t *thread, bool is_unwanted)
{
    *holder = (struct holder){.is_unwanted = is_unwanted, .error = 1};
    assert_int_equal(sem_init(&holder->has, 0, 0), 0);
    assert_int_equal(sem_init(&holder->may_end, 0, 0), 0);
    start_thread(thread, hold_large, holder);
}

static void end_holder(struct holder *holder, pthread_t thread)
{
    sem_post(&holder->may_end);
    pthread_join(thread, NULL);
    sem_destroy(&holder->has);
    sem_destroy(&holder->may_end);
}

/* Of many files at the same time: they wait for each other, unless nobody waits for the answer any more. */
static void test_large_messages_of_many_wait_for_each_other(void **state)
{
    (void)state;
    pthread_t threads[MOST_HOLDERS + 2];
    struct holder holders[MOST_HOLDERS + 2];
    unsigned errors = log_errors(), n = 0;
    uint64_t fit = machine_memory() / 4 / ((uint64_t)LARGE_TIMES * 65 << 20), begun = clock_now();
    fit = fit < 1 ? 1 : fit < MOST_HOLDERS ? fit : MOST_HOLDERS;
    for (; n < fit; n++) {
        start_holder(&holders[n], &threads[n], false);
        wait_for(&holders[n].has);
    }
    start_holder(&holders[n], &threads[n], false);
    usleep((useconds_t)((clock_now() - begun) / 1000) +
           500000); /* in which all others have got it */
    bool waits = sem_trywait(&holders[n].has) < 0;
    start_holder(&holders[n + 1], &threads[n + 1], true);
    end_holder(&holders[n + 1], threads[n + 1]);
    for (unsigned i = 0; i <= n; i++)
        end_holder(&holders[i], threads[i]);
    assert_true(waits);
    assert_int_equal(holders[n + 1].error, -EINTR);
    for (unsigned i = 0; i <= n; i++)
        assert_int_equal(holders[i].error, 0);
    assert_int_equal(log_errors(), errors);
}

/* What is asked, and of what; where it is answered all the same whatever comes of it is freed. */
typedef int (*call_of_remote)(struct remote *remote);

#define CALL(name, ...)                                                                            \
    static int name(struct remote *remote)                                                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static char bytes_there[64];
static uint64_t numbers[2] = {0, 0}, counts[2] = {1, 1};
static uint64_t number;
static char *text_there;
static size_t n_there;

CALL(lists, struct sfs_links found; return remote_list(remote, GROUPS, &found);)
CALL(looks_up, struct sfs_link link; return remote_lookup(remote, GROUPS, "a", &link);)
CALL(finds, return remote_find(remote, GROUPS, "a", &number);)
CALL(asks_type, enum sfs_object_type type; return remote_object_type(remote, SOUND, &type);)
CALL(asks_attributes, struct sfs_attributes all; return remote_attributes(remote, SOUND, &all);)
CALL(opens_dataset, struct sfs_dataset_info info; struct hdf5_storage storage;
     return remote_dataset_open(remote, SOUND + 1, &info, &storage);)
CALL(keeps_sources, return remote_cache_sources(remote, SOUND, "/x", 1);)
CALL(asks_mappings, struct hdf5_mappings all; return remote_mappings(remote, SOUND, &all);)
CALL(locates, struct hdf5_chunk chunk; return remote_locate(remote, SOUND, numbers, &chunk);)
CALL(reads, return remote_read(remote, SOUND, numbers, counts, counts, bytes_there);)
CALL(asks_text, return remote_text(remote, SOUND, 99, &text_there, &n_there);)
CALL(asks_parts, const struct hdf5_parts wanted = {SFS_LENGTHS, 0, 1, 99};
     return remote_parts(remote, SOUND, &wanted, &text_there, &n_there);)
CALL(asks_paths, return remote_paths(remote, SOUND, &(struct hdf5_addresses){numbers, 1}, 99,
                                     &text_there, &n_there);)
CALL(asks_words, return remote_datatype_text(remote, SOUND, &text_there);)
CALL(asks_size, const struct about of = {remote};
     return remote_type_size(&of, compound, sizeof(compound) - 1, &n_there);)
CALL(describes, const struct about of = {remote}; struct sfs_type type;
     return remote_type_describe(&of, compound, sizeof(compound) - 1, &type);)

CALL(flushes, return remote_flush(remote);)
CALL(makes_group, return remote_create_group(remote, "/x");)
CALL(removes_link, return remote_unlink(remote, "/x");)
CALL(renews, return remote_renew(remote, &number);)
CALL(changes_dims, return remote_set_extent(remote, SOUND, counts);)
CALL(writes, return remote_write(remote, SOUND, numbers, counts, bytes_there);)
CALL(closes, remote_dataset_close(remote, SOUND); return 0;)

struct asking {
    struct remote *remote;
    call_of_remote call;
    int error;
};

static void *ask_unwanted(void *context)
{
    struct asking *asking = context;
    sfs_set_interrupt(says_yes, NULL);
    asking->error = asking->call(asking->remote);
    sfs_set_interrupt(NULL, NULL);
    return NULL;
}

static void expect_ended(struct asking *asking, bool while_locked)
{
    pthread_t thread;
    asking->error = 1;
    client_lock(asking->remote->client);
    start_thread(&thread, ask_unwanted, asking);
    if (while_locked)
        pthread_join(thread, NULL);
    else
        usleep(200000);
    client_unlock(asking->remote->client);
    if (!while_locked)
        pthread_join(thread, NULL);
}

/* What only reads is given up while another call takes its time; what changes the file, or is told
 * of a change, waits for it; closing is left to who comes next. */
static void test_waiting_for_others(void **state)
{
    (void)state;
    static const call_of_remote reading[] = {
        lists,     looks_up,   finds,      asks_type,  asks_attributes, opens_dataset,
        locates,   reads,      asks_text,  asks_parts, asks_mappings,   keeps_sources,
        asks_size, asks_words, asks_paths, describes};
    static const call_of_remote others[] = {flushes, makes_group, removes_link, changes_dims,
                                            renews};
    struct file file;
    struct sfs_dataset_info info;
    struct hdf5_storage storage;
    open_file(&file, PATIENT);
    struct asking asking = {.remote = file.remote};
    assert_int_equal(remote_dataset_open(file.remote, SOUND, &info, &storage), 0);
    hdf5_info_free(&info);
    hdf5_segments_free(storage.n_segments, storage.segments);
    for (size_t i = 0; i < COUNT(reading); i++) {
        asking.call = reading[i];
        expect_ended(&asking, true);
        assert_int_equal(asking.error, -EINTR);
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        asking.call = others[i];
        expect_ended(&asking, false);
        assert_int_equal(asking.error, 0);
    }
    asking.call = writes;
    expect_ended(&asking, false);
    assert_int_equal(asking.error, -EFBIG); /* refused, as above */
    asking.call = closes;
    expect_ended(&asking, true);
    assert_non_null(remote_dataset_find(file.remote, SOUND));
    assert_int_equal(kind_of(&file, SOUND), SFS_GROUP);
    assert_null(remote_dataset_find(file.remote, SOUND));
    expect_ended(&asking, true); /* and nobody comes any more */
    close_file(&file);
}

static uint64_t asked_for; /* an object */

CALL(asks_for_it, enum sfs_object_type type; return remote_object_type(remote, asked_for, &type);)

/* Whatever keeps us waiting for a process: its end, and the object is not to blame. */
static void test_calls_that_nobody_waits_for_are_given_up(void **state)
{
    (void)state;
    static const uint64_t objects[] = {HANGS, NEVER_LISTENS, TRICKLES};
    for (size_t i = 0; i < COUNT(objects); i++) {
        struct file file;
        open_file(&file, 30000000000); /* after which it would be -EIO */
        struct asking asking = {.remote = file.remote, .call = asks_for_it};
        asked_for = objects[i];
        ask_unwanted(&asking);
        assert_int_equal(asking.error, -EINTR);
        assert_int_equal(kind_of(&file, SOUND), SFS_GROUP);
        close_file(&file);
    }
}

static int start_zygote(void **state)
{
    (void)state;
    log_quietly();
    assert_non_null(getcwd(folder, sizeof(folder)));
    hash_before = hash_keyed("", 0);
    signal(SIGCHLD, SIG_IGN); /* as by who starts a program; whatever the tests below are about */
    int error = zygote_start(&zygote_of_libhdf5, prepare, work, MEMORY);
    signal(SIGCHLD, SIG_DFL);
    return error;
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_come_as_they_were),
        cmocka_unit_test(test_the_smallest_of_each_comes_alone),
        cmocka_unit_test(test_messages_that_end_early_are_refused),
        cmocka_unit_test(test_messages_that_are_changed),
        cmocka_unit_test(test_what_cannot_be_is_refused),
        cmocka_unit_test(test_lists_without_an_end_are_refused),
        cmocka_unit_test(test_links_without_an_end_are_refused),
        cmocka_unit_test(test_messages_that_are_too_long_are_none),
        cmocka_unit_test(test_one_that_trickles_is_not_waited_for),
        cmocka_unit_test(test_every_door_is_shut),
        cmocka_unit_test(test_root_is_not_kept),
        cmocka_unit_test(test_landlock_by_itself),
        cmocka_unit_test(test_one_that_dies_is_started_again),
        cmocka_unit_test(test_it_has_not_the_secret_of_tables),
        cmocka_unit_test(test_one_that_hangs_is_ended),
        cmocka_unit_test(test_one_that_has_no_processor_is_waited_for),
        cmocka_unit_test(test_there_is_less_time_for_a_file_that_takes_all_of_it),
        cmocka_unit_test(test_one_that_leaves_is_to_blame),
        cmocka_unit_test(test_one_that_never_stops_is_ended),
        cmocka_unit_test(test_lies_are_refused),
        cmocka_unit_test(test_a_log_is_not_flooded),
        cmocka_unit_test(test_few_objects_that_have_ended_one_are_known),
        cmocka_unit_test(test_what_has_ended_one_is_asked_about_in_the_next_state),
        cmocka_unit_test(test_a_file_that_is_found_again_is_open),
        cmocka_unit_test(test_descriptors_are_left),
        cmocka_unit_test(test_those_not_asked_for_longest_are_ended),
        cmocka_unit_test(test_refusals_do_not_flood_the_log),
        cmocka_unit_test(test_our_own_time_counts),
        cmocka_unit_test(test_a_refused_write_is_refused),
        cmocka_unit_test(test_one_that_is_killed_is_started_again),
        cmocka_unit_test(test_one_that_is_killed_late_each_time),
        cmocka_unit_test(test_how_one_ended_is_told_later),
        cmocka_unit_test(test_a_zygote_that_is_stopped),
        cmocka_unit_test(test_those_listed_are_asked_for_together),
        cmocka_unit_test(test_what_was_said_ahead_is_forgotten),
        cmocka_unit_test(test_one_that_dies_among_others),
        cmocka_unit_test(test_lies_about_several),
        cmocka_unit_test(test_large_messages_are_not_kept),
        cmocka_unit_test(test_one_that_dies_of_what_it_was_told),
        cmocka_unit_test(test_the_last_that_hung_had_less_time),
        cmocka_unit_test(test_text_comes_with_the_description),
        cmocka_unit_test(test_text_comes_with_the_opening_by_one_that_did_not_know_it),
        cmocka_unit_test(test_texts_that_nobody_asks_for_are_not_all_kept),
        cmocka_unit_test(test_one_that_forgets_is_to_blame),
        cmocka_unit_test(test_one_that_is_slow_and_dies_is_ended),
        cmocka_unit_test(test_large_messages_of_many_wait_for_each_other),
        cmocka_unit_test(test_waiting_for_others),
        cmocka_unit_test(test_calls_that_nobody_waits_for_are_given_up),
    };
    return cmocka_run_group_tests(tests, start_zygote, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
