/* POST /completion and /infill in llama-server's form. Their fields are read as those of
 * /v1/completions, under their own names; the answer is one text with how it came about. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/text.h"
#include "server/api/generation.h"
#include "server/api/openai/error.h"
#include "server/api/openai/request.h"
#include "server/api/reply_stop.h"
#include "server/api/resolution.h"
#include "server/api/routes.h"
#include "server/http/exchange.h"
#include "server/json/field_table.h"
#include "server/json/fields.h"
#include "server/model/model.h"

enum { INFILL_MAX_FILES = 256, GAP_TEXTS = 3, ANSWER_MAX_BYTES = 64 << 20 };

/* The state of the renderer. */
struct llama_reply {
    bool is_warming;     /* n_predict is 0: the prompt is computed, and its reply not told */
    bool gives_ids;      /* of a whole reply; a stream's pieces have them in any case */
    const char **fields; /* [n_fields] of the answer, "timings/prompt_n"; all where n_fields is 0 */
    size_t n_fields;
};

/* --- the request --- */

static const struct field_name llama_names[] = {
    {"max_tokens", "n_predict"}, {"logprobs", "n_probs"}, {"suffix", "input_suffix"}, {0}};

/* Of /v1/completions alone. */
static const char *const llama_others[] = {
    "best_of",          "echo",           "logprobs", "n", "prompt_logprobs",
    "return_token_ids", "stream_options", "suffix"};

/* What does not hold here, and is named to the client: an editor sends them with each request. */
static const char *const llama_unenforced[] = {"n_indent", "samplers", "t_max_predict_ms",
                                               "t_max_prompt_ms"};

/* The members that have another name in /v1/completions, or no meaning here. */
static enum status llama_rename(struct llama_reply *out, json_t *body, struct error *err)
{
    int64_t n_predict = -1, n_probs = 0;
    bool has_predict = false;

    for (size_t i = 0; i < sizeof(llama_others) / sizeof(llama_others[0]); i++)
        if (field(body, llama_others[i]) != NULL)
            return error_field(err, llama_others[i],
                               "is not supported here: /v1/completions has it");
    if (field_whole(&n_predict, &has_predict, body, "n_predict", -2, UINT32_MAX, err) !=
            STATUS_OK ||
        field_whole(&n_probs, NULL, body, "n_probs", 0, SAMPLING_MAX_LOGPROBS, err) != STATUS_OK ||
        field_bool(&out->gives_ids, body, "return_tokens", err) != STATUS_OK)
        return err->status;
    out->is_warming = has_predict && n_predict == 0;
    if (has_predict || field(body, "max_tokens") == NULL) {
        n_predict = out->is_warming ? 1 : n_predict < 0 ? -1 : n_predict;
        if (json_object_set_new(body, "max_tokens", json_integer(n_predict)) != 0)
            return error_no_memory(err, 0, "the request");
    }
    if (n_probs > 0 && json_object_set_new(body, "logprobs", json_integer(n_probs)) != 0)
        return error_no_memory(err, 0, "the request");
    (void)json_object_del(body, "n_predict"); /* what is not there stays away */
    (void)json_object_del(body, "n_probs");
    (void)json_object_del(body, "return_tokens");
    return STATUS_OK;
}

/* Takes the fields that the answer is to have, out of the body. */
static enum status llama_take_fields(struct llama_reply *out, json_t *body, struct arena *arena,
                                     struct error *err)
{
    const json_t *list = NULL;
    const size_t most = 64;

    if (field_array(&list, body, "response_fields", err) != STATUS_OK)
        return err->status;
    if (json_array_size(list) > most)
        return error_field(err, "response_fields", "has %zu fields, at most %zu are allowed",
                           json_array_size(list), most);
    out->fields = arena_alloc(arena, json_array_size(list) + 1, sizeof(out->fields[0]));
    for (size_t i = 0; out->fields != NULL && i < json_array_size(list); i++) {
        const json_t *name = json_array_get(list, i);
        char *own;

        if (!field_is_plain_text(name))
            return field_wrong(err, "response_fields", "a list of strings", name);
        own = arena_strndup(arena, json_string_value(name), json_string_length(name));
        if (own == NULL)
            return error_no_memory(err, 0, "the request");
        out->fields[out->n_fields++] = own;
    }
    if (out->fields == NULL)
        return error_no_memory(err, 0, "the request");
    (void)json_object_del(body, "response_fields");
    return STATUS_OK;
}

static enum status llama_leave_out(struct request *r, json_t *body, struct arena *arena,
                                   struct error *err)
{
    for (size_t i = 0; i < sizeof(llama_unenforced) / sizeof(llama_unenforced[0]); i++)
        if (field(body, llama_unenforced[i]) != NULL &&
            request_leave_out(r, llama_unenforced[i], arena, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

/* The request that the renamed body is as one of /v1/completions: one prompt. */
static enum status llama_request(struct request *out, struct llama_reply *reply, json_t *body,
                                 struct arena *arena, struct error *err)
{
    json_t *unenforced = json_object();
    enum status rc = unenforced == NULL ? error_no_memory(err, 0, "the request") : STATUS_OK;

    if (rc == STATUS_OK)
        rc = llama_rename(reply, body, err);
    if (rc == STATUS_OK)
        rc = llama_take_fields(reply, body, arena, err);
    for (size_t i = 0; i < sizeof(llama_unenforced) / sizeof(llama_unenforced[0]); i++) {
        json_t *value = json_object_get(body, llama_unenforced[i]);

        if (rc == STATUS_OK && value != NULL &&
            json_object_set(unenforced, llama_unenforced[i], value) != 0)
            rc = error_no_memory(err, 0, "the request");
        (void)json_object_del(body, llama_unenforced[i]); /* its reader would refuse it */
    }
    if (rc == STATUS_OK)
        rc = request_completion(out, body, arena, err);
    if (rc == STATUS_OK && out->n_prompts > 1)
        rc = error_field(err, "prompt", "has %zu texts: /v1/completions takes several",
                         out->n_prompts);
    if (rc == STATUS_OK)
        rc = llama_leave_out(out, unenforced, arena, err);
    json_decref(unenforced);
    if (rc == STATUS_OK) {
        out->names = llama_names;
        out->wants_ids = true;
    }
    return rc;
}

/* --- infill --- */

/* Takes a text out of the body, into the arena, with what is to follow it. */
static enum status infill_take_text(struct message *out, const json_t *object, const char *name,
                                    const char *if_absent, const char *behind, struct arena *arena,
                                    struct error *err)
{
    const json_t *value = field(object, name);
    size_t len = value == NULL ? 0 : json_string_length(value), n_behind = strlen(behind);
    const char *from;
    char *text;

    if (value == NULL && if_absent == NULL)
        return error_field(err, name, "is missing");
    if (value != NULL && !json_is_string(value))
        return field_wrong(err, name, "a string", value);
    from = value == NULL ? if_absent : json_string_value(value);
    len = value == NULL ? strlen(if_absent) : len;
    text = arena_alloc(arena, len + n_behind + 1, 1);
    if (text == NULL)
        return error_no_memory(err, len, "the request");
    memcpy(text, from, len);
    memcpy(text + len, behind, n_behind + 1);
    *out = (struct message){.role = ROLE_USER, .text = text, .len = len + n_behind};
    return STATUS_OK;
}

/* The other files, two messages each. */
static enum status infill_take_files(struct message *out, const json_t *extra, struct arena *arena,
                                     struct error *err)
{
    for (size_t i = 0; i < json_array_size(extra); i++) {
        const json_t *file = json_array_get(extra, i);
        const struct field_path path = field_path_of("input_extra", i, "");

        if (!json_is_object(file))
            return field_wrong(err, path.text, "an object with a text", file);
        if (infill_take_text(&out[2 * i], file, "filename", "tmp", "\n", arena, err) != STATUS_OK ||
            infill_take_text(&out[2 * i + 1], file, "text", "", "", arena, err) != STATUS_OK)
            return field_inside(err, path.text);
    }
    return STATUS_OK;
}

/* Takes the gap's own fields out of the body, whose prompt becomes one that is there. */
static enum status infill_take(struct message **out, size_t *ret_n, json_t *body,
                               struct arena *arena, struct error *err)
{
    const json_t *extra = NULL;
    struct message *texts;
    size_t n_files;

    if (field_array(&extra, body, "input_extra", err) != STATUS_OK)
        return err->status;
    n_files = json_array_size(extra);
    if (n_files > INFILL_MAX_FILES)
        return error_field(err, "input_extra", "has %zu files, at most %d are allowed", n_files,
                           INFILL_MAX_FILES);
    texts = arena_alloc(arena, GAP_TEXTS + 2 * n_files, sizeof(texts[0]));
    if (texts == NULL)
        return error_no_memory(err, 0, "the request");
    if (infill_take_text(&texts[0], body, "input_prefix", NULL, "", arena, err) != STATUS_OK ||
        infill_take_text(&texts[1], body, "input_suffix", NULL, "", arena, err) != STATUS_OK ||
        infill_take_text(&texts[2], body, "prompt", "", "", arena, err) != STATUS_OK ||
        infill_take_files(texts + GAP_TEXTS, extra, arena, err) != STATUS_OK)
        return err->status;
    (void)json_object_del(body, "input_prefix");
    (void)json_object_del(body, "input_suffix");
    (void)json_object_del(body, "input_extra");
    if (json_object_set_new(body, "prompt", json_string("replaced by the gap's texts")) != 0)
        return error_no_memory(err, 0, "the request");
    *out = texts;
    *ret_n = GAP_TEXTS + 2 * n_files;
    return STATUS_OK;
}

/* Whether the model can fill a gap; why not: err. */
static bool infill_is_possible(const struct model *m, struct error *err)
{
    static const struct raw_rules rules = {.fills_in = true, .adds_no_bos = true};
    static const struct message texts[] = {{.text = ""}, {.text = ""}};
    struct error ignored;
    struct buf ids;
    bool is_possible;

    buf_init(&ids, 1 << 10);
    is_possible =
        m->agent->type->text != NULL && m->agent->type->text->raw_prompt != NULL &&
        m->agent->type->text->raw_prompt(m->agent, &rules, texts, 2, &ids, &ignored) == STATUS_OK;
    buf_deinit(&ids);
    if (!is_possible)
        (void)error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "model",
                            "/infill is not supported by '%s': its vocabulary has no tokens for "
                            "filling in; take a model that is made for code",
                            m->name);
    return is_possible;
}

/* --- the answer --- */

/* Why the reply ended, in llama-server's words. */
static void llama_write_stop(const struct generation *g, const struct choice *c,
                             struct json_writer *w)
{
    const struct text *stop = reply_stop(g, c);

    json_write_text(w, "stop_type",
                    stop != NULL                 ? "word"
                    : c->finish == FINISH_STOP   ? "eos"
                    : c->finish == FINISH_LENGTH ? "limit"
                                                 : "none");
    if (stop == NULL)
        json_write_text(w, "stopping_word", "");
    else
        json_write_string(w, "stopping_word", stop->text, stop->len);
}

static void llama_write_pace(struct json_writer *w, const char *what, uint32_t n, uint64_t us)
{
    const double ms = (double)us / 1e3;
    char name[40];

    (void)snprintf(name, sizeof(name), "%s_n", what);
    json_write_unsigned(w, name, n);
    (void)snprintf(name, sizeof(name), "%s_ms", what);
    json_write_real(w, name, ms, 9);
    (void)snprintf(name, sizeof(name), "%s_per_token_ms", what);
    json_write_real(w, name, n == 0 ? 0 : ms / n, 9);
    (void)snprintf(name, sizeof(name), "%s_per_second", what);
    json_write_real(w, name, us == 0 ? 0 : 1e6 * n / (double)us, 9);
}

static void llama_write_timings(const struct choice *c, uint32_t n_said, struct json_writer *w)
{
    json_begin_object(w, "timings");
    json_write_unsigned(w, "cache_n", c->n_cached);
    llama_write_pace(w, "prompt", c->n_prompt - c->n_cached, c->timings.prefill_us);
    llama_write_pace(w, "predicted", n_said, c->timings.decode_us);
    json_end_object(w);
}

/* What the reply was sampled with. */
static void llama_write_settings(const struct generation *g, const struct choice *c,
                                 struct json_writer *w)
{
    struct sampling s = g->model->info.defaults;

    sampling_overrides_apply(c->reader.completed->request->overrides, &s);
    json_begin_object(w, "generation_settings");
    json_write_signed(w, "n_predict", s.max_tokens == 0 ? -1 : (int64_t)s.max_tokens);
    json_write_unsigned(w, "n_ctx", g->model->info.text.context);
    json_write_real(w, "temperature", (double)s.temperature, 6);
    json_write_unsigned(w, "top_k", s.top_k);
    json_write_real(w, "top_p", (double)s.top_p, 6);
    json_write_real(w, "min_p", (double)s.min_p, 6);
    json_write_real(w, "repeat_penalty", (double)s.repetition_penalty, 6);
    json_write_real(w, "presence_penalty", (double)s.presence_penalty, 6);
    json_write_real(w, "frequency_penalty", (double)s.frequency_penalty, 6);
    json_begin_array(w, "stop");
    for (size_t i = 0; i < s.n_stops; i++)
        json_write_string(w, NULL, s.stops[i].text, s.stops[i].len);
    json_end_array(w);
    json_write_bool(w, "stream", g->request->stream);
    json_end_object(w);
}

static void llama_write_ids(const struct choice *c, const struct turn_event *piece, bool gives_ids,
                            struct json_writer *w)
{
    json_begin_array(w, "tokens");
    for (size_t i = 0; gives_ids && piece != NULL && i < piece->piece.n_tokens; i++) {
        struct piece_token t;

        reader_token(&c->reader, piece, i, &t);
        json_write_signed(w, NULL, t.id);
    }
    json_end_array(w);
}

static void llama_write_probabilities(const struct generation *g, const struct choice *c,
                                      const struct turn_event *piece, struct json_writer *w)
{
    if (g->request->want_logprobs && piece != NULL && piece->piece.has_logprobs)
        generation_write_logprobs(g, c, "completion_probabilities", piece, w);
}

/* The whole answer as an object; text NULL: of a stream, whose pieces have it. */
static void llama_write_answer(const struct generation *g, const struct choice *c,
                               const struct turn_event *all, const char *text, size_t len,
                               struct json_writer *w)
{
    const struct llama_reply *r = g->renderer_state;
    const uint32_t n_said = r->is_warming ? 0 : c->n_said;

    json_begin_object(w, NULL);
    json_write_unsigned(w, "index", 0);
    json_write_string(w, "content", text, r->is_warming ? 0 : len);
    llama_write_ids(c, all, r->gives_ids && !r->is_warming, w);
    json_write_signed(w, "id_slot", -1);
    json_write_bool(w, "stop", true);
    json_write_text(w, "model", g->model->name);
    json_write_unsigned(w, "tokens_predicted", n_said);
    json_write_unsigned(w, "tokens_evaluated", c->n_prompt);
    llama_write_settings(g, c, w);
    json_write_bool(w, "has_new_line",
                    !r->is_warming && len > 0 && memchr(text, '\n', len) != NULL);
    json_write_bool(w, "truncated", false);
    llama_write_stop(g, c, w);
    json_write_unsigned(w, "tokens_cached", c->n_prompt + n_said);
    llama_write_timings(c, n_said, w);
    llama_write_probabilities(g, c, r->is_warming ? NULL : all, w);
    json_end_object(w);
}

/* The members of the answer that the request wants, each under the path that it gives. */
static json_t *llama_pick(const struct llama_reply *r, const json_t *answer)
{
    json_t *picked = json_object();

    for (size_t i = 0; picked != NULL && i < r->n_fields; i++) {
        const json_t *at = answer;
        const char *path = r->fields[i];

        while (at != NULL && *path != '\0') {
            const size_t len = strcspn(path, "/");

            at = json_object_getn(at, path, len);
            path += path[len] == '/' ? len + 1 : len;
        }
        if (at != NULL && at != answer &&
            json_object_set(picked, r->fields[i], (json_t *)at) != 0) { /* it changes nothing */
            json_decref(picked);
            return NULL;
        }
    }
    return picked;
}

/* Writes the answer as the next value, or what the request wants of it. */
static void llama_write_picked(const struct generation *g, const struct choice *c,
                               const struct turn_event *all, const char *text, size_t len,
                               struct json_writer *w)
{
    const struct llama_reply *r = g->renderer_state;
    json_t *answer = NULL, *picked = NULL;
    bool was_short = false;
    struct json_writer own;
    char *json = NULL;
    struct buf whole;

    if (r->n_fields == 0) {
        llama_write_answer(g, c, all, text, len, w);
        return;
    }
    buf_init(&whole, ANSWER_MAX_BYTES);
    own = json_writer_begin(&whole);
    llama_write_answer(g, c, all, text, len, &own);
    if (json_writer_end(&own) == STATUS_OK)
        answer = fields_load(whole.data, whole.len, NULL, &was_short);
    if (answer != NULL)
        picked = llama_pick(r, answer);
    if (picked != NULL)
        json = json_dumps(picked, JSON_COMPACT);
    if (json != NULL)
        json_write_json(w, NULL, json, strlen(json));
    else
        json_writer_fail(w, STATUS_EXHAUSTED);
    free(json);
    json_decref(picked);
    json_decref(answer);
    buf_deinit(&whole);
}

static void llama_whole(struct generation *g, struct json_writer *w)
{
    const struct choice *c = &g->choices[0];
    struct turn_event all;
    const char *text;
    size_t len;

    generation_all(c, &all, &text, &len);
    llama_write_picked(g, c, &all, text, len, w);
}

static void llama_piece(struct generation *g, struct choice *c, const struct turn_event *event,
                        struct json_writer *w)
{
    const struct llama_reply *r = g->renderer_state;

    if (r->is_warming)
        return;
    generation_write_id(g, w);
    json_write_around(w, "data: ");
    json_begin_object(w, NULL);
    json_write_unsigned(w, "index", 0);
    json_write_string(w, "content", event->piece.text, event->piece.len);
    llama_write_ids(c, event, true, w);
    json_write_bool(w, "stop", false);
    json_write_signed(w, "id_slot", -1);
    json_write_unsigned(w, "tokens_predicted", c->n_said);
    json_write_unsigned(w, "tokens_evaluated", c->n_prompt);
    llama_write_probabilities(g, c, event, w);
    generation_end_event(w);
}

static void llama_finish(struct generation *g, struct choice *c, struct json_writer *w)
{
    generation_write_id(g, w);
    json_write_around(w, "data: ");
    llama_write_picked(g, c, NULL, "", 0, w);
    json_write_around(w, "\n\n");
}

/* --- routes --- */

static const struct response_renderer llama_renderer = {
    .object = "completion",
    .piece = llama_piece,
    .finish = llama_finish,
    .failed = generation_write_failure,
    .whole = llama_whole,
};

/* texts: of a gap, [n_texts]; NULL: the prompt is the request's. */
static enum status llama_begin(struct exchange *x, json_t *body, const struct message *texts,
                               size_t n_texts, struct error *err)
{
    struct arena *arena = exchange_arena(x);
    struct llama_reply *reply = arena_alloc(arena, 1, sizeof(*reply));
    struct generation_plan plan = {.renderer = &llama_renderer, .renderer_state = reply};
    struct request r;

    if (reply == NULL)
        return error_no_memory(err, sizeof(*reply), "a reply");
    *reply = (struct llama_reply){0};
    if (llama_request(&r, reply, body, arena, err) != STATUS_OK)
        return request_name_error(&(struct request){.names = llama_names}, err);
    if (texts != NULL) {
        r.prompts[0].messages = texts;
        r.prompts[0].n_messages = n_texts;
        r.prompts[0].raw.fills_in = true;
    }
    return resolution_generate(x, &plan, &r, err);
}

static enum status llama_refuse_named(const struct exchange *x, struct error *err)
{
    return exchange_conversation(x)[0] == '\0'
               ? STATUS_OK
               : error_field(err, "X-Conversation-Id", "is for /v1/chat/completions");
}

static enum status llama_complete(struct exchange *x, const json_t *body, struct error *err)
{
    if (llama_refuse_named(x, err) != STATUS_OK)
        return err->status;
    return llama_begin(x, (json_t *)body, NULL, 0, err); /* the body is the request's own */
}

static enum status llama_infill(struct exchange *x, const json_t *body, struct error *err)
{
    const char *name = "";
    struct message *texts = NULL;
    struct model *m;
    size_t n = 0;

    if (llama_refuse_named(x, err) != STATUS_OK ||
        field_text(&name, body, "model", err) != STATUS_OK ||
        resolution_find_model(&m, x, name, err) != STATUS_OK)
        return err->status;
    if (!infill_is_possible(m, err)) {
        exchange_fail_as(x, 501, err);
        return STATUS_OK;
    }
    if (infill_take(&texts, &n, (json_t *)body, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    return llama_begin(x, (json_t *)body, texts, n, err);
}

static void llama_complete_serve(struct exchange *x)
{
    resolution_serve(x, llama_complete);
}

static void llama_infill_serve(struct exchange *x)
{
    resolution_serve(x, llama_infill);
}

static const struct route rows[] = {
    {"/completion", .methods = METHOD_POST, .serve = llama_complete_serve, .api = &openai_api},
    {"/completions", .methods = METHOD_POST, .serve = llama_complete_serve, .api = &openai_api},
    {"/infill", .methods = METHOD_POST, .serve = llama_infill_serve, .api = &openai_api},
};
const struct route_table openai_llama_completion_routes = {rows, sizeof(rows) / sizeof(rows[0])};
