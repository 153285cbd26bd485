/* The journal: the events of conversations, made durable before they are acknowledged. A separate
 * thread writes it; records that are appended meanwhile form its next transaction. Loop, except for
 * the store itself. */
#ifndef SERVER_JOURNAL_JOURNAL_H
#define SERVER_JOURNAL_JOURNAL_H

#include <uv.h>

#include "server/journal/store.h"

struct buf;
struct journal;

/* Zero takes the default that is named. */
struct journal_config {
    const char *dir;                       /* made where it is missing */
    const struct journal_store_type *type; /* SQLite */
    size_t max_waiting_bytes;              /* of records that are not durable yet; 64 MiB */
    size_t max_found_bytes;                /* of what one conversation has stored; 1 GiB */
    uint64_t probe_ms;                     /* between attempts to write, while writing fails; 5 s */
    /* Writing has begun to fail, or works again; may be NULL. Loop. */
    void (*changed)(void *arg);
    void *changed_arg;
};

enum status journal_open(struct journal **out, uv_loop_t *loop, const struct journal_config *config,
                         struct error *err) MUST_CHECK;
/* Writes what was appended, calls what waits for it, then stopped, on the loop; j is then freed.
 * NULL is fine: stopped is not called then. */
void journal_stop(struct journal *j, void (*stopped)(void *arg), void *arg);

/* JOURNAL_SECRET_BYTES random bytes that stay the same. */
const uint8_t *journal_secret(const struct journal *j);

/* err OK: it is durable. Else UNAVAILABLE, and it is not known whether the journal has it. Never
 * inside the call that began it. */
typedef void (*journal_done_fn)(void *arg, const struct error *err);

/* Copies r. done (may be NULL) is called once. UNAVAILABLE while too much waits, but for what
 * belongs to a checkpoint: that is refused without memory alone. If a transaction fails, so does
 * all that was appended behind it. */
enum status journal_append(struct journal *j, const struct journal_record *r, journal_done_fn done,
                           void *arg, struct error *err) MUST_CHECK;

/* What is appended until journal_release is in one transaction: all of it is durable or none. At
 * most JOURNAL_MAX_HELD records; not nested. */
enum { JOURNAL_MAX_HELD = 256 };
void journal_hold(struct journal *j);
void journal_release(struct journal *j);

/* Someone waits for the journal; a member of its owner's struct. */
struct journal_wait {
    struct journal_item *item; /* NULL: it does not wait */
};

/* Waits until what was appended so far is durable. */
void journal_settle(struct journal *j, struct journal_wait *w, journal_done_fn done, void *arg);

/* found is the callee's, which may empty it; deinitialised afterwards. */
typedef void (*journal_found_fn)(void *arg, struct journal_found *found, const struct error *err);

/* Reads a conversation, behind what was appended so far; q is copied. */
void journal_read(struct journal *j, struct journal_wait *w, const struct journal_query *q,
                  journal_found_fn done, void *arg);

/* No call will come to the wait; fine if it does not wait. */
void journal_leave(struct journal_wait *w);

struct journal_figures {
    uint64_t n_records, n_transactions, n_failed; /* failed: transactions */
    uint64_t n_refused; /* records that were not appended, or whose transaction failed */
    size_t waiting_bytes;
};

void journal_read_figures(const struct journal *j, struct journal_figures *out);

/* Why the last transaction failed; NULL: it did not. What is stored is read all the same. While it
 * is so, the journal tries by itself whether it can write again. */
const char *journal_trouble(const struct journal *j);

/* Appends the lines of the journal's metrics; none where j is NULL. */
void journal_metrics(const struct journal *j, struct buf *out);

#endif
