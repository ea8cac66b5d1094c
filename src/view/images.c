/* Decoding images that a user of the mount has written, in a process of its own for each: forked by
 * one that was forked before the daemon had threads or had opened a file, with no right but to use
 * a bounded memory and to answer (hdf5/worker/confine.h). */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "config.h"
#include "hdf5/worker/zygote.h"
#include "view/foreign.h"

#if HAVE_LIBTIFF

#define MOST_SECONDS 60 /* without an answer */

struct question {
    struct image image;
    uint64_t n; /* bytes that follow */
};

struct reply {
    int error;
    struct foreign_why why;
};

static bool is_on;

static bool send_all(int socket, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(socket, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool receive_all(int socket, char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t got = recv(socket, bytes, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        bytes += got;
        n -= (size_t)got;
    }
    return true;
}

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
    if (!receive_all(socket, (char *)&question, sizeof(question)) || question.n > SIZE_MAX)
        _exit(1);
    size_t n = (size_t)question.n, size = bytes_of(&question.image);
    char *bytes = malloc(n ? n : 1), *dense = calloc(1, size ? size : 1);
    if (bytes && !receive_all(socket, bytes, n))
        _exit(1);
    if (bytes && dense)
        reply.error = tiff_decode(&question.image, bytes, n, dense, &reply.why);
    bool is_sent = send_all(socket, (char *)&reply, sizeof(reply)) &&
                   (reply.error || send_all(socket, dense, size));
    _exit(is_sent ? 0 : 1);
}

int views_start_decoder(size_t memory)
{
    int error = zygote_start(&zygote_of_images, prepare, serve, memory);
    is_on = !error;
    return error;
}

/* ---- The daemon ---- */

/* Nothing that comes is believed but the elements, which may be any. */
static int ask(int socket, const struct question *question, const char *bytes, char *dense,
               struct foreign_why *why)
{
    struct reply reply;
    if (!send_all(socket, (const char *)question, sizeof(*question)) ||
        !send_all(socket, bytes, (size_t)question->n) ||
        !receive_all(socket, (char *)&reply, sizeof(reply)))
        return -EIO;
    if (reply.error) {
        reply.why.text[WHY_BYTES - 1] = '\0';
        for (char *c = reply.why.text; *c; c++)
            *c = *c >= ' ' && *c <= '~' ? *c : '?';
        *why = reply.why;
        return reply.error == -ENOMEM ? -ENOMEM : -EINVAL;
    }
    return receive_all(socket, dense, bytes_of(&question->image)) ? 0 : -EIO;
}

int image_decode(const struct image *image, const char *bytes, size_t n, char *dense,
                 struct foreign_why *why)
{
    const struct question question = {*image, n};
    const struct timeval patience = {.tv_sec = MOST_SECONDS};
    pid_t pid;
    int socket, status;
    if (!is_on) {
        snprintf(why->text, sizeof(why->text), "there is no process that decodes TIFF files");
        return -EINVAL;
    }
    int error = zygote_fork(&zygote_of_images, &pid, &socket);
    if (error)
        return error == -EPIPE ? -EIO : error;
    (void)setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    error = ask(socket, &question, bytes, dense, why);
    close(socket);
    (void)zygote_end(&zygote_of_images, pid, &status);
    if (error == -EIO) {
        log_warning("the process that decodes a TIFF file has ended early (status %d), or did not "
                    "answer",
                    status);
        snprintf(why->text, sizeof(why->text), "it cannot be decoded");
        error = -EINVAL;
    }
    return error;
}

#else

int views_start_decoder(size_t memory)
{
    (void)memory;
    return 0;
}

int image_decode(const struct image *image, const char *bytes, size_t n, char *dense,
                 struct foreign_why *why)
{
    (void)image, (void)bytes, (void)n, (void)dense;
    snprintf(why->text, sizeof(why->text),
             "this sparsefs was built without libtiff, and takes only "
             "TIFF files with the header that is shown");
    return -EINVAL;
}

#endif
