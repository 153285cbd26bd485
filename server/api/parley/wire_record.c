/* A record's hashes are hexadecimal on the wire, and its kind is an enum with the journal's
 * numbers. What its body says is read again wherever it is shown, so that it cannot be another
 * thing. */
#include "server/api/parley/wire_record.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "proto/codec.h"
#include "server/api/parley/wire_parts.h"
#include "server/api/parley/wire_sampling.h"
#include "server/conversation/body.h"

#define WIRE_RECORDS_MAX_BYTES ((size_t)1 << 30)

#define IS_KIND(NAME, KIND)                                                                 \
    _Static_assert(PARLEY__V1__CONVERSATION_RECORD_KIND__CONVERSATION_RECORD_KIND_##NAME == \
                       (int)JOURNAL_##KIND,                                                 \
                   "the journal has another number");
IS_KIND(OPENED, OPEN)
IS_KIND(UPDATED, UPDATE)
IS_KIND(ACCEPTED, ACCEPT)
IS_KIND(REPLIED, FINISH)
IS_KIND(OBSERVED, OBSERVE)
IS_KIND(WITHDRAWN, WITHDRAW)
IS_KIND(REWOUND, REWIND)
#undef IS_KIND

/* --- to messages --- */

char *wire_hex(const uint8_t *bytes, size_t n, struct arena *arena)
{
    char *hex = arena_alloc(arena, 2 * n + 1, 1);

    for (size_t i = 0; hex != NULL && i < n; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return hex;
}

/* "" for a text that is none. */
static char *record_text(const char *text, size_t len, struct arena *arena)
{
    return len == 0 || !utf8_is_valid(text, len) ? (char *)"" : wire_copy(text, len, arena);
}

static enum status record_accepted(Parley__V1__ConversationRecord *out,
                                   const struct journal_event *e, struct arena *arena,
                                   struct error *err)
{
    Parley__V1__RecordedAcceptance *m = arena_alloc(arena, 1, sizeof(*m));
    struct body_accept a;
    size_t n_hash;

    if (body_read_accept(&a, e->body, e->size_bytes, arena, err) != STATUS_OK)
        return STATUS_OK; /* it says nothing that can be shown */
    if (m == NULL)
        return error_no_memory(err, sizeof(*m), "a record");
    parley__v1__recorded_acceptance__init(m);
    n_hash = strcspn(a.binding, " ");
    m->model_sha256 = record_text(a.binding, n_hash, arena);
    m->computed_by = record_text(a.binding + n_hash + (a.binding[n_hash] == ' '),
                                 strlen(a.binding + n_hash + (a.binding[n_hash] == ' ')), arena);
    m->engine_revision = a.engine_revision;
    m->compiler_revision = a.compiler_revision;
    m->want_logprobs = a.request.n_logprobs;
    m->tools = record_text(a.request.tool_use.tools.text, a.request.tool_use.tools.len, arena);
    m->template_variables =
        record_text(a.request.variables.json.text, a.request.variables.json.len, arena);
    if (a.sampling != NULL && a.sampling->constraint != NULL)
        m->constraint =
            record_text(a.sampling->constraint->text, a.sampling->constraint->len, arena);
    if (m->model_sha256 == NULL || m->computed_by == NULL || m->tools == NULL ||
        m->template_variables == NULL || m->constraint == NULL ||
        (a.sampling != NULL &&
         wire_sampling_message(&m->sampling, a.sampling, ~0u, arena) != STATUS_OK))
        return error_no_memory(err, e->size_bytes, "a record");
    out->accepted = m;
    return STATUS_OK;
}

static enum status record_replied(Parley__V1__ConversationRecord *out,
                                  const struct journal_event *e, struct arena *arena,
                                  struct error *err)
{
    Parley__V1__RecordedReply *m = arena_alloc(arena, 1, sizeof(*m));
    struct body_finish f;

    if (body_read_finish(&f, e->body, e->size_bytes, arena, err) != STATUS_OK)
        return STATUS_OK;
    if (m == NULL)
        return error_no_memory(err, sizeof(*m), "a record");
    parley__v1__recorded_reply__init(m);
    m->token_ids = arena_alloc(arena, f.reply.n_tokens, sizeof(m->token_ids[0]));
    if (m->token_ids == NULL)
        return error_no_memory(err, f.reply.n_tokens * sizeof(m->token_ids[0]), "a record");
    m->n_token_ids = f.reply.n_tokens;
    for (size_t i = 0; i < f.reply.n_tokens; i++)
        m->token_ids[i] = f.reply.tokens[i].id;
    m->finish_reason = wire_finish(f.reply.finish);
    m->prompt_tokens = f.reply.n_prompt;
    out->replied = m;
    return STATUS_OK;
}

static enum status record_terms(Parley__V1__ConversationRecord *out, const struct journal_event *e,
                                struct arena *arena, struct error *err)
{
    Parley__V1__RecordedTerms *m = arena_alloc(arena, 1, sizeof(*m));
    struct body_terms t;

    if (body_read_terms(&t, e->body, e->size_bytes, arena, err) != STATUS_OK)
        return STATUS_OK;
    if (m == NULL)
        return error_no_memory(err, sizeof(*m), "a record");
    parley__v1__recorded_terms__init(m);
    m->model = record_text(t.model, strlen(t.model), arena);
    m->model_sha256 = record_text(t.version, strlen(t.version), arena);
    m->system = record_text(t.system, t.system_len, arena);
    if (m->model == NULL || m->model_sha256 == NULL || m->system == NULL ||
        (t.overrides != NULL && wire_sampling_message(&m->sampling, &t.overrides->values,
                                                      t.overrides->given, arena) != STATUS_OK))
        return error_no_memory(err, e->size_bytes, "a record");
    out->terms = m;
    return STATUS_OK;
}

enum status wire_record_facts(Parley__V1__ConversationRecord **out, const struct journal_event *e,
                              struct arena *arena, struct error *err)
{
    Parley__V1__ConversationRecord *m = arena_alloc(arena, 1, sizeof(*m));

    if (m == NULL)
        return error_no_memory(err, sizeof(*m), "a record");
    parley__v1__conversation_record__init(m);
    *out = m;
    if (e->proof.gone != 0)
        return STATUS_OK;
    if (e->kind == JOURNAL_ACCEPT)
        return record_accepted(m, e, arena, err);
    if (e->kind == JOURNAL_OPEN || e->kind == JOURNAL_UPDATE)
        return record_terms(m, e, arena, err);
    return e->kind == JOURNAL_FINISH ? record_replied(m, e, arena, err) : STATUS_OK;
}

enum status wire_record(Parley__V1__ConversationRecord **out, const struct journal_event *e,
                        const char *owner, struct arena *arena, struct error *err)
{
    Parley__V1__ConversationRecord *m;
    enum status rc = wire_record_facts(&m, e, arena, err);

    if (rc != STATUS_OK)
        return rc;
    m->conversation = wire_hex(e->conversation, JOURNAL_ID_BYTES, arena);
    m->content = wire_hex(e->proof.content, SHA256_BYTES, arena);
    m->chain = wire_hex(e->proof.chain, SHA256_BYTES, arena);
    if (m->conversation == NULL || m->content == NULL || m->chain == NULL)
        return error_no_memory(err, e->size_bytes, "a record");
    m->kind = (Parley__V1__ConversationRecordKind)e->kind;
    m->generation = e->generation;
    m->turn = e->turn;
    m->unix_ms = e->unix_ms;
    if (e->kind == JOURNAL_OPEN)
        m->principal = (char *)owner;
    m->body = (ProtobufCBinaryData){e->size_bytes, (uint8_t *)e->body};
    m->place = e->proof.seq;
    m->gone = e->proof.gone;
    *out = m;
    return STATUS_OK;
}

/* --- from messages --- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool record_bytes(uint8_t *out, size_t n, const char *hex)
{
    if (strlen(hex) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static enum status record_take(struct journal_found *found, const char **owner,
                               const Parley__V1__ConversationRecord *m, struct arena *arena,
                               struct error *err)
{
    struct journal_record r = {
        .kind = (enum journal_kind)m->kind,
        .generation = m->generation,
        .turn = m->turn,
        .unix_ms = m->unix_ms,
        .body = m->body.data,
        .size_bytes = m->body.len,
    };
    struct journal_proof proof = {.seq = m->place, .gone = m->gone}, *at;

    if (m->kind == PARLEY__V1__CONVERSATION_RECORD_KIND__CONVERSATION_RECORD_KIND_UNSPECIFIED)
        return error_field(err, "kind", "is missing");
    if (!record_bytes(r.conversation, JOURNAL_ID_BYTES, m->conversation))
        return error_field(err, "conversation", "is not an id of 32 hexadecimal digits");
    if (!record_bytes(proof.content, SHA256_BYTES, m->content))
        return error_field(err, "content", "is not a hash of 64 hexadecimal digits");
    if (!record_bytes(proof.chain, SHA256_BYTES, m->chain))
        return error_field(err, "chain", "is not a hash of 64 hexadecimal digits");
    if (m->kind == PARLEY__V1__CONVERSATION_RECORD_KIND__CONVERSATION_RECORD_KIND_OPENED) {
        if (*owner != NULL && strcmp(*owner, m->principal) != 0)
            return error_field(err, "principal", "is not that of the records before");
        *owner = arena_strndup(arena, m->principal, strlen(m->principal));
        if (*owner == NULL)
            return error_no_memory(err, strlen(m->principal), "records");
    }
    if (journal_found_take(found, &r, WIRE_RECORDS_MAX_BYTES, err) != STATUS_OK)
        return err->status;
    at = &container_of(list_last(&found->events), struct journal_event, link)->proof;
    *at = proof;
    return STATUS_OK;
}

enum status wire_take_records(struct journal_found *found, const char **owner,
                              const ProtobufCBinaryData *records, size_t n, size_t first,
                              struct arena *arena, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        ProtobufCMessage *m;
        struct arena of_one;
        enum status rc;

        arena_init(&of_one, WIRE_RECORDS_MAX_BYTES);
        rc = codec_decode(&m, &parley__v1__conversation_record__descriptor, records[i].data,
                          records[i].len, CODEC_ANY_FIELDS, &of_one, err);
        if (rc == STATUS_OK)
            rc = record_take(found, owner, (const Parley__V1__ConversationRecord *)m, arena, err);
        arena_deinit(&of_one);
        if (rc != STATUS_OK)
            return error_prefix(err, "record %zu", first + i);
    }
    return STATUS_OK;
}
