/* Keeps the conversations in a table by id, in a list by age, and in a list for each owner. It
 * closes, suspends or unloads those that are idle, and tells watchers of each change. */
#include "server/conversation/conversations.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/alloc.h"
#include "server/journal/journal.h"
#include "server/model/model.h"

static const struct limit_kind kind_of_conversations = {"open conversations", "--max-conversations",
                                                        NULL};
#define VERIFIED_MAX_BYTES ((uint64_t)512 << 20)
static const struct limit_kind kind_of_verified = {"bytes of records that clients send to verify",
                                                   NULL, "records"};

/* Timers are set no farther ahead. */
#define LOOK_AGAIN_US ((uint64_t)10 * 365 * 24 * 60 * 60 * 1000 * 1000)

enum {
    DRAW_TRIES = 4,
    PINS_RETRY_MS = 100,
    CONVERSATION_SPARE_BYTES = 512, /* of a conversation: tables, metadata, the allocator's part */
};
enum {
    TRIM_LEAST = 256, /* number of closed conversations below which trimming is not worth it */
    TRIM_DELAY_US = 1000 * 1000, /* clients that return at once find the memory still allocated */
};

static void set_default(size_t *value, size_t otherwise)
{
    if (*value == 0)
        *value = otherwise;
}

static bool has_model(const struct model_user *u, const struct model *m)
{
    return m->n_conversations > 0;
}

static void conversations_close_of_model(struct model_user *u, struct model *m)
{
    conversations_close_all(container_of(u, struct conversations, user), m,
                            "its model was unloaded");
}

static void on_model_ready(struct model_user *u, const struct model *m);

void conversation_id_format(const struct conversation_id *id, char out[CONVERSATION_ID_CHARS])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < CONVERSATION_ID_BYTES; i++) {
        out[2 * i] = digits[id->bytes[i] >> 4];
        out[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    out[CONVERSATION_ID_CHARS - 1] = '\0';
}

/* -1: not a digit. */
static int conversations_hex_value(char c)
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
        int high = conversations_hex_value(text[2 * i]);
        int low = conversations_hex_value(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        id.bytes[i] = (uint8_t)(high << 4 | low);
    }
    *out = id;
    return true;
}

static uint64_t conversations_hash_of(const struct conversation_id *id)
{
    uint64_t hash;

    memcpy(&hash, id->bytes, sizeof(hash));
    return hash;
}

struct conversation *conversations_get(const struct conversations *all,
                                       const struct conversation_id *id)
{
    struct hash_node *node = hash_first(&all->by_id, conversations_hash_of(id));

    for (; node != NULL; node = hash_next(node)) {
        struct conversation *c = container_of(node, struct conversation, by_id);

        if (memcmp(&c->id, id, sizeof(*id)) == 0)
            return c;
    }
    return NULL;
}

struct conversation *conversations_get_of(const struct conversations *all, uint32_t principal,
                                          const struct conversation_id *id)
{
    struct conversation *c = conversations_get(all, id);

    return c == NULL || c->principal != principal ? NULL : c;
}

enum status conversations_find(struct conversation **out, const struct conversations *all,
                               uint32_t principal, const char *text, struct error *err)
{
    struct conversation_id id;
    struct conversation *c = NULL;

    if (conversation_id_parse(&id, text))
        c = conversations_get_of(all, principal, &id);
    if (c == NULL)
        return error_because(err, STATUS_NOT_FOUND, REASON_CONVERSATION_NOT_FOUND, "conversation",
                             "there is no conversation '%.64s'", text);
    *out = c;
    return STATUS_OK;
}

static struct turn *first_lingering(const struct conversations *all)
{
    return container_of(list_first(&all->lingering), struct turn, lingering);
}

/* Arms the timer for the first expiry, the conversation that the bound of memory has leave, the
 * memory trim or the end of a turn that lingers. */
static void conversations_arm(struct conversations *all)
{
    struct expiry_entry *first = expiry_first(&all->expiry);
    uint64_t at_us = first == NULL ? 0 : first->at_us, leave_us = idle_list_due_us(&all->idle);

    if (leave_us != 0 && (at_us == 0 || leave_us < at_us))
        at_us = leave_us;
    if (all->trim_us != 0 && (at_us == 0 || all->trim_us < at_us))
        at_us = all->trim_us;
    if (!list_is_empty(&all->lingering)) {
        uint64_t end_us = first_lingering(all)->linger_until_us;

        at_us = at_us == 0 || end_us < at_us ? end_us : at_us;
    }
    alarm_set(all->config.alarm, at_us);
}

/* Whether at least half of the peak, and at least TRIM_LEAST, have been closed. */
static bool has_ebbed(const struct conversations *all)
{
    return all->n_peak - all->n >= TRIM_LEAST && all->n <= all->n_peak / 2;
}

static void conversations_trim(struct conversations *all)
{
    all->trim_us = 0;
    if (!has_ebbed(all))
        return;
    hash_shrink(&all->by_id);
    hash_shrink(&all->opened.by_id);
    expiry_shrink(&all->expiry);
    alloc_trim();
    all->n_peak = all->n;
}

uint64_t conversation_ttl_ms(const struct conversation *c)
{
    const uint64_t own_ms = c->host.options->ttl_ms;

    return own_ms != 0 || c->host.is_kept ? own_ms : c->all->config.ttl_ms;
}

/* Since when it has been idle in memory. */
static uint64_t idle_since_us(const struct conversation *c, uint64_t now_us)
{
    if (c->host.n_live > 0)
        return now_us;
    return c->host.last_done_us > c->registered_us ? c->host.last_done_us : c->registered_us;
}

/* UINT64_MAX: never, or not while something needs it. What came before it was in memory counts only
 * if this process has measured it: the clock of one that has ended closes nothing. */
static uint64_t due_us(const struct conversation *c, uint64_t now_us)
{
    const uint64_t ttl_ms = conversation_ttl_ms(c);
    const bool is_measured = c->is_idle_known && c->host.n_live == 0;

    if (ttl_ms == 0 || conversations_is_pinned(c->all, &c->id))
        return UINT64_MAX;
    return (is_measured ? c->host.last_done_us : idle_since_us(c, now_us)) + ttl_ms * 1000;
}

bool conversation_may_leave(const struct conversation *c)
{
    return c->host.is_kept && !c->is_pinned && c->host.n_live == 0 &&
           !c->host.model->info.is_state_volatile && !watch_ring_has(&c->all->watch, &c->id);
}

/* When it is next to be looked at: it expires, or leaves memory. */
static uint64_t conversation_leave_us(const struct conversation *c, uint64_t now_us)
{
    const uint64_t due = due_us(c, now_us), unload_us = c->all->config.unload_us;
    uint64_t leave_us = now_us + LOOK_AGAIN_US;

    if (c->host.is_kept && unload_us != 0) {
        leave_us = idle_since_us(c, now_us) + unload_us;
        if (leave_us <= now_us && !conversation_may_leave(c))
            leave_us = now_us + unload_us;
    }
    return leave_us < due ? leave_us : due;
}

/* About how much memory c takes. What forks share counts for each of them. */
static size_t conversation_memory(const struct conversation *c)
{
    const struct conversation_options *o = c->host.options;
    struct clone_info clone;

    clone_describe(c->host.clone, &clone);
    return sizeof(*c) + sizeof(*o) + o->system_len + clone.state_bytes + CONVERSATION_SPARE_BYTES +
           (c->host.newest == NULL ? 0 : c->host.newest->memory_bytes);
}

void conversation_used(struct conversation *c)
{
    struct conversations *all = c->all;

    if (!c->host.is_kept || c->host.n_live > 0 || c->expiry.place == 0) /* not registered */
        return;
    idle_list_put(&all->idle, &c->idle, conversation_memory(c), env_now_us(all->config.env));
    if (idle_list_due_us(&all->idle) != 0)
        conversations_arm(all);
}

static void announce(const struct conversation *c, enum watch_what what, const char *reason)
{
    struct watch_event e = {
        .id = c->id,
        .parent = c->parent,
        .principal = c->principal,
        .what = what,
        .reason = reason,
        .unix_ms = conversations_unix_ms(c->all),
    };

    watch_ring_put(&c->all->watch, &e);
}

/* --- owners --- */

static uint64_t owner_hash(const struct conversations *all, uint32_t principal)
{
    return hash_bytes(&all->owners, 0, &principal, sizeof(principal));
}

static struct conversation_owner *owner_find(const struct conversations *all, uint32_t principal)
{
    struct hash_node *node = hash_first(&all->owners, owner_hash(all, principal));

    for (; node != NULL; node = hash_next(node)) {
        struct conversation_owner *o = container_of(node, struct conversation_owner, by_principal);

        if (o->principal == principal)
            return o;
    }
    return NULL;
}

static void owner_add(struct conversations *all, struct conversation *c)
{
    struct conversation_owner *o = owner_find(all, c->principal);

    if (o == NULL) {
        o = xalloc(sizeof(*o));
        o->principal = c->principal;
        list_init(&o->newest_first);
        list_init(&o->unkept);
        if (all->config.quota_of != NULL)
            o->quota = all->config.quota_of(all->config.quota_arg, c->principal);
        hash_add(&all->owners, &o->by_principal, owner_hash(all, c->principal));
    }
    c->owner = o;
    c->host.quota = o->quota;
    list_push_front(&o->newest_first, &c->of_owner);
    if (!c->host.is_kept)
        list_push_front(&o->unkept, &c->unkept);
    o->n++;
}

static void owners_free(struct conversations *all)
{
    struct hash_node *node;

    while (all->owners.n > 0) {
        node = hash_each(&all->owners, NULL);
        hash_remove(&all->owners, node);
        free(container_of(node, struct conversation_owner, by_principal));
    }
    hash_deinit(&all->owners);
}

static struct conversation *owner_conversation(struct link *link)
{
    return link == NULL ? NULL : container_of(link, struct conversation, of_owner);
}

struct conversation *conversations_newest_of(const struct conversations *all, uint32_t principal)
{
    const struct conversation_owner *o = owner_find(all, principal);

    return o == NULL ? NULL : owner_conversation(list_first(&o->newest_first));
}

struct conversation *conversations_older_of(const struct conversation *c)
{
    return owner_conversation(list_next(&c->owner->newest_first, &c->of_owner));
}

static struct conversation *unkept_conversation(struct link *link)
{
    return link == NULL ? NULL : container_of(link, struct conversation, unkept);
}

struct conversation *conversations_newest_unkept(const struct conversations *all,
                                                 uint32_t principal)
{
    const struct conversation_owner *o = owner_find(all, principal);

    return o == NULL ? NULL : unkept_conversation(list_first(&o->unkept));
}

struct conversation *conversations_older_unkept(const struct conversation *c)
{
    return unkept_conversation(list_next(&c->owner->unkept, &c->unkept));
}

void conversation_is_kept(struct conversation *c)
{
    c->host.is_kept = true;
    if (c->unkept.next != NULL)
        list_remove(&c->unkept);
    conversation_used(c);
}

size_t conversations_count_of(const struct conversations *all, uint32_t principal,
                              const struct model *model)
{
    const struct conversation_owner *o = owner_find(all, principal);
    const struct conversation *c;
    size_t n = 0;

    if (o == NULL || model == NULL)
        return o == NULL ? 0 : o->n;
    if (o->n == all->n)
        return model->n_conversations;
    for (c = conversations_newest_of(all, principal); c != NULL; c = conversations_older_of(c))
        n += c->host.model == model;
    return n;
}

static enum status conversations_check_room(const struct conversations *all, uint32_t principal,
                                            struct error *err)
{
    if (all->is_draining)
        return error_draining(err);
    return shared_limit_check(&all->limit, principal, 1, err);
}

/* There is room, and c has its id. */
static enum status conversations_register(struct conversations *all, struct conversation *c,
                                          enum watch_what what, uint64_t idle_us, struct error *err)
{
    uint64_t now_us = env_now_us(all->config.env);
    enum status rc;

    c->all = all;
    c->host.config = &all->turns;
    c->host.last_done_us = now_us > idle_us ? now_us - idle_us : 0;
    c->registered_us = now_us;
    c->expiry.at_us = conversation_leave_us(c, now_us);
    rc = expiry_add(&all->expiry, &c->expiry, err);
    if (rc != STATUS_OK)
        return rc;
    c->host.clone->owner = c;
    hash_add(&all->by_id, &c->by_id, conversations_hash_of(&c->id));
    c->serial = all->n_opened++;
    list_push_front(&all->newest_first, &c->link);
    owner_add(all, c);
    all->n++;
    shared_limit_hold(&all->limit, c->principal, 1);
    if (all->n > all->n_peak)
        all->n_peak = all->n;
    if (expiry_first(&all->expiry) == &c->expiry)
        conversations_arm(all);
    c->host.model->n_conversations++;
    if (c->opened != NULL)
        opened_requests_add(&all->opened, c->opened);
    conversation_used(c);
    announce(c, what, "");
    return STATUS_OK;
}

static void conversation_leave_untold(struct conversation *c);

/* Idle kept conversations leave memory, until the principal may have one more there. */
static void conversations_make_room(struct conversations *all, uint32_t principal)
{
    const bool is_own = shared_limit_is_full_for(&all->limit, principal);
    struct idle_entry *e = idle_list_first(&all->idle), *next;

    for (; e != NULL && shared_limit_room(&all->limit, principal) == 0; e = next) {
        struct conversation *c = container_of(e, struct conversation, idle);

        next = idle_list_next(&all->idle, e);
        if ((!is_own || c->principal == principal) && conversation_may_leave(c))
            conversation_leave_untold(c);
    }
}

enum status conversations_add_again(struct conversations *all, struct conversation *c,
                                    uint64_t idle_ms, struct error *err)
{
    enum status rc;

    conversations_make_room(all, c->principal);
    rc = conversations_check_room(all, c->principal, err);
    return rc == STATUS_OK ? conversations_register(all, c, WATCH_OPENED, idle_ms * 1000, err) : rc;
}

enum status conversations_add(struct conversations *all, struct conversation *c,
                              enum watch_what what, struct error *err)
{
    struct {
        struct conversation_id id;
        uint64_t seed;
    } drawn;
    const struct env *env = all->config.env;
    const struct conversation_owner *owner = owner_find(all, c->principal);
    enum status rc = conversations_check_room(all, c->principal, err);
    int i;

    if (rc == STATUS_OK && owner != NULL && owner->quota != NULL)
        rc = quota_check_conversations(owner->quota, owner->n, err);
    if (rc != STATUS_OK)
        return rc;
    for (i = 0; i < DRAW_TRIES; i++) {
        env->random(env->self, &drawn, sizeof(drawn));
        if (conversations_get(all, &drawn.id) == NULL)
            break;
    }
    if (i == DRAW_TRIES)
        return error_set(err, STATUS_INTERNAL, "the source of chance repeats itself");
    c->id = drawn.id;
    c->host.seed = drawn.seed;
    c->opened_unix_ms = conversations_unix_ms(all);
    return conversations_register(all, c, what, 0, err);
}

static void conversations_remove(struct conversations *all, struct conversation *c)
{
    watch_ring_skip(&all->watch, &c->of_owner, list_next(&c->owner->newest_first, &c->of_owner));
    hash_remove(&all->by_id, &c->by_id);
    opened_requests_forget(&all->opened, c->opened);
    c->opened = NULL;
    list_remove(&c->link);
    list_remove(&c->of_owner);
    if (c->unkept.next != NULL)
        list_remove(&c->unkept);
    c->owner->n--;
    idle_list_remove(&all->idle, &c->idle);
    expiry_remove(&all->expiry, &c->expiry);
    shared_limit_give(&all->limit, c->principal, 1);
    all->n--;
    if (all->trim_us == 0 && !all->is_draining && has_ebbed(all)) {
        all->trim_us = env_now_us(all->config.env) + TRIM_DELAY_US;
        conversations_arm(all);
    }
}

void conversation_release(struct conversation *c)
{
    clone_close(c->host.clone);
    conversation_options_unref(c->host.options);
    free(c->metadata);
    completed_turn_unref(c->host.newest);
    free(c->opened); /* of one that was never registered */
    stored_request_close(c->unended.request);
    free(c->unended.resolved);
    free(c);
}

static void conversation_free(struct conversation *c)
{
    struct model *m = c->host.model;

    assert(c->is_closed && c->host.n_live == 0);
    c->all->n_closing--;
    conversation_release(c);
    m->n_conversations--;
}

size_t conversation_cancel(struct conversation *c)
{
    return turn_cancel_all(&c->host);
}

/* Out of memory, untold; what the journal has of it stays. */
static void conversation_leave_untold(struct conversation *c)
{
    conversations_remove(c->all, c);
    c->all->n_closing++;
    /* Queued turns end inside this call; the one in flight does not, so c is freed later. */
    (void)conversation_cancel(c);
    c->is_closed = true;
    if (c->host.n_live == 0)
        conversation_free(c);
}

static void conversation_leave(struct conversation *c, enum watch_what what, const char *reason)
{
    announce(c, what, reason);
    conversation_leave_untold(c);
}

/* If the journal has no room for the record, the conversation is found again, and its time passes
 * again. */
static void conversations_write_closed(struct conversations *all, const struct conversation_id *id,
                                       unsigned generation, uint64_t owner_epoch)
{
    struct journal_record r = {.kind = JOURNAL_CLOSE,
                               .generation = generation,
                               .unix_ms = conversations_unix_ms(all),
                               .owner_epoch = owner_epoch};
    struct error ignored;

    memcpy(r.conversation, id->bytes, sizeof(r.conversation));
    (void)!journal_append(all->keeping.journal, &r, NULL, NULL, &ignored);
}

void conversations_forget(struct conversations *all, const struct conversation_id *id)
{
    if (all->keeping.journal != NULL)
        conversations_write_closed(all, id, 0, 0);
}

void conversation_close(struct conversation *c, enum watch_what what, const char *reason)
{
    if (c->host.is_kept)
        conversations_write_closed(c->all, &c->id, c->host.generation, c->owner_epoch);
    conversation_leave(c, what, reason);
}

void conversations_close_by_id(struct conversations *all, const struct conversation_id *id,
                               const char *reason)
{
    struct conversation *c = conversations_get(all, id);

    if (c != NULL)
        conversation_close(c, WATCH_CLOSED, reason);
    else
        conversations_forget(all, id);
}

void conversation_put_away(struct conversation *c, const char *reason)
{
    conversation_leave(c, WATCH_CLOSED, reason);
}

void conversation_unload(struct conversation *c)
{
    turn_lose_all(&c->host, NULL);
    conversation_leave(c, WATCH_CLOSED, "the journal could not be written");
}

static const struct error suspended = {
    .status = STATUS_UNAVAILABLE,
    .reason = REASON_SERVER_DRAINING,
    .retry_after_ms = 1000,
    .text = "the server is shutting down; the turn continues after the restart",
};

bool conversation_suspend(struct conversation *c)
{
    if (!c->host.is_kept || c->all->keeping.is_inexact || c->host.model->info.is_inexact)
        return false;
    turn_lose_all(&c->host, &suspended);
    conversation_leave(c, WATCH_CLOSED, "the server is shutting down");
    return true;
}

static const struct error handed_over = {
    .status = STATUS_UNAVAILABLE,
    .reason = REASON_SERVER_DRAINING,
    .retry_after_ms = 100,
    .text = "this parleyd is shutting down; the turn goes on at another one: send the request "
            "again, with the place after the last part that came",
};

bool conversation_hand_over(struct conversation *c)
{
    const struct conversation_id id = c->id;
    struct conversations *all = c->all;

    if (!c->host.is_kept || all->keeping.is_inexact || c->host.model->info.is_inexact)
        return false;
    turn_lose_all(&c->host, &handed_over);
    conversation_leave(c, WATCH_CLOSED, "another parleyd goes on with it");
    journal_give(all->keeping.journal, id.bytes, true);
    return true;
}

void conversation_lose(struct conversation *c)
{
    if (c->is_closed)
        conversation_free(c);
    else
        conversation_unload(c);
}

/* --- events of turns --- */

static void on_turn_began(struct turn_host *host)
{
    struct conversation *c = container_of(host, struct conversation, host);

    c->all->n_live++;
    idle_list_remove(&c->all->idle, &c->idle);
}

static void on_turn_left(struct turn_host *host, bool is_complete)
{
    struct conversation *c = container_of(host, struct conversation, host);
    struct conversations *all = c->all;

    if (is_complete)
        host->newest->origin = (struct turn_origin){c->id, host->generation};
    all->n_turns += is_complete;
    assert(all->n_live > 0);
    if (--all->n_live == 0 && all->on_idle != NULL)
        all->on_idle(all->idle_arg);
}

/* An accepted turn that nobody reads is not cut because the server stops. */
static void leave_lingering(struct turn *t)
{
    struct conversation *c = container_of(t->host, struct conversation, host);
    bool is_alone = c->host.n_live == 1;

    if (t->state == TURN_QUEUED || (is_alone && !conversation_suspend(c)))
        turn_end(t, FINISH_CANCELLED);
    /* Else others wait for it: it goes on. */
}

static bool on_turn_linger(struct turn_host *host, struct turn *t)
{
    struct conversation *c = container_of(host, struct conversation, host);
    struct conversations *all = c->all;

    if (all->is_draining && c->host.is_kept && !c->is_closed) {
        leave_lingering(t);
        return true;
    }
    if (all->is_draining || c->is_closed || all->config.linger_us == 0)
        return false;
    t->linger_until_us = env_now_us(all->config.env) + all->config.linger_us;
    list_push(&all->lingering, &t->lingering);
    if (first_lingering(all) == t)
        conversations_arm(all);
    return true;
}

/* Ends the turns that have lingered until then. */
static void end_lingering(struct conversations *all, uint64_t until_us)
{
    while (!list_is_empty(&all->lingering)) {
        struct turn *t = first_lingering(all);

        if (t->linger_until_us > until_us)
            return;
        list_remove(&t->lingering);
        if (all->is_draining)
            leave_lingering(t);
        else
            turn_end(t, FINISH_CANCELLED);
    }
}

static void on_turns_emptied(struct turn_host *host)
{
    struct conversation *c = container_of(host, struct conversation, host);

    if (c->is_closed)
        conversation_free(c);
    else
        conversation_used(c);
}

/* --- all conversations --- */

bool conversation_expire(struct conversation *c)
{
    if (due_us(c, env_now_us(c->all->config.env)) > env_now_us(c->all->config.env))
        return false;
    c->all->n_expired += c->host.is_kept;
    conversation_close(c, WATCH_EXPIRED, "idle for too long");
    return true;
}

/* Takes the least recently used out of memory, until the others are within the bound. */
static void conversations_shrink(struct conversations *all, uint64_t now_us)
{
    struct idle_entry *e;

    while ((e = idle_list_due(&all->idle, now_us)) != NULL) {
        struct conversation *c = container_of(e, struct conversation, idle);

        if (conversation_may_leave(c))
            conversation_leave_untold(c); /* it is as open as before */
        else
            idle_list_put(&all->idle, e, e->size_bytes, now_us);
    }
}

void conversations_tick(void *conversations)
{
    struct conversations *all = conversations;
    uint64_t now_us = env_now_us(all->config.env);
    struct expiry_entry *first;

    while ((first = expiry_first(&all->expiry)) != NULL && first->at_us <= now_us) {
        struct conversation *c = container_of(first, struct conversation, expiry);
        uint64_t at_us = conversation_leave_us(c, now_us);

        if (conversation_expire(c)) {
            continue;
        } else if (at_us <= now_us) {
            conversation_leave_untold(c); /* it is as open as before */
        } else {
            /* Turns have postponed the expiry; the entry moves only now. */
            c->expiry.at_us = at_us;
            expiry_moved(&all->expiry, &c->expiry);
        }
    }
    conversations_shrink(all, now_us);
    end_lingering(all, now_us);
    if (all->trim_us != 0 && all->trim_us <= now_us)
        conversations_trim(all);
    conversations_arm(all);
}

void conversations_expiry_changed(struct conversation *c)
{
    c->expiry.at_us = conversation_leave_us(c, env_now_us(c->all->config.env));
    expiry_moved(&c->all->expiry, &c->expiry);
    conversations_arm(c->all);
}

void conversations_drain(void *conversations)
{
    struct conversations *all = conversations;
    struct conversation *c, *next;

    all->is_draining = true;
    end_lingering(all, UINT64_MAX);
    if (all->keeping.journal == NULL || journal_n_others(all->keeping.journal) == 0)
        return;
    for (c = conversations_newest(all); c != NULL; c = next) {
        next = conversations_older(all, c);
        if (c->host.n_live > 0)
            (void)conversation_hand_over(c); /* else the turn ends here */
    }
}

void conversations_cancel_all(void *conversations)
{
    struct conversations *all = conversations;
    struct conversation *c, *next;

    for (c = conversations_newest(all); c != NULL; c = next) {
        next = conversations_older(all, c);
        if (c->host.n_live > 0 && !conversation_suspend(c))
            (void)conversation_cancel(c); /* the number does not matter */
    }
}

void conversations_close_all(struct conversations *all, const struct model *model,
                             const char *reason)
{
    struct conversation *c, *next;

    for (c = conversations_newest(all); c != NULL; c = next) {
        next = conversations_older(all, c);
        if (model == NULL || c->host.model == model)
            conversation_put_away(c, reason);
    }
}

/* The conversations of its stand-in are as open as before, and are read again with the model. */
static void on_model_ready(struct model_user *u, const struct model *m)
{
    struct conversations *all = container_of(u, struct conversations, user);
    struct conversation *c, *next;

    if (list_is_empty(&all->absent.models))
        return;
    for (c = conversations_newest(all); c != NULL; c = next) {
        next = conversations_older(all, c);
        if (model_is_absent(c->host.model) && strcmp(c->host.model->name, m->name) == 0)
            conversation_leave_untold(c);
    }
}

uint64_t conversations_unix_ms(const struct conversations *all)
{
    return all->config.unix_ms + (env_now_us(all->config.env) - all->start_us) / 1000;
}

uint64_t conversations_stored_ms(const struct conversations *all)
{
    if (all->stored_ms == 0)
        return 0;
    return all->stored_ms + (env_now_us(all->config.env) - all->start_us) / 1000;
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

void conversations_clone_event(const struct clone *clone, enum watch_what what, const char *reason)
{
    const struct conversation *c = clone->owner;

    if (c != NULL && !c->is_closed)
        announce(c, what, reason);
}

static enum conversation_pin conversations_pin(const struct conversations *all,
                                               const struct conversation_id *id)
{
    return all->pin == NULL ? PIN_NONE : all->pin(all->pin_self, id);
}

bool conversations_is_pinned(const struct conversations *all, const struct conversation_id *id)
{
    return conversations_pin(all, id) != PIN_NONE;
}

enum status conversation_check_pins(const struct conversation *c, struct error *err)
{
    switch (conversations_pin(c->all, &c->id)) {
    case PIN_NONE:
        return STATUS_OK;
    case PIN_UNKNOWN:
        (void)error_set(err, STATUS_UNAVAILABLE,
                        "whether a room needs the conversation is being read: come again");
        err->retry_after_ms = PINS_RETRY_MS;
        return STATUS_UNAVAILABLE;
    case PIN_HELD:
        break;
    }
    return error_set(
        err, STATUS_PRECONDITION,
        "the conversation is an agent's in a room: it ends when neither the agent nor the "
        "room's log needs it");
}

void conversations_configure(struct conversations *all, size_t max_conversations, uint64_t ttl_ms,
                             uint64_t linger_us)
{
    all->limit.max = max_conversations != 0 ? max_conversations : 1000000;
    all->config.ttl_ms = ttl_ms != 0 ? ttl_ms : (uint64_t)24 * 60 * 60 * 1000;
    all->config.linger_us = linger_us;
}

void conversations_configure_unload(struct conversations *all, uint64_t unload_us,
                                    uint64_t unload_bytes)
{
    all->config.unload_us = unload_us;
    all->idle.max_bytes = unload_bytes;
    conversations_arm(all);
}

void conversations_init(struct conversations *all, const struct conversations_config *config)
{
    struct conversations_config *c = &all->config;
    uint64_t life;

    *all = (struct conversations){
        .config = *config,
        .start_us = env_now_us(config->env),
        .user = {.ready = on_model_ready,
                 .is_busy = has_model,
                 .close = conversations_close_of_model},
    };
    shared_limit_init(&all->limit, &kind_of_conversations, 0);
    shared_limit_init(&all->verified, &kind_of_verified, VERIFIED_MAX_BYTES);
    conversations_configure(all, c->max_conversations, c->ttl_ms, c->linger_us);
    set_default(&c->max_queued_turns, 16);
    set_default(&c->max_turns, 1000000);
    set_default(&c->max_transcript_bytes, (size_t)64 << 20);
    set_default(&c->max_reply_bytes, (size_t)4 << 20);
    set_default(&c->max_arena_bytes, (size_t)64 << 20);
    all->turns = (struct turn_config){
        .env = config->env,
        .max_reply_bytes = c->max_reply_bytes,
        .max_arena_bytes = c->max_arena_bytes,
        .began = on_turn_began,
        .left = on_turn_left,
        .linger = on_turn_linger,
        .emptied = on_turns_emptied,
    };
    absent_models_init(&all->absent, config->env);
    hash_init(&all->by_id, NULL);  /* ids are random: any part of one can be its hash */
    hash_init(&all->owners, NULL); /* a client does not choose its principal's id */
    opened_requests_init(&all->opened, config->env);
    expiry_init(&all->expiry);
    idle_list_init(&all->idle, c->unload_bytes);
    list_init(&all->newest_first);
    list_init(&all->lingering);
    list_init(&all->closing);
    list_init(&all->orphans);
    config->env->random(config->env->self, &life, sizeof(life));
    watch_ring_init(&all->watch, life);
}

void conversations_deinit(void *conversations)
{
    struct conversations *all = conversations;

    assert(all->n == 0 && all->n_live == 0 && all->n_closing == 0);
    owners_free(all);
    absent_models_deinit(&all->absent);
    shared_limit_deinit(&all->limit);
    shared_limit_deinit(&all->verified);
    watch_ring_deinit(&all->watch);
    expiry_deinit(&all->expiry);
    opened_requests_deinit(&all->opened);
    hash_deinit(&all->by_id);
}
