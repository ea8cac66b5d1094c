/* The other end of sockets, as an input plays it: a process that somebody has taken over, or what
 * is served by one. Targets are linked so that the sockets of src/hdf5/worker, and the processes
 * behind them, are these (--wrap=recv, sendmsg, writev, zygote_fork, zygote_end, zygote_start). */
#ifndef TESTS_FUZZ_PEER_H
#define TESTS_FUZZ_PEER_H

#include "fuzz.h"
#include "hdf5/worker/channel.h"

/* From now on these bytes say what happens. */
void peer_begin(const uint8_t *bytes, size_t n);

/* What comes next in them: 0 when nothing is left. A number is small, at an edge, or anything. */
unsigned peer_byte(void);
uint64_t peer_number(void);
bool peer_is_over(void);

/* The next bytes, made to numbers, strings and bytes behind each other, as messages have them. */
void peer_content(struct wire *wire);

/* Changes, cuts or lengthens what was made. */
void peer_spoil(struct wire *wire);

/* Makes it a message in the bytes that are received; what its header says may be a lie. */
void peer_say(unsigned kind, const struct wire *wire);

/* Of a target that wants it, else NULL: each message that is sent, whole. */
extern void (*peer_hears)(enum message_kind kind, struct cursor *message);

/* A call (enum worker_call, plugin_call) has come to its end. With SPARSEFS_FUZZ_REACHED in the environment the
 * target says at its end how often each was done, and how often it failed. */
void peer_note_end(uint64_t call, bool is_done);

/* The socket over which was sent last. */
int peer_socket(void);

/* Of the target: says something, having been asked for what is in the last message that was sent,
 * of which the first bytes are there; false: the other end is closed. */
bool peer_speaks(enum message_kind asked, struct cursor *last);

#endif
