/* Sparse datasets as they are stored: the header and the index of one, opened and checked. */
#ifndef SPARSEFS_LAYOUT_SPARSE_H
#define SPARSEFS_LAYOUT_SPARSE_H

#include "format/dataset_header.h"
#include "index/index.h"

enum { SELECTION, VALUES, HEAP }; /* sections of a chunk */

struct sparse {
    const struct superblock *superblock;
    uint64_t address; /* of the header in the store: libhdf5 counts from the end of a user block */
    struct dataset_header header;
    struct chunk_record_format format;
    struct index *index;
};

/* Opens the dataset whose header is at address; store and superblock must outlive it. The caller
 * closes *sparse, which an error leaves as it is. -EINVAL: it is not a sparse dataset, and why is not
 * set; of -EIO, -EILSEQ and -EOPNOTSUPP why says what and where; -ENOMEM. sparse_close(NULL) is
 * allowed. */
int sparse_open(struct store *store, const struct superblock *superblock, uint64_t address,
                struct sparse **sparse, struct why *why);
void sparse_close(struct sparse *sparse);

/* Bytes of its header, and of the blocks of its index, that are in memory. */
size_t sparse_kept_bytes(const struct sparse *sparse);

struct layout;

/* Writes the index, and the layout message if it has changed, to the store, which is not committed.
 * The layout's commit lock is held for writing. Errors, which are logged but for -ENOMEM: -EIO, also
 * for a damaged index or header; those of store_allocate and store_write. */
int sparse_flush(struct layout *layout);

/* Claims (store.h) what it has in the store: its header, the structures of its index, its chunks.
 * What is stored later is the store's own anyway. What of a damaged index cannot be found is not
 * claimed, which the log says. -EIO, which is logged; -ENOMEM. */
int sparse_protect_from_libhdf5(struct layout *layout);

/* ---- For the files of this folder ---- */

/* Bytes of a section before its filters. */
uint64_t sparse_section_size(const struct sparse *sparse, const struct chunk_record *record,
                             int section);

/* Bytes of the checksum that n bytes of section 1 end in. */
uint64_t sparse_values_checksum(const struct sparse *sparse, uint64_t n);

/* Elements that section 1 has values for. */
uint64_t sparse_values(const struct layout *layout, const struct chunk_record *record);

/* Callbacks of layout.h. */

struct cache_form;
struct decoding;
struct encoded;
struct pool;

size_t sparse_decode_bytes(const struct layout *layout, const struct chunk_record *record,
                           unsigned parts);
int sparse_decode(struct layout *layout, const struct decoding *chunk);

size_t sparse_encode_bytes(const struct layout *layout, const struct cache_form *form);
int sparse_encode(struct layout *layout, const uint64_t *scaled, const struct cache_form *form,
                  struct pool *pool, struct encoded *encoded);
int sparse_insert(struct layout *layout, const uint64_t *scaled, const struct encoded *encoded,
                  struct chunk_record *record);

#endif
