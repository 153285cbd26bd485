/* The journal makes the records of conversations durable before they are acknowledged. A thread of
 * the journal's own writes to the store. Records that are appended during a transaction form the
 * next one. All functions are called on the loop; the thread alone uses the store. */
#ifndef SERVER_JOURNAL_JOURNAL_H
#define SERVER_JOURNAL_JOURNAL_H

#include <uv.h>

#include "server/journal/store.h"

struct buf;
struct journal;

/* A member that is zero stands for the default that its comment names. */
struct journal_config {
    const char *dir; /* SQLite's folder, made if it is missing; or PostgreSQL's URL */
    const struct journal_store_type *type; /* SQLite */
    size_t max_waiting_bytes;              /* the most of records that wait; 64 MiB */
    size_t max_found_bytes;                /* the most of one conversation's records; 1 GiB */
    uint64_t probe_ms;                     /* time between attempts while writing fails; 5 s */
    uint32_t lease_ms;                     /* see struct journal_store */
    /* Called when writing has begun to fail, or works again. May be NULL. */
    void (*changed)(void *arg);
    void *changed_arg;
};

enum status journal_open(struct journal **out, uv_loop_t *loop, const struct journal_config *config,
                         struct error *err) MUST_CHECK;
/* Writes what was appended, calls everybody that waits, then calls stopped, on the loop, and frees
 * j. If j is NULL, nothing happens, and stopped is not called. */
void journal_stop(struct journal *j, void (*stopped)(void *arg), void *arg);

/* Returns JOURNAL_SECRET_BYTES random bytes, which are the same after each start. */
const uint8_t *journal_secret(const struct journal *j);

/* Called when a record is durable, or with UNAVAILABLE: it is not known whether the journal has the
 * record, or the journal does not have it, since another process has the conversation. Never called
 * inside the call that began the write. */
typedef void (*journal_done_fn)(void *arg, const struct error *err);

/* Appends a copy of r. done, which may be NULL, is called once. UNAVAILABLE while too many bytes
 * wait; a record of a checkpoint is refused only when memory is short. If a transaction fails, all
 * records that were appended behind the transaction fail, too; if a record alone is left out, those
 * of its conversation that wait are. */
enum status journal_append(struct journal *j, const struct journal_record *r, journal_done_fn done,
                           void *arg, struct error *err) MUST_CHECK;

/* Records that are appended between journal_hold and journal_release form one transaction: all of
 * them are durable, or none. They are at most JOURNAL_MAX_HELD. The two calls do not nest. */
enum { JOURNAL_MAX_HELD = 256 };
void journal_hold(struct journal *j);
void journal_release(struct journal *j);
/* As journal_release, but none of them is written, and nobody is called. */
void journal_drop(struct journal *j);

/* A wait for the journal: a member of its owner's struct. */
struct journal_wait {
    struct journal_item *item; /* NULL: the owner does not wait */
};

/* Waits until what was appended so far is durable. */
void journal_settle(struct journal *j, struct journal_wait *w, journal_done_fn done, void *arg);

/* Called with what a query has found. The callee may take things out of found. The journal
 * deinitialises found afterwards. */
typedef void (*journal_found_fn)(void *arg, struct journal_found *found, const struct error *err);

/* Answers a query, after everything that was appended so far was written. q is copied. While
 * another process has what is asked for, the query waits: for JOURNAL_PATIENCE_MS, or, if it asks
 * for checkpoints or kept things, without a bound. Then it is UNAVAILABLE. */
enum { JOURNAL_PATIENCE_MS = 10000 };
void journal_read(struct journal *j, struct journal_wait *w, const struct journal_query *q,
                  journal_found_fn done, void *arg);
/* Whether another process has had what w waits to read. */
bool journal_is_elsewhere(const struct journal_wait *w);

/* What a journal that several processes share tells its owner, on the loop. */
struct journal_sharing {
    /* Another process asks for a conversation that this one has. Called again and again, until
     * journal_give gives it up. */
    void (*wanted)(void *arg, const uint8_t *id);
    /* No process has a conversation with a turn that did not end. Called again and again, until
     * some process has read it. */
    void (*orphan)(void *arg, const struct journal_orphan *orphan);
    /* The lease was over for a time: others may have changed whatever is in memory. */
    void (*lapsed)(void *arg);
    void *arg;
};

void journal_share(struct journal *j, const struct journal_sharing *sharing);
/* Returns whether what this process has in memory is current: no other process can have
 * changed the store meanwhile. Always true with SQLite. */
bool journal_has_lease(const struct journal *j);
/* Gives a conversation up, behind everything that was appended so far. Nothing of it may be in
 * memory. If it fails, wanted is called again. is_unended: it has a turn that did not end, and the
 * process that finds it first goes on with it. */
void journal_give(struct journal *j, const uint8_t *id, bool is_unended);

/* Sets where the other processes reach this one, which they know once the lease is renewed. "" or
 * too long an address: they cannot reach it. */
void journal_set_address(struct journal *j, const char *address);
/* Has orphan be called from now on, or no more. */
void journal_set_sweeping(struct journal *j, bool is_sweeping);
/* Returns the id of this process among those that share the store; "" if none share it. */
const char *journal_self(const struct journal *j);
/* Returns how many other processes had a lease at the last beat. */
size_t journal_n_others(const struct journal *j);
/* Returns how many times the journal has looked for the other processes. */
uint64_t journal_n_beats(const struct journal *j);
/* Returns how many times the lease was over, as far as is known. */
uint64_t journal_n_lapses(const struct journal *j);
/* Returns whether this process had a lease at the last beat, as far as is known. */
bool journal_has_other(const struct journal *j, const char *id);
/* Returns one of the other processes that had a lease at the last beat, until the next beat. NULL
 * for i = their number, and beyond JOURNAL_MAX_MEMBERS. */
const struct journal_peer *journal_other(const struct journal *j, size_t i);
/* Returns whether processes may share the store. */
bool journal_is_shared(const struct journal *j);

/* Called with the processes that share the store; the callee may not keep them. */
typedef void (*journal_members_fn)(void *arg, const struct journal_members *members,
                                   const struct error *err);
/* Finds the processes that share the store, which journal_is_shared says may be. */
void journal_list_members(struct journal *j, struct journal_wait *w, journal_members_fn done,
                          void *arg);

/* Called with rows that were told, as journal_lend was given them, with their answers. */
typedef void (*journal_lent_fn)(void *arg, const struct journal_rate *rows, size_t n,
                                const struct error *err);
/* Tells what was used of rates, and gets the next slices, of a store that is shared. rows are
 * copied, but for the principals' names, which must stay valid. */
void journal_lend(struct journal *j, struct journal_wait *w, const struct journal_rate *rows,
                  size_t n, journal_lent_fn done, void *arg);

/* Ends a wait: its callback is not called. Does nothing if w does not wait. */
void journal_leave(struct journal_wait *w);

struct journal_figures {
    uint64_t n_records, n_transactions;
    uint64_t n_failed;  /* transactions that failed */
    uint64_t n_refused; /* records that were not appended, or whose transaction failed */
    size_t waiting_bytes;
};

void journal_read_figures(const struct journal *j, struct journal_figures *out);

/* Returns why the last transaction failed; NULL if it did not fail. Reading goes on in either case.
 * After a failure the journal itself tries whether it can write again. */
const char *journal_trouble(const struct journal *j);

/* Appends the lines of the journal's metrics; no lines if j is NULL. */
void journal_metrics(const struct journal *j, struct buf *out);

#endif
