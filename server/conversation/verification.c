/* Happy path: verification_advance checks the chain, slice by slice, chooses the model and opens a
 * conversation of its own. Then it applies record after record, as a recall does. Before it applies
 * a reply, it runs the turn again (turn_repeat), and its reader notifies the owner as the reply
 * grows. As soon as a token differs, or all recorded tokens have come of a reply that was cut
 * short, the turn is cancelled. Once it has ended it is judged and dropped, and the recorded reply
 * takes its place, so that each turn is judged behind what was recorded.
 *
 * A turn that differs is run once more up to the difference, with the log-probabilities of the
 * likeliest tokens. A record that cannot be applied ends the comparison: what comes behind it is
 * not checked. */
#include "server/conversation/verification.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/agent.h"
#include "agents/message_extras.h"
#include "base/alloc.h"
#include "base/real.h"
#include "base/utf8.h"
#include "server/conversation/body.h"
#include "server/conversation/conversation.h"
#include "server/conversation/reader.h"
#include "server/conversation/recall.h"
#include "server/journal/chain.h"
#include "server/model/model.h"
#include "server/model/models.h"

#define VERIFICATION_MAX_BYTES ((size_t)1 << 31)

/* After so many bytes of records, others have their turn on the loop. A MiB is hashed in some
 * 4 ms. */
enum { VERIFICATION_SLICE_BYTES = 128 << 10, VERIFICATION_HASHED_BYTES = 1 << 20 };

enum { VERIFIED_WHY_CHARS = 320 };

enum verification_doing {
    VERIFICATION_APPLIES,  /* no turn is in flight */
    VERIFICATION_COMPARES, /* the turn runs again */
    VERIFICATION_LOOKS,    /* the turn that differs runs once more */
};

struct verification {
    struct conversations *all;
    const struct verification_request *request;
    struct journal_found found;
    struct recall *recall; /* NULL: no model can compute */
    struct conversation_id id;
    bool is_added; /* the conversation is open, as long as conversations_get finds it */
    struct model *model;
    struct error why_not; /* why there is no model */
    bool is_broken;       /* a record could not be applied */
    bool has_new;         /* a turn has a new reply in the conversation */
    const char *problem;
    size_t problem_record;
    bool has_begun; /* the chain is checked, and the model chosen */
    struct journal_chain hashing;
    struct chain_check check; /* of the records before the next */
    /* The hash of the model that computed the first turn; "": none was computed. One that is too
     * long is cut to 65 characters, which no model's has. */
    char version[2 * SHA256_BYTES + 2];
    struct text system; /* of the first record */
    /* The next record, and its place. */
    struct link *at;
    size_t n_at;
    size_t n_passed; /* of the request's only: those before the next record */
    /* The turn that is judged, in turns[n_turns - 1], and its bodies, in arena. */
    enum verification_doing doing;
    struct turn_reader reader;
    struct body_accept accept;
    struct body_finish finish;
    struct arena arena;
    struct arena results;        /* of all turns */
    struct verified_turn *turns; /* [n_turns] */
    size_t n_turns, cap_turns;
    void (*notify)(void *arg);
    void *arg;
};

/* --- judging --- */

static struct verified_turn *verification_turn(const struct verification *v)
{
    return &v->turns[v->n_turns - 1];
}

__attribute__((format(printf, 3, 4))) static void
verification_judge(struct verification *v, enum verdict verdict, const char *format, ...)
{
    struct verified_turn *t = verification_turn(v);
    char why[VERIFIED_WHY_CHARS];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args); /* a longer one is cut */
    va_end(args);
    t->verdict = verdict;
    t->why = arena_strndup(&v->results, why, strlen(why));
    if (t->why == NULL)
        t->why = "there is no memory for the reason";
}

/* Whether the record says that the reply was ended from outside: it is a beginning of the reply. */
static bool verification_is_cut(const struct verification *v)
{
    switch (v->finish.reply.finish) {
    case FINISH_CANCELLED:
    case FINISH_DEADLINE:
    case FINISH_ERROR:
    case FINISH_WORKER_LOST:
        return true;
    case FINISH_NONE:
    case FINISH_STOP:
    case FINISH_LENGTH:
    case FINISH_OBSERVED:
        break;
    }
    return false;
}

/* How many of the recorded tokens were computed, one after the other. */
static size_t common_tokens(const struct verification *v, const struct said_token *said,
                            const struct reply_token *running, size_t n)
{
    const struct reply *r = &v->finish.reply;
    size_t i = 0;

    while (i < n && i < r->n_tokens &&
           r->tokens[i].id == (said != NULL ? said[i].id : running[i].id))
        i++;
    return i;
}

static void judge_tokens(struct verification *v, const struct completed_turn *done, size_t at)
{
    const struct reply *r = &v->finish.reply;
    struct verified_difference *d = &verification_turn(v)->difference;

    *d = (struct verified_difference){
        .has_tokens = true,
        .index = (uint32_t)at,
        .recorded = at < r->n_tokens ? r->tokens[at].id : -1,
        .computed = at < done->n_tokens ? done->tokens[at].id : -1,
    };
    if (d->recorded < 0)
        verification_judge(v, VERDICT_DIFFERS,
                           "the recorded reply ends after %zu tokens, and token %d was computed "
                           "behind them",
                           at, d->computed);
    else if (d->computed < 0)
        verification_judge(v, VERDICT_DIFFERS,
                           "the computed reply ends after %zu tokens, and the record goes on with "
                           "token %d",
                           at, d->recorded);
    else
        verification_judge(v, VERDICT_DIFFERS, "token %zu is %d in the record, %d was computed",
                           at + 1, d->recorded, d->computed);
}

/* The first recorded token whose log-probabilities are others; n: none. */
static size_t judge_logprobs(const struct verification *v, const struct completed_turn *done,
                             size_t n)
{
    const struct reply *r = &v->finish.reply;

    for (size_t i = 0; i < n; i++) {
        const struct said_logprob *p = &done->logprobs[i];
        const size_t first = i == 0 ? 0 : p[-1].tops_end, n_top = p->tops_end - first;

        if (memcmp(&p->logprob, &r->tokens[i].logprob, sizeof(p->logprob)) != 0 ||
            n_top != r->tokens[i].n_top)
            return i;
        for (size_t k = 0; k < n_top; k++)
            if (done->tops[first + k].id != r->tokens[i].top[k].id ||
                memcmp(&done->tops[first + k].logprob, &r->tokens[i].top[k].logprob,
                       sizeof(float)) != 0)
                return i;
    }
    return n;
}

static bool judge_places(const struct verification *v, const struct completed_turn *done, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v->finish.reply.tokens[i].text_end != done->tokens[i].text_end)
            return false;
    return true;
}

/* Whether the ids with which the conversation goes on are those of the reply. */
static bool judge_trace(const struct verification *v)
{
    const char *at = v->finish.trace;
    const struct reply *r = &v->finish.reply;

    if (r->n_tokens == 0 || v->model->agent->type->text == NULL)
        return true;
    if (v->finish.trace_size != r->n_tokens * sizeof(r->tokens[0].id))
        return false;
    for (size_t i = 0; i < r->n_tokens; i++)
        if (memcmp(at + i * sizeof(r->tokens[0].id), &r->tokens[i].id, sizeof(r->tokens[0].id)))
            return false;
    return true;
}

/* The turn has ended; all its tokens that are recorded are the recorded ones. */
static void judge_rest(struct verification *v, const struct completed_turn *done)
{
    const struct reply *r = &v->finish.reply;
    const bool is_cut = verification_is_cut(v);
    const size_t n = r->n_tokens;
    size_t len = done->len, at;

    if (is_cut && n > 0)
        len = done->tokens[n - 1].text_end;
    else if (is_cut)
        len = done->n_tokens > 0 ? 0 : r->text.len; /* an agent without tokens */

    if (is_cut && n > 0 && done->n_tokens == n && done->finish != FINISH_CANCELLED)
        verification_judge(v, VERDICT_DIFFERS,
                           "the computed reply ended as '%s' with the last token, the record says "
                           "'%s'",
                           finish_name(done->finish), finish_name(r->finish));
    else if (!is_cut && done->finish != r->finish)
        verification_judge(v, VERDICT_DIFFERS, "the reply ended as '%s', the record says '%s'",
                           finish_name(done->finish), finish_name(r->finish));
    else if (done->usage.n_prompt != r->n_prompt)
        verification_judge(v, VERDICT_DIFFERS, "the prompt has %u tokens, the record says %u",
                           done->usage.n_prompt, r->n_prompt);
    else if (r->text.len != len || len > done->len ||
             (len > 0 && memcmp(r->text.data, done->text, len) != 0))
        verification_judge(v, VERDICT_DIFFERS, "the recorded text is not that of the reply");
    else if (!judge_places(v, done, n))
        verification_judge(v, VERDICT_DIFFERS,
                           "the recorded places of the tokens in the text are others");
    else if (!judge_trace(v))
        verification_judge(v, VERDICT_DIFFERS,
                           "the conversation goes on with other token ids than those of the reply");
    else if (done->logprobs != NULL && (at = judge_logprobs(v, done, n)) < n)
        verification_judge(v, VERDICT_DIFFERS, "the log-probabilities of token %zu are others",
                           at + 1);
    else
        verification_turn(v)->verdict = VERDICT_SAME;
}

/* A turn that ended without a reply: what cannot be helped here, or what the record cannot be. */
static void judge_failure(struct verification *v, const struct error *why)
{
    const bool may_pass = why->status == STATUS_UNAVAILABLE || why->status == STATUS_EXHAUSTED ||
                          why->status == STATUS_INTERNAL || why->status == STATUS_CANCELLED ||
                          why->status == STATUS_DEADLINE || why->status == STATUS_UNIMPLEMENTED ||
                          v->request->changes != NULL;

    verification_judge(v, may_pass ? VERDICT_UNCHECKED : VERDICT_DIFFERS,
                       "the turn cannot be computed again: %s", why->text);
}

/* Takes the likeliest tokens at the place of the difference. Without memory there are none. */
static void take_likeliest(struct verification *v)
{
    struct verified_difference *d = &verification_turn(v)->difference;
    const struct completed_turn *done = v->reader.completed;
    const struct said_logprob *p;
    struct top_logprob *top;
    size_t first;

    if (done == NULL || done->logprobs == NULL || d->index >= done->n_tokens)
        return;
    p = &done->logprobs[d->index];
    first = d->index == 0 ? 0 : p[-1].tops_end;
    top = arena_alloc(&v->results, p->tops_end - first, sizeof(*top));
    if (top == NULL || p->tops_end == first)
        return;
    memcpy(top, done->tops + first, (p->tops_end - first) * sizeof(*top));
    d->top = top;
    d->n_top = p->tops_end - first;
    d->computed_logprob = p->logprob;
}

/* --- what if --- */

/* The KL divergence at the place of the difference, over the tokens that both lists have and the
 * rest as one; false: the record has no list, or the lists have no token in common. */
static bool judge_divergence(double *out, const struct reply_token *recorded,
                             const struct top_logprob *top, size_t n_top)
{
    double kl = 0, p_rest = 1, q_rest = 1;
    bool has_common = false;

    for (size_t i = 0; i < recorded->n_top; i++)
        for (size_t k = 0; k < n_top; k++)
            if (recorded->top[i].id == top[k].id) {
                const double p = real_exp((double)recorded->top[i].logprob);

                kl += p * ((double)recorded->top[i].logprob - (double)top[k].logprob);
                p_rest -= p;
                q_rest -= real_exp((double)top[k].logprob);
                has_common = true;
            }
    if (p_rest > 1e-9 && q_rest > 1e-9)
        kl += p_rest * real_log(p_rest / q_rest);
    *out = kl < 0 ? 0 : kl; /* rounding */
    return has_common;
}

static bool is_same_reply(const struct verification *v, const struct completed_turn *done)
{
    const struct reply *r = &v->finish.reply;
    const bool is_cut = verification_is_cut(v);

    if (is_cut ? done->len < r->text.len : done->len != r->text.len || done->finish != r->finish)
        return false;
    return r->text.len == 0 || memcmp(r->text.data, done->text, r->text.len) == 0;
}

/* Whether a recorded log-probability of the first n tokens, which are the same, is another. */
static bool has_other_logprobs(const struct verification *v, const struct completed_turn *done,
                               size_t n)
{
    if (v->accept.request.n_logprobs == 0 || done->logprobs == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        if (memcmp(&done->logprobs[i].logprob, &v->finish.reply.tokens[i].logprob,
                   sizeof(done->logprobs[i].logprob)) != 0)
            return true;
    return false;
}

/* What the record and the computation have at the first token that differs. */
static void judge_place(struct verification *v, const struct completed_turn *done)
{
    const struct reply *r = &v->finish.reply;
    struct verified_difference *d = &verification_turn(v)->difference;
    size_t from;
    char *text;

    take_likeliest(v);
    if (d->index >= r->n_tokens)
        return;
    from = d->index == 0 ? 0 : r->tokens[d->index - 1].text_end;
    d->recorded_len = r->tokens[d->index].text_end - from;
    text = arena_strndup(&v->results, r->text.data + from, d->recorded_len);
    d->recorded_text = text == NULL ? "" : text;
    d->has_kl = judge_divergence(&d->kl, &r->tokens[d->index], d->top, d->n_top);
}

static void judge_rerun(struct verification *v, const struct completed_turn *done, size_t same)
{
    struct verified_turn *t = verification_turn(v);
    const size_t n = v->finish.reply.n_tokens;

    t->n_computed = (uint32_t)done->n_tokens;
    t->has_other_logprobs = has_other_logprobs(v, done, same);
    if (is_same_reply(v, done)) {
        t->verdict = VERDICT_SAME;
        return;
    }
    if (same < n || done->n_tokens > n) {
        judge_tokens(v, done, same);
        judge_place(v, done);
    } else if (done->finish != v->finish.reply.finish) {
        verification_judge(v, VERDICT_DIFFERS, "the reply ended as '%s', the record says '%s'",
                           finish_name(done->finish), finish_name(v->finish.reply.finish));
    } else {
        verification_judge(v, VERDICT_DIFFERS, "the text is another");
    }
    t->computed = completed_turn_ref(v->reader.completed);
}

static void judge_ended(struct verification *v)
{
    const struct completed_turn *done = v->reader.completed;
    const struct error *failure = reader_failure(&v->reader);
    const size_t n = v->finish.reply.n_tokens;
    size_t same;

    if (failure != NULL || done == NULL) {
        judge_failure(v, failure != NULL ? failure : &v->reader.err);
        return;
    }
    same = common_tokens(v, done->tokens, NULL, done->n_tokens);
    verification_turn(v)->n_compared = (uint32_t)same;
    if (v->request->changes != NULL)
        judge_rerun(v, done, same);
    else if (same < n || (!verification_is_cut(v) && done->n_tokens > n))
        judge_tokens(v, done, same);
    else
        judge_rest(v, done);
}

/* --- running a turn --- */

static void verification_notify(void *arg)
{
    const struct verification *v = arg;

    v->notify(v->arg);
}

/* Applies the changes to a turn; c may be NULL. */
static void verification_change(const struct verification_changes *c, struct turn_request *turn,
                                struct sampling_overrides *sampling)
{
    if (c == NULL)
        return;
    if (c->has_tools) {
        const uint64_t seed = turn->tool_use.seed;

        if (turn->tool_use.is_forced)
            sampling->values.constraint = NULL;
        turn->tool_use = c->tools;
        turn->tool_use.seed = seed != 0 ? seed : 1;
        if (c->constraint != NULL)
            sampling->values.constraint = c->constraint;
    }
    sampling_overrides_apply(c->sampling, &sampling->values);
}

/* Runs the accepted turn again. On failure nothing has changed. */
static enum status verification_run(struct verification *v, struct conversation *c,
                                    enum verification_doing doing, struct error *err)
{
    struct sampling_overrides all = {.given = ~0u, .values = *v->accept.sampling};
    const struct reply *r = &v->finish.reply;
    const size_t n_vocab = v->model->info.text.n_vocab;
    size_t n = doing == VERIFICATION_LOOKS ? verification_turn(v)->difference.index : r->n_tokens;
    struct turn_request again = v->accept.request;
    struct sampling_overrides *resolved = NULL;
    struct stored_request *request = NULL;
    int32_t *ids = arena_alloc(&v->arena, n + 1, sizeof(*ids));
    enum status rc;

    if (ids == NULL)
        return error_no_memory(err, n * sizeof(*ids), "a reply's tokens");
    for (size_t i = 0; i < n; i++) {
        ids[i] = r->tokens[i].id;
        if (ids[i] < 0 || (size_t)ids[i] >= n_vocab)
            n = i; /* of another vocabulary: nothing is predicted from here on */
    }
    if (doing == VERIFICATION_LOOKS || v->request->changes != NULL)
        again.n_logprobs = SAMPLING_MAX_LOGPROBS;
    verification_change(v->request->changes, &again, &all);
    rc = sampling_check(&all.values, n_vocab, err);
    if (rc != STATUS_OK)
        return rc;
    reader_init(&v->reader, verification_notify, v);
    rc = sampling_overrides_copy(&resolved, &all, err);
    if (rc == STATUS_OK)
        rc = stored_request_open(&request, &again, err);
    if (rc == STATUS_OK)
        rc = turn_repeat(&c->host, request, resolved, ids, n, &v->reader, err);
    if (rc != STATUS_OK) {
        stored_request_close(request);
        free(resolved);
        return rc;
    }
    v->doing = doing;
    return STATUS_OK;
}

/* Cancels the running turn once it has shown what it can show. */
static void verification_watch(struct verification *v)
{
    struct turn *t = v->reader.turn;
    const struct reply *r = &v->finish.reply;
    size_t same, n_enough = r->n_tokens;
    bool is_over;

    if (v->doing == VERIFICATION_LOOKS) {
        is_over = t->told_tokens > verification_turn(v)->difference.index;
    } else {
        same = common_tokens(v, NULL, t->agent.reply.tokens, t->told_tokens);
        is_over = same < t->told_tokens && (same < n_enough || !verification_is_cut(v)) &&
                  v->request->changes == NULL;
        if (verification_is_cut(v) &&
            same == (n_enough < t->told_tokens ? n_enough : t->told_tokens))
            is_over |= n_enough > 0 ? t->told_tokens >= n_enough : t->told_len >= r->text.len;
    }
    if (is_over && t->state == TURN_ASKED)
        turn_end(t, FINISH_CANCELLED);
}

/* --- records --- */

/* The judged turn leaves the conversation, and the recorded one takes its place. */
static void verification_settle(struct verification *v)
{
    const struct link *at = v->at;
    const uint32_t before = container_of(at, const struct journal_event, link)->turn - 1;
    struct error err;

    reader_close(&v->reader, STATUS_CANCELLED);
    v->doing = VERIFICATION_APPLIES;
    if (recall_conversation(v->recall)->host.n_turns > before &&
        recall_cut(v->recall, before, &err) != STATUS_OK) {
        v->is_broken = true;
        verification_judge(v, VERDICT_UNCHECKED, "%s", err.text);
    }
}

static enum status verification_add_turn(struct verification *v, uint32_t turn, struct error *err)
{
    struct verified_turn *grown;
    size_t cap;

    if (v->n_turns == v->cap_turns) {
        cap = v->cap_turns == 0 ? 16 : 2 * v->cap_turns;
        grown = try_realloc(v->turns, cap, sizeof(*grown));
        if (grown == NULL)
            return error_no_memory(err, cap * sizeof(*grown), "verified turns");
        v->turns = grown;
        v->cap_turns = cap;
    }
    v->turns[v->n_turns++] = (struct verified_turn){
        .record = v->n_at, .turn = turn, .verdict = VERDICT_SKIPPED, .why = ""};
    return STATUS_OK;
}

static bool verification_ends_turn(const struct journal_event *e)
{
    return e->kind == JOURNAL_FINISH || e->kind == JOURNAL_OBSERVE;
}

/* Applies the record, and remembers the turn as it was recorded. What cannot be applied is a turn
 * that differs. */
static enum status verification_apply(struct verification *v, const struct journal_event *e,
                                      struct error *err)
{
    const bool ends_turn = verification_ends_turn(e);
    struct error why;

    if (recall_event(v->recall, e, &why) == STATUS_OK) {
        if (ends_turn)
            verification_turn(v)->recorded =
                completed_turn_ref(recall_conversation(v->recall)->host.newest);
        return STATUS_OK;
    }
    v->is_broken = true;
    if (!ends_turn && verification_add_turn(v, e->turn, err) != STATUS_OK)
        return err->status;
    verification_judge(v, why.status == STATUS_DATA_LOSS ? VERDICT_DIFFERS : VERDICT_UNCHECKED,
                       "record %zu cannot be applied: %s", v->n_at, why.text);
    return STATUS_OK;
}

static bool verification_is_wanted(struct verification *v)
{
    const struct verification_request *r = v->request;

    while (v->n_passed < r->n_only && r->only[v->n_passed] < v->n_at)
        v->n_passed++;
    return r->only == NULL || (v->n_passed < r->n_only && r->only[v->n_passed] == v->n_at);
}

/* Why the turn cannot be computed to the same bits here; false: it can. */
static bool verification_is_other(struct verification *v)
{
    const char *version = v->model->info.version, *binding = v->accept.binding;
    const size_t len = strlen(version);

    if (v->accept.sampling == NULL || binding[0] == '\0')
        verification_judge(v, VERDICT_UNCHECKED,
                           "the turn was imported, and no engine's computation was recorded");
    else if (v->all->keeping.is_inexact || v->model->info.is_inexact)
        verification_judge(v, VERDICT_UNCHECKED,
                           "the model '%.80s' does not compute the same bits twice (an attached "
                           "agent, a plug-in, or --fast-math)",
                           v->model->name);
    else if (v->request->is_forced || v->request->changes != NULL)
        return false;
    else if (strncmp(binding, version, len) != 0 || binding[len] != ' ')
        verification_judge(v, VERDICT_UNCHECKED,
                           "the turn was computed by the model with hash %.64s, the one here has "
                           "%.64s",
                           binding, version);
    else if (strcmp(binding, recall_binding(v->recall)) != 0)
        verification_judge(v, VERDICT_UNCHECKED,
                           "the turn was computed with %.64s, this parleyd computes with %.64s: "
                           "use the version and the options --backend and --kv of then",
                           binding + len + 1, recall_binding(v->recall) + len + 1);
    else if (v->accept.compiler_revision != 0 &&
             v->accept.compiler_revision != AGENT_COMPILER_REVISION &&
             (v->accept.sampling->constraint != NULL || v->accept.request.tool_use.tools.len > 0))
        verification_judge(v, VERDICT_UNCHECKED,
                           "revision %u of the compiler of constraints bound the reply, this "
                           "parleyd has revision %d",
                           v->accept.compiler_revision, AGENT_COMPILER_REVISION);
    else
        return false;
    return true;
}

/* What the agent need not check of a stored turn, it has to of one that anybody wrote. */
static bool verification_is_sound(struct verification *v)
{
    struct error why;

    if (sampling_check(v->accept.sampling, v->model->info.text.n_vocab, &why) == STATUS_OK)
        return true;
    verification_judge(v, VERDICT_DIFFERS, "the record's sampling cannot be: %s", why.text);
    return false;
}

/* Reads the turn that the record ends. False: applying the record will say what is wrong. */
static bool verification_read(struct verification *v, const struct journal_event *e)
{
    const struct journal_event *accepted = recall_accepted(v->recall);
    struct error ignored;

    arena_deinit(&v->arena);
    arena_init(&v->arena, VERIFICATION_MAX_BYTES);
    if (body_read_finish(&v->finish, e->body, e->size_bytes, &v->arena, &ignored) != STATUS_OK)
        return false;
    verification_turn(v)->n_tokens = (uint32_t)v->finish.reply.n_tokens;
    return accepted != NULL && accepted->turn == e->turn &&
           e->turn == recall_conversation(v->recall)->host.n_turns + 1 &&
           body_read_accept(&v->accept, accepted->body, accepted->size_bytes, &v->arena,
                            &ignored) == STATUS_OK;
}

/* Begins to compute the turn that the record ends, or judges it at once. */
static void verification_begin(struct verification *v, struct conversation *c,
                               const struct journal_event *e)
{
    const struct reply *r = &v->finish.reply;
    struct error err;

    if (!verification_read(v, e) || !verification_is_wanted(v) || verification_is_other(v) ||
        !verification_is_sound(v))
        return;
    if (verification_is_cut(v) && r->n_tokens == 0 && r->text.len == 0)
        verification_turn(v)->verdict = VERDICT_SAME; /* nothing was generated */
    else if (verification_run(v, c, VERIFICATION_COMPARES, &err) != STATUS_OK)
        judge_failure(v, &err);
}

/* Whether whoever reads the text sees all of it. */
static bool is_readable(const char *text, size_t len)
{
    return len == 0 || (utf8_is_valid(text, len) && memchr(text, '\0', len) == NULL);
}

/* Why people would not read what the model is told; NULL: they do. */
static const char *accept_hides(const struct body_accept *a)
{
    static const char no_text[] = "has a text that is not UTF-8, or goes on behind a NUL";
    const struct turn_request *r = &a->request;
    const struct constraint *c = a->sampling == NULL ? NULL : a->sampling->constraint;

    for (size_t i = 0; i < r->n_messages; i++) {
        if (!utf8_is_valid(r->messages[i].text, r->messages[i].len)) /* a NUL is shown */
            return "has a text that is not UTF-8";
        if (!message_extras_are_all(&r->messages[i]))
            return "has a message with parts that no message has";
    }
    if (!tools_are_array(r->tool_use.tools))
        return "has tools that are no list";
    return is_readable(r->tool_use.tools.text, r->tool_use.tools.len) &&
                   is_readable(r->variables.json.text, r->variables.json.len) &&
                   (c == NULL || is_readable(c->text, c->len))
               ? NULL
               : no_text;
}

/* The system prompt of the first record is the conversation's: no other record may say another. */
static const char *verification_terms_hide(const struct verification *v, const struct body_terms *t)
{
    if (!is_readable(t->system, t->system_len))
        return "has a system prompt that is not UTF-8, or goes on behind a NUL";
    return v->n_at == 0 ||
                   (t->system_len == v->system.len &&
                    (t->system_len == 0 || memcmp(t->system, v->system.text, t->system_len) == 0))
               ? NULL
               : "has another system prompt than the first";
}

/* Anybody may have written the record. Why it is not what people would read in its place; NULL: it
 * is, or applying the record says what is wrong. */
static const char *verification_hides(struct verification *v, const struct journal_event *e)
{
    struct body_terms terms;
    struct body_accept a;
    struct body_finish f;
    struct error ignored;

    arena_deinit(&v->arena);
    arena_init(&v->arena, VERIFICATION_MAX_BYTES);
    if (e->kind == JOURNAL_FINISH &&
        body_read_finish(&f, e->body, e->size_bytes, &v->arena, &ignored) == STATUS_OK)
        return utf8_is_valid(f.reply.text.data, f.reply.text.len) ? NULL
                                                                  : "has a text that is not UTF-8";
    if ((e->kind == JOURNAL_ACCEPT || e->kind == JOURNAL_OBSERVE) &&
        body_read_accept(&a, e->body, e->size_bytes, &v->arena, &ignored) == STATUS_OK)
        return accept_hides(&a);
    if ((e->kind == JOURNAL_OPEN || e->kind == JOURNAL_UPDATE) &&
        body_read_terms(&terms, e->body, e->size_bytes, &v->arena, &ignored) == STATUS_OK)
        return verification_terms_hide(v, &terms);
    return NULL;
}

/* A turn that no record can be applied to, or for which there is no model. */
static void verification_pass(struct verification *v, const struct journal_event *e)
{
    if (e->kind != JOURNAL_FINISH)
        return;
    if (v->is_broken)
        verification_judge(v, VERDICT_UNCHECKED,
                           "it stands behind a record that cannot be applied");
    else if (verification_is_wanted(v))
        verification_judge(v, VERDICT_UNCHECKED, "%s", v->why_not.text);
}

/* Takes the record at v->at; ret_waits: a turn runs. */
static enum status verification_take(struct verification *v, struct conversation *c,
                                     bool *ret_waits, struct error *err)
{
    const struct journal_event *e = container_of(v->at, const struct journal_event, link);
    const char *hides;

    *ret_waits = false;
    if (e->proof.gone != 0 || v->n_at == 0) /* the first record is applied */
        return STATUS_OK;
    if (verification_ends_turn(e) && verification_add_turn(v, e->turn, err) != STATUS_OK)
        return err->status;
    if (v->is_broken || v->recall == NULL) {
        verification_pass(v, e);
        return STATUS_OK;
    }
    hides = verification_hides(v, e);
    if (hides != NULL) {
        v->is_broken = true;
        if (!verification_ends_turn(e) && verification_add_turn(v, e->turn, err) != STATUS_OK)
            return err->status;
        verification_judge(v, VERDICT_DIFFERS, "record %zu %s", v->n_at, hides);
        return STATUS_OK;
    }
    if (e->kind == JOURNAL_OBSERVE && verification_is_wanted(v))
        verification_turn(v)->verdict = VERDICT_SAME; /* nothing was computed */
    if (e->kind == JOURNAL_FINISH)
        verification_begin(v, c, e);
    *ret_waits = v->doing != VERIFICATION_APPLIES;
    return *ret_waits ? STATUS_OK : verification_apply(v, e, err);
}

/* The turn that is judged as it was recorded, behind the turns that there are; NULL without memory.
 */
static struct completed_turn *verification_recorded(const struct verification *v,
                                                    struct completed_turn *computed)
{
    struct completed_turn *out = NULL, *before = computed->before;
    struct stored_request *request;
    struct error ignored;

    if (stored_request_open(&request, &v->accept.request, &ignored) != STATUS_OK)
        return NULL;
    if (before != NULL)
        (void)completed_turn_ref(before);
    if (completed_turn_open(&out, before, request, &v->finish.reply, &ignored) == STATUS_OK)
        return out;
    completed_turn_unref(before);
    stored_request_close(request);
    return NULL;
}

/* Whether the turn that has ended stays in the conversation with its new reply. */
static bool verification_goes_on(struct verification *v)
{
    struct verified_turn *t = verification_turn(v);

    if (v->request->changes == NULL || !v->request->changes->goes_on || v->is_broken)
        return false;
    t->is_behind_new = v->has_new;
    if (t->computed == NULL)
        return false;
    v->has_new = true;
    t->recorded = verification_recorded(v, t->computed);
    return true;
}

/* The running turn has ended. */
static enum status verification_ended(struct verification *v, struct conversation *c,
                                      struct error *err)
{
    const bool looks = v->doing == VERIFICATION_LOOKS;
    const struct link *at = v->at;
    struct error ignored;

    if (looks)
        take_likeliest(v);
    else
        judge_ended(v);
    if (verification_goes_on(v)) { /* the new reply stays */
        reader_close(&v->reader, STATUS_CANCELLED);
        v->doing = VERIFICATION_APPLIES;
        return STATUS_OK;
    }
    verification_settle(v);
    /* without the likeliest tokens the difference is known, too */
    if (!looks && !v->is_broken && v->request->changes == NULL &&
        verification_turn(v)->difference.has_tokens &&
        verification_turn(v)->difference.computed >= 0 &&
        verification_run(v, c, VERIFICATION_LOOKS, &ignored) == STATUS_OK)
        return STATUS_OK;
    return v->is_broken
               ? STATUS_OK
               : verification_apply(v, container_of(at, const struct journal_event, link), err);
}

/* Applies records, until it waits, is done, or others have their turn. */
static enum status verification_apply_all(struct verification *v, bool *ret_is_done,
                                          struct error *err)
{
    bool waits = v->doing != VERIFICATION_APPLIES;
    size_t n_bytes = 0;
    enum status rc;

    while (v->at != NULL) {
        const struct journal_event *e = container_of(v->at, const struct journal_event, link);
        struct conversation *c = v->is_added ? conversations_get(v->all, &v->id) : NULL;

        if (v->is_added && c == NULL)
            return error_set(err, STATUS_UNAVAILABLE,
                             "the model was unloaded, or the server stops: verify again");
        if (waits && v->reader.turn != NULL) {
            verification_watch(v);
            return STATUS_OK;
        }
        rc = waits ? verification_ended(v, c, err) : verification_take(v, c, &waits, err);
        if (rc != STATUS_OK)
            return rc;
        waits = v->doing != VERIFICATION_APPLIES;
        if (waits)
            continue;
        n_bytes += sizeof(*e) + e->size_bytes;
        v->at = list_next(&v->found.events, v->at);
        v->n_at++;
        if (v->at != NULL && n_bytes > VERIFICATION_SLICE_BYTES) {
            v->notify(v->arg);
            return STATUS_OK;
        }
    }
    *ret_is_done = true;
    return STATUS_OK;
}

/* --- opening --- */

/* The record as the chain has it. */
static struct chain_link verification_link(const struct verification *v,
                                           const struct journal_event *e)
{
    struct chain_link link = {
        .record = {.kind = e->kind,
                   .generation = e->generation,
                   .turn = e->turn,
                   .unix_ms = e->unix_ms,
                   .body = e->body,
                   .size_bytes = e->size_bytes,
                   .principal = v->request->owner},
        .seq = e->proof.seq,
        .gone = e->proof.gone,
        .content = e->proof.content,
        .chain = e->proof.chain,
        .n_content_bytes = SHA256_BYTES,
        .n_chain_bytes = SHA256_BYTES,
    };

    memcpy(link.record.conversation, e->conversation, JOURNAL_ID_BYTES);
    return link;
}

/* Remembers the version that an acceptance names, if it is the first. */
static void verification_find_version(struct verification *v, const struct journal_event *e)
{
    struct body_accept accept;
    struct error ignored;

    if (v->version[0] != '\0' || e->kind != JOURNAL_ACCEPT || e->proof.gone != 0)
        return;
    arena_deinit(&v->arena);
    arena_init(&v->arena, VERIFICATION_MAX_BYTES);
    if (body_read_accept(&accept, e->body, e->size_bytes, &v->arena, &ignored) == STATUS_OK)
        (void)snprintf(v->version, sizeof(v->version), "%.*s", (int)strcspn(accept.binding, " "),
                       accept.binding);
}

/* Checks the chain from the next record on, which is NULL behind the last one. */
static void verification_check_chain(struct verification *v)
{
    size_t n_bytes = 0;

    for (; v->at != NULL && n_bytes < VERIFICATION_HASHED_BYTES;
         v->at = list_next(&v->found.events, v->at)) {
        const struct journal_event *e = container_of(v->at, const struct journal_event, link);
        const struct chain_link link = verification_link(v, e);

        if (v->problem == NULL) {
            v->problem = chain_check(&v->hashing, &v->check, &link);
            v->problem_record += v->problem == NULL;
        }
        verification_find_version(v, e);
        n_bytes += sizeof(*e) + e->size_bytes;
    }
    if (v->at == NULL && v->problem == NULL && (v->problem = chain_check_end(&v->check)) != NULL)
        v->problem_record--;
}

/* Chooses the model that computes, or says why there is none. */
static void verification_choose(struct verification *v, const struct body_terms *terms)
{
    const struct models *models = v->request->models;
    /* That of an agent of another kind may be another agent's, too: "1", or what a worker says. */
    const bool is_hash = strlen(v->version) == 2 * (size_t)SHA256_BYTES;
    struct error *why = &v->why_not;
    struct model *m;

    if (v->request->model[0] != '\0') {
        if (models_get(&m, models, v->request->model, why) == STATUS_OK &&
            model_check_ready(m, why) == STATUS_OK)
            v->model = m;
        return;
    }
    for (size_t i = 0; i < models->n_loaded; i++) {
        m = models->loaded[i];
        if (model_check_ready(m, why) == STATUS_OK && strcmp(m->info.version, v->version) == 0 &&
            ((is_hash && m->agent->type->text != NULL && v->model == NULL) ||
             strcmp(m->name, terms->model) == 0))
            v->model = m;
    }
    if (v->model != NULL)
        return;
    if ((v->request->is_forced || v->request->changes != NULL || v->version[0] == '\0') &&
        (models_get(&m, models, terms->model, why) == STATUS_OK ||
         models_get(&m, models, "", why) == STATUS_OK) &&
        model_check_ready(m, why) == STATUS_OK)
        v->model = m;
    else if (!is_hash)
        (void)error_set(why, STATUS_NOT_FOUND,
                        "the turn was computed by '%.80s', which is not here", terms->model);
    else
        (void)error_set(why, STATUS_NOT_FOUND,
                        "the turn was computed by the model with hash %.64s, and no model here has "
                        "it: serve that file",
                        v->version);
}

/* The first record cannot open a conversation: what comes behind it is not checked. */
static enum status verification_refuse(struct verification *v, const struct error *why,
                                       struct error *err)
{
    if (verification_add_turn(v, 0, err) != STATUS_OK)
        return err->status;
    v->is_broken = true;
    verification_judge(v,
                       why->status == STATUS_DATA_LOSS || why->status == STATUS_INVALID
                           ? VERDICT_DIFFERS
                           : VERDICT_UNCHECKED,
                       "the first record opens no conversation: %s", why->text);
    return STATUS_OK;
}

/* Applies the first record, which opens the conversation that computes. */
static enum status verification_begin_conversation(struct verification *v, struct error *err)
{
    const struct link *first = list_first(&v->found.events);
    struct conversation *c;
    enum status rc = recall_open(&v->recall, v->all, v->request->principal, v->model, err);

    if (rc != STATUS_OK)
        return rc;
    c = recall_conversation(v->recall);
    if (v->request->changes != NULL && v->request->changes->has_system)
        recall_set_system(v->recall, v->request->changes->system);
    rc = recall_event(v->recall, container_of(first, const struct journal_event, link), err);
    if (rc == STATUS_OK)
        rc = conversations_add(v->all, c, WATCH_OPENED, err);
    if (rc != STATUS_OK) {
        conversation_release(c);
        recall_close(v->recall);
        v->recall = NULL;
        v->model = NULL; /* nothing is computed with it */
        return rc;
    }
    v->id = c->id;
    v->is_added = true;
    model_hold(v->model);
    return STATUS_OK;
}

static enum status verification_begin_all(struct verification *v, struct error *err)
{
    const struct link *first = list_first(&v->found.events);
    const struct journal_event *opens = container_of(first, const struct journal_event, link);
    struct body_terms terms;
    const char *hides;
    struct error why;
    enum status rc;

    if (opens->kind != JOURNAL_OPEN) { /* a chain that was made anew may begin with any record */
        v->problem = "does not open a conversation";
        v->problem_record = 0;
        (void)error_set(&why, STATUS_DATA_LOSS, "it is of another kind");
        return verification_refuse(v, &why, err);
    }
    hides = verification_hides(v, opens);
    if (hides != NULL) {
        (void)error_set(&why, STATUS_DATA_LOSS, "it %s", hides);
        return verification_refuse(v, &why, err);
    }
    if (body_read_terms(&terms, opens->body, opens->size_bytes, &v->arena, &why) != STATUS_OK)
        return verification_refuse(v, &why, err);
    v->system = (struct text){terms.system, terms.system_len};
    verification_choose(v, &terms);
    if (v->model == NULL)
        return STATUS_OK;
    rc = verification_begin_conversation(v, &why);
    if (rc == STATUS_OK)
        return STATUS_OK;
    if (rc != STATUS_EXHAUSTED && rc != STATUS_UNAVAILABLE)
        return verification_refuse(v, &why, err);
    *err = why;
    return rc;
}

enum status verification_open(struct verification **out, struct conversations *all,
                              const struct verification_request *r, struct journal_found *found,
                              void (*notify)(void *arg), void *arg, struct error *err)
{
    struct verification *v;
    enum status rc;

    if (list_is_empty(&found->events))
        return error_field(err, "records", "is empty");
    v = try_alloc(1, sizeof(*v));
    if (v == NULL)
        return error_no_memory(err, sizeof(*v), "a verification");
    v->all = all;
    v->request = r;
    v->notify = notify;
    v->arg = arg;
    rc = chain_open(&v->hashing, err);
    if (rc != STATUS_OK) {
        free(v);
        return rc;
    }
    arena_init(&v->arena, VERIFICATION_MAX_BYTES);
    arena_init(&v->results, VERIFICATION_MAX_BYTES);
    journal_found_init(&v->found);
    list_move(&found->events, &v->found.events);
    v->at = list_first(&v->found.events);
    *out = v;
    return STATUS_OK;
}

enum status verification_advance(struct verification *v, bool *ret_is_done, struct error *err)
{
    *ret_is_done = false;
    if (v->has_begun)
        return verification_apply_all(v, ret_is_done, err);
    verification_check_chain(v);
    if (v->at == NULL) {
        if (verification_begin_all(v, err) != STATUS_OK)
            return err->status;
        v->at = list_first(&v->found.events);
        v->has_begun = true;
    }
    v->notify(v->arg);
    return STATUS_OK;
}

void verification_close(struct verification *v)
{
    struct conversation *c;

    if (v == NULL)
        return;
    if (v->doing != VERIFICATION_APPLIES)
        reader_close(&v->reader, STATUS_CANCELLED);
    c = v->is_added ? conversations_get(v->all, &v->id) : NULL;
    if (c != NULL)
        conversation_close(c, WATCH_CLOSED, "its records are verified");
    if (v->is_added)
        model_release(v->model);
    for (size_t i = 0; i < v->n_turns; i++) {
        completed_turn_unref(v->turns[i].recorded);
        completed_turn_unref(v->turns[i].computed);
    }
    recall_close(v->recall);
    chain_close(&v->hashing);
    journal_found_deinit(&v->found);
    arena_deinit(&v->arena);
    arena_deinit(&v->results);
    free(v->turns);
    free(v);
}

/* --- results --- */

const struct verified_turn *verification_turns(const struct verification *v, size_t *ret_n)
{
    *ret_n = v->n_turns;
    return v->turns;
}

const char *verification_chain_problem(const struct verification *v, size_t *ret_record)
{
    *ret_record = v->problem_record;
    return v->problem;
}

const uint8_t *verification_chain(const struct verification *v)
{
    return v->check.at;
}

const struct model *verification_model(const struct verification *v)
{
    return v->model;
}

const struct list *verification_records(const struct verification *v)
{
    return &v->found.events;
}
