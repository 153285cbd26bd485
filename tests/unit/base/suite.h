/* Shared by the tests of base/: runs a list of tests, and checks how a process ends. */
#ifndef TESTS_UNIT_BASE_SUITE_H
#define TESTS_UNIT_BASE_SUITE_H

#include <check.h>
#include <fcntl.h>
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#include <sanitizer/common_interface_defs.h>
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs all n tests; returns main's exit code. */
static inline int suite_run(const char *name, const TTest *const *tests, size_t n)
{
    Suite *suite = suite_create(name);
    TCase *all = tcase_create(name);
    SRunner *runner;
    const char *only = getenv("SUITE_ONLY"); /* a test's name */
    int failed;

    tcase_set_timeout(all, 30);
    for (size_t i = 0; i < n; i++)
        if (only == NULL || strcmp(tests[i]->name, only) == 0)
            tcase_add_test(all, tests[i]);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#define SUITE_MAIN(name, ...)                                            \
    int main(void)                                                       \
    {                                                                    \
        const TTest *const tests[] = {__VA_ARGS__};                      \
                                                                         \
        return suite_run(name, tests, sizeof(tests) / sizeof(tests[0])); \
    }

/* Calls act in a process of its own and returns waitpid's status of it; 0 if act returned. Our own
 * fork, because Check's is off. */
static inline int suite_fate(void (*act)(void))
{
    int fate = 0;
    pid_t child = fork();

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)dup2(nowhere, STDERR_FILENO); /* its error text is expected, */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        /* and so is a sanitizer's report */
        __sanitizer_set_report_fd((void *)(intptr_t)STDERR_FILENO);
#endif
        act();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &fate, 0), child);
    return fate;
}

static inline int suite_aborts(void (*act)(void))
{
    int fate = suite_fate(act);

    return WIFSIGNALED(fate) && WTERMSIG(fate) == SIGABRT;
}

#endif
