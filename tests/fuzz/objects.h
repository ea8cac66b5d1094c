/* A sound HDF5 file in memory, made by libhdf5, that has an object of every kind that its process
 * is asked for, and where they are. */
#ifndef TESTS_FUZZ_OBJECTS_H
#define TESTS_FUZZ_OBJECTS_H

#include <stddef.h>
#include <stdint.h>

#define OBJECTS_MOST 20

/* Its datasets have this many elements along their axes. */
#define OBJECTS_ROWS    20
#define OBJECTS_COLUMNS 6

struct objects {
    unsigned char *file;
    uint64_t file_n; /* bytes */
    uint64_t address[OBJECTS_MOST];
    char letter[OBJECTS_MOST]; /* of its name, '.': the root */
    size_t size[OBJECTS_MOST]; /* bytes of an element, 0: it is no dataset */
    size_t n;                  /* of them: groups, datasets, a datatype */
};

/* Made once; it stays. */
const struct objects *objects_make(void);

/* One of those with these letters, for any number. */
size_t objects_choose(const char *letters, unsigned which);

/* A path in it, for any number: of an object, a link, or nothing. */
const char *objects_path(unsigned which);

/* Mostly one at which there is nothing at first. */
const char *objects_new_path(unsigned which);

#endif
