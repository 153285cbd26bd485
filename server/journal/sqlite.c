/* The journal in an SQLite database, DIR/journal.db. One connection writes, reads and checkpoints:
 * SQLite up to 3.51.2 may spoil the file when two do so at the same moment. synchronous=FULL, since
 * a COMMIT must outlive a power cut, and not only the process.
 *
 * Failures: a full disk is rolled back, and the connection goes on. After any other failure to
 * write it is unknown whether the transaction is in the file, and Linux may have dropped pages that
 * it could not write: the connection is closed without a checkpoint. The next use opens another,
 * which reads what there is, and has all of it written and synchronised anew, by a checkpoint,
 * before it is used. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/journal/sqlite_parts.h"

enum { BUSY_MS = 2000 };
/* Pages in the log. */
enum { PAGE_BYTES = 8192, LOG_LEAST = 256, LOG_FOLD = 4096, LOG_MOST = 8192 };

struct sqlite_store *sqlite_store_of(struct journal_store *s)
{
    return container_of(s, struct sqlite_store, base);
}

/* --- the connection --- */

static void sqlite_disconnect(struct sqlite_store *s, bool with_checkpoint)
{
    for (size_t i = 0; i < N_STATEMENTS; i++) {
        (void)sqlite3_finalize(s->statements[i]); /* repeats the statement's last error */
        s->statements[i] = NULL;
    }
    if (s->db != NULL && !with_checkpoint)
        (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
    (void)sqlite3_close(s->db); /* no statement is left, so it cannot fail */
    s->db = NULL;
}

/* Once: by a later connection the loop may be reading what was found. */
static enum status sqlite_read_secret(struct sqlite_store *s, struct error *err)
{
    sqlite3_stmt *st = NULL;
    enum status rc = STATUS_OK;

    if (s->has_secret)
        return STATUS_OK;
    if (sqlite3_prepare_v2(s->db, "SELECT value FROM meta WHERE key = 'secret'", -1, &st, NULL) !=
            SQLITE_OK ||
        sqlite3_step(st) != SQLITE_ROW || sqlite3_column_bytes(st, 0) != JOURNAL_SECRET_BYTES)
        rc = sqlite_failed(s, "read", err);
    else
        memcpy(s->base.secret, sqlite3_column_blob(st, 0), JOURNAL_SECRET_BYTES);
    s->has_secret = rc == STATUS_OK;
    (void)sqlite3_finalize(st);
    return rc;
}

/* What the log holds is written to the database and synchronised: after a failure that is the only
 * way to know that it is there. A connection must have read before, or nothing happens. */
static enum status sqlite_checkpoint(struct sqlite_store *s, struct error *err)
{
    int n_log = 0, n_done = 0;

    if (sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, &n_log, &n_done) !=
            SQLITE_OK ||
        n_log < 0 || n_log != n_done)
        return sqlite_failed(s, "written", err);
    return STATUS_OK;
}

static int on_sqlite_log(void *arg, sqlite3 *db, const char *name, int n_pages)
{
    struct sqlite_store *s = arg;

    s->n_log = n_pages;
    return SQLITE_OK;
}

/* The log is folded in once it has as many pages as the database, and at the latest at 32 MiB. */
static void sqlite_measure_log(struct sqlite_store *s)
{
    struct stat file;
    /* Of the file, not of the database, whose new pages are in the log. */
    const int64_t n_pages = stat(s->path, &file) == 0 ? file.st_size / PAGE_BYTES : 0;

    s->fold_at = n_pages < LOG_LEAST ? LOG_LEAST : n_pages > LOG_FOLD ? LOG_FOLD : n_pages;
    s->most_log = n_pages > LOG_MOST / 4 ? 4 * n_pages : LOG_MOST;
}

/* After a commit. A reader of an old state holds back a part; a failure leaves the log as it is. */
static void sqlite_fold(struct sqlite_store *s)
{
    int n_log = 0, n_done = 0;

    if (s->n_log < s->fold_at)
        return;
    (void)sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &n_log, &n_done);
    sqlite_measure_log(s);
    if (n_done < n_log)
        s->fold_at = n_log + LOG_LEAST;
    else
        s->n_log = 0;
}

static enum status sqlite_refuse_log(const struct sqlite_store *s, struct error *err)
{
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL,
                        "another process has read the journal for long, so that its log has %lld "
                        "MiB: end that process",
                        (long long)s->n_log / 128);
    err->retry_after_ms = SQLITE_RETRY_MS;
    return STATUS_UNAVAILABLE;
}

static enum status sqlite_open_file(struct sqlite_store *s, struct error *err)
{
    /* One thread at a time uses a store, so SQLite need not lock the connection. The file is there:
     * sqlite_create has seen to it once, and who deletes it later is not to get an empty one. */
    if (sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK)
        return sqlite_failed(s, "opened", err);
    (void)sqlite3_extended_result_codes(s->db, 1); /* cannot fail on an open connection */
    (void)sqlite3_busy_timeout(s->db, BUSY_MS);
    return STATUS_OK;
}

static enum status sqlite_connect_to_write(struct sqlite_store *s, struct error *err)
{
    enum status rc = sqlite_open_file(s, err);

    if (rc == STATUS_OK)
        rc = sqlite_run(s,
                        "PRAGMA page_size = 8192; PRAGMA journal_mode = WAL;"
                        "PRAGMA synchronous = FULL; PRAGMA mmap_size = 0;"
                        "PRAGMA cache_size = -65536;"
                        "PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY",
                        err);
    if (rc == STATUS_OK)
        rc = sqlite_check_schema(s, err);
    if (rc == STATUS_OK)
        rc = sqlite_read_secret(s, err);
    if (rc == STATUS_OK)
        rc = sqlite_checkpoint(s, err);
    if (rc == STATUS_OK) {
        (void)sqlite3_wal_hook(s->db, on_sqlite_log, s);
        s->n_log = 0;
        sqlite_measure_log(s);
    }
    return rc;
}

/* A connection that writes nothing, not even the log's index: that is in memory then, and others
 * are kept out. */
static enum status sqlite_connect_to_read(struct sqlite_store *s, struct error *err)
{
    enum status rc = sqlite_open_file(s, err);
    int64_t version;

    if (rc == STATUS_OK)
        rc = sqlite_run(s,
                        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA query_only = ON;"
                        "PRAGMA mmap_size = 0; PRAGMA cache_size = -65536;"
                        "PRAGMA temp_store = MEMORY",
                        err);
    if (rc != STATUS_OK)
        return rc;
    version = sqlite_number(s, "PRAGMA user_version");
    if (version == 0)
        return error_set(err, STATUS_PRECONDITION,
                         "the disk is too full to begin %s: make room, and start again", s->path);
    if (version != sqlite_schema_version)
        return error_set(err, STATUS_PRECONDITION,
                         "%s is of another version, and the disk is too full to convert it: make "
                         "room, and start again",
                         s->path);
    return sqlite_read_secret(s, err);
}

static bool is_out_of_room(int code)
{
    return (code & 0xff) == SQLITE_FULL || code == SQLITE_IOERR_SHMSIZE ||
           code == SQLITE_IOERR_SHMOPEN;
}

/* Names what became of the first file that is not what it was. */
static enum status sqlite_astray(struct sqlite_store *s, enum file_fate fate, int which,
                                 struct error *err)
{
    s->is_astray = true;
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL,
                        "%.80s was %s while parleyd runs: nothing is stored any more; put the file "
                        "back, or stop parleyd and restore a backup",
                        s->files[which].path, fate == FILE_MISSING ? "deleted" : "replaced");
    err->retry_after_ms = SQLITE_RETRY_MS;
    return STATUS_UNAVAILABLE;
}

/* Whether what the connection writes has its names. A log that was deleted is still whole here: the
 * database gets all of it, and the next connection another log. */
static enum status sqlite_check_files(struct sqlite_store *s, struct error *err)
{
    int which = 0;
    const enum file_fate fate = sqlite_files_look(s, &which);

    s->is_astray = false;
    if (fate == FILE_SAME)
        return STATUS_OK;
    if (s->db != NULL && !s->base.is_read_only && sqlite_files_can_be_folded(s) &&
        sqlite_checkpoint(s, err) == STATUS_OK) {
        log_warn("journal", "file=%s state=deleted what=\"the database has all of it\"",
                 s->files[which].path);
        sqlite_disconnect(s, false);
        s->files[FILE_LOG].is_noted = s->files[FILE_INDEX].is_noted = false;
        return STATUS_OK;
    }
    return sqlite_astray(s, fate, which, err);
}

enum status sqlite_connect(struct sqlite_store *s, struct error *err)
{
    enum status rc;
    int code;

    if (s->db != NULL)
        return STATUS_OK;
    s->files[FILE_INDEX].is_noted = false; /* it is made anew from the log */
    if (sqlite_check_files(s, err) != STATUS_OK)
        return err->status;
    s->base.is_read_only = false;
    rc = sqlite_connect_to_write(s, err);
    code = s->db == NULL ? SQLITE_NOMEM : sqlite3_extended_errcode(s->db);
    if (rc != STATUS_OK)
        sqlite_disconnect(s, false);
    if (rc == STATUS_UNAVAILABLE && is_out_of_room(code)) {
        s->base.is_read_only = true;
        rc = sqlite_connect_to_read(s, err);
        if (rc != STATUS_OK)
            sqlite_disconnect(s, false);
    }
    if (rc == STATUS_OK)
        sqlite_files_note(s);
    return rc;
}

/* --- statements --- */

/* --- writing --- */

/* The conversation is listed no more, if it was. */
static bool sqlite_unlist(struct sqlite_store *s, const uint8_t *id)
{
    const struct sqlite_value value = sqlite_id_value(id);
    bool is_done = true;
    sqlite3_stmt *st;
    int step = sqlite_first(s, &st, ST_UNLISTED, &value, 1);

    if (step == SQLITE_ROW) {
        is_done = DO(s, ST_UNCOUNTED, sqlite_text_value((const char *)sqlite3_column_text(st, 0)),
                     sqlite_text_value((const char *)sqlite3_column_text(st, 1)));
        step = sqlite3_step(st);
    }
    (void)sqlite3_reset(st);
    return is_done && step == SQLITE_DONE;
}

static bool sqlite_put_open(struct sqlite_store *s, const struct journal_record *r)
{
    const char *model = r->model == NULL ? "" : r->model;

    if (r->name != NULL &&
        !DO(s, ST_UNNAME, sqlite_text_value(r->principal), sqlite_text_value(r->name)))
        return false;
    return sqlite_put_event(s, r) &&
           DO(s, ST_OPEN, sqlite_id_value(r->conversation), sqlite_text_value(r->principal),
              sqlite_text_value(r->request_id), sqlite_text_value(r->name),
              sqlite_id_value(r->parent), sqlite_text_value(model)) &&
           DO(s, ST_LISTED, sqlite_text_value(r->principal), sqlite_text_value(model));
}

/* Whether the statement with the id gives a row; its first column, an id, in out, zeroed where that
 * is NULL. -1: a failure. */
static int sqlite_look_up(struct sqlite_store *s, enum statement which, const uint8_t *id,
                          uint8_t out[JOURNAL_ID_BYTES], bool *ret_has_id)
{
    const struct sqlite_value value = sqlite_id_value(id);
    sqlite3_stmt *st;
    int rc = sqlite_first(s, &st, which, &value, 1);

    *ret_has_id = rc == SQLITE_ROW && sqlite3_column_bytes(st, 0) == JOURNAL_ID_BYTES;
    if (*ret_has_id)
        memcpy(out, sqlite3_column_blob(st, 0), JOURNAL_ID_BYTES);
    (void)sqlite3_reset(st);
    return rc == SQLITE_ROW ? 1 : rc == SQLITE_DONE ? 0 : -1;
}

/* Deletes the conversation and its parents, as far as they are closed and no other has them as
 * its past. */
static bool sqlite_put_close(struct sqlite_store *s, const struct journal_record *r)
{
    uint8_t id[JOURNAL_ID_BYTES], parent[JOURNAL_ID_BYTES] = {0};
    bool has_parent = true, ignored;
    int found;

    memcpy(id, r->conversation, sizeof(id));
    if (!sqlite_unlist(s, id) || !DO(s, ST_CLOSE, sqlite_id_value(id)) ||
        !DO(s, ST_NO_KEYED, sqlite_id_value(id)))
        return false;
    while (has_parent) {
        found = sqlite_look_up(s, ST_CHILD, id, parent, &ignored);
        if (found != 0)
            return found > 0;
        found = sqlite_look_up(s, ST_CLOSED, id, parent, &has_parent);
        if (found != 1)
            return found == 0;
        if (!DO(s, ST_DELETE_EVENTS, sqlite_id_value(id)) || !DO(s, ST_DELETE, sqlite_id_value(id)))
            return false;
        sqlite_forget_head(s, id);
        memcpy(id, parent, sizeof(id));
    }
    return true;
}

static bool sqlite_put_checkpoint(struct sqlite_store *s, const struct journal_record *r)
{
    return DO(s, ST_NO_BLOCKS_BEFORE, sqlite_text_value(r->principal), sqlite_text_value(r->name),
              sqlite_id_value(r->conversation)) &&
           DO(s, ST_CHECKPOINT, sqlite_text_value(r->principal), sqlite_text_value(r->name),
              sqlite_id_value(r->conversation), sqlite_bytes_value(r->body, r->size_bytes));
}

static bool sqlite_put_no_params(struct sqlite_store *s, const struct journal_record *r)
{
    return DO(s, ST_NO_BLOCKS_BEFORE, sqlite_text_value(r->principal), sqlite_text_value(r->name),
              sqlite_id_value(r->conversation)) &&
           DO(s, ST_NO_BLOCKS, sqlite_id_value(r->conversation)) &&
           DO(s, ST_NO_CHECKPOINT, sqlite_text_value(r->principal), sqlite_text_value(r->name));
}

/* Closes some conversations whose keys were not sent again: more than come. */
static bool sqlite_close_expired(struct sqlite_store *s, uint64_t unix_ms)
{
    const struct sqlite_value now = sqlite_number_value(unix_ms);

    for (int i = 0; i < 2; i++) {
        struct journal_record close = {.kind = JOURNAL_CLOSE};
        sqlite3_stmt *st;
        int rc = sqlite_first(s, &st, ST_EXPIRED_KEY, &now, 1);
        bool has_id = rc == SQLITE_ROW && sqlite3_column_bytes(st, 0) == JOURNAL_ID_BYTES;

        if (has_id)
            memcpy(close.conversation, sqlite3_column_blob(st, 0), JOURNAL_ID_BYTES);
        (void)sqlite3_reset(st);
        if (!has_id)
            return rc == SQLITE_DONE;
        if (!sqlite_put_close(s, &close))
            return false;
    }
    return true;
}

static bool sqlite_put_accept(struct sqlite_store *s, const struct journal_record *r)
{
    if (!sqlite_put_event(s, r))
        return false;
    return r->key == NULL ||
           (DO(s, ST_KEY, sqlite_text_value(r->principal), sqlite_text_value(r->key),
               sqlite_number_value(r->part), sqlite_id_value(r->conversation),
               sqlite_number_value(r->generation), sqlite_number_value(r->turn),
               sqlite_number_value(r->unix_ms), sqlite_number_value(r->key_until_unix_ms),
               sqlite_bytes_value(r->key_body, r->key_size_bytes)) &&
            (r->key_until_unix_ms == 0 || sqlite_unlist(s, r->conversation)) &&
            sqlite_close_expired(s, r->keys_over_unix_ms));
}

static bool sqlite_put(struct sqlite_store *s, const struct journal_record *r)
{
    switch (r->kind) {
    case JOURNAL_OPEN:
        return sqlite_put_open(s, r);
    case JOURNAL_UPDATE:
        return sqlite_put_update(s, r);
    case JOURNAL_WITHDRAW:
        return sqlite_put_withdraw(s, r);
    case JOURNAL_CLOSE:
        return sqlite_put_close(s, r);
    case JOURNAL_ACCEPT:
        return sqlite_put_accept(s, r);
    case JOURNAL_FINISH:
    case JOURNAL_OBSERVE:
    case JOURNAL_REWIND:
        return sqlite_put_event(s, r);
    case JOURNAL_BLOCK:
        return DO(s, ST_BLOCK, sqlite_id_value(r->conversation), sqlite_number_value(r->turn),
                  sqlite_bytes_value(r->body, r->size_bytes));
    case JOURNAL_CHECKPOINT:
        return sqlite_put_checkpoint(s, r);
    case JOURNAL_NO_PARAMS:
        return sqlite_put_no_params(s, r);
    case JOURNAL_KEEP:
    case JOURNAL_FORGET:
        return sqlite_put_kept(s, r);
    case JOURNAL_KEYED: /* comes with JOURNAL_ACCEPT */
    case JOURNAL_ROOM:
    case JOURNAL_ROOM_STATE:
    case JOURNAL_ROOM_ENTRY:
    case JOURNAL_ROOM_REDACT:
    case JOURNAL_ROOM_PIN:
    case JOURNAL_ROOM_CLOSE:
    case JOURNAL_ADAPT:
        break; /* nothing writes them */
    }
    return false;
}

/* A full disk, a broken constraint: the transaction is not there, and the connection is sound. */
static bool is_certain(int code)
{
    return (code & 0xff) == SQLITE_FULL || (code & 0xff) == SQLITE_CONSTRAINT ||
           (code & 0xff) == SQLITE_BUSY;
}

/* Whether there is a connection that may write. One that was opened on a full disk is replaced. */
static enum status sqlite_connect_writer(struct sqlite_store *s, struct error *err)
{
    if (s->base.is_read_only)
        sqlite_disconnect(s, false);
    if (s->is_astray && sqlite_check_files(s, err) != STATUS_OK)
        return err->status;
    if (sqlite_connect(s, err) != STATUS_OK)
        return err->status;
    if (s->base.is_read_only) {
        (void)error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL,
                            "the journal cannot be written: the disk is full");
        err->retry_after_ms = SQLITE_RETRY_MS;
        return STATUS_UNAVAILABLE;
    }
    if (s->n_log >= s->most_log) {
        s->fold_at = 0;
        sqlite_fold(s);
    }
    return s->n_log >= s->most_log ? sqlite_refuse_log(s, err) : STATUS_OK;
}

static enum status sqlite_commit(struct journal_store *base,
                                 const struct journal_record *const *records, size_t n,
                                 struct error *err)
{
    struct sqlite_store *s = sqlite_store_of(base);
    bool is_done;
    int code;

    if (sqlite_connect_writer(s, err) != STATUS_OK)
        return err->status;
    is_done = sqlite_do(s, ST_BEGIN, NULL, 0);
    for (size_t i = 0; is_done && i < n; i++)
        is_done = sqlite_put(s, records[i]);
    if (n == 0)
        is_done = is_done && sqlite_do(s, ST_PROBE, NULL, 0);
    is_done = is_done && sqlite_do(s, ST_COMMIT, NULL, 0);
    if (is_done) {
        sqlite_fold(s);
        return sqlite_check_files(s, err);
    }
    sqlite_forget_heads(s);
    code = sqlite3_extended_errcode(s->db);
    (void)sqlite_failed(s, "written", err);
    if (!sqlite3_get_autocommit(s->db))
        (void)sqlite_do(s, ST_ROLLBACK, NULL, 0); /* if it fails, the connection is closed below */
    if (!is_certain(code) || !sqlite3_get_autocommit(s->db))
        sqlite_disconnect(s, false);
    return err->status;
}

/* --- reading --- */

static enum status sqlite_find(struct sqlite_store *s, const struct journal_query *q,
                               struct journal_found *out, struct error *err)
{
    static const enum statement by[] = {[JOURNAL_BY_ID] = ST_BY_ID,
                                        [JOURNAL_BY_REQUEST] = ST_BY_REQUEST,
                                        [JOURNAL_BY_NAME] = ST_BY_NAME};
    const struct sqlite_value values[] = {sqlite_text_value(q->principal),
                                          q->by == JOURNAL_BY_ID ? sqlite_id_value(q->id)
                                                                 : sqlite_text_value(q->text)};
    sqlite3_stmt *st;
    int rc = sqlite_first(s, &st, by[q->by], values, 2);
    enum status status = STATUS_OK;
    const char *request_id;

    if (rc == SQLITE_ROW && sqlite3_column_bytes(st, 0) == JOURNAL_ID_BYTES) {
        out->is_found = true;
        out->owner_epoch = 1;
        memcpy(out->id, sqlite3_column_blob(st, 0), JOURNAL_ID_BYTES);
        out->has_parent = sqlite3_column_bytes(st, 1) == JOURNAL_ID_BYTES;
        if (out->has_parent)
            memcpy(out->parent, sqlite3_column_blob(st, 1), JOURNAL_ID_BYTES);
        request_id = (const char *)sqlite3_column_text(st, 2);
        if (request_id != NULL) {
            out->request_id = try_strndup(request_id, strlen(request_id));
            if (out->request_id == NULL)
                status = error_no_memory(err, strlen(request_id), "a request's id");
        }
    } else if (rc != SQLITE_DONE) {
        status = sqlite_failed(s, "read", err);
    }
    (void)sqlite3_reset(st);
    return status;
}

/* Takes what a statement gives: a kind, a generation, a turn, a time, a body. */
static enum status sqlite_read_rows(struct sqlite_store *s, enum statement which,
                                    const struct sqlite_value *values, int n, size_t max_bytes,
                                    struct journal_found *out, struct error *err)
{
    sqlite3_stmt *st;
    enum status rc = STATUS_OK;
    int step;

    for (step = sqlite_first(s, &st, which, values, n); step == SQLITE_ROW && rc == STATUS_OK;
         step = rc == STATUS_OK ? sqlite3_step(st) : step) {
        const struct journal_record row = {
            .kind = (enum journal_kind)sqlite3_column_int(st, 0),
            .generation = (uint32_t)sqlite3_column_int64(st, 1),
            .turn = (uint32_t)sqlite3_column_int64(st, 2),
            .unix_ms = (uint64_t)sqlite3_column_int64(st, 3),
            .body = sqlite3_column_blob(st, 4),
            .size_bytes = (size_t)sqlite3_column_bytes(st, 4),
        };

        rc = journal_found_take(out, &row, max_bytes, err);
    }
    if (rc == STATUS_OK && step != SQLITE_DONE)
        rc = sqlite_failed(s, "read", err);
    (void)sqlite3_reset(st);
    return rc;
}

static enum status sqlite_read_key(struct sqlite_store *s, const struct journal_query *q,
                                   size_t max_bytes, struct journal_found *out, struct error *err)
{
    const struct sqlite_value values[] = {sqlite_text_value(q->principal),
                                          sqlite_text_value(q->text)};
    enum status rc = sqlite_read_rows(s, ST_BY_KEY, values, 2, max_bytes, out, err);

    out->is_found = !list_is_empty(&out->events);
    return rc;
}

static enum status sqlite_read(struct journal_store *base, const struct journal_query *q,
                               size_t max_bytes, struct journal_found *out, struct error *err)
{
    const struct sqlite_value block[] = {sqlite_id_value(q->id), sqlite_number_value(q->number)};
    struct sqlite_store *s = sqlite_store_of(base);
    enum status rc = sqlite_connect(s, err);

    if (rc != STATUS_OK)
        return rc;
    switch (q->by) {
    case JOURNAL_BY_ID:
    case JOURNAL_BY_REQUEST:
    case JOURNAL_BY_NAME:
        if (out->reading == NULL)
            rc = sqlite_find(s, q, out, err);
        if (rc == STATUS_OK && out->is_found)
            rc = sqlite_read_past(s, q, max_bytes, out, err);
        break;
    case JOURNAL_CHECKPOINTS:
        rc = sqlite_read_rows(s, ST_CHECKPOINTS, NULL, 0, max_bytes, out, err);
        break;
    case JOURNAL_BLOCKS:
        rc = sqlite_read_rows(s, ST_READ_BLOCK, block, 2, max_bytes, out, err);
        break;
    case JOURNAL_KEPT:
        rc = sqlite_read_rows(s, ST_KEPT, &block[1], 1, max_bytes, out, err);
        break;
    case JOURNAL_PLACE:
        out->is_found = true; /* no other process has the store */
        break;
    case JOURNAL_PAGE:
    case JOURNAL_SWEEP:
        rc = sqlite_read_list(s, q, out, err);
        break;
    case JOURNAL_BY_KEY:
        rc = sqlite_read_key(s, q, max_bytes, out, err);
        break;
    }
    if (rc != STATUS_OK)
        journal_found_deinit(out);
    return rc;
}

/* --- checking --- */

static enum status sqlite_check(struct journal_store *base, uint64_t *ret_conversations,
                                uint64_t *ret_turns, struct error *err)
{
    static const char orphans[] =
        "SELECT count(*) FROM event WHERE conversation NOT IN (SELECT id FROM conversation)";
    static const char ends[] =
        "SELECT count(*) FROM event AS e WHERE kind = 4 AND gone = 0 AND NOT EXISTS (SELECT 1 FROM "
        "event"
        " WHERE conversation = e.conversation AND gone = 0 AND generation = e.generation"
        " AND turn = e.turn AND kind = 3)";
    static const char keyed[] =
        "SELECT count(*) FROM keyed AS k WHERE NOT EXISTS (SELECT 1 FROM event WHERE conversation ="
        " k.conversation AND gone = 0 AND generation = k.generation AND turn = k.turn"
        " AND kind = 3)";
    static const char parents[] =
        "SELECT count(*) FROM conversation WHERE parent IS NOT NULL AND parent NOT IN"
        " (SELECT id FROM conversation)";
    static const char tallies[] =
        "SELECT count(*) FROM tally AS t WHERE n <> (SELECT count(*) FROM conversation"
        " WHERE principal = t.principal AND model = t.model AND is_listed)";
    struct sqlite_store *s = sqlite_store_of(base);
    sqlite3_stmt *st = NULL;
    enum status rc = sqlite_connect(s, err);
    int n;

    if (rc != STATUS_OK)
        return rc;
    if (sqlite3_prepare_v2(s->db, "PRAGMA integrity_check(1)", -1, &st, NULL) != SQLITE_OK ||
        sqlite3_step(st) != SQLITE_ROW)
        rc = sqlite_failed(s, "read", err);
    else if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0)
        rc = error_set(err, STATUS_DATA_LOSS, "%s: %.160s", s->path,
                       (const char *)sqlite3_column_text(st, 0));
    (void)sqlite3_finalize(st);
    if (rc != STATUS_OK)
        return rc;
    if (sqlite_check_chains(s, err) != STATUS_OK) /* first: it names the record */
        return err->status;
    n = (int)sqlite_number(s, orphans);
    if (n != 0)
        return error_set(err, STATUS_DATA_LOSS, "%s: %d events belong to no conversation", s->path,
                         n);
    n = (int)sqlite_number(s, ends);
    if (n != 0)
        return error_set(err, STATUS_DATA_LOSS, "%s: %d replies belong to no accepted turn",
                         s->path, n);
    n = (int)sqlite_number(s, keyed);
    if (n != 0)
        return error_set(err, STATUS_DATA_LOSS, "%s: %d keys are of no accepted turn", s->path, n);
    n = (int)sqlite_number(s, parents);
    if (n != 0)
        return error_set(err, STATUS_DATA_LOSS, "%s: %d conversations have lost their parent",
                         s->path, n);
    n = (int)sqlite_number(s, tallies);
    if (n != 0)
        return error_set(err, STATUS_DATA_LOSS, "%s: %d counts of conversations are wrong", s->path,
                         n);
    if (sqlite_check_kept(s, err) != STATUS_OK)
        return err->status;
    *ret_conversations =
        (uint64_t)sqlite_number(s, "SELECT count(*) FROM conversation WHERE NOT is_closed");
    *ret_turns =
        (uint64_t)sqlite_number(s, "SELECT count(*) FROM event WHERE kind IN (4, 5) AND gone = 0");
    return STATUS_OK;
}

/* --- opening --- */

/* A second daemon on the same directory finds the lock taken; the kernel gives it back with the
 * process, however that ends. */
static enum status sqlite_lock(struct sqlite_store *s, const char *dir, struct error *err)
{
    char path[4096];

    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return error_set(err, STATUS_PRECONDITION, "%s: %s", dir, strerror(errno));
    if ((size_t)snprintf(path, sizeof(path), "%s/lock", dir) >= sizeof(path))
        return error_set(err, STATUS_INVALID, "%.60s…: the path is too long", dir);
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock < 0)
        return error_set(err, STATUS_PRECONDITION, "%s: %s", path, strerror(errno));
    if (flock(s->lock, LOCK_EX | LOCK_NB) != 0)
        return error_set(err, STATUS_PRECONDITION, "%s is in use by another parleyd", dir);
    return STATUS_OK;
}

static bool sqlite_is_there(const char *dir)
{
    char path[4096];

    return (size_t)snprintf(path, sizeof(path), "%s/journal.db", dir) < sizeof(path) &&
           access(path, F_OK) == 0;
}

/* A new file is its owner's alone, also where the directory is open to others; the log's files take
 * its mode. Before there is a connection, since closing the file drops the locks of one. */
static enum status sqlite_create(struct sqlite_store *s, struct error *err)
{
    int fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 && errno != EEXIST)
        return error_set(err, STATUS_PRECONDITION, "%s: %s", s->path, strerror(errno));
    if (fd >= 0)
        (void)close(fd); /* nothing was written to it */
    return STATUS_OK;
}

static void sqlite_close(struct journal_store *base)
{
    struct sqlite_store *s;

    if (base == NULL)
        return;
    s = sqlite_store_of(base);
    sqlite_disconnect(s, true);
    chain_close(&s->chain);
    free(s->heads);
    if (s->lock >= 0)
        (void)close(s->lock); /* nothing was written to it */
    sqlite_files_deinit(s);
    free(s);
}

static enum status sqlite_open(struct journal_store **out, const char *dir, struct error *err)
{
    struct sqlite_store *s = xalloc(sizeof(*s));
    enum status rc;

    s->base.type = &journal_sqlite;
    s->lock = -1;
    sqlite_files_init(s, dir);
    s->path = s->files[FILE_DATABASE].path;
    s->heads = xalloc(SQLITE_HEADS * sizeof(s->heads[0]));
    rc = chain_open(&s->chain, err);
    if (rc == STATUS_OK)
        rc = sqlite_lock(s, dir, err);
    if (rc == STATUS_OK)
        rc = sqlite_files_check_log(dir, err);
    if (rc == STATUS_OK)
        rc = sqlite_create(s, err);
    if (rc == STATUS_OK)
        rc = sqlite_connect(s, err);
    /* Of checkpoints that the process before did not complete: nothing is lost if they stay. */
    if (rc == STATUS_OK && !s->base.is_read_only)
        (void)sqlite3_exec(s->db,
                           "DELETE FROM block WHERE checkpoint NOT IN"
                           " (SELECT checkpoint FROM params UNION ALL SELECT checkpoint FROM kept)",
                           NULL, NULL, NULL);
    if (rc == STATUS_OK) {
        *out = &s->base;
        s = NULL; /* given away */
    }
    sqlite_close(s == NULL ? NULL : &s->base);
    return rc;
}

const struct journal_store_type journal_sqlite = {
    .name = "sqlite",
    .is_there = sqlite_is_there,
    .look = sqlite_look,
    .open = sqlite_open,
    .close = sqlite_close,
    .commit = sqlite_commit,
    .read = sqlite_read,
    .backup = sqlite_backup,
    .check = sqlite_check,
};
