/* parleyd's configuration file: YAML, one flat mapping whose values are the texts that the flags
 * take. This reads it and holds its texts; config.c interprets them. */
#ifndef SERVER_CONFIG_FILE_H
#define SERVER_CONFIG_FILE_H

#include <stdbool.h>

#include "base/status.h"

struct config_file;

/* One text of the file. name is NULL but for an entry {name: …, path: …} of a list. */
struct config_file_value {
    const char *key, *name, *text; /* as long as the file is open */
    unsigned line;                 /* from 1 */
    bool is_entry;                 /* of a list */
};

/* Called for each text in the file's order. Several with one key are the entries of its list. A
 * value that is no list comes as is. The first failure ends the reading, and is the result. */
typedef enum status (*config_file_fn)(void *arg, const struct config_file_value *value,
                                      struct error *err);
/* Called for each key before its values. */
typedef enum status (*config_file_key_fn)(void *arg, const char *key, struct error *err);

/* STATUS_INVALID names the file and the line: unreadable, no YAML, or not of this shape. An empty
 * file has no values. */
enum status config_file_open(struct config_file **out, const char *path,
                             struct error *err) MUST_CHECK;
void config_file_close(struct config_file *f); /* f may be NULL */

/* on_key's and on_value's errors get "FILE:LINE: KEY: " before them. */
enum status config_file_each(struct config_file *f, config_file_key_fn on_key,
                             config_file_fn on_value, void *arg, struct error *err) MUST_CHECK;

#endif
