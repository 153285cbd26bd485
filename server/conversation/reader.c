/* Finds what is next behind a reader's place, in the turn or in the completed turn, and cuts it
 * into an event. Places are counted in tokens, and a piece never ends inside a character. */
#include "server/conversation/reader.h"

#include <assert.h>

#include "agents/reply/reply_places.h"
#include "base/utf8.h"

void reader_init(struct turn_reader *r, void (*notify)(void *arg), void *arg)
{
    *r = (struct turn_reader){.notify = notify, .arg = arg};
}

/* The readable state, of a turn or of a completed one. */
struct reader_view {
    const char *text;
    size_t len, n_tokens;
    uint32_t number, generation, n_prompt, n_cached, n_prefilled;
    bool has_logprobs;
};

static struct reader_view reader_view_of(const struct turn_reader *r)
{
    const struct turn *t = r->turn;
    const struct completed_turn *d = r->completed;

    if (t != NULL)
        return (struct reader_view){
            /* Before anything is told the first step may be running and own the reply. */
            .text = t->told_len == 0 ? NULL : t->agent.reply.text.data,
            .len = t->told_len,
            .n_tokens = t->told_tokens,
            .number = t->number,
            .generation = t->host->generation,
            .n_prompt = t->told_prompt,
            .n_cached = t->told_cached,
            .n_prefilled = t->told_prefilled,
            .has_logprobs = turn_request_of(t)->n_logprobs > 0,
        };
    return (struct reader_view){
        .text = d->text,
        .len = d->len,
        .n_tokens = d->n_tokens,
        .number = d->number,
        .generation = r->generation,
        .n_prompt = d->usage.n_prompt,
        .n_cached = d->usage.n_cached,
        .n_prefilled = d->usage.n_prompt,
        .has_logprobs = d->logprobs != NULL,
    };
}

const struct error *reader_failure(const struct turn_reader *r)
{
    /* The reply's own deadline is an end of it, no failure. */
    if (r->err.status == STATUS_OK ||
        (r->is_reply_deadline && r->completed != NULL && r->err.status == STATUS_DEADLINE))
        return NULL;
    return &r->err;
}

/* Finds the kind of the next event; false: none now. */
static bool next_kind(const struct turn_reader *r, const struct reader_view *v,
                      enum event_kind *out)
{
    if (!r->has_accepted)
        *out = EVENT_ACCEPTED;
    else if (r->text_at < v->len || r->token_at < v->n_tokens)
        *out = EVENT_PIECE;
    else if (r->turn != NULL && v->n_prefilled > r->progress_at && v->n_prefilled > v->n_cached &&
             v->n_prefilled < v->n_prompt)
        *out = EVENT_PROGRESS;
    else if (r->completed != NULL)
        *out = reader_failure(r) == NULL ? EVENT_DONE : EVENT_FAILED;
    else
        return false;
    return true;
}

/* The turn is computed again, and has not come to where the reader goes on. */
static bool reader_is_ahead(const struct turn_reader *r, const struct reader_view *v)
{
    return r->is_ahead && r->turn != NULL && r->turn->state != TURN_STORING &&
           r->ahead_index > v->n_tokens;
}

bool reader_has_more(const struct turn_reader *r)
{
    enum event_kind kind;
    struct reader_view v;

    if (r->is_over || (r->turn != NULL && !turn_has_begun(r->turn)))
        return false;
    if (r->turn == NULL && r->completed == NULL)
        return true; /* its failure */
    v = reader_view_of(r);
    return !reader_is_ahead(r, &v) && next_kind(r, &v, &kind);
}

static struct token_place place_of_running(const void *tokens, size_t i)
{
    const struct reply_token *t = (const struct reply_token *)tokens + i;

    return (struct token_place){t->id, t->text_end};
}

bool reader_has_token(const void *reader, int32_t id, size_t at, size_t len)
{
    const struct turn_reader *r = reader;
    const struct reader_view v = reader_view_of(r);

    if (r->turn == NULL)
        return completed_turn_has_token(r->completed, id, at, len);
    return v.n_tokens > 0 &&
           reply_tokens_have(
               &(struct reply_tokens){place_of_running, r->turn->agent.reply.tokens, v.n_tokens},
               id, at, len);
}

void reader_token(const struct turn_reader *r, const struct turn_event *piece, size_t i,
                  struct piece_token *out)
{
    size_t at = piece->piece.first_token + i;

    *out = (struct piece_token){0};
    if (r->turn != NULL) {
        const struct reply_token *t = &r->turn->agent.reply.tokens[at];

        out->id = t->id;
        out->logprob = t->logprob;
        out->tops = t->top;
        out->n_tops = t->n_top;
        return;
    }
    out->id = r->completed->tokens[at].id;
    if (r->completed->logprobs != NULL) {
        const struct said_logprob *p = &r->completed->logprobs[at];
        size_t first = at == 0 ? 0 : p[-1].tops_end;

        out->logprob = p->logprob;
        out->tops = r->completed->tops + first;
        out->n_tops = p->tops_end - first;
    }
}

const struct prompt_token *reader_prompt(const struct turn_reader *r, size_t *ret_n)
{
    const struct completed_turn *d = r->completed;

    *ret_n = 0;
    if (r->turn != NULL && r->turn->state != TURN_QUEUED) {
        *ret_n = r->turn->agent.reply.n_prompt_tokens;
        return r->turn->agent.reply.prompt;
    }
    if (d == NULL || d->results == NULL)
        return NULL;
    *ret_n = d->results->n_tokens;
    return d->results->n_tokens > 0 ? d->results->tokens : NULL;
}

const int32_t *reader_prompt_ids(const struct turn_reader *r, size_t *ret_n)
{
    const struct completed_turn *d = r->completed;

    *ret_n = 0;
    if (r->turn != NULL && r->turn->state != TURN_QUEUED) {
        *ret_n = r->turn->agent.reply.n_prompt;
        return r->turn->agent.reply.prompt_ids;
    }
    if (d == NULL || d->results == NULL || d->results->n_ids == 0)
        return NULL;
    *ret_n = d->results->n_ids;
    return d->results->ids;
}

static size_t token_text_end(const struct turn_reader *r, size_t i)
{
    return r->turn != NULL ? r->turn->agent.reply.tokens[i].text_end
                           : r->completed->tokens[i].text_end;
}

/* Where the text of the first n tokens ends. */
static size_t reader_text_end(const struct turn_reader *r, const struct reader_view *v, size_t n)
{
    size_t end = n == 0 ? 0 : token_text_end(r, n - 1);

    return end > v->len ? v->len : end;
}

/* Takes tokens and exactly their text. */
static void cut_tokens(struct turn_reader *r, const struct reader_view *v, struct turn_event *out)
{
    size_t most = v->has_logprobs ? PIECE_MAX_TOPS / (SAMPLING_MAX_LOGPROBS + 1) : PIECE_MAX_TOKENS;
    size_t n = v->n_tokens - r->token_at;

    if (r->max_piece_tokens > 0)
        most = r->max_piece_tokens;
    n = n > most ? most : n;
    while (n > 1 && reader_text_end(r, v, r->token_at + n) - r->text_at > PIECE_MAX_BYTES)
        n /= 2;
    out->piece.n_tokens = n;
    out->piece.len = reader_text_end(r, v, r->token_at + n) - r->text_at;
}

/* Takes text behind the tokens: all of it, in pieces from its beginning, each of which is a place.
 * Without tokens it comes as the agent gives it, so each byte is a place: pieces may be joined. */
static void cut_tail(struct turn_reader *r, const struct reader_view *v, struct turn_event *out)
{
    size_t len = v->len - r->text_at;

    if (len > PIECE_MAX_BYTES)
        len = utf8_complete_len(v->text + r->text_at, PIECE_MAX_BYTES);
    out->piece.len = len;
    r->n_tail += v->n_tokens == 0 ? len : 1;
}

/* Takes what is readable, within the bounds of a message. */
static void cut_piece(struct turn_reader *r, const struct reader_view *v, struct turn_event *out)
{
    out->piece.first_token = r->token_at;
    if (r->token_at < v->n_tokens)
        cut_tokens(r, v, out);
    else
        cut_tail(r, v, out);
    out->piece.text = out->piece.len > 0 ? v->text + r->text_at : "";
    out->piece.has_logprobs = v->has_logprobs;
    r->text_at += out->piece.len;
    r->token_at += out->piece.n_tokens;
    out->piece.next_index = r->token_at + r->n_tail;
}

uint64_t reader_index(const struct turn_reader *r)
{
    return r->token_at + r->n_tail;
}

/* Goes on behind index bytes of a reply without tokens, where a character begins there. */
static void seek_byte(struct turn_reader *r, const struct reader_view *v, uint64_t index)
{
    if (index > v->len || (index < v->len && ((unsigned char)v->text[index] & 0xC0) == 0x80))
        return;
    r->text_at = r->n_tail = (size_t)index;
}

enum status reader_seek(struct turn_reader *r, uint64_t index, struct error *err)
{
    struct reader_view v = {0};
    struct turn_event ignored = {0};

    assert(!r->has_accepted && r->text_at == 0 && r->token_at == 0);
    if (r->turn == NULL || turn_has_begun(r->turn))
        v = reader_view_of(r);
    if (v.n_tokens == 0) {
        seek_byte(r, &v, index);
    } else {
        r->token_at = index < v.n_tokens ? (size_t)index : v.n_tokens;
        r->text_at = reader_text_end(r, &v, r->token_at);
        while (r->token_at + r->n_tail < index && r->text_at < v.len)
            cut_piece(r, &v, &ignored);
    }
    if (r->token_at + r->n_tail == index)
        return STATUS_OK;
    if (r->turn != NULL && r->turn->resolved != NULL && r->turn->state != TURN_STORING) {
        r->token_at = r->text_at = r->n_tail = 0;
        r->is_ahead = true;
        r->ahead_index = index;
        return STATUS_OK;
    }
    return error_because(err, STATUS_RANGE, REASON_CURSOR_NOT_FOUND, "resume_from.index",
                         "the reply has %zu places so far, there is no place %llu",
                         r->token_at + r->n_tail, (unsigned long long)index);
}

bool reader_next(struct turn_reader *r, struct turn_event *out)
{
    struct reader_view v;

    struct error lost;

    if (r->is_over || (r->turn != NULL && !turn_has_begun(r->turn)))
        return false;
    *out = (struct turn_event){0};
    if (r->turn == NULL && r->completed == NULL) {
        r->is_over = true;
        out->kind = EVENT_FAILED;
        out->err = &r->err;
        return true;
    }
    v = reader_view_of(r);
    if (reader_is_ahead(r, &v))
        return false;
    if (r->is_ahead) {
        r->is_ahead = false;
        if (reader_seek(r, r->ahead_index, &lost) != STATUS_OK)
            r->err = lost;
    }
    if (!next_kind(r, &v, &out->kind))
        return false;
    out->number = v.number;
    switch (out->kind) {
    case EVENT_ACCEPTED:
        r->has_accepted = true;
        out->generation = v.generation;
        out->n_prompt = v.n_prompt;
        out->n_cached = v.n_cached;
        break;
    case EVENT_PROGRESS:
        r->progress_at = v.n_prefilled;
        out->n_done = v.n_prefilled;
        out->n_total = v.n_prompt;
        break;
    case EVENT_PIECE:
        cut_piece(r, &v, out);
        break;
    case EVENT_DONE:
        r->is_over = true;
        out->finish = r->completed->finish;
        out->usage = r->completed->usage;
        out->timings = r->completed->timings;
        break;
    case EVENT_FAILED:
        r->is_over = true;
        out->err = &r->err;
        break;
    }
    return true;
}

void reader_cancel(struct turn_reader *r)
{
    if (r->turn != NULL)
        turn_end(r->turn, FINISH_CANCELLED);
}

void reader_close(struct turn_reader *r, enum status why)
{
    struct turn *t = r->turn;

    completed_turn_unref(r->completed);
    r->completed = NULL;
    r->turn = NULL;
    r->is_over = true;
    if (t == NULL)
        return;
    list_remove(&r->link);
    if (list_is_empty(&t->readers))
        turn_left(t, r->deadline_us, why);
}
