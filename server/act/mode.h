/* The modes of Act are batching policies. A mode decides how waiting observations of a model become
 * batches, and, in lock-step, which session has which row. All functions are called on the loop. */
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
    uint32_t n, timeout_ms;      /* of lock-step; a time-out of 0 stands for none */
    bool is_partial;             /* of lock-step: after the time-out the waiting rows run; otherwise
                                    they end with ABORTED */
    uint32_t min, max, delay_us; /* of dynamic */
};

/* The modes of the models that have been configured, of which there are few. */
struct act_modes {
    struct list rows;
};

void act_modes_init(struct act_modes *all);
void act_modes_deinit(struct act_modes *all);
/* Forgets a model that is closed, and of whose rows no session has one. */
void act_forget(struct act_modes *all, const struct model *m);

/* Checks whether a model acts. PRECONDITION if it does not act on observations; UNAVAILABLE while
 * it loads. */
enum status act_check(const struct model *m, struct error *err) MUST_CHECK;

/* Configures a model's mode from its next batch on. INVALID names the field of ActConfigureRequest.
 * Also fails as act_check does. */
enum status act_configure(struct act_modes *all, struct model *m, const struct act_config *config,
                          struct error *err) MUST_CHECK;
/* Lock-step: sets the rows of a batch to n, 1 … the configured number, because some workers have
 * detached. The rows keep their numbers. The width holds until the next call, or act_configure.
 * Does nothing in other modes. */
void act_set_batch_width(struct act_modes *all, struct model *m, uint32_t n);
/* Returns the configured number of rows of a lock-step batch; 0 in other modes. */
uint32_t act_lockstep_n(const struct act_modes *all, const struct model *m);

/* Checks a row. In lock-step the model must have the row. In other modes every row is valid. */
enum status act_row_check(const struct act_modes *all, const struct model *m, uint32_t row,
                          struct error *err) MUST_CHECK;
/* Gives s the row. PRECONDITION while another session's observation has the row. */
enum status act_row_take(struct act_modes *all, const struct model *m, uint32_t row,
                         struct session *s, const char *env_id, struct error *err) MUST_CHECK;
/* Takes the row from s. Does nothing if s does not have the row. */
void act_row_leave(struct act_modes *all, const struct model *m, uint32_t row,
                   const struct session *s);

#endif
