/* Encoded selections as an attacker writes them: whatever is accepted lies in the extent, and what
 * is made of it again decodes to the same. The first byte chooses the extent; in the others the
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
        require(selection_decode(encoded, n, rank, dims, 4 * MAX_BYTES, &again, &why) == 0);
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
    require(selection_keep_points(encoded, n, rank, dims, &selection->runs, &kept, &n_kept) == 0);
    require(!kept || (n_kept == n && memcmp(kept, encoded, n) == 0));
    bool are_points = kept;
    free(kept);
    for (size_t i = 0; i < selection->runs.n && are_points; i += 2)
        require(runs_append(&half, runs_at(&selection->runs, i).first,
                            runs_at(&selection->runs, i).last) == 0);
    if (half.n > 0) {
        struct selection again;
        const char *why;
        require(selection_keep_points(encoded, n, rank, dims, &half, &kept, &n_kept) == 0 && kept);
        require(selection_decode(kept, n_kept, rank, dims, MAX_BYTES, &again, &why) == 0);
        require(runs_equal(&again.runs, &half));
        selection_free(&again);
        free(kept);
    }
    runs_free(&half);
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
    int error = selection_decode(encoded, n_head + size, rank, dims, MAX_BYTES, &selection, &why);
    if (!error)
        keep_points(encoded, n_head + size, rank, dims, &selection);
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
