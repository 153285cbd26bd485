/* What parts ask of their host: principals, and limits of memory. */
#include <time.h>
#include <unistd.h>

#include "base/address.h"
#include "server/access/access.h"
#include "server/config/config.h"
#include "server/part.h"
#include "server/server.h"

static const struct access *host_access(const void *host)
{
    return ((const struct part_host *)host)->server->access;
}

unsigned part_weight(void *host, uint32_t principal)
{
    return host_access(host) == NULL ? 1 : access_weight(host_access(host), principal);
}

struct access_quota *part_quota(void *host, uint32_t principal)
{
    return access_quota_of(host_access(host), principal);
}

const char *part_principal_name(void *host, uint32_t principal)
{
    return host_access(host) == NULL ? "" : access_name(host_access(host), principal);
}

const struct principal *part_find_principal(void *host, const char *name)
{
    return access_principal(host_access(host), name);
}

bool part_may_attach(const struct part_host *host)
{
    const struct config *c = host->config;

    if (c->attach != ATTACH_AUTO || c->keys != NULL)
        return c->attach != ATTACH_OFF;
    for (size_t i = 0; i < c->n_listen; i++)
        if (!address_is_local(c->listen[i]))
            return false;
    return true;
}

uint64_t part_unix_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

size_t part_bytes(size_t said_bytes, size_t n)
{
    if (said_bytes != 0)
        return said_bytes;
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / n;
}
