/* The calls of hdf5.h, as they come from the program over a socket: each is decoded, done here by
 * libhdf5, and its results are encoded. The file is where the program is, which is asked for its
 * bytes. */
#include "hdf5/worker/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/box.h"
#include "common/clock.h"
#include "common/log.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "hdf5/worker/answers_ahead.h"
#include "hdf5/worker/channel.h"
#include "hdf5/worker/serve_private.h"
#include "store/store.h"

#define MOST_UNSENT ((size_t)64 << 10) /* bytes */

#define ASK_NANOS 50000000 /* between two questions whether a call is to end early */

struct served served;

static struct wire changes; /* messages that have no answer, and are not sent yet */
static uint64_t asked;      /* when it was asked last whether to end */
static bool is_in_call;

void serve_need(int error)
{
    if (error)
        _exit(0);
}

struct wire *serve_question(void)
{
    served.wire.n = 0;
    served.wire.failed = false;
    return &served.wire;
}

/* What was changed before is told before. */
static void send_changes(void)
{
    if (changes.n > 0 || changes.failed)
        serve_need(channel_send_batch(served.socket, &changes, UINT64_MAX));
    changes.n = 0;
}

void serve_tell(enum message_kind kind)
{
    channel_put(&changes, kind, &served.wire);
    if (changes.n >= MOST_UNSENT || changes.failed)
        send_changes();
}

int serve_ask(enum message_kind kind, struct cursor *cursor)
{
    send_changes();
    serve_need(channel_send(served.socket, kind, &served.wire, UINT64_MAX));
    serve_need(channel_receive(served.socket, &kind, &served.wire, UINT64_MAX));
    *cursor = cursor_over(served.wire.bytes, served.wire.n);
    return -(int)take_uint(cursor, INT32_MAX);
}

static void log_line(int level, const char *line)
{
    if (!is_in_call)
        return;
    struct wire *wire = serve_question();
    wire_uint(wire, (uint64_t)level);
    wire_string(wire, line);
    serve_need(channel_send(served.socket, MESSAGE_LOG, wire, UINT64_MAX));
}

static bool is_interrupted(void *context)
{
    (void)context;
    struct cursor cursor;
    uint64_t now = clock_now();
    if (now < asked + ASK_NANOS)
        return false;
    asked = now;
    serve_question();
    return serve_ask(MESSAGE_INTERRUPTED, &cursor) != 0;
}

/* All that a call has changed is to be told before its end. What one that failed has left behind is
 * told, too: then the program knows that it has, and ends us. */
static int tell_changes(int error)
{
    int flushed = error ? file_write_changed(served.hdf5) : local_flush(served.hdf5);
    return error ? error : flushed;
}

static int do_call(uint64_t call, struct cursor *in, struct wire *results)
{
    bool needs_file = !serve_types[call] && call != WORKER_OPEN;
    call_function function = serve_reading[call]    ? serve_reading[call]
                             : serve_changing[call] ? serve_changing[call]
                                                    : serve_types[call];
    if (in->failed || !function || (needs_file && !served.hdf5))
        return -EINVAL;
    if (served.store && store_is_writable(served.store))
        serve_forget_pages(served.file);
    int error = function(in, results);
    return call >= WORKER_FIRST_CHANGE ? tell_changes(error) : error;
}

/* Does a call, and makes the reply of it. */
static void answer(struct cursor *in, struct wire *out)
{
    struct wire results = {0};
    uint64_t call = take_uint(in, WORKER_CALLS - 1);
    int error = do_call(call, in, &results);
    if (!error && results.failed)
        error = library_failed_because(-EFBIG, "the answer is too large");
    wire_uint(out, (uint64_t)-error);
    wire_string(out, error ? hdf5_error() : "");
    if (!error)
        wire_put(out, results.bytes, results.n);
    wire_free(&results);
}

void worker_serve(int socket)
{
    struct wire in = {0}, out = {0};
    enum message_kind kind;
    served.socket = socket;
    sfs_set_log(log_line, LOG_INFO);
    sfs_set_interrupt(is_interrupted, NULL);
    driver_set_finder(serve_find_other);
    while (channel_receive(socket, &kind, &in, UINT64_MAX) == 0 &&
           (kind == MESSAGE_CALL || kind == MESSAGE_SIZE)) {
        struct cursor cursor = cursor_over(in.bytes, in.n);
        if (kind == MESSAGE_SIZE) {
            serve_take_size(&cursor);
            continue;
        }
        out.n = 0;
        out.failed = false;
        asked = clock_now();
        is_in_call = true;
        answer(&cursor, &out);
        send_changes();
        is_in_call = false;
        if (channel_send(socket, MESSAGE_REPLY, &out, UINT64_MAX) < 0)
            break;
    }
    wire_free(&in);
    wire_free(&out);
    _exit(0);
}
