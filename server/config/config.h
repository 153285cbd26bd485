/* parleyd's configuration, from its command line, its environment and the file that --config
 * names. */
#ifndef SERVER_CONFIG_CONFIG_H
#define SERVER_CONFIG_CONFIG_H

#include <stdbool.h>

#include "base/status.h"
#include "server/config/values.h"

struct config_option;

/* Reads the configuration. A flag goes before the environment's variable, the variable before the
 * file's key, and the key before the default; a list is replaced as a whole. INVALID names the
 * flag, the variable, or the file, its line and key; a value of a weaker source is checked, too.
 * environment ends with NULL, or is NULL. *out keeps pointers into argv and environment. */
enum status config_parse(struct config *out, int argc, char *const *argv, char *const *environment,
                         struct error *err) MUST_CHECK;

/* Puts the source of the option of this key before the error's text: its flag, its variable, or the
 * file and line. Returns err->status. */
enum status config_blame(const struct config *c, const char *key, struct error *err);

/* Parses again what *old was parsed from: argv, environment, and the file as it is now. */
enum status config_parse_again(struct config *out, const struct config *old,
                               struct error *err) MUST_CHECK;

/* Returns whether the option has other texts in b than in a. */
bool config_differs(const struct config *a, const struct config *b, const struct config_option *o);

/* Frees what the struct owns. Copies of the struct are invalid afterwards. */
void config_deinit(struct config *c);

/* Checks that the files of models and plug-ins exist. The error says how to get a file. */
enum status config_check_files(const struct config *c, struct error *err) MUST_CHECK;

#endif
