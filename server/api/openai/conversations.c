/* OpenAI's /v1/conversations, on the same conversations as gRPC's and as X-Conversation-Id: an id
 * is theirs, and their names are valid, too. Items that a client adds are a turn that asks for no
 * reply. Turns do not change, so only a conversation's last item can be deleted: its turn is
 * rewound, and what else it had is added again. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "server/access/access.h"
#include "server/api/answer.h"
#include "server/api/openai/conversation_items.h"
#include "server/api/openai/error.h"
#include "server/api/openai/request.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/import.h"
#include "server/conversation/keeping.h"
#include "server/conversation/names.h"
#include "server/http/exchange.h"
#include "server/json/field_table.h"
#include "server/json/fields.h"
#include "server/model/model.h"
#include "server/server.h"

#define CONVERSATIONS_PATH "/v1/conversations/"

enum { ANSWER_MAX_BYTES = 128 << 20, PAGE_DEFAULT = 20, PAGE_MAX = 100 };

/* --- the object --- */

static void conversation_write(struct json_writer *w, const struct conversation *c)
{
    const struct metadata *m = c->metadata;
    char id[CONVERSATION_ID_CHARS];

    conversation_id_format(&c->id, id);
    json_begin_object(w, NULL);
    json_write_text(w, "id", id);
    json_write_text(w, "object", "conversation");
    json_write_unsigned(w, "created_at", c->opened_unix_ms / 1000);
    json_begin_object(w, "metadata");
    for (size_t i = 0; m != NULL && i < m->n_pairs; i++) {
        json_write_name(w, m->pairs[i].key, strlen(m->pairs[i].key));
        json_write_text(w, NULL, m->pairs[i].value);
    }
    json_end_object(w);
    json_write_text(w, "model", c->host.model->name);
    json_end_object(w);
}

/* Answers with the conversation by answer_json, or answer_json_kept where it was changed. */
static void answer_conversation(struct exchange *x, const struct conversation *c,
                                void (*answer)(struct exchange *x, struct json_writer *w,
                                               const struct buf *body))
{
    struct json_writer w;
    struct buf body;

    buf_init(&body, ANSWER_MAX_BYTES);
    w = json_writer_begin(&body);
    conversation_write(&w, c);
    answer(x, &w, &body);
    buf_deinit(&body);
}

/* --- adding items --- */

struct conversation_body {
    const char *model;
    const json_t *items, *metadata;
};

#define TO(member) offsetof(struct conversation_body, member)
static const struct field_row conversation_rows[] = {
    {"items", FIELD_LIST, .to = TO(items)},
    {"metadata", FIELD_OBJECT, .to = TO(metadata)},
    {"model", FIELD_TEXT, .to = TO(model)},
};
static const struct field_table conversation_fields = FIELD_TABLE(conversation_rows);

/* The items as messages, which borrow *ret_list: the caller's. */
static enum status read_items(struct prompt *out, json_t **ret_list, const json_t *items,
                              struct arena *arena, struct error *err)
{
    *out = (struct prompt){.n_messages = 0};
    if (json_array_size(items) == 0)
        return STATUS_OK;
    if (request_items(ret_list, items, "items", err) != STATUS_OK)
        return err->status;
    return request_messages(out, *ret_list, "items", arena, err);
}

/* A turn that an earlier process had not ended goes on; items come behind it. */
static enum status go_on(struct conversation *c, struct error *err)
{
    return c->unended.request == NULL ? STATUS_OK : conversation_run_unended(c, err);
}

/* Adds a turn without a reply. origin: of the turn that had the messages before; NULL: none had. */
static enum status add_messages(struct conversation *c, const struct message *messages, size_t n,
                                const struct turn_origin *origin, struct error *err)
{
    const struct imported_turn turn = {
        .request = {.messages = messages, .n_messages = n, .is_observed = true},
        .reply = "",
        .finish = FINISH_OBSERVED,
        .origin = origin == NULL ? (struct turn_origin){.generation = 0} : *origin,
    };

    return n == 0 ? STATUS_OK : conversation_import(c, &turn, err);
}

/* --- create --- */

static enum status conversation_create(struct exchange *x, const json_t *body, struct error *err)
{
    struct conversation_body given = {.model = ""};
    struct open_request open = {.principal = exchange_principal(x)->id, .system = ""};
    struct conversation *c = NULL;
    struct prompt items;
    struct model *model;
    json_t *list = NULL;
    enum status rc;

    if (exchange_conversation(x)[0] != '\0')
        return error_field(err, "X-Conversation-Id", "is for /v1/chat/completions");
    rc = field_table_read(&conversation_fields, &given, body, err);
    if (rc == STATUS_OK)
        rc = request_metadata(&open.metadata, &open.n_metadata, given.metadata, exchange_arena(x),
                              err);
    if (rc == STATUS_OK)
        rc = resolution_find_model(&model, x, given.model, err);
    if (rc == STATUS_OK)
        rc = read_items(&items, &list, given.items, exchange_arena(x), err);
    if (rc == STATUS_OK)
        rc = conversation_open(&c, exchange_server(x)->conversations, model, &open, err);
    if (rc == STATUS_OK)
        rc = keeping_begin(c, NULL, err); /* a failure: it has left memory */
    if (rc == STATUS_OK) {
        const struct conversation_id id = c->id;

        rc = add_messages(c, items.messages, items.n_messages, NULL, err);
        if (rc == STATUS_OK)
            answer_conversation(x, c, answer_json_kept);
        else if ((c = conversations_get(exchange_server(x)->conversations, &id)) != NULL)
            conversation_close(c, WATCH_CLOSED, "its request was refused");
    }
    json_decref(list);
    return rc;
}

static void conversations_serve(struct exchange *x)
{
    resolution_serve(x, conversation_create);
}

/* --- one conversation --- */

/* What a request to a path below /v1/conversations/ is about. */
struct conversation_target {
    struct conversation *conversation;
    const char *item; /* "": none */
};

static enum status conversation_retrieve(const struct conversation_target *t, struct exchange *x,
                                         struct error *err)
{
    answer_conversation(x, t->conversation, answer_json);
    return STATUS_OK;
}

static enum status conversation_modify(const struct conversation_target *t, struct exchange *x,
                                       struct error *err)
{
    struct conversation_body given = {.model = ""};
    struct update_request update = {.has_metadata = true};
    json_t *body = NULL;
    const char *text;
    size_t len;
    enum status rc;

    text = exchange_body(x, &len);
    rc = fields_parse(&body, text, len, err);
    if (rc == STATUS_OK)
        rc = field_table_read(&conversation_fields, &given, body, err);
    if (rc == STATUS_OK && given.metadata == NULL)
        rc = error_field(err, "metadata", "is missing");
    if (rc == STATUS_OK)
        rc = request_metadata(&update.metadata, &update.n_metadata, given.metadata,
                              exchange_arena(x), err);
    if (rc == STATUS_OK)
        rc = conversation_update(t->conversation, &update, err);
    json_decref(body);
    if (rc == STATUS_OK)
        answer_conversation(x, t->conversation, answer_json_kept);
    return rc;
}

static enum status conversation_delete(const struct conversation_target *t, struct exchange *x,
                                       struct error *err)
{
    char id[CONVERSATION_ID_CHARS];
    struct json_writer w;
    struct buf body;

    if (conversation_check_pins(t->conversation, err) != STATUS_OK)
        return err->status;
    conversation_id_format(&t->conversation->id, id);
    buf_init(&body, ANSWER_MAX_BYTES);
    w = json_writer_begin(&body);
    json_begin_object(&w, NULL);
    json_write_text(&w, "id", id);
    json_write_text(&w, "object", "conversation.deleted");
    json_write_bool(&w, "deleted", true);
    json_end_object(&w);
    conversation_close(t->conversation, WATCH_CLOSED, "asked for");
    answer_json_kept(x, &w, &body);
    buf_deinit(&body);
    return STATUS_OK;
}

/* --- lists of items --- */

/* The place of an item in the order of a page. */
struct item_cursor {
    const struct conversation *conversation;
    struct turn_items turn;
    size_t at; /* of turn.items, in the order */
    bool is_ascending;
};

static const struct conversation_item *cursor_item(const struct item_cursor *i)
{
    return &i->turn.items[i->is_ascending ? i->at : i->turn.n - 1 - i->at];
}

/* Moves to the next turn in the order that has items, from this one on. *ret_has: there is one. */
static enum status cursor_settle(struct item_cursor *i, const struct completed_turn *from,
                                 bool *ret_has, struct arena *arena, struct error *err)
{
    const struct conversation *c = i->conversation;

    i->at = 0;
    for (*ret_has = false; from != NULL && !*ret_has;) {
        if (turn_items_read(&i->turn, c, from, arena, err) != STATUS_OK)
            return err->status;
        *ret_has = i->turn.n > 0;
        if (!*ret_has)
            from = i->is_ascending ? completed_turn_find(c->host.newest, from->number + 1)
                                   : from->before;
    }
    return STATUS_OK;
}

static enum status cursor_next(struct item_cursor *i, bool *ret_has, struct arena *arena,
                               struct error *err)
{
    const struct completed_turn *t = i->turn.turn;

    *ret_has = ++i->at < i->turn.n;
    if (*ret_has)
        return STATUS_OK;
    return cursor_settle(i,
                         i->is_ascending
                             ? completed_turn_find(i->conversation->host.newest, t->number + 1)
                             : t->before,
                         ret_has, arena, err);
}

/* The first item of the page. */
static enum status cursor_begin(struct item_cursor *i, const char *after, bool *ret_has,
                                struct arena *arena, struct error *err)
{
    const struct conversation *c = i->conversation;
    size_t at;

    if (after == NULL)
        return cursor_settle(
            i, i->is_ascending ? completed_turn_find(c->host.newest, 1) : c->host.newest, ret_has,
            arena, err);
    if (turn_items_find(&i->turn, &at, c, after, arena, err) != STATUS_OK)
        return error_name_field(err, "after");
    i->at = i->is_ascending ? at : i->turn.n - 1 - at;
    return cursor_next(i, ret_has, arena, err);
}

static void list_begin(struct json_writer *w)
{
    json_begin_object(w, NULL);
    json_write_text(w, "object", "list");
    json_begin_array(w, "data");
}

static void list_end(struct json_writer *w, const char *first, const char *last, bool has_more)
{
    json_end_array(w);
    json_write_text(w, "first_id", first);
    json_write_text(w, "last_id", last);
    json_write_bool(w, "has_more", has_more);
    json_end_object(w);
}

static enum status write_items_page(struct json_writer *w, struct item_cursor *i, const char *after,
                                    uint64_t limit, struct arena *arena, struct error *err)
{
    char first[ITEM_ID_MAX] = "", last[ITEM_ID_MAX] = "";
    bool has;

    if (cursor_begin(i, after, &has, arena, err) != STATUS_OK)
        return err->status;
    list_begin(w);
    for (uint64_t n = 0; has && n < limit; n++) {
        const struct conversation_item *item = cursor_item(i);

        memcpy(n == 0 ? first : last, item->id, sizeof(last));
        memcpy(last, item->id, sizeof(last));
        conversation_item_write(item, w);
        if (cursor_next(i, &has, arena, err) != STATUS_OK)
            return err->status;
    }
    list_end(w, first[0] == '\0' ? NULL : first, last[0] == '\0' ? NULL : last, has);
    return STATUS_OK;
}

static enum status conversation_items_list(const struct conversation_target *t, struct exchange *x,
                                           struct error *err)
{
    struct item_cursor i = {.conversation = t->conversation};
    const char *limit_text, *order, *after;
    uint64_t limit = PAGE_DEFAULT;
    struct json_writer w;
    struct arena arena;
    struct buf body;
    enum status rc;

    if (exchange_query(&limit_text, x, "limit", err) != STATUS_OK ||
        exchange_query(&order, x, "order", err) != STATUS_OK ||
        exchange_query(&after, x, "after", err) != STATUS_OK)
        return err->status;
    if (limit_text != NULL && (!number_read(&limit, limit_text, PAGE_MAX) || limit == 0))
        return error_field(err, "limit", "is '%.40s', it must be from 1 to %d", limit_text,
                           PAGE_MAX);
    if (order != NULL && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return error_field(err, "order", "is '%.40s', it must be asc or desc", order);
    i.is_ascending = order != NULL && strcmp(order, "asc") == 0;
    arena_init(&arena, ANSWER_MAX_BYTES);
    buf_init(&body, ANSWER_MAX_BYTES);
    w = json_writer_begin(&body);
    rc = write_items_page(&w, &i, after, limit, &arena, err);
    if (rc == STATUS_OK)
        answer_json(x, &w, &body);
    buf_deinit(&body);
    arena_deinit(&arena);
    return rc;
}

/* Answers with the items of the newest turn, which are new. */
static enum status answer_new_items(struct exchange *x, const struct conversation *c,
                                    struct error *err)
{
    struct turn_items t;
    struct json_writer w;
    struct buf body;

    if (turn_items_read(&t, c, c->host.newest, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    buf_init(&body, ANSWER_MAX_BYTES);
    w = json_writer_begin(&body);
    list_begin(&w);
    for (size_t i = 0; i < t.n; i++)
        conversation_item_write(&t.items[i], &w);
    list_end(&w, t.n == 0 ? NULL : t.items[0].id, t.n == 0 ? NULL : t.items[t.n - 1].id, false);
    answer_json_kept(x, &w, &body);
    buf_deinit(&body);
    return STATUS_OK;
}

static enum status conversation_items_add(const struct conversation_target *t, struct exchange *x,
                                          struct error *err)
{
    struct conversation_body given = {.model = ""};
    struct prompt items = {.n_messages = 0};
    json_t *body = NULL, *list = NULL;
    const char *text;
    size_t len;
    enum status rc;

    text = exchange_body(x, &len);
    rc = fields_parse(&body, text, len, err);
    if (rc == STATUS_OK)
        rc = field_table_read(&conversation_fields, &given, body, err);
    if (rc == STATUS_OK)
        rc = read_items(&items, &list, given.items, exchange_arena(x), err);
    if (rc == STATUS_OK && items.n_messages == 0)
        rc = error_field(err, "items", "has nothing to add");
    if (rc == STATUS_OK)
        rc = go_on(t->conversation, err);
    if (rc == STATUS_OK)
        rc = add_messages(t->conversation, items.messages, items.n_messages, NULL, err);
    if (rc == STATUS_OK)
        rc = answer_new_items(x, t->conversation, err);
    json_decref(list);
    json_decref(body);
    return rc;
}

/* --- one item --- */

static enum status conversation_item_retrieve(const struct conversation_target *t,
                                              struct exchange *x, struct error *err)
{
    struct turn_items items;
    struct json_writer w;
    struct buf body;
    size_t at;

    if (turn_items_find(&items, &at, t->conversation, t->item, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    buf_init(&body, ANSWER_MAX_BYTES);
    w = json_writer_begin(&body);
    conversation_item_write(&items.items[at], &w);
    answer_json(x, &w, &body);
    buf_deinit(&body);
    return STATUS_OK;
}

/* How many messages of its turn stay when the item goes. */
static enum status messages_left(size_t *ret_n, const struct conversation *c,
                                 const struct turn_items *t, size_t at, struct error *err)
{
    const struct conversation_item *item = &t->items[at];

    if (t->turn != c->host.newest || at + 1 < t->n) {
        (void)error_set(err, STATUS_PRECONDITION,
                        "only the last item can be deleted: rewind the conversation, or fork it");
        return err->status;
    }
    if (at > 0 && t->items[at - 1].message == item->message)
        return error_set(err, STATUS_PRECONDITION,
                         "the item is a part of a message or reply that has more of them: rewind "
                         "the conversation to turn %u to delete all",
                         t->turn->number - 1);
    *ret_n = item->message == SIZE_MAX ? t->turn->request->n_messages : item->message;
    return STATUS_OK;
}

static enum status conversation_item_delete(const struct conversation_target *t, struct exchange *x,
                                            struct error *err)
{
    struct conversation *c = t->conversation;
    struct completed_turn *turn;
    struct turn_items items;
    size_t at, n = 0;
    enum status rc;

    if (go_on(c, err) != STATUS_OK ||
        turn_items_find(&items, &at, c, t->item, exchange_arena(x), err) != STATUS_OK ||
        messages_left(&n, c, &items, at, err) != STATUS_OK)
        return err->status;
    turn = completed_turn_ref(c->host.newest); /* its messages are added again */
    rc = conversation_rewind(c, turn->number - 1, err);
    if (rc == STATUS_OK)
        rc = add_messages(c, turn->request->messages, n, &turn->origin, err);
    completed_turn_unref(turn);
    if (rc == STATUS_OK)
        answer_conversation(x, c, answer_json_kept);
    return rc;
}

/* --- routes --- */

static const struct conversation_operation {
    const char *method;
    bool is_of_items, has_item; /* of /items, of /items/ITEM; neither: of the conversation */
    enum status (*serve)(const struct conversation_target *t, struct exchange *x,
                         struct error *err);
} conversation_operations[] = {
    {"GET", false, false, conversation_retrieve},
    {"HEAD", false, false, conversation_retrieve},
    {"POST", false, false, conversation_modify},
    {"DELETE", false, false, conversation_delete},
    {"GET", true, false, conversation_items_list},
    {"HEAD", true, false, conversation_items_list},
    {"POST", true, false, conversation_items_add},
    {"GET", true, true, conversation_item_retrieve},
    {"HEAD", true, true, conversation_item_retrieve},
    {"DELETE", true, true, conversation_item_delete},
};

/* The path behind CONVERSATIONS_PATH: an id or name, /items, /ITEM. */
struct conversation_path {
    char id[CONVERSATION_NAME_MAX_BYTES + 2]; /* a longer one is cut, so that it is none */
    const char *item;                         /* "": none */
    bool is_of_items, is_known;
};

static struct conversation_path conversation_path_of(const struct exchange *x)
{
    static const char items[] = "/items";
    const char *at = exchange_path(x) + strlen(CONVERSATIONS_PATH);
    struct conversation_path p = {.id = "", .item = ""};
    const size_t len = strcspn(at, "/");

    memcpy(p.id, at, len < sizeof(p.id) ? len : sizeof(p.id) - 1);
    at += len;
    p.is_of_items = strncmp(at, items, sizeof(items) - 1) == 0;
    if (p.is_of_items)
        at += sizeof(items) - 1;
    if (p.is_of_items && at[0] == '/' && at[1] != '\0')
        p.item = at + 1;
    p.is_known = at[0] == '\0' || (p.item[0] != '\0' && strchr(p.item, '/') == NULL);
    return p;
}

/* NULL: the path has none for the request's method. */
static const struct conversation_operation *find_operation(const struct conversation_path *p,
                                                           const char *method)
{
    for (size_t i = 0; i < sizeof(conversation_operations) / sizeof(conversation_operations[0]);
         i++) {
        const struct conversation_operation *o = &conversation_operations[i];

        if (o->is_of_items == p->is_of_items && o->has_item == (p->item[0] != '\0') &&
            strcmp(o->method, method) == 0)
            return o;
    }
    return NULL;
}

static void conversation_serve_now(struct exchange *x)
{
    const struct conversation_path p = conversation_path_of(x);
    const struct conversation_operation *o = find_operation(&p, exchange_method(x));
    struct conversation_target t = {.item = p.item};
    struct error err;

    if (!p.is_known || o == NULL) {
        (void)error_set(&err, p.is_known ? STATUS_INVALID : STATUS_NOT_FOUND,
                        p.is_known ? "%.120s does not answer %s" : "there is no '%.120s' for %s",
                        exchange_path(x), exchange_method(x));
        exchange_fail_as(x, p.is_known ? 405 : 404, &err);
        return;
    }
    if (conversation_names_get(&t.conversation, exchange_server(x)->names,
                               exchange_principal(x)->id, p.id, &err) != STATUS_OK ||
        o->serve(&t, x, &err) != STATUS_OK)
        exchange_fail(x, &err);
}

/* It may have to be read from the journal first. */
static void conversation_serve(struct exchange *x)
{
    const struct conversation_path p = conversation_path_of(x);

    resolution_recall(x, p.id, conversation_serve_now);
}

enum { CONVERSATION_METHODS = METHOD_GET | METHOD_HEAD | METHOD_POST | METHOD_DELETE };

static const struct route rows[] = {
    {"/v1/conversations", .methods = METHOD_POST, .serve = conversations_serve, .api = &openai_api},
    {CONVERSATIONS_PATH, true, CONVERSATION_METHODS, .serve = conversation_serve,
     .api = &openai_api},
};
const struct route_table openai_conversations_routes = {rows, sizeof(rows) / sizeof(rows[0])};
