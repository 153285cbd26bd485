/* The agent and its clones. In a turn, observe copies the messages into a new turn of the
 * transcript and makes the turn's row; each step that the batcher begins gives new rows to workers
 * (worker.c), and ends once a row is answered; self_observe appends the turn to the transcript.
 *
 * When no turn is under way, a clone that is open at a worker has there exactly the turns of its
 * transcript. To keep it so, the worker is told to rewind or to close its clone whenever the clone
 * and the transcript would differ. */
#include "agents/remote/remote.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agents/remote/parts.h"
#include "base/alarm.h"
#include "base/alloc.h"

enum { REMOTE_MAX_WAITING = 4096 };

static enum status remote_agent_open(struct agent *a, const struct agent_config *config,
                                     struct error *err)
{
    struct remote_agent *r = remote_of(a);

    r->peers = config->spec;
    r->version[0] = '1';
    list_init(&r->workers);
    return STATUS_OK;
}

static void remote_agent_close(struct agent *a)
{
    assert(remote_of(a)->n_workers == 0 && remote_of(a)->step == NULL);
}

static void remote_agent_info(const struct agent *a, struct agent_info *out)
{
    memcpy(out->version, const_remote_of(a)->version, sizeof(const_remote_of(a)->version));
    out->is_inexact = !remote_agent_can(const_remote_of(a), REMOTE_DETERMINISTIC);
    out->acting = (struct acting_info){
        .n_observations = const_remote_of(a)->tensors.n_observations,
        .n_actions = const_remote_of(a)->tensors.n_actions,
        .n_action_numbers = const_remote_of(a)->tensors.n_action_numbers,
        .has_logp = const_remote_of(a)->tensors.has_logp,
        .has_value = const_remote_of(a)->tensors.has_value,
    };
}

static void remote_agent_batching(const struct agent *a, struct batcher_config *out)
{
    *out = (struct batcher_config){
        .policy = BATCH_CONTINUOUS,
        .max_rows = REMOTE_MAX_ROWS,
        .max_waiting = REMOTE_MAX_WAITING,
    };
}

/* --- clones --- */

static enum status remote_clone_open(struct clone *c, const struct clone_config *config,
                                     struct error *err)
{
    struct remote_clone *rc = remote_clone_of(c);

    rc->id = ++remote_agent_of(rc)->n_clones;
    if (config->system == NULL)
        return STATUS_OK;
    return remote_blob_make(&rc->system, config->system, config->system_len, err);
}

/* Has the clone closed at its worker, where it is of no use any more. */
static void remote_clone_leave(struct remote_clone *c)
{
    if (c->worker == NULL)
        return;
    remote_clone_forget_save(c);
    remote_worker_order_close(c);
}

static void remote_clone_close(struct clone *c)
{
    struct remote_clone *rc = remote_clone_of(c);

    assert(rc->row == NULL);
    remote_clone_leave(rc);
    remote_turn_unref(rc->last);
    remote_blob_unref(rc->saved);
    remote_blob_unref(rc->system);
}

static void remote_clone_info(const struct clone *c, struct clone_info *out)
{
    const struct remote_clone *rc = const_remote_clone_of(c);

    *out = (struct clone_info){.state_bytes =
                                   sizeof(*rc) + (rc->saved == NULL ? 0 : rc->saved->size_bytes)};
}

static enum status remote_clone_turn_at(const struct remote_clone *c, uint32_t at_turn,
                                        struct remote_turn **out, struct error *err)
{
    struct remote_turn *t = c->last;

    if (at_turn > remote_clone_n_turns(c))
        return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, NULL,
                             "turn %u does not exist, the conversation has %u turns", at_turn,
                             remote_clone_n_turns(c));
    while (t != NULL && t->number > at_turn)
        t = t->before;
    *out = t;
    return STATUS_OK;
}

static enum status remote_clone_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                                     struct error *err)
{
    const struct remote_clone *from = const_remote_clone_of(parent);
    struct remote_clone *rc = remote_clone_of(c);
    struct remote_turn *last = NULL;

    rc->id = ++remote_agent_of(rc)->n_clones;
    if (remote_clone_turn_at(from, at_turn, &last, err) != STATUS_OK)
        return err->status;
    rc->system = remote_blob_ref(from->system);
    rc->last = remote_turn_ref(last);
    if (from->saved != NULL && from->saved->turn <= at_turn)
        rc->saved = remote_blob_ref(from->saved);
    if (from->worker != NULL && from->row == NULL &&
        remote_agent_can(remote_agent_of(rc), REMOTE_FORK) &&
        (at_turn == remote_clone_n_turns(from) ||
         remote_agent_can(remote_agent_of(rc), REMOTE_REWIND)))
        remote_worker_order_fork(rc, from);
    return STATUS_OK;
}

/* Has the worker's clone rewound to the transcript, or closed if the worker cannot rewind. */
static void remote_clone_take_back(struct remote_clone *c)
{
    if (c->worker == NULL)
        return;
    remote_clone_forget_save(c);
    if (remote_agent_can(remote_agent_of(c), REMOTE_REWIND))
        remote_worker_order_rewind(c);
    else
        remote_worker_order_close(c);
}

static enum status remote_clone_rewind(struct clone *c, uint32_t at_turn, struct error *err)
{
    struct remote_clone *rc = remote_clone_of(c);
    struct remote_turn *last = NULL, *before = rc->last;

    if (remote_clone_turn_at(rc, at_turn, &last, err) != STATUS_OK)
        return err->status;
    if (last == before)
        return STATUS_OK;
    rc->last = remote_turn_ref(last);
    remote_turn_unref(before);
    if (rc->saved != NULL && rc->saved->turn > at_turn) {
        remote_blob_unref(rc->saved);
        rc->saved = NULL;
    }
    remote_clone_take_back(rc);
    return STATUS_OK;
}

static void remote_clone_reset(struct clone *c)
{
    struct error ignored;

    (void)remote_clone_rewind(c, 0, &ignored); /* turn 0 is always there */
}

/* --- turns --- */

static struct remote_row *row_of(const struct agent_turn *turn)
{
    return turn->row.turn;
}

static enum status remote_clone_check_room(const struct remote_clone *c, struct error *err)
{
    size_t max_bytes = remote_agent_can(remote_agent_of(c), REMOTE_STATELESS)
                           ? REMOTE_MAX_STEP_BYTES
                           : REMOTE_MAX_TRANSCRIPT_BYTES;

    if (c->last == NULL || c->last->total_bytes + c->last->reply.len <= max_bytes)
        return STATUS_OK;
    return error_because(err, STATUS_RANGE, REASON_CONVERSATION_FULL, NULL,
                         "the conversation has more than %zu bytes of text already", max_bytes);
}

static enum status remote_clone_check_turn(const struct remote_clone *c,
                                           const struct observation *seen, struct error *err)
{
    const struct remote_tensors *tensors = &remote_agent_of(c)->tensors;

    if (tensors->n_observations > 0)
        return remote_tensors_check_observation(tensors, seen, err);
    if (seen->n_messages == 0)
        return error_field(err, "messages",
                           "is empty, an attached agent needs messages and takes no token ids");
    if (seen->is_raw_prompt && seen->n_raw_ids > 0)
        return error_field(err, "prompt", "has token ids, an attached agent takes only text");
    if (sampling_check(&seen->sampling, 0, err) != STATUS_OK)
        return err->status;
    return remote_clone_check_room(c, err);
}

static enum status remote_observe(struct clone *c, struct agent_turn *turn, struct error *err)
{
    const struct observation *seen = &turn->seen;
    struct remote_clone *rc = remote_clone_of(c);
    struct remote_row *row;

    if (remote_agent_of(rc)->n_workers == 0) {
        (void)error_because(err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, "model",
                            "no worker of model '%s' is attached", c->agent->name);
        err->retry_after_ms = REMOTE_RETRY_MS;
        return err->status;
    }
    if (remote_clone_check_turn(rc, seen, err) != STATUS_OK)
        return err->status;
    row = try_alloc(1, sizeof(*row));
    if (row == NULL)
        return error_no_memory(err, sizeof(*row), "a turn");
    if (remote_turn_make(&row->said, rc->last, seen->messages, seen->n_messages,
                         turn->reply.text.limit_bytes, err) != STATUS_OK) {
        free(row);
        return err->status;
    }
    row->turn = turn;
    row->tensors = remote_agent_of(rc)->tensors;
    if (seen->n_tensors > 0) {
        row->said->number = seen->turn;
        row->said->size_bytes = seen->tensors[0].size_bytes;
    }
    row->clone = rc;
    rc->row = row;
    turn->row.clone = c;
    turn->row.turn = row;
    return STATUS_OK;
}

static bool remote_save_is_due(const struct remote_clone *c)
{
    uint32_t n_saved = c->saved == NULL ? 0 : c->saved->turn;

    return c->worker != NULL && remote_agent_can(remote_agent_of(c), REMOTE_SAVE) &&
           remote_clone_n_turns(c) - n_saved >= remote_agent_of(c)->save_every;
}

static void remote_self_observe(struct clone *c, struct agent_turn *turn)
{
    struct remote_clone *rc = remote_clone_of(c);
    struct remote_row *row = row_of(turn);
    bool is_whole = row->is_whole;

    if (turn->seen.n_tensors > 0) {
        remote_row_leave(row); /* no later row needs it */
        return;
    }
    remote_turn_unref(rc->last); /* the transcript holds a reference to it */
    rc->last = remote_turn_ref(row->said);
    remote_row_leave(row);
    if (!is_whole)
        remote_clone_leave(rc); /* its worker has another reply than the transcript */
    else if (remote_save_is_due(rc))
        remote_worker_order_save(rc);
}

static void remote_drop(struct clone *c, struct agent_turn *turn)
{
    struct remote_clone *rc = remote_clone_of(c);
    struct remote_row *row = row_of(turn);
    bool is_known = row->state == REMOTE_ROW_SENT || row->has_begun || row->is_whole;

    if (row->has_failed)
        is_known = false;
    remote_row_leave(row);
    if (is_known)
        remote_clone_take_back(rc);
}

/* The trace of a turn is its reply. */
static enum status remote_trace(const struct clone *c, const struct agent_turn *turn,
                                struct buf *out, struct error *err)
{
    const struct buf *reply = &row_of(turn)->said->reply;

    if (reply->len == 0 || buf_append(out, reply->data, reply->len) == STATUS_OK)
        return STATUS_OK;
    return error_no_memory(err, reply->len, "a turn's trace");
}

static enum status remote_recall(struct clone *c, struct agent_turn *turn, const void *trace,
                                 size_t size_bytes, struct error *err)
{
    if (buf_append(&row_of(turn)->said->reply, trace, size_bytes) == STATUS_OK)
        return STATUS_OK;
    return error_no_memory(err, size_bytes, "a reply");
}

static size_t remote_cost_of(const struct agent *a, const struct row *r)
{
    const struct remote_row *row = r->turn;

    if (row->state == REMOTE_ROW_QUEUED || row->state == REMOTE_ROW_SENT)
        return 0; /* it was counted when it was handed to its worker */
    return const_remote_of(a)->cost == REMOTE_COST_BYTES && !row->has_begun ? row->said->size_bytes
                                                                            : 1;
}

/* --- steps --- */

static void remote_step_begin(struct agent *a, struct batch_step *step)
{
    struct remote_agent *r = remote_of(a);
    uint64_t due_us = 0;

    r->step = step;
    for (size_t i = 0; i < step->n_rows; i++) {
        struct remote_row *row = step->rows[i]->turn;
        uint64_t deadline_us = row->turn->request.deadline_us;

        if (row->state == REMOTE_ROW_IDLE)
            remote_row_assign(row);
        if (deadline_us != 0 && (due_us == 0 || deadline_us < due_us))
            due_us = deadline_us;
    }
    if (due_us != 0)
        alarm_by(r->peers->alarm, due_us);
    remote_agent_send(r);
    remote_agent_end_step(r, false);
}

static void remote_step_interrupt(struct agent *a, struct batch_step *step)
{
    remote_agent_end_step(remote_of(a), true);
}

static void remote_step_abort(struct agent *a, struct batch_step *step)
{
    struct remote_agent *r = remote_of(a);

    if (r->step == NULL)
        return; /* ended inside step_begin */
    for (size_t i = 0; i < step->n_rows; i++) {
        struct remote_row *row = step->rows[i]->turn;

        step->rows[i]->outcome = row->state == REMOTE_ROW_ANSWERED ? row->outcome : ROW_FAILED;
        step->rows[i]->err = row->err;
    }
    r->step = NULL;
    step->done(step);
}

static const struct agent_elsewhere remote_elsewhere = {
    .begin = remote_step_begin,
    .interrupt = remote_step_interrupt,
    .abort = remote_step_abort,
};

const struct agent_type remote_agent_type = {
    .name = "remote",
    .agent_size = sizeof(struct remote_agent),
    .clone_size = sizeof(struct remote_clone),
    .open = remote_agent_open,
    .close = remote_agent_close,
    .info = remote_agent_info,
    .batching = remote_agent_batching,
    .clone_open = remote_clone_open,
    .clone_close = remote_clone_close,
    .clone_info = remote_clone_info,
    .fork = remote_clone_fork,
    .rewind = remote_clone_rewind,
    .reset = remote_clone_reset,
    .observe = remote_observe,
    .self_observe = remote_self_observe,
    .drop = remote_drop,
    .trace = remote_trace,
    .recall = remote_recall,
    .cost = remote_cost_of,
    .elsewhere = &remote_elsewhere,
};
