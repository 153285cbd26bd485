/* A teacher's own metrics, which another process computes (config.h, struct attached_data): replies
 * are collected, and judged many at a time. */
#ifndef WORLDS_TEACHERS_JUDGE_H
#define WORLDS_TEACHERS_JUDGE_H

#include <stddef.h>

#include "base/status.h"

struct act;
struct attached_data;
struct judge;
struct metrics;
struct value;

/* Asks the task NAME[:ARGUMENT] whether it judges replies; *out NULL: it does not. metrics is
 * borrowed: what the task computes is counted there, in shard 0. */
enum status judge_open(struct judge **out, const struct attached_data *attached, const char *task,
                       const char *fold, struct metrics *metrics, struct error *err) MUST_CHECK;
void judge_close(struct judge *j); /* j may be NULL */
/* Adds a reply to an act with these labels; copies all. Any thread. Errors are those of judging,
 * perhaps of earlier replies. */
enum status judge_add(struct judge *j, const struct act *act, const struct value *labels,
                      const struct act *reply, struct error *err) MUST_CHECK;
/* Judges what was added so far. Any thread. */
enum status judge_settle(struct judge *j, struct error *err) MUST_CHECK;
void judge_reset(struct judge *j); /* forgets what was added and is not yet judged; any thread */

#endif
