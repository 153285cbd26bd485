/* Conversations that a server computes again: what verify and rerun have in common. The server is
 * the one of --server or, with --model, one that is started for the verb. */
#ifndef CLIENT_CLI_PROOF_COMPUTING_H
#define CLIENT_CLI_PROOF_COMPUTING_H

#include <pthread.h>

#include "cli/subprocess.h"
#include "client/cli/connection.h"
#include "client/cli/proof/job.h"

/* The exit codes; a wrong command line is EXIT_MISUSE, which is 2, too. */
enum { COMPUTING_DIFFERS = 1, COMPUTING_UNCHECKED = 2 };

struct computing {
    struct connection_options connection;
    struct option_texts models, templates;
    const char *kv, *backend;
    uint32_t n_sample;
    bool is_forced;
    bool sends_records;                 /* also of conversations that the server stores */
    Parley__V1__VerifyChanges *changes; /* NULL: none; borrowed */
    /* Of the functions below. */
    struct proof_jobs jobs;
    struct served served;
    struct parley_channel *channel;
    pthread_mutex_t lock;
    pthread_cond_t ended; /* a job is done */
};

/* The rows of --model, --kv, --backend, --chat-template and --sample. */
extern const struct option_row computing_rows[];

void computing_init(struct computing *c);
/* What is wrong with the options and the n arguments; NULL: nothing. */
const char *computing_misuse(const struct computing *c, int n);
/* Starts or finds the server, and reads the conversations that the n arguments name: files, "-",
 * ids; none: all that the server stores. False: an error was printed. */
bool computing_open(struct computing *c, int n, char **args);
/* Computes the chosen turns (proof_jobs_choose), with several conversations in flight, and calls
 * each for the conversations in their order. */
void computing_run(struct computing *c, void (*each)(void *arg, const struct proof_job *job),
                   void *arg);
void computing_deinit(struct computing *c);

#endif
