/* A disk that remembers every call of the store that changes it, and can be looked at as it might
 * be after the power has failed behind any of them: what was not synced is there, is not, or is
 * torn at sectors; names are as they were unless their directory was synced. A sync that fails
 * loses pages: any sectors of them reach the disk, and the kernel takes them for written. It has
 * what was written, until it drops them and reads what the disk has: at once, at some later call,
 * or never. */
#ifndef TESTS_CRASH_DISK_H
#define TESTS_CRASH_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What stands between the store and the system: calls on files of the folder DISK are recorded
 * while that is on, or made to fail. Syncing is never done: nothing here needs it. */
#define DISK "disk"

void disk_record(bool on);

/* Calls that have been recorded. */
long disk_calls(void);

/* The n-th call from now on (0: the next) fails with this error; lasting: and all behind it do, as
 * far as they are concerned: opening is not by ENOSPC unless a file would be made, nor is removing.
 * n < 0: none fails. */
void disk_fail(long n, int error, bool lasting);

/* How many have failed since one was told to, and whether a sync was among them. */
long disk_failed(void);
bool disk_sync_failed(void);

/* Pages that failed syncs have lost, in all. */
long disk_lost(void);

/* Forgets what was recorded; what is in DISK now is durable. */
void disk_begin(void);

/* How the disk was when n calls had been made. */
struct cut {
    long n;
    uint64_t kept;  /* of the calls that are not durable, by their order: bit i, it is there */
    uint64_t torn;  /* bit i: of a write, every sector is there or not, by chance */
    bool junk;      /* new space whose bytes did not arrive has others, not zeros */
    bool same_boot; /* only the file system went away: the system was not started anew */
};

/* How many calls are not durable when n have been made. */
unsigned disk_pending(long n);

/* Makes the folder `to` what DISK is after the cut, in place of what is there, and lets the system
 * be another one since its start, unless all is kept. A number that is the
 * same for the same contents, as good as surely. */
uint64_t disk_cut(const struct cut *cut, const char *to);

#endif
