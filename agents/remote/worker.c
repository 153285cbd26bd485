/* Rows and workers. A row that the batcher has in a step is given to its clone's worker, or to the
 * least busy worker, which is told to open the clone. There the row waits for a slot, is sent in a
 * step together with all other rows that wait, and is answered. The batcher's step ends when at
 * least one of its rows is answered. Its other rows stay with their workers and are in the
 * batcher's next step again, so that a slow worker delays no other.
 *
 * A row whose turn ends early (cancel, deadline) is left: its worker's answer is ignored. The rows
 * of a worker that goes away are given to other workers if nothing of their reply was sent, or if
 * the agent is deterministic: the part that was sent is then compared and left out. Otherwise the
 * turn ends with the part of the reply that was sent. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agents/remote/parts.h"
#include "base/alarm.h"
#include "base/alloc.h"
#include "base/name.h"

enum { DEFAULT_MAX_ROWS = 64 };

static struct remote_worker *worker_of(struct link *l)
{
    return container_of(l, struct remote_worker, link);
}

static struct remote_row *remote_row_of(struct link *l)
{
    return container_of(l, struct remote_row, link);
}

static struct remote_order *remote_order_of(struct peer_order *o)
{
    return container_of(o, struct remote_order, base);
}

const struct remote_step *remote_order_step(const struct remote_order *o)
{
    return (const struct remote_step *)o; /* order comes first */
}

static struct remote_step *remote_step_of(struct link *awaited)
{
    return container_of(awaited, struct remote_step, order.base.awaited);
}

/* --- orders --- */

static struct remote_order *remote_worker_push(struct remote_worker *w, enum remote_order_kind kind)
{
    struct remote_order *o = xalloc(sizeof(*o));

    o->kind = kind;
    peer_give(&w->peer, &o->base, false);
    return o;
}

static void remote_order_free(struct remote_order *o)
{
    remote_blob_unref(o->system);
    remote_blob_unref(o->state);
    remote_turn_unref(o->turn);
    free(o);
}

static void remote_clone_enter(struct remote_clone *c, struct remote_worker *w)
{
    c->worker = w;
    list_push(&w->clones, &c->on_worker);
    w->n_clones++;
}

static void remote_clone_exit(struct remote_clone *c)
{
    list_remove(&c->on_worker);
    c->worker->n_clones--;
    c->worker = NULL;
}

void remote_clone_forget_save(struct remote_clone *c)
{
    if (c->save != NULL)
        c->save->clone = NULL;
    c->save = NULL;
}

void remote_worker_order_close(struct remote_clone *c)
{
    remote_worker_push(c->worker, REMOTE_ORDER_CLOSE)->clone = c->id;
    remote_clone_exit(c);
}

void remote_worker_order_rewind(struct remote_clone *c)
{
    struct remote_order *o = remote_worker_push(c->worker, REMOTE_ORDER_REWIND);

    o->clone = c->id;
    o->at_turn = remote_clone_n_turns(c);
}

void remote_worker_order_fork(struct remote_clone *child, const struct remote_clone *parent)
{
    struct remote_order *o = remote_worker_push(parent->worker, REMOTE_ORDER_FORK);

    o->clone = child->id;
    o->parent = parent->id;
    o->at_turn = remote_clone_n_turns(child);
    remote_clone_enter(child, parent->worker);
}

void remote_worker_order_save(struct remote_clone *c)
{
    struct remote_save *s;

    if (c->save != NULL)
        return;
    s = xalloc(sizeof(*s));
    *s = (struct remote_save){.id = c->id, .clone = c, .turn = remote_clone_n_turns(c)};
    c->save = s;
    list_push(&c->worker->saves, &s->link);
    remote_worker_push(c->worker, REMOTE_ORDER_SAVE)->clone = c->id;
}

/* Opens the clone at a worker: from its saved state, if there is one, and the turns since. */
static void remote_clone_open_at(struct remote_clone *c, struct remote_worker *w)
{
    struct remote_order *o = remote_worker_push(w, REMOTE_ORDER_OPEN);
    struct link *behind = &w->peer.orders.head;
    uint32_t n_saved = 0;

    o->clone = c->id;
    o->system = remote_blob_ref(c->system);
    if (c->saved != NULL && c->saved->epoch == w->agent->epoch) {
        o->state = remote_blob_ref(c->saved);
        o->at_turn = n_saved = c->saved->turn;
    }
    for (struct remote_turn *t = c->last; t != NULL && t->number > n_saved; t = t->before) {
        o = remote_worker_push(w, REMOTE_ORDER_REPLAY);
        o->clone = c->id;
        o->turn = remote_turn_ref(t);
        list_remove(&o->base.link); /* the newest comes last */
        list_insert_before(behind, &o->base.link);
        behind = &o->base.link;
    }
    remote_clone_enter(c, w);
}

const struct remote_order *remote_worker_order(const struct remote_worker *w)
{
    struct peer_order *o = peer_next(&w->peer);

    return o == NULL ? NULL : remote_order_of(o);
}

void remote_worker_taken(struct remote_worker *w)
{
    struct remote_order *o = remote_order_of(peer_take(&w->peer));
    const struct remote_step *step = remote_order_step(o);
    uint32_t number = 0;

    if (o->kind != REMOTE_ORDER_STEP) {
        remote_order_free(o);
        return;
    }
    for (struct link *l = list_first(&step->rows); l != NULL; l = list_next(&step->rows, l))
        remote_row_of(l)->number = number++;
}

uint64_t remote_row_clone(const struct remote_row *row)
{
    return row->clone->id;
}

const struct remote_blob *remote_row_system(const struct remote_row *row)
{
    return row->clone->system;
}

bool remote_worker_is_stateless(const struct remote_worker *w)
{
    return remote_agent_can(w->agent, REMOTE_STATELESS);
}

/* --- rows --- */

static void remote_row_end(struct remote_row *row, enum row_outcome outcome)
{
    row->state = REMOTE_ROW_ANSWERED;
    row->outcome = outcome;
}

/* Ends the turn with the part of the reply that is known. */
static void remote_row_cut(struct remote_row *row)
{
    row->turn->reply.finish = FINISH_WORKER_LOST;
    row->is_whole = false;
    remote_row_end(row, ROW_DONE);
}

/* Ends the turn because no worker can answer it: with a failure, or with the part of the reply that
 * is known. */
static void remote_row_fail(struct remote_row *row, const char *why)
{
    if (row->said->reply.len > 0) {
        remote_row_cut(row);
        return;
    }
    (void)error_because(&row->err, STATUS_UNAVAILABLE, REASON_WORKER_LOST, "model",
                        "model '%s' %s; the turn did not happen, send it again",
                        row->clone->base.agent->name, why);
    row->err.retry_after_ms = REMOTE_RETRY_MS;
    remote_row_end(row, ROW_FAILED);
}

/* Called when the row's worker has gone while it had a part of the turn. The row is then IDLE, for
 * another worker, or ANSWERED. */
static void remote_row_lose(struct remote_row *row)
{
    const struct remote_agent *a = remote_agent_of(row->clone);
    bool is_stateless = remote_agent_can(a, REMOTE_STATELESS);
    bool may_go_on = is_stateless || remote_agent_can(a, REMOTE_DETERMINISTIC);

    if (row->said->reply.len > 0 && !may_go_on) {
        remote_row_cut(row);
    } else if (a->n_workers == 0) {
        remote_row_fail(row, "has lost its worker, and no other is attached");
    } else if (++row->n_lost >= REMOTE_MAX_LOSSES) {
        remote_row_fail(row, "has lost several workers in this turn");
    } else {
        row->state = REMOTE_ROW_IDLE;
        row->has_begun = row->has_begun && is_stateless;
        row->n_repeat = is_stateless ? 0 : row->said->reply.len;
    }
}

static struct remote_worker *remote_agent_least_busy(const struct remote_agent *a)
{
    struct remote_worker *best = NULL;

    for (struct link *l = list_first(&a->workers); l != NULL; l = list_next(&a->workers, l)) {
        struct remote_worker *w = worker_of(l);

        if (best == NULL || w->n_rows < best->n_rows ||
            (w->n_rows == best->n_rows && w->n_clones < best->n_clones))
            best = w;
    }
    return best;
}

void remote_row_assign(struct remote_row *row)
{
    struct remote_clone *c = row->clone;
    struct remote_agent *a = remote_agent_of(c);
    bool is_stateless = remote_agent_can(a, REMOTE_STATELESS);

    if (!remote_tensors_are_equal(&row->tensors, &a->tensors)) {
        remote_row_fail(row, "has a new worker, which takes other observations");
        return;
    }
    if (row->has_begun && c->worker == NULL && !is_stateless)
        remote_row_lose(row);
    if (row->state == REMOTE_ROW_ANSWERED)
        return;
    row->worker = c->worker != NULL ? c->worker : remote_agent_least_busy(a);
    if (row->worker == NULL) {
        remote_row_fail(row, "has lost its worker, and no other is attached");
        return;
    }
    if (c->worker == NULL && !is_stateless)
        remote_clone_open_at(c, row->worker);
    row->state = REMOTE_ROW_QUEUED;
    list_push(&row->worker->queued, &row->link);
    row->worker->n_rows++;
}

static void remote_row_free(struct remote_row *row)
{
    remote_turn_unref(row->said);
    free(row);
}

void remote_row_leave(struct remote_row *row)
{
    struct remote_worker *w = row->worker;
    struct remote_step *step = row->step;

    row->clone->row = NULL;
    row->clone = NULL;
    row->turn = NULL;
    if (row->state == REMOTE_ROW_SENT && peer_order_is_taken(&step->order.base)) {
        struct remote_order *o = remote_worker_push(w, REMOTE_ORDER_CANCEL);

        o->step_id = step->id;
        o->row = row->number;
        return; /* freed with its answer */
    }
    if (row->state == REMOTE_ROW_QUEUED || row->state == REMOTE_ROW_SENT) {
        list_remove(&row->link);
        w->n_rows--;
    }
    if (row->state == REMOTE_ROW_SENT && --step->n_rows == 0) {
        peer_drop(&w->peer, &step->order.base);
        free(step);
    }
    remote_row_free(row);
}

/* --- sending --- */

static size_t remote_row_bytes(const struct remote_worker *w, const struct remote_row *row)
{
    if (remote_worker_is_stateless(w))
        return row->said->total_bytes + row->said->reply.len;
    return row->has_begun ? 0 : row->said->size_bytes;
}

/* Sends a step of the rows that wait, the oldest first, up to the worker's bounds. */
static void remote_worker_send_step(struct remote_worker *w)
{
    struct remote_step *step = xalloc(sizeof(*step));
    size_t cost = 0, n_bytes = 0;
    struct link *l;

    step->order.kind = REMOTE_ORDER_STEP;
    step->id = ++w->n_numbered;
    list_init(&step->rows);
    while ((l = list_first(&w->queued)) != NULL && step->n_rows < w->max_rows) {
        struct remote_row *row = remote_row_of(l);
        size_t row_bytes = remote_row_bytes(w, row);

        cost += w->agent->cost == REMOTE_COST_BYTES && row_bytes > 0 ? row_bytes : 1;
        n_bytes += row_bytes;
        if (step->n_rows > 0 &&
            ((w->max_cost != 0 && cost > w->max_cost) || n_bytes > REMOTE_MAX_STEP_BYTES))
            break;
        list_remove(&row->link);
        list_push(&step->rows, &row->link);
        step->n_rows++;
        row->state = REMOTE_ROW_SENT;
        row->step = step;
    }
    peer_give(&w->peer, &step->order.base, true);
}

void remote_agent_send(struct remote_agent *a)
{
    for (struct link *l = list_first(&a->workers); l != NULL; l = list_next(&a->workers, l)) {
        struct remote_worker *w = worker_of(l);

        while (w->peer.n_awaited < w->n_slots && !list_is_empty(&w->queued))
            remote_worker_send_step(w);
    }
}

void remote_agent_end_step(struct remote_agent *a, bool is_forced)
{
    struct batch_step *step = a->step;
    bool is_due = is_forced;

    if (step == NULL)
        return;
    for (size_t i = 0; i < step->n_rows && !is_due; i++)
        is_due = ((struct remote_row *)step->rows[i]->turn)->state == REMOTE_ROW_ANSWERED;
    if (!is_due)
        return;
    for (size_t i = 0; i < step->n_rows; i++) {
        struct remote_row *row = step->rows[i]->turn;

        step->rows[i]->outcome = ROW_MORE;
        if (row->state != REMOTE_ROW_ANSWERED)
            continue;
        step->rows[i]->outcome = row->outcome;
        step->rows[i]->err = row->err;
        row->state = REMOTE_ROW_IDLE;
    }
    a->step = NULL;
    step->done(step);
}

/* --- answers --- */

/* Skips the part of a piece that repeats the known reply. Returns false if that part differs. */
static bool remote_row_skip(struct remote_row *row, const char **text, size_t *len)
{
    const struct buf *reply = &row->said->reply;
    size_t n = *len < row->n_repeat ? *len : row->n_repeat;

    if (memcmp(reply->data + reply->len - row->n_repeat, *text, n) != 0)
        return false;
    *text += n;
    *len -= n;
    row->n_repeat -= n;
    return true;
}

static enum status remote_row_append(struct remote_row *row, const char *text, size_t len)
{
    struct buf *said = &row->said->reply, *reply = &row->turn->reply.text;

    if (buf_append(said, text, len) == STATUS_OK) {
        if (buf_append(reply, text, len) == STATUS_OK)
            return STATUS_OK;
        said->len -= len;
        said->data[said->len] = '\0';
    }
    if (said->is_full || reply->is_full)
        return error_because(&row->err, STATUS_RANGE, REASON_REPLY_TOO_LONG, NULL,
                             "the reply would be longer than %zu bytes", reply->limit_bytes);
    return error_no_memory(&row->err, len, "a reply");
}

static void remote_row_take(struct remote_row *row, const struct remote_answer *answer,
                            size_t n_rows)
{
    struct reply *reply = &row->turn->reply;
    const char *text = answer->text;
    size_t len = strlen(text);

    row->step = NULL;
    row->worker = NULL;
    row->has_begun = true;
    reply->batch_rows = (uint32_t)n_rows;
    if (answer->n_prompt != 0)
        reply->n_prompt = reply->n_prefilled = answer->n_prompt;
    if (answer->outcome == ROW_FAILED) {
        row->has_failed = true;
        row->err = answer->err;
        remote_row_end(row, ROW_FAILED);
        return;
    }
    if (row->tensors.n_observations > 0) {
        reply->params_version = answer->params_version;
        remote_row_end(row, remote_tensors_keep(row->turn, answer->output, answer->n_output,
                                                &row->err) == STATUS_OK
                                ? ROW_DONE
                                : ROW_FAILED);
        return;
    }
    if (row->n_repeat > 0 && (!remote_row_skip(row, &text, &len) ||
                              (answer->outcome == ROW_DONE && row->n_repeat > 0))) {
        remote_row_cut(row); /* the worker is not deterministic, although it was declared so */
        return;
    }
    if (len > 0 && remote_row_append(row, text, len) != STATUS_OK) {
        remote_row_end(row, ROW_FAILED);
        return;
    }
    if (answer->outcome == ROW_DONE) {
        row->is_whole = true;
        reply->finish = answer->finish;
    }
    remote_row_end(row, answer->outcome);
}

static struct remote_step *remote_worker_find(const struct remote_worker *w, uint64_t id)
{
    const struct list *steps = &w->peer.awaited;

    for (struct link *l = list_first(steps); l != NULL; l = list_next(steps, l)) {
        struct remote_step *step = remote_step_of(l);

        if (step->id == id) /* one that was not sent the worker does not know */
            return peer_order_is_taken(&step->order.base) ? step : NULL;
    }
    return NULL;
}

static enum status remote_tensors_check_answer(const struct remote_tensors *t,
                                               const struct remote_answer *answer,
                                               struct error *err)
{
    bool is_acting = t->n_observations > 0;

    if (answer->outcome == ROW_FAILED || (!is_acting && answer->n_output == 0))
        return STATUS_OK;
    if (!is_acting)
        return error_field(err, "result.rows",
                           "has an output in row %u, but the worker offered none", answer->row);
    if (answer->outcome == ROW_MORE)
        return error_field(err, "result.rows",
                           "has MORE in row %u, but an action must be given at once", answer->row);
    if (answer->text[0] != '\0')
        return error_field(err, "result.rows",
                           "has a text in row %u, but the worker offered tensors", answer->row);
    if (remote_tensors_check_output(t, answer->output, answer->n_output, err) != STATUS_OK)
        return error_prefix(err, "row %u", answer->row);
    return STATUS_OK;
}

/* Checks the answers to a step and puts them in the order of its rows. */
static enum status remote_step_sort(const struct remote_step *step,
                                    const struct remote_tensors *tensors,
                                    const struct remote_answer *by_row[REMOTE_MAX_ROWS],
                                    const struct remote_answer *answers, size_t n,
                                    struct error *err)
{
    memset(by_row, 0, step->n_rows * sizeof(by_row[0]));
    for (size_t i = 0; i < n; i++) {
        const struct remote_answer *answer = &answers[i];

        if (answer->row >= step->n_rows)
            return error_field(err, "result.rows",
                               "has row %u, but step %" PRIu64 " has only %zu rows", answer->row,
                               step->id, step->n_rows);
        if (by_row[answer->row] != NULL)
            return error_field(err, "result.rows", "has row %u of step %" PRIu64 " twice",
                               answer->row, step->id);
        if (strlen(answer->text) > REMOTE_MAX_PIECE_BYTES)
            return error_field(err, "result.rows",
                               "has a text of %zu bytes in row %u, one piece may have at most %d",
                               strlen(answer->text), answer->row, REMOTE_MAX_PIECE_BYTES);
        by_row[answer->row] = answer;
        if (remote_tensors_check_answer(tensors, answer, err) != STATUS_OK)
            return err->status;
    }
    for (size_t i = 0; i < step->n_rows; i++)
        if (by_row[i] == NULL)
            return error_field(err, "result.rows", "has no row %zu of step %" PRIu64, i, step->id);
    return STATUS_OK;
}

enum status remote_worker_answer(struct remote_worker *w, uint64_t step_id,
                                 const struct remote_answer *answers, size_t n, struct error *err)
{
    const struct remote_answer *by_row[REMOTE_MAX_ROWS];
    struct remote_step *step = remote_worker_find(w, step_id);
    struct remote_agent *a = w->agent;
    struct link *l;

    if (step == NULL)
        return error_field(err, "result.step",
                           "is %" PRIu64 ", but no such step waits for a result", step_id);
    if (remote_step_sort(step, &a->tensors, by_row, answers, n, err) != STATUS_OK)
        return err->status;
    peer_drop(&w->peer, &step->order.base);
    w->n_rows -= step->n_rows;
    for (size_t i = 0; (l = list_pop(&step->rows)) != NULL; i++) {
        struct remote_row *row = remote_row_of(l);

        if (row->turn != NULL)
            remote_row_take(row, by_row[i], step->n_rows);
        else
            remote_row_free(row);
    }
    free(step);
    peer_heard(&w->peer);
    remote_agent_end_step(a, false);
    remote_agent_send(a);
    return STATUS_OK;
}

enum status remote_worker_state(struct remote_worker *w, uint64_t clone, const void *data,
                                size_t size_bytes, struct error *err)
{
    struct remote_save *save = NULL;
    struct remote_blob *state;
    struct error ignored;

    for (struct link *l = list_first(&w->saves); l != NULL && save == NULL;
         l = list_next(&w->saves, l))
        if (container_of(l, struct remote_save, link)->id == clone)
            save = container_of(l, struct remote_save, link);
    if (save == NULL)
        return error_field(err, "state.clone",
                           "is %" PRIu64 ", but the state of this clone was not asked for", clone);
    if (size_bytes > REMOTE_MAX_STATE_BYTES)
        return error_field(err, "state.state", "has %zu bytes, it may have at most %d", size_bytes,
                           REMOTE_MAX_STATE_BYTES);
    /* Without memory for the state, the transcript is replayed instead. */
    if (save->clone != NULL && remote_blob_make(&state, data, size_bytes, &ignored) == STATUS_OK) {
        state->turn = save->turn;
        state->epoch = w->agent->epoch;
        remote_blob_unref(save->clone->saved);
        save->clone->saved = state;
    }
    if (save->clone != NULL)
        save->clone->save = NULL;
    list_remove(&save->link);
    free(save);
    peer_heard(&w->peer);
    return STATUS_OK;
}

/* --- coming and going --- */

static enum status remote_offer_check(const struct remote_offer *o, struct error *err)
{
    if (o->version[0] != '\0' &&
        !name_is_valid(o->version, strlen(o->version), REMOTE_MAX_VERSION, NAME_MARKS "+"))
        return error_field(
            err, "offer.version",
            "is not valid, it must have at most %d letters, digits, '.', '_', '+' and '-'",
            REMOTE_MAX_VERSION);
    if (o->max_rows > REMOTE_MAX_ROWS)
        return error_field(err, "offer.max_rows", "is %zu, it must be at most %d", o->max_rows,
                           REMOTE_MAX_ROWS);
    if (o->n_slots > REMOTE_MAX_SLOTS)
        return error_field(err, "offer.slots", "is %zu, it must be at most %d", o->n_slots,
                           REMOTE_MAX_SLOTS);
    if (!o->is_acting)
        return STATUS_OK;
    if (o->capabilities & ~(unsigned)(REMOTE_STATELESS | REMOTE_DETERMINISTIC))
        return error_field(
            err, "offer.capabilities",
            "has others than STATELESS and DETERMINISTIC, which a worker with tensors cannot have");
    return remote_tensors_check(&o->tensors, err);
}

/* Checks an offer against those of the agent's other workers; if there are none, it becomes the
 * agent's. */
static enum status remote_agent_accept(struct remote_agent *a, const struct remote_offer *o,
                                       struct error *err)
{
    const char *version = o->version[0] == '\0' ? "1" : o->version;
    unsigned capabilities = o->capabilities | (o->is_acting ? REMOTE_STATELESS : 0);
    bool is_same = strcmp(a->version, version) == 0;

    if (a->n_workers > 0 && !is_same)
        return error_set(err, STATUS_PRECONDITION,
                         "the attached workers of '%.63s' have version %s, but this one has %s",
                         a->base.name, a->version, version);
    if (a->n_workers > 0 && (a->capabilities != capabilities || a->cost != o->cost))
        return error_set(err, STATUS_PRECONDITION,
                         "the attached workers of '%.63s' have other capabilities or another cost "
                         "unit than this one",
                         a->base.name);
    if (a->n_workers > 0 && !remote_tensors_are_equal(&a->tensors, &o->tensors))
        return error_set(err, STATUS_PRECONDITION,
                         "the attached workers of '%.63s' take or give other tensors than this one",
                         a->base.name);
    if (a->n_workers > 0)
        return STATUS_OK;
    memcpy(a->version, version, strlen(version) + 1);
    a->epoch += !is_same;
    a->capabilities = capabilities;
    a->tensors = o->tensors;
    a->cost = o->cost;
    a->save_every = o->save_every != 0 ? o->save_every : REMOTE_SAVE_EVERY;
    return STATUS_OK;
}

enum status remote_worker_open(struct remote_worker *w, struct agent *agent,
                               const struct remote_offer *offer, struct error *err)
{
    struct remote_agent *a = remote_of(agent);

    if (remote_offer_check(offer, err) != STATUS_OK ||
        remote_agent_accept(a, offer, err) != STATUS_OK)
        return err->status;
    w->agent = a;
    w->max_rows = offer->max_rows != 0 ? offer->max_rows : DEFAULT_MAX_ROWS;
    w->n_slots = offer->n_slots != 0 ? offer->n_slots : 1;
    w->max_cost = offer->max_cost;
    list_init(&w->queued);
    list_init(&w->clones);
    list_init(&w->saves);
    list_push(&a->workers, &w->link);
    a->n_workers++;
    return STATUS_OK;
}

static void remote_worker_free_all(struct remote_worker *w)
{
    struct link *l;

    while ((l = list_pop(&w->saves)) != NULL) {
        struct remote_save *save = container_of(l, struct remote_save, link);

        if (save->clone != NULL)
            save->clone->save = NULL;
        free(save);
    }
    while ((l = list_first(&w->clones)) != NULL)
        remote_clone_exit(container_of(l, struct remote_clone, on_worker));
}

/* Frees all orders, and moves all rows of the worker to a list: first those that are in steps, then
 * those that wait. */
static void remote_worker_give_up_rows(struct remote_worker *w, struct list *rows)
{
    struct peer_order *o;

    while ((o = peer_oldest(&w->peer)) != NULL) {
        struct remote_step *step = remote_step_of(&o->awaited);

        peer_drop(&w->peer, o);
        list_move(&step->rows, rows);
        free(step);
    }
    while ((o = peer_next(&w->peer)) != NULL) {
        peer_drop(&w->peer, o);
        remote_order_free(remote_order_of(o));
    }
    list_move(&w->queued, rows);
    w->n_rows = 0;
}

void remote_worker_close(struct remote_worker *w)
{
    struct remote_agent *a = w->agent;
    struct list rows;
    struct link *l;

    if (a == NULL)
        return;
    w->agent = NULL;
    list_remove(&w->link);
    a->n_workers--;
    list_init(&rows);
    remote_worker_free_all(w);
    remote_worker_give_up_rows(w, &rows);
    while ((l = list_pop(&rows)) != NULL) {
        struct remote_row *row = remote_row_of(l);
        bool was_sent = row->state == REMOTE_ROW_SENT;

        row->state = REMOTE_ROW_IDLE;
        row->step = NULL;
        row->worker = NULL;
        if (row->turn == NULL) {
            remote_row_free(row);
            continue;
        }
        if (was_sent)
            remote_row_lose(row);
        if (row->state == REMOTE_ROW_IDLE)
            remote_row_assign(row);
    }
    remote_agent_send(a);
    remote_agent_end_step(a, false);
}

/* --- time --- */

void remote_worker_say_silent(const struct remote_worker *w, struct error *err)
{
    (void)error_set(err, STATUS_DEADLINE,
                    "step %" PRIu64 " was not answered within %" PRIu64 " ms (--attach-timeout)",
                    remote_step_of(list_first(&w->peer.awaited))->id,
                    w->peer.all->silence_us / 1000);
}

void remote_agent_tick(struct agent *agent, uint64_t now_us)
{
    struct remote_agent *a = remote_of(agent);
    bool is_late = false;

    for (size_t i = 0; a->step != NULL && i < a->step->n_rows; i++) {
        const struct remote_row *row = a->step->rows[i]->turn;
        uint64_t deadline_us = row->turn->request.deadline_us;

        if (deadline_us != 0 && deadline_us <= now_us)
            is_late = true;
        else if (deadline_us != 0)
            alarm_by(a->peers->alarm, deadline_us);
    }
    if (is_late)
        remote_agent_end_step(a, true);
}

size_t remote_agent_capacity(const struct agent *agent)
{
    const struct remote_agent *a = const_remote_of(agent);
    size_t n = 0;

    for (struct link *l = list_first(&a->workers); l != NULL; l = list_next(&a->workers, l))
        n += worker_of(l)->max_rows * worker_of(l)->n_slots;
    return n < REMOTE_MAX_ROWS ? n : REMOTE_MAX_ROWS;
}

size_t remote_agent_n_workers(const struct agent *agent)
{
    return const_remote_of(agent)->n_workers;
}
