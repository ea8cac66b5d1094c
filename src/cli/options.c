/* Parsing what the command lines of several commands are made of. */
#include "cli/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/filter_name.h"

/* ---- Targets ---- */

int target_parse(const char *command, const char *text, struct target *target)
{
    const char *colon = NULL;
    for (const char *c = text; *c; c++)
        if (c[0] == ':' && c[1] == '/')
            colon = c;
    if (colon == text || !*text)
        return refuse(command, "%s: the name of a file is missing", text);
    target->file = colon ? strndup(text, (size_t)(colon - text)) : strdup(text);
    target->path = colon ? strdup(colon + 1) : NULL;
    if (target->file && (target->path || !colon))
        return 0;
    target_free(target);
    fail(-ENOMEM, "%s", text);
    return FAILED;
}

void target_free(struct target *target)
{
    free(target->file);
    free(target->path);
    *target = (struct target){0};
}

char *absolute_path(const char *path)
{
    char *absolute = NULL;
    return asprintf(&absolute, "%s%s", *path == '/' ? "" : "/", path) < 0 ? NULL : absolute;
}

/* ---- Numbers ---- */

bool number_take(const char **text, uint64_t *number)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(*text, &end, 10);
    if (errno || value >= SFS_UNLIMITED)
        return false;
    *number = value;
    *text = end;
    return true;
}

int dims_parse(const char *command, const struct dims_option *option, const char *text, int *rank,
               uint64_t *dims)
{
    const char *at = text, *name = option->name;
    bool good;
    int n = 0;
    do {
        if (n == SFS_MAX_RANK)
            return refuse(command, "%s %s: more than %d axes", name, text, SFS_MAX_RANK);
        if (option->allow_inf && !strncmp(at, "inf", 3)) {
            dims[n] = SFS_UNLIMITED;
            at += 3;
            good = true;
        } else {
            good = number_take(&at, &dims[n]) && dims[n] >= option->least;
        }
        n++;
    } while (good && *at++ == ',');
    if (!good || at[-1])
        return refuse(command, "%s %s: not numbers of at least %llu with commas between them%s",
                      name, text, (unsigned long long)option->least,
                      option->allow_inf ? ", or inf" : "");
    if (*rank && n != *rank)
        return refuse(command, "%s %s: %d numbers, but there are %d axes", name, text, n, *rank);
    *rank = n;
    return 0;
}

int number_parse(const char *command, const char *option, const char *text, uint64_t least,
                 uint64_t *number)
{
    const char *at = text;
    if (!number_take(&at, number) || *at || *number < least)
        return refuse(command, "%s %s: not a number of at least %llu", option, text,
                      (unsigned long long)least);
    return 0;
}

/* ---- Options ---- */

int next_option(int argc, char **argv, const struct option *options)
{
    int option = getopt_long(argc, argv, ":", options, NULL);
    if (option == '?')
        refuse(argv[0], "no such option: %s", argv[optind - 1]);
    if (option == ':') {
        refuse(argv[0], "%s: a value is missing", argv[optind - 1]);
        return '?';
    }
    return option;
}

int check_arguments(int argc, char **argv, int least, int most, const char *what)
{
    int n = argc - optind;
    if (n < least)
        return refuse(argv[0], "%s wanted", what);
    if (n > most)
        return refuse(argv[0], "%s wanted, this is too much: %s", what, argv[optind + most]);
    return 0;
}

int take_file(int argc, char **argv, const struct option *options, const char **path)
{
    if (next_option(argc, argv, options) != -1)
        return USAGE;
    int code = check_arguments(argc, argv, 1, 1, "a FILE is");
    *path = argv[optind];
    return code;
}
