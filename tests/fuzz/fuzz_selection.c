/* Encoded selections as an attacker writes them: whatever is accepted lies in the extent, and what
 * is made of it again decodes to the same; so it is as the selection of a region reference, which has
 * bounds. The first byte chooses the extent; in the others the
 * fuzzer gets the extent right for free. */
#include <stdlib.h>
#include <string.h>

#include "selection/selection.h"

#define MAX_BYTES ((size_t)1 << 22)

static void require(bool condition)
{
    if (!condition)
        abort();
}

static const struct {
    int rank;
    uint64_t dims[4];
} extents[] = {
    {2, {6, 10}},
    {1, {300}},
    {3, {3, 4, 5}},
    {4, {2, 1, 7, 3}},
    {0, {0}},
    {2, {70000, 70000}},
    {2, {(uint64_t)1 << 33, 4}},
    {1, {(uint64_t)1 << 50}},
};

static void encode_again(int rank, const uint64_t *dims, const struct runs *runs)
{
    for (int form = SELECTION_SMALLEST; form <= SELECTION_VERSION_1; form++) {
        struct selection again;
        const char *why;
        void *encoded;
        size_t n;
        if (selection_encode(rank, dims, NULL, runs, (enum selection_form)form, &encoded, &n) < 0) {
            require(form != SELECTION_SMALLEST);
            continue;
        }
        require(selection_decode(&(struct sfs_encoded){encoded, n}, rank, dims, 4 * MAX_BYTES,
                                 &again, &why) == 0);
        require(runs_equal(&again.runs, runs) && !again.order);
        selection_free(&again);
        free(encoded);
    }
}

/* A list of points, all of which stay, is as it was; of half of its runs nothing else stays. */
static void keep_points(const void *encoded, size_t n, int rank, const uint64_t *dims,
                        const struct selection *selection)
{
    struct runs half = {0};
    void *kept;
    size_t n_kept;
    require(selection_keep_points(&(struct sfs_encoded){encoded, n}, rank, dims, &selection->runs,
                                  &kept, &n_kept) == 0);
    require(!kept || (n_kept == n && memcmp(kept, encoded, n) == 0));
    bool are_points = kept;
    free(kept);
    for (size_t i = 0; i < selection->runs.n && are_points; i += 2)
        require(runs_append(&half, runs_at(&selection->runs, i).first,
                            runs_at(&selection->runs, i).last) == 0);
    if (half.n > 0) {
        struct selection again;
        const char *why;
        require(selection_keep_points(&(struct sfs_encoded){encoded, n}, rank, dims, &half, &kept,
                                      &n_kept) == 0 &&
                kept);
        require(selection_decode(&(struct sfs_encoded){kept, n_kept}, rank, dims, MAX_BYTES, &again,
                                 &why) == 0);
        require(runs_equal(&again.runs, &half));
        selection_free(&again);
        free(kept);
    }
    runs_free(&half);
}

/* What is selected of an extent is a region in bounds that hold its runs, and the same again. */
static void be_region(const void *encoded, size_t n, int rank, const uint64_t *dims,
                      const struct runs *runs)
{
    struct selection_region region;
    const char *why;
    void *bytes, *space;
    size_t bytes_n, space_n;
    require(selection_region_encode(&(struct sfs_encoded){encoded, n}, MAX_BYTES, &bytes, &bytes_n,
                                    &why) == 0);
    require(selection_region_bounds(bytes, bytes_n, &region, &why) == 0);
    require(region.is_empty == (runs->n == 0) || region.rank == 0);
    for (size_t i = 0; i < runs->n && region.rank > 0; i++) {
        uint64_t first = runs_at(runs, i).first;
        for (int axis = rank - 1; axis >= 0; first /= dims[axis--])
            require(region.first[axis] <= first % dims[axis] &&
                    first % dims[axis] <= region.last[axis] && region.last[axis] < dims[axis]);
    }
    require(selection_region_decode(bytes, bytes_n, rank, dims, MAX_BYTES, &space, &space_n,
                                    &why) == 0);
    require(space_n >= bytes_n && memcmp((char *)space + space_n - bytes_n, bytes, bytes_n) == 0);
    free(space);
    free(bytes);
}

/* Any bytes as a region: it is in an extent, or its bounds are not. */
static void try_region(const uint8_t *data, size_t size, int rank, const uint64_t *dims)
{
    struct selection_region region;
    const char *why = NULL;
    void *space;
    size_t n;
    bool is_one = selection_region_bounds(data, size, &region, &why) == 0;
    require(is_one || why);
    require(!is_one || (region.rank >= 0 && region.rank <= SFS_MAX_RANK));
    for (int i = 0; is_one && !region.is_empty && i < region.rank; i++)
        require(region.first[i] <= region.last[i]);
    if (selection_region_decode(data, size, rank, dims, MAX_BYTES, &space, &n, &why) == 0) {
        require(is_one && (region.rank == 0 || region.rank == rank));
        free(space);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    int rank = extents[data[0] % 8].rank;
    const uint64_t *dims = extents[data[0] % 8].dims;
    bool with_extent = data[0] & 0x80;
    data++, size--;

    void *head;
    size_t n_head;
    if (selection_encode_all(rank, dims, &head, &n_head) < 0)
        return 0;
    n_head = with_extent ? n_head - 16 : 0;
    unsigned char *encoded = malloc(n_head + size);
    if (!encoded)
        abort();
    memcpy(encoded, head, n_head);
    memcpy(encoded + n_head, data, size);
    free(head);

    struct selection selection;
    const char *why = NULL;
    int error = selection_decode(&(struct sfs_encoded){encoded, n_head + size}, rank, dims,
                                 MAX_BYTES, &selection, &why);
    if (!error) {
        keep_points(encoded, n_head + size, rank, dims, &selection);
        be_region(encoded, n_head + size, rank, dims, &selection.runs);
    }
    try_region(data, size, rank, dims);
    free(encoded);
    if (error < 0) {
        require(why && selection.runs.n == 0 && !selection.order);
        return 0;
    }
    uint64_t elements = 1, before = 0;
    for (int i = 0; i < rank; i++)
        elements *= dims[i];
    for (size_t i = 0; i < selection.runs.n; i++) {
        struct run run = runs_at(&selection.runs, i);
        require(run.first < run.last && run.last <= elements && (i == 0 || run.first > before));
        before = run.last;
    }
    for (uint64_t i = 0; selection.order && i < selection.runs.elements; i++)
        require(selection.order[i] < selection.values);
    encode_again(rank, dims, &selection.runs);
    selection_free(&selection);
    return 0;
}
