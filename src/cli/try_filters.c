/* Choosing filters and chunks by trying them on some chunks. */
#include "cli/try_filters.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/filter_name.h"
#include "cli/filter_sample.h"
#include "cli/open_source.h"
#include "common/thread.h"
#include "common/thread_pool.h"

#define MOST_BLOCKS  UINT16_MAX /* of a selection with coordinates of 2 bytes */
#define MOST_WORKERS 8

/* Bytes of a section that are tried. Every filter there is is tried, so trying is a part of the
 * time that is to be short. */
static const size_t tried_bytes[] = {
    [GOAL_PLAIN] = (size_t)1 << 20,
    [GOAL_FAST] = (size_t)768 << 10,
    [GOAL_SMALL] = (size_t)1 << 20,
};

#define FASTER_SHARE 40  /* GOAL_PLAIN: one part in so many more bytes to inflate faster */
#define FAST_PERCENT 108 /* GOAL_FAST: of the bytes that GOAL_PLAIN makes, at most */
#define SMALL_TIMES  4   /* GOAL_SMALL: of the time that GOAL_PLAIN takes to decode, at most */
#define SMALL_SHARE  200 /* and one part in so many more bytes to encode faster */

/* One candidate for one section, and what came of it. */
struct
try {
    int section;
    struct candidate candidate;
    bool decodes;
    uint64_t most_ns;
    int error;
    struct trial trial;
};

/* What all tries need. */
struct trying {
    const struct copy *copy;
    const struct sfs_dataset_create *create;
    const struct sample *sample;
    struct workers *workers;
    struct try *tries;
    unsigned shuffles[SHUFFLES]; /* of selections, worth trying */
};

/* ---- One try ---- */

/* szip's filter in libhdf5 is for numbers only. */
static bool suits(const struct trying *trying, const struct try *try)
{
    const struct sfs_type *type = &sfs_dataset_info(trying->copy->from)->type;
    bool is_number = type->class == SFS_INTEGER || type->class == SFS_FLOAT;
    return is_number || try->section != VALUES_SECTION ||
           strncmp(try->candidate.second, "szip", 4) != 0;
}

static void put_parameters(const struct trying *trying, int section, struct filters *filters)
{
    bool are_elements = section == VALUES_SECTION;
    unsigned together = are_elements ? (unsigned)sfs_dataset_info(trying->copy->from)->type.size
                                     : block_bytes(trying->create);
    for (size_t i = 0; i < filters->n[section]; i++)
        filter_complete(&filters->filter[section][i], filters->values[section][i], together,
                        are_elements);
}

/* Only what memory and signals have to do with ends all tries. */
static int try_one(void *context, size_t i)
{
    struct trying *trying = context;
    struct try *try = &trying->tries[i];
    struct filters *filters = calloc(1, sizeof(*filters));
    if (!filters)
        return -ENOMEM;
    try->error = suits(trying, try) && !candidate_use(&try->candidate, try->section, filters)
                     ? 0
                     : -EOPNOTSUPP;
    if (!try->error) {
        put_parameters(trying, try->section, filters);
        const struct filter_pipeline pipeline = {.n = filters->n[try->section],
                                                 .filters = filters->filter[try->section]};
        try->error = sample_try(trying->sample, try->section, &pipeline, try->decodes, try->most_ns,
                                &try->trial);
    }
    free(filters);
    return try->error == -ENOMEM || try->error == -EINTR ? try->error : 0;
}

static int try_all(struct trying *trying, struct try *tries, size_t n)
{
    trying->tries = tries;
    return workers_each(trying->workers, n, try_one, trying);
}

/* ---- What GOAL_PLAIN has ---- */

static struct try try_of(int section, const struct candidate *candidate)
{
    return (struct try){.section = section, .candidate = *candidate, .most_ns = UINT64_MAX};
}

/* The shuffle of selections that what compresses them makes the most of. */
static int best_shuffle(struct trying *trying, const char *second, struct try *best)
{
    struct try tries[SHUFFLES];
    for (int i = 0; i < SHUFFLES; i++) {
        struct candidate candidate = candidate_plain(trying->shuffles[i], second);
        tries[i] = try_of(SELECTION_SECTION, &candidate);
    }
    int error = try_all(trying, tries, SHUFFLES);
    *best = tries[0];
    for (int i = 1; i < SHUFFLES; i++)
        if (!tries[i].error && tries[i].trial.bytes < best->trial.bytes)
            *best = tries[i];
    return error;
}

/* And how it is deflated. */
static int choose_shuffle(struct trying *trying, struct candidate *chosen)
{
    struct try best, faster;
    int error = best_shuffle(trying, DEFAULT_DEFLATE, &best);
    *chosen = best.candidate;
    if (error || !strcmp(FAST_DEFLATE, DEFAULT_DEFLATE))
        return error;
    faster = best;
    faster.candidate.second = FAST_DEFLATE;
    error = try_all(trying, &faster, 1);
    if (!error && faster.trial.bytes <= best.trial.bytes + best.trial.bytes / FASTER_SHARE)
        *chosen = faster.candidate;
    return error;
}

/* ---- What the other goals choose ---- */

/* The tries of one section; the first is what GOAL_PLAIN has, and worked. */
struct tries {
    int section;
    size_t n;
    struct try *of;
};

/* What a try says of all chunks that were copied. */
static double of_all(const struct trying *trying, const struct try *try, uint64_t n)
{
    const struct sample *sample = trying->sample;
    size_t tried = sample->bytes[try->section];
    return tried ? (double)n * (double)sample->all[try->section] / (double)tried : 0;
}

static double bytes_of(const struct trying *trying, const struct try *try)
{
    return of_all(trying, try, try->trial.bytes);
}

/* What is encoded is written, too: to memory, at a byte a nanosecond. */
static double time_of(const struct trying *trying, const struct try *try)
{
    return of_all(trying, try, try->trial.encode_ns + try->trial.bytes);
}

/* Both sections together: one may take more bytes if the other takes fewer. */
static void choose_fast(const struct trying *trying, const struct tries sections[TRIED_SECTIONS],
                        const struct try *best[TRIED_SECTIONS])
{
    const struct tries *a = &sections[0], *b = &sections[1];
    double most = (bytes_of(trying, a->of) + bytes_of(trying, b->of)) * FAST_PERCENT / 100;
    double least = time_of(trying, a->of) + time_of(trying, b->of);
    for (size_t i = 0; i < a->n; i++)
        for (size_t k = 0; k < b->n; k++) {
            const struct try *one = &a->of[i], *other = &b->of[k];
            if (one->error || other->error ||
                bytes_of(trying, one) + bytes_of(trying, other) > most)
                continue;
            double time = time_of(trying, one) + time_of(trying, other);
            if (time < least) {
                least = time;
                best[0] = one;
                best[1] = other;
            }
        }
}

static bool is_sensible(const struct tries *tries, const struct try *try)
{
    return !try->error && try->trial.decode_ns <= SMALL_TIMES * tries->of[0].trial.decode_ns;
}

static const struct try *choose_small(const struct tries *tries)
{
    const struct try *best = tries->of;
    uint64_t least = best->trial.bytes;
    for (size_t i = 0; i < tries->n; i++)
        if (is_sensible(tries, &tries->of[i]) && tries->of[i].trial.bytes < least)
            least = tries->of[i].trial.bytes;
    bool is_good = best->trial.bytes == least;
    for (size_t i = 0; i < tries->n; i++) {
        const struct try *try = &tries->of[i];
        if (is_sensible(tries, try) && try->trial.bytes <= least + least / SMALL_SHARE &&
            try->trial.bytes <= tries->of[0].trial.bytes &&
            (!is_good || try->trial.encode_ns < best->trial.encode_ns)) {
            best = try;
            is_good = true;
        }
    }
    return best;
}

/* The shuffle that suits a faster compressor, which finds longer matches: "" if it is the first
 * try's, or there is no such compressor. */
static int other_shuffle(struct trying *trying, const struct tries *tries, char *word, size_t n)
{
    struct try best;
    *word = '\0';
    if (tries->section != SELECTION_SECTION)
        return 0;
    int error = best_shuffle(trying, "zstd=1", &best);
    if (!best.error && strcmp(best.candidate.first, tries->of->candidate.first) != 0)
        snprintf(word, n, "%s", best.candidate.first);
    return error;
}

/* The first is tried before the others, which need not go on for much longer. Nothing is tried for
 * a section that filters were given for. */
static int try_section(struct trying *trying, enum goal goal, const struct choice *choice,
                       struct tries *tries)
{
    struct candidate candidates[MOST_CANDIDATES];
    char other[sizeof(candidates->first)];
    struct try *first = tries->of;
    *first = try_of(tries->section, &choice->of[tries->section]);
    tries->n = 1;
    if (!choice->is_made[tries->section])
        return 0;
    first->decodes = goal == GOAL_SMALL;
    int error = try_all(trying, first, 1);
    if (error || first->error)
        return error ? error : first->error;
    error = other_shuffle(trying, tries, other, sizeof(other));
    if (error)
        return error;
    tries->n += candidates_for(goal, first->candidate.first, other, candidates);
    for (size_t i = 1; i < tries->n; i++) {
        struct try *try = &tries->of[i];
        *try = try_of(tries->section, &candidates[i - 1]);
        try->decodes = goal == GOAL_SMALL;
        if (goal == GOAL_FAST)
            try->most_ns = first->trial.encode_ns;
    }
    return try_all(trying, first + 1, tries->n - 1);
}

static int choose_goal(struct trying *trying, enum goal goal, struct choice *choice)
{
    struct tries sections[TRIED_SECTIONS];
    const struct try *best[TRIED_SECTIONS];
    struct try *tries = calloc(TRIED_SECTIONS * (1 + MOST_CANDIDATES), sizeof(*tries));
    int error = tries ? 0 : -ENOMEM;
    for (int i = 0; i < TRIED_SECTIONS && !error; i++) {
        sections[i] = (struct tries){i, 1, tries + (size_t)i * (1 + MOST_CANDIDATES)};
        error = try_section(trying, goal, choice, &sections[i]);
        if (!error)
            best[i] = goal == GOAL_SMALL ? choose_small(&sections[i]) : sections[i].of;
    }
    if (!error && goal == GOAL_FAST)
        choose_fast(trying, sections, best);
    for (int i = 0; i < TRIED_SECTIONS && !error; i++)
        choice->of[i] = best[i]->candidate;
    free(tries);
    return error;
}

/* ---- All of it ---- */

/* A temporary file in a folder of its own, into which nobody else sees. */
struct scratch {
    char *folder;
    struct sfs_file *file;
};

static void close_scratch(struct scratch *scratch)
{
    sfs_discard(scratch->file);
    if (scratch->folder)
        rmdir(scratch->folder);
    free(scratch->folder);
}

static int open_scratch(struct scratch *scratch)
{
    struct sfs_options options = {
        .mode = 0600, .cache_size = FILE_CACHE_BYTES, .hdf5_worker = files_are_apart()};
    const char *directory = getenv("TMPDIR");
    char *folder, *path;
    if (asprintf(&folder, "%s/sparsectl.XXXXXX", directory ? directory : "/tmp") < 0)
        return -ENOMEM;
    scratch->folder = mkdtemp(folder);
    int error = scratch->folder ? 0 : -errno;
    if (error) {
        free(folder);
        return error;
    }
    if (asprintf(&path, "%s/sample.h5", folder) < 0)
        return -ENOMEM;
    error = sfs_create(path, &options, &scratch->file);
    free(path);
    return error;
}

/* What is wrong will be said when it is done in earnest, or does not matter. */
static int forgive(int error)
{
    if (error == -EINTR || error == -ENOMEM)
        return error;
    messages_forgive(error);
    return 0;
}

/* Along the slowest axis of a frame, so that rows stay whole. */
static bool cut_chunk(const struct sample *sample, struct sfs_dataset_create *create)
{
    uint64_t blocks = sample->most_selection / (8 * (uint64_t)create->rank); /* of 4 bytes */
    int axis = create->rank > 2 ? 1 : 0;
    while (axis < create->rank - 1 && create->chunk_dims[axis] == 1)
        axis++;
    if (blocks <= MOST_BLOCKS)
        return false;
    uint64_t parts = blocks / (MOST_BLOCKS * 3 / 4) + 1, dim = create->chunk_dims[axis];
    create->chunk_dims[axis] = parts < dim ? (dim + parts - 1) / parts : 1;
    return true;
}

/* Whether libhdf5 takes them for such elements. */
static int check_choice(struct sfs_file *file, const struct sfs_dataset_create *create,
                        const struct choice *choice)
{
    struct sfs_dataset_create tried = *create;
    struct sfs_dataset *dataset;
    struct filters *filters = calloc(1, sizeof(*filters));
    if (!filters)
        return -ENOMEM;
    int error = 0;
    tried.attributes_file = NULL;
    for (int i = 0; i < TRIED_SECTIONS && !error; i++)
        if (choice->is_made[i] && candidate_use(&choice->of[i], i, filters))
            error = -EINVAL;
    filters_use(filters, &tried);
    if (!error)
        error = sfs_dataset_create(file, "/chosen", &tried, &dataset);
    if (!error)
        sfs_dataset_close(dataset);
    free(filters);
    return error;
}

/* Besides the one that this thread has. */
static unsigned other_processors(void)
{
    unsigned others = thread_processors() - 1;
    return others < MOST_WORKERS ? others : MOST_WORKERS;
}

static int choose_filters(struct sfs_file *file, const struct copy *copy,
                          const struct sfs_dataset_create *create, enum goal goal,
                          const struct sample *sample, struct choice *choice)
{
    struct trying trying = {.copy = copy, .create = create, .sample = sample};
    struct choice chosen = *choice;
    int error = workers_create(other_processors(), &trying.workers);
    if (error)
        return error;
    candidate_shuffles(block_bytes(create), create->rank, trying.shuffles);
    if (choice->is_made[SELECTION_SECTION] && sample->n > 0)
        error = choose_shuffle(&trying, &choice->of[SELECTION_SECTION]);
    chosen.of[SELECTION_SECTION] = choice->of[SELECTION_SECTION];
    if (!error && goal != GOAL_PLAIN && sample->n > 0)
        error = choose_goal(&trying, goal, &chosen);
    workers_destroy(trying.workers);
    if (!error && goal != GOAL_PLAIN)
        error = check_choice(file, create, &chosen);
    if (!error)
        *choice = chosen;
    return error;
}

/* What there is without trying. */
static void choose_plain(const struct sfs_dataset_create *create, struct choice *choice)
{
    choice->of[SELECTION_SECTION] = candidate_plain(block_bytes(create), DEFAULT_DEFLATE);
    choice->of[VALUES_SECTION] = candidate_plain(0, DEFAULT_DEFLATE);
}

static int choose_in(struct sfs_file *file, const struct copy *copy,
                     struct sfs_dataset_create *create, bool may_cut, enum goal goal,
                     struct choice *choice)
{
    struct sample sample;
    bool wants_filters = choice->is_made[SELECTION_SECTION] ||
                         (goal != GOAL_PLAIN && choice->is_made[VALUES_SECTION]);
    int error = sample_begin(file, "/sample", copy, create, &sample);
    if (!error && may_cut && cut_chunk(&sample, create)) {
        choose_plain(create, choice);
        sample_free(&sample);
        if (wants_filters)
            error = sample_begin(file, "/cut", copy, create, &sample);
    }
    if (!error && wants_filters)
        error = sample_finish(copy, tried_bytes[goal], &sample);
    if (!error && wants_filters)
        error = choose_filters(file, copy, create, goal, &sample, choice);
    sample_free(&sample);
    return error;
}

int choose(const struct copy *copy, struct sfs_dataset_create *create, bool may_cut, enum goal goal,
           struct filters *filters, struct choice *choice)
{
    struct scratch scratch = {0};
    int error = 0;
    for (int i = 0; i < TRIED_SECTIONS; i++)
        choice->is_made[i] = !filters->given[i];
    choose_plain(create, choice);
    if (may_cut || choice->is_made[SELECTION_SECTION] || goal != GOAL_PLAIN)
        error = open_scratch(&scratch);
    if (!error && scratch.file)
        error = choose_in(scratch.file, copy, create, may_cut, goal, choice);
    close_scratch(&scratch);
    error = forgive(error);
    for (int i = 0; i < TRIED_SECTIONS && !error; i++)
        if (choice->is_made[i] && candidate_use(&choice->of[i], i, filters))
            error = -EINVAL;
    return error;
}
