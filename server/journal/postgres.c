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

enum { POSTGRES_LEASE_MS = 3000, POSTGRES_RENEWAL_US = 1000000, POSTGRES_SHOWN_CHARS = 160 };

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

/* --- what is asked of the lease --- */

/* Which conversations others ask for. */
static enum status lease_find_wanted(struct postgres_store *s, struct error *err)
{
    struct link_connection *l = &s->link;
    PGresult *r =
        link_query(l,
                   "SELECT id FROM parley.conversation WHERE is_wanted"
                   " AND split_part(owner, '.', 1) = $1 LIMIT $2",
                   LINK_ARGS(link_text(s->base.self), link_number(JOURNAL_MAX_WANTED)), err);
    size_t len;

    s->base.n_wanted = 0;
    if (r == NULL)
        return err->status;
    for (int i = 0; i < l->pq->PQntuples(r); i++)
        memcpy(s->base.wanted[s->base.n_wanted++], link_column_bytes(l, r, i, 0, &len),
               JOURNAL_ID_BYTES);
    l->pq->PQclear(r);
    return STATUS_OK;
}

/* A third of the lease, and at least once a second, since the lag goes with the renewal. */
static uint64_t postgres_renewal_us(const struct postgres_store *s)
{
    const uint64_t third_us = (uint64_t)s->base.lease_ms * 1000 / 3;

    return third_us < POSTGRES_RENEWAL_US ? third_us : POSTGRES_RENEWAL_US;
}

static enum status postgres_beat(struct journal_store *base, struct error *err)
{
    struct postgres_store *s = postgres_store_of(base);

    if (postgres_connect(s, err) != STATUS_OK)
        return err->status;
    if ((env_now_us(&env_real) - s->base.renewed_us >= postgres_renewal_us(s) ||
         strcmp(s->said, s->base.address) != 0) &&
        postgres_renew(s, err) != STATUS_OK)
        return err->status;
    if (lease_find_wanted(s, err) != STATUS_OK)
        return err->status;
    return postgres_sweep(s, err);
}

static enum status postgres_give(struct journal_store *base, const uint8_t *id, bool is_unended,
                                 struct error *err)
{
    struct postgres_store *s = postgres_store_of(base);

    if (postgres_connect(s, err) != STATUS_OK)
        return err->status;
    return link_do(&s->link,
                   "UPDATE parley.conversation SET owner = '', owner_epoch = owner_epoch + 1,"
                   " is_wanted = $3::bigint <> 0"
                   " WHERE id = $1 AND split_part(owner, '.', 1) = $2",
                   LINK_ARGS(link_id(id), link_text(s->base.self), link_number(is_unended)), err)
               ? STATUS_OK
               : err->status;
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
    .lend = postgres_lend,
    .list = postgres_members,
};
