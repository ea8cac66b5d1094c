/* Ending a worker, and what is said of one that has ended: how, and what it was asked for. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/process_status.h"
#include "common/sanitized.h"
#include "hdf5/private.h"
#include "hdf5/worker/client_private.h"
#include "hdf5/worker/confine.h"
#include "store/store.h"

/* patience: see zygote_end. */
static struct worker_end end_worker(struct client *client, uint64_t patience)
{
    struct worker_end end = {0};
    if (client->socket < 0)
        return end;
    close(client->socket);
    client->socket = -1;
    client->is_owed = false;
    client_note_ended(client);
    client_close_others(client);
    (void)zygote_end(&zygote_of_libhdf5, client->pid, patience, &end);
    return end;
}

void client_end_worker(struct client *client)
{
    (void)end_worker(client, 0);
}

/* One that copies goes on. Sanitizers have no limit. */
bool client_is_full(const struct client *client)
{
    size_t most = zygote_memory(&zygote_of_libhdf5);
    if (client->socket < 0 || client->source || IS_SANITIZED || most <= client->empty_bytes)
        return false;
    uint64_t bytes = process_address_space(client->pid);
    return bytes > client->empty_bytes &&
           bytes - client->empty_bytes > (most - client->empty_bytes) / 2;
}

void client_say_end(int error, const struct worker_end *end, uint64_t timeout, char *text, size_t n)
{
    int status = end->status;
    if (error == -ETIMEDOUT)
        snprintf(text, n, "it did not answer for %.1f s", (double)timeout / 1e9);
    else if (error == -EPROTO)
        snprintf(text, n, "its answer cannot be");
    else if (error != -EPIPE)
        snprintf(text, n, "%s", strerror(-error));
    else if (end->lived_on)
        snprintf(text, n, "it closed its socket and went on");
    else if (WIFSIGNALED(status))
        snprintf(text, n, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == UNCONFINED)
        snprintf(text, n,
                 "it could not be confined; for it root needs CAP_SETUID and CAP_SETGID, and all "
                 "seccomp(2)");
    else
        snprintf(text, n, "exit code %d", WEXITSTATUS(status));
}

bool client_was_killed(int error, const struct worker_end *end)
{
    return error == -EPIPE && !end->lived_on && WIFSIGNALED(end->status) &&
           WTERMSIG(end->status) == SIGKILL;
}

static const char *const names[WORKER_CALLS] = {
    [WORKER_OPEN] = "opening the file",
    [WORKER_RENEW] = "opening the file again",
    [WORKER_LIST] = "the links",
    [WORKER_LOOKUP] = "a link",
    [WORKER_FIND] = "a path",
    [WORKER_OBJECT_TYPE] = "the kind",
    [WORKER_ATTRIBUTES] = "the attributes",
    [WORKER_DATASET_OPEN] = "the description",
    [WORKER_DATASET_CLOSE] = "closing",
    [WORKER_DATASET_RENEW] = "the dims",
    [WORKER_CACHE_SOURCES] = "the caches",
    [WORKER_MAPPINGS] = "the mappings",
    [WORKER_LOCATE] = "a chunk",
    [WORKER_READ] = "elements",
    [WORKER_TEXT] = "the text",
    [WORKER_PARTS] = "parts of elements",
    [WORKER_PATHS] = "the paths of references",
    [WORKER_DATATYPE_TEXT] = "the words",
    [WORKER_TYPE_OF_MESSAGE] = "a datatype",
    [WORKER_TYPE_DESCRIBE] = "the description of a datatype",
    [WORKER_TYPE_SIZE] = "the size of a datatype",
    [WORKER_TYPE_EQUAL] = "a comparison of datatypes",
    [WORKER_ELEMENT_JSON] = "the text of an element",
    [WORKER_ELEMENTS_TEXT] = "the text of elements",
    [WORKER_ELEMENT_PARSE] = "an element",
    [WORKER_SEVERAL] = "something",
    [WORKER_SHOW] = "the description and the text",
    [WORKER_WRITE] = "writing elements",
    [WORKER_WRITE_SEQUENCES] = "writing elements of variable length",
    [WORKER_SET_EXTENT] = "changing the dims",
    [WORKER_WRITE_CHUNKS] = "writing chunks",
    [WORKER_PLACE] = "giving it its place",
    [WORKER_CREATE_GROUP] = "making a group",
    [WORKER_REMOVE_GROUP] = "removing a group",
    [WORKER_REOPEN] = "opening the file again",
    [WORKER_CREATE_LINK] = "making a link",
    [WORKER_UNLINK] = "removing a link",
    [WORKER_CREATE_DATASET] = "making a dataset",
    [WORKER_COPY_ATTRIBUTES] = "copying attributes",
    [WORKER_COPY_OBJECT] = "copying an object",
    [WORKER_COPY_GROUP] = "copying a group",
    [WORKER_COPY_REFERENCES] = "copying references",
};

bool client_bury(struct client *client, enum worker_call call, uint64_t object, int error)
{
    char how[128], line[512], place[96] = "";
    const struct worker_end end = end_worker(client, error == -EPIPE ? WORKER_PATIENCE : 0);
    bool is_killed = client_was_killed(error, &end);
    client_say_end(error, &end, client->given, how, sizeof(how));
    if (client->store && call != WORKER_OPEN && call != WORKER_RENEW)
        snprintf(place, sizeof(place), " of the object at address %" PRIu64 "%s", object,
                 call == WORKER_SEVERAL ? " or one listed behind it" : "");
    snprintf(client->last_end, sizeof(client->last_end), "asked for %s%s: %s", names[call], place,
             how);
    snprintf(line, sizeof(line), "the process of libhdf5 ended%s, %s",
             client_is_struck(client, object) ? " again" : "", client->last_end);
    library_reason(line);
    why_say(client_why(client), "%s: %s", client->store ? store_path(client->store) : "datatypes",
            line);
    client->is_killed = is_killed;
    return !is_killed && error != -ENOMEM;
}
