#include "client/cli/chat/branches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* All conversations of the list, from which the tree is taken. */
struct forest {
    struct branch *all;
    size_t n, cap;
    struct branch *tree;
    size_t n_tree;
};

static bool forest_add(void *arg, const Parley__V1__Conversation *c)
{
    struct forest *f = arg;
    struct branch *b;

    if (f->n == f->cap) {
        f->cap = f->cap == 0 ? 64 : 2 * f->cap;
        f->all = xrealloc(f->all, f->cap * sizeof(f->all[0]));
    }
    b = &f->all[f->n++];
    *b = (struct branch){.turns = c->turns, .idle_ms = c->idle_ms, .opened_ms = c->opened_unix_ms};
    (void)snprintf(b->id, sizeof(b->id), "%s", c->conversation);
    (void)snprintf(b->parent, sizeof(b->parent), "%s", c->parent);
    return true;
}

static const struct branch *forest_find(const struct forest *f, const char *id)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->all[i].id, id) == 0)
            return &f->all[i];
    return NULL;
}

/* The oldest conversation above this one that is still there. */
static const struct branch *forest_root(const struct forest *f, const char *id)
{
    const struct branch *b = forest_find(f, id), *above;

    for (size_t i = 0; b != NULL && i < f->n; i++) { /* no tree is deeper */
        above = forest_find(f, b->parent);
        b = above == NULL ? b : above;
    }
    return b;
}

/* Adds the forks of the tree's branches behind each, oldest first. The list is newest first. */
static void forest_grow(struct forest *f)
{
    for (size_t at = 0; at < f->n_tree; at++) {
        struct branch above = f->tree[at];

        for (size_t i = 0; i < f->n; i++) {
            if (strcmp(f->all[i].parent, above.id) != 0 || f->n_tree > f->n)
                continue;
            memmove(&f->tree[at + 2], &f->tree[at + 1], (f->n_tree - at - 1) * sizeof(f->tree[0]));
            f->tree[at + 1] = f->all[i];
            f->tree[at + 1].depth = above.depth + 1;
            f->n_tree++;
        }
    }
}

enum parley_status branches_get(struct branch **out, size_t *ret_n, struct parley_channel *channel,
                                const char *conversation, struct parley_error *err)
{
    struct forest f = {0};
    const struct branch *root;
    enum parley_status rc =
        listing_each(channel, NULL, LISTING_LOOKED_AT, forest_add, &f, NULL, err);

    if (rc == PARLEY_OK) {
        f.tree = xalloc((f.n + 2) * sizeof(f.tree[0]));
        root = forest_root(&f, conversation);
        if (root != NULL)
            f.tree[f.n_tree++] = *root;
        forest_grow(&f);
        *out = f.tree;
        *ret_n = f.n_tree;
    }
    free(f.all);
    return rc;
}
