/* parley.v1.Conversations, Verify and VerifyUpload. The records are those of the request or of the
 * stream, or are read from the journal. The verification notifies the call, which lets it go on and
 * answers once it is done. A peer that goes away ends it. */
#include <string.h>

#include "base/utf8.h"
#include "proto/codec.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/stored_records.h"
#include "server/api/parley/turn_parts.h"
#include "server/api/parley/wire.h"
#include "server/api/parley/wire_parts.h"
#include "server/api/parley/wire_record.h"
#include "server/api/parley/wire_sampling.h"
#include "server/api/parley/wire_tools.h"
#include "server/conversation/keeping.h"
#include "server/conversation/verification.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

/* Bound of one answer's memory: it has what the records say. */
#define VERIFY_MAX_BYTES ((size_t)2 << 30)
/* The most bytes of the records of one stream. The answer is made and written at once: others wait
 * for a ms or two for each of its MiB. */
#define VERIFY_UPLOAD_MAX_BYTES ((size_t)256 << 20)
/* The most records of one stream: their answer takes as long, and each has a KiB of memory. */
enum { VERIFY_UPLOAD_MAX_RECORDS = 1 << 18 };

struct verify_call {
    struct call *call;
    struct stored_records stored;
    struct verification_request request;
    struct verification *verification; /* NULL: not begun, or over */
    struct turn_parts parts;
    struct verification_changes changes;
    bool was_sent; /* the client sent the records */
    size_t n_sent;
    struct journal_found sent;
    const char *sent_owner; /* that they name; NULL: none yet */
    /* Of a stream. */
    size_t sent_bytes;  /* held of conversations.verified */
    struct arena first; /* has the first message, once has_first */
    bool has_first, has_failed;
};

static void verify_notify(void *arg)
{
    struct verify_call *v = arg;

    call_notify(v->call);
}

/* --- the answer --- */

/* A message's text is UTF-8: what is none, as a token that ends inside a character, becomes U+FFFD.
 * NULL without memory. */
static char *verify_copy(const char *text, size_t len, struct arena *arena)
{
    char *copy = arena_alloc(arena, 3 * len + 1, 1), *at = copy; /* U+FFFD has three bytes */
    uint32_t character;

    while (copy != NULL && len > 0) {
        const size_t n = utf8_next(text, len, &character);

        if (character != 0)
            at += utf8_encode(character, at);
        text += n;
        len -= n;
    }
    return copy;
}

/* A token's text; "" for the end of a reply, and for a token of another vocabulary. */
static enum status verify_token_text(char **out, const struct verify_call *v, int32_t id,
                                     struct arena *arena)
{
    const struct model *m = verification_model(v->verification);
    struct error ignored;
    struct buf text;

    *out = (char *)"";
    if (id < 0 || m->agent->type->text == NULL || m->agent->type->text->detokenize == NULL)
        return STATUS_OK;
    buf_init(&text, VERIFY_MAX_BYTES);
    if (m->agent->type->text->detokenize(m->agent, &id, 1, &text, &ignored) == STATUS_OK)
        *out = verify_copy(text.data, text.len, arena);
    buf_deinit(&text);
    return *out == NULL ? STATUS_EXHAUSTED : STATUS_OK;
}

static enum status verify_fill_difference(Parley__V1__VerifiedTurn *out,
                                          const struct verify_call *v,
                                          const struct verified_difference *d, struct arena *arena)
{
    Parley__V1__TokenDifference *m = arena_alloc(arena, 1, sizeof(*m));
    const struct piece_token token = {
        .logprob = d->computed_logprob, .tops = d->top, .n_tops = d->n_top};

    if (m == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__token_difference__init(m);
    out->difference = m;
    m->index = d->index;
    m->recorded = d->recorded;
    m->computed = d->computed;
    if (d->has_kl) {
        m->divergence_case = PARLEY__V1__TOKEN_DIFFERENCE__DIVERGENCE_KL;
        m->kl = d->kl;
    }
    if (d->recorded_text != NULL) {
        m->recorded_text = verify_copy(d->recorded_text, d->recorded_len, arena);
        if (m->recorded_text == NULL)
            return STATUS_EXHAUSTED;
    } else if (verify_token_text(&m->recorded_text, v, d->recorded, arena) != STATUS_OK) {
        return STATUS_EXHAUSTED;
    }
    if (verify_token_text(&m->computed_text, v, d->computed, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return d->n_top == 0 ? STATUS_OK : wire_logprob(&m->computed_logprob, &token, arena);
}

static enum status verify_fill_turn(Parley__V1__VerifiedTurn *out, const struct verify_call *v,
                                    const struct verified_turn *t, struct arena *arena)
{
    static const Parley__V1__VerifiedTurn__Verdict verdicts[] = {
        [VERDICT_SAME] = PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_SAME,
        [VERDICT_DIFFERS] = PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_DIFFERS,
        [VERDICT_UNCHECKED] = PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_UNCHECKED,
        [VERDICT_SKIPPED] = PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_SKIPPED,
    };

    parley__v1__verified_turn__init(out);
    out->record = (uint32_t)t->record;
    out->turn = t->turn;
    out->verdict = verdicts[t->verdict];
    out->tokens = t->n_tokens;
    out->compared_tokens = t->n_compared;
    out->why = verify_copy(t->why, strlen(t->why), arena); /* it may quote anything */
    if (out->why == NULL)
        return STATUS_EXHAUSTED;
    out->computed_tokens = t->n_computed;
    out->other_logprobs = t->has_other_logprobs;
    out->is_behind_new = t->is_behind_new;
    if (t->computed != NULL &&
        wire_transcript_turn(&out->computed, t->computed, &v->parts, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (t->difference.has_tokens &&
        verify_fill_difference(out, v, &t->difference, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    return v->was_sent && t->recorded != NULL
               ? wire_transcript_turn(&out->recorded, t->recorded, &v->parts, arena)
               : STATUS_OK;
}

static enum status verify_fill_turns(Parley__V1__ConversationsVerifyResponse *out,
                                     const struct verify_call *v, struct arena *arena)
{
    const struct verified_turn *turns = verification_turns(v->verification, &out->n_turns);
    Parley__V1__VerifiedTurn *all = arena_alloc(arena, out->n_turns, sizeof(*all));

    out->turns = arena_alloc(arena, out->n_turns, sizeof(out->turns[0]));
    if (all == NULL || out->turns == NULL)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < out->n_turns; i++) {
        if (verify_fill_turn(&all[i], v, &turns[i], arena) != STATUS_OK)
            return STATUS_EXHAUSTED;
        out->turns[i] = &all[i];
    }
    return STATUS_OK;
}

static enum status verify_fill_records(Parley__V1__ConversationsVerifyResponse *out,
                                       const struct verify_call *v, size_t n, struct arena *arena,
                                       struct error *err)
{
    const struct list *records = verification_records(v->verification);

    out->records = arena_alloc(arena, n, sizeof(out->records[0]));
    if (out->records == NULL)
        return error_no_memory(err, n * sizeof(out->records[0]), "records");
    for (struct link *at = list_first(records); at != NULL; at = list_next(records, at))
        if (wire_record_facts(&out->records[out->n_records++],
                              container_of(at, const struct journal_event, link), arena,
                              err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

static enum status verify_answer(Parley__V1__ConversationsVerifyResponse *out,
                                 const struct verify_call *v, struct arena *arena,
                                 struct error *err)
{
    const struct model *m = verification_model(v->verification);
    const char *problem;
    size_t record;

    problem = verification_chain_problem(v->verification, &record);
    out->chain_problem = (char *)(problem == NULL ? "" : problem);
    out->chain_problem_record = problem == NULL ? 0 : (uint32_t)record;
    out->chain = wire_hex(verification_chain(v->verification), SHA256_BYTES, arena);
    if (m != NULL) {
        out->model = m->name;
        out->version = (char *)m->info.version;
    }
    if (out->chain == NULL || verify_fill_turns(out, v, arena) != STATUS_OK)
        return error_no_memory(err, 0, "verified turns");
    return v->was_sent ? verify_fill_records(out, v, v->n_sent, arena, err) : STATUS_OK;
}

static void verify_reply(struct verify_call *v)
{
    Parley__V1__ConversationsVerifyResponse response =
        PARLEY__V1__CONVERSATIONS_VERIFY_RESPONSE__INIT;
    const struct model *m = verification_model(v->verification);
    struct arena arena;
    struct error err;

    arena_init(&arena, VERIFY_MAX_BYTES);
    turn_parts_init(&v->parts, m == NULL ? NULL : m->info.text.reply_format, true);
    if (verify_answer(&response, v, &arena, &err) == STATUS_OK)
        call_reply(v->call, &response.base);
    else
        call_finish(v->call, &err);
    turn_parts_close(&v->parts);
    arena_deinit(&arena);
}

/* --- the call --- */

static void verify_write_ready(struct call *call, void *state)
{
    struct verify_call *v = state;
    bool is_done = false;
    struct error err;

    if (v->verification == NULL)
        return;
    if (verification_advance(v->verification, &is_done, &err) != STATUS_OK)
        call_finish(call, &err);
    else if (is_done)
        verify_reply(v);
    else
        return;
    verification_close(v->verification);
    v->verification = NULL;
}

static void verify_on_close(struct call *call, void *state, enum status why)
{
    struct verify_call *v = state;

    stored_records_close(&v->stored);
    verification_close(v->verification);
    v->verification = NULL;
    journal_found_deinit(&v->sent);
    arena_deinit(&v->first);
    shared_limit_give(&call_server(v->call)->conversations->verified, call_principal(v->call)->id,
                      v->sent_bytes);
}

static enum status verify_begin(struct verify_call *v, struct journal_found *found,
                                struct error *err)
{
    struct conversations *all = call_server(v->call)->conversations;

    if (verification_open(&v->verification, all, &v->request, found, verify_notify, v, err) !=
        STATUS_OK)
        return err->status;
    verify_notify(v);
    return STATUS_OK;
}

static void on_verify_read(void *arg, const struct error *err)
{
    struct verify_call *v = arg;
    struct error why = *err;

    if (why.status != STATUS_OK || verify_begin(v, &v->stored.found, &why) != STATUS_OK)
        call_finish(v->call, &why);
}

static enum status verify_sent(struct verify_call *v,
                               const Parley__V1__ConversationsVerifyRequest *request,
                               struct error *err)
{
    enum status rc;

    if (request->conversation[0] != '\0')
        return error_field(err, "records", "cannot be combined with conversation");
    rc = wire_take_records(&v->sent, &v->sent_owner, request->records, request->n_records,
                           v->n_sent, call_arena(v->call), err);
    v->request.owner = v->sent_owner == NULL ? "" : v->sent_owner;
    v->n_sent += request->n_records;
    return rc;
}

/* Begins with the records that were sent. */
static enum status verify_begin_sent(struct verify_call *v, struct error *err)
{
    enum status rc = verify_begin(v, &v->sent, err);

    journal_found_deinit(&v->sent);
    return rc;
}

/* Reads what is to be other than recorded. */
static enum status verify_change(struct verify_call *v, const Parley__V1__VerifyChanges *from,
                                 struct error *err)
{
    struct verification_changes *out = &v->changes;
    Parley__V1__TurnRequest offer = PARLEY__V1__TURN_REQUEST__INIT;
    struct turn_request turn = {0};
    struct arena *arena = call_arena(v->call);
    struct error ignored;
    struct model *m;
    const bool has_model =
        models_get(&m, v->request.models, v->request.model, &ignored) == STATUS_OK;

    *out = (struct verification_changes){
        .has_system = from->prompt_case == PARLEY__V1__VERIFY_CHANGES__PROMPT_SYSTEM,
        .has_tools = from->n_tools > 0 || from->replaces_tools,
        .goes_on = from->goes_on != 0,
    };
    if (out->has_system)
        out->system = (struct text){from->system, strlen(from->system)};
    if (out->system.len > SYSTEM_MAX_BYTES)
        return error_field(err, "changes.system", "has %zu bytes, at most %d may be",
                           out->system.len, SYSTEM_MAX_BYTES);
    offer.tools = from->tools;
    offer.n_tools = from->n_tools;
    offer.tool_choice = from->tool_choice;
    if (wire_sampling(&out->sampling, from->sampling, arena, err) != STATUS_OK ||
        wire_tools(&turn, &offer, has_model ? m->info.text.reply_format : NULL, arena, err) !=
            STATUS_OK)
        return err->status;
    out->tools = turn.tool_use;
    if (turn.overrides != NULL && (turn.overrides->given & SAMPLING_CONSTRAINT) != 0)
        out->constraint = turn.overrides->values.constraint;
    v->request.changes = out;
    return STATUS_OK;
}

/* Reads all of a request but its records. */
static enum status verify_read(struct verify_call *v,
                               const Parley__V1__ConversationsVerifyRequest *request,
                               struct error *err)
{
    struct server *server = call_server(v->call);

    v->request = (struct verification_request){
        .principal = call_principal(v->call)->id,
        .owner = keeping_principal(server->conversations, call_principal(v->call)->id),
        .models = server->models,
        .model = request->model,
        .is_forced = request->force,
        .only = request->n_only == 0 ? NULL : request->only,
        .n_only = request->n_only,
    };
    if (request->changes != NULL && verify_change(v, request->changes, err) != STATUS_OK)
        return err->status;
    for (size_t i = 1; i < request->n_only; i++)
        if (request->only[i - 1] >= request->only[i])
            return error_field(err, "only", "must rise");
    return STATUS_OK;
}

static enum status verify_start(struct verify_call *v,
                                const Parley__V1__ConversationsVerifyRequest *request,
                                struct error *err)
{
    if (verify_read(v, request, err) != STATUS_OK)
        return err->status;
    v->was_sent = request->n_records > 0;
    if (!v->was_sent)
        return stored_records_read(&v->stored, v->call, request->conversation, on_verify_read, v,
                                   err);
    if (verify_sent(v, request, err) != STATUS_OK)
        return err->status;
    return verify_begin_sent(v, err);
}

static void verify_conversation(struct call *call,
                                const Parley__V1__ConversationsVerifyRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = verify_write_ready,
                                                .on_close = verify_on_close};
    struct verify_call *v = arena_alloc(call_arena(call), 1, sizeof(*v));
    struct error err;

    if (v == NULL) {
        (void)error_no_memory(&err, sizeof(*v), "a call");
        call_finish(call, &err);
        return;
    }
    *v = (struct verify_call){.call = call};
    journal_found_init(&v->sent);
    if (verify_start(v, request, &err) != STATUS_OK) {
        journal_found_deinit(&v->sent);
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, v);
    if (v->verification != NULL)
        call_notify(call);
}

/* --- records in several messages --- */

/* Whether the stream may have these records, too. */
static enum status verify_upload_check(const struct verify_call *v, size_t n, size_t size_bytes,
                                       struct error *err)
{
    if (v->sent_bytes + size_bytes > VERIFY_UPLOAD_MAX_BYTES)
        (void)error_field(err, "records", "have more than %zu MiB, which is the most",
                          VERIFY_UPLOAD_MAX_BYTES >> 20);
    else if (v->n_sent + n > VERIFY_UPLOAD_MAX_RECORDS)
        (void)error_field(err, "records", "are more than %d, which is the most",
                          VERIFY_UPLOAD_MAX_RECORDS);
    else
        return STATUS_OK;
    return err->status = STATUS_RANGE;
}

static enum status verify_upload_take(struct verify_call *v,
                                      const Parley__V1__ConversationsVerifyRequest *m,
                                      struct error *err)
{
    struct shared_limit *verified = &call_server(v->call)->conversations->verified;
    const uint32_t principal = call_principal(v->call)->id;
    size_t size = 0;

    if (v->has_first && (m->conversation[0] != '\0' || m->model[0] != '\0' || m->force ||
                         m->n_only > 0 || m->changes != NULL))
        return error_field(err, "records", "are all that a further message may have");
    if (!v->has_first && verify_read(v, m, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < m->n_records; i++)
        size += m->records[i].len;
    if (verify_upload_check(v, m->n_records, size, err) != STATUS_OK)
        return err->status;
    if (shared_limit_take(verified, principal, size, err) != STATUS_OK)
        return err->status;
    v->sent_bytes += size;
    return verify_sent(v, m, err);
}

static enum status verify_upload_end(struct verify_call *v, struct error *err)
{
    if (v->n_sent == 0)
        return error_field(err, "records", "are missing");
    v->was_sent = true;
    return verify_begin_sent(v, err);
}

static void verify_upload_message(struct call *call, void *state, const ProtobufCMessage *message,
                                  struct arena *arena)
{
    struct verify_call *v = state;
    struct error err;
    enum status rc;

    if (v->has_failed)
        return;
    rc = message == NULL
             ? verify_upload_end(v, &err)
             : verify_upload_take(v, (const Parley__V1__ConversationsVerifyRequest *)message, &err);
    if (rc != STATUS_OK) {
        v->has_failed = true;
        call_finish(call, &err);
        return;
    }
    if (message != NULL && !v->has_first) {
        v->has_first = true;
        v->first = *arena;
        arena_init(arena, v->first.limit_bytes); /* taken */
    }
    if (message != NULL)
        call_read(call);
}

static void verify_upload(struct call *call)
{
    static const struct call_handler handler = {.message = verify_upload_message,
                                                .on_write_ready = verify_write_ready,
                                                .on_close = verify_on_close};
    struct verify_call *v = arena_alloc(call_arena(call), 1, sizeof(*v));
    struct error err;

    if (v == NULL) {
        (void)error_no_memory(&err, sizeof(*v), "a call");
        call_finish(call, &err);
        return;
    }
    *v = (struct verify_call){.call = call};
    journal_found_init(&v->sent);
    call_set_handler(call, &handler, v);
    call_read(call);
}

#define CONVERSATIONS_VERIFY_METHODS(METHOD)                                               \
    METHOD(FOUND_UNARY, KEY, "Conversations/Verify", conversations_verify_request,         \
           conversations_verify_response, verify_conversation)                             \
    METHOD(CLIENT_STREAM, KEY, "Conversations/VerifyUpload", conversations_verify_request, \
           conversations_verify_response, verify_upload)

PARLEY_TABLE(conversations_verify_methods, CONVERSATIONS_VERIFY_METHODS)
