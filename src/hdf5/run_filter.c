/* Running filters that only libhdf5 has, on strings of bytes that lie in no dataset. libhdf5 runs
 * filters on chunks only; so one filter at a time stands in the pipeline of a one-byte chunk, in a
 * file in memory, between two of our own:
 *
 *   elements   <->   near hand   <->   the filter   <->   far hand   <->   chunk in the file
 *
 * Whichever hand comes first puts the true bytes into libhdf5's buffer, whichever comes last takes
 * the result out of it, with its size, and leaves one byte. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hdf5/local.h"
#include "hdf5/private.h"

#define NEAR 0 /* parameter of the two */
#define FAR  1

#define CHUNKS_OF_A_FILTER 4 /* of memory: what comes in, what goes out, and copies of these */

/* Filters pad and grow data a little. More than twice as much and this is a damaged size. */
#define PADDING_BYTES ((size_t)1 << 20)

/* The input and output of the two hand filters, for this thread. */
struct handover {
    const void *in;
    size_t in_size;
    void *out; /* has room for most bytes; NULL: the result is allocated */
    size_t most;
    size_t out_size;
    bool done;
    bool no_memory;
};
static _Thread_local struct handover *handover;

static size_t put_in(size_t *buffer_size, void **buffer)
{
    void *bytes = H5allocate_memory(handover->in_size, false);
    if (!bytes) {
        handover->no_memory = true;
        return 0;
    }
    memcpy(bytes, handover->in, handover->in_size);
    H5free_memory(*buffer);
    *buffer = bytes;
    *buffer_size = handover->in_size;
    return handover->in_size;
}

static size_t take_out(size_t n, const void *bytes)
{
    handover->out_size = n;
    if (n > handover->most)
        return 0;
    if (!handover->out)
        handover->out = malloc(n);
    if (!handover->out) {
        handover->no_memory = true;
        return 0;
    }
    memcpy(handover->out, bytes, n);
    handover->done = true;
    return 1;
}

/* n is never 0: that is how filters fail. A file may name this filter, too: nothing is handed over
 * then. */
static size_t hand(unsigned flags, size_t n_values, const unsigned *values, size_t n,
                   size_t *buffer_size, void **buffer)
{
    if (!handover || n_values != 1)
        return 0;
    bool first = values[0] == (flags & H5Z_FLAG_REVERSE ? FAR : NEAR);
    return first ? put_in(buffer_size, buffer) : take_out(n, *buffer);
}

static const H5Z_class2_t hand_class = {
    .version = H5Z_CLASS_T_VERS,
    .id = FILTER_HAND,
    .encoder_present = 1,
    .decoder_present = 1,
    .name = "sparsefs",
    .filter = hand,
};

static int register_hand(void)
{
    static bool registered; /* under the library lock */
    if (!registered && H5Zregister(&hand_class) < 0)
        return library_failed(-EIO);
    registered = true;
    return 0;
}

static hid_t open_image(const struct filter_image *image, hid_t fapl)
{
    /* The name is one that no file has: libhdf5 minds. */
    if (fapl < 0 || H5Pset_fapl_core(fapl, 4096, false) < 0 ||
        H5Pset_file_image(fapl, image->bytes, image->n) < 0 || H5Pset_cache(fapl, 0, 1, 0, 1.0) < 0)
        return H5I_INVALID_HID;
    return H5Fopen("/dev/null/filter", H5F_ACC_RDWR, fapl);
}

hid_t filter_scratch_file(void)
{
    const struct sfs_filter any = {.id = H5Z_FILTER_SHUFFLE};
    struct filter_image image;
    hid_t fapl = H5I_INVALID_HID, file = H5I_INVALID_HID;
    if (filter_image_make(&any, H5Z_FILTER_SHUFFLE, &image) == 0) {
        fapl = H5Pcreate(H5P_FILE_ACCESS);
        file = open_image(&image, fapl);
        free(image.bytes);
    }
    if (fapl >= 0)
        H5Pclose(fapl);
    return file;
}

static herr_t is_about_memory(unsigned n, const H5E_error2_t *error, void *data)
{
    (void)n;
    if (error->min_num == H5E_NOSPACE || error->min_num == H5E_CANTALLOC)
        *(bool *)data = true;
    return 0;
}

/* Of libhdf5, which says it in its own way, also of what damaged bytes make it ask for: so whether
 * there is no room for what a filter may take for a chunk of so many bytes. */
static bool lacks_memory(size_t chunk_bytes)
{
    bool lacks = false;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, is_about_memory, &lacks);
    if (!lacks || chunk_bytes > SIZE_MAX / CHUNKS_OF_A_FILTER)
        return lacks;
    void *volatile room = malloc(chunk_bytes * CHUNKS_OF_A_FILTER); /* not left out */
    lacks = !room;
    free(room);
    return lacks;
}

/* Runs the pipeline of an image; returns failure, or -ENOMEM, if that does not go well. */
static int run_image(const struct filter_image *image, bool decoding, int failure)
{
    unsigned char byte = 0;
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    hid_t file = open_image(image, fapl);
    hid_t dataset = file < 0 ? H5I_INVALID_HID : H5Oopen_by_addr(file, image->dataset);
    herr_t status = -1;
    if (dataset >= 0 && decoding)
        status = H5Dread(dataset, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, &byte);
    else if (dataset >= 0)
        status = H5Dwrite(dataset, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, &byte);

    int error = 0;
    if (handover->out_size > handover->most) {
        error = library_failed_because(failure, "filters make another size than is recorded");
    } else if (status < 0 || !handover->done) {
        handover->no_memory |= lacks_memory(handover->most);
        error = library_failed(failure);
    }
    if (dataset >= 0)
        H5Dclose(dataset);
    if (file >= 0)
        H5Fclose(file);
    if (fapl >= 0)
        H5Pclose(fapl);
    return error && handover->no_memory ? -ENOMEM : error;
}

/* Runs one filter over what `work` hands over. On error nothing is allocated. */
static int run(const struct sfs_filter *filter, bool decoding, struct handover *work)
{
    int failure = decoding ? -EILSEQ : -EINVAL;
    int error = filter_look_for(filter, decoding);
    if (!error)
        error = register_hand();
    if (error)
        return error;
    if (decoding ? !filter_check_decode(filter, work->in, work->in_size, work->most)
                 : !filter_check_encode(filter, work->in_size))
        return filter_failed_for(filter, failure,
                                 "the parameters of filter %d do not fit the bytes");

    struct filter_image image;
    error = filter_image_make(filter, FILTER_HAND, &image);
    if (error)
        return error == -EINVAL
                   ? filter_failed_for(filter, failure, "filter %d has too many parameters")
                   : error;
    void *given = work->out;
    handover = work;
    error = run_image(&image, decoding, failure);
    handover = NULL;
    free(image.bytes);
    if (error && !given) {
        free(work->out);
        work->out = NULL;
    }
    return error;
}

/* The most bytes that are believed to stand between two filters. */
static size_t room_between(size_t size)
{
    size_t room;
    return __builtin_add_overflow(size, size, &room) ||
                   __builtin_add_overflow(room, PADDING_BYTES, &room)
               ? SIZE_MAX
               : room;
}

static int decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size, void *out,
                  size_t out_size)
{
    size_t left = 0;
    for (size_t i = 0; i < pipeline->n; i++)
        left += !(pipeline->mask >> i & 1);

    const void *from = in;
    void *between = NULL; /* allocated, if it is not `in` that is decoded next */
    int error = 0;
    for (size_t i = pipeline->n; i-- > 0 && !error;) {
        if (pipeline->mask >> i & 1)
            continue;
        bool is_last = --left == 0;
        struct handover work = {
            .in = from,
            .in_size = in_size,
            .out = is_last ? out : NULL,
            .most = is_last ? out_size : room_between(out_size),
        };
        error = run(&pipeline->filters[i], true, &work);
        free(between);
        between = is_last ? NULL : work.out;
        from = work.out;
        in_size = work.out_size;
    }
    free(between);
    if (!error && in_size != out_size)
        error = library_failed_because(-EILSEQ, "filters make another size than is recorded");
    if (!error && from == in)
        memcpy(out, in, out_size);
    return error;
}

int local_filter_decode(const struct filter_pipeline *pipeline, const void *in, size_t in_size,
                        void *out, size_t out_size)
{
    library_enter();
    int error;
    if (pipeline->n > PIPELINE_MOST_FILTERS)
        error = library_failed_because(-EILSEQ, "there are more than 32 filters");
    else if (in_size == 0 || out_size == 0)
        error = in_size == out_size ? 0 : library_failed_because(-EILSEQ, "there are no bytes");
    else
        error = decode(pipeline, in, in_size, out, out_size);
    library_leave();
    return error;
}

static int encode(struct filter_pipeline *pipeline, const void *in, size_t size, void **out,
                  size_t *out_size)
{
    const void *from = in;
    void *made = NULL; /* allocated, once a filter has made something */
    pipeline->mask = 0;
    for (size_t i = 0; i < pipeline->n; i++) {
        struct handover work = {.in = from, .in_size = size, .most = SIZE_MAX};
        int error = run(&pipeline->filters[i], false, &work);
        if (error && pipeline->filters[i].optional) {
            pipeline->mask |= (uint32_t)1 << i;
            continue;
        }
        free(made);
        if (error)
            return error;
        from = made = work.out;
        size = work.out_size;
    }
    if (!made) {
        made = malloc(size);
        if (!made)
            return -ENOMEM;
        memcpy(made, in, size);
    }
    *out = made;
    *out_size = size;
    return 0;
}

int local_filter_encode(struct filter_pipeline *pipeline, const void *in, size_t size, void **out,
                        size_t *out_size)
{
    library_enter();
    int error = 0;
    if (pipeline->n > PIPELINE_MOST_FILTERS) {
        error = library_failed_because(-EINVAL, "there are more than 32 filters");
    } else if (size == 0) {
        *out = NULL;
        *out_size = 0;
        pipeline->mask = 0;
    } else {
        error = encode(pipeline, in, size, out, out_size);
    }
    library_leave();
    return error;
}
