/* Who is in the next step, and what each row may spend.
 *
 * Running rows come first, the one that has gone longest without a grant at the head: each gets the
 * least that is of use to it, then what is left of the budget goes round in the same order (so a
 * long prompt takes what the single tokens leave). Then, if all of them had their grant, asks that
 * wait are admitted, as many as the policy lets in and the bounds allow; the first that does not
 * fit ends the admission, so nobody is overtaken for being large.
 *
 * What a row needs is reserved last. A running row that cannot have it makes the worst-placed
 * running row go back to the front of those who wait, and tries again; a row that is alone and
 * still cannot have it fails. In such a step nobody is admitted. */
#include <assert.h>

#include "batching/batcher_parts.h"

static struct ask *ask_in_step(struct link *l)
{
    return container_of(l, struct ask, in_step);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Sets ask->cost and returns the least grant that is of use: at least 1 where the row costs
 * anything, so that a grant is always progress. */
static size_t least_of(struct batcher *b, struct ask *ask)
{
    size_t least;

    ask->cost = b->agent.cost(b->agent.self, ask->row);
    if (b->agent.min_grant == NULL)
        return ask->cost;
    least = b->agent.min_grant(b->agent.self, ask->row);
    if (least == 0)
        least = 1;
    return min_size(least, ask->cost);
}

/* A row that is too large for any step runs in one of its own, or nobody would ever run it. */
static bool fits(const struct batcher *b, size_t least, size_t budget)
{
    return least <= budget || (b->n_rows == 0 && least > b->config.max_cost);
}

static enum status reserve(struct batcher *b, struct ask *ask)
{
    ask->row->err.status = STATUS_OK;
    if (b->agent.reserve == NULL)
        return STATUS_OK;
    return b->agent.reserve(b->agent.self, ask->row, &ask->row->err);
}

static void fail(struct batcher *b, struct ask *ask)
{
    ask_take_out(b, ask);
    ask_end(b, ask);
}

/* Grants to running rows, onto planned. Returns what is left of the budget; *ret_all: every running
 * row has a grant. */
static size_t plan_running(struct batcher *b, struct list *planned, size_t budget, bool *ret_all)
{
    *ret_all = true;
    for (struct link *l = list_first(&b->running); l != NULL; l = list_next(&b->running, l)) {
        struct ask *ask = container_of(l, struct ask, link);
        size_t least = least_of(b, ask);

        if (!fits(b, least, budget)) {
            *ret_all = false;
            continue;
        }
        ask->row->grant = least;
        budget -= min_size(least, budget);
        list_push(planned, &ask->in_step);
        b->n_rows++;
    }
    for (struct link *l = list_first(planned); l != NULL; l = list_next(planned, l)) {
        struct ask *ask = ask_in_step(l);
        size_t more = min_size(ask->cost - ask->row->grant, budget);

        ask->row->grant += more;
        budget -= more;
    }
    return budget;
}

static struct ask *worst_running(const struct batcher *b)
{
    struct ask *worst = NULL;

    for (struct link *l = list_first(&b->running); l != NULL; l = list_next(&b->running, l)) {
        struct ask *ask = container_of(l, struct ask, link);

        if (worst == NULL || ask_is_before(&b->waiting, worst, ask))
            worst = ask;
    }
    return worst;
}

static void preempt(struct batcher *b, struct ask *ask)
{
    if (link_is_on(&ask->in_step)) {
        list_remove(&ask->in_step);
        b->n_rows--;
    }
    ask_take_out(b, ask);
    b->agent.release(b->agent.self, ask->row);
    ask->n_preempted++;
    b->stats.n_preempted++;
    ask_wait(b, ask, true);
}

/* Nobody else of ours holds anything that could be waited for: not a running row, and not one that
 * failed a moment ago and whose future has yet to settle. */
static bool is_alone(const struct batcher *b, size_t n_running)
{
    return b->n_running == n_running && list_is_empty(&b->ending);
}

/* Moves planned rows onto in_step as they get what they need. Returns true when all did without
 * anybody's being preempted. */
static bool reserve_running(struct batcher *b, struct list *planned)
{
    bool is_calm = true;
    struct link *l;

    while ((l = list_first(planned)) != NULL) {
        struct ask *ask = ask_in_step(l);
        enum status rc;

        while ((rc = reserve(b, ask)) == STATUS_EXHAUSTED && b->n_running > 1) {
            struct ask *worst = worst_running(b);

            is_calm = false;
            preempt(b, worst);
            if (worst == ask)
                break;
        }
        if (ask->state != ASK_RUNNING)
            continue;
        list_remove(&ask->in_step);
        if (rc == STATUS_OK) {
            list_push(&b->in_step, &ask->in_step);
            continue;
        }
        b->n_rows--;
        is_calm = false;
        if (rc != STATUS_EXHAUSTED || is_alone(b, 1))
            fail(b, ask);
    }
    return is_calm;
}

/* How many asks may begin: those the policy lets in, and those that had begun before. */
static size_t n_admissible(struct batcher *b, uint64_t now_us, uint64_t *ret_wake_us)
{
    struct policy_view v = batcher_view(b, now_us);

    if (v.n_queued > 0) {
        b->n_admitted += b->policy->admit(&v, ret_wake_us);
        assert(b->n_admitted <= b->waiting.n_queued);
    }
    return b->n_admitted + b->waiting.n_returned;
}

/* Returns false when the ask stays where it is and nobody behind it is to be tried. */
static bool admit(struct batcher *b, struct ask *ask, size_t *budget)
{
    size_t held = ask->cost;
    size_t least = least_of(b, ask);
    enum status rc;

    b->waiting_cost += ask->cost - held;
    if (!fits(b, least, *budget))
        return false;
    ask->row->grant = least > *budget ? least : min_size(ask->cost, *budget);
    rc = reserve(b, ask);
    if (rc == STATUS_EXHAUSTED && !is_alone(b, 0))
        return false; /* another row will give back what it holds */
    if (!ask->is_returned)
        b->n_admitted--;
    if (rc != STATUS_OK) {
        fail(b, ask);
        return true;
    }
    ask_take_out(b, ask);
    ask->state = ASK_RUNNING;
    list_push(&b->running, &ask->link);
    b->n_running++;
    list_push(&b->in_step, &ask->in_step);
    b->n_rows++;
    *budget -= min_size(ask->row->grant, *budget);
    return true;
}

static void seal(struct batcher *b, uint64_t now_us)
{
    size_t i = 0;

    for (struct link *l = list_first(&b->in_step); l != NULL; l = list_next(&b->in_step, l)) {
        struct ask *ask = ask_in_step(l);

        list_remove(&ask->link);
        list_push(&b->running, &ask->link);
        if (ask->n_steps++ == 0)
            ask->first_step_us = now_us;
        b->stats.n_cost += ask->row->grant;
        ask->row->outcome = ROW_FAILED; /* unless batch_act says otherwise */
        b->rows[i++] = ask->row;
    }
    assert(i == b->n_rows && i <= b->config.max_rows);
}

/* Grants to running rows and what they need. Returns true when nobody was left out or lost.
 * A round may come to nothing: the row that was planned is preempted, and the others were beyond
 * the budget that it left. Then there is one running row fewer, and another round. */
static bool form_running(struct batcher *b, size_t *budget)
{
    bool all_granted, is_calm = true;
    struct list planned;

    list_init(&planned);
    do {
        *budget = plan_running(b, &planned, b->config.max_cost, &all_granted);
        if (!reserve_running(b, &planned))
            is_calm = false;
    } while (b->n_rows == 0 && b->n_running > 0 && list_is_empty(&b->ending));
    return all_granted && is_calm;
}

void step_form(struct batcher *b, uint64_t now_us, uint64_t *ret_wake_us)
{
    size_t budget;

    assert(!b->is_stepping && list_is_empty(&b->in_step));
    *ret_wake_us = 0;
    b->n_rows = 0;
    if (form_running(b, &budget)) {
        size_t n = n_admissible(b, now_us, ret_wake_us);

        while (n-- > 0 && admit(b, waiting_first(&b->waiting), &budget))
            continue;
    }
    seal(b, now_us);
}
