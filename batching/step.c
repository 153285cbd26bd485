/* Who is in the next step, and what each row may spend.
 *
 * A row is *whole* when it must have all that it asks for, a *part* when less is of use to it (a
 * prompt, cut in chunks). Whole rows come first, the one that has gone longest without a grant at
 * the head: they are in the middle of something. Then parts, the one first that would be through
 * first if each had run alone since it began to wait: the shortest of those that came together, and
 * a long one once it has waited so much longer. What is left of the step's cost they have, and what
 * the whole rows' rhythm allows (pace.h); the first of them always goes on, and now and then a
 * short one that comes is through in one step. Where asks that wait
 * would be through before a part, as many as the policy lets in, it leaves them theirs.
 *
 * Then, if no row was left out for want of room, asks that wait are admitted; the first that does
 * not fit ends the admission, so nobody is overtaken for being large.
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

/* What a step that is formed has to give. */
struct purse {
    size_t budget; /* of cost */
    size_t room;   /* of that, for parts */
    bool has_part; /* one has something already */
    size_t n_new;  /* asks that may begin */
};

/* Sets ask->cost and ask->least, the least grant that is of use: at least 1 where the row costs
 * anything, so that a grant is always progress. */
static void appraise(struct batcher *b, struct ask *ask)
{
    size_t least;

    ask->least = ask->cost = b->agent.cost(b->agent.self, ask->row);
    if (b->agent.min_grant == NULL)
        return;
    least = b->agent.min_grant(b->agent.self, ask->row);
    if (least == 0)
        least = 1;
    ask->least = min_size(least, ask->cost);
}

static bool is_part(const struct ask *ask)
{
    return ask->least < ask->cost;
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

static void pay(struct purse *purse, const struct ask *ask, size_t n)
{
    purse->budget -= min_size(n, purse->budget);
    if (!is_part(ask))
        return;
    purse->room -= min_size(n, purse->room);
    purse->has_part = true;
}

/* When it would be through if it had run alone since it began to wait. Wraps, as ranks do. */
static uint64_t through_us(const struct batcher *b, const struct ask *ask)
{
    return waiting_rank_us(&b->waiting, ask) + (uint64_t)pace_part_us(&b->pace, ask->cost);
}

static bool is_through_before(const struct batcher *b, const struct ask *x, const struct ask *y)
{
    uint64_t x_us = through_us(b, x), y_us = through_us(b, y);

    if (x_us != y_us)
        return (int64_t)(x_us - y_us) < 0;
    return x->number < y->number;
}

/* Running rows that are parts, the first first. Returns how many. */
static size_t sort_parts(struct batcher *b, struct list *parts)
{
    size_t n = 0;

    for (struct link *l = list_first(&b->running); l != NULL; l = list_next(&b->running, l)) {
        struct ask *ask = container_of(l, struct ask, link);
        struct link *at = list_first(parts);

        appraise(b, ask);
        if (!is_part(ask))
            continue;
        while (at != NULL && is_through_before(b, container_of(at, struct ask, part), ask))
            at = list_next(parts, at);
        list_insert_before(at != NULL ? at : &parts->head, &ask->part);
        n++;
    }
    return n;
}

/* n more to a running row, which is planned for the step then. */
static void give(struct batcher *b, struct ask *ask, size_t n, struct purse *purse,
                 struct list *planned)
{
    if (!link_is_on(&ask->in_step)) {
        ask->row->grant = 0;
        list_push(planned, &ask->in_step);
        b->n_rows++;
    }
    ask->row->grant += n;
    pay(purse, ask, n);
}

/* To each whole row what it costs, and to the first part the least, so that it goes on whatever the
 * room. Returns what the whole rows cost; *ret_all: each has its grant. */
static size_t plan_whole(struct batcher *b, const struct link *first_part, struct list *planned,
                         struct purse *purse, bool *ret_all)
{
    size_t whole_cost = 0;

    *ret_all = true;
    for (struct link *l = list_first(&b->running); l != NULL; l = list_next(&b->running, l)) {
        struct ask *ask = container_of(l, struct ask, link);

        if (is_part(ask) && &ask->part != first_part)
            continue;
        if (!fits(b, ask->least, purse->budget)) {
            *ret_all = false;
            continue;
        }
        give(b, ask, ask->least, purse, planned);
        if (!is_part(ask))
            whole_cost += ask->cost;
    }
    return whole_cost;
}

/* To parts, in their order, what is left; empties the list. */
static void plan_parts(struct batcher *b, struct list *parts, struct list *planned,
                       struct purse *purse)
{
    struct ask *next = purse->n_new > 0 ? waiting_first(&b->waiting) : NULL;
    size_t n_held = 0, held = 0;
    struct link *l;

    while ((l = list_pop(parts)) != NULL) {
        struct ask *ask = container_of(l, struct ask, part);
        size_t left = min_size(purse->budget, purse->room);
        size_t least = link_is_on(&ask->in_step) ? 0 : ask->least;

        for (; next != NULL && n_held < purse->n_new && is_through_before(b, next, ask); n_held++) {
            held += min_size(next->cost, left);
            next = waiting_behind(&b->waiting, next);
        }
        left -= min_size(held, left);
        if (least <= left)
            give(b, ask, min_size(ask->cost - (ask->least - least), left), purse, planned);
    }
}

/* Makes room for all of whoever would be through first, a part or one that waits, if it may leap.
 */
static void leap(struct batcher *b, const struct list *parts, size_t n_parts, size_t whole_cost,
                 struct purse *purse)
{
    const struct ask *next = purse->n_new > 0 ? waiting_first(&b->waiting) : NULL;
    const struct link *l = list_first(parts);
    const struct ask *part = l != NULL ? container_of(l, const struct ask, part) : NULL;

    if (part != NULL && part->is_short && (next == NULL || is_through_before(b, part, next)))
        next = part;
    if (next != NULL && next->cost > purse->room &&
        pace_leap(&b->pace, whole_cost, n_parts, next->cost, b->config.max_itl_us))
        purse->room = next->cost;
}

/* Grants to running rows, onto planned. Returns false when nobody may begin: a whole row has no
 * grant, or no part should. */
static bool plan_running(struct batcher *b, struct list *planned, struct purse *purse)
{
    struct list parts;
    size_t n_parts, whole_cost, spent;
    bool all_whole;

    list_init(&parts);
    n_parts = sort_parts(b, &parts);
    purse->room = SIZE_MAX;
    if (b->config.max_itl_us != 0 && n_parts < b->n_running && pace_is_stale(&b->pace)) {
        while (list_pop(&parts) != NULL)
            continue;
        (void)plan_whole(b, NULL, planned, purse, &all_whole);
        return false; /* and nobody begins */
    }
    whole_cost = plan_whole(b, list_first(&parts), planned, purse, &all_whole);
    spent = SIZE_MAX - purse->room;
    n_parts += purse->n_new;
    purse->room = pace_room(&b->pace, whole_cost, n_parts, b->config.max_itl_us);
    purse->room -= min_size(spent, purse->room);
    leap(b, &parts, n_parts, whole_cost, purse);
    plan_parts(b, &parts, planned, purse);
    return all_whole;
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
        b->n_admitted += b->policy->choose != NULL
                             ? b->policy->choose(&b->waiting, &b->by_length, &v)
                             : b->policy->admit(&v, ret_wake_us);
        assert(b->n_admitted <= b->waiting.n_queued);
    }
    return b->n_admitted + b->waiting.n_returned;
}

/* Returns false when the ask stays where it is and nobody behind it is to be tried. */
static bool admit(struct batcher *b, struct ask *ask, struct purse *purse)
{
    size_t held = ask->cost, left = purse->budget;
    double part_us; /* 0: nothing is known yet */
    enum status rc;

    appraise(b, ask);
    b->waiting_cost += ask->cost - held;
    if (is_part(ask) && !purse->has_part && purse->room < ask->least)
        left = min_size(left, ask->least);
    else if (is_part(ask))
        left = min_size(left, purse->room);
    if (!fits(b, ask->least, left))
        return false;
    ask->row->grant = ask->least > left ? ask->least : min_size(ask->cost, left);
    rc = reserve(b, ask);
    if (rc == STATUS_EXHAUSTED && !is_alone(b, 0))
        return false; /* another row will give back what it holds */
    if (!ask->is_returned && !ask->is_chosen)
        b->n_admitted--;
    if (rc != STATUS_OK) {
        fail(b, ask);
        return true;
    }
    ask_take_out(b, ask);
    part_us = pace_part_us(&b->pace, ask->cost);
    ask->is_short = part_us > 0 && part_us <= (double)b->config.max_itl_us;
    ask->state = ASK_RUNNING;
    list_push(&b->running, &ask->link);
    b->n_running++;
    list_push(&b->in_step, &ask->in_step);
    b->n_rows++;
    pay(purse, ask, ask->row->grant);
    return true;
}

static void seal(struct batcher *b, uint64_t now_us)
{
    size_t i = 0;

    b->step_us = now_us;
    b->whole_cost = b->part_cost = 0;
    for (struct link *l = list_first(&b->in_step); l != NULL; l = list_next(&b->in_step, l)) {
        struct ask *ask = ask_in_step(l);

        list_remove(&ask->link);
        list_push(&b->running, &ask->link);
        if (ask->n_steps++ == 0)
            ask->first_step_us = now_us;
        b->stats.n_cost += ask->row->grant;
        *(is_part(ask) ? &b->part_cost : &b->whole_cost) += ask->row->grant;
        ask->row->extra = 0;
        ask->row->outcome = ROW_FAILED; /* unless batch_act says otherwise */
        b->rows[i++] = ask->row;
    }
    assert(i == b->n_rows && i <= b->config.max_rows);
}

void step_learn(struct batcher *b, uint64_t now_us)
{
    uint64_t us = now_us - b->step.begun_us;
    size_t extra = 0;

    for (size_t i = 0; i < b->n_rows; i++)
        extra += b->rows[i]->extra;
    pace_learn(&b->pace, b->whole_cost + extra, b->part_cost, us);
    gather_step(&b->gather, b->n_rows, us, now_us);
}

/* Grants to running rows and what they need. Returns true when nobody was left out or lost.
 * A round may come to nothing: the row that was planned is preempted, and the others were beyond
 * the budget that it left. Then there is one running row fewer, and another round. */
static bool form_running(struct batcher *b, struct purse *purse)
{
    const struct purse full = *purse;
    bool all_whole, is_calm = true;
    struct list planned;

    list_init(&planned);
    do {
        *purse = full;
        all_whole = plan_running(b, &planned, purse);
        if (!reserve_running(b, &planned))
            is_calm = false;
    } while (b->n_rows == 0 && b->n_running > 0 && list_is_empty(&b->ending));
    return all_whole && is_calm;
}

void step_form(struct batcher *b, uint64_t now_us, uint64_t *ret_wake_us)
{
    struct purse purse = {.budget = b->config.max_cost};

    assert(!b->is_stepping && list_is_empty(&b->in_step));
    *ret_wake_us = 0;
    b->n_rows = 0;
    purse.n_new = n_admissible(b, now_us, ret_wake_us);
    if (form_running(b, &purse))
        while (purse.n_new-- > 0 && admit(b, waiting_first(&b->waiting), &purse))
            continue;
    seal(b, now_us);
}
