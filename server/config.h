/* What parleyd is told, on its command line and in the file that --config names. */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/agent.h"
#include "base/log.h"
#include "base/status.h"

enum { CONFIG_MAX_MODELS = 16, CONFIG_MAX_LISTEN = 16 };

struct config_file;

struct config_model {
    char name[64];
    const char *path; /* in argv or the file; NULL: echo */
};

struct config {
    struct config_model models[CONFIG_MAX_MODELS]; /* [n_models]; the first is the default */
    size_t n_models;
    const char *model_dir; /* files that may be loaded by name; NULL: none. In argv or the file */
    const char *listen[CONFIG_MAX_LISTEN]; /* [n_listen], in argv or the file */
    size_t n_listen;
    const char *http;   /* in argv or the file; NULL: no HTTP */
    bool is_http_given; /* else it is the default, and served where it can be */
    uint64_t http_timeout_ms;
    const char *backend;
    bool fast_math;       /* only of a backend that has it */
    size_t n_threads;     /* 0: the physical cores */
    size_t kv_bytes;      /* 0: the agent's own */
    size_t kv_host_bytes; /* as agent_config's */
    enum kv_type kv_type; /* --kv */
    bool no_prefix_cache; /* --prefix-cache off */
    enum speculate speculate;
    uint64_t max_itl_us;      /* 0: the agent's own */
    size_t max_conversations; /* 0: the default, as for those that follow */
    size_t max_sessions;
    uint64_t session_ttl_ms;
    size_t params_bytes;
    size_t max_queue;
    size_t max_message_bytes;
    uint64_t drain_timeout_ms;
    uint64_t ttl_ms;
    uint64_t sequence_idle_ms;
    enum log_level log_level;
    bool help, version, check;
    const char *file_path;    /* NULL: no file */
    struct config_file *file; /* owned: its texts */
};

/* STATUS_INVALID says what is wrong, and with which flag or key of which file. A flag overrides
 * what the file says: --model all its models, --listen all its addresses. Keeps argv's texts. */
enum status config_parse(struct config *out, int argc, char *const *argv,
                         struct error *err) MUST_CHECK;

/* A copy of the struct is worth nothing after this. */
void config_deinit(struct config *c);

/* That the model files are there; the error says how to get one. */
enum status config_check_files(const struct config *c, struct error *err) MUST_CHECK;

/* What --help prints. */
extern const char config_usage[];

#endif
