#include "base/address.h"

#include <string.h>
#include <sys/un.h>

#include "base/number.h"

const char *address_unix_path(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 ? address + 5 : NULL;
}

enum status address_split(char host[ADDRESS_HOST_MAX + 1], char port[6], const char *address,
                          struct error *err)
{
    const char *colon = strrchr(address, ':');
    size_t len = colon == NULL ? 0 : (size_t)(colon - address);
    uint64_t number;

    if (len > 2 && address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    } else if (address[0] == '[' || memchr(address, ':', len) != NULL) {
        len = 0; /* a bare IPv6 address: the port's colon is ambiguous */
    }
    if (len == 0 || len > ADDRESS_HOST_MAX || strlen(colon + 1) > 5 ||
        !number_read(&number, colon + 1, 65535))
        return error_set(err, STATUS_INVALID, "is not HOST:PORT, [IPV6]:PORT or unix:PATH");
    memcpy(host, address, len);
    host[len] = '\0';
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return STATUS_OK;
}

enum status address_check(const char *address, struct error *err)
{
    const struct sockaddr_un longest = {0};
    const char *path = address_unix_path(address);
    char host[ADDRESS_HOST_MAX + 1], port[6];

    if (path == NULL)
        return address_split(host, port, address, err);
    if (*path == '\0' || strlen(path) >= sizeof(longest.sun_path))
        return error_set(err, STATUS_INVALID, "the path must have 1 to %zu characters",
                         sizeof(longest.sun_path) - 1);
    return STATUS_OK;
}

bool address_is_local(const char *address)
{
    char host[ADDRESS_HOST_MAX + 1], port[6];
    struct error ignored;

    if (address_unix_path(address) != NULL)
        return true;
    if (address_split(host, port, address, &ignored) != STATUS_OK)
        return false;
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           (strncmp(host, "127.", 4) == 0 && host[strspn(host, "0123456789.")] == '\0');
}
