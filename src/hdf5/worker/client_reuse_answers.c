/* What workers have said of a file that is as it was: nobody is asked again. */

#include "hdf5/worker/answers_kept.h"
#include "hdf5/worker/client_private.h"
#include "store/store.h"

/* Calls that do nothing but say what the file is. A worker that answers the last of these knows the
 * dataset from then on: one that does not says so (-EBADF). */
static bool only_says(enum worker_call call)
{
    return call == WORKER_LIST || call == WORKER_LOOKUP || call == WORKER_FIND ||
           call == WORKER_OBJECT_TYPE || call == WORKER_ATTRIBUTES || call == WORKER_SEVERAL ||
           call == WORKER_DATATYPE_TEXT || call == WORKER_SHOW || call == WORKER_DATASET_OPEN;
}

bool client_knows(struct client *client, enum worker_call call, const struct wire *request,
                  struct cursor *results)
{
    struct answers_of of;
    if (client->asks_anew || client->is_owed || !only_says(call) ||
        !answers_identify(client->store, &of) || !answers_find(&of, request, &client->in))
        return false;
    *results = cursor_over(client->in.bytes, client->in.n);
    client->answered_by = 0;
    return true;
}

/* Of a call that has succeeded: unless it has said something in the log, something could not be read, or other files
 * may have had to do with it. */
void client_note_answer(const struct client *client, enum worker_call call,
                        const struct wire *request, const struct cursor *results)
{
    struct answers_of of;
    bool is_alone = !client->has_looked_elsewhere && !client->has_said && client->n_others == 0;
    if (is_alone && !client->read_failed && only_says(call) && answers_identify(client->store, &of))
        answers_keep(&of, request, results->at, results->left);
}

void client_forget_answers(const struct client *client)
{
    struct answers_of of;
    if (answers_identify(client->store, &of))
        answers_forget(&of);
}

void client_ask_anew(struct client *client, bool anew)
{
    client->asks_anew = anew;
}

/* Some files can be read, and not written: that one was opened for reading says nothing of writing. */
static void ask_for_root(const struct client *client, struct wire *request)
{
    client_request(request, WORKER_OPEN);
    wire_uint(request, client->transaction != NULL);
}

/* The root as it was said when the file was opened before. */
bool client_knows_root(struct client *client)
{
    struct answers_of of;
    struct wire request;
    ask_for_root(client, &request);
    bool is_known = client->socket < 0 && answers_identify(client->store, &of) &&
                    answers_find(&of, &request, &client->in);
    if (is_known) {
        struct cursor cursor = cursor_over(client->in.bytes, client->in.n);
        client->root = take_uint(&cursor, UINT64_MAX);
    }
    wire_free(&request);
    return is_known;
}

void client_note_root(const struct client *client)
{
    struct answers_of of;
    struct wire request, root = {0};
    if (client->has_said || !answers_identify(client->store, &of))
        return;
    ask_for_root(client, &request);
    wire_uint(&root, client->root);
    if (!root.failed)
        answers_keep(&of, &request, root.bytes, root.n);
    wire_free(&request);
    wire_free(&root);
}
