/* An agent is a conversation and the reader of its turn. The reader's notice only puts the agent
 * into a list and wakes the service, since it comes from inside the conversation. A conversation
 * that was closed meanwhile, or whose turn fails, ends the task. */
#include "server/service/agents.h"

#include <stdlib.h>
#include <string.h>

#include "agents/reply/whole_reply.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "server/conversation/conversation.h"
#include "server/conversation/reader.h"
#include "server/model/model.h"
#include "server/model/models.h"

struct service_agent {
    struct link ready; /* in its host's ready */
    struct service_agents_host *host;
    struct scene *scene;
    const struct service_pool_plan *plan;
    struct conversation_id conversation;
    bool has_conversation;
    struct turn_reader reader;
    bool is_reading;
    struct buf heard;
};

void service_agents_host_init(struct service_agents_host *h)
{
    list_init(&h->ready);
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
        conversation_open(&c, h->conversations, model, &open, err) != STATUS_OK)
        return err->status;
    a->conversation = c->id;
    a->has_conversation = true;
    return STATUS_OK;
}

/* The same, but an agent whose model is not ready begins when it is asked. */
static enum status service_agent_begin_if_ready(struct service_agent *a, struct error *err)
{
    const enum status rc = service_agent_begin(a, err);

    return rc == STATUS_UNAVAILABLE ? STATUS_OK : rc;
}

static void service_agent_stop_reading(struct service_agent *a)
{
    if (a->is_reading)
        reader_close(&a->reader, STATUS_CANCELLED);
    a->is_reading = false;
    if (link_is_on(&a->ready))
        list_remove(&a->ready);
}

static void service_agent_end(struct service_agent *a)
{
    struct conversation *c = NULL;

    service_agent_stop_reading(a);
    if (a->has_conversation)
        c = conversations_get(a->host->conversations, &a->conversation);
    if (c != NULL)
        conversation_close(c, WATCH_CLOSED, "its task has ended");
    a->has_conversation = false;
    buf_clear(&a->heard);
}

static enum status service_agent_open(void *self, struct service_agent **out, struct scene *s,
                                      const struct service_pool_plan *plan, struct error *err)
{
    struct service_agent *a = try_alloc(1, sizeof(*a));

    if (a == NULL)
        return error_no_memory(err, sizeof(*a), "an agent");
    a->host = self;
    a->scene = s;
    a->plan = plan;
    link_init(&a->ready);
    buf_init(&a->heard, SERVICE_HEARD_MAX_BYTES);
    if (service_agent_begin_if_ready(a, err) != STATUS_OK) {
        free(a);
        return err->status;
    }
    *out = a;
    return STATUS_OK;
}

static void service_agent_close(struct service_agent *a)
{
    if (a == NULL)
        return;
    service_agent_end(a);
    buf_deinit(&a->heard);
    free(a);
}

static enum status service_agent_reset(struct service_agent *a, struct error *err)
{
    service_agent_end(a);
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
                     "the agent has heard more than %d bytes without being "
                     "asked",
                     SERVICE_HEARD_MAX_BYTES);
}

static enum status service_agent_ask(struct service_agent *a, struct error *err)
{
    const struct message said = {
        .role = ROLE_USER, .text = a->heard.data == NULL ? "" : a->heard.data, .len = a->heard.len};
    const struct turn_request turn = {.messages = &said, .n_messages = 1};
    struct conversation *c = NULL;

    if (!a->has_conversation && service_agent_begin(a, err) != STATUS_OK)
        return err->status;
    c = conversations_get(a->host->conversations, &a->conversation);
    if (c == NULL)
        return error_set(err, STATUS_NOT_FOUND, "the agent's conversation was closed");
    reader_init(&a->reader, service_agent_notify, a);
    if (conversation_turn(c, &turn, &a->reader, err) != STATUS_OK)
        return err->status;
    a->is_reading = true;
    buf_clear(&a->heard);
    service_agent_notify(a); /* an agent may have answered already */
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
    struct whole_reply reply;
    struct error err;
    enum status rc = service_agent_text(a, &reply, &err);

    service_agent_stop_reading(a);
    if (rc == STATUS_OK)
        service_answered(a->scene, reply.text.data == NULL ? "" : reply.text.data);
    else
        service_agent_failed(a->scene, &err);
    if (rc == STATUS_OK)
        whole_reply_deinit(&reply);
}

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
            service_agent_failed(a->scene, &err);
            return;
        }
    }
}

void service_agents_work(void *host)
{
    struct service_agents_host *h = host;
    struct list now;
    struct link *l;

    list_init(&now);
    list_move(&h->ready, &now);
    while ((l = list_pop(&now)) != NULL)
        service_agent_read(container_of(l, struct service_agent, ready));
}

const struct service_agents service_conversations = {
    .open = service_agent_open,
    .hear = service_agent_hear,
    .ask = service_agent_ask,
    .reset = service_agent_reset,
    .close = service_agent_close,
};
