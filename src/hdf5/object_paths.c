/* The paths of a file's objects by their addresses: what references are shown as. libhdf5 would
 * walk through all groups for every reference; here one walk finds all paths. It gives libhdf5's
 * lock up every few milliseconds, and what it has found is looked at without that lock.
 *
 * An object with several names has the one that is found first by going into each group as soon as
 * it is met, in libhdf5's own order, as libhdf5 does. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/growing_array.h"
#include "hdf5/private.h"

#define MOST_NAMES  (UINT32_C(1) << 21)
#define MOST_BYTES  ((size_t)64 << 20) /* of all names; both together: 128 MiB */
#define FIRST_SLOTS 1024
#define MOST_TRIES  3 /* while others change links */

struct name {
    uint64_t address;
    uint32_t group; /* index of the name of the group that it is in; of the root: 0, itself */
    uint32_t text;  /* its place in bytes */
};

struct names {
    unsigned users;   /* under the lock of struct hdf5; 1 more while they are kept */
    unsigned changes; /* of the links, that it is of */
    bool is_cut;      /* there are more objects than are kept */
    uint32_t n, room;
    struct name *name;
    uint32_t *slot; /* hash table with open addressing: index + 1 of a name, or 0 */
    uint32_t slots; /* a power of 2, more than twice n */
    char *bytes;    /* NUL-terminated names */
    size_t n_bytes, room_bytes;
};

/* ---- The table ---- */

static void destroy(struct names *names)
{
    if (!names)
        return;
    free(names->name);
    free(names->slot);
    free(names->bytes);
    free(names);
}

static uint32_t first_slot(const struct names *names, uint64_t address)
{
    return (uint32_t)(address * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (names->slots - 1);
}

/* The slot of an address, or the free one where it would be. */
static uint32_t *find_slot(const struct names *names, uint64_t address)
{
    uint32_t i = first_slot(names, address);
    while (names->slot[i] && names->name[names->slot[i] - 1].address != address)
        i = (i + 1) & (names->slots - 1);
    return &names->slot[i];
}

static int grow_slots(struct names *names)
{
    uint32_t slots = names->slots ? 2 * names->slots : FIRST_SLOTS;
    uint32_t *slot = calloc(slots, sizeof(*slot));
    if (!slot)
        return -ENOMEM;
    free(names->slot);
    names->slot = slot;
    names->slots = slots;
    for (uint32_t i = 0; i < names->n; i++)
        *find_slot(names, names->name[i].address) = i + 1;
    return 0;
}

/* Keeps the bytes of a name. -EFBIG: there are too many. */
static int add_text(struct names *names, const char *text, uint32_t *place)
{
    size_t n = strlen(text) + 1;
    if (n > MOST_BYTES - names->n_bytes)
        return -EFBIG;
    if (n > names->room_bytes - names->n_bytes) {
        size_t room = 2 * names->room_bytes + n;
        char *grown = realloc(names->bytes, room);
        if (!grown)
            return -ENOMEM;
        names->bytes = grown;
        names->room_bytes = room;
    }
    *place = (uint32_t)names->n_bytes;
    memcpy(names->bytes + names->n_bytes, text, n);
    names->n_bytes += n;
    return 0;
}

/* Adds the name of an object that has none yet. */
static int add_name(struct names *names, uint64_t address, uint32_t group, uint32_t text)
{
    if (names->n == MOST_NAMES)
        return -EFBIG;
    if (names->n == names->room) {
        uint32_t room = names->room ? 2 * names->room : FIRST_SLOTS / 2;
        struct name *grown = reallocarray(names->name, room, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        names->name = grown;
        names->room = room;
    }
    int error = names->n >= names->slots / 2 ? grow_slots(names) : 0;
    if (error)
        return error;
    names->name[names->n] = (struct name){address, group, text};
    *find_slot(names, address) = ++names->n;
    return 0;
}

int names_path(const struct names *names, uint64_t address, char **path)
{
    uint32_t found = *find_slot(names, address), i;
    size_t n = 1;
    if (!found)
        return names->is_cut ? -EFBIG : -ENOENT;
    for (i = found - 1; i > 0; i = names->name[i].group)
        n += strlen(names->bytes + names->name[i].text) + 1;
    char *at = malloc(n + 1);
    if (!at)
        return -ENOMEM;
    *path = at;
    strcpy(at, "/");
    at += n == 1 ? 1 : n - 1;
    *at = '\0';
    for (i = found - 1; i > 0; i = names->name[i].group) {
        const char *text = names->bytes + names->name[i].text;
        at -= strlen(text);
        memcpy(at, text, strlen(text));
        *--at = '/';
    }
    return 0;
}

/* ---- The walk ---- */

struct hard_link {
    uint64_t address;
    uint32_t text;
};

/* A group that is being walked through. */
struct level {
    struct level *above;
    uint32_t group;        /* index of its name */
    struct link_walk walk; /* until all its links are read */
    bool is_read;
    size_t n, room, next; /* links; the next to be looked at */
    struct hard_link *link;
};

struct building {
    struct hdf5 *hdf5;
    struct names *names;
    struct level *level; /* the innermost */
};

static int add_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    (void)group;
    struct building *building = context;
    struct level *level = building->level;
    if (info->type != H5L_TYPE_HARD)
        return 0;
    struct hard_link *grown = room_for_one(level->link, level->n, &level->room, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    level->link = grown;
    struct hard_link *link = &level->link[level->n];
    int error = add_text(building->names, name, &link->text);
    if (error)
        return error;
    link->address = info->u.address;
    level->n++;
    return 0;
}

static int enter_group(struct building *building, uint64_t address, uint32_t group)
{
    struct level *level = calloc(1, sizeof(*level));
    if (!level)
        return -ENOMEM;
    level->group = group;
    level->walk = (struct link_walk){.group = address, .action = add_link, .context = building};
    level->above = building->level;
    building->level = level;
    return 0;
}

static void leave_group(struct building *building)
{
    struct level *level = building->level;
    building->level = level->above;
    free(level->link);
    free(level);
}

static bool is_group(const struct hdf5 *hdf5, uint64_t address)
{
    haddr_t reference = address;
    H5O_type_t type;
    bool found =
        H5Rget_obj_type2(hdf5->file, H5R_OBJECT, &reference, &type) >= 0 && type == H5O_TYPE_GROUP;
    H5Eclear2(H5E_DEFAULT);
    return found;
}

static int look_at_link(struct building *building)
{
    struct level *level = building->level;
    const struct hard_link *link = &level->link[level->next++];
    if (*find_slot(building->names, link->address))
        return 0;
    int error = add_name(building->names, link->address, level->group, link->text);
    if (!error && is_group(building->hdf5, link->address))
        error = enter_group(building, link->address, building->names->n - 1);
    return error;
}

/* One step of the walk. Unreadable groups have no names; if links change meanwhile the table is
 * rebuilt. */
static int step(struct building *building)
{
    struct level *level = building->level;
    if (level->is_read && level->next == level->n) {
        leave_group(building);
        return 0;
    }
    if (level->is_read)
        return look_at_link(building);
    int error = tree_walk_links(building->hdf5, &level->walk);
    level->is_read = level->walk.is_done || error == -EIO;
    return error == -EIO ? 0 : error;
}

static int build_piece(struct building *building)
{
    uint64_t end = piece_begin();
    int error = 0;
    library_enter();
    while (building->level && !error && !piece_is_over(end))
        error = step(building);
    return library_leave_with(error);
}

static int build(struct hdf5 *hdf5, struct names **out)
{
    struct building building = {.hdf5 = hdf5, .names = calloc(1, sizeof(struct names))};
    struct names *names = building.names;
    uint32_t text;
    if (!names)
        return -ENOMEM;
    names->users = 1;
    names->changes = atomic_load(&hdf5->links_changed);
    int error = grow_slots(names);
    if (!error)
        error = add_text(names, "", &text);
    if (!error)
        error = add_name(names, hdf5->root, 0, text);
    if (!error)
        error = enter_group(&building, hdf5->root, 0);
    while (building.level && !error)
        error = build_piece(&building);
    while (building.level)
        leave_group(&building);
    if (error == -EFBIG) {
        names->is_cut = true;
        error = 0;
    }
    if (error)
        destroy(names);
    else
        *out = names;
    return error;
}

/* ---- What is kept ---- */

/* With the lock held. */
static void release(struct names *names)
{
    if (names && --names->users == 0)
        destroy(names);
}

static bool is_current(struct hdf5 *hdf5)
{
    return hdf5->names && hdf5->names->changes == atomic_load(&hdf5->links_changed);
}

int names_get(struct hdf5 *hdf5, struct names **names)
{
    int error = 0;
    pthread_mutex_lock(&hdf5->names_lock);
    for (int i = 0; i < MOST_TRIES && !error && !is_current(hdf5); i++) {
        release(hdf5->names);
        hdf5->names = NULL;
        error = build(hdf5, &hdf5->names);
    }
    if (!error) {
        hdf5->names->users++;
        *names = hdf5->names;
    }
    pthread_mutex_unlock(&hdf5->names_lock);
    return error;
}

bool names_are_there(struct hdf5 *hdf5)
{
    pthread_mutex_lock(&hdf5->names_lock);
    bool are_there = is_current(hdf5);
    pthread_mutex_unlock(&hdf5->names_lock);
    return are_there;
}

void names_put(struct hdf5 *hdf5, struct names *names)
{
    if (!names)
        return;
    pthread_mutex_lock(&hdf5->names_lock);
    release(names);
    pthread_mutex_unlock(&hdf5->names_lock);
}

void names_outdate(struct hdf5 *hdf5)
{
    atomic_fetch_add(&hdf5->links_changed, 1);
}

void names_clear(struct hdf5 *hdf5)
{
    release(hdf5->names);
    hdf5->names = NULL;
}
