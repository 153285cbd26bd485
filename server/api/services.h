/* Every service that the daemon answers. Each table is defined with its functions (methods.h) in a
 * file that the build lists as one that answers a service: FILE.c defines FILE_methods. */
#ifndef SERVER_API_SERVICES_H
#define SERVER_API_SERVICES_H

#include "server/call/methods.h"

struct params_spec;
struct access_sharing;
struct arena;

/* Reads the bytes of a message by which the service describes a set of parameters. It is the
 * read_config of struct params_sets. */
enum status services_read_params(struct params_spec *out, struct access_sharing *sharing,
                                 const void *config, size_t size_bytes, struct arena *arena,
                                 struct error *err) MUST_CHECK;

/* Returns all tables, of which there are *ret_n. They are static. */
const struct call_table *const *services_tables(size_t *ret_n);

#endif
