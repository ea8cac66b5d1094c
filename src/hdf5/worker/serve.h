/* libhdf5's own process: one file, one caller. */
#ifndef SPARSEFS_HDF5_WORKER_SERVE_H
#define SPARSEFS_HDF5_WORKER_SERVE_H

/* Answers calls from a socket until it is closed. The main loop of a worker process. */
void worker_serve(int socket);

#endif
