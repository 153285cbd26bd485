#include "compute/verbs/model_file.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"

#define FETCHED "model/SmolLM2-135M-Instruct.Q4_1.gguf"

/* The program is build/NAME/parley, the model build/model/…: false where the program's path is
 * unknown. */
static bool beside_program(char out[PATH_MAX])
{
    char program[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *slash;

    if (len <= 0)
        return false;
    program[len] = '\0';
    for (int up = 0; up < 2; up++) {
        slash = strrchr(program, '/');
        if (slash == NULL)
            return false;
        *slash = '\0';
    }
    return snprintf(out, PATH_MAX, "%s/" FETCHED, program) < PATH_MAX;
}

static const char *model_file_choose(const char *given, char path[PATH_MAX])
{
    const char *named = getenv("PARLEY_MODEL");

    if (given != NULL)
        return given;
    if (named != NULL && *named != '\0')
        return named;
    if (access("build/" FETCHED, R_OK) != 0 && beside_program(path) && access(path, R_OK) == 0)
        return path;
    return "build/" FETCHED;
}

char *model_file_path(const char *given)
{
    char path[PATH_MAX];

    return xstrdup(model_file_choose(given, path));
}

enum status model_file_open(struct gguf **out, const char *given, struct error *err)
{
    const char *named = getenv("PARLEY_MODEL");
    char path[PATH_MAX];
    enum status rc = gguf_open(out, model_file_choose(given, path), err);

    if (rc == STATUS_NOT_FOUND && given == NULL && (named == NULL || *named == '\0'))
        return error_prefix(
            err,
            "no model was given: name one with --model or PARLEY_MODEL; './run model' fetches one");
    return rc;
}
