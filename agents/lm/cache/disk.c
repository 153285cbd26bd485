/* Pages are written in the order in which they were published. The loop copies a page to a buffer
 * of the store, which is allowed at any time: steps do not write published pages. A page that is
 * read is not copied to its place here, but by the next step, since a running one may still write
 * what was freed. */
#include "agents/lm/cache/disk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

enum {
    BUFFERS = 4,
    READ_BYTES = 256 << 20, /* at most, of pages that were read and are in no step yet */
    LEAST_READS = 8,
    STATE_BUFFERS = 1, /* a state has megabytes */
    STATE_READS = 2,
    CLOSE_BYTES = 64 << 20, /* that are still written, */
    CLOSE_MS = 3000,        /* and for so long at most */
};

enum status lm_disk_open(struct lm_disk *d, const struct lm_disk_config *config, struct error *err)
{
    enum status rc;

    *d = (struct lm_disk){.config = *config};
    list_init(&d->unsaved);
    list_init(&d->unsaved_states);
    list_init(&d->waiters);
    if (config->store.size_bytes == 0)
        return STATUS_OK;
    d->config.store.n_buffers = BUFFERS;
    d->config.store.n_reads = READ_BYTES / config->store.page_bytes;
    if (d->config.store.n_reads > config->n_pages)
        d->config.store.n_reads = config->n_pages;
    if (d->config.store.n_reads < LEAST_READS)
        d->config.store.n_reads = LEAST_READS;
    d->pages = try_alloc(config->n_entries, sizeof(*d->pages));
    if (d->pages == NULL)
        return error_no_memory(err, config->n_entries * sizeof(*d->pages), "the keys of KV pages");
    rc = sha256_open(&d->sha, err);
    if (rc == STATUS_OK)
        rc = kv_disk_open(&d->store, &d->config.store, err);
    d->config.states.n_buffers = STATE_BUFFERS;
    d->config.states.n_reads = STATE_READS;
    if (rc == STATUS_OK && config->states.size_bytes > 0)
        rc = kv_disk_open(&d->states, &d->config.states, err);
    return rc;
}

/* Waits for both stores; whether all writes were well. */
static bool disk_settle(struct lm_disk *d)
{
    struct kv_disk *const stores[] = {d->store, d->states};
    struct kv_disk_usage usage;
    bool is_well = true;

    for (size_t i = 0; i < 2 && stores[i] != NULL; i++) {
        kv_disk_settle(stores[i]);
        kv_disk_usage(stores[i], &usage);
        is_well = is_well && usage.n_failed == 0;
    }
    return is_well;
}

void lm_disk_flush(struct lm_disk *d)
{
    const uint64_t until_ms = clock_ms() + CLOSE_MS;
    const size_t round_bytes =
        BUFFERS * d->config.store.page_bytes + STATE_BUFFERS * d->config.states.page_bytes;
    size_t n_bytes = 0;

    if (d->is_flushed)
        return;
    d->is_flushed = true;
    while (d->store != NULL && !(list_is_empty(&d->unsaved) && list_is_empty(&d->unsaved_states)) &&
           clock_ms() < until_ms && n_bytes < CLOSE_BYTES) {
        lm_disk_write(d);
        n_bytes += round_bytes;
        if (!disk_settle(d))
            break; /* the disk may be full */
    }
}

void lm_disk_close(struct lm_disk *d)
{
    lm_disk_flush(d);
    kv_disk_close(d->store);
    kv_disk_close(d->states);
    if (d->sha != NULL)
        sha256_close(d->sha);
    free(d->pages);
    d->store = d->states = NULL;
    d->sha = NULL;
    d->pages = NULL;
}

/* --- keys --- */

/* What lies before a principal's first page; not kept where it has no name. */
static struct lm_disk_page disk_root(const struct lm_disk *d, uint64_t salt)
{
    struct lm_disk_page root = {0};
    uint8_t owner[SHA256_BYTES];
    const char *name = d->config.owner(d->config.owner_arg, salt);

    if (name == NULL)
        return root;
    sha256_add(d->sha, &d->config.store.binding, sizeof(d->config.store.binding));
    sha256_add(d->sha, name, strlen(name));
    sha256_take(d->sha, root.key.bytes);
    sha256_add(d->sha, name, strlen(name));
    sha256_take(d->sha, owner);
    memcpy(&root.owner, owner, sizeof(root.owner));
    root.is_kept = true;
    return root;
}

struct lm_disk_page lm_disk_before(const struct lm_disk *d, int32_t parent, uint64_t salt)
{
    return parent < 0 ? disk_root(d, salt) : d->pages[parent];
}

struct lm_disk_page lm_disk_behind(const struct lm_disk *d, const struct lm_disk_page *before,
                                   const int32_t *ids)
{
    struct lm_disk_page p = {.owner = before->owner, .is_kept = before->is_kept};

    memcpy(p.ids, ids, sizeof(p.ids));
    if (!p.is_kept)
        return p;
    sha256_add(d->sha, &before->key, sizeof(before->key));
    sha256_add(d->sha, ids, sizeof(p.ids));
    sha256_take(d->sha, p.key.bytes);
    p.trace = kv_trace(before->trace, ids);
    return p;
}

enum kv_disk_state lm_disk_look(const struct lm_disk *d, const struct lm_disk_page *p)
{
    return p->is_kept ? kv_disk_look(d->store, &p->key, p->ids) : KV_DISK_ABSENT;
}

enum kv_disk_state lm_disk_look_state(const struct lm_disk *d, const struct lm_disk_page *p)
{
    return p->is_kept && d->states != NULL ? kv_disk_look(d->states, &p->key, p->ids)
                                           : KV_DISK_ABSENT;
}

/* --- writing --- */

static struct lm_disk_page *disk_note(struct lm_disk *d, const struct lm_disk_page *of,
                                      int32_t page)
{
    struct lm_disk_page *p = &d->pages[page];

    assert(!link_is_on(&p->link) && !link_is_on(&p->state_link));
    *p = *of;
    if (p->is_kept)
        kv_traces_add(kv_disk_traces(d->store), p->trace, p->owner, false);
    return p;
}

void lm_disk_published(struct lm_disk *d, int32_t parent, uint64_t salt, const int32_t *ids,
                       int32_t page)
{
    struct lm_disk_page before, of, *p;

    if (d->store == NULL)
        return;
    before = lm_disk_before(d, parent, salt);
    of = lm_disk_behind(d, &before, ids);
    p = disk_note(d, &of, page);
    if (p->is_kept && lm_disk_look(d, p) == KV_DISK_ABSENT)
        list_push(&d->unsaved, &p->link);
}

void lm_disk_used(struct lm_disk *d, int32_t page)
{
    struct lm_disk_page *p = &d->pages[page];

    if (p->is_kept && !link_is_on(&p->link) && !kv_disk_touch(d->store, &p->key, p->ids))
        list_push_front(&d->unsaved, &p->link);
    if (p->is_kept && d->states != NULL)
        (void)kv_disk_touch(d->states, &p->key, p->ids); /* there need be none */
}

void lm_disk_moved(struct lm_disk *d, int32_t from, int32_t to)
{
    if (d->store == NULL)
        return;
    assert(!link_is_on(&d->pages[from].link) && !link_is_on(&d->pages[to].link));
    assert(!link_is_on(&d->pages[from].state_link) && !link_is_on(&d->pages[to].state_link));
    d->pages[to] = d->pages[from];
}

void lm_disk_snapshot_made(struct lm_disk *d, int32_t page)
{
    struct lm_disk_page *p;

    if (d->states == NULL)
        return;
    p = &d->pages[page];
    if (p->is_kept && !link_is_on(&p->state_link) && lm_disk_look_state(d, p) == KV_DISK_ABSENT)
        list_push(&d->unsaved_states, &p->state_link);
}

static struct kv_slab_page slab_page_of(const struct lm_disk_page *p)
{
    struct kv_slab_page out = {.key = p->key, .owner = p->owner, .trace = p->trace};

    memcpy(out.ids, p->ids, sizeof(out.ids));
    return out;
}

/* Gives the store the page; false: it takes none now. */
static bool disk_save(struct lm_disk *d, const struct lm_disk_page *p)
{
    const struct kv_slab_page out = slab_page_of(p);
    void *buffer;

    if (lm_disk_look(d, p) != KV_DISK_ABSENT)
        return true; /* another page with the same contents was written */
    buffer = kv_disk_buffer(d->store);
    if (buffer == NULL)
        return false;
    d->config.read_page(d->config.read_arg, (int32_t)(p - d->pages), buffer);
    kv_disk_write(d->store, &out, buffer);
    return true;
}

/* The same of the snapshot behind the page. */
static bool disk_save_state(struct lm_disk *d, const struct lm_disk_page *p)
{
    const struct kv_slab_page out = slab_page_of(p);
    void *buffer;

    if (lm_disk_look_state(d, p) != KV_DISK_ABSENT)
        return true;
    buffer = kv_disk_buffer(d->states);
    if (buffer == NULL)
        return false;
    if (d->config.read_state(d->config.read_arg, (int32_t)(p - d->pages), buffer))
        kv_disk_write(d->states, &out, buffer);
    return true;
}

void lm_disk_forgotten(struct lm_disk *d, int32_t page, bool can_read)
{
    struct lm_disk_page *p;

    if (d->store == NULL)
        return;
    p = &d->pages[page];
    if (link_is_on(&p->state_link))
        list_remove(&p->state_link);
    if (!link_is_on(&p->link))
        return;
    list_remove(&p->link);
    if (!can_read || !disk_save(d, p))
        d->n_unsaved_lost++;
}

void lm_disk_write(struct lm_disk *d)
{
    struct link *l;

    while (d->store != NULL && (l = list_first(&d->unsaved)) != NULL &&
           disk_save(d, container_of(l, struct lm_disk_page, link)))
        list_remove(l);
    while (d->states != NULL && (l = list_first(&d->unsaved_states)) != NULL &&
           disk_save_state(d, container_of(l, struct lm_disk_page, state_link)))
        list_remove(l);
}

/* --- reading --- */

bool lm_disk_has_read(struct lm_disk_page *out, const struct lm_disk *d, int32_t parent,
                      uint64_t salt, const int32_t *ids)
{
    struct lm_disk_page before;

    if (d->store == NULL || d->n_readers == 0)
        return false;
    before = lm_disk_before(d, parent, salt);
    *out = lm_disk_behind(d, &before, ids);
    return lm_disk_look(d, out) == KV_DISK_READ;
}

const void *lm_disk_take(struct lm_disk *d, const struct lm_disk_page *read, int32_t page)
{
    const struct lm_disk_page *p = disk_note(d, read, page);

    return kv_disk_take(d->store, &p->key, p->ids);
}

const void *lm_disk_take_state(struct lm_disk *d, const struct lm_disk_page *read)
{
    return kv_disk_take(d->states, &read->key, read->ids);
}

bool lm_disk_read_ahead(struct lm_disk *d, int32_t parent, uint64_t salt, const int32_t *ids,
                        size_t n_pages)
{
    struct lm_disk_page p;
    bool is_reading = false;

    if (d->store == NULL || n_pages == 0)
        return false;
    p = lm_disk_before(d, parent, salt);
    for (size_t i = 0; i < n_pages; i++, ids += KV_PAGE_TOKENS) {
        enum kv_disk_state state;

        p = lm_disk_behind(d, &p, ids);
        state = lm_disk_look(d, &p);
        if (state == KV_DISK_STORED && kv_disk_read(d->store, &p.key, p.ids))
            state = KV_DISK_READING;
        is_reading = is_reading || state == KV_DISK_READING;
        if (state != KV_DISK_READING && state != KV_DISK_READ)
            break;
    }
    return is_reading;
}

bool lm_disk_read_state(struct lm_disk *d, const struct lm_disk_page *p)
{
    const enum kv_disk_state state = lm_disk_look_state(d, p);

    return state == KV_DISK_READING ||
           (state == KV_DISK_STORED && kv_disk_read(d->states, &p->key, p->ids));
}

void lm_disk_forget_reads(struct lm_disk *d)
{
    kv_disk_forget_reads(d->store);
    if (d->states != NULL)
        kv_disk_forget_reads(d->states);
}

void lm_disk_count_misses(struct lm_disk *d, int32_t parent, uint64_t salt, const int32_t *ids,
                          size_t n_pages)
{
    struct lm_disk_page p;
    bool is_lost = false; /* from here on pages are not found, whatever is on disk */

    if (d->store == NULL || n_pages == 0)
        return;
    p = lm_disk_before(d, parent, salt);
    for (size_t i = 0; i < n_pages; i++, ids += KV_PAGE_TOKENS) {
        if (is_lost || !p.is_kept)
            p.trace = kv_trace(p.trace, ids); /* the key is not needed */
        else
            p = lm_disk_behind(d, &p, ids);
        is_lost = is_lost || lm_disk_look(d, &p) == KV_DISK_ABSENT;
        if (is_lost)
            d->n_missed_tokens[kv_traces_why(kv_disk_traces(d->store), p.trace, p.owner)] +=
                KV_PAGE_TOKENS;
    }
}

static bool disk_has_ended(const struct lm_disk *d, const struct lm_disk_waiter *w)
{
    return w->until <= kv_disk_n_ended(d->store) &&
           (d->states == NULL || w->until_states <= kv_disk_n_ended(d->states));
}

bool lm_disk_wait(struct lm_disk *d, struct lm_disk_waiter *w)
{
    w->until = kv_disk_n_begun(d->store);
    w->until_states = d->states == NULL ? 0 : kv_disk_n_begun(d->states);
    if (disk_has_ended(d, w))
        return false; /* nothing would call it */
    list_push(&d->waiters, &w->link);
    return true;
}

void lm_disk_woken(struct lm_disk *d)
{
    struct list ready;
    struct link *l, *next;

    if (d->store == NULL)
        return;
    kv_disk_collect(d->store);
    if (d->states != NULL)
        kv_disk_collect(d->states);
    list_init(&ready);
    for (l = list_first(&d->waiters); l != NULL; l = next) {
        next = list_next(&d->waiters, l);
        if (!disk_has_ended(d, container_of(l, struct lm_disk_waiter, link)))
            continue;
        list_remove(l);
        list_push(&ready, l);
    }
    while ((l = list_pop(&ready)) != NULL) { /* which may begin a step, and end other waits */
        struct lm_disk_waiter *w = container_of(l, struct lm_disk_waiter, link);

        w->ready(w);
    }
    lm_disk_write(d);
}

void lm_disk_stepped(struct lm_disk *d)
{
    if (d->store != NULL)
        kv_disk_release(d->store);
    if (d->states != NULL)
        kv_disk_release(d->states);
}
