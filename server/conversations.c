#include "server/conversations.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/conversation.h"

enum { FIRST_BUCKETS = 64, DRAW_TRIES = 4 };

static void set_default(size_t *value, size_t otherwise)
{
    if (*value == 0)
        *value = otherwise;
}

enum status conversations_init(struct conversations *all, const struct conversations_config *config,
                               struct error *err)
{
    struct conversations a = {.config = *config};

    set_default(&a.config.max_conversations, 1000000);
    set_default(&a.config.max_queued_turns, 16);
    set_default(&a.config.max_turns, 1000000);
    set_default(&a.config.max_transcript_bytes, (size_t)64 << 20);
    set_default(&a.config.max_reply_bytes, (size_t)4 << 20);
    set_default(&a.config.max_arena_bytes, (size_t)64 << 20);
    if (a.config.ttl_ms == 0)
        a.config.ttl_ms = (uint64_t)24 * 60 * 60 * 1000;
    a.n_buckets = FIRST_BUCKETS;
    a.table = try_alloc(a.n_buckets, sizeof(a.table[0]));
    if (a.table == NULL)
        return error_no_memory(err, a.n_buckets * sizeof(a.table[0]), "conversations");
    a.start_us = env_now_us(config->env);
    expiry_init(&a.expiry);
    *all = a;
    /* These point to themselves, so they cannot be moved into place. */
    list_init(&all->newest_first);
    watch_ring_init(&all->watch);
    return STATUS_OK;
}

void conversations_deinit(struct conversations *all)
{
    if (all->table == NULL)
        return;
    assert(all->n == 0 && all->n_live == 0 && all->n_closing == 0);
    watch_ring_deinit(&all->watch);
    expiry_deinit(&all->expiry);
    free(all->table);
    all->table = NULL;
}

void conversation_id_format(const struct conversation_id *id, char out[CONVERSATION_ID_CHARS])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < CONVERSATION_ID_BYTES; i++) {
        out[2 * i] = digits[id->bytes[i] >> 4];
        out[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    out[CONVERSATION_ID_CHARS - 1] = '\0';
}

/* -1: no digit. */
static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

bool conversation_id_parse(struct conversation_id *out, const char *text)
{
    struct conversation_id id;

    if (strnlen(text, CONVERSATION_ID_CHARS) != CONVERSATION_ID_CHARS - 1)
        return false;
    for (size_t i = 0; i < CONVERSATION_ID_BYTES; i++) {
        int high = hex_value(text[2 * i]);
        int low = hex_value(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        id.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *out = id;
    return true;
}

/* Ids are random: any part of one is its hash. */
static struct conversation **bucket_of(const struct conversations *all,
                                       const struct conversation_id *id)
{
    uint64_t hash;

    memcpy(&hash, id->bytes, sizeof(hash));
    return &all->table[hash & (all->n_buckets - 1)];
}

struct conversation *conversations_get(const struct conversations *all,
                                       const struct conversation_id *id)
{
    struct conversation *c = *bucket_of(all, id);

    while (c != NULL && memcmp(&c->id, id, sizeof(*id)) != 0)
        c = c->in_bucket;
    return c;
}

enum status conversations_find(struct conversation **out, const struct conversations *all,
                               const char *text, struct error *err)
{
    struct conversation_id id;
    struct conversation *c = NULL;

    if (conversation_id_parse(&id, text))
        c = conversations_get(all, &id);
    if (c == NULL)
        return error_set(err, STATUS_NOT_FOUND, "there is no conversation '%.64s'", text);
    *out = c;
    return STATUS_OK;
}

/* Twice the buckets; without memory chains get longer, which does no harm. */
static void grow(struct conversations *all)
{
    size_t n_old = all->n_buckets;
    struct conversation **old = all->table;
    struct conversation **table = try_alloc(2 * n_old, sizeof(table[0]));

    if (table == NULL)
        return;
    all->table = table;
    all->n_buckets = 2 * n_old;
    for (size_t i = 0; i < n_old; i++) {
        struct conversation *c = old[i];

        while (c != NULL) {
            struct conversation *next = c->in_bucket;
            struct conversation **bucket = bucket_of(all, &c->id);

            c->in_bucket = *bucket;
            *bucket = c;
            c = next;
        }
    }
    free(old);
}

/* Asks to be called when the first one is due. */
static void arm(struct conversations *all)
{
    struct expiry_entry *first = expiry_first(&all->expiry);

    all->config.arm(all->config.arm_self, first == NULL ? 0 : first->at_us);
}

static uint64_t due_us(const struct conversation *c, uint64_t now_us)
{
    uint64_t from = c->n_live > 0 ? now_us : c->last_done_us;

    return from + c->terms->ttl_ms * 1000;
}

enum status conversations_add(struct conversations *all, struct conversation *c, struct error *err)
{
    struct {
        struct conversation_id id;
        uint64_t seed;
    } drawn;
    struct conversation **bucket;
    const struct env *env = all->config.env;
    enum status rc;
    int i;

    if (all->is_draining)
        return error_set(err, STATUS_UNAVAILABLE, "the server is stopping");
    if (all->n >= all->config.max_conversations)
        return error_set(err, STATUS_EXHAUSTED, "there are %zu conversations already", all->n);
    for (i = 0; i < DRAW_TRIES; i++) {
        env->random(env->self, &drawn, sizeof(drawn));
        if (conversations_get(all, &drawn.id) == NULL)
            break;
    }
    if (i == DRAW_TRIES)
        return error_set(err, STATUS_INTERNAL, "the source of chance repeats itself");
    c->all = all;
    c->id = drawn.id;
    c->seed = drawn.seed;
    c->opened_us = c->last_done_us = env_now_us(env);
    c->expiry.at_us = due_us(c, c->opened_us);
    rc = expiry_add(&all->expiry, &c->expiry, err);
    if (rc != STATUS_OK)
        return rc;
    if (all->n >= all->n_buckets)
        grow(all);
    bucket = bucket_of(all, &c->id);
    c->in_bucket = *bucket;
    *bucket = c;
    c->serial = all->n_opened++;
    list_push_front(&all->newest_first, &c->link);
    all->n++;
    if (expiry_first(&all->expiry) == &c->expiry)
        arm(all);
    return STATUS_OK;
}

void conversations_remove(struct conversations *all, struct conversation *c)
{
    struct conversation **at = bucket_of(all, &c->id);

    while (*at != c)
        at = &(*at)->in_bucket;
    *at = c->in_bucket;
    list_remove(&c->link);
    expiry_remove(&all->expiry, &c->expiry);
    all->n--;
}

void conversations_tick(struct conversations *all)
{
    uint64_t now_us = env_now_us(all->config.env);
    struct expiry_entry *first;

    while ((first = expiry_first(&all->expiry)) != NULL && first->at_us <= now_us) {
        struct conversation *c = container_of(first, struct conversation, expiry);
        uint64_t due = due_us(c, now_us);

        if (due <= now_us) {
            conversation_close(c, WATCH_EXPIRED, "idle for too long");
        } else {
            /* It has had turns since; only now does it need its new place. */
            c->expiry.at_us = due;
            expiry_moved(&all->expiry, &c->expiry);
        }
    }
    arm(all);
}

void conversations_drain(struct conversations *all)
{
    all->is_draining = true;
}

void conversations_cancel_all(struct conversations *all)
{
    struct conversation *c;

    for (c = conversations_newest(all); c != NULL; c = conversations_older(all, c))
        (void)conversation_cancel(c); /* how many does not matter */
}

void conversations_close_all(struct conversations *all, const struct model *model,
                             const char *reason)
{
    struct conversation *c, *next;

    for (c = conversations_newest(all); c != NULL; c = next) {
        next = conversations_older(all, c);
        if (model == NULL || c->model == model)
            conversation_close(c, WATCH_CLOSED, reason);
    }
}

uint64_t conversations_unix_ms(const struct conversations *all)
{
    return all->config.unix_ms + (env_now_us(all->config.env) - all->start_us) / 1000;
}

struct conversation *conversations_newest(const struct conversations *all)
{
    struct link *first = list_first(&all->newest_first);

    return first == NULL ? NULL : container_of(first, struct conversation, link);
}

struct conversation *conversations_older(const struct conversations *all,
                                         const struct conversation *c)
{
    struct link *next = list_next(&all->newest_first, &c->link);

    return next == NULL ? NULL : container_of(next, struct conversation, link);
}

void conversations_clone_event(struct conversations *all, const struct clone *clone,
                               enum watch_what what, const char *reason)
{
    struct link *at = list_last(&all->newest_first);

    if (list_is_empty(&all->watch.watchers))
        return;
    /* From the oldest: it is those that have been idle for long which lose something. */
    while (at != &all->newest_first.head && at != NULL) {
        const struct conversation *c = container_of(at, struct conversation, link);

        if (c->clone == clone) {
            watch_ring_put(&all->watch, &(struct watch_event){
                                            .id = c->id,
                                            .what = what,
                                            .reason = reason,
                                            .unix_ms = conversations_unix_ms(all),
                                        });
            return;
        }
        at = at->prev;
    }
}

void conversations_turn_began(struct conversations *all)
{
    all->n_live++;
}

void conversations_turn_gone(struct conversations *all)
{
    assert(all->n_live > 0);
    if (--all->n_live == 0 && all->quiet != NULL)
        all->quiet(all->quiet_arg);
}
