#include "server/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compute/backend.h"
#include "server/port.h"

const char config_usage[] =
    "usage: parleyd [--model NAME=PATH]... [--listen HOST:PORT]... [option]...\n"
    "\n"
    "Serves stateful agents to many conversations over gRPC. 'echo' is always served.\n"
    "\n"
    "  --model NAME=PATH         a language model in a .gguf file; the first is the default\n"
    "  --listen ADDRESS          HOST:PORT, [IPV6]:PORT or unix:PATH; port 0 picks one;\n"
    "                            may be given several times (127.0.0.1:8001)\n"
    "  --backend NAME            what computes: cpu, ref, ... (cpu)\n"
    "  --threads N               of the backend (the physical cores)\n"
    "  --kv-bytes SIZE           ceiling of a model's keys and values, as 512M or 2G\n"
    "                            (an eighth of the memory, at most 4G)\n"
    "  --max-conversations N     that live at once (1000000)\n"
    "  --max-queue N             asks of a model that may wait; one more is refused\n"
    "  --max-message-bytes SIZE  of a request (4M)\n"
    "  --ttl TIME                a conversation is closed after so much idle time, unless it\n"
    "                            was opened with its own (24h)\n"
    "  --drain-timeout TIME      for turns in flight when asked to stop (30s)\n"
    "  --log-level LEVEL         debug, info, warn or error (info)\n"
    "  --check                   only check the command line and the model files\n"
    "  --version, --help\n"
    "\n"
    "When it serves, it says so in one line on stderr: ready grpc=HOST:PORT models=NAME,... in=MS\n"
    "SIGTERM lets turns in flight finish, a second one does not wait.\n"
    "Exit status: 0 stopped as asked, 1 failed, 2 wrong use.\n";

/* A number with an optional unit of the table; the whole text must be used. */
struct unit {
    const char *name;
    uint64_t factor;
};

static enum status parse_number(uint64_t *out, const char *text, const struct unit *units,
                                const char *flag, uint64_t max, struct error *err)
{
    unsigned long long n;
    char *end;

    errno = 0;
    n = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || errno != 0)
        return error_set(err, STATUS_INVALID, "%s takes a number, not '%.60s'", flag, text);
    for (; units->name != NULL; units++) {
        uint64_t value;

        if (strcmp(end, units->name) != 0)
            continue;
        if (__builtin_mul_overflow((uint64_t)n, units->factor, &value) || value > max)
            return error_set(err, STATUS_INVALID, "%s: '%.60s' is too much", flag, text);
        *out = value;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "%s: '%.60s' has no unit that is known", flag, text);
}

static const struct unit counts[] = {{"", 1}, {NULL, 0}};
static const struct unit sizes[] = {
    {"", 1}, {"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {NULL, 0},
};
static const struct unit times[] = {
    {"s", 1000}, {"", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}, {NULL, 0},
};

static enum status parse_size(size_t *out, const char *text, const struct unit *units,
                              const char *flag, size_t max, struct error *err)
{
    uint64_t value = 0;
    enum status rc = parse_number(&value, text, units, flag, max, err);

    if (rc != STATUS_OK)
        return rc;
    if (value == 0)
        return error_set(err, STATUS_INVALID, "%s must be above 0", flag);
    *out = (size_t)value;
    return STATUS_OK;
}

/* --- the flags --- */

static enum status set_model(struct config *c, const char *value, struct error *err)
{
    const char *equals = strchr(value, '=');
    size_t len = equals == NULL ? 0 : (size_t)(equals - value);
    struct config_model *m;
    size_t path_len;

    if (len == 0 || equals[1] == '\0')
        return error_set(err, STATUS_INVALID, "--model takes NAME=PATH, not '%.100s'", value);
    if (c->n_models == CONFIG_MAX_MODELS)
        return error_set(err, STATUS_INVALID, "--model: at most %d models are served",
                         CONFIG_MAX_MODELS);
    m = &c->models[c->n_models];
    if (len >= sizeof(m->name))
        return error_set(err, STATUS_INVALID, "--model: a name has at most %zu characters",
                         sizeof(m->name) - 1);
    for (size_t i = 0; i < len; i++) {
        if (!isalnum((unsigned char)value[i]) && strchr("._-", value[i]) == NULL)
            return error_set(err, STATUS_INVALID,
                             "--model: '%.*s' is no name: letters, digits, '.', '_' and '-' are",
                             (int)len, value);
    }
    memcpy(m->name, value, len);
    m->name[len] = '\0';
    if (strcmp(m->name, "echo") == 0)
        return error_set(err, STATUS_INVALID,
                         "--model: 'echo' is the name of what is always "
                         "served, choose another");
    for (size_t i = 0; i < c->n_models; i++) {
        if (strcmp(c->models[i].name, m->name) == 0)
            return error_set(err, STATUS_INVALID, "--model: '%s' is given twice", m->name);
    }
    m->path = equals + 1;
    path_len = strlen(m->path);
    if (path_len < 5 || strcmp(m->path + path_len - 5, ".gguf") != 0)
        return error_set(err, STATUS_INVALID, "--model: '%.100s' is no .gguf file", m->path);
    c->n_models++;
    return STATUS_OK;
}

static enum status set_listen(struct config *c, const char *value, struct error *err)
{
    if (c->n_listen == CONFIG_MAX_LISTEN)
        return error_set(err, STATUS_INVALID, "--listen: at most %d addresses", CONFIG_MAX_LISTEN);
    if (port_check_address(value, err) != STATUS_OK)
        return error_prefix(err, "--listen %.80s", value);
    c->listen[c->n_listen++] = value;
    return STATUS_OK;
}

static enum status set_backend(struct config *c, const char *value, struct error *err)
{
    const struct backend_type *type;
    char names[80] = "";
    size_t len = 0;

    for (size_t i = 0; (type = backend_type_at(i)) != NULL; i++) {
        if (strcmp(type->name, value) == 0) {
            c->backend = value;
            return STATUS_OK;
        }
        if (len + strlen(type->name) + 2 < sizeof(names)) {
            names[len] = ' ';
            memcpy(names + len + 1, type->name, strlen(type->name) + 1);
            len += strlen(type->name) + 1;
        }
    }
    return error_set(err, STATUS_INVALID, "--backend: there is no '%.40s', there are:%s", value,
                     names);
}

static enum status set_threads(struct config *c, const char *value, struct error *err)
{
    return parse_size(&c->n_threads, value, counts, "--threads", 1024, err);
}

static enum status set_kv_bytes(struct config *c, const char *value, struct error *err)
{
    return parse_size(&c->kv_bytes, value, sizes, "--kv-bytes", SIZE_MAX / 2, err);
}

static enum status set_max_conversations(struct config *c, const char *value, struct error *err)
{
    return parse_size(&c->max_conversations, value, counts, "--max-conversations", 1000000000, err);
}

static enum status set_max_queue(struct config *c, const char *value, struct error *err)
{
    return parse_size(&c->max_queue, value, counts, "--max-queue", 10000000, err);
}

static enum status set_max_message_bytes(struct config *c, const char *value, struct error *err)
{
    return parse_size(&c->max_message_bytes, value, sizes, "--max-message-bytes", (size_t)1 << 30,
                      err);
}

static enum status set_ttl(struct config *c, const char *value, struct error *err)
{
    return parse_size(&c->ttl_ms, value, times, "--ttl", (size_t)3650 * 24 * 3600 * 1000, err);
}

static enum status set_drain_timeout(struct config *c, const char *value, struct error *err)
{
    return parse_number(&c->drain_timeout_ms, value, times, "--drain-timeout",
                        (uint64_t)24 * 3600 * 1000, err);
}

static enum status set_log_level(struct config *c, const char *value, struct error *err)
{
    enum status rc = log_level_parse(&c->log_level, value, err);

    return rc == STATUS_OK ? rc : error_prefix(err, "--log-level");
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

static const struct flag {
    const char *name;
    bool takes_value;
    enum status (*set)(struct config *c, const char *value, struct error *err);
} flags[] = {
    {"--model", true, set_model},
    {"--listen", true, set_listen},
    {"--backend", true, set_backend},
    {"--threads", true, set_threads},
    {"--kv-bytes", true, set_kv_bytes},
    {"--max-conversations", true, set_max_conversations},
    {"--max-queue", true, set_max_queue},
    {"--max-message-bytes", true, set_max_message_bytes},
    {"--ttl", true, set_ttl},
    {"--drain-timeout", true, set_drain_timeout},
    {"--log-level", true, set_log_level},
    {"--check", false, set_check},
    {"--version", false, set_version},
    {"--help", false, set_help},
    {"-h", false, set_help},
};

/* The flag that arg names, alone or as FLAG=VALUE. */
static const struct flag *find_flag(const char *arg, const char **ret_value)
{
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        size_t len = strlen(flags[i].name);

        if (strncmp(arg, flags[i].name, len) != 0)
            continue;
        if (arg[len] == '\0' || (arg[len] == '=' && flags[i].takes_value)) {
            *ret_value = arg[len] == '=' ? arg + len + 1 : NULL;
            return &flags[i];
        }
    }
    return NULL;
}

/* "cpu" where it is built in, else what is. */
static const char *default_backend(void)
{
    const struct backend_type *type;

    for (size_t i = 0; (type = backend_type_at(i)) != NULL; i++) {
        if (strcmp(type->name, "cpu") == 0)
            return type->name;
    }
    return backend_type_at(0)->name;
}

enum status config_parse(struct config *out, int argc, char *const *argv, struct error *err)
{
    struct config c = {.drain_timeout_ms = 30000, .log_level = LOG_INFO};

    c.backend = default_backend();
    for (int i = 1; i < argc; i++) {
        const char *value;
        const struct flag *flag = find_flag(argv[i], &value);
        enum status rc;

        if (flag == NULL)
            return error_set(err, STATUS_INVALID, "there is no option '%.60s', see --help",
                             argv[i]);
        if (flag->takes_value && value == NULL) {
            if (i + 1 == argc)
                return error_set(err, STATUS_INVALID, "%s needs a value", flag->name);
            value = argv[++i];
        }
        rc = flag->set(&c, value, err);
        if (rc != STATUS_OK)
            return rc;
    }
    if (c.n_listen == 0)
        c.listen[c.n_listen++] = "127.0.0.1:8001";
    *out = c;
    return STATUS_OK;
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
