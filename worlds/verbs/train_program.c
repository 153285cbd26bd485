/* parley train a2c|a3c|ppo|dqn|apex|impala, and train --env: the trainings by rollouts are a
 * program in Python, since environments of gymnasium are. This process becomes that program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "cli/subprocess.h"
#include "worlds/verbs/verbs.h"

static const char *const ways[] = {"a2c", "a3c", "ppo", "dqn", "apex", "impala"};

/* Where the program lies: beside the sources, and as installed; from the folder of parley. */
static const char *const scripts[] = {"../../client/examples/train.py",
                                      "../share/parley/train/train.py"};

static bool is_way(const char *word)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(word, ways[i]) == 0)
            return true;
    return false;
}

static bool names_environment(const char *word)
{
    return strcmp(word, "--env") == 0 || strncmp(word, "--env=", strlen("--env=")) == 0;
}

/* The first word that names a way; argc: there is none. */
static int find_way(int argc, char **argv)
{
    int i = 1;

    while (i < argc && !is_way(argv[i]))
        i++;
    return i;
}

bool train_program_is_wanted(int argc, char **argv)
{
    if (argc > 1 && is_way(argv[1]))
        return true;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (names_environment(argv[i]))
            return true;
    return false;
}

/* Writes the path of the program. */
static enum status find_script(char out[PROGRAM_PATH_MAX], struct error *err)
{
    char path[PROGRAM_PATH_MAX];
    enum status rc = program_path(path, NULL, err);

    if (rc != STATUS_OK)
        return rc;
    *strrchr(path, '/') = '\0';
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
        if (snprintf(out, PROGRAM_PATH_MAX, "%s/%s", path, scripts[i]) < PROGRAM_PATH_MAX &&
            access(out, R_OK) == 0)
            return STATUS_OK;
    return error_set(
        err, STATUS_NOT_FOUND,
        "%s/%s is missing: install all files of Parley's archive, or run client/examples/train.py",
        path, scripts[1]);
}

enum exit_code train_program_run(const struct verb *verb, int argc, char **argv)
{
    const char *python = getenv("PARLEY_PYTHON");
    char script[PROGRAM_PATH_MAX], parleyd[PROGRAM_PATH_MAX];
    bool has_way = find_way(argc, argv) < argc;
    const char **words = xalloc(((size_t)argc + 6) * sizeof(words[0]));
    struct error err;
    size_t n = 0;

    if (find_script(script, &err) != STATUS_OK ||
        program_path(parleyd, "parleyd", &err) != STATUS_OK) {
        console_error("%s", err.text);
        free(words);
        return EXIT_FAILED;
    }
    words[n++] = python != NULL ? python : "python3";
    words[n++] = script;
    if (!has_way)
        words[n++] = "ppo";
    words[n++] = "--parleyd";
    words[n++] = parleyd;
    for (int i = 1; i < argc; i++)
        words[n++] = argv[i];
    (void)fflush(stdout);
    (void)execvp(words[0], (char *const *)(uintptr_t)words);
    console_error("cannot start %s: %s; PARLEY_PYTHON names another Python", words[0],
                  strerror(errno));
    free(words);
    return EXIT_FAILED;
}
