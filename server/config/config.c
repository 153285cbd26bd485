#include "server/config/config.h"
#include "base/address.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/backends.h"
#include "server/config/file.h"
#include "server/http/origin.h"

const char config_usage[] =
    "usage: parleyd [--model NAME=PATH]... [--listen HOST:PORT]... [--http HOST:PORT]\n"
    "               [option]...\n"
    "\n"
    "Serves stateful agents to many conversations over gRPC and HTTP. 'echo' is always served.\n"
    "\n"
    "  --model NAME=PATH         a language model or a policy, .gguf; the first is the default\n"
    "  --model-dir DIR           models in DIR/NAME.gguf may be loaded while it serves\n"
    "  --listen ADDRESS          HOST:PORT, [IPV6]:PORT or unix:PATH; port 0 picks one;\n"
    "                            may be given several times (127.0.0.1:8001)\n"
    "  --http ADDRESS|off        HOST:PORT for OpenAI's API; port 0 picks one (127.0.0.1:8000,\n"
    "                            where it can be had, unless --listen is given: then off)\n"
    "  --http-timeout TIME       for an HTTP request to come, and its answer to be taken (20s)\n"
    "  --http-origin ORIGIN      pages of it may use HTTP, as https://example.org; * for any; may "
    "be\n"
    "                            given several times (those of this machine alone)\n"
    "  --config FILE             YAML that sets these options; those given here override it\n"
    "  --backend NAME            what computes: cpu, cuda or ref (cpu)\n"
    "  --fast-math               on a GPU, multiply many rows by cuBLAS where it is faster: a "
    "reply\n"
    "                            may then depend on what else is computed beside it\n"
    "  --threads N               of the backend (the physical cores)\n"
    "  --kv-bytes SIZE           ceiling of a model's keys and values, as 512M or 2G\n"
    "                            (an eighth of the memory, at most 4G); half of it\n"
    "                            is taken ahead of need\n"
    "  --kv-host-bytes SIZE|off  of the host's memory behind a device's, for those of idle\n"
    "                            conversations (as many, and off where the host computes)\n"
    "  --kv f16|q8|f32           how they are kept: q8 takes 0.52 of f16's memory (f16)\n"
    "  --prefix-cache on|off     conversations that begin alike share what one computed (on)\n"
    "  --speculate on|off|auto   compute guesses at a reply's next tokens beside the one that is\n"
    "                            due; auto: where they pay. Replies are the same (auto)\n"
    "  --max-itl-ms N            of a step while replies are being written: prompts that arrive\n"
    "                            are read in smaller parts (200)\n"
    "  --max-conversations N     that live at once (1000000)\n"
    "  --max-queue N             asks of a model that may wait; one more is refused\n"
    "  --max-message-bytes SIZE  of a request (4M)\n"
    "  --ttl TIME                a conversation is closed after so much idle time, unless it\n"
    "                            was opened with its own (24h)\n"
    "  --sequence-idle TIME      a sequence of KServe's clients is closed after so long without a\n"
    "                            request (60s)\n"
    "  --max-sessions N          runs of environments that live at once (65536)\n"
    "  --session-ttl TIME        a run that asked for nothing for so long ends (10m)\n"
    "  --params-bytes SIZE       ceiling of all sets of parameters together (half of the memory)\n"
    "  --drain-timeout TIME      for turns in flight when asked to stop (30s)\n"
    "  --linger TIME             a turn with a number or a key goes on without its client (10s)\n"
    "  --log-level LEVEL         debug, info, warn or error (info)\n"
    "  --check                   only check the command line and the model files\n"
    "  --version, --help\n"
    "\n"
    "When it serves, it says so in one line on stderr: ready grpc=HOST:PORT http=HOST:PORT\n"
    "models=NAME,... in=MS\n"
    "SIGTERM lets turns in flight finish, a second one does not wait.\n"
    "Exit status: 0 stopped as asked, 1 failed, 2 wrong use or configuration.\n";

/* A unit of a number; the whole text must be used. */
struct unit {
    const char *name;
    uint64_t factor;
};

static enum status config_parse_number(uint64_t *out, const char *text, const struct unit *units,
                                       uint64_t max, struct error *err)
{
    unsigned long long n;
    char *end;

    errno = 0;
    n = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || errno != 0)
        return error_set(err, STATUS_INVALID, "'%.60s' is no number", text);
    for (; units->name != NULL; units++) {
        uint64_t value;

        if (strcmp(end, units->name) != 0)
            continue;
        if (__builtin_mul_overflow((uint64_t)n, units->factor, &value) || value > max)
            return error_set(err, STATUS_INVALID, "'%.60s' is too much", text);
        *out = value;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "'%.60s' has no unit that is known", text);
}

static const struct unit counts[] = {{"", 1}, {NULL, 0}};
static const struct unit sizes[] = {
    {"", 1}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {NULL, 0},
};
static const struct unit times[] = {
    {"s", 1000}, {"", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}, {NULL, 0},
};
static const struct unit ms_in_us[] = {{"", 1000}, {NULL, 0}};

static enum status parse_size(size_t *out, const char *text, const struct unit *units, size_t max,
                              struct error *err)
{
    uint64_t value = 0;
    enum status rc = config_parse_number(&value, text, units, max, err);

    if (rc != STATUS_OK)
        return rc;
    if (value == 0)
        return error_set(err, STATUS_INVALID, "must be above 0");
    *out = (size_t)value;
    return STATUS_OK;
}

/* --- setters: the caller adds the flag, or the file and its key, to their errors --- */

static enum status add_model(struct config *c, const char *name, size_t len, const char *path,
                             struct error *err)
{
    struct config_model *m;
    size_t path_len = strlen(path);

    if (c->n_models == CONFIG_MAX_MODELS)
        return error_set(err, STATUS_INVALID, "at most %d models are served", CONFIG_MAX_MODELS);
    m = &c->models[c->n_models];
    if (len == 0 || len >= sizeof(m->name))
        return error_set(err, STATUS_INVALID, "a name has 1 to %zu characters",
                         sizeof(m->name) - 1);
    for (size_t i = 0; i < len; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr("._-", name[i]) == NULL)
            return error_set(err, STATUS_INVALID,
                             "'%.*s' is no name: letters, digits, '.', '_' and '-' are", (int)len,
                             name);
    }
    memcpy(m->name, name, len);
    m->name[len] = '\0';
    if (strcmp(m->name, "echo") == 0)
        return error_set(err, STATUS_INVALID,
                         "'echo' is the name of what is always served, choose another");
    for (size_t i = 0; i < c->n_models; i++) {
        if (strcmp(c->models[i].name, m->name) == 0)
            return error_set(err, STATUS_INVALID, "'%s' is given twice", m->name);
    }
    if (path_len < 5 || strcmp(path + path_len - 5, ".gguf") != 0)
        return error_set(err, STATUS_INVALID, "'%.100s' is no .gguf file", path);
    m->path = path;
    c->n_models++;
    return STATUS_OK;
}

static enum status set_model(struct config *c, const char *value, struct error *err)
{
    const char *equals = strchr(value, '=');

    if (equals == NULL || equals == value || equals[1] == '\0')
        return error_set(err, STATUS_INVALID, "takes NAME=PATH, not '%.100s'", value);
    return add_model(c, value, (size_t)(equals - value), equals + 1, err);
}

static enum status set_listen(struct config *c, const char *value, struct error *err)
{
    if (c->n_listen == CONFIG_MAX_LISTEN)
        return error_set(err, STATUS_INVALID, "at most %d addresses", CONFIG_MAX_LISTEN);
    if (address_check(value, err) != STATUS_OK)
        return error_prefix(err, "%.80s", value);
    c->listen[c->n_listen++] = value;
    return STATUS_OK;
}

static enum status set_http(struct config *c, const char *value, struct error *err)
{
    char host[ADDRESS_HOST_MAX + 1], port[6];

    c->http = NULL;
    c->is_http_given = true;
    if (strcmp(value, "off") == 0)
        return STATUS_OK;
    if (address_split(host, port, value, err) != STATUS_OK)
        return error_set(err, STATUS_INVALID, "'%.80s' is no HOST:PORT or [IPV6]:PORT", value);
    c->http = value;
    return STATUS_OK;
}

static enum status add_http_origin(struct config *c, const char *value, struct error *err)
{
    if (c->n_http_origins == CONFIG_MAX_ORIGINS)
        return error_set(err, STATUS_INVALID, "at most %d origins", CONFIG_MAX_ORIGINS);
    if (origin_parse(value, err) != STATUS_OK)
        return err->status;
    c->http_origins[c->n_http_origins++] = value;
    return STATUS_OK;
}

static enum status set_backend(struct config *c, const char *value, struct error *err)
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

/* on, off. A flag without a value means on. */
static enum status parse_switch(bool *out, const char *value, struct error *err)
{
    *out = value == NULL || strcmp(value, "on") == 0;
    if (*out || strcmp(value, "off") == 0)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "takes on or off, not '%.40s'", value);
}

static enum status set_fast_math(struct config *c, const char *value, struct error *err)
{
    return parse_switch(&c->options.fast_math, value, err);
}

static enum status set_kv_host_bytes(struct config *c, const char *value, struct error *err)
{
    if (strcmp(value, "off") != 0)
        return parse_size(&c->options.kv_host_bytes, value, sizes, SIZE_MAX / 2, err);
    c->options.kv_host_bytes = 0;
    return STATUS_OK;
}

static enum status set_kv(struct config *c, const char *value, struct error *err)
{
    return kv_type_of(&c->options.kv_type, value, err);
}

static enum status set_prefix_cache(struct config *c, const char *value, struct error *err)
{
    bool is_on;
    enum status rc = parse_switch(&is_on, value, err);

    if (rc == STATUS_OK)
        c->options.no_prefix_cache = !is_on;
    return rc;
}

static enum status set_speculate(struct config *c, const char *value, struct error *err)
{
    static const char *const names[] = {
        [SPECULATE_AUTO] = "auto", [SPECULATE_ON] = "on", [SPECULATE_OFF] = "off"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(value, names[i]) == 0) {
            c->options.speculate = (enum speculate)i;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_INVALID, "takes on, off or auto, not '%.40s'", value);
}

static enum status set_model_dir(struct config *c, const char *value, struct error *err)
{
    if (value[0] == '\0')
        return error_set(err, STATUS_INVALID, "is empty");
    c->model_dir = value;
    return STATUS_OK;
}

static enum status set_drain_timeout(struct config *c, const char *value, struct error *err)
{
    return config_parse_number(&c->drain_timeout_ms, value, times, (uint64_t)24 * 3600 * 1000, err);
}

static enum status set_linger(struct config *c, const char *value, struct error *err)
{
    return config_parse_number(&c->linger_ms, value, times, (uint64_t)3600 * 1000, err);
}

static enum status set_log_level(struct config *c, const char *value, struct error *err)
{
    return log_level_parse(&c->log_level, value, err);
}

static enum status set_file_path(struct config *c, const char *value, struct error *err)
{
    if (c->file_path != NULL)
        return error_set(err, STATUS_INVALID, "is given twice");
    c->file_path = value;
    return STATUS_OK;
}

static enum status set_check(struct config *c, const char *value, struct error *err)
{
    (void)value;
    (void)err;
    c->check = true;
    return STATUS_OK;
}

static enum status set_version(struct config *c, const char *value, struct error *err)
{
    (void)value;
    (void)err;
    c->version = true;
    return STATUS_OK;
}

static enum status set_help(struct config *c, const char *value, struct error *err)
{
    (void)value;
    (void)err;
    c->help = true;
    return STATUS_OK;
}

/* --- the table --- */

typedef enum status (*set_fn)(struct config *c, const char *value, struct error *err);

enum { DAY_MS = 24 * 3600 * 1000 };
#define TEN_YEARS_MS ((uint64_t)3650 * DAY_MS)

/* A setting is one row: its flag and key, and its target. It also appears in the usage above, in
 * parleyd(8), and where it is used. */
static const struct setting {
    const char *flag;
    const char *key; /* in the file; NULL: a list, or a flag only */
    bool takes_value;
    set_fn set;
    /* Without set: a number above 0, a size_t or uint64_t of struct config. */
    size_t offset, max;
    const struct unit *units;
} settings[] = {
#define OWN(flag, key, takes_value, set)        \
    {                                           \
        flag, key, takes_value, set, 0, 0, NULL \
    }
#define NUMBER(flag, key, member, units, max)                              \
    {                                                                      \
        flag, key, true, NULL, offsetof(struct config, member), max, units \
    }
    OWN("--model", NULL, true, set_model),
    OWN("--listen", NULL, true, set_listen),
    OWN("--http-origin", NULL, true, add_http_origin),
    OWN("--config", NULL, true, set_file_path),
    OWN("--http", "http", true, set_http),
    NUMBER("--http-timeout", "http_timeout", http_timeout_ms, times, DAY_MS),
    OWN("--backend", "backend", true, set_backend),
    OWN("--fast-math", "fast_math", false, set_fast_math),
    NUMBER("--threads", "threads", options.n_threads, counts, 1024),
    NUMBER("--kv-bytes", "kv_bytes", options.kv_bytes, sizes, SIZE_MAX / 2),
    OWN("--kv-host-bytes", "kv_host_bytes", true, set_kv_host_bytes),
    OWN("--kv", "kv", true, set_kv),
    OWN("--prefix-cache", "prefix_cache", true, set_prefix_cache),
    OWN("--speculate", "speculate", true, set_speculate),
    NUMBER("--max-itl-ms", "max_itl_ms", options.max_itl_us, ms_in_us, (size_t)3600000 * 1000),
    NUMBER("--max-queue", "max_queue", options.max_waiting, counts, 10000000),
    NUMBER("--max-conversations", "max_conversations", max_conversations, counts, 1000000000),
    NUMBER("--max-message-bytes", "max_message_bytes", max_message_bytes, sizes, (size_t)1 << 30),
    NUMBER("--ttl", "ttl", ttl_ms, times, TEN_YEARS_MS),
    OWN("--model-dir", "model_dir", true, set_model_dir),
    NUMBER("--sequence-idle", "sequence_idle", sequence_idle_ms, times, TEN_YEARS_MS),
    NUMBER("--max-sessions", "max_sessions", max_sessions, counts, 1000000000),
    NUMBER("--session-ttl", "session_ttl", session_ttl_ms, times, TEN_YEARS_MS),
    NUMBER("--params-bytes", "params_bytes", params_bytes, sizes, (size_t)1 << 46),
    OWN("--drain-timeout", "drain_timeout", true, set_drain_timeout),
    OWN("--linger", "linger", true, set_linger),
    OWN("--log-level", "log_level", true, set_log_level),
    OWN("--check", NULL, false, set_check),
    OWN("--version", NULL, false, set_version),
    OWN("--help", NULL, false, set_help),
    OWN("-h", NULL, false, set_help),
};

enum { N_SETTINGS = sizeof(settings) / sizeof(settings[0]) };
_Static_assert((int)N_SETTINGS <= (int)CONFIG_FILE_MAX_KEYS, "the file has room for each setting");
_Static_assert(sizeof(uint64_t) == sizeof(size_t), "numbers are read as size_t");

static enum status setting_apply(const struct setting *s, struct config *c, const char *value,
                                 struct error *err)
{
    if (s->set != NULL)
        return s->set(c, value, err);
    return parse_size((size_t *)((char *)c + s->offset), value, s->units, s->max, err);
}

/* --- the file --- */

/* The key of each setting; NULL for those without one. */
static void list_keys(const char *keys[N_SETTINGS])
{
    for (size_t i = 0; i < N_SETTINGS; i++)
        keys[i] = settings[i].key;
}

/* Reads c->file_path, and applies its settings to c. */
static enum status config_take_file(struct config *c, struct error *err)
{
    const char *path = c->file_path;
    const char *keys[N_SETTINGS];
    const struct config_file *f;

    list_keys(keys);
    if (config_file_open(&c->file, path, keys, N_SETTINGS, err) != STATUS_OK)
        return err->status;
    f = c->file;
    if (f == NULL) /* an empty file */
        return STATUS_OK;
    for (size_t i = 0; i < f->n_models; i++) {
        const char *name = f->models[i].name;

        if (add_model(c, name, strlen(name), f->models[i].path, err) != STATUS_OK)
            return error_prefix(err, "%.100s: models", path);
    }
    for (size_t i = 0; i < f->n_listen; i++) {
        if (set_listen(c, f->listen[i], err) != STATUS_OK)
            return error_prefix(err, "%.100s: listen", path);
    }
    for (size_t i = 0; i < f->n_http_origin; i++) {
        if (add_http_origin(c, f->http_origin[i], err) != STATUS_OK)
            return error_prefix(err, "%.100s: http_origin", path);
    }
    for (size_t i = 0; i < N_SETTINGS; i++) {
        const char *value = f->texts[i];

        if (value != NULL && setting_apply(&settings[i], c, value, err) != STATUS_OK)
            return error_prefix(err, "%.100s: %s", path, settings[i].key);
    }
    return STATUS_OK;
}

/* --- the flags --- */

/* Finds the flag that arg names, alone or as FLAG=VALUE. */
static const struct setting *find_flag(const char *arg, const char **ret_value)
{
    for (size_t i = 0; i < N_SETTINGS; i++) {
        size_t len = strlen(settings[i].flag);

        if (strncmp(arg, settings[i].flag, len) != 0)
            continue;
        if (arg[len] == '\0' || (arg[len] == '=' && settings[i].takes_value)) {
            *ret_value = arg[len] == '=' ? arg + len + 1 : NULL;
            return &settings[i];
        }
    }
    return NULL;
}

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

/* Reads the flag at argv[*at] and its value, if it takes one; advances *at. */
static enum status next_flag(const struct setting **ret_flag, const char **ret_value, int *at,
                             int argc, char *const *argv, struct error *err)
{
    const char *value;
    const struct setting *flag = find_flag(argv[*at], &value);

    if (flag == NULL)
        return error_set(err, STATUS_INVALID, "there is no option '%.60s', see --help", argv[*at]);
    (*at)++;
    if (flag->takes_value && value == NULL) {
        if (*at == argc)
            return error_set(err, STATUS_INVALID, "%s needs a value", flag->flag);
        value = argv[(*at)++];
    }
    *ret_flag = flag;
    *ret_value = value;
    return STATUS_OK;
}

/* The file is applied before all flags, wherever --config stands: flags replace its lists and
 * overwrite its other values. */
static enum status set_from_file(struct config *c, int argc, char *const *argv, struct error *err)
{
    bool models = false, listen = false, origins = false;

    for (int i = 1; i < argc;) {
        const struct setting *flag;
        const char *value;

        if (next_flag(&flag, &value, &i, argc, argv, err) != STATUS_OK)
            return err->status;
        models = models || flag->set == set_model;
        listen = listen || flag->set == set_listen;
        origins = origins || flag->set == add_http_origin;
        if (flag->set == set_file_path && set_file_path(c, value, err) != STATUS_OK)
            return error_prefix(err, "%s", flag->flag);
    }
    if (c->file_path != NULL && config_take_file(c, err) != STATUS_OK)
        return err->status;
    if (models)
        c->n_models = 0;
    if (listen)
        c->n_listen = 0;
    if (origins)
        c->n_http_origins = 0;
    return STATUS_OK;
}

static enum status set_from_flags(struct config *c, int argc, char *const *argv, struct error *err)
{
    for (int i = 1; i < argc;) {
        const struct setting *flag;
        const char *value;

        if (next_flag(&flag, &value, &i, argc, argv, err) != STATUS_OK)
            return err->status;
        if (flag->set != set_file_path && setting_apply(flag, c, value, err) != STATUS_OK)
            return error_prefix(err, "%s", flag->flag);
    }
    return STATUS_OK;
}

static bool is_in_file(const struct config *c, set_fn set)
{
    for (size_t i = 0; c->file != NULL && i < N_SETTINGS; i++)
        if (settings[i].set == set)
            return c->file->texts[i] != NULL;
    return false;
}

/* Checks combinations of settings. */
static enum status check_together(const struct config *c, struct error *err)
{
    const struct backend_type *type;

    for (size_t i = 0; (type = backend_type_at(i)) != NULL; i++) {
        if (strcmp(type->name, c->options.backend) != 0 || !c->options.fast_math ||
            type->has_fast_math)
            continue;
        (void)error_set(
            err, STATUS_INVALID,
            "changes nothing on backend %s, which multiplies in one way alone: leave it "
            "out, or take backend cuda",
            type->name);
        return is_in_file(c, set_fast_math) ? error_prefix(err, "%.100s: fast_math", c->file_path)
                                            : error_prefix(err, "--fast-math");
    }
    return STATUS_OK;
}

enum status config_parse(struct config *out, int argc, char *const *argv, struct error *err)
{
    struct config c = {.drain_timeout_ms = 30000,
                       .linger_ms = 10000,
                       .http_timeout_ms = 20000,
                       .log_level = LOG_INFO,
                       .options = {.kv_host_bytes = KV_HOST_DEFAULT}};

    c.options.backend = default_backend();
    if (set_from_file(&c, argc, argv, err) != STATUS_OK ||
        set_from_flags(&c, argc, argv, err) != STATUS_OK || check_together(&c, err) != STATUS_OK) {
        config_deinit(&c);
        return err->status;
    }
    if (c.n_listen == 0 && !c.is_http_given)
        c.http = "127.0.0.1:8000";
    if (c.n_listen == 0)
        c.listen[c.n_listen++] = "127.0.0.1:8001";
    *out = c;
    return STATUS_OK;
}

void config_deinit(struct config *c)
{
    const char *keys[N_SETTINGS];

    list_keys(keys);
    config_file_close(c->file, keys, N_SETTINGS);
    *c = (struct config){0};
}

enum status config_check_files(const struct config *c, struct error *err)
{
    for (size_t i = 0; i < c->n_models; i++) {
        if (access(c->models[i].path, R_OK) == 0)
            continue;
        if (errno == ENOENT)
            return error_set(err, STATUS_NOT_FOUND,
                             "model '%s': there is no file '%.80s'; './run model' fetches one and "
                             "prints its path, for --model %s=PATH",
                             c->models[i].name, c->models[i].path, c->models[i].name);
        return error_set(err, STATUS_DENIED, "model '%s': '%.120s' cannot be read: %s",
                         c->models[i].name, c->models[i].path, strerror(errno));
    }
    return STATUS_OK;
}
