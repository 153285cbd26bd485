/* What several stores do that share a database: each stands for a daemon. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/env.h"
#include "server/journal/postgres.h"
#include "server/journal/postgres_parts.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/server/journal/kept_store.h"

/* The leases of all stores are over, as if their daemons had been stopped. */
static void leases_end(void)
{
    kept_sql("UPDATE parley.daemon SET until = clock_timestamp() - interval '1 second'");
}

/* Reads the conversation; *ret_epoch is 0 if it is not there. */
static enum status reads(struct journal_store *s, int of, uint64_t *ret_epoch, struct error *err)
{
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    struct journal_found f;
    enum status rc;

    memcpy(q.id, kept_ids[of], JOURNAL_ID_BYTES);
    journal_found_init(&f);
    do
        rc = s->type->read(s, &q, KEPT_MAX_BYTES, &f, err);
    while (rc == STATUS_OK && f.reading != NULL);
    *ret_epoch = rc == STATUS_OK && f.is_found ? f.owner_epoch : 0;
    journal_found_deinit(&f);
    return rc;
}

static struct journal_record with_epoch(struct journal_record r, uint64_t epoch,
                                        struct error *refusal)
{
    r.owner_epoch = epoch;
    r.refusal = refusal;
    return r;
}

/* Who has the lease keeps the conversation. Afterwards another one takes it over, and what the
 * owner before writes is refused, alone: the rest of its transaction is stored. */
START_TEST(test_fence)
{
    struct journal_store *a = opened(), *b = opened();
    struct journal_record open = record(JOURNAL_OPEN, 0, 0, "o");
    struct journal_record accept = record(JOURNAL_ACCEPT, 0, 1, "a");
    struct error no[2] = {{0}}, err = {0};
    struct journal_record late = with_epoch(record(JOURNAL_FINISH, 0, 1, "late"), 1, &no[0]);
    struct journal_record other = with_epoch(record(JOURNAL_OBSERVE, 1, 1, "b"), 1, &no[1]);
    const struct journal_record *both[] = {&late, &other};
    uint64_t epoch;

    commit(a, open);
    commit(a, accept);
    commit(a, record(JOURNAL_OPEN, 1, 0, "p"));
    ck_assert_int_eq(reads(b, 0, &epoch, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(err.reason, REASON_JOURNAL_FAILING);
    leases_end();
    ck_assert_msg(reads(b, 0, &epoch, &err) == STATUS_OK, "%s", err.text);
    ck_assert_uint_eq(epoch, 2);
    ck_assert_msg(a->type->commit(a, both, 2, &err) == STATUS_OK, "%s", err.text);
    ck_assert_int_eq(no[0].status, STATUS_UNAVAILABLE);
    ck_assert_int_eq(no[0].reason, REASON_JOURNAL_FAILING);
    ck_assert_int_eq(no[1].status, STATUS_OK);
    commit(b, with_epoch(record(JOURNAL_FINISH, 0, 1, "right"), 2, NULL));
    ck_assert_str_eq(stored(b, 0), "1.1.0:o 3.1.1:a 4.1.1:right");
    late.refusal = NULL;
    ck_assert_int_eq(commits(a, &late, &err), STATUS_UNAVAILABLE);
    ck_assert_str_eq(stored(b, 1), "1.1.0:p 5.1.1:b");
    a->type->close(a);
    b->type->close(b);
}
END_TEST

/* A process that had the conversation, lost it, and has it again may not write what it knew before.
 */
START_TEST(test_epoch)
{
    struct journal_store *a = opened(), *b = opened();
    struct error no = {0}, err = {0};
    struct journal_record old = with_epoch(record(JOURNAL_OBSERVE, 0, 2, "old"), 1, &no);
    uint64_t epoch;

    commit(a, record(JOURNAL_OPEN, 0, 0, "o"));
    leases_end();
    ck_assert_int_eq(reads(b, 0, &epoch, &err), STATUS_OK);
    commit(b, with_epoch(record(JOURNAL_OBSERVE, 0, 1, "b"), epoch, NULL));
    leases_end();
    ck_assert_int_eq(reads(a, 0, &epoch, &err), STATUS_OK);
    ck_assert_uint_eq(epoch, 3);
    ck_assert_int_eq(commits(a, &old, &err), STATUS_OK);
    ck_assert_int_eq(no.reason, REASON_JOURNAL_FAILING);
    commit(a, with_epoch(record(JOURNAL_OBSERVE, 0, 2, "c"), epoch, NULL));
    ck_assert_int_eq(reads(a, 0, &epoch, &err), STATUS_OK);
    ck_assert_uint_eq(epoch, 3); /* its own, over the same connection */
    ck_assert_str_eq(stored(a, 0), "1.1.0:o 5.1.1:b 5.1.2:c");
    a->type->close(a);
    b->type->close(b);
}
END_TEST

/* Finds who has a place: its process, "" if nobody had it and it is not asked for. */
static const char *place_of(struct journal_store *s, uint32_t place, bool is_sweep,
                            uint64_t *ret_epoch)
{
    const struct journal_query q = {
        .by = JOURNAL_PLACE, .number = place, .is_sweep = is_sweep, .wants_owner = true};
    static char id[JOURNAL_DAEMON_CHARS];
    struct journal_found f;
    struct error err = {0};
    enum status rc;

    journal_found_init(&f);
    rc = s->type->read(s, &q, KEPT_MAX_BYTES, &f, &err);
    ck_assert_msg(rc == STATUS_OK || f.owner.id[0] != '\0', "%s", err.text);
    (void)snprintf(id, sizeof(id), "%s", rc != STATUS_OK ? f.owner.id : f.is_found ? s->self : "");
    *ret_epoch = f.owner_epoch;
    journal_found_deinit(&f);
    return id;
}

/* Connections that are opened from now on find this beside parley.pg_terminate_backend, if there is
 * one, and that one first. */
static void ending_is_ours(void)
{
    kept_sql("ALTER ROLE CURRENT_USER SET search_path = parley, pg_catalog");
}

/* What ends a connection also says so. */
static void ending_says(const char *level)
{
    char sql[400];

    (void)snprintf(sql, sizeof(sql),
                   "CREATE FUNCTION parley.pg_terminate_backend(pid integer) RETURNS boolean"
                   " LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_terminate_backend(pid);"
                   " RAISE %s 'of PID %%', pid; RETURN false; END $$",
                   level);
    kept_sql(sql);
    kept_sql("ALTER ROLE CURRENT_USER RESET search_path");
}

/* A daemon that was stopped inside a transaction has the rows locked, of a conversation and of a
 * place. A takeover does not wait for it, and does not mind what the database says of the end: that
 * the other one is gone already, or that it may not. */
START_TEST(test_frozen)
{
    static const char *const levels[] = {"DEBUG", "WARNING", "EXCEPTION"};
    static const char *const locks[] = {"SELECT FROM parley.things FOR NO KEY UPDATE",
                                        "SELECT FROM parley.conversation FOR NO KEY UPDATE"};
    struct link_connection frozen[2] = {{.c = NULL}, {.c = NULL}};
    struct journal_store *a, *b;
    struct timespec before, after;
    struct error err = {0};
    uint64_t epoch;
    PGresult *r;

    ending_is_ours();
    a = opened();
    b = opened();
    ending_says(levels[_i]);
    commit(a, record(JOURNAL_OPEN, 0, 0, "o"));
    ck_assert_str_eq(place_of(a, JOURNAL_PLACE_ROOMS, false, &epoch), a->self);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(libpq_load(&frozen[i].pq, &err), STATUS_OK);
        ck_assert_int_eq(link_open(&frozen[i], kept_place(), &err), STATUS_OK);
        ck_assert(link_send(&frozen[i], locks[i], NULL, 0));
        ck_assert(link_ask(&frozen[i]));
        r = link_take(&frozen[i], &err);
        ck_assert_ptr_nonnull(r);
        frozen[i].pq->PQclear(r);
    }
    leases_end();
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    ck_assert_str_eq(place_of(b, JOURNAL_PLACE_ROOMS, false, &epoch), b->self);
    ck_assert_msg(reads(b, 0, &epoch, &err) == STATUS_OK, "%s", err.text);
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    ck_assert_uint_eq(epoch, 2);
    ck_assert_int_lt(after.tv_sec - before.tv_sec, 4);
    for (size_t i = 0; i < 2; i++) {
        ck_assert(!link_sync(&frozen[i]) || !link_take_sync(&frozen[i], &err));
        link_close(&frozen[i]);
    }
    a->type->close(a);
    b->type->close(b);
}
END_TEST

/* A daemon that was stopped amid an insert has others wait that insert the same: its transaction is
 * ended once it waits for longer than a lease, and than a message may take, by any other daemon,
 * whose lease does not depend on that. */
START_TEST(test_stuck)
{
    const uint64_t began_ms = env_now_ms(&env_real);
    struct link_connection frozen = {.c = NULL};
    struct journal_record open = record(JOURNAL_OPEN, 0, 0, "o");
    struct error err = {0};
    struct journal_store *s;
    struct pollfd fd;
    PGresult *r;

    ending_is_ours();
    s = opened();
    ending_says("EXCEPTION");
    open.request_id = "once";
    ck_assert_int_eq(libpq_load(&frozen.pq, &err), STATUS_OK);
    ck_assert_int_eq(link_open(&frozen, kept_place(), &err), STATUS_OK);
    ck_assert(link_send(&frozen,
                        "INSERT INTO parley.conversation (id, principal, request_id, model, seq,"
                        " owner) VALUES ($1, 'anna', 'once', '', 0, 'other.1')",
                        LINK_ARGS(link_id(kept_ids[1]))));
    ck_assert(link_ask(&frozen));
    r = link_take(&frozen, &err);
    ck_assert_msg(r != NULL, "%s", err.text);
    frozen.pq->PQclear(r);
    s->lease_ms = 100;
    fd = (struct pollfd){.fd = frozen.pq->PQsocket(frozen.c), .events = POLLIN};
    while (frozen.pq->PQconsumeInput(frozen.c) == 1 &&
           env_now_ms(&env_real) - began_ms < LINK_PATIENCE_MS + 20000) {
        ck_assert_msg(s->type->beat(s, &err) == STATUS_OK, "%s", err.text);
        (void)poll(&fd, 1, 100); /* it is readable once it is ended */
    }
    ck_assert_uint_ge(env_now_ms(&env_real) - began_ms, LINK_PATIENCE_MS);
    ck_assert_int_eq(frozen.pq->PQstatus(frozen.c), CONNECTION_BAD);
    link_close(&frozen);
    commit(s, open);
    ck_assert_str_eq(stored(s, 0), "1.1.0:o");
    s->type->close(s);
}
END_TEST

/* Two requests with one key, at two daemons: one of them is stored, and of the other nothing. */
START_TEST(test_key_race)
{
    struct journal_query q = {.by = JOURNAL_BY_KEY, .principal = "anna", .text = "key"};
    struct journal_store *a = opened(), *b = opened();
    struct error no[3] = {{0}}, err = {0};
    struct journal_record open = with_epoch(record(JOURNAL_OPEN, 1, 0, "p"), 1, &no[0]);
    struct journal_record accept = with_epoch(record(JOURNAL_ACCEPT, 1, 1, "a"), 1, &no[1]);
    struct journal_record other = with_epoch(record(JOURNAL_OPEN, 2, 0, "q"), 1, &no[2]);
    const struct journal_record *all[] = {&open, &accept, &other};

    commit(a, record(JOURNAL_OPEN, 0, 0, "o"));
    commit_keyed(a, 0, 1, 0, "first");
    open.with_next = true;
    accept.principal = "anna";
    accept.key = "key";
    accept.key_body = "second";
    accept.key_size_bytes = strlen("second");
    ck_assert_msg(b->type->commit(b, all, 3, &err) == STATUS_OK, "%s", err.text);
    ck_assert_int_eq(no[0].reason, REASON_JOURNAL_FAILING);
    ck_assert_int_eq(no[1].reason, REASON_JOURNAL_FAILING);
    ck_assert_int_eq(no[2].status, STATUS_OK);
    ck_assert_str_eq(stored_by(b, &q), "9.1.1:first");
    ck_assert_str_eq(stored(b, 1), "");
    ck_assert_str_eq(stored(b, 2), "1.1.0:q");
    a->type->close(a);
    ck_assert_int_eq(commits(b, &open, &err), STATUS_OK);
    ck_assert_int_eq(commits(b, &accept, &err), STATUS_OK); /* nobody has the first one any more */
    b->type->close(b);
}
END_TEST

/* The same with a request's id, and with a name. */
START_TEST(test_open_race)
{
    struct journal_store *a = opened(), *b = opened();
    struct error no = {0}, err = {0};
    struct journal_record first = record(JOURNAL_OPEN, 0, 0, "o");
    struct journal_record second = with_epoch(record(JOURNAL_OPEN, 1, 0, "p"), 0, &no);

    if (_i == 0)
        first.request_id = second.request_id = "once";
    else
        first.name = second.name = "home";
    commit(a, first);
    ck_assert_int_eq(commits(b, &second, &err), STATUS_OK);
    ck_assert_int_eq(no.reason, REASON_JOURNAL_FAILING);
    ck_assert_str_eq(stored(b, 1), "");
    ck_assert_str_eq(stored(a, 0), "1.1.0:o");
    a->type->close(a);
    b->type->close(b);
}
END_TEST

/* Commits, and again until the connection is there again. */
static void commit_patiently(struct journal_store *s, struct journal_record r)
{
    const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    struct error err = {0};

    for (int i = 0; i < 100 && commits(s, &r, &err) != STATUS_OK; i++)
        (void)nanosleep(&pause, NULL); /* the store itself waits between two attempts */
    ck_assert_msg(err.status == STATUS_OK || commits(s, &r, &err) == STATUS_OK, "%s", err.text);
}

/* A connection that is lost is opened again; what the lost one had is read under another epoch. */
START_TEST(test_lost_connection)
{
    struct journal_store *s = opened();
    struct error err = {0};
    struct journal_record r = record(JOURNAL_OBSERVE, 0, 1, "b");
    uint64_t epoch;

    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    kept_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
             " AND backend_type = 'client backend'");
    ck_assert_int_eq(commits(s, &r, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(err.reason, REASON_JOURNAL_FAILING);
    kept_sql("UPDATE parley.schema SET version = version + 90"); /* which ends no call for good */
    ck_assert_int_eq(commits(s, &r, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(err.reason, REASON_JOURNAL_FAILING);
    ck_assert_msg(strstr(err.text, "the database has schema 9") != NULL, "%s", err.text);
    kept_sql("UPDATE parley.schema SET version = version - 90");
    commit_patiently(s, r);
    ck_assert_int_eq(reads(s, 0, &epoch, &err), STATUS_OK);
    ck_assert_uint_eq(epoch, 2);
    ck_assert_str_eq(stored(s, 0), "1.1.0:o 5.1.1:b");
    s->type->close(s);
}
END_TEST

/* A conversation of more rows and bytes than a slice is read as a whole. */
START_TEST(test_slices)
{
    enum { TURNS = 600, LEN = 3000 };
    static char body[LEN + 1];
    static struct journal_record records[TURNS];
    static const struct journal_record *all[TURNS];
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna"};
    struct journal_store *s = opened();
    struct error err = {0};
    struct journal_found f;
    uint32_t n = 0;
    int n_reads = 0;

    memset(body, 'x', LEN);
    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    for (uint32_t i = 0; i < TURNS; i++) {
        records[i] = record(JOURNAL_OBSERVE, 0, i + 1, body);
        all[i] = &records[i];
    }
    ck_assert_msg(s->type->commit(s, all, TURNS, &err) == STATUS_OK, "%s", err.text);
    memcpy(q.id, kept_ids[0], JOURNAL_ID_BYTES);
    journal_found_init(&f);
    do {
        ck_assert_msg(s->type->read(s, &q, (size_t)8 << 20, &f, &err) == STATUS_OK, "%s", err.text);
        n_reads++;
    } while (f.reading != NULL);
    for (struct link *l = list_first(&f.events); l != NULL; l = list_next(&f.events, l))
        ck_assert_uint_eq(container_of(l, struct journal_event, link)->turn, n++);
    ck_assert_uint_eq(n, TURNS + 1);
    ck_assert_int_gt(n_reads, 1);
    journal_found_deinit(&f);
    s->type->close(s);
}
END_TEST

/* Each kind of damage is found by reading, and by the check. */
START_TEST(test_damage)
{
    static const struct {
        const char *sql, *says;
    } rows[] = {
        {"UPDATE parley.event SET body = 'z' WHERE turn = 1 AND kind = 3",
         "is not what was written"},
        {"DELETE FROM parley.event WHERE turn = 1 AND kind = 4", "does not follow"},
        {"UPDATE parley.event SET seq = DEFAULT WHERE turn = 1 AND kind = 3", "does not follow"},
    };
    struct journal_store *s = opened();
    uint64_t n, epoch;
    struct error err = {0};

    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    commit(s, record(JOURNAL_ACCEPT, 0, 1, "a"));
    commit(s, record(JOURNAL_FINISH, 0, 1, "f"));
    commit(s, record(JOURNAL_OBSERVE, 0, 2, "b"));
    ck_assert_int_eq(s->type->check(s, &n, &n, &err), STATUS_OK);
    ck_assert_uint_eq(n, 2);
    kept_sql(rows[_i].sql);
    ck_assert_int_eq(reads(s, 0, &epoch, &err), STATUS_DATA_LOSS);
    ck_assert_msg(strstr(err.text, rows[_i].says) != NULL, "%s", err.text);
    ck_assert_int_eq(s->type->check(s, &n, &n, &err), STATUS_DATA_LOSS);
    s->type->close(s);
}
END_TEST

/* Parameter sets, keys and tables are at one daemon, and at the next one after its end. */
START_TEST(test_things)
{
    struct journal_query q = {.by = JOURNAL_CHECKPOINTS};
    struct journal_store *a = opened(), *b = opened();
    struct error no = {0}, err = {0};
    struct journal_record late = with_epoch(of_params(JOURNAL_CHECKPOINT, 1, "late"), 0, &no);
    struct journal_found f;

    commit(a, part_of(0, 0, "part"));
    commit(a, of_params(JOURNAL_CHECKPOINT, 0, "first"));
    ck_assert_str_eq(checkpoints(a), "17.0.0:first");
    journal_found_init(&f);
    ck_assert_int_eq(b->type->read(b, &q, KEPT_MAX_BYTES, &f, &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(err.reason, REASON_JOURNAL_FAILING);
    leases_end();
    ck_assert_str_eq(checkpoints(b), "17.0.0:first");
    ck_assert_int_eq(commits(a, &late, &err), STATUS_OK);
    ck_assert_int_eq(no.reason, REASON_JOURNAL_FAILING);
    ck_assert_str_eq(checkpoints(b), "17.0.0:first");
    a->type->close(a);
    b->type->close(b);
}
END_TEST

/* Reads the things of a kind; returns the epoch. */
static uint64_t reads_kept(struct journal_store *s, uint32_t kind)
{
    const struct journal_query q = {.by = JOURNAL_KEPT, .number = kind};
    struct journal_found f;
    struct error err = {0};
    uint64_t epoch;

    journal_found_init(&f);
    ck_assert_msg(s->type->read(s, &q, KEPT_MAX_BYTES, &f, &err) == STATUS_OK, "%s", err.text);
    epoch = f.owner_epoch;
    journal_found_deinit(&f);
    return epoch;
}

/* Two kinds of things are at one place. Who lost it, has it again, and has read one of them anew,
 * may not write of the other what it knew before. */
START_TEST(test_kinds)
{
    const struct journal_query rooms = {.by = JOURNAL_KEPT, .number = JOURNAL_PLACE_ROOMS};
    struct journal_store *a = opened(), *b = opened();
    struct error no = {0}, err = {0};
    const uint64_t first = reads_kept(a, JOURNAL_PLACE_ROOMS);
    struct journal_record kept = with_epoch(of_params(JOURNAL_KEEP, 0, "old"), first, &no);

    kept.generation = JOURNAL_PLACE_ROOMS;
    commit(a, kept);
    leases_end();
    ck_assert_uint_gt(reads_kept(b, JOURNAL_PLACE_ROOMS), first);
    leases_end();
    kept.owner_epoch = reads_kept(a, JOURNAL_KIND_SERVICE);
    kept.body = "new";
    ck_assert_uint_gt(kept.owner_epoch, first + 1);
    commit(a, kept);
    ck_assert_int_eq(no.status, STATUS_OK);
    kept.owner_epoch = first;
    kept.body = "old";
    ck_assert_int_eq(commits(a, &kept, &err), STATUS_OK);
    ck_assert_int_eq(no.reason, REASON_JOURNAL_FAILING);
    ck_assert_str_eq(stored_by(a, &rooms), "19.6.0:new");
    a->type->close(a);
    b->type->close(b);
}
END_TEST

/* A database without tables, with tables of a later version, or one that may lose what it confirms
 * is refused, in words. */
START_TEST(test_refused)
{
    static const struct {
        const char *sql, *undo, *says;
    } rows[] = {
        {"DROP SCHEMA parley CASCADE", "SELECT 1", "--init-data"},
        {"UPDATE parley.schema SET version = 99", "SELECT 1", "has schema 99"},
        {"ALTER DATABASE postgres SET synchronous_commit = off",
         "ALTER DATABASE postgres RESET synchronous_commit", "synchronous_commit=off"},
    };
    struct journal_store *s = NULL;
    struct error err = {0};

    kept_sql(rows[_i].sql);
    ck_assert_int_eq(journal_postgres.look(kept_place(), &err), STATUS_PRECONDITION);
    ck_assert_int_eq(journal_postgres.open(&s, kept_place(), &err), STATUS_PRECONDITION);
    ck_assert_msg(strstr(err.text, rows[_i].says) != NULL, "%s", err.text);
    kept_sql(rows[_i].undo);
}
END_TEST

/* A database in another encoding is refused, and nothing is made in it. */
START_TEST(test_encoding)
{
    char url[256];
    struct error err = {0};

    (void)snprintf(url, sizeof(url), "postgresql://parley@/latin?host=%s&port=21500",
                   getenv("PARLEY_TEST_POSTGRES_DIR"));
    kept_sql("DROP DATABASE IF EXISTS latin");
    kept_sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    ck_assert_int_eq(postgres_init_data(url, &err), STATUS_PRECONDITION);
    ck_assert_msg(strstr(err.text, "another encoding") != NULL, "%s", err.text);
    ck_assert_int_eq(journal_postgres.look(url, &err), STATUS_PRECONDITION);
    ck_assert_msg(strstr(err.text, "no tables") != NULL, "%s", err.text);
}
END_TEST

/* A host that takes connections and says nothing, as one whose machine is frozen, keeps nobody from
 * the next host, which is then asked first. */
START_TEST(test_hosts)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(at);
    const int silent = socket(AF_INET, SOCK_STREAM, 0);
    struct link_connection l = {.c = NULL};
    struct error err = {0};
    char url[256];
    uint64_t began_ms;

    ck_assert_int_eq(bind(silent, (struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(listen(silent, 8), 0);
    ck_assert_int_eq(getsockname(silent, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(url, sizeof(url),
                   "postgresql://parley@/postgres?host=127.0.0.1,%s&port=%d,21500",
                   getenv("PARLEY_TEST_POSTGRES_DIR"), ntohs(at.sin_port));
    ck_assert_int_eq(libpq_load(&l.pq, &err), STATUS_OK);
    ck_assert_msg(link_open(&l, url, &err) == STATUS_OK, "%s", err.text);
    link_close(&l);
    began_ms = env_now_ms(&env_real);
    ck_assert_msg(link_open(&l, url, &err) == STATUS_OK, "%s", err.text);
    ck_assert_uint_lt(env_now_ms(&env_real) - began_ms, LINK_PATIENCE_MS / 2);
    link_close(&l);
    (void)close(silent);
}
END_TEST

/* Over a connection to a server that has become read-only nothing is stored any more. It is closed,
 * since another host of the URL may be the primary now. */
START_TEST(test_read_only)
{
    struct journal_store *s = opened();
    const uint64_t began_ms = env_now_ms(&env_real);
    struct error err = {0};

    s->lease_ms = 3; /* each beat renews it */
    kept_sql("ALTER SYSTEM SET default_transaction_read_only = on");
    kept_sql("SELECT pg_reload_conf()");
    while (s->type->beat(s, &err) == STATUS_OK && env_now_ms(&env_real) - began_ms < 30000)
        (void)poll(NULL, 0,
                   10); /* the server's processes read their settings when they get to it */
    ck_assert_msg(strstr(err.text, "read-only") != NULL, "%s", err.text);
    ck_assert_ptr_null(postgres_store_of(s)->link.c);
    kept_sql("ALTER SYSTEM RESET default_transaction_read_only");
    kept_sql("SELECT pg_reload_conf()");
    while (s->type->beat(s, &err) != STATUS_OK && env_now_ms(&env_real) - began_ms < 30000)
        (void)poll(NULL, 0, 10); /* as above */
    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    ck_assert_str_eq(stored(s, 0), "1.1.0:o");
    s->type->close(s);
}
END_TEST

/* A URL that cannot be read is refused without a part of it, as that may be of the password. */
START_TEST(test_url)
{
    static const char *const urls[] = {
        "postgresql://anna:se%cret@db/parley", "postgresql://anna:x@cret@db/parley",
        "postgresql://anna:secret@[db/parley", "postgresql://anna:secret@db/parley?cret",
        "postgresql://anna:cret/x@db/parley"};
    struct journal_store *s = NULL;
    struct error err = {0};

    ck_assert_int_eq(journal_postgres.open(&s, urls[_i], &err), STATUS_PRECONDITION);
    ck_assert_ptr_null(strstr(err.text, "cret"));
    ck_assert_ptr_nonnull(strstr(err.text, "%40"));
}
END_TEST

/* Making the tables again changes nothing. */
START_TEST(test_init_twice)
{
    struct journal_store *s = opened();
    struct error err = {0};

    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    ck_assert_int_eq(postgres_init_data(kept_place(), &err), STATUS_OK);
    ck_assert_str_eq(stored(s, 0), "1.1.0:o");
    s->type->close(s);
}
END_TEST

/* Tables of the first version become those of this one, with what is in them. */
START_TEST(test_upgrade)
{
    struct journal_store *s = opened();
    struct error err = {0};

    commit(s, record(JOURNAL_OPEN, 0, 0, "o"));
    commit(s, part_of(0, 0, "part"));
    commit(s, of_params(JOURNAL_CHECKPOINT, 0, "first"));
    s->type->close(s);
    s = NULL;
    kept_sql("DELETE FROM parley.things WHERE place <> 0");
    kept_sql("ALTER TABLE parley.things DROP COLUMN place");
    kept_sql("ALTER TABLE parley.block DROP COLUMN kind");
    kept_sql("ALTER TABLE parley.daemon DROP COLUMN lag_ms");
    kept_sql("DROP TABLE parley.quota, parley.quota_slice");
    kept_sql("DROP INDEX parley.conversation_daemon");
    kept_sql("ALTER TABLE parley.daemon DROP COLUMN address");
    kept_sql("UPDATE parley.schema SET version = 1");
    ck_assert_int_eq(journal_postgres.open(&s, kept_place(), &err), STATUS_PRECONDITION);
    ck_assert_msg(strstr(err.text, "--init-data") != NULL, "%s", err.text);
    ck_assert_msg(postgres_init_data(kept_place(), &err) == STATUS_OK, "%s", err.text);
    s = opened();
    ck_assert_str_eq(stored(s, 0), "1.1.0:o");
    ck_assert_str_eq(checkpoints(s), "17.0.0:first");
    s->type->close(s);
}
END_TEST

static void beats(struct journal_store *s)
{
    struct error err = {0};

    ck_assert_msg(s->type->beat(s, &err) == STATUS_OK, "%s", err.text);
}

/* Who asks for a conversation whose daemon can be reached is told where, at once, and the daemon is
 * not asked to give it up; without an address it is, as before. */
START_TEST(test_owner)
{
    struct journal_query q = {.by = JOURNAL_BY_ID, .principal = "anna", .wants_owner = true};
    struct journal_store *a = opened(), *b = opened();
    struct journal_found f;
    struct error err = {0};

    memcpy(q.id, kept_ids[0], JOURNAL_ID_BYTES);
    commit(a, record(JOURNAL_OPEN, 0, 0, "o"));
    journal_found_init(&f);
    (void)snprintf(a->address, sizeof(a->address), "10.0.0.1:8001");
    beats(a);
    ck_assert_int_eq(b->type->read(b, &q, KEPT_MAX_BYTES, &f, &err), STATUS_UNAVAILABLE);
    ck_assert_str_eq(f.owner.address, "10.0.0.1:8001");
    ck_assert_str_eq(f.owner.id, a->self);
    beats(a);
    ck_assert_uint_eq(a->n_wanted, 0);
    a->address[0] = '\0';
    beats(a);
    ck_assert_int_eq(b->type->read(b, &q, KEPT_MAX_BYTES, &f, &err), STATUS_UNAVAILABLE);
    ck_assert_str_eq(f.owner.id, "");
    beats(a);
    ck_assert_uint_eq(a->n_wanted, 1);
    q.is_sweep = true;
    ck_assert_int_eq(b->type->read(b, &q, KEPT_MAX_BYTES, &f, &err), STATUS_OK);
    ck_assert(!f.is_found);
    journal_found_deinit(&f);
    a->type->close(a);
    b->type->close(b);
}
END_TEST

static void renews(struct journal_store *s)
{
    s->renewed_us = 0;
    beats(s);
}

/* Of two processes with one address the younger is not reached by it, and gets no place, from its
 * first beat on, also where its row was deleted meanwhile. It names the older one as soon as that
 * shows that it lives: until then it may be the same process, killed and started again. Once the
 * older one has ended the younger has the address. */
START_TEST(test_one_address)
{
    struct journal_store *a = opened(), *b = opened();
    uint64_t epoch;

    (void)snprintf(a->address, sizeof(a->address), "10.0.0.1:8001");
    (void)snprintf(b->address, sizeof(b->address), "10.0.0.1:8001");
    a->lease_ms = b->lease_ms = 3600000; /* however loaded the machine is */
    beats(a);
    beats(b);
    beats(a);
    ck_assert_str_eq(a->others[0].address, "");
    ck_assert_str_eq(b->others[0].address, "10.0.0.1:8001");
    for (uint32_t place = JOURNAL_PLACE_GROUPS; place < JOURNAL_N_PLACES; place++)
        ck_assert_str_eq(place_of(b, place, false, &epoch), a->self);
    renews(b);
    ck_assert_str_eq(b->address_of, "");
    kept_sql("DELETE FROM parley.daemon WHERE address = ''");
    renews(b);
    renews(a);
    ck_assert_str_eq(a->others[0].address, "");
    renews(b);
    ck_assert_str_ne(b->address_of, "");
    ck_assert_str_eq(a->address_of, "");
    a->type->close(a);
    renews(b);
    ck_assert_str_eq(b->address_of, "");
    beats(b);
    a = opened();
    beats(a);
    ck_assert_str_eq(a->others[0].address, "10.0.0.1:8001");
    a->type->close(a);
    b->type->close(b);
}
END_TEST

static struct journal_rate lent(struct journal_store *s, uint64_t spent, uint64_t wanted)
{
    struct journal_rate rate = {
        .principal = "a\"nn'a", .kind = 1, .limit = 1000000000, .spent = spent, .wanted = wanted};
    struct error err = {0};

    ck_assert_msg(s->type->lend(s, &rate, 1, &err) == STATUS_OK, "%s", err.text);
    return rate;
}

/* No two daemons get the same of what is left, whatever they want, and a daemon that has ended has
 * nothing. */
START_TEST(test_lend)
{
    const uint64_t whole = UINT64_C(1000000000) * 60000000;
    struct journal_store *a = opened(), *b = opened();
    struct journal_rate x, y;

    beats(a);
    beats(b);
    x = lent(a, 0, 0);
    ck_assert_uint_eq(x.slice, whole / 2);
    y = lent(b, 0, whole);
    ck_assert_uint_eq(y.slice, whole - x.slice);
    x = lent(a, x.slice, whole); /* what was used empties with time */
    ck_assert_uint_gt(x.used, 0);
    ck_assert_uint_le(x.used + x.slice + y.slice, whole);
    y = lent(b, 3 * whole, whole); /* more than there is: replies are counted as they come */
    ck_assert_uint_eq(y.slice, 0);
    ck_assert_uint_gt(y.used, whole);
    (void)lent(b, UINT64_C(1) << 61, 0);
    (void)lent(b, UINT64_C(1) << 61, 0);
    kept_sql("UPDATE parley.quota SET at = at - interval '30 years'");
    y = lent(b, 0, 0);
    ck_assert_uint_eq(y.used, 0);
    ck_assert_uint_eq(lent(a, 0, whole).slice, whole - y.slice);
    a->type->close(a);
    ck_assert_uint_eq(lent(b, 0, whole).slice, whole);
    b->type->close(b);
}
END_TEST

/* Every daemon finds a place at the same daemon, the one that the hash chooses of those with a
 * lease, and there it stays. */
START_TEST(test_places)
{
    struct journal_store *all[] = {opened(), opened(), opened()};
    char first[JOURNAL_N_PLACES][JOURNAL_DAEMON_CHARS];
    uint64_t epoch, before;

    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(all[i]->address, sizeof(all[i]->address), "10.0.0.%zu:1", i);
        beats(all[i]);
    }
    for (uint32_t place = 0; place < JOURNAL_N_PLACES; place++) {
        if (place == 3) /* reserved */
            continue;
        ck_assert_str_eq(place_of(all[0], place, true, &epoch), "");
        (void)snprintf(first[place], sizeof(first[place]), "%s",
                       place_of(all[place % 3], place, false, &epoch));
        for (size_t i = 0; i < 3; i++)
            ck_assert_str_eq(place_of(all[i], place, i == 0, &epoch), first[place]);
    }
    all[1]->type->close(all[1]);
    for (uint32_t place = 0; place < JOURNAL_N_PLACES; place++) {
        const bool was_gone = place != 3 && strcmp(first[place], all[0]->self) != 0 &&
                              strcmp(first[place], all[2]->self) != 0;

        if (place == 3)
            continue;
        before = 0;
        if (!was_gone)
            ck_assert_str_eq(place_of(all[0], place, true, &before), first[place]);
        (void)snprintf(first[place], sizeof(first[place]), "%s",
                       place_of(all[2], place, true, &epoch));
        ck_assert_str_ne(first[place], "");
        ck_assert_str_eq(place_of(all[0], place, true, &before), first[place]);
        if (strcmp(first[place], all[0]->self) == 0)
            ck_assert_uint_eq(before, was_gone ? 3 : 2);
    }
    all[0]->type->close(all[0]);
    all[2]->type->close(all[2]);
}
END_TEST

/* Beats of s until it has gone through what a daemon left; the most orphans of one of them. */
static size_t sweeps(struct journal_store *s)
{
    size_t n = 0;

    for (int i = 0; i < 3; i++) {
        beats(s);
        n = s->n_orphans > n ? s->n_orphans : n;
    }
    return n;
}

/* Of what a daemon left whose lease is over, only turns that did not end are found: not those of a
 * daemon that lives, not before this one sweeps, and not once they ended. Then the daemon is
 * forgotten. What was given up with its turn is found at once. */
START_TEST(test_orphans)
{
    struct journal_store *a = opened(), *b = opened();
    struct journal_members *members = calloc(1, sizeof(*members));
    struct error err = {0};
    uint64_t epoch;

    ck_assert_ptr_nonnull(members);
    for (int i = 0; i < 4; i++)
        commit(a, record(JOURNAL_OPEN, i, 0, "o"));
    commit(a, record(JOURNAL_ACCEPT, 0, 1, "a")); /* 0 has one, 1 has ended, 2 has taken it back */
    commit(a, record(JOURNAL_ACCEPT, 1, 1, "a"));
    commit(a, record(JOURNAL_FINISH, 1, 1, "f"));
    commit(a, record(JOURNAL_ACCEPT, 2, 1, "a"));
    commit(a, record(JOURNAL_WITHDRAW, 2, 1, ""));
    commit(a, record(JOURNAL_UPDATE, 0, 0, "u")); /* which is no turn */
    b->is_sweeping = true;
    ck_assert_uint_eq(sweeps(b), 0);
    ck_assert_uint_eq(b->n_others, 1);
    ck_assert_str_eq(b->others[0].id, a->self);
    ck_assert_str_eq(b->others[0].address, "");
    leases_end();
    b->renewed_us = 0; /* its own lease is renewed */
    b->is_sweeping = false;
    ck_assert_uint_eq(sweeps(b), 0);
    ck_assert_uint_eq(b->n_others, 0);
    b->is_sweeping = true;
    ck_assert_uint_eq(sweeps(b), 1);
    ck_assert_mem_eq(b->orphans[0].id, kept_ids[0], JOURNAL_ID_BYTES);
    ck_assert_str_eq(b->orphans[0].principal, "anna");
    ck_assert_int_eq(b->type->list(b, members, &err), STATUS_OK);
    ck_assert_uint_eq(members->n, 2);
    ck_assert_int_eq(reads(b, 0, &epoch, &err), STATUS_OK);
    commit(b, with_epoch(record(JOURNAL_FINISH, 0, 1, "f"), epoch, NULL));
    (void)sweeps(b);
    ck_assert_uint_eq(b->n_orphans, 0);
    ck_assert_int_eq(b->type->list(b, members, &err), STATUS_OK);
    ck_assert_uint_eq(members->n, 1);
    ck_assert(members->rows[0].is_self);
    ck_assert_uint_eq(members->rows[0].n_conversations, 1);
    ck_assert_uint_eq(members->n_free, 3);
    ck_assert_int_gt(members->rows[0].lease_ms, 0);
    commit(b, with_epoch(record(JOURNAL_ACCEPT, 0, 2, "a"), epoch, NULL));
    ck_assert_int_eq(b->type->give(b, kept_ids[0], true, &err), STATUS_OK);
    beats(b);
    ck_assert_uint_eq(b->n_orphans, 1);
    ck_assert_int_eq(reads(b, 0, &epoch, &err), STATUS_OK);
    beats(b);
    ck_assert_uint_eq(b->n_orphans, 0);
    free(members);
    a->type->close(a);
    b->type->close(b);
}
END_TEST

/* No password, wherever it stands in the URL, is shown. */
START_TEST(test_shown)
{
    static const char *const rows[][2] = {
        {"postgresql://anna:secret@db:5432/parley?password=secret", "postgresql://db:5432/parley"},
        {"postgres://db/parley", "postgresql://db/parley"},
        {"postgresql://anna:se@cret@db/parley", "postgresql://db/parley"},
        {"postgresql:///?host=/run&password=a@secret", "postgresql:///"},
        {"postgresql://", "postgresql://"},
    };
    char shown[POSTGRES_SHOWN_MAX];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        ck_assert_str_eq(postgres_shown(rows[i][0], shown), rows[i][1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server/journal/postgres");
    TCase *t = tcase_create("all");
    SRunner *runner;
    int failed;

    kept_choose(true);
    tcase_add_checked_fixture(t, kept_setup, kept_teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, test_fence);
    tcase_add_test(t, test_epoch);
    tcase_add_loop_test(t, test_frozen, 0, 3);
    tcase_add_test(t, test_key_race);
    tcase_add_loop_test(t, test_open_race, 0, 2);
    tcase_add_test(t, test_lost_connection);
    tcase_add_test(t, test_slices);
    tcase_add_loop_test(t, test_damage, 0, 3);
    tcase_add_test(t, test_things);
    tcase_add_test(t, test_kinds);
    tcase_add_test(t, test_stuck);
    tcase_add_test(t, test_places);
    tcase_add_test(t, test_lend);
    tcase_add_loop_test(t, test_refused, 0, 3);
    tcase_add_test(t, test_encoding);
    tcase_add_loop_test(t, test_url, 0, 5);
    tcase_add_test(t, test_hosts);
    tcase_add_test(t, test_read_only);
    tcase_add_test(t, test_init_twice);
    tcase_add_test(t, test_upgrade);
    tcase_add_test(t, test_owner);
    tcase_add_test(t, test_one_address);
    tcase_add_test(t, test_orphans);
    tcase_add_test(t, test_shown);
    suite_add_tcase(suite, t);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
