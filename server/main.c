/* parleyd. The only place with exit codes. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>

#include "base/denormals.h"
#include "server/config.h"
#include "server/daemon.h"

enum { EXIT_STOPPED = 0, EXIT_FAILED = 1, EXIT_WRONG_USE = 2 };

/* A thread that is woken does not take the processor from the one that woke it, which has more to
 * hand over: so a hop between threads moves many calls, not one. */
static void wake_in_batches(void)
{
    const struct sched_param none = {0};
    int rc = sched_setscheduler(0, SCHED_BATCH, &none);

    (void)rc; /* without it all works, with more hops */
}

static int serve(const struct config *config)
{
    struct error err;

    log_set_level(config->log_level);
    wake_in_batches();
    (void)signal(SIGPIPE, SIG_IGN); /* a peer that is gone is an error of its write */
    if (config_check_files(config, &err) != STATUS_OK ||
        (config->check ? daemon_check(config, &err) : daemon_run(config, &err)) != STATUS_OK) {
        (void)fprintf(stderr, "parleyd: %s\n", err.text);
        return EXIT_FAILED;
    }
    return EXIT_STOPPED;
}

int main(int argc, char **argv)
{
    struct config config;
    struct error err;
    int code = EXIT_STOPPED;

    denormals_are_zero();
    if (config_parse(&config, argc, argv, &err) != STATUS_OK) {
        (void)fprintf(stderr, "parleyd: %s\n", err.text);
        return EXIT_WRONG_USE;
    }
    if (config.help)
        (void)fputs(config_usage, stdout);
    else if (config.version)
        (void)puts("parleyd " PARLEY_VERSION);
    else
        code = serve(&config);
    config_deinit(&config);
    return code;
}
