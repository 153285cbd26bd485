/* A step of many sequences in lanes: each of the backend's threads takes some of them through all
 * layers. Nobody waits for anybody until the end, where together they would meet after every
 * operator; in return each lane reads the weights for itself, so it takes many tokens to pay. No
 * row depends on its neighbours, so the bits are the same.
 *
 * A lane is a llama of its own, on a backend of one thread, with the weights and pages of its
 * model. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "compute/llama_state.h"

enum {
    LANE_TOKENS = 16,    /* fewer do not repay the reading of the weights */
    LEVEL = 16,          /* lanes are, when none has more than this part above the mean */
    APART = 4,           /* they were not, when this part of the longest lies between them: */
    STEPS_TOGETHER = 32, /* somebody else uses a processor, and stays for a while */
    PRODUCTS = 18,       /* of a weight cost what a number of a key and its value does */
};

/* In positions that a token attends to. */
static size_t cost_of(const struct llama *m, const struct llama_row *row)
{
    const struct llama_shape *s = &m->shape;
    size_t q_width = s->n_heads * s->head_dim, kv_width = s->n_kv_heads * s->head_dim;
    size_t weights = s->width * (2 * q_width + 2 * kv_width + 3 * s->ffn_width); /* of a layer */

    return row->n_tokens * (1 + weights / (PRODUCTS * q_width) + row->pos + row->n_tokens / 2);
}

static struct lane *lightest(const struct llama *m)
{
    struct lane *best = m->lanes;

    for (struct lane *lane = m->lanes + 1; lane < m->lanes + m->n_lanes; lane++)
        if (lane->cost < best->cost)
            best = lane;
    return best;
}

/* Rows of one token go last, for they level out what the others left. */
static void deal(struct llama *m, const struct llama_row *rows, size_t n_rows, bool single)
{
    for (size_t i = 0; i < n_rows; i++) {
        struct lane *lane = lightest(m);

        if ((rows[i].n_tokens == 1) != single)
            continue;
        lane->rows[lane->n_rows++] = rows[i];
        lane->cost += cost_of(m, &rows[i]);
    }
}

bool lanes_deal(struct llama *m, const struct llama_row *rows, size_t n_rows)
{
    size_t most = 0, all = 0, n_tokens = 0;

    if (m->n_lanes == 0)
        return false;
    if (m->n_together > 0) {
        m->n_together--;
        return false;
    }
    for (size_t i = 0; i < n_rows; i++)
        n_tokens += rows[i].n_tokens;
    if (n_tokens < LANE_TOKENS * m->n_lanes || n_rows < m->n_lanes) /* no lane without a row */
        return false;
    for (struct lane *lane = m->lanes; lane < m->lanes + m->n_lanes; lane++)
        lane->n_rows = lane->cost = 0;
    deal(m, rows, n_rows, false);
    deal(m, rows, n_rows, true);
    for (const struct lane *lane = m->lanes; lane < m->lanes + m->n_lanes; lane++) {
        most = lane->cost > most ? lane->cost : most;
        all += lane->cost;
    }
    return (most - most / LEVEL) * m->n_lanes <= all;
}

static void run_lane(void *arg, size_t i)
{
    struct lane *lane = &((struct lane *)arg)[i];

    lane->status = llama_forward(lane->model, lane->rows, lane->n_rows, NULL, 0, &lane->err);
    lane->finished_ns = clock_ns();
}

enum status lanes_forward(struct llama *m, struct error *err)
{
    uint64_t begun_ns = clock_ns(), shortest = UINT64_MAX, longest = 0;

    m->backend->type->each(m->backend, m->n_lanes, run_lane, m->lanes);
    for (const struct lane *lane = m->lanes; lane < m->lanes + m->n_lanes; lane++) {
        uint64_t took = lane->finished_ns - begun_ns;

        if (lane->status != STATUS_OK) {
            *err = lane->err;
            return lane->status;
        }
        shortest = took < shortest ? took : shortest;
        longest = took > longest ? took : longest;
    }
    if (longest - shortest > longest / APART)
        m->n_together = STEPS_TOGETHER;
    return STATUS_OK;
}

static void close_lane(struct lane *lane)
{
    llama_close(lane->model);
    backend_close(lane->backend);
    free(lane->rows);
}

static enum status open_lane(struct lane *lane, struct llama *m, struct error *err)
{
    const struct backend_config one_thread = {.n_threads = 1};
    size_t n = m->config.max_tokens; /* at least one a row */
    enum status rc;

    lane->rows = try_alloc(n, sizeof *lane->rows);
    if (lane->rows == NULL)
        return error_no_memory(err, n * sizeof *lane->rows, "a lane's rows");
    rc = backend_open(&lane->backend, m->backend->type->name, &one_thread, err);
    return rc == STATUS_OK ? llama_open_lane(&lane->model, m, lane->backend, err) : rc;
}

enum status lanes_open(struct llama *m, struct error *err)
{
    const struct backend_type *type = m->backend->type;
    size_t n = type->each != NULL ? type->n_threads(m->backend) : 1;
    enum status rc = STATUS_OK;

    if (n == 1)
        return STATUS_OK;
    m->lanes = try_alloc(n, sizeof *m->lanes);
    if (m->lanes == NULL)
        return error_no_memory(err, n * sizeof *m->lanes, "lanes");
    for (; rc == STATUS_OK && m->n_lanes < n; m->n_lanes += rc == STATUS_OK) {
        struct lane *lane = &m->lanes[m->n_lanes];

        rc = open_lane(lane, m, err);
        if (rc != STATUS_OK)
            close_lane(lane);
    }
    return rc;
}

void lanes_close(struct llama *m)
{
    for (size_t i = 0; i < m->n_lanes; i++)
        close_lane(&m->lanes[i]);
    free(m->lanes);
    m->lanes = NULL;
    m->n_lanes = 0;
}
