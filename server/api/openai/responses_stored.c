/* /v1/responses/ID: a response that was begun before is read, whole or its events again, cancelled
 * or deleted, and its input listed. All of it is found in the conversation that the id names. */
#include "base/number.h"
#include "server/api/openai/response.h"
#include "server/api/openai/response_events.h"

#include <stdio.h>
#include <string.h>

#include "server/api/answer.h"
#include "server/api/openai/error.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/conversation/conversation.h"
#include "server/model/model.h"

#define RESPONSES_PATH "/v1/responses/"

enum {
    STORED_MAX_BYTES = 128 << 20,
    ITEMS_DEFAULT = 20,
    ITEMS_MAX = 100,
    ITEM_ID_CHARS = RESPONSE_ID_CHARS + 12,
};

/* What a request is about. */
struct stored_response {
    struct conversation *conversation;
    struct turn_place place;
    const struct stored_request *request;
    const struct completed_turn *completed; /* NULL: it is in progress */
    struct response *response;
};

static const struct stored_request *find_live_request(const struct conversation *c, uint32_t turn)
{
    const struct list *turns = &c->host.turns;
    const struct link *at;

    for (at = list_first(turns); at != NULL; at = list_next(turns, at)) {
        const struct turn *t = container_of(at, const struct turn, link);

        if (t->number == turn)
            return turn_request_of(t);
    }
    return c->unended.request; /* it waits for its model */
}

static enum status stored_response_find(struct stored_response *out, struct exchange *x,
                                        const char *id, struct error *err)
{
    struct conversation *c;

    if (response_find(&c, &out->place, x, id, NULL, err) != STATUS_OK)
        return err->status;
    out->conversation = c;
    out->completed = out->place.turn <= c->host.n_turns
                         ? completed_turn_find(c->host.newest, out->place.turn)
                         : NULL;
    out->request =
        out->completed != NULL ? out->completed->request : find_live_request(c, out->place.turn);
    return response_of_turn(&out->response, c, &out->place, out->request, exchange_arena(x), err);
}

static void stored_response_write(const struct stored_response *s, struct exchange *x)
{
    const struct response_view v = {
        .response = s->response,
        .model = s->conversation->host.model,
        .created_s = response_created_s(s->conversation),
        .request = s->request,
        .completed = s->completed,
    };
    struct json_writer w;
    struct buf body;

    buf_init(&body, STORED_MAX_BYTES);
    w = json_writer_begin(&body);
    response_write(&v, NULL, &w);
    answer_json(x, &w, &body);
    buf_deinit(&body);
}

/* --- reading, cancelling --- */

static enum status stored_response_generate(const struct stored_response *s, struct exchange *x,
                                            bool is_streamed, bool is_cancelled, struct error *err)
{
    const struct request request = {.n = 1, .n_prompts = 1, .stream = is_streamed};
    const struct generation_plan plan = {
        .renderer = &response_renderer,
        .renderer_state = s->response,
        .request = &request,
        .model = s->conversation->host.model,
        .conversation = s->conversation,
        .created_s = response_created_s(s->conversation),
    };

    return generation_reread(x, &plan, s->place.turn, is_cancelled, err);
}

#define QUERY_NUMBER_MAX ((uint64_t)999999999999999)

static enum status query_number(uint64_t *out, bool *ret_given, struct exchange *x,
                                const char *name, struct error *err)
{
    const char *text;
    enum status rc = exchange_query(&text, x, name, err);

    if (rc != STATUS_OK || text == NULL)
        return rc;
    if (!number_read(out, text, QUERY_NUMBER_MAX))
        return error_field(err, name, "is '%.40s', it must be a whole number", text);
    *ret_given = true;
    return STATUS_OK;
}

static enum status stored_response_get(const struct stored_response *s, struct exchange *x,
                                       struct error *err)
{
    const char *stream;

    if (exchange_query(&stream, x, "stream", err) != STATUS_OK ||
        query_number(&s->response->after, &s->response->has_after, x, "starting_after", err) !=
            STATUS_OK)
        return err->status;
    if (stream != NULL && strcmp(stream, "true") == 0 && strcmp(exchange_method(x), "HEAD") != 0)
        return stored_response_generate(s, x, true, false, err);
    if (s->response->has_after)
        return error_field(err, "starting_after", "is for streams: stream must be true");
    stored_response_write(s, x);
    return STATUS_OK;
}

/* Answers once the turn has ended, within a step. */
static enum status stored_response_cancel(const struct stored_response *s, struct exchange *x,
                                          struct error *err)
{
    if (s->completed == NULL)
        return stored_response_generate(s, x, false, true, err);
    stored_response_write(s, x);
    return STATUS_OK;
}

static enum status stored_response_delete(const struct stored_response *s, struct exchange *x,
                                          struct error *err)
{
    struct json_writer w;
    struct buf body;

    if (s->place.is_of_named)
        return error_set(err, STATUS_PRECONDITION,
                         "the response is a part of its conversation: delete that, or its items");
    if (s->place.turn < s->conversation->host.n_turns)
        return error_set(err, STATUS_PRECONDITION,
                         "the response is not the last of its conversation");
    if (conversation_check_pins(s->conversation, err) != STATUS_OK)
        return err->status;
    buf_init(&body, STORED_MAX_BYTES);
    w = json_writer_begin(&body);
    json_begin_object(&w, NULL);
    json_write_text(&w, "id", s->response->id);
    json_write_text(&w, "object", "response");
    json_write_bool(&w, "deleted", true);
    json_end_object(&w);
    conversation_close(s->conversation, WATCH_CLOSED, "its response was deleted");
    answer_json_kept(x, &w, &body);
    buf_deinit(&body);
    return STATUS_OK;
}

/* --- input items --- */

struct item_range {
    size_t at, n; /* at: of the order */
    bool is_ascending;
};

static void item_id(char out[ITEM_ID_CHARS], const struct stored_response *s, size_t i)
{
    (void)snprintf(out, ITEM_ID_CHARS, "msg_%s_%zu", s->response->id + 5, i);
}

/* The item at a place of the range's order. */
static size_t item_at(const struct stored_response *s, const struct item_range *r, size_t place)
{
    return r->is_ascending ? place : s->request->n_messages - 1 - place;
}

static enum status item_range_read(struct item_range *out, const struct stored_response *s,
                                   struct exchange *x, struct error *err)
{
    struct item_range r = {.n = ITEMS_DEFAULT};
    uint64_t limit = ITEMS_DEFAULT;
    const char *order, *after;
    char id[ITEM_ID_CHARS];
    bool is_given = false;

    if (exchange_query(&order, x, "order", err) != STATUS_OK ||
        exchange_query(&after, x, "after", err) != STATUS_OK ||
        query_number(&limit, &is_given, x, "limit", err) != STATUS_OK)
        return err->status;
    if (limit < 1 || limit > ITEMS_MAX)
        return error_field(err, "limit", "is %llu, it must be from 1 to %d",
                           (unsigned long long)limit, ITEMS_MAX);
    if (order != NULL && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return error_field(err, "order", "is '%.40s', it must be asc or desc", order);
    r.is_ascending = order != NULL && strcmp(order, "asc") == 0;
    r.n = (size_t)limit;
    while (after != NULL && r.at < s->request->n_messages) {
        item_id(id, s, item_at(s, &r, r.at++));
        if (strcmp(id, after) == 0)
            after = NULL;
    }
    if (after != NULL)
        return error_field(err, "after", "is '%.80s', which is not an item of the response", after);
    *out = r;
    return STATUS_OK;
}

static void item_write(const struct stored_response *s, size_t i, struct json_writer *w)
{
    const struct message *m = &s->request->messages[i];
    bool is_reply = m->role == ROLE_ASSISTANT;
    char id[ITEM_ID_CHARS];

    item_id(id, s, i);
    json_begin_object(w, NULL);
    json_write_text(w, "type", "message");
    json_write_text(w, "id", id);
    json_write_text(w, "status", "completed");
    json_write_text(w, "role", role_name(m->role));
    json_begin_array(w, "content");
    json_begin_object(w, NULL);
    json_write_text(w, "type", is_reply ? "output_text" : "input_text");
    if (is_reply) {
        json_write_empty_array(w, "annotations");
        json_write_empty_array(w, "logprobs");
    }
    json_write_string(w, "text", m->text, m->len);
    json_end_object(w);
    json_end_array(w);
    json_end_object(w);
}

static void item_write_edge(const struct stored_response *s, const struct item_range *r,
                            const char *name, size_t place, bool is_empty, struct json_writer *w)
{
    char id[ITEM_ID_CHARS];

    if (!is_empty)
        item_id(id, s, item_at(s, r, place));
    json_write_text(w, name, is_empty ? NULL : id);
}

static enum status stored_response_items(const struct stored_response *s, struct exchange *x,
                                         struct error *err)
{
    size_t end, n = s->request->n_messages;
    struct item_range r = {0};
    struct json_writer w;
    struct buf body;

    if (item_range_read(&r, s, x, err) != STATUS_OK)
        return err->status;
    end = n - r.at < r.n ? n : r.at + r.n;
    buf_init(&body, STORED_MAX_BYTES);
    w = json_writer_begin(&body);
    json_begin_object(&w, NULL);
    json_write_text(&w, "object", "list");
    json_begin_array(&w, "data");
    for (size_t place = r.at; place < end; place++)
        item_write(s, item_at(s, &r, place), &w);
    json_end_array(&w);
    item_write_edge(s, &r, "first_id", r.at, r.at == end, &w);
    item_write_edge(s, &r, "last_id", end - 1, r.at == end, &w);
    json_write_bool(&w, "has_more", end < n);
    json_end_object(&w);
    answer_json(x, &w, &body);
    buf_deinit(&body);
    return STATUS_OK;
}

/* --- routes --- */

static const struct stored_operation {
    const char *method, *what; /* behind the id */
    enum status (*serve)(const struct stored_response *s, struct exchange *x, struct error *err);
} stored_operations[] = {
    {"GET", "", stored_response_get},
    {"HEAD", "", stored_response_get},
    {"DELETE", "", stored_response_delete},
    {"POST", "/cancel", stored_response_cancel},
    {"GET", "/input_items", stored_response_items},
    {"HEAD", "/input_items", stored_response_items},
};

/* NULL: there is none; *ret_known: but for other methods. */
static const struct stored_operation *stored_operation_find(const char *method, const char *what,
                                                            bool *ret_known)
{
    *ret_known = false;
    for (size_t i = 0; i < sizeof(stored_operations) / sizeof(stored_operations[0]); i++) {
        const struct stored_operation *o = &stored_operations[i];

        if (strcmp(o->what, what) != 0)
            continue;
        *ret_known = true;
        if (strcmp(o->method, method) == 0)
            return o;
    }
    return NULL;
}

/* The id in the request's path; a longer one is cut, so that it is none. */
struct stored_id {
    char text[RESPONSE_ID_CHARS + 1];
};

static struct stored_id stored_id_of(const struct exchange *x, const char **ret_rest)
{
    const char *at = exchange_path(x) + strlen(RESPONSES_PATH);
    struct stored_id id = {.text = ""};
    size_t len = strcspn(at, "/");

    memcpy(id.text, at, len < sizeof(id.text) ? len : sizeof(id.text) - 1);
    *ret_rest = at + len;
    return id;
}

static void stored_responses_serve_now(struct exchange *x)
{
    const char *what;
    const struct stored_id id = stored_id_of(x, &what);
    const struct stored_operation *o;
    struct stored_response s = {0};
    struct error err;
    bool is_known;

    o = stored_operation_find(exchange_method(x), what, &is_known);
    if (o == NULL) {
        (void)error_set(&err, is_known ? STATUS_INVALID : STATUS_NOT_FOUND,
                        is_known ? "%s does not answer %s" : "there is no '%s' for %s",
                        exchange_path(x), exchange_method(x));
        exchange_fail_as(x, is_known ? 405 : 404, &err);
        return;
    }
    if (stored_response_find(&s, x, id.text, &err) != STATUS_OK ||
        o->serve(&s, x, &err) != STATUS_OK)
        exchange_fail(x, &err);
}

static void stored_responses_serve(struct exchange *x)
{
    const char *ignored;
    const struct stored_id id = stored_id_of(x, &ignored);

    resolution_recall(x, response_conversation_of(id.text).text, stored_responses_serve_now);
}

enum { STORED_METHODS = METHOD_GET | METHOD_HEAD | METHOD_POST | METHOD_DELETE };

static const struct route rows[] = {
    {RESPONSES_PATH, true, STORED_METHODS, .serve = stored_responses_serve, .api = &openai_api},
};
const struct route_table openai_responses_stored_routes = {rows, sizeof(rows) / sizeof(rows[0])};
