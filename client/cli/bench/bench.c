#include <string.h>

#include "cli/options/verb.h"

/* The named benches; an address instead of a name starts the load tester. */
static const struct verb benches[] = {
    {"bench cartpole", "[OPTION]…",
     "Measure the table of PyTorch's batch RPC tutorial: CartPole with and without batching.",
     bench_cartpole_run},
    {"bench params", "[OPTION]…",
     "Measure rounds of a parameter server, and compare them with gRPC alone.", bench_params_run},
    {0},
};

enum exit_code bench_run(const struct verb *verb, int argc, char **argv)
{
    int at = verb_index(argc, argv);

    for (const struct verb *b = benches; at > 0 && b->name != NULL; b++)
        if (strcmp(strchr(b->name, ' ') + 1, argv[at]) == 0)
            return verb_run(b, argc, argv, at);
    return bench_load_run(verb, argc, argv);
}
