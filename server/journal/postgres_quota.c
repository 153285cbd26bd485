/* Rates of principals that all daemons share. A row has what was used, and empties with time by the
 * database's clock. Each daemon has a slice of the rest, which no other daemon uses: at least its
 * share of what is left, and more if a request needs more. Slices of daemons without a lease do not
 * count, since such a daemon gets none and its calls fail. */
#include "base/json_writer.h"
#include "server/journal/postgres_parts.h"

static const char quota_use[] =
    "INSERT INTO parley.quota AS q (principal, kind, rate, used, at) SELECT p, k, l, s,"
    " clock_timestamp() FROM json_to_recordset($1::json) AS x(p text, k bigint, l bigint, s bigint)"
    " ORDER BY p, k ON CONFLICT (principal, kind) DO UPDATE SET rate = excluded.rate,"
    " used = least(2305843009213693952, q.used - least(q.used, excluded.rate * greatest(0,"
    " extract(epoch FROM excluded.at - q.at)::numeric) * 1000000) + excluded.used)::bigint,"
    " at = excluded.at";

static const char quota_lend[] =
    "WITH x AS (SELECT x.*, q.used, q.rate * 60000000 - q.used - coalesce((SELECT sum(n)::bigint"
    " FROM parley.quota_slice AS s JOIN parley.daemon AS d ON d.id = s.daemon"
    " AND d.until > clock_timestamp() WHERE s.principal = p AND s.kind = k AND s.daemon <> $2), 0)"
    " AS rest FROM json_to_recordset($1::json) AS x(i bigint, p text, k bigint, w bigint)"
    " JOIN parley.quota AS q ON q.principal = p AND q.kind = k),"
    " y AS (INSERT INTO parley.quota_slice (principal, kind, daemon, n) SELECT p, k, $2,"
    " greatest(0, least(rest, greatest(rest / $3::bigint, w))) FROM x"
    " ON CONFLICT (principal, kind, daemon) DO UPDATE SET n = excluded.n"
    " RETURNING principal, kind, n)"
    " SELECT x.i, x.used, y.n FROM x JOIN y ON y.principal = x.p AND y.kind = x.k";

static enum status quota_write(struct buf *out, const struct journal_rate *rows, size_t n)
{
    struct json_writer w = json_writer_begin(out);

    json_begin_array(&w, NULL);
    for (size_t i = 0; i < n; i++) {
        json_begin_object(&w, NULL);
        json_write_unsigned(&w, "i", i);
        json_write_text(&w, "p", rows[i].principal);
        json_write_unsigned(&w, "k", rows[i].kind);
        json_write_unsigned(&w, "l", rows[i].limit);
        json_write_unsigned(&w, "s", rows[i].spent);
        json_write_unsigned(&w, "w", rows[i].wanted);
        json_end_object(&w);
    }
    json_end_array(&w);
    return json_writer_end(&w) == STATUS_OK && buf_append(out, "", 1) == STATUS_OK
               ? STATUS_OK
               : STATUS_EXHAUSTED;
}

static bool quota_take(struct postgres_store *s, struct journal_rate *rows, size_t n,
                       struct error *err)
{
    struct link_connection *l = &s->link;
    PGresult *r = link_take(l, err);

    if (r == NULL)
        return false;
    l->pq->PQclear(r);
    r = link_take(l, err);
    if (r == NULL)
        return false;
    for (int i = 0; i < l->pq->PQntuples(r); i++) {
        const uint64_t at = link_column(l, r, i, 0);

        if (at >= n)
            continue;
        rows[at].used = link_column(l, r, i, 1);
        rows[at].slice = link_column(l, r, i, 2);
    }
    l->pq->PQclear(r);
    return true;
}

enum status postgres_lend(struct journal_store *base, struct journal_rate *rows, size_t n,
                          struct error *err)
{
    struct postgres_store *s = postgres_store_of(base);
    struct link_connection *l = &s->link;
    bool is_done;
    struct buf json;

    if (postgres_connect(s, err) != STATUS_OK)
        return err->status;
    buf_init(&json, SIZE_MAX);
    if (quota_write(&json, rows, n) != STATUS_OK) {
        buf_deinit(&json);
        return error_no_memory(err, n * sizeof(rows[0]), "quotas");
    }
    is_done = link_send(l, quota_use, LINK_ARGS(link_text(json.data))) &&
              link_send(l, quota_lend,
                        LINK_ARGS(link_text(json.data), link_text(s->base.self),
                                  link_number(s->base.n_others + 1))) &&
              link_sync(l);
    buf_deinit(&json);
    if (!is_done)
        return error_set(err, STATUS_UNAVAILABLE, "the connection to the database was lost");
    is_done = quota_take(s, rows, n, err);
    return link_take_sync(l, err) && is_done ? STATUS_OK : err->status;
}
