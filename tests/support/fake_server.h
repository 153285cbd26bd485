/* The domain of the server without a loop: a clock turned by hand, chance that counts, and a model
 * whose steps run when the test says so. The agent "fake" reads its orders in the last message:
 *
 *   "say N"      N tokens, one a step: ids 0, 1, …, text "<0>", "<1>", …
 *   "fail N"     the row fails in its Nth step
 *   "refuse"     is not observed
 *   "long N"     a prompt of N tokens, of which a step reads one before it says one token
 *   anything     one token */
#ifndef TESTS_SUPPORT_FAKE_SERVER_H
#define TESTS_SUPPORT_FAKE_SERVER_H

#include "server/conversation.h"
#include "server/model.h"
#include "server/turn.h"

struct fake_server {
    uint64_t now_us;
    uint64_t drawn; /* chance counts */
    struct env env;
    struct conversations all;
    struct model model;      /* "fake" */
    struct batch_step *step; /* submitted, not run */
    uint64_t tick_at_us;     /* of the batcher, 0: none wanted */
    uint64_t expiry_at_us;   /* of the conversations, 0: none wanted */
    bool is_closed;
};

/* config may be NULL; its env and arm are ours. kind: "fake", or one that the registry knows. */
void fake_server_open(struct fake_server *s, const char *kind, size_t max_waiting,
                      const struct conversations_config *config);
/* Closes every conversation, lets it all end, checks that nothing is left. */
void fake_server_close(struct fake_server *s);

/* One step of the batcher: tick, run, done. False if there was nothing to do. */
bool fake_server_step(struct fake_server *s);
/* Until nothing is left to do. */
void fake_server_run(struct fake_server *s);

/* How the fake agent's clones are: turns they have self-observed, turns dropped. */
uint32_t fake_clone_n_turns(const struct conversation *c);
uint32_t fake_clone_n_dropped(const struct conversation *c);
/* What the last turn was observed with. */
const struct sampling *fake_last_sampling(void);
const char *fake_last_system(void); /* of the last clone that was opened; "" for none */

/* A reader with its wakes counted, and all that it has read. */
struct fake_reader {
    struct reader reader;
    size_t n_wakes, n_pieces, n_progress;
    bool has_accepted, is_done, has_failed;
    struct buf text;
    int32_t ids[256];
    float logprobs[256];
    size_t n_ids, n_logprobs;
    struct turn_event done;
    uint32_t number, n_prompt;
    struct error err;
};

void fake_reader_init(struct fake_reader *r);
/* Reads what there is. */
void fake_reader_read(struct fake_reader *r);
void fake_reader_deinit(struct fake_reader *r); /* closes it too */

/* Opens a conversation with no more than its model. */
struct conversation *fake_conversation(struct fake_server *s);
/* A turn of one message of the user. */
enum status fake_turn(struct conversation *c, uint32_t number, const char *text,
                      struct fake_reader *r, struct error *err);
/* The same from its start to its end; asserts that it is done, with this finish. */
void fake_turn_whole(struct fake_server *s, struct conversation *c, uint32_t number,
                     const char *text, enum finish finish, const char *reply);

#endif
