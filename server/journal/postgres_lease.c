/* Leases and takeovers. A lease only permits a takeover. A takeover changes owner and epoch in the
 * row that each write locks, so it waits for a write that is under way, and later writes of the
 * owner before find the other epoch, however late they come. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "server/journal/postgres_parts.h"

enum { LEASE_TRIES = 4, LEASE_NAME_CHARS = 96 };

/* Amid a transaction a process sends no renewal, so one that then sends no message for as long as a
 * lease has none, and what it inserted has others wait: a key, a name, a request's id. Only a
 * pipeline that was not synced is active and reads: no session of a person, and no copy. That a
 * message is on its way the database does not show: a large one over a slow network gets the time
 * in which the sender itself gives up. */
static const char lease_end_stuck[] =
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND usename = current_user AND state = 'active' AND wait_event = 'ClientRead'"
    " AND backend_xid IS NOT NULL AND query LIKE '%parley.%' AND query NOT LIKE 'COPY%'"
    " AND query_start < clock_timestamp() - $1 * interval '1 millisecond'";

/* Others are told no address while an older process has it by its lease: what is given to a process
 * by its address stays with it. The result has the one of those that renewed last. */
static const char lease_renew[] =
    "WITH rival AS (SELECT id, name, (extract(epoch FROM until) * 1000000)::bigint AS until_us"
    " FROM parley.daemon WHERE address = $4 AND address <> '' AND until > clock_timestamp()"
    " AND (since, id) < (coalesce((SELECT since FROM parley.daemon WHERE id = $1),"
    " clock_timestamp()), $1) ORDER BY until DESC LIMIT 1), renewed AS"
    " (INSERT INTO parley.daemon (id, name, until, address, lag_ms) VALUES ($1, $2,"
    " clock_timestamp() + $3 * interval '1 millisecond',"
    " CASE WHEN EXISTS (SELECT FROM rival) THEN '' ELSE $4 END, $5)"
    " ON CONFLICT (id) DO UPDATE SET until = excluded.until, address = excluded.address,"
    " lag_ms = excluded.lag_ms) SELECT id, name, until_us FROM rival";

/* One that was killed and started again meets its own row, which nobody renews. */
static void lease_note_rival(struct postgres_store *s, const PGresult *r)
{
    const struct link_connection *l = &s->link;
    const char *id = "", *name = "";
    uint64_t until_us = 0;
    size_t len;

    if (l->pq->PQntuples(r) > 0) {
        id = link_column_bytes(l, r, 0, 0, &len);
        name = link_column_bytes(l, r, 0, 1, &len);
        until_us = link_column(l, r, 0, 2);
    }
    if (id[0] == '\0' || (strcmp(id, s->rival) == 0 && until_us > s->rival_until_us))
        (void)snprintf(s->base.address_of, sizeof(s->base.address_of), "%s", name);
    (void)snprintf(s->rival, sizeof(s->rival), "%s", id);
    s->rival_until_us = until_us;
}

enum status postgres_renew(struct postgres_store *s, struct error *err)
{
    const uint64_t began_us = env_now_us(&env_real);
    const uint64_t stuck_ms =
        s->base.lease_ms > LINK_PATIENCE_MS ? s->base.lease_ms : LINK_PATIENCE_MS;
    char host[64] = "", name[LEASE_NAME_CHARS];
    PGresult *r;

    (void)gethostname(host, sizeof(host) - 1); /* a name that is cut off is a name, too */
    (void)snprintf(name, sizeof(name), "%s:%d", host, (int)getpid());
    r = link_query(&s->link, lease_renew,
                   LINK_ARGS(link_text(s->base.self), link_text(name),
                             link_number(s->base.lease_ms), link_text(s->base.address),
                             link_number(s->base.lag_ms)),
                   err);
    if (r == NULL) {
        if (strcmp(s->link.code, "25006") == 0) /* read-only: another host may be the primary now */
            link_close(&s->link);
        return err->status;
    }
    memcpy(s->said, s->base.address, sizeof(s->said));
    lease_note_rival(s, r);
    s->link.pq->PQclear(r);
    if (!link_end_others(&s->link, lease_end_stuck, LINK_ARGS(link_number(stuck_ms)), err))
        return err->status;
    s->base.renewed_us = began_us;
    return STATUS_OK;
}

/* The row stays until another process has looked for turns that did not end. */
void postgres_end_lease(struct postgres_store *s)
{
    struct error ignored; /* the lease ends by itself */

    if (s->link.c != NULL)
        (void)!link_do(&s->link,
                       "UPDATE parley.daemon SET until = clock_timestamp(), address = ''"
                       " WHERE id = $1",
                       LINK_ARGS(link_text(s->base.self)), &ignored);
}

bool postgres_is_mine(const struct postgres_store *s, const char *owner)
{
    const size_t n = strlen(s->base.self);

    return strncmp(owner, s->base.self, n) == 0 && owner[n] == '.';
}

enum status postgres_elsewhere(struct postgres_store *s, const char *what, const char *daemon,
                               struct error *err)
{
    s->is_elsewhere = true;
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_JOURNAL_FAILING, NULL,
                        "%s at another parleyd, %.80s: ask that one, or again later", what, daemon);
    err->retry_after_ms = POSTGRES_RETRY_MS;
    return STATUS_UNAVAILABLE;
}

/* What a process has that was stopped, or whose link was cut: a transaction that holds the row. */
static const char lease_end_writer[] =
    "SELECT pg_terminate_backend(l.pid) FROM parley.conversation AS c JOIN pg_locks AS l"
    " ON l.locktype = 'transactionid' AND l.transactionid = c.xmax AND l.granted"
    " WHERE c.id = $1 AND l.pid <> pg_backend_pid()";

/* Another process has the conversation. The owner sees at its next beat that it is wanted, but for
 * one that is asked itself. */
static enum status lease_leave_to(struct postgres_store *s, const struct journal_query *q,
                                  const char *name, struct journal_found *out, struct error *err)
{
    if (q->is_sweep) {
        out->is_found = false;
        return STATUS_OK;
    }
    if (!(q->wants_owner && out->owner.address[0] != '\0') &&
        !link_do(&s->link,
                 "UPDATE parley.conversation SET is_wanted = true WHERE id = $1 AND NOT is_wanted",
                 LINK_ARGS(link_id(out->id)), err))
        return err->status;
    return postgres_elsewhere(s, "the conversation is", name, err);
}

/* One attempt. *ret_is_over: it is known what became of it. */
static enum status lease_try(struct postgres_store *s, const struct journal_query *q,
                             bool *ret_is_over, struct journal_found *out, struct error *err)
{
    struct link_connection *l = &s->link;
    PGresult *r = link_query(
        l,
        "SELECT owner, owner_epoch, d.name, d.address FROM parley.conversation LEFT JOIN"
        " parley.daemon AS d ON d.id = split_part(owner, '.', 1) AND until > clock_timestamp()"
        " WHERE conversation.id = $1 AND NOT is_closed",
        LINK_ARGS(link_id(out->id)), err);
    char owner[POSTGRES_OWNER_CHARS], name[LEASE_NAME_CHARS];
    bool is_alive;
    size_t len;

    *ret_is_over = true;
    if (r == NULL)
        return err->status;
    out->is_found = l->pq->PQntuples(r) > 0;
    if (!out->is_found) {
        l->pq->PQclear(r);
        return STATUS_OK;
    }
    (void)snprintf(owner, sizeof(owner), "%s", (const char *)link_column_bytes(l, r, 0, 0, &len));
    out->owner_epoch = link_column(l, r, 0, 1);
    is_alive = !l->pq->PQgetisnull(r, 0, 2);
    (void)snprintf(name, sizeof(name), "%s", (const char *)link_column_bytes(l, r, 0, 2, &len));
    (void)snprintf(out->owner.id, sizeof(out->owner.id), "%.*s", (int)strcspn(owner, "."), owner);
    (void)snprintf(out->owner.address, sizeof(out->owner.address), "%s",
                   (const char *)link_column_bytes(l, r, 0, 3, &len));
    l->pq->PQclear(r);
    if (strcmp(owner, s->owner) == 0)
        return STATUS_OK;
    if (is_alive && !postgres_is_mine(s, owner))
        return lease_leave_to(s, q, name, out, err);
    if (!link_end_others(l, lease_end_writer, LINK_ARGS(link_id(out->id)), err))
        return err->status;
    r = link_query(l,
                   "UPDATE parley.conversation SET owner = $2, owner_epoch = owner_epoch + 1,"
                   " is_wanted = false"
                   " WHERE id = $1 AND owner_epoch = $3 AND NOT is_closed RETURNING owner_epoch",
                   LINK_ARGS(link_id(out->id), link_text(s->owner), link_number(out->owner_epoch)),
                   err);
    if (r == NULL)
        return err->status;
    *ret_is_over = l->pq->PQntuples(r) == 1; /* else another one was sooner */
    if (*ret_is_over)
        out->owner_epoch = link_column(l, r, 0, 0);
    l->pq->PQclear(r);
    return STATUS_OK;
}

enum status postgres_take(struct postgres_store *s, const struct journal_query *q,
                          struct journal_found *out, struct error *err)
{
    bool is_over = false;
    enum status rc = STATUS_OK;

    for (int i = 0; i < LEASE_TRIES && !is_over && rc == STATUS_OK; i++)
        rc = lease_try(s, q, &is_over, out, err);
    return rc == STATUS_OK && !is_over
               ? postgres_elsewhere(s, "the conversation is", "which has just taken it", err)
               : rc;
}

/* --- places --- */

/* Of the processes with a lease that others can reach, the first in the order of a hash of process
 * and place: rendezvous hashing. This one, if there is none. Who is gone changes nothing for the
 * places of the others. */
static const char place_give[] =
    "UPDATE parley.things SET owner = w.id || '.0', owner_epoch = owner_epoch + 1 FROM (SELECT id"
    " FROM parley.daemon WHERE id = $2 OR (until > clock_timestamp() AND address <> '')"
    " ORDER BY address = '', sha256(convert_to(id || '/' || $1::bigint, 'UTF8')), id LIMIT 1) AS w"
    " WHERE place = $1::bigint AND owner_epoch = $3::bigint";

/* As lease_end_writer, of a process without a lease: it is waited for what it sends next. Others
 * that get the place in this moment are not. */
static const char place_end_writer[] =
    "SELECT pg_terminate_backend(l.pid) FROM parley.things AS t JOIN pg_locks AS l"
    " ON l.locktype = 'transactionid' AND l.transactionid = t.xmax AND l.granted"
    " JOIN pg_stat_activity AS a ON a.pid = l.pid AND a.wait_event_type = 'Client'"
    " WHERE t.place = $1 AND l.pid <> pg_backend_pid()";

struct place_owner {
    char owner[POSTGRES_OWNER_CHARS];
    char name[LEASE_NAME_CHARS];
    bool is_alive;
};

/* Tables of before this place was there lack its row. */
static bool place_add(struct postgres_store *s, uint32_t place, struct error *err)
{
    return place < JOURNAL_N_PLACES &&
           link_do(
               &s->link,
               "INSERT INTO parley.things (place, owner, owner_epoch) VALUES ($1::bigint, '', 1)"
               " ON CONFLICT DO NOTHING",
               LINK_ARGS(link_number(place)), err);
}

static enum status place_look(struct postgres_store *s, uint32_t place, struct place_owner *of,
                              struct journal_found *out, struct error *err)
{
    struct link_connection *l = &s->link;
    PGresult *r = link_query(
        l,
        "SELECT owner, owner_epoch, d.name, d.address FROM parley.things LEFT JOIN parley.daemon"
        " AS d ON d.id = split_part(owner, '.', 1) AND until > clock_timestamp()"
        " WHERE place = $1",
        LINK_ARGS(link_number(place)), err);
    enum status rc = STATUS_OK;
    size_t len;

    if (r == NULL)
        return err->status;
    if (l->pq->PQntuples(r) == 0 && place_add(s, place, err)) {
        of->owner[0] = '\0';
        of->is_alive = false;
        out->owner_epoch = 1;
    } else if (l->pq->PQntuples(r) != 1) {
        rc = error_set(err, STATUS_DATA_LOSS, "the table parley.things lacks place %u", place);
    } else {
        (void)snprintf(of->owner, sizeof(of->owner), "%s",
                       (const char *)link_column_bytes(l, r, 0, 0, &len));
        out->owner_epoch = link_column(l, r, 0, 1);
        of->is_alive = !l->pq->PQgetisnull(r, 0, 2);
        (void)snprintf(of->name, sizeof(of->name), "%s",
                       (const char *)link_column_bytes(l, r, 0, 2, &len));
        (void)snprintf(out->owner.id, sizeof(out->owner.id), "%.*s", (int)strcspn(of->owner, "."),
                       of->owner);
        (void)snprintf(out->owner.address, sizeof(out->owner.address), "%s",
                       (const char *)link_column_bytes(l, r, 0, 3, &len));
    }
    l->pq->PQclear(r);
    return rc;
}

static const char *place_noun(uint32_t place)
{
    static const char *const nouns[JOURNAL_N_PLACES] = {
        [JOURNAL_PLACE_PARAMS] = "parameter sets are",
        [JOURNAL_PLACE_KEYS] = "keys of Store are",
        [JOURNAL_PLACE_TABLES] = "tables of Replay are",
        [JOURNAL_PLACE_GROUPS] = "groups of Registry are",
        [JOURNAL_PLACE_WORK] = "tasks of Work are",
        [JOURNAL_PLACE_ROOMS] = "rooms are"};

    return place < JOURNAL_N_PLACES && nouns[place] != NULL ? nouns[place] : "they are";
}

enum status postgres_take_place(struct postgres_store *s, const struct journal_query *q,
                                struct journal_found *out, struct error *err)
{
    struct place_owner of;

    for (int i = 0; i < LEASE_TRIES; i++) {
        if (place_look(s, q->number, &of, out, err) != STATUS_OK)
            return err->status;
        out->is_found = postgres_is_mine(s, of.owner);
        if (out->is_found || (q->is_sweep && of.owner[0] == '\0'))
            return STATUS_OK;
        if (of.is_alive)
            return postgres_elsewhere(s, place_noun(q->number), of.name, err);
        if (!link_end_others(&s->link, place_end_writer, LINK_ARGS(link_number(q->number)), err) ||
            !link_do(&s->link, place_give,
                     LINK_ARGS(link_number(q->number), link_text(s->base.self),
                               link_number(out->owner_epoch)),
                     err))
            return err->status;
    }
    return postgres_elsewhere(s, place_noun(q->number), "which has just got them", err);
}

/* What was sent over a connection that is lost may still run: it locks the row that this changes.
 * Then deletes blocks of checkpoints that no process completes any more. */
static enum status things_begin(struct postgres_store *s, enum journal_place place,
                                struct error *err)
{
    struct link_connection *l = &s->link;

    if (!link_do(l, "UPDATE parley.things SET owner = $1 WHERE place = $2::bigint",
                 LINK_ARGS(link_text(s->owner), link_number(place)), err) ||
        !link_do(l,
                 "DELETE FROM parley.block WHERE (kind = $1 OR kind IS NULL) AND checkpoint NOT IN"
                 " (SELECT checkpoint FROM parley.params UNION ALL SELECT checkpoint FROM"
                 " parley.kept)",
                 LINK_ARGS(link_number(place)), err))
        return err->status;
    return STATUS_OK;
}

enum status postgres_take_things(struct postgres_store *s, enum journal_place place, bool is_anew,
                                 struct error *err)
{
    const struct journal_query q = {.by = JOURNAL_PLACE, .number = place};
    struct journal_found found = {.is_found = false};

    if (postgres_take_place(s, &q, &found, err) != STATUS_OK)
        return err->status;
    if (s->place_epochs[place] == found.owner_epoch)
        return STATUS_OK;
    if (!is_anew && s->place_epochs[place] != 0)
        return postgres_elsewhere(s, place_noun(place), "or were meanwhile", err);
    if (things_begin(s, place, err) != STATUS_OK)
        return err->status;
    s->place_epochs[place] = found.owner_epoch;
    return STATUS_OK;
}
