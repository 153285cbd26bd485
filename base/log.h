/* One line per event on stderr, logfmt: `2026-11-21T16:04:05.123Z info event key=value …`. Only
 * server/ logs. Any thread; a line is one write. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stddef.h>

#include "base/status.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_set_level(enum log_level level);
enum status log_level_parse(enum log_level *out, const char *text, struct error *err) MUST_CHECK;
int log_is_on(enum log_level level);

/* fmt is the rest of the line: "peer=%s status=%s". Text of a peer goes through log_quote. */
void log_write(enum log_level level, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Quotes and escapes a value that may hold anything; what does not fit is cut between characters.
 * size is at least 3; out is always NUL-ended. Returns out. */
const char *log_quote(char *out, size_t size, const char *text);

#define log_debug(...) (log_is_on(LOG_DEBUG) ? log_write(LOG_DEBUG, __VA_ARGS__) : (void)0)
#define log_info(...) (log_is_on(LOG_INFO) ? log_write(LOG_INFO, __VA_ARGS__) : (void)0)
#define log_warn(...) (log_is_on(LOG_WARN) ? log_write(LOG_WARN, __VA_ARGS__) : (void)0)
#define log_error(...) (log_is_on(LOG_ERROR) ? log_write(LOG_ERROR, __VA_ARGS__) : (void)0)

#endif
