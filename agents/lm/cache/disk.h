/* Which pages of a model go to disk and come back: each published page is written once, as long as
 * that costs steps nothing, and a prompt whose next pages are on disk waits for them. The same of
 * snapshots of recurrent state, which have the keys of the pages that they are behind. Loop. */
#ifndef AGENTS_LM_CACHE_DISK_H
#define AGENTS_LM_CACHE_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"
#include "compute/kv/disk.h"

struct sha256;

/* The name of a principal, by the salt of its clones, valid during the call; NULL: its pages stay
 * in memory. It is part of a page's key, so others do not find the page. */
typedef const char *(*lm_disk_owner_fn)(void *arg, uint64_t salt);
/* Copies a published page's contents. */
typedef void (*lm_disk_read_page_fn)(void *arg, int32_t page, void *out);
/* Copies the state behind a published page; false: no slot has it any more. */
typedef bool (*lm_disk_read_state_fn)(void *arg, int32_t page, void *out);

struct lm_disk_config {
    struct kv_disk_config store;  /* its n_buffers and n_reads are set here, and those of */
    struct kv_disk_config states; /* of recurrent state; size_bytes 0: the model has none */
    lm_disk_owner_fn owner;
    void *owner_arg;
    lm_disk_read_page_fn read_page;
    lm_disk_read_state_fn read_state;
    void *read_arg;            /* of both */
    size_t n_pages, n_entries; /* of the KV cache, and with host pages */
};

/* What is known of a published page. */
struct lm_disk_page {
    struct kv_key key;
    uint64_t trace, owner;
    bool is_kept;           /* else its principal has no name */
    struct link link;       /* in unsaved */
    struct link state_link; /* in unsaved_states */
    int32_t ids[KV_PAGE_TOKENS];
};

/* A turn that waits for pages. */
struct lm_disk_waiter {
    struct link link;
    uint64_t until, until_states; /* so many reads have ended */
    void (*ready)(struct lm_disk_waiter *w);
};

struct lm_disk {
    struct lm_disk_config config;
    struct kv_disk *store;  /* NULL: pages stay in memory, and the functions below do nothing */
    struct kv_disk *states; /* NULL: the model has no recurrent state */
    struct sha256 *sha;
    struct lm_disk_page *pages; /* [n_entries] by the prefix cache's numbers */
    struct list unsaved;        /* published pages that are not written yet, the first one first */
    struct list unsaved_states; /* those whose snapshots are not */
    struct list waiters;
    bool is_flushed;
    size_t n_readers;                      /* clones whose turn has begun to read */
    uint64_t n_unsaved_lost;               /* pages that were reused before they were written */
    uint64_t n_missed_tokens[N_KV_MISSES]; /* of prompts, in whole pages */
};

enum status lm_disk_open(struct lm_disk *d, const struct lm_disk_config *config,
                         struct error *err) MUST_CHECK;
/* Writes pages that are not written yet, some megabytes at most, and waits for that; once. Their
 * contents must be there. Any one thread, when nothing else here is called meanwhile. */
void lm_disk_flush(struct lm_disk *d);
void lm_disk_close(struct lm_disk *d); /* flushes first */

/* The page behind page parent (-1: none) was published; its contents are there or will be with the
 * next step. It may have to be written. */
void lm_disk_published(struct lm_disk *d, int32_t parent, uint64_t salt, const int32_t *ids,
                       int32_t page);
/* The published page has a snapshot, which may have to be written. */
void lm_disk_snapshot_made(struct lm_disk *d, int32_t page);
/* The prefix cache's entry has another number. */
void lm_disk_moved(struct lm_disk *d, int32_t from, int32_t to);
/* The page's contents are about to be lost. can_read: they are still there. */
void lm_disk_forgotten(struct lm_disk *d, int32_t page, bool can_read);
/* Writes pages and snapshots, as far as there are buffers. Published pages hold their contents. */
void lm_disk_write(struct lm_disk *d);

static inline bool lm_disk_is_open(const struct lm_disk *d)
{
    return d->store != NULL;
}

/* The page before the first one behind page parent, and the page with ids behind another one. */
struct lm_disk_page lm_disk_before(const struct lm_disk *d, int32_t parent, uint64_t salt);
struct lm_disk_page lm_disk_behind(const struct lm_disk *d, const struct lm_disk_page *before,
                                   const int32_t *ids);
/* Where the page is, and the snapshot behind it. */
enum kv_disk_state lm_disk_look(const struct lm_disk *d, const struct lm_disk_page *p);
enum kv_disk_state lm_disk_look_state(const struct lm_disk *d, const struct lm_disk_page *p);

/* Whether the page with ids behind page parent was read; then it is *out. */
bool lm_disk_has_read(struct lm_disk_page *out, const struct lm_disk *d, int32_t parent,
                      uint64_t salt, const int32_t *ids);
/* A prompt begins with published page, which has its contents in memory: what is used there is used
 * on disk, too, and is written again, before others, where it made room. Call it for a prompt's
 * last page first: that one makes room first, and is written last. */
void lm_disk_used(struct lm_disk *d, int32_t page);
/* The bytes of a page that was read, and is published as page. */
const void *lm_disk_take(struct lm_disk *d, const struct lm_disk_page *read, int32_t page);
/* Those of a snapshot that was read. */
const void *lm_disk_take_state(struct lm_disk *d, const struct lm_disk_page *read);
/* Begins to read the pages of ids [n_pages][KV_PAGE_TOKENS] behind page parent, as far as they are
 * on disk. Returns whether a read is under way. */
bool lm_disk_read_ahead(struct lm_disk *d, int32_t parent, uint64_t salt, const int32_t *ids,
                        size_t n_pages);
/* The same of the snapshot behind a page. */
bool lm_disk_read_state(struct lm_disk *d, const struct lm_disk_page *p);
/* Nobody waits for what was read. */
void lm_disk_forget_reads(struct lm_disk *d);
/* Counts why pages that are neither in memory nor on disk are not there; arguments as above. */
void lm_disk_count_misses(struct lm_disk *d, int32_t parent, uint64_t salt, const int32_t *ids,
                          size_t n_pages);

/* Calls w->ready, on the loop, once all reads that have begun have ended. False: they have, and it
 * is not called. */
bool lm_disk_wait(struct lm_disk *d, struct lm_disk_waiter *w) MUST_CHECK;
/* The store has called wake. */
void lm_disk_woken(struct lm_disk *d);
/* The step that carried what was taken has ended. */
void lm_disk_stepped(struct lm_disk *d);

#endif
