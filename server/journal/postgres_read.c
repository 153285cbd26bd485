/* Reads conversations and checkpoints. A conversation is taken first, so that no other process
 * writes to it any more; then its records are read in slices, those of its first ancestor first.
 * Since a fork's chain begins at its parent's, one value goes through all of them. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/journal/postgres_parts.h"

enum { SLICE_ROWS = 256 };

enum {
    SLICE_SEQ,
    SLICE_KIND,
    SLICE_GENERATION,
    SLICE_TURN,
    SLICE_MS,
    SLICE_BODY,
    SLICE_GONE,
    SLICE_HASH,
    SLICE_CHAIN
};

struct postgres_past {
    uint8_t id[JOURNAL_ID_BYTES];
    uint64_t until; /* its records before this place belong to the conversation */
};

struct postgres_reading {
    struct chain_check check;
    size_t n, at;   /* the first is the first ancestor; those before at are read */
    uint64_t after; /* the seq of the last record that was read */
    struct postgres_past past[];
};

PGresult *postgres_slice(struct postgres_store *s, const uint8_t *id, uint64_t after,
                         uint64_t before, struct error *err)
{
    return link_query(&s->link,
                      "SELECT seq, kind, generation, turn, unix_ms, body, gone, hash, chain FROM"
                      " (SELECT *, sum(octet_length(body) + 64) OVER (ORDER BY seq) AS n_bytes FROM"
                      " (SELECT * FROM parley.event WHERE conversation = $1 AND seq > $2"
                      " AND seq < $3 ORDER BY seq LIMIT $4) AS few) AS e"
                      " WHERE n_bytes - octet_length(body) <= $5 ORDER BY seq",
                      LINK_ARGS(link_id(id), link_number(after), link_number(before),
                                link_number(SLICE_ROWS), link_number(JOURNAL_SLICE_BYTES)),
                      err);
}

void postgres_slice_row(const struct postgres_store *s, const PGresult *r, int row,
                        const uint8_t *id, const char *principal, struct chain_link *out)
{
    const struct link_connection *l = &s->link;
    struct journal_record *of = &out->record;

    *out = (struct chain_link){.seq = link_column(l, r, row, SLICE_SEQ),
                               .gone = link_column(l, r, row, SLICE_GONE)};
    memcpy(of->conversation, id, JOURNAL_ID_BYTES);
    of->kind = (enum journal_kind)link_column(l, r, row, SLICE_KIND);
    of->generation = (uint32_t)link_column(l, r, row, SLICE_GENERATION);
    of->turn = (uint32_t)link_column(l, r, row, SLICE_TURN);
    of->unix_ms = link_column(l, r, row, SLICE_MS);
    of->principal = principal;
    of->body = link_column_bytes(l, r, row, SLICE_BODY, &of->size_bytes);
    out->content = link_column_bytes(l, r, row, SLICE_HASH, &out->n_content_bytes);
    out->chain = link_column_bytes(l, r, row, SLICE_CHAIN, &out->n_chain_bytes);
}

/* The conversation and its ancestors. */
static enum status reading_open(struct postgres_store *s, struct journal_found *out,
                                struct error *err)
{
    struct link_connection *l = &s->link;
    PGresult *r = link_query(
        l,
        "WITH RECURSIVE past AS (SELECT id, parent, seq, 9223372036854775807 AS until, 0 AS depth"
        " FROM parley.conversation WHERE id = $1 UNION ALL SELECT c.id, c.parent, c.seq, past.seq,"
        " depth + 1 FROM parley.conversation AS c JOIN past ON c.id = past.parent)"
        " SELECT id, until, parent IS NULL FROM past ORDER BY depth DESC",
        LINK_ARGS(link_id(out->id)), err);
    struct postgres_reading *reading;
    enum status rc = STATUS_OK;
    size_t len, n;

    if (r == NULL)
        return err->status;
    n = (size_t)l->pq->PQntuples(r);
    reading = try_alloc(1, sizeof(*reading) + n * sizeof(reading->past[0]));
    if (reading == NULL)
        rc = error_no_memory(err, n * sizeof(reading->past[0]), "a conversation's parents");
    else if (n > 0 && link_column(l, r, 0, 2) == 0)
        rc = error_set(err, STATUS_DATA_LOSS, "the journal has lost a parent's turns");
    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        memcpy(reading->past[i].id, link_column_bytes(l, r, (int)i, 0, &len), JOURNAL_ID_BYTES);
        reading->past[i].until = link_column(l, r, (int)i, 1);
    }
    l->pq->PQclear(r);
    if (rc != STATUS_OK) {
        free(reading);
        return rc;
    }
    reading->n = n;
    out->reading = reading;
    return STATUS_OK;
}

static enum status reading_slice(struct postgres_store *s, const struct journal_query *q,
                                 size_t max_bytes, struct journal_found *out, struct error *err)
{
    struct postgres_reading *reading = out->reading;
    const struct postgres_past *past = &reading->past[reading->at];
    PGresult *r = postgres_slice(s, past->id, reading->after, past->until, err);
    enum status rc = STATUS_OK;
    struct chain_link link;
    const char *why;

    if (r == NULL)
        return err->status;
    for (int i = 0; i < s->link.pq->PQntuples(r) && rc == STATUS_OK; i++) {
        postgres_slice_row(s, r, i, past->id, q->principal, &link);
        why = chain_check(&s->chain, &reading->check, &link);
        if (why != NULL)
            rc = chain_refuse(&link, why, err);
        else
            rc = chain_take(out, q, &link, max_bytes, err);
        reading->after = link.seq;
    }
    if (s->link.pq->PQntuples(r) == 0) {
        reading->at++;
        reading->after = 0;
    }
    s->link.pq->PQclear(r);
    return rc;
}

/* Behind the last record: the conversation may have been closed, or taken, in between. */
static enum status reading_close(struct postgres_store *s, struct journal_found *out,
                                 struct error *err)
{
    const struct postgres_reading *reading = out->reading;
    const char *why = chain_check_end(&reading->check);
    struct chain_link last = {.seq = 0};
    PGresult *r = link_query(&s->link,
                             "SELECT owner_epoch FROM parley.conversation WHERE id = $1"
                             " AND NOT is_closed",
                             LINK_ARGS(link_id(out->id)), err);
    bool is_there, is_same;

    if (r == NULL)
        return err->status;
    is_there = s->link.pq->PQntuples(r) == 1;
    is_same = is_there && link_column(&s->link, r, 0, 0) == out->owner_epoch;
    s->link.pq->PQclear(r);
    if (!is_there) {
        journal_found_deinit(out);
        return STATUS_OK;
    }
    if (!is_same)
        return postgres_elsewhere(s, "the conversation is", "which has just taken it", err);
    memcpy(last.record.conversation, out->id, JOURNAL_ID_BYTES);
    if (why != NULL)
        return chain_refuse(&last, why, err);
    free(out->reading);
    out->reading = NULL;
    return STATUS_OK;
}

/* Finds the conversation, and takes it. */
static enum status postgres_find(struct postgres_store *s, const struct journal_query *q,
                                 struct journal_found *out, struct error *err)
{
    static const char *const by[] = {
        [JOURNAL_BY_ID] = "SELECT id, parent, request_id FROM parley.conversation"
                          " WHERE principal = $1 AND id = $2 AND NOT is_closed",
        [JOURNAL_BY_REQUEST] = "SELECT id, parent, request_id FROM parley.conversation"
                               " WHERE principal = $1 AND request_id = $2",
        [JOURNAL_BY_NAME] = "SELECT id, parent, request_id FROM parley.conversation"
                            " WHERE principal = $1 AND name = $2"};
    struct link_connection *l = &s->link;
    PGresult *r =
        link_query(l, by[q->by],
                   LINK_ARGS(link_text(q->principal),
                             q->by == JOURNAL_BY_ID ? link_id(q->id) : link_text(q->text)),
                   err);
    enum status rc = STATUS_OK;
    const char *request_id;
    size_t len;

    if (r == NULL)
        return err->status;
    if (l->pq->PQntuples(r) == 1) {
        out->is_found = true;
        memcpy(out->id, link_column_bytes(l, r, 0, 0, &len), JOURNAL_ID_BYTES);
        out->has_parent = !l->pq->PQgetisnull(r, 0, 1);
        if (out->has_parent)
            memcpy(out->parent, link_column_bytes(l, r, 0, 1, &len), JOURNAL_ID_BYTES);
        if (!l->pq->PQgetisnull(r, 0, 2)) {
            request_id = link_column_bytes(l, r, 0, 2, &len);
            out->request_id = try_strndup(request_id, len);
            if (out->request_id == NULL)
                rc = error_no_memory(err, len, "a request's id");
        }
    }
    l->pq->PQclear(r);
    if (rc == STATUS_OK && out->is_found)
        rc = postgres_take(s, q, out, err);
    return rc;
}

static enum status postgres_read_conversation(struct postgres_store *s,
                                              const struct journal_query *q, size_t max_bytes,
                                              struct journal_found *out, struct error *err)
{
    const size_t before = out->size_bytes;
    const struct postgres_reading *reading;
    enum status rc = STATUS_OK;

    if (out->reading == NULL) {
        rc = postgres_find(s, q, out, err);
        if (rc != STATUS_OK || !out->is_found)
            return rc;
        rc = reading_open(s, out, err);
    }
    while (rc == STATUS_OK && out->size_bytes - before < JOURNAL_SLICE_BYTES) {
        reading = out->reading;
        if (reading->at == reading->n)
            return reading_close(s, out, err);
        rc = reading_slice(s, q, max_bytes, out, err);
    }
    return rc;
}

/* Takes what a statement gives: a kind, a generation, a turn, a time, a body. */
static enum status postgres_read_rows(struct postgres_store *s, const char *sql,
                                      const struct link_arg *args, size_t n, size_t max_bytes,
                                      struct journal_found *out, struct error *err)
{
    const struct link_connection *l = &s->link;
    PGresult *r = link_query(&s->link, sql, args, n, err);
    struct journal_record of = {.kind = JOURNAL_OPEN};
    enum status rc = STATUS_OK;

    if (r == NULL)
        return err->status;
    for (int i = 0; i < l->pq->PQntuples(r) && rc == STATUS_OK; i++) {
        of.kind = (enum journal_kind)link_column(l, r, i, 0);
        of.generation = (uint32_t)link_column(l, r, i, 1);
        of.turn = (uint32_t)link_column(l, r, i, 2);
        of.unix_ms = link_column(l, r, i, 3);
        of.body = link_column_bytes(l, r, i, 4, &of.size_bytes);
        rc = journal_found_take(out, &of, max_bytes, err);
    }
    l->pq->PQclear(r);
    return rc;
}

static enum status postgres_read_things(struct postgres_store *s, const struct journal_query *q,
                                        size_t max_bytes, struct journal_found *out,
                                        struct error *err)
{
    const enum journal_place place =
        q->by == JOURNAL_KEPT ? journal_place_of(q->number) : JOURNAL_PLACE_PARAMS;

    /* A block is of a checkpoint that was found before; if that is replaced, the block is gone. */
    if (q->by != JOURNAL_BLOCKS && postgres_take_things(s, place, true, err) != STATUS_OK)
        return err->status;
    if (q->by == JOURNAL_CHECKPOINTS)
        return postgres_read_rows(s, "SELECT 17, 0, 0, 0, body FROM parley.params ORDER BY seq",
                                  NULL, 0, max_bytes, out, err);
    if (q->by == JOURNAL_BLOCKS)
        return postgres_read_rows(s,
                                  "SELECT 16, 0, number, 0, body FROM parley.block"
                                  " WHERE checkpoint = $1 AND number = $2",
                                  LINK_ARGS(link_id(q->id), link_number(q->number)), max_bytes, out,
                                  err);
    out->owner_epoch = s->place_epochs[place];
    return postgres_read_rows(s,
                              "SELECT 19, kind, n_blocks, 0, body FROM parley.kept WHERE kind = $1"
                              " ORDER BY seq",
                              LINK_ARGS(link_number(q->number)), max_bytes, out, err);
}

enum status postgres_read(struct journal_store *base, const struct journal_query *q,
                          size_t max_bytes, struct journal_found *out, struct error *err)
{
    struct postgres_store *s = postgres_store_of(base);
    enum status rc = postgres_connect(s, err);
    struct journal_peer owner;

    s->is_elsewhere = false;
    if (rc != STATUS_OK) {
        journal_found_deinit(out);
        return rc;
    }
    switch (q->by) {
    case JOURNAL_BY_ID:
    case JOURNAL_BY_REQUEST:
    case JOURNAL_BY_NAME:
        rc = postgres_read_conversation(s, q, max_bytes, out, err);
        break;
    case JOURNAL_CHECKPOINTS:
    case JOURNAL_BLOCKS:
    case JOURNAL_KEPT:
        rc = postgres_read_things(s, q, max_bytes, out, err);
        break;
    case JOURNAL_PLACE:
        rc = postgres_take_place(s, q, out, err);
        break;
    case JOURNAL_PAGE:
    case JOURNAL_SWEEP:
        rc = postgres_read_list(s, q, out, err);
        break;
    case JOURNAL_BY_KEY:
        rc = postgres_read_rows(s,
                                "SELECT 9, generation, turn, unix_ms, body FROM parley.keyed"
                                " WHERE principal = $1 AND key = $2 ORDER BY part",
                                LINK_ARGS(link_text(q->principal), link_text(q->text)), max_bytes,
                                out, err);
        out->is_found = !list_is_empty(&out->events);
        break;
    }
    if (rc != STATUS_OK) {
        owner = out->owner;
        journal_found_deinit(out);
        out->is_elsewhere = s->is_elsewhere;
        if (s->is_elsewhere && q->wants_owner && owner.address[0] != '\0')
            out->owner = owner;
    }
    return rc;
}
