/* Of a unix socket the kernel tells who listens. Of a port /proc/net/tcp has the socket's inode,
 * and the holder is the process that has a descriptor of it. */
#include "base/address_holder.h"

#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/address.h"

enum { STATE_LISTEN = 0x0a, HEX_ADDRESS_CHARS = 32 };

/* pid: a number, or "self". */
static bool read_name(char *out, int size, const char *pid)
{
    char path[64];
    FILE *file;
    bool is_read;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    is_read = fgets(out, size, file) != NULL;
    (void)fclose(file); /* only read */
    if (is_read)
        out[strcspn(out, "\n")] = '\0';
    return is_read;
}

static bool holder_of_path(struct address_holder *out, const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct ucred who = {0};
    socklen_t len = sizeof(who);
    char pid[24];
    int fd;

    if (strlen(path) >= sizeof(to.sun_path))
        return false;
    memcpy(to.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0)
        who.pid = 0;
    (void)close(fd); /* nothing was sent */
    out->pid = who.pid;
    (void)snprintf(pid, sizeof(pid), "%ld", out->pid);
    return who.pid > 0 && read_name(out->name, sizeof(out->name), pid);
}

/* --- ports --- */

/* As /proc/net/tcp writes an address. Returns its port. */
static unsigned format_address(char out[HEX_ADDRESS_CHARS + 1], const struct sockaddr *at)
{
    const struct sockaddr_in6 *six = (const void *)at;
    const struct sockaddr_in *four = (const void *)at;
    uint32_t words[4];

    if (at->sa_family != AF_INET6) {
        (void)snprintf(out, HEX_ADDRESS_CHARS + 1, "%08X", (unsigned)four->sin_addr.s_addr);
        return ntohs(four->sin_port);
    }
    memcpy(words, &six->sin6_addr, sizeof(words));
    for (int i = 0; i < 4; i++)
        (void)snprintf(out + (ptrdiff_t)(8 * i), 9, "%08X", (unsigned)words[i]);
    return ntohs(six->sin6_port);
}

static bool is_any(const char *hex)
{
    return hex[strspn(hex, "0")] == '\0';
}

/* The inode of the socket that listens there; 0: none. */
static unsigned long inode_of_port(const char *table, const char *address, unsigned port)
{
    FILE *file = fopen(table, "re");
    unsigned long inode = 0, found;
    char line[512], local[HEX_ADDRESS_CHARS + 1];
    unsigned at, state;

    if (file == NULL)
        return 0;
    while (inode == 0 && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, " %*u: %32[0-9A-F]:%x %*s %x %*s %*s %*s %*u %*u %lu", local, &at, &state,
                   &found) == 4 &&
            state == STATE_LISTEN && at == port &&
            (is_any(local) || is_any(address) || strcmp(local, address) == 0))
            inode = found;
    (void)fclose(file); /* only read */
    return inode;
}

/* Whether the process has a descriptor of the socket, which is "socket:[INODE]". */
static bool has_socket(const char *pid, const char *socket)
{
    char path[64], to[64];
    struct dirent *entry;
    bool has = false;
    DIR *all;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    all = opendir(path);
    if (all == NULL)
        return false; /* another user's, or it has ended */
    while (!has && (entry = readdir(all)) != NULL) {
        const ssize_t n = readlinkat(dirfd(all), entry->d_name, to, sizeof(to) - 1);

        to[n < 0 ? 0 : n] = '\0';
        has = strcmp(to, socket) == 0;
    }
    (void)closedir(all); /* only read */
    return has;
}

static bool holder_of_inode(struct address_holder *out, unsigned long inode)
{
    DIR *all = opendir("/proc");
    struct dirent *entry;
    char socket[48];
    bool has = false;

    if (all == NULL)
        return false;
    (void)snprintf(socket, sizeof(socket), "socket:[%lu]", inode);
    while (!has && (entry = readdir(all)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            has_socket(entry->d_name, socket)) {
            out->pid = strtol(entry->d_name, NULL, 10);
            has = read_name(out->name, sizeof(out->name), entry->d_name);
        }
    (void)closedir(all); /* only read */
    return has;
}

static bool holder_of_port(struct address_holder *out, const struct sockaddr *at)
{
    char address[HEX_ADDRESS_CHARS + 1];
    const unsigned port = format_address(address, at);
    unsigned long inode = inode_of_port("/proc/net/tcp", address, port);

    if (inode == 0)
        inode = inode_of_port("/proc/net/tcp6", address, port);
    return inode != 0 && holder_of_inode(out, inode);
}

bool address_holder_find(struct address_holder *out, const char *address)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const char *path = address_unix_path(address);
    char host[ADDRESS_HOST_MAX + 1], port[6];
    struct addrinfo *found = NULL;
    struct error err;
    bool is_found = false;

    if (path != NULL)
        return holder_of_path(out, path);
    if (address_split(host, port, address, &err) != STATUS_OK ||
        getaddrinfo(host, port, &hints, &found) != 0)
        return false;
    for (const struct addrinfo *a = found; a != NULL && !is_found; a = a->ai_next)
        is_found = holder_of_port(out, a->ai_addr);
    freeaddrinfo(found);
    return is_found;
}

bool address_holder_is_like_us(const struct address_holder *h)
{
    char own[sizeof(h->name)];

    return read_name(own, sizeof(own), "self") && strcmp(own, h->name) == 0;
}
