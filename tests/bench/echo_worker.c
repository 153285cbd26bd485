/* A worker in C that says what was said to it: for agents.py.
 *
 *   echo_worker ADDRESS NAME */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "client/lib/parley.h"

enum { MAX_ROWS = 1024 };

static char no_state;

static void *on_open(void *arg, const struct parley_worker_open *what)
{
    return &no_state;
}

static bool on_replay(void *arg, void *clone, uint32_t turn, const struct parley_message *messages,
                      size_t n_messages, const char *reply)
{
    return true;
}

static void on_close(void *arg, void *clone)
{
}

static void on_step(void *arg, struct parley_call *worker, const struct parley_worker_step *step)
{
    struct parley_row_answer answers[MAX_ROWS] = {0};

    for (size_t i = 0; i < step->n_rows; i++) {
        const struct parley_worker_row *row = &step->rows[i];

        answers[i].text = row->n_messages == 0 ? "" : row->messages[row->n_messages - 1].text;
    }
    (void)parley_worker_answer(worker, step->id, answers, step->n_rows);
}

int main(int argc, char **argv)
{
    struct parley_worker_offer offer = {.max_rows = MAX_ROWS, .is_deterministic = true};
    const struct parley_worker_events events = {
        .open = on_open, .replay = on_replay, .close = on_close, .step = on_step};
    struct parley_channel *channel;
    struct parley_error err = {0};

    if (argc != 3)
        return 2;
    offer.name = argv[2];
    channel = parley_channel_open(argv[1]);
    (void)parley_worker_run(channel, &offer, &events, &err);
    (void)fprintf(stderr, "%s: %s\n", parley_status_name(err.status), err.text);
    parley_channel_close(channel);
    return 1;
}
