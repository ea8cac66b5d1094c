/* libhdf5's own process: one file, one caller. */
#ifndef SPARSEFS_HDF5_WORKER_SERVE_H
#define SPARSEFS_HDF5_WORKER_SERVE_H

/* Answers calls that come from a socket until nobody is there any more. For a process that has
 * nothing else to do. */
void worker_serve(int socket);

#endif
