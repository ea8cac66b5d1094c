/* What calls that copy say of where they copy from. */
#ifndef SPARSEFS_HDF5_WORKER_COPY_MESSAGE_H
#define SPARSEFS_HDF5_WORKER_COPY_MESSAGE_H

/* COPY_FROM_OTHER is followed by a number for the source, one for its state, its name, and
 * COPY_DESCRIPTION numbers that describe its store. */
enum copy_source { COPY_FROM_NOTHING, COPY_FROM_ITSELF, COPY_FROM_OTHER };
#define COPY_DESCRIPTION 7

#endif
