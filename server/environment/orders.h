/* What vectors.c needs of the hosts; private to the folder. */
#ifndef SERVER_ENVIRONMENT_ORDERS_H
#define SERVER_ENVIRONMENT_ORDERS_H

#include "server/environment/vectors.h"

/* Of the hosts of the name; NOT_FOUND. */
enum status hosts_find_spaces(struct environment_spaces *out, const struct vectors *all,
                              const char *name, struct error *err) MUST_CHECK;
/* Divides a checked request, all of whose instances are free, among their hosts; those to be reset
 * that have none are given one. EXHAUSTED: nothing was done. */
enum status vector_order(struct vector *v, struct vector_request *r, struct error *err) MUST_CHECK;
/* The vector ends: its instances are closed at their hosts. */
void vector_leave_hosts(struct vector *v);
/* Its orders go on without it. */
void hosts_forget(struct vectors *all, const struct vector_request *r);
/* Sets err to the reason why a silent host is ended. */
void host_say_silent(const struct peer *p, struct error *err);

/* The instance of a row, and whether it is reset. */
uint32_t vector_request_index(const struct vector_request *r, size_t row);
bool vector_request_resets(const struct vector_request *r, const struct vector_instance *i);
void vector_request_fail(struct vector_request *r, size_t row, const struct error *why);

#endif
