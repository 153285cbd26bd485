#include "tests/unit/server/journal/kept_store.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"
#include "tests/unit/server/journal/faulty_vfs.h"

char kept_dir[32];
const uint8_t kept_ids[5][JOURNAL_ID_BYTES] = {{1}, {2}, {3}, {4}, {5}};

void kept_setup(void)
{
    /* In memory, if it can be: there are thousands of syncs, and their time is not what is tested.
     */
    (void)snprintf(kept_dir, sizeof(kept_dir), "/dev/shm/journalXXXXXX");
    if (mkdtemp(kept_dir) != NULL)
        return;
    (void)snprintf(kept_dir, sizeof(kept_dir), "/tmp/journalXXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(kept_dir));
}

void kept_empty(void)
{
    static const char *const names[] = {"lock", "journal.db", "journal.db-wal", "journal.db-shm",
                                        "journal.db-journal"};
    char path[64];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", kept_dir, names[i]);
        (void)unlink(path);
    }
}

void kept_teardown(void)
{
    faulty_vfs_arm(VFS_IO_ERROR, -1, 0);
    kept_empty();
    ck_assert_int_eq(rmdir(kept_dir), 0);
}

void kept_sql(const char *sql)
{
    char path[64];
    sqlite3 *db;

    (void)snprintf(path, sizeof(path), "%s/journal.db", kept_dir);
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s: %s", sql,
                  sqlite3_errmsg(db));
    ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

const char kept_back_to_5[] =
    "DROP TABLE tally; DROP TABLE pin; DROP INDEX event_place; DROP INDEX conversation_list;"
    "DROP INDEX conversation_of_model; ALTER TABLE conversation DROP COLUMN kind;"
    "ALTER TABLE conversation DROP COLUMN is_listed; ALTER TABLE event DROP COLUMN gone;"
    "ALTER TABLE event DROP COLUMN hash; ALTER TABLE event DROP COLUMN chain;"
    "CREATE UNIQUE INDEX event_place ON event (conversation, generation, turn, kind);"
    "CREATE INDEX conversation_list ON conversation (principal, seq) WHERE NOT is_closed;"
    "CREATE INDEX conversation_of_model ON conversation (principal, model, seq)"
    " WHERE NOT is_closed; PRAGMA user_version = 5";

struct journal_store *opened(void)
{
    struct journal_store *s = NULL;
    struct error err = {0};

    ck_assert_msg(journal_sqlite.open(&s, kept_dir, &err) == STATUS_OK, "%s", err.text);
    return s;
}

struct journal_record record(enum journal_kind kind, int of, uint32_t turn, const char *body)
{
    struct journal_record r = {.kind = kind,
                               .generation = 1,
                               .turn = turn,
                               .body = body,
                               .size_bytes = strlen(body),
                               .principal = kind == JOURNAL_OPEN ? "anna" : NULL};

    memcpy(r.conversation, kept_ids[of], JOURNAL_ID_BYTES);
    return r;
}

enum status commits(struct journal_store *s, const struct journal_record *r, struct error *err)
{
    return s->type->commit(s, &r, 1, err);
}

void commit(struct journal_store *s, struct journal_record r)
{
    struct error err = {0};

    ck_assert_msg(commits(s, &r, &err) == STATUS_OK, "%s", err.text);
}

/* What is stored of the conversation, as "KIND.GENERATION.TURN:BODY …"; "" if it is not there. */
const char *stored_by(struct journal_store *s, const struct journal_query *q)
{
    static char text[4096];
    struct journal_found f;
    struct error err = {0};
    size_t at = 0;

    journal_found_init(&f);
    ck_assert_msg(s->type->read(s, q, KEPT_MAX_BYTES, &f, &err) == STATUS_OK, "%s", err.text);
    text[0] = '\0';
    for (struct link *l = list_first(&f.events); l != NULL; l = list_next(&f.events, l)) {
        const struct journal_event *e = container_of(l, struct journal_event, link);

        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d.%u.%u:%.*s", at == 0 ? "" : " ",
                               e->kind, e->generation, e->turn, (int)e->size_bytes,
                               (const char *)e->body);
        ck_assert_uint_lt(at, sizeof(text));
    }
    journal_found_deinit(&f);
    return text;
}

const char *stored(struct journal_store *s, int of)
{
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};

    memcpy(q.id, kept_ids[of], JOURNAL_ID_BYTES);
    return stored_by(s, &q);
}
