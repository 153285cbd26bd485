/* Reads the requests about conversations and turns, and fills in events, replies, transcripts and
 * models. Each kind of message has one function in each direction that it travels. */
#include "server/api/parley/wire.h"

#include <stdlib.h>
#include <string.h>

#include "agents/constraint/constraint.h"
#include "server/api/parley/turn_parts.h"
#include "server/api/parley/wire_parts.h"
#include "server/api/parley/wire_sampling.h"
#include "server/api/parley/wire_tools.h"
#include "server/call/call.h"

/* --- requests --- */

static enum status wire_choice(const struct constraint **out,
                               const Parley__V1__Constraint__Choice *from, struct arena *arena,
                               struct error *err)
{
    struct text *texts = arena_alloc(arena, from->n_texts, sizeof(texts[0]));

    if (texts == NULL)
        return error_no_memory(err, 0, "the request");
    for (size_t i = 0; i < from->n_texts; i++)
        texts[i] = (struct text){from->texts[i], strlen(from->texts[i])};
    return constraint_of_choices(out, texts, from->n_texts, arena, err);
}

/* A keyword that is left out could not be named in the answer: it is refused, strict or not. */
static enum status wire_read_constraint(const struct constraint **out,
                                        const Parley__V1__Constraint *from, struct arena *arena,
                                        struct error *err)
{
    const char *left_out;

    switch (from->kind_case) {
    case PARLEY__V1__CONSTRAINT__KIND_JSON_SCHEMA:
        return constraint_of_schema_text(out, from->json_schema, strlen(from->json_schema), true,
                                         &left_out, arena, err);
    case PARLEY__V1__CONSTRAINT__KIND_JSON_OBJECT:
        return constraint_of_object(out, arena, err);
    case PARLEY__V1__CONSTRAINT__KIND_REGEX:
        return constraint_of_regex(out, from->regex, strlen(from->regex), arena, err);
    case PARLEY__V1__CONSTRAINT__KIND_GRAMMAR:
        return constraint_of_grammar(out, from->grammar, strlen(from->grammar), arena, err);
    case PARLEY__V1__CONSTRAINT__KIND_CHOICE:
        return wire_choice(out, from->choice, arena, err);
    default:
        return error_field(err, "constraint", "has no kind");
    }
}

static enum status wire_constraint(const struct sampling_overrides **overrides,
                                   const Parley__V1__Constraint *from, struct arena *arena,
                                   struct error *err)
{
    struct sampling_overrides *p = arena_alloc(arena, 1, sizeof(*p));
    enum status rc;

    if (p == NULL)
        return error_no_memory(err, 0, "the request");
    if (*overrides != NULL)
        *p = **overrides;
    rc = wire_read_constraint(&p->values.constraint, from, arena, err);
    if (rc != STATUS_OK)
        return error_name_field(err, "constraint");
    p->given |= SAMPLING_CONSTRAINT;
    *overrides = p;
    return STATUS_OK;
}

/* A turn without a reply says nothing of how to reply. */
static enum status check_observed(const Parley__V1__TurnRequest *from, struct error *err)
{
    const char *field = from->sampling != NULL     ? "sampling"
                        : from->constraint != NULL ? "constraint"
                        : from->n_tools > 0        ? "tools"
                        : from->reasoning != NULL  ? "reasoning"
                        : from->want_logprobs > 0  ? "want_logprobs"
                                                   : NULL;

    if (!from->observe_only || field == NULL)
        return STATUS_OK;
    return error_field(err, field, "cannot be combined with observe_only: there is no reply");
}

enum status wire_messages(struct turn_request *out, const Parley__V1__TurnRequest *from,
                          struct arena *arena, struct error *err)
{
    struct message *messages;
    size_t n = from->text[0] != '\0' ? 1 : from->n_messages;

    if (from->text[0] != '\0' && from->n_messages > 0)
        return error_field(err, "text", "cannot be combined with messages");
    if (n > WIRE_MAX_MESSAGES)
        return error_field(err, "messages", "has %zu entries, at most %d are taken", n,
                           WIRE_MAX_MESSAGES);
    messages = arena_alloc(arena, n, sizeof(messages[0]));
    if (messages == NULL)
        return error_no_memory(err, 0, "the request");
    if (from->text[0] != '\0')
        messages[0] =
            (struct message){.role = ROLE_USER, .text = from->text, .len = strlen(from->text)};
    for (size_t i = 0; i < from->n_messages; i++) {
        const Parley__V1__Message *m = from->messages[i];
        struct error why;

        if (role_parse(&messages[i].role, m->role, &why) != STATUS_OK) {
            char field[sizeof(err->field)];

            (void)snprintf(field, sizeof(field), "messages[%zu].role", i);
            return error_field(err, field, "is '%.40s', it must be system, user, assistant or tool",
                               m->role);
        }
        messages[i].text = m->text;
        messages[i].len = strlen(m->text);
        if (wire_extras(&messages[i], from, i, arena, err) != STATUS_OK)
            return err->status;
    }
    out->messages = messages;
    out->n_messages = n;
    return STATUS_OK;
}

/* A message and a bias have three fields each; the rest are the turn's own. Calls of tools and
 * their results have more: histories that are full of them may have fewer messages. */
_Static_assert(3 * WIRE_MAX_MESSAGES + 3 * SAMPLING_MAX_BIASES + SAMPLING_MAX_STOPS + 64 <=
                   CALL_MAX_FIELDS,
               "a turn may have more fields than are decoded");

static enum status wire_resume(struct turn_request *out, const Parley__V1__Cursor *from,
                               struct error *err)
{
    if (from == NULL)
        return STATUS_OK;
    if (out->number != 0 && out->number != from->turn)
        return error_field(err, "resume_from.turn", "is %u, turn is %u", from->turn, out->number);
    if (from->choice != 0)
        return error_field(err, "resume_from.choice", "is %u, a turn has one reply", from->choice);
    out->number = from->turn;
    out->resume = (struct turn_resume){true, from->generation, from->index};
    return STATUS_OK;
}

enum status wire_turn(struct turn_request *out, const Parley__V1__TurnRequest *from,
                      const struct reply_format *format, struct arena *arena, struct error *err)
{
    struct turn_request r = {
        .number = from->turn,
        .n_logprobs = from->want_logprobs,
        .is_observed = from->observe_only != 0,
    };
    enum status rc;

    rc = check_observed(from, err);
    if (rc == STATUS_OK)
        rc = wire_resume(&r, from->resume_from, err);
    if (rc == STATUS_OK)
        rc = wire_messages(&r, from, arena, err);
    if (rc == STATUS_OK)
        rc = wire_sampling(&r.overrides, from->sampling, arena, err);
    if (rc == STATUS_OK && from->constraint != NULL)
        rc = wire_constraint(&r.overrides, from->constraint, arena, err);
    if (rc == STATUS_OK)
        rc = wire_tools(&r, from, format, arena, err);
    if (rc == STATUS_OK)
        *out = r;
    return rc;
}

enum status wire_open(struct open_request *out, const Parley__V1__ConversationsOpenRequest *from,
                      struct arena *arena, struct error *err)
{
    struct open_request r = {
        .system = from->system,
        .system_len = strlen(from->system),
        .ttl_ms = from->ttl_ms,
        .n_metadata = from->n_metadata,
    };
    struct pair *pairs;
    enum status rc;

    if (from->limits != NULL)
        r.limits = (struct limits){
            .max_turns = from->limits->max_turns,
            .max_tokens = from->limits->max_tokens,
            .priority = from->limits->priority,
        };
    pairs = arena_alloc(arena, from->n_metadata, sizeof(pairs[0]));
    if (pairs == NULL)
        return error_no_memory(err, 0, "the request");
    for (size_t i = 0; i < from->n_metadata; i++)
        pairs[i] = (struct pair){.key = from->metadata[i]->key, .value = from->metadata[i]->value};
    r.metadata = pairs;
    rc = wire_sampling(&r.overrides, from->sampling, arena, err);
    if (rc == STATUS_OK)
        *out = r;
    return rc;
}

static enum status take_entries(struct update_request *out,
                                const Parley__V1__ConversationMetadata *from, struct arena *arena,
                                struct error *err)
{
    struct pair *pairs = arena_alloc(arena, from->n_entries, sizeof(pairs[0]));

    if (pairs == NULL)
        return error_no_memory(err, 0, "the request");
    for (size_t i = 0; i < from->n_entries; i++)
        pairs[i] = (struct pair){.key = from->entries[i]->key, .value = from->entries[i]->value};
    out->has_metadata = true;
    out->metadata = pairs;
    out->n_metadata = from->n_entries;
    return STATUS_OK;
}

enum status wire_update(struct update_request *out,
                        const Parley__V1__ConversationsUpdateRequest *from, struct arena *arena,
                        struct error *err)
{
    struct update_request r = {
        .has_overrides = from->sampling != NULL,
        .has_ttl = from->ttl_case == PARLEY__V1__CONVERSATIONS_UPDATE_REQUEST__TTL_TTL_MS,
    };
    enum status rc;

    if (r.has_ttl)
        r.ttl_ms = from->ttl_ms;
    rc = wire_sampling(&r.overrides, from->sampling, arena, err);
    if (rc == STATUS_OK && from->metadata != NULL)
        rc = take_entries(&r, from->metadata, arena, err);
    if (rc == STATUS_OK)
        *out = r;
    return rc;
}

enum status wire_fork_metadata(const struct pair **out,
                               const Parley__V1__ConversationsForkRequest *from,
                               struct arena *arena, struct error *err)
{
    struct pair *pairs = arena_alloc(arena, from->n_metadata, sizeof(pairs[0]));

    if (pairs == NULL)
        return error_no_memory(err, 0, "the request");
    for (size_t i = 0; i < from->n_metadata; i++)
        pairs[i] = (struct pair){.key = from->metadata[i]->key, .value = from->metadata[i]->value};
    *out = pairs;
    return STATUS_OK;
}

/* --- events --- */

/* Makes a NUL-ended string of a message. Copies text if needed; skips NUL bytes, which such a
 * string cannot hold. */
static char *wire_text(const char *text, size_t len, struct arena *arena)
{
    if (len == 0)
        return (char *)"";
    if (memchr(text, '\0', len) == NULL && text[len] == '\0')
        return (char *)text;
    return wire_copy(text, len, arena);
}

enum status wire_logprob(Parley__V1__TokenLogprob **out, const struct piece_token *token,
                         struct arena *arena)
{
    Parley__V1__TokenLogprob *p = arena_alloc(arena, 1, sizeof(*p));
    Parley__V1__TopLogprob *tops = arena_alloc(arena, token->n_tops, sizeof(tops[0]));
    Parley__V1__TopLogprob **list = arena_alloc(arena, token->n_tops, sizeof(list[0]));

    if (p == NULL || tops == NULL || list == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__token_logprob__init(p);
    p->logprob = token->logprob;
    p->top = list;
    p->n_top = token->n_tops;
    for (size_t i = 0; i < token->n_tops; i++) {
        parley__v1__top_logprob__init(&tops[i]);
        tops[i].id = token->tops[i].id;
        tops[i].logprob = token->tops[i].logprob;
        list[i] = &tops[i];
    }
    *out = p;
    return STATUS_OK;
}

/* parts NULL: all of the text is text. */
static enum status fill_piece(Parley__V1__TurnPiece *out, const struct turn_event *event,
                              const struct turn_reader *reader, struct turn_parts *parts,
                              struct arena *arena)
{
    size_t n = event->piece.n_tokens;

    out->next_index = event->piece.next_index;
    if (parts != NULL && parts->parser != NULL) {
        if (turn_parts_fill(out, parts, arena) != STATUS_OK)
            return STATUS_EXHAUSTED;
    } else {
        out->text = wire_text(event->piece.text, event->piece.len, arena);
    }
    if (out->text == NULL)
        return STATUS_EXHAUSTED;
    if (n == 0)
        return STATUS_OK;
    out->token_ids = arena_alloc(arena, n, sizeof(out->token_ids[0]));
    if (out->token_ids == NULL)
        return STATUS_EXHAUSTED;
    out->n_token_ids = n;
    if (event->piece.has_logprobs) {
        out->logprobs = arena_alloc(arena, n, sizeof(out->logprobs[0]));
        if (out->logprobs == NULL)
            return STATUS_EXHAUSTED;
        out->n_logprobs = n;
    }
    for (size_t i = 0; i < n; i++) {
        struct piece_token token;

        reader_token(reader, event, i, &token);
        out->token_ids[i] = token.id;
        if (event->piece.has_logprobs &&
            wire_logprob(&out->logprobs[i], &token, arena) != STATUS_OK)
            return STATUS_EXHAUSTED;
    }
    return STATUS_OK;
}

Parley__V1__FinishReason wire_finish(enum finish finish)
{
    static const Parley__V1__FinishReason reasons[] = {
        [FINISH_NONE] = PARLEY__V1__FINISH_REASON__FINISH_REASON_UNSPECIFIED,
        [FINISH_STOP] = PARLEY__V1__FINISH_REASON__FINISH_REASON_STOP,
        [FINISH_LENGTH] = PARLEY__V1__FINISH_REASON__FINISH_REASON_LENGTH,
        [FINISH_CANCELLED] = PARLEY__V1__FINISH_REASON__FINISH_REASON_CANCELLED,
        [FINISH_DEADLINE] = PARLEY__V1__FINISH_REASON__FINISH_REASON_DEADLINE,
        [FINISH_ERROR] = PARLEY__V1__FINISH_REASON__FINISH_REASON_ERROR,
        [FINISH_OBSERVED] = PARLEY__V1__FINISH_REASON__FINISH_REASON_OBSERVED,
        [FINISH_WORKER_LOST] = PARLEY__V1__FINISH_REASON__FINISH_REASON_WORKER_LOST,
    };

    return reasons[finish];
}

static void fill_usage(Parley__V1__Usage *out, const struct usage *usage)
{
    parley__v1__usage__init(out);
    out->prompt_tokens = usage->n_prompt;
    out->cached_tokens = usage->n_cached;
    out->completion_tokens = usage->n_completion;
}

static void fill_timings(Parley__V1__TurnTimings *out, const struct timings *timings)
{
    parley__v1__turn_timings__init(out);
    out->queue_us = timings->queue_us;
    out->prefill_us = timings->prefill_us;
    out->decode_us = timings->decode_us;
    out->total_us = timings->total_us;
    out->steps = timings->n_steps;
}

static Parley__V1__FinishReason wire_finish_of(enum finish finish, uint32_t n_calls)
{
    return finish == FINISH_STOP && n_calls > 0
               ? PARLEY__V1__FINISH_REASON__FINISH_REASON_TOOL_CALLS
               : wire_finish(finish);
}

enum status wire_event(struct wire_event *out, const struct turn_event *event,
                       const struct turn_reader *reader, struct turn_parts *parts,
                       struct arena *arena, struct error *err)
{
    switch (event->kind) {
    case EVENT_ACCEPTED:
        parley__v1__turn_accepted__init(&out->accepted);
        out->accepted.turn = event->number;
        out->accepted.generation = event->generation;
        out->accepted.prompt_tokens = event->n_prompt;
        out->accepted.cached_tokens = event->n_cached;
        break;
    case EVENT_PROGRESS:
        parley__v1__turn_progress__init(&out->progress);
        out->progress.done = event->n_done;
        out->progress.total = event->n_total;
        break;
    case EVENT_PIECE:
        parley__v1__turn_piece__init(&out->piece);
        if (fill_piece(&out->piece, event, reader, parts, arena) != STATUS_OK)
            return error_no_memory(err, 0, "a piece of the reply");
        break;
    case EVENT_DONE:
        parley__v1__turn_done__init(&out->done);
        fill_usage(&out->usage, &event->usage);
        out->usage.reasoning_tokens = turn_parts_n_thought(parts, reader->completed);
        fill_timings(&out->timings, &event->timings);
        out->done.finish_reason = wire_finish_of(event->finish, turn_parts_n_calls(parts));
        out->done.usage = &out->usage;
        out->done.timings = &out->timings;
        out->done.turn = event->number;
        break;
    case EVENT_FAILED:
        break; /* each service reports errors in its own way */
    }
    return STATUS_OK;
}

/* The whole reply as one piece. */
static struct turn_event whole_piece(const struct completed_turn *r)
{
    return (struct turn_event){
        .kind = EVENT_PIECE,
        .piece = {.text = r->text,
                  .len = r->len,
                  .n_tokens = r->n_tokens,
                  .has_logprobs = r->logprobs != NULL},
    };
}

enum status wire_reply(Parley__V1__TurnReply **out, const struct turn_reader *reader,
                       const struct turn_parts *parts, uint32_t generation, struct arena *arena,
                       struct error *err)
{
    const struct completed_turn *r = reader->completed;
    const struct turn_event event = whole_piece(r);
    Parley__V1__TurnPiece piece = PARLEY__V1__TURN_PIECE__INIT;
    struct {
        Parley__V1__TurnReply reply;
        Parley__V1__Message message;
        Parley__V1__Usage usage;
        Parley__V1__TurnTimings timings;
    } *w = arena_alloc(arena, 1, sizeof(*w));

    if (w == NULL || fill_piece(&piece, &event, reader, NULL, arena) != STATUS_OK)
        return error_no_memory(err, 0, "the request");
    parley__v1__turn_reply__init(&w->reply);
    parley__v1__message__init(&w->message);
    fill_usage(&w->usage, &r->usage);
    w->usage.reasoning_tokens = turn_parts_n_thought(parts, r);
    fill_timings(&w->timings, &r->timings);
    w->message.role = (char *)role_name(ROLE_ASSISTANT);
    w->message.text = piece.text;
    if (turn_parts_message(&w->message, parts, r, arena) != STATUS_OK)
        return error_no_memory(err, 0, "the request");
    w->reply.turn = r->number;
    w->reply.generation = generation;
    w->reply.message = &w->message;
    w->reply.n_token_ids = piece.n_token_ids;
    w->reply.token_ids = piece.token_ids;
    w->reply.n_logprobs = piece.n_logprobs;
    w->reply.logprobs = piece.logprobs;
    w->reply.finish_reason = wire_finish_of(r->finish, (uint32_t)w->message.n_tool_calls);
    w->reply.usage = &w->usage;
    w->reply.timings = &w->timings;
    *out = &w->reply;
    return STATUS_OK;
}

/* False: there is no such reason. */
static bool wire_take_finish(enum finish *out, Parley__V1__FinishReason reason)
{
    for (int i = 0; i <= FINISH_WORKER_LOST; i++) {
        if (wire_finish((enum finish)i) == reason) {
            *out = (enum finish)i;
            return true;
        }
    }
    return false;
}

enum status wire_imported_turn(struct imported_turn *out, const Parley__V1__TranscriptTurn *from,
                               struct arena *arena, struct error *err)
{
    Parley__V1__TurnRequest request = PARLEY__V1__TURN_REQUEST__INIT;
    struct imported_turn t = {.reply = from->reply, .reply_len = strlen(from->reply)};
    enum status rc;

    request.turn = from->turn;
    request.messages = from->messages;
    request.n_messages = from->n_messages;
    request.observe_only = from->finish_reason == PARLEY__V1__FINISH_REASON__FINISH_REASON_OBSERVED;
    rc = wire_turn(&t.request, &request, NULL, arena, err);
    if (rc != STATUS_OK)
        return rc;
    if (!wire_take_finish(&t.finish, from->finish_reason))
        return error_field(err, "finish_reason", "is %d, which is not a finish reason",
                           (int)from->finish_reason);
    if (from->usage != NULL)
        t.usage = (struct usage){.n_prompt = from->usage->prompt_tokens,
                                 .n_cached = from->usage->cached_tokens};
    if (from->timings != NULL)
        t.timings = (struct timings){.queue_us = from->timings->queue_us,
                                     .prefill_us = from->timings->prefill_us,
                                     .decode_us = from->timings->decode_us,
                                     .total_us = from->timings->total_us,
                                     .n_steps = from->timings->steps};
    *out = t;
    return STATUS_OK;
}

/* Whether the turn was computed, or imported with the times of where it was. */
static bool has_timings(const struct completed_turn *r)
{
    return r->timings.total_us > 0 || r->timings.n_steps > 0;
}

/* Sets t's message where the reply has parts besides its text. */
static enum status fill_parts_of(Parley__V1__TranscriptTurn *t, const struct completed_turn *r,
                                 const struct turn_parts *parts, struct arena *arena)
{
    Parley__V1__Message *message = arena_alloc(arena, 1, sizeof(*message));

    if (message == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__message__init(message);
    if (turn_parts_message(message, parts, r, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (message->n_tool_calls == 0 && message->reasoning[0] == '\0')
        return STATUS_OK;
    message->role = (char *)role_name(ROLE_ASSISTANT);
    t->message = message;
    return STATUS_OK;
}

enum status wire_transcript_turn(Parley__V1__TranscriptTurn **out, const struct completed_turn *r,
                                 const struct turn_parts *parts, struct arena *arena)
{
    size_t n = r->request->n_messages;
    Parley__V1__TranscriptTurn *t = arena_alloc(arena, 1, sizeof(*t));
    Parley__V1__Message *messages = arena_alloc(arena, n, sizeof(messages[0]));
    Parley__V1__Message **list = arena_alloc(arena, n, sizeof(list[0]));
    Parley__V1__Usage *usage = arena_alloc(arena, 1, sizeof(*usage));

    if (t == NULL || messages == NULL || list == NULL || usage == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__transcript_turn__init(t);
    for (size_t i = 0; i < n; i++) {
        parley__v1__message__init(&messages[i]);
        messages[i].role = (char *)role_name(r->request->messages[i].role);
        messages[i].text = wire_shown(
            (struct text){r->request->messages[i].text, r->request->messages[i].len}, arena);
        if (messages[i].text == NULL ||
            wire_fill_extras(&messages[i], &r->request->messages[i], arena) != STATUS_OK)
            return STATUS_EXHAUSTED;
        list[i] = &messages[i];
    }
    fill_usage(usage, &r->usage);
    t->turn = r->number;
    t->messages = list;
    t->n_messages = n;
    t->reply = wire_text(r->text, r->len, arena);
    t->finish_reason = wire_finish(r->finish);
    t->usage = usage;
    if (t->reply == NULL || fill_parts_of(t, r, parts, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    *out = t;
    if (!has_timings(r))
        return STATUS_OK;
    t->timings = arena_alloc(arena, 1, sizeof(*t->timings));
    if (t->timings == NULL)
        return STATUS_EXHAUSTED;
    fill_timings(t->timings, &r->timings);
    return STATUS_OK;
}

/* --- models --- */

static void fill_batching(Parley__V1__ModelBatching *out, const struct model *m,
                          const struct batcher_stats *s, uint64_t *histogram)
{
    static const char *const policies[] = {
        [BATCH_FIXED] = "fixed",
        [BATCH_WINDOW] = "window",
        [BATCH_CONTINUOUS] = "continuous",
        [BATCH_ADAPTIVE] = "gather",
    };
    size_t n_buckets = sizeof(s->rows_histogram) / sizeof(s->rows_histogram[0]);

    parley__v1__model_batching__init(out);
    out->policy = (char *)policies[m->batching.policy];
    out->max_rows = (uint32_t)m->batching.max_rows;
    out->max_cost = (uint32_t)m->batching.max_cost;
    out->waiting = (uint32_t)(s->n_waiting + s->n_flow_queued);
    out->running = (uint32_t)s->n_running;
    out->steps = s->n_steps;
    out->rows = s->n_rows;
    out->cost = s->n_cost;
    out->max_rows_seen = (uint32_t)s->max_rows_seen;
    out->last_rows = (uint32_t)s->last_rows;
    memcpy(histogram, s->rows_histogram, sizeof(s->rows_histogram));
    out->rows_histogram = histogram;
    out->n_rows_histogram = n_buckets;
    out->done = s->n_done;
    out->failed = s->n_failed;
    out->cancelled = s->n_cancelled;
    out->expired = s->n_expired;
    out->refused = s->n_refused;
    out->preempted = s->n_preempted;
}

static const Parley__V1__ModelState model_states[] = {
    [MODEL_LOADING] = PARLEY__V1__MODEL_STATE__MODEL_STATE_LOADING,
    [MODEL_READY] = PARLEY__V1__MODEL_STATE__MODEL_STATE_READY,
    [MODEL_DRAINING] = PARLEY__V1__MODEL_STATE__MODEL_STATE_UNLOADING,
    [MODEL_FAILED] = PARLEY__V1__MODEL_STATE__MODEL_STATE_FAILED,
    [MODEL_STOPPING] = PARLEY__V1__MODEL_STATE__MODEL_STATE_UNLOADING,
};

static Parley__V1__ModelKind wire_model_kind(const char *kind)
{
    static const struct {
        const char *name;
        Parley__V1__ModelKind kind;
    } kinds[] = {
        {"lm", PARLEY__V1__MODEL_KIND__MODEL_KIND_LM},
        {"policy", PARLEY__V1__MODEL_KIND__MODEL_KIND_POLICY},
        {"echo", PARLEY__V1__MODEL_KIND__MODEL_KIND_ECHO},
        {"params", PARLEY__V1__MODEL_KIND__MODEL_KIND_PARAMS},
        {"plugin", PARLEY__V1__MODEL_KIND__MODEL_KIND_PLUGIN},
        {"remote", PARLEY__V1__MODEL_KIND__MODEL_KIND_REMOTE},
        {"starspace", PARLEY__V1__MODEL_KIND__MODEL_KIND_STARSPACE},
        {"seq2seq", PARLEY__V1__MODEL_KIND__MODEL_KIND_SEQ2SEQ},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, kind) == 0)
            return kinds[i].kind;
    }
    return PARLEY__V1__MODEL_KIND__MODEL_KIND_UNSPECIFIED;
}

static void fill_agent(Parley__V1__Model *out, const struct model *m, struct agent_info *info)
{
    agent_describe(m->agent, info);
    out->kind = wire_model_kind(m->info.kind);
    out->version = info->version;
    out->architecture = (char *)m->info.architecture;
    out->backend = (char *)m->info.backend;
    out->context = (uint32_t)info->text.context;
    out->vocabulary = (uint32_t)info->text.n_vocab;
    out->weight_bytes = info->weight_bytes;
    out->kv_page_bytes = info->cache.page_bytes;
    out->kv_pages = (uint32_t)info->cache.pages;
    out->kv_pages_free = (uint32_t)info->cache.pages_free;
    out->kv_pages_shared = (uint32_t)info->cache.pages_shared;
    out->kv_pages_cached = (uint32_t)info->cache.pages_cached;
    out->kv_copies = info->cache.copies;
    out->kv_pages_evicted = info->cache.pages_evicted;
    out->kv_evictions = info->cache.evictions;
    out->kv_recomputes = info->cache.recomputes;
    out->state_slot_bytes = info->cache.slot_bytes;
    out->state_slots = (uint32_t)info->cache.slots;
    out->state_slots_free = (uint32_t)info->cache.slots_free;
    out->state_snapshots = (uint32_t)info->cache.snapshots;
    out->state_snapshots_used = info->cache.snapshots_used;
    out->state_snapshots_evicted = info->cache.snapshots_evicted;
    out->drafted_tokens = info->text.drafted_tokens;
    out->accepted_tokens = info->text.accepted_tokens;
    out->prefix_lookup_tokens = info->cache.lookup_tokens;
    out->prefix_hit_tokens = info->cache.hit_tokens;
    out->products = info->products;
    out->device_host_pages = (uint32_t)info->cache.host_pages;
    out->device_host_pages_used = (uint32_t)info->cache.host_pages_used;
    out->device_spills = info->cache.offloads;
    out->device_fills = info->cache.reloads;
    out->device_losses = info->device_losses;
    out->device_graphs = (uint32_t)info->device_graphs;
}

static void wire_model_disk(Parley__V1__ModelDisk *out, const struct cache_info *from)
{
    parley__v1__model_disk__init(out);
    out->pages = from->disk_pages;
    out->pages_used = from->disk_pages_used;
    out->written = from->disk_written;
    out->read = from->disk_read;
    out->evicted = from->disk_evicted;
    out->broken = from->disk_broken;
    out->failed = from->disk_failed;
    out->hit_tokens = from->hit_disk_tokens;
    out->saved_seconds = from->saved_s;
    out->missed_never_computed = from->missed_tokens[KV_MISS_NEVER];
    out->missed_evicted = from->missed_tokens[KV_MISS_EVICTED];
    out->missed_other_principal = from->missed_tokens[KV_MISS_OWNER];
    out->missed_other_revision = from->missed_tokens[KV_MISS_REVISION];
}

enum status wire_model(Parley__V1__Model **out, const struct model *m, bool is_default,
                       struct arena *arena, struct error *err)
{
    struct batcher_stats *stats = arena_alloc(arena, 1, sizeof(*stats));
    struct agent_info *info = arena_alloc(arena, 1, sizeof(*info));
    Parley__V1__ModelBatching *batching = arena_alloc(arena, 1, sizeof(*batching));
    Parley__V1__Model *p = arena_alloc(arena, 1, sizeof(*p));
    Parley__V1__ModelDisk *disk = arena_alloc(arena, 1, sizeof(*disk));
    uint64_t *histogram = arena_alloc(arena, 1, sizeof(stats->rows_histogram));

    if (stats == NULL || info == NULL || batching == NULL || p == NULL || disk == NULL ||
        histogram == NULL)
        return error_no_memory(err, 0, "what is known of a model");
    parley__v1__model__init(p);
    p->name = m->name;
    p->state = model_states[m->state];
    p->kind = m->path == NULL && m->type == NULL ? PARLEY__V1__MODEL_KIND__MODEL_KIND_ECHO
                                                 : PARLEY__V1__MODEL_KIND__MODEL_KIND_UNSPECIFIED;
    p->conversations = (uint32_t)m->n_conversations;
    p->is_default = is_default;
    if (m->state == MODEL_FAILED)
        p->error = (char *)m->err.text;
    if (m->state == MODEL_READY && m->is_vacant) {
        p->state = PARLEY__V1__MODEL_STATE__MODEL_STATE_UNLOADED;
        p->error = (char *)"no worker is attached";
    }
    if (m->state == MODEL_READY) {
        fill_agent(p, m, info);
        batcher_stats(m->batcher, stats);
        fill_batching(batching, m, stats, histogram);
        p->batching = batching;
        if (info->cache.disk_pages > 0) {
            wire_model_disk(disk, &info->cache);
            p->disk = disk;
        }
    }
    *out = p;
    return STATUS_OK;
}

/* A model that is not loaded; error says why, where a load has failed. */
static Parley__V1__Model *wire_unloaded(const struct model_entry *e, struct arena *arena)
{
    Parley__V1__Model *p = arena_alloc(arena, 1, sizeof(*p));

    if (p == NULL)
        return NULL;
    parley__v1__model__init(p);
    p->name = e->name;
    p->state = PARLEY__V1__MODEL_STATE__MODEL_STATE_UNLOADED;
    if (e->why.status != STATUS_OK)
        p->error = (char *)e->why.text;
    return p;
}

enum status wire_models(Parley__V1__Model ***ret_models, size_t *ret_n, const struct models *models,
                        bool with_unloaded, struct arena *arena, struct error *err)
{
    const size_t max = models->n_loaded + (with_unloaded ? models->n_entries : 0);
    Parley__V1__Model **list = arena_alloc(arena, max + 1, sizeof(list[0]));
    size_t n = 0;

    if (list == NULL)
        return error_no_memory(err, max * sizeof(list[0]), "a list of models");
    for (; n < models->n_loaded; n++)
        if (wire_model(&list[n], models->loaded[n], n == 0, arena, err) != STATUS_OK)
            return err->status;
    for (struct link *l = list_first(&models->entries); with_unloaded && l != NULL;
         l = list_next(&models->entries, l)) {
        const struct model_entry *e = container_of(l, const struct model_entry, link);

        if (e->state != MODEL_ENTRY_UNLOADED)
            continue;
        list[n] = wire_unloaded(e, arena);
        if (list[n++] == NULL)
            return error_no_memory(err, sizeof(*list[0]), "a list of models");
    }
    *ret_models = list;
    *ret_n = n;
    return STATUS_OK;
}
