/* The stream of tasks that a client of Work.Submit or Work.Map sends. A task's payload may come in
 * several messages. Loop. */
#ifndef SERVER_API_PARLEY_WORK_SUBMISSION_H
#define SERVER_API_PARLEY_WORK_SUBMISSION_H

#include <stdbool.h>

#include "parley/v1/work.pb-c.h"
#include "server/work/work.h"

struct call;
struct server;

struct work_submission_stream {
    struct work_table *work;
    struct call *call;
    uint32_t principal;
    /* The task whose payload is not whole yet, if is_open. */
    bool is_open;
    struct work_bytes bytes;
    struct work_submission submission;
    char function[WORK_NAME_SIZE], request_id[WORK_REQUEST_ID_SIZE];
    uint64_t tag;
    /* Called for each task that was submitted, with the client's tag. A failure ends the stream. */
    enum status (*submitted)(struct work_submission_stream *in, struct work_task *t, uint64_t tag,
                             struct error *err);
};

/* Begins a stream on the call. */
void work_submission_open(struct work_submission_stream *in, struct call *call,
                          struct server *server,
                          enum status (*submitted)(struct work_submission_stream *in,
                                                   struct work_task *t, uint64_t tag,
                                                   struct error *err));
/* Ends the stream: drops the task whose payload is not whole. */
void work_submission_close(struct work_submission_stream *in);
/* Takes a message of the stream. INVALID names the field. */
enum status work_submission_take(struct work_submission_stream *in,
                                 const Parley__V1__WorkSubmitRequest *m,
                                 struct error *err) MUST_CHECK;
/* Handles the client's half-close. INVALID in the middle of a payload. */
enum status work_submission_end(const struct work_submission_stream *in,
                                struct error *err) MUST_CHECK;

#endif
