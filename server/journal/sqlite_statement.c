/* The statements of the SQLite journal. Each is prepared when it is first used. */
#include <stdio.h>
#include <string.h>

#include "server/journal/sqlite_parts.h"

/* For a row of a list; seq is the place of its JOURNAL_OPEN. */
#define LIST_COLUMNS "c.id, c.parent, o.unix_ms, o.body"
#define LIST_TABLES " FROM conversation AS c JOIN event AS o ON o.seq = c.seq"

static const char *const statements[N_STATEMENTS] = {
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_ROLLBACK] = "ROLLBACK",
    [ST_UNNAME] = "UPDATE conversation SET name = NULL WHERE principal = ?1 AND name = ?2",
    [ST_EVENT] = "INSERT OR ABORT INTO event (conversation, generation, turn, kind, unix_ms, body,"
                 " gone, hash, chain) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    [ST_OPEN] = "INSERT INTO conversation (id, principal, request_id, name, parent, model, seq)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6, last_insert_rowid())",
    [ST_REPLACED] = "UPDATE event SET gone = seq, body = x'' WHERE conversation = ?1 AND gone = 0"
                    " AND generation = 0 AND turn = 0 AND kind = 2",
    [ST_WITHDRAWN] = "UPDATE event SET gone = seq, body = x'' WHERE conversation = ?1 AND gone = 0"
                     " AND generation = ?2 AND turn = ?3 AND kind = 3 RETURNING seq",
    [ST_SEQS] = "SELECT seq FROM event WHERE conversation = ?1 AND seq < ?2 ORDER BY seq",
    [ST_READ] = "SELECT conversation, kind, generation, turn, unix_ms, body, gone, hash, chain"
                " FROM event WHERE seq = ?1",
    [ST_HEAD] = "SELECT chain FROM event WHERE seq = (SELECT max(seq) FROM event"
                " WHERE conversation = ?1 AND seq < ?2)",
    [ST_OPENED] = "SELECT 1 FROM conversation WHERE id = ?1 AND owner = '' AND owner_epoch = 1",
    [ST_CHAIN] = "UPDATE event SET hash = ?2, chain = ?3 WHERE seq = ?1",
    [ST_LISTED] = "INSERT INTO tally VALUES (?1, ?2, 1) ON CONFLICT DO UPDATE SET n = n + 1",
    [ST_UNLISTED] = "UPDATE conversation SET is_listed = 0 WHERE id = ?1 AND is_listed"
                    " RETURNING principal, model",
    [ST_UNCOUNTED] = "UPDATE tally SET n = n - 1 WHERE principal = ?1 AND model = ?2",
    [ST_CLOSE] =
        "UPDATE conversation SET is_closed = 1, request_id = NULL, name = NULL WHERE id = ?1",
    [ST_CHILD] = "SELECT 1 FROM conversation WHERE parent = ?1 UNION ALL"
                 " SELECT 1 FROM pin WHERE conversation = ?1 LIMIT 1",
    [ST_CLOSED] = "SELECT parent FROM conversation WHERE id = ?1 AND is_closed",
    [ST_DELETE_EVENTS] = "DELETE FROM event WHERE conversation = ?1",
    [ST_DELETE] = "DELETE FROM conversation WHERE id = ?1",
    [ST_BY_ID] = "SELECT id, parent, request_id FROM conversation"
                 " WHERE id = ?2 AND principal = ?1 AND NOT is_closed",
    [ST_BY_REQUEST] = "SELECT id, parent, request_id FROM conversation"
                      " WHERE principal = ?1 AND request_id = ?2",
    [ST_BY_NAME] = "SELECT id, parent, request_id FROM conversation"
                   " WHERE principal = ?1 AND name = ?2",
    [ST_PARENT] = "SELECT parent, seq, principal FROM conversation WHERE id = ?1",
    [ST_BLOCK] = "INSERT OR REPLACE INTO block (checkpoint, number, body) VALUES (?1, ?2, ?3)",
    [ST_NO_BLOCKS_BEFORE] = "DELETE FROM block WHERE checkpoint IN (SELECT checkpoint FROM params"
                            " WHERE principal = ?1 AND name = ?2 AND checkpoint <> ?3)",
    [ST_NO_BLOCKS] = "DELETE FROM block WHERE checkpoint = ?1",
    [ST_CHECKPOINT] = "INSERT OR REPLACE INTO params (principal, name, checkpoint, body)"
                      " VALUES (?1, ?2, ?3, ?4)",
    [ST_NO_CHECKPOINT] = "DELETE FROM params WHERE principal = ?1 AND name = ?2",
    [ST_CHECKPOINTS] = "SELECT 17, 0, 0, 0, body FROM params ORDER BY rowid",
    [ST_READ_BLOCK] = "SELECT 16, 0, number, 0, body FROM block"
                      " WHERE checkpoint = ?1 AND number = ?2",
    [ST_NO_BLOCKS_OF_KEPT] = "DELETE FROM block WHERE checkpoint IN (SELECT checkpoint FROM kept"
                             " WHERE kind = ?1 AND principal = ?2 AND name = ?3"
                             " AND checkpoint <> ?4)",
    [ST_KEEP] = "INSERT OR REPLACE INTO kept (kind, principal, name, checkpoint, n_blocks, body)"
                " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [ST_FORGET] = "DELETE FROM kept WHERE kind = ?1 AND principal = ?2 AND name = ?3",
    [ST_KEPT] = "SELECT 19, kind, n_blocks, 0, body FROM kept WHERE kind = ?1 ORDER BY rowid",
    [ST_ALL_KEPT] = "SELECT principal, name, checkpoint, n_blocks, body FROM kept ORDER BY rowid",
    [ST_BLOCKS_OF] = "SELECT number, body FROM block WHERE checkpoint = ?1 AND number < ?2"
                     " ORDER BY number",
    [ST_PAGE] = "SELECT " LIST_COLUMNS ", c.seq" LIST_TABLES
                " WHERE c.principal = ?1 AND c.seq < ?2 AND c.is_listed"
                " ORDER BY c.seq DESC LIMIT ?3",
    [ST_PAGE_OF_MODEL] = "SELECT " LIST_COLUMNS ", c.seq" LIST_TABLES
                         " WHERE c.principal = ?1 AND c.model = ?4 AND c.seq < ?2 AND c.is_listed"
                         " ORDER BY c.seq DESC LIMIT ?3",
    [ST_TOTAL] = "SELECT coalesce(sum(n), 0) FROM tally WHERE principal = ?1",
    [ST_TOTAL_OF_MODEL] = "SELECT coalesce(sum(n), 0) FROM tally WHERE principal = ?1"
                          " AND model = ?2",
    [ST_SWEEP] = "SELECT " LIST_COLUMNS ", c.rowid" LIST_TABLES
                 " WHERE c.rowid > ?1 AND NOT c.is_closed AND c.kind = 1"
                 " ORDER BY c.rowid LIMIT ?2",
    [ST_LAST] = "SELECT generation, turn, kind, unix_ms, seq FROM event"
                " WHERE conversation = ?1 AND gone = 0 ORDER BY generation DESC, turn DESC, kind "
                "DESC LIMIT 1",
    [ST_UPDATE] = "SELECT body FROM event WHERE conversation = ?1 AND gone = 0 AND generation = 0"
                  " AND turn = 0 AND kind = 2",
    [ST_BYTES] = "SELECT (page_count - freelist_count) * page_size"
                 " FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
    [ST_PROBE] = "UPDATE meta SET value = value WHERE key = 'secret'",
    [ST_KEY] = "INSERT OR REPLACE INTO keyed (principal, key, part, conversation, generation, turn,"
               " unix_ms, until_ms, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    [ST_EXPIRED_KEY] = "SELECT conversation FROM keyed WHERE until_ms > 0 AND until_ms < ?1"
                       " ORDER BY until_ms LIMIT 1",
    [ST_NO_KEYED_TURN] =
        "DELETE FROM keyed WHERE conversation = ?1 AND generation = ?2 AND turn = ?3",
    [ST_NO_KEYED] = "DELETE FROM keyed WHERE conversation = ?1",
    [ST_BY_KEY] = "SELECT 9, generation, turn, unix_ms, body FROM keyed"
                  " WHERE principal = ?1 AND key = ?2 ORDER BY part",
};

enum status sqlite_failed(const struct sqlite_store *s, const char *what, struct error *err)
{
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL,
                        "the journal cannot be %s: %s", what,
                        s->db == NULL ? "no memory" : sqlite3_errmsg(s->db));
    err->retry_after_ms = SQLITE_RETRY_MS;
    return STATUS_UNAVAILABLE;
}

/* NULL: it could not be prepared. */
static sqlite3_stmt *sqlite_statement(struct sqlite_store *s, enum statement which)
{
    sqlite3_stmt **st = &s->statements[which];

    if (*st == NULL && sqlite3_prepare_v3(s->db, statements[which], -1, SQLITE_PREPARE_PERSISTENT,
                                          st, NULL) != SQLITE_OK)
        return NULL;
    return *st;
}

struct sqlite_value sqlite_number_value(uint64_t number)
{
    return (struct sqlite_value){.type = VALUE_NUMBER, .number = (int64_t)number};
}

struct sqlite_value sqlite_text_value(const char *text)
{
    return (struct sqlite_value){
        .type = VALUE_TEXT, .bytes = text, .size_bytes = text == NULL ? 0 : strlen(text)};
}

struct sqlite_value sqlite_bytes_value(const void *bytes, size_t size_bytes)
{
    return (struct sqlite_value){
        .type = VALUE_BYTES, .bytes = bytes == NULL ? "" : bytes, .size_bytes = size_bytes};
}

struct sqlite_value sqlite_id_value(const uint8_t *id)
{
    return (struct sqlite_value){.type = VALUE_BYTES, .bytes = id, .size_bytes = JOURNAL_ID_BYTES};
}

static int sqlite_bind(sqlite3_stmt *st, int at, const struct sqlite_value *v)
{
    if (v->type == VALUE_NUMBER)
        return sqlite3_bind_int64(st, at, v->number);
    if (v->bytes == NULL)
        return sqlite3_bind_null(st, at);
    if (v->type == VALUE_TEXT)
        return sqlite3_bind_text64(st, at, v->bytes, v->size_bytes, SQLITE_STATIC, SQLITE_UTF8);
    return sqlite3_bind_blob64(st, at, v->bytes, v->size_bytes, SQLITE_STATIC);
}

int sqlite_first(struct sqlite_store *s, sqlite3_stmt **out, enum statement which,
                 const struct sqlite_value *values, int n)
{
    sqlite3_stmt *st = sqlite_statement(s, which);
    int rc = st == NULL ? sqlite3_errcode(s->db) : SQLITE_OK;

    for (int i = 0; rc == SQLITE_OK && i < n; i++)
        rc = sqlite_bind(st, i + 1, &values[i]);
    *out = st;
    return rc == SQLITE_OK ? sqlite3_step(st) : rc;
}

bool sqlite_do(struct sqlite_store *s, enum statement which, const struct sqlite_value *values,
               int n)
{
    sqlite3_stmt *st;
    int rc = sqlite_first(s, &st, which, values, n);

    (void)sqlite3_reset(st); /* repeats the error of the step */
    return rc == SQLITE_DONE || rc == SQLITE_ROW;
}
