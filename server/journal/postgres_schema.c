/* The tables of the journal in PostgreSQL, in the schema "parley", with the columns of SQLite's.
 * Only parleyd --init-data makes and changes them: a daemon that serves may have a role that cannot
 * create tables. */
#include <string.h>

#include "server/journal/postgres.h"
#include "server/journal/postgres_parts.h"

/* Numbers of 32 bits without a sign are bigint. An event's seq has no index of its own: the planner
 * would walk it backwards to find a conversation's last record. No foreign key: its check would
 * lock the conversation's row again for each record. Each statement stands alone. */
static const char *const schema_1[] = {
    "CREATE TABLE parley.meta (key text PRIMARY KEY, value bytea NOT NULL)",
    "INSERT INTO parley.meta VALUES ('secret', substr(sha256(uuid_send(gen_random_uuid()) ||"
    " uuid_send(gen_random_uuid())), 1, 16))",
    "CREATE TABLE parley.daemon (id text PRIMARY KEY, name text NOT NULL,"
    " since timestamptz NOT NULL DEFAULT clock_timestamp(), until timestamptz NOT NULL)",
    "CREATE TABLE parley.conversation (id uuid PRIMARY KEY, principal text NOT NULL,"
    " request_id text, name text, parent uuid, seq bigint NOT NULL, owner text NOT NULL,"
    " owner_epoch bigint NOT NULL DEFAULT 1, is_wanted boolean NOT NULL DEFAULT false, is_closed "
    "boolean NOT NULL DEFAULT false,"
    " model text NOT NULL DEFAULT '', kind integer NOT NULL DEFAULT 1,"
    " is_listed boolean NOT NULL DEFAULT true)",
    "CREATE UNIQUE INDEX conversation_request ON parley.conversation (principal, request_id)"
    " WHERE request_id IS NOT NULL",
    "CREATE UNIQUE INDEX conversation_name ON parley.conversation (principal, name)"
    " WHERE name IS NOT NULL",
    "CREATE INDEX conversation_parent ON parley.conversation (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX conversation_list ON parley.conversation (principal, seq) WHERE is_listed",
    "CREATE INDEX conversation_of_model ON parley.conversation (principal, model, seq)"
    " WHERE is_listed",
    "CREATE INDEX conversation_wanted ON parley.conversation (owner) WHERE is_wanted",
    "CREATE INDEX conversation_sweep ON parley.conversation (seq) WHERE NOT is_closed",
    "CREATE TABLE parley.event (seq bigint GENERATED ALWAYS AS IDENTITY, conversation uuid"
    " NOT NULL, generation bigint NOT NULL, turn bigint NOT NULL, kind integer NOT NULL,"
    " unix_ms bigint NOT NULL, body bytea NOT NULL, gone bigint NOT NULL DEFAULT 0,"
    " hash bytea NOT NULL, chain bytea NOT NULL, PRIMARY KEY (conversation, seq))",
    "CREATE UNIQUE INDEX event_place ON parley.event (conversation, gone, generation, turn, kind)",
    "CREATE TABLE parley.keyed (principal text NOT NULL, key text NOT NULL, part bigint NOT NULL,"
    " conversation uuid NOT NULL, generation bigint NOT NULL, turn bigint NOT NULL,"
    " unix_ms bigint NOT NULL, until_ms bigint NOT NULL, body bytea NOT NULL,"
    " PRIMARY KEY (principal, key, part))",
    "CREATE INDEX keyed_until ON parley.keyed (until_ms) WHERE until_ms > 0",
    "CREATE INDEX keyed_place ON parley.keyed (conversation, generation, turn)",
    "CREATE TABLE parley.pin (conversation uuid NOT NULL, room uuid NOT NULL,"
    " PRIMARY KEY (conversation, room))",
    "CREATE TABLE parley.things (owner text NOT NULL, owner_epoch bigint NOT NULL)",
    "INSERT INTO parley.things VALUES ('', 1)",
    "CREATE TABLE parley.block (checkpoint uuid NOT NULL, number bigint NOT NULL,"
    " body bytea NOT NULL, PRIMARY KEY (checkpoint, number))",
    "CREATE TABLE parley.params (seq bigint GENERATED ALWAYS AS IDENTITY, principal text NOT NULL,"
    " name text NOT NULL, checkpoint uuid NOT NULL, body bytea NOT NULL,"
    " PRIMARY KEY (principal, name))",
    "CREATE TABLE parley.kept (seq bigint GENERATED ALWAYS AS IDENTITY, kind bigint NOT NULL,"
    " principal text NOT NULL, name text NOT NULL, checkpoint uuid NOT NULL,"
    " n_blocks bigint NOT NULL, body bytea NOT NULL, PRIMARY KEY (kind, principal, name))",
    NULL};

/* Where a daemon is reached, and what is looked through when it has ended. */
static const char *const schema_2[] = {
    "ALTER TABLE parley.daemon ADD COLUMN address text NOT NULL DEFAULT ''",
    "CREATE INDEX conversation_daemon ON parley.conversation (split_part(owner, '.', 1), id)"
    " WHERE NOT is_closed",
    NULL};

/* Each place has an owner of its own. A block says of which kind of things it is, so that who gets
 * a place deletes no block of another. */
static const char *const schema_3[] = {
    "ALTER TABLE parley.things ADD COLUMN place bigint NOT NULL DEFAULT 0",
    "ALTER TABLE parley.things ADD PRIMARY KEY (place)",
    "INSERT INTO parley.things (place, owner, owner_epoch) SELECT n, owner, owner_epoch FROM"
    " parley.things, unnest(ARRAY[1, 2]) AS n",
    "INSERT INTO parley.things (place, owner, owner_epoch) VALUES (4, '', 1), (5, '', 1)",
    "ALTER TABLE parley.block ADD COLUMN kind bigint",
    "ALTER TABLE parley.daemon ADD COLUMN lag_ms bigint NOT NULL DEFAULT 0",
    "CREATE TABLE parley.quota (principal text NOT NULL, kind bigint NOT NULL, rate bigint NOT "
    "NULL,"
    " used bigint NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (principal, kind))",
    "CREATE TABLE parley.quota_slice (principal text NOT NULL, kind bigint NOT NULL, daemon text"
    " NOT NULL, n bigint NOT NULL, PRIMARY KEY (principal, kind, daemon))",
    NULL};

/* Each leads from the version before to the one of its number. */
static const char *const *const schemas[] = {schema_1, schema_2, schema_3};

enum { SCHEMA_VERSION = sizeof(schemas) / sizeof(schemas[0]) };

/* -1: a failure. 0: there are no tables. */
static int64_t schema_version(struct postgres_store *s, struct error *err)
{
    PGresult *r = link_query(&s->link, "SELECT version FROM parley.schema", NULL, 0, err);
    int64_t version = -1;

    if (r != NULL) {
        if (s->link.pq->PQntuples(r) == 1)
            version = (int64_t)link_column(&s->link, r, 0, 0);
        else
            (void)error_set(err, STATUS_PRECONDITION, "the table parley.schema is not parleyd's");
        s->link.pq->PQclear(r);
        return version;
    }
    /* undefined_table, invalid_schema_name */
    return strcmp(s->link.code, "42P01") == 0 || strcmp(s->link.code, "3F000") == 0 ? 0 : -1;
}

/* With either of the first two a COMMIT answers before the record would outlive a power cut. In
 * another encoding a name or a principal may have no form. */
static enum status schema_check_settings(struct postgres_store *s, struct error *err)
{
    static const char *const wrong[] = {
        "synchronous_commit=off, so that it may lose what it has confirmed: turn it on",
        "fsync=off, so that it may lose what it has confirmed: turn it on",
        ("another encoding than UTF8: make one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE "
         "template0")};
    PGresult *r = link_query(&s->link,
                             "SELECT current_setting('synchronous_commit') = 'off',"
                             " current_setting('fsync') = 'off',"
                             " current_setting('server_encoding') <> 'UTF8'",
                             NULL, 0, err);
    const char *what = NULL;

    if (r == NULL)
        return err->status;
    for (int i = 0; i < (int)(sizeof(wrong) / sizeof(wrong[0])) && what == NULL; i++)
        if (link_column(&s->link, r, 0, i) != 0)
            what = wrong[i];
    s->link.pq->PQclear(r);
    return what == NULL ? STATUS_OK
                        : error_set(err, STATUS_PRECONDITION, "the database has %s", what);
}

enum status postgres_check_schema(struct postgres_store *s, struct error *err)
{
    const int64_t version = schema_version(s, err);

    if (version < 0)
        return err->status;
    if (version == 0)
        return error_set(err, STATUS_PRECONDITION,
                         "the database has no tables of parleyd: make them with parleyd "
                         "--init-data --data URL");
    if (version > SCHEMA_VERSION)
        return error_set(err, STATUS_PRECONDITION,
                         "the database has schema %d, this parleyd writes schema %d: use the "
                         "parleyd that wrote it, or a newer one",
                         (int)version, SCHEMA_VERSION);
    if (version < SCHEMA_VERSION)
        return error_set(err, STATUS_PRECONDITION,
                         "the database has schema %d, this parleyd writes schema %d: convert it "
                         "with parleyd --init-data --data URL",
                         (int)version, SCHEMA_VERSION);
    return schema_check_settings(s, err);
}

/* In one transaction. Of two at the same time one fails, and changes nothing. */
static enum status postgres_migrate(struct postgres_store *s, int64_t from, struct error *err)
{
    struct link_connection *l = &s->link;
    size_t n = 0;
    bool is_sent = true, is_done = true;

    if (from == 0) {
        is_sent = link_send(l, "CREATE SCHEMA IF NOT EXISTS parley", NULL, 0) &&
                  link_send(l, "CREATE TABLE parley.schema (version bigint NOT NULL)", NULL, 0) &&
                  link_send(l, "INSERT INTO parley.schema VALUES (0)", NULL, 0);
        n += 3;
    }
    /* Waits for another --init-data, and fails if that has changed the version. */
    is_sent =
        is_sent && link_send(l,
                             "UPDATE parley.schema SET version = CASE WHEN version = $1::bigint"
                             " THEN $2::bigint ELSE 1 / (version - version) END",
                             LINK_ARGS(link_number((uint64_t)from), link_number(SCHEMA_VERSION)));
    n++;
    for (int64_t i = from; i < SCHEMA_VERSION; i++)
        for (const char *const *sql = schemas[i]; is_sent && *sql != NULL; sql++, n++)
            is_sent = link_send(l, *sql, NULL, 0);
    if (!is_sent || !link_sync(l))
        return error_set(err, STATUS_UNAVAILABLE, "the connection to the database was lost");
    for (; n > 0 && is_done; n--) {
        PGresult *r = link_take(l, err);

        is_done = r != NULL;
        if (r != NULL)
            l->pq->PQclear(r);
    }
    if (!is_done && (strcmp(l->code, "22012") == 0 || strncmp(l->code, "23", 2) == 0 ||
                     strcmp(l->code, "42P07") == 0)) /* the table is there */
        return error_set(err, STATUS_UNAVAILABLE,
                         "another --init-data is changing the tables: try again");
    if (!is_done)
        return err->status;
    return link_take_sync(l, err) ? STATUS_OK : err->status;
}

enum status postgres_init_data(const char *url, struct error *err)
{
    struct postgres_store s = {.url = NULL};
    enum status rc = libpq_load(&s.link.pq, err);
    int64_t version;

    if (rc == STATUS_OK)
        rc = link_open(&s.link, url, err);
    if (rc != STATUS_OK)
        return rc;
    version = schema_version(&s, err);
    rc = version < 0 ? err->status : schema_check_settings(&s, err);
    if (rc == STATUS_OK && version < SCHEMA_VERSION)
        rc = postgres_migrate(&s, version, err);
    if (rc == STATUS_OK)
        rc = postgres_check_schema(&s, err);
    link_close(&s.link);
    return rc;
}
