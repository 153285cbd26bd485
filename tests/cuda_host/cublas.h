/* How a test controls the stand-in of cuBLASLt, a library that the backend loads as it does the
 * real one: the test finds "cublas_host" in it by name. */
#ifndef TESTS_CUDA_HOST_CUBLAS_H
#define TESTS_CUDA_HOST_CUBLAS_H

#include <stdbool.h>
#include <stdint.h>

struct cublas_host {
    /* The next n_calls calls that have a status succeed, the one after them returns it instead;
     * negative: none does. Calls that destroy do so all the same. */
    void (*fail_after)(long n_calls, int status);
    uint64_t (*n_calls)(void);     /* that have a status */
    uint64_t (*n_matmuls)(void);   /* put on a stream */
    uint64_t (*n_looked_up)(void); /* algorithms */
    uint64_t (*n_objects)(void);   /* made, and not destroyed */
    void (*refuse)(bool all);      /* whether no shape has an algorithm */
};

#endif
