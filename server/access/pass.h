/* A pass goes with a call that one daemon passes on to another, and names the principal whose call
 * it is. Only who knows the secret that the daemons share can write one, and only the daemon that
 * the pass names takes it. */
#ifndef SERVER_ACCESS_PASS_H
#define SERVER_ACCESS_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The name of the metadata. */
#define PASS_HEADER "x-parley-pass"

enum { PASS_SECRET_BYTES = 16, PASS_PRINCIPAL_CHARS = 256, PASS_CHARS = 512 };

/* Writes the pass of a call from the daemon with the id from, to the one with the id to. Ids and
 * the principal's name have no '/'. Returns false if the pass would be too long. */
bool pass_write(char out[PASS_CHARS], const uint8_t secret[PASS_SECRET_BYTES], const char *from,
                const char *to, const char *principal) MUST_CHECK;

/* Reads a pass for the daemon with the id self. UNAUTHENTICATED if it is none, or is forged;
 * ABORTED if it is for another daemon, whose address this one has now. */
enum status pass_read(char principal[PASS_PRINCIPAL_CHARS], const char *pass, size_t len,
                      const uint8_t secret[PASS_SECRET_BYTES], const char *self,
                      struct error *err) MUST_CHECK;

#endif
