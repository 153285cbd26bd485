/* Environments of one's own: hosts for parleyd what a plug-in (parley_environment.h) has, in a
 * process of its own. If it crashes, its environments are lost, and parleyd goes on.
 *
 *   cc environment.c $(pkg-config --cflags --libs parley) -ldl -o environment
 *   ./environment 127.0.0.1:8001 ./mountain_car.so [NAME] */
#include <dlfcn.h>
#include <parley.h>
#include <parley_environment.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INSTANCES = 4096 };

struct instance {
    void *theirs;
    uint32_t n_steps; /* steps of its episode */
};

struct hosting {
    const struct parley_environment *type;
    const char *name;
    /* The order that is being answered. */
    void *theirs[MAX_INSTANCES];
    uint32_t episodes[MAX_INSTANCES]; /* each is the first episode of its seed */
    float rewards[MAX_INSTANCES];
    bool terminated[MAX_INSTANCES], truncated[MAX_INSTANCES];
    const char *failures[MAX_INSTANCES];
    float *observations; /* [MAX_INSTANCES][n_observations] */
};

static void on_accepted(void *arg)
{
    (void)printf("hosting %s\n", ((struct hosting *)arg)->name);
    (void)fflush(stdout);
}

static void *on_make(void *arg)
{
    const struct hosting *h = arg;
    struct instance *i = calloc(1, sizeof(*i));

    if (i != NULL && (i->theirs = h->type->make()) == NULL) {
        free(i);
        return NULL;
    }
    return i;
}

static void on_free(void *arg, void *environment)
{
    struct instance *i = environment;

    ((struct hosting *)arg)->type->free(i->theirs);
    free(i);
}

/* Zeroed results for n environments. */
static struct parley_environment_results begin(struct hosting *h,
                                               const struct parley_host_order *order)
{
    size_t n = order->n;

    for (size_t i = 0; i < n; i++)
        h->theirs[i] = ((struct instance *)order->environments[i])->theirs;
    memset(h->observations, 0, n * h->type->n_observations * sizeof(h->observations[0]));
    memset(h->rewards, 0, n * sizeof(h->rewards[0]));
    memset(h->terminated, 0, n * sizeof(h->terminated[0]));
    memset(h->truncated, 0, n * sizeof(h->truncated[0]));
    memset(h->failures, 0, n * sizeof(h->failures[0]));
    return (struct parley_environment_results){h->observations, h->rewards, h->terminated,
                                               h->truncated, h->failures};
}

static void on_reset(void *arg, struct parley_call *host, const struct parley_host_order *order)
{
    struct hosting *h = arg;
    struct parley_environment_results out = begin(h, order);
    const struct parley_host_results results = {
        .n = order->n, .observations = h->observations, .failures = h->failures};

    h->type->reset(h->theirs, order->n, order->seeds, h->episodes, &out);
    for (size_t i = 0; i < order->n; i++)
        ((struct instance *)order->environments[i])->n_steps = 0;
    (void)parley_host_answer(host, order->id, &results);
}

static void on_step(void *arg, struct parley_call *host, const struct parley_host_order *order)
{
    struct hosting *h = arg;
    struct parley_environment_results out = begin(h, order);
    const struct parley_environment_actions actions = {order->choices, order->numbers};
    const struct parley_host_results results = {order->n,      h->observations, h->rewards,
                                                h->terminated, h->truncated,    h->failures};

    h->type->step(h->theirs, order->n, &actions, &out);
    for (size_t i = 0; i < order->n; i++) {
        uint32_t n_steps = ++((struct instance *)order->environments[i])->n_steps;

        if (n_steps == h->type->max_steps && !h->terminated[i])
            h->truncated[i] = true;
    }
    (void)parley_host_answer(host, order->id, &results);
}

/* NULL: the file has no environment that this program was built for. */
static const struct parley_environment *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct parley_environment *type =
        library == NULL ? NULL : dlsym(library, "parley_environment");

    if (type == NULL)
        (void)fprintf(stderr, "%s\n", dlerror());
    else if (type->abi == PARLEY_ENVIRONMENT_ABI && type->size_bytes >= sizeof(*type))
        return type;
    else
        (void)fprintf(stderr, "%s: built for another parley_environment.h\n", path);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct hosting h;
    struct parley_error err = {.status = PARLEY_RESOURCE_EXHAUSTED};
    struct parley_channel *channel;

    if (argc < 3 || (h.type = load(argv[2])) == NULL)
        return 2;
    h.name = argc > 3 ? argv[3] : h.type->name;
    h.observations = calloc(MAX_INSTANCES * (size_t)h.type->n_observations, sizeof(float));
    channel = parley_channel_open(argv[1]);
    if (channel != NULL && h.observations != NULL) {
        const struct parley_host_offer offer = {h.name, h.type->n_observations, h.type->n_actions,
                                                h.type->n_action_numbers, MAX_INSTANCES};
        const struct parley_host_events events = {.accepted = on_accepted,
                                                  .make = on_make,
                                                  .free = on_free,
                                                  .reset = on_reset,
                                                  .step = on_step,
                                                  .arg = &h};

        (void)parley_host_run(channel, &offer, &events, &err);
    }
    (void)fprintf(stderr, "%s: %s\n", parley_status_name(err.status), err.text);
    parley_channel_close(channel);
    free(h.observations);
    return 1;
}
