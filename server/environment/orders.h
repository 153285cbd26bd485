/* The functions that vectors.c (vectors and requests) and host.c (hosts and orders) have in common.
 * No file outside this folder includes this. Loop. */
#ifndef SERVER_ENVIRONMENT_ORDERS_H
#define SERVER_ENVIRONMENT_ORDERS_H

#include "server/environment/vectors.h"

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

/* Returns the place in the vector of a row's instance. */
uint32_t vector_request_index(const struct vector_request *r, size_t row);
/* Returns whether a request resets an instance of its rows, instead of stepping it. */
bool vector_request_resets(const struct vector_request *r, const struct vector_instance *i);
/* Makes a row of a request fail; why is copied. */
void vector_request_fail(struct vector_request *r, size_t row, const struct error *why);
/* Keeps what the row's environment says; a row for which there is no memory fails. */
void vector_request_note(struct vector_request *r, size_t row, const char *info);

/* Copies spaces with their description, which is then to be freed. */
enum status environment_spaces_copy(struct environment_spaces *out,
                                    const struct environment_spaces *from,
                                    struct error *err) MUST_CHECK;

#endif
