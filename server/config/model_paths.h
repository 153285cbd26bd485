/* Models of the configuration that are given by a path or by the hub's or Ollama's name, without a
 * name to serve them by. */
#ifndef SERVER_CONFIG_MODEL_PATHS_H
#define SERVER_CONFIG_MODEL_PATHS_H

#include "base/status.h"

struct config;

/* Keeps text, which it takes, as long as the configuration. Returns it. */
const char *config_keep_text(struct config *c, char *text);

/* Adds the model of a path, under a name made from it (model_name_served). A folder that is no
 * model itself adds all models in it, by their names: GGUF files, and folders with config.json. */
enum status config_add_path(struct config *c, const char *path, struct error *err) MUST_CHECK;

/* Puts paths in place of names of models that are on this machine; others stay. */
void config_find_models(struct config *c);
/* Fetches the models of the hub that others are, unless the configuration forbids it, and logs how
 * far it is. May take long. */
enum status config_fetch_models(struct config *c, struct error *err) MUST_CHECK;

#endif
