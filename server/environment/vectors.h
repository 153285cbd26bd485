/* A vector is several instances of one kind of environment, which a client opens under a handle,
 * and resets and steps together or apart. Instances of kinds that are built in
 * (worlds/environment/) or plugged in (parley_environment.h) are computed at once. Those of other
 * kinds are computed by hosts: attached workers (host.h), each of which gets its part of a request
 * as one order. If a host is lost, its instances fail, and can be reset at another host. All
 * functions are called on the loop. */
#ifndef SERVER_ENVIRONMENT_VECTORS_H
#define SERVER_ENVIRONMENT_VECTORS_H

#include "server/environment/vector.h"

void vectors_init(struct vectors *all, const struct vectors_config *config);
/* Closes all vectors. All hosts must be closed. */
void vectors_deinit(void *vectors);
/* Ends idle vectors and silent hosts. */
void vectors_tick(void *vectors);
/* Ends all hosts; requests under way fail. */
void vectors_end(void *vectors);

/* Opens a vector of n instances of the kind name. seeds are n seeds; or one, to which instance i
 * adds i; or none, and a random one is drawn. INVALID names the field; NOT_FOUND if no kind has
 * this name; EXHAUSTED. */
enum status vectors_open(struct vector **out, struct vectors *all, uint32_t principal,
                         const char *name, size_t n, const uint64_t *seeds, size_t n_seeds,
                         struct error *err) MUST_CHECK;
/* Finds a vector by its handle. NOT_FOUND, also for a vector of another principal. */
enum status vectors_get(struct vector **out, struct vectors *all, uint32_t principal, uint64_t id,
                        struct error *err) MUST_CHECK;
/* Closes a vector. Requests under way go on. */
void vectors_close(struct vector *v);

/* Starts a request. The results will lie in arena. If it sets r->is_done, the results are there and
 * done is not called. INVALID names the field, RANGE an index that is not there, PRECONDITION an
 * instance that does not run or is in another request. On failure nothing has changed. */
enum status vectors_ask(struct vector *v, struct vector_request *r, struct arena *arena,
                        struct error *err) MUST_CHECK;
/* Leaves a request: done is not called any more. The request's orders go on. Does nothing if the
 * request is not under way. */
void vector_request_leave(struct vector_request *r);

#endif
