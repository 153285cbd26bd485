/* Runs the real batcher through random schedules: a manual clock, compute with random step times,
 * an agent whose rows hold pages of a small pool. Each schedule draws its policy and bounds, which
 * flows submit when, what is cancelled, what fails, when the policy changes, and when the batcher
 * closes. The world keeps a model of the expected state and compares at every step and after every
 * event.
 *
 *   test_batcher_sim [--seed N] [--schedules N]
 *
 * A failure prints its seed; --seed replays that schedule with a trace. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "batching/batcher.h"
#include "batching/tenant.h"

enum {
    MAX_ASKERS = 12,
    MAX_TENANTS = 4,
    MAX_ASKS = 400,
    MAX_ROWS = 8,
    MAX_ROUNDS = 40,
    MAX_TENANT_ROUNDS = 1000
};

static const uint64_t never = UINT64_MAX;

enum place { BEHIND, WAITING, RUNNING };

/* A request in the world's model: the batcher's request and its expected state. */
struct sim_request {
    struct batch_request request;
    struct row row;
    struct world *world;
    size_t id, flow, number; /* number: the order in which requests became heads of flows */
    /* The row's work: a prompt, then n_tokens of cost 1; whole: the prompt cannot be chunked. */
    size_t prompt, n_tokens, produced, computed, held, chunk;
    size_t growth; /* a token may add up to so much cost */
    bool is_whole;
    uint32_t breaks_at, refuses_at; /* the step in which it does, 0: never */
    uint32_t n_steps, n_stepped, n_more, n_more_due;
    /* The expected state. */
    enum place place;
    bool in_step, is_preempted, is_cancelled, was_in_step, was_over;
    bool is_alone; /* no other row held a page when its last reserve failed */
    bool has_fate; /* its result is known: fate */
    enum status fate;
    enum row_outcome next; /* of the running step */
    uint64_t since_us, cancelled_us;
    uint32_t steps_at_cancel;
    size_t n_skipped;
};

struct world {
    uint64_t seed, chance, now_us;
    bool has_trace;
    struct batcher *batcher;
    struct batcher_config config;
    struct batcher_config next; /* with is_changing: in force once the current batch has ended */
    bool is_changing;
    size_t cap_rows, n_changes,
        n_missing; /* n_missing: requests of a given-up batch that have yet to end */
    struct env env;
    struct flow flows[MAX_ASKERS];
    struct tenant tenants[MAX_TENANTS];
    size_t n_tenants; /* 0: the flows name none */
    size_t n_flows, n_to_submit;
    uint64_t mean_gap_us, mean_step_us, jitter_us;
    size_t pool, n_held;
    bool has_picked; /* a batch was chosen by length */
    bool is_roomy;   /* no bound on cost, more pages than any request needs */
    unsigned percent_deadline, percent_cancel, percent_break, percent_again;

    uint64_t arrival_at, cancel_at, change_at, close_at, tick_at, step_at;
    struct batch_step *step;
    struct sim_request *rows[MAX_ROWS];
    size_t n_rows;
    bool in_call;                 /* inside batcher_submit, _cancel or _close: nothing may settle */
    bool has_preempted, is_short; /* is_short: the last reserve failed for lack of pages */
    bool is_closing, is_closed;

    struct sim_request *live[MAX_ASKS];
    size_t n_live, n_ids, n_numbered;
    uint8_t n_settled[MAX_ASKS];
    struct batcher_stats must; /* expected batcher_stats */
    uint64_t n_checks;
};

static void broken(const struct world *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), noreturn));

static void broken(const struct world *w, const char *fmt, ...)
{
    static const char *const policies[] = {"fixed",  "window",    "continuous",
                                           "gather", "batchsort", "full"};
    va_list args;

    printf("seed %" PRIu64 " (%s) at %" PRIu64 " us: ", w->seed, policies[w->config.policy],
           w->now_us);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\nreplay: test_batcher_sim --seed %" PRIu64 "\n", w->seed);
    exit(EXIT_FAILURE);
}

#define MUST(w, condition, ...)       \
    do {                              \
        (w)->n_checks++;              \
        if (!(condition))             \
            broken((w), __VA_ARGS__); \
    } while (0)

#define TRACE(w, ...)                              \
    do {                                           \
        if ((w)->has_trace) {                      \
            printf("%10" PRIu64 " ", (w)->now_us); \
            printf(__VA_ARGS__);                   \
            printf("\n");                          \
        }                                          \
    } while (0)

/* splitmix64 */
static uint64_t draw(struct world *w)
{
    uint64_t z = w->chance += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t draw_within(struct world *w, size_t least, size_t most)
{
    return least + (size_t)(draw(w) % (most - least + 1));
}

static bool draw_percent(struct world *w, unsigned percent)
{
    return draw(w) % 100 < percent;
}

/* Whether its result is fixed although its future has not settled. */
static bool is_over(const struct world *w, const struct sim_request *a)
{
    bool is_late = a->request.deadline_us != 0 && a->request.deadline_us <= w->now_us;

    return a->has_fate || (!a->in_step && (a->is_cancelled || w->is_closing || is_late));
}

/* Compares aged priorities, in microseconds: the higher goes first, among equals the earlier. */
static bool goes_before(const struct world *w, const struct sim_request *a,
                        const struct sim_request *b)
{
    int64_t ageing = w->config.ageing_us != 0 ? (int64_t)w->config.ageing_us : 100000;
    int64_t priority_a = a->request.priority * ageing + (int64_t)(w->now_us - a->since_us);
    int64_t priority_b = b->request.priority * ageing + (int64_t)(w->now_us - b->since_us);

    return priority_a != priority_b ? priority_a > priority_b : a->number < b->number;
}

static bool is_by_length(const struct batcher_config *config)
{
    return config->policy == BATCH_BATCHSORT || config->policy == BATCH_FULL;
}

/* Whether requests that begin now need not be the first waiting ones. If steps lack room, some may
 * begin long after they were chosen, under another policy. */
static bool picks(struct world *w)
{
    bool does = is_by_length(&w->config) || (w->is_changing && is_by_length(&w->next));

    w->has_picked |= does;
    return does || (w->has_picked && !w->is_roomy);
}

/* ---- the agent ---- */

static struct sim_request *sim_request_of(const struct row *row)
{
    return container_of(row, struct sim_request, row);
}

static size_t cost(void *self, const struct row *row)
{
    const struct sim_request *a = sim_request_of(row);

    return a->prompt + a->produced - a->computed;
}

static size_t min_chunk(void *self, const struct row *row)
{
    const struct sim_request *a = sim_request_of(row);

    return a->is_whole ? cost(self, row) : a->chunk;
}

static enum status reserve(void *self, struct row *row, struct error *err)
{
    struct world *w = self;
    struct sim_request *a = sim_request_of(row);
    size_t more = a->computed + row->n_scheduled - a->held;

    MUST(w, !a->in_step && w->step == NULL, "reserve of %zu while a step runs", a->id);
    MUST(w, !is_over(w, a), "reserve of %zu, whose end is known", a->id);
    if (a->refuses_at != 0 && a->n_steps + 1 >= a->refuses_at) {
        a->has_fate = true;
        a->fate = STATUS_INTERNAL;
        return error_set(err, STATUS_INTERNAL, "row %zu broke", a->id);
    }
    a->is_alone = w->n_held == a->held;
    w->is_short = more > w->pool - w->n_held;
    if (w->is_short)
        return error_set(err, STATUS_EXHAUSTED, "row %zu wants %zu pages", a->id, more);
    a->held += more;
    w->n_held += more;
    a->is_alone = false;
    return STATUS_OK;
}

static void give_back(struct world *w, struct sim_request *a)
{
    w->n_held -= a->held;
    a->held = 0;
}

static void release(void *self, struct row *row)
{
    struct world *w = self;
    struct sim_request *a = sim_request_of(row);
    size_t n_running = 0;

    TRACE(w, "preempted %zu", a->id);
    MUST(w, a->place == RUNNING && !a->in_step, "%zu is preempted and does not run", a->id);
    for (size_t i = 0; i < w->n_live; i++) {
        const struct sim_request *other = w->live[i];

        if (other->place != RUNNING || is_over(w, other))
            continue;
        n_running++;
        MUST(w, other == a || w->n_tenants > 0 || goes_before(w, other, a),
             "%zu is preempted before %zu", a->id, other->id);
    }
    MUST(w, n_running > 1 || w->n_tenants > 0, "%zu is preempted and is alone", a->id);
    MUST(w, w->is_short, "%zu is preempted for nothing", a->id);
    w->is_short = false; /* preempts one row at a time: another only if this was not enough */
    give_back(w, a);
    a->computed = 0;
    a->place = WAITING;
    a->is_preempted = true;
    a->n_skipped = 0;
    w->has_preempted = true;
    w->must.n_preempted++;
}

/* Computes the row's outcome at the end of the step. */
static void work(struct world *w, struct sim_request *a)
{
    a->n_steps++;
    a->computed += a->row.n_scheduled;
    a->next = ROW_MORE;
    if (a->breaks_at != 0 && a->n_steps >= a->breaks_at)
        a->next = ROW_FAILED;
    else if (a->computed == a->prompt + a->produced && ++a->produced == a->n_tokens)
        a->next = ROW_DONE;
    if (a->computed < a->prompt + a->produced && a->next == ROW_MORE)
        a->prompt += draw_within(w, 0, a->growth);
    w->must.n_rows++;
    w->must.n_cost += a->row.n_scheduled;
}

static void check_row(struct world *w, struct sim_request *a, size_t n)
{
    size_t wants = cost(w, &a->row);
    size_t least = min_chunk(w, &a->row);

    MUST(w, !a->in_step, "%zu is twice in a step", a->id);
    MUST(w, !is_over(w, a), "%zu gets a step after its end", a->id);
    MUST(w, a->request.deadline_us == 0 || w->now_us < a->request.deadline_us,
         "%zu gets a step after its deadline", a->id);
    MUST(w, a->place != BEHIND, "%zu gets a step before its turn", a->id);
    MUST(w, a->row.n_scheduled >= 1 && a->row.n_scheduled <= wants, "%zu wants %zu and gets %zu",
         a->id, wants, a->row.n_scheduled);
    MUST(w, a->row.n_scheduled >= (least < wants ? least : wants),
         "%zu gets %zu, useless below %zu", a->id, a->row.n_scheduled, least);
    MUST(w, n == 1 || w->config.max_cost == 0 || a->row.n_scheduled <= w->config.max_cost,
         "%zu gets %zu, more than a whole step", a->id, a->row.n_scheduled);
    for (size_t i = 0; i < w->n_live; i++)
        MUST(w, w->live[i]->flow != a->flow || w->live[i]->id >= a->id || is_over(w, w->live[i]),
             "%zu gets a step before %zu of the same flow has settled", a->id, w->live[i]->id);
}

static bool is_of_other_tenant(const struct world *w, const struct sim_request *a,
                               const struct sim_request *b)
{
    return w->flows[a->flow].tenant != w->flows[b->flow].tenant;
}

static bool is_of_heavy(const struct world *w, const struct sim_request *a)
{
    const struct tenant *t = w->flows[a->flow].tenant;

    return t != NULL ? t->max_rows != SIZE_MAX : w->n_tenants > 0; /* the batcher's own */
}

/* A request that begins must be the first of its tenant's waiting ones. */
static void check_beginning(struct world *w, const struct sim_request *a)
{
    MUST(w, !w->has_preempted || w->n_tenants > 0, "%zu begins in a step that preempted another",
         a->id);
    if (a->is_preempted)
        return;
    for (size_t i = 0; i < w->n_live; i++) {
        const struct sim_request *other = w->live[i];

        if (other->place != WAITING || other->in_step || is_over(w, other))
            continue;
        if (other->is_alone)
            continue; /* the pool is too small for it: it fails once its neighbours have ended */
        MUST(w, !other->is_preempted || is_of_heavy(w, other), "%zu begins before %zu goes on",
             a->id, other->id);
        MUST(w, picks(w) || is_of_other_tenant(w, a, other) || goes_before(w, a, other),
             "%zu begins, %zu is passed over", a->id, other->id);
    }
}

static size_t min_rows(const struct world *w)
{
    return w->config.min_rows != 0 ? w->config.min_rows : w->config.max_rows;
}

static void apply_change(struct world *w)
{
    TRACE(w, "changed");
    w->config = w->next;
    w->is_changing = false;
}

/* Length bucketing: a request that has waited too long is not left behind. */
static void check_oldest(struct world *w)
{
    int64_t ageing = w->config.ageing_us != 0 ? (int64_t)w->config.ageing_us : 100000;
    const struct sim_request *first = NULL;

    for (size_t i = 0; i < w->n_live; i++) {
        const struct sim_request *a = w->live[i];

        if (a->place == WAITING && !is_over(w, a) && (first == NULL || goes_before(w, a, first)))
            first = a;
    }
    if (first != NULL &&
        (int64_t)(w->now_us - first->since_us) + first->request.priority * ageing >=
            (int64_t)w->config.max_delay_us)
        MUST(w, first->in_step, "%zu has waited too long and is left behind", first->id);
}

/* Whether a tenant has no more rows than its share of the time. */
static bool has_heavy(const struct world *w)
{
    for (size_t i = 0; i < w->n_live; i++)
        if (is_of_heavy(w, w->live[i]))
            return true;
    return false;
}

/* If neither cost nor pages hold a request back, the policy's own rule can be checked. */
static void check_policy(struct world *w, size_t n_begun, size_t n_held_back, uint64_t oldest_us)
{
    bool is_due = w->now_us - oldest_us >= w->config.max_delay_us;

    if (!w->is_roomy)
        return;
    if (w->is_changing && n_begun > 0) {
        MUST(w, n_begun == w->n_rows, "%zu begin beside %zu of the policy before", n_begun,
             w->n_rows - n_begun);
        apply_change(w);
        is_due = w->now_us - oldest_us >= w->config.max_delay_us;
    }
    if (w->is_changing || has_heavy(w))
        return;
    MUST(w, w->n_rows <= w->config.max_rows, "a step of %zu rows", w->n_rows);
    if ((w->config.policy == BATCH_CONTINUOUS ||
         (is_by_length(&w->config) && w->config.rows_multiple <= 1)) &&
        w->n_rows < w->config.max_rows)
        MUST(w, n_held_back == 0, "%zu wait and the step has room", n_held_back);
    if (n_begun == 0)
        return;
    if (is_by_length(&w->config))
        check_oldest(w);
    if (w->config.policy == BATCH_FIXED)
        MUST(w,
             w->n_rows == n_begun &&
                 (n_begun == w->config.max_rows || (w->config.max_delay_us > 0 && is_due &&
                                                    n_held_back == 0 && n_begun >= min_rows(w))),
             "a fixed step of %zu rows begins %zu after %" PRIu64 " us", w->n_rows, n_begun,
             w->now_us - oldest_us);
    if (w->config.policy == BATCH_ADAPTIVE && w->n_rows < w->config.max_rows && w->n_tenants == 0)
        MUST(w, n_held_back == 0 || n_begun <= 1, "%zu begin together, and %zu wait", n_begun,
             n_held_back);
    if (w->config.policy == BATCH_WINDOW && w->n_rows < w->config.max_rows)
        MUST(w, n_held_back == 0 && (is_due || n_begun >= min_rows(w)),
             "the window closes at %zu rows after %" PRIu64 " us, %zu wait", w->n_rows,
             w->now_us - oldest_us, n_held_back);
}

/* A row that cannot be chunked is never skipped for longer than a round of the others, unless it
 * yields to other tenants; a row that can be is only skipped for rows that would finish before it.
 */
static void check_skipped(struct world *w, struct sim_request *a)
{
    size_t wants = cost(w, &a->row), least = min_chunk(w, &a->row);
    size_t n_rounds = w->n_tenants > 0 ? MAX_TENANT_ROUNDS : least < wants ? MAX_ROUNDS : 1;

    MUST(w, ++a->n_skipped < n_rounds * w->cap_rows, "%zu runs and is passed over %zu times", a->id,
         a->n_skipped);
}

/* Compute has the rows: checks all that must hold of a step, before it runs. */
static void act(struct world *w, struct row *const *rows, size_t n)
{
    size_t sum = 0, n_begun = 0, n_held_back = 0;
    uint64_t oldest_us = never;

    MUST(w, n >= 1 && n <= w->cap_rows, "a step of %zu rows", n);
    w->n_rows = n;
    for (size_t i = 0; i < n; i++) {
        struct sim_request *a = w->rows[i] = sim_request_of(rows[i]);

        check_row(w, a, n);
        a->in_step = true;
        sum += a->row.n_scheduled;
    }
    MUST(w, w->config.max_cost == 0 || n == 1 || sum <= w->config.max_cost,
         "a step of %zu rows costs %zu", n, sum);
    for (size_t i = 0; i < n; i++) {
        if (w->rows[i]->place != WAITING)
            continue;
        n_begun++;
        if (w->rows[i]->since_us < oldest_us)
            oldest_us = w->rows[i]->since_us;
        check_beginning(w, w->rows[i]);
    }
    for (size_t i = 0; i < w->n_live; i++) {
        struct sim_request *a = w->live[i];

        if (a->place == RUNNING && !a->in_step && !is_over(w, a) && !a->is_alone)
            check_skipped(w, a);
        if (a->place == WAITING && !a->in_step && !is_over(w, a))
            n_held_back++;
    }
    check_policy(w, n_begun, n_held_back, oldest_us);
    for (size_t i = 0; i < n; i++) {
        struct sim_request *a = w->rows[i];

        TRACE(w, "  row %zu grant %zu of %zu", a->id, a->row.n_scheduled, cost(w, &a->row));
        a->place = RUNNING;
        a->is_preempted = false;
        a->n_skipped = 0;
        a->row.outcome =
            (enum row_outcome)draw_within(w, 0, 2); /* has no meaning before the end of the step */
        work(w, a);
    }
    w->has_preempted = false;
    w->must.n_steps++;
}

static void stepped(void *self, struct row *row)
{
    struct world *w = self;
    struct sim_request *a = sim_request_of(row);

    MUST(w, a->n_stepped + 1 == a->n_steps, "stepped of %zu: %u for %u steps", a->id,
         a->n_stepped + 1, a->n_steps);
    a->n_stepped++;
}

/* ---- compute and timer ---- */

static void begin_step(void *self, struct batch_step *step)
{
    struct world *w = self;

    MUST(w, w->step == NULL, "two steps at once");
    TRACE(w, "step");
    act(w, step->rows, step->n_rows);
    w->step = step;
    w->step_at = w->now_us + draw_within(w, 1, 2 * w->mean_step_us);
}

static void finish_step(struct world *w)
{
    struct batch_step *step = w->step;

    w->step = NULL;
    w->step_at = never;
    for (size_t i = 0; i < w->n_rows; i++) {
        struct sim_request *a = w->rows[i];

        MUST(w, a->n_more_due == 0, "%zu was not told of its last step", a->id);
        a->in_step = false;
        a->row.outcome = a->next;
        if (a->next == ROW_MORE) {
            a->n_more_due++;
            continue;
        }
        a->has_fate = true;
        a->fate = STATUS_OK;
        if (a->next == ROW_FAILED)
            a->fate = error_set(&a->row.err, STATUS_INTERNAL, "row %zu broke", a->id);
    }
    TRACE(w, "step done");
    step->done(step);
}

static void arm(void *self, uint64_t at_us)
{
    struct world *w = self;

    MUST(w, !w->is_closed, "the timer is armed after closed");
    w->tick_at = never;
    if (at_us != 0)
        w->tick_at = (at_us > w->now_us ? at_us : w->now_us) +
                     (w->jitter_us > 0 ? draw_within(w, 0, w->jitter_us) : 0);
}

/* ---- clients ---- */

static void submit_new(struct world *w, size_t flow);

static void cancel_some(struct world *w)
{
    struct sim_request *a;

    if (w->n_live == 0)
        return;
    a = w->live[draw(w) % w->n_live];
    TRACE(w, "cancel %zu", a->id);
    if (!a->is_cancelled) {
        a->was_over = is_over(w, a) || a->request.state == REQUEST_ENDING;
        a->was_in_step = a->in_step;
        a->cancelled_us = w->now_us;
        a->steps_at_cancel = a->n_steps;
        a->is_cancelled = true;
    }
    w->in_call = true;
    batcher_cancel(w->batcher, &a->request);
    w->in_call = false;
}

/* Checks a request of a batch that was not complete in time; the first one of the batch counts all.
 */
static void check_missed(struct world *w, const struct sim_request *a, const struct error *err)
{
    size_t n = 0, of = 0;
    uint64_t oldest_us = a->since_us;

    if (w->n_missing > 0) {
        w->n_missing--;
        return;
    }
    if (w->is_changing) /* requests of the previous policy would have settled with it */
        apply_change(w);
    MUST(w, w->config.policy == BATCH_FIXED && w->config.max_delay_us > 0,
         "%zu gives up, under a policy that never does", a->id);
    MUST(w, sscanf(err->text, "%zu of %zu requests", &n, &of) == 2 && of == w->config.max_rows,
         "%zu gives up with '%s'", a->id, err->text);
    MUST(w, n >= 1 && n < min_rows(w), "%zu gives up, and %zu are enough", a->id, n);
    for (size_t i = 0; i < w->n_live; i++)
        if (w->live[i]->request.state == REQUEST_ENDING && w->live[i]->place == WAITING &&
            w->live[i]->since_us < oldest_us)
            oldest_us = w->live[i]->since_us;
    MUST(w, w->now_us - oldest_us >= w->config.max_delay_us, "%zu gives up after %" PRIu64 " us",
         a->id, w->now_us - oldest_us);
    w->n_missing = n - 1;
}

static void check_cancelled(struct world *w, const struct sim_request *a, enum status status)
{
    if (!a->is_cancelled || a->was_over)
        return;
    MUST(w, status == STATUS_CANCELLED || (a->was_in_step && a->has_fate && status == a->fate),
         "%zu was cancelled and settles %s", a->id, status_name(status));
    MUST(w, a->n_steps == a->steps_at_cancel, "%zu ran on after it was cancelled", a->id);
}

static void check_end(struct world *w, const struct sim_request *a, const struct error *err)
{
    char text[40];

    MUST(w, !w->in_call, "%zu settles inside a call", a->id);
    MUST(w, ++w->n_settled[a->id] == 1, "%zu settles twice", a->id);
    MUST(w, !a->in_step, "%zu settles while compute has it", a->id);
    MUST(w, a->n_stepped == a->n_steps, "%zu settles before stepped", a->id);
    if (a->has_fate)
        MUST(w, err->status == a->fate, "%zu settles %s instead of %s", a->id,
             status_name(err->status), status_name(a->fate));
    check_cancelled(w, a, err->status);
    switch (err->status) {
    case STATUS_OK:
        MUST(w, a->has_fate, "%zu settles OK and is not done", a->id);
        w->must.n_done++;
        return;
    case STATUS_CANCELLED:
        MUST(w, a->is_cancelled, "%zu settles CANCELLED, nobody cancelled it", a->id);
        w->must.n_cancelled++;
        return;
    case STATUS_DEADLINE:
        MUST(w, a->request.deadline_us != 0 && a->request.deadline_us <= w->now_us,
             "%zu expires before its deadline", a->id);
        w->must.n_expired++;
        return;
    case STATUS_INTERNAL:
        (void)snprintf(text, sizeof(text), "row %zu broke", a->id);
        MUST(w, a->has_fate && strcmp(err->text, text) == 0, "%zu fails with '%s'", a->id,
             err->text);
        break;
    case STATUS_EXHAUSTED:
        MUST(w, a->is_alone, "%zu fails for want of pages that others hold", a->id);
        break;
    case STATUS_ABORTED:
        check_missed(w, a, err);
        break;
    case STATUS_UNAVAILABLE:
        MUST(w, w->is_closing, "%zu settles UNAVAILABLE, nobody closes", a->id);
        break;
    default:
        broken(w, "%zu settles %s", a->id, status_name(err->status));
    }
    w->must.n_failed++;
}

static void become_head(struct world *w, struct sim_request *a)
{
    a->place = WAITING;
    a->since_us = w->now_us;
    a->number = ++w->n_numbered;
}

/* Makes the next request of the flow that can still run its head. */
static void step_forward(struct world *w, size_t flow)
{
    struct sim_request *next = NULL;

    for (size_t i = 0; i < w->n_live; i++) {
        struct sim_request *a = w->live[i];

        if (a->flow == flow && !is_over(w, a) && (next == NULL || a->id < next->id))
            next = a;
    }
    if (next != NULL && next->place == BEHIND)
        become_head(w, next);
}

static void on_settled(struct future *f, const struct error *err, void *arg)
{
    struct sim_request *a = arg;
    struct world *w = a->world;
    size_t flow = a->flow;
    bool was_front = a->place != BEHIND;
    size_t i = 0;

    TRACE(w, "settled %zu %s", a->id, status_name(err->status));
    MUST(w, f == &a->request.reply, "another's future");
    check_end(w, a, err);
    w->has_preempted = false; /* an empty step is formed again after this */
    give_back(w, a);
    while (w->live[i] != a)
        i++;
    w->live[i] = w->live[--w->n_live];
    free(a);
    if (was_front)
        step_forward(w, flow);
    if (draw_percent(w, w->percent_again))
        submit_new(w, flow);
    if (draw_percent(w, w->percent_cancel / 4))
        cancel_some(w);
}

static void on_more(struct batch_request *request, void *arg)
{
    struct sim_request *a = arg;
    struct world *w = a->world;

    MUST(w, request == &a->request && a->n_more_due == 1, "%zu is told of %u steps", a->id,
         a->n_more_due);
    MUST(w, !w->in_call && !is_over(w, a), "%zu is told of a step after its end", a->id);
    a->n_more_due = 0;
    if (draw_percent(w, w->percent_cancel / 4))
        cancel_some(w);
}

static void on_closed(void *arg)
{
    struct world *w = arg;

    TRACE(w, "closed");
    MUST(w, !w->in_call && !w->is_closed && w->is_closing, "closed is called at the wrong time");
    MUST(w, w->n_live == 0 && w->step == NULL, "closed with %zu requests", w->n_live);
    MUST(w, w->tick_at == never, "closed with its timer armed");
    w->is_closed = true;
}

static void close_all(struct world *w)
{
    TRACE(w, "close");
    w->close_at = never;
    if (w->is_closing)
        return;
    w->is_closing = w->in_call = true;
    batcher_close(w->batcher, on_closed, w);
    w->in_call = false;
}

static struct sim_request *make_request(struct world *w, size_t flow)
{
    struct sim_request *a = xalloc(sizeof(*a));

    a->world = w;
    a->id = w->n_ids++;
    a->flow = flow;
    a->prompt = draw_within(w, 1, draw_percent(w, 10) ? 80 : 16);
    a->n_tokens = draw_within(w, 1, 6);
    a->is_whole = draw_percent(w, 40);
    a->chunk = draw_within(w, 0, 6);
    a->growth = draw_percent(w, 50) ? draw_within(w, 1, 12) : 0;
    if (draw_percent(w, w->percent_break))
        a->breaks_at = (uint32_t)draw_within(w, 1, 4);
    else if (!w->is_roomy && draw_percent(w, w->percent_break))
        a->refuses_at = (uint32_t)draw_within(w, 1, 4);
    a->request.row = &a->row;
    a->row.clone = a;
    a->request.flow = &w->flows[flow];
    if (draw_percent(w, 50))
        a->request.priority = (int)draw_within(w, 0, 200) - 100;
    if (draw_percent(w, w->percent_deadline))
        a->request.deadline_us = w->now_us + draw_within(w, 0, 20 * w->mean_step_us);
    a->request.more = on_more;
    a->request.more_arg = a;
    future_init(&a->request.reply, on_settled, a);
    return a;
}

/* How many requests wait, and their cost; of: of this tenant alone, NULL: of all. */
static size_t count_waiting(struct world *w, const struct tenant *of, size_t *ret_cost)
{
    size_t n = 0;

    *ret_cost = 0;
    for (size_t i = 0; i < w->n_live; i++) {
        struct sim_request *a = w->live[i];

        if ((a->request.state != REQUEST_FLOW_QUEUED && a->request.state != REQUEST_WAITING) ||
            (of != NULL && w->flows[a->flow].tenant != of))
            continue;
        *ret_cost += cost(w, &a->row);
        n++;
    }
    return n;
}

/* Whether the tenant of the request has half of the queue, which is the most. */
static bool has_half(struct world *w, const struct batcher_config *config,
                     const struct sim_request *a, size_t n, size_t sum)
{
    size_t half = config->max_waiting / 2, most = config->max_waiting_cost / 2;

    if (w->flows[a->flow].tenant == NULL)
        return false;
    if (config->policy == BATCH_FIXED && half < config->max_rows)
        half = config->max_rows;
    return (config->max_waiting > 1 && n >= half) ||
           (most != 0 && sum > 0 && sum + cost(w, &a->row) > most);
}

/* A request is refused if and only if there is a reason. */
static void check_answer(struct world *w, struct sim_request *a, enum status rc,
                         const struct error *err, size_t n_waiting, size_t sum, bool is_half)
{
    size_t most = w->config.max_waiting_cost;
    bool is_late = a->request.deadline_us != 0 && a->request.deadline_us <= w->now_us;
    bool is_full = is_half || n_waiting >= w->config.max_waiting ||
                   (most != 0 && sum > 0 && sum + cost(w, &a->row) > most);
    enum status must = STATUS_OK;

    if (w->is_closing)
        must = STATUS_UNAVAILABLE;
    else if (is_late)
        must = STATUS_DEADLINE;
    else if (is_full)
        must = STATUS_EXHAUSTED;
    MUST(w, rc == must, "asking is answered %s instead of %s", status_name(rc), status_name(must));
    if (rc != STATUS_OK)
        MUST(w, err->status == rc && (err->retry_after_ms > 0) == (rc == STATUS_EXHAUSTED),
             "a refusal with the hint to come back in %u ms", err->retry_after_ms);
}

static void submit_new(struct world *w, size_t flow)
{
    struct batcher_stats stats;
    struct error err = {0};
    struct sim_request *a;
    enum status rc;
    size_t sum, n_own, own;
    bool is_half;

    if (w->n_ids == MAX_ASKS || w->is_closed)
        return;
    a = make_request(w, flow);
    n_own = count_waiting(w, w->flows[flow].tenant, &own);
    is_half = has_half(w, &w->config, a, n_own, own);
    if (w->is_changing && is_half != has_half(w, &w->next, a, n_own, own)) {
        free(a); /* which of both holds depends on whether the last batch has ended */
        return;
    }
    (void)count_waiting(w, NULL, &sum);
    batcher_stats(w->batcher, &stats);
    w->in_call = true;
    rc = batcher_submit(w->batcher, &a->request, &err);
    w->in_call = false;
    check_answer(w, a, rc, &err, stats.n_waiting + stats.n_flow_queued, sum, is_half);
    TRACE(w, "request %zu by %zu, priority %d, deadline %" PRIu64 ", prompt %zu: %s", a->id, flow,
          a->request.priority, a->request.deadline_us, a->prompt, status_name(rc));
    if (rc != STATUS_OK) {
        w->must.n_refused++;
        free(a);
        return;
    }
    w->must.n_submitted++;
    w->live[w->n_live++] = a;
    a->place = BEHIND;
    if (w->flows[flow].head == &a->request)
        become_head(w, a);
}

/* ---- one schedule ---- */

static uint64_t now_us(void *self)
{
    return ((struct world *)self)->now_us;
}

static void random_bytes(void *self, void *out, size_t n_bytes)
{
    uint64_t bits = draw(self);

    memcpy(out, &bits, n_bytes < sizeof(bits) ? n_bytes : sizeof(bits));
}

/* Draws the part of the config that may change while requests wait and run. */
static void draw_policy(struct world *w, struct batcher_config *out, size_t most_rows)
{
    out->max_rows = draw_within(w, 1, most_rows);
    out->min_rows = draw_percent(w, 50) ? 0 : draw_within(w, 1, out->max_rows);
    out->max_delay_us = draw_within(w, 0, 3000);
    if (out->policy == BATCH_FIXED && draw_percent(w, 50))
        out->max_delay_us = 0;
    out->pads = draw_percent(w, 50);
    out->start_by_chance = draw_percent(w, 50);
    out->rows_multiple = draw_within(w, 0, 4);
}

static void change_policy(struct world *w)
{
    struct batcher_config config = w->config;
    struct error err = {0};
    enum status rc;

    if (w->is_closed)
        return;
    config.policy = (enum batch_policy)draw_within(w, 0, BATCH_FULL);
    draw_policy(w, &config, w->cap_rows + 1);
    TRACE(w, "change to policy %d, rows %zu to %zu, delay %" PRIu64, (int)config.policy,
          config.min_rows, config.max_rows, config.max_delay_us);
    w->in_call = true;
    rc = batcher_configure(w->batcher, &config, &err);
    w->in_call = false;
    MUST(w,
         (rc == STATUS_OK) ==
             (config.max_rows <= w->cap_rows &&
              (config.policy != BATCH_FIXED || config.max_rows <= config.max_waiting)),
         "a change is answered %s", status_name(rc));
    if (rc != STATUS_OK)
        return;
    w->next = config;
    w->is_changing = true;
    w->n_changes++;
}

static void draw_world(struct world *w)
{
    w->config.policy = (enum batch_policy)(w->seed % (BATCH_FULL + 1));
    draw_policy(w, &w->config, MAX_ROWS);
    w->cap_rows = w->config.max_rows;
    w->config.max_waiting = draw_within(w, 1, 30);
    if (w->config.policy == BATCH_FIXED)
        w->config.max_waiting += w->config.max_rows;
    w->config.ageing_us = draw_percent(w, 50) ? 0 : draw_within(w, 1, 500);
    w->is_roomy = draw_percent(w, 40);
    w->pool = 1000000;
    if (!w->is_roomy) {
        w->config.max_cost = draw_percent(w, 30) ? 0 : draw_within(w, 1, 40);
        w->config.max_itl_us = draw_percent(w, 50) ? 0 : draw_within(w, 1, 3000);
        w->pool = draw_within(w, 10, 200);
        if (draw_percent(w, 30))
            w->config.max_waiting_cost = draw_within(w, 20, 300);
    }
    w->n_flows = draw_within(w, draw_percent(w, 80) ? w->config.max_rows : 1, MAX_ASKERS);
    w->n_to_submit = draw_within(w, 5, 80);
    w->mean_gap_us = draw_within(w, 1, draw_percent(w, 60) ? 100 : 1000);
    w->mean_step_us = draw_within(w, 1, 1000);
    w->jitter_us = draw_percent(w, 50) ? 0 : draw_within(w, 1, 500);
    w->percent_deadline = draw_percent(w, 50) ? 0 : 40;
    w->percent_cancel = draw_percent(w, 50) ? 0 : 30;
    w->percent_break = draw_percent(w, 50) ? 0 : 20;
    w->percent_again = draw_percent(w, 50) ? 0 : 50;
    w->now_us = draw_within(w, 1, 10);
    w->arrival_at = w->now_us;
    w->cancel_at = w->percent_cancel > 0 ? w->now_us + draw_within(w, 0, 5000) : never;
    w->change_at = draw_percent(w, 50) ? w->now_us + draw_within(w, 0, 50 * w->mean_gap_us) : never;
    w->close_at = draw_percent(w, 35) ? draw_within(w, 0, 100 * w->mean_gap_us) : never;
    w->tick_at = w->step_at = never;
    w->n_tenants = draw_percent(w, 40) ? draw_within(w, 1, MAX_TENANTS) : 0;
    if (w->is_roomy && w->n_tenants > 0)
        w->change_at = never; /* admitted requests of a heavy tenant may begin after a change */
}

static void open_batcher(struct world *w)
{
    const struct batch_agent agent = {
        .cost = cost,
        .min_chunk = min_chunk,
        .reserve = reserve,
        .release = release,
        .stepped = stepped,
        .self = w,
    };
    const struct batch_compute compute = {.begin = begin_step, .self = w};
    const struct batch_timer timer = {.arm = arm, .self = w};
    struct error err;

    w->env = (struct env){.now_us = now_us, .random = random_bytes, .self = w};
    if (batcher_open(&w->batcher, &w->config, &agent, &compute, &timer, &w->env, &err) != STATUS_OK)
        broken(w, "%s", err.text);
    for (size_t i = 0; i < w->n_tenants; i++)
        tenant_init(&w->tenants[i], (unsigned)draw_within(w, 1, 5));
    for (size_t i = 0; i < w->n_flows; i++) {
        flow_init(&w->flows[i]);
        if (w->n_tenants > 0 && !draw_percent(w, 20))
            w->flows[i].tenant = &w->tenants[draw(w) % w->n_tenants];
    }
}

static void check_stats(struct world *w)
{
    struct batcher_stats s;
    uint64_t n_in_histogram = 0;
    size_t n_running = 0;

    batcher_stats(w->batcher, &s);
    for (size_t i = 0; i < w->n_live; i++)
        n_running += w->live[i]->in_step ||
                     (w->live[i]->place == RUNNING && !w->is_closing && !w->live[i]->is_cancelled);
    for (size_t i = 0; i < sizeof(s.rows_histogram) / sizeof(s.rows_histogram[0]); i++)
        n_in_histogram += s.rows_histogram[i];
    MUST(w, s.n_running == n_running, "%zu run, not %zu", n_running, s.n_running);
    MUST(w, s.n_waiting + s.n_flow_queued + s.n_running == w->n_live, "%zu are there, not %zu",
         w->n_live, s.n_waiting + s.n_flow_queued + s.n_running);
    MUST(w, s.n_submitted == w->must.n_submitted && s.n_refused == w->must.n_refused,
         "asked, refused");
    MUST(w, s.n_done == w->must.n_done && s.n_failed == w->must.n_failed, "done, failed");
    MUST(w, s.n_cancelled == w->must.n_cancelled && s.n_expired == w->must.n_expired,
         "cancelled, expired");
    MUST(w, s.n_preempted == w->must.n_preempted, "preempted");
    MUST(w, s.n_steps == w->must.n_steps && s.n_steps == n_in_histogram, "steps");
    MUST(w, s.n_rows == w->must.n_rows && s.n_cost == w->must.n_cost, "rows, cost");
    MUST(w, s.n_submitted == s.n_done + s.n_failed + s.n_cancelled + s.n_expired + w->n_live,
         "sum");
}

/* Liveness: everything due is done, or the timer is armed for it. */
static void check_liveness(struct world *w)
{
    uint64_t wanted_us = never, oldest_us = never;
    size_t n_waiting = 0;
    bool has_running = false;

    for (size_t i = 0; i < w->n_live; i++) {
        const struct sim_request *a = w->live[i];

        if (a->in_step)
            continue;
        MUST(w, a->n_more_due == 0 || is_over(w, a), "%zu was not told of its last step", a->id);
        if (a->is_cancelled)
            MUST(w, w->now_us - a->cancelled_us <= w->jitter_us, "%zu was cancelled long ago",
                 a->id);
        if (a->place != RUNNING && a->request.deadline_us != 0 &&
            a->request.deadline_us <= w->now_us)
            MUST(w, w->now_us - a->request.deadline_us <= w->jitter_us, "%zu expired long ago",
                 a->id);
        if (is_over(w, a))
            wanted_us = w->now_us;
        has_running |= a->place == RUNNING;
        if (a->place == WAITING && !is_over(w, a)) {
            n_waiting++;
            if (a->since_us < oldest_us)
                oldest_us = a->since_us;
            if (a->is_preempted)
                has_running = true;
        }
    }
    w->n_missing = 0;
    if (w->is_changing && w->step == NULL && !has_running) {
        /* In force from the next tick on. */
        MUST(w, w->tick_at <= w->now_us + w->jitter_us, "a change is not seen to");
        return;
    }
    if (w->is_changing)
        return;
    if (w->config.policy == BATCH_FIXED && w->config.max_delay_us > 0 && n_waiting > 0 &&
        (w->step == NULL || w->is_roomy) && !has_running && n_waiting < min_rows(w))
        MUST(w,
             w->tick_at <= (oldest_us + w->config.max_delay_us > w->now_us
                                ? oldest_us + w->config.max_delay_us
                                : w->now_us) +
                               w->jitter_us,
             "nobody sees to %zu who are too few", n_waiting);
    if (w->step == NULL) {
        if (has_running || (n_waiting > 0 && w->config.policy == BATCH_CONTINUOUS) ||
            (n_waiting > 0 && is_by_length(&w->config)) || n_waiting >= w->config.max_rows)
            wanted_us = w->now_us;
        else if (n_waiting >= min_rows(w) && w->config.policy == BATCH_WINDOW)
            wanted_us = w->now_us;
        else if (n_waiting > 0 &&
                 w->config.policy == BATCH_ADAPTIVE) /* the wait is at most a step's time */
            wanted_us = w->now_us + 2 * w->mean_step_us + w->jitter_us;
        else if (n_waiting > 0 && (w->config.policy == BATCH_WINDOW || w->config.max_delay_us > 0))
            wanted_us = oldest_us + w->config.max_delay_us;
    }
    if (w->step != NULL || wanted_us == never)
        return;
    if (wanted_us < w->now_us)
        wanted_us = w->now_us;
    MUST(w, w->tick_at != never && w->tick_at <= wanted_us + w->jitter_us,
         "the timer sleeps, and %zu wait", n_waiting);
}

/* After the batcher has run, a change is in force unless a batch is under way. */
static void see_change(struct world *w)
{
    bool has_running = w->step != NULL;

    for (size_t i = 0; i < w->n_live; i++)
        has_running |= w->live[i]->place == RUNNING || w->live[i]->is_preempted;
    if (w->is_changing && !has_running)
        apply_change(w);
}

static void arrive(struct world *w)
{
    if (w->n_to_submit == 0 || w->is_closed) {
        w->arrival_at = never;
        return;
    }
    w->n_to_submit--;
    submit_new(w, draw(w) % w->n_flows);
    if (!draw_percent(w, 30))
        w->arrival_at = w->now_us + draw_within(w, 0, 2 * w->mean_gap_us);
}

/* Performs the next event, a random one of several at the same time. False if there is none. */
static bool next_event(struct world *w)
{
    uint64_t *const times[] = {&w->arrival_at, &w->cancel_at, &w->change_at,
                               &w->close_at,   &w->tick_at,   &w->step_at};
    enum { N = sizeof(times) / sizeof(times[0]) };
    size_t from = draw(w) % N;
    size_t best = from;

    for (size_t i = 1; i < N; i++)
        if (*times[(from + i) % N] < *times[best])
            best = (from + i) % N;
    if (*times[best] == never)
        return false;
    w->now_us = *times[best];
    switch (best) {
    case 0:
        arrive(w);
        break;
    case 1:
        w->cancel_at = never;
        if (!w->is_closed && (w->n_to_submit > 0 || w->tick_at != never || w->step_at != never))
            w->cancel_at = w->now_us + draw_within(w, 1, 5000);
        cancel_some(w);
        break;
    case 2:
        w->change_at = never;
        if (!w->is_closed && w->n_to_submit > 0)
            w->change_at = w->now_us + draw_within(w, 1, 50 * w->mean_gap_us);
        change_policy(w);
        break;
    case 3:
        close_all(w);
        break;
    case 4:
        w->tick_at = never;
        batcher_tick(w->batcher);
        see_change(w);
        break;
    default:
        finish_step(w);
        see_change(w);
        break;
    }
    return true;
}

static void check_rest(struct world *w)
{
    size_t n_front = 0;

    for (size_t i = 0; i < w->n_live; i++)
        n_front += w->live[i]->place == WAITING;
    if (w->config.policy == BATCH_FIXED && w->config.max_delay_us == 0)
        MUST(w, n_front < w->config.max_rows, "%zu wait for ever, enough for a step", n_front);
    else
        MUST(w, w->n_live == 0, "%zu wait for ever", w->n_live);
}

static void run_schedule(struct world *w)
{
    size_t n_events = 0;

    draw_world(w);
    open_batcher(w);
    for (;;) {
        MUST(w, ++n_events < 100000, "no end in sight");
        if (!next_event(w)) {
            if (w->is_closing)
                break;
            check_rest(w);
            close_all(w);
        }
        if (!w->is_closed) {
            check_stats(w);
            check_liveness(w);
        }
    }
    MUST(w, w->is_closed, "the batcher never closes");
    MUST(w, w->n_held == 0, "%zu pages are lost", w->n_held);
}

int main(int argc, char **argv)
{
    uint64_t first = 1, n = 10000, n_checks = 0, n_changes = 0;
    struct batcher_stats sum = {0};
    bool has_trace = false;

    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            first = strtoull(argv[i + 1], NULL, 10);
            n = 1;
            has_trace = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--schedules") == 0) {
            n = strtoull(argv[i + 1], NULL, 10);
        } else {
            printf("usage: test_batcher_sim [--seed N] [--schedules N]\n");
            return 2;
        }
    }
    for (uint64_t seed = first; seed < first + n; seed++) {
        struct world *w = xalloc(sizeof(*w));

        w->seed = w->chance = seed;
        w->has_trace = has_trace;
        run_schedule(w);
        n_checks += w->n_checks;
        sum.n_submitted += w->must.n_submitted;
        sum.n_steps += w->must.n_steps;
        sum.n_rows += w->must.n_rows;
        sum.n_done += w->must.n_done;
        sum.n_failed += w->must.n_failed;
        sum.n_cancelled += w->must.n_cancelled;
        sum.n_expired += w->must.n_expired;
        sum.n_refused += w->must.n_refused;
        sum.n_preempted += w->must.n_preempted;
        n_changes += w->n_changes;
        free(w);
    }
    printf("%" PRIu64 " schedules, %" PRIu64 " checks hold: %" PRIu64 " requests (%" PRIu64
           " done, %" PRIu64 " failed, %" PRIu64 " cancelled, %" PRIu64 " expired), %" PRIu64
           " refused, %" PRIu64 " steps of %.1f rows, %" PRIu64 " preempted, %" PRIu64
           " changes of policy\n",
           n, n_checks, sum.n_submitted, sum.n_done, sum.n_failed, sum.n_cancelled, sum.n_expired,
           sum.n_refused, sum.n_steps, (double)sum.n_rows / (double)(sum.n_steps + !sum.n_steps),
           sum.n_preempted, n_changes);
    return EXIT_SUCCESS;
}
