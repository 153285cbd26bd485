/* `parley models rm`: removes models from the hub's cache, without a server. */
#ifndef CLIENT_CLI_MODELS_REMOVE_H
#define CLIENT_CLI_MODELS_REMOVE_H

#include "cli/options/verb.h"

/* names: [n] of the hub. Stops at the first failure. */
enum exit_code models_remove(char *const *names, int n);

#endif
