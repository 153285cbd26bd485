#include "server/http/binding.h"

#include <string.h>

#include "server/daemon.h"
#include "server/http/exchange.h"
#include "server/http/fields.h"
#include "server/http/memory.h"
#include "server/model.h"

void binding_serve(struct exchange *x,
                   enum status (*begin)(struct exchange *x, const json_t *body, struct error *err))
{
    struct error err;
    const char *text;
    json_t *body;
    size_t len;
    enum status rc;

    text = exchange_body(x, &len);
    rc = fields_parse(&body, text, len, &err);
    if (rc == STATUS_OK) {
        rc = begin(x, body, &err);
        json_decref(body);
    }
    if (rc != STATUS_OK)
        exchange_fail(x, &err);
}

enum status binding_model(struct model **out, struct exchange *x, const char *name,
                          struct error *err)
{
    enum status rc = daemon_model(out, exchange_daemon(x), name, err);

    if (rc != STATUS_OK)
        memcpy(err->field, "model", sizeof("model"));
    return rc != STATUS_OK ? rc : model_check_ready(*out, err);
}

static bool is_same(const struct message *a, const struct message *b)
{
    return a->role == b->role && a->len == b->len &&
           (a->len == 0 || memcmp(a->text, b->text, a->len) == 0);
}

/* Whether p begins with all that was said up to r; *ret_n: how many messages that is. */
static bool begins_with(const struct prompt *p, const struct record *newest, size_t *ret_n)
{
    const struct record *r;
    size_t n = 0;

    for (r = newest; r != NULL; r = r->before)
        n += r->body->n_messages + 1;
    if (n > p->n_messages)
        return false;
    *ret_n = n;
    for (r = newest; r != NULL; r = r->before) { /* from the last one back */
        const struct message reply = {.role = ROLE_ASSISTANT, .text = r->text, .len = r->len};

        if (!is_same(&p->messages[--n], &reply))
            return false;
        for (size_t i = r->body->n_messages; i-- > 0;) {
            if (!is_same(&p->messages[--n], &r->body->messages[i]))
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

    if (c->n_turns == 0 || !has_reply(p))
        return STATUS_OK;
    if (c->n_live > 0)
        return error_set(err, STATUS_PRECONDITION,
                         "the conversation has a turn in flight, whose reply the messages lack");
    if (!begins_with(p, c->newest, &at) || at == p->n_messages)
        return error_set(err, STATUS_PRECONDITION,
                         "the messages do not go on from what was said in the conversation: send "
                         "only new ones, or all of its own");
    p->messages += at;
    p->n_messages -= at;
    return STATUS_OK;
}

enum status binding_conversation(struct conversation **out, struct exchange *x, struct request *r,
                                 struct model **model, struct error *err)
{
    static const struct open_request nothing = {.system = ""};
    const char *name = exchange_conversation(x);
    struct daemon *d = exchange_daemon(x);
    struct memory *memory = exchange_memory(x);
    struct conversation *c = memory_find(memory, name);
    char *id = arena_alloc(exchange_arena(x), CONVERSATION_ID_CHARS, 1);
    enum status rc = STATUS_OK;

    if (id == NULL)
        return error_no_memory(err, CONVERSATION_ID_CHARS, "a request");
    if (r->n != 1)
        return error_field(err, "n", "must be 1 in a conversation");
    if (c != NULL && r->model[0] == '\0')
        *model = c->model;
    if (c != NULL && c->model != *model)
        return error_set(err, STATUS_PRECONDITION, "the conversation is with model '%s'",
                         c->model->name);
    if (c == NULL) {
        rc = conversation_open(&c, &d->conversations, *model, &nothing, err);
        if (rc != STATUS_OK)
            return rc;
        rc = memory_bind(memory, name, &c->id, err);
        if (rc != STATUS_OK) {
            conversation_close(c, WATCH_CLOSED, "its request was refused");
            return rc;
        }
    }
    rc = keep_new(c, r->prompts, err);
    if (rc != STATUS_OK)
        return rc;
    conversation_id_format(&c->id, id);
    exchange_set_conversation(x, id);
    *out = c;
    return STATUS_OK;
}
