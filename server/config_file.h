/* parleyd's configuration file: YAML, one flat mapping whose values are the texts that the flags
 * take. This reads it and holds its texts; what they mean is config.c's. */
#ifndef SERVER_CONFIG_FILE_H
#define SERVER_CONFIG_FILE_H

#include <stdint.h>

#include "base/status.h"

struct config_file_model {
    char *name, *path;
};

/* What is not in the file is NULL or empty. */
struct config_file {
    struct config_file_model *models; /* [n_models] */
    uint32_t n_models;
    char **listen; /* [n_listen] */
    uint32_t n_listen;
    char *http, *http_timeout;
    char *backend, *fast_math, *threads, *kv_bytes, *kv_host_bytes, *max_conversations, *max_queue,
        *max_message_bytes;
    char *ttl, *model_dir, *sequence_idle, *drain_timeout, *log_level, *kv, *prefix_cache,
        *speculate, *max_itl_ms;
    char *max_sessions, *session_ttl, *params_bytes;
};

/* STATUS_INVALID names the file and what is wrong with it: that it cannot be read, is no YAML, or
 * has an unknown key or a value of the wrong shape. *out is NULL where the file holds nothing. */
enum status config_file_open(struct config_file **out, const char *path,
                             struct error *err) MUST_CHECK;
void config_file_close(struct config_file *f);

#endif
