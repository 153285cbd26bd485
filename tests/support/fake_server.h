/* The server's domain without a loop: a manual clock, a random source that counts, and a model
 * whose steps run when the test says so. The agent "fake" obeys the last message:
 *
 *   "say N"      N tokens, one a step: ids 0, 1, …, text "<0>", "<1>", …
 *   "fail N"     the row fails in its Nth step
 *   "refuse"     is not observed
 *   "long N"     a prompt of N tokens, of which a step reads one before it says one token
 *   anything     one token */
#ifndef TESTS_SUPPORT_FAKE_SERVER_H
#define TESTS_SUPPORT_FAKE_SERVER_H

#include "base/alarm.h"
#include "server/conversation/conversation.h"
#include "server/conversation/reader.h"
#include "server/model/model.h"

struct fake_server {
    uint64_t now_us;
    uint64_t drawn; /* calls of the random source */
    struct env env;
    struct conversations all;
    struct model model;      /* "fake" */
    struct batch_step *step; /* begun, not computed */
    uint64_t tick_at_us;     /* the batcher's timer, 0: not armed */
    struct alarm expiry;     /* the conversations' */
    bool is_closed;
};

/* config may be NULL; its env and alarm are replaced. kind: "fake", or one in the registry. */
void fake_server_open(struct fake_server *s, const char *kind, size_t max_waiting,
                      const struct conversations_config *config);
/* Closes every conversation, runs until all has ended, and checks that nothing is left. */
void fake_server_close(struct fake_server *s);

/* One step of the batcher: tick, run, done. False if there was nothing to do. */
bool fake_server_step(struct fake_server *s);
/* Runs until nothing is left to do. */
void fake_server_run(struct fake_server *s);

/* What the fake agent's clones count: self-observed turns, dropped turns. */
uint32_t fake_clone_n_turns(const struct conversation *c);
uint32_t fake_clone_n_dropped(const struct conversation *c);
/* Sets the number of pages. A row holds one page for each step that it has done, and one more. */
void fake_set_pages(size_t n);
/* The sampling parameters of the last observed turn. */
const struct sampling *fake_last_sampling(void);
const char *fake_last_system(void); /* of the last clone that was opened; "" for none */

/* A reader that counts its notifications and keeps all that it has read. */
struct fake_reader {
    struct turn_reader reader;
    size_t n_notified, n_pieces, n_progress;
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
/* Reads all that is available. */
void fake_reader_read(struct fake_reader *r);
void fake_reader_deinit(struct fake_reader *r); /* closes it too */

/* Opens a conversation with a model and no other options. */
struct conversation *fake_conversation(struct fake_server *s);
/* A turn of one message of the user. */
enum status fake_turn(struct conversation *c, uint32_t number, const char *text,
                      struct fake_reader *r, struct error *err);
/* Runs such a turn to its end; asserts that it is done with this finish. */
void fake_turn_whole(struct fake_server *s, struct conversation *c, uint32_t number,
                     const char *text, enum finish finish, const char *reply);

#endif
