/* Takes the values of flags, variables, the file's keys and defaults, the weakest source first.
 * Each value goes through its option's setter, and the strongest source that gave one is
 * remembered. */
#include "server/config/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fetch/find.h"
#include "base/fetch/model_name.h"
#include "base/suggest.h"
#include "compute/backends.h"
#include "server/config/file.h"
#include "server/config/model_paths.h"
#include "server/config/options.h"
#include "server/config/setters.h"

static size_t option_index(const struct config_option *o)
{
    return (size_t)(o - config_options);
}

/* --- one value --- */

/* FNV-1a: tells whether two configurations differ, no more. */
static uint64_t digest_text(uint64_t digest, const char *text)
{
    for (; *text != '\0'; text++)
        digest = (digest ^ (unsigned char)*text) * 1099511628211u;
    return (digest ^ 0xff) * 1099511628211u;
}

/* Before the values of a source: they replace those of weaker ones. */
static void config_begin(struct config *c, const struct config_option *o, enum config_level level,
                         unsigned line)
{
    size_t i = option_index(o);

    if (o->count_offset == 0 || c->sources[i].level != level) {
        config_option_clear_list(o, c);
        c->digests[i] = 14695981039346656037u;
    }
    c->sources[i] = (struct config_source){level, line};
}

static enum status config_set(struct config *c, const struct config_option *o, const char *value,
                              enum config_level level, struct error *err)
{
    config_begin(c, o, level, 0);
    c->digests[option_index(o)] = digest_text(c->digests[option_index(o)], value);
    return config_option_set(o, c, value, err);
}

/* --- the defaults --- */

/* "cpu" if it is built in, else the first backend. */
static const char *default_backend(void)
{
    const struct backend_type *type;

    for (size_t i = 0; (type = backend_type_at(i)) != NULL; i++) {
        if (strcmp(type->name, "cpu") == 0)
            return type->name;
    }
    return backend_type_at(0)->name;
}

static enum status config_set_defaults(struct config *c, struct error *err)
{
    *c = (struct config){.options = {.kv_host_bytes = KV_HOST_DEFAULT}};
    c->options.backend = default_backend();
    for (size_t i = 0; i < config_n_options; i++) {
        const struct config_option *o = &config_options[i];

        if (o->initial != NULL && config_set(c, o, o->initial, CONFIG_DEFAULT, err) != STATUS_OK)
            return error_prefix(err, "the default of %s", o->flag);
    }
    return STATUS_OK;
}

/* --- the file --- */

struct config_reading {
    struct config *c;
    const struct config_option *option;
    bool is_seen[CONFIG_MAX_OPTIONS];
};

static bool is_in_files(const struct config_option *o)
{
    return o->key != NULL && !o->is_not_in_file;
}

static bool is_key_of(const struct config_option *o, const char *key)
{
    return is_in_files(o) &&
           (strcmp(o->key, key) == 0 || (o->also_key != NULL && strcmp(o->also_key, key) == 0));
}

static const struct config_option *config_find_key(const char *key)
{
    for (size_t i = 0; i < config_n_options; i++)
        if (is_key_of(&config_options[i], key))
            return &config_options[i];
    return NULL;
}

static enum status unknown_key(const char *key, struct error *err)
{
    struct suggest near;

    suggest_init(&near, key);
    for (size_t i = 0; i < config_n_options; i++)
        if (is_in_files(&config_options[i]))
            suggest_try(&near, config_options[i].key);
    if (near.word != NULL)
        return error_set(err, STATUS_INVALID, "there is no key '%.60s', did you mean '%s'?", key,
                         near.word);
    return error_set(err, STATUS_INVALID, "there is no key '%.60s', see parleyd --print-config",
                     key);
}

static enum status on_file_key(void *arg, const char *key, struct error *err)
{
    struct config_reading *r = arg;

    r->option = config_find_key(key);
    if (r->option == NULL)
        return unknown_key(key, err);
    if (r->is_seen[option_index(r->option)])
        return error_set(err, STATUS_INVALID, "%s is given twice", key);
    r->is_seen[option_index(r->option)] = true;
    return STATUS_OK;
}

/* An entry {name: …, path: …}, of models alone. */
static enum status config_set_pair(struct config *c, const struct config_option *o,
                                   const struct config_file_value *value, struct error *err)
{
    if (o->set != set_model)
        return error_set(err, STATUS_INVALID, "must be a text, not name and path");
    config_begin(c, o, CONFIG_FILE, value->line);
    c->digests[option_index(o)] =
        digest_text(digest_text(c->digests[option_index(o)], value->name), value->text);
    return config_add_model(c, value->name, strlen(value->name), value->text, err);
}

static enum status on_file_value(void *arg, const struct config_file_value *value,
                                 struct error *err)
{
    struct config_reading *r = arg;
    const struct config_option *o = r->option;
    enum status rc;

    if (value->is_entry && o->count_offset == 0)
        return error_set(err, STATUS_INVALID, "must be one value, not a list");
    if (value->name != NULL)
        rc = config_set_pair(r->c, o, value, err);
    else
        rc = config_set(r->c, o, value->text, CONFIG_FILE, err);
    r->c->sources[option_index(o)].line = value->line;
    if (rc == STATUS_OK && o->set == set_model)
        r->c->models[r->c->n_models - 1].line = value->line;
    return rc;
}

static enum status config_set_from_file(struct config *c, struct error *err)
{
    struct config_reading reading = {.c = c};

    if (c->file_path == NULL)
        return STATUS_OK;
    if (config_file_open(&c->file, c->file_path, err) != STATUS_OK)
        return err->status;
    return config_file_each(c->file, on_file_key, on_file_value, &reading, err);
}

/* --- the environment --- */

/* The value of a variable; NULL if it is not set, or empty. */
static const char *variable(char *const *environment, const char *name)
{
    size_t len = strlen(name);

    for (; environment != NULL && *environment != NULL; environment++)
        if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
            return (*environment)[len + 1] != '\0' ? *environment + len + 1 : NULL;
    return NULL;
}

/* The entries are separated by commas. */
static enum status config_set_entries(struct config *c, const struct config_option *o,
                                      const char *value, struct error *err)
{
    char *rest = c->lists[option_index(o)] = xstrdup(value);
    enum status rc = STATUS_OK;
    char *entry;

    while (rc == STATUS_OK && (entry = strsep(&rest, ",")) != NULL)
        rc = config_set(c, o, entry, CONFIG_ENVIRONMENT, err);
    return rc;
}

static enum status config_set_from_environment(struct config *c, char *const *environment,
                                               struct error *err)
{
    for (size_t i = 0; i < config_n_options; i++) {
        const struct config_option *o = &config_options[i];
        char name[CONFIG_VARIABLE_MAX];
        const char *value;
        enum status rc;

        if (!is_in_files(o))
            continue;
        config_option_variable(name, o);
        value = variable(environment, name);
        if (value == NULL)
            continue;
        rc = o->count_offset != 0 ? config_set_entries(c, o, value, err)
                                  : config_set(c, o, value, CONFIG_ENVIRONMENT, err);
        if (rc != STATUS_OK)
            return error_prefix(err, "%s", name);
    }
    return STATUS_OK;
}

/* --- the flags --- */

/* The length of flag where arg names it, alone or as FLAG=VALUE; else 0. */
static size_t flag_len(const struct config_option *o, const char *flag, const char *arg)
{
    size_t len = flag == NULL ? 0 : strlen(flag);

    if (len == 0 || strncmp(arg, flag, len) != 0)
        return 0;
    return arg[len] == '\0' || (arg[len] == '=' && o->value != NULL) ? len : 0;
}

static const struct config_option *find_flag(const char *arg, const char **ret_value)
{
    if (strcmp(arg, "-h") == 0)
        arg = "--help";
    for (size_t i = 0; i < config_n_options; i++) {
        const struct config_option *o = &config_options[i];
        size_t len = flag_len(o, o->flag, arg);

        if (len == 0)
            len = flag_len(o, o->also_flag, arg);
        if (len > 0) {
            *ret_value = arg[len] == '=' ? arg + len + 1 : NULL;
            return o;
        }
    }
    return NULL;
}

static enum status unknown_flag(const char *arg, struct error *err)
{
    /* Options of other servers, and what there is instead. */
    static const struct {
        const char *flag, *instead;
    } others[] = {
        {"-m", "a model is FILE.gguf alone, or --model NAME=FILE.gguf"},
        {"--port", "--http HOST:PORT is for HTTP, --listen HOST:PORT for gRPC"},
        {"--host", "--http HOST:PORT is for HTTP, --listen HOST:PORT for gRPC"},
        {"-c", "a conversation may fill the model's context"},
        {"--ctx-size", "a conversation may fill the model's context"},
        {"--max-model-len", "a conversation may fill the model's context"},
        {"-np", "all conversations are computed together"},
        {"--parallel", "all conversations are computed together"},
        {"-ngl", "--backend cuda computes on a GPU"},
        {"--n-gpu-layers", "--backend cuda computes on a GPU"},
        {"-t", "--threads N says how many threads"},
        {"--api-key", "--keys FILE has the keys"},
    };
    char name[SUGGEST_MAX_BYTES + 1] = "";
    size_t len = strcspn(arg, "=");
    struct suggest near;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strlen(others[i].flag) == len && strncmp(others[i].flag, arg, len) == 0)
            return error_set(err, STATUS_INVALID, "there is no option '%s': %s", others[i].flag,
                             others[i].instead);
    if (len < sizeof(name))
        memcpy(name, arg, len);
    suggest_init(&near, name);
    for (size_t i = 0; i < config_n_options; i++)
        suggest_try(&near, config_options[i].flag);
    if (near.word != NULL && len > 2)
        return error_set(err, STATUS_INVALID, "there is no option '%.60s', did you mean '%s'?", arg,
                         near.word);
    return error_set(err, STATUS_INVALID, "there is no option '%.60s', see --help", arg);
}

/* Reads the flag at argv[*at] and its value, "" if it has none; advances *at. */
static enum status next_flag(const struct config_option **ret_flag, const char **ret_value, int *at,
                             int argc, char *const *argv, struct error *err)
{
    const char *value;
    const struct config_option *flag = find_flag(argv[*at], &value);

    if (flag == NULL && argv[*at][0] != '-' && argv[*at][0] != '\0') { /* a model alone */
        *ret_flag = config_find_key("models");
        *ret_value = argv[(*at)++];
        return STATUS_OK;
    }
    if (flag == NULL)
        return unknown_flag(argv[*at], err);
    (*at)++;
    if (flag->is_switch && value == NULL)
        value = "on";
    if (flag->value != NULL && value == NULL) {
        if (*at == argc)
            return error_set(err, STATUS_INVALID, "%s needs a value", flag->flag);
        value = argv[(*at)++];
    }
    *ret_flag = flag;
    *ret_value = value != NULL ? value : "";
    return STATUS_OK;
}

/* The file is read before all flags, wherever --config stands. */
static enum status find_file(struct config *c, int argc, char *const *argv,
                             char *const *environment, struct error *err)
{
    for (int i = 1; i < argc;) {
        const struct config_option *flag;
        const char *value;

        if (next_flag(&flag, &value, &i, argc, argv, err) != STATUS_OK)
            return err->status;
        if (flag->set == set_file_path && set_file_path(c, value, err) != STATUS_OK)
            return error_prefix(err, "%s", flag->flag);
    }
    if (c->file_path == NULL)
        c->file_path = variable(environment, "PARLEY_CONFIG");
    return STATUS_OK;
}

static enum status config_set_from_flags(struct config *c, int argc, char *const *argv,
                                         struct error *err)
{
    for (int i = 1; i < argc;) {
        const struct config_option *flag;
        const char *value;
        bool is_alone = argv[i][0] != '-'; /* the error has its text */

        if (next_flag(&flag, &value, &i, argc, argv, err) != STATUS_OK)
            return err->status;
        if (flag->set != set_file_path && config_set(c, flag, value, CONFIG_FLAG, err) != STATUS_OK)
            return is_alone ? err->status : error_prefix(err, "%s", flag->flag);
    }
    return STATUS_OK;
}

/* --- all together --- */

enum status config_blame(const struct config *c, const char *key, struct error *err)
{
    const struct config_option *o = config_find_key(key);
    char name[CONFIG_VARIABLE_MAX];

    switch (c->sources[option_index(o)].level) {
    case CONFIG_FILE:
        return error_prefix(err, "%.100s:%u: %s", c->file_path, c->sources[option_index(o)].line,
                            o->key);
    case CONFIG_ENVIRONMENT:
        config_option_variable(name, o);
        return error_prefix(err, "%s", name);
    default:
        return error_prefix(err, "%s", o->flag);
    }
}

/* Where KV pages are kept on disk. */
static enum status place_kv_disk(struct config *c, struct error *err)
{
    struct agent_options *o = &c->options;

    if (o->kv_disk_bytes == 0) {
        o->kv_disk_folder = NULL; /* it has no effect alone */
        return STATUS_OK;
    }
    if (o->no_prefix_cache)
        (void)error_set(err, STATUS_INVALID,
                        "is a level of the prefix cache: remove it, or --prefix-cache off");
    else if (o->kv_disk_folder != NULL)
        return STATUS_OK;
    else if (c->data == NULL || strstr(c->data, "://") != NULL)
        (void)error_set(
            err, STATUS_INVALID,
            "needs a folder: --kv-disk-dir DIR, or --data DIR in whose folder kv it is");
    else {
        o->kv_disk_folder = c->data;
        o->kv_disk_is_in_data = true;
        return STATUS_OK;
    }
    return config_blame(c, "kv_disk", err);
}

/* Checks combinations of settings. */
static enum status check_together(const struct config *c, struct error *err)
{
    const struct backend_type *type;

    for (size_t i = 0; (type = backend_type_at(i)) != NULL; i++) {
        if (strcmp(type->name, c->options.backend) != 0 || !c->options.fast_math ||
            type->has_fast_math)
            continue;
        (void)error_set(err, STATUS_INVALID,
                        "has no effect with backend %s: remove it, or use backend cuda",
                        type->name);
        return config_blame(c, "fast_math", err);
    }
    return STATUS_OK;
}

enum status config_parse(struct config *out, int argc, char *const *argv, char *const *environment,
                         struct error *err)
{
    struct config c;

    if (config_set_defaults(&c, err) != STATUS_OK ||
        find_file(&c, argc, argv, environment, err) != STATUS_OK ||
        config_set_from_file(&c, err) != STATUS_OK ||
        config_set_from_environment(&c, environment, err) != STATUS_OK ||
        config_set_from_flags(&c, argc, argv, err) != STATUS_OK ||
        check_together(&c, err) != STATUS_OK || place_kv_disk(&c, err) != STATUS_OK) {
        config_deinit(&c);
        return err->status;
    }
    c.argc = argc;
    c.argv = argv;
    c.environment = environment;
    config_find_models(&c);
    if (c.n_listen == 0 && !c.is_http_given)
        c.http = "127.0.0.1:8000";
    if (c.n_listen == 0)
        c.listen[c.n_listen++] = "127.0.0.1:8001";
    *out = c;
    return STATUS_OK;
}

enum status config_parse_again(struct config *out, const struct config *old, struct error *err)
{
    return config_parse(out, old->argc, old->argv, old->environment, err);
}

bool config_differs(const struct config *a, const struct config *b, const struct config_option *o)
{
    return a->digests[option_index(o)] != b->digests[option_index(o)];
}

void config_deinit(struct config *c)
{
    config_file_close(c->file);
    for (size_t i = 0; i < CONFIG_MAX_OPTIONS; i++)
        free(c->lists[i]);
    for (size_t i = 0; i < c->n_texts; i++)
        free(c->texts[i]);
    free(c->texts);
    *c = (struct config){0};
}

static enum status config_check_file(const struct config_model *m, struct error *err)
{
    char *found;

    if (model_name_is_one(m->path)) { /* it was not found before */
        if (fetch_find(&found, m->path, err) != STATUS_OK)
            return error_prefix(err, "model '%s'", m->name);
        free(found);
        return error_set(err, STATUS_UNAVAILABLE, "model '%s' was fetched meanwhile: start again",
                         m->name);
    }
    if (access(m->path, R_OK) == 0)
        return STATUS_OK;
    if (errno == ENOENT)
        return error_set(err, STATUS_NOT_FOUND,
                         "model '%s': there is no file '%.80s'; './run model' fetches one and "
                         "prints its path, for --model %s=PATH",
                         m->name, m->path, m->name);
    return error_set(err, STATUS_DENIED, "model '%s': '%.120s' cannot be read: %s", m->name,
                     m->path, strerror(errno));
}

static enum status config_check_plugin(const struct config *c, const struct config_model *m,
                                       struct error *err)
{
    for (size_t i = 0; i < c->n_models; i++)
        if (strcmp(c->models[i].name, m->name) == 0)
            return error_set(err, STATUS_INVALID, "a model is called '%s' too", m->name);
    if (access(m->path, R_OK) != 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_DENIED, "%.120s: %s",
                         m->path, strerror(errno));
    return STATUS_OK;
}

/* The MODEL of "[MODEL=]VALUE" must be one of --model; any may lie in --model-dir. */
static enum status check_values_of_models(const struct config *c, const char *const *values,
                                          size_t n, struct error *err)
{
    for (size_t i = 0; i < n && c->model_dir == NULL; i++) {
        const char *text = values[i], *equals = strchr(text, '=');
        size_t len = equals == NULL ? 0 : (size_t)(equals - text), m = 0;

        while (equals != NULL && m < c->n_models &&
               !(strlen(c->models[m].name) == len && memcmp(c->models[m].name, text, len) == 0))
            m++;
        if (equals != NULL && m == c->n_models)
            return error_set(err, STATUS_INVALID, "'%.*s' is the name of no model",
                             (int)(len < 100 ? len : 100), text);
    }
    return STATUS_OK;
}

enum status config_check_files(const struct config *c, struct error *err)
{
    for (size_t i = 0; i < c->n_models; i++) {
        const struct config_model *m = &c->models[i];

        if (config_check_file(m, err) == STATUS_OK)
            continue;
        if (m->line != 0)
            (void)error_prefix(err, "%.100s:%u: models", c->file_path, m->line);
        return err->status;
    }
    if (check_values_of_models(c, c->options.chat_templates, c->options.n_chat_templates, err) !=
        STATUS_OK)
        return config_blame(c, "chat_templates", err);
    if (check_values_of_models(c, c->options.max_replies, c->options.n_max_replies, err) !=
        STATUS_OK)
        return config_blame(c, "max_reply", err);
    for (size_t i = 0; i < c->n_plugins; i++)
        if (config_check_plugin(c, &c->plugins[i], err) != STATUS_OK)
            return config_blame(c, "plugins", err);
    return STATUS_OK;
}
