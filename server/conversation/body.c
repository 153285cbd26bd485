/* Writes and reads each kind of body field by field, in one order. Newer versions only add fields
 * at a body's end, or behind a check of the version. */
#include "server/conversation/body.h"

#include <string.h>

#include "agents/agent.h"
#include "proto/sampling_fields.h"
#include "server/conversation/metadata.h"
#include "server/journal/body_bytes.h"

/* Version 1 had no tools, 2 no variables of chat templates, 3 no revisions, and the server's ttl
 * where a client had asked for none, 4 no origins of turns, 5 no rules of raw prompts. */
enum { BODY_VERSION = 6, BODY_MAX_MESSAGES = 1 << 20, BODY_MAX_TURNS = 1 << 16 };

#define IS_WRITTEN(name, NAME, kind, number, neutral, least, most, bounds, since) \
    _Static_assert((since) <= BODY_VERSION, "a parameter that came later is not in the body");
SAMPLING_FIELDS(IS_WRITTEN)
#undef IS_WRITTEN

/* --- writing --- */

static void body_put_bool(struct body_writer *w, bool is_set)
{
    body_put_u32(w, is_set);
}

static void body_put_sampling(struct body_writer *w, uint32_t given, const struct sampling *s)
{
    body_put_u32(w, given);
#define PUT(name, NAME, kind, ...) body_put_##kind(w, s->name);
    SAMPLING_FIELDS(PUT)
#undef PUT
    body_put_u32(w, (uint32_t)s->n_stops);
    for (size_t i = 0; i < s->n_stops; i++)
        body_put_bytes(w, s->stops[i].text, s->stops[i].len);
    body_put_u32(w, (uint32_t)s->n_biases);
    for (size_t i = 0; i < s->n_biases; i++) {
        body_put_u32(w, (uint32_t)s->biases[i].id);
        body_put_float(w, s->biases[i].bias);
    }
    body_put_u32(w, s->constraint != NULL);
    if (s->constraint != NULL) {
        body_put_u32(w, s->constraint->form);
        body_put_bytes(w, s->constraint->text, s->constraint->len);
    }
}

/* overrides may be NULL. */
static void body_put_overrides(struct body_writer *w, const struct sampling_overrides *overrides)
{
    body_put_u32(w, overrides != NULL);
    if (overrides != NULL)
        body_put_sampling(w, overrides->given, &overrides->values);
}

enum status body_write_terms(struct buf *out, const struct body_terms *t, struct error *err)
{
    struct body_writer w = {.out = out};

    body_put_u32(&w, BODY_VERSION);
    body_put_text(&w, t->model);
    body_put_text(&w, t->version);
    body_put_u64(&w, t->seed);
    body_put_u64(&w, t->ttl_ms);
    body_put_u32(&w, t->limits.max_turns);
    body_put_u32(&w, t->limits.max_tokens);
    body_put_u32(&w, (uint32_t)t->limits.priority);
    body_put_bytes(&w, t->system, t->system_len);
    body_put_overrides(&w, t->overrides);
    body_put_u32(&w, (uint32_t)t->n_metadata);
    for (size_t i = 0; i < t->n_metadata; i++) {
        body_put_text(&w, t->metadata[i].key);
        body_put_text(&w, t->metadata[i].value);
    }
    body_put_u32(&w, t->has_digest);
    body_put_u64(&w, t->digest.words[0]);
    body_put_u64(&w, t->digest.words[1]);
    body_put_u32(&w, t->opened_turns);
    return body_written(&w, err);
}

enum {
    RAW_PARSES_CONTROL = 1,
    RAW_ADDS_NO_BOS = 2,
    RAW_FILLS_IN = 4,
    RAW_IS_CHAT = 8,
    RAW_ALL = 15
};

static uint32_t raw_rules_bits(const struct raw_rules *r)
{
    return (r->parses_control ? RAW_PARSES_CONTROL : 0u) | (r->adds_no_bos ? RAW_ADDS_NO_BOS : 0u) |
           (r->fills_in ? RAW_FILLS_IN : 0u) | (r->is_chat ? RAW_IS_CHAT : 0u);
}

static struct raw_rules raw_rules_of(uint32_t bits)
{
    return (struct raw_rules){
        .parses_control = (bits & RAW_PARSES_CONTROL) != 0,
        .adds_no_bos = (bits & RAW_ADDS_NO_BOS) != 0,
        .fills_in = (bits & RAW_FILLS_IN) != 0,
        .is_chat = (bits & RAW_IS_CHAT) != 0,
    };
}

enum status body_write_accept(struct buf *out, const struct stored_request *request,
                              const struct sampling *sampling, const char *binding,
                              const struct turn_origin *origin, struct error *err)
{
    struct body_writer w = {.out = out};

    body_put_u32(&w, BODY_VERSION);
    body_put_u32(&w, request->is_plain);
    body_put_u32(&w, request->n_logprobs);
    body_put_u32(&w, (uint32_t)request->n_plain_ids);
    for (size_t i = 0; i < request->n_plain_ids; i++)
        body_put_u32(&w, (uint32_t)request->plain_ids[i]);
    body_put_u32(&w, request->n_messages);
    for (size_t i = 0; i < request->n_messages; i++) {
        body_put_u32(&w, request->messages[i].role);
        body_put_bytes(&w, request->messages[i].text, request->messages[i].len);
    }
    body_put_overrides(&w, request->overrides);
    body_put_u32(&w, sampling != NULL);
    if (sampling != NULL)
        body_put_sampling(&w, ~0u, sampling);
    body_put_text(&w, binding);
    for (size_t i = 0; i < request->n_messages; i++)
        body_put_bytes(&w, request->messages[i].more, request->messages[i].more_len);
    body_put_bytes(&w, request->tool_use.tools.text, request->tool_use.tools.len);
    body_put_u32(&w, request->tool_use.is_forced);
    body_put_u32(&w, request->tool_use.is_single);
    body_put_u64(&w, request->tool_use.seed);
    body_put_bytes(&w, request->variables.json.text, request->variables.json.len);
    body_put_u32(&w, request->variables.thinking);
    body_put_u32(&w, AGENT_ENGINE_REVISION);
    body_put_u32(&w, AGENT_COMPILER_REVISION);
    body_put_u32(&w, origin == NULL ? 0 : origin->generation);
    if (origin != NULL)
        body_put_bytes(&w, origin->conversation.bytes, sizeof(origin->conversation.bytes));
    body_put_u32(&w, raw_rules_bits(&request->raw));
    return body_written(&w, err);
}

static void body_put_logprobs(struct body_writer *w, const struct completed_turn *t)
{
    size_t n_tops = t->n_tokens == 0 ? 0 : t->logprobs[t->n_tokens - 1].tops_end;

    for (size_t i = 0; i < t->n_tokens; i++) {
        body_put_float(w, t->logprobs[i].logprob);
        body_put_u32(w, t->logprobs[i].tops_end);
    }
    for (size_t i = 0; i < n_tops; i++) {
        body_put_u32(w, (uint32_t)t->tops[i].id);
        body_put_float(w, t->tops[i].logprob);
    }
}

enum status body_write_finish(struct buf *out, const struct completed_turn *t, const void *trace,
                              size_t trace_size, struct error *err)
{
    struct body_writer w = {.out = out};

    body_put_u32(&w, BODY_VERSION);
    body_put_u32(&w, t->finish);
    body_put_u32(&w, t->usage.n_prompt);
    body_put_u32(&w, t->usage.n_cached);
    body_put_u64(&w, t->timings.queue_us);
    body_put_u64(&w, t->timings.prefill_us);
    body_put_u64(&w, t->timings.decode_us);
    body_put_u64(&w, t->timings.total_us);
    body_put_u32(&w, t->timings.n_steps);
    body_put_bytes(&w, t->text, t->len);
    body_put_u32(&w, (uint32_t)t->n_tokens);
    for (size_t i = 0; i < t->n_tokens; i++) {
        body_put_u32(&w, (uint32_t)t->tokens[i].id);
        body_put_u32(&w, t->tokens[i].text_end);
    }
    body_put_u32(&w, t->logprobs != NULL);
    if (t->logprobs != NULL)
        body_put_logprobs(&w, t);
    body_put_bytes(&w, trace, trace_size);
    return body_written(&w, err);
}

/* --- reading --- */

static bool body_take_bool(struct body_reader *r)
{
    return body_take_up_to(r, 1) != 0;
}

/* Bytes of a size that is known. */
static void body_take_fixed(struct body_reader *r, void *out, size_t size_bytes)
{
    size_t len;
    const void *bytes = body_take_bytes(r, &len);

    if (bytes == NULL || len != size_bytes)
        r->is_bad = true;
    else
        memcpy(out, bytes, size_bytes);
}

static void body_take_constraint(struct body_reader *r, struct sampling *out)
{
    struct constraint *c;

    if (body_take_up_to(r, 1) == 0)
        return;
    c = body_take_array(r, 1, sizeof(*c), 1);
    if (c == NULL)
        return;
    c->form = (enum constraint_form)body_take_up_to(r, CONSTRAINT_TAGS);
    c->text = body_take_bytes(r, &c->len);
    out->constraint = c;
}

static void body_take_sampling(struct body_reader *r, struct sampling_overrides *out)
{
    struct sampling *s = &out->values;
    struct text *stops;
    struct logit_bias *biases;
    size_t n;

    sampling_init(s);
    out->given = body_take_u32(r);
#define TAKE(name, NAME, kind, number, neutral, least, most, bounds, since) \
    if (r->version >= (since))                                              \
        s->name = body_take_##kind(r);
    SAMPLING_FIELDS(TAKE)
#undef TAKE
    s->has_seed = true;
    n = body_take_up_to(r, SAMPLING_MAX_STOPS);
    stops = body_take_array(r, n, sizeof(*stops), 8);
    for (size_t i = 0; stops != NULL && i < n; i++)
        stops[i].text = body_take_bytes(r, &stops[i].len);
    s->stops = stops;
    s->n_stops = n;
    n = body_take_up_to(r, SAMPLING_MAX_BIASES);
    biases = body_take_array(r, n, sizeof(*biases), 8);
    for (size_t i = 0; biases != NULL && i < n; i++) {
        biases[i].id = (int32_t)body_take_u32(r);
        biases[i].bias = body_take_float(r);
    }
    s->biases = biases;
    s->n_biases = n;
    body_take_constraint(r, s);
}

/* NULL: none, or a failure. */
static struct sampling_overrides *body_take_overrides(struct body_reader *r)
{
    struct sampling_overrides *o;

    if (body_take_up_to(r, 1) == 0)
        return NULL;
    o = body_take_array(r, 1, sizeof(*o), 1);
    if (o != NULL)
        body_take_sampling(r, o);
    return o;
}

enum status body_read_terms(struct body_terms *out, const void *body, size_t size_bytes,
                            struct arena *arena, struct error *err)
{
    struct body_reader r = body_begin(body, size_bytes, BODY_VERSION, arena);
    struct pair *pairs;

    *out = (struct body_terms){.model = body_take_text(&r)};
    out->version = body_take_text(&r);
    out->seed = body_take_u64(&r);
    out->ttl_ms = body_take_u64(&r);
    if (r.version < 4) /* whether a client asked for it is unknown: nothing is closed by it */
        out->ttl_ms = 0;
    out->limits.max_turns = body_take_u32(&r);
    out->limits.max_tokens = body_take_u32(&r);
    out->limits.priority = (int)body_take_u32(&r);
    out->system = body_take_bytes(&r, &out->system_len);
    out->overrides = body_take_overrides(&r);
    out->n_metadata = body_take_up_to(&r, BODY_MAX_MESSAGES);
    pairs = body_take_array(&r, out->n_metadata, sizeof(pairs[0]), 16);
    for (size_t i = 0; pairs != NULL && i < out->n_metadata; i++) {
        pairs[i].key = body_take_text(&r);
        pairs[i].value = body_take_text(&r);
    }
    out->metadata = pairs;
    out->has_digest = body_take_up_to(&r, 1) != 0;
    out->digest.words[0] = body_take_u64(&r);
    out->digest.words[1] = body_take_u64(&r);
    out->opened_turns = body_take_u32(&r);
    return body_end(&r, err);
}

/* What came with version 2. */
static void body_take_tools(struct body_reader *r, struct turn_request *out,
                            struct message *messages)
{
    struct tool_use *use = &out->tool_use;

    for (size_t i = 0; messages != NULL && i < out->n_messages; i++)
        messages[i].more = body_take_bytes(r, &messages[i].more_len);
    use->tools.text = body_take_bytes(r, &use->tools.len);
    use->is_forced = body_take_up_to(r, 1) != 0;
    use->is_single = body_take_up_to(r, 1) != 0;
    use->seed = body_take_u64(r);
}

enum status body_read_accept(struct body_accept *out, const void *body, size_t size_bytes,
                             struct arena *arena, struct error *err)
{
    struct body_reader r = body_begin(body, size_bytes, BODY_VERSION, arena);
    struct turn_request *request = &out->request;
    const struct sampling_overrides *resolved;
    struct message *messages;
    int32_t *ids;

    *out = (struct body_accept){.request.is_plain = body_take_up_to(&r, 1) != 0};
    request->n_logprobs = body_take_u32(&r);
    request->n_plain_ids = body_take_up_to(&r, INT32_MAX);
    ids = body_take_array(&r, request->n_plain_ids, sizeof(ids[0]), 4);
    for (size_t i = 0; ids != NULL && i < request->n_plain_ids; i++)
        ids[i] = (int32_t)body_take_u32(&r);
    request->plain_ids = ids;
    request->n_messages = body_take_up_to(&r, BODY_MAX_MESSAGES);
    messages = body_take_array(&r, request->n_messages, sizeof(messages[0]), 12);
    for (size_t i = 0; messages != NULL && i < request->n_messages; i++) {
        messages[i].role = (enum role)body_take_up_to(&r, ROLE_TOOL);
        messages[i].text = body_take_bytes(&r, &messages[i].len);
    }
    request->messages = messages;
    request->overrides = body_take_overrides(&r);
    resolved = body_take_overrides(&r);
    out->sampling = resolved == NULL ? NULL : &resolved->values;
    out->binding = body_take_text(&r);
    if (r.version > 1)
        body_take_tools(&r, request, messages);
    if (r.version > 2) {
        request->variables.json.text = body_take_bytes(&r, &request->variables.json.len);
        request->variables.thinking = (enum thinking)body_take_up_to(&r, THINKING_OFF);
    }
    if (r.version > 3) {
        out->engine_revision = body_take_u32(&r);
        out->compiler_revision = body_take_u32(&r);
    }
    if (r.version > 4 && (out->origin.generation = body_take_u32(&r)) != 0)
        body_take_fixed(&r, out->origin.conversation.bytes, CONVERSATION_ID_BYTES);
    if (r.version > 5)
        request->raw = raw_rules_of(body_take_up_to(&r, RAW_ALL));
    /* a gap stands between two texts */
    r.is_bad = r.is_bad || (request->raw.fills_in && request->n_messages < 2);
    return body_end(&r, err);
}

static void body_take_logprobs(struct body_reader *r, struct reply *reply)
{
    uint32_t *ends = body_take_array(r, reply->n_tokens, sizeof(*ends), 8);
    struct top_logprob *tops;
    uint32_t at = 0;

    for (size_t i = 0; ends != NULL && i < reply->n_tokens; i++) {
        reply->tokens[i].logprob = body_take_float(r);
        ends[i] = body_take_u32(r);
        r->is_bad = r->is_bad || ends[i] < at;
        at = ends[i];
    }
    tops = body_take_array(r, at, sizeof(*tops), 8);
    for (size_t i = 0; tops != NULL && i < at; i++) {
        tops[i].id = (int32_t)body_take_u32(r);
        tops[i].logprob = body_take_float(r);
    }
    for (size_t i = 0; tops != NULL && i < reply->n_tokens; i++) {
        uint32_t first = i == 0 ? 0 : ends[i - 1];

        reply->tokens[i].top = tops + first;
        reply->tokens[i].n_top = ends[i] - first;
    }
}

enum status body_read_finish(struct body_finish *out, const void *body, size_t size_bytes,
                             struct arena *arena, struct error *err)
{
    struct body_reader r = body_begin(body, size_bytes, BODY_VERSION, arena);
    struct reply *reply = &out->reply;
    uint32_t text_end = 0;

    *out =
        (struct body_finish){.reply.finish = (enum finish)body_take_up_to(&r, FINISH_WORKER_LOST)};
    reply->n_prompt = body_take_u32(&r);
    reply->n_cached = body_take_u32(&r);
    out->timings.queue_us = body_take_u64(&r);
    out->timings.prefill_us = body_take_u64(&r);
    out->timings.decode_us = body_take_u64(&r);
    out->timings.total_us = body_take_u64(&r);
    out->timings.n_steps = body_take_u32(&r);
    reply->text.data = (char *)body_take_bytes(&r, &reply->text.len); /* only read */
    reply->n_tokens = body_take_up_to(&r, INT32_MAX);
    reply->tokens = body_take_array(&r, reply->n_tokens, sizeof(reply->tokens[0]), 8);
    for (size_t i = 0; reply->tokens != NULL && i < reply->n_tokens; i++) {
        reply->tokens[i].id = (int32_t)body_take_u32(&r);
        reply->tokens[i].text_end = body_take_u32(&r);
        r.is_bad = r.is_bad || reply->tokens[i].text_end < text_end;
        text_end = reply->tokens[i].text_end;
    }
    r.is_bad = r.is_bad || text_end > reply->text.len;
    if (body_take_up_to(&r, 1) != 0)
        body_take_logprobs(&r, reply);
    out->trace = body_take_bytes(&r, &out->trace_size);
    return body_end(&r, err);
}

/* --- keys --- */

enum status body_write_key(struct buf *out, const struct body_key *k, struct error *err)
{
    struct body_writer w = {.out = out};

    body_put_u32(&w, BODY_VERSION);
    body_put_bytes(&w, k->conversation, sizeof(k->conversation));
    body_put_bytes(&w, k->digest, sizeof(k->digest));
    body_put_u32(&w, k->n_turns);
    body_put_u32(&w, k->is_ephemeral);
    body_put_u64(&w, k->created_s);
    body_put_text(&w, k->id);
    body_put_text(&w, k->model);
    body_put_text(&w, k->version);
    body_put_u32(&w, k->instructions != NULL);
    if (k->instructions != NULL)
        body_put_text(&w, k->instructions);
    return body_written(&w, err);
}

enum status body_read_key(struct body_key *out, const void *body, size_t size_bytes,
                          struct arena *arena, struct error *err)
{
    struct body_reader r = body_begin(body, size_bytes, BODY_VERSION, arena);

    *out = (struct body_key){0};
    body_take_fixed(&r, out->conversation, sizeof(out->conversation));
    body_take_fixed(&r, out->digest, sizeof(out->digest));
    out->n_turns = body_take_up_to(&r, BODY_MAX_TURNS);
    out->is_ephemeral = body_take_up_to(&r, 1) != 0;
    out->created_s = body_take_u64(&r);
    out->id = body_take_text(&r);
    out->model = body_take_text(&r);
    out->version = body_take_text(&r);
    if (body_take_up_to(&r, 1) != 0)
        out->instructions = body_take_text(&r);
    return body_end(&r, err);
}
