/* The values of parleyd's options: config.h reads them, options.h says where each of them stands.
 */
#ifndef SERVER_CONFIG_VALUES_H
#define SERVER_CONFIG_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/options.h"
#include "base/log.h"

enum {
    CONFIG_MAX_MODELS = 64,
    CONFIG_MAX_PLUGINS = 16,
    CONFIG_MAX_LISTEN = 16,
    CONFIG_MAX_ORIGINS = 16,
    CONFIG_MAX_OPTIONS = 96
};

struct config_file;

struct config_model {
    char name[64];
    const char *path; /* in argv, the file or config's texts; NULL: echo. A name that begins with
                         hf: or ollama: is of a model that is not on this machine */
    unsigned line;    /* in the file; 0: not from there */
};

struct config {
    struct config_model models[CONFIG_MAX_MODELS]; /* [n_models]; the first is the default */
    size_t n_models;
    struct config_model plugins[CONFIG_MAX_PLUGINS]; /* [n_plugins] in shared objects */
    size_t n_plugins;
    const char *model_dir; /* files that may be loaded by name; NULL: none. In argv or the file */
    bool is_offline;       /* nothing is fetched */
    const char *backup;    /* only copy what data has to this file; NULL: no */
    const char *data;      /* the journal's directory, in argv or the file; NULL: none is kept */
    const char *tls_cert, *tls_key, *tls_client_ca; /* likewise, PEM files; NULL: none */
    const char *service; /* the plan of the chat service, likewise; NULL: there is none */
    const char *keys;    /* the file of keys, in argv or the file; NULL: everybody may call */
    const char *listen[CONFIG_MAX_LISTEN]; /* [n_listen], in argv or the file */
    size_t n_listen;
    const char *listen_admin; /* likewise; NULL: listen serves all */
    const char *http;         /* in argv or the file; NULL: no HTTP */
    bool is_http_given;       /* else a failure to bind the default address is no error */
    const char *http_admin;   /* likewise; NULL: --http serves it */
    bool no_page;             /* http serves no page */
    uint64_t http_timeout_ms;
    uint64_t connection_idle_ms, connection_age_ms; /* of gRPC; 0: no bound */
    const char *http_origins[CONFIG_MAX_ORIGINS];   /* [n_http_origins], in argv or the file */
    size_t n_http_origins;
    struct agent_options options; /* of every model; fast_math only of a backend that has it */
    size_t max_conversations;     /* 0: the default, as for those that follow */
    size_t max_sessions;
    uint64_t session_ttl_ms;
    size_t params_bytes, store_bytes, replay_bytes;
    size_t work_bytes;
    size_t checkpoint_rounds;
    uint64_t checkpoint_ms;
    uint64_t lease_ms;
    const char *cluster_address, *cluster_ca; /* NULL: not given */
    uint64_t unload_idle_ms, unload_bytes, retain_age_ms;
    size_t retain_bytes;
    size_t memory_bytes;         /* of all models; 0: no bound */
    size_t max_peer_connections; /* 0: no bound */
    size_t max_message_bytes;
    enum config_attach { ATTACH_AUTO, ATTACH_ON, ATTACH_OFF } attach; /* who may be a worker */
    uint64_t attach_timeout_ms;
    uint64_t drain_timeout_ms, linger_ms;
    uint64_t ttl_ms;
    uint64_t sequence_idle_ms;
    enum log_level log_level;
    bool help, version, check, check_data, init_data, print_config;
    const char *file_path;           /* NULL: no file */
    struct config_file *file;        /* owned: its texts */
    char *lists[CONFIG_MAX_OPTIONS]; /* owned: the entries of lists in the environment */
    char **texts;                    /* [n_texts], owned: the paths that model_paths.h made */
    size_t n_texts;
    int argc; /* what it was parsed from */
    char *const *argv, *const *environment;
    /* By the option's index: a hash of its texts, and the last source that set it. */
    uint64_t digests[CONFIG_MAX_OPTIONS];
    struct config_source {
        enum config_level { CONFIG_DEFAULT, CONFIG_FILE, CONFIG_ENVIRONMENT, CONFIG_FLAG } level;
        unsigned line; /* of the file */
    } sources[CONFIG_MAX_OPTIONS];
};

#endif
