/* One turn in the foreground: sends it, shows the reply as it comes, stops it on Ctrl-C, and sends
 * it again under the same number when the server was away, which cannot make two replies of it. */
#ifndef CLIENT_CLI_EXCHANGE_H
#define CLIENT_CLI_EXCHANGE_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "client/lib/parley.h"

struct exchange {
    /* The caller's, before exchange_run. */
    struct parley_channel *channel;
    const struct parley_turn *turn; /* its number is not 0 */
    /* On the caller's thread; each may be NULL. show's false stops the reply. */
    bool (*show)(void *arg, const char *text, size_t len);
    void (*progress)(void *arg, uint32_t done, uint32_t total);
    void *arg;
    bool keeps_tokens; /* fills token_ids and logprobs */

    /* What came of it, after exchange_run. */
    struct parley_error err;
    bool was_stopped; /* by Ctrl-C or by show */
    bool is_done;     /* the four below are the server's */
    char finish_reason[16];
    struct parley_usage usage;
    struct parley_timings timings;
    uint32_t turn_done;
    uint64_t first_us; /* sent until the first piece; 0: none came */
    struct buf reply;
    json_t *token_ids, *logprobs; /* lists */

    /* Between the two threads. */
    pthread_mutex_t lock;
    int event_fd; /* written with lock held, when there is something new */
    uint64_t sent_us;
    size_t n_shown;               /* bytes of the reply, over all attempts */
    uint32_t n_read, n_to_read;   /* guarded by lock: of the prompt */
    bool has_progress, has_ended; /* guarded by lock, as all of what came of it until the end */
    bool is_overfull;             /* guarded by lock: the reply is beyond its bound */
};

/* A zeroed exchange with the caller's part filled. Returns err.status. */
enum parley_status exchange_run(struct exchange *x);
void exchange_deinit(struct exchange *x);

/* Tokens per second after the first; 0 where there are too few to tell. */
double exchange_rate(const struct exchange *x);

#endif
