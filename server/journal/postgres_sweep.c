/* Who else shares the database, and what daemons left whose lease is over. A beat looks through
 * SWEEP_ROWS conversations of one such daemon; those whose last turn was accepted and did not end
 * are orphans, which the loop then takes over as if somebody had asked for them. Once no
 * conversation of a daemon is an orphan, its row is deleted.
 *
 * Every daemon sweeps. Nothing is locked or marked here: of several that find an orphan one takes
 * it, and the others find that it has an owner. */
#include <stdio.h>
#include <string.h>

#include "server/journal/postgres_parts.h"

enum { SWEEP_ROWS = 4096 };

static void sweep_add(struct postgres_store *s, const PGresult *r, int row)
{
    const struct link_connection *l = &s->link;
    struct journal_orphan *o;
    size_t len;

    if (s->base.n_orphans == JOURNAL_MAX_SWEPT)
        return;
    o = &s->base.orphans[s->base.n_orphans++];
    memcpy(o->id, link_column_bytes(l, r, row, 0, &len), JOURNAL_ID_BYTES);
    (void)snprintf(o->principal, sizeof(o->principal), "%s",
                   (const char *)link_column_bytes(l, r, row, 1, &len));
}

/* Those that were given up with their turn, by daemons that stopped. */
static enum status sweep_given(struct postgres_store *s, struct error *err)
{
    const struct link_connection *l = &s->link;
    PGresult *r = link_query(&s->link,
                             "SELECT id, principal FROM parley.conversation WHERE is_wanted"
                             " AND owner = '' AND NOT is_closed LIMIT $1",
                             LINK_ARGS(link_number(JOURNAL_MAX_SWEPT)), err);

    if (r == NULL)
        return err->status;
    for (int i = 0; i < l->pq->PQntuples(r); i++)
        sweep_add(s, r, i);
    l->pq->PQclear(r);
    return STATUS_OK;
}

/* The last record of a turn is its acceptance (3). */
static const char sweep_page[] =
    "SELECT id, principal, coalesce((SELECT kind = 3 AND gone = 0 FROM parley.event WHERE"
    " conversation = c.id AND kind BETWEEN 3 AND 7 ORDER BY seq DESC LIMIT 1), false)"
    " FROM parley.conversation AS c WHERE split_part(owner, '.', 1) = $1 AND id > $2"
    " AND NOT is_closed ORDER BY id LIMIT $3";

/* The next page of the conversations of the daemon that is swept. */
static enum status sweep_more(struct postgres_store *s, struct error *err)
{
    const struct link_connection *l = &s->link;
    PGresult *r = link_query(
        &s->link, sweep_page,
        LINK_ARGS(link_text(s->swept), link_id(s->swept_to), link_number(SWEEP_ROWS)), err);
    bool is_last = true;
    size_t len;

    if (r == NULL)
        return err->status;
    for (int i = 0; i < l->pq->PQntuples(r); i++) {
        if (s->base.n_orphans == JOURNAL_MAX_SWEPT) {
            is_last = false;
            break;
        }
        memcpy(s->swept_to, link_column_bytes(l, r, i, 0, &len), JOURNAL_ID_BYTES);
        if (link_column(l, r, i, 2) == 0)
            continue;
        s->has_swept_any = true;
        sweep_add(s, r, i);
    }
    is_last = is_last && l->pq->PQntuples(r) < SWEEP_ROWS;
    l->pq->PQclear(r);
    if (!is_last)
        return STATUS_OK;
    if (!s->has_swept_any && s->swept[0] != '\0' &&
        !link_do(&s->link, "DELETE FROM parley.daemon WHERE id = $1 AND until < clock_timestamp()",
                 LINK_ARGS(link_text(s->swept)), err))
        return err->status;
    if (s->swept[0] != '\0' &&
        !link_do(&s->link,
                 "DELETE FROM parley.quota_slice WHERE daemon NOT IN (SELECT id FROM"
                 " parley.daemon)",
                 NULL, 0, err))
        return err->status;
    memset(s->swept_to, 0, sizeof(s->swept_to));
    s->has_swept_any = false;
    return STATUS_OK;
}

/* A pass through one daemon's conversations comes before the next daemon. */
static bool sweep_is_between(const struct postgres_store *s)
{
    static const uint8_t start[JOURNAL_ID_BYTES];

    return memcmp(s->swept_to, start, sizeof(start)) == 0;
}

/* lines: of each an id, a blank and an address, which may be empty. */
static void sweep_note_others(struct postgres_store *s, const char *lines)
{
    s->base.n_others = 0;
    while (*lines != '\0') {
        const size_t n = strcspn(lines, "\n"), n_id = strcspn(lines, " \n");

        if (s->base.n_others < JOURNAL_MAX_MEMBERS) {
            struct journal_peer *other = &s->base.others[s->base.n_others];

            (void)snprintf(other->id, sizeof(other->id), "%.*s", (int)n_id, lines);
            (void)snprintf(other->address, sizeof(other->address), "%.*s",
                           n_id < n ? (int)(n - n_id - 1) : 0, lines + n_id + (n_id < n));
        }
        s->base.n_others++;
        lines += n + (lines[n] == '\n');
    }
}

enum status postgres_sweep(struct postgres_store *s, struct error *err)
{
    const struct link_connection *l = &s->link;
    PGresult *r =
        link_query(&s->link,
                   "SELECT coalesce(string_agg(id || ' ' || address, chr(10)) FILTER"
                   " (WHERE until > clock_timestamp()), ''),"
                   " coalesce(min(id) FILTER (WHERE until <= clock_timestamp() AND id > $2), ''),"
                   " EXISTS (SELECT FROM parley.conversation WHERE is_wanted AND owner = '')"
                   " FROM parley.daemon WHERE id <> $1",
                   LINK_ARGS(link_text(s->base.self), link_text(s->swept)), err);
    bool has_given;
    size_t len;

    s->base.n_orphans = 0;
    if (r == NULL)
        return err->status;
    sweep_note_others(s, link_column_bytes(l, r, 0, 0, &len));
    if (sweep_is_between(s))
        (void)snprintf(s->swept, sizeof(s->swept), "%s",
                       (const char *)link_column_bytes(l, r, 0, 1, &len));
    has_given = link_column(l, r, 0, 2) != 0;
    l->pq->PQclear(r);
    if (!s->base.is_sweeping)
        return STATUS_OK;
    if (has_given && sweep_given(s, err) != STATUS_OK)
        return err->status;
    return s->swept[0] == '\0' ? STATUS_OK : sweep_more(s, err);
}

enum status postgres_members(struct journal_store *base, struct journal_members *out,
                             struct error *err)
{
    struct postgres_store *s = postgres_store_of(base);
    const struct link_connection *l = &s->link;
    PGresult *r;
    size_t len;

    out->n = 0;
    if (postgres_connect(s, err) != STATUS_OK)
        return err->status;
    r = link_query(
        &s->link,
        "WITH n AS (SELECT split_part(owner, '.', 1) AS id, count(*) AS n"
        " FROM parley.conversation WHERE NOT is_closed GROUP BY 1)"
        " SELECT d.id, d.name, d.address,"
        " (extract(epoch FROM d.until - clock_timestamp()) * 1000)::bigint,"
        " (extract(epoch FROM clock_timestamp() - d.since) * 1000)::bigint,"
        " coalesce(n.n, 0), coalesce((SELECT sum(n)::bigint FROM n WHERE id NOT IN"
        " (SELECT id FROM parley.daemon)), 0), d.lag_ms, (SELECT coalesce(sum(1 << place::int), 0)"
        " FROM parley.things WHERE split_part(owner, '.', 1) = d.id)"
        " FROM parley.daemon AS d LEFT JOIN n ON n.id = d.id ORDER BY d.name, d.id LIMIT $1",
        LINK_ARGS(link_number(JOURNAL_MAX_MEMBERS)), err);
    if (r == NULL)
        return err->status;
    for (int i = 0; i < l->pq->PQntuples(r); i++) {
        struct journal_member *m = &out->rows[out->n++];

        *m = (struct journal_member){.lease_ms = (int64_t)link_column(l, r, i, 3),
                                     .up_ms = link_column(l, r, i, 4),
                                     .n_conversations = link_column(l, r, i, 5),
                                     .lag_ms = link_column(l, r, i, 7),
                                     .places = (uint32_t)link_column(l, r, i, 8)};
        (void)snprintf(m->peer.id, sizeof(m->peer.id), "%s",
                       (const char *)link_column_bytes(l, r, i, 0, &len));
        (void)snprintf(m->name, sizeof(m->name), "%s",
                       (const char *)link_column_bytes(l, r, i, 1, &len));
        (void)snprintf(m->peer.address, sizeof(m->peer.address), "%s",
                       (const char *)link_column_bytes(l, r, i, 2, &len));
        m->is_self = strcmp(m->peer.id, s->base.self) == 0;
        out->n_free = link_column(l, r, i, 6);
    }
    l->pq->PQclear(r);
    return STATUS_OK;
}
