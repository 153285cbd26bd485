/* Turns on a language model without a server: opens the agent on a tiny model, and steps rows as a
 * batcher would, but in the test's own hands. */
#ifndef TESTS_SUPPORT_LM_DRIVER_H
#define TESTS_SUPPORT_LM_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "agents/agent.h"
#include "tests/support/tiny_model.h"

/* A turn in hand. */
struct drive {
    struct arena arena;
    struct agent_turn turn;
    struct clone *clone;
    struct error err;
};

/* A config for a tiny model: one thread, keys and values in f32, steps of 256 tokens. */
struct agent_config drive_config(const char *backend, size_t kv_pages);

/* The agent "lm" over a tiny model; config's path is set here. NULL path on a failed open: *err
 * says why, and fault tests want that. */
enum status drive_open(struct agent **out, const struct tiny_config *tiny,
                       struct agent_config *config, struct error *err);

/* Observes one message of the user; drive_end afterwards whatever came of it. */
enum status drive_begin(struct drive *d, struct clone *c, const char *text,
                        const struct sampling *s, struct error *err);
/* The same with messages; their texts are borrowed until drive_end. */
enum status drive_begin_messages(struct drive *d, struct clone *c, const struct message *messages,
                                 size_t n_messages, const struct sampling *s, struct error *err);
/* One step of the rows, each granted at most max_grant and all together what the agent's steps
 * hold; skips those that are done. Returns how many still want more; a failed row's error is in its
 * row. */
size_t drive_step(struct agent *a, struct drive *const *drives, size_t n, size_t max_grant);
/* Steps until all are done. */
void drive_run(struct agent *a, struct drive *const *drives, size_t n, size_t max_grant);
/* Ends the turn by self_observe, or by drop. */
void drive_end(struct drive *d, bool is_kept);

/* A whole turn; ids of the reply go to ids [max]; returns how many. */
size_t drive_turn(struct agent *a, struct clone *c, const char *text, const struct sampling *s,
                  size_t max_grant, int32_t *ids, size_t max);

#endif
