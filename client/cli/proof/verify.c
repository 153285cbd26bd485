/* parley verify: computes conversations again and compares. */
#include <stdlib.h>
#include <sys/random.h>

#include "cli/output/console.h"
#include "cli/output/out.h"
#include "client/cli/proof/computing.h"
#include "client/cli/proof/report.h"
#include "client/cli/verbs.h"

struct verify {
    struct computing computing;
    uint64_t seed;
    unsigned given;
};

enum { GIVEN_SEED = 1 };

static const struct option_row verify_rows[] = {
    {"seed", "N", "the seed of --sample (a random one, which is printed)", OPTION_U64,
     offsetof(struct verify, seed), GIVEN_SEED},
    {"force", NULL,
     "compute also if the model's file, the engine or its options are others than recorded",
     OPTION_FLAG, offsetof(struct verify, computing.is_forced), 0},
    {0},
};

static void verify_each(void *arg, const struct proof_job *job)
{
    proof_report_job(arg, job);
}

static enum exit_code verify_all(struct verify *v, int n, char **args)
{
    struct computing *c = &v->computing;
    struct proof_report report = {.is_json = c->connection.is_json};

    if (!computing_open(c, n, args))
        return (enum exit_code)COMPUTING_UNCHECKED;
    if (c->n_sample != 0 && (v->given & GIVEN_SEED) == 0 &&
        getrandom(&v->seed, sizeof(v->seed), 0) == (ssize_t)sizeof(v->seed))
        console_line("--seed %llu", (unsigned long long)v->seed);
    proof_jobs_choose(&c->jobs, c->n_sample, v->seed);
    computing_run(c, verify_each, &report);
    proof_report_end(&report);
    if (report.n_differ > 0 || report.n_broken > 0)
        return (enum exit_code)COMPUTING_DIFFERS;
    /* what was not told was not checked */
    return report.n_unchecked > 0 || !out_flush() ? (enum exit_code)COMPUTING_UNCHECKED : EXIT_DONE;
}

enum exit_code verify_run(const struct verb *verb, int argc, char **argv)
{
    struct verify v = {0};
    const struct option_group groups[] = {{computing_rows, &v.computing, NULL},
                                          {verify_rows, &v, &v.given},
                                          {connection_rows, &v.computing.connection, NULL}};
    enum exit_code code;
    const char *misuse;
    int first;

    computing_init(&v.computing);
    if (!options_read(verb, groups, 3, argc, argv, 0, argc, &first, &code)) {
        computing_deinit(&v.computing);
        return code;
    }
    misuse = computing_misuse(&v.computing, argc - first);
    code = misuse == NULL ? verify_all(&v, argc - first, argv + first)
                          : options_misuse(verb, "%s", misuse);
    computing_deinit(&v.computing);
    return code;
}
