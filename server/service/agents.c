/* An agent is a conversation and the reader of its turn. The reader's notice only puts the agent
 * into a list and wakes the service, since it comes from inside the conversation. A conversation
 * that was closed meanwhile, or whose turn fails, ends the task.
 *
 * An agent of an earlier process looks for its conversation first. If this has one turn more than
 * people have been told of, the earlier process had asked it, and the agent reads this turn. An
 * agent whose conversation has left memory amid a turn does the same: the journal could not be
 * written, or the lease was over.
 *
 * An agent that goes on in another conversation closes the former one once the record of its task,
 * which names the conversation, is durable: whatever a kill leaves, the task finds the one that is
 * named. */
#include "server/service/agents.h"

#include <stdlib.h>
#include <string.h>

#include "agents/reply/whole_reply.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/env.h"
#include "base/log.h"
#include "server/conversation/conversation.h"
#include "server/conversation/lookup.h"
#include "server/conversation/opening.h"
#include "server/conversation/reader.h"
#include "server/journal/body_bytes.h"
#include "server/journal/journal.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/service/keeping.h"

struct service_agent {
    struct link ready; /* in its host's ready */
    struct service_agents_host *host;
    struct scene *scene;   /* NULL: its task is gone, and it is closed */
    struct link forgotten; /* of the latter: in its host's forgotten */
    const struct service_pool_plan *plan;
    struct conversation_id conversation;
    bool has_conversation;
    struct turn_reader reader;
    bool is_reading;
    struct buf heard;     /* since its last answer */
    size_t n_asked_bytes; /* of heard: what the turn that it reads has, or may have */
    uint32_t n_turns;     /* of its conversation, whose answers people have been told */
    /* Of an agent of an earlier process, or of one that has lost its conversation, up to when it
     * goes on. */
    bool is_restored;
    struct lookup lookup; /* of its conversation */
    bool is_looking, has_looked;
    struct error look_error; /* has_looked */
    bool was_asked;          /* by the earlier process */
    bool is_wanted;          /* it is to answer */
    size_t n_wanted_bytes;   /* is_wanted: what of heard, if that turn is not there */
    unsigned n_lost;         /* how often it has lost its present answer */
    uint64_t patient_until_us;
};

/* A conversation that an agent has left. */
struct service_left {
    struct link link; /* in its host's left */
    struct conversation_id id;
    uint64_t turn; /* it is closed once this is written */
};

enum {
    AGENT_SLEEP_MS = 250, /* between looks for a model that is not loaded yet */
    AGENT_MAX_LOST = 8,   /* then an answer has failed that the journal may never take */
};
#define AGENT_PATIENCE_US ((uint64_t)5 * 60 * 1000 * 1000)

void service_agents_host_init(struct service_agents_host *h)
{
    list_init(&h->ready);
    list_init(&h->sleeping);
    list_init(&h->forgotten);
    list_init(&h->left);
}

static void service_agent_notify(void *arg)
{
    struct service_agent *a = arg;

    if (link_is_on(&a->ready))
        return;
    list_push(&a->host->ready, &a->ready);
    service_wake(a->host->service);
}

/* --- its conversation --- */

static enum status service_agent_begin(struct service_agent *a, struct error *err)
{
    struct sampling_overrides overrides = {.given = SAMPLING_MAX_TOKENS,
                                           .values.max_tokens = a->plan->max_tokens};
    struct open_request open = {.system = a->plan->system == NULL ? "" : a->plan->system,
                                .overrides = &overrides};
    struct service_agents_host *h = a->host;
    struct conversation *c;
    struct model *model;

    if (!h->principal(h->principal_arg, &open.principal))
        return error_set(err, STATUS_DENIED, "the principal of the service has no key any more");
    open.system_len = strlen(open.system);
    models_request(h->models, a->plan->model);
    if (models_get(&model, h->models, a->plan->model, err) != STATUS_OK ||
        opening_open(&c, h->conversations, model, "", &open, err) != STATUS_OK)
        return err->status;
    c->is_pinned = true; /* it is not looked for again when it was idle */
    a->conversation = c->id;
    a->has_conversation = true;
    a->n_turns = 0;
    return STATUS_OK;
}

/* The same, but an agent whose model is not ready begins when it is asked. */
static enum status service_agent_begin_if_ready(struct service_agent *a, struct error *err)
{
    const enum status rc = service_agent_begin(a, err);

    return rc == STATUS_UNAVAILABLE ? STATUS_OK : rc;
}

static void service_left_close(struct service_left *l, struct service_agents_host *h)
{
    conversations_close_by_id(h->conversations, &l->id, "its task goes on in another one");
    list_remove(&l->link);
    free(l);
}

static struct service_left *service_left_of(struct link *l)
{
    return l == NULL ? NULL : container_of(l, struct service_left, link);
}

static void service_agents_written(void *self, uint64_t turn)
{
    struct service_agents_host *h = self;
    struct service_left *l;

    while ((l = service_left_of(list_first(&h->left))) != NULL && l->turn <= turn)
        service_left_close(l, h);
}

/* The agent goes on in another conversation than this, or in none yet. */
static void service_agent_has_left(struct service_agent *a, const struct conversation_id *id)
{
    struct service_agents_host *h = a->host;
    struct conversation *c = conversations_get(h->conversations, id);
    struct service_left *l = xalloc(sizeof(*l));

    if (c != NULL)
        c->is_pinned = false;
    *l = (struct service_left){.id = *id};
    list_push(&h->left, &l->link);
    if (h->service->keeping == NULL) {
        service_left_close(l, h);
        return;
    }
    l->turn = h->service->keeping->turn;
    scene_changed(a->scene);
}

static void service_agent_stop_reading(struct service_agent *a)
{
    if (a->is_reading)
        reader_close(&a->reader, STATUS_CANCELLED);
    a->is_reading = false;
    if (a->is_looking)
        lookup_leave(&a->lookup);
    a->is_looking = a->is_restored = a->is_wanted = false;
    if (link_is_on(&a->ready))
        list_remove(&a->ready);
}

static void service_agent_end(struct service_agent *a)
{
    service_agent_stop_reading(a);
    if (a->has_conversation)
        conversations_close_by_id(a->host->conversations, &a->conversation, "its task has ended");
    a->has_conversation = false;
}

static enum status service_agent_make(struct service_agent **out, struct service_agents_host *h,
                                      struct scene *s, const struct service_pool_plan *plan,
                                      struct error *err)
{
    struct service_agent *a = try_alloc(1, sizeof(*a));

    if (a == NULL)
        return error_no_memory(err, sizeof(*a), "an agent");
    a->host = h;
    a->scene = s;
    a->plan = plan;
    link_init(&a->ready);
    link_init(&a->forgotten);
    buf_init(&a->heard, SERVICE_HEARD_MAX_BYTES);
    *out = a;
    return STATUS_OK;
}

static enum status service_agent_open(void *self, struct service_agent **out, struct scene *s,
                                      const struct service_pool_plan *plan, struct error *err)
{
    struct service_agent *a = NULL;

    if (service_agent_make(&a, self, s, plan, err) != STATUS_OK)
        return err->status;
    if (service_agent_begin_if_ready(a, err) != STATUS_OK) {
        free(a);
        return err->status;
    }
    *out = a;
    return STATUS_OK;
}

static void service_agent_leave(struct service_agent *a)
{
    struct conversation *c = NULL;

    if (a->has_conversation)
        c = conversations_get(a->host->conversations, &a->conversation);
    if (c != NULL)
        c->is_pinned = false; /* a process that restores the agent reads it */
    service_agent_stop_reading(a);
    if (link_is_on(&a->forgotten))
        list_remove(&a->forgotten);
    buf_deinit(&a->heard);
    free(a);
}

static void service_agent_close(struct service_agent *a)
{
    if (a == NULL)
        return;
    service_agent_end(a);
    service_agent_leave(a);
}

static enum status service_agent_reset(struct service_agent *a, struct error *err)
{
    struct service_agents_host *h = a->host;
    enum status rc;

    service_agent_stop_reading(a);
    if (a->has_conversation)
        service_agent_has_left(a, &a->conversation);
    a->has_conversation = false;
    a->n_asked_bytes = a->n_lost = 0;
    buf_clear(&a->heard);
    rc = service_agent_begin_if_ready(a, err);
    if (rc != STATUS_EXHAUSTED || list_is_empty(&h->left))
        return rc;
    /* Its principal may have no more of them. */
    service_left_close(service_left_of(list_last(&h->left)), h);
    return service_agent_begin_if_ready(a, err);
}

/* --- turns --- */

static enum status service_agent_hear(struct service_agent *a, const char *name, const char *text,
                                      struct error *err)
{
    if (buf_printf(&a->heard, "%s%s%s%s", a->heard.len == 0 ? "" : "\n", name == NULL ? "" : name,
                   name == NULL ? "" : ": ", text) == STATUS_OK)
        return STATUS_OK;
    return error_set(err, STATUS_EXHAUSTED,
                     "the agent has heard more than %d bytes since its last answer",
                     SERVICE_HEARD_MAX_BYTES);
}

static enum status service_agent_listen(struct service_agent *a, struct conversation *c,
                                        const struct turn_request *turn, struct error *err)
{
    reader_init(&a->reader, service_agent_notify, a);
    if (conversation_turn(c, turn, &a->reader, err) != STATUS_OK)
        return err->status;
    a->is_reading = true;
    service_agent_notify(a); /* an agent may have answered already */
    return STATUS_OK;
}

/* Begins a turn with the first len bytes of what it has heard. */
static enum status service_agent_say(struct service_agent *a, struct conversation *c, size_t len,
                                     struct error *err)
{
    const struct message said = {
        .role = ROLE_USER, .text = a->heard.data == NULL ? "" : a->heard.data, .len = len};
    const struct turn_request turn = {
        .messages = &said, .n_messages = 1, .is_detached = a->host->service->keeping != NULL};

    if (service_agent_listen(a, c, &turn, err) != STATUS_OK)
        return err->status;
    a->n_asked_bytes = len;
    return STATUS_OK;
}

/* The same. An agent whose context is full forgets all but what it is to answer. */
static enum status service_agent_answer(struct service_agent *a, struct conversation *c, size_t len,
                                        struct error *err)
{
    const struct conversation_id former = a->conversation;
    const bool has_turns = c->host.n_turns > 0;
    enum status rc = service_agent_say(a, c, len, err);

    if (rc == STATUS_OK || !has_turns ||
        (err->reason != REASON_CONTEXT_EXCEEDED && err->reason != REASON_CONVERSATION_FULL))
        return rc;
    if (service_agent_begin(a, err) != STATUS_OK)
        return err->status;
    service_agent_has_left(a, &former);
    c = conversations_get(a->host->conversations, &a->conversation);
    return service_agent_say(a, c, len, err);
}

/* It has answered what it was asked. */
static void service_agent_forget_asked(struct service_agent *a)
{
    const bool has_more = a->n_asked_bytes > 0 && a->heard.len > a->n_asked_bytes;

    buf_consume(&a->heard, a->n_asked_bytes + (has_more ? 1 : 0)); /* and the end of the line */
    a->n_asked_bytes = 0;
}

static void service_agent_go_on(struct service_agent *a, bool is_asked);

static enum status service_agent_ask(struct service_agent *a, struct error *err)
{
    struct conversation *c = NULL;

    if (a->is_restored) { /* it answers once its conversation is there */
        a->is_wanted = true;
        a->n_wanted_bytes = a->heard.len;
        return STATUS_OK;
    }
    if (!a->has_conversation && service_agent_begin(a, err) != STATUS_OK)
        return err->status;
    c = conversations_get(a->host->conversations, &a->conversation);
    if (c != NULL)
        return service_agent_answer(a, c, a->heard.len, err);
    if (a->host->service->keeping == NULL)
        return error_set(err, STATUS_NOT_FOUND, "the agent's conversation was closed");
    a->has_looked = false; /* it may have left memory when the worker that serves it came back */
    service_agent_go_on(a, true);
    return STATUS_OK;
}

/* The whole reply without its thoughts; the caller deinits it. */
static enum status service_agent_text(struct service_agent *a, struct whole_reply *out,
                                      struct error *err)
{
    const struct completed_turn *t = a->reader.completed;
    const struct conversation *c = conversations_get(a->host->conversations, &a->conversation);
    const struct reply_parser_config config = {
        .format = c == NULL ? NULL : c->host.model->info.text.reply_format,
        .places = {reader_has_token, &a->reader},
    };

    return whole_reply_read(out, &config, t->len == 0 ? "" : t->text, t->len, err);
}

static void service_agent_done(struct service_agent *a)
{
    const struct completed_turn *t = a->reader.completed;
    const bool is_cut = t->finish == FINISH_ERROR && t->len == 0;
    struct whole_reply reply;
    struct error err;
    enum status rc = service_agent_text(a, &reply, &err);

    service_agent_stop_reading(a);
    service_agent_forget_asked(a);
    a->n_turns++;
    a->n_lost = 0;
    if (rc != STATUS_OK) {
        service_agent_failed(a->scene, &err);
        return;
    }
    if (is_cut) {
        (void)error_set(&err, STATUS_ABORTED,
                        "the answer was cut off, and the agent would give another one");
        service_unanswered(a->scene, &err);
    } else {
        service_answered(a->scene, reply.text.data == NULL ? "" : reply.text.data);
    }
    whole_reply_deinit(&reply);
}

static bool service_agent_lose_turn(struct service_agent *a);

static void service_agent_read(struct service_agent *a)
{
    struct turn_event event;
    struct error err;

    while (a->is_reading && reader_next(&a->reader, &event)) {
        if (event.kind == EVENT_DONE) {
            service_agent_done(a);
            return;
        }
        if (event.kind == EVENT_FAILED) {
            err = *event.err;
            service_agent_stop_reading(a);
            if (!service_agent_lose_turn(a))
                service_agent_failed(a->scene, &err);
            return;
        }
    }
}

/* --- agents of an earlier process --- */

static void service_agent_keep(const struct service_agent *a, struct body_writer *w)
{
    body_put_u32(w, a->has_conversation);
    body_put_bytes(w, a->conversation.bytes, sizeof(a->conversation.bytes));
    body_put_u32(w, a->n_turns);
}

static enum status service_agent_restore(void *self, struct service_agent **out, struct scene *s,
                                         const struct service_pool_plan *plan,
                                         struct body_reader *body, struct error *err)
{
    const bool has_conversation = body_take_up_to(body, 1) != 0;
    struct service_agent *a = NULL;
    size_t len;
    const void *id = body_take_bytes(body, &len);
    const uint32_t n_turns = body_take_u32(body);

    if (body_end(body, err) != STATUS_OK)
        return err->status;
    if (len != sizeof(a->conversation.bytes))
        return error_set(err, STATUS_DATA_LOSS, "a stored agent has no conversation");
    if (service_agent_make(&a, self, s, plan, err) != STATUS_OK)
        return err->status;
    a->has_conversation = has_conversation;
    memcpy(a->conversation.bytes, id, len);
    a->n_turns = n_turns;
    *out = a;
    return STATUS_OK;
}

static void on_service_agent_looked(struct lookup *l, const struct error *err)
{
    struct service_agent *a = container_of(l, struct service_agent, lookup);

    a->is_looking = false;
    a->has_looked = true;
    a->look_error = *err;
    service_agent_notify(a);
}

/* Begins to look for its conversation. False: there is nothing to wait for. */
static bool service_agent_look(struct service_agent *a)
{
    struct service_agents_host *h = a->host;
    char text[CONVERSATION_ID_CHARS];
    uint32_t principal;

    if (a->has_looked || !h->principal(h->principal_arg, &principal))
        return false;
    conversation_id_format(&a->conversation, text);
    a->is_looking = lookup_begin(&a->lookup, h->conversations, JOURNAL_BY_ID, LOOKUP_HERE,
                                 principal, text, on_service_agent_looked);
    return a->is_looking;
}

/* Reads the turn that the earlier process had begun, or begins one that people wait for. A
 * conversation without an answer, which the journal has not got, is begun again. */
static enum status service_agent_resume(struct service_agent *a, struct error *err)
{
    struct conversation *c = conversations_get(a->host->conversations, &a->conversation);
    const struct turn_request request = {
        .is_detached = true,
        .number = a->n_turns + 1,
        .resume = {.is_wanted = true, .generation = c == NULL ? 0 : c->host.generation},
    };

    if (c == NULL && a->has_looked && a->look_error.status != STATUS_OK)
        return (*err = a->look_error).status;
    if (c == NULL && a->n_turns > 0)
        return error_set(err, STATUS_NOT_FOUND, "the agent's conversation was closed");
    if (c == NULL) {
        if (service_agent_begin(a, err) != STATUS_OK)
            return err->status;
        scene_changed(a->scene);
        c = conversations_get(a->host->conversations, &a->conversation);
    }
    c->is_pinned = true;
    if (c->host.n_turns + c->host.n_live <= a->n_turns && c->unended.request == NULL)
        return a->is_wanted ? service_agent_answer(a, c, a->n_wanted_bytes, err) : STATUS_OK;
    if (service_agent_listen(a, c, &request, err) != STATUS_OK)
        return err->status;
    if (!a->was_asked)
        service_answering(a->scene);
    return STATUS_OK;
}

/* All who sleep look again together. */
static void service_agent_sleep(struct service_agent *a, uint64_t now)
{
    struct service_agents_host *h = a->host;

    if (list_is_empty(&h->sleeping))
        h->wake_us = now + AGENT_SLEEP_MS * (uint64_t)1000;
    list_push(&h->sleeping, &a->ready);
    service_wake_at(h->service, h->wake_us);
}

static void service_agent_be_patient(struct service_agent *a, uint64_t now)
{
    a->patient_until_us = now + AGENT_PATIENCE_US;
    service_agent_sleep(a, now);
}

/* An answer that is computed again could not be stored now, however long that takes. */
static bool service_agent_waits_for_journal(struct service_agent *a, uint64_t now)
{
    if (a->scene == NULL || journal_trouble(a->host->conversations->keeping.journal) == NULL)
        return false;
    service_agent_be_patient(a, now);
    return true;
}

/* A model that is not loaded yet, or whose worker is not back, soon after the start, is waited for.
 */
static void service_agent_go_on_now(struct service_agent *a)
{
    const uint64_t now = env_now_us(a->host->service->config.env);
    struct error err = {.status = STATUS_OK};
    enum status rc = STATUS_OK;

    if (a->host->service->is_draining || service_agent_waits_for_journal(a, now))
        return; /* draining: a later process goes on with it */
    if (a->has_conversation &&
        conversations_get(a->host->conversations, &a->conversation) == NULL &&
        service_agent_look(a))
        return;
    if (a->scene == NULL)
        rc = a->has_looked ? a->look_error.status : STATUS_OK;
    else if (a->has_conversation)
        rc = service_agent_resume(a, &err);
    if ((rc == STATUS_UNAVAILABLE || rc == STATUS_EXHAUSTED ||
         (rc == STATUS_NOT_FOUND && err.reason == REASON_MODEL_NOT_FOUND)) &&
        now < a->patient_until_us) {
        a->has_looked = false;
        service_agent_sleep(a, now);
        return;
    }
    if (a->scene == NULL) {
        service_agent_close(a);
        return;
    }
    a->is_restored = false;
    if (rc == STATUS_OK && !a->has_conversation && a->is_wanted)
        rc = service_agent_ask(a, &err);
    if (rc != STATUS_OK)
        service_agent_failed(a->scene, &err);
}

static void service_agent_go_on(struct service_agent *a, bool is_asked)
{
    a->is_restored = true;
    a->was_asked = a->is_wanted = is_asked;
    a->n_asked_bytes = a->n_wanted_bytes = a->heard.len;
    a->patient_until_us = env_now_us(a->host->service->config.env) + AGENT_PATIENCE_US;
    service_agent_notify(a);
}

/* Its turn has failed. Returns whether it did because its conversation has left memory: then the
 * turn is read again, or begun again where the journal has not got it. */
static bool service_agent_lose_turn(struct service_agent *a)
{
    if (a->host->service->keeping == NULL || a->n_lost >= AGENT_MAX_LOST ||
        conversations_get(a->host->conversations, &a->conversation) != NULL)
        return false;
    a->n_lost++;
    a->is_restored = a->was_asked = a->is_wanted = true;
    a->n_wanted_bytes = a->n_asked_bytes;
    a->has_looked = false;
    service_agent_be_patient(a, env_now_us(a->host->service->config.env));
    return true;
}

static void service_agent_forget(void *self, struct body_reader *body)
{
    struct service_agents_host *h = self;
    struct service_agent *a;
    struct error err;

    if (service_agent_restore(h, &a, NULL, NULL, body, &err) != STATUS_OK) {
        log_warn("service", "agent=forgotten error=\"%s\"", err.text);
        return;
    }
    list_push(&h->forgotten, &a->forgotten);
    service_agent_go_on(a, false);
}

static void service_agents_end(void *self)
{
    struct service_agents_host *h = self;
    struct link *l;

    while ((l = list_first(&h->forgotten)) != NULL)
        service_agent_leave(container_of(l, struct service_agent, forgotten));
    while ((l = list_pop(&h->left)) != NULL)
        free(service_left_of(l));
}

void service_agents_work(void *host)
{
    struct service_agents_host *h = host;
    struct list now;
    struct link *l;

    list_init(&now);
    if (h->wake_us <= env_now_us(h->service->config.env))
        list_move(&h->sleeping, &h->ready);
    else if (!list_is_empty(&h->sleeping)) /* something else has woken the host */
        service_wake_at(h->service, h->wake_us);
    list_move(&h->ready, &now);
    while ((l = list_pop(&now)) != NULL) {
        struct service_agent *a = container_of(l, struct service_agent, ready);

        if (a->is_restored && !a->is_reading)
            service_agent_go_on_now(a);
        else
            service_agent_read(a);
    }
}

const struct service_agents service_conversations = {
    .open = service_agent_open,
    .hear = service_agent_hear,
    .ask = service_agent_ask,
    .reset = service_agent_reset,
    .close = service_agent_close,
    .keep = service_agent_keep,
    .restore = service_agent_restore,
    .go_on = service_agent_go_on,
    .leave = service_agent_leave,
    .forget = service_agent_forget,
    .written = service_agents_written,
    .end = service_agents_end,
};
