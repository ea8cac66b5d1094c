/* Where a file is mounted. */
#ifndef SPARSEFS_CLI_IMAGE_IN_MOUNT_H
#define SPARSEFS_CLI_IMAGE_IN_MOUNT_H

#include <sys/stat.h>

/* The image of a file in a mount of it. */
struct mounted_image {
    char *path;
    int fd;         /* for reading */
    struct stat st; /* of the file, without what an ACL keeps from some */
};

/* Opens the image in a mount of the file that writes it and that this user can look into. Anybody can make a FUSE that
 * says to be such a mount. So only those of root, of this user, or of one who may write the file are asked, who could
 * as well change it; no more than 64, at the same time, and for some seconds only. -ENOENT: there is none; -ENOMEM. */
int mounted_image_open(const char *path, struct mounted_image *image);

void mounted_image_close(struct mounted_image *image);

#endif
