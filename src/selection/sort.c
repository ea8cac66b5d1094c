/* Sorting of positions: a radix sort that looks only at the digits which positions can have, and
 * runs of intervals in any order. */
#include "selection/private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIGIT 11  /* bits: the counts of one digit stay in the first-level cache */
#define FEW   300 /* below this many, counting digits costs more than comparing */

static int compare(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

static void sort_by_digit(const struct pair *from, struct pair *to, size_t n, int shift)
{
    size_t place[1 << DIGIT] = {0}, sum = 0;
    for (size_t i = 0; i < n; i++)
        place[from[i].key >> shift & ((1 << DIGIT) - 1)]++;
    for (size_t i = 0; i < 1 << DIGIT; i++) {
        size_t count = place[i];
        place[i] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        to[place[from[i].key >> shift & ((1 << DIGIT) - 1)]++] = from[i];
}

void sort_pairs(struct pair *pairs, struct pair *spare, size_t n, uint64_t limit)
{
    if (n < FEW) {
        qsort(pairs, n, sizeof(*pairs), compare);
        return;
    }
    struct pair *from = pairs, *to = spare;
    for (int shift = 0; shift < 64 && (limit - 1) >> shift > 0; shift += DIGIT) {
        sort_by_digit(from, to, n, shift);
        struct pair *swap = from;
        from = to;
        to = swap;
    }
    if (from != pairs)
        memcpy(pairs, from, n * sizeof(*pairs));
}

int runs_of_pieces(const struct runs_piece *pieces, size_t n, uint64_t limit, struct runs *result)
{
    struct pair *pairs = reallocarray(NULL, n ? n : 1, 2 * sizeof(*pairs));
    struct runs out = {0};
    int error = pairs ? 0 : -ENOMEM;
    for (size_t i = 0; !error && i < n; i++)
        pairs[i] = (struct pair){pieces[i].first, pieces[i].length};
    if (!error)
        sort_pairs(pairs, pairs + n, n, limit ? limit : 1);
    for (size_t i = 0; !error && i < n; i++)
        error = runs_append(&out, pairs[i].key, pairs[i].key + pairs[i].value);
    free(pairs);
    if (error) {
        runs_free(&out);
        return error;
    }
    runs_free(result);
    *result = out;
    return 0;
}
