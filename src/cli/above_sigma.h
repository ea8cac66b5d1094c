/* Finding elements of an image that stand out of what surrounds them. */
#ifndef SPARSEFS_CLI_ABOVE_SIGMA_H
#define SPARSEFS_CLI_ABOVE_SIGMA_H

#include <stddef.h>

/* The background of an element is that of the good elements of a square of 15 x 15 around it, but
 * for the 7 x 7 in its middle, where its own spot is: their mean, and their deviation from it. From
 * the first backgrounds come those that are more than 2.5 sigma above theirs: these are in no
 * background the second time, so that spots do not hide one another. */
#define BACKGROUND_REACH                                                                           \
    (2 * 7)                /* rows and columns around an element that its result depends on        \
                            */
#define BACKGROUND_LEAST 8 /* good elements that are a background */

struct image {
    size_t width, height;
    const unsigned char *good; /* of every element: 0 is one that has no value */
    /* Sets the values of a row; those that are good are finite. */
    void (*take_row)(const void *context, size_t y, double *values);
    const void *context;
};

/* Sets for every element whether it is good, has a background, and is more than so many sigma above
 * its mean. -ENOMEM. */
int find_spots(const struct image *image, double sigma, unsigned char *found);

#endif
