#include "tests/unit/server/journal/kept_store.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/journal/postgres.h"
#include "server/journal/postgres_link.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/server/journal/faulty_vfs.h"

char kept_dir[32];
static const char *kept_url; /* NULL: SQLite */
const uint8_t kept_ids[5][JOURNAL_ID_BYTES] = {{1}, {2}, {3}, {4}, {5}};

void kept_choose(bool is_postgres)
{
    kept_url = is_postgres ? getenv("PARLEY_TEST_POSTGRES") : NULL;
    ck_assert_msg(!is_postgres || kept_url != NULL, "tests/support/postgres.sh starts this test");
}

const char *kept_place(void)
{
    return kept_url != NULL ? kept_url : kept_dir;
}

void kept_setup(void)
{
    struct error err = {0};

    if (kept_url != NULL) {
        kept_sql("DROP SCHEMA IF EXISTS parley CASCADE");
        ck_assert_msg(postgres_init_data(kept_url, &err) == STATUS_OK, "%s", err.text);
        return;
    }
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
    if (kept_url != NULL)
        return;
    faulty_vfs_arm(VFS_IO_ERROR, -1, 0);
    kept_empty();
    ck_assert_int_eq(rmdir(kept_dir), 0);
}

static void kept_postgres_sql(const char *sql)
{
    struct link_connection l = {.c = NULL};
    struct error err = {0};

    ck_assert_msg(libpq_load(&l.pq, &err) == STATUS_OK &&
                      link_open(&l, kept_url, &err) == STATUS_OK,
                  "%s", err.text);
    ck_assert_msg(link_do(&l, sql, NULL, 0, &err), "%s: %s", sql, err.text);
    link_close(&l);
}

void kept_sql(const char *sql)
{
    char path[64];
    sqlite3 *db;

    if (kept_url != NULL) {
        kept_postgres_sql(sql);
        return;
    }
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

    ck_assert_msg(journal_type_of(kept_place())->open(&s, kept_place(), &err) == STATUS_OK, "%s",
                  err.text);
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

void commit_keyed(struct journal_store *s, int of, uint32_t turn, uint32_t part,
                  const char *key_body)
{
    struct journal_record r = record(JOURNAL_ACCEPT, of, turn, "a");

    r.principal = "anna";
    r.key = "key";
    r.part = part;
    r.key_body = key_body;
    r.key_size_bytes = strlen(key_body);
    commit(s, r);
}

struct journal_record of_params(enum journal_kind kind, int checkpoint, const char *body)
{
    struct journal_record r = record(kind, checkpoint, 0, body);

    r.principal = "anna";
    r.name = "set";
    return r;
}

struct journal_record part_of(int checkpoint, uint32_t number, const char *body)
{
    struct journal_record r = record(JOURNAL_BLOCK, checkpoint, number, body);

    r.generation = JOURNAL_PLACE_PARAMS;
    return r;
}

const char *checkpoints(struct journal_store *s)
{
    return stored_by(s, &(struct journal_query){.by = JOURNAL_CHECKPOINTS});
}

/* The rows of a list, as "ID:TURNS.GENERATION.LAST …"; "…" ends one that goes on, and its total
 * stands in brackets. */
const char *listed(struct journal_store *s, struct journal_query *q)
{
    static char text[256];
    struct journal_found f;
    struct error err = {0};
    size_t at = 0;

    journal_found_init(&f);
    ck_assert_msg(s->type->read(s, q, KEPT_MAX_BYTES, &f, &err) == STATUS_OK, "%s", err.text);
    text[0] = '\0';
    for (struct link *l = list_first(&f.rows); l != NULL; l = list_next(&f.rows, l)) {
        const struct journal_row *row = container_of(l, struct journal_row, link);

        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d:%u.%u.%llu", at == 0 ? "" : " ",
                               row->id[0] - 1, row->turns, row->generation,
                               (unsigned long long)row->last_unix_ms);
        q->place = row->place;
        ck_assert_uint_lt(at, sizeof(text) - 32);
    }
    if (q->wants_total)
        at +=
            (size_t)snprintf(text + at, sizeof(text) - at, "[%llu]", (unsigned long long)f.n_total);
    if (f.has_more)
        (void)snprintf(text + at, sizeof(text) - at, "…");
    journal_found_deinit(&f);
    return text;
}
