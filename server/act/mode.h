/* The modes of Act as batching policies: they decide how waiting observations of a model become
 * batches and, in lock-step, which session has which row. Loop. */
#ifndef SERVER_ACT_MODE_H
#define SERVER_ACT_MODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/status.h"
#include "batching/batcher.h"

struct model;
struct session;

enum act_mode { ACT_AUTO, ACT_NONE, ACT_LOCKSTEP, ACT_DYNAMIC };

struct act_config {
    enum act_mode mode;
    uint32_t n, timeout_ms; /* lock-step; 0: no time-out */
    bool is_partial;        /* lock-step: after the time-out the waiting rows run; else ABORTED */
    uint32_t min, max, delay_us; /* dynamic */
};

/* Rows of the models that have been configured; there are few. */
struct act_modes {
    struct list rows;
};

void act_modes_init(struct act_modes *all);
void act_modes_deinit(struct act_modes *all);
/* The model is closed, and no session has one of its rows. */
void act_forget(struct act_modes *all, const struct model *m);

/* STATUS_PRECONDITION for a model that does not act on observations; UNAVAILABLE while it loads. */
enum status act_check(const struct model *m, struct error *err) MUST_CHECK;

/* Takes effect with the next batch. STATUS_INVALID names the field of ActConfigureRequest; also
 * fails as act_check does. */
enum status act_configure(struct act_modes *all, struct model *m, const struct act_config *config,
                          struct error *err) MUST_CHECK;
/* Lock-step: sets the rows of a batch to n, 1 … the configured number, because some workers have
 * detached. The rows keep their numbers. The width holds until the next call, or act_configure.
 * Does nothing in other modes. */
void act_set_batch_width(struct act_modes *all, struct model *m, uint32_t n);
/* The configured number of rows of a lock-step batch; 0 under other modes. */
uint32_t act_lockstep_n(const struct act_modes *all, const struct model *m);

/* Lock-step: fails if the model has no such row. In other modes every row is valid. */
enum status act_row_check(const struct act_modes *all, const struct model *m, uint32_t row,
                          struct error *err) MUST_CHECK;
/* STATUS_PRECONDITION when another session's observation has the row. */
enum status act_row_take(struct act_modes *all, const struct model *m, uint32_t row,
                         struct session *s, const char *env_id, struct error *err) MUST_CHECK;
/* Does nothing when s does not own the row. */
void act_row_leave(struct act_modes *all, const struct model *m, uint32_t row,
                   const struct session *s);

#endif
