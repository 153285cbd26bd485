/* Start: TLS, then the ports of gRPC, then those of HTTP; an address in use fails at once. Stop:
 * ports_end answers all that was asked and is asked yet, ports_have_answered waits for a second at
 * most until those who asked have taken it, and ports_stop joins what gRPC runs. */
#include "server/ports.h"

#include <unistd.h>

#include "base/address.h"
#include "base/buf.h"
#include "base/env.h"
#include "base/log.h"
#include "server/api/connect/connect.h"
#include "server/api/routes.h"
#include "server/api/services.h"
#include "server/cluster/cluster.h"
#include "server/config/config.h"
#include "server/http/http.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/net/inherited.h"
#include "server/net/peer_addresses.h"
#include "server/net/tls.h"
#include "server/part.h"
#include "server/rpc/port.h"
#include "server/server.h"
#include "server/stop_signal.h"
#include "server/watchdog.h"

enum { FAREWELL_US = 1000000 }; /* for the last answers to be sent and taken */
enum { READY_MAX_BYTES = 4096, HTTP_BODY_BYTES = 4 << 20 };

static enum status ports_open_tls(struct ports *p, struct error *err)
{
    const struct config *c = p->host->config;
    const struct tls_config config = {c->tls_cert, c->tls_key, c->tls_client_ca};

    if (c->tls_cert == NULL && c->tls_key == NULL && c->tls_client_ca == NULL)
        return STATUS_OK;
    if (tls_open(&p->tls, p->host->loop, &config, err) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(err, "TLS");
}

static enum status grpc_port_start(struct grpc_port *g, const char *flag, enum port_part part,
                                   const char *const *listen, size_t n_listen,
                                   struct access *access, struct error *err)
{
    struct part_host *host = g->ports->host;
    struct port_config config = {
        .part = part,
        .listen = listen,
        .n_listen = n_listen,
        .idle_ms = host->config->connection_idle_ms,
        .age_ms = host->config->connection_age_ms,
        .max_message_bytes = host->config->max_message_bytes,
        .server = host->server,
        .stats = &host->server->calls,
        .health = host->health,
        .tls = g->ports->tls,
        .peer_addresses = g->ports->peer_addresses,
        .inherited = g->ports->inherited,
        .n_refused = &host->server->n_connections_refused,
        .n_dropped = &host->server->n_connections_dropped,
        .access = access,
        .admit_passed = journal_is_shared(host->journal) ? cluster_admit : NULL,
        .admit_arg = host->server->cluster,
        .env = host->env,
    };
    enum status rc;

    config.services = services_tables(&config.n_services);
    (void)error_set(err, STATUS_EXHAUSTED, "gRPC does not start: it has no memory or no threads");
    watchdog_set(true);
    rc = port_start(&g->port, host->loop, &config, err);
    watchdog_set(false);
    if (rc != STATUS_OK)
        return error_prefix(err, "%s", flag);
    for (size_t i = 0; i < config.n_listen; i++)
        log_info("listening", "%s=%s", part == PORT_ADMIN ? "grpc_admin" : "grpc",
                 port_address(g->port, i));
    *err = (struct error){0};
    return STATUS_OK;
}

static enum status ports_open_grpc(struct ports *p, struct access *access, struct error *err)
{
    const struct config *c = p->host->config;
    const bool is_apart = c->listen_admin != NULL;
    enum status rc;

    p->grpc[PORTS_GRPC] = p->grpc[PORTS_GRPC_ADMIN] = (struct grpc_port){.ports = p};
    rc = grpc_port_start(&p->grpc[PORTS_GRPC], "--listen",
                         is_apart ? PORT_WITHOUT_ADMIN : PORT_EVERYTHING, c->listen, c->n_listen,
                         access, err);
    if (rc != STATUS_OK || !is_apart)
        return rc;
    return grpc_port_start(&p->grpc[PORTS_GRPC_ADMIN], "--listen-admin", PORT_ADMIN,
                           &c->listen_admin, 1, access, err);
}

static enum status ports_open_http(struct ports *p, struct access *access, struct error *err)
{
    const struct config *c = p->host->config;
    struct server *server = p->host->server;
    struct http_config config = {
        .listen = c->http,
        .admin = c->http_admin,
        .routes = routes_all,
        .max_body_bytes = c->max_message_bytes == 0 ? HTTP_BODY_BYTES : c->max_message_bytes,
        .timeout_ms = c->http_timeout_ms,
        .origins = {.allowed = c->http_origins, .n_allowed = c->n_http_origins},
        .tls = p->tls,
        .peer_addresses = p->peer_addresses,
        .inherited = p->inherited,
        .n_refused = &server->n_connections_refused,
        .n_dropped = &server->n_connections_dropped,
        .access = access,
        .server = server,
        .env = p->host->env,
    };
    struct error why;
    enum status rc;

    if (c->listen_admin != NULL && config.admin == NULL) /* administration is there alone */
        config.routes.make = connect_make_public_route;
    if (config.listen == NULL && config.admin == NULL)
        return STATUS_OK;
    server->has_page = !c->no_page;
    rc = http_start(&p->http, p->host->loop, &config, &why);
    if (rc != STATUS_OK && config.listen != NULL && !c->is_http_given) {
        /* The address is the default, not configured: its failure is no error. */
        log_warn("http", "off error=\"%s\"", why.text);
        config.listen = NULL;
        if (config.admin == NULL)
            return STATUS_OK;
        rc = http_start(&p->http, p->host->loop, &config, &why);
    }
    if (rc != STATUS_OK) {
        *err = why;
        return rc;
    }
    server->http = p->http;
    if (config.listen != NULL)
        log_info("listening", "http=%s", http_address(p->http));
    if (config.admin != NULL)
        log_info("listening", "http_admin=%s", http_admin_address(p->http));
    return STATUS_OK;
}

static enum status ports_add_open(struct buf *line, const char *name, const char *address)
{
    if (address == NULL || address_is_local(address))
        return STATUS_OK;
    return buf_printf(line, " %s=%s", name, address);
}

/* Who listens beyond this machine and asks for neither a key nor a certificate may not have meant
 * it. */
static void ports_warn_of_open(const struct ports *p)
{
    const struct config *c = p->host->config;
    const struct port *admin = p->grpc[PORTS_GRPC_ADMIN].port;
    enum status rc = STATUS_OK;
    struct buf line;

    buf_init(&line, READY_MAX_BYTES);
    for (size_t i = 0; i < c->n_listen && rc == STATUS_OK; i++)
        rc = ports_add_open(&line, "grpc", port_address(p->grpc[PORTS_GRPC].port, i));
    if (rc == STATUS_OK && admin != NULL)
        rc = ports_add_open(&line, "grpc_admin", port_address(admin, 0));
    if (rc == STATUS_OK && p->http != NULL)
        rc = ports_add_open(&line, "http", http_address(p->http));
    if (rc == STATUS_OK && p->http != NULL)
        rc = ports_add_open(&line, "http_admin", http_admin_address(p->http));
    if (rc == STATUS_OK && line.len > 0)
        log_warn("open",
                 "%s what=\"whoever reaches this may use the server: --keys FILE asks for a "
                 "key, and 127.0.0.1 is for this machine alone\"",
                 line.data + 1);
    buf_deinit(&line);
}

enum status ports_open(struct ports *p, struct access *access, struct error *err)
{
    const size_t max_connections = p->host->config->max_peer_connections;
    struct inherited inherited;
    enum status rc = inherited_open(&inherited, err);

    p->inherited = &inherited;
    if (max_connections != 0)
        p->peer_addresses = peer_addresses_open(max_connections, p->host->env);
    if (rc == STATUS_OK)
        rc = ports_open_tls(p, err);
    if (rc == STATUS_OK)
        rc = ports_open_grpc(p, access, err);
    if (rc == STATUS_OK)
        rc = ports_open_http(p, access, err);
    if (rc == STATUS_OK)
        rc = inherited_check(&inherited, err);
    inherited_close(&inherited);
    p->inherited = NULL;
    if (rc == STATUS_OK && access == NULL && p->host->config->tls_client_ca == NULL)
        ports_warn_of_open(p);
    return rc;
}

void ports_serve(struct ports *p)
{
    for (size_t i = 0; i < N_PORTS; i++)
        if (p->grpc[i].port != NULL)
            port_serve(p->grpc[i].port);
    if (p->http != NULL)
        http_serve(p->http);
}

const char *ports_address(const struct ports *p)
{
    return port_address(p->grpc[PORTS_GRPC].port, 0);
}

/* Appends the address that a browser opens: a wildcard address is one of this machine's. */
static enum status append_page_address(struct buf *line, const struct ports *p)
{
    static const char *const wildcards[] = {"0.0.0.0:", "[::]:"};
    const char *address = http_address(p->http), *scheme = p->tls == NULL ? "http" : "https";

    for (size_t i = 0; i < sizeof(wildcards) / sizeof(wildcards[0]); i++)
        if (strncmp(address, wildcards[i], strlen(wildcards[i])) == 0)
            return buf_printf(line, " page=%s://localhost:%s/", scheme,
                              address + strlen(wildcards[i]));
    return buf_printf(line, " page=%s://%s/", scheme, address);
}

void ports_say_ready(const struct ports *p)
{
    const struct server *server = p->host->server;
    const struct port *admin = p->grpc[PORTS_GRPC_ADMIN].port;
    enum status rc;
    struct buf line;

    buf_init(&line, READY_MAX_BYTES);
    rc = buf_printf(&line, "ready grpc=%s", ports_address(p));
    if (rc == STATUS_OK && admin != NULL)
        rc = buf_printf(&line, " grpc_admin=%s", port_address(admin, 0));
    if (rc == STATUS_OK && p->http != NULL && http_address(p->http) != NULL)
        rc = buf_printf(&line, " http=%s", http_address(p->http));
    if (rc == STATUS_OK && p->http != NULL && http_address(p->http) != NULL && server->has_page)
        rc = append_page_address(&line, p);
    if (rc == STATUS_OK && p->http != NULL && http_admin_address(p->http) != NULL)
        rc = buf_printf(&line, " http_admin=%s", http_admin_address(p->http));
    for (size_t i = 0; i < server->models->n_loaded && rc == STATUS_OK; i++)
        rc = buf_printf(&line, "%s%s", i == 0 ? " models=" : ",", server->models->loaded[i]->name);
    if (rc == STATUS_OK)
        rc = buf_printf(&line, " in=%llu\n",
                        (unsigned long long)((env_now_us(server->env) - server->start_us) / 1000));
    if (rc == STATUS_OK)
        (void)!write(STDERR_FILENO, line.data, line.len); /* a failure cannot be reported */
    buf_deinit(&line);
}

void ports_check_keys(struct ports *p)
{
    for (size_t i = 0; i < N_PORTS; i++)
        if (p->grpc[i].port != NULL)
            port_check_keys(p->grpc[i].port);
    if (p->http != NULL)
        http_check_keys(p->http);
}

/* --- stopping --- */

void ports_drain(struct ports *p)
{
    if (p->http != NULL)
        http_drain(p->http);
    for (size_t i = 0; i < N_PORTS; i++)
        if (p->grpc[i].port != NULL)
            port_drain(p->grpc[i].port);
}

size_t ports_n_awaited(const struct ports *p)
{
    size_t n = p->http == NULL ? 0 : http_n_answering(p->http);

    for (size_t i = 0; i < N_PORTS; i++)
        n += p->grpc[i].port == NULL ? 0 : port_n_awaited(p->grpc[i].port);
    return n;
}

void ports_end(struct ports *p)
{
    for (size_t i = 0; i < N_PORTS; i++)
        if (p->grpc[i].port != NULL)
            port_end(p->grpc[i].port);
    if (p->http != NULL)
        (void)http_end(p->http); /* ports_have_answered asks again */
    p->farewell_until_us = env_now_us(p->host->env) + FAREWELL_US;
}

bool ports_have_answered(struct ports *p)
{
    size_t n_calls = 0;
    bool is_over = env_now_us(p->host->env) >= p->farewell_until_us;

    if (p->has_answered)
        return true;
    for (size_t i = 0; i < N_PORTS; i++)
        n_calls += p->grpc[i].port == NULL ? 0 : port_n_unanswered(p->grpc[i].port);
    if (!is_over && ((p->http != NULL && !http_end(p->http)) || n_calls > 0))
        return false;
    p->has_answered = true;
    if (p->tls != NULL)
        tls_refuse(p->tls);
    http_stop(p->http);
    for (size_t i = 0; i < N_PORTS; i++)
        if (p->grpc[i].port != NULL)
            port_cut_off(p->grpc[i].port);
    return true;
}

static void on_port_stopped(void *arg)
{
    struct grpc_port *g = arg;

    g->port = NULL;
    g->ports->host->go_on(g->ports->host);
}

bool ports_stop(struct ports *p)
{
    bool have_stopped = true;

    for (size_t i = 0; i < N_PORTS; i++) {
        struct grpc_port *g = &p->grpc[i];

        if (g->port == NULL)
            continue;
        have_stopped = false;
        if (!g->is_stopping) {
            stop_signal_allow(0);
            watchdog_set(true);
            port_stop(g->port, on_port_stopped, g);
        }
        g->is_stopping = true;
    }
    if (have_stopped)
        watchdog_set(false); /* what is written next takes as long as it takes */
    return have_stopped;
}

void ports_close(struct ports *p)
{
    http_close(p->http);
    tls_close(p->tls);
}

void ports_deinit(struct ports *p)
{
    http_free(p->http);
    peer_addresses_close(p->peer_addresses);
}
