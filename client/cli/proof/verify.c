/* parley verify: computes conversations again and compares. A server computes: the one of --server,
 * or, with --model, one of its own that ends with the verb. Several conversations are in flight at
 * once, so that their steps are full, and are printed in the order in which they were given. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "cli/subprocess.h"
#include "client/cli/connection.h"
#include "client/cli/proof/job.h"
#include "client/cli/proof/report.h"
#include "client/cli/verbs.h"

/* As many replies as fill a step with their predictions: each has up to 16 tokens in it. */
enum { VERIFY_IN_FLIGHT = 6 };

/* The exit codes; a wrong command line is EXIT_MISUSE, which is 2, too. */
enum { VERIFY_DIFFERS = 1, VERIFY_UNCHECKED = 2 };

struct verify {
    struct connection_options connection;
    struct option_texts models;
    const char *kv, *backend;
    uint32_t n_sample;
    uint64_t seed;
    bool is_forced;
    unsigned given;
    struct proof_jobs jobs;
    struct served served;
    struct parley_channel *channel;
    pthread_mutex_t lock;
    pthread_cond_t ended; /* a job is done */
};

enum { GIVEN_SEED = 1, GIVEN_SERVER = 2 };

static const struct option_row verify_rows[] = {
    {"model", "[NAME=]FILE", "compute offline, with this model's file; may be given again",
     OPTION_TEXTS, offsetof(struct verify, models), 0},
    {"kv", "TYPE", "with --model: the type of keys and values, as parleyd's --kv", OPTION_TEXT,
     offsetof(struct verify, kv), 0},
    {"backend", "NAME", "with --model: what computes, as parleyd's --backend", OPTION_TEXT,
     offsetof(struct verify, backend), 0},
    {"sample", "N", "compute N turns, drawn from all; 0: all (0)", OPTION_U32,
     offsetof(struct verify, n_sample), 0},
    {"seed", "N", "the seed of --sample (a random one, which is printed)", OPTION_U64,
     offsetof(struct verify, seed), GIVEN_SEED},
    {"force", NULL,
     "compute also if the model's file, the engine or its options are others than recorded",
     OPTION_FLAG, offsetof(struct verify, is_forced), 0},
    {0},
};

/* --- computing --- */

struct verify_flight {
    struct verify *of;
    struct proof_job *job;
};

/* On the channel's thread. */
static void on_verified(void *arg, void *data, size_t len, const struct parley_error *err)
{
    struct verify_flight *f = arg;
    struct proof_job *job = f->job;

    pthread_mutex_lock(&f->of->lock);
    job->err = *err;
    if (err->status == PARLEY_OK) {
        job->answer = parley__v1__conversations_verify_response__unpack(NULL, len, data);
        if (job->answer == NULL)
            (void)snprintf(job->err.text, sizeof(job->err.text),
                           "the server's answer cannot be read");
    }
    job->is_done = true;
    pthread_cond_signal(&f->of->ended);
    pthread_mutex_unlock(&f->of->lock);
    free(data);
    free(f);
}

static void verify_fail(struct proof_job *job, const char *why)
{
    (void)snprintf(job->err.text, sizeof(job->err.text), "%s", why);
    job->is_done = true;
}

static void verify_send(struct verify *v, struct proof_job *job)
{
    struct verify_flight *f;
    struct parley_call *call;
    uint8_t *request;
    size_t len;

    if (job->records.n == 0) {
        verify_fail(job,
                    "the export has no records of it: its server stored none (parleyd --data)");
        return;
    }
    f = xalloc(sizeof(*f));
    *f = (struct verify_flight){v, job};
    len = proof_job_request(&request, job, v->is_forced);
    call = parley_unary_start(v->channel, "/parley.v1.Conversations/Verify", request, len, 0,
                              on_verified, f);
    free(request);
    if (call == NULL) {
        free(f);
        verify_fail(job, "no memory for the request");
        return;
    }
    parley_call_unref(call);
}

static void verify_await(struct verify *v, const struct proof_job *job)
{
    pthread_mutex_lock(&v->lock);
    while (!job->is_done)
        pthread_cond_wait(&v->ended, &v->lock);
    pthread_mutex_unlock(&v->lock);
}

static enum exit_code verify_compute(struct verify *v)
{
    struct proof_report report = {.is_json = v->connection.is_json};
    size_t begun = 0;

    for (size_t i = 0; i < v->jobs.n; i++) {
        for (; begun < v->jobs.n && begun < i + VERIFY_IN_FLIGHT; begun++)
            verify_send(v, &v->jobs.all[begun]);
        verify_await(v, &v->jobs.all[i]);
        proof_report_job(&report, &v->jobs.all[i]);
    }
    proof_report_end(&report);
    if (report.n_differ > 0 || report.n_broken > 0)
        return (enum exit_code)VERIFY_DIFFERS;
    return report.n_unchecked > 0 ? (enum exit_code)VERIFY_UNCHECKED : EXIT_DONE;
}

/* --- what is verified --- */

static bool verify_fetch(struct verify *v, const char *conversation)
{
    struct parley_error err;

    if (proof_jobs_fetch(&v->jobs, v->channel, conversation, &err) == PARLEY_OK)
        return true;
    console_error("conversation %s: %s", conversation, err.text);
    return false;
}

/* All conversations that the server stores. */
static bool verify_fetch_all(struct verify *v)
{
    char token[256] = "";
    bool is_good = true;

    do {
        Parley__V1__ConversationsListRequest request = PARLEY__V1__CONVERSATIONS_LIST_REQUEST__INIT;
        const Parley__V1__ConversationsListResponse *page;
        ProtobufCMessage *answer;
        struct parley_error err;

        request.page_size = 100;
        request.page_token = token;
        if (connection_call(&answer, v->channel, "/parley.v1.Conversations/List", &request.base,
                            &parley__v1__conversations_list_response__descriptor, 0,
                            &err) != PARLEY_OK) {
            console_error("%s", err.text);
            return false;
        }
        page = (const Parley__V1__ConversationsListResponse *)answer;
        for (size_t i = 0; i < page->n_conversations && is_good; i++)
            is_good = verify_fetch(v, page->conversations[i]->conversation);
        (void)snprintf(token, sizeof(token), "%s", page->next_page_token);
        protobuf_c_message_free_unpacked(answer, NULL);
    } while (is_good && *token != '\0');
    return is_good;
}

static bool verify_gather(struct verify *v, int n, char **args)
{
    struct error err;

    for (int i = 0; i < n; i++) {
        const bool is_file = strcmp(args[i], "-") == 0 || access(args[i], R_OK) == 0;

        if (is_file && proof_jobs_read(&v->jobs, args[i], &err) != STATUS_OK) {
            console_error("%s", err.text);
            return false;
        }
        if (!is_file && v->models.n > 0) {
            console_error("%s: %s", args[i], strerror(errno));
            return false;
        }
        if (!is_file && !verify_fetch(v, args[i]))
            return false;
    }
    return n > 0 || verify_fetch_all(v);
}

/* --- the server --- */

static bool verify_serve(struct verify *v)
{
    const char *flags[2 * OPTION_TEXTS_MAX + 8];
    struct error err;
    size_t n = 0;

    for (size_t i = 0; i < v->models.n; i++) {
        flags[n++] = "--model";
        flags[n++] = v->models.texts[i];
    }
    flags[n++] = "--max-message-bytes";
    flags[n++] = "1G";
    if (v->kv != NULL) {
        flags[n++] = "--kv";
        flags[n++] = v->kv;
    }
    if (v->backend != NULL) {
        flags[n++] = "--backend";
        flags[n++] = v->backend;
    }
    if (served_start(&v->served, flags, n, &err) == STATUS_OK) {
        v->connection.server = v->served.address;
        return true;
    }
    console_error("%s", err.text);
    return false;
}

static enum exit_code verify_all(struct verify *v, int n, char **args)
{
    if (v->models.n > 0 && !verify_serve(v))
        return (enum exit_code)VERIFY_UNCHECKED;
    v->channel = connection_open(&v->connection);
    if (v->channel == NULL || !verify_gather(v, n, args))
        return (enum exit_code)VERIFY_UNCHECKED;
    if (v->n_sample != 0 && (v->given & GIVEN_SEED) == 0 &&
        getrandom(&v->seed, sizeof(v->seed), 0) == (ssize_t)sizeof(v->seed))
        console_line("--seed %llu", (unsigned long long)v->seed);
    proof_jobs_choose(&v->jobs, v->n_sample, v->seed);
    return verify_compute(v);
}

enum exit_code verify_run(const struct verb *verb, int argc, char **argv)
{
    struct verify v = {.connection = connection_defaults(),
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .ended = PTHREAD_COND_INITIALIZER};
    const struct option_group groups[] = {{verify_rows, &v, &v.given},
                                          {connection_rows, &v.connection, NULL}};
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 2, argc, argv, 0, argc, &first, &code))
        return code;
    if (v.models.n == 0 && (v.kv != NULL || v.backend != NULL))
        return options_misuse(verb, "--kv and --backend need --model");
    if (v.models.n > 0 && first == argc)
        return options_misuse(verb, "--model needs an export to verify");
    proof_jobs_init(&v.jobs);
    code = verify_all(&v, argc - first, argv + first);
    if (v.channel != NULL)
        parley_channel_close(v.channel);
    served_stop(&v.served, NULL);
    proof_jobs_deinit(&v.jobs);
    return code;
}
