/* Sums over squares around every element, in time that is that of a few additions for each,
 * whatever their values. Nothing is ever subtracted from a sum: a large value that a window has
 * left behind would leave its rounding error there. */
#include "cli/above_sigma.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define OUTER    7               /* elements on either side, of the whole square, */
#define INNER    3               /* and of the one that is left out */
#define ROWS     (2 * OUTER + 1) /* that have a part in a background */
#define BRIGHT   2.5             /* sigma */
#define SMALLEST 1e-14 /* variance, of the mean of squares: less is what rounding has left */

enum { COUNT, SUM, SQUARES, SUMS };

/* Of the rows around the current one; row y is in slot y % ROWS. */
struct rows {
    size_t width;
    double *padded, *two, *four; /* a row with OUTER elements more on either side */
    double *values[ROWS];
    double *outer[ROWS][SUMS]; /* sums of ROWS neighbours in a row, */
    double *sides[ROWS][SUMS]; /* without those in the middle */
    double *total[SUMS];       /* of the background */
    double *memory;
};

static int rows_init(struct rows *rows, size_t width)
{
    size_t wide = width + 2 * OUTER, n = 0, wanted;
    size_t each = (3 + ROWS * (1 + 2 * SUMS) + SUMS) * sizeof(double);
    double *at = __builtin_mul_overflow(wide, each, &wanted) ? NULL : malloc(wanted);
    *rows = (struct rows){.width = width, .memory = at};
    if (!at)
        return -ENOMEM;
    rows->padded = at + n++ * wide;
    rows->two = at + n++ * wide;
    rows->four = at + n++ * wide;
    for (size_t y = 0; y < ROWS; y++) {
        rows->values[y] = at + n++ * wide;
        for (int i = 0; i < SUMS; i++) {
            rows->outer[y][i] = at + n++ * wide;
            rows->sides[y][i] = at + n++ * wide;
        }
    }
    for (int i = 0; i < SUMS; i++)
        rows->total[i] = at + n++ * wide;
    return 0;
}

/* Sums of neighbours in the padded row, by way of sums of two and of four. */
static void add_neighbours(const struct rows *rows, double *outer, double *sides)
{
    const double *one = rows->padded;
    double *two = rows->two, *four = rows->four;
    size_t width = rows->width, wide = width + 2 * OUTER;
    for (size_t i = 0; i + 1 < wide; i++)
        two[i] = one[i] + one[i + 1];
    for (size_t i = 0; i + 3 < wide; i++)
        four[i] = two[i] + two[i + 2];
    for (size_t x = 0; x < width; x++) {
        sides[x] = four[x] + four[x + OUTER + INNER + 1];
        outer[x] = (four[x] + four[x + 4]) + (four[x + 8] + (two[x + 12] + one[x + 14]));
    }
}

/* Brings row y in. Those that are bright are in no background. */
static void take_row(struct rows *rows, const struct image *image, const unsigned char *bright,
                     size_t y)
{
    size_t width = rows->width, slot = y % ROWS;
    const unsigned char *good = image->good + y * width;
    double *values = rows->values[slot], *one = rows->padded + OUTER;
    image->take_row(image->context, y, values);
    memset(rows->padded, 0, (width + 2 * OUTER) * sizeof(double));
    for (int i = 0; i < SUMS; i++) {
        for (size_t x = 0; x < width; x++) {
            double value = i == COUNT ? 1 : i == SUM ? values[x] : values[x] * values[x];
            one[x] = good[x] && !(bright && bright[y * width + x]) ? value : 0;
        }
        add_neighbours(rows, rows->outer[slot][i], rows->sides[slot][i]);
    }
}

/* Row y, when all rows that have a part in its backgrounds are in. */
static void judge_row(struct rows *rows, const struct image *image, size_t y, double sigma,
                      unsigned char *found)
{
    size_t width = rows->width, end = y + OUTER < image->height ? y + OUTER + 1 : image->height;
    const unsigned char *good = image->good + y * width;
    for (int i = 0; i < SUMS; i++) {
        double *total = rows->total[i];
        memset(total, 0, width * sizeof(*total));
        for (size_t k = y > OUTER ? y - OUTER : 0; k < end; k++) {
            bool is_middle = k + INNER >= y && k <= y + INNER;
            const double *row = (is_middle ? rows->sides : rows->outer)[k % ROWS][i];
            for (size_t x = 0; x < width; x++)
                total[x] += row[x];
        }
    }
    const double *values = rows->values[y % ROWS];
    for (size_t x = 0; x < width; x++) {
        double n = rows->total[COUNT][x], mean = rows->total[SUM][x] / n;
        double squares = rows->total[SQUARES][x] / n, variance = squares - mean * mean;
        double above = values[x] - mean;
        variance = variance > SMALLEST * squares ? variance : SMALLEST * squares;
        found[y * width + x] = good[x] && n >= BACKGROUND_LEAST && above > 0 &&
                               above * above > sigma * sigma * variance;
    }
}

static void find(struct rows *rows, const struct image *image, double sigma,
                 const unsigned char *bright, unsigned char *found)
{
    for (size_t y = 0; y < image->height + OUTER; y++) {
        if (y < image->height)
            take_row(rows, image, bright, y);
        if (y >= OUTER && y - OUTER < image->height)
            judge_row(rows, image, y - OUTER, sigma, found);
    }
}

int find_spots(const struct image *image, double sigma, unsigned char *found)
{
    struct rows rows;
    unsigned char *bright = malloc(image->width * image->height);
    int error = rows_init(&rows, image->width);
    if (!error && !bright)
        error = -ENOMEM;
    if (!error) {
        find(&rows, image, BRIGHT, NULL, bright);
        find(&rows, image, sigma, bright, found);
    }
    free(rows.memory);
    free(bright);
    return error;
}
