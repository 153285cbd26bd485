#include <errno.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "server/call_parts.h"

static const char *unix_path(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 ? address + 5 : NULL;
}

/* Splits "host:port" and "[host]:port". */
enum status port_split_address(char host[PORT_HOST_MAX + 1], char port[6], const char *address,
                               struct error *err)
{
    const char *colon = strrchr(address, ':');
    size_t len = colon == NULL ? 0 : (size_t)(colon - address);
    char *end;

    if (len > 2 && address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    } else if (address[0] == '[' || memchr(address, ':', len) != NULL) {
        len = 0; /* of a bare IPv6 address: which colon is the port's? */
    }
    if (len == 0 || len > PORT_HOST_MAX || colon[1] < '0' || colon[1] > '9' ||
        strlen(colon + 1) > 5 || strtoul(colon + 1, &end, 10) > 65535 || *end != '\0')
        return error_set(err, STATUS_INVALID, "is no HOST:PORT, [IPV6]:PORT or unix:PATH");
    memcpy(host, address, len);
    host[len] = '\0';
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return STATUS_OK;
}

enum status port_check_address(const char *address, struct error *err)
{
    const struct sockaddr_un longest = {0};
    const char *path = unix_path(address);
    char host[PORT_HOST_MAX + 1], port[6];

    if (path == NULL)
        return port_split_address(host, port, address, err);
    if (*path == '\0' || strlen(path) >= sizeof longest.sun_path)
        return error_set(err, STATUS_INVALID, "a path has 1 to %zu characters",
                         sizeof longest.sun_path - 1);
    return STATUS_OK;
}

/* gRPC only says that it could not: we try the same and look. */
static enum status why_not(const char *host, const char *port, struct error *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const int on = 1;
    struct addrinfo *found = NULL;
    int gai, code = 0, fd;

    gai = getaddrinfo(host, port, &hints, &found);
    if (gai != 0)
        return error_set(err, STATUS_UNAVAILABLE, "%s", gai_strerror(gai));
    for (const struct addrinfo *a = found; a != NULL && code == 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* then bind says it */
        if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 1) != 0)
            code = errno;
        (void)close(fd); /* nothing was sent */
    }
    freeaddrinfo(found);
    if (code == EADDRINUSE)
        return error_set(err, STATUS_UNAVAILABLE, "the port is taken by another program");
    return error_set(err, STATUS_UNAVAILABLE, "%s",
                     code != 0 ? strerror(code) : "gRPC cannot bind it");
}

/* A socket file outlives a daemon that was killed; gRPC would replace it also under one that lives.
 */
static enum status clear_path(const char *path, struct error *err)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat st;
    int fd, code;

    if (path[0] == '\0' || strlen(path) >= sizeof(to.sun_path))
        return error_set(err, STATUS_INVALID, "a socket's path has 1 to %zu characters",
                         sizeof(to.sun_path) - 1);
    if (lstat(path, &st) != 0)
        return STATUS_OK; /* what else is wrong with it, bind will say */
    if (!S_ISSOCK(st.st_mode))
        return error_set(err, STATUS_INVALID, "there is a file that is no socket");
    memcpy(to.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, STATUS_EXHAUSTED, "cannot make a socket: %s", strerror(errno));
    code = connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0 ? 0 : errno;
    (void)close(fd); /* nothing was sent */
    if (code != ECONNREFUSED)
        return error_set(err, STATUS_UNAVAILABLE, "the socket is taken by another program");
    if (unlink(path) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "cannot remove what is left there: %s",
                         strerror(errno));
    return STATUS_OK;
}

static int bind_port(grpc_server *server, const char *address)
{
    grpc_server_credentials *insecure = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(server, address, insecure);

    grpc_server_credentials_release(insecure);
    return port;
}

static enum status add_unix(char **out, grpc_server *server, const char *address, const char *path,
                            struct error *err)
{
    enum status rc = clear_path(path, err);

    if (rc != STATUS_OK)
        return rc;
    if (bind_port(server, address) == 0)
        return error_set(err, STATUS_UNAVAILABLE,
                         "gRPC cannot bind it: does the folder exist, may we write there?");
    *out = xstrdup(address);
    return STATUS_OK;
}

static enum status add_tcp(char **out, grpc_server *server, const char *address, struct error *err)
{
    char host[PORT_HOST_MAX + 1], port[6], real[PORT_HOST_MAX + 16];
    enum status rc = port_split_address(host, port, address, err);
    int n;

    if (rc != STATUS_OK)
        return rc;
    n = bind_port(server, address);
    if (n == 0)
        return why_not(host, port, err);
    (void)snprintf(real, sizeof(real), strchr(host, ':') != NULL ? "[%s]:%d" : "%s:%d", host, n);
    *out = xstrdup(real);
    return STATUS_OK;
}

enum status listen_add(char **out, grpc_server *server, const char *address, struct error *err)
{
    const char *path = unix_path(address);
    enum status rc;

    if (path != NULL)
        rc = add_unix(out, server, address, path, err);
    else
        rc = add_tcp(out, server, address, err);
    return rc == STATUS_OK ? rc : error_prefix(err, "cannot listen on %s", address);
}

void listen_remove(const char *address)
{
    const char *path = unix_path(address);

    if (path != NULL)
        (void)unlink(path); /* gone already is as good */
}
