/* Happy path: turn_open queues a turn. At the front of the queue the clone observes it and the
 * batcher gets its request (start). After steps with new output readers are notified (on_more). At
 * the end (on_ended) the reply becomes a completed turn, the clone self-observes, readers continue
 * with the completed turn, and the next turn starts.
 *
 * Failure: if the agent refuses to observe, the batcher refuses the request, the row fails, or
 * memory for the completed turn is short, then the clone drops the turn, the conversation is as
 * before, and readers get the error. A cancel or a deadline before the first step ends the turn in
 * the same way; later, the reply so far is kept. Turns behind a dropped one are renumbered, and
 * those whose caller chose the number fail, since it would be wrong.
 *
 * A turn that asks for no reply is complete once it is at the front (turn_take); the agent is not
 * asked.
 *
 * Of a host whose turns are kept, the turn at the front is accepted durably before the batcher gets
 * its request and readers hear of it; so those behind may still be renumbered. Its end, whatever it
 * is, is durable before readers get it and the next turn starts. Once accepted it keeps its number:
 * a cancel before the first step ends it with an empty reply. If either cannot be made durable, all
 * the host's turns fail with that error, and the host is lost. */
#include "server/conversation/turn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/conversation/observed.h"
#include "server/model/model.h"

static const uint32_t turn_moves[] = {
    [TURN_QUEUED] = 1u << TURN_ACCEPTING | 1u << TURN_ASKED | 1u << TURN_STORING | 1u << TURN_ENDED,
    [TURN_ACCEPTING] = 1u << TURN_ASKED | 1u << TURN_STORING | 1u << TURN_ENDED,
    [TURN_ASKED] = 1u << TURN_ENDING | 1u << TURN_STORING | 1u << TURN_ENDED,
    [TURN_ENDING] = 1u << TURN_STORING | 1u << TURN_ENDED,
    [TURN_STORING] = 1u << TURN_ENDED,
    [TURN_ENDED] = 0,
};

static void turn_move(struct turn *t, enum turn_state to)
{
    assert((turn_moves[t->state] & 1u << to) != 0);
    t->state = to;
}

static uint64_t turn_now_us(const struct turn *t)
{
    return env_now_us(t->host->config->env);
}

/* 0 (none) counts as the latest. */
static uint64_t latest_deadline_us(const struct turn *t)
{
    uint64_t latest = 0;
    struct link *at;

    if (t->resolved != NULL)
        return 0; /* as turn_is_detached */
    if (list_is_empty(&t->readers))
        return t->left_deadline_us;
    for (at = list_first(&t->readers); at != NULL; at = list_next(&t->readers, at)) {
        const struct turn_reader *r = container_of(at, struct turn_reader, link);

        if (r->deadline_us == 0)
            return 0;
        latest = r->deadline_us > latest ? r->deadline_us : latest;
    }
    return latest;
}

static void notify_readers(struct turn *t)
{
    struct link *at;

    for (at = list_first(&t->readers); at != NULL; at = list_next(&t->readers, at)) {
        struct turn_reader *r = container_of(at, struct turn_reader, link);

        r->notify(r->arg);
    }
}

static struct statistics *statistics(const struct turn *t)
{
    return &t->host->model->statistics;
}

/* Tokens of one step share the time since the previous token equally. */
static void time_tokens(struct turn *t)
{
    const struct reply *reply = &t->agent.reply;
    size_t n_new = reply->n_tokens - t->told_tokens;
    uint64_t now;

    if (n_new == 0 && (t->first_token_us != 0 || reply->text.len == 0))
        return;
    now = turn_now_us(t);
    if (t->first_token_us == 0) {
        t->first_token_us = now;
        statistics_first_token(statistics(t), now - t->accepted_us);
    } else {
        statistics_tokens(statistics(t), n_new, (now - t->last_token_us) / n_new);
    }
    t->last_token_us = now;
}

/* Makes the reply so far readable. */
static void turn_tell(struct turn *t)
{
    const struct reply *reply = &t->agent.reply;

    time_tokens(t);
    t->told_len = reply->text.len;
    t->told_tokens = reply->n_tokens;
    t->told_prompt = reply->n_prompt;
    t->told_cached = reply->n_cached;
    t->told_prefilled = reply->n_prefilled;
    if (t->hold.quota != NULL)
        quota_generated(&t->hold, turn_now_us(t), reply->n_tokens);
}

static void free_turn(struct turn *t)
{
    assert(list_is_empty(&t->readers));
    if (link_is_on(&t->lingering))
        list_remove(&t->lingering);
    quota_release(&t->hold);
    agent_turn_deinit(&t->agent);
    arena_deinit(&t->arena);
    stored_request_close(t->request);
    free(t->resolved);
    free(t->key);
    buf_deinit(&t->trace);
    completed_turn_unref(t->completed);
    conversation_options_unref(t->options);
    free(t);
}

const struct stored_request *turn_request_of(const struct turn *t)
{
    return t->request != NULL ? t->request : t->completed->request;
}

bool turn_is_detached(const struct turn *t)
{
    return turn_request_of(t)->is_detached || t->resolved != NULL;
}

bool turn_has_begun(const struct turn *t)
{
    return t->state > TURN_ACCEPTING && !(t->state == TURN_STORING && t->is_observed);
}

/* Readers continue with the completed turn, or have only an error to read. err is their final
 * status, OK for done. */
static void release_readers(struct turn *t, struct completed_turn *completed,
                            const struct error *err)
{
    struct link *at;

    while ((at = list_pop(&t->readers)) != NULL) {
        struct turn_reader *r = container_of(at, struct turn_reader, link);

        r->turn = NULL;
        r->completed = completed == NULL ? NULL : completed_turn_ref(completed);
        r->err = *err;
        r->notify(r->arg);
    }
}

static void count_success(const struct turn *t, const struct completed_turn *completed)
{
    struct statistics *s = statistics(t);
    const struct timings *timings = &completed->timings;
    uint64_t now = turn_now_us(t);
    const struct request_times times = {
        .total_us = now - t->accepted_us,
        .queue_us = timings->queue_us - t->input_us,
        .input_us = t->input_us,
        .infer_us = timings->prefill_us + timings->decode_us,
        .output_us = now - t->accepted_us - timings->total_us,
    };

    statistics_succeed(s, &times, now);
    histogram_add(&s->prefill, &histogram_times, timings->prefill_us, 1);
    histogram_add(&s->decode, &histogram_times, timings->decode_us, 1);
    s->n_prompt += completed->usage.n_prompt;
    s->n_cached += completed->usage.n_cached;
    s->n_said += completed->usage.n_completion;
}

static void turn_count(const struct turn *t, const struct completed_turn *completed,
                       const struct error *err)
{
    if (completed != NULL && err->status == STATUS_OK && completed->finish != FINISH_CANCELLED)
        count_success(t, completed);
    else
        statistics_fail(statistics(t), err->status == STATUS_OK ? STATUS_CANCELLED : err->status,
                        turn_now_us(t) - t->accepted_us);
}

/* Removes the turn from the queue and frees it. */
static void remove_turn(struct turn *t, struct completed_turn *completed, const struct error *err)
{
    struct turn_host *h = t->host;

    turn_move(t, TURN_ENDED);
    if (!t->is_observed)
        turn_count(t, completed, err);
    release_readers(t, completed, err);
    list_remove(&t->link);
    h->n_live--;
    h->config->left(h, completed != NULL);
    free_turn(t);
}

/* After a drop: the later turns move up. */
static void renumber(struct turn_host *h)
{
    uint32_t next = h->n_turns + 1;
    struct link *at = list_first(&h->turns);

    while (at != NULL) {
        struct turn *t = container_of(at, struct turn, link);
        struct error err;

        at = list_next(&h->turns, at);
        if (!t->is_numbered)
            t->number = next;
        if (t->number == next) {
            next++;
            continue;
        }
        (void)error_because(&err, STATUS_ABORTED, REASON_TURN_BEFORE_FAILED, "turn",
                            "turn %u was not taken because one before it failed; the next is %u",
                            t->number, next);
        remove_turn(t, NULL, &err);
    }
}

static void on_more(struct agent_turn *agent)
{
    struct turn *t = container_of(agent, struct turn, agent);

    turn_tell(t);
    notify_readers(t);
}

static void on_ended(struct agent_turn *agent, const struct error *ended);

static enum status turn_ask(struct turn *t, struct error *err)
{
    const struct turn_host *h = t->host;
    const struct agent_turn_terms terms = {
        .deadline_us = latest_deadline_us(t),
        .priority = t->options->limits.priority,
        .ended = on_ended,
        .more = on_more,
    };

    return agent_turn_ask(&t->agent, h->model->batcher, &terms, err);
}

/* Applies the conversation's limit on its context, once the agent has counted the prompt. */
static enum status bound_tokens(struct turn *t, struct error *err)
{
    uint32_t max = t->options->limits.max_tokens;
    struct sampling *s = &t->agent.seen.sampling;
    uint32_t n_prompt = t->agent.reply.n_prompt;

    if (max == 0)
        return STATUS_OK;
    if (n_prompt >= max)
        return error_because(err, STATUS_RANGE, REASON_CONTEXT_EXCEEDED, NULL,
                             "the prompt has %u tokens, the conversation is limited to %u",
                             n_prompt, max);
    if (s->max_tokens == 0 || s->max_tokens > max - n_prompt)
        s->max_tokens = max - n_prompt;
    return STATUS_OK;
}

/* Applies the sampling parameters of the model, the conversation and the turn, in this order. */
static void lay_sampling(const struct turn *t, struct sampling *s)
{
    const struct turn_host *h = t->host;

    *s = h->model->info.defaults;
    s->seed = h->seed;
    s->has_seed = true;
    sampling_overrides_apply(t->options->overrides, s);
    sampling_overrides_apply(t->request->overrides, s);
    s->want_logprobs = t->request->n_logprobs > 0;
    s->n_logprobs = t->request->n_logprobs;
    if (t->resolved != NULL)
        sampling_overrides_apply(t->resolved, s);
}

/* Agents do not know what the request calls its prompt. */
static enum status name_prompt(const struct turn *t, struct error *err)
{
    if (err->reason == REASON_CONTEXT_EXCEEDED && err->field[0] == '\0')
        (void)error_name_field(err, t->request->is_plain ? "prompt" : "messages");
    return err->status;
}

/* For a completed turn, which takes it. */
static struct completed_turn *newest_ref(const struct turn_host *h)
{
    return h->newest == NULL ? NULL : completed_turn_ref(h->newest);
}

static void take_timings(const struct turn *t, struct timings *out)
{
    uint64_t now = turn_now_us(t);
    uint64_t first_step = t->agent.first_step_us == 0 ? now : t->agent.first_step_us;
    uint64_t first_token = t->first_token_us == 0 ? now : t->first_token_us;

    *out = (struct timings){
        .queue_us = first_step - t->accepted_us,
        .prefill_us = first_token > first_step ? first_token - first_step : 0,
        .decode_us = now - first_token,
        .total_us = now - t->accepted_us,
        .n_steps = t->agent.n_steps,
    };
}

/* The clone self-observes. On failure nothing has changed. */
static enum status turn_keep(struct turn *t, struct completed_turn **out, struct error *err)
{
    struct turn_host *h = t->host;
    struct completed_turn *before = newest_ref(h), *completed;
    enum status rc = STATUS_OK;

    if (h->is_kept)
        rc = agent_turn_trace(&t->agent, &t->trace, err);
    if (rc == STATUS_OK)
        rc = completed_turn_open(&completed, before, t->request, &t->agent.reply, err);
    if (rc != STATUS_OK) {
        completed_turn_unref(before);
        return rc;
    }
    t->request = NULL;
    take_timings(t, &completed->timings);
    agent_turn_keep(&t->agent);
    *out = completed;
    return STATUS_OK;
}

/* An empty reply for an observed turn. On failure nothing has changed. */
static enum status turn_keep_nothing(struct turn *t, struct completed_turn **out, struct error *err)
{
    enum status rc = agent_turn_recall(&t->agent, NULL, 0, err);

    if (rc != STATUS_OK)
        return rc;
    t->agent.reply.finish = t->why;
    return turn_keep(t, out, err);
}

/* Stores the accepted turn as one that said nothing. On failure nothing has changed. */
static enum status turn_store_nothing(struct turn *t, struct error *err)
{
    struct turn_host *h = t->host;
    struct error ignored;
    enum status rc = turn_keep_nothing(t, &t->completed, err);

    if (rc != STATUS_OK)
        return rc;
    rc = h->config->store(h, t, err);
    if (rc != STATUS_OK) /* to where it was cannot fail */
        (void)!h->clone->agent->type->rewind(h->clone, observed_n_acted(h->newest), &ignored);
    return rc;
}

/* After the clone has observed it. */
static enum status turn_proceed(struct turn *t, struct error *err)
{
    struct turn_host *h = t->host;
    enum turn_state next = TURN_ASKED;
    enum status rc;

    if (h->is_kept && !t->is_accepted) {
        rc = h->config->accept(h, t, err);
        next = TURN_ACCEPTING;
    } else if (t->is_cut) {
        rc = turn_store_nothing(t, err);
        next = TURN_STORING;
    } else {
        rc = turn_ask(t, err);
    }
    if (rc == STATUS_OK)
        turn_move(t, next);
    return rc;
}

/* On failure the clone is unchanged. */
static enum status turn_start(struct turn *t, struct error *err)
{
    struct turn_host *h = t->host;
    /* What an earlier process accepted was counted there. */
    struct access_quota *quota = t->is_accepted && !t->is_repeated ? NULL : h->quota;
    unsigned n_requests = t->request->wants.is_counted ? 0 : 1;
    uint64_t begun_us;
    enum status rc;

    agent_turn_init(&t->agent, &t->arena, h->config->max_reply_bytes);
    t->agent.seen = (struct observation){
        .is_raw_prompt = t->request->is_plain,
        .raw_ids = t->request->plain_ids,
        .n_raw_ids = t->request->n_plain_ids,
        .raw = t->request->raw,
        .turn = observed_n_acted(h->newest) + 1,
        .pooling = t->request->wants.pooling,
        .want_prompt_logprobs = t->request->wants.logprobs,
        .n_prompt_tops = t->request->wants.n_tops,
        .want_prompt_ids = t->request->wants.ids,
        .no_reply = t->request->wants.no_reply,
        .is_accepted = t->is_accepted,
        .tool_use = t->request->tool_use,
        .variables = t->request->variables,
        .predicted = t->predicted,
        .n_predicted = t->n_predicted,
    };
    lay_sampling(t, &t->agent.seen.sampling);
    begun_us = turn_now_us(t);
    if (quota != NULL && quota_check(quota, begun_us, n_requests, err) != STATUS_OK)
        return err->status;
    rc = observed_gather(&t->agent.seen, h->newest, t->request, &t->arena, err);
    if (rc == STATUS_OK)
        rc = agent_turn_observe(&t->agent, h->clone, err);
    if (rc != STATUS_OK)
        return name_prompt(t, err);
    t->input_us = turn_now_us(t) - begun_us;
    rc = bound_tokens(t, err);
    if (rc == STATUS_OK && quota != NULL)
        rc = quota_take(&t->hold, quota, turn_now_us(t), n_requests, t->agent.reply.n_prompt, err);
    if (rc == STATUS_OK)
        rc = turn_proceed(t, err);
    if (rc != STATUS_OK) {
        quota_undo(&t->hold, turn_now_us(t));
        if (agent_turn_is_open(&t->agent))
            agent_turn_drop(&t->agent);
        return name_prompt(t, err);
    }
    turn_tell(t);
    return STATUS_OK;
}

/* The turn is the host's newest. */
static void turn_count_complete(struct turn *t, struct completed_turn *completed)
{
    struct turn_host *h = t->host;
    struct completed_turn *before = h->newest;

    h->newest = completed;
    completed_turn_unref(before); /* completed has a reference of its own */
    h->n_turns++;
    h->last_done_us = turn_now_us(t);
}

/* Completes a turn that asks for no reply; of a kept one *out is NULL and it is being stored. On
 * failure nothing has changed. */
static enum status turn_take(struct turn *t, struct completed_turn **out, struct error *err)
{
    struct turn_host *h = t->host;
    struct completed_turn *before = newest_ref(h), *completed;
    enum status rc = observed_keep(&completed, before, t->request, err);

    if (rc != STATUS_OK) {
        completed_turn_unref(before);
        return rc;
    }
    t->request = NULL;
    if (!h->is_kept) {
        turn_count_complete(t, completed);
        *out = completed;
        return STATUS_OK;
    }
    t->completed = completed;
    rc = h->config->store(h, t, err);
    if (rc == STATUS_OK)
        turn_move(t, TURN_STORING);
    return rc;
}

/* Starts or takes the turn at the front, if it is queued; turns that cannot start fail. */
static void turn_advance(struct turn_host *h)
{
    while (!list_is_empty(&h->turns)) {
        struct turn *t = container_of(list_first(&h->turns), struct turn, link);
        struct completed_turn *completed = NULL;
        struct error err = {0};
        enum status rc;

        if (t->state != TURN_QUEUED)
            return;
        rc = t->is_observed ? turn_take(t, &completed, &err) : turn_start(t, &err);
        if (rc == STATUS_OK && completed == NULL) {
            if (turn_has_begun(t))
                notify_readers(t);
            return;
        }
        remove_turn(t, completed, &err);
        if (completed == NULL)
            renumber(h);
    }
}

/* After a turn has left the queue. */
static void turn_start_next(struct turn_host *h)
{
    turn_advance(h);
    if (list_is_empty(&h->turns))
        h->config->emptied(h);
}

/* The end of the turn is told: completed, or, if that is NULL, err. */
static void turn_conclude(struct turn *t, struct completed_turn *completed, const struct error *err)
{
    struct turn_host *h = t->host;

    if (completed != NULL)
        turn_count_complete(t, completed);
    remove_turn(t, completed, err);
    if (completed == NULL)
        renumber(h);
    turn_start_next(h);
}

static const struct error turn_lost = {
    .status = STATUS_UNAVAILABLE,
    .reason = REASON_JOURNAL_FAILING,
    .retry_after_ms = 1000,
    .text = "the journal could not be written",
};

/* All turns fail, without another one being started. h may be freed. */
static void turn_lose(struct turn *t, const struct error *err)
{
    struct turn_host *h = t->host;
    struct link *at;

    assert(list_first(&h->turns) == &t->link);
    while ((at = list_last(&h->turns)) != &t->link)
        remove_turn(container_of(at, struct turn, link), NULL, err);
    remove_turn(t, NULL, err);
    h->config->lost(h);
}

/* The turn has ended: readers are told at once, or, of a kept turn, once that is durable. */
static void turn_settle(struct turn *t, struct completed_turn *completed, const struct error *err)
{
    struct turn_host *h = t->host;
    struct error why;

    if (!h->is_kept) {
        turn_conclude(t, completed, err);
        return;
    }
    if (h->lost != NULL) {
        completed_turn_unref(completed);
        turn_lose(t, h->lost);
        return;
    }
    t->completed = completed;
    t->err = *err;
    turn_move(t, TURN_STORING);
    if (h->config->store(h, t, &why) != STATUS_OK)
        turn_lose(t, &why);
}

void turn_stored(struct turn *t, const struct error *err)
{
    const struct error own = t->err;
    struct completed_turn *completed = t->completed;

    if (err->status != STATUS_OK) {
        turn_lose(t, err);
        return;
    }
    t->completed = NULL;
    turn_conclude(t, completed, &own);
}

/* Ends an accepted turn, observed and not asked, with an empty reply. */
static void turn_cut(struct turn *t)
{
    struct completed_turn *completed = NULL;
    struct error err = {0};

    if (turn_keep_nothing(t, &completed, &err) != STATUS_OK)
        agent_turn_drop(&t->agent);
    else if (t->why == FINISH_DEADLINE)
        (void)error_set(&err, STATUS_DEADLINE, "the deadline passed before the turn began");
    turn_settle(t, completed, &err);
}

void turn_accepted(struct turn *t, const struct error *err)
{
    struct error why;

    assert(t->state == TURN_ACCEPTING);
    if (err->status != STATUS_OK || t->host->lost != NULL) {
        agent_turn_drop(&t->agent);
        turn_lose(t, err->status != STATUS_OK ? err : t->host->lost);
        return;
    }
    t->is_accepted = true;
    if (t->is_cut) {
        turn_cut(t);
    } else if (turn_ask(t, &why) == STATUS_OK) {
        turn_move(t, TURN_ASKED);
        notify_readers(t);
    } else {
        agent_turn_drop(&t->agent);
        turn_settle(t, NULL, &why);
    }
}

/* Why a request ended early, as a finish reason; FINISH_NONE if it did not. */
static enum finish early_finish(const struct turn *t, const struct error *ended)
{
    enum status status = ended->status;

    if (ended->reason == REASON_WORKER_LOST)
        return FINISH_NONE; /* nothing was sent: the turn was not taken */
    if (status != STATUS_CANCELLED && status != STATUS_DEADLINE && status != STATUS_UNAVAILABLE)
        return FINISH_NONE;
    if (t->state == TURN_ENDING)
        return t->why;
    return status == STATUS_DEADLINE ? FINISH_DEADLINE : FINISH_CANCELLED;
}

static void on_ended(struct agent_turn *agent, const struct error *ended)
{
    struct turn *t = container_of(agent, struct turn, agent);
    struct completed_turn *completed = NULL;
    struct error err = *ended;
    enum finish early = early_finish(t, ended);
    uint64_t deadline_us;

    turn_tell(t);

    /* A reader with a later deadline came after the request was made: the row continues where it
     * stopped. */
    deadline_us = latest_deadline_us(t);
    if (ended->status == STATUS_DEADLINE && t->state == TURN_ASKED &&
        (deadline_us == 0 || deadline_us > turn_now_us(t)) && turn_ask(t, &err) == STATUS_OK)
        return;

    if (early != FINISH_NONE &&
        (t->agent.n_steps > 0 || (t->is_accepted && ended->status != STATUS_UNAVAILABLE))) {
        t->agent.reply.finish = early;
        if (turn_keep(t, &completed, &err) == STATUS_OK && early == FINISH_CANCELLED)
            err.status = STATUS_OK; /* a cancelled turn counts as done */
        else if (completed != NULL)
            (void)error_set(&err, STATUS_DEADLINE, "the deadline passed after %zu tokens",
                            t->told_tokens);
    } else if (early != FINISH_NONE && early == FINISH_DEADLINE) {
        (void)error_set(&err, STATUS_DEADLINE, "the deadline passed before the turn began");
    } else if (ended->status == STATUS_OK) {
        (void)turn_keep(t, &completed, &err); /* a failure is in err, which readers get */
    }
    if (completed == NULL)
        agent_turn_drop(&t->agent);
    turn_settle(t, completed, &err);
}

static struct turn *turn_new(struct turn_host *h, uint32_t number)
{
    struct turn *t = try_alloc(1, sizeof(*t));

    if (t == NULL)
        return NULL;
    t->host = h;
    t->options = conversation_options_ref(h->options);
    t->number = number;
    t->accepted_us = turn_now_us(t);
    list_init(&t->readers);
    arena_init(&t->arena, h->config->max_arena_bytes);
    buf_init(&t->trace, h->config->max_arena_bytes);
    return t;
}

static enum status turn_take_key(struct turn *t, const struct turn_key *key, struct error *err)
{
    size_t text_size = key == NULL ? 0 : strlen(key->text) + 1;
    char *at;

    if (key == NULL || !t->host->is_kept)
        return STATUS_OK;
    t->key = try_alloc(1, sizeof(*t->key) + text_size + key->size_bytes);
    if (t->key == NULL)
        return error_no_memory(err, key->size_bytes, "a request with a key");
    at = (char *)(t->key + 1);
    *t->key = *key;
    t->key->text = memcpy(at, key->text, text_size);
    t->key->body = memcpy(at + text_size, key->body, key->size_bytes);
    return STATUS_OK;
}

static void turn_enqueue(struct turn *t)
{
    struct turn_host *h = t->host;

    list_push(&h->turns, &t->link);
    h->n_live++;
    if (!t->is_observed)
        statistics_begin(statistics(t));
    h->config->began(h);
}

/* Starts a turn that was accepted before. If that fails, request and resolved are still the
 * caller's. */
static enum status turn_start_again(struct turn *t, struct stored_request *request,
                                    struct sampling_overrides *resolved, struct error *err)
{
    enum status rc;

    t->is_numbered = true;
    t->is_accepted = true;
    t->why = FINISH_ERROR;
    t->request = request;
    t->resolved = resolved;
    assert(list_is_empty(&t->host->turns));
    rc = turn_start(t, err);
    if (rc == STATUS_OK) {
        turn_enqueue(t);
        return STATUS_OK;
    }
    t->request = NULL; /* not taken */
    t->resolved = NULL;
    return rc;
}

enum status turn_reopen(struct turn_host *h, struct stored_request *request,
                        struct sampling_overrides *resolved, uint32_t number, bool is_cut,
                        struct error *err)
{
    struct turn *t = turn_new(h, number);
    enum status rc;

    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a turn");
    t->is_cut = is_cut;
    rc = turn_start_again(t, request, resolved, err);
    if (rc != STATUS_OK)
        free_turn(t);
    return rc;
}

enum status turn_repeat(struct turn_host *h, struct stored_request *request,
                        struct sampling_overrides *resolved, const int32_t *predicted,
                        size_t n_predicted, struct turn_reader *reader, struct error *err)
{
    struct turn *t = turn_new(h, h->n_turns + 1);
    int32_t *ids = t == NULL ? NULL : arena_alloc(&t->arena, n_predicted + 1, sizeof(*ids));
    enum status rc;

    if (ids == NULL) {
        if (t != NULL)
            free_turn(t);
        return error_no_memory(err, sizeof(*t) + n_predicted * sizeof(*ids), "a turn");
    }
    if (n_predicted > 0)
        memcpy(ids, predicted, n_predicted * sizeof(*ids));
    t->predicted = ids;
    t->n_predicted = n_predicted;
    t->is_repeated = true;
    turn_attach(t, reader);
    rc = turn_start_again(t, request, resolved, err);
    if (rc != STATUS_OK) {
        list_remove(&reader->link);
        reader->turn = NULL;
        free_turn(t);
    }
    return rc;
}

enum status turn_open(struct turn_host *h, const struct turn_request *r, uint32_t number,
                      struct turn_reader *reader, struct error *err)
{
    static const struct error ok = {0};
    struct turn *t = turn_new(h, number);
    struct completed_turn *completed = NULL;
    enum status rc;

    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a turn");
    t->is_numbered = r->number != 0;
    t->is_observed = r->is_observed;
    reader->deadline_us = r->deadline_us;
    reader->is_reply_deadline = r->is_reply_deadline;
    rc = stored_request_open(&t->request, r, err);
    if (rc == STATUS_OK)
        rc = turn_take_key(t, r->key, err);
    if (rc == STATUS_OK) {
        const struct env *env = h->config->env;
        uint64_t *seed = &t->request->tool_use.seed;

        if (r->tool_use.tools.len > 0 && *seed == 0) /* else it was stored */
            env->random(env->self, seed, sizeof(*seed));
        turn_attach(t, reader);
        if (list_is_empty(&h->turns))
            rc = t->is_observed ? turn_take(t, &completed, err) : turn_start(t, err);
        if (rc != STATUS_OK) {
            list_remove(&reader->link);
            reader->turn = NULL;
        }
    }
    if (rc != STATUS_OK) {
        free_turn(t);
        return rc;
    }
    turn_enqueue(t);
    if (completed != NULL)
        remove_turn(t, completed, &ok);
    return STATUS_OK;
}

/* It ends soon, whatever is done. */
static bool turn_is_ending(const struct turn *t)
{
    return t->state == TURN_ENDING || t->state == TURN_STORING ||
           (t->state == TURN_ACCEPTING && t->is_cut);
}

void turn_end(struct turn *t, enum finish why)
{
    struct turn_host *h = t->host;
    struct error err;

    switch (t->state) {
    case TURN_QUEUED:
        if (why == FINISH_DEADLINE)
            (void)error_set(&err, STATUS_DEADLINE, "the deadline passed before the turn began");
        else
            (void)error_set(&err, STATUS_CANCELLED, "the turn was cancelled before it began");
        remove_turn(t, NULL, &err);
        renumber(h);
        turn_start_next(h);
        break;
    case TURN_ACCEPTING:
        t->is_cut = true;
        t->why = why;
        break;
    case TURN_ASKED:
        turn_move(t, TURN_ENDING);
        t->why = why;
        agent_turn_cancel(&t->agent);
        break;
    case TURN_ENDING:
    case TURN_STORING:
        break;
    case TURN_ENDED:
        assert(0);
    }
}

void turn_lose_all(struct turn_host *h, const struct error *why)
{
    struct link *at = list_first(&h->turns);

    h->lost = why == NULL ? &turn_lost : why;
    while (at != NULL) {
        struct turn *t = container_of(at, struct turn, link);

        at = list_next(&h->turns, at);
        if (t->state == TURN_QUEUED)
            remove_turn(t, NULL, h->lost);
    }
}

void turn_left(struct turn *t, uint64_t deadline_us, enum status why)
{
    struct turn_host *h = t->host;

    t->left_deadline_us = deadline_us;
    if (turn_is_ending(t) || turn_is_detached(t) || (t->is_numbered && h->config->linger(h, t)))
        return;
    turn_end(t, why == STATUS_DEADLINE ? FINISH_DEADLINE : FINISH_CANCELLED);
}

void turn_attach(struct turn *t, struct turn_reader *r)
{
    r->turn = t;
    r->generation = t->host->generation;
    list_push(&t->readers, &r->link);
    if (link_is_on(&t->lingering))
        list_remove(&t->lingering);
}

void turn_attach_completed(struct completed_turn *completed, uint32_t generation,
                           struct turn_reader *r)
{
    r->generation = generation;
    r->completed = completed_turn_ref(completed);
}

size_t turn_cancel_from(struct turn_host *h, uint32_t number)
{
    size_t n = 0;

    /* From the end: then no turn behind a removed one has to move up. */
    while (!list_is_empty(&h->turns)) {
        struct turn *t = container_of(list_last(&h->turns), struct turn, link);

        if (turn_is_ending(t) || t->number < number)
            break;
        n++;
        turn_end(t, FINISH_CANCELLED);
    }
    return n;
}

size_t turn_cancel_all(struct turn_host *h)
{
    return turn_cancel_from(h, 0);
}
