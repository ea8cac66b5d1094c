/* Where symbolic links point. */
#include "fs/link_targets.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/escaped_names.h"

/* Writes "../" for every level, and "." for none at all if nothing follows. */
static void write_up(FILE *out, unsigned levels, bool is_end)
{
    for (unsigned i = 0; i < levels; i++)
        fputs(is_end && i + 1 == levels ? ".." : "../", out);
    if (is_end && levels == 0)
        putc('.', out);
}

char *link_target_write(unsigned levels, const char *before, const char *path, bool in_root)
{
    char *target = NULL;
    size_t size;
    FILE *out = open_memstream(&target, &size);
    char *components = strdup(path), *rest = components;
    bool first = !*before;
    if (!out || !components)
        goto failed;
    if (!first) {
        write_up(out, levels, false);
        fputs(before, out);
    }
    for (char *component; (component = strsep(&rest, "/"));) {
        char name[NAME_BYTES];
        if (!*component || !strcmp(component, "."))
            continue;
        link_name_encode(component, in_root, name);
        in_root = false;
        if (first)
            write_up(out, levels, false);
        fprintf(out, "%s%s", first ? "" : "/", name);
        first = false;
    }
    if (first)
        write_up(out, levels, true);
    free(components);
    if (fclose(out) == 0)
        return target;
    free(target);
    return NULL;

failed:
    free(components);
    if (out)
        fclose(out);
    free(target);
    return NULL;
}

char *link_target_of_path(const struct node *group, const char *path)
{
    bool absolute = path[0] == '/';
    bool in_root = (absolute || !group->parent) && !group->mounted->files;
    return link_target_write(absolute ? group->level : 0, "", path, in_root);
}

/* Encoded as names are, in which a slash would lead on, the colon that divides the two, and what
 * terminals take for commands. */
static void write_encoded(FILE *out, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '/' || *c == '%' || *c == ':' || iscntrl((unsigned char)*c))
            fprintf(out, "%%%02X", (unsigned char)*c);
        else
            putc(*c, out);
    }
}

char *link_target_of_external(const struct sfs_link *link)
{
    char *target = NULL;
    size_t size;
    FILE *out = open_memstream(&target, &size);
    if (!out)
        return NULL;
    fputs(NAME_EXTERNAL, out);
    write_encoded(out, link->target_file);
    putc(':', out);
    write_encoded(out, link->target);
    if (fclose(out) == 0)
        return target;
    free(target);
    return NULL;
}
