/* The whole dataset as one compressed-sparse-row matrix, a row per frame. Of a dense dataset every
 * row is full, so that both index arrays can be computed at any place; of a sparse one the numbers
 * of defined elements say where a row begins, and the selections of its frame what is in it. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/search.h"
#include "view/private.h"

/* scipy and LiberTEM take 32-bit column numbers where they suffice. */
size_t csr_index_item(const struct views *views)
{
    return views->frame_elements <= INT32_MAX ? sizeof(int32_t) : sizeof(int64_t);
}

static void write_dims(FILE *out, const char *key, int rank, const uint64_t *dims)
{
    fprintf(out, "%s = [", key);
    for (int i = 0; i < rank; i++)
        fprintf(out, "%s%" PRIu64, i ? ", " : "", dims[i]);
    fputs(rank ? "]\n" : "1]\n", out);
}

/* The sidecar file of LiberTEM's raw_csr format. */
int csr_toml(const struct views *views, struct view_head *head)
{
    FILE *out = head_begin(head);
    if (!out)
        return -ENOMEM;
    int nav_rank = views->info->rank - views->frame_rank;
    fputs("[params]\nfiletype = \"raw_csr\"\n", out);
    write_dims(out, "nav_shape", nav_rank, views->dims);
    write_dims(out, "sig_shape", views->frame_rank, views->dims + nav_rank);
    fputs("\n[raw_csr]\nindptr_file = \"indptr.raw\"\nindptr_dtype = \"<i8\"\n"
          "indices_file = \"indices.raw\"\n",
          out);
    fprintf(out, "indices_dtype = \"<i%zu\"\ndata_file = \"data.raw\"\ndata_dtype = ",
            csr_index_item(views));
    numpy_type(out, &views->info->type, NUMPY_JSON);
    fputs("\n", out);
    return head_end(out, head);
}

static void put_index(char *out, size_t item, uint64_t index)
{
    uint32_t narrow = htole32((uint32_t)index);
    uint64_t wide = htole64(index);
    if (item == sizeof(narrow))
        memcpy(out, &narrow, item);
    else
        memcpy(out, &wide, item);
}

int csr_indptr(const struct views *views, const struct counts *counts, uint64_t first, uint64_t n,
               char *out)
{
    size_t at = counts ? counts_find(counts, first) : 0;
    for (uint64_t frame = first; frame < first + n; frame++, out += CSR_INDPTR_ITEM) {
        put_index(out, CSR_INDPTR_ITEM,
                  counts ? counts->frame[at].before : frame * views->frame_elements);
        if (counts && at < counts->n && counts->frame[at].frame == frame)
            at++;
    }
    return 0;
}

/* ---- Defined elements, counted over all frames ---- */

struct sought {
    const struct counts *counts;
    uint64_t n;
};

static bool begins_behind(const void *context, size_t i)
{
    const struct sought *sought = context;
    return sought->counts->frame[i].before > sought->n;
}

/* The frame in which the n-th is. */
static size_t frame_with(const struct counts *counts, uint64_t n)
{
    const struct sought sought = {counts, n};
    return counts->n > 0 ? search_between(1, counts->n, begins_behind, &sought) - 1 : 0;
}

/* Does something with n of the defined elements of one frame, from the first-th on. */
typedef int (*elements_action)(struct views *views, const struct defined_frame *defined,
                               uint64_t first, uint64_t n, char *out);

/* What is made of them, and where it goes. */
struct element_output {
    elements_action action;
    size_t item; /* bytes for each element */
    char *out;
};

static int in_frame(struct views *views, const struct counts *counts,
                    const struct frame_count *count, uint64_t first, uint64_t n,
                    const struct element_output *output)
{
    struct defined_frame *defined;
    int error = defined_get(views, count->frame, DEFINED_INTERVALS, &defined);
    if (error)
        return error;
    if (defined->defined.elements != count[1].before - count->before)
        error = is_current(views, counts->changes) ? count_is_wrong(views, count->frame) : -EAGAIN;
    else
        error = output->action(views, defined, first, n, output->out);
    defined_put(views, defined);
    return error;
}

static int in_frames(struct views *views, const struct counts *counts, uint64_t first, uint64_t n,
                     struct element_output output)
{
    int error = 0;
    for (size_t at = n > 0 ? frame_with(counts, first) : 0; n > 0 && !error; at++) {
        const struct frame_count *count = &counts->frame[at];
        uint64_t left = count[1].before - first;
        uint64_t here = left < n ? left : n;
        error = in_frame(views, counts, count, first - count->before, here, &output);
        first += here;
        n -= here;
        output.out += here * output.item;
    }
    return error;
}

static int put_positions(struct views *views, const struct defined_frame *defined, uint64_t first,
                         uint64_t n, char *out)
{
    size_t item = csr_index_item(views);
    const struct sfs_interval *interval = defined->defined.interval;
    size_t i = search_interval(interval, defined->defined.n, first);
    for (; n > 0; n--, first++, out += item) {
        if (first == interval[i + 1].index)
            i++;
        put_index(out, item, interval[i].first + (first - interval[i].index));
    }
    return 0;
}

static int put_values(struct views *views, const struct defined_frame *defined, uint64_t first,
                      uint64_t n, char *out)
{
    struct sfs_slab slab = view_frame_slab(views, defined->frame);
    int error = sfs_read_values(views->dataset, &slab, &defined->defined, first, n, out);
    if (!error)
        show_elements(views, out, n);
    return error;
}

int csr_indices(struct views *views, const struct counts *counts, uint64_t first, uint64_t n,
                char *out)
{
    size_t item = csr_index_item(views);
    if (views->is_sparse)
        return in_frames(views, counts, first, n,
                         (struct element_output){put_positions, item, out});
    uint64_t index = first % views->frame_elements;
    for (uint64_t i = 0; i < n; i++, out += item) {
        put_index(out, item, index);
        if (++index == views->frame_elements)
            index = 0;
    }
    return 0;
}

int csr_data(struct views *views, const struct counts *counts, uint64_t first, uint64_t n,
             char *out)
{
    return in_frames(views, counts, first, n,
                     (struct element_output){put_values, views->info->type.size, out});
}
