/* The happy path: upload_add submits a chunk to the compute thread as a job, which copies it into
 * the block, computes both checksums, and looks for non-finite values while the bytes are in the
 * cache. Jobs of one thread run in order, so the total hash covers the chunks in theirs; upload_end
 * is the last job. The first failure ends the upload; the results of the remaining jobs are
 * ignored. Numbers in shared memory are copied by that last job alone. */
#include "server/params/upload.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct upload_job {
    struct job job;
    struct upload *upload;
    bool is_used;
    struct upload_chunk chunk;
    struct error err; /* the compute thread's until the job is back */
};

struct upload {
    struct upload_config config;
    struct upload_events events;
    float *block; /* NULL if is_ignored */
    size_t size_bytes, received_bytes;
    struct sha256 *sha; /* the compute thread's while a job is in flight; NULL if is_crc_only */
    uint8_t sha_due[SHA256_BYTES];
    size_t n_jobs; /* in flight */
    bool was_full; /* on_ready must be called */
    bool is_ending, is_over, is_dropped;
    struct upload_job jobs[UPLOAD_MAX_JOBS];
};

static void upload_free(struct upload *u)
{
    params_memory_give(u->config.memory, u->block);
    params_memory_unref(u->config.memory);
    params_shared_unref(u->config.shared);
    sha256_close(u->sha);
    free(u);
}

enum status upload_open(struct upload **out, const struct upload_config *config,
                        const struct upload_events *events, struct error *err)
{
    struct upload *u = try_alloc(1, sizeof(*u));
    enum status rc = STATUS_OK;

    if (u == NULL)
        return error_no_memory(err, sizeof(*u), "an upload");
    u->config = *config;
    u->config.memory = params_memory_ref(config->memory);
    if (config->shared != NULL)
        u->config.shared = params_shared_ref(config->shared);
    u->events = *events;
    u->size_bytes = config->spec->n * sizeof(float);
    for (size_t i = 0; i < UPLOAD_MAX_JOBS; i++)
        u->jobs[i].upload = u;
    if (!config->is_ignored)
        rc = params_memory_take(&u->block, config->memory, err);
    if (rc == STATUS_PRECONDITION) /* too large for any memory */
        (void)error_name_field(err, "specs");
    if (rc == STATUS_OK && !config->is_crc_only && config->shared == NULL)
        rc = sha256_open(&u->sha, err);
    if (rc == STATUS_OK)
        *out = u;
    else
        upload_free(u);
    return rc;
}

void upload_drop(struct upload *u)
{
    if (u == NULL)
        return;
    u->is_dropped = true;
    if (u->n_jobs == 0)
        upload_free(u);
}

bool upload_is_ready(const struct upload *u)
{
    return u->n_jobs < UPLOAD_MAX_JOBS && !u->is_ending;
}

bool upload_is_empty(const struct upload *u)
{
    return u->received_bytes == 0;
}

float *upload_take(struct upload *u)
{
    float *block = u->block;

    assert(u->n_jobs == 0);
    u->block = NULL;
    return block;
}

static void upload_finish(struct upload *u, const struct error *err)
{
    if (u->is_over || u->is_dropped)
        return;
    u->is_over = true;
    u->events.ended(u->events.arg, err);
}

static void job_done(struct job *job)
{
    struct upload_job *j = container_of(job, struct upload_job, job);
    struct upload *u = j->upload;
    struct error err = j->err;
    bool is_last = u->is_ending && u->n_jobs == 1;
    bool was_full = u->was_full;

    if (j->chunk.release != NULL)
        j->chunk.release(j->chunk.arg);
    j->is_used = false;
    u->n_jobs--;
    if (u->is_dropped) {
        if (u->n_jobs == 0)
            upload_free(u);
        return;
    }
    u->was_full = false;
    if (err.status != STATUS_OK || is_last)
        upload_finish(u, &err); /* may drop u */
    else if (was_full && !u->is_over)
        u->events.on_ready(u->events.arg);
}

static void submit(struct upload *u, const struct upload_chunk *chunk, job_fn run)
{
    struct upload_job *j = u->jobs;

    while (j->is_used)
        j++;
    assert(j < u->jobs + UPLOAD_MAX_JOBS);
    j->is_used = true;
    j->chunk = *chunk;
    j->err = (struct error){0};
    j->job = (struct job){.run = run, .done = job_done};
    u->n_jobs++;
    u->was_full = u->n_jobs == UPLOAD_MAX_JOBS;
    model_run(u->config.model, &j->job);
}

static void params_upload_hash(void *arg, const void *data, size_t size_bytes)
{
    sha256_add(arg, data, size_bytes);
}

/* Compute thread. */
static void run_chunk(struct job *job)
{
    struct upload_job *j = container_of(job, struct upload_job, job);
    const struct chunk *c = &j->chunk.chunk;
    struct upload *u = j->upload;
    uint32_t crc = chunk_copy((char *)u->block + c->offset, c, j->chunk.pieces,
                              u->sha != NULL ? params_upload_hash : NULL, u->sha);

    if (crc != c->crc)
        (void)error_because(&j->err, STATUS_DATA_LOSS, REASON_CHECKSUM_DIFFERS, "crc32c",
                            "the chunk at %llu has the crc32c %08x, not %08x as was said",
                            (unsigned long long)c->offset, crc, c->crc);
    else if (!u->config.may_be_non_finite)
        /* the failure is in j->err */
        (void)!params_spec_check_finite(u->config.spec, u->block, c->offset / sizeof(float),
                                        c->size_bytes / sizeof(float), &j->err);
}

static enum status check_chunk(const struct upload *u, const struct chunk *c, struct error *err)
{
    if (u->config.shared != NULL)
        return error_field(err, "chunk", "was sent, but the header says in_memory");
    if (c->offset != u->received_bytes)
        return error_field(err, "offset", "is %llu, the chunk at %zu is due",
                           (unsigned long long)c->offset, u->received_bytes);
    if (c->size_bytes == 0 || c->size_bytes > UPLOAD_MAX_CHUNK_BYTES ||
        c->size_bytes % sizeof(float) != 0)
        return error_field(err, "data", "has %zu bytes, a chunk has from 4 to %d, a multiple of 4",
                           c->size_bytes, UPLOAD_MAX_CHUNK_BYTES);
    if (c->size_bytes > u->size_bytes - u->received_bytes)
        return error_field(err, "data", "goes beyond the %zu bytes that all tensors have",
                           u->size_bytes);
    return STATUS_OK;
}

enum status upload_add(struct upload *u, const struct upload_chunk *chunk, struct error *err)
{
    enum status rc = check_chunk(u, &chunk->chunk, err);

    assert(upload_is_ready(u));
    if (rc != STATUS_OK || u->block == NULL)
        chunk->release(chunk->arg);
    if (rc != STATUS_OK)
        return rc;
    u->received_bytes += chunk->chunk.size_bytes;
    if (u->block != NULL)
        submit(u, chunk, run_chunk);
    return STATUS_OK;
}

/* Compute thread. The client may still write to its memory: what is checked is the copy. */
static void run_from_memory(struct job *job)
{
    struct upload_job *j = container_of(job, struct upload_job, job);
    struct upload *u = j->upload;
    const size_t step = UPLOAD_MAX_CHUNK_BYTES / sizeof(float);
    const size_t n = u->config.spec->n;

    for (size_t at = 0; at < n && j->err.status == STATUS_OK; at += step) {
        const size_t some = n - at < step ? n - at : step;

        memcpy(u->block + at, u->config.shared->gradient + at, some * sizeof(float));
        if (!u->config.may_be_non_finite)
            /* the failure is in j->err */
            (void)!params_spec_check_finite(u->config.spec, u->block, at, some, &j->err);
    }
}

/* Compute thread. */
static void run_end(struct job *job)
{
    struct upload_job *j = container_of(job, struct upload_job, job);
    struct upload *u = j->upload;
    uint8_t sha[SHA256_BYTES];

    if (u->sha == NULL)
        return;
    sha256_take(u->sha, sha);
    if (u->block != NULL && memcmp(sha, u->sha_due, sizeof(sha)) != 0)
        (void)error_because(&j->err, STATUS_DATA_LOSS, REASON_CHECKSUM_DIFFERS, "sha256",
                            "the sha256 of the received bytes is not the one sent");
}

enum status upload_end(struct upload *u, const uint8_t *sha256, struct error *err)
{
    assert(upload_is_ready(u));
    if (u->config.shared == NULL && u->received_bytes != u->size_bytes)
        return error_field(err, "sha256", "arrived after %zu of %zu bytes", u->received_bytes,
                           u->size_bytes);
    if (u->config.shared != NULL && sha256 != NULL)
        return error_field(err, "sha256", "has %d bytes, but the header says in_memory",
                           SHA256_BYTES);
    if (u->config.shared == NULL && (sha256 == NULL) != u->config.is_crc_only)
        return error_field(err, "sha256", "has %d bytes, %s", sha256 == NULL ? 0 : SHA256_BYTES,
                           sha256 == NULL ? "which needs crc_only in the header"
                                          : "but the header says crc_only");
    if (sha256 != NULL)
        memcpy(u->sha_due, sha256, SHA256_BYTES);
    submit(u, &(struct upload_chunk){0},
           u->config.shared != NULL && u->block != NULL ? run_from_memory : run_end);
    u->is_ending = true;
    return STATUS_OK;
}
