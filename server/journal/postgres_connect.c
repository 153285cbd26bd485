/* Opens the connection of a PostgreSQL store before a use, where there is none. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "server/journal/postgres_parts.h"

enum { POSTGRES_PAUSE_MS = 500 }; /* after a failure, before the next try */

struct postgres_store *postgres_store_of(struct journal_store *s)
{
    return container_of(s, struct postgres_store, base);
}

enum status postgres_lost(struct postgres_store *s, struct error *err)
{
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL,
                        "the journal's database cannot be used: the connection was lost");
    err->retry_after_ms = POSTGRES_RETRY_MS;
    return STATUS_UNAVAILABLE;
}

/* Once: by a later connection the loop may be reading what was found. */
static enum status postgres_read_secret(struct postgres_store *s, struct error *err)
{
    PGresult *r;
    const void *secret;
    size_t len;

    if (s->has_secret)
        return STATUS_OK;
    r = link_query(&s->link, "SELECT value FROM parley.meta WHERE key = 'secret'", NULL, 0, err);
    if (r == NULL)
        return err->status;
    if (s->link.pq->PQntuples(r) == 1) {
        secret = link_column_bytes(&s->link, r, 0, 0, &len);
        s->has_secret = len == JOURNAL_SECRET_BYTES;
        if (s->has_secret)
            memcpy(s->base.secret, secret, JOURNAL_SECRET_BYTES);
    }
    s->link.pq->PQclear(r);
    return s->has_secret ? STATUS_OK
                         : error_set(err, STATUS_DATA_LOSS, "the table parley.meta has no secret");
}

/* What would end a start, such as tables of another version: a process that runs waits until it is
 * over. */
static enum status postgres_wait_over(struct error *err)
{
    err->status = STATUS_UNAVAILABLE;
    err->reason = REASON_JOURNAL_FAILING;
    err->retry_after_ms = POSTGRES_RETRY_MS;
    return STATUS_UNAVAILABLE;
}

enum status postgres_connect(struct postgres_store *s, struct error *err)
{
    const bool is_first = !s->has_secret;
    enum status rc;

    if (s->link.c != NULL)
        return STATUS_OK;
    if (s->tried_ms != 0 && env_now_ms(&env_real) - s->tried_ms < POSTGRES_PAUSE_MS)
        return postgres_lost(s, err);
    s->n_links++;
    (void)snprintf(s->owner, sizeof(s->owner), "%s.%u", s->base.self, s->n_links);
    rc = link_open(&s->link, s->url, err);
    if (rc == STATUS_OK)
        rc = postgres_check_schema(s, err);
    if (rc == STATUS_OK)
        rc = postgres_read_secret(s, err);
    if (rc == STATUS_OK)
        rc = postgres_renew(s, err);
    s->tried_ms = rc == STATUS_OK ? 0 : env_now_ms(&env_real);
    if (rc == STATUS_OK)
        return STATUS_OK;
    link_close(&s->link);
    return is_first ? rc : postgres_wait_over(err);
}
