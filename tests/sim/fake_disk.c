#include "tests/sim/fake_disk.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct fake_disk fake_disk;

/* splitmix64's mixer */
static uint64_t disk_chance(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static enum status disk_open(struct journal_store **out, const char *dir, struct error *err)
{
    fake_disk.base.type = &fake_disk_type;
    *out = &fake_disk.base;
    return STATUS_OK;
}

static void disk_close(struct journal_store *s)
{
    assert(s == &fake_disk.base);
}

static bool is_of(const struct journal_record *r, const uint8_t *id)
{
    return memcmp(r->conversation, id, JOURNAL_ID_BYTES) == 0;
}

static bool is_same_place(const struct journal_record *a, const struct journal_record *b)
{
    return is_of(a, b->conversation) && a->generation == b->generation && a->turn == b->turn;
}

/* An acceptance that was taken back, or an update that another one replaced. */
static bool is_gone(size_t i)
{
    const struct journal_record *r = &fake_disk.records[i].r;

    for (size_t j = i + 1; j < fake_disk.n; j++) {
        const struct journal_record *later = &fake_disk.records[j].r;

        if (r->kind == JOURNAL_ACCEPT && later->kind == JOURNAL_WITHDRAW && is_same_place(r, later))
            return true;
        if (r->kind == JOURNAL_UPDATE && later->kind == JOURNAL_UPDATE &&
            is_of(later, r->conversation))
            return true;
    }
    return false;
}

static bool is_taken(const struct journal_record *r)
{
    if (r->kind == JOURNAL_UPDATE || r->kind == JOURNAL_WITHDRAW || r->kind == JOURNAL_CLOSE)
        return false;
    for (size_t i = 0; i < fake_disk.n; i++)
        if (fake_disk.records[i].r.kind == r->kind && is_same_place(&fake_disk.records[i].r, r) &&
            !is_gone(i))
            return true;
    return false;
}

static void disk_add(const struct journal_record *r)
{
    struct disk_record *d = &fake_disk.records[fake_disk.n];
    void *body = NULL;

    assert(fake_disk.n < DISK_MAX_RECORDS);
    if (r->size_bytes > 0)
        body = memcpy(xalloc(r->size_bytes), r->body, r->size_bytes);
    *d = (struct disk_record){.r = *r, .job = fake_disk.n_jobs};
    d->r.body = body;
    if (r->parent != NULL)
        memcpy(d->parent, r->parent, JOURNAL_ID_BYTES);
    d->r.parent = r->parent == NULL ? NULL : d->parent;
    d->r.principal = d->r.request_id = d->r.name = d->r.key = NULL;
    fake_disk.n++;
}

static enum status disk_commit(struct journal_store *s, const struct journal_record *const *records,
                               size_t n, struct error *err)
{
    uint64_t chance = disk_chance(fake_disk.seed + ++fake_disk.n_jobs) % 100;
    bool may_fail =
        fake_disk.n_jobs < atomic_load_explicit(&fake_disk.whole_from, memory_order_relaxed);
    bool fails = may_fail && chance < 4;
    bool is_unknown = may_fail && chance >= 4 && chance < 8;

    for (size_t i = 0; i < n && !fails; i++) {
        fake_disk.is_twice = fake_disk.is_twice || is_taken(records[i]);
        disk_add(records[i]);
    }
    fake_disk.n_failed += fails;
    fake_disk.n_unknown += is_unknown;
    if (!fails && !is_unknown)
        return STATUS_OK;
    return error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL, "the disk fails");
}

static void disk_drop_last(void)
{
    free((void *)(uintptr_t)fake_disk.records[--fake_disk.n].r.body); /* it is the disk's */
}

void fake_disk_crash(size_t last_job)
{
    while (fake_disk.n > 0 && fake_disk.records[fake_disk.n - 1].job > last_job)
        disk_drop_last();
    atomic_store_explicit(&fake_disk.whole_from, SIZE_MAX, memory_order_relaxed);
}

void fake_disk_empty(uint64_t seed)
{
    while (fake_disk.n > 0)
        disk_drop_last();
    fake_disk = (struct fake_disk){.seed = disk_chance(seed), .whole_from = SIZE_MAX};
}

/* The record that opened it, below a place of the log; NULL: none. */
static const struct disk_record *disk_find(const uint8_t *id, bool may_be_closed)
{
    const struct disk_record *found = NULL;

    for (size_t i = 0; i < fake_disk.n; i++) {
        const struct disk_record *d = &fake_disk.records[i];

        if (d->r.kind == JOURNAL_OPEN && is_of(&d->r, id))
            found = d;
        if (d->r.kind == JOURNAL_CLOSE && is_of(&d->r, id) && !may_be_closed)
            return NULL;
    }
    return found;
}

/* What happened to it before a place of the log, behind what happened to its parents. */
static enum status disk_read_past(const uint8_t *id, size_t until, struct journal_found *out,
                                  struct error *err)
{
    const struct disk_record *open = disk_find(id, true);
    enum status rc = STATUS_OK;

    if (open == NULL)
        return error_set(err, STATUS_DATA_LOSS, "the disk has lost a parent");
    if (open->r.parent != NULL)
        rc = disk_read_past(open->parent, (size_t)(open - fake_disk.records), out, err);
    for (size_t i = 0; i < until && rc == STATUS_OK; i++) {
        const struct journal_record *r = &fake_disk.records[i].r;
        struct journal_event *e;

        if (!is_of(r, id) || r->kind == JOURNAL_WITHDRAW || r->kind == JOURNAL_CLOSE || is_gone(i))
            continue;
        rc = journal_found_add(&e, out, r->size_bytes, err);
        if (rc != STATUS_OK)
            break;
        memcpy(e->conversation, r->conversation, sizeof(e->conversation));
        e->kind = r->kind;
        e->generation = r->generation;
        e->turn = r->turn;
        e->unix_ms = r->unix_ms;
        if (r->size_bytes > 0)
            memcpy(e->body, r->body, r->size_bytes);
    }
    return rc;
}

static enum status disk_read(struct journal_store *s, const struct journal_query *q,
                             size_t max_bytes, struct journal_found *out, struct error *err)
{
    const struct disk_record *open = disk_find(q->id, false);

    assert(q->by == JOURNAL_BY_ID);
    if (open == NULL)
        return STATUS_OK;
    out->is_found = true;
    memcpy(out->id, q->id, JOURNAL_ID_BYTES);
    out->has_parent = open->r.parent != NULL;
    memcpy(out->parent, open->parent, JOURNAL_ID_BYTES);
    return disk_read_past(q->id, fake_disk.n, out, err);
}

const struct journal_store_type fake_disk_type = {.name = "fake",
                                                  .open = disk_open,
                                                  .close = disk_close,
                                                  .commit = disk_commit,
                                                  .read = disk_read};
