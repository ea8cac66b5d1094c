/* The states that a power cut can leave of a workload's file, and whether each is one that was
 * flushed: not before the last flush that had returned, element for element; for reading, for
 * writing, and for libhdf5 alone. */
#ifndef TESTS_CRASH_STATES_H
#define TESTS_CRASH_STATES_H

#include "work.h"

#define NAME  "x.h5"
#define AFTER "after" /* the folder in which a state is looked at */

/* The file of work_make_template, for changing what was recovered. */
void states_use(struct sfs_file *template);

/* Begins to record the disk, which holds what the model says if the file is there already. */
void states_begin(bool existed, const struct model *model);

/* sfs_flush, remembered with what the model says. */
int states_flush(struct work *work);

/* Looks at the states after every call, or after n calls: with everything that was not synced, with
 * nothing of it, of a few calls with every subset, and so many others by chance. Fails the test if
 * one is not what it must be. */
void states_check(int others);
void states_check_after(long n, int others);

/* Which flush's state the file at path holds, of those it may hold after n calls; -1: none, -2:
 * there is no file. */
int states_find(const char *path, bool writable, long n);
const struct model *states_model(int flush);

/* Different states that were looked at, and how many of those were changed and flushed again. */
long states_count(void);
long states_changed(void);

#endif
