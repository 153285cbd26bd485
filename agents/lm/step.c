/* A step of the language model. A row computes as many of its ids that have no keys and values yet
 * as were scheduled. When none is left, the last id's logits give the next token. This one rule is
 * prefill, chunked prefill, decode, and the recomputing of an evicted conversation.
 *
 * Behind its last id a row may compute speculative tokens (draft.h), if the step has tokens to
 * spare and the acceptance rate is high enough, or if its turn predicts the reply. Each position
 * gives the token that it would give in a step of its own, as long as the draft token before it was
 * accepted; everything after the first rejected one is discarded. So the reply is the same.
 *
 * A row that scores a text (score.c) needs the logits of each of the text's positions. Where the
 * step has room for fewer, the row computes fewer tokens than were scheduled. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "base/alloc.h"

enum {
    /* The smallest prefill chunk that is worth a place in a step. Late in a long prompt even two
     * tokens read so many keys and values that they take as long as decode rows of a few
     * conversations. */
    MIN_CHUNK = 2,
    LEAST_READ = 128, /* positions of a step whose time is that of a prompt's */
};

static struct lm_clone *lm_step_clone_of(const struct row *row)
{
    return container_of((struct clone *)row->clone, struct lm_clone, base);
}

static size_t lm_step_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t lm_cost(const struct agent *a, const struct row *row)
{
    const struct lm_turn *t = row->turn;

    return t->n_ids - lm_step_clone_of(row)->pages.kv.n_tokens;
}

size_t lm_min_chunk(const struct agent *a, const struct row *row)
{
    return lm_step_min_size(lm_cost(a, row), MIN_CHUNK);
}

/* Makes room for the reply's next tokens, so that the compute thread does not allocate. */
static enum status reserve_host(struct lm_clone *c, struct agent_turn *turn, struct error *err)
{
    struct lm_turn *t = turn->row.turn;
    struct reply *r = &turn->reply;
    struct reply_token *tokens;
    size_t cap;

    if (r->n_tokens + 1 + DRAFT_MAX > r->cap_tokens) {
        cap = r->cap_tokens == 0 ? 2 * (1 + DRAFT_MAX) : 2 * r->cap_tokens;
        tokens = arena_alloc(turn->arena, cap, sizeof(*tokens));
        if (tokens == NULL)
            return error_no_memory(err, cap * sizeof(*tokens), "a reply's tokens");
        if (r->n_tokens != 0)
            memcpy(tokens, r->tokens, r->n_tokens * sizeof(*tokens));
        r->tokens = tokens;
        r->cap_tokens = cap;
    }
    return lm_clone_grow(c, (size_t)t->n_ids + 1 + DRAFT_MAX, err);
}

/* How many draft tokens the row could use: not beyond max_tokens and the context, and if pages are
 * few only as many as fit in the row's last page. */
static size_t draft_room(const struct lm *m, const struct row *row)
{
    const struct agent_turn *turn = container_of(row, const struct agent_turn, row);
    const struct lm_turn *t = row->turn;
    const struct sampling *s = &turn->seen.sampling;
    size_t end = lm_step_clone_of(row)->pages.kv.n_tokens + row->n_scheduled, room = DRAFT_MAX;
    struct kv_usage usage;

    if ((m->speculate == SPECULATE_OFF && turn->seen.n_predicted == 0) || end != t->n_ids ||
        lm_is_scoring(t) || lm_results_are_pending(t))
        return 0;
    if (s->max_tokens != 0)
        room = lm_step_min_size(room, s->max_tokens - turn->reply.n_tokens - 1);
    room = lm_step_min_size(room, m->limits.context - end - 1);
    kv_pages_usage(m->cache.pages, &usage);
    /* of a model with a state, a step that ends with a page may leave a snapshot behind it */
    if (usage.n_free <= 2 * m->max_rows || lm_states_are_kept(&m->cache.states))
        room = lm_step_min_size(room, (KV_PAGE_TOKENS - end % KV_PAGE_TOKENS) % KV_PAGE_TOKENS);
    return room;
}

static enum status reserve_pages(struct lm *m, struct lm_clone *c, size_t n, struct lm_turn *t,
                                 struct error *err)
{
    enum status rc = kv_seq_reserve(m->cache.pages, &c->pages.kv, n, &t->copy, err);

    if (rc == STATUS_OK && t->copy.from >= 0)
        m->cache.copies[m->cache.n_copies++] = t->copy;
    return rc;
}

enum status lm_reserve(struct agent *a, struct row *row, struct error *err)
{
    struct lm *m = container_of(a, struct lm, base);
    struct lm_clone *c = lm_step_clone_of(row);
    struct lm_turn *t = row->turn;
    enum status rc = reserve_host(c, agent_turn_of(row), err);

    if (rc == STATUS_OK && !lm_cache_grow_copies(&m->cache))
        rc = error_no_memory(err, m->cache.cap_copies * sizeof(*m->cache.copies),
                             "copies of KV pages");
    if (rc != STATUS_OK)
        return err->status = STATUS_UNAVAILABLE; /* another row's pages would not help */
    lm_notice_losses(m);
    lm_clone_pages_busy(&c->pages);
    lm_turn_resume(m, agent_turn_of(row));
    if (row->n_scheduled > lm_cost(a, row))
        row->n_scheduled = lm_cost(a, row);
    t->n_room = (uint32_t)draft_room(m, row);
    do {
        rc = lm_snapshots_reserve(m, c, t, row->n_scheduled, err);
        if (rc == STATUS_OK)
            rc = reserve_pages(m, c, row->n_scheduled + t->n_room, t, err);
    } while (rc == STATUS_EXHAUSTED && lm_cache_evict_one(&m->cache));
    if (rc != STATUS_OK) {
        lm_snapshots_drop(m, t);
        lm_clone_pages_wait(&c->pages, &m->cache, true);
        return rc;
    }
    t->has_begun = true;
    lm_cache_count_recompute(&m->cache, &c->pages);
    return STATUS_OK;
}

void lm_release(struct agent *a, struct row *row)
{
    struct lm *m = container_of(a, struct lm, base);

    lm_snapshots_drop(m, row->turn);
    lm_cache_evict(&m->cache, &lm_step_clone_of(row)->pages, "preempted: out of KV pages");
}

/* is_bound: the token may end the reply, since no reasoning has to end before. */
static enum finish after_token(const struct lm *m, const struct agent_turn *turn,
                               const struct lm_turn *t, bool is_bound, bool is_stopped)
{
    const struct sampling *s = &turn->seen.sampling;
    size_t n_reply = turn->reply.n_tokens + t->n_generated;

    /* Under a constraint an end token comes only where nothing else, or the end, may follow. */
    if (is_stopped || (is_bound && (!s->ignore_eos || t->matcher != NULL) &&
                       vocab_is_stop_token(m->vocab, t->generated[t->n_generated - 1].token.id)))
        return FINISH_STOP;
    if ((s->max_tokens != 0 && n_reply >= s->max_tokens) || t->n_ids >= m->limits.context)
        return FINISH_LENGTH;
    return FINISH_NONE;
}

/* How many tokens the reply may still have, the next one too. */
static size_t lm_step_left(const struct lm *m, const struct agent_turn *turn,
                           const struct lm_turn *t)
{
    const struct sampling *s = &turn->seen.sampling;
    size_t n_left = m->limits.context - t->n_ids;

    if (s->max_tokens != 0)
        n_left = lm_step_min_size(n_left, s->max_tokens - turn->reply.n_tokens - t->n_generated);
    return n_left;
}

/* Samples among the tokens that the row's constraint, or its reasoning's budget, lets follow. */
static enum status lm_step_sample_constrained(struct lm *m, struct row *row, float *logits,
                                              uint32_t position, struct sampled *out)
{
    struct lm_turn *t = row->turn;
    const size_t n_left = lm_step_left(m, agent_turn_of(row), t);
    const uint32_t *mask = NULL;
    enum status rc = STATUS_OK;
    int32_t id;

    if (t->reasoning.phase != REASONING_IS_OVER) {
        rc = lm_reasoning_sample(m, row, logits, position, n_left, out);
        if (rc != STATUS_OK || t->reasoning.phase != REASONING_IS_OVER || t->matcher == NULL)
            return rc;
    }
    rc = matcher_mask(t->matcher, n_left, &mask, &row->err);
    sampler_allow(t->sampler, mask);
    if (rc == STATUS_OK)
        rc = sampler_next(t->sampler, logits, m->n_vocab, position, out, &row->err);
    if (rc != STATUS_OK)
        return rc;
    id = out->id;
    rc = matcher_settle(t->matcher, n_left, &id, &row->err);
    if (id != out->id)
        sampler_replace(t->sampler, id, out);
    return rc;
}

/* Samples the reply's next token, unless the device has done so. */
static enum status lm_step_sample(struct lm *m, struct row *row, float *logits,
                                  const struct drawn *drawn, struct sampled *out)
{
    struct agent_turn *turn = agent_turn_of(row);
    struct lm_turn *t = row->turn;
    uint32_t position = (uint32_t)turn->reply.n_tokens + t->n_generated;

    if (drawn != NULL && drawn->id >= 0) {
        *out = sampler_drawn(t->sampler, drawn);
        return STATUS_OK;
    }
    if (t->matcher != NULL || t->reasoning.phase != REASONING_IS_OVER)
        return lm_step_sample_constrained(m, row, logits, position, out);
    return sampler_next(t->sampler, logits, m->n_vocab, position, out, &row->err);
}

/* Appends a token to the reply and turns it into text. */
static enum status lm_step_add_token(struct lm *m, struct row *row, const struct sampled *token)
{
    struct agent_turn *turn = agent_turn_of(row);
    struct lm_clone *c = lm_step_clone_of(row);
    struct lm_turn *t = row->turn;
    struct lm_generated *generated = &t->generated[t->n_generated];
    const bool is_reasoning = t->reasoning.phase != REASONING_IS_OVER;
    const bool is_bound =
        !is_reasoning || (t->matcher == NULL && t->reasoning.phase != REASONING_WRITES);
    bool is_stopped = false;
    enum status rc = STATUS_OK;

    generated->token = *token;
    sampler_accept(t->sampler, generated->token.id);
    if (is_reasoning)
        lm_reasoning_accept(m, t, generated->token.id);
    else if (t->matcher != NULL)
        rc = matcher_accept(t->matcher, generated->token.id, &row->err);
    if (rc != STATUS_OK)
        return rc;
    t->n_generated++;
    c->ids[t->n_ids++] = generated->token.id;
    if (!vocab_is_control(m->vocab, token->id) ||
        (lm_is_mark(m, &turn->seen, token->id) &&
         !(is_bound && vocab_is_stop_token(m->vocab, token->id))))
        rc = detokenizer_add(&t->detokenizer, generated->token.id, &t->piece, &is_stopped,
                             &row->err);
    if (rc == STATUS_OK)
        t->finish = after_token(m, turn, t, is_bound, is_stopped);
    if (rc == STATUS_OK && t->finish != FINISH_NONE && !is_stopped)
        rc = detokenizer_end(&t->detokenizer, &t->piece, &row->err);
    generated->piece_end = (uint32_t)t->piece.len;
    return rc;
}

/* The tokens that the row's logits give: one, and one more for each accepted draft token. The first
 * draft token is verified even if it was not computed, so that the acceptance rate is known before
 * draft tokens are computed. */
static enum status add_tokens(struct lm *m, struct row *row, const struct transformer_row *computed)
{
    const struct lm_clone *c = lm_step_clone_of(row);
    struct lm_turn *t = row->turn;
    enum status rc = STATUS_OK;
    bool is_accepted = true;

    for (size_t i = 0; i < computed->n_logits && is_accepted && t->finish == FINISH_NONE; i++) {
        const int32_t draft_token = c->ids[t->n_ids];
        struct sampled token;

        rc = lm_step_sample(m, row, computed->logits + i * m->n_vocab,
                            computed->draws != NULL ? &computed->drawn[i] : NULL, &token);
        if (rc == STATUS_OK)
            rc = lm_step_add_token(m, row, &token);
        if (rc != STATUS_OK)
            break;
        t->n_sampled++;
        is_accepted = draft_token == t->generated[i].token.id;
        if (i < t->n_draft_tokens || (i == 0 && t->n_proposed != 0)) {
            t->n_verified++;
            t->n_accepted += is_accepted;
        }
    }
    return rc;
}

/* The token that must come next, -1 if there is a choice. */
static int32_t lm_step_forced(const struct lm_turn *t)
{
    if (t->reasoning.phase != REASONING_IS_OVER)
        return lm_reasoning_written(&t->reasoning);
    return t->matcher == NULL ? -1 : matcher_forced(t->matcher);
}

/* Appends tokens that the constraint forces: they need no logits, and the next step computes them
 * together. Where log-probabilities are wanted each has a step, and the ids are the same. */
static enum status add_forced(struct lm *m, struct row *row)
{
    const struct sampling *s = &agent_turn_of(row)->seen.sampling;
    struct lm_turn *t = row->turn;
    enum status rc = STATUS_OK;

    if (t->n_generated == 0 || s->want_logprobs || s->n_logprobs > 0)
        return STATUS_OK;
    while (rc == STATUS_OK && t->finish == FINISH_NONE && t->n_generated < 1 + DRAFT_MAX &&
           lm_step_forced(t) >= 0) {
        const struct sampled token = {.id = lm_step_forced(t)};

        rc = lm_step_add_token(m, row, &token);
    }
    return rc;
}

/* Counts what the row computed, and turns its logits into tokens or scores. */
static enum status take_logits(struct lm *m, struct row *row,
                               const struct transformer_row *computed)
{
    struct lm_turn *t = row->turn;
    struct transformer_row rest = *computed; /* the part of the row that belongs to the reply */
    enum status rc = STATUS_OK;

    if (lm_is_scoring(t))
        return lm_scores_take(m, row, computed);
    t->n_sampled = 0;
    if (t->results.kind != LM_RESULTS_NONE && t->n_ids <= t->n_prompt)
        rc = lm_results_take(m, row, &rest);
    if (rc == STATUS_OK)
        rc = add_tokens(m, row, &rest);
    if (rc == STATUS_OK)
        rc = add_forced(m, row);
    /* the last sampled token, and those after it, have no keys and values yet */
    t->n_computed = (uint32_t)computed->n_tokens - t->n_draft_tokens +
                    (t->n_sampled > 0 ? t->n_sampled - 1 : 0);
    return rc;
}

/* What a step has left besides the scheduled tokens. */
struct spare {
    size_t n_positions, n_logits;
    size_t n_hidden; /* hidden states that were taken */
    struct draft_load load;
    double slope;
};

/* Writes what the turn predicts behind the row's ids, and returns how many ids that are: none once
 * the reply has another token than was predicted. */
static size_t draft_predicted(const struct lm *m, struct row *row)
{
    const struct agent_turn *turn = agent_turn_of(row);
    const struct observation *seen = &turn->seen;
    const struct lm_turn *t = row->turn;
    const size_t n_said = turn->reply.n_tokens;
    int32_t *ids = lm_step_clone_of(row)->ids + t->n_ids;
    size_t n = 0;

    if (n_said >= seen->n_predicted ||
        memcmp(seen->predicted, ids - n_said, n_said * sizeof(*ids)) != 0)
        return 0;
    for (; n < t->n_room && n_said + n < seen->n_predicted; n++) {
        const int32_t id = seen->predicted[n_said + n];

        if (id < 0 || (size_t)id >= vocab_n_tokens(m->vocab))
            break;
        ids[n] = id;
    }
    return n;
}

/* Writes draft tokens behind the row's ids; returns how many are worth computing. Of a prediction
 * all are. */
static size_t draft(const struct lm *m, struct row *row, struct spare *spare)
{
    const struct lm_clone *c = lm_step_clone_of(row);
    struct lm_turn *t = row->turn;
    bool is_predicted;
    size_t n;

    t->n_proposed = (uint32_t)draft_predicted(m, row);
    t->n_match = 0;
    is_predicted = t->n_proposed != 0;
    if (!is_predicted && m->speculate != SPECULATE_OFF)
        t->n_proposed = (uint32_t)draft_propose(c->ids, t->n_ids, t->n_room, &t->n_match);
    if (t->n_proposed == 0)
        return 0;
    n = lm_step_min_size(lm_step_min_size(t->n_proposed, spare->n_positions), spare->n_logits);
    if (is_predicted) {
        spare->load.n_positions += (double)n;
        spare->load.n_tokens += (double)n;
    } else {
        n = draft_length(&c->acceptance, t->n_match, n, spare->slope, &spare->load);
    }
    spare->n_positions -= n;
    spare->n_logits -= n;
    return n;
}

/* Sets how many tokens the row computes, and of how many of the last ones the logits. */
static void lay_out_row(struct lm *m, struct row *row, struct spare *spare,
                        struct transformer_row *out)
{
    const struct lm_clone *c = lm_step_clone_of(row);
    struct lm_turn *t = row->turn;
    bool is_last = c->pages.kv.n_tokens + row->n_scheduled == t->n_ids;

    t->n_draft_tokens = 0;
    if (lm_is_scoring(t)) {
        out->n_logits = lm_scores_lay_out(row, 1 + spare->n_logits, &out->n_tokens);
        spare->n_logits -= out->n_logits > 1 ? out->n_logits - 1 : 0;
        return;
    }
    if (lm_results_are_pending(t)) {
        lm_results_lay_out(m, row, 1 + spare->n_logits, spare->n_hidden, out);
        spare->n_logits -= out->n_logits > 1 ? out->n_logits - 1 : 0;
        spare->n_hidden += out->n_hidden;
        return;
    }
    if (is_last)
        t->n_draft_tokens = (uint32_t)draft(m, row, spare);
    out->n_tokens = row->n_scheduled + t->n_draft_tokens;
    out->n_logits = is_last ? 1 + t->n_draft_tokens : 0;
}

/* Lets the device draw the row's tokens, if it can draw as the sampler would. */
static void plan_draws(struct lm *m, struct row *row, size_t first_logits,
                       struct transformer_row *out)
{
    const struct lm_turn *t = row->turn;
    const uint32_t position = (uint32_t)agent_turn_of(row)->reply.n_tokens;

    if (m->draws == NULL || lm_is_scoring(t) || lm_results_are_pending(t) || out->n_logits == 0 ||
        t->matcher != NULL || t->reasoning.phase != REASONING_IS_OVER)
        return;
    for (uint32_t i = 0; i < out->n_logits; i++)
        if (!sampler_plan(t->sampler, m->n_vocab, position + i, &m->draws[first_logits + i]))
            return;
    out->draws = m->draws + first_logits;
    out->drawn = m->drawn + first_logits;
}

static bool is_reading(const struct row *row)
{
    const struct lm_turn *t = row->turn;

    return lm_is_scoring(t) || lm_results_are_pending(t) ||
           lm_step_clone_of(row)->pages.kv.n_tokens + 1 < t->n_ids;
}

/* What a draft token costs, see draft_cost_slope. Unless SPECULATE_ON, no draft tokens are computed
 * in a step that reads a prompt, nor in the step after one: the batcher fits prefill chunks to the
 * time of decode rows, which it measures in such steps. */
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

/* Lays the rows out for the model. *ret_n: positions; *ret_pure: all of them give logits. */
static void lm_step_lay_out(struct lm *m, struct row *const *rows, size_t n, size_t *ret_n,
                            bool *ret_pure)
{
    size_t n_granted = 0, n_logits = 0, n_positions = 0;
    struct spare spare = {.n_logits = m->max_logits - n};

    for (size_t i = 0; i < n; i++)
        n_granted += rows[i]->n_scheduled;
    spare.n_positions = m->max_tokens - lm_step_min_size(n_granted, m->max_tokens);
    if (lm_states_are_kept(&m->cache.states))
        spare.n_positions = lm_step_min_size(spare.n_positions, LM_MOST_STATE_DRAFTS);
    spare.load = (struct draft_load){(double)n_granted, (double)n_granted};
    spare.slope = draft_slope(m, rows, n);
    for (size_t i = 0; i < n; i++) {
        const struct lm_clone *c = lm_step_clone_of(rows[i]);
        struct lm_turn *t = rows[i]->turn;

        m->rows[i] = (struct transformer_row){
            .ids = c->ids + c->pages.kv.n_tokens,
            .pos = c->pages.kv.n_tokens,
            .pages = c->pages.kv.pages,
            .logits = m->logits + n_logits * m->n_vocab,
        };
        lay_out_row(m, rows[i], &spare, &m->rows[i]);
        lm_snapshots_lay_out(m, c, t, &m->rows[i]);
        plan_draws(m, rows[i], n_logits, &m->rows[i]);
        n_logits += m->rows[i].n_logits;
        n_positions += m->rows[i].n_tokens;
        rows[i]->extra = t->n_draft_tokens;
    }
    *ret_n = n_positions;
    *ret_pure = n_positions == n_logits;
}

static bool has_host_pages(const struct kv_copy *copies, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (copies[i].way != KV_COPY)
            return true;
    return false;
}

/* Opens the device again without pages; the host has the conversations' ids. Fast math is off from
 * then on, because the vendor's library may have caused the failure, or may not work after a reset.
 */
static enum status restart(struct lm *m, struct error *err)
{
    enum status rc;

    m->backend_config.fast_math = false;
    rc = transformer_restart(m->transformer, &m->backend_config, err);
    m->is_down = rc != STATUS_OK;
    if (rc == STATUS_INTERNAL)
        m->base.lost = *err;
    return rc == STATUS_OK ? rc : error_prefix(err, "the device failed and is not ready again yet");
}

/* A device that failed is opened again at once, or, if that fails, at each step. */
static void notice_failure(struct lm *m, enum status rc)
{
    struct error again;

    if (rc == STATUS_INTERNAL && !m->is_down && restart(m, &again) == STATUS_PRECONDITION)
        m->is_down = false; /* the backend cannot restart it; each step reports its own failure */
    if (rc == STATUS_INTERNAL)
        m->n_losses++;
}

/* Carries out the copies, then computes the rows. If copies to or from the host's memory were lost,
 * it is unknown which page holds what, and all pages are invalidated. */
static enum status forward(struct lm *m, size_t n, struct error *err)
{
    const size_t n_copies = m->cache.n_copies;
    enum status rc = STATUS_OK;

    m->cache.n_copies = 0;
    if (m->is_down)
        rc = restart(m, err);
    if (rc == STATUS_OK)
        rc = transformer_forward(m->transformer, m->rows, n, m->cache.copies, n_copies, err);
    notice_failure(m, rc);
    if (rc != STATUS_OK && rc != STATUS_INTERNAL && has_host_pages(m->cache.copies, n_copies))
        m->n_losses++;
    return rc;
}

static void step_fail_row(struct row *row, const struct error *err)
{
    struct lm_turn *t = row->turn;

    t->n_computed = t->n_generated = 0;
    t->n_draft_tokens = t->n_verified = t->n_accepted = 0; /* none of them is in the reply */
    buf_clear(&t->piece);
    row->err = *err;
    row->outcome = ROW_FAILED;
}

/* Where the model has a state, moves that of each row on behind the row's accepted drafts. */
static void accept_drafts(struct lm *m, struct row *const *rows, size_t n)
{
    struct error err;
    enum status rc;

    for (size_t i = 0; i < n; i++) {
        const struct lm_turn *t = rows[i]->turn;

        m->rows[i].n_accepted = m->rows[i].n_drafts > 0 && t->n_sampled > 0 ? t->n_sampled - 1 : 0;
    }
    rc = transformer_accept(m->transformer, m->rows, n, &err);
    notice_failure(m, rc);
    for (size_t i = 0; rc != STATUS_OK && i < n; i++)
        step_fail_row(rows[i], &err);
}

void lm_batch_act(struct agent *a, struct row *const *rows, size_t n)
{
    struct lm *m = container_of(a, struct lm, base);
    uint64_t start_us = env_now_us(a->env);
    size_t n_positions;
    bool is_pure;
    struct error err;
    enum status rc;

    lm_step_lay_out(m, rows, n, &n_positions, &is_pure);
    rc = forward(m, n, &err);
    for (size_t i = 0; i < n; i++) {
        struct lm_turn *t = rows[i]->turn;

        t->n_computed = 0;
        if (rc != STATUS_OK) {
            step_fail_row(rows[i], &err);
            continue;
        }
        rows[i]->outcome = ROW_MORE;
        if (take_logits(m, rows[i], &m->rows[i]) != STATUS_OK)
            rows[i]->outcome = ROW_FAILED;
        else if (t->finish != FINISH_NONE)
            rows[i]->outcome = ROW_DONE;
    }
    if (rc == STATUS_OK)
        accept_drafts(m, rows, n);
    if (m->is_reading && rc == STATUS_OK && n_positions >= LEAST_READ) {
        (void)atomic_fetch_add(&m->read_us, env_now_us(a->env) - start_us);
        (void)atomic_fetch_add(&m->n_read_tokens, n_positions);
    }
    if (is_pure && rc == STATUS_OK)
        draft_cost_learn(&m->cost, n_positions, env_now_us(a->env) - start_us);
}

static const struct top_logprob *keep_top(struct agent_turn *turn, const struct sampled *s)
{
    struct top_logprob *top;

    if (s->n_top == 0)
        return NULL;
    top = arena_alloc(turn->arena, s->n_top, sizeof(*top));
    if (top != NULL)
        memcpy(top, s->top, s->n_top * sizeof(*top));
    return top;
}

/* Appends the tokens of the step to the reply. */
static void turn_keep_generated(struct agent_turn *turn)
{
    struct reply *r = &turn->reply;
    struct lm_turn *t = turn->row.turn;
    uint32_t text_start = (uint32_t)r->text.len;

    if (buf_append(&r->text, t->piece.data, t->piece.len) != STATUS_OK && t->piece.len != 0) {
        if (turn->row.outcome != ROW_FAILED && r->text.is_full)
            (void)error_because(&turn->row.err, STATUS_RANGE, REASON_REPLY_TOO_LONG, NULL,
                                "the reply's text is longer than %zu bytes", r->text.limit_bytes);
        else if (turn->row.outcome != ROW_FAILED)
            (void)error_no_memory(&turn->row.err, t->piece.len, "a reply's text");
        turn->row.outcome = ROW_FAILED;
        t->n_generated = 0; /* the turn is dropped */
    }
    for (uint32_t i = 0; i < t->n_generated; i++) {
        const struct sampled *s = &t->generated[i].token;
        const struct top_logprob *top = keep_top(turn, s);

        r->tokens[r->n_tokens++] = (struct reply_token){
            .id = s->id,
            .logprob = s->logprob,
            .top = top,
            .n_top = top != NULL ? s->n_top : 0,
            .text_end = text_start + t->generated[i].piece_end,
        };
    }
    t->n_generated = 0;
    buf_clear(&t->piece);
    r->finish = t->finish;
}

static void learn_acceptance(struct lm *m, struct lm_clone *c, struct lm_turn *t)
{
    for (uint32_t i = 0; i < t->n_verified && t->n_match != 0; i++)
        draft_acceptance_learn(&c->acceptance, t->n_match, i < t->n_accepted);
    m->n_drafted += t->n_draft_tokens;
    m->n_accepted += lm_step_min_size(t->n_accepted, t->n_draft_tokens);
    t->n_verified = t->n_accepted = t->n_draft_tokens = 0;
}

void lm_stepped(struct agent *a, struct row *row)
{
    struct lm *m = container_of(a, struct lm, base);
    struct agent_turn *turn = agent_turn_of(row);
    struct reply *r = &turn->reply;
    struct lm_clone *c = lm_step_clone_of(row);
    struct lm_turn *t = row->turn;
    uint32_t n_before;

    lm_notice_losses(m);
    if (m->cache.n_copies == 0) /* none is queued for the next step */
        lm_disk_stepped(&m->cache.disk);
    n_before = c->pages.kv.n_tokens;
    if (t->n_computed == 0 && t->copy.from >= 0) /* the step failed, so its copies failed */
        lm_clone_pages_cut(&c->pages, &m->cache, n_before / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
    n_before = c->pages.kv.n_tokens;
    if (t->n_computed > 0) { /* all pages before it are filled */
        lm_cache_used(&m->cache, &c->pages, lm_step_min_size(t->n_in_memory, n_before));
        t->n_in_memory = 0;
    }
    c->pages.kv.n_tokens += t->n_computed;
    t->n_computed = 0;
    kv_seq_cut(m->cache.pages, &c->pages.kv,
               c->pages.kv.n_tokens); /* releases the pages of rejected draft tokens */
    lm_cache_publish(&m->cache, &c->pages, c->ids, n_before);
    lm_disk_write(&m->cache.disk);
    lm_snapshots_stepped(m, c, t, n_before);
    if (r->n_prefilled < t->n_prompt && r->n_prefilled < c->pages.kv.n_tokens)
        r->n_prefilled = c->pages.kv.n_tokens < t->n_prompt ? c->pages.kv.n_tokens : t->n_prompt;
    learn_acceptance(m, c, t);
    if (t->n_generated != 0)
        turn_keep_generated(turn);
    if (lm_is_scoring(t) && row->outcome != ROW_FAILED)
        lm_scores_stepped(m, turn);
    if (row->outcome != ROW_FAILED)
        lm_results_stepped(m, turn);
}
