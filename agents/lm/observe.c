/* The start and end of a language model's turn: observe appends the turn's ids to the clone's,
 * steps (step.c) append the reply's, self_observe makes both part of the conversation. */
#include <assert.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "base/alloc.h"

enum {
    MAX_REPLY_BYTES = 16 << 20, /* of text: far more than a context can hold */
};

static struct lm_clone *lm_observe_clone_of(const struct row *row)
{
    return container_of((struct clone *)row->clone, struct lm_clone, base);
}

static struct lm *lm_observe_lm_of(const struct lm_clone *c)
{
    return container_of(c->base.agent, struct lm, base);
}

/* Puts bos before the ids behind the first n bytes, unless they begin with one. */
static enum status raw_add_bos(const struct lm *m, size_t n, struct buf *ids, struct error *err)
{
    const int32_t bos = vocab_bos(m->vocab);
    int32_t first = -1;

    if (ids->len > n)
        memcpy(&first, ids->data + n, sizeof(first));
    if (bos < 0 || first == bos)
        return STATUS_OK;
    if (buf_append(ids, (const char *)&bos, sizeof(bos)) != STATUS_OK)
        return error_no_memory(err, sizeof(bos), "a prompt");
    memmove(ids->data + n + sizeof(bos), ids->data + n, ids->len - n - sizeof(bos));
    memcpy(ids->data + n, &bos, sizeof(bos));
    return STATUS_OK;
}

enum { GAP_BEFORE, GAP_BEHIND, GAP_TYPED, GAP_FILES };

static enum status raw_text(const struct lm *m, const char *text, size_t len, struct buf *ids,
                            struct error *err)
{
    return vocab_encode(m->vocab, text, len, ids, err);
}

/* A file's name, or what stands for one, behind the token of files; without such a token a line
 * that parts the texts. */
static enum status raw_file_name(const struct lm *m, const struct fill_in_tokens *tokens,
                                 const struct message *name, struct buf *ids, struct error *err)
{
    static const char parts[] = "\n\n--- snippet ---\n\n";
    enum status rc;

    if (tokens->file < 0)
        return name == NULL ? STATUS_OK : raw_text(m, parts, sizeof(parts) - 1, ids, err);
    rc = lm_append_ids(m, &tokens->file, 1, ids, err);
    if (rc == STATUS_OK)
        rc = name == NULL ? raw_text(m, "filename\n", 9, ids, err)
                          : raw_text(m, name->text, name->len, ids, err);
    return rc;
}

/* The files before the text with the gap, as llama-server puts them: the same model sees the same
 * prompt. Each name ends with a line feed. */
static enum status raw_files(const struct lm *m, const struct fill_in_tokens *tokens,
                             const struct message *files, size_t n, struct buf *ids,
                             struct error *err)
{
    enum status rc = STATUS_OK;

    if (tokens->repository >= 0) {
        rc = lm_append_ids(m, &tokens->repository, 1, ids, err);
        if (rc == STATUS_OK)
            rc = raw_text(m, "myproject\n", 10, ids, err);
    }
    for (size_t i = 0; rc == STATUS_OK && i + 1 < n; i += 2) {
        rc = raw_file_name(m, tokens, &files[i], ids, err);
        if (rc == STATUS_OK)
            rc = raw_text(m, files[i + 1].text, files[i + 1].len, ids, err);
    }
    return rc == STATUS_OK ? raw_file_name(m, tokens, NULL, ids, err) : rc;
}

/* The text before the gap and the text behind it, each behind its token. */
static enum status raw_fill_in(const struct lm *m, const struct raw_rules *rules,
                               const struct message *texts, size_t n, struct buf *ids,
                               struct error *err)
{
    struct fill_in_tokens tokens;
    enum status rc = STATUS_OK;

    if (!vocab_fill_in(m->vocab, &tokens))
        return error_because(err, STATUS_INVALID, REASON_MODEL_UNSUITABLE, "suffix",
                             "suffix is not supported: the model's vocabulary has no tokens for "
                             "filling in");
    assert(n >= 2);
    if (n > GAP_TYPED)
        rc = raw_files(m, &tokens, texts + GAP_FILES, n - GAP_FILES, ids, err);
    if (rc == STATUS_OK)
        rc = lm_append_ids(m, &tokens.prefix, 1, ids, err);
    if (rc == STATUS_OK)
        rc = raw_text(m, texts[GAP_BEFORE].text, texts[GAP_BEFORE].len, ids, err);
    if (rc == STATUS_OK && n > GAP_TYPED) {
        const struct text_span span = {texts[GAP_TYPED].len, rules->parses_control};

        rc = vocab_encode_spans(m->vocab, texts[GAP_TYPED].text, texts[GAP_TYPED].len, &span, 1,
                                true, ids, err);
    }
    if (rc == STATUS_OK)
        rc = lm_append_ids(m, &tokens.suffix, 1, ids, err);
    if (rc == STATUS_OK)
        rc = raw_text(m, texts[GAP_BEHIND].text, texts[GAP_BEHIND].len, ids, err);
    return rc == STATUS_OK ? lm_append_ids(m, &tokens.middle, 1, ids, err) : rc;
}

enum status lm_raw_texts(const struct lm *m, const struct raw_rules *rules,
                         const struct message *texts, size_t n, struct buf *ids, struct error *err)
{
    enum status rc = STATUS_OK;

    if (rules->fills_in)
        return raw_fill_in(m, rules, texts, n, ids, err);
    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        const struct text_span span = {texts[i].len, rules->parses_control};

        rc = vocab_encode_spans(m->vocab, texts[i].text, texts[i].len, &span, 1, true, ids, err);
    }
    return rc;
}

enum status lm_raw_prompt(const struct agent *a, const struct raw_rules *rules,
                          const struct message *texts, size_t n, struct buf *ids, struct error *err)
{
    const struct lm *m = container_of(a, const struct lm, base);
    const size_t len = ids->len;
    enum status rc = lm_raw_texts(m, rules, texts, n, ids, err);

    if (rc == STATUS_OK && !rules->adds_no_bos && vocab_adds_bos(m->vocab))
        rc = raw_add_bos(m, len, ids, err);
    return rc;
}

/* A raw prompt: bos if it is the clone's first text, the messages' text, and the raw ids. */
static enum status render_plain(const struct lm_clone *c, const struct observation *seen,
                                struct buf *ids, struct error *err)
{
    const struct lm *m = lm_observe_lm_of(c);
    const int32_t eos = vocab_eos(m->vocab);
    const size_t len = ids->len;
    enum status rc = lm_raw_texts(m, &seen->raw, seen->messages, seen->n_messages, ids, err);
    const bool is_empty = ids->len == len && seen->n_raw_ids == 0; /* the prompt is bos alone */

    if (rc == STATUS_OK && seen->pooling != POOLING_NONE && seen->n_messages > 0 &&
        vocab_adds_eos(
            m->vocab)) /* made for embeddings: its last token's state stands for a text */
        rc = lm_append_ids(m, &eos, eos >= 0, ids, err);
    if (rc == STATUS_OK)
        rc = lm_append_ids(m, seen->raw_ids, seen->n_raw_ids, ids, err);
    if (rc == STATUS_OK && c->n_ids == 0 && !seen->raw.adds_no_bos &&
        (is_empty || vocab_adds_bos(m->vocab)))
        rc = raw_add_bos(m, len, ids, err);
    if (rc == STATUS_OK && ids->len == len)
        rc = error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, "prompt",
                           "an empty text has no next token");
    return rc;
}

/* A query and a document. */
static enum status render_pair(const struct lm *m, const struct observation *seen, struct buf *ids,
                               struct error *err)
{
    const struct message *t = seen->messages;

    if (m->rank == NULL || seen->n_messages != 2)
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "model",
                             "the model has no head that ranks documents");
    return lm_rank_render(m, (struct text){t[0].text, t[0].len}, (struct text){t[1].text, t[1].len},
                          ids, err);
}

/* The whole conversation by a template that is rendered whole: *ret_n_kept of the clone's ids stay,
 * ids are what follows. */
static enum status render_whole(const struct lm_clone *c, const struct observation *seen,
                                struct arena *arena, uint32_t *ret_n_kept, struct buf *ids,
                                struct error *err)
{
    const struct lm *m = lm_observe_lm_of(c);
    const struct lm_history *h = &c->history;
    const size_t n = c->has_system + h->n + seen->n_messages;
    struct message *all = arena_alloc(arena, n, sizeof(*all));
    struct chat_input in = {.messages = all,
                            .n_messages = n,
                            .tools = seen->tool_use.tools,
                            .variables = seen->variables.json,
                            .wants_reply = true,
                            .now = c->opened_s,
                            .date = m->template == NULL ? NULL : chat_template_date(m->template)};
    size_t n_kept, at = 0;
    enum status rc;

    if (all == NULL)
        return error_no_memory(err, n * sizeof(*all), "a prompt");
    if (h->n_turns != c->n_turns)
        return error_set(err, STATUS_PRECONDITION,
                         "the conversation has raw prompts: it cannot go on with messages");
    if (c->has_system)
        all[at++] =
            (struct message){.role = ROLE_SYSTEM, .text = c->system->text, .len = c->system->len};
    if (h->n != 0)
        memcpy(all + at, h->messages, h->n * sizeof(*all));
    memcpy(all + at + h->n, seen->messages, seen->n_messages * sizeof(*all));
    rc = lm_fit_messages(&in.messages, &in.n_messages, m, all, arena, err);
    if (rc == STATUS_OK)
        rc = chat_prompter_render(m->prompter, &in, c->ids, c->n_ids, &n_kept, ids, err);
    if (rc == STATUS_OK)
        *ret_n_kept = (uint32_t)n_kept;
    return rc;
}

/* Whether the turn's prompt is the whole conversation, rendered anew. */
static bool turn_is_whole(const struct lm_clone *c, const struct observation *seen)
{
    const struct lm *m = lm_observe_lm_of(c);

    if (seen->is_raw_prompt)
        return false;
    return (m->prompter != NULL && c->is_whole) ||
           lm_needs_whole(m, seen->messages, seen->n_messages, seen->tool_use.tools,
                          seen->variables.json);
}

/* The turn's prompt: the system prompt if it is the first turn, the messages, and the start of the
 * reply. A first message that is a system message replaces the model's own system prompt. */
static enum status lm_observe_render(const struct lm_clone *c, const struct observation *seen,
                                     struct arena *arena, struct lm_system **ret_system,
                                     uint32_t *ret_n_kept, struct buf *ids, struct error *err)
{
    struct lm *m = lm_observe_lm_of(c);
    const struct message *messages, *first;
    size_t i = 0, n = seen->n_messages;
    enum status rc = STATUS_OK;

    *ret_system = NULL;
    *ret_n_kept = c->n_ids;
    if (seen->pooling == POOLING_RANK)
        return render_pair(m, seen, ids, err);
    if (seen->is_raw_prompt)
        return render_plain(c, seen, ids, err);
    if (turn_is_whole(c, seen))
        return render_whole(c, seen, arena, ret_n_kept, ids, err);
    rc = lm_fit_messages(&messages, &n, m, seen->messages, arena, err);
    if (rc != STATUS_OK)
        return rc;
    first = &messages[0];
    if (c->n_ids == 0) {
        if (!c->has_system && first->role == ROLE_SYSTEM) {
            rc = lm_system_ref(ret_system, &m->systems, first->text, first->len, err);
            i = 1;
        } else {
            *ret_system = c->system;
            c->system->n_refs++;
        }
        if (rc == STATUS_OK &&
            buf_append(ids, (*ret_system)->ids, (*ret_system)->n_ids * sizeof(int32_t)) != 0)
            rc = error_no_memory(err, ids->len, "a prompt");
    }
    for (; rc == STATUS_OK && i < n; i++)
        rc = chat_template_message(m->template, &messages[i], ids, NULL, err);
    if (rc == STATUS_OK)
        rc = chat_template_reply_start(m->template, ids, NULL, err);
    return rc;
}

static enum status open_turn(struct lm_turn *t, struct lm *m, struct agent_turn *turn,
                             size_t n_prompt, const struct lm_clone *c, struct error *err)
{
    t->n_prompt = t->n_ids = (uint32_t)n_prompt;
    t->copy.from = -1;
    return sampler_open(&t->sampler, &turn->seen.sampling, m->vocab, m->kernels, turn->seen.turn,
                        c->ids, t->n_prompt, turn->arena, err);
}

/* How many ids cached pages may cover, with the last one, which is computed in any case. */
static size_t lm_observe_n_known(const struct lm_turn *t)
{
    return lm_results_are_pending(t) ? t->results.n_taken + 1 : lm_scores_known(t);
}

/* Adopts published pages of the turn's ids; other clones may have computed them while the row
 * waited. */
static void lm_observe_find_pages(struct lm *m, struct agent_turn *turn, bool may_reload)
{
    struct lm_clone *c = lm_observe_clone_of(&turn->row);
    struct reply *r = &turn->reply;
    const struct lm_turn *t = turn->row.turn;
    const size_t n_known = lm_observe_n_known(t);
    uint32_t n_before = c->pages.kv.n_tokens, n_found;
    struct lm_found found = {0};

    if (n_before < r->n_prefilled)
        n_before = r->n_prefilled; /* a preempted row finds its own pages again */
    lm_cache_find(&m->cache, &c->pages, c->ids, n_known, may_reload, n_before, &found);
    if (may_reload)
        (void)lm_cache_read_ahead(&m->cache, &c->pages, c->ids, n_known, false);
    if (c->pages.kv.n_tokens <= n_before || n_before >= t->n_prompt)
        return;
    r->n_cached_host += found.n_host;
    r->n_cached_disk += found.n_disk;
    m->n_host_hits += found.n_host;
    m->n_disk_hits += found.n_disk;
    n_found = (c->pages.kv.n_tokens < t->n_prompt ? c->pages.kv.n_tokens : t->n_prompt) - n_before;
    m->n_prefix_hits += n_found;
    r->n_cached += n_found;
    r->n_prefilled = n_before + n_found;
}

void lm_turn_resume(struct lm *m, struct agent_turn *turn)
{
    struct lm_clone *c = lm_observe_clone_of(&turn->row);
    struct reply *r = &turn->reply;
    struct lm_turn *t = turn->row.turn;

    /* Pages were evicted while the turn waited. Nothing was computed, and prefix hits in these
     * pages do not count. */
    if (!t->has_begun && c->pages.kv.n_tokens < r->n_cached) {
        m->n_prefix_queries += r->n_cached - c->pages.kv.n_tokens;
        r->n_cached = r->n_prefilled = c->pages.kv.n_tokens;
        r->n_cached_host = r->n_cached_disk = 0;
    }
    lm_results_share(m, c, &t->results);
    lm_observe_find_pages(m, turn, true);
}

/* Keeps the ids behind the first n_kept, which the turn's prompt replaces. */
static enum status save_replaced(struct lm_turn *t, const struct lm_clone *c, uint32_t n_kept,
                                 struct arena *arena, struct error *err)
{
    t->n_replaced = c->n_ids - n_kept;
    if (t->n_replaced == 0)
        return STATUS_OK;
    t->replaced = arena_alloc(arena, t->n_replaced, sizeof(*t->replaced));
    if (t->replaced == NULL)
        return error_no_memory(err, t->n_replaced * sizeof(*t->replaced), "a turn");
    memcpy(t->replaced, c->ids + n_kept, t->n_replaced * sizeof(*t->replaced));
    return STATUS_OK;
}

/* Puts back what the turn's prompt replaced. */
static void restore_replaced(struct lm_clone *c, const struct lm_turn *t)
{
    if (t->n_replaced == 0)
        return;
    memcpy(c->ids + c->n_ids, t->replaced, t->n_replaced * sizeof(*t->replaced));
    c->n_ids += t->n_replaced;
}

static enum status keep_prompt_ids(const int32_t **out, const int32_t *ids, size_t n,
                                   struct arena *arena, struct error *err)
{
    int32_t *own = arena_alloc(arena, n, sizeof(*own));

    if (own == NULL)
        return error_no_memory(err, n * sizeof(*own), "a prompt's ids");
    memcpy(own, ids, n * sizeof(*own));
    *out = own;
    return STATUS_OK;
}

enum status lm_observe(struct clone *base, struct agent_turn *turn, struct error *err)
{
    struct lm_clone *c = container_of(base, struct lm_clone, base);
    struct lm *m = lm_observe_lm_of(c);
    struct lm_system *system = NULL;
    struct lm_turn *t;
    struct buf ids;
    struct lm_scoring scoring = {0};
    struct lm_results results = {0};
    const int32_t *prompt_ids = NULL;
    uint32_t n_kept;
    size_t n_all, n_longest, n_bytes = 0;
    enum status rc;

    buf_init(&ids, SIZE_MAX);
    rc = sampling_check(&turn->seen.sampling, m->n_vocab, err);
    for (size_t i = 0; i < turn->seen.n_messages; i++)
        n_bytes += turn->seen.messages[i].len + turn->seen.messages[i].more_len;
    if (rc == STATUS_OK)
        rc = prompt_check_size(&m->limits, c->n_ids, n_bytes, err);
    if (rc == STATUS_OK)
        rc = lm_observe_render(c, &turn->seen, turn->arena, &system, &n_kept, &ids, err);
    if (rc != STATUS_OK)
        goto out;
    n_all = n_kept + ids.len / sizeof(int32_t);
    if (n_all + !turn->seen.no_reply > m->limits.context) {
        rc = error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                           "the prompt has %zu tokens with the conversation before it, but the "
                           "context holds only %zu: rewind, open a new conversation, or send less",
                           n_all, m->limits.context);
        goto out;
    }
    rc = lm_scores_open(&scoring, m, turn, n_all, &n_longest, err);
    if (rc == STATUS_OK)
        rc = lm_clone_grow(c, n_all + n_longest + 1, err);
    if (rc != STATUS_OK)
        goto out;
    t = arena_alloc(turn->arena, 1, sizeof(*t));
    if (t == NULL) {
        rc = error_no_memory(err, sizeof(*t), "a turn");
        goto out;
    }
    rc = save_replaced(t, c, n_kept, turn->arena, err);
    if (rc != STATUS_OK)
        goto out;
    c->n_ids = n_kept;
    if (ids.len != 0)
        memcpy(c->ids + c->n_ids, ids.data, ids.len);
    rc = lm_results_open(&results, m, turn, c->ids, (uint32_t)n_all, err);
    if (rc == STATUS_OK && turn->seen.want_prompt_ids)
        rc = keep_prompt_ids(&prompt_ids, c->ids, n_all, turn->arena, err);
    if (rc == STATUS_OK)
        rc = open_turn(t, m, turn, n_all, c, err);
    if (rc != STATUS_OK) {
        restore_replaced(c, t);
        goto out;
    }
    if (t->n_replaced != 0)
        lm_clone_pages_cut(&c->pages, &m->cache, n_kept);
    detokenizer_init(&t->detokenizer, m->vocab, &turn->seen.sampling, MAX_REPLY_BYTES);
    t->detokenizer.shown = m->marks;
    t->detokenizer.n_shown = lm_n_marks(m, &turn->seen);
    t->is_whole = turn_is_whole(c, &turn->seen);
    buf_init(&t->piece, MAX_REPLY_BYTES);
    if (system != NULL) { /* nothing fails from here */
        struct lm_system *old = c->system;

        c->system = system;
        system = old;
    }
    t->scoring = scoring;
    lm_scores_begin(c, t);
    t->results = results;
    if (results.kind != LM_RESULTS_NONE) {
        t->n_ids = lm_results_n_ids(&results, t->n_prompt);
        lm_results_share(m, c, &t->results);
        lm_clone_pages_cut(&c->pages, &m->cache, t->results.n_taken);
    }
    lm_snapshots_begin(&t->snapshots, m, c, t->n_prompt);
    lm_clone_pages_busy(&c->pages);
    turn->row.clone = base;
    turn->row.turn = t;
    turn->reply.prompt_ids = prompt_ids;
    lm_reasoning_begin(m, turn);
    turn->reply.n_prompt = t->n_prompt;
    turn->reply.n_cached = c->pages.kv.n_tokens;
    turn->reply.n_prefilled = c->pages.kv.n_tokens;
    turn->reply.finish = FINISH_NONE;
    m->n_prefix_queries += t->n_prompt - c->pages.kv.n_tokens;
    lm_observe_find_pages(m, turn, false);
    t->n_in_memory = c->pages.kv.n_tokens;
    turn->wants_preparing =
        lm_cache_read_ahead(&m->cache, &c->pages, c->ids, lm_observe_n_known(t), true);
    lm_clone_pages_wait(&c->pages, &m->cache, false);
out:
    lm_system_unref(&m->systems, system);
    buf_deinit(&ids);
    return rc;
}

/* Nothing is waited for any more. */
static void lm_observe_forget(struct lm_turn *t)
{
    grammars_forget(&t->waiter);
    if (link_is_on(&t->reading.link))
        list_remove(&t->reading.link);
}

static void close_turn(struct lm *m, struct agent_turn *turn)
{
    struct lm_turn *t = turn->row.turn;

    lm_snapshots_end(m, lm_observe_clone_of(&turn->row), t);
    lm_observe_forget(t);
    lm_cache_end_reading(&m->cache, &lm_observe_clone_of(&turn->row)->pages);
    matcher_close(t->matcher);
    detokenizer_deinit(&t->detokenizer);
    buf_deinit(&t->piece);
    turn->row.turn = NULL;
}

static enum status push_turn_end(struct lm_clone *c, struct error *err)
{
    if (c->n_turns == c->cap_turns) {
        uint32_t cap = c->cap_turns == 0 ? 4 : 2 * c->cap_turns;
        uint32_t *ends = try_realloc(c->turn_ends, cap, sizeof(*ends));

        if (ends == NULL)
            return error_no_memory(err, cap * sizeof(*ends), "a conversation's turns");
        c->turn_ends = ends;
        c->cap_turns = cap;
    }
    return STATUS_OK;
}

/* Ends the text of a reply that was cut short with the bytes that the detokenizer holds. */
static void show_held(struct lm_turn *t, struct reply *r)
{
    struct error ignored;
    enum status rc = detokenizer_end(&t->detokenizer, &r->text, &ignored);

    (void)
        rc; /* without memory the text lacks these bytes; the conversation continues from the ids */
    if (r->n_tokens != 0)
        r->tokens[r->n_tokens - 1].text_end = (uint32_t)r->text.len;
}

/* What follows a turn with messages: of a template in parts the end of the reply, else the text is
 * remembered. */
static enum status end_reply(struct lm_clone *c, const struct agent_turn *turn, struct buf *ids,
                             struct error *err)
{
    const struct lm *m = lm_observe_lm_of(c);
    const struct lm_turn *t = turn->row.turn;

    if (turn->seen.is_raw_prompt)
        return STATUS_OK;
    if (lm_remembers(m) && lm_remember(c, turn, err) != STATUS_OK)
        return err->status;
    if (t->is_whole)
        return STATUS_OK;
    return chat_template_reply_end(m->template, c->ids[t->n_ids - 1], ids, NULL, err);
}

/* Turns end where their ids do that are still there. */
static void clamp_turn_ends(struct lm_clone *c, const struct lm_turn *t)
{
    for (uint32_t i = c->n_turns; t->n_replaced != 0 && i-- > 0 && c->turn_ends[i] > c->n_ids;)
        c->turn_ends[i] = c->n_ids;
}

/* The reply becomes part of the conversation, even if it was cut short. The template's end of a
 * reply follows. */
void lm_self_observe(struct clone *base, struct agent_turn *turn)
{
    struct lm_clone *c = container_of(base, struct lm_clone, base);
    struct lm *m = lm_observe_lm_of(c);
    struct lm_turn *t = turn->row.turn;
    struct error ignored;
    struct buf ids;
    size_t n_end;

    if (turn->seen.no_reply) {
        lm_drop(base, turn);
        return;
    }
    if (turn->reply.finish == FINISH_CANCELLED || turn->reply.finish == FINISH_DEADLINE)
        show_held(t, &turn->reply);
    buf_init(&ids, SIZE_MAX);
    if (push_turn_end(c, &ignored) != STATUS_OK ||
        end_reply(c, turn, &ids, &ignored) != STATUS_OK ||
        lm_clone_grow(c, t->n_ids + ids.len / sizeof(int32_t), &ignored) != STATUS_OK) {
        buf_deinit(&ids);
        lm_drop(base, turn);
        turn->reply.finish = FINISH_ERROR;
        return;
    }
    n_end = ids.len / sizeof(int32_t);
    if (n_end != 0)
        memcpy(c->ids + t->n_ids, ids.data, ids.len);
    buf_deinit(&ids);
    clamp_turn_ends(c, t);
    c->is_whole = c->is_whole || t->is_whole;
    c->n_ids = t->n_ids + (uint32_t)n_end;
    c->turn_ends[c->n_turns++] = c->n_ids;
    close_turn(m, turn);
    lm_clone_pages_idle(&c->pages, &m->cache);
}

void lm_drop(struct clone *base, struct agent_turn *turn)
{
    struct lm_clone *c = container_of(base, struct lm_clone, base);
    struct lm *m = lm_observe_lm_of(c);

    lm_clone_pages_cut(&c->pages, &m->cache, c->n_ids);
    restore_replaced(c, turn->row.turn);
    close_turn(m, turn);
    lm_clone_pages_idle(&c->pages, &m->cache);
}

/* The generated ids: the reply's tokens, and the one that ended it. */
enum status lm_trace(const struct clone *base, const struct agent_turn *turn, struct buf *out,
                     struct error *err)
{
    const struct lm_clone *c = container_of(base, const struct lm_clone, base);
    const struct lm_turn *t = turn->row.turn;
    const size_t size_bytes = (t->n_ids - t->n_prompt) * sizeof(*c->ids);

    if (size_bytes > 0 && buf_append(out, c->ids + t->n_prompt, size_bytes) != STATUS_OK)
        return error_no_memory(err, size_bytes, "a turn's trace");
    return STATUS_OK;
}

enum status lm_recall(struct clone *base, struct agent_turn *turn, const void *trace,
                      size_t size_bytes, struct error *err)
{
    struct lm_clone *c = container_of(base, struct lm_clone, base);
    struct lm *m = lm_observe_lm_of(c);
    struct lm_turn *t = turn->row.turn;
    const size_t n = size_bytes / sizeof(*c->ids);
    enum status rc;

    if (size_bytes % sizeof(*c->ids) != 0 || n + t->n_ids > m->limits.context)
        return error_set(err, STATUS_DATA_LOSS, "a stored turn is longer than the model's context");
    rc = lm_clone_grow(c, t->n_ids + n + 1, err);
    if (rc != STATUS_OK)
        return rc;
    memcpy(c->ids + t->n_ids, trace, size_bytes); /* trace may be unaligned */
    for (size_t i = 0; i < n; i++)
        if (c->ids[t->n_ids + i] < 0 || (size_t)c->ids[t->n_ids + i] >= m->n_vocab)
            return error_set(err, STATUS_DATA_LOSS,
                             "a stored turn has token ids that are not in the vocabulary");
    t->n_ids += (uint32_t)n;
    return STATUS_OK;
}

static void on_grammar(struct grammar_waiter *w, struct grammar *g, const struct error *err)
{
    struct lm_turn *t = container_of(w, struct lm_turn, waiter);
    struct error why = *err;

    t->waits_for_grammar = false;
    if (g != NULL)
        /* A failure is reported in why. */
        (void)!matcher_open(&t->matcher, g, t->agent_turn->arena, &why);
    if (why.status != STATUS_OK && link_is_on(&t->reading.link))
        list_remove(&t->reading.link);
    if (!link_is_on(&t->reading.link))
        agent_turn_prepared(t->agent_turn, &why);
}

static void on_pages_read(struct lm_disk_waiter *w)
{
    const struct error none = {0};
    struct lm_turn *t = container_of(w, struct lm_turn, reading);

    if (!t->waits_for_grammar)
        agent_turn_prepared(t->agent_turn, &none);
}

static enum status prepare_constraint(struct lm *m, struct clone *base, struct agent_turn *turn,
                                      struct error *err)
{
    struct lm_turn *t = turn->row.turn;
    struct grammar *g;

    t->waiter.ready = on_grammar;
    t->waiter.tenant = base->flow.tenant;
    t->waiter.is_unbounded = turn->seen.is_accepted;
    if (grammars_get(&g, m->grammars, turn->seen.sampling.constraint, &t->waiter, err) != STATUS_OK)
        return err->status;
    t->waits_for_grammar = g == NULL;
    return g == NULL ? STATUS_OK : matcher_open(&t->matcher, g, turn->arena, err);
}

enum status lm_prepare(struct clone *base, struct agent_turn *turn, struct error *err)
{
    struct lm *m = lm_observe_lm_of(container_of(base, struct lm_clone, base));
    struct lm_turn *t = turn->row.turn;
    bool is_reading; /* the reads, which observe began, may have ended meanwhile */
    enum status rc = STATUS_OK;

    t->agent_turn = turn;
    t->reading.ready = on_pages_read;
    if (turn->seen.sampling.constraint != NULL)
        rc = prepare_constraint(m, base, turn, err);
    if (rc != STATUS_OK)
        return rc;
    is_reading = turn->wants_preparing && lm_disk_wait(&m->cache.disk, &t->reading);
    turn->is_preparing = t->waits_for_grammar || is_reading;
    return STATUS_OK;
}

void lm_unprepare(struct clone *base, struct agent_turn *turn)
{
    lm_observe_forget(turn->row.turn);
}

void lm_woken(struct agent *a)
{
    lm_disk_woken(&container_of(a, struct lm, base)->cache.disk);
}
