/* Several conversations are in flight at once, so that the server's steps are full. What comes back
 * is handed on in the order in which the conversations were given. */
#include "client/cli/proof/computing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/output/console.h"
#include "client/cli/chat/listing.h"
#include "client/lib/duplex.h"
#include "proto/codec.h"

/* As many replies as fill a step with their predictions: each has up to 16 tokens in it. A
 * conversation with more bytes than these goes alone. */
enum { COMPUTING_IN_FLIGHT = 6, COMPUTING_IN_FLIGHT_BYTES = 64 << 20 };

/* A server's messages have at most 4 MiB, by default, and 16,384 fields, of which a record is one:
 * more records than a part may have are sent in parts. */
enum { PART_BYTES = 1 << 20, PART_RECORDS = 4096 };

const struct option_row computing_rows[] = {
    {"model", "[NAME=]FILE", "compute offline, with this model's file; may be given again",
     OPTION_TEXTS, offsetof(struct computing, models), 0},
    {"kv", "TYPE", "with --model: the type of keys and values, as parleyd's --kv", OPTION_TEXT,
     offsetof(struct computing, kv), 0},
    {"backend", "NAME", "with --model: what computes, as parleyd's --backend", OPTION_TEXT,
     offsetof(struct computing, backend), 0},
    {"chat-template", "[MODEL=]FILE", "with --model: the chat template, as parleyd's", OPTION_TEXTS,
     offsetof(struct computing, templates), 0},
    {"sample", "N", "compute N turns, drawn from all; 0: all (0)", OPTION_U32,
     offsetof(struct computing, n_sample), 0},
    {0},
};

/* --- computing --- */

struct computing_flight {
    struct computing *of;
    struct proof_job *job;
};

static void computing_end(struct computing_flight *f, const struct parley_error *err)
{
    struct proof_job *job = f->job;

    pthread_mutex_lock(&f->of->lock);
    job->err = *err;
    if (err->status == PARLEY_OK && job->answer == NULL)
        (void)snprintf(job->err.text, sizeof(job->err.text), "the server's answer cannot be read");
    job->is_done = true;
    pthread_cond_signal(&f->of->ended);
    pthread_mutex_unlock(&f->of->lock);
    free(f);
}

/* On the channel's thread, as the next two. */
static void on_verified(void *arg, void *data, size_t len, const struct parley_error *err)
{
    struct computing_flight *f = arg;

    if (err->status == PARLEY_OK)
        f->job->answer = parley__v1__conversations_verify_response__unpack(NULL, len, data);
    free(data);
    computing_end(f, err);
}

static void on_upload_message(void *arg, const void *data, size_t len)
{
    struct computing_flight *f = arg;

    if (f->job->answer == NULL)
        f->job->answer = parley__v1__conversations_verify_response__unpack(NULL, len, data);
}

static void on_upload_end(void *arg, const struct parley_error *err)
{
    struct computing_flight *f = arg;

    if (err->status != PARLEY_OK && f->job->answer != NULL) {
        parley__v1__conversations_verify_response__free_unpacked(f->job->answer, NULL);
        f->job->answer = NULL;
    }
    computing_end(f, err);
}

static void computing_fail(struct proof_job *job, const char *why)
{
    (void)snprintf(job->err.text, sizeof(job->err.text), "%s", why);
    job->is_done = true;
}

static struct parley_call *computing_ask(struct computing_flight *f,
                                         const Parley__V1__ConversationsVerifyRequest *m)
{
    uint8_t *bytes = xalloc(codec_size(&m->base) + 1);
    struct parley_call *call =
        parley_unary_start(f->of->channel, "/parley.v1.Conversations/Verify", bytes,
                           codec_encode(&m->base, bytes), 0, on_verified, f);

    free(bytes);
    return call;
}

/* Sends the records part by part. What cannot be sent is reported by the call's end. */
static struct parley_call *computing_upload(struct computing_flight *f,
                                            const Parley__V1__ConversationsVerifyRequest *all)
{
    const struct duplex_events events = {on_upload_message, on_upload_end, f};
    struct parley_call *call =
        duplex_start(f->of->channel, "/parley.v1.Conversations/VerifyUpload", &events);
    Parley__V1__ConversationsVerifyRequest m = *all;
    const size_t n = all->n_records;
    size_t at = 0, bytes;

    if (call == NULL)
        return NULL;
    do {
        m.records = all->records + at;
        m.n_records = 0;
        for (bytes = 0; at < n && m.n_records < PART_RECORDS &&
                        (m.n_records == 0 || bytes + all->records[at].len <= PART_BYTES);
             at++) {
            bytes += all->records[at].len;
            m.n_records++;
        }
        (void)duplex_send(call, &m.base);
        m = (Parley__V1__ConversationsVerifyRequest)PARLEY__V1__CONVERSATIONS_VERIFY_REQUEST__INIT;
    } while (at < n);
    parley_call_half_close(call);
    return call;
}

static void computing_send(struct computing *c, struct proof_job *job)
{
    struct proof_request request;
    struct computing_flight *f;
    struct parley_call *call;
    struct error err;

    if (job->n_records == 0) {
        computing_fail(job,
                       "the export has no records of it: its server stored none (parleyd --data)");
        return;
    }
    if (proof_job_load(job, c->channel, &err) != STATUS_OK) {
        computing_fail(job, err.text);
        return;
    }
    f = xalloc(sizeof(*f));
    *f = (struct computing_flight){c, job};
    proof_request_init(&request, job, c->is_forced, c->changes);
    call = request.records_bytes > PART_BYTES || request.message.n_records > PART_RECORDS
               ? computing_upload(f, &request.message)
               : computing_ask(f, &request.message);
    proof_request_deinit(&request);
    if (call == NULL) {
        free(f);
        computing_fail(job, "no memory for the request");
        return;
    }
    parley_call_unref(call);
}

static void computing_await(struct computing *c, const struct proof_job *job)
{
    pthread_mutex_lock(&c->lock);
    while (!job->is_done)
        pthread_cond_wait(&c->ended, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

void computing_run(struct computing *c, void (*each)(void *arg, const struct proof_job *job),
                   void *arg)
{
    struct proof_job *all = c->jobs.all;
    size_t begun = 0, n_bytes = 0; /* in flight */

    for (size_t i = 0; i < c->jobs.n; i++) {
        for (; begun < c->jobs.n && begun < i + COMPUTING_IN_FLIGHT &&
               (begun == i || n_bytes + all[begun].n_bytes <= COMPUTING_IN_FLIGHT_BYTES);
             begun++) {
            n_bytes += all[begun].n_bytes;
            computing_send(c, &all[begun]);
        }
        computing_await(c, &all[i]);
        each(arg, &all[i]);
        proof_job_unload(&all[i]);
        n_bytes -= all[i].n_bytes;
    }
}

/* --- what is computed --- */

static enum parley_status computing_fetch(struct computing *c, const char *conversation,
                                          struct parley_error *err)
{
    enum parley_status rc = proof_jobs_fetch(&c->jobs, c->channel, conversation, err);

    if (rc == PARLEY_OK)
        c->jobs.all[c->jobs.n - 1].is_stored = !c->sends_records;
    return rc;
}

struct fetch_all {
    struct computing *computing;
    size_t n_unstored;
    struct parley_error unstored; /* of the last of them */
    bool is_good;
};

static bool fetch_one(void *arg, const Parley__V1__Conversation *conversation)
{
    struct fetch_all *f = arg;
    struct parley_error err;

    if (computing_fetch(f->computing, conversation->conversation, &err) == PARLEY_OK)
        return true;
    if (err.status == PARLEY_FAILED_PRECONDITION) {
        f->n_unstored++;
        f->unstored = err;
        return true;
    }
    if (strcmp(err.reason, "CONVERSATION_NOT_FOUND") == 0) {
        console_line("conversation %s was closed meanwhile", conversation->conversation);
        return true;
    }
    console_error("conversation %s: %s", conversation->conversation, err.text);
    f->is_good = false;
    return false;
}

/* All conversations that the server stores; it has others, too, which come and go. */
static bool computing_fetch_all(struct computing *c)
{
    struct fetch_all f = {.computing = c, .is_good = true};
    struct parley_error err;

    if (listing_each(c->channel, NULL, 0, fetch_one, &f, NULL, &err) != PARLEY_OK) {
        console_error("%s", err.text);
        return false;
    }
    if (!f.is_good)
        return false;
    if (f.n_unstored > 0 && c->jobs.n == 0) { /* nothing would be checked */
        console_error("%s", f.unstored.text);
        return false;
    }
    if (f.n_unstored > 0)
        console_line("conversations left out, which the server does not store: %zu", f.n_unstored);
    return true;
}

/* What has a '/', or ends as an export's name, is no id. */
static bool computing_is_file(const char *arg)
{
    const char *end = strrchr(arg, '.');

    return strcmp(arg, "-") == 0 || strchr(arg, '/') != NULL || access(arg, R_OK) == 0 ||
           (end != NULL && (strcmp(end, ".json") == 0 || strcmp(end, ".jsonl") == 0));
}

/* Before a server is asked or started, so that a wrong file is said at once. */
static bool computing_read_files(struct computing *c, int n, char **args)
{
    struct error err;

    for (int i = 0; i < n; i++) {
        if (!computing_is_file(args[i]) && c->models.n > 0) {
            console_error("%s: %s", args[i], strerror(ENOENT));
            return false;
        }
        if (computing_is_file(args[i]) && proof_jobs_read(&c->jobs, args[i], &err) != STATUS_OK) {
            console_error("%s", err.text);
            return false;
        }
    }
    return true;
}

static bool computing_fetch_ids(struct computing *c, int n, char **args)
{
    char id[LISTING_ID_CHARS];
    struct parley_error err;

    for (int i = 0; i < n; i++) {
        if (computing_is_file(args[i]))
            continue;
        if (listing_resolve(id, c->channel, args[i], &err) != PARLEY_OK ||
            computing_fetch(c, id, &err) != PARLEY_OK) {
            console_error("conversation %s: %s", args[i], err.text);
            return false;
        }
    }
    return n > 0 || computing_fetch_all(c);
}

/* --- the server --- */

/* parleyd's --model wants a name. The caller frees the result. */
static char *computing_named(const char *model, size_t i)
{
    char *out;

    if (strchr(model, '=') != NULL)
        return xstrdup(model);
    if (asprintf(&out, "model%zu=%s", i + 1, model) < 0)
        abort(); /* as xalloc */
    return out;
}

static bool computing_serve(struct computing *c)
{
    const char *flags[4 * OPTION_TEXTS_MAX + 8];
    char *models[OPTION_TEXTS_MAX];
    enum status rc;
    struct error err;
    size_t n = 0;

    for (size_t i = 0; i < c->models.n; i++) {
        models[i] = computing_named(c->models.texts[i], i);
        flags[n++] = "--model";
        flags[n++] = models[i];
    }
    for (size_t i = 0; i < c->templates.n; i++) {
        flags[n++] = "--chat-template";
        flags[n++] = c->templates.texts[i];
    }
    flags[n++] = "--max-message-bytes";
    flags[n++] = "1G";
    if (c->kv != NULL) {
        flags[n++] = "--kv";
        flags[n++] = c->kv;
    }
    if (c->backend != NULL) {
        flags[n++] = "--backend";
        flags[n++] = c->backend;
    }
    rc = served_start(&c->served, flags, n, &err);
    for (size_t i = 0; i < c->models.n; i++)
        free(models[i]);
    if (rc == STATUS_OK)
        c->connection.server = c->served.address;
    else
        console_error("%s", err.text);
    return rc == STATUS_OK;
}

void computing_init(struct computing *c)
{
    *c = (struct computing){.connection = connection_defaults(),
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .ended = PTHREAD_COND_INITIALIZER};
    proof_jobs_init(&c->jobs);
}

const char *computing_misuse(const struct computing *c, int n)
{
    if (c->models.n == 0 && (c->kv != NULL || c->backend != NULL || c->templates.n > 0))
        return "--kv, --backend and --chat-template need --model";
    return c->models.n > 0 && n == 0 ? "--model needs an export" : NULL;
}

bool computing_open(struct computing *c, int n, char **args)
{
    if (!computing_read_files(c, n, args) || (c->models.n > 0 && !computing_serve(c)))
        return false;
    c->channel = connection_open(&c->connection, NULL);
    return c->channel != NULL && computing_fetch_ids(c, n, args);
}

void computing_deinit(struct computing *c)
{
    if (c->channel != NULL)
        parley_channel_close(c->channel);
    served_stop(&c->served, NULL);
    proof_jobs_deinit(&c->jobs);
}
