/* The operators of small networks: gradients of `ref` against finite differences, `cpu` in every
 * instruction set and number of threads against `ref` bit for bit, and rows that do not depend on
 * their batch. */
#include "compute/backend/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/backends.h"
#include "compute/numerics/net_rows.h"
#include "tests/unit/base/suite.h"

static uint32_t state;

static float next_float(void) /* in -1 … 1 */
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static struct backend *open_named(const char *name, const char *set, size_t n_threads)
{
    const struct backend_config config = {.n_threads = n_threads};
    struct backend *b = NULL;
    struct error err;
    enum status rc;

    ck_assert_int_eq(setenv("PARLEY_CPU", set, 1), 0);
    rc = backend_open(&b, name, &config, &err);
    ck_assert_int_eq(unsetenv("PARLEY_CPU"), 0);
    ck_assert(rc == STATUS_OK || rc == STATUS_PRECONDITION);
    return b; /* NULL: this machine does not have the set */
}

/* A buffer with its numbers on the host. */
struct array {
    struct backend *b;
    struct buffer *at;
    size_t n;
    float *x;
};

static void send(struct array *a)
{
    a->b->type->upload(a->b, a->at, a->x, a->n * sizeof(*a->x));
}

static void receive(struct array *a)
{
    struct error err;

    a->b->type->download(a->b, a->x, a->at, a->n * sizeof(*a->x));
    ck_assert_int_eq(a->b->type->sync(a->b, &err), STATUS_OK);
}

static struct array array_of(struct backend *b, size_t n)
{
    struct array a = {b, b->type->buffer_open(b, n * sizeof(float)), n, calloc(n, sizeof(float))};

    ck_assert(a.at != NULL && a.x != NULL);
    for (size_t i = 0; i < n; i++)
        a.x[i] = next_float();
    send(&a);
    return a;
}

static void array_free(struct array *arrays, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        arrays[i].b->type->buffer_close(arrays[i].b, arrays[i].at);
        free(arrays[i].x);
    }
}

/* Sum over a's numbers of weight * number, in double. */
static double weighed(struct array *a, const struct array *weights)
{
    double sum = 0.0;

    receive(a);
    for (size_t i = 0; i < a->n; i++)
        sum += (double)weights->x[i] * (double)a->x[i];
    return sum;
}

/* Checks gradient against differences of loss when a number of x changes a little either way. */
static void check_gradient(double (*loss)(void *self), void *self, struct array *x,
                           struct array *gradient)
{
    const float little = 1e-2f;
    double greatest = 0.0;

    receive(gradient);
    for (size_t i = 0; i < x->n; i++)
        greatest = fmax(greatest, fabs((double)gradient->x[i]));
    ck_assert_double_gt(greatest, 0.0);
    for (size_t i = 0; i < x->n; i++) {
        float was = x->x[i];
        double more, less, known;

        x->x[i] = was + little;
        send(x);
        more = loss(self);
        known = (double)x->x[i];
        x->x[i] = was - little;
        send(x);
        less = loss(self);
        known -= (double)x->x[i];
        x->x[i] = was;
        send(x);
        ck_assert_double_eq_tol((double)gradient->x[i], (more - less) / known, 1e-3 * greatest);
    }
}

enum { N = 3, N_IN = 21, N_OUT = 5 };
enum { IN, WEIGHT, BIAS, OUT, DOUT, DIN, DWEIGHT, DBIAS, N_LAYER };

static double layer_loss(void *self)
{
    struct array *a = self;
    struct backend *b = a[IN].b;

    b->type->net->linear(b, a[IN].at, a[WEIGHT].at, a[BIAS].at, N, N_IN, N_OUT, a[OUT].at);
    return weighed(&a[OUT], &a[DOUT]);
}

/* All three gradients of a layer. */
START_TEST(layer_gradients)
{
    struct backend *b = open_named("ref", "", 1);
    const struct net_ops *net = b->type->net;
    struct array a[N_LAYER] = {array_of(b, N * N_IN),     array_of(b, N_OUT * N_IN),
                               array_of(b, N_OUT),        array_of(b, N * N_OUT),
                               array_of(b, N * N_OUT),    array_of(b, N * N_IN),
                               array_of(b, N_OUT * N_IN), array_of(b, N_OUT)};

    net->zero(b, a[DWEIGHT].at, N_OUT, N_IN);
    net->zero(b, a[DBIAS].at, 1, N_OUT);
    net->linear_backward(b, a[IN].at, a[WEIGHT].at, a[DOUT].at, N, N_IN, N_OUT, a[DIN].at,
                         a[DWEIGHT].at, a[DBIAS].at);
    check_gradient(layer_loss, a, &a[IN], &a[DIN]);
    check_gradient(layer_loss, a, &a[WEIGHT], &a[DWEIGHT]);
    check_gradient(layer_loss, a, &a[BIAS], &a[DBIAS]);
    array_free(a, N_LAYER);
    backend_close(b);
}
END_TEST

enum { LOGITS, LOGP, DLOGITS, N_CHOICE };
static const int32_t chosen[N] = {0, N_OUT - 1, 2};
static const float chosen_weights[N] = {1.0f, -2.0f, 0.5f};
static const float entropy_weight = 0.7f;

static double choice_loss(void *self)
{
    struct array *a = self;
    struct backend *b = a[LOGITS].b;
    double sum = 0.0;

    b->type->net->log_softmax(b, a[LOGITS].at, N, N_OUT, a[LOGP].at);
    receive(&a[LOGP]);
    for (size_t i = 0; i < N; i++) {
        const float *logp = a[LOGP].x + i * N_OUT;

        sum += (double)chosen_weights[i] * (double)logp[chosen[i]];
        for (size_t k = 0; k < N_OUT; k++)
            sum += (double)entropy_weight * exp((double)logp[k]) * (double)logp[k];
    }
    return sum;
}

/* Of the chosen actions' log-probabilities and of the entropy. */
START_TEST(log_prob_gradient)
{
    struct backend *b = open_named("ref", "", 1);
    const struct net_ops *net = b->type->net;
    struct array a[N_CHOICE] = {array_of(b, N * N_OUT), array_of(b, N * N_OUT),
                                array_of(b, N * N_OUT)};

    net->log_softmax(b, a[LOGITS].at, N, N_OUT, a[LOGP].at);
    net->log_prob_backward(b, a[LOGP].at, chosen, chosen_weights, entropy_weight, N, N_OUT,
                           a[DLOGITS].at);
    check_gradient(choice_loss, a, &a[LOGITS], &a[DLOGITS]);
    array_free(a, N_CHOICE);
    backend_close(b);
}
END_TEST

enum { WIDTH = 7 };
enum { PRE, FROM_H, GATES, C_IN, C_OUT, H_OUT, DH, DC_OUT, DC, DGATES, N_CELL };

static void run_cell(struct array *a)
{
    struct backend *b = a[PRE].b;

    receive(&a[PRE]);
    b->type->upload(b, a[GATES].at, a[PRE].x, a[PRE].n * sizeof(float));
    b->type->net->lstm(b, a[GATES].at, a[FROM_H].at, a[C_IN].at, N, WIDTH, a[C_OUT].at,
                       a[H_OUT].at);
}

static double cell_loss(void *self)
{
    struct array *a = self;

    run_cell(a);
    return weighed(&a[H_OUT], &a[DH]) + weighed(&a[C_OUT], &a[DC_OUT]);
}

/* By the gates' sums and by the state before. */
START_TEST(cell_gradients)
{
    struct backend *b = open_named("ref", "", 1);
    struct array a[N_CELL];

    for (size_t i = 0; i < N_CELL; i++)
        a[i] = array_of(b, i == PRE || i == FROM_H || i == GATES || i == DGATES ? N * 4 * WIDTH
                                                                                : N * WIDTH);
    run_cell(a);
    memcpy(a[DC].x, a[DC_OUT].x, a[DC].n * sizeof(float));
    send(&a[DC]);
    b->type->net->lstm_backward(b, a[GATES].at, a[C_IN].at, a[C_OUT].at, a[DH].at, N, WIDTH,
                                a[DC].at, a[DGATES].at);
    check_gradient(cell_loss, a, &a[PRE], &a[DGATES]);
    check_gradient(cell_loss, a, &a[FROM_H], &a[DGATES]);
    check_gradient(cell_loss, a, &a[C_IN], &a[DC]);
    array_free(a, N_CELL);
    backend_close(b);
}
END_TEST

/* Logarithms are within two units in the last place, tanh within 1e-7, absolute. */
START_TEST(scalars_are_near)
{
    for (float x = 1e-6f; x < 1e6f; x *= 1.0007f) {
        double known = log((double)x);

        ck_assert_double_le(fabs((double)scalar_log(x) - known), 2.4e-7 * fmax(fabs(known), 0.1));
    }
    ck_assert(scalar_log(1.0f) == 0.0f);
    for (float x = -20.0f; x < 20.0f; x += 1e-3f)
        ck_assert_double_le(fabs((double)scalar_tanh(x) - tanh((double)x)), 2e-7);
}
END_TEST

/* A share 1 - rate of the numbers is kept, scaled; equal draws drop the same, other draws drop
 * others, and a row that does not drop is unchanged. */
START_TEST(dropout_is_drawn_by_its_key)
{
    enum { WIDE = 4001, DRAWS = 5 };
    static const struct net_draw draws[DRAWS] = {
        {9, 4, 1, true}, {9, 4, 1, true}, {9, 5, 1, true}, {8, 4, 1, true}, {9, 4, 1, false}};
    struct backend *b = open_named("ref", "", 1);
    struct array x = array_of(b, DRAWS * WIDE);
    size_t n_kept = 0, n_unlike[DRAWS] = {0};

    for (size_t i = 0; i < x.n; i++)
        x.x[i] = 2.0f;
    send(&x);
    b->type->net->dropout(b, draws, 0, 0.6f, DRAWS, WIDE, x.at);
    receive(&x);
    for (size_t k = 0; k < WIDE; k++) {
        ck_assert(x.x[k] == 0.0f || fabsf(x.x[k] - 5.0f) < 1e-5f);
        n_kept += x.x[k] != 0.0f;
        for (size_t i = 1; i < DRAWS; i++)
            n_unlike[i] += x.x[i * WIDE + k] != x.x[k];
        ck_assert(x.x[4 * WIDE + k] == 2.0f);
    }
    ck_assert(n_kept > WIDE * 36 / 100 && n_kept < WIDE * 44 / 100);
    ck_assert(n_unlike[1] == 0 && n_unlike[2] > WIDE / 3 && n_unlike[3] > WIDE / 3);
    b->type->net->dropout(b, draws, 1, 0.6f, 1, WIDE, x.at); /* another layer drops others */
    receive(&x);
    for (size_t k = 0; k < WIDE; k++)
        n_kept -= x.x[k] != 0.0f;
    ck_assert(n_kept > WIDE / 5);
    array_free(&x, 1);
    backend_close(b);
}
END_TEST

/* Runs every operator once, on numbers from seed; results are appended to out. */
static size_t run_all(struct backend *b, size_t n, size_t n_in, size_t n_out, float *out)
{
    const struct net_ops *net = b->type->net;
    const struct optim adam = {OPTIM_ADAMW, 0, 0, false, 0.1f, 0.9f, 0.999f, 1e-8f};
    const struct optim sgd = {OPTIM_SGD, 0.9f, 0.1f, true, 0.01f, 0, 0, 0};
    const struct optim plain = {OPTIM_SGD, 0, 0, false, 0, 0, 0, 0};
    size_t sizes[] = {n * n_in,  n_out * n_in, n_out,        n * n_out,     n * n_out,
                      n * n_in,  n_out * n_in, n_out,        n * 4 * n_out, n * 4 * n_out,
                      n * n_out, n * n_out,    n * n_out,    n * n_out,     n * 4 * n_out,
                      n * n_out, n * n_out,    n_out * n_in, n_out * n_in};
    enum { ALL = sizeof(sizes) / sizeof(sizes[0]) };
    struct array a[ALL];
    struct net_draw *draws = calloc(n, sizeof(*draws));
    bool *keep = calloc(n, sizeof(*keep));
    int32_t *actions = calloc(n, sizeof(*actions));
    float *weights = calloc(n, sizeof(*weights));
    size_t len = 0;

    state = 77;
    for (size_t i = 0; i < ALL; i++)
        a[i] = array_of(b, sizes[i]);
    for (size_t i = 0; i < n; i++) {
        draws[i] = (struct net_draw){5, (uint32_t)i, 3, i % 3 != 2};
        actions[i] = (int32_t)(i % n_out);
        weights[i] = (float)i - 1.5f;
        keep[i] = i % 4 != 1;
    }
    net->linear(b, a[0].at, a[1].at, a[2].at, n, n_in, n_out, a[3].at);
    net->linear_backward(b, a[0].at, a[1].at, a[4].at, n, n_in, n_out, a[5].at, a[6].at, a[7].at);
    net->lstm(b, a[8].at, a[9].at, a[10].at, n, n_out, a[11].at, a[12].at);
    net->lstm_backward(b, a[8].at, a[10].at, a[11].at, a[4].at, n, n_out, a[13].at, a[14].at);
    net->log_softmax(b, a[3].at, n, n_out, a[15].at);
    net->log_prob_backward(b, a[15].at, actions, weights, 0.1f, n, n_out, a[4].at);
    net->softmax(b, a[3].at, n, n_out, a[16].at);
    net->optim_step(b, &adam, 3, 0.01f, n_out * n_in, a[6].at, a[1].at, a[17].at, a[18].at);
    net->dropout(b, draws, 1, 0.5f, n, n_out, a[3].at);
    net->relu(b, a[3].at, n, n_out);
    net->relu_backward(b, a[3].at, n, n_out, a[4].at);
    net->add(b, a[12].at, a[13].at, n, n_out);
    net->keep_rows(b, keep, n, n_in, a[0].at);
    net->zero(b, a[14].at, n, 2 * n_out); /* of twice as much */
    net->optim_step(b, &sgd, 1, 0.01f, n_out, a[7].at, a[2].at, a[15].at, NULL);
    net->optim_step(b, &sgd, 2, 0.01f, n_out, a[7].at, a[2].at, a[15].at, NULL);
    net->optim_step(b, &plain, 2, 0.01f, n * n_out, a[4].at, a[11].at, NULL, NULL);
    for (size_t i = 0; i < ALL; i++) {
        receive(&a[i]);
        memcpy(out + len, a[i].x, a[i].n * sizeof(*out));
        len += a[i].n;
    }
    array_free(a, ALL);
    free(draws);
    free(keep);
    free(actions);
    free(weights);
    return len;
}

static const size_t shapes[][3] = {
    /* rows, inputs, outputs */
    {1, 4, 128},   {11, 4, 128},  {3, 128, 2},    {1, 1, 1},     {2, 16, 3},    {7, 33, 70},
    {64, 130, 67}, {6, 128, 64},  {70, 64, 65},   {4, 15, 17},   {1, 700, 21},  {2, 257, 35},
    {3, 512, 16},  {10, 600, 37}, {11, 1024, 18}, {16, 300, 19}, {37, 529, 23}, {5, 3, 301},
};

/* Checks that b gives the same bits. */
static void compare_all(struct backend *b, const char *name, size_t s, const float *want, size_t n,
                        float *got)
{
    ck_assert_uint_eq(run_all(b, shapes[s][0], shapes[s][1], shapes[s][2], got), n);
    for (size_t k = 0; k < n; k++)
        if (memcmp(&want[k], &got[k], sizeof(*got)) != 0)
            ck_abort_msg("%s, shape %zu, number %zu of %zu: %.9g, not %.9g", name, s, k, n,
                         (double)got[k], (double)want[k]);
}

/* Opens the device, if a stand-in is named; the second run of its lists is as graphs. */
static struct backend *open_device(void)
{
    const char *module = getenv("PARLEY_CUDA_MODULE");
    struct backend *b = module != NULL ? open_named("cuda", "", 1) : NULL;

    ck_assert(module == NULL || b != NULL);
    return b;
}

/* Rows are added where they belong, in order, though some belong to the same place. */
START_TEST(rows_are_added_in_their_places)
{
    enum { N_X = 5, N_Y = 7, EACH = 33 };
    static const uint32_t rows[N_Y] = {4, 0, 4, 2, 0, 4, 2};
    static const char *const names[] = {"ref", "cpu"};

    for (size_t k = 0; k < 2; k++) {
        struct backend *b = open_named(names[k], "generic", 1);
        struct array x = array_of(b, N_X * EACH), y = array_of(b, N_Y * EACH);
        float want[N_X * EACH];

        memcpy(want, x.x, sizeof(want));
        for (size_t i = 0; i < N_Y; i++)
            for (size_t c = 0; c < EACH; c++)
                want[rows[i] * EACH + c] += y.x[i * EACH + c];
        b->type->net->add_at(b, x.at, N_X, rows, y.at, N_Y, EACH);
        receive(&x);
        ck_assert_mem_eq(x.x, want, sizeof(want));
        array_free(&x, 1);
        array_free(&y, 1);
        backend_close(b);
    }
}
END_TEST

/* Every set, on one thread and on several, has the bits of ref; so has a device. */
START_TEST(sets_have_the_bits_of_ref)
{
    static const char *const sets[] = {"generic", "avx2",    "vnni256", "avx512",
                                       "neon",    "dotprod", "i8mm"};
    enum { ROOM = 1 << 19 };
    float *want = malloc(ROOM * sizeof(*want)), *got = malloc(ROOM * sizeof(*got));
    struct backend *ref = open_named("ref", "", 1), *device = open_device();

    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        const size_t *shape = shapes[s];
        size_t n = run_all(ref, shape[0], shape[1], shape[2], want);

        ck_assert_uint_le(n, ROOM);
        for (size_t i = 0; i < 2 * sizeof(sets) / sizeof(sets[0]); i++) {
            struct backend *b = open_named("cpu", sets[i / 2], 1 + i % 2 * 2);

            if (b == NULL)
                continue;
            compare_all(b, sets[i / 2], s, want, n, got);
            backend_close(b);
        }
        for (int again = 0; device != NULL && again < 2; again++)
            compare_all(device, "cuda", s, want, n, got);
    }
    backend_close(device);
    backend_close(ref);
    free(want);
    free(got);
}
END_TEST

static void check_rows(struct backend *b)
{
    enum { ROWS = 11, INS = 37, OUTS = 29 };
    const struct net_ops *net = b->type->net;
    struct array in = array_of(b, ROWS * INS), w = array_of(b, OUTS * INS);
    struct array bias = array_of(b, OUTS), dout = array_of(b, ROWS * OUTS);
    struct array out = array_of(b, ROWS * OUTS), din = array_of(b, ROWS * INS);
    struct array dw = array_of(b, OUTS * INS), dbias = array_of(b, OUTS);
    struct array one = array_of(b, INS), done = array_of(b, OUTS), dw2 = array_of(b, OUTS * INS);
    struct array dbias2 = array_of(b, OUTS), done2 = array_of(b, INS);

    net->zero(b, dw.at, OUTS, INS);
    net->zero(b, dbias.at, 1, OUTS);
    net->zero(b, dw2.at, OUTS, INS);
    net->zero(b, dbias2.at, 1, OUTS);
    net->linear(b, in.at, w.at, bias.at, ROWS, INS, OUTS, out.at);
    net->linear_backward(b, in.at, w.at, dout.at, ROWS, INS, OUTS, din.at, dw.at, dbias.at);
    receive(&out);
    receive(&din);
    for (size_t i = 0; i < ROWS; i++) {
        memcpy(one.x, in.x + i * INS, INS * sizeof(float));
        send(&one);
        net->linear(b, one.at, w.at, bias.at, 1, INS, OUTS, done.at);
        receive(&done);
        ck_assert_mem_eq(done.x, out.x + i * OUTS, OUTS * sizeof(float));
        memcpy(done.x, dout.x + i * OUTS, OUTS * sizeof(float));
        send(&done);
        net->linear_backward(b, one.at, w.at, done.at, 1, INS, OUTS, done2.at, dw2.at, dbias2.at);
        receive(&done2);
        ck_assert_mem_eq(done2.x, din.x + i * INS, INS * sizeof(float));
    }
    receive(&dw);
    receive(&dw2);
    receive(&dbias);
    receive(&dbias2);
    ck_assert_mem_eq(dw.x, dw2.x, OUTS * INS * sizeof(float));
    ck_assert_mem_eq(dbias.x, dbias2.x, OUTS * sizeof(float));
    array_free(
        (struct array[]){in, w, bias, dout, out, din, dw, dbias, one, done, dw2, dbias2, done2},
        13);
    backend_close(b);
}

enum { GROUPS = 5, GROUP_ROWS = 11 };
static const size_t group_rows[GROUPS] = {1, 4, 1, 2, 3};

/* Rows of GROUPS layers, each on a backend of its own: in one call, or one by one. */
static void run_groups(struct backend *const *backends, size_t n_in, size_t n_out, bool are_one,
                       float *out)
{
    struct backend *b = backends[0];
    struct array in, result, w[GROUPS], bias[GROUPS];
    struct net_group groups[GROUPS];

    state = 99;
    in = array_of(b, GROUP_ROWS * n_in);
    result = array_of(b, GROUP_ROWS * n_out);
    for (size_t g = 0; g < GROUPS; g++) {
        w[g] = array_of(backends[g], n_out * n_in);
        bias[g] = array_of(backends[g], n_out);
        groups[g] = (struct net_group){group_rows[g], w[g].at, bias[g].at};
    }
    if (are_one)
        b->type->net->linear_grouped(b, in.at, groups, GROUPS, n_in, n_out, result.at);
    receive(&result);
    for (size_t g = 0, row = 0; !are_one && g < GROUPS; row += group_rows[g++])
        for (size_t i = row; i < row + group_rows[g]; i++) {
            struct array one = array_of(b, n_in), done = array_of(b, n_out);

            memcpy(one.x, in.x + i * n_in, n_in * sizeof(float));
            send(&one);
            b->type->net->linear(b, one.at, w[g].at, bias[g].at, 1, n_in, n_out, done.at);
            receive(&done);
            memcpy(result.x + i * n_out, done.x, n_out * sizeof(float));
            array_free((struct array[]){one, done}, 2);
        }
    memcpy(out, result.x, GROUP_ROWS * n_out * sizeof(*out));
    array_free(w, GROUPS);
    array_free(bias, GROUPS);
    array_free((struct array[]){in, result}, 2);
}

/* Rows of several layers in one call have the bits that ref's linear gives each of them with its
 * own weights, on ref and in every set, with one thread and with several. */
START_TEST(groups_have_the_bits_of_their_rows)
{
    static const size_t layers[][2] = {{4, 128}, {33, 70}, {300, 19}, {128, 5}, {200, 257}};
    static const char *const sets[] = {"",       "generic", "avx2",    "vnni256",
                                       "avx512", "neon",    "dotprod", "i8mm"};
    static float want[GROUP_ROWS * 257], got[GROUP_ROWS * 257];
    struct backend *ref[GROUPS], *b[GROUPS];

    for (size_t g = 0; g < GROUPS; g++)
        ref[g] = open_named("ref", "", 1);
    for (size_t i = 0; i < 2 * sizeof(sets) / sizeof(sets[0]); i++) {
        for (size_t g = 0; g < GROUPS; g++)
            b[g] = open_named(i < 2 ? "ref" : "cpu", sets[i / 2], 1 + i % 2 * 2);
        for (size_t s = 0; b[0] != NULL && s < sizeof(layers) / sizeof(layers[0]); s++) {
            run_groups(ref, layers[s][0], layers[s][1], false, want);
            run_groups(b, layers[s][0], layers[s][1], true, got);
            ck_assert_mem_eq(got, want, GROUP_ROWS * layers[s][1] * sizeof(*got));
        }
        for (size_t g = 0; g < GROUPS; g++)
            backend_close(b[g]);
    }
    for (size_t g = 0; g < GROUPS; g++)
        backend_close(ref[g]);
}
END_TEST

/* A row of a batch has the bits that it has alone, and gradients in several calls add up to the
 * same bits. */
START_TEST(rows_do_not_meet)
{
    struct backend *device = open_device();

    check_rows(open_named("cpu", "", 2));
    if (device != NULL)
        check_rows(device);
}
END_TEST

SUITE_MAIN("compute/net", layer_gradients, log_prob_gradient, cell_gradients, scalars_are_near,
           dropout_is_drawn_by_its_key, rows_are_added_in_their_places, sets_have_the_bits_of_ref,
           groups_have_the_bits_of_their_rows, rows_do_not_meet)
