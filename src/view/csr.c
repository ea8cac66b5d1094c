/* The whole dataset as one compressed-sparse-row matrix, a row per frame. Of a dense dataset every
 * row is full, so that both index arrays can be computed at any place. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>

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
    write_dims(out, "nav_shape", nav_rank, views->info->dims);
    write_dims(out, "sig_shape", views->frame_rank, views->info->dims + nav_rank);
    fputs("\n[raw_csr]\nindptr_file = \"indptr.raw\"\nindptr_dtype = \"<i8\"\n"
          "indices_file = \"indices.raw\"\n",
          out);
    fprintf(out, "indices_dtype = \"<i%zu\"\ndata_file = \"data.raw\"\ndata_dtype = ",
            csr_index_item(views));
    numpy_type(out, &views->info->type, NUMPY_JSON);
    fputs("\n", out);
    return head_end(out, head);
}

void csr_indptr(const struct views *views, uint64_t first, size_t n, int64_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (int64_t)(htole64((first + i) * views->frame_elements));
}

void csr_indices(const struct views *views, uint64_t first, size_t n, void *out)
{
    uint64_t index = first % views->frame_elements;
    int32_t *narrow = out;
    int64_t *wide = out;
    bool is_narrow = csr_index_item(views) == sizeof(*narrow);
    for (size_t i = 0; i < n; i++) {
        if (is_narrow)
            narrow[i] = (int32_t)htole32((uint32_t)index);
        else
            wide[i] = (int64_t)htole64(index);
        if (++index == views->frame_elements)
            index = 0;
    }
}
