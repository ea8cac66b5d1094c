/* The folders where libhdf5 looks for plugins: code that runs with the rights of this process, and
 * that nobody else may have put there. */
#ifndef SPARSEFS_HDF5_TRUSTED_PLUGIN_FOLDERS_H
#define SPARSEFS_HDF5_TRUSTED_PLUGIN_FOLDERS_H

#include "hdf5/worker/wire.h"

/* Takes from libhdf5's list, of all of this process, the folders that others may write, and those
 * that hold, or lie in, what others may write; the log says which and why, once for each. Others
 * are, for root, all but root, for anyone else all but root and himself, whose group may write.
 * What is not there stays if nobody else can make it. Any thread. */
void plugin_folders_sift(void);

/* Sifts, and puts the number of folders that are left and are there, and their names. */
void plugin_folders_put(struct wire *wire);

#endif
