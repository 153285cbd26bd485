/* Scored continuations: each text is put after the prompt as if it had been generated, and the
 * logits before each of its tokens give that token's probability. The row computes its ids as
 * usual. After a text its keys and values are cut back to the prompt's without the last id, which
 * is computed again, since its logits score the first token of every text. */
#include <assert.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "agents/lm/sampling/logits.h"

static struct lm_clone *lm_score_clone_of(const struct row *row)
{
    return container_of((struct clone *)row->clone, struct lm_clone, base);
}

enum status lm_append_ids(const struct lm *m, const int32_t *ids, size_t n, struct buf *out,
                          struct error *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= vocab_n_tokens(m->vocab))
            return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "prompt",
                                 "%d is not a token id of this model", ids[i]);
    if (n != 0 && buf_append(out, (const char *)ids, n * sizeof(*ids)) != STATUS_OK)
        return error_no_memory(err, n * sizeof(*ids), "tokens");
    return STATUS_OK;
}

/* The end of a turn of a template that is rendered whole: what ends the model's text. */
static enum status lm_score_end(const struct lm *m, int32_t last, struct buf *ids,
                                struct error *err)
{
    const int32_t eos = vocab_eos(m->vocab);

    if (eos < 0 || vocab_is_stop_token(m->vocab, last) ||
        buf_append(ids, &eos, sizeof(eos)) == STATUS_OK)
        return STATUS_OK;
    return error_no_memory(err, sizeof(eos), "a text to score");
}

/* The text's ids, followed by the end of the turn if the prompt has roles. */
static enum status lm_score_encode(const struct lm *m, const struct observation *seen, size_t i,
                                   struct buf *ids, struct error *err)
{
    const struct scored_continuation *what = &seen->scored[i];
    const struct text_span span = {what->text.len, false};
    enum status rc = what->ids != NULL
                         ? lm_append_ids(m, what->ids, what->n_ids, ids, err)
                         : vocab_encode_spans(m->vocab, what->text.text, what->text.len, &span, 1,
                                              false, ids, err);
    size_t len = ids->len;
    int32_t last;

    if (rc == STATUS_OK && len == 0)
        rc = error_set(err, STATUS_INVALID, "the text has no tokens");
    if (rc != STATUS_OK)
        return error_prefix(err, "text %zu to score", i + 1);
    if (seen->is_raw_prompt || what->ids != NULL)
        return STATUS_OK;
    memcpy(&last, ids->data + len - sizeof(last), sizeof(last));
    if (m->template == NULL)
        return lm_score_end(m, last, ids, err);
    rc = chat_template_reply_end(m->template, last, ids, NULL, err);
    if (rc != STATUS_OK)
        return rc;
    if (ids->len > len) {
        memcpy(&last, ids->data + len, sizeof(last));
        ids->len = len + (vocab_is_stop_token(m->vocab, last) ? sizeof(last) : 0);
    }
    return STATUS_OK;
}

static enum status lm_score_take_text(struct lm_text *out, struct text_score *score,
                                      const struct buf *ids, struct arena *arena, struct error *err)
{
    size_t n = ids->len / sizeof(int32_t);
    int32_t *own = arena_alloc(arena, n, sizeof(*own));
    float *logprobs = arena_alloc(arena, n, sizeof(*logprobs));

    if (own == NULL || logprobs == NULL)
        return error_no_memory(err, n * (sizeof(*own) + sizeof(*logprobs)), "a text to score");
    memcpy(own, ids->data, ids->len);
    *out = (struct lm_text){.ids = own, .logprobs = logprobs, .n_ids = (uint32_t)n};
    *score = (struct text_score){.logprobs = logprobs};
    return STATUS_OK;
}

enum status lm_scores_open(struct lm_scoring *out, const struct lm *m, struct agent_turn *turn,
                           size_t n_prompt, size_t *ret_longest, struct error *err)
{
    const struct observation *seen = &turn->seen;
    struct lm_scoring s = {.n_texts = (uint32_t)seen->n_scored};
    struct buf ids;
    enum status rc = STATUS_OK;

    *ret_longest = 0;
    if (seen->n_scored == 0)
        return STATUS_OK;
    buf_init(&ids, SIZE_MAX);
    s.texts = arena_alloc(turn->arena, s.n_texts, sizeof(*s.texts));
    s.scores = arena_alloc(turn->arena, s.n_texts, sizeof(*s.scores));
    if (s.texts == NULL || s.scores == NULL)
        rc = error_no_memory(err, s.n_texts * sizeof(*s.texts), "texts to score");
    for (size_t i = 0; rc == STATUS_OK && i < s.n_texts; i++) {
        buf_clear(&ids);
        rc = prompt_check_size(&m->limits, n_prompt, seen->scored[i].text.len, err);
        if (rc == STATUS_OK)
            rc = lm_score_encode(m, seen, i, &ids, err);
        if (rc == STATUS_OK)
            rc = lm_score_take_text(&s.texts[i], &s.scores[i], &ids, turn->arena, err);
        if (rc == STATUS_OK && n_prompt + s.texts[i].n_ids > m->limits.context)
            rc = error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                               "text %zu to score has %u tokens and its prompt has %zu, but the "
                               "context holds only %zu",
                               i + 1, s.texts[i].n_ids, n_prompt, m->limits.context);
        if (rc == STATUS_OK && s.texts[i].n_ids > *ret_longest)
            *ret_longest = s.texts[i].n_ids;
    }
    buf_deinit(&ids);
    if (rc == STATUS_OK)
        *out = s;
    return rc;
}

bool lm_is_scoring(const struct lm_turn *t)
{
    return t->scoring.at < t->scoring.n_texts;
}

void lm_scores_begin(struct lm_clone *c, struct lm_turn *t)
{
    const struct lm_text *text;

    t->n_ids = t->n_prompt;
    if (!lm_is_scoring(t))
        return;
    text = &t->scoring.texts[t->scoring.at];
    memcpy(c->ids + t->n_prompt, text->ids, text->n_ids * sizeof(*text->ids));
    t->n_ids += text->n_ids - 1; /* the logits of the last id are not needed */
}

uint32_t lm_scores_known(const struct lm_turn *t)
{
    return lm_is_scoring(t) ? t->n_prompt + t->scoring.texts[t->scoring.at].n_scored : t->n_ids;
}

/* Of the n_scheduled positions from kv.n_tokens on, returns how many logits are needed, at most
 * n_room; positions that do not fit are computed in the next step. */
size_t lm_scores_lay_out(const struct row *row, size_t n_room, size_t *ret_n_tokens)
{
    const struct lm_turn *t = row->turn;
    size_t from = lm_score_clone_of(row)->pages.kv.n_tokens, end = from + row->n_scheduled;
    size_t first = lm_scores_known(t) - 1; /* the first position whose logits are needed */
    size_t n;

    assert(from <= first && n_room > 0);
    n = end > first ? end - first : 0;
    if (n > n_room) {
        end -= n - n_room;
        n = n_room;
    }
    *ret_n_tokens = end - from;
    return n;
}

enum status lm_scores_take(struct lm *m, struct row *row, const struct transformer_row *computed)
{
    struct lm_turn *t = row->turn;
    struct lm_scoring *s = &t->scoring;
    struct lm_text *text = &s->texts[s->at];

    for (size_t i = 0; i < computed->n_logits; i++) {
        const float *logits = computed->logits + i * m->n_vocab;
        struct logit_peak peak = logits_peak(m->kernels, logits, m->n_vocab);
        int32_t id = text->ids[text->n_scored];
        double logprob;

        if (!peak.are_finite)
            return error_set(&row->err, STATUS_INTERNAL,
                             "the model gave logits that are not finite");
        logprob = (double)logits[id] - logits_log_sum(m->kernels, logits, m->n_vocab, peak.top);
        text->logprobs[text->n_scored++] = (float)logprob;
        text->logprob += logprob;
        text->n_top += logits[id] == peak.top;
    }
    t->n_computed = (uint32_t)computed->n_tokens;
    if (text->n_scored == text->n_ids && s->at + 1 == s->n_texts &&
        agent_turn_of(row)->seen.no_reply)
        t->finish = FINISH_STOP;
    return STATUS_OK;
}

void lm_scores_stepped(struct lm *m, struct agent_turn *turn)
{
    struct lm_clone *c = lm_score_clone_of(&turn->row);
    struct lm_turn *t = turn->row.turn;
    struct lm_scoring *s = &t->scoring;
    const struct lm_text *text = &s->texts[s->at];
    struct text_score *score = &s->scores[s->at];

    if (text->n_scored < text->n_ids)
        return;
    score->n_tokens = text->n_scored;
    score->n_top = text->n_top;
    score->logprob = text->logprob;
    turn->reply.scores = s->scores;
    turn->reply.n_scores = ++s->at;
    turn->reply.finish = t->finish;
    if (c->pages.kv.n_tokens >= t->n_prompt)
        lm_clone_pages_cut(&c->pages, &m->cache, t->n_prompt - 1);
    lm_scores_begin(c, t);
}
