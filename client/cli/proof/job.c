/* A turn is known by the value of the chain at its record, which stands for all that was before.
 * Forks have the records of their parents, and so the same values: the first conversation that has
 * a value checks the turn. */
#include "client/cli/proof/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "client/cli/chat/listing.h"
#include "proto/codec.h"

void proof_jobs_init(struct proof_jobs *jobs)
{
    *jobs = (struct proof_jobs){.seen = json_object()};
}

void proof_jobs_deinit(struct proof_jobs *jobs)
{
    for (size_t i = 0; i < jobs->n; i++) {
        struct proof_job *job = &jobs->all[i];

        free(job->conversation);
        free(job->only);
        records_deinit(&job->records);
        json_decref(job->line);
        json_decref(job->turns);
        if (job->answer != NULL)
            parley__v1__conversations_verify_response__free_unpacked(job->answer, NULL);
    }
    free(jobs->all);
    json_decref(jobs->seen);
}

static struct proof_job *proof_jobs_add(struct proof_jobs *jobs, const char *conversation)
{
    struct proof_job *job;

    if (jobs->n == jobs->cap) {
        jobs->cap = jobs->cap == 0 ? 16 : 2 * jobs->cap;
        jobs->all = xrealloc(jobs->all, jobs->cap * sizeof(jobs->all[0]));
    }
    job = &jobs->all[jobs->n++];
    *job = (struct proof_job){.conversation = xstrdup(conversation)};
    return job;
}

enum parley_status proof_jobs_fetch(struct proof_jobs *jobs, struct parley_channel *channel,
                                    const char *conversation, struct parley_error *err)
{
    struct records records;
    enum parley_status rc = records_get(&records, channel, conversation, err);
    struct proof_job *job;

    if (rc != PARLEY_OK)
        return rc;
    job = proof_jobs_add(jobs, conversation);
    job->is_stored = true;
    job->records = records;
    return PARLEY_OK;
}

/* --- exports --- */

static bool is_conversation_id(const char *text)
{
    return text != NULL && strlen(text) == LISTING_ID_CHARS - 1 &&
           text[strspn(text, "0123456789abcdef")] == '\0';
}

static enum status proof_jobs_line(struct proof_jobs *jobs, json_t *line, size_t first,
                                   struct error *err)
{
    const char *type = json_string_value(json_object_get(line, "type"));
    const char *id = json_string_value(json_object_get(line, "conversation"));
    struct proof_job *job = jobs->n == first ? NULL : &jobs->all[jobs->n - 1];
    Parley__V1__ConversationRecord *m;

    if (type != NULL && strcmp(type, "conversation") == 0) {
        if (!is_conversation_id(id))
            return error_set(err, STATUS_INVALID,
                             "its conversation is not an id of 32 hexadecimal digits");
        job = proof_jobs_add(jobs, id);
        job->line = json_incref(line);
        job->turns = json_array();
        return STATUS_OK;
    }
    if (type == NULL || (strcmp(type, "turn") != 0 && strcmp(type, "record") != 0))
        return error_set(err, STATUS_INVALID, "its type must be conversation, turn or record");
    if (job == NULL)
        return error_set(err, STATUS_INVALID, "a %s comes before the first conversation", type);
    if (strcmp(type, "turn") == 0) {
        (void)json_array_append(job->turns, line);
        return STATUS_OK;
    }
    if (record_read(&m, line, err) != STATUS_OK)
        return err->status;
    records_add(&job->records, m);
    return STATUS_OK;
}

enum status proof_jobs_read(struct proof_jobs *jobs, const char *path, struct error *err)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    const size_t first = jobs->n;
    size_t cap = 0, number = 0;
    char *text = NULL;
    enum status rc = STATUS_OK;
    ssize_t len;

    if (in == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    errno = 0;
    while (rc == STATUS_OK && (len = getline(&text, &cap, in)) >= 0) {
        json_error_t why;
        json_t *line = json_loadb(text, (size_t)len, JSON_REJECT_DUPLICATES, &why);

        number++;
        rc = line == NULL ? error_set(err, STATUS_INVALID, "%s", why.text)
                          : proof_jobs_line(jobs, line, first, err);
        json_decref(line);
    }
    if (rc != STATUS_OK)
        rc = error_prefix(err, "%s, line %zu", path, number);
    else if (ferror(in) != 0)
        rc = error_set(err, STATUS_UNKNOWN, "%s: %s", path, strerror(errno));
    else if (jobs->n == first)
        rc = error_set(err, STATUS_INVALID, "%s has no conversation", path);
    free(text);
    if (in != stdin)
        (void)fclose(in);
    return rc;
}

/* --- which turns --- */

/* Keeps n of the chosen turns of all jobs, each choice as likely as any other. */
static void proof_jobs_sample(struct proof_jobs *jobs, size_t n_all, size_t n, uint64_t seed)
{
    size_t n_left = n_all, n_wanted = n;

    for (size_t i = 0; i < jobs->n; i++) {
        struct proof_job *job = &jobs->all[i];
        size_t kept = 0;

        for (size_t k = 0; k < job->n_only; k++, n_left--) {
            const float at = counter_rng_uniform(seed, (uint32_t)i, (uint32_t)k, 0);

            if ((double)at * (double)n_left >= (double)n_wanted)
                continue;
            n_wanted--;
            job->only[kept++] = job->only[k];
        }
        job->n_only = kept;
    }
}

void proof_jobs_choose(struct proof_jobs *jobs, size_t n_sample, uint64_t seed)
{
    size_t n_all = 0;

    for (size_t i = 0; i < jobs->n; i++) {
        struct proof_job *job = &jobs->all[i];

        job->only = xalloc((job->records.n + 1) * sizeof(job->only[0]));
        for (size_t k = 0; k < job->records.n; k++) {
            const Parley__V1__ConversationRecord *m = job->records.all[k];

            if (!record_ends_turn(m))
                continue;
            job->n_turns++;
            if (!jobs->is_whole && json_object_get(jobs->seen, m->chain) != NULL) {
                job->n_shared++;
                continue;
            }
            (void)json_object_set_new(jobs->seen, m->chain, json_true());
            job->only[job->n_only++] = (uint32_t)k;
        }
        n_all += job->n_only;
    }
    if (n_sample != 0 && n_sample < n_all)
        proof_jobs_sample(jobs, n_all, n_sample, seed);
}

void proof_request_init(struct proof_request *r, struct proof_job *job, bool is_forced,
                        Parley__V1__VerifyChanges *changes)
{
    static uint32_t none[1]; /* the first record ends no turn */
    const size_t n = job->is_stored ? 0 : job->records.n;
    ProtobufCBinaryData *records = xalloc((n + 1) * sizeof(records[0]));

    *r = (struct proof_request){.message = PARLEY__V1__CONVERSATIONS_VERIFY_REQUEST__INIT};
    for (size_t i = 0; i < n; i++) {
        Parley__V1__ConversationRecord m = *job->records.all[i];

        m.accepted = NULL; /* the body says it */
        m.replied = NULL;
        m.terms = NULL;
        records[i].data = xalloc(codec_size(&m.base) + 1);
        records[i].len = codec_encode(&m.base, records[i].data);
        r->records_bytes += records[i].len;
    }
    r->message.conversation = job->is_stored ? job->conversation : (char *)"";
    r->message.records = records;
    r->message.n_records = n;
    r->message.force = is_forced;
    r->message.changes = changes;
    r->message.only = job->n_only == 0 ? none : job->only;
    r->message.n_only = job->n_only == 0 ? 1 : job->n_only;
}

void proof_request_deinit(struct proof_request *r)
{
    for (size_t i = 0; i < r->message.n_records; i++)
        free(r->message.records[i].data);
    free(r->message.records);
}
