/* Branch and bound: models in the order of their weight, each on the device that costs least so
 * far. A partial placement is left when what it costs, and what the rest must cost at least, is no
 * less than the best placement. */
#include "compute/verbs/placement.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct search {
    const struct placement_problem *problem;
    uint32_t order[PLACEMENT_MODELS_MAX];
    uint32_t device[PLACEMENT_MODELS_MAX]; /* the devices of order[0 … depth - 1] */
    double traffic_scale;                  /* of Σ traffic · distance to connection_cost */
    /* near[depth][i][d]: what model i's traffic with the first depth models costs on device d */
    double near[PLACEMENT_MODELS_MAX + 1][PLACEMENT_MODELS_MAX][PLACEMENT_DEVICES_MAX];
    double work[PLACEMENT_MODELS_MAX];   /* each model's share of the total complexity */
    double share[PLACEMENT_DEVICES_MAX]; /* each device's share of the total speed */
    double load[PLACEMENT_DEVICES_MAX];
    double free_bytes[PLACEMENT_DEVICES_MAX];
    uint32_t n_on[PLACEMENT_DEVICES_MAX];
    uint64_t n_nodes, max_nodes;
    double best; /* negative: no placement was found yet */
    struct placement *out;
};

static double load_cost(const struct search *s)
{
    double sum = 0;

    for (uint32_t d = 0; d < s->problem->n_devices; d++)
        sum += (s->load[d] - s->share[d]) * (s->load[d] - s->share[d]);
    return sum;
}

/* The least load_cost that remains possible: what is left is poured, like water, on the devices
 * that are furthest below their share, up to one level. */
static double least_load_cost(const struct search *s)
{
    const uint32_t n = s->problem->n_devices;
    bool is_above[PLACEMENT_DEVICES_MAX] = {false};
    double level = 0, sum = 0;

    for (bool changed = true; changed;) {
        double above = 0;
        uint32_t n_below = 0;

        changed = false;
        for (uint32_t d = 0; d < n; d++) {
            double over = s->load[d] - s->share[d];

            if (!is_above[d] && over > level) {
                is_above[d] = true;
                changed = true;
            }
            above += is_above[d] ? over : 0;
            n_below += !is_above[d];
        }
        level = n_below == 0 ? 0 : -above / n_below;
    }
    for (uint32_t d = 0; d < n; d++) {
        double over = is_above[d] ? s->load[d] - s->share[d] : level;

        sum += over * over;
    }
    return sum;
}

/* The least that the traffic between placed models and the others must still cost. */
static double least_traffic_cost(const struct search *s, uint32_t depth)
{
    const struct placement_problem *p = s->problem;
    double sum = 0;

    for (uint32_t k = depth; k < p->n_models; k++) {
        double least = -1;

        for (uint32_t d = 0; d < p->n_devices; d++) {
            double cost = s->near[depth][s->order[k]][d];

            if (p->models[s->order[k]].bytes <= s->free_bytes[d] && (least < 0 || cost < least))
                least = cost;
        }
        /* Negative: no device has room for it, which the search finds out. */
        sum += least < 0 ? 0 : least;
    }
    return sum;
}

/* Whether an earlier device is like d in all respects, and both are empty. */
static bool is_repeated(const struct search *s, uint32_t d)
{
    const struct placement_problem *p = s->problem;

    for (uint32_t e = 0; e < d; e++) {
        bool is_same = s->n_on[e] == 0 && p->devices[e].bytes == p->devices[d].bytes &&
                       s->share[e] == s->share[d];

        for (uint32_t f = 0; is_same && f < p->n_devices; f++)
            is_same = f == d || f == e || p->distance[e][f] == p->distance[d][f];
        if (is_same && s->n_on[d] == 0)
            return true;
    }
    return false;
}

static void put(struct search *s, uint32_t depth, uint32_t d)
{
    const struct placement_problem *p = s->problem;
    const uint32_t model = s->order[depth];

    s->device[model] = d;
    s->load[d] += s->work[model];
    s->free_bytes[d] -= p->models[model].bytes;
    s->n_on[d]++;
    for (uint32_t k = depth + 1; k < p->n_models; k++) {
        const uint32_t other = s->order[k];

        for (uint32_t e = 0; e < p->n_devices; e++)
            s->near[depth + 1][other][e] = s->near[depth][other][e] + p->traffic[model][other] *
                                                                          p->distance[d][e] *
                                                                          s->traffic_scale;
    }
}

/* The costs of a whole placement; false: it does not fit. */
static bool whole_cost(struct placement *x, const struct search *s)
{
    const struct placement_problem *p = s->problem;
    double bytes[PLACEMENT_DEVICES_MAX] = {0}, load[PLACEMENT_DEVICES_MAX] = {0};

    x->connection_cost = x->load_cost = 0;
    for (uint32_t i = 0; i < p->n_models; i++) {
        load[x->device[i]] += s->work[i];
        bytes[x->device[i]] += p->models[i].bytes;
        for (uint32_t k = 0; k < i; k++)
            x->connection_cost += p->traffic[i][k] * p->distance[x->device[i]][x->device[k]];
    }
    x->connection_cost *= s->traffic_scale;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        if (bytes[d] > p->devices[d].bytes)
            return false;
        x->load_cost += (load[d] - s->share[d]) * (load[d] - s->share[d]);
    }
    x->cost = p->connection_weight * x->connection_cost + p->load_weight * x->load_cost;
    return true;
}

static bool is_taken(struct search *s, struct placement *x)
{
    if (!whole_cost(x, s) || (s->best >= 0 && x->cost >= s->best))
        return false;
    x->is_exact = s->out->is_exact;
    *s->out = *x;
    s->best = x->cost;
    return true;
}

/* One model moved, or two exchanged, as long as that helps: a better placement ends more of the
 * search. */
static void improve(struct search *s)
{
    const struct placement_problem *p = s->problem;
    struct placement x;
    bool helps = true;

    while (helps) {
        helps = false;
        for (uint32_t i = 0; i < p->n_models; i++) {
            for (uint32_t d = 0; d < p->n_devices; d++) {
                x = *s->out;
                x.device[i] = d;
                helps |= is_taken(s, &x);
            }
            for (uint32_t k = 0; k < i; k++) {
                x = *s->out;
                x.device[i] = s->out->device[k];
                x.device[k] = s->out->device[i];
                helps |= is_taken(s, &x);
            }
        }
    }
}

/* Devices for the next model, those that cost least so far first. */
static uint32_t candidates(struct search *s, uint32_t depth, uint32_t *devices, double *costs)
{
    const struct placement_problem *p = s->problem;
    const uint32_t model = s->order[depth];
    double keys[PLACEMENT_DEVICES_MAX];
    uint32_t n = 0;

    for (uint32_t d = 0; d < p->n_devices; d++) {
        double load = s->load[d], cost, key;
        uint32_t at;

        if (p->models[model].bytes > s->free_bytes[d] || is_repeated(s, d))
            continue;
        cost = s->near[depth][model][d];
        s->load[d] += s->work[model];
        key = p->connection_weight * cost + p->load_weight * load_cost(s);
        s->load[d] = load;
        for (at = n++; at > 0 && keys[at - 1] > key; at--) {
            keys[at] = keys[at - 1];
            devices[at] = devices[at - 1];
            costs[at] = costs[at - 1];
        }
        keys[at] = key;
        devices[at] = d;
        costs[at] = cost;
    }
    return n;
}

/* As deep as there are models, which are few. */
static void search_from(struct search *s, uint32_t depth, double connection_cost)
{
    const struct placement_problem *p = s->problem;
    uint32_t devices[PLACEMENT_DEVICES_MAX], n;
    double costs[PLACEMENT_DEVICES_MAX];

    if (depth == p->n_models) {
        struct placement x;

        memcpy(x.device, s->device, sizeof(x.device));
        if (is_taken(s, &x))
            improve(s);
        return;
    }
    if (s->n_nodes == s->max_nodes) {
        s->out->is_exact = false;
        return;
    }
    s->n_nodes++;
    if (s->best >= 0 && p->connection_weight * (connection_cost + least_traffic_cost(s, depth)) +
                                p->load_weight * least_load_cost(s) >=
                            s->best)
        return;
    n = candidates(s, depth, devices, costs);
    for (uint32_t k = 0; k < n; k++) {
        const double load = s->load[devices[k]], free_bytes = s->free_bytes[devices[k]];

        put(s, depth, devices[k]);
        search_from(s, depth + 1, connection_cost + costs[k]);
        s->load[devices[k]] = load; /* the saved value: a subtraction would be rounded */
        s->free_bytes[devices[k]] = free_bytes;
        s->n_on[devices[k]]--;
    }
}

/* Fills out of: v, divided by their sum; the same part for each where that is 0. */
static void parts(double *out, const double *v, uint32_t n)
{
    double sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += v[i];
    for (uint32_t i = 0; i < n; i++)
        out[i] = sum > 0 ? v[i] / sum : 1.0 / n;
}

/* The largest first: they leave the fewest choices. */
static void order_models(struct search *s)
{
    const struct placement_problem *p = s->problem;
    double weight[PLACEMENT_MODELS_MAX] = {0}, bytes = 0, traffic = 0;

    for (uint32_t i = 0; i < p->n_models; i++) {
        bytes += p->models[i].bytes;
        for (uint32_t k = 0; k < p->n_models; k++)
            traffic += p->traffic[i][k];
    }
    for (uint32_t i = 0; i < p->n_models; i++) {
        weight[i] = s->work[i] + (bytes > 0 ? p->models[i].bytes / bytes : 0);
        for (uint32_t k = 0; k < p->n_models; k++)
            weight[i] += traffic > 0 ? p->traffic[i][k] / traffic : 0;
    }
    for (uint32_t i = 0, at; i < p->n_models; i++) {
        for (at = i; at > 0 && weight[s->order[at - 1]] < weight[i]; at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
}

static double scale_of_traffic(const struct placement_problem *p)
{
    double traffic = 0, furthest = 0;

    for (uint32_t i = 0; i < p->n_models; i++)
        for (uint32_t k = 0; k < i; k++)
            traffic += p->traffic[i][k];
    for (uint32_t d = 0; d < p->n_devices; d++)
        for (uint32_t e = 0; e < d; e++)
            furthest = p->distance[d][e] > furthest ? p->distance[d][e] : furthest;
    return traffic > 0 && furthest > 0 ? 1 / (traffic * furthest) : 0;
}

static enum status no_placement(const struct search *s, struct error *err)
{
    const struct placement_problem *p = s->problem;
    double needed = 0, there_is = 0;

    if (!s->out->is_exact)
        return error_set(
            err, STATUS_EXHAUSTED,
            "no placement was found in %llu steps, but there may be one: raise --max-steps",
            (unsigned long long)s->max_nodes);
    for (uint32_t i = 0; i < p->n_models; i++)
        needed += p->models[i].bytes;
    for (uint32_t d = 0; d < p->n_devices; d++)
        there_is += p->devices[d].bytes;
    return error_set(
        err, STATUS_EXHAUSTED,
        "the models do not fit: they need %.0f bytes, and the devices have %.0f (%u devices)",
        needed, there_is, p->n_devices);
}

enum status placement_find(struct placement *out, const struct placement_problem *problem,
                           uint64_t max_nodes, struct error *err)
{
    struct search *s = xalloc(sizeof(*s));
    double values[PLACEMENT_MODELS_MAX];
    enum status status = STATUS_OK;

    *out = (struct placement){.is_exact = true};
    s->problem = problem;
    s->max_nodes = max_nodes;
    s->best = -1;
    s->out = out;
    s->traffic_scale = scale_of_traffic(problem);
    for (uint32_t i = 0; i < problem->n_models; i++)
        values[i] = problem->models[i].complexity;
    parts(s->work, values, problem->n_models);
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        values[d] = problem->devices[d].speed;
        s->free_bytes[d] = problem->devices[d].bytes;
    }
    parts(s->share, values, problem->n_devices);
    order_models(s);
    search_from(s, 0, 0);
    if (s->best < 0)
        status = no_placement(s, err);
    free(s);
    return status;
}
