/* KV pages on disk: the level below host pages. A folder of slabs (compute/kv/slab.h) holds pages
 * under keys that say all that their contents depend on. The index is in memory and the loop's; a
 * thread of its own does all reading and writing, reads first. What cannot be written or read is
 * not there: nothing of this fails but opening. Loop, but for open, which may run on any one
 * thread before.
 *
 * A page to write is copied into a buffer that kv_disk_buffer hands out. A page to read is asked
 * for by kv_disk_read; wake is called once it is there, then kv_disk_collect, and then its bytes
 * are kv_disk_take's. */
#ifndef COMPUTE_KV_DISK_H
#define COMPUTE_KV_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/kv/slab.h"
#include "compute/kv/traces.h"

struct kv_disk;

struct kv_disk_config {
    const char *folder; /* made with the mode 0700 if it is missing; its parents too */
    size_t size_bytes;  /* of all slabs */
    size_t page_bytes;
    struct kv_key binding;  /* what all pages of this process share: other slabs are removed */
    uint64_t write_bytes_s; /* at most so fast; 0: no bound */
    size_t n_buffers;       /* pages that wait to be written */
    size_t n_reads;         /* pages that are being read, or were read and are not in use yet */
    /* Something is there for kv_disk_collect. Any thread; it may be NULL. */
    void (*wake)(void *arg);
    void *arg;
};

struct kv_disk_usage {
    size_t n_slots, n_full;      /* pages that fit, and that are there */
    size_t n_found, n_dropped;   /* pages at the start: found, and of another revision */
    uint64_t n_written, n_read;  /* pages */
    uint64_t n_evicted;          /* pages whose slot another one took */
    uint64_t n_failed, n_broken; /* writes that failed; pages that were not as they were written */
    size_t n_unread;             /* files that could not be read at the start, and take room */
    struct error unread;         /* why, of the first of them */
};

/* Reads the headers of the folder's slabs. Holds the folder until close: UNAVAILABLE while another
 * process does. INVALID where size_bytes has no room for a page; PRECONDITION where the folder is
 * another user's, or others may write in it. A file that cannot be opened or read now stays. */
enum status kv_disk_open(struct kv_disk **out, const struct kv_disk_config *config,
                         struct error *err) MUST_CHECK;
/* Writes the pages that were given to it, and joins the thread. */
void kv_disk_close(struct kv_disk *d);

enum kv_disk_state {
    KV_DISK_ABSENT,
    KV_DISK_WRITING, /* not readable yet */
    KV_DISK_STORED,
    KV_DISK_READING,
    KV_DISK_READ, /* kv_disk_take has its bytes */
};

/* Of the page with this key; ids must be those that were written, else it is absent. */
enum kv_disk_state kv_disk_look(const struct kv_disk *d, const struct kv_key *key,
                                const int32_t *ids);

/* A buffer [page_bytes] to fill, and to give to kv_disk_write; NULL: all are in use, or writing
 * failed some seconds ago. */
void *kv_disk_buffer(struct kv_disk *d);
/* Writes the page, which is absent, with its key, owner, trace and ids, into an empty slot or in
 * place of the page that was used longest ago: for a minute always so behind an empty slot that
 * took no page, as on a full disk. An owner that has half of all slots replaces its own, unless no
 * other one has pages. Takes the buffer, also where it writes nothing. */
void kv_disk_write(struct kv_disk *d, const struct kv_slab_page *page, void *buffer);

/* The page is used now, as by a read. False: it is absent. */
bool kv_disk_touch(struct kv_disk *d, const struct kv_key *key, const int32_t *ids);

/* Begins to read a page that is stored. False: n_reads are under way, or there is no memory. */
bool kv_disk_read(struct kv_disk *d, const struct kv_key *key, const int32_t *ids);
/* Reads end in the order in which they began: how many have begun, and ended. */
uint64_t kv_disk_n_begun(const struct kv_disk *d);
uint64_t kv_disk_n_ended(const struct kv_disk *d);
/* The bytes of a page that was read, until kv_disk_release. */
const void *kv_disk_take(struct kv_disk *d, const struct kv_key *key, const int32_t *ids);
/* Frees the bytes of all pages that were taken. */
void kv_disk_release(struct kv_disk *d);
/* Nobody waits for a page any more: frees those that were read and not taken, and will free those
 * that are being read. */
void kv_disk_forget_reads(struct kv_disk *d);

/* After wake: takes in what the thread has done. */
void kv_disk_collect(struct kv_disk *d);
/* Waits until the thread has nothing to do, without a bound on its rate, and collects. Not while
 * others may wait for the loop. */
void kv_disk_settle(struct kv_disk *d);

void kv_disk_usage(const struct kv_disk *d, struct kv_disk_usage *out);
/* Knows all pages that were found at the start, and those that are written. */
struct kv_traces *kv_disk_traces(struct kv_disk *d);

#endif
