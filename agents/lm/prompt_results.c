/* What a turn wants of its prompt's own positions, beside or instead of a reply: the
 * log-probability of each token given those before it, or an embedding, which is the mean of the
 * positions' hidden states or the last one. Results are taken in the order of positions, so they
 * do not depend on how the prompt is cut into steps, and a position that is computed again after a
 * preemption is not taken twice. Pages of other clones are adopted only where their positions'
 * results are not wanted, or known: log-probabilities are shared by pages, too. */
#include <assert.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "agents/lm/sampling/logits.h"
#include "agents/lm/sampling/tops.h"
#include "agents/lm/sampling/unused.h"
#include "compute/encoder/head.h"

static struct lm_clone *lm_results_clone_of(const struct row *row)
{
    return container_of((struct clone *)row->clone, struct lm_clone, base);
}

static enum status open_embedding(struct lm_results *r, const struct lm *m,
                                  const struct observation *seen, uint32_t n_prompt,
                                  struct arena *arena, struct error *err)
{
    r->width = transformer_shape(m->transformer)->width;
    r->kind = LM_RESULTS_EMBEDDING;
    r->n_wanted = n_prompt;
    r->n_embedding = seen->pooling == POOLING_RANK ? 1 : r->width;
    r->n_taken = seen->pooling != POOLING_MEAN ? n_prompt - 1 : 0;
    r->n_pooled = n_prompt - r->n_taken;
    r->sum = arena_alloc(arena, r->width, sizeof(*r->sum));
    r->embedding = arena_alloc(arena, r->width, sizeof(*r->embedding)); /* n_embedding are left */
    if (r->sum == NULL || r->embedding == NULL)
        return error_no_memory(err, r->width * (sizeof(*r->sum) + sizeof(*r->embedding)),
                               "an embedding");
    memset(r->sum, 0, r->width * sizeof(*r->sum));
    return STATUS_OK;
}

static enum status open_logprobs(struct lm_results *r, const struct observation *seen,
                                 const int32_t *ids, uint32_t n_prompt, struct arena *arena,
                                 struct error *err)
{
    const size_t n_top = seen->n_prompt_tops;
    struct top_logprob *tops = NULL;

    r->kind = LM_RESULTS_LOGPROBS;
    r->n_wanted = n_prompt - 1; /* the first token has no log-probability */
    r->tokens = arena_alloc(arena, n_prompt, sizeof(*r->tokens));
    if (n_top > 0)
        tops = arena_alloc(arena, n_prompt * n_top, sizeof(*tops));
    if (r->tokens == NULL || (n_top > 0 && tops == NULL))
        return error_no_memory(err, n_prompt * (sizeof(*r->tokens) + n_top * sizeof(*tops)),
                               "a prompt's log-probabilities");
    for (size_t i = 0; i < n_prompt; i++)
        r->tokens[i] = (struct prompt_token){.id = ids[i], .top = tops + i * n_top};
    return STATUS_OK;
}

enum status lm_results_open(struct lm_results *out, const struct lm *m, struct agent_turn *turn,
                            const int32_t *ids, uint32_t n_prompt, struct error *err)
{
    const struct observation *seen = &turn->seen;
    struct lm_results r = {.no_reply = seen->no_reply, .n_tops = seen->n_prompt_tops};
    enum status rc = STATUS_OK;

    assert(seen->pooling == POOLING_NONE || seen->no_reply);
    assert(seen->n_scored == 0 || (seen->pooling == POOLING_NONE && !seen->want_prompt_logprobs));
    if (seen->pooling != POOLING_NONE)
        rc = open_embedding(&r, m, seen, n_prompt, turn->arena, err);
    else if (seen->want_prompt_logprobs)
        rc = open_logprobs(&r, seen, ids, n_prompt, turn->arena, err);
    if (rc == STATUS_OK)
        *out = r;
    return rc;
}

bool lm_results_are_pending(const struct lm_turn *t)
{
    return t->results.n_taken < t->results.n_wanted;
}

uint32_t lm_results_n_ids(const struct lm_results *r, uint32_t n_prompt)
{
    /* If no reply follows, the log-probabilities at the last position are not needed. */
    return r->kind == LM_RESULTS_LOGPROBS && r->no_reply && n_prompt > 1 ? n_prompt - 1 : n_prompt;
}

void lm_results_lay_out(struct lm *m, const struct row *row, size_t n_room, size_t n_hidden_before,
                        struct transformer_row *out)
{
    const struct lm_turn *t = row->turn;
    const struct lm_results *r = &t->results;
    size_t from = lm_results_clone_of(row)->pages.kv.n_tokens, end = from + row->n_scheduled;
    size_t n;

    assert(from <= r->n_taken && n_room > 0);
    if (r->kind == LM_RESULTS_LOGPROBS && end > r->n_taken + n_room)
        end = r->n_taken + n_room;
    n = end > r->n_taken ? end - r->n_taken : 0;
    out->n_tokens = end - from;
    out->n_logits = r->kind == LM_RESULTS_LOGPROBS ? n : 0;
    out->n_hidden = r->kind == LM_RESULTS_EMBEDDING ? n : 0;
    out->hidden = m->hidden + n_hidden_before * transformer_shape(m->transformer)->width;
}

static void add_hidden(struct lm_results *r, const float *hidden, size_t n)
{
    for (size_t i = 0; i < n; i++, hidden += r->width)
        for (size_t k = 0; k < r->width; k++)
            r->sum[k] += (double)hidden[k];
    r->n_taken += (uint32_t)n;
}

static enum status take_logprob(struct lm *m, struct lm_results *r, float *logits,
                                struct error *err)
{
    struct prompt_token *token = &r->tokens[r->n_taken + 1];
    struct top_logprob *top = (struct top_logprob *)token->top; /* open_logprobs allocated it */
    const float own = logits[token->id];
    const struct logit_peak peak = logits_peak(m->kernels, logits, m->n_vocab);
    double log_sum;

    if (!peak.are_finite)
        return error_set(err, STATUS_INTERNAL, "the model gave logits that are not finite");
    log_sum = logits_log_sum(m->kernels, logits, m->n_vocab, peak.top);
    token->logprob = (float)((double)own - log_sum);
    if (unused_any(m->vocab, m->n_vocab))
        unused_ban(m->vocab, logits, m->n_vocab);
    token->n_top = (uint32_t)tops_take(m->kernels, logits, m->n_vocab, log_sum, top, r->n_tops);
    token->rank = 1;
    for (size_t i = 0; i < m->n_vocab; i++)
        token->rank += logits[i] > own;
    r->n_taken++;
    return STATUS_OK;
}

/* The last state becomes its relevance. */
static void rank_results(struct lm *m, struct lm_results *r)
{
    float scores[2];

    assert(head_n_out(m->rank) <= 2);
    head_run(m->rank, r->embedding, scores);
    r->embedding[0] = head_relevance(scores, head_n_out(m->rank));
}

enum status lm_results_take(struct lm *m, struct row *row, struct transformer_row *computed)
{
    struct lm_turn *t = row->turn;
    struct lm_results *r = &t->results;
    enum status rc = STATUS_OK;

    add_hidden(r, computed->hidden, computed->n_hidden);
    while (rc == STATUS_OK && computed->n_logits > 0 && r->n_taken < r->n_wanted) {
        rc = take_logprob(m, r, computed->logits, &row->err);
        computed->logits += m->n_vocab;
        computed->n_logits--;
    }
    if (rc != STATUS_OK || !r->no_reply || r->n_taken < r->n_wanted)
        return rc;
    for (size_t i = 0; i < r->width; i++)
        r->embedding[i] = (float)(r->sum[i] / r->n_pooled);
    if (r->kind == LM_RESULTS_EMBEDDING && r->n_embedding != r->width)
        rank_results(m, r);
    t->finish = r->kind == LM_RESULTS_EMBEDDING ? FINISH_STOP : FINISH_LENGTH;
    computed->n_logits = 0;
    return rc;
}

/* Copies a page's tokens, but for alternatives that are not wanted. */
static void take_known(struct lm_results *r, const struct prompt_token *from, uint32_t first)
{
    for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++) {
        struct prompt_token *to = &r->tokens[first + i];
        struct top_logprob *top = (struct top_logprob *)to->top; /* open_logprobs allocated it */

        *to = from[i];
        to->n_top = from[i].n_top < r->n_tops ? from[i].n_top : r->n_tops;
        to->top = top;
        if (to->n_top > 0)
            memcpy(top, from[i].top, to->n_top * sizeof(*top));
    }
}

/* A page holds tokens, and a token is known once the position before it is taken. */
void lm_results_share(struct lm *m, const struct lm_clone *c, struct lm_results *r)
{
    if (r->kind != LM_RESULTS_LOGPROBS || m->known == NULL)
        return;
    while ((r->n_pages + 1) * KV_PAGE_TOKENS <= r->n_wanted + 1) {
        const uint32_t first = r->n_pages * KV_PAGE_TOKENS, last = first + KV_PAGE_TOKENS - 1;
        const struct digest name = known_logprobs_name(m->known, first == 0 ? NULL : &r->page,
                                                       c->pages.salt, c->ids + first);
        const struct prompt_token *known = NULL;

        if (r->n_taken >= last) {
            known_logprobs_put(m->known, &name, r->tokens + first, r->n_tops);
        } else {
            known = known_logprobs_find(m->known, &name, r->n_tops);
            if (known == NULL)
                return;
            take_known(r, known, first);
            r->n_taken = last < r->n_wanted
                             ? last
                             : r->n_wanted - 1; /* a row must compute at least one token */
        }
        if (r->n_taken < last)
            return;
        r->page = name;
        r->n_pages++;
    }
}

void lm_results_stepped(struct lm *m, struct agent_turn *turn)
{
    struct lm_turn *t = turn->row.turn;
    struct lm_results *r = &t->results;
    struct reply *reply = &turn->reply;

    lm_results_share(m, lm_results_clone_of(&turn->row), r);

    if (r->kind == LM_RESULTS_NONE || lm_results_are_pending(t) || reply->prompt != NULL)
        return;
    reply->embedding = r->embedding;
    reply->n_embedding = r->n_embedding;
    reply->prompt = r->tokens;
    reply->n_prompt_tokens = r->tokens != NULL ? t->n_prompt : 0;
    if (r->no_reply)
        reply->finish = t->finish;
}
