/* The tables, and how those of the versions before become them: in one transaction, so that a kill
 * at any moment leaves one version or the other. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/journal/sqlite_parts.h"

enum { APPLICATION_ID = 0x5061726c /* Parl */, SCHEMA_LOG_EVERY = 1 << 16 /* records */ };

/* owner and owner_epoch: which daemon has the conversation, for leases of a store that several
 * daemons share; here always the one that holds the lock. */
static const char schema_1[] =
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL);"
    "INSERT INTO meta VALUES ('secret', randomblob(16));"
    "CREATE TABLE conversation (id BLOB NOT NULL UNIQUE, principal TEXT NOT NULL,"
    " request_id TEXT, name TEXT, parent BLOB, seq INTEGER NOT NULL,"
    " owner TEXT NOT NULL DEFAULT '', owner_epoch INTEGER NOT NULL DEFAULT 1,"
    " is_closed INTEGER NOT NULL DEFAULT 0);"
    "CREATE UNIQUE INDEX conversation_request ON conversation (principal, request_id)"
    " WHERE request_id IS NOT NULL;"
    "CREATE UNIQUE INDEX conversation_name ON conversation (principal, name)"
    " WHERE name IS NOT NULL;"
    "CREATE INDEX conversation_parent ON conversation (parent) WHERE parent IS NOT NULL;"
    "CREATE TABLE event (seq INTEGER PRIMARY KEY, conversation BLOB NOT NULL,"
    " generation INTEGER NOT NULL, turn INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " unix_ms INTEGER NOT NULL, body BLOB NOT NULL);"
    "CREATE UNIQUE INDEX event_place ON event (conversation, generation, turn, kind);";

/* Blocks of a checkpoint that params does not have (yet) are one that was never completed. */
static const char schema_2[] =
    "CREATE TABLE params (principal TEXT NOT NULL, name TEXT NOT NULL, checkpoint BLOB NOT NULL,"
    " body BLOB NOT NULL, UNIQUE (principal, name));"
    "CREATE TABLE block (seq INTEGER PRIMARY KEY, checkpoint BLOB NOT NULL,"
    " number INTEGER NOT NULL, body BLOB NOT NULL);"
    "CREATE UNIQUE INDEX block_place ON block (checkpoint, number);";

static const char schema_3[] =
    /* The model's name stands in the terms, behind a version of 4 bytes and a length of 8. */
    "ALTER TABLE conversation ADD COLUMN model TEXT NOT NULL DEFAULT '';"
    "UPDATE conversation SET model = coalesce((SELECT CAST(substr(body, 13,"
    " unicode(CAST(substr(body, 5, 1) AS TEXT))) AS TEXT) FROM event"
    " WHERE event.seq = conversation.seq AND length(body) > 12), '');"
    "CREATE INDEX conversation_list ON conversation (principal, seq) WHERE NOT is_closed;"
    "CREATE INDEX conversation_of_model ON conversation (principal, model, seq)"
    " WHERE NOT is_closed;";

/* The turns that are found by a key. */
static const char schema_4[] =
    "CREATE TABLE keyed (principal TEXT NOT NULL, key TEXT NOT NULL, part INTEGER NOT NULL,"
    " conversation BLOB NOT NULL, generation INTEGER NOT NULL, turn INTEGER NOT NULL,"
    " unix_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL, body BLOB NOT NULL,"
    " UNIQUE (principal, key, part));"
    "CREATE INDEX keyed_until ON keyed (until_ms) WHERE until_ms > 0;"
    "CREATE INDEX keyed_place ON keyed (conversation, generation, turn);";

/* What is kept as a whole, beside sets of parameters: by kind, the keys of Store and the tables of
 * Replay. Its blocks are those of its checkpoint. */
static const char schema_5[] =
    "CREATE TABLE kept (kind INTEGER NOT NULL, principal TEXT NOT NULL, name TEXT NOT NULL,"
    " checkpoint BLOB NOT NULL, n_blocks INTEGER NOT NULL, body BLOB NOT NULL,"
    " UNIQUE (kind, principal, name));";

/* The hashes of what there is are filled in afterwards. gone: see struct chain_link. kind: that of
 * the record which opened it. pin: rooms that need a conversation. tally: how many are listed. A
 * conversation that one request with a key has made for itself is not listed. */
static const char schema_6[] =
    "DROP INDEX event_place;"
    "ALTER TABLE event ADD COLUMN gone INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE event ADD COLUMN hash BLOB NOT NULL DEFAULT x'';"
    "ALTER TABLE event ADD COLUMN chain BLOB NOT NULL DEFAULT x'';"
    "CREATE UNIQUE INDEX event_place ON event (conversation, gone, generation, turn, kind);"
    "ALTER TABLE conversation ADD COLUMN kind INTEGER NOT NULL DEFAULT 1;"
    "ALTER TABLE conversation ADD COLUMN is_listed INTEGER NOT NULL DEFAULT 1;"
    "UPDATE conversation SET is_listed = 0 WHERE is_closed OR EXISTS (SELECT 1 FROM keyed"
    " WHERE keyed.conversation = conversation.id AND keyed.until_ms > 0);"
    "DROP INDEX conversation_list;"
    "DROP INDEX conversation_of_model;"
    "CREATE INDEX conversation_list ON conversation (principal, seq) WHERE is_listed;"
    "CREATE INDEX conversation_of_model ON conversation (principal, model, seq) WHERE is_listed;"
    "CREATE TABLE pin (conversation BLOB NOT NULL, room BLOB NOT NULL,"
    " UNIQUE (conversation, room));"
    "CREATE TABLE tally (principal TEXT NOT NULL, model TEXT NOT NULL, n INTEGER NOT NULL,"
    " UNIQUE (principal, model));"
    "INSERT INTO tally SELECT principal, model, count(*) FROM conversation WHERE is_listed"
    " GROUP BY principal, model;";

static enum status schema_chain(struct sqlite_store *s, struct error *err);

/* Each leads from the version before to the one of its number, the first from an empty file. */
static const struct {
    const char *sql;
    enum status (*then)(struct sqlite_store *s, struct error *err); /* may be NULL */
} schemas[] = {{schema_1, NULL}, {schema_2, NULL}, {schema_3, NULL},
               {schema_4, NULL}, {schema_5, NULL}, {schema_6, schema_chain}};

enum { SCHEMA_VERSION = sizeof(schemas) / sizeof(schemas[0]) };

const int sqlite_application_id = APPLICATION_ID, sqlite_schema_version = SCHEMA_VERSION;

enum status sqlite_run(struct sqlite_store *s, const char *sql, struct error *err)
{
    if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return sqlite_failed(s, "opened", err);
    return STATUS_OK;
}

int64_t sqlite_number(struct sqlite_store *s, const char *sql)
{
    sqlite3_stmt *st = NULL;
    int64_t number = -1;

    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        number = sqlite3_column_int64(st, 0);
    (void)sqlite3_finalize(st);
    return number;
}

/* --- the chain of what was written without one --- */

static bool schema_chain_one(struct sqlite_store *s, int64_t seq, const struct journal_record *of,
                             uint8_t at[SHA256_BYTES])
{
    struct journal_record r = *of;
    uint8_t content[SHA256_BYTES];
    sqlite3_stmt *st;

    if (!sqlite_read_event(s, &st, seq, &r))
        return false;
    chain_content(&s->chain, &r, content);
    (void)sqlite3_reset(st); /* it has given its row */
    chain_add(&s->chain, at, content);
    return DO(s, ST_CHAIN, sqlite_number_value((uint64_t)seq),
              sqlite_bytes_value(content, sizeof(content)), sqlite_bytes_value(at, SHA256_BYTES));
}

/* The records of a conversation, behind its parent's last one of then. */
static bool schema_chain_conversation(struct sqlite_store *s, const struct journal_record *of,
                                      const uint8_t *parent, int64_t opened_seq, int64_t *n,
                                      int64_t n_all)
{
    const struct sqlite_value values[] = {sqlite_id_value(of->conversation),
                                          sqlite_number_value(INT64_MAX)};
    uint8_t at[SHA256_BYTES] = {0};
    bool is_done = parent == NULL || sqlite_head(s, parent, opened_seq, at);
    sqlite3_stmt *st;
    int step = is_done ? sqlite_first(s, &st, ST_SEQS, values, 2) : SQLITE_ERROR;

    for (; is_done && step == SQLITE_ROW; step = sqlite3_step(st)) {
        is_done = schema_chain_one(s, sqlite3_column_int64(st, 0), of, at);
        if (++*n % SCHEMA_LOG_EVERY == 0)
            log_info("migrates", "file=%s records=%lld of=%lld", s->path, (long long)*n,
                     (long long)n_all);
    }
    (void)sqlite3_reset(s->statements[ST_SEQS]); /* NULL is fine */
    return is_done && step == SQLITE_DONE;
}

/* Parents come before their forks, since each begins behind one of its parent's records. */
static enum status schema_chain(struct sqlite_store *s, struct error *err)
{
    const int64_t n_all = sqlite_number(s, "SELECT count(*) FROM event");
    sqlite3_stmt *st = NULL;
    bool is_done = true;
    int64_t n = 0;
    int step = SQLITE_ERROR;
    enum status rc = STATUS_OK;

    if (sqlite3_prepare_v2(s->db,
                           "SELECT id, parent, seq, principal FROM conversation ORDER BY"
                           " seq",
                           -1, &st, NULL) == SQLITE_OK)
        step = sqlite3_step(st);
    for (; step == SQLITE_ROW && is_done; step = is_done ? sqlite3_step(st) : step) {
        struct journal_record of = {.principal = (const char *)sqlite3_column_text(st, 3)};
        const bool has_parent = sqlite3_column_bytes(st, 1) == JOURNAL_ID_BYTES;

        if (sqlite3_column_bytes(st, 0) != JOURNAL_ID_BYTES)
            continue; /* the check says what is wrong with it */
        memcpy(of.conversation, sqlite3_column_blob(st, 0), JOURNAL_ID_BYTES);
        is_done = schema_chain_conversation(s, &of, has_parent ? sqlite3_column_blob(st, 1) : NULL,
                                            sqlite3_column_int64(st, 2), &n, n_all);
    }
    if (!is_done || step != SQLITE_DONE)
        rc = sqlite_failed(s, "brought to this version", err);
    (void)sqlite3_finalize(st); /* repeats the error of the step */
    return rc;
}

/* --- versions --- */

/* In one transaction. If it fails, the connection is closed, and with it what was begun. */
static enum status schema_migrate(struct sqlite_store *s, int from, struct error *err)
{
    char sql[64];

    (void)snprintf(sql, sizeof(sql), "PRAGMA application_id = %d; PRAGMA user_version = %d",
                   APPLICATION_ID, SCHEMA_VERSION);
    if (from > 0)
        log_info("migrates", "file=%s from=%d to=%d", s->path, from, SCHEMA_VERSION);
    if (sqlite_run(s, "BEGIN IMMEDIATE", err) != STATUS_OK)
        return err->status;
    for (int i = from; i < SCHEMA_VERSION; i++) {
        if (sqlite_run(s, schemas[i].sql, err) != STATUS_OK)
            return err->status;
        if (schemas[i].then != NULL && schemas[i].then(s, err) != STATUS_OK)
            return err->status;
    }
    if (sqlite_run(s, sql, err) != STATUS_OK || sqlite_run(s, "COMMIT", err) != STATUS_OK)
        return err->status;
    if (from > 0)
        log_info("migrated", "file=%s to=%d", s->path, SCHEMA_VERSION);
    return STATUS_OK;
}

enum status sqlite_check_schema(struct sqlite_store *s, struct error *err)
{
    const int version = (int)sqlite_number(s, "PRAGMA user_version");

    if (version < 0)
        return sqlite_failed(s, "read", err);
    if (version == 0 && sqlite_number(s, "SELECT count(*) FROM sqlite_schema") == 0)
        return schema_migrate(s, 0, err);
    if (sqlite_number(s, "PRAGMA application_id") != APPLICATION_ID)
        return error_set(err, STATUS_PRECONDITION, "%s is not a journal of parleyd", s->path);
    if (version == 0 || version > SCHEMA_VERSION)
        return error_set(err, STATUS_PRECONDITION,
                         "%s has schema %d, this parleyd writes schema %d: use the parleyd that "
                         "wrote it, or a newer one",
                         s->path, version, SCHEMA_VERSION);
    return version < SCHEMA_VERSION ? schema_migrate(s, version, err) : STATUS_OK;
}
