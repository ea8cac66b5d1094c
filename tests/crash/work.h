/* Random work on a file with groups, attributes, sparse and dense datasets, and a model of it that
 * says what the file must hold. */
#ifndef TESTS_CRASH_WORK_H
#define TESTS_CRASH_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "sparsefs/sparsefs.h"

#define SETS        7    /* datasets that there can be */
#define MOST_CELLS  1024 /* of a dataset */
#define MOST_GROUPS 12

struct set {
    bool exists;
    uint64_t dims[3];
    uint32_t values[MOST_CELLS]; /* by positions in the most dims */
    bool defined[MOST_CELLS];
};

struct model {
    struct set sets[SETS];
    int groups;                   /* g0 and so on */
    bool attributes[MOST_GROUPS]; /* of the groups */
};

/* A file whose attributes are copied; made once, beside the disk. */
void work_make_template(const char *path);

/* How files come to be that are not made by the library: in libhdf5's oldest format, or its newest,
 * with the dense datasets of the model. */
void work_make_old(const char *path, bool oldest, struct model *model);

/* Does something that changes the file and, unless it fails, the model; its error. The same again
 * after an error: repeat. */
struct work {
    struct sfs_file *file, *template;
    struct model *model;
    uint64_t seed; /* of the next step */
};
int work_step(struct work *work);

/* The number of different kinds of steps; a step of one kind. */
#define WORK_KINDS 9
int work_step_of(struct work *work, int kind);

/* Whether the file holds what the model says; *why is else a difference. */
bool work_is(struct sfs_file *file, const struct model *model, const char **why);

/* The same of what libhdf5 alone finds: the dense datasets, and that the superblock has no mark,
 * and an end that is not behind that of the file. */
bool work_is_for_libhdf5(const char *path, const struct model *model, const char **why);

/* Whether sfs_check finds nothing. */
bool work_is_sound(struct sfs_file *file);

#endif
