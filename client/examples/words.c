/* An agent of one's own, which counts the words of each conversation: parleyd serves it as "words".
 * Run it several times, and they share the conversations.
 *
 *   cc words.c $(pkg-config --cflags --libs parley) -o words
 *   ./words 127.0.0.1:8001 [NAME] */
#include <ctype.h>
#include <parley.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 256 };

struct word_count {
    unsigned n_words;
};

static unsigned count_words(const struct parley_message *messages, size_t n)
{
    unsigned n_words = 0;

    for (size_t i = 0; i < n; i++) {
        bool is_in_word = false;

        if (strcmp(messages[i].role, "user") != 0)
            continue;
        for (const char *c = messages[i].text; *c != '\0'; c++) {
            bool is_space = isspace((unsigned char)*c) != 0;

            n_words += !is_space && !is_in_word;
            is_in_word = !is_space;
        }
    }
    return n_words;
}

static void *on_open(void *arg, const struct parley_worker_open *what)
{
    struct word_count *t = calloc(1, sizeof(*t));

    (void)arg;
    if (t != NULL && what->state_len == sizeof(*t)) /* the state that on_save returned */
        memcpy(t, what->state, sizeof(*t));
    return t;
}

static bool on_replay(void *arg, void *clone, uint32_t turn, const struct parley_message *messages,
                      size_t n_messages, const char *reply)
{
    (void)arg;
    (void)turn;
    (void)reply;
    ((struct word_count *)clone)->n_words += count_words(messages, n_messages);
    return true;
}

static void *on_save(void *arg, void *clone, size_t *ret_len)
{
    struct word_count *state = malloc(sizeof(*state));

    (void)arg;
    if (state != NULL)
        *state = *(const struct word_count *)clone;
    *ret_len = sizeof(*state);
    return state;
}

static void on_close(void *arg, void *clone)
{
    (void)arg;
    free(clone);
}

static void on_step(void *arg, struct parley_call *worker, const struct parley_worker_step *step)
{
    struct parley_row_answer answers[MAX_ROWS] = {0}; /* DONE, with: */
    char texts[MAX_ROWS][24];

    (void)arg;
    for (size_t i = 0; i < step->n_rows; i++) {
        struct word_count *t = step->rows[i].clone;

        t->n_words += count_words(step->rows[i].messages, step->rows[i].n_messages);
        (void)snprintf(texts[i], sizeof(texts[i]), "%u words", t->n_words);
        answers[i].text = texts[i];
    }
    (void)parley_worker_answer(worker, step->id, answers, step->n_rows);
}

int main(int argc, char **argv)
{
    struct parley_channel *channel = parley_channel_open(argc > 1 ? argv[1] : "127.0.0.1:8001");
    const struct parley_worker_offer offer = {
        .name = argc > 2 ? argv[2] : "words", .max_rows = MAX_ROWS, .is_deterministic = true};
    const struct parley_worker_events events = {
        .open = on_open, .replay = on_replay, .save = on_save, .close = on_close, .step = on_step};
    struct parley_error err = {.status = PARLEY_RESOURCE_EXHAUSTED};

    if (channel == NULL || parley_worker_run(channel, &offer, &events, &err) != PARLEY_OK)
        (void)fprintf(stderr, "%s: %s\n", parley_status_name(err.status), err.text);
    parley_channel_close(channel);
    return 1;
}
