/* Compares clients that obey a full queue's retry hint with clients that retry at a fixed gap: the
 * real batcher, a manual clock, step times that grow with rows. Obeying clients finish nearly as
 * soon and submit less often. The seeds are fixed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "batching/batcher.h"

enum {
    MAX_CLIENTS = 400,
    N_SEEDS = 20,
    SPREAD_US = 20000 /* the first submissions are spread over this */
};

static const uint64_t never = UINT64_MAX;
static const double most_ratio = 1.3; /* of the obeying clients' time to the others' */

struct load {
    const char *name;
    size_t n_clients, max_rows, max_waiting, least_tokens, most_tokens;
    uint64_t step_us, row_us; /* a step, and each row in it */
    uint64_t gap_us;          /* after which a client that ignores the hint retries */
    size_t n_before;          /* requests, one after the other, before all clients */
};

struct client {
    struct batch_request request;
    struct row row;
    struct flow flow;
    struct world *world;
    size_t n_tokens;
    uint64_t next_us; /* when it submits; never: it was accepted */
};

struct world {
    const struct load *load;
    uint64_t chance, now_us, tick_us, step_done_us;
    struct batcher *b;
    struct batch_step *step;
    struct client clients[MAX_CLIENTS];
    size_t n_attempts, n_done;
    bool is_obeying, is_closed;
};

/* splitmix64 */
static uint64_t draw(struct world *w)
{
    uint64_t z = w->chance += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t now_us(void *self)
{
    return ((struct world *)self)->now_us;
}

static void random_bytes(void *self, void *out, size_t n_bytes)
{
    uint64_t bits = draw(self);

    memcpy(out, &bits, n_bytes < sizeof(bits) ? n_bytes : sizeof(bits));
}

static void arm(void *self, uint64_t at_us)
{
    ((struct world *)self)->tick_us = at_us == 0 ? never : at_us;
}

static size_t cost(void *self, const struct row *row)
{
    return 1;
}

static void begin_step(void *self, struct batch_step *step)
{
    struct world *w = self;

    for (size_t i = 0; i < step->n_rows; i++) {
        struct client *c = container_of(step->rows[i], struct client, row);

        step->rows[i]->outcome = --c->n_tokens == 0 ? ROW_DONE : ROW_MORE;
    }
    w->step = step;
    w->step_done_us = w->now_us + w->load->step_us + step->n_rows * w->load->row_us;
}

static void on_settled(struct future *f, const struct error *err, void *arg)
{
    struct client *c = arg;

    if (err->status != STATUS_OK)
        abort();
    c->world->n_done++;
}

static void on_closed(void *arg)
{
    ((struct world *)arg)->is_closed = true;
}

static void client_submits(struct world *w, struct client *c)
{
    struct error err = {0};

    c->next_us = never;
    w->n_attempts++;
    if (batcher_submit(w->b, &c->request, &err) == STATUS_OK)
        return;
    c->next_us =
        w->now_us + (w->is_obeying ? (uint64_t)err.retry_after_ms * 1000 : w->load->gap_us);
}

/* Advances the clock to the next event; other events at the same time come next. */
static void turn_clock(struct world *w, size_t n_clients)
{
    struct client *first = NULL;
    uint64_t at_us = w->tick_us < w->step_done_us ? w->tick_us : w->step_done_us;
    struct batch_step *step = w->step;

    for (size_t i = 0; i < n_clients; i++)
        if (w->clients[i].next_us < at_us) {
            first = &w->clients[i];
            at_us = first->next_us;
        }
    if (at_us == never) {
        (void)fprintf(stderr, "%s: nothing is to happen any more\n", w->load->name);
        exit(EXIT_FAILURE);
    }
    w->now_us = at_us > w->now_us ? at_us : w->now_us;
    if (first != NULL) {
        client_submits(w, first);
    } else if (w->tick_us <= w->step_done_us) {
        w->tick_us = never;
        batcher_tick(w->b);
    } else {
        w->step_done_us = never;
        w->step = NULL;
        step->done(step);
    }
}

static void client_init(struct world *w, struct client *c, uint64_t at_us)
{
    const struct load *l = w->load;

    *c = (struct client){.world = w, .next_us = at_us};
    c->n_tokens = l->least_tokens + (size_t)(draw(w) % (l->most_tokens - l->least_tokens + 1));
    flow_init(&c->flow);
    c->request.row = &c->row;
    c->request.flow = &c->flow;
    future_init(&c->request.reply, on_settled, c);
}

/* Returns how long all clients take together; *n_attempts: how often they submitted. */
static uint64_t run(const struct load *l, uint64_t seed, bool is_obeying, size_t *n_attempts)
{
    struct world *w = xalloc(sizeof(*w));
    struct env env = {.now_us = now_us, .random = random_bytes, .self = w};
    struct batcher_config config = {
        .policy = BATCH_CONTINUOUS, .max_rows = l->max_rows, .max_waiting = l->max_waiting};
    struct batch_agent agent = {.cost = cost, .self = w};
    struct batch_compute compute = {.begin = begin_step, .self = w};
    struct batch_timer timer = {.arm = arm, .self = w};
    struct error err;
    uint64_t us, begun_us;

    *w = (struct world){.load = l,
                        .chance = seed,
                        .now_us = 1,
                        .tick_us = never,
                        .step_done_us = never,
                        .is_obeying = is_obeying};
    if (batcher_open(&w->b, &config, &agent, &compute, &timer, &env, &err) != STATUS_OK)
        abort();
    for (size_t i = 0; i < l->n_before; i++) {
        client_init(w, &w->clients[0], w->now_us);
        while (w->n_done == i)
            turn_clock(w, 1);
    }
    w->n_done = w->n_attempts = 0;
    begun_us = w->now_us;
    for (size_t i = 0; i < l->n_clients; i++)
        client_init(w, &w->clients[i], w->now_us + draw(w) % SPREAD_US);
    while (w->n_done < l->n_clients)
        turn_clock(w, l->n_clients);
    us = w->now_us - begun_us;
    *n_attempts = w->n_attempts;
    batcher_close(w->b, on_closed, w);
    while (!w->is_closed)
        turn_clock(w, 0);
    free(w);
    return us;
}

int main(void)
{
    static const struct load loads[] = {
        /* Times of a small model on two cores. */
        {"replies of one length", 200, 64, 32, 32, 32, 3000, 500, 50000, 0},
        {"replies of many lengths", 200, 64, 32, 4, 60, 3000, 500, 50000, 0},
        {"after a reply alone", 200, 64, 32, 32, 32, 3000, 500, 50000, 1},
        {"a short queue", 200, 64, 8, 4, 60, 3000, 500, 50000, 0},
        {"a long queue", 400, 64, 256, 4, 60, 3000, 500, 50000, 0},
        {"few rows", 60, 4, 16, 16, 32, 3000, 500, 50000, 0},
        {"long replies", 200, 64, 32, 100, 900, 3000, 500, 50000, 0},
        {"one step each", 400, 16, 64, 1, 1, 2000, 100, 5000, 1},
    };
    int n_bad = 0;

    for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
        const struct load *l = &loads[i];
        double obey_us = 0, ignore_us = 0, worst = 0;
        size_t n_obey = 0, n_ignore = 0, n;

        for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
            double a = (double)run(l, seed, true, &n), b;

            n_obey += n;
            b = (double)run(l, seed, false, &n);
            n_ignore += n;
            obey_us += a;
            ignore_us += b;
            worst = a / b > worst ? a / b : worst;
        }
        printf("%-24s %6.2f s, %5.1f attempts each who obeys; %6.2f s, %5.1f who does not; "
               "worst of %d %.2f\n",
               l->name, obey_us / N_SEEDS / 1e6, (double)n_obey / N_SEEDS / (double)l->n_clients,
               ignore_us / N_SEEDS / 1e6, (double)n_ignore / N_SEEDS / (double)l->n_clients,
               N_SEEDS, worst);
        if (worst > most_ratio || n_obey >= n_ignore) {
            printf("  that is too long, or too often\n");
            n_bad++;
        }
    }
    return n_bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
