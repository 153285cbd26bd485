/* How the observations that wait for a model are gathered into batches: Act's modes as batching
 * policies, and, under lock-step, whose observation stands in which row. Loop. */
#ifndef SERVER_ACT_MODE_H
#define SERVER_ACT_MODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "batching/batcher.h"

struct model;
struct session;

enum act_mode { ACT_AUTO, ACT_NONE, ACT_LOCKSTEP, ACT_DYNAMIC };

struct act_config {
    enum act_mode mode;
    uint32_t n, timeout_ms; /* lock-step; 0: no time-out */
    bool is_partial;        /* lock-step: after the time-out those that wait run; else ABORTED */
    uint32_t min, max, delay_us; /* dynamic */
};

/* Of a model. */
struct act_rows {
    enum act_mode mode;
    struct batcher_config batching; /* what the mode came to */
    struct session **at_row;        /* [n] lock-step: whose observation waits or runs there */
    uint32_t n;
};

/* STATUS_PRECONDITION for a model that does not act on observations; UNAVAILABLE while it loads. */
enum status act_check(const struct model *m, struct error *err) MUST_CHECK;

/* From the next batch on. STATUS_INVALID names the field of ActConfigureRequest; also what
 * act_check says. */
enum status act_configure(struct model *m, const struct act_config *config,
                          struct error *err) MUST_CHECK;
/* Lock-step: batches are of n rows from now on, 1 … the configured number, because some who stood
 * in one are gone; the rows keep their numbers. Until the next call, or act_configure. Nothing
 * under other modes. */
void act_narrow(struct model *m, uint32_t n);
void act_rows_deinit(struct act_rows *rows);

/* Lock-step: whether there is such a row. Without it any will do. */
enum status act_row_check(const struct model *m, uint32_t row, struct error *err) MUST_CHECK;
/* STATUS_PRECONDITION when another session's observation stands there. */
enum status act_row_take(struct model *m, uint32_t row, struct session *s, const char *env_id,
                         struct error *err) MUST_CHECK;
/* Does nothing when the row is not its own. */
void act_row_leave(struct model *m, uint32_t row, const struct session *s);

#endif
