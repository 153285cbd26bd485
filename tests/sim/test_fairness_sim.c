/* One tenant with many waiting requests beside others of modest loads, under a clock turned by
 * hand: each tenant's part of the scheduled tokens follows its weight, and the others get their
 * first tokens almost as soon as without it. On a machine where a step takes longer with each row,
 * the others' whole requests take at most half as long again. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "batching/batcher.h"
#include "batching/tenant.h"

enum { N_TENANTS = 10, MAX_CLIENTS = 1200, MAX_TIMES = 100000, N_SEEDS = 5, MAX_ROWS = 64 };

static const uint64_t never = UINT64_MAX;
static const uint64_t settled_us = 2000000; /* what is counted begins then */

struct load {
    const char *name;
    unsigned weights[N_TENANTS];
    size_t n_clients[N_TENANTS];
    uint64_t think_us; /* of the nine, between a reply and the next request, at most */
    uint64_t length_us;
    double most_error;      /* of a tenant's part, relative to its weight's; 0: not backlogged */
    double most_ttft;       /* p99 beside the tenth tenant, in those without it; 0: not compared */
    double most_ttft_steps; /* p99, in steps */
    double most_p50,
        most_p99; /* of the others' whole requests, in those without it; 0: not compared */
    uint64_t step_us, row_us,
        token_us; /* of a step's time: fixed, of a row, of each further token */
};

struct world;

struct client {
    struct batch_request request;
    struct row row;
    struct flow flow;
    struct world *world;
    size_t tenant, prompt, computed, produced, n_tokens;
    uint64_t submitted_us, next_us, submitted_step;
    uint64_t chance; /* its requests are the same whoever else is there */
};

struct world {
    const struct load *load;
    uint64_t chance, now_us, tick_us, done_us, end_us, n_steps;
    struct batcher *b;
    struct batch_step *step;
    struct tenant tenants[N_TENANTS];
    uint64_t n_scheduled[N_TENANTS];
    struct client clients[MAX_CLIENTS];
    size_t n_clients, n_times;
    uint64_t ttft_us[MAX_TIMES], ttft_steps[MAX_TIMES]; /* of the others */
    uint64_t run_us[MAX_TIMES];                         /* of their whole requests */
    size_t n_runs;
    bool is_closed;
};

/* splitmix64 */
static uint64_t draw_from(uint64_t *chance)
{
    uint64_t z = *chance += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t draw(struct world *w)
{
    return draw_from(&w->chance);
}

static struct client *client_of(const struct row *row)
{
    return container_of(row, struct client, row);
}

static size_t cost(void *self, const struct row *row)
{
    const struct client *c = client_of(row);

    return c->prompt + c->produced - c->computed;
}

static size_t min_chunk(void *self, const struct row *row)
{
    size_t n = cost(self, row);

    return n < 16 ? n : 16;
}

static void begin_step(void *self, struct batch_step *step)
{
    struct world *w = self;
    const struct load *l = w->load;
    uint64_t us = l->step_us;

    for (size_t i = 0; i < step->n_rows; i++)
        us += l->row_us + (step->rows[i]->n_scheduled - 1) * l->token_us;
    w->step = step;
    w->done_us = w->now_us + us;
    w->n_steps++;
}

static void client_got_first(struct world *w, const struct client *c)
{
    if (c->tenant == 0 || w->n_times == MAX_TIMES)
        return;
    w->ttft_us[w->n_times] = w->now_us - c->submitted_us;
    w->ttft_steps[w->n_times++] = w->n_steps - c->submitted_step;
}

static void end_step(struct world *w)
{
    struct batch_step *step = w->step;

    for (size_t i = 0; i < step->n_rows; i++) {
        struct client *c = client_of(step->rows[i]);

        w->n_scheduled[c->tenant] += c->row.n_scheduled;
        c->computed += c->row.n_scheduled;
        c->row.outcome = ROW_MORE;
        if (c->computed < c->prompt + c->produced)
            continue;
        if (c->produced++ == 0)
            client_got_first(w, c);
        if (c->produced == c->n_tokens)
            c->row.outcome = ROW_DONE;
    }
    w->step = NULL;
    w->done_us = never;
    step->done(step);
}

static void on_settled(struct future *f, const struct error *err, void *arg)
{
    struct client *c = arg;
    struct world *w = c->world;

    if (err->status != STATUS_OK && err->status != STATUS_UNAVAILABLE)
        abort();
    if (c->tenant != 0 && w->n_runs < MAX_TIMES && c->submitted_us >= settled_us)
        w->run_us[w->n_runs++] = w->now_us - c->submitted_us;
    c->next_us = w->now_us + 1;
    if (c->tenant != 0 && w->load->think_us > 0)
        c->next_us += draw_from(&c->chance) % w->load->think_us;
}

static void client_submit(struct world *w, struct client *c)
{
    struct error err;

    c->next_us = never;
    c->row = (struct row){0};
    c->request = (struct batch_request){.row = &c->row, .flow = &c->flow};
    c->prompt = 20 + (size_t)(draw_from(&c->chance) % 100);
    c->n_tokens = c->tenant == 0 ? 400 : 10 + (size_t)(draw_from(&c->chance) % 90);
    c->computed = c->produced = 0;
    c->submitted_us = w->now_us;
    c->submitted_step = w->n_steps;
    future_init(&c->request.reply, on_settled, c);
    if (batcher_submit(w->b, &c->request, &err) != STATUS_OK)
        abort();
}

static uint64_t now_us(void *self)
{
    return ((struct world *)self)->now_us;
}

static void random_bytes(void *self, void *out, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        ((unsigned char *)out)[i] = (unsigned char)draw(self);
}

static void arm(void *self, uint64_t at_us)
{
    ((struct world *)self)->tick_us = at_us == 0 ? never : at_us;
}

static void on_closed(void *arg)
{
    ((struct world *)arg)->is_closed = true;
}

/* The next event: a client submits, the timer fires, a step ends. */
static void turn_clock(struct world *w)
{
    struct client *first = NULL;
    uint64_t at_us = w->tick_us < w->done_us ? w->tick_us : w->done_us;

    for (size_t i = 0; i < w->n_clients && w->now_us < w->end_us; i++)
        if (w->clients[i].next_us < at_us) {
            first = &w->clients[i];
            at_us = first->next_us;
        }
    if (at_us == never)
        abort();
    if (at_us > w->now_us)
        w->now_us = at_us;
    if (first != NULL) {
        client_submit(w, first);
    } else if (w->tick_us <= w->done_us) {
        w->tick_us = never;
        batcher_tick(w->b);
    } else {
        end_step(w);
    }
}

static void world_init(struct world *w, const struct load *l, uint64_t seed, size_t first,
                       size_t end)
{
    struct env env = {.now_us = now_us, .random = random_bytes, .self = w};
    struct batcher_config config = {.policy = BATCH_CONTINUOUS,
                                    .max_rows = MAX_ROWS,
                                    .max_cost = 512,
                                    .max_itl_us = l->most_p50 > 0 ? 200000 : 0,
                                    .max_waiting = 2 * MAX_CLIENTS};
    struct batch_agent agent = {.cost = cost, .min_chunk = min_chunk, .self = w};
    struct batch_compute compute = {.begin = begin_step, .self = w};
    struct batch_timer timer = {.arm = arm, .self = w};
    struct error err;

    w->load = l;
    w->chance = seed;
    w->now_us = 1;
    w->tick_us = w->done_us = never;
    w->end_us = l->length_us;
    if (batcher_open(&w->b, &config, &agent, &compute, &timer, &env, &err) != STATUS_OK)
        abort();
    for (size_t t = first; t < end; t++) {
        tenant_init(&w->tenants[t], l->weights[t]);
        for (size_t i = 0; i < l->n_clients[t]; i++) {
            struct client *c = &w->clients[w->n_clients++];

            *c = (struct client){.world = w, .tenant = t, .chance = seed << 32 | t << 16 | i};
            flow_init(&c->flow);
            c->flow.tenant = &w->tenants[t];
            c->next_us = t == 0 ? 2 : 1000000 + draw(w) % (l->think_us + 1);
        }
    }
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static double quantile(uint64_t *values, size_t n, size_t percent)
{
    qsort(values, n, sizeof(*values), compare_u64);
    return n == 0 ? 0 : (double)values[n * percent / 100];
}

/* The largest relative distance of a tenant's part from its weight's. */
static double worst_error(const struct world *w)
{
    double worst = 0, weights = 0, tokens = 0;

    for (size_t t = 0; t < N_TENANTS; t++) {
        weights += w->load->weights[t];
        tokens += (double)w->n_scheduled[t];
    }
    for (size_t t = 0; t < N_TENANTS; t++) {
        double part = (double)w->n_scheduled[t] / tokens / (w->load->weights[t] / weights) - 1;

        part = part < 0 ? -part : part;
        worst = part > worst ? part : worst;
    }
    return worst;
}

struct result {
    double error, ttft_us, ttft_steps;
    double run_p50_us, run_p99_us;
    double tokens; /* of the tenant with many requests */
};

/* With the tenants from first to end. */
static struct result run(const struct load *l, uint64_t seed, size_t first, size_t end)
{
    struct world *w = xalloc(sizeof(*w));
    struct result r;

    world_init(w, l, seed, first, end);
    while (w->now_us < settled_us)
        turn_clock(w);
    for (size_t t = 0; t < N_TENANTS; t++)
        w->n_scheduled[t] = 0;
    while (w->now_us < w->end_us)
        turn_clock(w);
    r.error = end - first == N_TENANTS ? worst_error(w) : 0;
    r.ttft_us = quantile(w->ttft_us, w->n_times, 99);
    r.ttft_steps = quantile(w->ttft_steps, w->n_times, 99);
    r.run_p50_us = quantile(w->run_us, w->n_runs, 50);
    r.run_p99_us = quantile(w->run_us, w->n_runs, 99);
    r.tokens = (double)w->n_scheduled[0];
    batcher_close(w->b, on_closed, w);
    while (!w->is_closed)
        turn_clock(w);
    free(w);
    return r;
}

/* A machine whose step takes 12 times as long with 64 rows as with one. */
#define SLOW .step_us = 10000, .row_us = 2000, .token_us = 400
#define FAST .step_us = 3000, .row_us = 100, .token_us = 100

int main(void)
{
    static const struct load loads[] = {
        {.name = "all backlogged, equal weights",
         .weights = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
         .n_clients = {1000, 12, 12, 12, 12, 12, 12, 12, 12, 12},
         .length_us = 120000000,
         .most_error = 0.05,
         .most_ttft = 1.5,
         FAST},
        {.name = "all backlogged, weights 1 to 4",
         .weights = {4, 1, 1, 1, 2, 2, 2, 3, 3, 4},
         .n_clients = {1000, 20, 20, 20, 20, 20, 20, 20, 20, 20},
         .length_us = 120000000,
         .most_error = 0.05,
         FAST},
        {.name = "nine that come and go",
         .weights = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
         .n_clients = {1000, 1, 1, 1, 1, 1, 1, 1, 1, 1},
         .think_us = 2000000,
         .length_us = 120000000,
         .most_ttft_steps = 4,
         FAST},
        {.name = "one client, without a pause",
         .weights = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
         .n_clients = {300, 1},
         .length_us = 100000000,
         .most_p50 = 1.5,
         .most_p99 = 1.5,
         SLOW},
        {.name = "one client that pauses",
         .weights = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
         .n_clients = {300, 1},
         .think_us = 1000000,
         .length_us = 100000000,
         .most_p50 = 1.5,
         .most_p99 = 1.5,
         SLOW},
        {.name = "three tenants, two clients each",
         .weights = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
         .n_clients = {300, 2, 2, 2},
         .think_us = 100000,
         .length_us = 100000000,
         .most_p50 = 1.5,
         .most_p99 = 1.5,
         SLOW},
    };
    int n_bad = 0;

    for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
        const struct load *l = &loads[i];

        for (uint64_t seed = 1; seed <= (l->most_p50 > 0 ? 2 : N_SEEDS); seed++) {
            struct result alone = run(l, seed, 1, N_TENANTS), beside = run(l, seed, 0, N_TENANTS);
            double ratio = beside.ttft_us / alone.ttft_us;
            double p50 = beside.run_p50_us / alone.run_p50_us;
            double p99 = beside.run_p99_us / alone.run_p99_us;
            bool is_bad = (l->most_error > 0 && beside.error > l->most_error) ||
                          (l->most_ttft > 0 && ratio > l->most_ttft) ||
                          (l->most_ttft_steps > 0 && beside.ttft_steps > l->most_ttft_steps) ||
                          (l->most_p50 > 0 && p50 > l->most_p50) ||
                          (l->most_p99 > 0 && p99 > l->most_p99);

            if (l->most_p50 > 0) {
                struct result many = run(l, seed, 0, 1);

                printf("%-32s requests p50 %6.0f ms beside, %6.0f alone (%.2f); p99 %6.0f, %6.0f "
                       "(%.2f); the many get %.2f of what they get alone%s\n",
                       l->name, beside.run_p50_us / 1e3, alone.run_p50_us / 1e3, p50,
                       beside.run_p99_us / 1e3, alone.run_p99_us / 1e3, p99,
                       beside.tokens / many.tokens, is_bad ? "  <- too much" : "");
            } else {
                printf("%-32s part off by at most %4.1f %%; TTFT p99 %6.1f ms beside, %6.1f alone "
                       "(%.2f); %3.0f steps beside, %3.0f alone%s\n",
                       l->name, 100 * beside.error, beside.ttft_us / 1e3, alone.ttft_us / 1e3,
                       ratio, beside.ttft_steps, alone.ttft_steps, is_bad ? "  <- too much" : "");
            }
            n_bad += is_bad;
        }
    }
    return n_bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
