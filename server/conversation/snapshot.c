#include "server/conversation/snapshot.h"

static struct link *snapshot_first(const struct conversations *all, const struct watcher *w)
{
    struct conversation *c = w->is_one ? conversations_get_of(all, w->principal, &w->id)
                                       : conversations_newest_of(all, w->principal);

    while (c != NULL && c->serial >= w->place.below)
        c = w->is_one ? NULL : conversations_older_of(c);
    return c == NULL ? NULL : &c->of_owner;
}

static struct link *link_behind(const struct watcher *w, const struct conversation *c)
{
    return w->is_one ? NULL : list_next(&c->owner->newest_first, &c->of_owner);
}

void snapshot_begin(const struct conversations *all, struct watcher *w)
{
    w->at = w->place.is_synced ? NULL : snapshot_first(all, w);
}

void snapshot_end(struct watcher *w)
{
    w->place.is_synced = true;
}

const struct conversation *snapshot_next(struct watcher *w)
{
    const struct conversation *c;

    if (w->at == NULL) {
        w->place.below = 0;
        return NULL;
    }
    c = container_of(w->at, const struct conversation, of_owner);
    w->place.below = c->serial;
    w->at = link_behind(w, c);
    return c;
}
