/* Lines that were said lately, and a credit of time that each line takes some of. */
#include "common/log_rate.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SECOND     UINT64_C(1000000000)
#define LONGEST    (64 * SECOND)
#define FOR_A_LINE (SECOND / LOG_RATE_SECOND)

/* The line's place, or that of the one that was not heard for longest. */
static size_t place_of(const struct log_rate *rate, const char *line)
{
    size_t oldest = 0;
    for (size_t i = 0; i < LOG_RATE_KEPT; i++) {
        if (rate->recent[i].line && strcmp(rate->recent[i].line, line) == 0)
            return i;
        if (rate->recent[i].asked < rate->recent[oldest].asked)
            oldest = i;
    }
    return oldest;
}

bool log_rate_repeats(struct log_rate *rate, uint64_t now, const char *line, uint64_t *repeated)
{
    size_t i = place_of(rate, line);
    *repeated = 0;
    if (!rate->recent[i].line || strcmp(rate->recent[i].line, line) != 0) {
        free(rate->recent[i].line);
        rate->recent[i].line = strdup(line); /* without memory it is not known again */
        rate->recent[i].repeated = 0;
        rate->recent[i].pause = SECOND;
    } else {
        if (now - rate->recent[i].asked > SECOND)
            rate->recent[i].pause = SECOND;
        rate->recent[i].asked = now;
        if (now - rate->recent[i].said <= rate->recent[i].pause) {
            rate->recent[i].repeated++;
            return true;
        }
        *repeated = rate->recent[i].repeated;
        rate->recent[i].repeated = 0;
        if (*repeated && rate->recent[i].pause < LONGEST)
            rate->recent[i].pause *= 2;
    }
    rate->recent[i].said = rate->recent[i].asked = now;
    return false;
}

bool log_rate_allows(struct log_rate *rate, uint64_t now, uint64_t *left_out)
{
    const uint64_t most = LOG_RATE_BURST * FOR_A_LINE;
    uint64_t passed = now - rate->looked;
    rate->credit = passed < most - rate->credit ? rate->credit + passed : most;
    rate->looked = now;
    *left_out = 0;
    if (rate->credit < FOR_A_LINE) {
        rate->left_out++;
        return false;
    }
    rate->credit -= FOR_A_LINE;
    if (rate->left_out && now - rate->told > SECOND) {
        *left_out = rate->left_out;
        rate->left_out = 0;
        rate->told = now;
    }
    return true;
}

void log_rate_free(struct log_rate *rate)
{
    for (size_t i = 0; i < LOG_RATE_KEPT; i++)
        free(rate->recent[i].line);
    *rate = (struct log_rate){0};
}
