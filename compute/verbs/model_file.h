/* Finds the weight file of a verb that needs no server. */
#ifndef COMPUTE_VERBS_MODEL_FILE_H
#define COMPUTE_VERBS_MODEL_FILE_H

#include "base/status.h"

struct gguf;

/* Returns the path of the file that model_file_open would open. The caller frees the path. */
char *model_file_path(const char *given);

/* Opens the file that is given, else the file that PARLEY_MODEL names, else the model that './run
 * model' fetches, under the current directory or beside the program's build directory. NOT_FOUND:
 * there is no such file; the error says how to get one. */
enum status model_file_open(struct gguf **out, const char *given, struct error *err) MUST_CHECK;

#endif
