/* A turn in the foreground: sends it, shows the reply as it arrives, and stops it on Ctrl-C. It is
 * numbered, so libparley goes on with it where its connection broke. */
#ifndef CLIENT_CLI_CHAT_TURN_H
#define CLIENT_CLI_CHAT_TURN_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "client/lib/parley.h"

struct cli_turn {
    /* Set by the caller before cli_turn_run. */
    struct parley_channel *channel;
    const struct parley_turn *turn; /* its number is not 0 */
    /* On the caller's thread; each may be NULL. show's false stops the reply. */
    bool (*show)(void *arg, const char *text, size_t len);
    void (*progress)(void *arg, uint32_t done, uint32_t total);
    /* The connection was lost, and is looked for; false: it is back, or the turn has ended. */
    void (*lost)(void *arg, bool is_lost);
    void *arg;
    bool keeps_tokens; /* fills token_ids and logprobs */

    /* The result, after cli_turn_run. */
    struct parley_error err;
    bool was_stopped; /* by Ctrl-C or by show */
    bool is_done;     /* the four members below come from the server */
    char finish_reason[16];
    struct parley_usage usage;
    struct parley_timings timings;
    uint32_t turn_done;
    uint64_t first_us; /* from sending to the first piece; 0: there was none */
    struct buf reply;
    json_t *token_ids, *logprobs; /* lists */

    bool is_lost; /* what lost was told last */

    /* Shared by the two threads. */
    pthread_mutex_t lock;
    int event_fd; /* written with lock held, when there is something new */
    uint64_t sent_us;
    size_t n_shown;               /* bytes of the reply */
    uint32_t n_read, n_to_read;   /* guarded by lock: of the prompt */
    bool has_progress, has_ended; /* guarded by lock, as are all results until the end */
    bool is_overfull;             /* guarded by lock: the reply is beyond its bound */
};

/* A zeroed turn with the caller's part filled in. Returns err.status. */
enum parley_status cli_turn_run(struct cli_turn *x);
void cli_turn_deinit(struct cli_turn *x);

/* Tokens per second after the first; 0 where there are too few to tell. */
double cli_turn_rate(const struct cli_turn *x);

#endif
