/* Adjusts logits by penalties, biases and the constraint's mask, keeps the candidates that the
 * parameters allow, and draws one of them. The draw of a position is a function of the seed, the
 * turn and the position, so it does not depend on what else a step computes. */
#include "agents/lm/sampling/sampler.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "agents/lm/sampling/logits.h"
#include "agents/lm/sampling/tops.h"
#include "agents/lm/sampling/unused.h"
#include "base/counter_rng.h"
#include "base/real.h"
#include "compute/backend/backend.h"
#include "compute/numerics/draw.h"
#include "compute/numerics/scalar.h"

/* A token that penalties count. */
struct seen {
    int32_t id_plus_1; /* 0: empty */
    uint32_t n_reply;  /* occurrences in the reply */
};

struct candidate {
    int32_t id;
    float weight; /* a logit, then e^((logit - highest) / temperature) */
};

struct sampler {
    const struct sampling *s;
    const struct vocab *vocab;
    const struct logit_kernels *kernels;
    uint32_t turn;
    struct arena *arena;
    bool has_penalties;
    struct seen *seen; /* [seen_mask + 1] open addressing, at most half full */
    size_t seen_mask, n_seen;
    struct candidate *candidates; /* [cap] the tokens left after cuts */
    size_t cap;
    float *original;      /* [n_vocab] the model's logits, if logprobs are wanted */
    double log_sum;       /* of their exponentials */
    const uint32_t *mask; /* of the tokens that may be chosen; NULL: all */
    double *sums;         /* [n_vocab / LOGITS_BLOCK, rounded up] weights of each block */
};

static struct seen *find_seen(const struct sampler *s, int32_t id)
{
    size_t i = (size_t)((uint32_t)id * 2654435769u >> 7) & s->seen_mask;

    while (s->seen[i].id_plus_1 != 0 && s->seen[i].id_plus_1 != id + 1)
        i = (i + 1) & s->seen_mask;
    return &s->seen[i];
}

/* Makes room for one more token; the arena keeps the old table until the turn ends. */
static enum status grow_seen(struct sampler *s, struct error *err)
{
    const struct seen *old = s->seen;
    size_t n_old = s->seen == NULL ? 0 : s->seen_mask + 1, n_slots = n_old == 0 ? 64 : 2 * n_old;
    struct seen *bigger;

    if (2 * (s->n_seen + 1) <= n_old)
        return STATUS_OK;
    bigger = arena_alloc(s->arena, n_slots, sizeof(*bigger));
    if (bigger == NULL)
        return error_no_memory(err, n_slots * sizeof(*bigger), "the penalties' counts");
    s->seen = bigger;
    s->seen_mask = n_slots - 1;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].id_plus_1 != 0)
            *find_seen(s, old[i].id_plus_1 - 1) = old[i];
    return STATUS_OK;
}

static void sampler_count(struct sampler *s, int32_t id, uint32_t n_reply)
{
    struct seen *seen = find_seen(s, id);

    assert(id >= 0 && s->n_seen < s->seen_mask);
    s->n_seen += seen->id_plus_1 == 0;
    seen->id_plus_1 = id + 1;
    seen->n_reply += n_reply;
}

enum status sampler_open(struct sampler **out, const struct sampling *s, const struct vocab *v,
                         const struct logit_kernels *kernels, uint32_t turn, const int32_t *context,
                         size_t n_context, struct arena *arena, struct error *err)
{
    struct sampler *sampler = arena_alloc(arena, 1, sizeof(*sampler));

    if (sampler == NULL)
        return error_no_memory(err, sizeof(*sampler), "a sampler");
    sampler->s = s;
    sampler->vocab = v;
    sampler->kernels = kernels;
    sampler->turn = turn;
    sampler->arena = arena;
    sampler->has_penalties = s->repetition_penalty != 1.0f || s->presence_penalty != 0.0f ||
                             s->frequency_penalty != 0.0f;
    if (sampler->has_penalties && grow_seen(sampler, err) != STATUS_OK)
        return err->status;
    /* presence and frequency count only the reply: the prompt's tokens matter only for the
     * repetition penalty */
    for (size_t i = 0; s->repetition_penalty != 1.0f && i < n_context; i++) {
        sampler_count(sampler, context[i], 0);
        if (grow_seen(sampler, err) != STATUS_OK)
            return err->status;
    }
    *out = sampler;
    return STATUS_OK;
}

void sampler_accept(struct sampler *s, int32_t id)
{
    if (s->has_penalties)
        sampler_count(s, id, 1);
}

static size_t sampler_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Clamps overflows to finite numbers, and keeps -inf, which bans. */
static void set(float *logit, float value)
{
    *logit = isnan(value) ? -INFINITY : fminf(value, FLT_MAX);
}

void sampler_allow(struct sampler *s, const uint32_t *mask)
{
    s->mask = mask;
}

/* Bans what the mask does not have. */
static void mask_logits(const uint32_t *mask, float *logits, size_t n)
{
    for (size_t i = 0; i < n; i += 32) {
        const uint32_t word = mask[i / 32];
        const size_t end = sampler_min_size(n, i + 32);

        for (size_t k = i; word != UINT32_MAX && k < end; k++)
            logits[k] = (word >> (k - i) & 1) != 0 ? logits[k] : -INFINITY;
    }
}

static bool is_allowed(const uint32_t *mask, int32_t id)
{
    return mask == NULL || (mask[id / 32] >> id % 32 & 1) != 0;
}

/* The mask has a token that ends nothing. */
static bool allows_more(const uint32_t *mask, size_t n, const int32_t *ends, size_t n_ends)
{
    size_t n_allowed = 0;

    for (size_t i = 0; i < (n + 31) / 32; i++)
        n_allowed += (size_t)__builtin_popcount(mask[i]);
    for (size_t i = 0; i < n_ends; i++)
        n_allowed -= (size_t)ends[i] < n && is_allowed(mask, ends[i]);
    return n_allowed > 0;
}

/* Applies biases, penalties and bans, also of ids without a token. Returns whether there were any.
 */
static bool adjust(const struct sampler *s, float *logits, size_t n, uint32_t position)
{
    const struct sampling *how = s->s;
    const float penalty = how->repetition_penalty;
    const bool bans_ends = how->ignore_eos || position < how->min_tokens;
    const bool has_unused = unused_any(s->vocab, n);

    for (size_t i = 0; i < how->n_biases; i++) {
        int32_t id = how->biases[i].id;

        if (id >= 0 && (size_t)id < n)
            set(&logits[id], logits[id] + how->biases[i].bias);
    }
    for (size_t i = 0; s->has_penalties && i <= s->seen_mask; i++) {
        const struct seen *seen = &s->seen[i];
        float *logit;

        if (seen->id_plus_1 == 0 || (size_t)seen->id_plus_1 > n)
            continue;
        logit = &logits[seen->id_plus_1 - 1];
        set(logit, *logit > 0 ? *logit / penalty : *logit * penalty);
        if (seen->n_reply > 0)
            set(logit,
                *logit - how->presence_penalty - (float)seen->n_reply * how->frequency_penalty);
    }
    if (bans_ends) {
        size_t n_ends;
        const int32_t *ends = vocab_stop_tokens(s->vocab, &n_ends);
        const bool may_end = s->mask != NULL && !allows_more(s->mask, n, ends, n_ends);

        for (size_t i = 0; i < n_ends && !may_end; i++)
            if ((size_t)ends[i] < n)
                logits[ends[i]] = -INFINITY;
    }
    if (s->mask != NULL)
        mask_logits(s->mask, logits, n);
    if (has_unused)
        unused_ban(s->vocab, logits, n);
    return how->n_biases > 0 || s->has_penalties || bans_ends || s->mask != NULL || has_unused;
}

static bool is_before(const struct candidate *a, const struct candidate *b)
{
    return a->weight > b->weight || (a->weight == b->weight && a->id < b->id);
}

/* A binary heap by is_before: the last on top if last_first, else the first. */
static void candidate_sink(struct candidate *heap, size_t n, size_t i, bool last_first)
{
    struct candidate c = heap[i];

    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_before(&heap[child + 1], &heap[child]) != last_first)
            child++;
        if (is_before(&heap[child], &c) == last_first)
            break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

static void heapify(struct candidate *heap, size_t n, bool last_first)
{
    for (size_t i = n / 2; i-- > 0;)
        candidate_sink(heap, n, i, last_first);
}

static enum status sampler_make_room(struct sampler *s, size_t n, struct error *err)
{
    size_t cap = s->cap == 0 ? 64 : s->cap;

    while (cap < n)
        cap *= 2;
    if (s->cap == cap)
        return STATUS_OK;
    s->candidates = arena_alloc(s->arena, cap, sizeof(*s->candidates));
    s->cap = s->candidates == NULL ? 0 : cap;
    return s->candidates == NULL ? error_no_memory(err, cap * sizeof(*s->candidates), "candidates")
                                 : STATUS_OK;
}

/* logits become weights. Returns their sum; s->sums has those of the blocks. */
static double sampler_weigh(struct sampler *s, float *logits, size_t n, float top, float scale)
{
    enum { FEW = LOGITS_BLOCK / 4 }; /* weighed at once: most may be 0 */
    const float bound = top + draw_least_exponent / scale;
    double total = 0;

    for (size_t i = 0; i < n; i += LOGITS_BLOCK) {
        float *block = logits + i;
        size_t len = sampler_min_size(n - i, LOGITS_BLOCK);

        for (size_t k = 0; k < len;) {
            size_t begin = s->kernels->find_from(block, len, k, bound);
            size_t end = sampler_min_size(len, begin + FEW);

            memset(block + k, 0, (begin - k) * sizeof(*block));
            if (begin < end)
                s->kernels->weigh(block + begin, end - begin, top, scale, draw_least_weight);
            k = end;
        }
        s->sums[i / LOGITS_BLOCK] = (double)s->kernels->sum(block, len);
        total += s->sums[i / LOGITS_BLOCK];
    }
    return total;
}

/* The k highest with their weights, in no order. */
static void sampler_take_top_k(const struct sampler *s, struct candidate *c, const float *logits,
                               size_t n, size_t k, float top, float scale)
{
    for (size_t i = 0; i < k; i++)
        c[i] = (struct candidate){(int32_t)i, logits[i]};
    heapify(c, k, true);
    for (size_t i = k; (i = s->kernels->find_from(logits, n, i, c[0].weight)) < n;)
        for (size_t end = sampler_min_size(n, i + LOGITS_GROUP); i < end; i++)
            if (logits[i] > c[0].weight) { /* among equals the lower id stays */
                c[0] = (struct candidate){(int32_t)i, logits[i]};
                candidate_sink(c, k, 0, true);
            }
    for (size_t i = 0; i < k; i++) {
        float e = scalar_exp((c[i].weight - top) * scale);

        c[i].weight = e > draw_least_weight ? e : 0.0f;
    }
}

/* Counts the tokens of at least this weight, and puts them into c if it is not NULL. */
static size_t take_from(const struct sampler *s, struct candidate *c, const float *weights,
                        size_t n, float least)
{
    size_t n_taken = 0;

    for (size_t i = 0; (i = s->kernels->find_from(weights, n, i, least)) < n;)
        for (size_t end = sampler_min_size(n, i + LOGITS_GROUP); i < end; i++)
            if (weights[i] >= least) {
                if (c != NULL)
                    c[n_taken] = (struct candidate){(int32_t)i, weights[i]};
                n_taken++;
            }
    return n_taken;
}

static double sum_weights(const struct candidate *c, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)c[i].weight;
    return sum;
}

/* Keeps candidates of at least this weight, in order; returns how many. */
static size_t keep_from(struct candidate *c, size_t n, float weight)
{
    size_t n_left = 0;

    for (size_t i = 0; i < n; i++)
        if (c[i].weight >= weight)
            c[n_left++] = c[i];
    return n_left;
}

/* Moves the fewest candidates that hold enough weight, likeliest first, to the beginning of c;
 * returns how many. */
static size_t keep_top_p(struct candidate *c, size_t n, double enough)
{
    size_t n_heap = n;
    double sum = 0;

    heapify(c, n, false);
    do { /* the taken candidates collect after the shrinking heap */
        struct candidate likeliest = c[0];

        sum += (double)likeliest.weight;
        c[0] = c[--n_heap];
        if (n_heap > 0)
            candidate_sink(c, n_heap, 0, false);
        c[n_heap] = likeliest;
    } while (n_heap > 0 && sum < enough);
    memmove(c, c + n_heap, (n - n_heap) * sizeof(*c));
    return n - n_heap;
}

static int32_t candidate_draw(const struct candidate *c, size_t n, float chance)
{
    const double target = (double)chance * sum_weights(c, n);
    double sum = 0;
    size_t i = 0;

    for (; i + 1 < n; i++) {
        sum += (double)c[i].weight;
        if (sum > target)
            break;
    }
    return c[i].id;
}

/* Draws when nothing is cut: finds the block by the blocks' sums, then the token in that block. */
static int32_t sampler_draw_of_all(const struct sampler *s, const float *weights, size_t n,
                                   double total, float chance)
{
    const double target = (double)chance * total;
    size_t begin = 0, last = 0;
    double sum = 0, before = 0;

    for (size_t i = 0; i < n && sum <= target; i += LOGITS_BLOCK) {
        if (s->sums[i / LOGITS_BLOCK] == 0)
            continue;
        begin = i;
        before = sum;
        sum += s->sums[i / LOGITS_BLOCK];
    }
    for (size_t i = begin; i < sampler_min_size(n, begin + LOGITS_BLOCK) && before <= target; i++) {
        before += (double)weights[i];
        if (weights[i] > 0)
            last = i;
    }
    return (int32_t)last;
}

/* logits become weights. */
static enum status sampler_choose(struct sampler *s, float *logits, size_t n_vocab, float top,
                                  uint32_t position, int32_t *ret_id, struct error *err)
{
    const struct sampling *how = s->s;
    const float chance = counter_rng_uniform(how->seed, s->turn, position, 0);
    const float scale = draw_scale(how->temperature);
    size_t n = 0;
    double total = 0;

    if (how->top_k > 0 && how->top_k < n_vocab) {
        n = how->top_k;
        if (sampler_make_room(s, n, err) != STATUS_OK)
            return err->status;
        sampler_take_top_k(s, s->candidates, logits, n_vocab, n, top, scale);
        n = keep_top_p(s->candidates, n, HUGE_VAL); /* keeps all, in a defined order */
        total = sum_weights(s->candidates, n);
    } else {
        const float least = fmaxf(how->min_p, draw_top_p_bound(how->top_p, n_vocab));

        if (s->sums == NULL)
            s->sums = arena_alloc(s->arena, n_vocab / LOGITS_BLOCK + 1, sizeof(*s->sums));
        if (s->sums == NULL)
            return error_no_memory(err, n_vocab / LOGITS_BLOCK * sizeof(*s->sums), "weights");
        total = sampler_weigh(s, logits, n_vocab, top, scale);
        if (least == 0.0f) {
            *ret_id = sampler_draw_of_all(s, logits, n_vocab, total, chance);
            return STATUS_OK;
        }
        n = take_from(s, NULL, logits, n_vocab, least);
        if (sampler_make_room(s, n, err) != STATUS_OK)
            return err->status;
        (void)take_from(s, s->candidates, logits, n_vocab, least);
    }
    if (how->top_p < 1.0f)
        n = keep_top_p(s->candidates, n, (double)how->top_p * total);
    n = keep_from(s->candidates, n, how->min_p); /* the likeliest has weight 1 and stays */
    *ret_id = candidate_draw(s->candidates, n, chance);
    return STATUS_OK;
}

static enum status take_logprobs(struct sampler *s, struct sampled *out, float *logits, size_t n,
                                 float top, double *ret_log_sum, struct error *err)
{
    if (s->original == NULL)
        s->original = arena_alloc(s->arena, n, sizeof(*s->original));
    if (s->original == NULL)
        return error_no_memory(err, n * sizeof(*s->original), "logits");
    memcpy(s->original, logits, n * sizeof(*logits));
    *ret_log_sum = logits_log_sum(s->kernels, logits, n, top);
    if (s->s->n_logprobs > 0 && unused_any(s->vocab, n))
        unused_ban(s->vocab, logits, n); /* they have probability, but are not listed */
    out->n_top =
        (uint32_t)tops_take(s->kernels, logits, n, *ret_log_sum, out->top, s->s->n_logprobs);
    return STATUS_OK;
}

enum status sampler_next(struct sampler *s, float *logits, size_t n_vocab, uint32_t position,
                         struct sampled *out, struct error *err)
{
    const struct sampling *how = s->s;
    const bool wants_logprobs = how->want_logprobs || how->n_logprobs > 0;
    struct sampled result = {.n_top = 0};
    double log_sum = 0;
    struct logit_peak peak;

    assert(n_vocab > 0 && n_vocab <= INT32_MAX && how->n_logprobs <= SAMPLING_MAX_LOGPROBS);
    peak = logits_peak(s->kernels, logits, n_vocab);
    if (!peak.are_finite)
        return error_set(err, STATUS_INTERNAL, "the model gave logits that are not finite");
    if (s->has_penalties && grow_seen(s, err) != STATUS_OK)
        return err->status;
    if (wants_logprobs &&
        take_logprobs(s, &result, logits, n_vocab, peak.top, &log_sum, err) != STATUS_OK)
        return err->status;
    if (adjust(s, logits, n_vocab, position))
        peak = logits_peak(s->kernels, logits, n_vocab);
    if (isinf(peak.top))
        return error_set(err, STATUS_INVALID, "every token is banned");
    if (how->temperature == 0.0f)
        result.id = (int32_t)logits_first_top(&peak, logits);
    else if (sampler_choose(s, logits, n_vocab, peak.top, position, &result.id, err) != STATUS_OK)
        return err->status;
    s->log_sum = log_sum;
    *out = result;
    sampler_replace(s, result.id, out);
    return STATUS_OK;
}

void sampler_replace(const struct sampler *s, int32_t id, struct sampled *out)
{
    out->id = id;
    if (s->s->want_logprobs || s->s->n_logprobs > 0)
        out->logprob = (float)((double)s->original[id] - s->log_sum);
}

bool sampler_plan(const struct sampler *s, size_t n_vocab, uint32_t position, struct draw *out)
{
    const struct sampling *how = s->s;

    if (s->has_penalties || how->n_biases > 0 || how->n_logprobs > 0 ||
        unused_any(s->vocab, n_vocab))
        return false;
    *out = (struct draw){
        .turn = s->turn,
        .position = position,
        .top_k = how->top_k,
        .seed = how->seed,
        .temperature = how->temperature,
        .top_p = how->top_p,
        .min_p = how->min_p,
        .bans_ends = how->ignore_eos || position < how->min_tokens,
        .wants_sum = how->want_logprobs,
    };
    return true;
}

struct sampled sampler_drawn(const struct sampler *s, const struct drawn *d)
{
    struct sampled out = {.id = d->id};

    assert(d->id >= 0);
    if (s->s->want_logprobs)
        out.logprob = (float)((double)d->logit - ((double)d->top + real_log(d->sum)));
    return out;
}
