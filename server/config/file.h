/* parleyd's configuration file: YAML, one flat mapping whose values are the texts that the flags
 * take. This reads it and holds its texts; config.c interprets them. */
#ifndef SERVER_CONFIG_FILE_H
#define SERVER_CONFIG_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct config_file_model {
    char *name, *path;
};

enum { CONFIG_FILE_MAX_KEYS = 64 };

/* Absent keys are NULL or empty. */
struct config_file {
    struct config_file_model *models; /* [n_models] */
    uint32_t n_models;
    char **listen; /* [n_listen] */
    uint32_t n_listen;
    char **http_origin; /* [n_http_origin] */
    uint32_t n_http_origin;
    char *texts[CONFIG_FILE_MAX_KEYS]; /* by the index of their key */
};

/* keys: [n_keys] the known keys beside the lists; NULL entries are skipped.
 * STATUS_INVALID names the file and the fault: unreadable, no YAML, an unknown key, or a value of
 * the wrong shape. *out is NULL for an empty file. */
enum status config_file_open(struct config_file **out, const char *path, const char *const *keys,
                             size_t n_keys, struct error *err) MUST_CHECK;
/* keys: as passed to config_file_open. f may be NULL. */
void config_file_close(struct config_file *f, const char *const *keys, size_t n_keys);

#endif
