/* Finding series among the links of groups, and looking at their members. */
#include "dataset/series.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/log.h"
#include "hdf5/hdf5.h"
#include "store/store.h"

/* Of a series, above the address of its group. UINT64_MAX, which means no address, has both bits.
 */
#define MARK      ((uint64_t)1 << 63)
#define MARK_BITS ((uint64_t)3 << 62)

bool series_is_address(uint64_t address)
{
    return (address & MARK_BITS) == MARK;
}

/* A group while its members are looked at. */
struct survey {
    struct sfs_file *file;
    struct sources *sources;
    const char *path; /* of the series, for messages */
    struct series *series;
    const struct series *old; /* NULL, or as it was when it was looked at last */
    size_t old_at; /* its members before this one come before the next one of the series, too */
    const struct sfs_dataset_info *info; /* of the series, once a member was looked at */
    struct why why;
};

/* ---- Members ---- */

struct numbered {
    uint64_t number;
    struct sfs_link *link;
};

static int by_number(const void *a, const void *b)
{
    const struct numbered *left = a, *right = b;
    return left->number < right->number ? -1 : left->number > right->number;
}

/* No file is called "." but for sources, where it is this one. */
static bool is_member(const struct sfs_file *file, const struct sfs_link *link, uint64_t *number)
{
    bool leads_out = link->type == SFS_LINK_EXTERNAL;
    return series_number(link->name, number) && link->type != SFS_LINK_USER &&
           (leads_out ? strcmp(link->target_file, ".") != 0 : !file->follows);
}

/* Takes over the strings of the link that are wanted. */
static void take_link(const struct numbered *numbered, uint64_t group, struct series_member *member,
                      struct series_source *source)
{
    struct sfs_link *link = numbered->link;
    bool leads_out = link->type == SFS_LINK_EXTERNAL;
    char **file = &link->target_file, **dataset = leads_out ? &link->target : &link->name;
    *member = (struct series_member){.number = numbered->number};
    *source = (struct series_source){.file = leads_out ? *file : ".",
                                     .dataset = *dataset,
                                     .group = leads_out ? 0 : group,
                                     .own_file = leads_out ? *file : NULL,
                                     .own_dataset = *dataset};
    *dataset = NULL;
    if (leads_out)
        *file = NULL;
}

/* The members among the links of a group, in their order. */
static int take_members(const struct sfs_file *file, uint64_t group, struct sfs_links *links,
                        struct series *series)
{
    size_t n = 0;
    struct numbered *numbered = calloc(links->n + 1, sizeof(*numbered));
    if (!numbered)
        return -ENOMEM;
    for (size_t i = 0; i < links->n; i++)
        if (is_member(file, &links->link[i], &numbered[n].number))
            numbered[n++].link = &links->link[i];
    if (n > 1)
        qsort(numbered, n, sizeof(*numbered), by_number);
    series->member = calloc(n + 1, sizeof(*series->member));
    series->source = calloc(n + 1, sizeof(*series->source));
    if (series->member && series->source)
        for (; series->n < n; series->n++)
            take_link(&numbered[series->n], group, &series->member[series->n],
                      &series->source[series->n]);
    free(numbered);
    return series->member && series->source ? 0 : -ENOMEM;
}

void series_free(struct series *series)
{
    if (!series)
        return;
    for (size_t i = 0; i < series->n; i++) {
        free(series->source[i].own_file);
        free(series->source[i].own_dataset);
    }
    free(series->source);
    free(series->member);
    free(series->parts.part);
    hdf5_info_free(&series->info);
    free(series);
}

struct series_source series_source_of(const struct series *series, const struct series_part *part,
                                      char name[SERIES_NAME_BYTES])
{
    size_t first = 0, end = series->n;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (series->member[middle].number < part->number)
            first = middle + 1;
        else
            end = middle;
    }
    if (first < series->n && series->member[first].number == part->number)
        return series->source[first];
    series_name(part->number, name);
    return (struct series_source){.file = ".", .dataset = name, .group = series->group};
}

/* ---- Looking at a member ---- */

/* What is done with one that could be opened; is_alike: it has the datatype of the series. */
typedef int (*member_function)(struct survey *survey, struct series_member *member,
                               struct sfs_dataset *dataset, bool is_alike);

static int look_at(struct survey *survey, size_t i, member_function each)
{
    struct series_member *member = &survey->series->member[i];
    const struct series_source *at = &survey->series->source[i];
    struct sfs_dataset *dataset;
    const struct source_name name = {at->file, at->dataset, at->group};
    struct source *source = source_create(survey->sources, survey->file, survey->path,
                                          &survey->info->encoded_type, &name);
    int error = source ? source_get(source, true, &dataset) : -ENOMEM;
    if (!error) {
        bool is_alike = source_is_of_type(source);
        error = FOLLOWING(dataset->file, each(survey, member, dataset, is_alike));
        source_put(source);
    } else if (source && source_state(source) == SFS_SOURCE_REFUSED) {
        error = why_refused(&survey->why, -EILSEQ, "its file, %s, may not be opened", at->file);
    } else if (error == -ENOENT || error == -EINVAL || error == -EIO) {
        member->is_missing = true;
        error = 0;
    }
    source_destroy(source);
    return error ? error : interrupt_check();
}

/* The first member that can be opened, and so what the others must be like. */
static int look_at_first(struct survey *survey, size_t *first, member_function each)
{
    struct series *series = survey->series;
    for (*first = 0; *first < series->n; ++*first) {
        int error = look_at(survey, *first, each);
        if (error || !series->member[*first].is_missing)
            return error;
    }
    return 0;
}

static int can_be_first(struct survey *survey, struct series_member *member,
                        struct sfs_dataset *dataset, bool is_alike)
{
    const struct sfs_dataset_info *info = &dataset->info;
    (void)member, (void)is_alike;
    return info->rank >= 2 && !info->type.has_pointers
               ? 0
               : why_refused(&survey->why, -EILSEQ, "the first member is no dataset of frames");
}

/* ---- Whether a group has a series ---- */

static int begin_survey(struct survey *survey, uint64_t group, struct sfs_links *links)
{
    survey->series = calloc(1, sizeof(*survey->series));
    if (!survey->series)
        return -ENOMEM;
    survey->series->group = group;
    survey->series->states = sfs_states(survey->file);
    if (!survey->info)
        survey->info = &survey->series->info;
    pthread_mutex_lock(&survey->file->lock);
    int error = file_make_sources(survey->file);
    survey->sources = survey->file->sources;
    pthread_mutex_unlock(&survey->file->lock);
    return error ? error : take_members(survey->file, group, links, survey->series);
}

/* Its members are taken out of the links. -ENOENT: it has none. */
static int check_group(struct sfs_file *file, uint64_t group, struct sfs_links *links)
{
    struct survey survey = {.file = file, .path = SERIES_NAME};
    size_t first;
    int error = group & MARK_BITS ? -ENOENT : begin_survey(&survey, group, links);
    if (!error)
        error = look_at_first(&survey, &first, can_be_first);
    if (!error && first == survey.series->n)
        error = -ENOENT;
    series_free(survey.series);
    return error == -EILSEQ ? -ENOENT : error;
}

static int find_series(struct sfs_file *file, uint64_t group, uint64_t *address)
{
    struct sfs_links links;
    int error = hdf5_list(file->hdf5, group, &links);
    if (error)
        return error;
    error = check_group(file, group, &links);
    sfs_links_free(&links);
    *address = group | MARK;
    return error;
}

static int make_link(uint64_t address, struct sfs_link *link)
{
    *link = (struct sfs_link){SFS_LINK_SERIES, .name = strdup(SERIES_NAME), .address = address};
    return link->name ? 0 : -ENOMEM;
}

/* Before the i-th. */
static int insert_link(struct sfs_links *links, size_t i, uint64_t address)
{
    struct sfs_link made;
    struct sfs_link *grown = reallocarray(links->link, links->n + 1, sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    links->link = grown;
    int error = make_link(address, &made);
    if (error)
        return error;
    memmove(grown + i + 1, grown + i, (links->n - i) * sizeof(*grown));
    grown[i] = made;
    links->n++;
    return 0;
}

int series_list(struct sfs_file *file, uint64_t group, struct sfs_links *links)
{
    size_t place = 0;
    uint64_t number, address;
    bool has_members = false;
    while (place < links->n && strcmp(links->link[place].name, SERIES_NAME) < 0)
        place++;
    if (place < links->n && !strcmp(links->link[place].name, SERIES_NAME))
        return 0;
    for (size_t i = place; i < links->n && !has_members; i++)
        has_members = series_number(links->link[i].name, &number);
    int error = has_members ? find_series(file, group, &address) : -ENOENT;
    if (!error)
        error = insert_link(links, place, address);
    return error == -ENOENT ? 0 : error;
}

int series_lookup(struct sfs_file *file, uint64_t group, const char *name, struct sfs_link *link)
{
    uint64_t address;
    int error = strcmp(name, SERIES_NAME) ? -ENOENT : find_series(file, group, &address);
    return error ? error : make_link(address, link);
}

int series_find(struct sfs_file *file, uint64_t group, const char *path, uint64_t *address)
{
    static const char name[] = SERIES_NAME;
    struct sfs_link link;
    size_t n = strlen(path), length = sizeof(name) - 1;
    while (n > 0 && path[n - 1] == '/')
        n--;
    bool is_named = n >= length && !strncmp(path + n - length, name, length) &&
                    (n == length || path[n - length - 1] == '/');
    char *parent = is_named ? strndup(path, n - length) : NULL;
    if (!parent)
        return is_named ? -ENOMEM : -ENOENT;
    int error = *parent ? hdf5_find(file->hdf5, group, parent, &group) : 0;
    free(parent);
    enum sfs_object_type type;
    if (!error)
        error = sfs_object_type(file, group, &type);
    if (error || type != SFS_GROUP)
        return error ? error : -ENOENT;
    error = hdf5_lookup(file->hdf5, group, name, &link);
    if (!error)
        sfs_link_free(&link); /* which leads nowhere */
    return error == -ENOENT ? find_series(file, group, address) : error ? error : -ENOENT;
}

/* ---- Opening ---- */

/* A copy that holds nothing of what it was copied from. */
static int describe(const struct sfs_dataset *member, struct sfs_dataset_info *info)
{
    const struct sfs_dataset_info *from = &member->info;
    struct hdf5_owner owner = dataset_owner(member);
    size_t n = from->encoded_type.n, size = from->type.size;
    void *type = malloc(n);
    info->encoded_type = (struct sfs_encoded){type, n};
    void *fill = malloc(size);
    info->fill_json = from->fill_json ? strdup(from->fill_json) : NULL;
    if (!type || !fill || (from->fill_json && !info->fill_json)) {
        free(fill);
        return -ENOMEM;
    }
    memcpy(type, from->encoded_type.bytes, n);
    memcpy(fill, from->fill, size);
    info->type.size = size;
    hdf5_info_set_fill(info, fill);
    info->space = SFS_SPACE_SIMPLE;
    info->layout = SFS_VIRTUAL;
    info->rank = from->rank;
    memcpy(info->dims, from->dims, sizeof(info->dims));
    int error = hdf5_type_describe(&owner, type, n, &info->type);
    return error == -EINVAL ? -EIO : error;
}

/* A whole number, alone or as the only one of an array. */
static bool is_number(const char *text, uint64_t *number)
{
    char *end;
    text += *text == '[';
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno == 0 && (*end == '\0' || !strcmp(end, "]"));
}

static int take_attribute(const struct sfs_attributes *attributes, const char *name, bool *has,
                          uint64_t *number, struct why *why)
{
    for (size_t i = 0; i < attributes->n; i++) {
        const struct sfs_attribute *attribute = &attributes->attribute[i];
        if (strcmp(attribute->name, name) != 0)
            continue;
        *has = attribute->text && is_number(attribute->text, number);
        if (!*has)
            return why_damaged(why, "its %s is no number", name);
    }
    return 0;
}

static int take_numbers(struct survey *survey, struct series_member *member,
                        struct sfs_dataset *dataset)
{
    struct sfs_attributes attributes;
    int error = sfs_attributes(dataset->file, dataset->address, &attributes);
    if (error)
        return error;
    error =
        take_attribute(&attributes, "image_nr_low", &member->has_low, &member->low, &survey->why);
    if (!error)
        error = take_attribute(&attributes, "image_nr_high", &member->has_high, &member->high,
                               &survey->why);
    sfs_attributes_free(&attributes);
    return error;
}

static int take_first(struct survey *survey, struct series_member *member,
                      struct sfs_dataset *dataset, bool is_alike)
{
    USING(dataset);
    int error = can_be_first(survey, member, dataset, is_alike);
    hdf5_info_free(&survey->series->info); /* of a time before, when its file moved */
    if (!error)
        error = describe(dataset, &survey->series->info);
    member->frames = dataset->info.dims[0];
    return error ? error : take_numbers(survey, member, dataset);
}

static int take_other(struct survey *survey, struct series_member *member,
                      struct sfs_dataset *dataset, bool is_alike)
{
    USING(dataset);
    const struct sfs_dataset_info *info = survey->info;
    if (dataset->info.rank != info->rank || memcmp(dataset->info.dims + 1, info->dims + 1,
                                                   (size_t)(info->rank - 1) * sizeof(*info->dims)))
        return why_damaged(&survey->why, "its frames have other dims than those of the first");
    if (!is_alike)
        return why_damaged(&survey->why, "it has another datatype than the first");
    member->frames = dataset->info.dims[0];
    return take_numbers(survey, member, dataset);
}

/* Says of which member the reason is. */
static int tell_member(struct survey *survey, size_t i, int error)
{
    char name[SERIES_NAME_BYTES];
    if (error != -EILSEQ)
        return error;
    struct why why = survey->why;
    series_name(survey->series->member[i].number, name);
    return why_damaged(&survey->why, "%s: %.200s", name, why.text);
}

static int look_at_all(struct survey *survey)
{
    struct series *series = survey->series;
    size_t i;
    int error = look_at_first(survey, &i, take_first);
    if (!error && i == series->n)
        return why_damaged(&survey->why, "none of its members is there");
    error = tell_member(survey, i, error);
    for (i++; i < series->n && !error; i++)
        error = tell_member(survey, i, look_at(survey, i, take_other));
    return error;
}

/* ---- Looking again ---- */

/* Of the thread that follows, too. */
static int check_interrupt(const struct sfs_file *file)
{
    return store_is_interrupted(file->store) ? -EINTR : interrupt_check();
}

/* Where it is in the series as it was, under the same names; its n: it was not there. Members are asked for in their
 * order. */
static size_t find_old(struct survey *survey, size_t i)
{
    const struct series *old = survey->old;
    const struct series_source *at = &survey->series->source[i];
    size_t k = survey->old_at;
    while (k < old->n && old->member[k].number < survey->series->member[i].number)
        k++;
    survey->old_at = k;
    bool is_same = k < old->n && old->member[k].number == survey->series->member[i].number &&
                   !strcmp(old->source[k].file, at->file) &&
                   !strcmp(old->source[k].dataset, at->dataset);
    return is_same ? k : old->n;
}

/* A change that comes with the same time of change as the one before is seen the next time. */
static int look_at_again(struct survey *survey, size_t i)
{
    const struct series *old = survey->old;
    struct series_member *member = &survey->series->member[i];
    struct series_source *at = &survey->series->source[i];
    size_t k = find_old(survey, i);
    bool is_same = k < old->n && !memcmp(&at->stamp, &old->source[k].stamp, sizeof(at->stamp));
    at->was_stable = is_same;
    if (is_same && old->source[k].was_stable) {
        *member = old->member[k];
        return 0;
    }
    int error = tell_member(survey, i, look_at(survey, i, take_other));
    if (!error && member->is_missing && k < old->n)
        *member = old->member[k];
    return error;
}

static int take_stamps(struct survey *survey)
{
    struct series *series = survey->series;
    int error = 0;
    for (size_t i = 0; survey->file->follows && i < series->n && !error; i++) {
        source_stamp(survey->file, series->source[i].file, &series->source[i].stamp);
        error = check_interrupt(survey->file);
    }
    return error;
}

/* The last member that is there may be growing: what it is to have in the end is not shown before
 * it is there. */
static void end_where_it_ends(struct series *series)
{
    size_t n = series->n;
    while (n > 0 && series->member[n - 1].is_missing)
        n--;
    struct series_member *last = n > 0 ? &series->member[n - 1] : NULL;
    if (last && last->has_low && last->has_high && last->high >= last->low &&
        last->high - last->low >= last->frames)
        last->has_high = false;
}

/* What is not there behind the last that is has no known size. */
static void tell_missing_end(const struct survey *survey)
{
    const struct series *series = survey->series;
    size_t n = series->n;
    while (n > 0 && series->member[n - 1].is_missing)
        n--;
    if (n == series->n)
        return;
    char name[SERIES_NAME_BYTES];
    series_name(series->member[n].number, name);
    log_warning("%s: %s: %s cannot be opened, and nothing behind it: the series ends before it",
                sfs_path(survey->file), survey->path, name);
}

/* Puts the members, all of which were looked at, in their places. */
static int place_all(struct survey *survey, uint64_t *elements)
{
    struct series *series = survey->series;
    uint64_t dims[SFS_MAX_RANK];
    if (survey->file->follows)
        end_where_it_ends(series);
    int error = series_place(series->member, series->n, &series->parts, &survey->why);
    if (error)
        return error;
    memcpy(dims, survey->info->dims, sizeof(dims));
    dims[0] = series->parts.frames;
    if (!box_product(dims, survey->info->rank, 1, elements))
        return why_damaged(&survey->why, "its elements exceed 63 bits");
    return 0;
}

static int make_series(struct survey *survey)
{
    struct series *series = survey->series;
    struct sfs_dataset_info *info = &series->info;
    int error = take_stamps(survey);
    if (!error)
        error = look_at_all(survey);
    if (!error)
        error = place_all(survey, &info->elements);
    if (error)
        return error;
    info->dims[0] = series->parts.frames;
    memcpy(info->max_dims, info->dims, sizeof(info->max_dims));
    tell_missing_end(survey);
    return 0;
}

int series_open(struct sfs_file *file, uint64_t address, const char *path, struct series **out,
                struct why *why)
{
    struct survey survey = {.file = file, .path = path};
    struct sfs_links links;
    uint64_t group = address & ~MARK_BITS;
    int error = hdf5_list(file->hdf5, group, &links);
    if (error)
        return object_failed(file, "group", group, error, why);
    error = begin_survey(&survey, group, &links);
    sfs_links_free(&links);
    if (!error)
        error = make_series(&survey);
    if (error) {
        series_free(survey.series);
        if (error == -EILSEQ)
            store_say(file->store, why, "%s: the series cannot be shown: %s", path,
                      survey.why.text);
        return error == -EILSEQ ? -EIO : error;
    }
    *out = survey.series;
    return 0;
}

/* Whether the stamps of all members are what they were two times. */
static int compare_stamps(const struct sfs_dataset *dataset, bool *is_same)
{
    const struct series *series = dataset->series;
    int error = 0;
    *is_same = series->states == sfs_states(dataset->file);
    for (size_t i = 0; i < series->n && *is_same && !error; i++) {
        struct source_stamp stamp;
        source_stamp(dataset->file, series->source[i].file, &stamp);
        *is_same = series->source[i].was_stable &&
                   !memcmp(&stamp, &series->source[i].stamp, sizeof(stamp));
        error = check_interrupt(dataset->file);
    }
    return error;
}

static int look_at_all_again(struct survey *survey)
{
    uint64_t elements;
    int error = take_stamps(survey);
    for (size_t i = 0; i < survey->series->n && !error; i++) {
        error = look_at_again(survey, i);
        if (!error)
            error = check_interrupt(survey->file);
    }
    return error ? error : place_all(survey, &elements);
}

static int look_again_once(struct sfs_dataset *dataset, struct survey *survey)
{
    struct sfs_file *file = dataset->file;
    struct sfs_links links;
    uint64_t group = dataset->address & ~MARK_BITS;
    FOLLOWED(file);
    int error = library_current(file);
    if (error)
        return error;
    *survey = (struct survey){
        .file = file, .path = dataset->path, .old = dataset->series, .info = &dataset->info};
    error = hdf5_list(file->hdf5, group, &links);
    if (error)
        return object_failed(file, "group", group, error, NULL);
    error = begin_survey(survey, group, &links);
    sfs_links_free(&links);
    if (!error)
        error = look_at_all_again(survey);
    if (error)
        series_free(survey->series);
    return error;
}

int series_look_again(struct sfs_dataset *dataset, struct series **series)
{
    struct survey survey;
    bool is_same;
    *series = NULL;
    int error = compare_stamps(dataset, &is_same);
    if (error || is_same)
        return error;
    error = FOLLOWING(dataset->file, look_again_once(dataset, &survey));
    if (!error)
        *series = survey.series;
    else if (error == -EILSEQ && !dataset->series->was_said)
        log_error("%s: %s: the series stays as it is: %s", sfs_path(dataset->file), dataset->path,
                  survey.why.text);
    dataset->series->was_said |= error == -EILSEQ;
    return error;
}
