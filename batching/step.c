/* Forms a step in the order of the header: decode rows, chunks of prompts, admissions,
 * reservations. Each stage takes from the step's budget of tokens, so that the next stage sees what
 * is left. */
#include "batching/step.h"

#include <assert.h>

#include "batching/requests.h"
#include "batching/time_share.h"
#include "batching/yield.h"

static struct batch_request *batch_request_of_step(struct link *l)
{
    return container_of(l, struct batch_request, in_step);
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* So many prompts may stretch a step to max_itl_us. */
enum { MAX_PROMPTS = 1 << 16 };

/* What the step being formed may still schedule. */
struct token_budget {
    size_t left;    /* tokens */
    size_t prefill; /* of these tokens, for prefill chunks */
    size_t heavy;   /* of these tokens, for chunks of heavy tenants */
    bool has_chunk; /* a chunk is scheduled */
    size_t n_new;   /* requests that may begin */
};

/* Sets request->cost and request->least. If the cost is not 0, least is at least 1, so that a
 * scheduled row progresses. */
static void batch_request_update_cost(struct batcher *b, struct batch_request *request)
{
    size_t least;

    request->least = request->cost = b->agent.cost(b->agent.self, request->row);
    if (b->agent.min_chunk == NULL)
        return;
    least = b->agent.min_chunk(b->agent.self, request->row);
    if (least == 0)
        least = 1;
    request->least = min_size(least, request->cost);
}

static bool is_chunked(const struct batch_request *request)
{
    return request->least < request->cost;
}

/* A row too large for any step runs in a step of its own; it would never run otherwise. */
static bool fits(const struct batcher *b, size_t least, size_t budget)
{
    return least <= budget || (b->n_rows == 0 && least > b->config.max_cost);
}

static enum status batch_request_reserve(struct batcher *b, struct batch_request *request)
{
    request->row->err.status = STATUS_OK;
    if (b->agent.reserve == NULL)
        return STATUS_OK;
    return b->agent.reserve(b->agent.self, request->row, &request->row->err);
}

static void batch_request_fail(struct batcher *b, struct batch_request *request)
{
    batch_request_take_out(b, request);
    batch_request_end(b, request);
}

static bool batch_request_is_heavy(const struct batcher *b, const struct batch_request *request)
{
    return tenant_is_heavy(waiting_tenant(&b->waiting, request));
}

static void token_budget_take(const struct batcher *b, struct token_budget *budget,
                              const struct batch_request *request, size_t n)
{
    budget->left -= min_size(n, budget->left);
    if (!is_chunked(request))
        return;
    budget->prefill -= min_size(n, budget->prefill);
    if (batch_request_is_heavy(b, request))
        budget->heavy -= min_size(n, budget->heavy);
    budget->has_chunk = true;
}

/* What a chunk of the request may have. */
static size_t token_budget_chunk(const struct batcher *b, const struct token_budget *budget,
                                 const struct batch_request *request)
{
    return batch_request_is_heavy(b, request) ? min_size(budget->prefill, budget->heavy)
                                              : budget->prefill;
}

/* When the request would have finished if it had run alone since it began to wait. May wrap, as
 * aged priorities do. */
static uint64_t finish_us(const struct batcher *b, const struct batch_request *request)
{
    return waiting_aged_priority_us(&b->waiting, request) +
           (uint64_t)step_time_chunk_us(&b->step_time, request->cost);
}

static bool finishes_before(const struct batcher *b, const struct batch_request *x,
                            const struct batch_request *y)
{
    const struct tenant *x_tenant = waiting_tenant(&b->waiting, x),
                        *y_tenant = waiting_tenant(&b->waiting, y);
    uint64_t x_us = finish_us(b, x), y_us = finish_us(b, y);

    if (x_tenant != y_tenant && x_tenant->served != y_tenant->served)
        return tenant_is_before(x_tenant, y_tenant);
    if (x_us != y_us)
        return (int64_t)(x_us - y_us) < 0;
    return x->number < y->number;
}

/* Lists running rows that can be chunked and are not paused, the first to finish first. Returns how
 * many. */
static size_t sort_chunked(struct batcher *b, struct list *chunked)
{
    size_t n = 0;

    for (struct link *l = list_first(&b->running); l != NULL; l = list_next(&b->running, l)) {
        struct batch_request *request = container_of(l, struct batch_request, link);
        struct link *at = list_first(chunked);

        if (request->is_paused)
            continue;
        batch_request_update_cost(b, request);
        if (!is_chunked(request))
            continue;
        while (at != NULL &&
               finishes_before(b, container_of(at, struct batch_request, chunked), request))
            at = list_next(chunked, at);
        list_insert_before(at != NULL ? at : &chunked->head, &request->chunked);
        n++;
    }
    return n;
}

/* Schedules n more tokens of a running row, and plans the row for the step. */
static void batch_request_schedule(struct batcher *b, struct batch_request *request, size_t n,
                                   struct token_budget *budget, struct list *planned)
{
    if (!link_is_on(&request->in_step)) {
        request->row->n_scheduled = 0;
        list_push(planned, &request->in_step);
        b->n_rows++;
    }
    request->row->n_scheduled += n;
    token_budget_take(b, budget, request, n);
}

/* Schedules each decode row, and the smallest chunk of the first chunked row, so that it proceeds
 * whatever the prefill budget. Returns what the decode rows cost; *ret_all: all are scheduled. */
static size_t plan_decode(struct batcher *b, const struct link *first_chunk, struct list *planned,
                          struct token_budget *budget, bool *ret_all)
{
    size_t decode_cost = 0;

    *ret_all = true;
    for (struct link *l = list_first(&b->running); l != NULL; l = list_next(&b->running, l)) {
        struct batch_request *request = container_of(l, struct batch_request, link);

        if (request->is_paused || (is_chunked(request) && &request->chunked != first_chunk))
            continue;
        if (!fits(b, request->least, budget->left)) {
            *ret_all = false;
            continue;
        }
        batch_request_schedule(b, request, request->least, budget, planned);
        if (!is_chunked(request))
            decode_cost += request->cost;
    }
    return decode_cost;
}

/* Schedules chunks, in order, as far as the budget goes; empties the list. Keeps budget for waiting
 * requests that would finish earlier. */
static void plan_chunks(struct batcher *b, struct list *chunked, struct list *planned,
                        struct token_budget *budget)
{
    struct batch_request *next = budget->n_new > 0 ? waiting_first(&b->waiting) : NULL;
    size_t n_held = 0, held = 0;
    struct link *l;

    while ((l = list_pop(chunked)) != NULL) {
        struct batch_request *request = container_of(l, struct batch_request, chunked);
        size_t left = min_size(budget->left, token_budget_chunk(b, budget, request));
        size_t least = link_is_on(&request->in_step) ? 0 : request->least;

        for (; next != NULL && n_held < budget->n_new && finishes_before(b, next, request);
             n_held++) {
            held += min_size(next->cost, left);
            next = waiting_next(&b->waiting, next);
        }
        left -= min_size(held, left);
        if (least <= left)
            batch_request_schedule(b, request,
                                   min_size(request->cost - (request->least - least), left), budget,
                                   planned);
    }
}

/* Raises the prefill budget to the whole cost of the request that would finish first, running or
 * waiting, if the step-time model allows an unchunked prefill. */
static void unchunk_first(struct batcher *b, const struct list *chunked, size_t n_chunked,
                          size_t decode_cost, struct token_budget *budget)
{
    const struct batch_request *first = budget->n_new > 0 ? waiting_first(&b->waiting) : NULL;
    const struct link *l = list_first(chunked);
    const struct batch_request *running =
        l != NULL ? container_of(l, const struct batch_request, chunked) : NULL;

    if (running != NULL && running->is_short &&
        (first == NULL || finishes_before(b, running, first)))
        first = running;
    if (first != NULL && first->cost > budget->prefill && !batch_request_is_heavy(b, first) &&
        step_time_allows_unchunked(&b->step_time, decode_cost, n_chunked, first->cost,
                                   b->config.max_itl_us))
        budget->prefill = first->cost;
}

/* With heavy tenants: their chunks have what is left of the time; those of light tenants are not
 * held up by heavy tenants' rows, only by max_itl_us and by light ones' rows. */
static void plan_heavy(const struct batcher *b, size_t decode_cost, struct token_budget *budget)
{
    const struct step_time *s = &b->step_time;
    const uint64_t max_us = b->config.max_itl_us;
    size_t light_cost = 0, n_light = 1;

    for (struct link *l = list_first(&b->running); l != NULL; l = list_next(&b->running, l)) {
        const struct batch_request *request = container_of(l, struct batch_request, link);

        if (batch_request_is_heavy(b, request))
            continue;
        if (is_chunked(request))
            n_light++;
        else
            light_cost += request->cost;
    }
    budget->heavy = step_time_tokens(s, b->heavy_us - step_time_decode_us(s, decode_cost, true));
    budget->prefill = min_size(step_time_prefill_budget(s, light_cost, n_light, max_us),
                               step_time_prefill_budget(s, decode_cost, MAX_PROMPTS, max_us));
}

/* Schedules running rows, onto planned. Returns false when no request may begin: a decode row found
 * no room, or decode rows are to run alone. */
static bool step_plan_running(struct batcher *b, struct list *planned, struct token_budget *budget)
{
    struct list chunked;
    size_t n_chunked, decode_cost, spent;
    bool all_decode;

    list_init(&chunked);
    n_chunked = sort_chunked(b, &chunked);
    budget->prefill = budget->heavy = SIZE_MAX;
    if (b->config.max_itl_us != 0 && n_chunked < b->n_running - b->n_paused &&
        step_time_is_stale(&b->step_time)) {
        while (list_pop(&chunked) != NULL)
            continue;
        (void)plan_decode(b, NULL, planned, budget, &all_decode);
        return false;
    }
    decode_cost = plan_decode(b, list_first(&chunked), planned, budget, &all_decode);
    spent = SIZE_MAX - budget->prefill;
    n_chunked += budget->n_new;
    budget->prefill =
        step_time_prefill_budget(&b->step_time, decode_cost, n_chunked, b->config.max_itl_us);
    if (b->heavy_us > 0)
        plan_heavy(b, decode_cost, budget);
    budget->prefill -= min_size(spent, budget->prefill);
    budget->heavy -= min_size(spent, budget->heavy);
    unchunk_first(b, &chunked, n_chunked, decode_cost, budget);
    plan_chunks(b, &chunked, planned, budget);
    return all_decode;
}

/* Which running request is preempted before another: a paused one, then one of the tenant that has
 * the most rows, then the one of the lower aged priority. */
static bool is_preempted_before(const struct batcher *b, const struct batch_request *x,
                                const struct batch_request *y)
{
    const struct tenant *x_tenant = waiting_tenant(&b->waiting, x),
                        *y_tenant = waiting_tenant(&b->waiting, y);
    uint64_t x_rows = tenant_rows(x_tenant, x_tenant->n_rows),
             y_rows = tenant_rows(y_tenant, y_tenant->n_rows);

    if (x->is_paused != y->is_paused)
        return x->is_paused;
    if (x_rows != y_rows)
        return x_rows > y_rows;
    return batch_request_is_before(&b->waiting, y, x);
}

static struct batch_request *lowest_running(const struct batcher *b)
{
    struct batch_request *worst = NULL;

    for (struct link *l = list_first(&b->running); l != NULL; l = list_next(&b->running, l)) {
        struct batch_request *request = container_of(l, struct batch_request, link);

        if (worst == NULL || is_preempted_before(b, request, worst))
            worst = request;
    }
    return worst;
}

static void batch_request_preempt(struct batcher *b, struct batch_request *request)
{
    if (link_is_on(&request->in_step)) {
        list_remove(&request->in_step);
        b->n_rows--;
    }
    batch_request_take_out(b, request);
    b->agent.release(b->agent.self, request->row);
    request->n_preempted++;
    b->stats.n_preempted++;
    batch_request_wait(b, request, true);
}

/* Whether only these n_running rows hold anything: no other row runs, and no ended row has a future
 * that has yet to settle. */
static bool holds_nothing_but(const struct batcher *b, size_t n_running)
{
    return b->n_running == n_running && list_is_empty(&b->ending);
}

/* Moves planned rows onto in_step once they have reserved what they need. Returns true when all
 * did and none was preempted. */
static bool reserve_planned(struct batcher *b, struct list *planned)
{
    bool is_undisturbed = true;
    struct link *l;

    while ((l = list_first(planned)) != NULL) {
        struct batch_request *request = batch_request_of_step(l);
        enum status rc;

        while ((rc = batch_request_reserve(b, request)) == STATUS_EXHAUSTED && b->n_running > 1) {
            struct batch_request *worst = lowest_running(b);

            is_undisturbed = false;
            batch_request_preempt(b, worst);
            if (worst == request)
                break;
        }
        if (request->state != REQUEST_RUNNING)
            continue;
        list_remove(&request->in_step);
        if (rc == STATUS_OK) {
            list_push(&b->in_step, &request->in_step);
            continue;
        }
        b->n_rows--;
        is_undisturbed = false;
        if (rc != STATUS_EXHAUSTED || holds_nothing_but(b, 1))
            batch_request_fail(b, request);
    }
    return is_undisturbed;
}

struct policy_view step_view(struct batcher *b, uint64_t now_us)
{
    return (struct policy_view){
        .config = &b->config,
        .now_us = now_us,
        .oldest_us = b->waiting.n_queued > 0 ? waiting_oldest_us(&b->waiting) : now_us,
        .n_queued = b->waiting.n_queued - b->n_admitted,
        .n_admitted = b->n_admitted + b->waiting.n_preempted,
        .n_running = b->n_running - b->n_paused,
        .adaptive = &b->adaptive,
    };
}

/* Lets the policy admit requests; preempted ones need no leave. */
static void step_admit_by_policy(struct batcher *b, uint64_t now_us, uint64_t *ret_wake_us)
{
    struct policy_view v = step_view(b, now_us);

    if (v.n_queued > 0) {
        b->n_admitted += b->policy->choose != NULL
                             ? b->policy->choose(&b->waiting, &b->length_buckets, &v)
                             : b->policy->admit(&v, ret_wake_us);
        assert(b->n_admitted <= b->waiting.n_queued);
    }
}

/* Preempts a paused row of a heavy tenant, for a request of a light one. False: there is none. */
static bool preempt_heavy(struct batcher *b, const struct batch_request *request)
{
    struct batch_request *lowest = lowest_running(b);

    if (lowest == NULL || !lowest->is_paused || !batch_request_is_heavy(b, lowest) ||
        batch_request_is_heavy(b, request))
        return false;
    batch_request_preempt(b, lowest);
    return true;
}

/* Returns false if the request, and those behind it, must go on waiting. */
static bool batch_request_admit(struct batcher *b, struct batch_request *request,
                                struct token_budget *budget)
{
    size_t held = request->cost, left = budget->left, chunk;
    double chunk_us; /* 0: unknown */
    enum status rc;

    batch_request_update_cost(b, request);
    batch_request_count_cost(b, request, request->cost - held);
    chunk = token_budget_chunk(b, budget, request);
    if (is_chunked(request) && !budget->has_chunk && chunk < request->least)
        left = min_size(left, request->least);
    else if (is_chunked(request))
        left = min_size(left, chunk);
    if (!fits(b, request->least, left))
        return false;
    request->row->n_scheduled =
        request->least > left ? request->least : min_size(request->cost, left);
    do
        rc = batch_request_reserve(b, request);
    while (rc == STATUS_EXHAUSTED && preempt_heavy(b, request));
    if (rc == STATUS_EXHAUSTED && !holds_nothing_but(b, 0))
        return false; /* another row will release its pages */
    if (!request->is_preempted && !request->is_chosen)
        b->n_admitted--;
    if (rc != STATUS_OK) {
        batch_request_fail(b, request);
        return true;
    }
    batch_request_take_out(b, request);
    chunk_us = step_time_chunk_us(&b->step_time, request->cost);
    request->is_short = chunk_us > 0 && chunk_us <= (double)b->config.max_itl_us;
    request->state = REQUEST_RUNNING;
    list_push(&b->running, &request->link);
    b->n_running++;
    waiting_tenant(&b->waiting, request)->n_rows++;
    list_push(&b->in_step, &request->in_step);
    b->n_rows++;
    token_budget_take(b, budget, request, request->row->n_scheduled);
    return true;
}

static void step_close(struct batcher *b, uint64_t now_us)
{
    size_t i = 0;

    b->step_us = now_us;
    b->decode_cost = b->chunk_cost = 0;
    for (struct link *l = list_first(&b->in_step); l != NULL; l = list_next(&b->in_step, l)) {
        struct batch_request *request = batch_request_of_step(l);

        list_remove(&request->link);
        list_push(&b->running, &request->link);
        if (request->n_steps++ == 0)
            request->first_step_us = now_us;
        b->stats.n_cost += request->row->n_scheduled;
        tenant_charge(waiting_tenant(&b->waiting, request), request->row->n_scheduled);
        *(is_chunked(request) ? &b->chunk_cost : &b->decode_cost) += request->row->n_scheduled;
        request->row->extra = 0;
        request->row->outcome = ROW_FAILED; /* the default until compute sets it */
        b->rows[i++] = request->row;
    }
    assert(i == b->n_rows && i <= b->config.max_rows);
    waiting_advance(&b->waiting);
}

/* Lets the first waiting request begin. False: it must wait, or none may begin. Rows that were
 * paused may have taken the place of admitted requests. */
static bool step_admit_first(struct batcher *b, struct token_budget *budget)
{
    struct batch_request *first = waiting_first(&b->waiting);

    if (first == NULL || b->n_rows == b->config.max_rows)
        return false;
    if (!first->is_preempted && waiting_tenant(&b->waiting, first)->n_paused > 0)
        return false;
    return batch_request_admit(b, first, budget);
}

void step_learn(struct batcher *b, uint64_t now_us)
{
    uint64_t us = now_us - b->step.begun_us;
    size_t extra = 0;

    for (size_t i = 0; i < b->n_rows; i++)
        extra += b->rows[i]->extra;
    step_time_learn(&b->step_time, b->decode_cost + extra, b->chunk_cost, us);
    if (b->chunk_cost == 0 && b->decode_cost > 0)
        b->row_cost = (double)(b->decode_cost + extra) / (double)b->n_rows;
    adaptive_stepped(&b->adaptive, b->n_rows, us, now_us);
}

/* Schedules running rows and reserves what they need. Returns true when no row was left out,
 * preempted or failed. A round may schedule nothing: the planned row was preempted, and the others
 * did not fit in the budget beside it. Another round follows with one running row fewer. */
static bool step_form_running(struct batcher *b, struct token_budget *budget)
{
    const struct token_budget full = *budget;
    bool all_decode, is_undisturbed = true;
    struct list planned;

    list_init(&planned);
    do {
        *budget = full;
        all_decode = step_plan_running(b, &planned, budget);
        if (!reserve_planned(b, &planned))
            is_undisturbed = false;
    } while (b->n_rows == 0 && b->n_running > b->n_paused && list_is_empty(&b->ending));
    return all_decode && is_undisturbed;
}

static void step_form_rows(struct batcher *b)
{
    struct token_budget budget = {.left = b->config.max_cost,
                                  .n_new = b->n_admitted + b->waiting.n_preempted};

    if (step_form_running(b, &budget))
        while (budget.n_new-- > 0 && step_admit_first(b, &budget))
            continue;
}

void step_form(struct batcher *b, uint64_t now_us, uint64_t *ret_wake_us)
{
    assert(!b->is_stepping && list_is_empty(&b->in_step));
    *ret_wake_us = 0;
    b->n_rows = 0;
    yield_rows(b, true, now_us);
    step_admit_by_policy(b, now_us, ret_wake_us);
    step_form_rows(b);
    if (b->n_rows == 0 && b->n_paused > 0) {
        yield_rows(b, false, now_us); /* rows that yielded still hold pages, and the requests they
                                 yielded to cannot begin beside them */
        step_form_rows(b);
    }
    step_close(b, now_us);
}
