/* The daemon's state, for daemon.c and daemon_reload.c. Loop. */
#ifndef SERVER_DAEMON_STATE_H
#define SERVER_DAEMON_STATE_H

#include <uv.h>

#include "base/env.h"
#include "server/call/health.h"
#include "server/config/config.h"
#include "server/loop_watch.h"
#include "server/notify.h"
#include "server/part.h"
#include "server/part_list.h"
#include "server/ports.h"
#include "server/reload.h"
#include "server/server.h"

struct daemon {
    uv_loop_t loop;
    struct config config;
    struct env env;
    struct server server;
    struct part_host host;
    struct error *err; /* daemon_run's: the reason of a failure */
    struct part_list parts;
    struct ports ports;
    struct access *access;             /* NULL: everybody may call */
    struct service_plan *service_plan; /* NULL: there is no chat service */
    struct health health;
    struct loop_watch watch;
    uv_timer_t drain_timer;
    uv_idle_t later;    /* has the loop itself call daemon_advance */
    uv_signal_t hangup; /* SIGHUP; the others are stop_signal's */
    uint64_t drain_until_us;
    struct reload reload;
    struct notifier notifier;
    bool is_reload_due; /* SIGHUP came while models loaded */
    bool is_stopping_journal;
};

/* Before daemon_reload. start is borrowed until reload_deinit. */
void daemon_init_reload(struct daemon *d, const struct config *start);
/* Reads the configuration again and applies it; while models load, as soon as they are loaded. */
void daemon_reload(struct daemon *d);

#endif
