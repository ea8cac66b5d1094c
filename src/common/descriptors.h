/* The descriptors of this process. */
#ifndef SPARSEFS_COMMON_DESCRIPTORS_H
#define SPARSEFS_COMMON_DESCRIPTORS_H

/* Closes all from this one on. */
void descriptors_close_from(int first);

#endif
