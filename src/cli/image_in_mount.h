/* Where a file is mounted. */
#ifndef SPARSEFS_CLI_IMAGE_IN_MOUNT_H
#define SPARSEFS_CLI_IMAGE_IN_MOUNT_H

/* The path of the image of a file in a mount of it that writes it and that this user can look into,
 * *image, which the caller frees. -ENOENT: there is none; -ENOMEM. */
int mounted_image(const char *path, char **image);

#endif
