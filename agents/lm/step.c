/* A step of the language model. A row computes as many of its ids that have no keys and values yet
 * as it was granted; when none is left, the last one's logits give the next token. That one rule is
 * prefill, chunked prefill, decode, and the recomputing of a conversation whose pages were taken.
 *
 * Behind its last id a row may compute guesses at the next ones (draft.h), where the step has room
 * that nobody was granted and the guesses are likely enough to be worth their time. Every position
 * then gives the token that it would have given in a step of its own, as long as the guess before
 * it was right; what follows the first wrong one is forgotten. So the reply is the same.
 *
 * A row that scores a text (score.c) wants the logits of each of the text's positions; where the
 * step has no room for as many, it computes less than it was granted. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "base/alloc.h"

enum {
    /* Tokens of a prompt that are worth a place in a step: far into a long one even these read so
     * many keys and values that they take as long as a few conversations. */
    MIN_CHUNK = 2,
};

static struct lm_clone *clone_of(const struct row *row)
{
    return container_of((struct clone *)row->clone, struct lm_clone, base);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t lm_cost(const struct agent *a, const struct row *row)
{
    const struct lm_turn *t = row->turn;

    (void)a;
    return t->n_ids - clone_of(row)->kv.n_tokens;
}

size_t lm_min_grant(const struct agent *a, const struct row *row)
{
    return min_size(lm_cost(a, row), MIN_CHUNK);
}

/* The reply's next tokens will find their places without an allocation on the compute thread. */
static enum status reserve_host(struct lm_clone *c, struct agent_turn *turn, struct error *err)
{
    struct lm_turn *t = turn->row.turn;
    struct reply *r = &turn->reply;
    struct reply_token *tokens;
    size_t cap;

    if (r->n_tokens + 1 + DRAFT_MAX > r->cap_tokens) {
        cap = r->cap_tokens == 0 ? 2 * (1 + DRAFT_MAX) : 2 * r->cap_tokens;
        tokens = arena_alloc(turn->arena, cap, sizeof *tokens);
        if (tokens == NULL)
            return error_no_memory(err, cap * sizeof *tokens, "a reply's tokens");
        if (r->n_tokens != 0)
            memcpy(tokens, r->tokens, r->n_tokens * sizeof *tokens);
        r->tokens = tokens;
        r->cap_tokens = cap;
    }
    return lm_clone_grow(c, (size_t)t->n_ids + 1 + DRAFT_MAX, err);
}

/* Positions behind the row's last id that could be of use: none that the reply cannot reach, and
 * where pages are few only those that the row's last page has left. */
static size_t draft_room(const struct lm *m, const struct row *row)
{
    const struct agent_turn *turn = container_of(row, const struct agent_turn, row);
    const struct lm_turn *t = row->turn;
    const struct sampling *s = &turn->seen.sampling;
    size_t end = clone_of(row)->kv.n_tokens + row->grant, room = DRAFT_MAX;
    struct kv_usage usage;

    if (m->speculate == SPECULATE_OFF || end != t->n_ids || lm_is_scoring(t))
        return 0;
    if (s->max_tokens != 0)
        room = min_size(room, s->max_tokens - turn->reply.n_tokens - 1);
    room = min_size(room, m->context - end - 1);
    kv_pages_usage(m->pages, &usage);
    if (usage.n_free <= 2 * m->max_rows)
        room = min_size(room, (KV_PAGE_TOKENS - end % KV_PAGE_TOKENS) % KV_PAGE_TOKENS);
    return room;
}

static enum status reserve_pages(struct lm *m, struct lm_clone *c, size_t n, struct lm_turn *t,
                                 struct error *err)
{
    enum status rc = kv_seq_reserve(m->pages, &c->kv, n, &t->copy, err);

    if (rc == STATUS_OK && t->copy.from >= 0)
        m->copies[m->n_copies++] = t->copy;
    return rc;
}

enum status lm_reserve(struct agent *a, struct row *row, struct error *err)
{
    struct lm *m = container_of(a, struct lm, base);
    struct lm_clone *c = clone_of(row);
    struct lm_turn *t = row->turn;
    enum status rc = reserve_host(c, agent_turn_of(row), err);

    if (rc == STATUS_OK && !lm_copies_grow(m))
        rc = error_no_memory(err, m->cap_copies * sizeof *m->copies, "copies of KV pages");
    if (rc != STATUS_OK)
        return err->status = STATUS_UNAVAILABLE; /* another row's pages would not help */
    lm_pages_notice(m);
    lm_clone_busy(c);
    lm_turn_returns(m, agent_turn_of(row));
    if (row->grant > lm_cost(a, row))
        row->grant = lm_cost(a, row);
    t->n_room = (uint32_t)draft_room(m, row);
    do
        rc = reserve_pages(m, c, row->grant + t->n_room, t, err);
    while (rc == STATUS_EXHAUSTED && lm_evict_one(m));
    if (rc == STATUS_OK)
        t->has_begun = true;
    else
        lm_clone_waits(c, true);
    return rc;
}

void lm_release(struct agent *a, struct row *row)
{
    struct lm *m = container_of(a, struct lm, base);
    struct lm_clone *c = clone_of(row);

    lm_clone_busy(c);
    kv_seq_free(m->pages, &c->kv);
    m->n_recomputes++;
    if (a->on_event != NULL)
        a->on_event(a->on_event_arg, &c->base, CLONE_EVICTED, "preempted: out of KV pages");
}

static enum finish after_token(const struct lm *m, const struct agent_turn *turn,
                               const struct lm_turn *t, bool is_stopped)
{
    const struct sampling *s = &turn->seen.sampling;
    size_t n_reply = turn->reply.n_tokens + t->n_said;

    if (is_stopped || (!s->ignore_eos && vocab_is_end(m->vocab, t->said[t->n_said - 1].token.id)))
        return FINISH_STOP;
    if ((s->max_tokens != 0 && n_reply >= s->max_tokens) || t->n_ids >= m->context)
        return FINISH_LENGTH;
    return FINISH_NONE;
}

/* Chooses the reply's next token, unless the device has, and makes it text. */
static enum status add_token(struct lm *m, struct row *row, float *logits,
                             const struct drawn *drawn)
{
    struct agent_turn *turn = agent_turn_of(row);
    struct lm_clone *c = clone_of(row);
    struct lm_turn *t = row->turn;
    struct lm_said *said = &t->said[t->n_said];
    uint32_t position = (uint32_t)turn->reply.n_tokens + t->n_said;
    bool is_stopped = false;
    enum status rc = STATUS_OK;

    if (drawn != NULL && drawn->id >= 0)
        said->token = sampler_drawn(t->sampler, drawn);
    else
        rc = sampler_next(t->sampler, logits, m->n_vocab, position, &said->token, &row->err);
    if (rc != STATUS_OK)
        return rc;
    sampler_accept(t->sampler, said->token.id);
    t->n_said++;
    c->ids[t->n_ids++] = said->token.id;
    if (!vocab_is_control(m->vocab, said->token.id))
        rc = writer_add(&t->writer, said->token.id, &t->piece, &is_stopped, &row->err);
    if (rc == STATUS_OK)
        t->finish = after_token(m, turn, t, is_stopped);
    if (rc == STATUS_OK && t->finish != FINISH_NONE && !is_stopped)
        rc = writer_end(&t->writer, &t->piece, &row->err);
    said->piece_end = (uint32_t)t->piece.len;
    return rc;
}

/* The tokens that the row's logits give: one, and one more for each guess that was right. The first
 * guess is judged though it was not computed: so the odds are known before they are bet on. */
static enum status add_tokens(struct lm *m, struct row *row, const struct llama_row *computed)
{
    const struct lm_clone *c = clone_of(row);
    struct lm_turn *t = row->turn;
    enum status rc = STATUS_OK;
    bool is_right = true;

    for (size_t i = 0; i < computed->n_logits && is_right && t->finish == FINISH_NONE; i++) {
        const int32_t guess = c->ids[t->n_ids];

        rc = add_token(m, row, computed->logits + i * m->n_vocab,
                       computed->draws != NULL ? &computed->drawn[i] : NULL);
        if (rc != STATUS_OK)
            break;
        is_right = guess == t->said[i].token.id;
        if (i < t->n_drafts || (i == 0 && t->n_guesses != 0)) {
            t->n_judged++;
            t->n_right += is_right;
        }
    }
    return rc;
}

/* What the row computed, and what it makes of the logits. */
static enum status take_logits(struct lm *m, struct row *row, const struct llama_row *computed)
{
    struct lm_turn *t = row->turn;
    enum status rc;

    if (lm_is_scoring(t))
        return lm_scores_take(m, row, computed);
    rc = add_tokens(m, row, computed);
    /* of what it said, the last has no keys and values yet */
    t->n_computed = (uint32_t)row->grant + (t->n_said > 0 ? t->n_said - 1 : 0);
    return rc;
}

/* What a step has left beside what its rows were granted. */
struct spare {
    size_t n_positions, n_logits;
    struct draft_load load;
    double slope;
};

/* Lays guesses behind the row's ids; returns how many are worth computing. */
static size_t draft(struct row *row, struct spare *spare)
{
    const struct lm_clone *c = clone_of(row);
    struct lm_turn *t = row->turn;
    size_t n;

    t->n_guesses = (uint32_t)draft_propose(c->ids, t->n_ids, t->n_room, &t->n_match);
    if (t->n_guesses == 0)
        return 0;
    n = min_size(min_size(t->n_guesses, spare->n_positions), spare->n_logits);
    n = draft_worth(&c->odds, t->n_match, n, spare->slope, &spare->load);
    spare->n_positions -= n;
    spare->n_logits -= n;
    return n;
}

/* How many tokens a row computes, and of how many last ones the logits. */
static void lay_out_row(struct row *row, struct spare *spare, struct llama_row *out)
{
    const struct lm_clone *c = clone_of(row);
    struct lm_turn *t = row->turn;
    bool is_last = c->kv.n_tokens + row->grant == t->n_ids;

    t->n_drafts = 0;
    if (lm_is_scoring(t)) {
        out->n_logits = lm_scores_lay_out(row, 1 + spare->n_logits, &out->n_tokens);
        spare->n_logits -= out->n_logits > 1 ? out->n_logits - 1 : 0;
        return;
    }
    if (is_last)
        t->n_drafts = (uint32_t)draft(row, spare);
    out->n_tokens = row->grant + t->n_drafts;
    out->n_logits = is_last ? 1 + t->n_drafts : 0;
}

/* Leaves the row's tokens to the device, where it can draw them as the sampler would. */
static void plan_draws(struct lm *m, struct row *row, size_t first_logits, struct llama_row *out)
{
    const struct lm_turn *t = row->turn;
    const uint32_t position = (uint32_t)agent_turn_of(row)->reply.n_tokens;

    if (m->draws == NULL || lm_is_scoring(t) || out->n_logits == 0)
        return;
    for (uint32_t i = 0; i < out->n_logits; i++)
        if (!sampler_plan(t->sampler, position + i, &m->draws[first_logits + i]))
            return;
    out->draws = m->draws + first_logits;
    out->drawn = m->drawn + first_logits;
}

static bool is_reading(const struct row *row)
{
    const struct lm_turn *t = row->turn;

    return lm_is_scoring(t) || clone_of(row)->kv.n_tokens + 1 < t->n_ids;
}

/* What a guess costs, see draft_cost_slope. None is worth its time while a prompt is read, or was
 * in the step before: the batcher gives prompts what the others' rhythm has room for, and looks at
 * what those take alone in between. */
static double draft_slope(struct lm *m, struct row *const *rows, size_t n)
{
    bool was_reading = m->is_reading;

    m->is_reading = false;
    for (size_t i = 0; i < n; i++)
        m->is_reading |= is_reading(rows[i]);
    if (m->speculate == SPECULATE_ON)
        return 0.0;
    return m->is_reading || was_reading ? INFINITY : draft_cost_slope(&m->cost);
}

/* Lays the rows out for the model. *ret_pure: nothing but decoding, positions in *ret_n. */
static void lay_out(struct lm *m, struct row *const *rows, size_t n, size_t *ret_n, bool *ret_pure)
{
    size_t n_granted = 0, n_logits = 0, n_positions = 0;
    struct spare spare = {.n_logits = m->max_logits - n};

    for (size_t i = 0; i < n; i++)
        n_granted += rows[i]->grant;
    spare.n_positions = m->max_tokens - min_size(n_granted, m->max_tokens);
    spare.load = (struct draft_load){(double)n_granted, (double)n_granted};
    spare.slope = draft_slope(m, rows, n);
    for (size_t i = 0; i < n; i++) {
        const struct lm_clone *c = clone_of(rows[i]);
        const struct lm_turn *t = rows[i]->turn;

        m->rows[i] = (struct llama_row){
            .ids = c->ids + c->kv.n_tokens,
            .pos = c->kv.n_tokens,
            .pages = c->kv.pages,
            .logits = m->logits + n_logits * m->n_vocab,
        };
        lay_out_row(rows[i], &spare, &m->rows[i]);
        plan_draws(m, rows[i], n_logits, &m->rows[i]);
        n_logits += m->rows[i].n_logits;
        n_positions += m->rows[i].n_tokens;
        rows[i]->extra = t->n_drafts;
    }
    *ret_n = n_positions;
    *ret_pure = n_positions == n_logits;
}

static bool has_slots_in(const struct kv_copy *copies, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (copies[i].way != KV_COPY)
            return true;
    return false;
}

/* The device afresh, with none of its pages; what conversations said is on the host. Without fast
 * math: whether the vendor's library has broken it, or works in a process whose device was reset,
 * nobody can say. */
static enum status restart(struct lm *m, struct error *err)
{
    enum status rc;

    m->backend_config.fast_math = false;
    rc = llama_restart(m->llama, &m->backend_config, err);
    m->is_down = rc != STATUS_OK;
    return rc == STATUS_OK ? rc : error_prefix(err, "the device is not back yet");
}

/* Copies, then rows. A device that failed is opened again at once; where that does not succeed,
 * each step tries it anew. Where copies to or from slots are lost, nobody knows any more what lies
 * where, and all pages are. */
static enum status forward(struct lm *m, size_t n, struct error *err)
{
    const size_t n_copies = m->n_copies;
    struct error again;
    enum status rc = STATUS_OK;

    m->n_copies = 0;
    if (m->is_down)
        rc = restart(m, err);
    if (rc == STATUS_OK)
        rc = llama_forward(m->llama, m->rows, n, m->copies, n_copies, err);
    if (rc == STATUS_INTERNAL && !m->is_down && restart(m, &again) == STATUS_PRECONDITION)
        m->is_down = false; /* it is not ours to restart; each step says what it met */
    if (rc == STATUS_INTERNAL || (rc != STATUS_OK && has_slots_in(m->copies, n_copies)))
        m->n_losses++;
    return rc;
}

void lm_batch_act(struct agent *a, struct row *const *rows, size_t n)
{
    struct lm *m = container_of(a, struct lm, base);
    uint64_t start_us = env_now_us(a->env);
    size_t n_positions;
    bool is_pure;
    struct error err;
    enum status rc;

    lay_out(m, rows, n, &n_positions, &is_pure);
    rc = forward(m, n, &err);
    for (size_t i = 0; i < n; i++) {
        struct lm_turn *t = rows[i]->turn;

        t->n_computed = 0;
        if (rc != STATUS_OK) {
            rows[i]->err = err;
            rows[i]->outcome = ROW_FAILED;
            continue;
        }
        rows[i]->outcome = ROW_MORE;
        if (take_logits(m, rows[i], &m->rows[i]) != STATUS_OK)
            rows[i]->outcome = ROW_FAILED;
        else if (t->finish != FINISH_NONE)
            rows[i]->outcome = ROW_DONE;
    }
    if (is_pure && rc == STATUS_OK)
        draft_cost_learn(&m->cost, n_positions, env_now_us(a->env) - start_us);
}

static const struct top_logprob *keep_top(struct agent_turn *turn, const struct sampled *s)
{
    struct top_logprob *top;

    if (s->n_top == 0)
        return NULL;
    top = arena_alloc(turn->arena, s->n_top, sizeof *top);
    if (top != NULL)
        memcpy(top, s->top, s->n_top * sizeof *top);
    return top;
}

/* The tokens of the step become part of the reply. */
static void keep_said(struct agent_turn *turn)
{
    struct reply *r = &turn->reply;
    struct lm_turn *t = turn->row.turn;
    uint32_t text_start = (uint32_t)r->text.len;

    if (buf_append(&r->text, t->piece.data, t->piece.len) != STATUS_OK && t->piece.len != 0) {
        if (turn->row.outcome != ROW_FAILED)
            (void)error_no_memory(&turn->row.err, t->piece.len, "a reply's text");
        turn->row.outcome = ROW_FAILED;
        t->n_said = 0; /* the turn never was */
    }
    for (uint32_t i = 0; i < t->n_said; i++) {
        const struct sampled *s = &t->said[i].token;
        const struct top_logprob *top = keep_top(turn, s);

        r->tokens[r->n_tokens++] = (struct reply_token){
            .id = s->id,
            .logprob = s->logprob,
            .top = top,
            .n_top = top != NULL ? s->n_top : 0,
            .text_end = text_start + t->said[i].piece_end,
        };
    }
    t->n_said = 0;
    buf_clear(&t->piece);
    r->finish = t->finish;
}

static void learn_odds(struct lm *m, struct lm_clone *c, struct lm_turn *t)
{
    for (uint32_t i = 0; i < t->n_judged; i++)
        draft_odds_learn(&c->odds, t->n_match, i < t->n_right);
    m->n_drafted += t->n_drafts;
    m->n_accepted += min_size(t->n_right, t->n_drafts);
    t->n_judged = t->n_right = t->n_drafts = 0;
}

void lm_stepped(struct agent *a, struct row *row)
{
    struct lm *m = container_of(a, struct lm, base);
    struct agent_turn *turn = agent_turn_of(row);
    struct reply *r = &turn->reply;
    struct lm_clone *c = clone_of(row);
    struct lm_turn *t = row->turn;
    uint32_t n_before;

    lm_pages_notice(m);
    n_before = c->kv.n_tokens;
    if (t->n_computed == 0 && t->copy.from >= 0) /* the step failed, and its copies with it */
        kv_seq_cut(m->pages, &c->kv, n_before / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
    c->kv.n_tokens += t->n_computed;
    t->n_computed = 0;
    kv_seq_cut(m->pages, &c->kv,
               c->kv.n_tokens); /* guesses that were wrong give their pages back */
    lm_pages_learn(m, c, n_before);
    if (r->n_prefilled < t->n_prompt && r->n_prefilled < c->kv.n_tokens)
        r->n_prefilled = c->kv.n_tokens < t->n_prompt ? c->kv.n_tokens : t->n_prompt;
    learn_odds(m, c, t);
    if (t->n_said != 0)
        keep_said(turn);
    if (lm_is_scoring(t) && row->outcome != ROW_FAILED)
        lm_scores_stepped(m, turn);
}
