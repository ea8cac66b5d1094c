/* Drawing the bar. */
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"

#define WIDTH      40
#define FIRST_NS   500000000 /* before the bar is drawn at all, */
#define BETWEEN_NS 100000000 /* and between drawings */

void progress_begin(struct progress *progress, const char *what, uint64_t total)
{
    *progress = (struct progress){.what = what, .total = total ? total : 1};
    progress->is_terminal = isatty(STDERR_FILENO);
    pthread_mutex_init(&progress->lock, NULL);
    progress->next = clock_in(FIRST_NS);
}

static void draw(struct progress *progress)
{
    static const char full[] = "########################################";
    double share = (double)progress->done / (double)progress->total;
    fprintf(stderr, "\r%s [%-*.*s] %3.0f %%", progress->what, WIDTH, (int)(share * WIDTH), full,
            100 * share);
    fflush(stderr);
    progress->is_shown = true;
    progress->next = clock_in(BETWEEN_NS);
}

void progress_add(struct progress *progress, uint64_t n)
{
    pthread_mutex_lock(&progress->lock);
    progress->done += n;
    if (progress->is_terminal && clock_has_come(&progress->next))
        draw(progress);
    pthread_mutex_unlock(&progress->lock);
}

void progress_end(struct progress *progress)
{
    if (progress->is_shown)
        fprintf(stderr, "\r%*s\r", (int)(strlen(progress->what) + WIDTH + 10), "");
    pthread_mutex_destroy(&progress->lock);
}
