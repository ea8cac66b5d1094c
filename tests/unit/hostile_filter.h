/* What hostile_filter.c does with a chunk: its first parameter. */
#ifndef TESTS_UNIT_HOSTILE_FILTER_H
#define TESTS_UNIT_HOSTILE_FILTER_H

#define HOSTILE 481 /* its id */

enum hostile {
    HOSTILE_NOTHING, /* leaves the bytes as they are */
    HOSTILE_CRASHES,
    HOSTILE_HANGS,
    HOSTILE_ALLOCATES, /* without end */
    HOSTILE_DOUBLES,   /* makes twice as many bytes */
    HOSTILE_LIES,      /* says that there are many more than there are */
    HOSTILE_ANSWERS,   /* what is no message */
    HOSTILE_CLAIMS,    /* answers itself that there are more bytes than there is room for */
    HOSTILE_MEETS,     /* waits until it runs twice at once: SPARSEFS_TEST_MEETS */
    /* Doors: decoded, the first byte is 1 if they are open, and else 0. */
    HOSTILE_OPENS,
    HOSTILE_LISTS,
    HOSTILE_WRITES,
    HOSTILE_CONNECTS,
    HOSTILE_EXECUTES,
    HOSTILE_FORKS,
    HOSTILE_LOADS,
    HOSTILE_SIGNALS,
    HOSTILE_READS_PARENT,
    HOSTILE_TRACES,
    HOSTILE_MAPS_CODE,
    HOSTILE_MAKES_CODE,
    HOSTILE_COPIES_DESCRIPTORS,
    HOSTILE_IS_ROOT,
    HOSTILE_DOORS_END,
    HOSTILE_BREAKS_OFF, /* in the midst of its answer */
    HOSTILE_LEAVES,     /* its socket, and lives on */
    HOSTILE_THREAD,     /* 1: doors are open to a thread from before: SPARSEFS_TEST_LOADING */
    HOSTILE_STARTS      /* 1: a thread from before could not begin only now */
};

#endif
