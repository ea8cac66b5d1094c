/* Attributes. libhdf5 cannot open a sparse dataset, but it can open attributes of an object that it
 * is given by name; so names are kept as they are seen. Where that is not enough it looks for one
 * itself, through all groups. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hdf5/local.h"
#include "hdf5/private.h"
#include "store/store.h"

#define MAX_SEEN 4096

void sfs_attributes_free(struct sfs_attributes *attributes)
{
    if (!attributes)
        return;
    for (size_t i = 0; i < attributes->n; i++) {
        free(attributes->attribute[i].name);
        free(attributes->attribute[i].text);
        free(attributes->attribute[i].json);
    }
    free(attributes->attribute);
    memset(attributes, 0, sizeof(*attributes));
}

/* ---- Names ---- */

static void forget(struct hdf5 *hdf5, struct seen *seen)
{
    HASH_DEL(hdf5->seen, seen);
    free(seen->name);
    free(seen);
}

void seen_clear(struct hdf5 *hdf5)
{
    struct seen *seen, *next;
    HASH_ITER (hh, hdf5->seen, seen, next) {
        forget(hdf5, seen);
    }
}

void seen_note(struct hdf5 *hdf5, uint64_t group, const char *name, uint64_t address)
{
    struct seen *seen;
    HASH_FIND(hh, hdf5->seen, &address, sizeof(address), seen);
    if (seen && seen->group == group && !strcmp(seen->name, name))
        return;
    if (seen)
        forget(hdf5, seen);
    else if (HASH_COUNT(hdf5->seen) == MAX_SEEN)
        forget(hdf5, hdf5->seen);
    seen = malloc(sizeof(*seen));
    char *own_name = strdup(name);
    if (seen && own_name) {
        *seen = (struct seen){.address = address, .group = group, .name = own_name};
        HASH_ADD(hh, hdf5->seen, address, sizeof(seen->address), seen);
        if (!hash_failed())
            return;
    }
    free(own_name);
    free(seen);
}

/* An object by a name in an open group, and what the caller needs to know of it. */
struct named_object {
    hid_t group;
    const char *name; /* as it was seen */
    H5O_info_t info;
};

/* Whether the name that was seen still leads to the object. If so *named is filled. */
static bool check_seen(struct hdf5 *hdf5, const struct seen *seen, hid_t lapl,
                       struct named_object *named)
{
    named->name = seen->name;
    named->group = H5Oopen_by_addr(hdf5->file, seen->group);
    if (named->group >= 0 &&
        H5Oget_info_by_name2(named->group, seen->name, &named->info,
                             H5O_INFO_BASIC | H5O_INFO_NUM_ATTRS, lapl) >= 0 &&
        named->info.addr == seen->address)
        return true;
    if (named->group >= 0)
        H5Oclose(named->group);
    named->group = H5I_INVALID_HID;
    H5Eclear2(H5E_DEFAULT);
    return false;
}

/* Lets libhdf5 look for a path to the object. */
static int search_name(struct hdf5 *hdf5, uint64_t address)
{
    haddr_t reference = address;
    ssize_t n = H5Rget_name(hdf5->file, H5R_OBJECT, &reference, NULL, 0);
    if (n <= 0)
        return library_failed(-EIO);
    char *path = malloc((size_t)n + 1);
    if (!path)
        return -ENOMEM;
    int error = 0;
    if (H5Rget_name(hdf5->file, H5R_OBJECT, &reference, path, (size_t)n + 1) < 0)
        error = library_failed(-EIO);
    else
        seen_note(hdf5, hdf5->root, path, address);
    free(path);
    return error;
}

#define NO_NAME "the object has no name that libhdf5 finds"

/* A group and a name in it that leads to the object. -EAGAIN: none is known, and it is not to be
 * searched for. */
static int find_name(struct hdf5 *hdf5, uint64_t address, hid_t lapl, bool search,
                     struct named_object *named)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        struct seen *seen;
        HASH_FIND(hh, hdf5->seen, &address, sizeof(address), seen);
        if (seen && check_seen(hdf5, seen, lapl, named))
            return 0;
        if (!search)
            return library_failed_because(-EAGAIN, NO_NAME);
        int error = attempt == 0 ? search_name(hdf5, address) : 0;
        if (error)
            return error;
    }
    return library_failed_because(-EIO, NO_NAME);
}

/* ---- One after the other ---- */

struct iteration {
    attribute_action action;
    void *context;
    int error;
};

static herr_t visit(hid_t object, const char *name, const H5A_info_t *info, void *data)
{
    (void)info;
    struct iteration *iteration = data;
    hid_t id = H5Aopen(object, name, H5P_DEFAULT);
    iteration->error = iteration->action(id, name, iteration->context);
    if (id >= 0)
        H5Aclose(id);
    return iteration->error ? -1 : 0;
}

static int visit_by_index(const struct named_object *named, hsize_t i, hid_t lapl,
                          struct iteration *iteration)
{
    hid_t group = named->group;
    const char *object = named->name;
    ssize_t n = H5Aget_name_by_idx(group, object, H5_INDEX_NAME, H5_ITER_INC, i, NULL, 0, lapl);
    if (n < 0)
        return library_failed(-EIO);
    char *name = malloc((size_t)n + 1);
    if (!name)
        return -ENOMEM;
    int error;
    if (H5Aget_name_by_idx(group, object, H5_INDEX_NAME, H5_ITER_INC, i, name, (size_t)n + 1,
                           lapl) < 0) {
        error = library_failed(-EIO);
    } else {
        hid_t id = H5Aopen_by_name(group, object, name, H5P_DEFAULT, lapl);
        error = iteration->action(id, name, iteration->context);
        if (id >= 0)
            H5Aclose(id);
    }
    free(name);
    return error;
}

static int visit_by_name(struct hdf5 *hdf5, uint64_t address, bool search,
                         struct iteration *iteration)
{
    struct named_object named;
    hid_t lapl = tree_link_access();
    if (lapl < 0)
        return library_failed(-EIO);
    int error = find_name(hdf5, address, lapl, search, &named);
    if (!error) {
        for (hsize_t i = 0; i < named.info.num_attrs && !error; i++)
            error = visit_by_index(&named, i, lapl, iteration);
        H5Oclose(named.group);
    }
    H5Pclose(lapl);
    return error;
}

static int each(struct hdf5 *hdf5, uint64_t address, attribute_action action, void *context,
                bool search)
{
    struct iteration iteration = {.action = action, .context = context};
    hid_t object = H5Oopen_by_addr(hdf5->file, address);
    if (object < 0) {
        H5Eclear2(H5E_DEFAULT);
        return visit_by_name(hdf5, address, search, &iteration);
    }
    int error = 0;
    if (H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, &iteration) < 0)
        error = iteration.error ? iteration.error : library_failed(-EIO);
    H5Oclose(object);
    return error;
}

int attributes_each(struct hdf5 *hdf5, uint64_t address, attribute_action action, void *context)
{
    return each(hdf5, address, action, context, true);
}

/* ---- As text ---- */

/* What is read under the library lock and becomes text without it. */
struct reading {
    const struct hdf5 *hdf5;
    uint64_t address;
    struct sfs_attributes names; /* of which text and json are filled in later */
    struct read_attribute *read; /* of each */
    bool has_references;
};

static void say_left_out(const struct reading *reading, const char *name)
{
    log_warning("%s: an attribute of the object at address %" PRIu64
                " is left out, as it is too large: %s",
                store_path(reading->hdf5->store), reading->address, name);
}

static int add_attribute(hid_t id, const char *name, void *context)
{
    struct reading *reading = context;
    size_t n = reading->names.n;
    struct sfs_attribute *names = reallocarray(reading->names.attribute, n + 1, sizeof(*names));
    if (names)
        reading->names.attribute = names;
    struct read_attribute *read = names ? reallocarray(reading->read, n + 1, sizeof(*read)) : NULL;
    if (!read)
        return -ENOMEM;
    reading->read = read;
    names[n] = (struct sfs_attribute){.name = strdup(name)};
    read[n] = (struct read_attribute){.native = H5I_INVALID_HID};
    if (!names[n].name)
        return -ENOMEM;
    reading->names.n++;
    /* One attribute that cannot be read must not hide the others. */
    int error = id < 0 ? -EIO : text_read_attribute(id, &read[n]);
    if (error == -EFBIG)
        say_left_out(reading, name);
    if (error) {
        H5Eclear2(H5E_DEFAULT);
        text_close_attribute(&read[n]);
        read[n] = (struct read_attribute){.native = H5I_INVALID_HID};
    }
    reading->has_references |= read[n].type.has_references;
    return error == -ENOMEM ? error : 0;
}

static void close_read(struct reading *reading)
{
    for (size_t i = 0; i < reading->names.n; i++)
        text_close_attribute(&reading->read[i]);
    free(reading->read);
    reading->read = NULL;
}

static int read_all(struct hdf5 *hdf5, uint64_t address, struct reading *reading)
{
    library_enter();
    int error = each(hdf5, address, add_attribute, reading, false);
    error = library_leave_with(error);
    if (error) {
        library_enter();
        close_read(reading);
        library_leave();
        sfs_attributes_free(&reading->names);
    }
    return error;
}

static int write_all(struct hdf5 *hdf5, struct reading *reading)
{
    struct text_source source = {.hdf5 = hdf5};
    int error = reading->has_references ? names_get(hdf5, &source.names) : 0;
    for (size_t i = 0; i < reading->names.n && !error; i++) {
        struct sfs_attribute *attribute = &reading->names.attribute[i];
        if (reading->read[i].native >= 0)
            error = text_attribute(&source, &reading->read[i], &attribute->text, &attribute->json);
        if (error == -EFBIG)
            say_left_out(reading, attribute->name);
        if (error == -EIO || error == -EFBIG)
            error = 0;
    }
    names_put(hdf5, source.names);
    return error;
}

/* Finds a name of an object that libhdf5 cannot open. */
static int note_name(struct hdf5 *hdf5, uint64_t address)
{
    struct names *names;
    char *path = NULL;
    int error = names_get(hdf5, &names);
    if (error)
        return error;
    error = names_path(names, address, &path);
    names_put(hdf5, names);
    if (error) {
        library_reason(NO_NAME);
        return error == -ENOMEM ? error : -EIO;
    }
    library_enter();
    seen_note(hdf5, hdf5->root, path, address);
    library_leave();
    free(path);
    return 0;
}

static int finish(struct hdf5 *hdf5, struct reading *reading, bool may_search,
                  struct sfs_attributes *out)
{
    bool is_at_hand = may_search || !reading->has_references || names_are_there(hdf5);
    int error = is_at_hand ? write_all(hdf5, reading) : -EAGAIN;
    library_enter();
    close_read(reading);
    library_leave();
    if (error)
        sfs_attributes_free(&reading->names);
    else
        *out = reading->names;
    return error;
}

int local_attributes_at_hand(struct hdf5 *hdf5, uint64_t address, struct sfs_attributes *out)
{
    struct reading reading = {.hdf5 = hdf5, .address = address};
    int error = read_all(hdf5, address, &reading);
    return error ? error : finish(hdf5, &reading, false, out);
}

int local_attributes(struct hdf5 *hdf5, uint64_t address, struct sfs_attributes *out)
{
    struct reading reading = {.hdf5 = hdf5, .address = address};
    int error = read_all(hdf5, address, &reading);
    if (error == -EAGAIN) {
        error = note_name(hdf5, address);
        if (!error)
            error = read_all(hdf5, address, &reading);
    }
    if (error)
        return error == -EAGAIN ? -EIO : error;
    return finish(hdf5, &reading, true, out);
}
