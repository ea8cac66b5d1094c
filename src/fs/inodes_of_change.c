/* Changes, and a walk over the inodes that show what has changed. */
#include "fs/inodes_of_change.h"

#include <stdlib.h>

#include "fs/kernel_known.h"
#include "fs/open.h"
#include "fs/temporary_table.h"

struct change change_of_frames(const struct node *node, uint64_t first, uint64_t last)
{
    return (struct change){.node = node, .first = first, .last = last, .views = CHANGED_VIEWS};
}

struct change change_since(const struct node *node, struct views *views, uint64_t frames,
                           uint64_t first, uint64_t last)
{
    bool has_more = views_frames(views) > frames;
    struct change change =
        change_of_frames(node, has_more && frames < first ? frames : first, last);
    change.names = has_more;
    return change;
}

static bool is_view_of_frame(unsigned kind)
{
    return kind < VIEW_STACK_RAW;
}

bool change_concerns(const struct change *change, const struct node *node, struct inode inode)
{
    unsigned kind = inode_view(inode);
    return change->node->type == NODE_DATASET && inode_is_view(inode) &&
           node->object == change->node->object && change->views >> kind & 1 &&
           (!is_view_of_frame(kind) ||
            (inode.frame >= change->first && inode.frame <= change->last));
}

/* ---- The inodes ---- */

struct walk {
    const struct change *change;
    const struct change_inodes *inodes;
    uint64_t except;
    change_visit_function visit;
    void *context;
};

static bool visit_inode(const struct walk *walk, struct inode inode)
{
    uint64_t number = inode_pack(inode);
    return number != walk->except && known_has(walk->inodes->known, inode) &&
           walk->visit(walk->context, inode);
}

static bool visit_frames(const struct walk *walk, uint32_t node)
{
    const struct change *change = walk->change;
    for (uint64_t frame = change->first; frame <= change->last && frame < INODE_MAX_FRAMES;) {
        struct inode inode = {.node = node, .frame = frame};
        if (atomic_load_explicit(&walk->inodes->are_unmounted, memory_order_relaxed))
            return true;
        if (!known_has_block(walk->inodes->known, inode)) {
            frame += KNOWN_BLOCK - frame % KNOWN_BLOCK;
            continue;
        }
        for (unsigned kind = 0; is_view_of_frame(kind); kind++) {
            inode.entry = ENTRY_VIEW + kind;
            if (change->views >> kind & 1 && visit_inode(walk, inode))
                return true;
        }
        frame++;
    }
    return false;
}

static bool visit_node(const struct walk *walk, uint32_t number)
{
    const struct change *change = walk->change;
    struct inode inode = {.node = number, .entry = ENTRY_NODE};
    if (change->node->type == NODE_GROUP)
        return visit_inode(walk, inode);
    for (unsigned kind = VIEW_STACK_RAW; kind < VIEW_KINDS; kind++) {
        inode.entry = ENTRY_VIEW + kind;
        if (change->views >> kind & 1 && visit_inode(walk, inode))
            return true;
    }
    for (inode.entry = ENTRY_FRAMES; change->names && inode.entry < ENTRY_CSR_DIR; inode.entry++)
        if (visit_inode(walk, inode))
            return true;
    return visit_frames(walk, number);
}

/* Temporary files that have become frames and are still open. */
static bool visit_temporaries(const struct walk *walk)
{
    const struct change *change = walk->change;
    struct inode *inodes;
    bool ended = false;
    size_t n = temporaries_that_became(walk->inodes->temporaries, change->node->object,
                                       change->first, change->last, change->views, &inodes);
    for (size_t i = 0; i < n && !ended; i++)
        ended = inode_pack(inodes[i]) != walk->except && walk->visit(walk->context, inodes[i]);
    free(inodes);
    return ended;
}

bool change_visit(const struct change *change, const struct change_inodes *inodes, uint64_t except,
                  change_visit_function visit, void *context)
{
    const struct walk walk = {change, inodes, except, visit, context};
    uint32_t *numbers;
    size_t n = node_same(inodes->nodes, change->node, &numbers);
    bool ended = n == 0 && visit_node(&walk, change->node->number);
    for (size_t i = 0; i < n && !ended; i++)
        ended = visit_node(&walk, numbers[i]);
    free(numbers);
    return ended || visit_temporaries(&walk);
}

/* Of nodes with more frames than are noted. False as well: there is no memory, and *all is false. */
static bool visit_open(change_visit_function visit, void *context, bool *all)
{
    struct inode *inodes;
    size_t n;
    bool ended = false;
    *all = open_files_told(&inodes, &n) == 0;
    if (!*all)
        return false;
    for (size_t i = 0; i < n && !ended; i++)
        ended = visit(context, inodes[i]);
    free(inodes);
    return ended;
}

/* Which elements of others they show is not looked at: all that the kernel may have of them. */
bool change_visit_others(const struct change *change, const struct change_inodes *inodes,
                         change_visit_function visit, void *context)
{
    struct nodes *nodes = inodes->nodes;
    struct node_told *told;
    if (change->node->type != NODE_DATASET || change->only_attributes ||
        change->views != CHANGED_VIEWS)
        return false;
    bool ended = false;
    size_t n = node_told(nodes, change->node, &told);
    for (size_t i = 0; i < n && !ended; i++) {
        bool is_done = true;
        struct change all = change_of_frames(change->node, told[i].first, told[i].last);
        all.views = told[i].views;
        const struct walk walk = {&all, inodes, 0, visit, context};
        ended = told[i].number == NODE_TOLD_OPEN ? visit_open(visit, context, &is_done)
                                                 : visit_node(&walk, told[i].number);
        if (!ended && is_done)
            node_forgot(nodes, &told[i]);
    }
    free(told);
    return ended;
}
