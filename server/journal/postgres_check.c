/* Checks everything that is stored. It reads in many transactions, and so does not hold back the
 * database's vacuum; the processes that use the database are to be stopped. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/journal/postgres_parts.h"

static const struct {
    const char *sql, *what;
} rules[] = {
    {"SELECT count(*) FROM parley.event AS e WHERE NOT EXISTS (SELECT FROM parley.conversation AS c"
     " WHERE c.id = e.conversation)",
     "events belong to no conversation"},
    {"SELECT count(*) FROM parley.event AS e WHERE kind = 4 AND gone = 0 AND NOT EXISTS (SELECT "
     "FROM"
     " parley.event AS a WHERE a.conversation = e.conversation AND a.gone = 0"
     " AND a.generation = e.generation AND a.turn = e.turn AND a.kind = 3)",
     "replies belong to no accepted turn"},
    {"SELECT count(*) FROM parley.keyed AS k WHERE NOT EXISTS (SELECT FROM parley.event AS a WHERE"
     " a.conversation = k.conversation AND a.gone = 0 AND a.generation = k.generation"
     " AND a.turn = k.turn AND a.kind = 3)",
     "keys are of no accepted turn"},
    {"SELECT count(*) FROM parley.conversation AS c WHERE parent IS NOT NULL AND NOT EXISTS (SELECT"
     " FROM parley.conversation AS p WHERE p.id = c.parent)",
     "conversations have lost their parent"},
};

/* The number that a statement gives. */
static enum status postgres_count(struct postgres_store *s, const char *sql, uint64_t *out,
                                  struct error *err)
{
    PGresult *r = link_query(&s->link, sql, NULL, 0, err);

    if (r == NULL)
        return err->status;
    *out = link_column(&s->link, r, 0, 0);
    s->link.pq->PQclear(r);
    return STATUS_OK;
}

/* The value of the parent's chain where the conversation begins. */
static enum status postgres_check_begin(struct postgres_store *s, const uint8_t *parent,
                                        uint64_t seq, struct chain_check *out, struct error *err)
{
    PGresult *r = link_query(&s->link,
                             "SELECT chain FROM parley.event WHERE conversation = $1 AND seq < $2"
                             " ORDER BY seq DESC LIMIT 1",
                             LINK_ARGS(link_id(parent), link_number(seq)), err);
    const void *chain;
    size_t len;

    if (r == NULL)
        return err->status;
    if (s->link.pq->PQntuples(r) == 1) {
        chain = link_column_bytes(&s->link, r, 0, 0, &len);
        if (len == SHA256_BYTES)
            memcpy(out->at, chain, SHA256_BYTES);
    }
    s->link.pq->PQclear(r);
    return STATUS_OK;
}

static enum status postgres_check_one(struct postgres_store *s, const uint8_t *id,
                                      const char *principal, struct chain_check *check,
                                      struct error *err)
{
    struct chain_link link = {.seq = 0};
    enum status rc = STATUS_OK;
    const char *why;
    int n;

    memcpy(link.record.conversation, id, JOURNAL_ID_BYTES);
    do {
        PGresult *r = postgres_slice(s, id, link.seq, INT64_MAX, err);

        if (r == NULL)
            return err->status;
        n = s->link.pq->PQntuples(r);
        for (int i = 0; i < n && rc == STATUS_OK; i++) {
            postgres_slice_row(s, r, i, id, principal, &link);
            why = chain_check(&s->chain, check, &link);
            if (why != NULL)
                rc = chain_refuse(&link, why, err);
        }
        s->link.pq->PQclear(r);
    } while (n > 0 && rc == STATUS_OK);
    why = rc == STATUS_OK ? chain_check_end(check) : NULL;
    return why == NULL ? rc : chain_refuse(&link, why, err);
}

static enum status postgres_check_chains(struct postgres_store *s, struct error *err)
{
    struct link_connection *l = &s->link;
    enum status rc = STATUS_OK;
    uint64_t seq = 0;
    size_t len;
    int n;

    do {
        PGresult *r = link_query(l,
                                 "SELECT id, parent, seq, principal FROM parley.conversation"
                                 " WHERE seq > $1 ORDER BY seq LIMIT 1000",
                                 LINK_ARGS(link_number(seq)), err);

        if (r == NULL)
            return err->status;
        n = l->pq->PQntuples(r);
        for (int i = 0; i < n && rc == STATUS_OK; i++) {
            struct chain_check check = {.has_record = false};

            seq = link_column(l, r, i, 2);
            if (!l->pq->PQgetisnull(r, i, 1))
                rc = postgres_check_begin(s, link_column_bytes(l, r, i, 1, &len), seq, &check, err);
            if (rc == STATUS_OK)
                rc = postgres_check_one(s, link_column_bytes(l, r, i, 0, &len),
                                        link_column_bytes(l, r, i, 3, &len), &check, err);
        }
        l->pq->PQclear(r);
    } while (n > 0 && rc == STATUS_OK);
    return rc;
}

static enum status postgres_check_sum(const struct postgres_store *s, const PGresult *r, int row,
                                      int column, const char *name, struct error *err)
{
    size_t len;
    const void *body = link_column_bytes(&s->link, r, row, column, &len);

    if (journal_sum_is_right(body, len))
        return STATUS_OK;
    return error_set(err, STATUS_DATA_LOSS, "what is stored of '%.64s' is damaged", name);
}

/* Things that are kept as a whole: all blocks are there, and as they were written. */
static enum status postgres_check_kept(struct postgres_store *s, struct error *err)
{
    struct link_connection *l = &s->link;
    PGresult *kept =
        link_query(l, "SELECT name, checkpoint, n_blocks, body FROM parley.kept", NULL, 0, err);
    enum status rc = STATUS_OK;
    size_t len;

    if (kept == NULL)
        return err->status;
    for (int i = 0; i < l->pq->PQntuples(kept) && rc == STATUS_OK; i++) {
        const char *name = link_column_bytes(l, kept, i, 0, &len);
        const uint64_t n_blocks = link_column(l, kept, i, 2);

        rc = postgres_check_sum(s, kept, i, 3, name, err);
        for (uint64_t n = 0; n < n_blocks && rc == STATUS_OK; n++) {
            PGresult *r = link_query(
                l,
                "SELECT body FROM parley.block WHERE checkpoint = $1"
                " AND number = $2",
                LINK_ARGS(link_id(link_column_bytes(l, kept, i, 1, &len)), link_number(n)), err);

            if (r == NULL) {
                rc = err->status;
                continue;
            }
            rc = l->pq->PQntuples(r) == 1
                     ? postgres_check_sum(s, r, 0, 0, name, err)
                     : error_set(err, STATUS_DATA_LOSS, "part %llu of %llu of '%.64s' is missing",
                                 (unsigned long long)n, (unsigned long long)n_blocks, name);
            l->pq->PQclear(r);
        }
    }
    l->pq->PQclear(kept);
    return rc;
}

enum status postgres_check(struct journal_store *base, uint64_t *ret_conversations,
                           uint64_t *ret_turns, struct error *err)
{
    struct postgres_store *s = postgres_store_of(base);
    enum status rc = postgres_connect(s, err);
    uint64_t n = 0;

    if (rc == STATUS_OK)
        rc = postgres_check_chains(s, err); /* first: it names the record */
    for (size_t i = 0; rc == STATUS_OK && i < sizeof(rules) / sizeof(rules[0]); i++) {
        rc = postgres_count(s, rules[i].sql, &n, err);
        if (rc == STATUS_OK && n > 0)
            rc = error_set(err, STATUS_DATA_LOSS, "%llu %s", (unsigned long long)n, rules[i].what);
    }
    if (rc == STATUS_OK)
        rc = postgres_check_kept(s, err);
    if (rc == STATUS_OK)
        rc = postgres_count(s, "SELECT count(*) FROM parley.conversation WHERE NOT is_closed",
                            ret_conversations, err);
    if (rc == STATUS_OK)
        rc =
            postgres_count(s, "SELECT count(*) FROM parley.event WHERE kind IN (4, 5) AND gone = 0",
                           ret_turns, err);
    return rc;
}
