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
    CLOSE_BYTES = 64 << 20, /* that are still written, */
    CLOSE_MS = 3000,        /* and for so long at most */
};

enum status lm_disk_open(struct lm_disk *d, const struct lm_disk_config *config, struct error *err)
{
    enum status rc;

    *d = (struct lm_disk){.config = *config};
    list_init(&d->unsaved);
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
    return rc;
}

void lm_disk_flush(struct lm_disk *d)
{
    const uint64_t until_ms = clock_ms() + CLOSE_MS;
    size_t left_bytes = CLOSE_BYTES;

    if (d->is_flushed)
        return;
    d->is_flushed = true;
    while (d->store != NULL && !list_is_empty(&d->unsaved) && clock_ms() < until_ms &&
           left_bytes >= BUFFERS * d->config.store.page_bytes) {
        struct kv_disk_usage usage;

        lm_disk_write(d);
        kv_disk_settle(d->store);
        left_bytes -= BUFFERS * d->config.store.page_bytes;
        kv_disk_usage(d->store, &usage);
        if (usage.n_failed > 0)
            break; /* the disk may be full */
    }
}

void lm_disk_close(struct lm_disk *d)
{
    lm_disk_flush(d);
    kv_disk_close(d->store);
    if (d->sha != NULL)
        sha256_close(d->sha);
    free(d->pages);
    d->store = NULL;
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

static struct lm_disk_page disk_before(const struct lm_disk *d, int32_t parent, uint64_t salt)
{
    return parent < 0 ? disk_root(d, salt) : d->pages[parent];
}

/* The page with these ids behind that one. */
static struct lm_disk_page disk_behind(const struct lm_disk *d, const struct lm_disk_page *before,
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

static enum kv_disk_state disk_look(const struct lm_disk *d, const struct lm_disk_page *p)
{
    return p->is_kept ? kv_disk_look(d->store, &p->key, p->ids) : KV_DISK_ABSENT;
}

/* --- writing --- */

static struct lm_disk_page *disk_note(struct lm_disk *d, const struct lm_disk_page *of,
                                      int32_t page)
{
    struct lm_disk_page *p = &d->pages[page];

    assert(!link_is_on(&p->link));
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
    before = disk_before(d, parent, salt);
    of = disk_behind(d, &before, ids);
    p = disk_note(d, &of, page);
    if (p->is_kept && disk_look(d, p) == KV_DISK_ABSENT)
        list_push(&d->unsaved, &p->link);
}

void lm_disk_moved(struct lm_disk *d, int32_t from, int32_t to)
{
    if (d->store == NULL)
        return;
    assert(!link_is_on(&d->pages[from].link) && !link_is_on(&d->pages[to].link));
    d->pages[to] = d->pages[from];
}

/* Gives the store the page; false: it takes none now. */
static bool disk_save(struct lm_disk *d, int32_t page)
{
    const struct lm_disk_page *p = &d->pages[page];
    struct kv_slab_page out = {.key = p->key, .owner = p->owner, .trace = p->trace};
    void *buffer;

    if (disk_look(d, p) != KV_DISK_ABSENT)
        return true; /* another page with the same contents was written */
    buffer = kv_disk_buffer(d->store);
    if (buffer == NULL)
        return false;
    memcpy(out.ids, p->ids, sizeof(out.ids));
    d->config.read_page(d->config.read_page_arg, page, buffer);
    kv_disk_write(d->store, &out, buffer);
    return true;
}

void lm_disk_forgotten(struct lm_disk *d, int32_t page, bool can_read)
{
    if (d->store == NULL || !link_is_on(&d->pages[page].link))
        return;
    list_remove(&d->pages[page].link);
    if (!can_read || !disk_save(d, page))
        d->n_unsaved_lost++;
}

void lm_disk_write(struct lm_disk *d)
{
    struct link *l;

    while (d->store != NULL && (l = list_first(&d->unsaved)) != NULL) {
        const struct lm_disk_page *p = container_of(l, struct lm_disk_page, link);

        if (!disk_save(d, (int32_t)(p - d->pages)))
            return;
        list_remove(l);
    }
}

/* --- reading --- */

bool lm_disk_has_read(struct lm_disk_page *out, const struct lm_disk *d, int32_t parent,
                      uint64_t salt, const int32_t *ids)
{
    struct lm_disk_page before;

    if (d->store == NULL || d->n_readers == 0)
        return false;
    before = disk_before(d, parent, salt);
    *out = disk_behind(d, &before, ids);
    return disk_look(d, out) == KV_DISK_READ;
}

const void *lm_disk_take(struct lm_disk *d, const struct lm_disk_page *read, int32_t page)
{
    const struct lm_disk_page *p = disk_note(d, read, page);

    return kv_disk_take(d->store, &p->key, p->ids);
}

bool lm_disk_read_ahead(struct lm_disk *d, int32_t parent, uint64_t salt, const int32_t *ids,
                        size_t n_pages)
{
    struct lm_disk_page p;
    bool is_reading = false;

    if (d->store == NULL || n_pages == 0)
        return false;
    p = disk_before(d, parent, salt);
    for (size_t i = 0; i < n_pages; i++, ids += KV_PAGE_TOKENS) {
        enum kv_disk_state state;

        p = disk_behind(d, &p, ids);
        state = disk_look(d, &p);
        if (state == KV_DISK_STORED && kv_disk_read(d->store, &p.key, p.ids))
            state = KV_DISK_READING;
        is_reading = is_reading || state == KV_DISK_READING;
        if (state != KV_DISK_READING && state != KV_DISK_READ)
            break;
    }
    return is_reading;
}

void lm_disk_count_misses(struct lm_disk *d, int32_t parent, uint64_t salt, const int32_t *ids,
                          size_t n_pages)
{
    struct lm_disk_page p;
    bool is_lost = false; /* from here on pages are not found, whatever is on disk */

    if (d->store == NULL || n_pages == 0)
        return;
    p = disk_before(d, parent, salt);
    for (size_t i = 0; i < n_pages; i++, ids += KV_PAGE_TOKENS) {
        if (is_lost || !p.is_kept)
            p.trace = kv_trace(p.trace, ids); /* the key is not needed */
        else
            p = disk_behind(d, &p, ids);
        is_lost = is_lost || disk_look(d, &p) == KV_DISK_ABSENT;
        if (is_lost)
            d->n_missed_tokens[kv_traces_why(kv_disk_traces(d->store), p.trace, p.owner)] +=
                KV_PAGE_TOKENS;
    }
}

bool lm_disk_wait(struct lm_disk *d, struct lm_disk_waiter *w)
{
    w->until = kv_disk_n_begun(d->store);
    if (w->until == kv_disk_n_ended(d->store))
        return false; /* nothing would call it */
    list_push(&d->waiters, &w->link);
    return true;
}

void lm_disk_woken(struct lm_disk *d)
{
    struct list ready;
    struct link *l;

    if (d->store == NULL)
        return;
    kv_disk_collect(d->store);
    list_init(&ready);
    while ((l = list_first(&d->waiters)) != NULL &&
           container_of(l, struct lm_disk_waiter, link)->until <= kv_disk_n_ended(d->store)) {
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
}
