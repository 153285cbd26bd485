/* Happy path: embedding_answer_start begins the embeddings; their notification notifies the
 * exchange, which takes what is done, and answers once all is. A peer that goes away ends them. */
#include "server/api/embedding_request.h"

#include <string.h>

#include "server/access/access.h"
#include "server/http/exchange.h"
#include "server/json/fields.h"
#include "server/server.h"

enum { ANSWER_MAX_BYTES = 128 << 20 };

static enum status embedding_take_ids(struct prompt_input *out, const json_t *list,
                                      const char *name, struct arena *arena, struct error *err)
{
    int32_t *ids;

    if (field_token_ids(&ids, list, name, "text, or token ids", arena, err) != STATUS_OK)
        return err->status;
    *out = (struct prompt_input){.ids = ids, .n_ids = json_array_size(list)};
    return STATUS_OK;
}

static enum status embedding_take_input(struct prompt_input *out, const json_t *value,
                                        const char *name, struct arena *arena, struct error *err)
{
    size_t n = json_is_array(value) ? json_array_size(value) : json_string_length(value);
    char *text;

    if (!json_is_array(value) && !json_is_string(value))
        return field_wrong(err, name, "text, or token ids", value);
    if (n == 0)
        return error_field(err, name, "is empty, or has an empty entry");
    if (json_is_array(value))
        return embedding_take_ids(out, value, name, arena, err);
    text = arena_alloc(arena, n + 1, 1);
    if (text == NULL)
        return error_no_memory(err, n + 1, "a text");
    memcpy(text, json_string_value(value), n + 1);
    *out = (struct prompt_input){.text = text, .len = n};
    return STATUS_OK;
}

enum status embedding_request_inputs(struct prompt_input **out, size_t *ret_n, const json_t *body,
                                     const char *name, struct arena *arena, struct error *err)
{
    const json_t *value = field(body, name);
    bool is_one = !json_is_array(value) || json_is_integer(json_array_get(value, 0));
    size_t n = is_one ? 1 : json_array_size(value);
    struct prompt_input *inputs;

    if (value == NULL)
        return error_field(err, name, "is missing");
    if (n == 0)
        return error_field(err, name, "is empty");
    if (n > EMBEDDINGS_MAX_INPUTS)
        return error_field(err, name, "has %zu entries, at most %d are allowed", n,
                           EMBEDDINGS_MAX_INPUTS);
    inputs = arena_alloc(arena, n, sizeof(inputs[0]));
    if (inputs == NULL)
        return error_no_memory(err, n * sizeof(inputs[0]), "texts");
    for (size_t i = 0; i < n; i++)
        if (embedding_take_input(&inputs[i], is_one ? value : json_array_get(value, i), name, arena,
                                 err) != STATUS_OK)
            return err->status;
    *out = inputs;
    *ret_n = n;
    return STATUS_OK;
}

void embedding_answer_write_values(const struct embedding_answer *a, size_t i, const char *name,
                                   struct json_writer *w)
{
    const float *values = embeddings_values(a->embeddings, i);

    json_begin_array(w, name);
    for (size_t k = 0; k < embeddings_width(a->embeddings); k++)
        json_write_real(w, NULL, (double)values[k], 9);
    json_end_array(w);
}

void embedding_answer_write_usage(const struct embedding_answer *a, struct json_writer *w)
{
    const uint64_t n_tokens = embeddings_n_tokens(a->embeddings);

    json_begin_object(w, "usage");
    json_write_unsigned(w, "prompt_tokens", n_tokens);
    json_write_unsigned(w, "total_tokens", n_tokens);
    json_end_object(w);
}

static void embedding_answer_notify(void *arg)
{
    struct embedding_answer *a = arg;

    exchange_notify(a->exchange);
}

static void embedding_answer_finish(const struct embedding_answer *a)
{
    struct error err;
    struct buf body;
    struct json_writer w;

    buf_init(&body, ANSWER_MAX_BYTES);
    w = json_writer_begin(&body);
    a->write(a, &w);
    if (json_writer_end(&w) == STATUS_OK) {
        exchange_reply(a->exchange, 200, "application/json", body.data, body.len);
    } else {
        (void)error_no_memory(&err, 0, "the answer: send fewer texts, or ask for base64");
        exchange_fail(a->exchange, &err);
    }
    buf_deinit(&body);
}

static void embedding_answer_ready(struct exchange *x, void *state)
{
    struct embedding_answer *a = state;
    bool is_done = false;
    struct error err;

    if (a->embeddings == NULL) /* answered */
        return;
    if (embeddings_advance(a->embeddings, &is_done, &err) != STATUS_OK)
        exchange_fail(x, &err);
    else if (is_done)
        embedding_answer_finish(a);
    else
        return;
    embeddings_close(a->embeddings);
    a->embeddings = NULL;
}

static void embedding_answer_close(struct exchange *x, void *state)
{
    struct embedding_answer *a = state;

    embeddings_close(a->embeddings);
    a->embeddings = NULL;
}

enum status embedding_answer_start(struct exchange *x, struct embeddings_request *r,
                                   void (*write)(const struct embedding_answer *a,
                                                 struct json_writer *w),
                                   bool is_base64, void *state, struct error *err)
{
    static const struct exchange_handler handler = {.on_write_ready = embedding_answer_ready,
                                                    .on_close = embedding_answer_close};
    struct embedding_answer *a = arena_alloc(exchange_arena(x), 1, sizeof(*a));

    if (a == NULL)
        return error_no_memory(err, sizeof(*a), "a request");
    *a = (struct embedding_answer){.exchange = x,
                                   .model = r->model,
                                   .n_inputs = r->n_inputs,
                                   .is_base64 = is_base64,
                                   .state = state,
                                   .write = write};
    r->principal = exchange_principal(x)->id;
    if (embeddings_open(&a->embeddings, exchange_server(x)->conversations, r,
                        embedding_answer_notify, a, err) != STATUS_OK)
        return err->status;
    exchange_set_handler(x, &handler, a);
    return STATUS_OK;
}
