/* A turn is known by the value of the chain at its record, which stands for all that was before.
 * Forks have the records of their parents, and so the same values: the first conversation that has
 * a value checks the turn. */
#include "client/cli/proof/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "cli/output/json_lines.h"
#include "client/cli/chat/listing.h"
#include "proto/codec.h"

/* An export. */
struct proof_source {
    char *path;
    FILE *once; /* what cannot be read twice, until it has been read; NULL: the path can */
    FILE *copy; /* of what was read once */
};

static void proof_source_leave(struct proof_source *s)
{
    if (s->once != NULL && s->once != stdin)
        (void)fclose(s->once); /* only read */
    s->once = NULL;
}

static void proof_source_close(struct proof_source *s)
{
    proof_source_leave(s);
    if (s->copy != NULL)
        (void)fclose(s->copy); /* it is forgotten */
    free(s->path);
    free(s);
}

void proof_jobs_init(struct proof_jobs *jobs)
{
    *jobs = (struct proof_jobs){.seen = json_object()};
}

void proof_jobs_deinit(struct proof_jobs *jobs)
{
    for (size_t i = 0; i < jobs->n; i++) {
        free(jobs->all[i].conversation);
        free(jobs->all[i].only);
        proof_job_unload(&jobs->all[i]);
    }
    free(jobs->all);
    for (size_t i = 0; i < jobs->n_sources; i++)
        proof_source_close(jobs->sources[i]);
    free(jobs->sources);
    json_decref(jobs->seen);
}

void proof_job_unload(struct proof_job *job)
{
    records_deinit(&job->records);
    json_decref(job->line);
    json_decref(job->turns);
    job->line = job->turns = NULL;
    if (job->answer != NULL)
        parley__v1__conversations_verify_response__free_unpacked(job->answer, NULL);
    job->answer = NULL;
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

/* Counts the next record of a job, and chooses its turn unless another job has it. */
static void proof_jobs_count(struct proof_jobs *jobs, struct proof_job *job,
                             const Parley__V1__ConversationRecord *m)
{
    const size_t at = job->n_records++;

    job->n_bytes += m->body.len;
    if (!record_ends_turn(m))
        return;
    job->n_turns++;
    if (!jobs->is_whole && json_object_get(jobs->seen, m->chain) != NULL) {
        job->n_shared++;
        return;
    }
    (void)json_object_set_new(jobs->seen, m->chain, json_true());
    if (job->n_only == job->cap_only) {
        job->cap_only = job->cap_only == 0 ? 4 : 2 * job->cap_only;
        job->only = xrealloc(job->only, job->cap_only * sizeof(job->only[0]));
    }
    job->only[job->n_only++] = (uint32_t)at;
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
    for (size_t i = 0; i < records.n; i++)
        proof_jobs_count(jobs, job, records.all[i]);
    records_deinit(&records);
    return PARLEY_OK;
}

/* --- exports --- */

static bool is_conversation_id(const char *text)
{
    return text != NULL && strlen(text) == LISTING_ID_CHARS - 1 &&
           text[strspn(text, "0123456789abcdef")] == '\0';
}

static bool is_line(const json_t *line, const char *type)
{
    const char *is = json_string_value(json_object_get(line, "type"));

    return is != NULL && strcmp(is, type) == 0;
}

/* What a pass over an export does with its lines. */
struct proof_pass {
    struct proof_jobs *jobs; /* conversations and turns are counted; NULL: job is read */
    struct proof_job *job;   /* the one that the lines are of; NULL: none yet */
    bool is_over;
};

static enum status proof_pass_count(struct proof_pass *p, struct proof_source *s, json_t *line,
                                    off_t at, struct error *err)
{
    const char *type = json_string_value(json_object_get(line, "type"));
    const char *id = json_string_value(json_object_get(line, "conversation"));
    Parley__V1__ConversationRecord *m;

    if (is_line(line, "conversation")) {
        if (!is_conversation_id(id))
            return error_set(err, STATUS_INVALID,
                             "its conversation is not an id of 32 hexadecimal digits");
        p->job = proof_jobs_add(p->jobs, id);
        p->job->source = s;
        p->job->at = at;
        return STATUS_OK;
    }
    if (!is_line(line, "turn") && !is_line(line, "record"))
        return error_set(err, STATUS_INVALID, "its type must be conversation, turn or record");
    if (p->job == NULL)
        return error_set(err, STATUS_INVALID, "a %s comes before the first conversation", type);
    if (is_line(line, "turn"))
        return STATUS_OK;
    if (record_read(&m, line, err) != STATUS_OK)
        return err->status;
    proof_jobs_count(p->jobs, p->job, m);
    parley__v1__conversation_record__free_unpacked(m, NULL);
    return STATUS_OK;
}

static enum status proof_pass_load(struct proof_pass *p, json_t *line, struct error *err)
{
    struct proof_job *job = p->job;
    Parley__V1__ConversationRecord *m;

    if (is_line(line, "conversation")) {
        p->is_over = job->line != NULL;
        if (!p->is_over) {
            job->line = json_incref(line);
            job->turns = json_array();
        }
        return STATUS_OK;
    }
    if (is_line(line, "turn"))
        (void)json_array_append(job->turns, line);
    if (!is_line(line, "record"))
        return STATUS_OK;
    if (record_read(&m, line, err) != STATUS_OK)
        return err->status;
    records_add(&job->records, m);
    return STATUS_OK;
}

/* The place where the source is read; it is read from the begin first. */
static FILE *proof_source_at(struct proof_source *s, off_t from)
{
    FILE *in = s->once != NULL ? s->once : s->copy != NULL ? s->copy : fopen(s->path, "re");

    if (in != NULL && in != s->once && fseeko(in, from, SEEK_SET) != 0) {
        if (in != s->copy)
            (void)fclose(in); /* only read */
        return NULL;
    }
    return in;
}

/* What is read once is kept for the next pass. */
static bool proof_source_keep(struct proof_source *s, const struct json_lines *lines)
{
    if (s->once == NULL)
        return true;
    return lines->len > 0 ? fwrite(lines->text, 1, lines->len, s->copy) == lines->len
                          : fflush(s->copy) == 0;
}

/* Passes over the lines from a place on. */
static enum status proof_source_pass(struct proof_source *s, off_t from, struct proof_pass *p,
                                     struct error *err)
{
    FILE *in = proof_source_at(s, from);
    struct json_lines lines = {.in = in};
    enum status rc = STATUS_OK;
    bool is_over = false;

    if (in == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", s->path, strerror(errno));
    while (rc == STATUS_OK && !is_over) {
        const off_t at = ftello(in == s->once ? s->copy : in);
        json_t *line = NULL;

        rc = json_lines_next(&lines, &line, JSON_REJECT_DUPLICATES, err);
        if (rc == STATUS_OK && !proof_source_keep(s, &lines))
            rc = error_set(err, STATUS_UNKNOWN, "a copy of it: %s", strerror(errno));
        if (rc == STATUS_OK && line != NULL)
            rc = p->jobs != NULL ? proof_pass_count(p, s, line, at, err)
                                 : proof_pass_load(p, line, err);
        is_over = line == NULL || p->is_over;
        json_decref(line);
    }
    if (rc != STATUS_OK)
        rc = error_prefix(err, "%s, line %zu", s->path, lines.number);
    json_lines_deinit(&lines);
    if (in == s->once)
        proof_source_leave(s);
    else if (in != s->copy)
        (void)fclose(in); /* only read */
    return rc;
}

static enum status proof_source_open(struct proof_source **out, const char *path, struct error *err)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    struct proof_source *s;
    struct stat st;

    if (in == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    s = xalloc(sizeof(*s));
    *s = (struct proof_source){.path = xstrdup(path), .once = in};
    if (in != stdin && fstat(fileno(in), &st) == 0 && S_ISREG(st.st_mode)) {
        proof_source_leave(s);
    } else if ((s->copy = tmpfile()) == NULL) {
        (void)error_set(err, STATUS_UNKNOWN, "a copy of %s: %s", path, strerror(errno));
        proof_source_close(s);
        return err->status;
    }
    *out = s;
    return STATUS_OK;
}

enum status proof_jobs_read(struct proof_jobs *jobs, const char *path, struct error *err)
{
    struct proof_pass pass = {.jobs = jobs};
    const size_t first = jobs->n;
    struct proof_source *s = NULL;
    enum status rc = proof_source_open(&s, path, err);

    if (rc != STATUS_OK)
        return rc;
    jobs->sources = xrealloc(jobs->sources, (jobs->n_sources + 1) * sizeof(jobs->sources[0]));
    jobs->sources[jobs->n_sources++] = s;
    rc = proof_source_pass(s, 0, &pass, err);
    if (rc == STATUS_OK && jobs->n == first)
        rc = error_set(err, STATUS_INVALID, "%s has no conversation", path);
    return rc;
}

enum status proof_job_load(struct proof_job *job, struct parley_channel *channel, struct error *err)
{
    struct proof_pass pass = {.job = job};
    enum status rc = STATUS_OK;
    struct parley_error why;

    if (job->is_stored)
        return STATUS_OK;
    if (job->source != NULL) {
        rc = proof_source_pass(job->source, job->at, &pass, err);
        if (rc == STATUS_OK && (job->line == NULL || job->records.n != job->n_records))
            rc = error_set(err, STATUS_ABORTED, "%s has changed meanwhile", job->source->path);
    } else if (records_get(&job->records, channel, job->conversation, &why) != PARLEY_OK) {
        rc = error_set(err, (enum status)why.status, "%s", why.text);
    }
    if (rc != STATUS_OK)
        proof_job_unload(job);
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

    for (size_t i = 0; i < jobs->n; i++)
        n_all += jobs->all[i].n_only;
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
    if (job->n_only == job->n_turns && job->n_turns > 0) /* all, without their places */
        return;
    r->message.only = job->n_only == 0 ? none : job->only;
    r->message.n_only = job->n_only == 0 ? 1 : job->n_only;
}

void proof_request_deinit(struct proof_request *r)
{
    for (size_t i = 0; i < r->message.n_records; i++)
        free(r->message.records[i].data);
    free(r->message.records);
}
