/* Digits are added until the text means the number again. */
#include "common/float_text.h"

#include <math.h>
#include <stdlib.h>

void float_write(FILE *out, double value, bool is_single)
{
    char text[40];
    int digits = is_single ? 6 : 15, most = is_single ? 9 : 17;
    if (isnan(value)) {
        fputs("nan", out);
        return;
    }
    for (; digits <= most; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (is_single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            break;
    }
    fputs(text, out);
}
