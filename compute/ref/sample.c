/* Drawing a token in its simplest form: it chooses as the host's sampler
 * (agents/lm/sampling/sampler.h) does without penalties and biases. Tokens are ordered likeliest
 * first, the lower id among equals. */
#include <stdlib.h>

#include "base/counter_rng.h"
#include "compute/numerics/draw.h"
#include "compute/numerics/scalar.h"
#include "compute/ref/parts.h"

struct ref_candidate {
    int32_t id;
    float weight; /* or a logit */
};

/* One draw from logits x [n]. */
struct ref_choice {
    const struct draw *how;
    const struct draw_list *list;
    const float *x;
    size_t n;
    float *weights;          /* [n] */
    struct ref_candidate *c; /* [n], n_left of them left */
    size_t n_left;
};

static bool is_banned(const struct ref_choice *ch, size_t id)
{
    for (size_t i = 0; ch->how->bans_ends && i < ch->list->n_ends; i++)
        if (ch->list->ends[i] == (int32_t)id)
            return true;
    return false;
}

static float logit_of(const struct ref_choice *ch, size_t id)
{
    return is_banned(ch, id) ? -INFINITY : ch->x[id];
}

static size_t ref_choice_highest(const struct ref_choice *ch)
{
    size_t best = 0;

    for (size_t i = 1; i < ch->n; i++)
        if (logit_of(ch, i) > logit_of(ch, best))
            best = i;
    return best;
}

static float ref_sample_weight_of(float x, float top, float scale, float least)
{
    float e = scalar_exp((x - top) * scale);

    return e > least ? e : 0.0f;
}

/* The sum of at most a block. */
static float sum_block(const float *weights, size_t n)
{
    float lanes[SCALAR_LANES] = {0};

    for (size_t i = 0; i < n; i++)
        lanes[i % SCALAR_LANES] += weights[i];
    return scalar_sum_lanes(lanes);
}

static double sum_blocks(const float *weights, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i += DRAW_BLOCK)
        sum += (double)sum_block(weights + i, n - i < DRAW_BLOCK ? n - i : DRAW_BLOCK);
    return sum;
}

static int likelier_first(const void *left, const void *right)
{
    const struct ref_candidate *a = left, *b = right;

    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void ref_choice_sort(struct ref_choice *ch)
{
    qsort(ch->c, ch->n_left, sizeof(*ch->c), likelier_first);
}

/* The draw without cuts: the block whose weights pass the target, then the token in it. */
static int32_t ref_choice_draw_of_all(const struct ref_choice *ch, double target)
{
    double sum = 0, before = 0;
    size_t begin = 0, last = 0;

    for (size_t i = 0; i < ch->n && sum <= target; i += DRAW_BLOCK) {
        size_t len = ch->n - i < DRAW_BLOCK ? ch->n - i : DRAW_BLOCK;
        float more = sum_block(ch->weights + i, len);

        if (more == 0)
            continue;
        begin = i;
        before = sum;
        sum += (double)more;
    }
    for (size_t i = begin; i < ch->n && i < begin + DRAW_BLOCK && before <= target; i++) {
        before += (double)ch->weights[i];
        if (ch->weights[i] > 0)
            last = i;
    }
    return (int32_t)last;
}

/* Cuts down to the top_k; returns the sum of their weights, added from the least likely on. */
static double ref_choice_take_top_k(struct ref_choice *ch, float top, float scale)
{
    double sum = 0;

    ch->n_left = ch->n;
    for (size_t i = 0; i < ch->n; i++)
        ch->c[i] = (struct ref_candidate){(int32_t)i, logit_of(ch, i)};
    ref_choice_sort(ch);
    ch->n_left = ch->how->top_k;
    for (size_t i = 0; i < ch->n_left; i++)
        ch->c[i].weight = ref_sample_weight_of(ch->c[i].weight, top, scale, draw_least_weight);
    ref_choice_sort(ch);
    for (size_t i = ch->n_left; i-- > 0;)
        sum += (double)ch->c[i].weight;
    return sum;
}

/* Keeps the fewest, likeliest first, whose weights reach enough. */
static void take_top_p(struct ref_choice *ch, double enough)
{
    double sum = 0;
    size_t n = 0;

    ref_choice_sort(ch);
    do
        sum += (double)ch->c[n++].weight;
    while (n < ch->n_left && sum < enough);
    ch->n_left = n;
}

static void take_min_p(struct ref_choice *ch)
{
    size_t n = 0;

    for (size_t i = 0; i < ch->n_left; i++)
        if (ch->c[i].weight >= ch->how->min_p)
            ch->c[n++] = ch->c[i];
    ch->n_left = n;
}

/* Draws among those left; where they are sorted, from the least likely on. */
static int32_t draw_of_left(const struct ref_choice *ch, bool is_sorted, float uniform)
{
    const size_t n = ch->n_left;
    double target = 0, sum = 0;
    size_t i;

    for (i = 0; i < n; i++)
        target += (double)ch->c[is_sorted ? n - 1 - i : i].weight;
    target *= (double)uniform;
    for (i = 0; i + 1 < n; i++) {
        sum += (double)ch->c[is_sorted ? n - 1 - i : i].weight;
        if (sum > target)
            break;
    }
    return ch->c[is_sorted ? n - 1 - i : i].id;
}

static int32_t ref_choice_choose(struct ref_choice *ch, float top)
{
    const struct draw *how = ch->how;
    const float uniform = counter_rng_uniform(how->seed, how->turn, how->position, 0);
    const float scale = draw_scale(how->temperature);
    const float least = fmaxf(how->min_p, draw_top_p_bound(how->top_p, ch->n));
    const bool has_top_k = how->top_k > 0 && how->top_k < ch->n;
    double total;

    if (has_top_k) {
        total = ref_choice_take_top_k(ch, top, scale);
    } else {
        ch->n_left = 0;
        for (size_t i = 0; i < ch->n; i++) {
            ch->weights[i] = ref_sample_weight_of(logit_of(ch, i), top, scale, draw_least_weight);
            if (ch->weights[i] >= least)
                ch->c[ch->n_left++] = (struct ref_candidate){(int32_t)i, ch->weights[i]};
        }
        total = sum_blocks(ch->weights, ch->n);
        if (least == 0.0f)
            return ref_choice_draw_of_all(ch, (double)uniform * total);
    }
    if (how->top_p < 1.0f)
        take_top_p(ch, (double)how->top_p * total);
    take_min_p(ch);
    return draw_of_left(ch, has_top_k || how->top_p < 1.0f, uniform);
}

static bool ref_sample_are_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static struct drawn draw_row(struct ref_choice *ch)
{
    struct drawn out = {.id = -1};
    size_t best = ref_choice_highest(ch);
    float top = logit_of(ch, best);

    if (!ref_sample_are_finite(ch->x, ch->n) || isinf(top))
        return out;
    out.top = ch->x[0];
    for (size_t i = 1; i < ch->n; i++)
        out.top = ch->x[i] > out.top ? ch->x[i] : out.top;
    out.id = ch->how->temperature == 0.0f ? (int32_t)best : ref_choice_choose(ch, top);
    out.logit = ch->x[out.id];
    if (ch->how->wants_sum) {
        for (size_t i = 0; i < ch->n; i++)
            ch->weights[i] = ref_sample_weight_of(ch->x[i], out.top, 1.0f, -1.0f);
        out.sum = sum_blocks(ch->weights, ch->n);
    }
    return out;
}

void ref_sample(struct backend *b, const struct buffer *logits, size_t n_vocab,
                const struct draw_list *list, struct drawn *out)
{
    struct ref *r = to_ref(b);
    float *scratch = ref_scratch_of(r, &r->weights, 3 * n_vocab);

    for (size_t i = 0; scratch != NULL && i < list->n; i++) {
        const size_t row = list->draws[i].row;
        struct ref_choice ch = {
            .how = &list->draws[i],
            .list = list,
            .x = ref_const_floats(logits, row + 1, n_vocab) + row * n_vocab,
            .n = n_vocab,
            .c = (struct ref_candidate *)(void *)scratch,
            .weights = scratch + 2 * n_vocab,
        };

        out[i] = draw_row(&ch);
    }
}
