/* libFuzzer: any bytes as the header of a sparse dataset, with all its messages. What is accepted
 * is in the ranges that dataset_header.h promises. */
#include <errno.h>

#include "format/dataset_header.h"
#include "samples.h"
#include "store/store.h"

#define MOST_RANK SFS_MAX_RANK

static void check_messages(const struct object_header *header)
{
    for (size_t i = 0; i < header->n_messages; i++) {
        const struct message *message = &header->message[i];
        require(message->block < header->n_blocks);
        const struct header_block *block = &header->block[message->block];
        require(message->data >= block->bytes + block->messages_at &&
                message->data + message->size <=
                    block->bytes + block->messages_at + block->message_bytes);
    }
}

static void check_filters(const struct dataset_header *dataset)
{
    unsigned sum = 0;
    for (int section = 0; section < dataset->layout.n_sections; section++)
        for (size_t i = 0; i < dataset->filters.section[section].n; i++) {
            const struct sfs_filter *filter = &dataset->filters.section[section].filters[i];
            require(dataset->filtered && filter->name[sizeof(filter->name) - 1] == '\0');
            for (size_t k = 0; k < filter->n_values; k++)
                sum += filter->values[k];
        }
    (void)sum;
}

static void check(const struct dataset_header *dataset)
{
    const struct layout_message *layout = &dataset->layout;
    require(layout->rank >= 1 && layout->rank <= MOST_RANK &&
            layout->rank == dataset->dataspace.rank);
    for (int i = 0; i < layout->rank; i++)
        require(layout->chunk_dims[i] >= 1 &&
                dataset->dataspace.dims[i] <= dataset->dataspace.max_dims[i]);
    require(layout->element_size >= 1 && layout->n_sections >= 2 && layout->n_sections <= 3);
    require(dataset->fill.size == 0 || dataset->fill.size == layout->element_size);
    check_messages(dataset->header);
    check_filters(dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct sample sample;
    struct store *store;
    struct superblock superblock;
    struct dataset_header dataset;
    struct chunk_record_format format;
    struct why why;
    if (!sample_of(bytes, n, HEADER, &sample))
        return 0;
    require(store_open(sample.path, &store) == 0 && superblock_read(store, &superblock, &why) == 0);
    why.text[0] = '\0';
    int error = dataset_header_read(store, &superblock, sample.header, &dataset, &why);
    if (!error) {
        check(&dataset);
        layout_message_records(&dataset.layout, dataset.filtered, &format, &why);
        dataset_header_free(&dataset);
    } else {
        require(error == -EINVAL || error == -ENOMEM || why.text[0]);
    }
    store_close(store);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t most, unsigned seed)
{
    return sample_mutate(HEADER, bytes, n, most, seed);
}
