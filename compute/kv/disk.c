/* The happy path: kv_disk_write finds a slot, enters it in the index as being written, and gives
 * the thread the buffer; kv_disk_collect makes the slot readable, or empty where the write failed.
 * A read is the same the other way round: its slot is not reused meanwhile. A page that does not
 * fit its checksum leaves the index, and the file. */
#include "compute/kv/disk.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/folders.h"
#include "base/hash.h"
#include "base/list.h"

enum {
    SLAB_BYTES = 16 << 20, /* about, at least; a file has at least one slot */
    SLAB_PARTS = 1024,     /* a file has at least this part of all bytes: it keeps a descriptor */
    MOST_SLABS = 1 << 20,
    FAILED_REST_S = 5, /* nothing is written for so long behind a write that failed */
    FULL_S = 60,       /* no empty slot is tried for so long behind one that took no page */
};

struct disk_owner {
    uint64_t name;
    struct list slots; /* stored, the one used longest ago first */
    size_t n;          /* stored or being written */
};

struct disk_slot {
    struct link link; /* in its owner's slots, or in empty, or in neither while it is written */
    struct hash_node node;
    struct kv_slab_page page;
    struct disk_owner *owner;
    struct kv_slab *slab;
    uint32_t at; /* in the slab */
    uint64_t used;
    bool is_stored;
    struct disk_op *read; /* NULL: none */
};

/* A page on its way. */
struct disk_op {
    struct link link;
    struct link reading;                  /* of a read: in the loop's reads */
    bool is_back, is_taken, is_forgotten; /* of a read; the loop's, apart from is_good */
    bool replaces;                        /* of a write: the slot had a page */
    struct disk_slot *slot;
    uint8_t *data; /* [page_bytes] */
    bool is_write;
    bool is_good; /* the thread's, until it is done */
};

struct disk_slab {
    struct kv_slab *slab;
    struct disk_slot *slots; /* [kv_slab_n_slots] */
};

struct kv_disk {
    struct kv_disk_config config;
    int folder, lock_file; /* -1: not open */
    /* The loop's. */
    struct disk_slab *slabs; /* [n_slabs] */
    size_t n_slabs;
    size_t left_bytes; /* of size_bytes, that no slab has */
    uint32_t next_number;
    struct hash by_key;
    struct list empty;
    struct disk_owner **owners; /* [n_owners] */
    size_t n_owners;
    uint64_t serial, clock;
    uint64_t n_begun, n_ended;
    size_t n_reads;
    struct list reads;      /* all of them */
    struct list taken;      /* those whose bytes are in use */
    struct disk_op *writes; /* [n_buffers] */
    struct list free_writes;
    uint64_t rest_until_ns, full_until_ns; /* 0: not at all */
    struct kv_traces *traces;
    struct kv_disk_usage usage;
    /* Of both. */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake, settled;
    struct list to_read, to_write, done; /* guarded by mutex, as is all below */
    size_t n_busy;                       /* ops that are in to_read or to_write, or under way */
    bool is_woken, is_hasty, is_stopping;
};

/* --- the thread --- */

/* The next op, reads first; NULL when stopping and none is left. With the mutex held. */
static struct disk_op *disk_next(struct kv_disk *d, uint64_t write_at_ns)
{
    struct timespec until = {.tv_sec = (time_t)(write_at_ns / 1000000000u),
                             .tv_nsec = (long)(write_at_ns % 1000000000u)};
    struct link *l;

    for (;;) {
        if ((l = list_pop(&d->to_read)) != NULL)
            return container_of(l, struct disk_op, link);
        if (!list_is_empty(&d->to_write) &&
            (d->is_hasty || d->is_stopping || clock_ns() >= write_at_ns))
            return container_of(list_pop(&d->to_write), struct disk_op, link);
        if (!list_is_empty(&d->to_write))
            (void)pthread_cond_clockwait(&d->wake, &d->mutex, CLOCK_MONOTONIC, &until);
        else if (d->is_stopping)
            return NULL;
        else
            pthread_cond_wait(&d->wake, &d->mutex);
    }
}

static void disk_run(struct kv_disk *d, struct disk_op *op)
{
    struct disk_slot *slot = op->slot;

    op->is_good = op->is_write ? kv_slab_write(slot->slab, slot->at, &slot->page, op->data)
                               : kv_slab_read(slot->slab, slot->at, &slot->page, op->data);
    if (!op->is_good && !op->is_write)
        kv_slab_clear(slot->slab, slot->at); /* the next start does not find it */
}

static void *disk_work(void *arg)
{
    struct kv_disk *d = arg;
    uint64_t write_at_ns = 0;
    struct disk_op *op;

    (void)pthread_setname_np(pthread_self(), "parley-kv-disk"); /* for ps and top */
    pthread_mutex_lock(&d->mutex);
    while ((op = disk_next(d, write_at_ns)) != NULL) {
        pthread_mutex_unlock(&d->mutex);
        disk_run(d, op);
        if (op->is_write && d->config.write_bytes_s != 0)
            write_at_ns = clock_ns() + (uint64_t)((double)d->config.page_bytes * 1e9 /
                                                  (double)d->config.write_bytes_s);
        pthread_mutex_lock(&d->mutex);
        list_push(&d->done, &op->link);
        if (--d->n_busy == 0)
            pthread_cond_broadcast(&d->settled);
        if (!d->is_woken && d->config.wake != NULL) {
            d->is_woken = true;
            d->config.wake(d->config.arg); /* with the mutex held, as a mailbox does */
        }
    }
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}

static void disk_give(struct kv_disk *d, struct disk_op *op)
{
    pthread_mutex_lock(&d->mutex);
    list_push(op->is_write ? &d->to_write : &d->to_read, &op->link);
    d->n_busy++;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->mutex);
}

/* --- the index --- */

static uint64_t key_hash(const struct kv_key *key)
{
    uint64_t hash;

    memcpy(&hash, key->bytes, sizeof(hash)); /* a digest: it is random already */
    return hash;
}

static struct disk_slot *disk_find(const struct kv_disk *d, const struct kv_key *key,
                                   const int32_t *ids)
{
    for (struct hash_node *n = hash_first(&d->by_key, key_hash(key)); n != NULL; n = hash_next(n)) {
        struct disk_slot *s = container_of(n, struct disk_slot, node);

        if (memcmp(&s->page.key, key, sizeof(*key)) == 0 &&
            memcmp(s->page.ids, ids, sizeof(s->page.ids)) == 0)
            return s;
    }
    return NULL;
}

static struct disk_owner *disk_owner_of(struct kv_disk *d, uint64_t name)
{
    struct disk_owner *o;

    for (size_t i = 0; i < d->n_owners; i++)
        if (d->owners[i]->name == name)
            return d->owners[i];
    o = xalloc(sizeof(*o));
    o->name = name;
    list_init(&o->slots);
    d->owners = xrealloc(d->owners, (d->n_owners + 1) * sizeof(*d->owners));
    d->owners[d->n_owners++] = o;
    return o;
}

/* Enters a slot, which holds page or is going to, and is in no list. */
static void slot_enter(struct disk_slot *s, struct kv_disk *d, const struct kv_slab_page *page)
{
    s->page = *page;
    s->owner = disk_owner_of(d, page->owner);
    s->owner->n++;
    hash_add(&d->by_key, &s->node, key_hash(&page->key));
    kv_traces_add(d->traces, page->trace, page->owner, false);
    d->usage.n_full++;
}

static void slot_store(struct disk_slot *s, struct kv_disk *d)
{
    s->is_stored = true;
    s->used = ++d->clock;
    list_push(&s->owner->slots, &s->link);
}

/* The slot is empty from now on, and in no list. */
static void slot_leave(struct disk_slot *s, struct kv_disk *d)
{
    assert(s->read == NULL);
    if (link_is_on(&s->link))
        list_remove(&s->link);
    hash_remove(&d->by_key, &s->node);
    s->owner->n--;
    s->owner = NULL;
    s->is_stored = false;
    d->usage.n_full--;
}

/* The owner's slot that was used longest ago, and is not being read. */
static struct disk_slot *owner_oldest(const struct disk_owner *o)
{
    for (struct link *l = list_first(&o->slots); l != NULL; l = list_next(&o->slots, l)) {
        struct disk_slot *s = container_of(l, struct disk_slot, link);

        if (s->read == NULL)
            return s;
    }
    return NULL;
}

static struct disk_slot *disk_oldest(const struct kv_disk *d)
{
    struct disk_slot *oldest = NULL, *s;

    for (size_t i = 0; i < d->n_owners; i++) {
        s = owner_oldest(d->owners[i]);
        if (s != NULL && (oldest == NULL || s->used < oldest->used))
            oldest = s;
    }
    return oldest;
}

/* How many slots the next slab has where so many bytes are left. */
static size_t disk_slab_slots(const struct kv_disk *d, size_t left_bytes)
{
    const size_t page_bytes = d->config.page_bytes;
    size_t most_bytes = d->config.size_bytes / SLAB_PARTS, n = 0;

    if (most_bytes < SLAB_BYTES)
        most_bytes = SLAB_BYTES;
    while (n < KV_SLAB_MOST_SLOTS && kv_slab_bytes(page_bytes, n + 1) <= left_bytes &&
           (n == 0 || kv_slab_bytes(page_bytes, n + 1) <= most_bytes))
        n++;
    return n;
}

/* Takes the slab, with slots that are in no list; they, or NULL: no memory. */
static struct disk_slot *disk_take_slab(struct kv_disk *d, struct kv_slab *slab)
{
    const size_t n = kv_slab_n_slots(slab);
    struct disk_slab *slabs = try_realloc(d->slabs, d->n_slabs + 1, sizeof(*slabs));
    struct disk_slot *slots;

    if (slabs == NULL)
        return NULL;
    d->slabs = slabs;
    slots = try_alloc(n, sizeof(*slots));
    if (slots == NULL)
        return NULL;
    d->slabs[d->n_slabs++] = (struct disk_slab){slab, slots};
    d->left_bytes -= kv_slab_bytes(d->config.page_bytes, n);
    for (uint32_t i = 0; i < n; i++) {
        slots[i].slab = slab;
        slots[i].at = i;
    }
    return slots;
}

/* Plans one more slab. False: there is no room, or no memory. */
static bool disk_grow(struct kv_disk *d)
{
    struct kv_slab_shape shape = {d->config.page_bytes, disk_slab_slots(d, d->left_bytes),
                                  d->config.binding};
    struct disk_slot *slots = NULL;
    struct kv_slab *slab;

    if (d->n_slabs == MOST_SLABS || shape.n_slots == 0)
        return false;
    slab = kv_slab_plan(d->folder, d->next_number, &shape);
    if (slab != NULL)
        slots = disk_take_slab(d, slab);
    if (slots == NULL) {
        kv_slab_close(slab);
        return false;
    }
    d->next_number++;
    for (size_t i = 0; i < shape.n_slots; i++)
        list_push(&d->empty, &slots[i].link);
    return true;
}

/* Whether the disk has no room for all pages that would fit. */
static bool disk_is_full(const struct kv_disk *d)
{
    return d->usage.n_full > 0 && d->full_until_ns != 0 && clock_ns() < d->full_until_ns;
}

/* A slot to write, in no list; NULL: none. */
static struct disk_slot *disk_slot_for(struct kv_disk *d, uint64_t owner, bool *ret_replaces)
{
    struct disk_owner *o = disk_owner_of(d, owner);
    const bool is_full = disk_is_full(d);
    const size_t n_slots = is_full ? d->usage.n_full : d->usage.n_slots;
    struct disk_slot *s = NULL;
    struct link *l;

    *ret_replaces = true;
    if (o->n < d->usage.n_full && o->n >= (n_slots + 1) / 2) {
        s = owner_oldest(o);
        if (s == NULL)
            return NULL;
    }
    if (s == NULL && !is_full && (!list_is_empty(&d->empty) || disk_grow(d))) {
        l = list_pop(&d->empty);
        *ret_replaces = false;
        return container_of(l, struct disk_slot, link);
    }
    if (s == NULL)
        s = disk_oldest(d);
    if (s == NULL)
        return NULL;
    slot_leave(s, d);
    d->usage.n_evicted++;
    return s;
}

/* --- calls of the loop --- */

enum kv_disk_state kv_disk_look(const struct kv_disk *d, const struct kv_key *key,
                                const int32_t *ids)
{
    const struct disk_slot *s = disk_find(d, key, ids);

    if (s == NULL)
        return KV_DISK_ABSENT;
    if (!s->is_stored)
        return KV_DISK_WRITING;
    if (s->read == NULL || s->read->is_taken || s->read->is_forgotten)
        return KV_DISK_STORED;
    return s->read->is_back ? KV_DISK_READ : KV_DISK_READING;
}

void *kv_disk_buffer(struct kv_disk *d)
{
    const struct link *l = list_first(&d->free_writes);

    if (l == NULL || (d->rest_until_ns != 0 && clock_ns() < d->rest_until_ns))
        return NULL;
    return container_of((struct link *)l, struct disk_op, link)->data;
}

void kv_disk_write(struct kv_disk *d, const struct kv_slab_page *page, void *buffer)
{
    struct disk_op *op = container_of(list_first(&d->free_writes), struct disk_op, link);
    struct kv_slab_page numbered = *page;
    struct disk_slot *s;

    assert(op->data == buffer && kv_disk_look(d, &page->key, page->ids) == KV_DISK_ABSENT);
    s = disk_slot_for(d, page->owner, &op->replaces);
    if (s == NULL)
        return;
    list_remove(&op->link);
    numbered.serial = ++d->serial;
    slot_enter(s, d, &numbered);
    op->slot = s;
    disk_give(d, op);
}

static void slot_use(struct disk_slot *s, struct kv_disk *d)
{
    s->used = ++d->clock;
    list_remove(&s->link);
    list_push(&s->owner->slots, &s->link);
}

bool kv_disk_touch(struct kv_disk *d, const struct kv_key *key, const int32_t *ids)
{
    struct disk_slot *s = disk_find(d, key, ids);

    if (s != NULL && s->is_stored)
        slot_use(s, d);
    return s != NULL;
}

bool kv_disk_read(struct kv_disk *d, const struct kv_key *key, const int32_t *ids)
{
    struct disk_slot *s = disk_find(d, key, ids);
    struct disk_op *op;

    assert(s != NULL && s->is_stored);
    if (s->read != NULL && s->read->is_forgotten) {
        s->read->is_forgotten = false; /* it is still under way */
        return true;
    }
    if (s->read != NULL || d->n_reads == d->config.n_reads)
        return false;
    op = try_alloc(1, sizeof(*op));
    if (op != NULL)
        op->data = try_alloc(1, d->config.page_bytes);
    if (op == NULL || op->data == NULL) {
        free(op);
        return false;
    }
    op->slot = s;
    s->read = op;
    slot_use(s, d);
    list_push(&d->reads, &op->reading);
    d->n_reads++;
    d->n_begun++;
    disk_give(d, op);
    return true;
}

uint64_t kv_disk_n_begun(const struct kv_disk *d)
{
    return d->n_begun;
}

uint64_t kv_disk_n_ended(const struct kv_disk *d)
{
    return d->n_ended;
}

const void *kv_disk_take(struct kv_disk *d, const struct kv_key *key, const int32_t *ids)
{
    struct disk_slot *s = disk_find(d, key, ids);

    assert(s != NULL && s->read != NULL && s->read->is_back && !s->read->is_taken);
    s->read->is_taken = true;
    list_push(&d->taken, &s->read->link);
    return s->read->data;
}

/* A read that the thread does not have. */
static void disk_free_read(struct kv_disk *d, struct disk_op *op)
{
    list_remove(&op->reading);
    op->slot->read = NULL;
    d->n_reads--;
    free(op->data);
    free(op);
}

void kv_disk_release(struct kv_disk *d)
{
    struct link *l;

    while ((l = list_pop(&d->taken)) != NULL)
        disk_free_read(d, container_of(l, struct disk_op, link));
}

void kv_disk_forget_reads(struct kv_disk *d)
{
    for (struct link *l = list_first(&d->reads), *next; l != NULL; l = next) {
        struct disk_op *op = container_of(l, struct disk_op, reading);

        next = list_next(&d->reads, l);
        if (op->is_back && !op->is_taken)
            disk_free_read(d, op);
        else
            op->is_forgotten = !op->is_taken;
    }
}

static void disk_end_write(struct kv_disk *d, struct disk_op *op)
{
    struct disk_slot *s = op->slot;

    op->slot = NULL;
    list_push(&d->free_writes, &op->link);
    if (op->is_good) {
        d->usage.n_written++;
        d->rest_until_ns = 0;
        slot_store(s, d);
        return;
    }
    d->usage.n_failed++;
    if (op->replaces || d->usage.n_full == 1)
        d->rest_until_ns = clock_ns() + FAILED_REST_S * UINT64_C(1000000000);
    else
        d->full_until_ns = clock_ns() + FULL_S * UINT64_C(1000000000);
    slot_leave(s, d);
    list_push(&d->empty, &s->link);
}

static void disk_end_read(struct kv_disk *d, struct disk_op *op)
{
    struct disk_slot *s = op->slot;

    d->n_ended++;
    op->is_back = true;
    if (op->is_good && !op->is_forgotten) {
        d->usage.n_read++;
        return;
    }
    if (op->is_good) {
        disk_free_read(d, op);
        return;
    }
    disk_free_read(d, op);
    d->usage.n_broken++;
    slot_leave(s, d);
    list_push_front(&d->empty, &s->link); /* the file has blocks for it already */
}

void kv_disk_collect(struct kv_disk *d)
{
    struct list done;
    struct link *l;

    list_init(&done);
    pthread_mutex_lock(&d->mutex);
    d->is_woken = false;
    list_move(&d->done, &done);
    pthread_mutex_unlock(&d->mutex);
    while ((l = list_pop(&done)) != NULL) {
        struct disk_op *op = container_of(l, struct disk_op, link);

        if (op->is_write)
            disk_end_write(d, op);
        else
            disk_end_read(d, op);
    }
}

void kv_disk_settle(struct kv_disk *d)
{
    pthread_mutex_lock(&d->mutex);
    d->is_hasty = true;
    pthread_cond_signal(&d->wake);
    while (d->n_busy > 0)
        pthread_cond_wait(&d->settled, &d->mutex);
    d->is_hasty = false;
    pthread_mutex_unlock(&d->mutex);
    kv_disk_collect(d);
}

void kv_disk_usage(const struct kv_disk *d, struct kv_disk_usage *out)
{
    *out = d->usage;
}

struct kv_traces *kv_disk_traces(struct kv_disk *d)
{
    return d->traces;
}

/* --- opening --- */

static enum status disk_hold_folder(struct kv_disk *d, struct error *err)
{
    const char *path = d->config.folder;
    size_t len = strlen(path);
    struct stat st;
    int failed = folders_make(path, len, 0700, &len);

    if (failed != 0)
        return error_set(err, STATUS_PRECONDITION, "%.*s: %s", (int)len, path, strerror(failed));
    d->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->folder >= 0 && fstat(d->folder, &st) == 0 &&
        (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0))
        return error_set(err, STATUS_PRECONDITION,
                         st.st_uid != geteuid()
                             ? "%s belongs to another user: 'chown' it, or name another folder"
                             : "others may write in %s: 'chmod go-w' it, or name another folder",
                         path);
    if (d->folder >= 0)
        d->lock_file = openat(d->folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lock_file < 0)
        return error_set(err, STATUS_PRECONDITION, "%s: %s", path, strerror(errno));
    if (flock(d->lock_file, LOCK_EX | LOCK_NB) != 0)
        return error_set(err, STATUS_UNAVAILABLE,
                         "%s is in use by another parleyd: name another folder", path);
    return STATUS_OK;
}

/* What a slab's headers say. */
struct disk_scan {
    struct kv_disk *d;
    struct kv_slab_page *pages; /* [n] */
    uint32_t *at;               /* [n] */
    size_t n, cap;
    bool has_memory;
};

static void on_slot_found(void *arg, uint32_t slot, const struct kv_slab_page *page)
{
    struct disk_scan *scan = arg;
    struct kv_slab_page *pages;
    uint32_t *at;
    size_t cap = scan->cap == 0 ? 64 : 2 * scan->cap;

    if (scan->n == scan->cap) {
        pages = try_realloc(scan->pages, cap, sizeof(*pages));
        if (pages != NULL)
            scan->pages = pages;
        at = try_realloc(scan->at, cap, sizeof(*at));
        if (at != NULL)
            scan->at = at;
        if (pages == NULL || at == NULL) {
            scan->has_memory = false;
            return;
        }
        scan->cap = cap;
    }
    scan->pages[scan->n] = *page;
    scan->at[scan->n++] = slot;
}

/* A slab that was found: its pages are stored ones. */
static bool disk_add_slab(struct kv_disk *d, struct kv_slab *slab, const struct disk_scan *scan)
{
    const size_t n = kv_slab_n_slots(slab);
    struct disk_slot *slots = NULL;

    if (kv_slab_bytes(d->config.page_bytes, n) <= d->left_bytes)
        slots = disk_take_slab(d, slab);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < scan->n; i++) {
        const struct kv_slab_page *page = &scan->pages[i];
        struct disk_slot *s = &slots[scan->at[i]], *twin = disk_find(d, &page->key, page->ids);

        if (twin != NULL && twin->page.serial > page->serial)
            continue;
        if (twin != NULL) { /* it was broken: it was written again */
            slot_leave(twin, d);
            d->usage.n_found--;
            if (twin->slab != slab)
                list_push_front(&d->empty, &twin->link);
        }
        slot_enter(s, d, page);
        s->is_stored = true;
        d->usage.n_found++;
        d->serial = d->serial < page->serial ? page->serial : d->serial;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!slots[i].is_stored)
            list_push(&d->empty, &slots[i].link);
    return true;
}

/* A file that cannot be read now keeps its room, for a start that can. */
static void disk_pass_slab(struct kv_disk *d, uint32_t number)
{
    char name[KV_SLAB_NAME_BYTES];
    struct stat st;

    kv_slab_name(name, number);
    if (fstatat(d->folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        d->left_bytes -= (uint64_t)st.st_size < d->left_bytes ? (size_t)st.st_size : d->left_bytes;
}

/* The file of that number: its pages, or that there were pages of another revision. A file that is
 * of no use is removed. */
static enum status disk_open_slab(struct kv_disk *d, uint32_t number, struct error *err)
{
    struct disk_scan scan = {.d = d, .has_memory = true};
    char name[KV_SLAB_NAME_BYTES];
    struct kv_slab *slab = NULL;
    struct error why;
    enum status rc = kv_slab_open(&slab, d->folder, number, d->config.page_bytes,
                                  &d->config.binding, on_slot_found, &scan, &why);

    if (rc == STATUS_EXHAUSTED || !scan.has_memory) {
        rc = error_no_memory(err, scan.cap * sizeof(*scan.pages), "the index of KV pages on disk");
    } else if (rc == STATUS_OK && disk_add_slab(d, slab, &scan)) {
        slab = NULL; /* d's now */
    } else if (rc == STATUS_UNAVAILABLE || rc == STATUS_NOT_FOUND) {
        if (rc == STATUS_UNAVAILABLE && d->usage.n_unread++ == 0)
            d->usage.unread = why;
        rc = STATUS_OK;
        disk_pass_slab(d, number);
    } else {
        for (size_t i = 0; rc != STATUS_OK && i < scan.n; i++) {
            kv_traces_add(d->traces, scan.pages[i].trace, scan.pages[i].owner, true);
            d->usage.n_dropped++;
        }
        rc = STATUS_OK;
        kv_slab_name(name, number);
        (void)unlinkat(d->folder, name, 0); /* else it takes room, and is found again */
    }
    kv_slab_close(slab);
    free(scan.pages);
    free(scan.at);
    return rc;
}

static int slots_by_serial(const void *a, const void *b)
{
    const struct disk_slot *const *x = a, *const *y = b;

    return ((*x)->page.serial > (*y)->page.serial) - ((*x)->page.serial < (*y)->page.serial);
}

/* The page that was written first is the oldest. */
static enum status disk_order_slots(struct kv_disk *d, struct error *err)
{
    struct disk_slot **all = try_alloc(d->usage.n_full + 1, sizeof(struct disk_slot *));
    size_t n = 0;

    if (all == NULL)
        return error_no_memory(err, d->usage.n_full * sizeof(struct disk_slot *),
                               "the index of KV pages on disk");
    for (size_t i = 0; i < d->n_slabs; i++)
        for (size_t k = 0; k < kv_slab_n_slots(d->slabs[i].slab); k++)
            if (d->slabs[i].slots[k].is_stored)
                all[n++] = &d->slabs[i].slots[k];
    qsort(all, n, sizeof(struct disk_slot *), slots_by_serial);
    for (size_t i = 0; i < n; i++)
        slot_store(all[i], d);
    free(all);
    return STATUS_OK;
}

/* The number in the name of a slab's file; -1: another file. */
static int64_t slab_number(const char *name)
{
    char again[KV_SLAB_NAME_BYTES];
    uint32_t number = 0;
    size_t at = strlen("slab-");

    if (strncmp(name, "slab-", at) != 0)
        return -1;
    for (; name[at] >= '0' && name[at] <= '9' && number < MOST_SLABS; at++)
        number = number * 10 + (uint32_t)(name[at] - '0');
    if (number >= MOST_SLABS)
        return -1;
    kv_slab_name(again, number);
    return strcmp(name, again) == 0 ? (int64_t)number : -1;
}

static enum status disk_open_slabs(struct kv_disk *d, struct error *err)
{
    int fd = openat(d->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    enum status rc = STATUS_OK;

    if (listing == NULL) {
        rc = error_set(err, STATUS_PRECONDITION, "%s: %s", d->config.folder, strerror(errno));
        if (fd >= 0)
            (void)close(fd); /* read only */
        return rc;
    }
    while (rc == STATUS_OK && (entry = readdir(listing)) != NULL) {
        const int64_t number = slab_number(entry->d_name);

        if (number < 0)
            continue;
        if (d->next_number <= (uint32_t)number)
            d->next_number = (uint32_t)number + 1;
        rc = disk_open_slab(d, (uint32_t)number, err);
    }
    (void)closedir(listing); /* read only */
    return rc == STATUS_OK ? disk_order_slots(d, err) : rc;
}

static enum status disk_open_buffers(struct kv_disk *d, struct error *err)
{
    d->writes = try_alloc(d->config.n_buffers, sizeof(*d->writes));
    for (size_t i = 0; d->writes != NULL && i < d->config.n_buffers; i++) {
        d->writes[i].is_write = true;
        d->writes[i].data = try_alloc(1, d->config.page_bytes);
        if (d->writes[i].data == NULL)
            return error_no_memory(err, d->config.page_bytes, "a KV page to write");
        list_push(&d->free_writes, &d->writes[i].link);
    }
    return d->writes != NULL ? STATUS_OK
                             : error_no_memory(err, d->config.page_bytes, "a KV page to write");
}

/* How many pages fit: those of the slabs that are there, and of those that will be. */
static size_t disk_count_slots(const struct kv_disk *d)
{
    const size_t most = disk_slab_slots(d, SIZE_MAX);
    size_t n = 0, left_bytes = d->left_bytes;

    for (size_t i = 0; i < d->n_slabs; i++)
        n += kv_slab_n_slots(d->slabs[i].slab);
    n += left_bytes / kv_slab_bytes(d->config.page_bytes, most) * most;
    return n + disk_slab_slots(d, left_bytes % kv_slab_bytes(d->config.page_bytes, most));
}

static enum status disk_start_thread(struct kv_disk *d, struct error *err)
{
    int failed = fault_now() ? EAGAIN : pthread_create(&d->thread, NULL, disk_work, d);

    d->has_thread = failed == 0;
    return failed == 0 ? STATUS_OK
                       : error_set(err, STATUS_EXHAUSTED,
                                   "cannot start thread 'parley-kv-disk': %s", strerror(failed));
}

enum status kv_disk_open(struct kv_disk **out, const struct kv_disk_config *config,
                         struct error *err)
{
    struct kv_disk *d = xalloc(sizeof(*d));
    enum status rc;

    assert(config->page_bytes > 0 && config->n_buffers > 0 && config->n_reads > 0);
    d->config = *config;
    d->folder = d->lock_file = -1;
    d->left_bytes = config->size_bytes;
    hash_init(&d->by_key, NULL);
    list_init(&d->empty);
    list_init(&d->reads);
    list_init(&d->taken);
    list_init(&d->free_writes);
    list_init(&d->to_read);
    list_init(&d->to_write);
    list_init(&d->done);
    (void)pthread_mutex_init(&d->mutex, NULL); /* none can fail with default attributes */
    (void)pthread_cond_init(&d->wake, NULL);
    (void)pthread_cond_init(&d->settled, NULL);
    if (kv_slab_bytes(config->page_bytes, 1) > config->size_bytes)
        rc = error_set(err, STATUS_INVALID,
                       "%zu bytes are too few for KV pages on disk: a file of one page has %zu",
                       config->size_bytes, kv_slab_bytes(config->page_bytes, 1));
    else
        rc = kv_traces_open(&d->traces, err);
    if (rc == STATUS_OK)
        rc = disk_hold_folder(d, err);
    if (rc == STATUS_OK)
        rc = disk_open_slabs(d, err);
    if (rc == STATUS_OK)
        rc = disk_open_buffers(d, err);
    if (rc == STATUS_OK)
        rc = disk_start_thread(d, err);
    d->config.folder = NULL; /* the caller's */
    if (rc != STATUS_OK) {
        kv_disk_close(d);
        return rc;
    }
    d->usage.n_slots = disk_count_slots(d);
    *out = d;
    return STATUS_OK;
}

static void disk_stop_thread(struct kv_disk *d)
{
    pthread_mutex_lock(&d->mutex);
    d->is_stopping = true;
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->mutex);
    (void)pthread_join(d->thread, NULL); /* cannot fail for a thread that was started */
    kv_disk_collect(d);
}

void kv_disk_close(struct kv_disk *d)
{
    if (d == NULL)
        return;
    if (d->has_thread)
        disk_stop_thread(d);
    kv_disk_release(d);
    kv_disk_forget_reads(d);
    for (size_t i = 0; d->writes != NULL && i < d->config.n_buffers; i++)
        free(d->writes[i].data);
    free(d->writes);
    for (size_t i = 0; i < d->n_slabs; i++) {
        for (size_t k = 0; k < kv_slab_n_slots(d->slabs[i].slab); k++)
            if (d->slabs[i].slots[k].owner != NULL)
                hash_remove(&d->by_key, &d->slabs[i].slots[k].node);
        kv_slab_close(d->slabs[i].slab);
        free(d->slabs[i].slots);
    }
    free(d->slabs);
    for (size_t i = 0; i < d->n_owners; i++)
        free(d->owners[i]);
    free(d->owners);
    hash_deinit(&d->by_key);
    kv_traces_close(d->traces);
    if (d->lock_file >= 0)
        (void)close(d->lock_file); /* it is empty */
    if (d->folder >= 0)
        (void)close(d->folder);
    pthread_cond_destroy(&d->settled);
    pthread_cond_destroy(&d->wake);
    pthread_mutex_destroy(&d->mutex);
    free(d);
}
