/* Addresses to listen on: HOST:PORT, [IPV6]:PORT and unix:PATH. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>

#include "base/status.h"

enum { ADDRESS_HOST_MAX = 255, ADDRESS_PORT_CHARS = 6 };

/* STATUS_INVALID for text that is no address, whether or not it could be bound. */
enum status address_check(const char *address, struct error *err) MUST_CHECK;

/* Splits HOST:PORT and [HOST]:PORT, likewise. */
enum status address_split(char host[ADDRESS_HOST_MAX + 1], char port[6], const char *address,
                          struct error *err) MUST_CHECK;

/* Only this machine can reach it: unix:PATH, localhost, 127.0.0.0/8 or ::1. */
bool address_is_local(const char *address);

/* The PATH of unix:PATH, NULL for others. */
const char *address_unix_path(const char *address);

#endif
