/* Which filters have plugins, and which have none, as processes that were to load them have told. Any thread. */
#ifndef SPARSEFS_HDF5_WORKER_PLUGIN_AVAILABLE_H
#define SPARSEFS_HDF5_WORKER_PLUGIN_AVAILABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "hdf5/worker/plugin_pool.h"

void plugin_note(int id, bool is_available);

/* Those that have one; returns how many. */
size_t plugins_known(int ids[PLUGINS_MOST_IDS]);

#endif
