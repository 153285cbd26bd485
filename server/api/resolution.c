/* Happy path: a request waits for its model, the reply of its key and its conversation, in the
 * order of the table of states, where these are not in memory; then begin reads its JSON, and
 * resolution_generate starts the answer. Failure: the first wait that fails is the answer, and an
 * exchange that closes leaves the wait that it is in. */
#include "server/api/resolution.h"

#include <string.h>

#include "agents/reply/whole_reply.h"
#include "server/access/access.h"
#include "server/api/generation.h"
#include "server/api/passed_exchange.h"
#include "server/api/reply_end.h"
#include "server/api/request_key.h"
#include "server/cluster/cluster.h"
#include "server/conversation/conversation.h"
#include "server/conversation/keeping.h"
#include "server/conversation/keyed_lookup.h"
#include "server/conversation/keyed_replies.h"
#include "server/conversation/named_lookup.h"
#include "server/conversation/names.h"
#include "server/http/exchange.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

/* What a request waits for before it is answered, in this order: last for the conversation, which
 * may leave memory again. resolution_recall waits for RESOLUTION_RECALL alone. */
enum resolution_state {
    RESOLUTION_MODEL,        /* under --memory, the model that the body names is being loaded */
    RESOLUTION_KEY,          /* the reply of the request's key is being read from the journal */
    RESOLUTION_CONVERSATION, /* the conversation of the header is being read */
    RESOLUTION_RECALL,       /* the conversation that the caller names is being read */
    RESOLUTION_DONE,
};

/* In the exchange's arena. */
struct resolution {
    struct exchange *exchange;
    enum resolution_state state;
    resolution_begin_fn begin;         /* of resolution_serve_from; else NULL */
    void (*serve)(struct exchange *x); /* of resolution_recall; else NULL */
    const char *id;                    /* for RESOLUTION_RECALL; "": none */
    enum lookup_how how;
    union {
        struct models_wait model;
        struct keyed_lookup key;
        struct named_lookup conversation;
    } wait;
};

static void resolution_resume(struct resolution *r, const struct error *err);
static void resolution_looked_up(struct resolution *r, const struct journal_peer *owner,
                                 const struct error *err);

/* --- the model --- */

/* The model that the body names; "" also where the body is not sound, which begin will report. */
static const char *named_model(struct exchange *x, json_t **ret_body)
{
    struct error ignored;
    size_t len;
    const char *text = exchange_body(x, &len), *name;

    *ret_body = NULL;
    if (fields_parse(ret_body, text, len, &ignored) != STATUS_OK)
        return "";
    name = json_string_value(json_object_get(*ret_body, "model"));
    return name == NULL ? "" : name;
}

/* Ollama's clients write NAME:latest for NAME. */
static const char *resolution_name(struct exchange *x, const char *name)
{
    static const char latest[] = ":latest";
    size_t len = strlen(name), tag = sizeof(latest) - 1;
    const char *bare = NULL;

    if (len > tag && strcmp(name + len - tag, latest) == 0 &&
        models_find(exchange_server(x)->models, name) == NULL)
        bare = arena_strndup(exchange_arena(x), name, len - tag);
    return bare != NULL ? bare : name; /* without memory it is not found */
}

static void on_model(struct models_wait *w, const struct error *err)
{
    resolution_resume(container_of(w, struct resolution, wait.model), err);
}

static bool want_model(struct resolution *r, struct error *err)
{
    struct exchange *x = r->exchange;
    struct models *models = exchange_server(x)->models;
    bool is_done = true;
    const char *name;
    json_t *body;

    if (models->config.memory_bytes == 0)
        return false;
    r->wait.model = (struct models_wait){.done = on_model};
    name = resolution_name(x, named_model(x, &body));
    if (name[0] != '\0' || exchange_conversation(x)[0] == '\0') /* else a conversation names it */
        (void)!models_want(models, name, &r->wait.model, &is_done, err); /* it is in err */
    json_decref(body);
    return err->status == STATUS_OK && !is_done;
}

static void leave_model(struct resolution *r)
{
    models_leave(&r->wait.model);
}

/* --- the key --- */

static void on_key_looked_up(struct keyed_lookup *l, const struct error *err)
{
    resolution_looked_up(container_of(l, struct resolution, wait.key), &l->lookup.owner, err);
}

static bool want_key(struct resolution *r, struct error *err)
{
    struct exchange *x = r->exchange;

    return exchange_key(x) != NULL &&
           keyed_lookup_begin(&r->wait.key, exchange_server(x)->keyed, r->how,
                              exchange_principal(x)->id, exchange_key(x), on_key_looked_up);
}

static void leave_key(struct resolution *r)
{
    keyed_lookup_leave(&r->wait.key);
}

/* --- the conversation --- */

static void on_conversation(struct named_lookup *l, const struct error *err)
{
    resolution_looked_up(container_of(l, struct resolution, wait.conversation), &l->lookup.owner,
                         err);
}

static bool resolution_look_up(struct resolution *r, const char *text)
{
    struct exchange *x = r->exchange;

    return named_lookup_begin(&r->wait.conversation, exchange_server(x)->names, r->how,
                              exchange_principal(x)->id, text, on_conversation);
}

static bool want_conversation(struct resolution *r, struct error *err)
{
    return resolution_look_up(r, exchange_conversation(r->exchange));
}

static bool want_recall(struct resolution *r, struct error *err)
{
    return resolution_look_up(r, r->id);
}

static void leave_conversation(struct resolution *r)
{
    named_lookup_leave(&r->wait.conversation);
}

/* --- the states --- */

static const struct resolution_step {
    /* Begins the wait, which ends with resolution_resume. False: there is nothing to wait for, or
     * err says why not. */
    bool (*want)(struct resolution *r, struct error *err);
    void (*leave)(struct resolution *r); /* the exchange closes while the request waits */
    enum resolution_state next;
} steps[] = {
    [RESOLUTION_MODEL] = {want_model, leave_model, RESOLUTION_KEY},
    [RESOLUTION_KEY] = {want_key, leave_key, RESOLUTION_CONVERSATION},
    [RESOLUTION_CONVERSATION] = {want_conversation, leave_conversation, RESOLUTION_RECALL},
    [RESOLUTION_RECALL] = {want_recall, leave_conversation, RESOLUTION_DONE},
};

static void on_ready_to_write(struct exchange *x, void *state)
{
}

static void on_exchange_closed(struct exchange *x, void *state)
{
    struct resolution *r = state;

    steps[r->state].leave(r);
}

static void resolution_begin(struct exchange *x, resolution_begin_fn begin)
{
    struct error err;
    size_t len;
    const char *text = exchange_body(x, &len);
    json_t *body;
    enum status rc = fields_parse(&body, text, len, &err);

    if (rc == STATUS_OK) {
        rc = begin(x, body, &err);
        json_decref(body);
    }
    if (rc != STATUS_OK)
        exchange_fail(x, &err);
}

/* From the state that the request is in now. */
static void resolution_advance(struct resolution *r)
{
    static const struct exchange_handler handler = {.on_write_ready = on_ready_to_write,
                                                    .on_close = on_exchange_closed};
    struct error err = {.status = STATUS_OK};

    for (; r->state != RESOLUTION_DONE; r->state = steps[r->state].next) {
        if (steps[r->state].want(r, &err)) {
            exchange_set_handler(r->exchange, &handler, r);
            return;
        }
        if (err.status != STATUS_OK) {
            exchange_fail(r->exchange, &err);
            return;
        }
    }
    if (r->serve != NULL)
        r->serve(r->exchange);
    else
        resolution_begin(r->exchange, r->begin);
}

static void resolution_resume(struct resolution *r, const struct error *err)
{
    exchange_drop_handler(r->exchange);
    if (err->status != STATUS_OK) {
        exchange_fail(r->exchange, err);
        return;
    }
    r->state = steps[r->state].next;
    resolution_advance(r);
}

/* The daemon that had the conversation has ended: looks again, and waits. */
static void resolution_here(struct exchange *x, void *arg)
{
    struct resolution *r = arg;

    r->how = LOOKUP_HERE;
    resolution_advance(r);
}

static void resolution_looked_up(struct resolution *r, const struct journal_peer *owner,
                                 const struct error *err)
{
    const struct journal_peer to = *owner; /* which is the wait's */

    if (err->status != STATUS_UNAVAILABLE || to.id[0] == '\0') {
        resolution_resume(r, err);
        return;
    }
    exchange_drop_handler(r->exchange);
    if (!passed_exchange_begin(r->exchange, &to, resolution_here, r))
        resolution_here(r->exchange, r);
}

/* id is copied. */
static void resolution_start(struct exchange *x, const char *id, const struct resolution *start)
{
    struct resolution *r = arena_alloc(exchange_arena(x), 1, sizeof(*r));
    struct error err;

    if (r != NULL) {
        *r = *start;
        r->exchange = x;
        r->id = arena_strndup(exchange_arena(x), id, strlen(id));
    }
    if (r == NULL || r->id == NULL) {
        (void)error_no_memory(&err, sizeof(*r) + strlen(id), "a request");
        exchange_fail(x, &err);
        return;
    }
    r->how = cluster_can_pass_on(exchange_server(x)->cluster) && !exchange_is_passed_on(x)
                 ? LOOKUP_ANYWHERE
                 : LOOKUP_HERE;
    resolution_advance(r);
}

void resolution_serve(struct exchange *x, resolution_begin_fn begin)
{
    resolution_serve_from(x, "", begin);
}

void resolution_serve_from(struct exchange *x, const char *id, resolution_begin_fn begin)
{
    resolution_start(x, id, &(struct resolution){.state = RESOLUTION_MODEL, .begin = begin});
}

void resolution_recall(struct exchange *x, const char *id, void (*serve)(struct exchange *x))
{
    resolution_start(x, id, &(struct resolution){.state = RESOLUTION_RECALL, .serve = serve});
}

/* --- the answer --- */

enum status resolution_find_model(struct model **out, struct exchange *x, const char *name,
                                  struct error *err)
{
    enum status rc = models_get(out, exchange_server(x)->models, resolution_name(x, name), err);

    return rc != STATUS_OK ? rc : model_check_ready(*out, err);
}

/* APIs that have the arguments of calls as objects lose their white space. */
static bool resolution_more_is_same(const struct message *a, const struct message *b)
{
    json_t *x, *y;
    bool is_same;

    if (a->more_len == b->more_len && (a->more_len == 0 || !memcmp(a->more, b->more, a->more_len)))
        return true;
    if (a->more_len == 0 || b->more_len == 0)
        return false;
    x = json_loadb(a->more, a->more_len, JSON_ALLOW_NUL, NULL);
    y = json_loadb(b->more, b->more_len, JSON_ALLOW_NUL, NULL);
    is_same = x != NULL && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return is_same;
}

/* A result's extras do not count: the name of its tool may be known from the messages before it. */
static bool resolution_is_same(const struct message *a, const struct message *b)
{
    return a->role == b->role && a->len == b->len &&
           (a->len == 0 || memcmp(a->text, b->text, a->len) == 0) &&
           (a->role != ROLE_ASSISTANT || resolution_more_is_same(a, b));
}

/* Whether m is the turn's reply as its client got it: in parts, with thoughts or without. */
static bool is_reply_of(const struct message *m, const struct completed_turn *r,
                        const struct reply_format *format)
{
    const struct tool_use *use = &r->request->tool_use;
    const struct reply_parser_config config = {.format = r->request->is_plain ? NULL : format,
                                               .places = {completed_turn_has_token, r},
                                               .tools = use->tools,
                                               .is_forced = use->is_forced,
                                               .is_single = use->is_single,
                                               .is_json = tools_is_json(r->request),
                                               .thinking = r->request->variables.thinking};
    struct message said = {.role = ROLE_ASSISTANT};
    struct whole_reply reply = {0};
    bool is_same = false;
    struct error ignored;
    struct buf more;

    buf_init(&more, SIZE_MAX);
    if (whole_reply_read(&reply, &config, r->text, r->len, &ignored) == STATUS_OK) {
        said.text = reply.text.data;
        said.len = reply.text.len;
        for (int with_thoughts = 0; !is_same && with_thoughts < 2; with_thoughts++) {
            buf_clear(&more);
            if (whole_reply_extras(&reply, use->seed, with_thoughts != 0, &more, &ignored) !=
                STATUS_OK)
                break;
            said.more = more.data;
            said.more_len = more.len;
            is_same = resolution_is_same(m, &said);
        }
    }
    whole_reply_deinit(&reply);
    buf_deinit(&more);
    return is_same;
}

/* A turn that asked for no reply has none in the history. */
static bool has_said(const struct completed_turn *r)
{
    return !r->request->is_observed;
}

/* Whether p begins with the whole conversation up to newest; *ret_n: the number of those
 * messages. */
static bool begins_with(const struct prompt *p, const struct completed_turn *newest,
                        const struct reply_format *format, size_t *ret_n)
{
    const struct completed_turn *r;
    size_t n = 0;

    for (r = newest; r != NULL; r = r->before)
        n += r->request->n_messages + has_said(r);
    if (n > p->n_messages)
        return false;
    *ret_n = n;
    for (r = newest; r != NULL; r = r->before) { /* newest first */
        if (has_said(r) && !is_reply_of(&p->messages[--n], r, format))
            return false;
        for (size_t i = r->request->n_messages; i-- > 0;) {
            if (!resolution_is_same(&p->messages[--n], &r->request->messages[i]))
                return false;
        }
    }
    return true;
}

static bool has_reply(const struct prompt *p)
{
    for (size_t i = 0; i < p->n_messages; i++) {
        if (p->messages[i].role == ROLE_ASSISTANT)
            return true;
    }
    return false;
}

static enum status keep_new(const struct conversation *c, struct prompt *p, struct error *err)
{
    size_t at = 0;

    if (c->host.n_turns == 0 || !has_reply(p))
        return STATUS_OK;
    if (c->host.n_live > 0)
        return error_because(
            err, STATUS_ABORTED, REASON_CONVERSATION_BUSY, NULL,
            "the conversation has a turn in flight, whose reply the messages lack");
    if (!begins_with(p, c->host.newest, c->host.model->info.text.reply_format, &at) ||
        at == p->n_messages) {
        (void)error_field(err, "messages",
                          "do not go on from what was said in the conversation: send only new "
                          "ones, or all of its own");
        return err->status = STATUS_PRECONDITION;
    }
    p->messages += at;
    p->n_messages -= at;
    return STATUS_OK;
}

enum status resolution_answer_with(struct exchange *x, const struct conversation_id *id,
                                   struct error *err)
{
    char *text = arena_alloc(exchange_arena(x), CONVERSATION_ID_CHARS, 1);

    if (text == NULL)
        return error_no_memory(err, CONVERSATION_ID_CHARS, "a request");
    conversation_id_format(id, text);
    exchange_set_conversation(x, text);
    return STATUS_OK;
}

/* The plan's conversation is the one named by X-Conversation-Id, opened if there is none. If r's
 * messages begin with the whole conversation, only the rest stays in r. Otherwise all of them stay;
 * but if they hold a reply they have a different history: STATUS_PRECONDITION. The plan's model is
 * the one that r names; where r names none, it becomes the conversation's. */
static enum status resolution_plan_conversation(struct generation_plan *plan, struct exchange *x,
                                                struct request *r, struct error *err)
{
    const struct principal *principal = exchange_principal(x);
    const struct open_request nothing = {.principal = principal->id, .system = ""};
    const char *name = exchange_conversation(x);
    struct server *server = exchange_server(x);
    struct conversation_names *names = exchange_server(x)->names;
    struct conversation *c = conversation_names_find(names, principal->id, name);
    enum status rc = STATUS_OK;

    if (r->n != 1)
        return error_field(err, "n", "must be 1 in a conversation");
    if (c != NULL && r->model[0] == '\0')
        plan->model = c->host.model;
    if (c != NULL && conversation_check_model(c, err) != STATUS_OK)
        return err->status;
    if (c != NULL && c->host.model != plan->model) {
        (void)error_field(err, "model", "is another: the conversation is with model '%s'",
                          c->host.model->name);
        return err->status = STATUS_PRECONDITION;
    }
    if (c == NULL) {
        rc = conversation_open(&c, server->conversations, plan->model, &nothing, err);
        if (rc != STATUS_OK)
            return rc;
        plan->is_to_keep = true;
        plan->name = name;
        rc = conversation_names_bind(names, principal->id, name, &c->id, err);
    }
    if (rc == STATUS_OK)
        rc = keep_new(c, r->prompts, err);
    if (rc == STATUS_OK)
        rc = resolution_answer_with(x, &c->id, err);
    if (rc == STATUS_OK)
        plan->conversation = c;
    else if (plan->is_to_keep)
        conversation_close(c, WATCH_CLOSED, "its request was refused");
    return rc;
}

static enum status resolution_generate_as(struct exchange *x, struct generation_plan *plan,
                                          struct request *r, struct error *err)
{
    bool is_named = exchange_conversation(x)[0] != '\0';
    struct request_key key;

    if (request_key_read(&key, x, err) != STATUS_OK)
        return err->status;
    plan->request = r;
    plan->key = &key;
    if (key.reply != NULL) {
        if (is_named &&
            resolution_answer_with(x, &key.reply->turns[0].conversation, err) != STATUS_OK)
            return err->status;
        return generation_rejoin(x, plan, err);
    }
    if (resolution_find_model(&plan->model, x, r->model, err) != STATUS_OK)
        return err->status;
    if (is_named && r->prompts[0].is_begun)
        return error_field(err, "messages",
                           "must end with the user's in a conversation: its replies are whole");
    if (is_named && resolution_plan_conversation(plan, x, r, err) != STATUS_OK)
        return err->status;
    if (request_fit_model(r, plan->model->info.text.reply_format, exchange_arena(x), err) ==
            STATUS_OK &&
        request_continue(r, plan->model, exchange_arena(x), err) == STATUS_OK)
        return generation_start(x, plan, err);
    if (plan->is_to_keep)
        conversation_close(plan->conversation, WATCH_CLOSED, "its request was refused");
    return err->status;
}

enum status resolution_generate(struct exchange *x, struct generation_plan *plan, struct request *r,
                                struct error *err)
{
    return resolution_generate_as(x, plan, r, err) == STATUS_OK ? STATUS_OK
                                                                : request_name_error(r, err);
}
