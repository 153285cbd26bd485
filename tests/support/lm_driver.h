/* Turns on a language model without a server: opens the agent on a tiny model, and steps rows as a
 * batcher would, under the test's control. */
#ifndef TESTS_SUPPORT_LM_DRIVER_H
#define TESTS_SUPPORT_LM_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "agents/agent.h"
#include "agents/turn.h"
#include "tests/support/tiny_model.h"

/* A turn and its memory. */
struct drive {
    struct arena arena;
    struct agent_turn turn;
    struct clone *clone;
    struct error err;
};

/* A config for a tiny model: one thread, keys and values in f32, steps of 256 tokens. */
struct agent_config drive_config(const char *backend, size_t kv_pages);

/* The agent "lm" over a tiny model; config's path is set here. On failure *err says why, for fault
 * tests. */
enum status drive_open(struct agent **out, const struct tiny_config *tiny,
                       struct agent_config *config, struct error *err);

/* Observes one message of the user; call drive_end afterwards, even on failure. */
enum status drive_begin(struct drive *d, struct clone *c, const char *text,
                        const struct sampling *s, struct error *err);
/* Observes messages; their texts are borrowed until drive_end. */
enum status drive_begin_messages(struct drive *d, struct clone *c, const struct message *messages,
                                 size_t n_messages, const struct sampling *s, struct error *err);
/* drive_begin with variables of the model's template. */
enum status drive_begin_variables(struct drive *d, struct clone *c, const char *text,
                                  const struct sampling *s,
                                  const struct template_variables *variables, struct error *err);
/* One step of the rows that are not done, each with at most max_grant tokens and all together
 * within the agent's step. Returns how many need another step; a failed row's error is in its row.
 */
size_t drive_step(struct agent *a, struct drive *const *drives, size_t n, size_t max_grant);
/* Steps until all are done. */
void drive_run(struct agent *a, struct drive *const *drives, size_t n, size_t max_grant);
/* Ends the turn by self_observe, or by drop. */
void drive_end(struct drive *d, bool is_kept);

/* Runs a whole turn; writes the reply's ids to ids [max] and returns how many. */
size_t drive_turn(struct agent *a, struct clone *c, const char *text, const struct sampling *s,
                  size_t max_grant, int32_t *ids, size_t max);

#endif
