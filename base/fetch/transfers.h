/* HTTP requests on the loop, by libcurl's multi interface: no thread of ours waits. (libcurl looks
 * a host's name up in a thread of its own, which ends with the answer.) A redirect is followed, and
 * a token is not sent on to another host, port or scheme. All functions are called on the loop. */
#ifndef BASE_FETCH_TRANSFERS_H
#define BASE_FETCH_TRANSFERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"

struct transfers;
struct web_transfer;

enum status transfers_open(struct transfers **out, uv_loop_t *loop, struct error *err) MUST_CHECK;
/* No transfer may run. The memory is freed when the loop has closed the handles; t may be NULL. */
void transfers_close(struct transfers *t);

enum transfer_verdict { TRANSFER_TAKEN, TRANSFER_PAUSE, TRANSFER_STOP };

struct transfer_request {
    const char *url;   /* copied; http or https */
    const char *token; /* copied; NULL: none */
    uint64_t from, to; /* the bytes [from, to) alone; to 0: all */
    /* Gets the body of an answer that is the one asked for, piece by piece. PAUSE: the same piece
     * comes again after transfer_go_on. STOP ends the transfer. */
    enum transfer_verdict (*on_data)(void *arg, const void *data, size_t len);
    /* Called once, on the loop, never inside transfer_start; the transfer is freed afterwards. */
    void (*on_end)(void *arg, const struct web_transfer *t, const struct error *err);
    void *arg;
};

/* What an answer's head said, "" or 0 where it did not. */
struct transfer_answer {
    long http_status;
    char commit[41], linked_etag[80],
        error_code[40]; /* X-Repo-Commit, X-Linked-Etag, X-Error-Code */
    uint64_t retry_after_s;
};

enum status transfer_start(struct web_transfer **out, struct transfers *t,
                           const struct transfer_request *request, struct error *err) MUST_CHECK;
void transfer_go_on(struct web_transfer *x);
/* Ends the transfer without on_end. */
void transfer_cancel(struct web_transfer *x);
/* UNAVAILABLE in on_end is what another try may mend; other statuses are not. */
const struct transfer_answer *transfer_answer(const struct web_transfer *x);

#endif
