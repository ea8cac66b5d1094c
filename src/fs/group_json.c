/* group.json: the external links of a group and what became of each, in a group of which at least
 * one is not followed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/json.h"
#include "fs/escaped_names.h"
#include "fs/mount.h"

struct outcome {
    const char *state, *why, *option;
};

static struct outcome outcome_of(int error)
{
    switch (-error) {
    case 0:
        return (struct outcome){"followed", NULL, NULL};
    case EXDEV:
        return (struct outcome){"refused", "it leads out of the folder of the HDF5 file",
                                "external_links or external_files=DIR"};
    case EPERM:
        return (struct outcome){"refused",
                                "others would see what the owner of the file does not let them "
                                "see, by its mode or that of a folder above it",
                                NULL};
    case EDEADLK:
        return (struct outcome){"refused", "it leads into a mount of sparsefs", NULL};
    case ENOENT:
        return (struct outcome){"missing", "there is no such file, or no such object in it", NULL};
    case EINVAL:
        return (struct outcome){"unreadable", "it is no HDF5 file, or damaged", NULL};
    default:
        return (struct outcome){"unreadable", strerror(-error), NULL};
    }
}

/* What came of an external link of a group that is there: the error of following it, or of looking
 * at it, which is not kept. -EINTR: there can be very many. */
static int error_of_link(struct mount *mount, const struct node *group, const struct sfs_link *link)
{
    const struct node *child;
    int error = interrupt_check();
    if (!error)
        error = node_child(mount->nodes, group, link, &child);
    if (error)
        return error;
    error = child->unfollowed;
    node_put(mount->nodes, child->number);
    return error;
}

int group_tells(struct mount *mount, const struct node *group, const struct sfs_links *links)
{
    int error = 0;
    for (size_t i = 0; i < links->n; i++) {
        const struct sfs_link *link = &links->link[i];
        if (!strcmp(link->name, NAME_GROUP_JSON))
            return -ENOENT;
        if (!error && link->type == SFS_LINK_EXTERNAL)
            error = error_of_link(mount, group, link);
    }
    return error == -EINTR ? error : error ? 0 : -ENOENT;
}

int group_find(struct mount *mount, const struct node *group)
{
    struct sfs_links links;
    if (group->type != NODE_GROUP)
        return -ENOENT;
    int error = sfs_list(node_file(group), node_address(group), &links);
    if (error)
        return error;
    error = group_tells(mount, group, &links);
    sfs_links_free(&links);
    return error;
}

static void write_member(FILE *out, const char *key, const char *text)
{
    fprintf(out, ", \"%s\": ", key);
    json_string(out, text, strlen(text));
}

static void write_link(FILE *out, const struct sfs_link *link, int error)
{
    struct outcome outcome = outcome_of(error);
    fputs("{\"name\": ", out);
    json_string(out, link->name, strlen(link->name));
    write_member(out, "file", link->target_file);
    write_member(out, "path", link->target);
    write_member(out, "state", outcome.state);
    if (outcome.why)
        write_member(out, "why", outcome.why);
    if (outcome.option)
        write_member(out, "option", outcome.option);
    putc('}', out);
}

static int write_text(struct mount *mount, const struct node *group, const struct sfs_links *links,
                      char **text, size_t *n)
{
    const char *separator = "\n    ";
    char *path;
    int error = node_whole_path(group, &path);
    if (error)
        return error;
    FILE *out = open_memstream(text, n);
    if (out) {
        fputs("{\n  \"path\": ", out);
        json_string(out, path, strlen(path));
        fputs(",\n  \"external_links\": [", out);
        for (size_t i = 0; i < links->n && error != -EINTR; i++) {
            if (links->link[i].type != SFS_LINK_EXTERNAL)
                continue;
            fputs(separator, out);
            error = error_of_link(mount, group, &links->link[i]);
            write_link(out, &links->link[i], error);
            separator = ",\n    ";
        }
        fputs("\n  ]\n}\n", out);
    }
    free(path);
    bool is_whole = out && fclose(out) == 0;
    if (is_whole && error != -EINTR)
        return 0;
    if (out)
        free(*text);
    return is_whole ? error : -ENOMEM;
}

int group_text(struct mount *mount, const struct node *group, char **text, size_t *n)
{
    struct sfs_links links;
    if (group->type != NODE_GROUP)
        return -ESTALE;
    int error = mounted_lock_to_read(group->mounted);
    if (error)
        return error;
    error = node_get(mount->nodes, group->number)
                ? sfs_list(node_file(group), node_address(group), &links)
                : -ESTALE;
    if (!error) {
        error = write_text(mount, group, &links, text, n);
        sfs_links_free(&links);
    }
    mounted_unlock(group->mounted);
    return error;
}
