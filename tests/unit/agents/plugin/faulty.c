/* A plug-in that breaks a rule: by a macro, or in the rows of a step by the text of the message. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/plugin/parley_agent.h"

#ifndef ABI
#define ABI PARLEY_AGENT_ABI
#endif
#ifndef SIZE
#define SIZE sizeof(struct parley_agent)
#endif
#ifndef NAME
#define NAME "faulty"
#endif
#ifndef FLAGS
#define FLAGS 0
#endif
#ifndef MAX_ROWS
#define MAX_ROWS 64
#endif

static const struct parley_agent_host *parleyd;
static size_t n_rows; /* of the step */
void nobody_defines_this(void);

static void *faulty_open(const struct parley_agent_host *host, struct parley_agent_error *err)
{
    parleyd = host;
#ifdef UNDEFINED
    nobody_defines_this();
#endif
#ifdef WILL_NOT
    memcpy(err->text, "there is no coffee", sizeof("there is no coffee"));
    return NULL;
#else
    return &parleyd;
#endif
}

static void faulty_close(void *agent)
{
}

static void *faulty_create(void *agent, const char *system, size_t system_len,
                           struct parley_agent_error *err)
{
    if (system_len == 6 && memcmp(system, "refuse", 6) == 0) {
        err->status = 8;
        memcpy(err->text, "no more", sizeof("no more"));
        return NULL;
    }
    return calloc(1, sizeof(int));
}

#ifdef NO_FORK
#define faulty_fork NULL
#else
static void *faulty_fork(void *agent, const void *clone, struct parley_agent_error *err)
{
    int *copy = faulty_create(agent, NULL, 0, err);

    if (copy != NULL)
        *copy = *(const int *)clone;
    return copy;
}
#endif

static void faulty_free(void *agent, void *clone)
{
    free(clone);
}

static bool faulty_observe(void *agent, void *clone, const struct parley_agent_row *row,
                           struct parley_agent_error *err)
{
    struct parley_agent_message m;

    return parleyd->message(row, 0, &m) && strcmp(m.text, "refuse") != 0;
}

/* A step that takes as long as someone has the FIFO open. */
static void wait_for(const char *fifo)
{
    int fd = open(fifo, O_RDONLY);
    char c;

    while (fd >= 0 && read(fd, &c, 1) > 0) {
    }
    if (fd >= 0)
        (void)close(fd);
}

static void say_rows(struct parley_agent_row *row)
{
    char text[32];

    (void)parleyd->say(row, text, (size_t)snprintf(text, sizeof(text), "%zu rows", n_rows));
}

static void act(struct parley_agent_row *row, int *n_steps, const char *told)
{
    (*n_steps)++;
    if (told[0] == '/')
        wait_for(told);
    if (strcmp(told, "skip") == 0)
        return;
    if (strcmp(told, "fail") == 0) {
        parleyd->fail(row, 9, "told to");
        return;
    }
    if (strcmp(told, "odd") == 0) {
        parleyd->fail(row, 99, NULL);
        return;
    }
    if (strcmp(told, "bytes") == 0)
        (void)parleyd->say(row, "\xff", 1);
    else if (strcmp(told, "nul") == 0)
        (void)parleyd->say(row, "a\0b", 3);
    else if (strcmp(told, "flood") == 0)
        while (parleyd->say(row, "flood ", 6)) {
        }
    else if (strcmp(told, "rows?") == 0)
        say_rows(row);
    else
        (void)parleyd->say(row,
                           *n_steps == 1   ? "one "
                           : *n_steps == 2 ? "two "
                                           : "three",
                           *n_steps <= 2 ? 4 : 5);
    if (strcmp(told, "more") == 0 && *n_steps < 3)
        parleyd->more(row);
    else
        parleyd->done(row, strcmp(told, "cut") == 0);
    if (strcmp(told, "twice") == 0)
        parleyd->done(row, false);
}

static void faulty_batch_act(void *agent, struct parley_agent_row *const *rows, size_t n)
{
    n_rows = n;
    for (size_t i = 0; i < n; i++) {
        struct parley_agent_message m;

        if (parleyd->message(rows[i], 0, &m))
            act(rows[i], parleyd->clone(rows[i]), m.text);
    }
}

static bool faulty_save(void *agent, const void *clone, struct parley_agent_sink *sink,
                        struct parley_agent_error *err)
{
    return parleyd->write(sink, clone, sizeof(int));
}

#ifdef HALF_SAVED
#define faulty_restore NULL
#else
static void *faulty_restore(void *agent, const void *data, size_t len,
                            struct parley_agent_error *err)
{
    int *clone = len == sizeof(int) ? faulty_create(agent, NULL, 0, err) : NULL;

    if (clone != NULL)
        memcpy(clone, data, sizeof(int));
    return clone;
}
#endif

#ifdef NO_SYMBOL
#define OBJECT not_the_name
#else
#define OBJECT parley_agent
#endif

const struct parley_agent OBJECT = {
    .abi = ABI,
    .size_bytes = SIZE,
    .name = NAME,
    .version = "1",
    .flags = FLAGS,
    .max_rows = MAX_ROWS,
    .open = faulty_open,
    .close = faulty_close,
    .create = faulty_create,
    .fork = faulty_fork,
    .free = faulty_free,
    .observe = faulty_observe,
    .batch_act = faulty_batch_act,
    .save = faulty_save,
    .restore = faulty_restore,
};
