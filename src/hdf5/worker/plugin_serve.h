/* What a process for plugins does. */
#ifndef SPARSEFS_HDF5_WORKER_PLUGIN_SERVE_H
#define SPARSEFS_HDF5_WORKER_PLUGIN_SERVE_H

/* Loads plugins, confines itself, and answers (plugin_pool.h) until the socket is closed. */
void plugin_serve(int socket) __attribute__((noreturn));

#endif
