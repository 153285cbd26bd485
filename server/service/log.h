/* The log of the chat service in ParlAI's Conversations format: NAME.jsonl with a line for each
 * task that has ended, and NAME.metadata beside it. Lines are appended by libuv's pool, so a slow
 * disk holds nobody up. All functions are called on the loop. */
#ifndef SERVER_SERVICE_LOG_H
#define SERVER_SERVICE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct service_log;
struct service_plan;
struct uv_loop_s;

enum { SERVICE_LOG_UNWRITTEN_MAX_BYTES = 16 << 20 };

/* Opens both files of the plan's log, and writes the metadata; *out is NULL if the plan has no log.
 * INVALID names the file. */
enum status service_log_open(struct service_log **out, const struct service_plan *plan,
                             struct error *err) MUST_CHECK;
/* on_idle is called when the last line is written. */
void service_log_begin(struct service_log *log, struct uv_loop_s *loop, void (*on_idle)(void *arg),
                       void *arg);
/* Appends a line, which ends with '\n'. One that cannot be written is named in the daemon's log. */
void service_log_line(void *log, const char *line, size_t len);
/* Whether all lines are written. log may be NULL, as below. */
bool service_log_is_idle(const struct service_log *log);
const char *service_log_metadata_path(const struct service_log *log);
void service_log_close(struct service_log *log);

#endif
