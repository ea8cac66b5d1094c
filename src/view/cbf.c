/* A frame as a miniCBF file, as detectors write them and XDS, DIALS, fabio and others read them: a
 * text with what is known of the measurement, and 32-bit integers, compressed with byte offsets
 * (International Tables for Crystallography, volume G, 5.6; the lines of the header, and what
 * masked pixels are, as eiger2cbf has them).
 *
 * How long compressed data is, is not known before it is compressed, but sizes must be: `ls -l`,
 * tar and rsync ask for them. So the file has the size that it would need at most, and what is left
 * of it is padding, of which the format itself has a line. The padding is a hole: cp and tar -S
 * leave it out. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "config.h"
#include "view/pixel.h"
#include "view/views_memory.h"

#if HAVE_NETTLE
#include <nettle/base64.h>
#include <nettle/md5.h>
#endif

/* Everything before the data: blank lines fill it, so that nothing in it changes the size. */
#define HEAD_BYTES  2048
#define BLANK_BYTES 64 /* of such a line */
#define MAGIC       "\x0c\x1a\x04\xd5"
#define TAIL        "\r\n--CIF-BINARY-FORMAT-SECTION----\r\n;\r\n\r\n"
#define WORD_BYTES  64 /* of a text from the file */

/* Larger counts are shown as this, whose difference to -2 has 32 bits: not all read more. */
#define LARGEST (INT32_MAX - 2)

/* ---- What is known of all frames ---- */

/* A line of the header with a number, if there is one of these datasets. */
struct fact {
    const char *line; /* with a conversion for the number, in the unit that it is to be in */
    const char *unit;
    const char *const *in_detector; /* ended by NULL; or NULL */
    const char *const *in_entry;
};

static const char *const exposure[] = {"count_time", NULL}, *const period[] = {"frame_time", NULL};
static const char *const cutoff[] = {"saturation_value", "countrate_correction_count_cutoff", NULL};
static const char *const distance[] = {"distance", "detector_distance", NULL};
static const char *const wavelength[] = {
    "sample/beam/incident_wavelength", "instrument/beam/wavelength",
    "instrument/monochromator/wavelength", "instrument/beam/incident_wavelength", NULL};
static const struct fact facts[] = {
    {"# Exposure_time %f s\r\n", "s", exposure, NULL},
    {"# Exposure_period %f s\r\n", "s", period, NULL},
    {"# Count_cutoff %.0f counts\r\n", NULL, cutoff, NULL},
    {"# Wavelength %f A\r\n", "A", NULL, wavelength},
    {"# Detector_distance %f m\r\n", "m", distance, NULL},
};

/* Lines that are written of what a file says. */
struct lines {
    struct views *views;
    FILE *out;
    int error; /* what could not be read: there may be more to say */
};

/* Whether it is there, and of the kind that it is to be. */
static bool is_said(struct lines *lines, int error)
{
    bool is_absent =
        error == -ENOENT || error == -EINVAL || error == -EOPNOTSUPP || error == -EFBIG;
    if (!is_absent && !lines->error)
        lines->error = error;
    return error == 0;
}

static bool get_number(struct lines *lines, enum nexus_place place, const char *name,
                       const char *unit, double *value)
{
    return is_said(lines, nexus_number(lines->views, place, name, unit, value));
}

/* What a file says may have any characters, and be longer than a header. */
static void clean(char *word)
{
    word[strcspn(word, "\r\n")] = '\0';
    for (char *c = word; *c; c++)
        if (*c < ' ' || *c > '~' || *c == ';')
            *c = '?';
}

static bool get_word(struct lines *lines, const char *name, char word[WORD_BYTES])
{
    if (!is_said(lines, nexus_text(lines->views, name, word, WORD_BYTES)))
        return false;
    clean(word);
    return word[0] != '\0';
}

static void write_detector(struct lines *lines)
{
    char name[WORD_BYTES], number[WORD_BYTES], material[WORD_BYTES];
    double x, y, thickness;
    if (get_word(lines, "description", name)) {
        bool has_number = get_word(lines, "detector_number", number);
        fprintf(lines->out, "# Detector: %s%s%s\r\n", name, has_number ? ", S/N " : "",
                has_number ? number : "");
    }
    if (get_number(lines, NEXUS_DETECTOR, "x_pixel_size", "m", &x) &&
        get_number(lines, NEXUS_DETECTOR, "y_pixel_size", "m", &y))
        fprintf(lines->out, "# Pixel_size %.6ge-6 m x %.6ge-6 m\r\n", x * 1e6, y * 1e6);
    if (get_number(lines, NEXUS_DETECTOR, "sensor_thickness", "m", &thickness)) {
        bool is_silicon = !get_word(lines, "sensor_material", material) || !strcmp(material, "Si");
        fprintf(lines->out, "# %s sensor, thickness %.6f m\r\n", is_silicon ? "Silicon" : material,
                thickness);
    }
}

static void write_fact(struct lines *lines, const struct fact *fact)
{
    enum nexus_place place = fact->in_detector ? NEXUS_DETECTOR : NEXUS_ENTRY;
    const char *const *names = fact->in_detector ? fact->in_detector : fact->in_entry;
    double value;
    for (; *names; names++) {
        if (!get_number(lines, place, *names, fact->unit, &value) || !(fabs(value) < 1e12))
            continue;
        fprintf(lines->out, fact->line, value);
        return;
    }
}

static int write_facts(struct views *views, struct view_head *head)
{
    double x, y;
    struct lines lines = {views, head_begin(head), 0};
    if (!lines.out)
        return -ENOMEM;
    write_detector(&lines);
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
        write_fact(&lines, &facts[i]);
    if (get_number(&lines, NEXUS_DETECTOR, "beam_center_x", NULL, &x) &&
        get_number(&lines, NEXUS_DETECTOR, "beam_center_y", NULL, &y) && fabs(x) < 1e9 &&
        fabs(y) < 1e9)
        fprintf(lines.out, "# Beam_xy (%.2f, %.2f) pixels\r\n", x, y);
    int error = head_end(lines.out, head);
    return lines.error ? lines.error : error;
}

static void drop_facts(struct views *views)
{
    free(views->cbf_facts.bytes);
    views->cbf_facts = (struct view_head){0};
}

/* The lines are made on first use, and of each state of a followed file, and written to out; not without what was not
 * read because nobody wants it any more, or could not be. */
static int write_kept_facts(struct views *views, FILE *out)
{
    int error = interrupt_lock(&views->lock); /* it is held while they are made */
    if (error)
        return error;
    uint64_t states = sfs_states(views->file);
    if (views->cbf_facts.bytes && views->cbf_states != states)
        drop_facts(views);
    if (!views->cbf_facts.bytes) {
        views->cbf_states = states;
        error = write_facts(views, &views->cbf_facts);
        if (!error)
            error = interrupt_check();
        if (error)
            drop_facts(views);
    }
    if (!error)
        fwrite(views->cbf_facts.bytes, 1, views->cbf_facts.n, out);
    pthread_mutex_unlock(&views->lock);
    return error;
}

static int write_angles(struct views *views, uint64_t frame, FILE *out)
{
    double start, increment;
    struct lines lines = {views, out, 0};
    if (is_said(&lines, nexus_number_of(views, "sample/goniometer/omega", frame, &start)) &&
        fabs(start) < 1e6)
        fprintf(out, "# Start_angle %f deg.\r\n", start);
    if (get_number(&lines, NEXUS_ENTRY, "sample/goniometer/omega_range_average", NULL,
                   &increment) &&
        fabs(increment) < 1e6)
        fprintf(out, "# Angle_increment %f deg.\r\n", increment);
    return lines.error;
}

/* ---- Compression ---- */

struct encoder {
    const struct sfs_type *type;
    const unsigned char
        *mask; /* of every pixel; NULL: there is none, and `marked` is what is none */
    uint64_t marked;
    unsigned char *bytes; /* behind room for the head */
    size_t n, room, most; /* most: bytes of a pixel */
    int64_t last;
    int error;
};

/* As eiger2cbf: -1 between modules, -2 what is dead or hot. */
static int32_t value_of(const struct encoder *encoder, uint64_t pixel, const unsigned char *element)
{
    uint64_t bits = number_bits(encoder->type, element);
    if (encoder->mask && encoder->mask[pixel] != PIXEL_GOOD)
        return encoder->mask[pixel] == PIXEL_GAP ? -1 : -2;
    if (encoder->type->is_signed)
        return (int32_t)number_signed(encoder->type, bits);
    if (bits == UINT32_MAX || (!encoder->mask && bits == encoder->marked))
        return -1;
    return bits < LARGEST ? (int32_t)bits : LARGEST;
}

/* A difference in 1, 3, 7 or, of signed 32-bit integers, 15 bytes, little-endian. */
static void put_difference(struct encoder *encoder, int64_t difference)
{
    unsigned char *out = encoder->bytes + encoder->n;
    uint16_t two = htole16((uint16_t)difference);
    uint32_t four = htole32((uint32_t)difference);
    uint64_t eight = htole64((uint64_t)difference);
    if (difference >= -127 && difference <= 127) {
        *out = (unsigned char)difference;
        encoder->n++;
    } else if (difference >= -32767 && difference <= 32767) {
        *out = 0x80;
        memcpy(out + 1, &two, sizeof(two));
        encoder->n += 3;
    } else if (difference >= -INT32_MAX && difference <= INT32_MAX) {
        memcpy(out, "\x80\x00\x80", 3);
        memcpy(out + 3, &four, sizeof(four));
        encoder->n += 7;
    } else {
        memcpy(out, "\x80\x00\x80\x00\x00\x00\x80", 7);
        memcpy(out + 7, &eight, sizeof(eight));
        encoder->n += 15;
    }
}

/* -ENOBUFS: there is no more just now. */
static int make_room(struct encoder *encoder, size_t wanted)
{
    size_t room = wanted + wanted / 2, more = room - encoder->room;
    if (!made_memory_extend(more))
        return -ENOBUFS;
    unsigned char *bytes = realloc(encoder->bytes, room);
    if (!bytes) {
        made_memory_give_back(more);
        return -ENOMEM;
    }
    encoder->bytes = bytes;
    encoder->room = room;
    return 0;
}

static void encode(void *context, uint64_t first, size_t n, const unsigned char *elements)
{
    struct encoder *encoder = context;
    size_t wanted = encoder->n + n * encoder->most;
    if (wanted > encoder->room && !encoder->error)
        encoder->error = make_room(encoder, wanted);
    for (size_t i = 0; i < n && !encoder->error; i++, elements += encoder->type->size) {
        int32_t value = value_of(encoder, first + i, elements);
        put_difference(encoder, value - encoder->last);
        encoder->last = value;
    }
}

/* Without a mask the largest number of so many bits is no measurement. */
static int find_marked(struct views *views, uint64_t *marked)
{
    const struct sfs_type *type = &views->info->type;
    struct lines lines = {views, NULL, 0};
    double depth;
    if (!get_number(&lines, NEXUS_DETECTOR, "bit_depth_image", NULL, &depth) ||
        !(depth >= 1 && depth <= 32))
        depth = 8 * (double)type->size;
    *marked = UINT64_MAX >> (64 - (unsigned)depth);
    return lines.error;
}

/* ---- The file ---- */

/* A pixel's most bytes: differences of 8-bit integers, -1 and -2 among them, fit into two. */
static size_t most_bytes(const struct sfs_type *type)
{
    return type->size == 1 ? 3 : type->size == 4 && type->is_signed ? 15 : 7;
}

uint64_t cbf_bytes(const struct views *views)
{
    const struct sfs_type *type = &views->info->type;
    if (views->frame_rank != 2 || type->class != SFS_INTEGER || views->frames == 0 ||
        (type->size != 1 && type->size != 2 && type->size != 4) || views->frame_elements == 0 ||
        views->frame_elements > PIXELS_MOST)
        return 0;
    return HEAD_BYTES + views->frame_elements * most_bytes(type) + strlen(TAIL);
}

uint64_t cbf_least_bytes(const struct views *views)
{
    return HEAD_BYTES + views->frame_elements + strlen(TAIL);
}

const char *cbf_tail(size_t *n)
{
    *n = strlen(TAIL);
    return TAIL;
}

static void write_digest(const struct encoder *encoder, FILE *out)
{
#if HAVE_NETTLE
    struct md5_ctx context;
    uint8_t digest[MD5_DIGEST_SIZE];
    char text[BASE64_ENCODE_RAW_LENGTH(MD5_DIGEST_SIZE) + 1] = "";
    md5_init(&context);
    md5_update(&context, encoder->n - HEAD_BYTES, encoder->bytes + HEAD_BYTES);
    md5_digest(&context, sizeof(digest), digest);
    base64_encode_raw(text, sizeof(digest), digest);
    fprintf(out, "Content-MD5: %s\r\n", text);
#else
    (void)encoder, (void)out;
#endif
}

static void write_binary_header(struct views *views, const struct encoder *encoder, FILE *out)
{
    const uint64_t *dims = views->dims + views->info->rank - views->frame_rank;
    size_t n = encoder->n - HEAD_BYTES;
    fputs("_array_data.data\r\n;\r\n--CIF-BINARY-FORMAT-SECTION--\r\n"
          "Content-Type: application/octet-stream;\r\n"
          "     conversions=\"x-CBF_BYTE_OFFSET\"\r\n"
          "Content-Transfer-Encoding: BINARY\r\n",
          out);
    fprintf(out, "X-Binary-Size: %zu\r\n", n);
    fputs("X-Binary-ID: 1\r\nX-Binary-Element-Type: \"signed 32-bit integer\"\r\n"
          "X-Binary-Element-Byte-Order: LITTLE_ENDIAN\r\n",
          out);
    write_digest(encoder, out);
    fprintf(out, "X-Binary-Number-of-Elements: %" PRIu64 "\r\n", views->frame_elements);
    fprintf(out, "X-Binary-Size-Fastest-Dimension: %" PRIu64 "\r\n", dims[1]);
    fprintf(out, "X-Binary-Size-Second-Dimension: %" PRIu64 "\r\n", dims[0]);
    fprintf(out, "X-Binary-Size-Padding: %" PRIu64 "\r\n\r\n",
            views->frame_elements * encoder->most - n);
    fwrite(MAGIC, 1, strlen(MAGIC), out);
}

static int write_texts(struct views *views, uint64_t frame, const struct encoder *encoder,
                       struct view_head *before, struct view_head *binary)
{
    FILE *out = head_begin(before);
    if (!out)
        return -ENOMEM;
    fprintf(out, "###CBF: VERSION 1.5\r\n\r\ndata_image_%" PRIu64 "\r\n\r\n", frame + 1);
    fputs("_array_data.header_convention \"SLS_1.0\"\r\n_array_data.header_contents\r\n;\r\n\r\n",
          out);
    int error = write_kept_facts(views, out);
    if (!error)
        error = write_angles(views, frame, out);
    fputs(";\r\n\r\n", out);
    int failed = head_end(out, before);
    error = error ? error : failed;
    if (error)
        return error;
    out = head_begin(binary);
    if (!out)
        return -ENOMEM;
    write_binary_header(views, encoder, out);
    return head_end(out, binary);
}

/* Both texts, and blank lines between them. */
static int put_head(struct views *views, uint64_t frame, struct encoder *encoder)
{
    struct view_head before = {0}, binary = {0};
    int error = write_texts(views, frame, encoder, &before, &binary);
    if (!error && before.n + binary.n > HEAD_BYTES) /* texts are cut, so they never are */
        error = -EOVERFLOW;
    if (!error) {
        size_t blank = HEAD_BYTES - before.n - binary.n;
        unsigned char *out = encoder->bytes;
        memcpy(out, before.bytes, before.n);
        memset(out + before.n, ' ', blank);
        for (size_t end = blank; end >= 2; end -= end < BLANK_BYTES ? end : BLANK_BYTES)
            memcpy(out + before.n + end - 2, "\r\n", 2);
        memcpy(out + before.n + blank, binary.bytes, binary.n);
    }
    free(before.bytes);
    free(binary.bytes);
    return error;
}

/* -ENOBUFS: it takes more, which was not there. */
static int make_in(struct views *views, uint64_t frame, size_t room, struct view_head *out)
{
    int error = made_memory_take(room);
    if (error)
        return error;
    struct encoder encoder = {.type = &views->info->type,
                              .most = most_bytes(&views->info->type),
                              .bytes = malloc(room),
                              .n = HEAD_BYTES,
                              .room = room};
    error = encoder.bytes ? find_marked(views, &encoder.marked) : -ENOMEM;
    if (!error)
        error = pixel_mask_get(views, &encoder.mask);
    if (!error)
        error = pixels_read(views, frame, encode, &encoder);
    if (!error)
        error = encoder.error;
    if (!error)
        error = put_head(views, frame, &encoder);
    if (!error)
        error = interrupt_check(); /* then numbers may be missing that are there */
    if (error) {
        free(encoder.bytes);
        made_memory_give_back(encoder.room);
        return error;
    }
    unsigned char *tight = realloc(encoder.bytes, encoder.n);
    *out = (struct view_head){(char *)(tight ? tight : encoder.bytes), encoder.n};
    made_memory_give_back(encoder.room - encoder.n);
    return 0;
}

/* Most take little more than a byte for each pixel; of others, while there is no more than that,
 * all is made anew when there is. */
int cbf_make(struct views *views, uint64_t frame, struct view_head *out)
{
    if (cbf_bytes(views) == 0 || frame >= views->frames)
        return -EINVAL;
    int error = make_in(views, frame, HEAD_BYTES + (size_t)views->frame_elements / 8 * 9 + 64, out);
    return error == -ENOBUFS ? make_in(views, frame, (size_t)cbf_bytes(views), out) : error;
}
