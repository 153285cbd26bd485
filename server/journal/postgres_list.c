/* Short lists of conversations. The cost of a row does not depend on the length of its
 * conversation: the last event has the number of turns. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/journal/postgres_parts.h"

/* Of a page: what is beyond comes with the next one. */
#define POSTGRES_LIST_MAX_BYTES ((size_t)2 << 20)

enum {
    LIST_ID,
    LIST_PARENT,
    LIST_OPENED,
    LIST_BODY,
    LIST_PLACE,
    LIST_GENERATION,
    LIST_TURN,
    LIST_KIND,
    LIST_MS,
    LIST_SEQ
};

/* o: the record that opened it; u: its options of today; e: its last record. */
#define LIST_SELECT                                                                             \
    "SELECT c.id, c.parent, o.unix_ms, coalesce(u.body, o.body), c.seq, e.generation, e.turn,"  \
    " e.kind, e.unix_ms, e.seq FROM parley.conversation AS c JOIN parley.event AS o"            \
    " ON o.conversation = c.id AND o.seq = c.seq LEFT JOIN parley.event AS u"                   \
    " ON u.conversation = c.id AND u.gone = 0 AND u.generation = 0 AND u.turn = 0"              \
    " AND u.kind = 2 CROSS JOIN LATERAL (SELECT generation, turn, kind, unix_ms, seq FROM"      \
    " parley.event WHERE conversation = c.id AND gone = 0 ORDER BY generation DESC, turn DESC," \
    " kind DESC LIMIT 1) AS e"

/* A turn that was accepted and not ended does not count. */
static enum status list_take_row(const struct postgres_store *s, const PGresult *r, int i,
                                 struct journal_found *out, struct error *err)
{
    const struct link_connection *l = &s->link;
    size_t size_bytes, len;
    const void *body = link_column_bytes(l, r, i, LIST_BODY, &size_bytes);
    struct journal_row *row = try_alloc(1, sizeof(*row) + size_bytes);

    if (row == NULL)
        return error_no_memory(err, sizeof(*row) + size_bytes, "a list of conversations");
    row->size_bytes = size_bytes;
    memcpy(row->body, body, size_bytes);
    memcpy(row->id, link_column_bytes(l, r, i, LIST_ID, &len), JOURNAL_ID_BYTES);
    row->has_parent = !l->pq->PQgetisnull(r, i, LIST_PARENT);
    if (row->has_parent)
        memcpy(row->parent, link_column_bytes(l, r, i, LIST_PARENT, &len), JOURNAL_ID_BYTES);
    row->opened_unix_ms = link_column(l, r, i, LIST_OPENED);
    row->place = link_column(l, r, i, LIST_PLACE);
    row->generation = (uint32_t)link_column(l, r, i, LIST_GENERATION);
    row->turns = (uint32_t)link_column(l, r, i, LIST_TURN);
    row->last_unix_ms = link_column(l, r, i, LIST_MS);
    row->last_seq = link_column(l, r, i, LIST_SEQ);
    if (link_column(l, r, i, LIST_KIND) == JOURNAL_ACCEPT && row->turns > 0)
        row->turns--;
    out->size_bytes += sizeof(*row) + size_bytes;
    list_push(&out->rows, &row->link);
    return STATUS_OK;
}

/* Counted, not tallied: a tally would be one row that all processes wait for. */
static enum status list_total(struct postgres_store *s, const struct journal_query *q,
                              struct journal_found *out, struct error *err)
{
    PGresult *r = link_query(&s->link,
                             "SELECT count(*) FROM parley.conversation WHERE principal = $1"
                             " AND is_listed AND ($2::text IS NULL OR model = $2)",
                             LINK_ARGS(link_text(q->principal), link_text(q->text)), err);

    if (r == NULL)
        return err->status;
    out->n_total = link_column(&s->link, r, 0, 0);
    s->link.pq->PQclear(r);
    return STATUS_OK;
}

/* A sweep sees what this process has, and what nobody has. */
static PGresult *list_ask(struct postgres_store *s, const struct journal_query *q,
                          struct error *err)
{
    if (q->by == JOURNAL_PAGE)
        return link_query(&s->link,
                          LIST_SELECT " WHERE c.principal = $1 AND c.seq < $2 AND c.is_listed"
                                      " AND ($4::text IS NULL OR c.model = $4)"
                                      " ORDER BY c.seq DESC LIMIT $3",
                          LINK_ARGS(link_text(q->principal), link_number(q->place),
                                    link_number(q->max_rows), link_text(q->text)),
                          err);
    return link_query(
        &s->link,
        LIST_SELECT " WHERE c.seq > $1 AND NOT c.is_closed AND c.kind = 1"
                    " AND " POSTGRES_IS_FREE("c.owner", "$3") " ORDER BY c.seq LIMIT $2",
        LINK_ARGS(link_number(q->place), link_number(q->max_rows), link_text(s->base.self)), err);
}

enum status postgres_read_list(struct postgres_store *s, const struct journal_query *q,
                               struct journal_found *out, struct error *err)
{
    enum status rc = q->wants_total ? list_total(s, q, out, err) : STATUS_OK;
    PGresult *r = rc == STATUS_OK ? list_ask(s, q, err) : NULL;
    int n, i;

    if (r == NULL)
        return err->status;
    n = s->link.pq->PQntuples(r);
    for (i = 0; i < n && rc == STATUS_OK && out->size_bytes < POSTGRES_LIST_MAX_BYTES; i++)
        rc = list_take_row(s, r, i, out, err);
    out->has_more = i < n || (uint32_t)n == q->max_rows;
    s->link.pq->PQclear(r);
    return rc;
}
