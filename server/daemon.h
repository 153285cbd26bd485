/* The daemon: one loop that owns everything else, and the order in which it starts and stops. */
#ifndef SERVER_DAEMON_H
#define SERVER_DAEMON_H

#include <uv.h>

#include "base/env.h"
#include "base/list.h"
#include "server/act_trainer.h"
#include "server/config.h"
#include "server/conversations.h"
#include "server/health.h"
#include "server/http/http.h"
#include "server/model.h"
#include "server/params.h"
#include "server/port.h"
#include "server/repository.h"
#include "server/sequences.h"
#include "server/session.h"

enum { N_SIGNALS = 2 };

enum daemon_state {
    DAEMON_LOADING, /* the port is open, models load */
    DAEMON_SERVING,
    DAEMON_DRAINING, /* no new turns; those in flight go on */
    DAEMON_ENDING,   /* turns are cancelled; what is left goes in its order */
    DAEMON_STOPPED,
};

/* A stream that would go on for ever: told when the daemon drains, to end as soon as it can. */
struct endless {
    struct link link;
    void (*drain)(struct endless *l);
};

struct daemon {
    uv_loop_t loop;
    struct config config;
    struct env env;
    enum daemon_state state;
    struct error err; /* why it failed, if it did */
    uint64_t start_us;
    struct repository repository;
    struct model *models[DAEMON_MAX_MODELS]; /* [n_models] loaded, or about to be; the first is the
                                                default */
    size_t n_models, n_models_running, n_loading;
    struct conversations conversations;
    struct params_sets params;
    struct sessions sessions;
    struct sequences sequences;
    uint64_t n_inferences; /* steps of no sequence: numbers them */
    struct trainers trainers;
    struct health health;
    struct port *port;
    struct http *http; /* NULL: none */
    struct list endless;
    uv_timer_t expiry_timer, sessions_timer, sequences_timer, drain_timer;
    uv_idle_t later; /* asks daemon_go_on to be called from the loop itself */
    uv_signal_t signals[N_SIGNALS];
    uint64_t drain_until_us;
    bool is_stopping_models, is_stopping_port;
};

/* Serves until a signal ends it. STATUS_OK: it was asked to stop. Everything it took is given back
 * when it returns. */
enum status daemon_run(const struct config *config, struct error *err) MUST_CHECK;

/* What --check does: opens every model and gives it up again. */
enum status daemon_check(const struct config *config, struct error *err) MUST_CHECK;

/* By name, "" the default. STATUS_NOT_FOUND names those that are served; UNAVAILABLE: it is known,
 * and not loaded. */
enum status daemon_model(struct model **out, const struct daemon *d, const char *name,
                         struct error *err) MUST_CHECK;

/* For the repository. Starts to load a model; its caller puts it among the models. */
enum status daemon_start_model(struct model **out, struct daemon *d, const char *name,
                               const char *path, struct error *err) MUST_CHECK;
/* One that it had started has stopped. */
void daemon_model_stopped(struct daemon *d);

/* "loading", "serving", "draining". */
const char *daemon_state_name(const struct daemon *d);

/* One more stream that lingers, until endless_end. If the daemon drains already, drain is called.
 */
void endless_begin(struct endless *l, struct daemon *d, void (*drain)(struct endless *l));
void endless_end(struct endless *l);

#endif
