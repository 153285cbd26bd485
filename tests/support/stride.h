/* Of how many cases a long test tries one: a release tries all, a sanitized build, which is 3 to 20
 * times as slow, a part; so do kernels under qemu. `./run asan`, `./run tsan` and
 * `./run arm64 --kernels` set the variables. */
#ifndef TESTS_SUPPORT_STRIDE_H
#define TESTS_SUPPORT_STRIDE_H

#include <stdlib.h>

/* The number in the environment variable, at least 1; 1 without the variable. */
static inline long stride_of(const char *variable)
{
    const char *text = getenv(variable);
    long n = text != NULL ? strtol(text, NULL, 10) : 1;

    return n > 1 ? n : 1;
}

/* Of the cases of a unit test. */
static inline long test_stride(void)
{
    return stride_of("PARLEY_TEST_STRIDE");
}

#endif
