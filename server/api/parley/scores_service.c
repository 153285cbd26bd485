/* parley.v1.Scores. The scores' notification notifies the call, which takes what is done, and
 * answers once all is. A peer that goes away ends them. */
#include <string.h>

#include "parley/v1/scores.pb-c.h"
#include "server/access/access.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire.h"
#include "server/conversation/prompt_scores.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

/* Bound of one answer's memory: a message of each token beside its results. */
#define SCORES_MAX_BYTES ((size_t)512 << 20)

struct score_call {
    struct call *call;
    struct prompt_scores *scores; /* NULL: over */
    struct model *model;
    size_t n_inputs;
};

static void score_notify(void *arg)
{
    struct score_call *s = arg;

    call_notify(s->call);
}

static enum status score_fill_token(Parley__V1__ScoredToken *out, const struct prompt_token *from,
                                    struct arena *arena)
{
    Parley__V1__TopLogprob *top;

    parley__v1__scored_token__init(out);
    out->id = from->id;
    out->logprob = from->logprob;
    out->rank = from->rank;
    if (from->n_top == 0)
        return STATUS_OK;
    top = arena_alloc(arena, from->n_top, sizeof(*top));
    out->top = arena_alloc(arena, from->n_top, sizeof(out->top[0]));
    if (top == NULL || out->top == NULL)
        return STATUS_EXHAUSTED;
    for (uint32_t i = 0; i < from->n_top; i++) {
        parley__v1__top_logprob__init(&top[i]);
        top[i].id = from->top[i].id;
        top[i].logprob = from->top[i].logprob;
        out->top[i] = &top[i];
    }
    out->n_top = from->n_top;
    return STATUS_OK;
}

static enum status score_fill(Parley__V1__Score *out, const struct prompt_token *from, size_t n,
                              struct arena *arena)
{
    Parley__V1__ScoredToken *tokens = arena_alloc(arena, n, sizeof(*tokens));

    parley__v1__score__init(out);
    out->tokens = arena_alloc(arena, n, sizeof(out->tokens[0]));
    if (tokens == NULL || out->tokens == NULL)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < n; i++) {
        if (score_fill_token(&tokens[i], &from[i], arena) != STATUS_OK)
            return STATUS_EXHAUSTED;
        out->tokens[i] = &tokens[i];
    }
    out->n_tokens = n;
    return STATUS_OK;
}

static enum status score_answer(Parley__V1__ScoresScoreResponse *out, const struct score_call *s,
                                Parley__V1__Usage *usage, struct arena *arena, struct error *err)
{
    Parley__V1__Score *all = arena_alloc(arena, s->n_inputs, sizeof(*all));

    out->scores = arena_alloc(arena, s->n_inputs, sizeof(out->scores[0]));
    if (all == NULL || out->scores == NULL)
        return error_no_memory(err, s->n_inputs * sizeof(*all), "scores");
    for (size_t i = 0; i < s->n_inputs; i++) {
        size_t n;
        const struct prompt_token *tokens = prompt_scores_tokens(s->scores, i, &n);

        if (score_fill(&all[i], tokens, n, arena) != STATUS_OK)
            return error_no_memory(err, n * sizeof(Parley__V1__ScoredToken), "scores");
        out->scores[i] = &all[i];
    }
    out->n_scores = s->n_inputs;
    out->model = s->model->name;
    out->version = s->model->info.version;
    usage->prompt_tokens = (uint32_t)prompt_batch_n_tokens(prompt_scores_batch(s->scores));
    usage->cached_tokens = (uint32_t)prompt_batch_n_cached(prompt_scores_batch(s->scores));
    out->usage = usage;
    return STATUS_OK;
}

static void score_reply(struct score_call *s)
{
    Parley__V1__ScoresScoreResponse response = PARLEY__V1__SCORES_SCORE_RESPONSE__INIT;
    Parley__V1__Usage usage = PARLEY__V1__USAGE__INIT;
    struct arena arena;
    struct error err;

    arena_init(&arena, SCORES_MAX_BYTES);
    if (score_answer(&response, s, &usage, &arena, &err) == STATUS_OK)
        call_reply(s->call, &response.base);
    else
        call_finish(s->call, &err);
    arena_deinit(&arena);
}

static void score_write_ready(struct call *call, void *state)
{
    struct score_call *s = state;
    bool is_done = false;
    struct error err;

    if (s->scores == NULL)
        return;
    if (prompt_scores_advance(s->scores, &is_done, &err) != STATUS_OK)
        call_finish(call, &err);
    else if (is_done)
        score_reply(s);
    else
        return;
    prompt_scores_close(s->scores);
    s->scores = NULL;
}

static void score_on_close(struct call *call, void *state, enum status why)
{
    struct score_call *s = state;

    prompt_scores_close(s->scores);
    s->scores = NULL;
}

/* The chat as a turn's messages. */
static enum status score_take_chat(struct prompt_input *out, const Parley__V1__ScoreChat *from,
                                   struct arena *arena, struct error *err)
{
    Parley__V1__TurnRequest request = PARLEY__V1__TURN_REQUEST__INIT;
    struct turn_request turn = {0};

    request.messages = from->messages;
    request.n_messages = from->n_messages;
    if (from->n_messages == 0)
        return error_field(err, "inputs", "has a chat without messages");
    if (wire_messages(&turn, &request, arena, err) != STATUS_OK)
        return err->status;
    *out = (struct prompt_input){.messages = turn.messages,
                                 .n_messages = turn.n_messages,
                                 .system = from->system,
                                 .system_len = strlen(from->system)};
    return STATUS_OK;
}

static enum status score_take_input(struct prompt_input *out, const Parley__V1__ScoreInput *from,
                                    bool parses_control, struct arena *arena, struct error *err)
{
    *out = (struct prompt_input){0};
    if (from->input_case == PARLEY__V1__SCORE_INPUT__INPUT_CHAT)
        return score_take_chat(out, from->chat, arena, err);
    if (from->input_case == PARLEY__V1__SCORE_INPUT__INPUT_TEXT && from->text[0] != '\0') {
        out->text = from->text;
        out->len = strlen(from->text);
        out->parses_control = parses_control;
        return STATUS_OK;
    }
    if (from->input_case == PARLEY__V1__SCORE_INPUT__INPUT_TOKENS && from->tokens->n_ids > 0) {
        out->ids = from->tokens->ids;
        out->n_ids = from->tokens->n_ids;
        return STATUS_OK;
    }
    return error_field(err, "inputs", "has an entry that is empty");
}

static enum status score_take_inputs(struct prompt_scores_request *out,
                                     const Parley__V1__ScoresScoreRequest *from,
                                     struct arena *arena, struct error *err)
{
    struct prompt_input *inputs;

    if (from->n_inputs == 0)
        return error_field(err, "inputs", "is empty");
    if (from->n_inputs > PROMPT_SCORES_MAX_INPUTS)
        return error_field(err, "inputs", "has %zu entries, at most %d are allowed", from->n_inputs,
                           PROMPT_SCORES_MAX_INPUTS);
    if (from->top > SAMPLING_MAX_LOGPROBS)
        return error_field(err, "top", "is %u, it may be at most %d", from->top,
                           SAMPLING_MAX_LOGPROBS);
    inputs = arena_alloc(arena, from->n_inputs, sizeof(inputs[0]));
    if (inputs == NULL)
        return error_no_memory(err, from->n_inputs * sizeof(inputs[0]), "inputs");
    for (size_t i = 0; i < from->n_inputs; i++)
        if (score_take_input(&inputs[i], from->inputs[i], !from->literal_text, arena, err) !=
            STATUS_OK)
            return err->status;
    out->inputs = inputs;
    out->n_inputs = from->n_inputs;
    out->n_tops = from->top;
    return STATUS_OK;
}

static enum status score_call_begin(struct score_call *s,
                                    const Parley__V1__ScoresScoreRequest *from,
                                    struct server *server, struct error *err)
{
    struct prompt_scores_request r = {
        .principal = call_principal(s->call)->id,
        .deadline_us = call_deadline_us(s->call),
    };

    if (score_take_inputs(&r, from, call_arena(s->call), err) != STATUS_OK ||
        models_get(&r.model, server->models, from->model, err) != STATUS_OK ||
        model_check_ready(r.model, err) != STATUS_OK)
        return err->status;
    s->model = r.model;
    s->n_inputs = r.n_inputs;
    return prompt_scores_open(&s->scores, server->conversations, &r, score_notify, s, err);
}

static void start_score(struct call *call, const Parley__V1__ScoresScoreRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = score_write_ready,
                                                .on_close = score_on_close};
    struct server *server = call_server(call);
    struct score_call *s = arena_alloc(call_arena(call), 1, sizeof(*s));
    struct error err;

    if (s == NULL) {
        (void)error_no_memory(&err, sizeof(*s), "scores");
        call_finish(call, &err);
        return;
    }
    *s = (struct score_call){.call = call};
    if (score_call_begin(s, request, server, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, s);
    score_notify(s);
}

#define SCORES_SERVICE_METHODS(METHOD) \
    METHOD(UNARY, KEY, "Scores/Score", scores_score_request, scores_score_response, start_score)

PARLEY_TABLE(scores_service_methods, SCORES_SERVICE_METHODS)
