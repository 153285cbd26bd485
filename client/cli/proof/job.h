/* Conversations that are to be verified: read from exports, or named by their ids on a server. What
 * they say is read twice, to choose and to send, and is in memory only while it is sent and
 * compared: memory does not grow with the size of an export, but for a few bytes a turn. */
#ifndef CLIENT_CLI_PROOF_JOB_H
#define CLIENT_CLI_PROOF_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "client/cli/proof/records.h"

struct proof_source;

struct proof_job {
    char *conversation;
    bool is_stored;              /* on the server, which reads its records itself */
    struct proof_source *source; /* the export that has it; NULL: the server has */
    off_t at;                    /* where it begins there */
    size_t n_records, n_bytes;   /* the records, and the size of their bodies */
    uint32_t *only;              /* [n_only] the records whose turns are computed */
    size_t n_only, cap_only;
    size_t n_turns;  /* that records end */
    size_t n_shared; /* of these, turns that another conversation has, too, and checks */
    /* From proof_job_load to proof_job_unload; nothing where is_stored. */
    struct records records;
    json_t *line;  /* of an export: the conversation */
    json_t *turns; /* array of the lines of its turns */
    /* The answer, once is_done. */
    bool is_done;
    Parley__V1__ConversationsVerifyResponse *answer; /* NULL: err says why not */
    struct parley_error err;
};

struct proof_jobs {
    struct proof_job *all; /* [n] */
    size_t n, cap;
    struct proof_source **sources; /* [n_sources] */
    size_t n_sources;
    json_t *seen;  /* the chains of turns that a job checks */
    bool is_whole; /* each job computes all its turns, also those that another one has: set before
                      they are read */
};

void proof_jobs_init(struct proof_jobs *jobs);
void proof_jobs_deinit(struct proof_jobs *jobs);

/* Reads an export, line by line; "-" is stdin, of which, as of a pipe, a temporary file keeps a
 * copy. On failure err names the line. Each turn is computed once, also where forks share it. */
enum status proof_jobs_read(struct proof_jobs *jobs, const char *path,
                            struct error *err) MUST_CHECK;
/* Fetches the records of a conversation. */
enum parley_status proof_jobs_fetch(struct proof_jobs *jobs, struct parley_channel *channel,
                                    const char *conversation, struct parley_error *err);

/* Keeps n_sample of the turns that are computed, by seed; 0: all. */
void proof_jobs_choose(struct proof_jobs *jobs, size_t n_sample, uint64_t seed);

/* Reads what the conversation says, from its export or by channel. On failure there is nothing. */
enum status proof_job_load(struct proof_job *job, struct parley_channel *channel,
                           struct error *err) MUST_CHECK;
/* Frees it, and the answer. */
void proof_job_unload(struct proof_job *job);

/* A request with what it owns; records_bytes is the size of its records. */
struct proof_request {
    Parley__V1__ConversationsVerifyRequest message;
    size_t records_bytes;
};

/* changes: NULL if there are none. The request borrows job, which stays where it is, and changes.
 */
void proof_request_init(struct proof_request *r, struct proof_job *job, bool is_forced,
                        Parley__V1__VerifyChanges *changes);
void proof_request_deinit(struct proof_request *r);

#endif
