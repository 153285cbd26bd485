/* Computes the level to which tenants are filled, and from it how many rows a heavy tenant may
 * have. The functions read the tenants and the step-time model, and change neither. */
#include "batching/time_share.h"

/* The part of its share of time that a heavy tenant's rows may take beyond the light tenants'. */
static const double heavy_part = 0.5;
/* A tenant that has no request counts for so many times what its requests take, and at most for so
 * long. */
static const double recent_runs = 8, recent_us = 2e6;
/* A step without such a tenant may take this part of what its requests take. */
static const double recent_part = 1.0 / 12;
/* Light tenants' rows run alone once in so many steps, so that their time stays known. */
static const unsigned alone_steps = 32;
/* Where it is unknown, so many steps in a row are tried, as the first ones may have chunks; then
 * heavy tenants have so many steps. */
static const unsigned unseen_tries = 8, unseen_pause = 16;

static size_t rows_cost(const struct batcher *b, size_t n)
{
    return (size_t)((double)n * b->row_cost + 0.5);
}

/* What a step of n decode rows usually takes; 0: unknown. */
static double rows_us(const struct batcher *b, size_t n)
{
    return step_time_decode_us(&b->step_time, rows_cost(b, n), true);
}

/* What it takes without disturbance: a disturbed step must not allow others to be as long. */
static double undisturbed_us(const struct batcher *b, size_t n)
{
    return step_time_decode_us(&b->step_time, rows_cost(b, n), false);
}

static double tenant_share(const struct tenant *t)
{
    return 1 / (double)t->token_charge; /* in proportion to its weight */
}

/* What the tenant's n rows are as a level: rows by weight. */
static double tenant_level(const struct tenant *t, size_t n)
{
    return (double)n * (double)t->token_charge;
}

static size_t tenant_rows_at(const struct tenant *t, double level)
{
    double n = level * tenant_share(t);

    if (n >= (double)t->n_active)
        return t->n_active;
    return n > 1 ? (size_t)n : 1;
}

static struct tenant *time_share_tenant(struct link *l)
{
    return container_of(l, struct tenant, active);
}

/* The rows of all tenants at a level; only_light: of those that ask for no more. */
static size_t rows_at(const struct batcher *b, double level, bool only_light)
{
    const struct list *all = &b->waiting.tenants;
    size_t n = 0;

    for (struct link *l = list_first(all); l != NULL; l = list_next(all, l)) {
        const struct tenant *t = time_share_tenant(l);

        if (!only_light || tenant_level(t, t->n_active) <= level)
            n += tenant_rows_at(t, level);
    }
    return n;
}

/* The largest level, of most, for which fits holds; it holds below it. */
static double highest_level(const struct batcher *b, double least, double most, double limit,
                            bool (*fits)(const struct batcher *b, double level, double limit))
{
    for (int i = 0; i < 16; i++) {
        double middle = (least + most) / 2;

        if (fits(b, middle, limit))
            least = middle;
        else
            most = middle;
    }
    return least;
}

/* Whether rows at that level take no more of the step than the part of their tenant. */
static bool is_within_part(const struct batcher *b, double level, double shares)
{
    const size_t n = rows_at(b, level, false);
    const double all_us = rows_us(b, n), one_us = rows_us(b, 1);
    const double row_us = n > 1 ? (all_us - one_us) / (double)(n - 1) : 0;

    return n <= b->config.max_rows && level * shares * row_us <= all_us;
}

static bool is_within_time(const struct batcher *b, double level, double limit_us)
{
    return rows_us(b, rows_at(b, level, false)) <= limit_us;
}

/* The shortest of the times that steps may take for the sake of tenants that were here a moment
 * ago; 0: there are none. */
static double recent_limit_us(struct batcher *b, uint64_t now_us)
{
    struct list *recent = &b->waiting.recent;
    double limit_us = 0, step_us = undisturbed_us(b, 1) / (1 - heavy_part / 2);

    for (struct link *l = list_first(recent), *next; l != NULL; l = next) {
        const struct tenant *t = time_share_tenant(l);
        double us = recent_part * t->run_us, away_us = (double)(now_us - t->left_us);

        next = list_next(recent, l);
        if (away_us > recent_us || away_us > recent_runs * t->run_us) {
            list_remove(l);
            continue;
        }
        us = us > step_us ? us : step_us;
        if (limit_us == 0 || us < limit_us)
            limit_us = us;
    }
    return limit_us;
}

/* The tenants that wait or run. */
struct time_shares {
    double light, heavy; /* their parts */
    double light_level;  /* the highest of a light tenant */
    size_t n_light_rows;
};

static struct time_shares time_shares_at(const struct batcher *b, double level)
{
    const struct list *all = &b->waiting.tenants;
    struct time_shares s = {.n_light_rows = rows_at(b, level, true)};

    for (struct link *l = list_first(all); l != NULL; l = list_next(all, l)) {
        const struct tenant *t = time_share_tenant(l);
        double wants = tenant_level(t, t->n_active);

        if (wants > level) {
            s.heavy += tenant_share(t);
            continue;
        }
        s.light += tenant_share(t);
        if (wants > s.light_level)
            s.light_level = wants;
    }
    return s;
}

/* The level up to which a tenant is light. Whoever asks for least is, whatever the times say,
 * unless a step has too few rows even for that. */
static double light_level(const struct batcher *b)
{
    const struct list *all = &b->waiting.tenants;
    double shares = 0, most = 0, least = 0;

    for (struct link *l = list_first(all); l != NULL; l = list_next(all, l)) {
        const struct tenant *t = time_share_tenant(l);

        const double wants = tenant_level(t, t->n_active);

        shares += tenant_share(t);
        most = wants > most ? wants : most;
        least = least == 0 || wants < least ? wants : least;
    }
    if (rows_at(b, least, false) > b->config.max_rows)
        least = 0;
    return is_within_part(b, most, shares) ? most
                                           : highest_level(b, least, most, shares, is_within_part);
}

/* Whether the light tenants' rows should run alone, to learn their time. */
static bool is_time_for_light(struct batcher *b, size_t n_rows)
{
    const unsigned n = b->n_since_light++;

    if (!step_time_has_seen(&b->step_time, rows_cost(b, n_rows)))
        return n % (unseen_tries + unseen_pause) < unseen_tries;
    if (n < alone_steps)
        return false;
    b->n_since_light = 0;
    return true;
}

bool time_share_bound(struct batcher *b, uint64_t now_us)
{
    const struct list *all = &b->waiting.tenants;
    double recent = recent_limit_us(b, now_us), limit_us = 0, level, least;
    struct time_shares s;
    bool is_alone = false, all_heavy;

    if (rows_us(b, 1) <= 0)
        return false;
    level = light_level(b);
    s = time_shares_at(b, level);
    all_heavy = recent > 0 && s.heavy == 0; /* beside who is away */
    if (s.n_light_rows > 0 && s.heavy > 0) {
        limit_us =
            undisturbed_us(b, s.n_light_rows) / (1 - heavy_part * s.heavy / (s.light + s.heavy));
        is_alone = is_time_for_light(b, s.n_light_rows);
    }
    if (recent > 0 && (limit_us == 0 || recent < limit_us))
        limit_us = recent;
    if (limit_us == 0)
        return false;
    least = all_heavy ? 0 : s.light_level;
    level = highest_level(b, least, level > least ? level : least, limit_us, is_within_time);
    for (struct link *l = list_first(all); l != NULL; l = list_next(all, l)) {
        struct tenant *t = time_share_tenant(l);

        if (all_heavy || tenant_level(t, t->n_active) > s.light_level)
            t->max_rows = is_alone ? 0 : tenant_rows_at(t, level);
    }
    b->heavy_us = limit_us;
    return true;
}
