/* Happy path: a request with a new key opens a reply and adds its turns. The reply
 * itself reads each turn, which keeps the turn running. When all turns are completed the reply is
 * complete. It is kept with its turns until it is too old, or the oldest of too many.
 *
 * Failures: if a turn fails, the whole reply is removed, so that a retry generates again. If all
 * readers leave before the end, it continues for the linger time and is then cancelled; the reply
 * so far is kept. The end of a turn is noted inside calls of the turn, and handled outside of them,
 * by the next tick or find. */
#include "server/conversation/keyed_replies.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "base/env.h"
#include "server/conversation/body.h"
#include "server/conversation/keeping.h"
#include "server/model/model.h"

static const struct limit_kind kind_of_keyed_replies = {"replies under an Idempotency-Key", NULL,
                                                        "Idempotency-Key"};
static const struct limit_kind kind_of_keyed_bytes = {"bytes of replies under an Idempotency-Key",
                                                      NULL, "Idempotency-Key"};

#define KEYED_MAX_BYTES ((size_t)1 << 30)
#define KEYED_TTL_US ((uint64_t)24 * 60 * 60 * 1000 * 1000)

enum { KEYED_MAX_REPLIES = 100000, KEYED_RETRY_MS = 1000 };
enum { CANCEL_AGAIN_US = 1000 * 1000 }; /* a turn that others read may be left alone later */
/* A request finds its reply after it has waited for other things, too. */
#define KEYED_LEAST_US ((uint64_t)60 * 1000 * 1000)

static const uint32_t keyed_moves[] = {
    [KEYED_RUNNING] = 1u << KEYED_COMPLETE | 1u << KEYED_FORGOTTEN,
    [KEYED_COMPLETE] = 1u << KEYED_FORGOTTEN,
    [KEYED_FORGOTTEN] = 0,
};

static void keyed_reply_move(struct keyed_reply *r, enum keyed_state to)
{
    assert((keyed_moves[r->state] & 1u << to) != 0);
    r->state = to;
}

static uint64_t keyed_now_us(const struct keyed_replies *k)
{
    return env_now_us(k->config.env);
}

static struct keyed_reply *first_reply(const struct list *list)
{
    struct link *first = list_first(list);

    return first == NULL ? NULL : container_of(first, struct keyed_reply, link);
}

/* Arms the timer for the earliest end of a linger time, or the earliest expiry. */
static void keyed_replies_arm(struct keyed_replies *k)
{
    const struct list *lists[] = {&k->lingering, &k->complete, &k->stored};
    uint64_t at_us = list_is_empty(&k->ended) ? 0 : keyed_now_us(k);

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        const struct keyed_reply *first = first_reply(lists[i]);

        if (first != NULL && (at_us == 0 || first->due_us < at_us))
            at_us = first->due_us;
    }
    alarm_set(k->config.alarm, at_us);
}

/* --- the end of a reply --- */

static void keyed_reply_free(struct keyed_reply *r)
{
    free(r->turns);
    free(r->instructions);
    free(r->model);
    free(r->version);
    free(r);
}

static struct conversation *keyed_turn_conversation(const struct keyed_turn *t)
{
    return t->is_ephemeral
               ? conversations_get(t->reply->all->config.conversations, &t->conversation)
               : NULL;
}

/* The turn is complete, and its conversation has no other. A kept one stays in the journal as long
 * as the reply. */
static void keyed_turn_put_away(struct keyed_turn *t)
{
    static const char why[] = "its request is answered";
    struct conversation *c = keyed_turn_conversation(t);

    if (c != NULL && t->is_kept)
        conversation_put_away(c, why);
    else if (c != NULL)
        conversation_close(c, WATCH_CLOSED, why);
}

/* The reply is not kept any more, nor is what the journal has of it. */
static void keyed_turn_forget(struct keyed_turn *t)
{
    struct conversation *c = keyed_turn_conversation(t);

    if (c != NULL)
        conversation_close(c, WATCH_CLOSED, "its request is answered");
    else if (t->is_ephemeral && t->is_kept && !t->reply->all->is_stopped)
        conversations_forget(t->reply->all->config.conversations, &t->conversation);
    t->is_ephemeral = false;
}

/* A turn was lost: the journal has what is true of it, and may have accepted it. */
static bool keyed_reply_is_lost(const struct keyed_reply *r)
{
    for (size_t i = 0; i < r->n_turns; i++) {
        const struct keyed_turn *t = &r->turns[i];

        if (t->is_kept && t->reader.turn == NULL && t->reader.completed == NULL &&
            t->reader.err.status == STATUS_UNAVAILABLE)
            return true;
    }
    return false;
}

/* Removes it from the table; r is freed if nobody reads it. */
static void keyed_reply_drop(struct keyed_reply *r)
{
    struct keyed_replies *k = r->all;
    const bool is_lost = keyed_reply_is_lost(r);

    if (r->state == KEYED_COMPLETE) {
        list_remove(&r->of_owner);
        shared_limit_give(&k->bytes, r->principal, r->size_bytes);
    }
    shared_limit_give(&k->limit, r->principal, 1);
    keyed_reply_move(r, KEYED_FORGOTTEN);
    hash_remove(&k->by_key, &r->by_key);
    list_remove(&r->link);
    for (size_t i = 0; i < r->n_turns; i++) {
        struct conversation *c = is_lost ? keyed_turn_conversation(&r->turns[i]) : NULL;

        if (c != NULL)
            conversation_unload(c); /* its turns are not stored as cancelled */
        reader_close(&r->turns[i].reader, STATUS_CANCELLED);
        if (!is_lost)
            keyed_turn_forget(&r->turns[i]);
    }
    if (link_is_on(&r->ended)) /* by the readers, too */
        list_remove(&r->ended);
    if (r->n_joined == 0)
        keyed_reply_free(r);
}

/* Out of memory; what the journal has of it stays, for its time. */
static void keyed_reply_evict(struct keyed_reply *r)
{
    for (size_t i = 0; i < r->n_turns; i++)
        if (r->turns[i].is_kept)
            r->turns[i].is_ephemeral = false;
    keyed_reply_drop(r);
}

static size_t turn_bytes(const struct completed_turn *t)
{
    size_t n_tops = t->logprobs == NULL ? 0 : t->logprobs[t->n_tokens - 1].tops_end;

    return t->total_bytes + n_tops * sizeof(t->tops[0]) +
           (t->logprobs == NULL ? 0 : t->n_tokens * sizeof(t->logprobs[0]));
}

/* The principal's complete reply that is the first to go; NULL: it has none. */
static struct keyed_reply *keyed_first_of(struct keyed_replies *k, uint32_t principal)
{
    struct link *l = list_first(owner_lists_get(&k->complete_of, principal));

    return l == NULL ? NULL : container_of(l, struct keyed_reply, of_owner);
}

/* Whether it leaves memory before its time is over, since the journal has all its turns. */
static bool keyed_reply_may_leave(const struct keyed_reply *r)
{
    const uint64_t unload_us = r->all->config.conversations->config.unload_us;

    if (unload_us == 0 || unload_us >= r->all->config.ttl_us)
        return false;
    for (size_t i = 0; i < r->n_turns; i++)
        if (!r->turns[i].is_kept)
            return false;
    return true;
}

/* How long a complete reply stays in memory. */
static uint64_t keyed_stay_us(const struct keyed_reply *r)
{
    const uint64_t unload_us = r->all->config.conversations->config.unload_us;

    if (!r->is_stored)
        return r->all->config.ttl_us;
    return unload_us < KEYED_LEAST_US ? KEYED_LEAST_US : unload_us;
}

/* The first that may go without a request that would miss it: one that the journal has. */
static struct keyed_reply *keyed_first_complete(const struct keyed_replies *k)
{
    struct keyed_reply *stored = first_reply(&k->stored);

    return stored != NULL ? stored : first_reply(&k->complete);
}

static void keyed_reply_complete(struct keyed_reply *r)
{
    struct keyed_replies *k = r->all;
    const uint32_t principal = r->principal; /* r may be freed */

    keyed_reply_move(r, KEYED_COMPLETE);
    r->is_stored = keyed_reply_may_leave(r);
    r->size_bytes = sizeof(*r) + strlen(r->key) + r->n_turns * sizeof(r->turns[0]);
    for (size_t i = 0; i < r->n_turns; i++)
        r->size_bytes += turn_bytes(r->turns[i].reader.completed);
    r->due_us = keyed_now_us(k) + keyed_stay_us(r);
    list_remove(&r->link);
    list_push(r->is_stored ? &k->stored : &k->complete, &r->link);
    list_push(owner_lists_get(&k->complete_of, r->principal), &r->of_owner);
    shared_limit_hold(&k->bytes, r->principal, r->size_bytes);
    while (shared_limit_held_by(&k->bytes, principal) > shared_limit_part(&k->bytes, principal))
        keyed_reply_evict(keyed_first_of(k, principal));
    while (k->bytes.held > k->bytes.max)
        keyed_reply_evict(keyed_first_complete(k));
}

/* Handles the end of turns. r may be freed. */
static void keyed_reply_settle(struct keyed_reply *r)
{
    bool has_failed = false;
    size_t n_running = 0;

    if (link_is_on(&r->ended))
        list_remove(&r->ended);
    for (size_t i = 0; i < r->n_turns; i++) {
        struct keyed_turn *t = &r->turns[i];

        n_running += t->reader.turn != NULL;
        if (t->reader.turn != NULL)
            continue;
        has_failed = has_failed || t->reader.completed == NULL || t->reader.err.status != STATUS_OK;
        if (t->reader.completed != NULL)
            keyed_turn_put_away(t);
    }
    if (has_failed)
        keyed_reply_drop(r);
    else if (n_running == 0)
        keyed_reply_complete(r);
}

/* A turn has something new, of which only its end matters. */
static void on_keyed_turn(void *arg)
{
    struct keyed_turn *t = arg;
    struct keyed_reply *r = t->reply;

    if (t->reader.turn != NULL || link_is_on(&r->ended))
        return;
    list_push(&r->all->ended, &r->ended);
    keyed_replies_arm(r->all);
}

/* --- lingering --- */

static bool is_only_reader(const struct turn_reader *r)
{
    return list_first(&r->turn->readers) == &r->link && list_last(&r->turn->readers) == &r->link;
}

/* The turn is left to the next process, if this one stops. Its end settles the reply. */
static bool keyed_turn_suspend(const struct keyed_turn *t)
{
    struct conversations *all = t->reply->all->config.conversations;
    struct conversation *c =
        t->reply->all->is_draining ? conversations_get(all, &t->conversation) : NULL;

    return c != NULL && c->host.n_live == 1 && conversation_suspend(c);
}

/* The turns end with what they have said, but for detached ones and those that others read on. */
static void keyed_reply_cancel(struct keyed_reply *r)
{
    for (size_t i = 0; i < r->n_turns; i++) {
        struct turn_reader *reader = &r->turns[i].reader;

        if (reader->turn != NULL && is_only_reader(reader) && keyed_turn_suspend(&r->turns[i]))
            continue;
        if (reader->turn != NULL && is_only_reader(reader) && !turn_is_detached(reader->turn))
            turn_end(reader->turn, FINISH_CANCELLED);
    }
}

static void keyed_reply_linger(struct keyed_reply *r, uint64_t for_us)
{
    struct keyed_replies *k = r->all;

    r->due_us = keyed_now_us(k) + for_us;
    list_remove(&r->link);
    list_push(&k->lingering, &r->link);
}

/* --- joining --- */

void keyed_reply_join(struct keyed_reply *r)
{
    r->n_joined++;
    if (r->state != KEYED_RUNNING)
        return;
    list_remove(&r->link);
    list_push(&r->all->attended, &r->link);
}

void keyed_reply_attach(const struct keyed_reply *r, size_t i, struct turn_reader *reader)
{
    const struct turn_reader *own = &r->turns[i].reader;

    if (own->turn != NULL) {
        turn_attach(own->turn, reader);
    } else {
        turn_attach_completed(own->completed, r->turns[i].generation, reader);
        reader->err = own->err;
    }
}

static void leave_running(struct keyed_reply *r)
{
    keyed_reply_linger(r, r->all->config.linger_us);
    if (r->all->is_draining)
        keyed_reply_cancel(r);
    keyed_replies_arm(r->all);
}

void keyed_reply_leave(struct keyed_reply *r)
{
    assert(r->n_joined > 0);
    if (--r->n_joined > 0)
        return;
    if (r->state == KEYED_FORGOTTEN)
        keyed_reply_free(r);
    else if (r->state == KEYED_RUNNING)
        leave_running(r);
}

void keyed_reply_forget(struct keyed_reply *r)
{
    if (r->state != KEYED_FORGOTTEN)
        keyed_reply_drop(r);
}

void keyed_reply_name(struct keyed_reply *r, const char *id, uint64_t created_s)
{
    assert(strlen(id) < sizeof(r->id));
    memcpy(r->id, id, strlen(id) + 1);
    r->created_s = created_s;
}

void keyed_reply_add(struct keyed_reply *r, size_t i, const struct conversation *c,
                     bool is_ephemeral, const struct turn_reader *reader)
{
    struct keyed_turn *t = &r->turns[i];

    t->conversation = c->id;
    t->number = reader->turn->number;
    t->generation = c->host.generation;
    t->is_ephemeral = is_ephemeral;
    t->is_kept = c->host.is_kept;
    turn_attach(reader->turn, &t->reader);
}

enum status keyed_reply_key(const struct keyed_reply *r, size_t i, const struct conversation *c,
                            bool is_ephemeral, struct turn_key *out, struct buf *body,
                            struct error *err)
{
    struct body_key key = {
        .n_turns = (uint32_t)r->n_turns,
        .is_ephemeral = is_ephemeral,
        .created_s = r->created_s,
        .id = r->id,
        .model = r->model,
        .version = r->version,
        .instructions = r->instructions,
    };

    memcpy(key.conversation, c->id.bytes, sizeof(key.conversation));
    memcpy(key.digest, r->digest, sizeof(key.digest));
    if (body_write_key(body, &key, err) != STATUS_OK)
        return err->status;
    *out = (struct turn_key){r->key, (uint32_t)i, body->data, body->len, 0};
    if (is_ephemeral) /* from the end of the turn, which is later */
        out->until_unix_ms = conversations_unix_ms(c->all) + 2 * r->all->config.ttl_us / 1000;
    return STATUS_OK;
}

/* --- the table --- */

static enum status check_reply_key(const char *key, struct error *err)
{
    size_t len = strnlen(key, KEYED_KEY_MAX + 1), n_good = 0;

    while (n_good < len && key[n_good] >= ' ' && key[n_good] <= '~')
        n_good++;
    if (len > 0 && len <= KEYED_KEY_MAX && n_good == len)
        return STATUS_OK;
    return error_field(err, "Idempotency-Key", "has 1 to %d printable ASCII characters",
                       KEYED_KEY_MAX);
}

static struct keyed_reply *keyed_replies_get(const struct keyed_replies *k, uint32_t principal,
                                             const char *key)
{
    struct hash_node *node = hash_first(&k->by_key, hash_text(&k->by_key, principal, key));

    for (; node != NULL; node = hash_next(node)) {
        struct keyed_reply *r = container_of(node, struct keyed_reply, by_key);

        if (r->principal == principal && strcmp(r->key, key) == 0)
            return r;
    }
    return NULL;
}

bool keyed_replies_lack(const struct keyed_replies *k, uint32_t principal, const char *key)
{
    struct error ignored;

    return check_reply_key(key, &ignored) == STATUS_OK &&
           keyed_replies_get(k, principal, key) == NULL;
}

enum status keyed_replies_find(struct keyed_reply **out, struct keyed_replies *k,
                               uint32_t principal, const char *key,
                               const uint8_t digest[SHA256_BYTES], struct error *err)
{
    if (check_reply_key(key, err) != STATUS_OK)
        return err->status;
    keyed_replies_tick(k); /* what has failed or is too old is not found */
    *out = keyed_replies_get(k, principal, key);
    if (*out == NULL || memcmp((*out)->digest, digest, SHA256_BYTES) == 0)
        return STATUS_OK;
    return error_because(err, STATUS_EXISTS, REASON_TURN_BODY_DIFFERS, "Idempotency-Key",
                         "Idempotency-Key was used before with another request");
}

static enum status make_room(struct keyed_replies *k, uint32_t principal, struct error *err)
{
    const bool is_own = shared_limit_is_full_for(&k->limit, principal);
    struct keyed_reply *first = is_own ? keyed_first_of(k, principal) : keyed_first_complete(k);

    if (shared_limit_check(&k->limit, principal, 1, err) == STATUS_OK)
        return STATUS_OK;
    if (first != NULL) {
        if (first->is_stored)
            keyed_reply_evict(first);
        else
            keyed_reply_drop(first);
        return STATUS_OK;
    }
    err->retry_after_ms = KEYED_RETRY_MS;
    return err->status;
}

static enum status keyed_reply_copy(struct keyed_reply *r, const char *model, const char *version,
                                    const char *instructions, struct error *err)
{
    r->turns = try_alloc(r->n_turns, sizeof(r->turns[0]));
    r->model = try_strndup(model, strlen(model));
    r->version = try_strndup(version, strlen(version));
    if (instructions != NULL)
        r->instructions = try_strndup(instructions, strlen(instructions));
    if (r->turns == NULL || r->model == NULL || r->version == NULL ||
        (instructions != NULL && r->instructions == NULL))
        return error_no_memory(err, r->n_turns * sizeof(r->turns[0]), "a request with a key");
    return STATUS_OK;
}

static enum status keyed_reply_new(struct keyed_reply **out, struct keyed_replies *k,
                                   uint32_t principal, const char *key, const struct body_key *what,
                                   struct error *err)
{
    struct keyed_reply *r;

    if (make_room(k, principal, err) != STATUS_OK)
        return err->status;
    r = try_alloc(1, sizeof(*r) + strlen(key) + 1);
    if (r == NULL)
        return error_no_memory(err, sizeof(*r), "a request with a key");
    r->all = k;
    r->principal = principal;
    r->n_joined = 1;
    r->n_turns = what->n_turns;
    memcpy(r->digest, what->digest, SHA256_BYTES);
    memcpy(r->key, key, strlen(key) + 1);
    if (keyed_reply_copy(r, what->model, what->version, what->instructions, err) != STATUS_OK) {
        keyed_reply_free(r);
        return err->status;
    }
    for (size_t i = 0; i < r->n_turns; i++) {
        r->turns[i].reply = r;
        reader_init(&r->turns[i].reader, on_keyed_turn, &r->turns[i]);
    }
    shared_limit_hold(&k->limit, principal, 1);
    hash_add(&k->by_key, &r->by_key, hash_text(&k->by_key, principal, key));
    list_push(&k->attended, &r->link);
    *out = r;
    return STATUS_OK;
}

enum status keyed_reply_open(struct keyed_reply **out, struct keyed_replies *k, uint32_t principal,
                             const char *key, const uint8_t digest[SHA256_BYTES],
                             const struct model *model, const char *instructions, size_t n_turns,
                             struct error *err)
{
    struct body_key what = {.n_turns = (uint32_t)n_turns,
                            .model = model->name,
                            .version = model->info.version,
                            .instructions = instructions};

    memcpy(what.digest, digest, SHA256_BYTES);
    return keyed_reply_new(out, k, principal, key, &what, err);
}

/* --- from the journal --- */

static struct journal_event *first_part(const struct list *parts)
{
    return container_of(list_first(parts), struct journal_event, link);
}

/* The turn runs, or is complete; NULL if its conversation is not there any more. */
static enum status keyed_turn_restore(struct keyed_turn *t, struct conversation **out,
                                      const struct journal_event *part, struct arena *arena,
                                      struct error *err)
{
    const struct keyed_reply *r = t->reply;
    const struct turn_request again = {
        .number = part->turn,
        .resume = {.is_wanted = true, .generation = part->generation},
    };
    struct conversation *c;
    struct body_key key;

    if (body_read_key(&key, part->body, part->size_bytes, arena, err) != STATUS_OK)
        return err->status;
    memcpy(t->conversation.bytes, key.conversation, sizeof(t->conversation.bytes));
    c = conversations_get_of(r->all->config.conversations, r->principal, &t->conversation);
    if (c == NULL) {
        *out = NULL;
        return STATUS_OK;
    }
    if (c->host.generation != part->generation)
        return error_because(err, STATUS_PRECONDITION, REASON_TURN_NOT_FOUND, "Idempotency-Key",
                             "the turn of this Idempotency-Key was dropped by a rewind");
    t->number = part->turn;
    t->generation = part->generation;
    t->is_ephemeral = key.is_ephemeral;
    t->is_kept = true;
    *out = c;
    return conversation_turn(c, &again, &t->reader, err);
}

/* Out of the table, without an effect on what the journal has. */
static void keyed_reply_let_go(struct keyed_reply *r)
{
    for (size_t i = 0; i < r->n_turns; i++) {
        struct conversation *c = keyed_turn_conversation(&r->turns[i]);

        if (c != NULL)
            conversation_unload(c);
        r->turns[i].is_ephemeral = false;
    }
    keyed_reply_drop(r);
    keyed_reply_leave(r);
}

/* When the turn of a conversation that was just looked up was done, as far as this process knows.
 */
static uint64_t keyed_done_us(const struct keyed_replies *k, const struct conversation *c)
{
    return c->is_idle_known ? c->host.last_done_us : keyed_now_us(k);
}

enum status keyed_reply_restore(struct keyed_reply **out, struct keyed_replies *k,
                                uint32_t principal, const char *key, const struct list *parts,
                                bool is_gone, struct error *err)
{
    const struct link *at = list_first(parts);
    uint64_t done_us = 0;
    bool is_ephemeral = false;
    struct keyed_reply *r = NULL;
    struct conversation *c = NULL;
    struct body_key what;
    struct arena arena;
    size_t n = 0;
    enum status rc;

    arena_init(&arena, KEYED_MAX_BYTES);
    rc = body_read_key(&what, first_part(parts)->body, first_part(parts)->size_bytes, &arena, err);
    if (rc == STATUS_OK && (strlen(what.id) >= KEYED_ID_CHARS || what.n_turns == 0))
        rc = error_set(err, STATUS_DATA_LOSS, "the journal has a key that is not correct");
    if (rc == STATUS_OK)
        rc = keyed_reply_new(&r, k, principal, key, &what, err);
    if (rc == STATUS_OK)
        keyed_reply_name(r, what.id, what.created_s);
    for (; rc == STATUS_OK && at != NULL && n < what.n_turns; at = list_next(parts, at), n++) {
        rc = keyed_turn_restore(&r->turns[n], &c, container_of(at, struct journal_event, link),
                                &arena, err);
        if (rc == STATUS_OK && c == NULL && !is_gone) {
            rc = error_set(err, STATUS_UNAVAILABLE,
                           "a conversation of the reply has just left memory: ask again");
            err->retry_after_ms = KEYED_RETRY_MS;
        }
        if (rc == STATUS_OK && c == NULL)
            break;
        if (rc == STATUS_OK && keyed_done_us(k, c) > done_us)
            done_us = keyed_done_us(k, c);
        is_ephemeral = is_ephemeral || r->turns[n].is_ephemeral;
    }
    if (r != NULL && (rc != STATUS_OK || n < what.n_turns)) {
        keyed_reply_let_go(r);
        r = NULL;
    }
    arena_deinit(&arena);
    if (rc != STATUS_OK)
        return rc;
    if (r != NULL)
        keyed_reply_settle(r);
    if (r != NULL && r->state == KEYED_COMPLETE && is_ephemeral &&
        keyed_now_us(k) - done_us >= k->config.ttl_us)
        keyed_reply_drop(r); /* its time has passed while it was not in memory */
    *out = r;
    return STATUS_OK;
}

void keyed_replies_tick(void *replies)
{
    struct keyed_replies *k = replies;
    uint64_t now_us = keyed_now_us(k);
    struct keyed_reply *r;

    while (!list_is_empty(&k->ended))
        keyed_reply_settle(container_of(list_first(&k->ended), struct keyed_reply, ended));
    while ((r = first_reply(&k->lingering)) != NULL && r->due_us <= now_us) {
        keyed_reply_linger(r, k->config.linger_us + CANCEL_AGAIN_US);
        keyed_reply_cancel(r);
    }
    while ((r = first_reply(&k->complete)) != NULL && r->due_us <= now_us)
        keyed_reply_drop(r);
    while ((r = first_reply(&k->stored)) != NULL && r->due_us <= now_us)
        keyed_reply_evict(r);
    keyed_replies_arm(k);
}

void keyed_replies_drain(void *replies)
{
    struct keyed_replies *k = replies;
    struct link *at;

    k->is_draining = true;
    for (at = list_first(&k->lingering); at != NULL; at = list_next(&k->lingering, at))
        keyed_reply_cancel(container_of(at, struct keyed_reply, link));
}

static size_t or_default(size_t value, size_t otherwise)
{
    return value == 0 ? otherwise : value;
}

void keyed_replies_init(struct keyed_replies *k, const struct keyed_replies_config *config)
{
    *k = (struct keyed_replies){.config = *config};
    k->config.max_replies = or_default(config->max_replies, KEYED_MAX_REPLIES);
    k->config.max_bytes = or_default(config->max_bytes, KEYED_MAX_BYTES);
    k->config.ttl_us = config->ttl_us == 0 ? KEYED_TTL_US : config->ttl_us;
    shared_limit_init(&k->limit, &kind_of_keyed_replies, k->config.max_replies);
    shared_limit_init(&k->bytes, &kind_of_keyed_bytes, k->config.max_bytes);
    hash_init(&k->by_key, config->env);
    list_init(&k->attended);
    list_init(&k->lingering);
    list_init(&k->complete);
    list_init(&k->stored);
    list_init(&k->ended);
}

void keyed_replies_deinit(void *replies)
{
    struct keyed_replies *k = replies;
    const struct list *lists[] = {&k->attended, &k->lingering, &k->complete, &k->stored};
    struct keyed_reply *r;

    k->is_stopped = true;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        while ((r = first_reply(lists[i])) != NULL)
            keyed_reply_drop(r);
    owner_lists_deinit(&k->complete_of);
    shared_limit_deinit(&k->limit);
    shared_limit_deinit(&k->bytes);
    hash_deinit(&k->by_key);
}
