/* Sets of parameters in the journal: a checkpoint is a version's values, moments and remembered
 * steps, and replaces the one before as a whole. Without a journal nothing is kept. Loop. */
#ifndef SERVER_PARAMS_CHECKPOINT_H
#define SERVER_PARAMS_CHECKPOINT_H

#include "server/params/params.h"

struct checkpoint_body;

/* Whether all versions are in the journal that can be; else it is being written, and on_idle is
 * called when it is. For the end: nobody updates any more. */
bool params_sets_are_kept(struct params_sets *s);

/* Keeps the version that there is: OK with *ret_is_kept if it is kept, else w->done is called once
 * it is, or is not; kept_leave ends the wait. PRECONDITION: nothing is kept. */
enum status params_settle(struct params_set *set, struct kept_wait *w, bool *ret_is_kept,
                          struct error *err) MUST_CHECK;

/* The journal is to forget the set; what it has appended by now is settled when that is durable.
 * UNAVAILABLE: it does not. Nothing for a set that is not kept. */
enum status params_unkeep(struct params_set *set, struct error *err) MUST_CHECK;

/* --- for this folder --- */

extern const struct keeper_type params_keeper;

/* Begins a checkpoint of the version that there is; params_checkpointed is called later. */
void checkpoint_begin(struct params_set *set);
/* A round was published: begins a checkpoint where one is due. */
void checkpoint_after_round(struct params_set *set);
/* The set closes: what is being written or read is given up. */
void checkpoint_abandon(struct params_set *set, const struct error *why);

/* params.c: the checkpoint that was begun is durable, or is not. */
void params_checkpointed(struct params_set *set, const struct error *err);

/* round.c: the client's last step. */
enum status params_remember(struct params_set *set, const char *client, uint64_t step,
                            uint64_t version, struct error *err) MUST_CHECK;
/* round.c: the steps that are remembered; *out is malloc'd, its texts the set's. */
enum status params_remembered(struct checkpoint_body *out, const struct params_set *set,
                              struct error *err) MUST_CHECK;

#endif
