/* Changing object headers: messages are put together at the beginning of their blocks, so that what
 * is free is in one piece behind them, and new ones are put there, or into a new block. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "format/object_header.h"
#include "format/output.h"
#include "format/structure.h"

#define NAME         "object header"
#define CONTINUATION "object header continuation"

#define COUNT_AT  2     /* in the prefix of version 1: number of messages */
#define MOST_DATA 65528 /* bytes of a message, in either version */

unsigned char *object_header_data(struct object_header *header, const struct message *message)
{
    struct header_block *block = &header->block[message->block];
    return block->bytes + (message->address - block->address);
}

int object_header_write_block(struct store *store, struct object_header *header, size_t b,
                              struct why *why)
{
    struct header_block *block = &header->block[b];
    if (header->version != 1)
        structure_sum(block->bytes, block->n);
    return structure_write(store, b == 0 ? NAME : CONTINUATION, block->address, block->bytes,
                           block->n, why);
}

/* Bytes that a message takes in its block. */
static size_t room_for(const struct object_header *header, size_t size)
{
    size_t padded = header->version == 1 ? (size + 7) / 8 * 8 : size;
    return object_header_message_begin(header) + padded;
}

/* What stands before the data of a message, of so many bytes. */
static void put_begin(const struct object_header *header, struct output *output,
                      enum message_type type, size_t size, unsigned flags)
{
    bool old = header->version == 1;
    output_uint(output, type, old ? 2 : 1);
    output_uint(output, size, 2);
    output_uint(output, flags, 1);
    /* reserved, or the order in which attributes were made */
    output_zeros(output, object_header_message_begin(header) - (old ? 5 : 4));
}

static void put_message(const struct object_header *header, struct output *output,
                        const struct new_message *message)
{
    size_t size = room_for(header, message->size) - object_header_message_begin(header);
    put_begin(header, output, message->type, size, message->flags);
    output_bytes(output, message->data, message->size);
    output_zeros(output, size - message->size);
}

/* A change of one header. */
struct edit {
    struct object_header *header;
    size_t *used;      /* bytes of messages at the beginning of each block */
    size_t n_messages; /* in all blocks, but for NIL messages at their ends */
};

static size_t left_in(const struct edit *edit, size_t b)
{
    return edit->header->block[b].message_bytes - edit->used[b];
}

static void append(struct edit *edit, size_t b, const struct new_message *message)
{
    struct header_block *block = &edit->header->block[b];
    struct output output =
        output_over(block->bytes + block->messages_at + edit->used[b], left_in(edit, b));
    put_message(edit->header, &output, message);
    edit->used[b] = block->message_bytes - output.left;
    edit->n_messages++;
}

/* Moves the messages that stay to the beginnings of their blocks: all but NIL and old ones. */
static void pack(struct edit *edit, const struct message_replacement *replacement)
{
    struct object_header *header = edit->header;
    for (size_t i = 0; i < header->n_messages; i++) {
        const struct message *message = &header->message[i];
        struct header_block *block = &header->block[message->block];
        bool stays = message->type != MESSAGE_NIL;
        for (size_t k = 0; k < replacement->n_old; k++)
            stays &= message->type != replacement->old[k];
        if (!stays)
            continue;
        size_t begin = object_header_message_begin(header);
        memmove(block->bytes + block->messages_at + edit->used[message->block],
                message->data - begin, begin + message->size);
        edit->used[message->block] += begin + message->size;
        edit->n_messages++;
    }
}

/* What is left of a block becomes one NIL message, or a gap if it is too short for that. */
static int close_blocks(struct edit *edit, struct why *why)
{
    struct object_header *header = edit->header;
    for (size_t b = 0; b < header->n_blocks; b++) {
        const struct header_block *block = &header->block[b];
        size_t left = left_in(edit, b), begin = object_header_message_begin(header);
        memset(block->bytes + block->messages_at + edit->used[b], 0, left);
        while (left >= begin) {
            size_t size = left - begin < MOST_DATA ? left - begin : MOST_DATA;
            struct output output =
                output_over(block->bytes + block->messages_at + block->message_bytes - left, left);
            put_begin(header, &output, MESSAGE_NIL, size, 0);
            left -= begin + size;
            edit->n_messages++;
        }
    }
    if (header->version != 1)
        return 0;
    if (edit->n_messages > UINT16_MAX)
        return why_unsupported(why, NAME " at address %" PRIu64 ": too many messages",
                               header->block[0].address);
    struct output output = output_over(header->block[0].bytes + COUNT_AT, 2);
    output_uint(&output, edit->n_messages, 2);
    return 0;
}

/* Puts the messages where they fit, none before the one that precedes it; false: they do not. */
static bool put_into_blocks(struct edit *edit, const struct new_message *messages, size_t n)
{
    size_t b = 0, in_block[NEW_MESSAGES], taken = 0;
    for (size_t i = 0; i < n; i++) {
        size_t needed = room_for(edit->header, messages[i].size);
        while (b < edit->header->n_blocks && left_in(edit, b) < taken + needed) {
            b++;
            taken = 0;
        }
        in_block[i] = b;
        taken += needed;
    }
    if (b == edit->header->n_blocks)
        return false;
    for (size_t i = 0; i < n; i++)
        append(edit, in_block[i], &messages[i]);
    return true;
}

/* Writes a new block with the messages and puts its name into one that is there. */
static int put_into_new_block(struct edit *edit, struct store *store,
                              const struct superblock *superblock,
                              const struct new_message *messages, size_t n, struct why *why)
{
    struct object_header *header = edit->header;
    unsigned char name[16];
    struct new_message continuation = {.type = MESSAGE_CONTINUATION,
                                       .data = name,
                                       .size = superblock->offset_size + superblock->length_size};
    size_t b = 0, around = header->version == 1 ? 0 : SIGNATURE_BYTES + CHECKSUM_BYTES;
    size_t size = around;
    for (size_t i = 0; i < n; i++)
        size += room_for(header, messages[i].size);
    while (b < header->n_blocks && left_in(edit, b) < room_for(header, continuation.size))
        b++;
    if (b == header->n_blocks)
        return why_unsupported(why, NAME " at address %" PRIu64 ": no room for one more block",
                               header->block[0].address);
    unsigned char *bytes = malloc(size);
    if (!bytes)
        return -ENOMEM;
    struct output output = output_over(bytes, size);
    if (header->version != 1)
        output_bytes(&output, "OCHK", SIGNATURE_BYTES);
    for (size_t i = 0; i < n; i++)
        put_message(header, &output, &messages[i]);
    if (header->version != 1)
        structure_sum(bytes, size);
    edit->n_messages += n;

    uint64_t address;
    int error = structure_allocate(store, superblock, CONTINUATION, size, &address, why);
    if (!error)
        error = structure_write(store, CONTINUATION, address, bytes, size, why);
    free(bytes);
    if (error)
        return error;
    output = output_over(name, sizeof(name));
    superblock_put_address(superblock, &output, address);
    output_uint(&output, size, superblock->length_size);
    append(edit, b, &continuation);
    return 0;
}

int object_header_replace(struct store *store, const struct superblock *superblock,
                          struct object_header *header,
                          const struct message_replacement *replacement, struct why *why)
{
    struct edit edit = {.header = header};
    edit.used = calloc(header->n_blocks, sizeof(*edit.used));
    if (!edit.used)
        return -ENOMEM;
    int error = 0;
    pack(&edit, replacement);
    if (!put_into_blocks(&edit, replacement->new, replacement->n_new))
        error =
            put_into_new_block(&edit, store, superblock, replacement->new, replacement->n_new, why);
    if (!error)
        error = close_blocks(&edit, why);
    for (size_t b = header->n_blocks; !error && b > 0; b--)
        error = object_header_write_block(store, header, b - 1, why);
    free(edit.used);
    return error;
}
