/* The process of libhdf5 as who calls it sees it: arguments that cannot be are refused, and the
 * next call is answered. */
#include "support.h"

#include <errno.h>
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hdf5/worker/channel.h"
#include "hdf5/worker/serve.h"

#define ROWS    20
#define COLUMNS 30

struct served {
    int socket;
    pid_t pid;
    unsigned char *file;
    uint64_t file_n, dataset;
    struct wire in;
};

static void make_file(struct served *served)
{
    static const hsize_t dims[] = {ROWS, COLUMNS}, chunk[] = {7, 7};
    static int32_t values[ROWS * COLUMNS];
    H5O_info_t info;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = i;
    hid_t how = H5Pcreate(H5P_FILE_ACCESS), chunked = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_fapl_core(how, 1 << 16, 0);
    H5Pset_chunk(chunked, 2, chunk);
    hid_t file = H5Fcreate("served.h5", H5F_ACC_TRUNC, H5P_DEFAULT, how);
    hid_t space = H5Screate_simple(2, dims, NULL);
    hid_t dataset = H5Dcreate2(file, "d", H5T_STD_I32LE, space, H5P_DEFAULT, chunked, H5P_DEFAULT);
    assert_true(H5Dwrite(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_true(H5Oget_info2(dataset, &info, H5O_INFO_BASIC) >= 0);
    served->dataset = info.addr;
    H5Dclose(dataset);
    H5Sclose(space);
    assert_true(H5Fflush(file, H5F_SCOPE_LOCAL) >= 0);
    ssize_t n = H5Fget_file_image(file, NULL, 0);
    assert_true(n > 0);
    served->file = allocate((size_t)n);
    served->file_n = (uint64_t)n;
    assert_int_equal(H5Fget_file_image(file, served->file, (size_t)n), n);
    H5Fclose(file);
    H5Pclose(chunked);
    H5Pclose(how);
}

/* What it asks for; false: it has replied. */
static bool answer(struct served *served, enum message_kind kind)
{
    struct cursor cursor = cursor_over(served->in.bytes, served->in.n);
    struct wire out = {0};
    if (kind == MESSAGE_REPLY)
        return false;
    if (kind == MESSAGE_LOG || kind == MESSAGE_LET_GO)
        return true;
    uint64_t asked[3];
    take_uints(&cursor, asked, 3);
    wire_uint(&out, 0);
    if (kind == MESSAGE_READ) {
        assert_true(asked[1] <= served->file_n && asked[2] <= served->file_n - asked[1]);
        wire_put(&out, served->file + asked[1], (size_t)asked[2]);
    } else {
        wire_uint(&out, kind == MESSAGE_END_OF ? served->file_n : 0);
    }
    assert_int_equal(channel_send(served->socket, MESSAGE_ANSWER, &out, UINT64_MAX), 0);
    wire_free(&out);
    return true;
}

/* Its error; results are in *results. */
static int call(struct served *served, struct wire *request, struct cursor *results)
{
    enum message_kind kind = MESSAGE_LOG;
    char *reason;
    assert_int_equal(channel_send(served->socket, MESSAGE_CALL, request, UINT64_MAX), 0);
    wire_free(request);
    do
        assert_int_equal(channel_receive(served->socket, &kind, &served->in, UINT64_MAX), 0);
    while (answer(served, kind));
    *results = cursor_over(served->in.bytes, served->in.n);
    uint64_t error = take_uint(results, INT32_MAX);
    assert_int_equal(take_string(results, true, &reason), 0);
    free(reason);
    return (int)error;
}

static int open_file(struct served *served)
{
    struct wire request = {0};
    struct cursor results;
    wire_uint(&request, WORKER_OPEN);
    wire_string(&request, "served.h5");
    wire_uints(&request, (uint64_t[]){0, served->file_n, 1, 2, false, false, false}, 7);
    return call(served, &request, &results);
}

static int ask(struct served *served, uint64_t which, const uint64_t *arguments, int n,
               struct cursor *results)
{
    struct wire request = {0};
    wire_uints(&request, (uint64_t[]){which, served->dataset}, 2);
    wire_uints(&request, arguments, n);
    return call(served, &request, results);
}

static int begin(void **state)
{
    static struct served served;
    int ends[2];
    make_file(&served);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    served.pid = fork();
    if (served.pid == 0) {
        close(ends[0]);
        worker_serve(ends[1]);
    }
    close(ends[1]);
    served.socket = ends[0];
    assert_true(served.pid > 0);
    assert_int_equal(open_file(&served), 0);
    *state = &served;
    return 0;
}

/* It ends by itself when nobody is there any more. */
static int end(void **state)
{
    struct served *served = *state;
    int status;
    close(served->socket);
    assert_int_equal(waitpid(served->pid, &status, 0), served->pid);
    free(served->file);
    wire_free(&served->in);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static void test_boxes_have_the_bytes_that_they_need(void **state)
{
    struct served *served = *state;
    struct cursor results;
    uint64_t box[] = {2, 0, 0, ROWS, COLUMNS, ROWS * COLUMNS * 4};
    assert_int_equal(ask(served, WORKER_READ, box, 6, &results), EBADF); /* it is not open yet */
    assert_int_equal(ask(served, WORKER_DATASET_OPEN, NULL, 0, &results), 0);
    box[5] = 256;
    assert_int_equal(ask(served, WORKER_READ, box, 6, &results), EINVAL);
    assert_int_equal(ask(served, WORKER_READ, box, 5, &results), EINVAL);
    uint64_t line[] = {1, 0, ROWS * COLUMNS, ROWS * COLUMNS * 4};
    assert_int_equal(ask(served, WORKER_READ, line, 4, &results), EINVAL);
    box[5] = ROWS * COLUMNS * 4;
    assert_int_equal(ask(served, WORKER_READ, box, 6, &results), 0);
    const unsigned char *bytes = cursor_bytes(&results, box[5]);
    assert_non_null(bytes);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        assert_true(bytes[4 * i] == i % 256 && bytes[4 * i + 1] == i / 256);
}

static void test_chunks_have_as_many_dims_as_their_dataset(void **state)
{
    struct served *served = *state;
    struct cursor results;
    uint64_t chunk[] = {2, 1, 7, 14};
    assert_int_equal(ask(served, WORKER_LOCATE, chunk, 4, &results), EBADF);
    assert_int_equal(ask(served, WORKER_DATASET_OPEN, NULL, 0, &results), 0);
    assert_int_equal(ask(served, WORKER_LOCATE, (uint64_t[]){1, 1, 7}, 3, &results), EINVAL);
    assert_int_equal(ask(served, WORKER_LOCATE, (uint64_t[]){0, 1}, 2, &results), EINVAL);
    assert_int_equal(ask(served, WORKER_LOCATE, chunk, 3, &results), EINVAL);
    assert_int_equal(ask(served, WORKER_LOCATE, chunk, 4, &results), 0);
    uint64_t address = take_uint(&results, UINT64_MAX);
    assert_true(address > 0 && address < served->file_n);
    assert_int_equal(take_uint(&results, UINT64_MAX), 7 * 7 * 4);
}

static void test_a_file_is_opened_once(void **state)
{
    struct served *served = *state;
    struct cursor results;
    assert_int_equal(open_file(served), EINVAL);
    assert_int_equal(ask(served, WORKER_OBJECT_TYPE, NULL, 0, &results), 0);
    assert_int_equal(take_uint(&results, UINT64_MAX), SFS_DATASET);
    assert_int_equal(ask(served, WORKER_CALLS, NULL, 0, &results), EINVAL);
}

/* A datatype of no bytes. */
static void test_no_datatype(void **state)
{
    struct served *served = *state;
    struct wire request = {0};
    struct cursor results;
    wire_uints(&request, (uint64_t[]){WORKER_TYPE_OF_MESSAGE, 0}, 2);
    assert_int_not_equal(call(served, &request, &results), 0);
    wire_uint(&request, WORKER_TYPE_OF_MESSAGE);
    assert_int_not_equal(call(served, &request, &results), 0);
}

static int all_tests(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_boxes_have_the_bytes_that_they_need, begin, end),
        cmocka_unit_test_setup_teardown(test_chunks_have_as_many_dims_as_their_dataset, begin, end),
        cmocka_unit_test_setup_teardown(test_a_file_is_opened_once, begin, end),
        cmocka_unit_test_setup_teardown(test_no_datatype, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return in_temporary_directory(all_tests);
}
