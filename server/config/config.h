/* parleyd's configuration, from its command line, its environment and the file that --config
 * names. */
#ifndef SERVER_CONFIG_CONFIG_H
#define SERVER_CONFIG_CONFIG_H

#include <stdbool.h>

#include "base/status.h"
#include "server/config/values.h"

struct config_option;

/* A flag goes before the environment's variable, that before the file's key, and that before the
 * default; of lists the whole list. STATUS_INVALID names the flag, the variable, or the file, its
 * line and key, of any source: also of one that a stronger one replaces.
 * environment: ended by NULL; may be NULL. Keeps pointers into argv and environment. */
enum status config_parse(struct config *out, int argc, char *const *argv, char *const *environment,
                         struct error *err) MUST_CHECK;

/* Puts what set the option of this key before the error: its flag, variable, or file and line.
 * Returns err->status. */
enum status config_blame(const struct config *c, const char *key, struct error *err);

/* Parses again what *old was parsed from: argv, environment, and the file as it is now. */
enum status config_parse_again(struct config *out, const struct config *old,
                               struct error *err) MUST_CHECK;

/* Whether the option has other texts in b. */
bool config_differs(const struct config *a, const struct config *b, const struct config_option *o);

/* Copies of the struct are invalid after this. */
void config_deinit(struct config *c);

/* Checks that the files of models and plug-ins exist; the error says how to get one. */
enum status config_check_files(const struct config *c, struct error *err) MUST_CHECK;

#endif
