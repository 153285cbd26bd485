/* A stream of tasks from a client: Submit's and Map's. */
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
    /* A task whose payload is not whole yet. */
    bool is_open;
    struct work_bytes bytes;
    struct work_submission submission;
    char function[WORK_NAME_SIZE], request_id[WORK_REQUEST_ID_SIZE];
    uint64_t tag;
    /* A task was submitted; the failure ends the stream. */
    enum status (*submitted)(struct work_submission_stream *in, struct work_task *t, uint64_t tag,
                             struct error *err);
};

void work_submission_open(struct work_submission_stream *in, struct call *call,
                          struct server *server,
                          enum status (*submitted)(struct work_submission_stream *in,
                                                   struct work_task *t, uint64_t tag,
                                                   struct error *err));
void work_submission_close(struct work_submission_stream *in);
enum status work_submission_take(struct work_submission_stream *in,
                                 const Parley__V1__WorkSubmitRequest *m,
                                 struct error *err) MUST_CHECK;
/* The client has half-closed. INVALID: in the middle of a payload. */
enum status work_submission_end(const struct work_submission_stream *in,
                                struct error *err) MUST_CHECK;

#endif
