/* One function for each option whose value is more than a number, and the readers that they share.
 * A setter says in its error what would be a right value. */
#include "server/config/setters.h"

#include <string.h>
#include <sys/stat.h>

#include "base/address.h"
#include "base/fetch/model_name.h"
#include "base/name.h"
#include "base/number.h"
#include "compute/backends.h"
#include "server/config/units.h"
#include "server/config/values.h"
#include "server/http/origin.h"

static bool is_word(const char *text, const char *const words[3])
{
    return strcmp(text, words[0]) == 0 || strcmp(text, words[1]) == 0 ||
           strcmp(text, words[2]) == 0;
}

static bool is_off(const char *text)
{
    static const char *const words[] = {"off", "false", "no"};

    return is_word(text, words);
}

static bool is_on(const char *text)
{
    static const char *const words[] = {"on", "true", "yes"};

    return is_word(text, words);
}

enum status config_switch(bool *out, const char *text, struct error *err)
{
    if (!is_on(text) && !is_off(text))
        return error_set(err, STATUS_INVALID, "takes on or off, not '%.40s'", text);
    *out = is_on(text);
    return STATUS_OK;
}

/* --- setters --- */

/* By its name; a folder is looked at, since any name may be one's. */
bool config_is_model_path(const char *path)
{
    static const char *const endings[] = {".gguf", ".safetensors", ".safetensors.index.json"};
    size_t len = strlen(path);
    struct stat st;

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t n = strlen(endings[i]);

        if (len >= n && strcmp(path + len - n, endings[i]) == 0)
            return true;
    }
    return model_name_is_one(path) || (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

/* Fills m, which is beside the n others of its list. */
static enum status config_name_model(struct config_model *m, const struct config_model *others,
                                     size_t n, const char *name, size_t len, struct error *err)
{
    if (len == 0 || len >= sizeof(m->name))
        return error_set(err, STATUS_INVALID, "a name has 1 to %zu characters",
                         sizeof(m->name) - 1);
    if (!name_is_valid(name, len, len, NAME_MARKS))
        return error_set(err, STATUS_INVALID,
                         "'%.*s' is not a name: use letters, digits, '.', '_' and '-'", (int)len,
                         name);
    memcpy(m->name, name, len);
    m->name[len] = '\0';
    m->line = 0; /* the one before in a replaced list may have had one */
    if (strcmp(m->name, "echo") == 0)
        return error_set(err, STATUS_INVALID,
                         "'echo' is the name of what is always served, choose another");
    for (size_t i = 0; i < n; i++) {
        if (strcmp(others[i].name, m->name) == 0)
            return error_set(err, STATUS_INVALID, "'%s' is given twice", m->name);
    }
    return STATUS_OK;
}

enum status config_add_model(struct config *c, const char *name, size_t len, const char *path,
                             struct error *err)
{
    struct config_model *m;
    struct model_name parsed;

    if (c->n_models == CONFIG_MAX_MODELS)
        return error_set(err, STATUS_INVALID, "at most %d models are served", CONFIG_MAX_MODELS);
    m = &c->models[c->n_models];
    if (config_name_model(m, c->models, c->n_models, name, len, err) != STATUS_OK)
        return err->status;
    if (!config_is_model_path(path))
        return error_set(err, STATUS_INVALID,
                         "'%.100s' is no .gguf file, nor a folder or file of safetensors, nor "
                         "hf:OWNER/REPO or ollama:NAME",
                         path);
    if (model_name_is_one(path) && model_name_parse(&parsed, path, err) != STATUS_OK)
        return err->status;
    m->path = path;
    c->n_models++;
    return STATUS_OK;
}

enum status set_plugin(struct config *c, const char *value, struct error *err)
{
    const char *equals = strchr(value, '='), *slash = strrchr(value, '/');
    const char *path = equals != NULL ? equals + 1 : value;
    const char *name = equals != NULL ? value : slash != NULL ? slash + 1 : value;
    struct config_model *m = &c->plugins[c->n_plugins];
    size_t len = strlen(path);

    if (c->n_plugins == CONFIG_MAX_PLUGINS)
        return error_set(err, STATUS_INVALID, "at most %d plug-ins are served", CONFIG_MAX_PLUGINS);
    if (len < 4 || strcmp(path + len - 3, ".so") != 0)
        return error_set(err, STATUS_INVALID, "takes [NAME=]FILE.so, not '%.100s'", value);
    len = equals != NULL ? (size_t)(equals - value) : strlen(name) - 3;
    if (config_name_model(m, c->plugins, c->n_plugins, name, len, err) != STATUS_OK)
        return err->status;
    m->path = path;
    c->n_plugins++;
    return STATUS_OK;
}

enum status set_listen(struct config *c, const char *value, struct error *err)
{
    if (c->n_listen == CONFIG_MAX_LISTEN)
        return error_set(err, STATUS_INVALID, "at most %d addresses", CONFIG_MAX_LISTEN);
    if (address_check(value, err) != STATUS_OK)
        return error_prefix(err, "%.80s", value);
    c->listen[c->n_listen++] = value;
    return STATUS_OK;
}

enum status set_listen_admin(struct config *c, const char *value, struct error *err)
{
    c->listen_admin = NULL;
    if (is_off(value))
        return STATUS_OK;
    if (address_check(value, err) != STATUS_OK)
        return error_prefix(err, "%.80s", value);
    c->listen_admin = value;
    return STATUS_OK;
}

static enum status set_http_address(const char **out, const char *value, struct error *err)
{
    char host[ADDRESS_HOST_MAX + 1], port[6];

    *out = NULL;
    if (is_off(value))
        return STATUS_OK;
    if (address_split(host, port, value, err) != STATUS_OK)
        return error_set(err, STATUS_INVALID, "'%.80s' is no HOST:PORT or [IPV6]:PORT", value);
    *out = value;
    return STATUS_OK;
}

enum status set_http(struct config *c, const char *value, struct error *err)
{
    c->is_http_given = true;
    return set_http_address(&c->http, value, err);
}

enum status set_http_admin(struct config *c, const char *value, struct error *err)
{
    return set_http_address(&c->http_admin, value, err);
}

enum status set_http_origin(struct config *c, const char *value, struct error *err)
{
    if (c->n_http_origins == CONFIG_MAX_ORIGINS)
        return error_set(err, STATUS_INVALID, "at most %d origins", CONFIG_MAX_ORIGINS);
    if (origin_parse(value, err) != STATUS_OK)
        return err->status;
    c->http_origins[c->n_http_origins++] = value;
    return STATUS_OK;
}

enum status set_backend(struct config *c, const char *value, struct error *err)
{
    const struct backend_type *type;
    char names[80] = "";
    size_t len = 0;

    for (size_t i = 0; (type = backend_type_at(i)) != NULL; i++) {
        if (strcmp(type->name, value) == 0) {
            c->options.backend = value;
            return STATUS_OK;
        }
        if (len + strlen(type->name) + 2 < sizeof(names)) {
            names[len] = ' ';
            memcpy(names + len + 1, type->name, strlen(type->name) + 1);
            len += strlen(type->name) + 1;
        }
    }
    return error_set(err, STATUS_INVALID, "there is no '%.40s', there are:%s", value, names);
}

enum status set_offline(struct config *c, const char *value, struct error *err)
{
    return config_switch(&c->is_offline, value, err);
}

enum status set_fast_math(struct config *c, const char *value, struct error *err)
{
    return config_switch(&c->options.fast_math, value, err);
}

enum status set_kv_host_bytes(struct config *c, const char *value, struct error *err)
{
    if (!is_off(value))
        return config_size(&c->options.kv_host_bytes, value, config_sizes, SIZE_MAX / 2, err);
    c->options.kv_host_bytes = 0;
    return STATUS_OK;
}

enum status set_kv_disk_dir(struct config *c, const char *value, struct error *err)
{
    if (*value == '\0')
        return error_set(err, STATUS_INVALID, "names no directory");
    c->options.kv_disk_folder = value;
    return STATUS_OK;
}

enum status set_kv(struct config *c, const char *value, struct error *err)
{
    return kv_type_of(&c->options.kv_type, value, err);
}

/* A switch that is on unless it is turned off; *off is written on success. */
static enum status read_off(bool *off, const char *value, struct error *err)
{
    bool is_wanted = true;
    enum status rc = config_switch(&is_wanted, value, err);

    if (rc == STATUS_OK)
        *off = !is_wanted;
    return rc;
}

enum status set_page(struct config *c, const char *value, struct error *err)
{
    return read_off(&c->no_page, value, err);
}

enum status set_prefix_cache(struct config *c, const char *value, struct error *err)
{
    return read_off(&c->options.no_prefix_cache, value, err);
}

enum status set_speculate(struct config *c, const char *value, struct error *err)
{
    static const char *const names[] = {
        [SPECULATE_AUTO] = "auto", [SPECULATE_ON] = "on", [SPECULATE_OFF] = "off"};

    if (is_on(value))
        value = "on";
    else if (is_off(value))
        value = "off";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(value, names[i]) == 0) {
            c->options.speculate = (enum speculate)i;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_INVALID, "takes on, off or auto, not '%.40s'", value);
}

enum status set_backup(struct config *c, const char *value, struct error *err)
{
    if (*value == '\0')
        return error_set(err, STATUS_INVALID, "is empty");
    c->backup = value;
    return STATUS_OK;
}

enum status set_init_data(struct config *c, const char *value, struct error *err)
{
    c->init_data = true;
    return STATUS_OK;
}

enum status set_check_data(struct config *c, const char *value, struct error *err)
{
    c->check_data = true;
    return STATUS_OK;
}

enum status set_data(struct config *c, const char *value, struct error *err)
{
    if (value[0] == '\0')
        return error_set(err, STATUS_INVALID, "names no directory");
    c->data = value;
    return STATUS_OK;
}

enum status set_chat_template(struct config *c, const char *value, struct error *err)
{
    const char *equals = strchr(value, '=');

    if (c->options.n_chat_templates == OPTIONS_MAX_TEMPLATES)
        return error_set(err, STATUS_INVALID, "at most %d chat templates", OPTIONS_MAX_TEMPLATES);
    if (*value == '\0' || equals == value || (equals != NULL && equals[1] == '\0'))
        return error_set(err, STATUS_INVALID, "takes [MODEL=]FILE or [MODEL=]NAME, not '%.100s'",
                         value);
    c->options.chat_templates[c->options.n_chat_templates++] = value;
    return STATUS_OK;
}

enum status set_max_reply(struct config *c, const char *value, struct error *err)
{
    const char *equals = strchr(value, '=');
    uint64_t n;

    if (c->options.n_max_replies == OPTIONS_MAX_REPLIES)
        return error_set(err, STATUS_INVALID, "at most %d limits", OPTIONS_MAX_REPLIES);
    if (equals == value || !number_read(&n, equals == NULL ? value : equals + 1, UINT32_MAX))
        return error_set(err, STATUS_INVALID, "takes [MODEL=]N, not '%.100s'", value);
    c->options.max_replies[c->options.n_max_replies++] = value;
    return STATUS_OK;
}

enum status set_pooling(struct config *c, const char *value, struct error *err)
{
    if (strcmp(value, "mean") == 0)
        c->options.pooling = POOLING_MEAN;
    else if (strcmp(value, "last") == 0)
        c->options.pooling = POOLING_LAST;
    else if (strcmp(value, "cls") == 0)
        c->options.pooling = POOLING_CLS;
    else
        return error_set(err, STATUS_INVALID, "takes mean, last or cls, not '%.40s'", value);
    return STATUS_OK;
}

enum status set_attach(struct config *c, const char *value, struct error *err)
{
    if (is_on(value))
        c->attach = ATTACH_ON;
    else if (is_off(value))
        c->attach = ATTACH_OFF;
    else if (strcmp(value, "auto") == 0)
        c->attach = ATTACH_AUTO;
    else
        return error_set(err, STATUS_INVALID, "takes on, off or auto, not '%.40s'", value);
    return STATUS_OK;
}

enum status set_model_dir(struct config *c, const char *value, struct error *err)
{
    if (value[0] == '\0')
        return error_set(err, STATUS_INVALID, "is empty");
    c->model_dir = value;
    return STATUS_OK;
}

enum status set_keys(struct config *c, const char *value, struct error *err)
{
    if (value[0] == '\0')
        return error_set(err, STATUS_INVALID, "is empty");
    c->keys = value;
    return STATUS_OK;
}

enum status set_service(struct config *c, const char *value, struct error *err)
{
    if (value[0] == '\0')
        return error_set(err, STATUS_INVALID, "is empty");
    c->service = value;
    return STATUS_OK;
}

enum status set_tls_cert(struct config *c, const char *value, struct error *err)
{
    if (value[0] == '\0')
        return error_set(err, STATUS_INVALID, "is empty");
    c->tls_cert = value;
    return STATUS_OK;
}

enum status set_tls_key(struct config *c, const char *value, struct error *err)
{
    if (value[0] == '\0')
        return error_set(err, STATUS_INVALID, "is empty");
    c->tls_key = value;
    return STATUS_OK;
}

enum status set_tls_client_ca(struct config *c, const char *value, struct error *err)
{
    if (value[0] == '\0')
        return error_set(err, STATUS_INVALID, "is empty");
    c->tls_client_ca = value;
    return STATUS_OK;
}

enum status set_cluster_address(struct config *c, const char *value, struct error *err)
{
    const char *colon = strrchr(value, ':');

    if (strcmp(value, "off") != 0 && (colon == NULL || colon == value || colon[1] == '\0' ||
                                      strspn(colon + 1, "0123456789") != strlen(colon + 1)))
        return error_set(err, STATUS_INVALID, "is not HOST:PORT, [IPV6]:PORT or off");
    c->cluster_address = value;
    return STATUS_OK;
}

enum status set_cluster_ca(struct config *c, const char *value, struct error *err)
{
    if (value[0] == '\0')
        return error_set(err, STATUS_INVALID, "is empty");
    c->cluster_ca = value;
    return STATUS_OK;
}

enum status set_drain_timeout(struct config *c, const char *value, struct error *err)
{
    return config_number(&c->drain_timeout_ms, value, config_times, (uint64_t)24 * 3600 * 1000,
                         err);
}

enum status set_linger(struct config *c, const char *value, struct error *err)
{
    return config_number(&c->linger_ms, value, config_times, (uint64_t)3600 * 1000, err);
}

enum status set_unload_idle(struct config *c, const char *value, struct error *err)
{
    return config_number(&c->unload_idle_ms, value, config_times, (uint64_t)3650 * 24 * 3600 * 1000,
                         err);
}

enum status set_unload_size(struct config *c, const char *value, struct error *err)
{
    return config_number(&c->unload_bytes, value, config_sizes, (uint64_t)1 << 50, err);
}

enum status set_log_level(struct config *c, const char *value, struct error *err)
{
    return log_level_parse(&c->log_level, value, err);
}

enum status set_file_path(struct config *c, const char *value, struct error *err)
{
    if (c->file_path != NULL)
        return error_set(err, STATUS_INVALID, "is given twice");
    c->file_path = value;
    return STATUS_OK;
}

enum status set_check(struct config *c, const char *value, struct error *err)
{
    c->check = true;
    return STATUS_OK;
}

enum status set_version(struct config *c, const char *value, struct error *err)
{
    c->version = true;
    return STATUS_OK;
}

enum status set_help(struct config *c, const char *value, struct error *err)
{
    c->help = true;
    return STATUS_OK;
}

enum status set_print_config(struct config *c, const char *value, struct error *err)
{
    c->print_config = true;
    return STATUS_OK;
}
