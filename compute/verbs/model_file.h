/* The weight file of the verbs that need no server. */
#ifndef COMPUTE_VERBS_MODEL_FILE_H
#define COMPUTE_VERBS_MODEL_FILE_H

#include "base/status.h"

struct gguf;

/* The path of the file, for the caller to free. */
char *model_file_path(const char *given);

/* given, else PARLEY_MODEL, else the model that './run model' fetches, under the current directory
 * or beside the program's build directory. A missing file is NOT_FOUND; the error says how to get
 * one. */
enum status model_file_open(struct gguf **out, const char *given, struct error *err) MUST_CHECK;

#endif
