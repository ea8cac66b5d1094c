/* How much memory the views of all datasets of the process take together, whatever files claim and however many of
 * them are open. Any thread. */
#ifndef SPARSEFS_VIEW_VIEWS_MEMORY_H
#define SPARSEFS_VIEW_VIEWS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct views;

/* Bytes of what is kept, and of either kind that is made, in place of what follows from the machine's memory. */
void views_memory_limit(size_t kept, size_t made);

/* What is kept while it is current: tables, texts, selections, masks. Beyond the limit there is no more of it: -ENOMEM,
 * logged. */
int kept_memory_take(const struct views *views, size_t n);
void kept_memory_give_back(size_t n);

/* The same without a word if there is no more; and that word, which is an error. */
bool kept_memory_try(size_t n);
int kept_memory_refused(const struct views *views);

/* The same for one more item of an array: room_for_one, of which *room is taken. *array is the array also after an
 * error. */
int kept_memory_grow(const struct views *views, void **array, size_t n, size_t *room, size_t size);

/* Whether what nobody uses at the time may stay: only half of the limit is for that. False: it is to be given back. */
bool kept_memory_may_stay(void);

/* What is made for a request and goes with it: whole frames, texts. Whoever wants more than there is waits until others
 * have given theirs back; more than the limit is only waited for until nobody else has any. Meanwhile nothing may be
 * held that those need who have it, nor any of it. -EINTR. */
int made_memory_take(size_t n);
void made_memory_give_back(size_t n);

/* What is made of files that are written, before anything is changed: of a limit of its own, as large. The same; but
 * neither the geometry of views nor commits may be held while it is waited for. */
int decoding_memory_take(size_t n);
void decoding_memory_give_back(size_t n);

/* More for who has some already: without waiting. False: there is no more. */
bool made_memory_extend(size_t n);

/* What was made may be kept, if as much may stay as said above. False: it is to be given back. */
bool made_memory_keep(size_t n);

#endif
