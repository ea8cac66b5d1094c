/* What a process for plugins does. */
#ifndef SPARSEFS_HDF5_WORKER_PLUGIN_SERVE_H
#define SPARSEFS_HDF5_WORKER_PLUGIN_SERVE_H

/* Loads, confines itself, and answers (plugins.h) until nobody is there any more. */
void plugin_serve(int socket) __attribute__((noreturn));

#endif
