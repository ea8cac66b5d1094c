/* libFuzzer: writing, allocating and freeing as a process that was taken over may ask for, in some
 * calls, while others use the same store. A model says what must come of each: which are refused,
 * what is read, and that nothing of a call that is dropped stays. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/worker/transaction.h"
#include "peer.h"
#include "store/store.h"

#define BYTES      ((size_t)12 << 10)  /* of the store, at first */
#define MOST       ((size_t)512 << 10) /* that it can grow to */
#define LARGE      ((size_t)64 << 10)  /* such writes may go to the store at once */
#define MOST_FREED 256

enum owner { NOBODY, OWN, LENT };

/* Bytes that were never written are not known. */
struct model {
    unsigned char owner[MOST], bytes[MOST], is_known[MOST];
};

struct range {
    uint64_t address, n;
};

static struct model now, before; /* as the process sees it; and if the call is dropped */
static size_t reach;             /* bytes of both that were ever in use */
static struct range freed[MOST_FREED];
static size_t n_freed;
static struct store *store;
static struct transaction *transaction;

static bool is_all(enum owner owner, uint64_t address, uint64_t n)
{
    if (n == 0 || address > MOST || n > MOST - address)
        return false;
    for (uint64_t i = 0; i < n; i++)
        if (now.owner[address + i] != owner)
            return false;
    return true;
}

static void set_owner(struct model *model, uint64_t address, uint64_t n, enum owner owner)
{
    require(address <= MOST && n <= MOST - address);
    reach = address + n > reach ? (size_t)(address + n) : reach;
    memset(model->owner + address, owner, n);
    memset(model->is_known + address, 0, n);
}

/* Somewhere in the store, mostly. */
static uint64_t an_address(void)
{
    uint64_t address = peer_number();
    return peer_byte() % 8 == 0 ? address : address * 97 % (reach + 100);
}

static uint64_t some_bytes(void)
{
    uint64_t n = peer_byte();
    return n < 200 ? n : n < 250 ? n * 37 : LARGE + n;
}

/* ---- What the process asks for ---- */

static void write_there(void)
{
    static unsigned char bytes[MOST];
    uint64_t address = an_address(), n = some_bytes();
    int byte = (int)peer_byte();
    memset(bytes, byte, n);
    int error = transaction_write(transaction, address, bytes, n);
    require(error == (n == 0 || is_all(LENT, address, n) ? 0 : -EACCES));
    if (error || n == 0)
        return;
    memset(now.bytes + address, byte, n);
    memset(now.is_known + address, 1, n);
}

static void allocate_there(void)
{
    uint64_t address, n = peer_byte() % 4 ? some_bytes() : peer_number();
    int error = transaction_allocate(transaction, n, &address);
    if (error)
        return;
    require(is_all(NOBODY, address, n));
    set_owner(&now, address, n, LENT);
}

static void free_there(void)
{
    uint64_t address = an_address(), n = 1 + some_bytes();
    if (n_freed == MOST_FREED)
        return;
    int error = transaction_free(transaction, address, n);
    require(error == (is_all(LENT, address, n) ? 0 : -EACCES));
    if (!error)
        freed[n_freed++] = (struct range){address, n};
}

static void read_there(void)
{
    static unsigned char bytes[MOST];
    uint64_t address = an_address(), n = some_bytes();
    int error = transaction_read(transaction, address, bytes, n);
    require(!error == (address <= store_size(store) && n <= store_size(store) - address));
    for (uint64_t i = 0; i < n && !error; i++)
        require(!now.is_known[address + i] || bytes[i] == now.bytes[address + i]);
}

/* ---- The end of a call ---- */

static void take(void)
{
    transaction_take(transaction);
    for (size_t i = 0; i < n_freed; i++)
        if (is_all(LENT, freed[i].address, freed[i].n))
            set_owner(&now, freed[i].address, freed[i].n, NOBODY);
}

static void copy_model(struct model *to, const struct model *from)
{
    memcpy(to->owner, from->owner, reach);
    memcpy(to->bytes, from->bytes, reach);
    memcpy(to->is_known, from->is_known, reach);
}

/* All that is in use is as it must be, by the store itself. */
static void compare(void)
{
    static unsigned char bytes[MOST];
    uint64_t n = store_size(store);
    require(n <= reach && store_read(store, 0, bytes, n) == 0);
    for (uint64_t i = 0; i < n; i++)
        require(!before.is_known[i] || before.owner[i] == NOBODY || bytes[i] == before.bytes[i]);
    for (uint64_t i = n; i < reach; i++)
        require(before.owner[i] == NOBODY);
}

static void end_call(void)
{
    bool is_taken = peer_byte() % 4;
    if (is_taken)
        take();
    else
        transaction_drop(transaction);
    copy_model(is_taken ? &before : &now, is_taken ? &now : &before);
    require(transaction_is_empty(transaction));
    n_freed = 0;
    compare();
}

/* ---- Others, who know nothing of the call ---- */

static void allocate_own(void)
{
    static unsigned char bytes[MOST];
    uint64_t address, n = 1 + some_bytes();
    if (store_allocate(store, n, &address) < 0)
        return;
    require(is_all(NOBODY, address, n));
    memset(bytes, 'o', n);
    require(store_write(store, address, bytes, n) == 0);
    struct model *models[] = {&now, &before};
    for (size_t i = 0; i < 2; i++) {
        set_owner(models[i], address, n, OWN);
        memset(models[i]->bytes + address, 'o', n);
        memset(models[i]->is_known + address, 1, n);
    }
}

static void hand_over(void)
{
    uint64_t address = an_address(), n = 1 + some_bytes();
    if (!is_all(OWN, address, n))
        return;
    store_hand_over(store, address, n);
    memset(now.owner + address, LENT, n);
    memset(before.owner + address, LENT, n);
}

static void commit(void)
{
    (void)store_commit(store);
}

static void do_something(void)
{
    static void (*const things[16])(void) = {
        write_there, write_there, write_there, allocate_there, allocate_there, allocate_there,
        free_there,  free_there,  read_there,  read_there,     allocate_own,   hand_over,
        commit,      end_call,    end_call,    end_call};
    things[peer_byte() % 16]();
}

/* ---- The store ---- */

static void *allocate_some(size_t n, enum sfs_image_operation operation, void *user_data)
{
    (void)operation, (void)user_data;
    return n > MOST ? NULL : malloc(n);
}

static void *reallocate_some(void *bytes, size_t n, enum sfs_image_operation operation,
                             void *user_data)
{
    (void)operation, (void)user_data;
    return n > MOST ? NULL : realloc(bytes, n);
}

bool peer_speaks(enum message_kind asked, struct cursor *last)
{
    (void)asked, (void)last;
    return false;
}

static void begin_model(void)
{
    set_owner(&now, 0, reach, NOBODY);
    set_owner(&now, 0, BYTES, LENT);
    memset(now.bytes, 0, BYTES);
    memset(now.is_known, 1, BYTES);
    copy_model(&before, &now);
    reach = BYTES;
    n_freed = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const struct sfs_image_callbacks callbacks = {.image_malloc = allocate_some,
                                                         .image_realloc = reallocate_some};
    const struct store_image how = {
        .name = "image", .copy = true, .writable = true, .callbacks = &callbacks};
    static unsigned char first[BYTES];
    be_quiet();
    peer_begin(bytes, n);
    require(store_open_image(first, BYTES, &how, &store) == 0);
    store_tell_own(store);
    require(transaction_create(store, &transaction) == 0);
    begin_model();
    while (!peer_is_over())
        do_something();
    transaction_destroy(transaction);
    require(store_close(store) == 0);
    return 0;
}
