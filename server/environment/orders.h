/* How vectors use their hosts. host.c has these functions. No file outside this folder includes
 * this. All functions are called on the loop. */
#ifndef SERVER_ENVIRONMENT_ORDERS_H
#define SERVER_ENVIRONMENT_ORDERS_H

#include "server/environment/host.h"
#include "server/environment/vector.h"

/* Finds the spaces that the attached hosts of a name have. NOT_FOUND if there is no such host. */
enum status hosts_find_spaces(struct environment_spaces *out, const struct vectors *all,
                              const char *name, struct error *err) MUST_CHECK;
/* Divides a checked request into orders for the hosts of its instances. An instance that is reset
 * and has no host gets one; rows whose instances have no host fail. EXHAUSTED if there is no memory
 * for the orders; then nothing was done. */
enum status vector_order(struct vector *v, struct vector_request *r, struct error *err) MUST_CHECK;
/* Has the instances of a vector that ends closed at their hosts. */
void vector_leave_hosts(struct vector *v);
/* Makes the orders of a request go on without the request. */
void hosts_forget(struct vectors *all, const struct vector_request *r);
/* Sets err to the reason why a silent host is ended. */
void host_say_silent(const struct peer *p, struct error *err);

#endif
