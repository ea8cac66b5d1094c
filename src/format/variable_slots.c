#include "format/variable_slots.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "format/cursor.h"
#include "format/output.h"
#include "format/section_heap.h"

#define ALIGNMENT 16 /* of what is put into memory */

/* ---- Datatypes ---- */

static int too_large(struct why *why)
{
    return why_refused(why, -EOPNOTSUPP, "an element has too many bytes");
}

static int compare_offsets(const void *a, const void *b)
{
    const struct sfs_member *left = a, *right = b;
    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

/* What follows a member that has another size is moved, as libhdf5 does. */
static int place_members(struct sfs_type *type, struct why *why)
{
    size_t before = 0, after = 0; /* bytes of the members so far, in memory and as stored */
    int error = 0;
    qsort(type->members, type->n_members, sizeof(*type->members), compare_offsets);
    for (size_t i = 0; i < type->n_members && !error; i++) {
        struct sfs_member *member = &type->members[i];
        if (member->offset < before && before != after)
            return why_refused(why, -EOPNOTSUPP, "members of a compound lie over each other");
        member->offset = size_sum(member->offset, after) - before;
        size_t size = member->type.size;
        error = slots_as_stored(&member->type, why);
        before = size_sum(before, size);
        after = size_sum(after, member->type.size);
    }
    type->size = size_sum(type->size, after) - before;
    return error ? error : after < SIZE_MAX / 2 ? 0 : too_large(why);
}

static int place_base(struct sfs_type *type, struct why *why)
{
    size_t size = type->base->size;
    int error = slots_as_stored(type->base, why);
    if (type->class == SFS_VARIABLE)
        type->size = HEAP_ELEMENT_BYTES;
    else if (!error)
        type->size = size_product(type->size / size, type->base->size);
    return error ? error : type->size < SIZE_MAX / 2 ? 0 : too_large(why);
}

int slots_as_stored(struct sfs_type *type, struct why *why)
{
    if (!type->has_pointers)
        return 0;
    if (type->class == SFS_COMPOUND)
        return place_members(type, why);
    if (type->base)
        return place_base(type, why);
    type->size = HEAP_ELEMENT_BYTES; /* strings, references */
    return 0;
}

/* Slots while they are found. */
struct finding {
    struct slots *all; /* the first, which others follow */
    size_t n;          /* of all that were found */
    struct why *why;
};

static struct slots *new_slots(struct finding *finding, size_t size)
{
    struct slots *slots = calloc(1, sizeof(*slots));
    if (!slots)
        return NULL;
    slots->size = size;
    if (finding->all) {
        slots->next = finding->all->next;
        finding->all->next = slots;
    } else {
        finding->all = slots;
    }
    return slots;
}

static int too_many(struct finding *finding)
{
    return why_refused(finding->why, -EOPNOTSUPP,
                       "an element has more than %d parts of variable length", SLOTS_MOST);
}

static int add_slots(struct finding *finding, struct slots *to, const struct slot *slot, size_t n)
{
    if (n > SLOTS_MOST - finding->n)
        return too_many(finding);
    struct slot *grown = reallocarray(to->slot, to->n + n, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    memcpy(grown + to->n, slot, n * sizeof(*slot));
    to->slot = grown;
    to->n += n;
    finding->n += n;
    return 0;
}

static int find_reference(struct finding *finding, const struct sfs_type *type, size_t at,
                          struct slots *to)
{
    if (type->reference == SFS_REFERENCE_ANY)
        return why_refused(finding->why, -EOPNOTSUPP,
                           "references of this kind (H5T_STD_REF) cannot be sparse");
    struct slots *bytes = new_slots(finding, 1);
    if (!bytes)
        return -ENOMEM;
    bytes->is_reference = true;
    bytes->reference = type->reference;
    to->has_references = true;
    return add_slots(finding, to, &(struct slot){.at = at, .base = bytes}, 1);
}

static int find(struct finding *finding, const struct sfs_type *type, size_t at, struct slots *to);
static int find_all(struct finding *finding, const struct sfs_type *type, struct slots *slots);

static int find_sequence(struct finding *finding, const struct sfs_type *type, size_t at,
                         struct slots *to)
{
    struct slots *base = new_slots(finding, type->is_string ? 1 : type->base->size);
    struct slot slot = {.at = at, .base = base};
    int error = base ? 0 : -ENOMEM;
    if (!error && !type->is_string)
        error = find_all(finding, type->base, base);
    if (!error)
        to->has_references |= base->has_references;
    return error ? error : add_slots(finding, to, &slot, 1);
}

/* Those of the first element, and the same for each of the others. */
static int find_array(struct finding *finding, const struct sfs_type *type, size_t at,
                      struct slots *to)
{
    size_t first = to->n, size = type->base->size, n = type->size / size;
    int error = find(finding, type->base, at, to);
    size_t here = to->n - first;
    if (error || here == 0 || n < 2)
        return error;
    if (n > SLOTS_MOST / here)
        return too_many(finding);
    struct slot *copy = reallocarray(NULL, (n - 1) * here, sizeof(*copy));
    if (!copy)
        return -ENOMEM;
    for (size_t i = 0; i < (n - 1) * here; i++) {
        copy[i] = to->slot[first + i % here];
        copy[i].at += (1 + i / here) * size;
    }
    error = add_slots(finding, to, copy, (n - 1) * here);
    free(copy);
    return error;
}

static int find(struct finding *finding, const struct sfs_type *type, size_t at, struct slots *to)
{
    int error = 0;
    if (!type->has_pointers)
        return 0;
    if (type->class == SFS_VARIABLE)
        return find_sequence(finding, type, at, to);
    if (type->class == SFS_ARRAY)
        return find_array(finding, type, at, to);
    if (type->class == SFS_REFERENCE)
        return find_reference(finding, type, at, to);
    for (size_t i = 0; i < type->n_members && !error; i++)
        error = find(finding, &type->members[i].type, at + type->members[i].offset, to);
    return error;
}

static int compare_slots(const void *a, const void *b)
{
    const struct slot *left = a, *right = b;
    return left->at < right->at ? -1 : left->at > right->at;
}

/* Of all of an element. */
static int find_all(struct finding *finding, const struct sfs_type *type, struct slots *slots)
{
    int error = find(finding, type, 0, slots);
    size_t end = 0;
    if (error || slots->n == 0)
        return error;
    qsort(slots->slot, slots->n, sizeof(*slots->slot), compare_slots);
    for (size_t i = 0; i < slots->n; i++) {
        size_t at = slots->slot[i].at;
        if (at < end || at > slots->size || slots->size - at < HEAP_ELEMENT_BYTES)
            return why_refused(finding->why, -EOPNOTSUPP,
                               "parts of variable length lie over each other");
        end = at + HEAP_ELEMENT_BYTES;
    }
    return 0;
}

int slots_of_type(const struct sfs_type *type, struct slots **slots, struct why *why)
{
    struct finding finding = {.why = why};
    int error = new_slots(&finding, type->size) ? 0 : -ENOMEM;
    if (!error)
        error = find_all(&finding, type, finding.all);
    if (error)
        slots_free(finding.all);
    else
        *slots = finding.all;
    return error;
}

void slots_free(struct slots *slots)
{
    while (slots) {
        struct slots *next = slots->next;
        free(slots->slot);
        free(slots);
        slots = next;
    }
}

size_t slots_bytes(const struct slots *slots)
{
    size_t n = 0;
    for (; slots; slots = slots->next)
        n += sizeof(*slots) + slots->n * sizeof(*slots->slot) + SIZE_OF_ALLOCATION;
    return n;
}

bool slots_are_plain(const struct slots *slots)
{
    return slots->n == 1 && slots->size == HEAP_ELEMENT_BYTES && slots->slot->base->n == 0;
}

/* ---- Storing ---- */

struct sfs_sequence slot_get(const void *slot)
{
    struct sfs_sequence sequence;
    memcpy(&sequence, slot, sizeof(sequence));
    return sequence;
}

void slot_put(void *slot, const void *elements, uint64_t n)
{
    const struct sfs_sequence sequence = {.elements = elements, .n = n};
    memcpy(slot, &sequence, sizeof(sequence));
}

/* Bytes that an element takes whose sequences are empty. */
static size_t least_bytes(const struct slots *slots)
{
    return slots->size - slots->n * (HEAP_ELEMENT_BYTES - SLOTS_COUNT);
}

size_t slot_stored_bytes(const struct slots *base, const struct sfs_sequence *sequence)
{
    size_t n = size_of(sequence->n), bytes = size_product(n, least_bytes(base));
    const char *element = sequence->elements;
    if (size_product(n, base->size) == SIZE_MAX || base->n == 0)
        return size_product(n, base->size) == SIZE_MAX ? SIZE_MAX : bytes;
    for (size_t i = 0; i < n && bytes < SIZE_MAX; i++, element += base->size) {
        for (size_t k = 0; k < base->n; k++) {
            struct sfs_sequence inner = slot_get(element + base->slot[k].at);
            bytes = size_sum(bytes, slot_stored_bytes(base->slot[k].base, &inner));
        }
    }
    return bytes;
}

/* Returns where it ends. */
static char *put_bytes(char *to, const char *from, size_t n)
{
    if (n > 0)
        memcpy(to, from, n);
    return to + n;
}

static char *store_element(const struct slots *slots, const char *element, char *to)
{
    size_t done = 0;
    for (size_t k = 0; k < slots->n; k++) {
        const struct slot *slot = &slots->slot[k];
        struct sfs_sequence inner = slot_get(element + slot->at);
        to = put_bytes(to, element + done, slot->at - done);
        struct output count = output_over(to, SLOTS_COUNT);
        output_uint(&count, inner.n, SLOTS_COUNT);
        to = slot_store(slot->base, &inner, to + SLOTS_COUNT);
        done = slot->at + HEAP_ELEMENT_BYTES;
    }
    return put_bytes(to, element + done, slots->size - done);
}

char *slot_store(const struct slots *base, const struct sfs_sequence *sequence, char *to)
{
    const char *element = sequence->elements;
    size_t n = (size_t)sequence->n;
    if (base->n == 0)
        return put_bytes(to, element, n * base->size);
    for (size_t i = 0; i < n; i++)
        to = store_element(base, element + i * base->size, to);
    return to;
}

/* ---- Loading ---- */

/* Going through what is stored. Without memory it is only looked how much of it there is to be. */
struct load {
    struct cursor cursor;
    char *memory;
    size_t offset, used;
    slots_reference call; /* for references on the way, unless NULL */
    void *context;
    int error; /* of it */
};

/* Where n elements begin, in bytes from memory on. */
static size_t reserve(struct load *load, const struct slots *base, uint64_t n)
{
    size_t at = load->used, bytes = size_product(size_of(n), base->size);
    size_t padded = size_sum(bytes, ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    load->used = size_sum(at, padded < bytes ? SIZE_MAX : padded);
    return at;
}

static void take_bytes(struct load *load, char *to, size_t n)
{
    const unsigned char *from = cursor_bytes(&load->cursor, n);
    if (from && to && n > 0)
        memcpy(to, from, n);
}

static void take_elements(struct load *load, const struct slots *base, uint64_t n, char *to);

static void take_inner(struct load *load, const struct slots *base, char *slot)
{
    uint64_t n = cursor_uint(&load->cursor, SLOTS_COUNT);
    if (load->cursor.failed || n > load->cursor.left / least_bytes(base)) {
        load->cursor.failed = true;
        return;
    }
    if (base->is_reference && load->call)
        load->error = load->call(load->context, base->reference,
                                 &(struct sfs_sequence){.elements = load->cursor.at, .n = n});
    if (load->error) {
        load->cursor.failed = true;
        return;
    }
    size_t at = reserve(load, base, n);
    char *elements = load->memory ? load->memory + at : NULL;
    if (slot) {
        const struct sfs_sequence sequence = {.width = n ? load->offset + at : 0, .n = n};
        memcpy(slot, &sequence, sizeof(sequence));
    }
    take_elements(load, base, n, elements);
}

static void take_element(struct load *load, const struct slots *base, char *to)
{
    size_t done = 0;
    for (size_t k = 0; k < base->n && !load->cursor.failed; k++) {
        size_t at = base->slot[k].at;
        take_bytes(load, to ? to + done : NULL, at - done);
        take_inner(load, base->slot[k].base, to ? to + at : NULL);
        done = at + HEAP_ELEMENT_BYTES;
    }
    take_bytes(load, to ? to + done : NULL, base->size - done);
}

static void take_elements(struct load *load, const struct slots *base, uint64_t n, char *to)
{
    if (base->n == 0) {
        take_bytes(load, to, (size_t)n * base->size);
        return;
    }
    for (uint64_t i = 0; i < n && !load->cursor.failed; i++)
        take_element(load, base, to ? to + i * base->size : NULL);
}

int slot_measure(const struct slots *base, const void *stored, size_t n, uint64_t *elements,
                 size_t *bytes, struct why *why)
{
    struct load load = {.cursor = cursor_over(stored, n)};
    *elements = 0;
    if (base->n == 0) {
        *elements = n / base->size;
        load.cursor.failed = n % base->size != 0;
    }
    while (base->n > 0 && load.cursor.left > 0 && !load.cursor.failed) {
        take_element(&load, base, NULL);
        ++*elements;
    }
    if (load.cursor.failed)
        return why_damaged(why, "%zu bytes of variable-length data are no sequence", n);
    reserve(&load, base, *elements);
    *bytes = load.used;
    return 0;
}

void slot_load(const struct slots *base, const void *stored, size_t n, uint64_t elements,
               char *memory, size_t offset)
{
    struct load load = {.cursor = cursor_over(stored, n), .memory = memory, .offset = offset};
    take_elements(&load, base, elements, memory + reserve(&load, base, elements));
}

/* ---- References ---- */

static int call_inner(const struct slots *base, const char *slot, slots_reference call,
                      void *context)
{
    struct sfs_sequence sequence = slot_get(slot);
    const struct sfs_sequence before = sequence;
    if (!base->is_reference)
        return slots_references(base, sequence.elements, sequence.n, call, context);
    int error = call(context, base->reference, &sequence);
    if (!error && (sequence.n != before.n || sequence.elements != before.elements))
        slot_put((void *)slot, sequence.n ? sequence.elements : NULL, sequence.n);
    return error;
}

int slots_references(const struct slots *slots, const void *elements, uint64_t n,
                     slots_reference call, void *context)
{
    const char *element = elements;
    int error = 0;
    if (!slots->has_references)
        return 0;
    for (uint64_t i = 0; i < n && !error; i++, element += slots->size)
        for (size_t k = 0; k < slots->n && !error; k++)
            error = call_inner(slots->slot[k].base, element + slots->slot[k].at, call, context);
    return error;
}

int slot_references(const struct slots *base, const void *stored, size_t n, slots_reference call,
                    void *context)
{
    struct load load = {.cursor = cursor_over(stored, n), .call = call, .context = context};
    if (base->is_reference)
        return call(context, base->reference, &(struct sfs_sequence){{stored}, n});
    while (base->has_references && load.cursor.left > 0 && !load.cursor.failed)
        take_element(&load, base, NULL);
    return load.error;
}

/* ---- Pointers ---- */

void slots_relocate(const struct slots *slots, char *elements, uint64_t n, char *to)
{
    for (uint64_t i = 0; i < n && slots->n > 0; i++, elements += slots->size) {
        for (size_t k = 0; k < slots->n; k++) {
            char *slot = elements + slots->slot[k].at;
            struct sfs_sequence sequence = slot_get(slot);
            char *inner = sequence.n ? to + sequence.width : NULL;
            slot_put(slot, inner, sequence.n);
            slots_relocate(slots->slot[k].base, inner, sequence.n, to);
        }
    }
}
