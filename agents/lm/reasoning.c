/* The part of a constrained reply that no constraint binds: the model's reasoning. Its delimiters
 * are written for the model where it does not write them itself, so that the constraint begins at
 * the same place whether the template opens the reasoning, the model does, or nobody. A free reply
 * is only watched, and only where the request gives its reasoning a budget, at whose end the close
 * is written. What is decided depends on the reply's tokens and its request alone. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "agents/message_extras.h"

enum {
    ANSWER_SHARE = 4,  /* of a reply's tokens, 1 / ANSWER_SHARE are the answer's */
    UNKNOWN_SHARE = 2, /* so where it is not found how few tokens the answer can have */
    ANSWER_SPARE = 16, /* tokens that it has beside the fewest that it can have */
};

/* --- the model's delimiters --- */

static enum status reasoning_encode(const struct lm *m, const char *text, struct buf *out,
                                    struct error *err)
{
    const struct text_span span = {strlen(text), true};

    return text[0] == '\0'
               ? STATUS_OK
               : vocab_encode_spans(m->vocab, text, strlen(text), &span, 1, false, out, err);
}

enum status lm_reasoning_open(struct lm *m, struct error *err)
{
    const struct thought_format *f = m->format.thoughts;
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < N_REASONING_TEXTS; i++)
        buf_init(&m->reasoning_ids[i], SIZE_MAX);
    if (f == NULL)
        return STATUS_OK;
    const char *const texts[N_REASONING_TEXTS] = {
        [REASONING_BEGIN] = f->begin,
        [REASONING_CUT] = f->cut,
        [REASONING_AFTER] = f->after,
        [REASONING_ALONE] = f->alone,
    };

    assert(strlen(f->close) < sizeof(((struct lm_reasoning *)0)->tail));
    for (size_t i = 0; rc == STATUS_OK && i < N_REASONING_TEXTS; i++)
        rc = reasoning_encode(m, texts[i], &m->reasoning_ids[i], err);
    return rc;
}

void lm_reasoning_close(struct lm *m)
{
    for (size_t i = 0; i < N_REASONING_TEXTS; i++)
        buf_deinit(&m->reasoning_ids[i]);
}

/* --- a reply's --- */

/* Whether the constraint has the reasoning's close, and so speaks of the reasoning itself. */
static bool reasoning_is_bound(const struct lm *m, const struct constraint *c)
{
    if (c == NULL)
        return false;

    const char *close = m->format.thoughts->close;
    char escaped[6 * REASONING_MAX_CLOSE + 1];
    size_t n = 0;

    if (c->form != CONSTRAINT_REGEX && c->form != CONSTRAINT_EBNF)
        return false;
    for (const char *at = close; *at != '\0'; at++) /* as in grammars that were read */
        n += (size_t)snprintf(escaped + n, sizeof(escaped) - n,
                              isalnum((unsigned char)*at) ? "%c" : "\\u%04x", *at);
    return memmem(c->text, c->len, close, strlen(close)) != NULL ||
           memmem(c->text, c->len, escaped, n) != NULL;
}

/* Of the tokens that a reply may have, those that its reasoning may, by the request's effort. */
static unsigned effort_share(const char *effort)
{
    static const struct {
        const char *effort;
        unsigned percent;
    } shares[] = {{"minimal", 10}, {"low", 20},   {"medium", 50},
                  {"high", 80},    {"xhigh", 95}, {"max", 95}};

    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
        if (strcmp(effort, shares[i].effort) == 0)
            return shares[i].percent;
    return 0;
}

/* The request's budget: a number of tokens, which goes before its effort. */
static void reasoning_take_budget(struct lm_reasoning *r, struct text variables)
{
    struct reasoning_terms terms;

    reasoning_terms_read(&terms, variables);
    r->share = effort_share(terms.effort);
    r->budget = terms.has_budget ? terms.budget : SIZE_MAX;
    r->has_budget = terms.has_budget || r->share > 0;
}

void lm_reasoning_begin(const struct lm *m, struct agent_turn *turn)
{
    const enum thinking thinking = turn->seen.variables.thinking;
    struct lm_turn *t = turn->row.turn;

    if (m->format.thoughts == NULL || (turn->seen.is_raw_prompt && !turn->seen.raw.is_chat) ||
        reasoning_is_bound(m, turn->seen.sampling.constraint))
        return;
    reasoning_take_budget(&t->reasoning, turn->seen.variables.json);
    if (turn->seen.sampling.constraint == NULL &&
        (!t->reasoning.has_budget ||
         (thinking == THINKING_OFF && !m->format.begins_in_thought[thinking])))
        return;
    t->reasoning.is_wanted = thinking == THINKING_ON;
    t->reasoning.phase = m->format.begins_in_thought[thinking] ? REASONING_IS_ON
                         : thinking == THINKING_OFF            ? REASONING_IS_OFF
                                                               : REASONING_MAY_BEGIN;
}

static const int32_t *reasoning_ids(const struct lm *m, enum lm_reasoning_text text, size_t *ret_n)
{
    *ret_n = m->reasoning_ids[text].len / sizeof(int32_t);
    return (const int32_t *)(const void *)m->reasoning_ids[text].data;
}

/* The text is written, and then comes next. */
static void reasoning_write(const struct lm *m, struct lm_reasoning *r, enum lm_reasoning_text text,
                            enum lm_reasoning_phase next)
{
    r->ids = reasoning_ids(m, text, &r->n_ids);
    r->at = 0;
    r->phase = r->n_ids == 0 ? next : REASONING_WRITES;
    r->next = next;
    r->n_tail = 0;
}

int32_t lm_reasoning_written(const struct lm_reasoning *r)
{
    return r->phase == REASONING_WRITES ? r->ids[r->at] : -1;
}

/* Of a reply that may have n tokens. */
static void reasoning_settle_budget(struct lm_reasoning *r, size_t n)
{
    if (r->has_budget && r->budget == SIZE_MAX)
        r->budget = n * r->share / 100;
    r->has_limit = true;
}

/* Of a reply that may have n tokens, those after which its reasoning is ended. */
static enum status reasoning_limit(const struct lm *m, struct lm_turn *t, size_t n,
                                   struct error *err)
{
    size_t n_least = 0, n_cut, n_begin, n_answer;
    enum status rc = matcher_least(t->matcher, &n_least, err);

    (void)reasoning_ids(m, REASONING_CUT, &n_cut); /* their number alone is wanted */
    n_answer = n / (n_least > 0 ? ANSWER_SHARE : UNKNOWN_SHARE);
    if (n_answer < n_least + n_cut + ANSWER_SPARE)
        n_answer = n_least + n_cut + ANSWER_SPARE;
    t->reasoning.n_most = n > n_answer ? n - n_answer : 0;
    reasoning_settle_budget(&t->reasoning, n);
    (void)reasoning_ids(m, REASONING_BEGIN, &n_begin); /* their number alone is wanted */
    n_begin = t->reasoning.phase == REASONING_MAY_BEGIN ? n_begin : 0;
    if (t->reasoning.has_budget && t->reasoning.n_most > t->reasoning.budget + n_begin)
        t->reasoning.n_most = t->reasoning.budget + n_begin;
    return rc;
}

static float biased(const struct sampling *s, const float *logits, int32_t id)
{
    float logit = logits[id];

    for (size_t i = 0; i < s->n_biases; i++)
        if (s->biases[i].id == id)
            logit += s->biases[i].bias;
    return logit;
}

static bool is_likeliest(const struct sampling *s, const float *logits, size_t n, int32_t id)
{
    const float logit = biased(s, logits, id);

    for (size_t i = 0; i < n; i++)
        if (logits[i] > logit && biased(s, logits, (int32_t)i) > logit)
            return false;
    for (size_t i = 0; i < s->n_biases; i++)
        if ((size_t)s->biases[i].id < n && biased(s, logits, s->biases[i].id) > logit)
            return false;
    return true;
}

/* At the reply's beginning: the model opens the reasoning where that is its likeliest token, or is
 * made to. Text that the constraint itself may begin so is the constraint's. */
static enum status reasoning_decide(struct lm *m, struct row *row, const float *logits,
                                    size_t n_left)
{
    const struct agent_turn *turn = agent_turn_of(row);
    const struct sampling *s = &turn->seen.sampling;
    struct lm_turn *t = row->turn;
    struct lm_reasoning *r = &t->reasoning;
    const uint32_t *mask;
    size_t n_begin;
    const int32_t *begin = reasoning_ids(m, REASONING_BEGIN, &n_begin);
    bool begins = r->phase == REASONING_MAY_BEGIN && n_begin > 0 && n_begin < r->n_most &&
                  (r->is_wanted || is_likeliest(s, logits, m->n_vocab, begin[0]));

    if (begins && s->constraint->form != CONSTRAINT_TAGS) {
        if (matcher_mask(t->matcher, n_left, &mask, &row->err) != STATUS_OK)
            return row->err.status;
        begins = (mask[begin[0] / 32] >> begin[0] % 32 & 1) == 0;
    }
    if (begins)
        reasoning_write(m, r, REASONING_BEGIN, REASONING_IS_ON);
    else
        reasoning_write(m, r, REASONING_ALONE, REASONING_IS_OVER);
    return STATUS_OK;
}

/* What the token adds to the text of the reasoning. */
static void reasoning_bytes(const struct lm *m, int32_t id, const char **ret_bytes, size_t *ret_len)
{
    bool is_mark = false;
    struct error ignored; /* it was sampled, so it is a token */

    *ret_bytes = "";
    for (size_t i = 0; i < m->n_thought_marks; i++)
        is_mark = is_mark || m->marks[i] == id;
    if ((size_t)id >= vocab_n_tokens(m->vocab) ||
        vocab_bytes(m->vocab, id, is_mark, ret_bytes, ret_len, &ignored) != STATUS_OK)
        *ret_len = 0;
}

/* How many of bytes [len] the mark ends with, behind the tail; 0: it does not. */
static size_t reasoning_ends_in(const struct lm_reasoning *r, const char *mark, const char *bytes,
                                size_t len)
{
    const size_t n_mark = strlen(mark);

    for (size_t n = 1; n <= len; n++) {
        const size_t n_before = n < n_mark ? n_mark - n : 0;

        if (n_before <= r->n_tail && memcmp(r->tail + r->n_tail - n_before, mark, n_before) == 0 &&
            memcmp(bytes + n - (n_mark - n_before), mark + n_before, n_mark - n_before) == 0)
            return n;
    }
    return 0;
}

/* As reasoning_ends_in of the close. One that is a control token is not spelled by others. */
static size_t reasoning_closes(const struct lm *m, const struct lm_reasoning *r, int32_t id,
                               const char *bytes, size_t len)
{
    const char *close = m->format.thoughts->close;
    const struct reply_control *control = reply_format_control(&m->format, close);

    if (control != NULL && strcmp(control->text, close) == 0)
        return id == control->id ? len : 0;
    return reasoning_ends_in(r, close, bytes, len);
}

static void reasoning_add_tail(struct lm_reasoning *r, const char *bytes, size_t len)
{
    size_t n_kept;

    if (len >= sizeof(r->tail)) {
        memcpy(r->tail, bytes + len - sizeof(r->tail), sizeof(r->tail));
        r->n_tail = sizeof(r->tail);
        return;
    }
    n_kept = r->n_tail < sizeof(r->tail) - len ? r->n_tail : sizeof(r->tail) - len;
    memmove(r->tail, r->tail + r->n_tail - n_kept, n_kept);
    memcpy(r->tail + n_kept, bytes, len);
    r->n_tail = n_kept + len;
}

static bool is_space_alone(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != ' ' && bytes[i] != '\n' && bytes[i] != '\t' && bytes[i] != '\r')
            return false;
    return true;
}

/* A token that closes the reasoning and goes on behind it would be the answer's beginning: what is
 * left of the close comes instead. */
static enum status reasoning_settle(struct lm *m, struct lm_reasoning *r, int32_t *id,
                                    struct error *err)
{
    const char *close = m->format.thoughts->close, *bytes;
    size_t len, n, n_left;
    enum status rc = STATUS_OK;
    struct buf ids;

    reasoning_bytes(m, *id, &bytes, &len);
    n = reasoning_closes(m, r, *id, bytes, len);
    if (n == 0 || is_space_alone(bytes + n, len - n))
        return STATUS_OK;
    buf_init(&ids, SIZE_MAX);
    n_left = n < strlen(close) ? n : strlen(close);
    rc = reasoning_encode(m, close + strlen(close) - n_left, &ids, err);
    if (rc == STATUS_OK && ids.len > 0)
        memcpy(id, ids.data, sizeof(*id));
    buf_deinit(&ids);
    return rc;
}

/* --- a free reply's --- */

/* The next token of a free reply, which nothing binds but the end of the budget. */
static enum status budget_sample(struct lm *m, struct row *row, float *logits, uint32_t position,
                                 size_t n_left, struct sampled *out)
{
    struct lm_turn *t = row->turn;
    struct lm_reasoning *r = &t->reasoning;
    enum status rc;

    if (!r->has_limit)
        reasoning_settle_budget(r, n_left + position);
    if (r->phase == REASONING_IS_ON && r->n_thought >= r->budget)
        reasoning_write(m, r, REASONING_CUT, REASONING_IS_OVER);
    rc = sampler_next(t->sampler, logits, m->n_vocab, position, out, &row->err);
    if (rc == STATUS_OK && r->phase == REASONING_WRITES && lm_reasoning_written(r) != out->id)
        sampler_replace(t->sampler, lm_reasoning_written(r), out);
    return rc;
}

/* Whether the open stands at the end of the text so far, which has white space alone before it. */
static bool budget_opens(const struct lm_reasoning *r, const char *open)
{
    size_t at = 0;

    while (at < r->n_tail && is_space_alone(r->tail + at, 1))
        at++;
    return r->n_tail - at >= strlen(open) && memcmp(r->tail + at, open, strlen(open)) == 0;
}

/* Whether the text so far, behind its white space, is the beginning of the open. */
static bool budget_may_open(const struct lm_reasoning *r, const char *open)
{
    size_t at = 0;

    while (at < r->n_tail && is_space_alone(r->tail + at, 1))
        at++;
    return r->n_tail < sizeof(r->tail) && r->n_tail - at < strlen(open) &&
           memcmp(r->tail + at, open, r->n_tail - at) == 0;
}

/* Whether the reply begins with another token than the control token that the open begins with. */
static bool budget_is_spelled(const struct lm *m, const struct lm_reasoning *r, int32_t id,
                              const char *bytes, size_t len)
{
    const struct thought_format *f = m->format.thoughts;
    const struct reply_control *control = reply_format_control(&m->format, f->open);

    return control != NULL && !f->is_anywhere && id != control->id &&
           is_space_alone(r->tail, r->n_tail) && !is_space_alone(bytes, len);
}

static void budget_accept(const struct lm *m, struct lm_reasoning *r, int32_t id)
{
    const struct thought_format *f = m->format.thoughts;
    const char *bytes;
    bool is_over;
    size_t len;

    reasoning_bytes(m, id, &bytes, &len);
    if (r->phase == REASONING_IS_ON) {
        r->n_thought++;
        is_over = reasoning_closes(m, r, id, bytes, len) > 0;
        reasoning_add_tail(r, bytes, len);
        if (!is_over)
            return;
        r->phase = f->is_anywhere ? REASONING_MAY_BEGIN : REASONING_IS_OVER;
        r->n_tail = 0;
        return;
    }
    if (budget_is_spelled(m, r, id, bytes, len)) {
        r->phase = REASONING_IS_OVER;
        return;
    }
    is_over = f->is_anywhere && reasoning_ends_in(r, f->open, bytes, len) > 0;
    reasoning_add_tail(r, bytes, len);
    if (f->is_anywhere ? is_over : budget_opens(r, f->open)) {
        r->phase = REASONING_IS_ON;
        r->n_tail = 0;
    } else if (!f->is_anywhere && !budget_may_open(r, f->open)) {
        r->phase = REASONING_IS_OVER;
    }
}

enum status lm_reasoning_sample(struct lm *m, struct row *row, float *logits, uint32_t position,
                                size_t n_left, struct sampled *out)
{
    struct lm_turn *t = row->turn;
    struct lm_reasoning *r = &t->reasoning;
    enum status rc = STATUS_OK;
    int32_t id;

    if (t->matcher == NULL)
        return budget_sample(m, row, logits, position, n_left, out);
    if (!r->has_limit)
        rc = reasoning_limit(m, t, n_left + position, &row->err);
    if (rc == STATUS_OK && (r->phase == REASONING_MAY_BEGIN || r->phase == REASONING_IS_OFF))
        rc = reasoning_decide(m, row, logits, n_left);
    if (rc != STATUS_OK || r->phase == REASONING_IS_OVER)
        return rc;
    if (r->phase == REASONING_IS_ON && (position >= r->n_most || r->is_repeating))
        reasoning_write(m, r, REASONING_CUT, REASONING_IS_OVER);
    sampler_allow(t->sampler, NULL);
    rc = sampler_next(t->sampler, logits, m->n_vocab, position, out, &row->err);
    if (rc != STATUS_OK)
        return rc;
    id = out->id;
    if (r->phase == REASONING_IS_ON)
        rc = reasoning_settle(m, r, &id, &row->err);
    if (r->phase == REASONING_IS_ON && vocab_is_stop_token(m->vocab, id)) {
        const char *bytes;
        size_t len;

        reasoning_bytes(m, id, &bytes, &len);
        if (reasoning_closes(m, r, id, bytes, len) == 0)
            reasoning_write(m, r, REASONING_CUT, REASONING_IS_OVER);
    }
    if (r->phase == REASONING_WRITES)
        id = lm_reasoning_written(r);
    if (rc == STATUS_OK && id != out->id)
        sampler_replace(t->sampler, id, out);
    return rc;
}

void lm_reasoning_accept(const struct lm *m, struct lm_turn *t, int32_t id)
{
    struct lm_reasoning *r = &t->reasoning;
    const char *bytes;
    size_t len, n;

    if (r->phase == REASONING_WRITES) {
        assert(id == r->ids[r->at]);
        if (++r->at == r->n_ids)
            r->phase = r->next;
        return;
    }
    if (t->matcher == NULL) {
        budget_accept(m, r, id);
        return;
    }
    r->is_repeating = repetition_add(&r->repetition, id);
    reasoning_bytes(m, id, &bytes, &len);
    if (len == 0)
        return;
    n = reasoning_closes(m, r, id, bytes, len);
    if (n == len) {
        reasoning_write(m, r, REASONING_AFTER, REASONING_IS_OVER);
    } else if (n > 0) {
        r->phase = REASONING_IS_OVER; /* white space follows in the token */
    } else {
        reasoning_add_tail(r, bytes, len);
    }
}
