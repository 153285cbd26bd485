#include "server/conversation/reader.h"

#include "base/utf8.h"

void reader_init(struct turn_reader *r, void (*notify)(void *arg), void *arg)
{
    *r = (struct turn_reader){.notify = notify, .arg = arg};
}

/* The readable state, of a turn or of a completed one. */
struct reader_view {
    const char *text;
    size_t len, n_tokens;
    uint32_t number, n_prompt, n_cached, n_prefilled;
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
            .n_prompt = t->told_prompt,
            .n_cached = t->told_cached,
            .n_prefilled = t->told_prefilled,
            .has_logprobs = t->request->n_logprobs > 0,
        };
    return (struct reader_view){
        .text = d->text,
        .len = d->len,
        .n_tokens = d->n_tokens,
        .number = d->number,
        .n_prompt = d->usage.n_prompt,
        .n_cached = d->usage.n_cached,
        .n_prefilled = d->usage.n_prompt,
        .has_logprobs = d->logprobs != NULL,
    };
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
        *out = r->err.status == STATUS_OK ? EVENT_DONE : EVENT_FAILED;
    else
        return false;
    return true;
}

bool reader_has_more(const struct turn_reader *r)
{
    enum event_kind kind;
    struct reader_view v;

    if (r->is_over || (r->turn != NULL && r->turn->state == TURN_QUEUED))
        return false;
    if (r->turn == NULL && r->completed == NULL)
        return true; /* its failure */
    v = reader_view_of(r);
    return next_kind(r, &v, &kind);
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

static size_t token_text_end(const struct turn_reader *r, size_t i)
{
    return r->turn != NULL ? r->turn->agent.reply.tokens[i].text_end
                           : r->completed->tokens[i].text_end;
}

/* Takes all that is readable, within the bounds of a message. */
static void cut_piece(struct turn_reader *r, const struct reader_view *v, struct turn_event *out)
{
    size_t most = v->has_logprobs ? PIECE_MAX_TOPS / (SAMPLING_MAX_LOGPROBS + 1) : PIECE_MAX_TOKENS;
    size_t n = v->n_tokens - r->token_at;
    size_t end = v->len;

    if (n > most) {
        n = most;
        end = token_text_end(r, r->token_at + n - 1);
        end = end > v->len ? v->len : end;
        end = end < r->text_at ? r->text_at : end;
    }
    if (end - r->text_at > PIECE_MAX_BYTES)
        end = r->text_at + utf8_complete_len(v->text + r->text_at, PIECE_MAX_BYTES);
    out->piece.text = end > r->text_at ? v->text + r->text_at : "";
    out->piece.len = end - r->text_at;
    out->piece.first_token = r->token_at;
    out->piece.n_tokens = n;
    out->piece.has_logprobs = v->has_logprobs;
    r->text_at = end;
    r->token_at += n;
}

bool reader_next(struct turn_reader *r, struct turn_event *out)
{
    struct reader_view v;

    if (r->is_over || (r->turn != NULL && r->turn->state == TURN_QUEUED))
        return false;
    *out = (struct turn_event){0};
    if (r->turn == NULL && r->completed == NULL) {
        r->is_over = true;
        out->kind = EVENT_FAILED;
        out->err = &r->err;
        return true;
    }
    v = reader_view_of(r);
    if (!next_kind(r, &v, &out->kind))
        return false;
    out->number = v.number;
    switch (out->kind) {
    case EVENT_ACCEPTED:
        r->has_accepted = true;
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
        turn_end(t, why == STATUS_DEADLINE ? FINISH_DEADLINE : FINISH_CANCELLED);
}
