/* The journal in a PostgreSQL database, which several parleyd may share. Each conversation belongs
 * to one of them at a time: its row names the process and an epoch, and each write locks the row
 * and compares both, in its own transaction (postgres_write.c). Who reads a conversation that
 * nobody has any more takes it over first (postgres_lease.c).
 *
 * Failures: a statement that the database refuses undoes its transaction, and the connection goes
 * on. If the connection is lost, or nothing comes for LINK_PATIENCE_MS, it is unknown whether the
 * transaction is stored. The next use opens another connection, which waits for what the lost one
 * has locked. */
#include "server/journal/postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "server/journal/postgres_parts.h"

enum { POSTGRES_LEASE_MS = 3000, POSTGRES_PAUSE_MS = 500, POSTGRES_SHOWN_CHARS = 160 };

struct postgres_store *postgres_store_of(struct journal_store *s)
{
    return container_of(s, struct postgres_store, base);
}

bool postgres_is_url(const char *data)
{
    return strncmp(data, "postgresql://", 13) == 0 || strncmp(data, "postgres://", 11) == 0;
}

const struct journal_store_type *journal_type_of(const char *data)
{
    return postgres_is_url(data) ? &journal_postgres : &journal_sqlite;
}

/* What stands before the last "@" of the authority may be a password, which may have any sign in it
 * that nobody has encoded; and so may a parameter. */
const char *postgres_shown(const char *url, char out[POSTGRES_SHOWN_MAX])
{
    const char *host = strstr(url, "://") + 3;
    size_t n = strcspn(host, "?");

    for (size_t i = n; i > 0; i--) {
        if (host[i - 1] != '@')
            continue;
        host += i;
        n -= i;
        break;
    }
    (void)snprintf(out, POSTGRES_SHOWN_MAX, "postgresql://%.*s",
                   (int)(n < POSTGRES_SHOWN_CHARS ? n : POSTGRES_SHOWN_CHARS), host);
    return out;
}

enum status postgres_lost(struct postgres_store *s, struct error *err)
{
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL,
                        "the journal's database cannot be used: the connection was lost");
    err->retry_after_ms = POSTGRES_RETRY_MS;
    return STATUS_UNAVAILABLE;
}

/* --- the connection --- */

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

enum status postgres_connect(struct postgres_store *s, struct error *err)
{
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
    if (rc != STATUS_OK)
        link_close(&s->link);
    return rc;
}

/* --- life --- */

static void postgres_close(struct journal_store *base)
{
    struct postgres_store *s;

    if (base == NULL)
        return;
    s = postgres_store_of(base);
    postgres_end_lease(s);
    link_close(&s->link);
    chain_close(&s->chain);
    free(s->url);
    free(s);
}

static enum status postgres_open(struct journal_store **out, const char *url, struct error *err)
{
    struct postgres_store *s = xalloc(sizeof(*s));
    uint64_t random;
    enum status rc;

    s->base.type = &journal_postgres;
    s->base.lease_ms = POSTGRES_LEASE_MS;
    s->url = xstrdup(url);
    env_real.random(env_real.self, &random, sizeof(random));
    (void)snprintf(s->base.self, sizeof(s->base.self), "%016llx", (unsigned long long)random);
    rc = libpq_load(&s->link.pq, err);
    if (rc == STATUS_OK)
        rc = chain_open(&s->chain, err);
    if (rc == STATUS_OK)
        rc = postgres_connect(s, err);
    if (rc == STATUS_OK) {
        *out = &s->base;
        s = NULL; /* given away */
    }
    postgres_close(s == NULL ? NULL : &s->base);
    return rc;
}

static enum status postgres_look(const char *url, struct error *err)
{
    struct postgres_store s = {.url = NULL};
    enum status rc = libpq_load(&s.link.pq, err);

    if (rc == STATUS_OK)
        rc = link_open(&s.link, url, err);
    if (rc == STATUS_OK)
        rc = postgres_check_schema(&s, err);
    link_close(&s.link);
    return rc;
}

static bool postgres_is_there(const char *url)
{
    return true; /* open says what is missing */
}

static enum status postgres_backup(const char *url, const char *path, struct error *err)
{
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "a journal in PostgreSQL is backed up by PostgreSQL's means, for instance "
                     "pg_dump --schema=parley");
}

const struct journal_store_type journal_postgres = {
    .name = "postgresql",
    .is_there = postgres_is_there,
    .look = postgres_look,
    .open = postgres_open,
    .close = postgres_close,
    .commit = postgres_commit,
    .read = postgres_read,
    .backup = postgres_backup,
    .check = postgres_check,
    .beat = postgres_beat,
    .give = postgres_give,
    .list = postgres_members,
};
