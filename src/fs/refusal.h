/* What a mount refuses whatever the file is like, by its nature: the log says what to do instead.
 */
#ifndef SPARSEFS_FS_REFUSAL_H
#define SPARSEFS_FS_REFUSAL_H

#include "fs/mount.h"

enum refusal {
    REFUSAL_NAME,       /* a new name that no frame can have */
    REFUSAL_REMOVAL,    /* of what is not a group */
    REFUSAL_RENAMING,   /* of what is not a group either */
    REFUSAL_LINK,       /* of either kind */
    REFUSAL_DIRECTORY,  /* made elsewhere than in a group */
    REFUSAL_GROUP_NAME, /* HDF5 has none such */
    REFUSAL_MATRIX,     /* a name in csr is to be made or removed */
    REFUSAL_EXCHANGE,   /* of two names */
    REFUSAL_COMPUTED,   /* a file that cannot be written is to be */
    REFUSAL_SELECTION,  /* of a dense dataset is to be written */
    REFUSAL_HEADER,     /* is to be other bytes than are shown */
    REFUSAL_END,        /* of a file is to be moved */
    REFUSAL_GROWTH,     /* of a dataset that cannot */
    REFUSAL_ATTRIBUTE,  /* to be set or removed */
    REFUSAL_STRICT,     /* mode, owner or times of files of a mount that keeps to them */
    REFUSAL_RANGE,      /* of a selection or of csr, for fallocate(2) */
    REFUSAL_FOLDER,     /* what is the folder's is to be changed */
    REFUSAL_SIZE,       /* of the cache: it is none */
    REFUSALS
};

/* Says it, each at most once a second, and returns its errno, negative: EPERM, EFBIG, EROFS,
 * EOPNOTSUPP or EINVAL. node: the dataset or group, whose file is used, or what is the folder's; or
 * NULL. Any thread. */
int refusal_say(const struct mount *mount, const struct node *node, enum refusal refusal);

/* The same of a view that cannot be written. */
int refusal_of_view(const struct mount *mount, const struct node *node, enum view_kind view);

#endif
