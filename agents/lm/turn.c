/* A turn of the language model. observe lays the turn's ids behind the clone's; each step computes
 * as many of those that have no keys and values yet as it was granted; when none is left, the last
 * one's logits give the next token. That one rule is prefill, chunked prefill, decode, and the
 * recomputing of a conversation whose pages were taken. */
#include <assert.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "base/alloc.h"

enum {
    MIN_CHUNK = 16,             /* tokens of a prompt that are worth a place in a step */
    MAX_REPLY_BYTES = 16 << 20, /* of text: far above what a context can hold */
};

static struct lm_clone *clone_of(const struct row *row)
{
    return container_of((struct clone *)row->clone, struct lm_clone, base);
}

static struct lm *lm_of(const struct lm_clone *c)
{
    return container_of(c->base.agent, struct lm, base);
}

/* The turn's prompt: what opens a conversation if it is its first turn, the messages, and the start
 * of the reply. A system message that comes first stands in for the model's own system prompt. */
static enum status render(const struct lm_clone *c, const struct observation *seen,
                          struct lm_system **ret_system, struct buf *ids, struct error *err)
{
    struct lm *m = lm_of(c);
    const struct message *first = &seen->messages[0];
    size_t i = 0;
    enum status rc = STATUS_OK;

    *ret_system = NULL;
    if (c->n_ids == 0) {
        if (!c->has_system && first->role == ROLE_SYSTEM) {
            rc = lm_system_ref(ret_system, m, first->text, first->len, err);
            i = 1;
        } else {
            *ret_system = c->system;
            c->system->n_refs++;
        }
        if (rc == STATUS_OK &&
            buf_append(ids, (*ret_system)->ids, (*ret_system)->n_ids * sizeof(int32_t)) != 0)
            rc = error_no_memory(err, ids->len, "a prompt");
    }
    for (; rc == STATUS_OK && i < seen->n_messages; i++)
        rc = chat_template_message(m->template, &seen->messages[i], ids, NULL, err);
    if (rc == STATUS_OK)
        rc = chat_template_reply_start(m->template, ids, NULL, err);
    return rc;
}

static enum status open_turn(struct lm_turn *t, struct lm *m, struct agent_turn *turn,
                             const struct buf *ids, const struct lm_clone *c, struct error *err)
{
    const size_t n_new = ids->len / sizeof(int32_t);

    t->n_prompt = t->n_ids = (uint32_t)(c->n_ids + n_new);
    t->copy.from = -1;
    return sampler_open(&t->sampler, &turn->seen.sampling, m->vocab, turn->seen.turn, c->ids,
                        t->n_prompt, turn->arena, err);
}

/* Others may have computed what comes next, also while the row waited. */
static void find_pages(struct lm *m, struct agent_turn *turn)
{
    struct lm_clone *c = clone_of(&turn->row);
    struct reply *r = &turn->reply;
    const struct lm_turn *t = turn->row.turn;
    uint32_t n_before = c->kv.n_tokens, n_found;

    lm_pages_find(m, c, t->n_ids);
    if (n_before < r->n_prefilled)
        n_before = r->n_prefilled; /* found again, as a row that was preempted does */
    if (c->kv.n_tokens <= n_before || n_before >= t->n_prompt)
        return;
    n_found = (c->kv.n_tokens < t->n_prompt ? c->kv.n_tokens : t->n_prompt) - n_before;
    m->n_found += n_found;
    r->n_cached += n_found;
    r->n_prefilled = n_before + n_found;
}

enum status lm_observe(struct clone *base, struct agent_turn *turn, struct error *err)
{
    struct lm_clone *c = container_of(base, struct lm_clone, base);
    struct lm *m = lm_of(c);
    struct lm_system *system = NULL;
    struct lm_turn *t;
    struct buf ids;
    size_t n_all, n_bytes = 0;
    enum status rc;

    buf_init(&ids, SIZE_MAX);
    rc = sampling_check(&turn->seen.sampling, m->n_vocab, err);
    for (size_t i = 0; i < turn->seen.n_messages; i++)
        n_bytes += turn->seen.messages[i].len;
    if (rc == STATUS_OK)
        rc = lm_check_size(m, c->n_ids, n_bytes, err);
    if (rc == STATUS_OK)
        rc = render(c, &turn->seen, &system, &ids, err);
    if (rc != STATUS_OK)
        goto out;
    n_all = c->n_ids + ids.len / sizeof(int32_t);
    if (n_all >= m->context) {
        rc = error_set(err, STATUS_RANGE,
                       "the prompt has %zu tokens with all before it, the context holds %zu: "
                       "rewind, open a new conversation, or say less",
                       n_all, m->context);
        goto out;
    }
    rc = lm_clone_grow(c, n_all + 1, err);
    if (rc != STATUS_OK)
        goto out;
    memcpy(c->ids + c->n_ids, ids.data, ids.len);
    t = arena_alloc(turn->arena, 1, sizeof *t);
    if (t == NULL) {
        rc = error_no_memory(err, sizeof *t, "a turn");
        goto out;
    }
    rc = open_turn(t, m, turn, &ids, c, err);
    if (rc != STATUS_OK)
        goto out;
    writer_init(&t->writer, m->vocab, &turn->seen.sampling, MAX_REPLY_BYTES);
    buf_init(&t->piece, MAX_REPLY_BYTES);
    if (system != NULL) { /* from here nothing fails */
        struct lm_system *old = c->system;

        c->system = system;
        system = old;
    }
    lm_clone_busy(c);
    turn->row.clone = base;
    turn->row.turn = t;
    turn->reply.n_prompt = t->n_prompt;
    turn->reply.n_cached = c->kv.n_tokens;
    turn->reply.n_prefilled = c->kv.n_tokens;
    turn->reply.finish = FINISH_NONE;
    m->n_looked_up += t->n_prompt - c->kv.n_tokens;
    find_pages(m, turn);
    if (c->is_evicted && c->kv.n_tokens + KV_PAGE_TOKENS <= c->n_ids) {
        m->n_recomputes++;
        if (m->base.on_event != NULL)
            m->base.on_event(m->base.on_event_arg, base, CLONE_RECOMPUTED,
                             "its KV pages were evicted");
    }
    c->is_evicted = false;
out:
    lm_system_unref(m, system);
    buf_deinit(&ids);
    return rc;
}

size_t lm_cost(const struct agent *a, const struct row *row)
{
    const struct lm_turn *t = row->turn;

    (void)a;
    return t->n_ids - clone_of(row)->kv.n_tokens;
}

size_t lm_min_grant(const struct agent *a, const struct row *row)
{
    size_t cost = lm_cost(a, row);

    return cost < MIN_CHUNK ? cost : MIN_CHUNK;
}

/* The reply's next token will find its place without an allocation on the compute thread. */
static enum status reserve_host(struct lm_clone *c, struct agent_turn *turn, struct error *err)
{
    struct lm_turn *t = turn->row.turn;
    struct reply *r = &turn->reply;
    struct reply_token *tokens;
    size_t cap;

    if (r->n_tokens == r->cap_tokens) {
        cap = r->cap_tokens == 0 ? 16 : 2 * r->cap_tokens;
        tokens = arena_alloc(turn->arena, cap, sizeof *tokens);
        if (tokens == NULL)
            return error_no_memory(err, cap * sizeof *tokens, "a reply's tokens");
        if (r->n_tokens != 0)
            memcpy(tokens, r->tokens, r->n_tokens * sizeof *tokens);
        r->tokens = tokens;
        r->cap_tokens = cap;
    }
    return lm_clone_grow(c, (size_t)t->n_ids + 1, err);
}

enum status lm_reserve(struct agent *a, struct row *row, struct error *err)
{
    struct lm *m = container_of(a, struct lm, base);
    struct lm_clone *c = clone_of(row);
    struct lm_turn *t = row->turn;
    enum status rc = reserve_host(c, agent_turn_of(row), err);

    if (rc != STATUS_OK)
        return err->status = STATUS_UNAVAILABLE; /* another row's pages would not help */
    find_pages(m, agent_turn_of(row));
    if (row->grant > lm_cost(a, row))
        row->grant = lm_cost(a, row);
    do
        rc = kv_seq_reserve(m->pages, &c->kv, row->grant, &t->copy, err);
    while (rc == STATUS_EXHAUSTED && lm_evict_one(m));
    return rc;
}

void lm_release(struct agent *a, struct row *row)
{
    struct lm *m = container_of(a, struct lm, base);
    struct lm_clone *c = clone_of(row);

    kv_seq_free(m->pages, &c->kv);
    m->n_recomputes++;
    if (a->on_event != NULL)
        a->on_event(a->on_event_arg, &c->base, CLONE_EVICTED, "preempted: out of KV pages");
}

static enum finish after_token(const struct lm *m, const struct agent_turn *turn,
                               const struct lm_turn *t, bool is_stopped)
{
    const struct sampling *s = &turn->seen.sampling;
    size_t n_reply = turn->reply.n_tokens + 1; /* with the one that stepped will add */

    if (is_stopped || (!s->ignore_eos && vocab_is_end(m->vocab, t->token.id)))
        return FINISH_STOP;
    if ((s->max_tokens != 0 && n_reply >= s->max_tokens) || t->n_ids >= m->context)
        return FINISH_LENGTH;
    return FINISH_NONE;
}

/* The row's prompt is through, or its last token: chooses the next one and makes it text. */
static enum status add_token(struct lm *m, struct row *row, float *logits)
{
    struct agent_turn *turn = agent_turn_of(row);
    struct lm_clone *c = clone_of(row);
    struct lm_turn *t = row->turn;
    bool is_stopped = false;
    enum status rc;

    rc = sampler_next(t->sampler, logits, m->n_vocab, (uint32_t)turn->reply.n_tokens, &t->token,
                      &row->err);
    if (rc != STATUS_OK)
        return rc;
    sampler_accept(t->sampler, t->token.id);
    t->has_token = true;
    c->ids[t->n_ids++] = t->token.id;
    if (!vocab_is_control(m->vocab, t->token.id)) {
        rc = writer_add(&t->writer, t->token.id, &t->piece, &is_stopped, &row->err);
        if (rc != STATUS_OK)
            return rc;
    }
    t->finish = after_token(m, turn, t, is_stopped);
    if (t->finish != FINISH_NONE && !is_stopped)
        return writer_end(&t->writer, &t->piece, &row->err);
    return STATUS_OK;
}

void lm_batch_act(struct agent *a, struct row *const *rows, size_t n)
{
    struct lm *m = container_of(a, struct lm, base);
    size_t n_copies = 0, n_logits = 0;
    struct error err;
    enum status rc;

    for (size_t i = 0; i < n; i++) {
        const struct lm_clone *c = clone_of(rows[i]);
        struct lm_turn *t = rows[i]->turn;
        bool is_last = c->kv.n_tokens + rows[i]->grant == t->n_ids;

        m->rows[i] = (struct llama_row){
            .ids = c->ids + c->kv.n_tokens,
            .n_tokens = rows[i]->grant,
            .pos = c->kv.n_tokens,
            .pages = c->kv.pages,
            .n_logits = is_last ? 1 : 0,
            .logits = m->logits + (is_last ? n_logits * m->n_vocab : 0),
        };
        n_logits += is_last;
        if (t->copy.from >= 0)
            m->copies[n_copies++] = t->copy;
    }
    rc = llama_forward(m->llama, m->rows, n, m->copies, n_copies, &err);
    for (size_t i = 0; i < n; i++) {
        struct lm_turn *t = rows[i]->turn;

        t->n_computed = 0;
        if (rc != STATUS_OK) {
            rows[i]->err = err;
            rows[i]->outcome = ROW_FAILED;
            continue;
        }
        t->n_computed = (uint32_t)rows[i]->grant;
        rows[i]->outcome = ROW_MORE;
        if (m->rows[i].n_logits == 0)
            continue;
        if (add_token(m, rows[i], m->rows[i].logits) != STATUS_OK)
            rows[i]->outcome = ROW_FAILED;
        else if (t->finish != FINISH_NONE)
            rows[i]->outcome = ROW_DONE;
    }
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

void lm_stepped(struct agent *a, struct row *row)
{
    struct lm *m = container_of(a, struct lm, base);
    struct agent_turn *turn = agent_turn_of(row);
    struct reply *r = &turn->reply;
    struct lm_clone *c = clone_of(row);
    struct lm_turn *t = row->turn;
    uint32_t n_before = c->kv.n_tokens;

    if (t->n_computed == 0 && t->copy.from >= 0) /* the step failed, and its copies with it */
        kv_seq_cut(m->pages, &c->kv, n_before / KV_PAGE_TOKENS * KV_PAGE_TOKENS);
    c->kv.n_tokens += t->n_computed;
    t->n_computed = 0;
    lm_pages_learn(m, c, n_before);
    if (r->n_prefilled < t->n_prompt && r->n_prefilled < c->kv.n_tokens)
        r->n_prefilled = c->kv.n_tokens < t->n_prompt ? c->kv.n_tokens : t->n_prompt;
    if (!t->has_token)
        return;
    t->has_token = false;
    r->tokens[r->n_tokens] = (struct reply_token){.id = t->token.id, .logprob = t->token.logprob};
    r->tokens[r->n_tokens].top = keep_top(turn, &t->token);
    r->tokens[r->n_tokens].n_top = r->tokens[r->n_tokens].top != NULL ? t->token.n_top : 0;
    if (buf_append(&r->text, t->piece.data, t->piece.len) != STATUS_OK && t->piece.len != 0 &&
        row->outcome != ROW_FAILED) {
        (void)error_no_memory(&row->err, t->piece.len, "a reply's text");
        row->outcome = ROW_FAILED;
    }
    buf_clear(&t->piece);
    r->tokens[r->n_tokens++].text_end = (uint32_t)r->text.len;
    r->finish = t->finish;
}

static void close_turn(struct agent_turn *turn)
{
    struct lm_turn *t = turn->row.turn;

    writer_deinit(&t->writer);
    buf_deinit(&t->piece);
    turn->row.turn = NULL;
}

static enum status push_turn_end(struct lm_clone *c, struct error *err)
{
    if (c->n_turns == c->cap_turns) {
        uint32_t cap = c->cap_turns == 0 ? 4 : 2 * c->cap_turns;
        uint32_t *ends = try_realloc(c->turn_ends, cap, sizeof *ends);

        if (ends == NULL)
            return error_no_memory(err, cap * sizeof *ends, "a conversation's turns");
        c->turn_ends = ends;
        c->cap_turns = cap;
    }
    return STATUS_OK;
}

/* A reply that was cut short shows what the writer still holds. */
static void show_held(struct lm_turn *t, struct reply *r)
{
    struct error ignored;
    enum status rc = writer_end(&t->writer, &r->text, &ignored);

    (void)rc; /* without memory the text lacks it; the ids are what the conversation goes on with */
    if (r->n_tokens != 0)
        r->tokens[r->n_tokens - 1].text_end = (uint32_t)r->text.len;
}

/* The reply is part of the conversation now, also one that was cut short: its text is shown as far
 * as it goes, and what the template puts behind a reply follows. */
void lm_self_observe(struct clone *base, struct agent_turn *turn)
{
    struct lm_clone *c = container_of(base, struct lm_clone, base);
    struct lm *m = lm_of(c);
    struct lm_turn *t = turn->row.turn;
    struct error ignored;
    struct buf ids;
    size_t n_end;

    if (turn->reply.finish == FINISH_CANCELLED || turn->reply.finish == FINISH_DEADLINE)
        show_held(t, &turn->reply);
    buf_init(&ids, SIZE_MAX);
    if (chat_template_reply_end(m->template, c->ids[t->n_ids - 1], &ids, NULL, &ignored) !=
            STATUS_OK ||
        lm_clone_grow(c, t->n_ids + ids.len / sizeof(int32_t), &ignored) != STATUS_OK ||
        push_turn_end(c, &ignored) != STATUS_OK) {
        buf_deinit(&ids);
        lm_drop(base, turn);
        turn->reply.finish = FINISH_ERROR;
        return;
    }
    n_end = ids.len / sizeof(int32_t);
    if (n_end != 0)
        memcpy(c->ids + t->n_ids, ids.data, ids.len);
    buf_deinit(&ids);
    c->n_ids = t->n_ids + (uint32_t)n_end;
    c->turn_ends[c->n_turns++] = c->n_ids;
    close_turn(turn);
    lm_clone_idle(c);
}

void lm_drop(struct clone *base, struct agent_turn *turn)
{
    struct lm_clone *c = container_of(base, struct lm_clone, base);

    if (c->kv.n_tokens > c->n_ids)
        kv_seq_cut(lm_of(c)->pages, &c->kv, c->n_ids);
    close_turn(turn);
    lm_clone_idle(c);
}
