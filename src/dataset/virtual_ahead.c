/* The chunks of the sources that a box of a virtual dataset consists of, for reading ahead. */
#include "dataset/virtual_dataset.h"

#include <errno.h>

#include "common/interrupt.h"
#include "dataset/virtual_part.h"

/* Of virtual datasets that are sources of each other, each by many mappings, a box can have any number of parts. */
#define MOST_PARTS 4096

/* So many sources that cannot be opened, when sources are opened ahead for a request: it waits for that. */
#define MOST_FAILURES 4

struct visitor {
    virtual_visit_fn *visit;
    size_t left_bytes;   /* of chunks that may still be visited */
    unsigned left_parts; /* the same, of sources; those that have nothing of the box count, too */
};

static bool visit_box(struct sfs_dataset *dataset, const struct box *box, struct visitor *visitor,
                      int depth);

static bool take_part(unsigned *left)
{
    bool is_left = *left > 0;
    *left -= is_left;
    return is_left;
}

/* Whether there is room for so many chunks, which is then taken. */
static bool take_room(struct visitor *visitor, const struct layout *layout,
                      const struct box *chunks)
{
    uint64_t bytes;
    if (!box_product(chunks->count, chunks->rank, layout->chunk_bytes, &bytes) ||
        bytes > visitor->left_bytes)
        return false;
    visitor->left_bytes -= bytes;
    return true;
}

static bool visit_chunks(const struct sfs_dataset *dataset, const struct box *box,
                         struct visitor *visitor)
{
    const struct layout *layout = &dataset->layout;
    struct box chunks = {.rank = box->rank};
    uint64_t scaled[SFS_MAX_RANK], n = 0;
    for (int i = 0; i < box->rank; i++) {
        chunks.start[i] = box->start[i] / layout->chunk_dims[i];
        chunks.count[i] =
            (box->start[i] + box->count[i] - 1) / layout->chunk_dims[i] + 1 - chunks.start[i];
    }
    bool goes_on = true;
    if (dataset_decodes(dataset) && take_room(visitor, layout, &chunks))
        n = box_elements(&chunks);
    for (uint64_t k = 0; k < n && goes_on; k++) {
        uint64_t rest = k;
        for (int i = box->rank; i-- > 0; rest /= chunks.count[i])
            scaled[i] = chunks.start[i] + rest % chunks.count[i];
        goes_on = visitor->visit(dataset->cache, scaled);
    }
    return goes_on;
}

/* Whether all chunks that a box of a source touches have something of what is wanted: the gaps of
 * its selection are shorter than they are. */
static bool is_dense(const struct translation *translation, const struct layout *layout,
                     const struct box *source)
{
    for (int i = 0; i < source->rank; i++) {
        const struct hdf5_axis *axis = &translation->source[i];
        int shown = translation->pair[i];
        uint64_t n = shown < 0 ? 1 : translation->end[shown] - translation->first[shown];
        if (source->count[i] > n && axis->stride - axis->block >= layout->chunk_dims[i])
            return false;
    }
    return true;
}

/* The box of one source in which the chunks are what a mapping has of a box; false: nothing, or
 * others lie between, or it is no box. */
static bool find_in_source(struct virtual_part *part, const struct box *box, struct box *source)
{
    struct translation *translation = &part->translation;
    const struct layout *layout = &part->dataset->layout;
    struct box shown;
    if (part->is_in_order || !translation_want(translation, box))
        return false;
    (void)translation_clip(translation, layout->dims);
    if (translation_elements(translation) == 0)
        return false;
    translation_boxes(translation, translation->first, translation->end, &shown, source);
    return is_dense(translation, layout, source);
}

static bool visit_mapping(struct virtual *virtual, const struct mapping *mapping,
                          const struct box *box, struct visitor *visitor, int depth)
{
    uint64_t end = mapping_blocks_end(mapping, box);
    bool goes_on = true;
    for (uint64_t block = mapping_blocks_begin(mapping, box); block < end && goes_on; block++) {
        struct virtual_part part;
        struct call call;
        goes_on = take_part(&visitor->left_parts) &&
                  part_try_begin(&part, virtual, mapping, block, &call);
        if (goes_on) {
            struct box source;
            if (find_in_source(&part, box, &source))
                goes_on = visit_box(part.dataset, &source, visitor, depth + 1);
            part_try_end(&part, &call);
        }
    }
    return goes_on;
}

static bool visit_mappings(struct virtual *virtual, const struct box *box, struct visitor *visitor,
                           int depth)
{
    struct touched touched;
    if (depth >= VIRTUAL_DEPTH || atomic_load(&virtual->is_librarys))
        return false;
    bool goes_on = touched_find(virtual, box, &touched) == 0;
    for (size_t i = 0; i < touched.n && goes_on; i++)
        goes_on = visit_mapping(virtual, touched.mapping[i], box, visitor, depth);
    touched_free(&touched);
    return goes_on;
}

static bool visit_box(struct sfs_dataset *dataset, const struct box *box, struct visitor *visitor,
                      int depth)
{
    return dataset->virtual ? visit_mappings(dataset->virtual, box, visitor, depth)
                            : visit_chunks(dataset, box, visitor);
}

bool virtual_visit(struct virtual *virtual, const struct box *box, size_t most_bytes,
                   virtual_visit_fn *visit)
{
    struct visitor visitor = {.visit = visit, .left_bytes = most_bytes, .left_parts = MOST_PARTS};
    return visit_mappings(virtual, box, &visitor, 0) || visitor.left_parts == 0;
}

/* What opening sources may still take. */
struct opener {
    unsigned left_parts;    /* as of a visitor */
    unsigned left_failures; /* each may have taken long */
};

static int open_sources(struct virtual *virtual, const struct box *box, struct opener *opener,
                        int depth);

/* One that could not be opened the last time is left to the read. */
static int open_source(struct virtual *virtual, const struct mapping *mapping, uint64_t block,
                       const struct box *box, struct opener *opener, int depth)
{
    struct source *source = mapping->of;
    struct known *numbered = NULL;
    struct sfs_dataset *dataset;
    struct virtual_part part;
    struct call call;
    int error = source ? 0 : mapping_numbered(virtual, mapping, block, &numbered);
    if (!error && numbered)
        source = numbered->source;
    bool is_left = !error && source_has_failed(source);
    if (!error && !is_left)
        error = source_get(source, true, &dataset);
    if (error || is_left) {
        mapping_let_go(virtual, numbered);
        return error;
    }
    if (dataset->virtual && part_try_begin(&part, virtual, mapping, block, &call)) {
        struct box of_source;
        if (find_in_source(&part, box, &of_source))
            error = open_sources(dataset->virtual, &of_source, opener, depth + 1);
        part_try_end(&part, &call);
    }
    source_put(source);
    mapping_let_go(virtual, numbered);
    return error;
}

/* A source that cannot be opened keeps no other from it, but several do. */
static int open_part(struct virtual *virtual, const struct mapping *mapping, uint64_t block,
                     const struct box *box, struct opener *opener, int depth)
{
    int error = interrupt_check();
    if (!error)
        error = take_part(&opener->left_parts)
                    ? open_source(virtual, mapping, block, box, opener, depth)
                    : -E2BIG;
    if (!error || error == -E2BIG || error == -EINTR)
        return error;
    return --opener->left_failures > 0 ? 0 : -E2BIG;
}

static int open_sources(struct virtual *virtual, const struct box *box, struct opener *opener,
                        int depth)
{
    struct touched touched;
    if (depth >= VIRTUAL_DEPTH || atomic_load(&virtual->is_librarys))
        return 0;
    int error = touched_find(virtual, box, &touched);
    for (size_t i = 0; i < touched.n && !error; i++) {
        const struct mapping *mapping = touched.mapping[i];
        uint64_t end = mapping_blocks_end(mapping, box);
        for (uint64_t block = mapping_blocks_begin(mapping, box); block < end && !error; block++)
            error = open_part(virtual, mapping, block, box, opener, depth);
    }
    touched_free(&touched);
    return error;
}

void virtual_open_sources(struct virtual *virtual, const struct box *box)
{
    struct opener opener = {.left_parts = MOST_PARTS, .left_failures = MOST_FAILURES};
    (void)open_sources(virtual, box, &opener, 0);
}
