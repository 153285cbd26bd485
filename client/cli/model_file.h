/* The weight file of the verbs that need no server. */
#ifndef CLIENT_CLI_MODEL_FILE_H
#define CLIENT_CLI_MODEL_FILE_H

#include "base/status.h"

struct gguf;

/* The path that is meant, the caller's to free. */
char *model_file_path(const char *given);

/* given, else PARLEY_MODEL, else the model that './run model' fetches, under the current directory
 * or beside the program's build directory. A file that is not there is NOT_FOUND and says how to
 * get one. */
enum status model_file_open(struct gguf **out, const char *given, struct error *err) MUST_CHECK;

#endif
