/* The table of parleyd's options. One row adds an option: its flag, its key in the file, its
 * environment variable (PARLEY_ and the key in capitals), and what --help, parleyd(8), the example
 * file and the shells' completions say of it. */
#ifndef SERVER_CONFIG_OPTIONS_H
#define SERVER_CONFIG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct config;
struct config_unit;

/* value is kept. The caller adds the flag, the variable or the file's line to the error. */
typedef enum status (*config_set_fn)(struct config *c, const char *value, struct error *err);

struct config_option {
    const char *flag;  /* "--kv-bytes" */
    const char *value; /* what the help calls its value: "SIZE". NULL: it takes none */
    const char *key;   /* "kv_bytes"; NULL: a flag alone, without key and variable */
    const char *also_flag, *also_key; /* other names of the two; NULL: none */
    bool is_not_in_file;
    bool is_switch;     /* the flag alone means on; FLAG=VALUE is allowed */
    bool is_reloadable; /* on SIGHUP; else a change waits for the next start */

    config_set_fn set;
    /* Without set: a number above 0 and at most max, a size_t or uint64_t of struct config. */
    size_t offset, max;
    const struct config_unit *units;
    /* Of a list: the number of entries in struct config, a size_t. 0: no list. A flag, variable or
     * key replaces the whole list of a weaker source. */
    size_t count_offset;

    const char *initial; /* a value that is set before all others; NULL: none */
    const char *usual;   /* what is told as the default where initial is NULL; NULL: nothing */
    const char *example; /* for the file, as YAML; NULL: initial */
    const char *group;   /* a heading of --help: given at the first option below it */
    const char *help;    /* a clause */
    const char *more;    /* sentences for parleyd(8), behind the clause; NULL: none */
};

extern const struct config_option config_options[]; /* [config_n_options], in the help's order */
extern const size_t config_n_options;

/* Sets the option's value in c. */
enum status config_option_set(const struct config_option *o, struct config *c, const char *value,
                              struct error *err) MUST_CHECK;
void config_option_clear_list(const struct config_option *o, struct config *c);

enum { CONFIG_VARIABLE_MAX = 64 };
/* "PARLEY_KV_BYTES". o has a key. */
void config_option_variable(char out[CONFIG_VARIABLE_MAX], const struct config_option *o);

#endif
