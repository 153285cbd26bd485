/* A commit has two parts, in one transaction. The first part locks the rows of the conversations
 * that the records are of, and reads who has them, and where their chains have come to. The second
 * part has the inserts and the sync. The rows stay locked in between, so what was read holds: a
 * record is written only if this process has the conversation under the epoch that the record
 * names. Other records are left out, each with what must be stored together with it.
 *
 * Failures: if a statement fails, the transaction is undone. A record that breaks a rule of the
 * tables (the key or the request id is taken, by another process) is left out, and the rest is
 * written again; so is everything after a deadlock. If the connection is lost, the outcome is
 * unknown. The next connection finds the rows locked until the transaction is over. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "server/journal/postgres_parts.h"

enum { COMMIT_TRIES = 6 };

/* A conversation of the commit. */
struct commit_row {
    uint8_t id[JOURNAL_ID_BYTES];
    bool is_there, is_mine, is_free;
    uint64_t epoch;
    uint8_t chain[SHA256_BYTES];
    bool is_refused; /* a record of it was left out, so later ones are, too */
};

/* A record of the commit. */
struct commit_item {
    const struct journal_record *record;
    size_t row;          /* SIZE_MAX: it is of no conversation */
    bool is_refused;     /* it is not stored, and its owner is told */
    bool is_left_out;    /* its conversation is deleted: there is nothing to store it with */
    bool has_acceptance; /* of JOURNAL_WITHDRAW: there is something to withdraw */
};

struct commit {
    struct postgres_store *s;
    struct link_connection *link;
    struct commit_item *items; /* [n_items] */
    size_t n_items;
    struct commit_row *rows; /* [n_rows], by id */
    size_t n_rows;
    bool has_things;
    bool has_place[JOURNAL_N_PLACES]; /* of the records */
    bool has_lost[JOURNAL_N_PLACES];  /* another process got the place */
    uint64_t epochs[JOURNAL_N_PLACES];
    struct buf places; /* those, as SQL's array */
    uint64_t keys_over_unix_ms;
    size_t n_keys_over;
    uint8_t (*expired)[JOURNAL_ID_BYTES]; /* [n_expired] conversations whose keys are over */
    size_t n_expired;
    size_t *sent; /* [n_sent] which item each statement of the second part is of; SIZE_MAX: none */
    size_t n_sent, cap_sent;
    struct buf ids; /* of the rows, as SQL's array */
};

/* --- which conversations --- */

static bool is_of_things(enum journal_kind kind)
{
    return kind == JOURNAL_BLOCK || kind == JOURNAL_CHECKPOINT || kind == JOURNAL_NO_PARAMS ||
           kind == JOURNAL_KEEP || kind == JOURNAL_FORGET;
}

/* Of a record of things. */
static enum journal_place place_of(const struct journal_record *r)
{
    const bool is_of_params = r->kind == JOURNAL_CHECKPOINT || r->kind == JOURNAL_NO_PARAMS;

    return is_of_params ? JOURNAL_PLACE_PARAMS : journal_place_of(r->generation);
}

static int commit_row_order(const void *a, const void *b)
{
    return memcmp(((const struct commit_row *)a)->id, ((const struct commit_row *)b)->id,
                  JOURNAL_ID_BYTES);
}

static struct commit_row *commit_find(struct commit *c, const uint8_t *id)
{
    struct commit_row key;

    memcpy(key.id, id, JOURNAL_ID_BYTES);
    return bsearch(&key, c->rows, c->n_rows, sizeof(key), commit_row_order);
}

/* Parents, too: a fork begins behind its parent's last record. */
static void commit_collect(struct commit *c)
{
    size_t n = 0;

    c->rows = xalloc((2 * c->n_items + 1) * sizeof(c->rows[0]));
    for (size_t i = 0; i < c->n_items; i++) {
        const struct journal_record *r = c->items[i].record;

        if (is_of_things(r->kind)) {
            c->has_things = c->has_place[place_of(r)] = true;
            continue;
        }
        memcpy(c->rows[c->n_rows++].id, r->conversation, JOURNAL_ID_BYTES);
        if (r->kind == JOURNAL_OPEN && r->parent != NULL)
            memcpy(c->rows[c->n_rows++].id, r->parent, JOURNAL_ID_BYTES);
        if (r->keys_over_unix_ms > 0)
            c->n_keys_over += 2; /* more than come */
        if (r->keys_over_unix_ms > c->keys_over_unix_ms)
            c->keys_over_unix_ms = r->keys_over_unix_ms;
    }
    qsort(c->rows, c->n_rows, sizeof(c->rows[0]), commit_row_order);
    for (size_t i = 0; i < c->n_rows; i++)
        if (n == 0 || memcmp(c->rows[n - 1].id, c->rows[i].id, JOURNAL_ID_BYTES) != 0)
            c->rows[n++] = c->rows[i];
    c->n_rows = n;
    for (size_t i = 0; i < c->n_items; i++)
        c->items[i].row =
            is_of_things(c->items[i].record->kind)
                ? SIZE_MAX
                : (size_t)(commit_find(c, c->items[i].record->conversation) - c->rows);
}

static bool commit_write_ids(struct commit *c)
{
    buf_clear(&c->ids);
    if (buf_append_text(&c->ids, "{") != STATUS_OK)
        return false;
    for (size_t i = 0; i < c->n_rows; i++) {
        if (i > 0 && buf_append_text(&c->ids, ",") != STATUS_OK)
            return false;
        for (size_t k = 0; k < JOURNAL_ID_BYTES; k++)
            if (buf_printf(&c->ids, "%02x", c->rows[i].id[k]) != STATUS_OK)
                return false;
    }
    return buf_append_text(&c->ids, "}") == STATUS_OK;
}

static bool commit_write_places(struct commit *c)
{
    buf_clear(&c->places);
    for (int i = 0; i < JOURNAL_N_PLACES; i++)
        if (c->has_place[i] &&
            buf_printf(&c->places, "%c%d", c->places.len == 0 ? '{' : ',', i) != STATUS_OK)
            return false;
    return buf_append_text(&c->places, c->places.len == 0 ? "{}" : "}") == STATUS_OK;
}

/* --- the first part --- */

static bool commit_ask_withdrawn(struct commit *c)
{
    for (size_t i = 0; i < c->n_items; i++) {
        const struct journal_record *r = c->items[i].record;

        if (r->kind == JOURNAL_WITHDRAW && !c->items[i].is_refused &&
            !link_send(c->link,
                       "SELECT seq FROM parley.event WHERE conversation = $1 AND gone = 0"
                       " AND generation = $2 AND turn = $3 AND kind = 3",
                       LINK_ARGS(link_id(r->conversation), link_number(r->generation),
                                 link_number(r->turn))))
            return false;
    }
    return true;
}

static bool commit_ask(struct commit *c)
{
    bool is_sent = true;

    /* In the order of the ids, so that two processes never wait for each other. */
    if (c->n_rows > 0)
        is_sent =
            link_send(c->link,
                      "SELECT id, owner, owner_epoch, " POSTGRES_IS_FREE(
                          "owner",
                          "$2") " FROM parley.conversation WHERE id = ANY($1::uuid[]) ORDER BY id"
                                " FOR NO KEY UPDATE",
                      LINK_ARGS(link_text(c->ids.data), link_text(c->s->base.self))) &&
            link_send(c->link,
                      "SELECT i, e.chain FROM unnest($1::uuid[]) AS i, LATERAL (SELECT chain"
                      " FROM parley.event WHERE conversation = i ORDER BY seq DESC LIMIT 1) AS e",
                      LINK_ARGS(link_text(c->ids.data))) &&
            commit_ask_withdrawn(c);
    if (is_sent && c->n_keys_over > 0)
        is_sent = link_send(c->link,
                            "SELECT c.id FROM parley.keyed AS k JOIN parley.conversation AS c"
                            " ON c.id = k.conversation WHERE k.until_ms > 0 AND k.until_ms < $1"
                            " AND " POSTGRES_IS_FREE(
                                "c.owner", "$3") " ORDER BY k.until_ms"
                                                 " LIMIT $2 FOR NO KEY UPDATE OF c SKIP LOCKED",
                            LINK_ARGS(link_number(c->keys_over_unix_ms),
                                      link_number(c->n_keys_over), link_text(c->s->base.self)));
    if (is_sent && c->has_things)
        is_sent = link_send(c->link,
                            "SELECT owner, owner_epoch, place FROM parley.things WHERE place ="
                            " ANY($1::bigint[]) ORDER BY place FOR NO KEY UPDATE",
                            LINK_ARGS(link_text(c->places.data)));
    return is_sent && link_ask(c->link);
}

static bool commit_take_rows(struct commit *c, struct error *err)
{
    struct link_connection *l = c->link;
    PGresult *r = link_take(l, err);
    size_t len;

    if (r == NULL)
        return false;
    for (size_t i = 0; i < c->n_rows; i++) {
        c->rows[i].is_there = c->rows[i].is_mine = c->rows[i].is_free = false;
        memset(c->rows[i].chain, 0, SHA256_BYTES);
    }
    for (int i = 0; i < l->pq->PQntuples(r); i++) {
        struct commit_row *row = commit_find(c, link_column_bytes(l, r, i, 0, &len));

        if (row == NULL)
            continue;
        row->is_there = true;
        row->is_mine = postgres_is_mine(c->s, link_column_bytes(l, r, i, 1, &len));
        row->epoch = link_column(l, r, i, 2);
        row->is_free = link_column(l, r, i, 3) != 0;
    }
    l->pq->PQclear(r);
    r = link_take(l, err);
    if (r == NULL)
        return false;
    for (int i = 0; i < l->pq->PQntuples(r); i++) {
        struct commit_row *row = commit_find(c, link_column_bytes(l, r, i, 0, &len));
        const void *chain = link_column_bytes(l, r, i, 1, &len);

        if (row != NULL && len == SHA256_BYTES)
            memcpy(row->chain, chain, SHA256_BYTES);
    }
    l->pq->PQclear(r);
    return true;
}

static bool commit_take_withdrawn(struct commit *c, struct error *err)
{
    for (size_t i = 0; i < c->n_items; i++) {
        struct commit_item *item = &c->items[i];
        PGresult *r;

        item->has_acceptance = false;
        if (item->record->kind != JOURNAL_WITHDRAW || item->is_refused)
            continue;
        r = link_take(c->link, err);
        if (r == NULL)
            return false;
        item->has_acceptance = c->link->pq->PQntuples(r) > 0;
        c->link->pq->PQclear(r);
    }
    return true;
}

/* A conversation that this commit also writes to is not over. */
static bool commit_take_expired(struct commit *c, struct error *err)
{
    PGresult *r = link_take(c->link, err);
    size_t len;

    if (r == NULL)
        return false;
    c->n_expired = 0;
    for (int i = 0; i < c->link->pq->PQntuples(r) && c->n_expired < c->n_keys_over; i++) {
        const void *id = link_column_bytes(c->link, r, i, 0, &len);

        if (commit_find(c, id) == NULL)
            memcpy(c->expired[c->n_expired++], id, JOURNAL_ID_BYTES);
    }
    c->link->pq->PQclear(r);
    return true;
}

static bool commit_take_things(struct commit *c, struct error *err)
{
    PGresult *r = link_take(c->link, err);
    size_t len;

    if (r == NULL)
        return false;
    memset(c->has_lost, true, sizeof(c->has_lost));
    for (int i = 0; i < c->link->pq->PQntuples(r); i++) {
        const uint64_t place = link_column(c->link, r, i, 2);

        if (place >= JOURNAL_N_PLACES)
            continue;
        c->epochs[place] = link_column(c->link, r, i, 1);
        c->has_lost[place] = !postgres_is_mine(c->s, link_column_bytes(c->link, r, i, 0, &len)) ||
                             c->epochs[place] != c->s->place_epochs[place];
    }
    c->link->pq->PQclear(r);
    return true;
}

/* false: a statement failed, or the connection is broken. */
static bool commit_look(struct commit *c, struct error *err)
{
    return commit_ask(c) && (c->n_rows == 0 || commit_take_rows(c, err)) &&
           (c->n_rows == 0 || commit_take_withdrawn(c, err)) &&
           (c->n_keys_over == 0 || commit_take_expired(c, err)) &&
           (!c->has_things || commit_take_things(c, err));
}

/* --- what is written --- */

/* The records that are stored with this one, all or none: from *first, up to the returned one. */
static size_t commit_group(const struct commit *c, size_t i, size_t *first)
{
    size_t last = i;

    for (*first = i; *first > 0 && c->items[*first - 1].record->with_next;)
        --*first;
    while (last + 1 < c->n_items && c->items[last].record->with_next)
        last++;
    return last + 1;
}

/* Leaves out a record with its group. UNAVAILABLE where nobody can be told of one of them: the
 * commit fails as a whole. */
static enum status commit_refuse(struct commit *c, size_t i, const struct error *why)
{
    size_t at;
    const size_t end = commit_group(c, i, &at);
    enum status rc = STATUS_OK;

    for (; at < end; at++) {
        struct commit_item *item = &c->items[at];

        item->is_refused = true;
        if (item->row != SIZE_MAX)
            c->rows[item->row].is_refused = true;
        if (item->record->refusal != NULL)
            *item->record->refusal = *why;
        else
            rc = STATUS_UNAVAILABLE;
    }
    return rc;
}

static bool needs_conversation(enum journal_kind kind)
{
    return kind == JOURNAL_ACCEPT || kind == JOURNAL_OBSERVE || kind == JOURNAL_UPDATE ||
           kind == JOURNAL_REWIND;
}

/* Whether the process may write the record, as the rows are before it. */
static bool commit_may_write(struct commit *c, struct commit_item *item)
{
    const struct journal_record *r = item->record;
    struct commit_row *row = item->row == SIZE_MAX ? NULL : &c->rows[item->row];
    const struct commit_row *parent;

    if (row == NULL)
        return !c->has_lost[place_of(r)] &&
               (r->owner_epoch == 0 || r->owner_epoch == c->epochs[place_of(r)]);
    if (row->is_refused)
        return false;
    if (r->kind == JOURNAL_OPEN) {
        parent = r->parent == NULL ? NULL : commit_find(c, r->parent);
        if (parent != NULL && (!parent->is_there || !parent->is_mine || parent->is_refused))
            return false;
        row->is_there = row->is_mine = true;
        row->epoch = 1;
        return true;
    }
    item->is_left_out = !row->is_there && !needs_conversation(r->kind);
    if (!row->is_there)
        return item->is_left_out;
    if (r->owner_epoch == 0 && row->is_free)
        row->is_mine = true; /* nobody has it in memory */
    if (!row->is_mine || (r->owner_epoch != 0 && r->owner_epoch != row->epoch))
        return false;
    row->is_there = r->kind != JOURNAL_CLOSE;
    return true;
}

/* An acceptance that comes in the same commit can be withdrawn, too. */
static void commit_find_accepted(struct commit *c, size_t at)
{
    struct commit_item *item = &c->items[at];
    const struct journal_record *of = item->record;

    for (size_t i = 0; i < at; i++) {
        const struct journal_record *r = c->items[i].record;

        if (c->items[i].row != item->row || c->items[i].is_refused || r->turn != of->turn ||
            r->generation != of->generation)
            continue;
        if (r->kind == JOURNAL_ACCEPT)
            item->has_acceptance = true;
        else if (r->kind == JOURNAL_WITHDRAW)
            item->has_acceptance = false;
    }
}

static enum status commit_judge(struct commit *c, struct error *err)
{
    enum status rc = STATUS_OK;
    struct error why;

    (void)postgres_elsewhere(c->s, "what is to be stored is", "which has taken it over", &why);
    for (size_t i = 0; i < c->n_items; i++) {
        c->items[i].is_left_out = false;
        if (!c->items[i].is_refused && !commit_may_write(c, &c->items[i]))
            rc = commit_refuse(c, i, &why) != STATUS_OK ? STATUS_UNAVAILABLE : rc;
    }
    for (size_t i = 0; i < c->n_items; i++)
        if (c->items[i].record->kind == JOURNAL_WITHDRAW && !c->items[i].is_refused)
            commit_find_accepted(c, i);
    if (rc != STATUS_OK)
        *err = why;
    return rc;
}

/* --- the second part --- */

/* Sends a statement of an item. */
static bool commit_send(struct commit *c, size_t item, const char *sql, const struct link_arg *args,
                        size_t n)
{
    if (c->n_sent == c->cap_sent) {
        c->cap_sent = 2 * c->cap_sent + 64;
        c->sent = xrealloc(c->sent, c->cap_sent * sizeof(c->sent[0]));
    }
    c->sent[c->n_sent++] = item;
    return link_send(c->link, sql, args, n);
}

/* The hash of a record, and the value of its conversation's chain behind it. */
static void commit_chain(struct commit *c, const struct commit_item *item,
                         uint8_t content[SHA256_BYTES])
{
    const struct journal_record *r = item->record;
    struct commit_row *row = &c->rows[item->row];
    const struct commit_row *parent =
        r->kind == JOURNAL_OPEN && r->parent != NULL ? commit_find(c, r->parent) : NULL;

    if (parent != NULL)
        memcpy(row->chain, parent->chain, SHA256_BYTES);
    chain_content(&c->s->chain, r, content);
    chain_add(&c->s->chain, row->chain, content);
}

static bool put_event(struct commit *c, size_t i)
{
    const struct journal_record *r = c->items[i].record;
    uint8_t content[SHA256_BYTES];

    commit_chain(c, &c->items[i], content);
    return commit_send(c, i,
                       "INSERT INTO parley.event (conversation, generation, turn, kind, unix_ms,"
                       " body, hash, chain) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                       LINK_ARGS(link_id(r->conversation), link_number(r->generation),
                                 link_number(r->turn), link_number(r->kind),
                                 link_number(r->unix_ms), link_bytes(r->body, r->size_bytes),
                                 link_bytes(content, sizeof(content)),
                                 link_bytes(c->rows[c->items[i].row].chain, SHA256_BYTES)));
}

/* Another conversation of this process loses the name; one of another process keeps it, and the
 * index refuses the record: that process was sooner. */
static bool put_open(struct commit *c, size_t i)
{
    const struct journal_record *r = c->items[i].record;
    uint8_t content[SHA256_BYTES];

    if (r->name != NULL &&
        !commit_send(
            c, i,
            "UPDATE parley.conversation SET name = NULL WHERE principal = $1 AND name = $2"
            " AND " POSTGRES_IS_FREE("owner", "$3"),
            LINK_ARGS(link_text(r->principal), link_text(r->name), link_text(c->s->base.self))))
        return false;
    commit_chain(c, &c->items[i], content);
    return commit_send(
        c, i,
        "WITH e AS (INSERT INTO parley.event (conversation, generation, turn, kind, unix_ms, body,"
        " hash, chain) VALUES ($1, $2, $3, 1, $4, $5, $6, $7) RETURNING seq)"
        " INSERT INTO parley.conversation (id, principal, request_id, name, parent, model, seq,"
        " owner) SELECT $1, $8, $9, $10, $11::uuid, $12, e.seq, $13 FROM e",
        LINK_ARGS(link_id(r->conversation), link_number(r->generation), link_number(r->turn),
                  link_number(r->unix_ms), link_bytes(r->body, r->size_bytes),
                  link_bytes(content, sizeof(content)),
                  link_bytes(c->rows[c->items[i].row].chain, SHA256_BYTES), link_text(r->principal),
                  link_text(r->request_id), link_text(r->name),
                  r->parent == NULL ? link_text(NULL) : link_id(r->parent),
                  link_text(r->model == NULL ? "" : r->model), link_text(c->s->owner)));
}

static bool put_update(struct commit *c, size_t i)
{
    return commit_send(c, i,
                       "UPDATE parley.event SET gone = seq, body = '' WHERE conversation = $1"
                       " AND gone = 0 AND generation = 0 AND turn = 0 AND kind = 2",
                       LINK_ARGS(link_id(c->items[i].record->conversation))) &&
           put_event(c, i);
}

static bool put_withdraw(struct commit *c, size_t i)
{
    struct journal_record bare = *c->items[i].record;
    const struct commit_item item = {.record = &bare, .row = c->items[i].row};
    uint8_t content[SHA256_BYTES];

    bare.size_bytes = 0;
    if (c->items[i].has_acceptance) {
        commit_chain(c, &item, content);
        if (!commit_send(c, i,
                         "WITH w AS (UPDATE parley.event SET gone = seq, body = ''"
                         " WHERE conversation = $1 AND gone = 0 AND generation = $2 AND turn = $3"
                         " AND kind = 3 RETURNING seq)"
                         " INSERT INTO parley.event (conversation, generation, turn, kind, unix_ms,"
                         " body, gone, hash, chain) SELECT $1, $2, $3, 6, $4, '', seq, $5, $6"
                         " FROM w",
                         LINK_ARGS(link_id(bare.conversation), link_number(bare.generation),
                                   link_number(bare.turn), link_number(bare.unix_ms),
                                   link_bytes(content, sizeof(content)),
                                   link_bytes(c->rows[item.row].chain, SHA256_BYTES))))
            return false;
    }
    return commit_send(c, i,
                       "DELETE FROM parley.keyed WHERE conversation = $1 AND generation = $2"
                       " AND turn = $3",
                       LINK_ARGS(link_id(bare.conversation), link_number(bare.generation),
                                 link_number(bare.turn)));
}

/* Deletes the conversation and its parents, as far as they are closed and no other has them as its
 * past. Two forks that two processes close in the same moment may leave a closed parent behind. */
static bool put_close(struct commit *c, size_t i, const uint8_t *id)
{
    return commit_send(c, i,
                       "UPDATE parley.conversation SET is_closed = true, is_listed = false,"
                       " request_id = NULL, name = NULL WHERE id = $1",
                       LINK_ARGS(link_id(id))) &&
           commit_send(c, i, "DELETE FROM parley.keyed WHERE conversation = $1",
                       LINK_ARGS(link_id(id))) &&
           commit_send(
               c, i,
               "WITH RECURSIVE gone(id, parent) AS (SELECT id, parent FROM parley.conversation AS p"
               " WHERE id = $1 AND is_closed AND NOT EXISTS (SELECT FROM parley.conversation AS x"
               " WHERE x.parent = p.id) AND NOT EXISTS (SELECT FROM parley.pin WHERE"
               " pin.conversation = p.id)"
               " UNION ALL SELECT p.id, p.parent FROM parley.conversation AS p JOIN gone"
               " ON p.id = gone.parent WHERE p.is_closed AND NOT EXISTS (SELECT FROM"
               " parley.conversation AS x WHERE x.parent = p.id AND x.id <> gone.id)"
               " AND NOT EXISTS (SELECT FROM parley.pin WHERE pin.conversation = p.id)),"
               " events AS (DELETE FROM parley.event WHERE conversation IN (SELECT id FROM gone))"
               " DELETE FROM parley.conversation WHERE id IN (SELECT id FROM gone)",
               LINK_ARGS(link_id(id)));
}

/* The key may be of a turn of this process, or of one that nobody has: then this turn takes its
 * place. If another process has the key, the division by 0 undoes the transaction. */
static const char put_key[] =
    "WITH k AS (INSERT INTO parley.keyed AS old (principal, key, part, conversation, generation,"
    " turn, unix_ms, until_ms, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    " ON CONFLICT (principal, key, part) DO UPDATE SET conversation = excluded.conversation,"
    " generation = excluded.generation, turn = excluded.turn, unix_ms = excluded.unix_ms,"
    " until_ms = excluded.until_ms, body = excluded.body"
    " WHERE old.conversation = excluded.conversation"
    " OR (old.until_ms > 0 AND old.until_ms < $10)"
    " OR NOT EXISTS (SELECT FROM parley.conversation AS c WHERE c.id = old.conversation"
    " AND split_part(c.owner, '.', 1) <> $11) RETURNING 1)"
    " SELECT 1 / count(*) FROM k";

static bool put_accept(struct commit *c, size_t i)
{
    const struct journal_record *r = c->items[i].record;

    if (!put_event(c, i))
        return false;
    if (r->key == NULL)
        return true;
    return commit_send(c, i, put_key,
                       LINK_ARGS(link_text(r->principal), link_text(r->key), link_number(r->part),
                                 link_id(r->conversation), link_number(r->generation),
                                 link_number(r->turn), link_number(r->unix_ms),
                                 link_number(r->key_until_unix_ms),
                                 link_bytes(r->key_body, r->key_size_bytes),
                                 link_number(r->keys_over_unix_ms), link_text(c->s->base.self))) &&
           (r->key_until_unix_ms == 0 ||
            commit_send(c, i, "UPDATE parley.conversation SET is_listed = false WHERE id = $1",
                        LINK_ARGS(link_id(r->conversation))));
}

/* Parameter sets, whose tables are of an older form than those of other things. */
static bool put_params(struct commit *c, size_t i)
{
    const struct journal_record *r = c->items[i].record;

    if (!commit_send(
            c, i,
            "DELETE FROM parley.block WHERE checkpoint IN (SELECT checkpoint FROM"
            " parley.params WHERE principal = $1 AND name = $2 AND checkpoint <> $3)",
            LINK_ARGS(link_text(r->principal), link_text(r->name), link_id(r->conversation))))
        return false;
    if (r->kind == JOURNAL_CHECKPOINT)
        return commit_send(c, i,
                           "INSERT INTO parley.params (principal, name, checkpoint, body) VALUES"
                           " ($1, $2, $3, $4) ON CONFLICT (principal, name) DO UPDATE SET"
                           " seq = DEFAULT, checkpoint = excluded.checkpoint, body = excluded.body",
                           LINK_ARGS(link_text(r->principal), link_text(r->name),
                                     link_id(r->conversation), link_bytes(r->body, r->size_bytes)));
    return commit_send(c, i, "DELETE FROM parley.block WHERE checkpoint = $1",
                       LINK_ARGS(link_id(r->conversation))) &&
           commit_send(c, i, "DELETE FROM parley.params WHERE principal = $1 AND name = $2",
                       LINK_ARGS(link_text(r->principal), link_text(r->name)));
}

static bool put_kept(struct commit *c, size_t i)
{
    const struct journal_record *r = c->items[i].record;

    if (!commit_send(c, i,
                     "DELETE FROM parley.block WHERE checkpoint IN (SELECT checkpoint FROM"
                     " parley.kept WHERE kind = $1 AND principal = $2 AND name = $3"
                     " AND checkpoint <> $4)",
                     LINK_ARGS(link_number(r->generation), link_text(r->principal),
                               link_text(r->name), link_id(r->conversation))))
        return false;
    if (r->kind == JOURNAL_KEEP)
        return commit_send(c, i,
                           "INSERT INTO parley.kept (kind, principal, name, checkpoint, n_blocks,"
                           " body) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (kind, principal,"
                           " name) DO UPDATE SET seq = DEFAULT, checkpoint = excluded.checkpoint,"
                           " n_blocks = excluded.n_blocks, body = excluded.body",
                           LINK_ARGS(link_number(r->generation), link_text(r->principal),
                                     link_text(r->name), link_id(r->conversation),
                                     link_number(r->turn), link_bytes(r->body, r->size_bytes)));
    return commit_send(c, i, "DELETE FROM parley.block WHERE checkpoint = $1",
                       LINK_ARGS(link_id(r->conversation))) &&
           commit_send(
               c, i, "DELETE FROM parley.kept WHERE kind = $1 AND principal = $2 AND name = $3",
               LINK_ARGS(link_number(r->generation), link_text(r->principal), link_text(r->name)));
}

static bool commit_put(struct commit *c, size_t i)
{
    const struct journal_record *r = c->items[i].record;

    switch (r->kind) {
    case JOURNAL_OPEN:
        return put_open(c, i);
    case JOURNAL_UPDATE:
        return put_update(c, i);
    case JOURNAL_WITHDRAW:
        return put_withdraw(c, i);
    case JOURNAL_CLOSE:
        return put_close(c, i, r->conversation);
    case JOURNAL_ACCEPT:
        return put_accept(c, i);
    case JOURNAL_FINISH:
    case JOURNAL_OBSERVE:
    case JOURNAL_REWIND:
        return put_event(c, i);
    case JOURNAL_BLOCK:
        return commit_send(c, i,
                           "INSERT INTO parley.block (checkpoint, number, body, kind) VALUES"
                           " ($1, $2, $3, $4) ON CONFLICT (checkpoint, number) DO UPDATE SET"
                           " body = excluded.body",
                           LINK_ARGS(link_id(r->conversation), link_number(r->turn),
                                     link_bytes(r->body, r->size_bytes), link_number(place_of(r))));
    case JOURNAL_CHECKPOINT:
    case JOURNAL_NO_PARAMS:
        return put_params(c, i);
    case JOURNAL_KEEP:
    case JOURNAL_FORGET:
        return put_kept(c, i);
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

static bool commit_write(struct commit *c)
{
    c->n_sent = 0;
    for (size_t i = 0; i < c->n_items; i++)
        if (!c->items[i].is_refused && !c->items[i].is_left_out && !commit_put(c, i))
            return false;
    for (size_t i = 0; i < c->n_expired; i++)
        if (!put_close(c, SIZE_MAX, c->expired[i]))
            return false;
    return link_sync(c->link);
}

/* Takes the results. *ret_item: whose statement failed; code and err say why. */
static bool commit_settle(struct commit *c, size_t *ret_item, struct error *err)
{
    bool is_done = true;
    char code[sizeof(c->link->code)] = "";
    struct error ignored;

    *ret_item = SIZE_MAX;
    for (size_t i = 0; i < c->n_sent; i++) {
        PGresult *r = link_take(c->link, is_done ? err : &ignored);

        if (r != NULL) {
            c->link->pq->PQclear(r);
        } else if (c->link->c == NULL) {
            return false;
        } else if (is_done) {
            is_done = false;
            *ret_item = c->sent[i];
            memcpy(code, c->link->code, sizeof(code));
        }
    }
    if (!link_take_sync(c->link, is_done ? err : &ignored)) {
        *ret_item = SIZE_MAX;
        return false;
    }
    memcpy(c->link->code, code, sizeof(code));
    return is_done;
}

/* --- the commit --- */

/* A rule of the tables was broken; or the division of put_key. */
static bool is_of_record(const char *code)
{
    return strncmp(code, "23", 2) == 0 || strcmp(code, "22012") == 0;
}

static bool is_passing(const char *code)
{
    return strncmp(code, "40", 2) == 0 || strcmp(code, "55P03") == 0;
}

/* One attempt. *ret_again: the transaction was undone, and can be written after all. */
static enum status commit_try(struct commit *c, bool *ret_again, struct error *err)
{
    struct error why;
    bool is_done;
    size_t item = SIZE_MAX;

    *ret_again = false;
    c->link->code[0] = '\0';
    if (!commit_look(c, err)) {
        *ret_again = is_passing(c->link->code);
        if (c->link->c != NULL && (!link_sync(c->link) || !link_take_sync(c->link, &why)))
            link_close(&c->s->link);
        if (err->status == STATUS_OK) /* it could not even be sent */
            (void)postgres_lost(c->s, err);
        return err->status;
    }
    if (commit_judge(c, err) != STATUS_OK) {
        if (!link_sync(c->link) || !link_take_sync(c->link, &why))
            link_close(&c->s->link);
        return err->status;
    }
    if (!commit_write(c)) {
        link_close(&c->s->link); /* without a sync nothing is stored */
        return postgres_lost(c->s, err);
    }
    is_done = commit_settle(c, &item, err);
    if (is_done)
        return STATUS_OK;
    if (c->link->c != NULL && item != SIZE_MAX && is_of_record(c->link->code)) {
        (void)postgres_elsewhere(c->s, "the turn, the name or the key was just stored",
                                 "which was sooner", &why);
        *ret_again = commit_refuse(c, item, &why) == STATUS_OK;
    } else if (c->link->c != NULL) {
        *ret_again = is_passing(c->link->code);
    }
    return err->status;
}

static enum status commit_all(struct commit *c, struct error *err)
{
    bool is_again = true;
    enum status rc = STATUS_OK;

    commit_collect(c);
    c->expired = xalloc((c->n_keys_over + 1) * sizeof(c->expired[0]));
    if (!commit_write_ids(c) || !commit_write_places(c))
        return error_no_memory(err, c->ids.len, "the ids of a transaction");
    for (int i = 0; i < JOURNAL_N_PLACES && rc == STATUS_OK; i++)
        if (c->has_place[i] && c->s->place_epochs[i] == 0)
            rc = postgres_take_things(c->s, (enum journal_place)i, false, err);
    /* Each record may be left out once, and a deadlock passes. */
    for (size_t i = 0; rc == STATUS_OK && is_again && i < COMMIT_TRIES + c->n_items; i++) {
        *err = (struct error){0};
        if (commit_try(c, &is_again, err) == STATUS_OK)
            return STATUS_OK;
    }
    return err->status;
}

enum status postgres_commit(struct journal_store *base, const struct journal_record *const *records,
                            size_t n, struct error *err)
{
    struct postgres_store *s = postgres_store_of(base);
    struct commit c = {.s = s, .link = &s->link, .n_items = n};
    enum status rc = postgres_connect(s, err);

    if (rc != STATUS_OK)
        return rc;
    if (n == 0)
        return link_do(&s->link, "UPDATE parley.meta SET value = value WHERE key = 'secret'", NULL,
                       0, err)
                   ? STATUS_OK
                   : err->status;
    buf_init(&c.ids, SIZE_MAX);
    buf_init(&c.places, SIZE_MAX);
    c.items = xalloc(n * sizeof(c.items[0]));
    for (size_t i = 0; i < n; i++)
        c.items[i].record = records[i];
    rc = commit_all(&c, err);
    buf_deinit(&c.ids);
    buf_deinit(&c.places);
    free(c.items);
    free(c.rows);
    free(c.expired);
    free(c.sent);
    return rc;
}
