/* Digits are added until the text means the number again. The first are as many as a normal number keeps of any
 * text (FLT_DIG, DBL_DIG), of which "%g" leaves zeros at the end out; subnormal numbers keep fewer. */
#include "common/float_text.h"

#include <math.h>
#include <stdlib.h>

void float_write(FILE *out, double value, bool is_single)
{
    char text[40];
    bool is_subnormal = is_single ? !isnormal((float)value) : !isnormal(value);
    int digits = is_subnormal ? 1 : is_single ? 6 : 15, most = is_single ? 9 : 17;
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
