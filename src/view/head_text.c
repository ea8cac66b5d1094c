/* Heads that are written as text. */
#include <errno.h>
#include <stdlib.h>

#include "view/private.h"

FILE *head_begin(struct view_head *head)
{
    *head = (struct view_head){0};
    return open_memstream(&head->bytes, &head->n);
}

int head_end(FILE *out, struct view_head *head)
{
    bool failed = ferror(out);
    if (fclose(out) == 0 && !failed)
        return 0;
    free(head->bytes);
    *head = (struct view_head){0};
    return -ENOMEM;
}
