/* What the files of the PostgreSQL store share. */
#ifndef SERVER_JOURNAL_POSTGRES_PARTS_H
#define SERVER_JOURNAL_POSTGRES_PARTS_H

#include "server/journal/chain.h"
#include "server/journal/postgres_link.h"

enum { POSTGRES_OWNER_CHARS = 32, POSTGRES_RETRY_MS = 1000 };

struct postgres_store {
    struct journal_store base;
    char *url;
    struct link_connection link;
    struct journal_chain chain;
    /* This process and its connection, "DAEMON.NUMBER": what was sent over a connection that is
     * lost may still run, and must not run behind what the next connection reads. */
    char owner[POSTGRES_OWNER_CHARS];
    uint32_t n_links;
    uint64_t tried_ms;                /* when a connection failed last; 0: the last one did not */
    bool has_secret;                  /* base.secret was read */
    char said[JOURNAL_ADDRESS_CHARS]; /* the address of the last renewal */
    /* An older process with the same address, and until when it had its lease: whether it lives is
     * not known before it renews that. */
    char rival[JOURNAL_DAEMON_CHARS];
    uint64_t rival_until_us;
    bool is_elsewhere; /* the read met something that another process has */
    /* The epoch under which this process read the checkpoints of each place; 0: it did not. */
    uint64_t place_epochs[JOURNAL_N_PLACES];
    /* The process whose conversations are being looked through, and the last of them that was. */
    char swept[JOURNAL_DAEMON_CHARS];
    uint8_t swept_to[JOURNAL_ID_BYTES];
    bool has_swept_any; /* one of them has a turn that did not end, or had since the first */
};

/* postgres_connect.c */
struct postgres_store *postgres_store_of(struct journal_store *s);

/* Before each use: opens the connection if there is none. UNAVAILABLE, PRECONDITION. */
enum status postgres_connect(struct postgres_store *s, struct error *err) MUST_CHECK;
/* UNAVAILABLE: the connection is lost. */
enum status postgres_lost(struct postgres_store *s, struct error *err);
/* Whether this process wrote the column owner of a row. */
bool postgres_is_mine(const struct postgres_store *s, const char *owner);
/* Who has the row's thing, as an error: UNAVAILABLE, with the reason JOURNAL_FAILING. */
enum status postgres_elsewhere(struct postgres_store *s, const char *what, const char *daemon,
                               struct error *err);

/* postgres_schema.c: PRECONDITION if the database has not the tables of this version. */
enum status postgres_check_schema(struct postgres_store *s, struct error *err) MUST_CHECK;

/* postgres_lease.c. The lease permits others to take over what this process has, once it is over.
 * It fences nothing: that is done by owner and epoch in the row of what is written. */
enum status postgres_renew(struct postgres_store *s, struct error *err) MUST_CHECK;
void postgres_end_lease(struct postgres_store *s);
/* Makes the conversation that was found, of out->id, this process's, if its owner's lease is over,
 * and sets out->owner_epoch. out->is_found is false if it is not there any more. What the owner
 * before has sent is over when this returns, or is refused. */
enum status postgres_take(struct postgres_store *s, const struct journal_query *q,
                          struct journal_found *out, struct error *err) MUST_CHECK;

/* Finds who has the place of q->number, or gives it: see JOURNAL_PLACE. Sets out->is_found and
 * out->owner_epoch if it is this process; UNAVAILABLE, with out->owner, if it is another one. */
enum status postgres_take_place(struct postgres_store *s, const struct journal_query *q,
                                struct journal_found *out, struct error *err) MUST_CHECK;
/* The same before the checkpoints of a place are read or written, which only its owner does.
 * UNAVAILABLE. is_anew: the checkpoints are read from the start, so that the process writes under
 * the present epoch from now on; else it does so only if it never read them. */
enum status postgres_take_things(struct postgres_store *s, enum journal_place place, bool is_anew,
                                 struct error *err) MUST_CHECK;

/* postgres_sweep.c: finds turns that no process goes on with, into the base, and forgets processes
 * whose lease is over and that left none. */
enum status postgres_sweep(struct postgres_store *s, struct error *err) MUST_CHECK;
enum status postgres_members(struct journal_store *base, struct journal_members *out,
                             struct error *err) MUST_CHECK;

/* postgres_quota.c: journal_store_type's lend. */
enum status postgres_lend(struct journal_store *base, struct journal_rate *rows, size_t n,
                          struct error *err) MUST_CHECK;

/* postgres_write.c: journal_store_type's commit. */
enum status postgres_commit(struct journal_store *base, const struct journal_record *const *records,
                            size_t n, struct error *err) MUST_CHECK;

/* postgres_read.c, postgres_list.c and postgres_check.c: journal_store_type's read and check. */
enum status postgres_read(struct journal_store *base, const struct journal_query *q,
                          size_t max_bytes, struct journal_found *out,
                          struct error *err) MUST_CHECK;
enum status postgres_read_list(struct postgres_store *s, const struct journal_query *q,
                               struct journal_found *out, struct error *err) MUST_CHECK;
enum status postgres_check(struct journal_store *base, uint64_t *ret_conversations,
                           uint64_t *ret_turns, struct error *err) MUST_CHECK;

/* Records of a conversation between two places, in order: of all, as many as a slice has, and at
 * least one if there is one. The result is to be cleared; NULL: a failure. */
PGresult *postgres_slice(struct postgres_store *s, const uint8_t *id, uint64_t after,
                         uint64_t before, struct error *err);
/* A row of it, borrowed. principal: whom the conversation belongs to. */
void postgres_slice_row(const struct postgres_store *s, const PGresult *r, int row,
                        const uint8_t *id, const char *principal, struct chain_link *out);

/* A condition of SQL: the process that wrote the column has no lease any more, or is the process
 * that the parameter names. */
#define POSTGRES_IS_FREE(column, daemon)                                                    \
    "(split_part(" column ", '.', 1) = " daemon " OR NOT EXISTS (SELECT FROM parley.daemon" \
    " WHERE daemon.id = split_part(" column ", '.', 1) AND daemon.until > clock_timestamp()))"

#endif
