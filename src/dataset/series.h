/* Series: the datasets data_000001, data_000002, ... of a group, which are one measurement in
 * pieces (files of DECTRIS EIGER detectors, NeXus), as one virtual dataset `data` of that group,
 * which no file has. The members are its sources, one behind the other along their first axis,
 * where their attributes image_nr_low and image_nr_high say (series_place.h).
 *
 * A group has a series if no link of it is named so and the first member that can be opened has two
 * axes or more, and elements without pointers; that all others fit is found out when the series is
 * opened. Members in a file that is followed do not count, those that external links lead to do.
 * The address of a series is made from that of its group.
 *
 * The files of members of a followed file are followed, too, and its open series are looked at
 * again after it: they show members that came or grew. A member that was there and cannot be looked
 * at counts as it was. */
#ifndef SPARSEFS_DATASET_SERIES_H
#define SPARSEFS_DATASET_SERIES_H

#include "dataset/private.h"
#include "dataset/series_place.h"
#include "dataset/virtual_sources.h"

/* Whether an address is that of a series; no object of a file has such a one. */
bool series_is_address(uint64_t address);

/* Adds the series of a group, if it has one, to its links, which are ascending by name. */
int series_list(struct sfs_file *file, uint64_t group, struct sfs_links *links);

/* A link that was not found, as sfs_lookup gives it. -ENOENT: it is no series either. */
int series_lookup(struct sfs_file *file, uint64_t group, const char *name, struct sfs_link *link);

/* The same of a path, as sfs_find. */
int series_find(struct sfs_file *file, uint64_t group, const char *path, uint64_t *address);

/* What a series consists of. */
struct series {
    uint64_t states;              /* sfs_states of the file, before it was looked at */
    bool was_said;                /* the log says why it stays as it is */
    struct sfs_dataset_info info; /* of the virtual dataset, to be freed by hdf5_info_free */
    uint64_t group;
    size_t n;
    struct series_member *member; /* ascending by number */
    struct series_source *source; /* the same */
    struct series_parts parts;
};

/* Where a member is. */
struct series_source {
    const char *file, *dataset; /* as of source_create */
    uint64_t group;             /* the same */
    char *own_file, *own_dataset;
    struct source_stamp stamp; /* of a followed file: from before the member was looked at */
    bool was_stable;           /* the stamp was the same the time before, too */
};

/* Looks at all members. -EIO: `why` says why they are no series, or (NULL) the log; -ENOMEM, -EINTR.
 * Not with the file's lock held. path: of the series, for messages. The caller frees it with
 * series_free. */
int series_open(struct sfs_file *file, uint64_t address, const char *path, struct series **series,
                struct why *why);
void series_free(struct series *series);

/* Looks again at an open series of a followed file. *series is NULL if nothing has changed, else
 * what it is now; its info is empty. -EILSEQ: it cannot be shown so, which the log says once; other
 * errors as of series_open. By one thread at a time. */
int series_look_again(struct sfs_dataset *dataset, struct series **series);

/* In series_follow.c: looks again at all open series of a followed file, and takes the last state
 * of the files that they are in. -ENOMEM, -EINTR, -EIO. */
int series_refresh(struct sfs_file *file);

/* Where the member of a part is. name has room for what is written there and used. */
struct series_source series_source_of(const struct series *series, const struct series_part *part,
                                      char name[SERIES_NAME_BYTES]);

#endif
