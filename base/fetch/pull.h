/* A model of the hub, fetched into its cache: the repository is listed, the files that are chosen
 * are fetched one after another, each over several connections, and checked; then links and
 * refs/main name them. What is there already is not fetched again. All functions are called on the
 * loop. */
#ifndef BASE_FETCH_PULL_H
#define BASE_FETCH_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/fetch/model_name.h"
#include "base/status.h"

struct pull;

enum { PULL_CONNECTIONS = 4 };

enum pull_stage {
    PULL_LISTING,  /* the hub is asked for the repository's files */
    PULL_WAITING,  /* for another program that fetches the file */
    PULL_FETCHING, /* the file */
    PULL_CHECKING, /* the file's hash is computed */
    PULL_LINKING,  /* all files are there */
};

struct pull_progress {
    enum pull_stage stage;
    const char *file, *etag;        /* NULL while listing and linking */
    uint64_t file_bytes, file_done; /* of the file */
    uint64_t all_bytes, all_done;   /* of all files that are chosen; 0 while listing */
    size_t n_files, n_files_done;
};

struct pull_config {
    uv_loop_t *loop;
    struct model_name name; /* of the hub */
    size_t n_connections;   /* 1 to DOWNLOAD_MAX_CONNECTIONS */
    /* Called often; may not cancel the pull. */
    void (*progress)(void *arg, const struct pull_progress *now);
    /* Called once, never inside pull_start: path is the model's (hub_cache_find), NULL with an
     * error. The pull is freed afterwards. */
    void (*done)(void *arg, const char *path, const struct error *err);
    void *arg;
};

/* HF_ENDPOINT says which hub is asked (https://huggingface.co), HF_TOKEN, or the file
 * HF_TOKEN_PATH, HF_HOME/token or ~/.cache/huggingface/token, in whose name. PRECONDITION where
 * HF_HUB_OFFLINE is set. */
enum status pull_start(struct pull **out, const struct pull_config *config,
                       struct error *err) MUST_CHECK;
/* done is called soon, with CANCELLED unless the pull is over by then. What was received is kept.
 */
void pull_cancel(struct pull *p);

/* Runs a pull on a loop of its own until it is over. *out is the path, for the caller to free.
 * SIGINT and SIGTERM cancel it. */
enum status pull_run(char **out, const struct model_name *name, size_t n_connections,
                     void (*progress)(void *arg, const struct pull_progress *now), void *arg,
                     struct error *err) MUST_CHECK;

#endif
