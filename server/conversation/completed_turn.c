/* Copies requests and replies into blocks of their own and links completed turns. Each turn has a
 * second link further back, by which a turn is found in few steps. */
#include "server/conversation/completed_turn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/reply/reply_places.h"
#include "base/alloc.h"

enum { BLOCKS_BYTES = 96 /* what the allocator adds to a turn's blocks */ };

/* Copies a text to *at, where a zero follows it, and moves *at behind that. */
static const char *stored_request_put(char **at, const char *text, size_t len)
{
    char *copy = *at;

    if (len > 0)
        memcpy(copy, text, len);
    *at += len + 1;
    return copy;
}

static bool text_is_equal(struct text a, struct text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.text, b.text, a.len) == 0);
}

enum status stored_request_open(struct stored_request **out, const struct turn_request *r,
                                struct error *err)
{
    size_t size = sizeof(struct stored_request) + r->n_messages * sizeof(struct message) +
                  r->n_plain_ids * sizeof(r->plain_ids[0]) + r->tool_use.tools.len + 1 +
                  r->variables.json.len + 1;
    int32_t *ids;
    struct stored_request *b;
    enum status rc;
    char *at;

    for (size_t i = 0; i < r->n_messages; i++)
        size += r->messages[i].len + 1 + r->messages[i].more_len + 1;
    b = try_alloc(1, size);
    if (b == NULL)
        return error_no_memory(err, size, "a turn's messages");
    rc = sampling_overrides_copy(&b->overrides, r->overrides, err);
    if (rc != STATUS_OK) {
        free(b);
        return rc;
    }
    b->n_logprobs = r->n_logprobs;
    b->wants = r->wants;
    b->n_messages = (uint32_t)r->n_messages;
    b->size_bytes = size;
    b->is_plain = r->is_plain;
    b->raw = r->raw;
    b->is_observed = r->is_observed;
    b->is_detached = r->is_detached;
    ids = (int32_t *)(b->messages + r->n_messages);
    b->plain_ids = ids;
    b->n_plain_ids = r->n_plain_ids;
    if (r->n_plain_ids > 0)
        memcpy(ids, r->plain_ids, r->n_plain_ids * sizeof(ids[0]));
    at = (char *)(ids + r->n_plain_ids);
    for (size_t i = 0; i < r->n_messages; i++) {
        const struct message *m = &r->messages[i];

        b->messages[i].role = m->role;
        b->messages[i].text = stored_request_put(&at, m->text, m->len);
        b->messages[i].len = m->len;
        b->messages[i].more = stored_request_put(&at, m->more, m->more_len);
        b->messages[i].more_len = m->more_len;
    }
    b->tool_use = r->tool_use;
    b->tool_use.tools.text = stored_request_put(&at, r->tool_use.tools.text, r->tool_use.tools.len);
    b->variables.thinking = r->variables.thinking;
    b->variables.json =
        (struct text){stored_request_put(&at, r->variables.json.text, r->variables.json.len),
                      r->variables.json.len};
    *out = b;
    return STATUS_OK;
}

void stored_request_close(struct stored_request *b)
{
    if (b == NULL)
        return;
    free(b->overrides);
    free(b);
}

static bool prompt_wants_are_equal(const struct prompt_wants *a, const struct prompt_wants *b)
{
    return a->pooling == b->pooling && a->logprobs == b->logprobs && a->n_tops == b->n_tops &&
           a->ids == b->ids && a->no_reply == b->no_reply && a->is_counted == b->is_counted;
}

static bool raw_rules_are_equal(const struct raw_rules *a, const struct raw_rules *b)
{
    return a->parses_control == b->parses_control && a->adds_no_bos == b->adds_no_bos &&
           a->fills_in == b->fills_in && a->is_chat == b->is_chat;
}

bool stored_request_matches(const struct stored_request *b, const struct turn_request *r)
{
    if (b->n_messages != r->n_messages || b->n_logprobs != r->n_logprobs ||
        b->is_plain != r->is_plain || b->is_observed != r->is_observed ||
        b->n_plain_ids != r->n_plain_ids || !raw_rules_are_equal(&b->raw, &r->raw) ||
        !prompt_wants_are_equal(&b->wants, &r->wants))
        return false;
    if (!text_is_equal(b->tool_use.tools, r->tool_use.tools) ||
        b->tool_use.is_forced != r->tool_use.is_forced ||
        b->tool_use.is_single != r->tool_use.is_single ||
        b->variables.thinking != r->variables.thinking ||
        !text_is_equal(b->variables.json, r->variables.json))
        return false;
    if (b->n_plain_ids > 0 &&
        memcmp(b->plain_ids, r->plain_ids, r->n_plain_ids * sizeof(r->plain_ids[0])) != 0)
        return false;
    for (size_t i = 0; i < r->n_messages; i++) {
        const struct message *x = &b->messages[i], *y = &r->messages[i];

        if (x->role != y->role ||
            !text_is_equal((struct text){x->text, x->len}, (struct text){y->text, y->len}) ||
            !text_is_equal((struct text){x->more, x->more_len},
                           (struct text){y->more, y->more_len}))
            return false;
    }
    return sampling_overrides_is_equal(b->overrides, r->overrides);
}

/* Stores the reply's tokens in compact form. */
static enum status keep_tokens(struct completed_turn *r, const struct reply *reply,
                               bool with_logprobs, struct error *err)
{
    size_t n_tops = 0;
    size_t at = 0;

    if (reply->n_tokens == 0)
        return STATUS_OK;
    r->tokens = try_alloc(reply->n_tokens, sizeof(r->tokens[0]));
    if (r->tokens == NULL)
        return error_no_memory(err, reply->n_tokens * sizeof(r->tokens[0]), "a reply's tokens");
    r->n_tokens = reply->n_tokens;
    for (size_t i = 0; i < reply->n_tokens; i++) {
        r->tokens[i].id = reply->tokens[i].id;
        r->tokens[i].text_end = reply->tokens[i].text_end;
        n_tops += reply->tokens[i].n_top;
    }
    if (!with_logprobs)
        return STATUS_OK;
    r->logprobs = try_alloc(reply->n_tokens, sizeof(r->logprobs[0]));
    r->tops = try_alloc(n_tops + 1, sizeof(r->tops[0]));
    if (r->logprobs == NULL || r->tops == NULL)
        return error_no_memory(err, n_tops * sizeof(r->tops[0]), "a reply's log probabilities");
    for (size_t i = 0; i < reply->n_tokens; i++) {
        const struct reply_token *t = &reply->tokens[i];

        if (t->n_top > 0)
            memcpy(r->tops + at, t->top, t->n_top * sizeof(r->tops[0]));
        at += t->n_top;
        r->logprobs[i] = (struct said_logprob){.logprob = t->logprob, .tops_end = (uint32_t)at};
    }
    return STATUS_OK;
}

/* Copies what the reply has of its prompt. */
static enum status keep_results(struct completed_turn *r, const struct reply *reply,
                                size_t *ret_bytes, struct error *err)
{
    const size_t n_tokens = reply->n_prompt_tokens, n_embedding = reply->n_embedding;
    const size_t n_ids = reply->prompt_ids == NULL ? 0 : reply->n_prompt;
    struct prompt_results *results;
    struct top_logprob *tops;
    size_t n_tops = 0, n_bytes;

    *ret_bytes = 0;
    if (n_tokens == 0 && n_embedding == 0 && n_ids == 0)
        return STATUS_OK;
    for (size_t i = 0; i < n_tokens; i++)
        n_tops += reply->prompt[i].n_top;
    n_bytes = sizeof(*results) + n_tokens * sizeof(results->tokens[0]) + n_tops * sizeof(*tops) +
              n_embedding * sizeof(results->embedding[0]) + n_ids * sizeof(results->ids[0]);
    results = try_alloc(1, n_bytes);
    if (results == NULL)
        return error_no_memory(err, n_bytes, "the results of a prompt");
    results->tokens = (struct prompt_token *)(results + 1);
    tops = (struct top_logprob *)(results->tokens + n_tokens);
    results->embedding = (float *)(tops + n_tops);
    results->ids = (int32_t *)(results->embedding + n_embedding);
    results->n_ids = n_ids;
    if (n_ids > 0)
        memcpy(results->ids, reply->prompt_ids, n_ids * sizeof(results->ids[0]));
    results->n_tokens = n_tokens;
    results->n_embedding = n_embedding;
    if (n_embedding > 0)
        memcpy(results->embedding, reply->embedding, n_embedding * sizeof(results->embedding[0]));
    for (size_t i = 0; i < n_tokens; i++) {
        struct prompt_token *t = &results->tokens[i];

        *t = reply->prompt[i];
        if (t->n_top > 0)
            memcpy(tops, t->top, t->n_top * sizeof(*tops));
        t->top = tops;
        tops += t->n_top;
    }
    r->results = results;
    *ret_bytes = n_bytes;
    return STATUS_OK;
}

static void free_content(struct completed_turn *r)
{
    free(r->text);
    free(r->tokens);
    free(r->logprobs);
    free(r->tops);
    free(r->results);
}

/* Skips grow as in Myers' random-access stack: two of one length become one of twice the length and
 * one turn, so any turn is O(log n) steps away. */
static struct completed_turn *skip_from(struct completed_turn *before)
{
    const struct completed_turn *near = before == NULL ? NULL : before->skip;
    const struct completed_turn *far = near == NULL ? NULL : near->skip;

    if (far != NULL && before->number - near->number == near->number - far->number)
        return near->skip;
    return before;
}

/* About the memory of one turn, with its log-probabilities and overrides. */
static size_t turn_memory(const struct completed_turn *r, size_t n_results)
{
    const struct stored_request *q = r->request;
    const size_t n_tops =
        r->logprobs == NULL || r->n_tokens == 0 ? 0 : r->logprobs[r->n_tokens - 1].tops_end;

    return sizeof(*r) + q->size_bytes + (q->overrides == NULL ? 0 : sizeof(*q->overrides)) +
           r->len + r->n_tokens * sizeof(r->tokens[0]) +
           (r->logprobs == NULL ? 0 : r->n_tokens * sizeof(r->logprobs[0])) +
           n_tops * sizeof(r->tops[0]) + n_results + BLOCKS_BYTES;
}

enum status completed_turn_open(struct completed_turn **out, struct completed_turn *before,
                                struct stored_request *request, const struct reply *reply,
                                struct error *err)
{
    struct completed_turn *r = try_alloc(1, sizeof(*r));
    size_t n_results = 0;
    enum status rc;

    if (r == NULL)
        return error_no_memory(err, sizeof(*r), "a turn's record");
    rc = keep_tokens(r, reply, request->n_logprobs > 0, err);
    if (rc == STATUS_OK)
        rc = keep_results(r, reply, &n_results, err);
    r->len = reply->text.len;
    r->text = try_strndup(r->len == 0 ? "" : reply->text.data, r->len);
    if (rc == STATUS_OK && r->text == NULL)
        rc = error_no_memory(err, r->len + 1, "a reply");
    if (rc != STATUS_OK) {
        free_content(r);
        free(r);
        return rc;
    }
    r->n_refs = 1;
    r->before = before;
    r->skip = skip_from(before);
    r->number = before == NULL ? 1 : before->number + 1;
    r->request = request;
    r->finish = reply->finish;
    r->n_acted = (before == NULL ? 0 : before->n_acted) + !request->is_observed;
    if (request->is_observed)
        r->n_waiting = (before == NULL ? 0 : before->n_waiting) + request->n_messages;
    r->usage = (struct usage){
        .n_prompt = reply->n_prompt,
        .n_cached = reply->n_cached,
        .n_cached_host = reply->n_cached_host,
        .n_cached_disk = reply->n_cached_disk,
        .n_completion = (uint32_t)reply->n_tokens,
    };
    r->total_bytes = (before == NULL ? 0 : before->total_bytes) + sizeof(*r) + request->size_bytes +
                     r->len + r->n_tokens * sizeof(r->tokens[0]) + n_results;
    r->memory_bytes = (before == NULL ? 0 : before->memory_bytes) + turn_memory(r, n_results);
    *out = r;
    return STATUS_OK;
}

struct completed_turn *completed_turn_ref(struct completed_turn *r)
{
    assert(r->n_refs > 0);
    r->n_refs++;
    return r;
}

void completed_turn_unref(struct completed_turn *r)
{
    /* Not recursive: a chain may be long. */
    while (r != NULL && --r->n_refs == 0) {
        struct completed_turn *before = r->before;

        stored_request_close(r->request);
        free_content(r);
        free(r);
        r = before;
    }
}

static struct token_place place_of_said(const void *tokens, size_t i)
{
    const struct said_token *t = (const struct said_token *)tokens + i;

    return (struct token_place){t->id, t->text_end};
}

bool completed_turn_has_token(const void *completed, int32_t id, size_t at, size_t len)
{
    const struct completed_turn *r = completed;

    return reply_tokens_have(&(struct reply_tokens){place_of_said, r->tokens, r->n_tokens}, id, at,
                             len);
}

struct completed_turn *completed_turn_find(struct completed_turn *newest, uint32_t number)
{
    struct completed_turn *r = newest;

    while (r != NULL && r->number > number)
        r = r->skip != NULL && r->skip->number >= number ? r->skip : r->before;
    return r != NULL && r->number == number ? r : NULL;
}
