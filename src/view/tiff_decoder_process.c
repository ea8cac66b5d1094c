/* Decoding images that a user of the mount has written, in a process of its own for each: forked by
 * one that was forked before the daemon had threads or had opened a file, with no right but to use
 * a bounded memory and to answer (hdf5/worker/confine.h). */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "config.h"
#include "hdf5/worker/channel.h"
#include "hdf5/worker/zygote.h"
#include "view/foreign_files.h"

#if HAVE_LIBTIFF

#define MOST_SECONDS 60                  /* of the process, to take a file and give an image */
#define LOOK_MILLIS  50                  /* between two questions whether it is still wanted */
#define MOST_BESIDE  ((size_t)320 << 20) /* what tiff_decode takes besides the image */

struct question {
    struct image image;
    uint64_t n; /* bytes that follow */
};

struct reply {
    int error;
    struct why why;
};

static bool is_on;

static size_t bytes_of(const struct image *image)
{
    return (size_t)image->width * image->height * image->samples * (image->bits / 8);
}

/* ---- The process ---- */

static void prepare(void)
{
}

static void serve(int socket)
{
    struct question question;
    struct reply reply = {.error = -ENOMEM};
    if (channel_receive_bytes(socket, &question, sizeof(question), UINT64_MAX) ||
        question.n > SIZE_MAX)
        _exit(1);
    size_t n = (size_t)question.n, size = bytes_of(&question.image);
    char *bytes = malloc(n ? n : 1), *dense = calloc(1, size ? size : 1);
    if (bytes && channel_receive_bytes(socket, bytes, n, UINT64_MAX))
        _exit(1);
    if (bytes && dense)
        reply.error = tiff_decode(&question.image, bytes, n, dense, &reply.why);
    int error = channel_send_bytes(socket, &reply, sizeof(reply), UINT64_MAX);
    if (!error && !reply.error)
        error = channel_send_bytes(socket, dense, size, UINT64_MAX);
    _exit(error ? 1 : 0);
}

int views_start_decoder(size_t memory)
{
    int error = zygote_start(&zygote_of_images, prepare, serve, memory);
    is_on = !error;
    return error;
}

/* ---- The daemon ---- */

size_t image_memory(const struct image *image)
{
    return bytes_of(image) + MOST_BESIDE;
}

/* Until it answers, or has ended, or the time is over. -EINTR. */
static int wait_for_reply(int socket, uint64_t until)
{
    struct pollfd reply = {.fd = socket, .events = POLLIN};
    int error = 0;
    while (!error && clock_now() < until && poll(&reply, 1, LOOK_MILLIS) <= 0)
        error = interrupt_check();
    return error;
}

/* Nothing that comes is believed but the elements, which may be any. A process that has no memory for
 * the file ends before it has taken all of that. */
static int ask(int socket, const struct question *question, const char *bytes, char *dense,
               struct why *why)
{
    uint64_t until = clock_now() + (uint64_t)MOST_SECONDS * 1000000000;
    struct reply reply;
    int error = channel_send_bytes(socket, question, sizeof(*question), until);
    if (!error)
        error = channel_send_bytes(socket, bytes, (size_t)question->n, until);
    bool is_gone = error == -EPIPE;
    int interrupted = error ? 0 : wait_for_reply(socket, until);
    if (interrupted)
        return interrupted;
    if (!error || is_gone)
        error = channel_receive_bytes(socket, &reply, sizeof(reply), until);
    if (error || (is_gone && !reply.error))
        return -EIO;
    if (reply.error) {
        reply.why.text[sizeof(reply.why.text) - 1] = '\0';
        log_make_line(reply.why.text);
        *why = reply.why;
        return reply.error == -ENOMEM ? -ENOMEM : -EINVAL;
    }
    return channel_receive_bytes(socket, dense, bytes_of(&question->image), until) ? -EIO : 0;
}

int image_decode(const struct image *image, const char *bytes, size_t n, char *dense,
                 struct why *why)
{
    const struct question question = {*image, n};
    pid_t pid;
    int socket;
    struct worker_end end;
    if (!is_on)
        return why_refused(why, -EINVAL, "there is no process that decodes TIFF files");
    int error = zygote_fork(&zygote_of_images, &pid, &socket);
    if (error)
        return error == -ENOMEM || error == -EAGAIN ? error : -EIO;
    error = ask(socket, &question, bytes, dense, why);
    close(socket);
    (void)zygote_end(&zygote_of_images, pid, 0, &end);
    if (error != -EIO)
        return error;
    log_warning("the process that decodes a TIFF file has ended early (status %d), or did not "
                "answer",
                end.status);
    return why_refused(why, -EINVAL, "it cannot be decoded");
}

#else

size_t image_memory(const struct image *image)
{
    (void)image;
    return 0;
}

int views_start_decoder(size_t memory)
{
    (void)memory;
    return 0;
}

int image_decode(const struct image *image, const char *bytes, size_t n, char *dense,
                 struct why *why)
{
    (void)image, (void)bytes, (void)n, (void)dense;
    return why_refused(
        why, -EINVAL,
        "this sparsefs was built without libtiff, and takes only TIFF files with the "
        "header that is shown");
}

#endif
