/* parleyd's main: only this file has exit codes. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/denormals.h"
#include "base/program.h"
#include "proto/exit.h"
#include "server/check.h"
#include "server/config/config.h"
#include "server/config/documents.h"
#include "server/config/model_paths.h"
#include "server/daemon.h"

PROGRAM_TAKES_STANDARD_FILES;

enum { EXIT_STOPPED = 0, EXIT_FAILED = 1, EXIT_WRONG_USE = 2 };

/* With SCHED_BATCH a thread that is woken does not preempt the waking thread, which has more to
 * hand over: so a hop between threads moves many calls, not one. */
static void server_main_wake_in_batches(void)
{
    const struct sched_param none = {0};
    int rc = sched_setscheduler(0, SCHED_BATCH, &none);

    (void)rc; /* without it there are more hops */
}

static struct error failure; /* static for on_alarm */

/* An orderly end has hung, or a second signal came (stop_signal.h): ends the process at once. */
static void on_alarm(int number, siginfo_t *info, void *context)
{
    static const char before[] = "parleyd: ";
    static const char forced[] = "parleyd: ended at once, before all had stopped\n";

    if (failure.status == STATUS_OK) {
        if (info->si_code == SI_TIMER)
            (void)!write(STDERR_FILENO, forced, sizeof(forced) - 1);
        _exit(EXIT_STOPPED);
    }
    (void)!write(STDERR_FILENO, before, sizeof(before) - 1); /* a failure cannot be reported */
    (void)!write(STDERR_FILENO, failure.text, strlen(failure.text));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(EXIT_FAILED);
}

static int server_main_serve(struct config *config)
{
    const struct sigaction alarm = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO};
    enum status rc;

    log_set_level(config->log_level);
    server_main_wake_in_batches();
    (void)signal(SIGPIPE, SIG_IGN);         /* a closed peer is an error of its write */
    (void)signal(SIGXFSZ, SIG_IGN);         /* and so is a limit on the size of files */
    (void)sigaction(SIGALRM, &alarm, NULL); /* none of these can fail */
    rc = config_fetch_models(config, &failure);
    if (rc == STATUS_OK)
        rc = config->check ? check_config(config, &failure) : config_check_files(config, &failure);
    if (rc == STATUS_OK && !config->check)
        rc = daemon_run(config, &failure);
    if (rc != STATUS_OK) {
        (void)fprintf(stderr, "parleyd: %s\n", failure.text);
        return EXIT_FAILED;
    }
    return EXIT_STOPPED;
}

static int server_main_backup(const struct config *config)
{
    if (check_backup(config, &failure) == STATUS_OK)
        return EXIT_STOPPED;
    (void)fprintf(stderr, "parleyd: %s\n", failure.text);
    return EXIT_FAILED;
}

static int server_main_init_data(const struct config *config)
{
    if (check_init_data(config, &failure) == STATUS_OK)
        return EXIT_STOPPED;
    (void)fprintf(stderr, "parleyd: %s\n", failure.text);
    return EXIT_FAILED;
}

static int server_main_check_data(const struct config *config)
{
    uint64_t n_conversations, n_turns;

    if (check_data(config, &n_conversations, &n_turns, &failure) != STATUS_OK) {
        (void)fprintf(stderr, "parleyd: %s\n", failure.text);
        return EXIT_FAILED;
    }
    (void)printf("conversations=%llu turns=%llu\n", (unsigned long long)n_conversations,
                 (unsigned long long)n_turns);
    return EXIT_STOPPED;
}

int main(int argc, char **argv)
{
    struct config config;
    struct error err;
    int code = EXIT_STOPPED;

    denormals_are_zero();
    (void)exit_keeps_openssl(); /* a failure leaves OpenSSL as it is */
    if (config_parse(&config, argc, argv, environ, &err) != STATUS_OK) {
        (void)fprintf(stderr, "parleyd: %s\n", err.text);
        return EXIT_WRONG_USE;
    }
    if (config.help)
        document_help(stdout);
    else if (config.print_config)
        document_example(stdout);
    else if (config.version)
        (void)puts("parleyd " PARLEY_VERSION);
    else if (config.backup != NULL)
        code = server_main_backup(&config);
    else if (config.init_data)
        code = server_main_init_data(&config);
    else if (config.check_data)
        code = server_main_check_data(&config);
    else
        code = server_main_serve(&config);
    config_deinit(&config);
    return code;
}
