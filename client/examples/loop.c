/* Many conversations on one thread: all that happens comes by one descriptor, as a loop of one's
 * own polls it beside others.
 *
 *   cc loop.c $(pkg-config --cflags --libs parley) -o loop
 *   ./loop 127.0.0.1:8001 */
#include <parley.h>
#include <poll.h>
#include <stdio.h>

enum { N_TALKS = 8 };

struct talk {
    struct parley_channel *channel;
    int number, *n_running;
    char conversation[33];
};

static void talk_end(struct talk *t, const struct parley_error *err)
{
    if (err->status != PARLEY_OK)
        (void)fprintf(stderr, "%d: %s: %s\n", t->number, parley_status_name(err->status),
                      err->text);
    --*t->n_running;
}

static void on_closed(void *arg, const struct parley_result *result)
{
    talk_end(arg, &result->err);
}

/* What comes next; f is the call's future, NULL without memory. */
static void talk_then(struct talk *t, struct parley_future *f, parley_then_fn then)
{
    static const struct parley_error no_memory = {.status = PARLEY_RESOURCE_EXHAUSTED,
                                                  .text = "out of memory"};

    if (f == NULL || !parley_future_then(f, then, t))
        talk_end(t, &no_memory);
    parley_future_unref(f);
}

static void on_reply(void *arg, const struct parley_result *result)
{
    struct talk *t = arg;

    if (result->err.status != PARLEY_OK) {
        talk_end(t, &result->err);
        return;
    }
    (void)printf("%d: %s\n", t->number, result->text);
    talk_then(t, parley_close_start(t->channel, t->conversation), on_closed);
}

static void on_opened(void *arg, const struct parley_result *result)
{
    const struct parley_message message = {"user", "Name a river."};
    struct talk *t = arg;
    const struct parley_turn turn = {
        .conversation = t->conversation, .messages = &message, .n_messages = 1};

    if (result->err.status != PARLEY_OK) {
        talk_end(t, &result->err);
        return;
    }
    (void)snprintf(t->conversation, sizeof(t->conversation), "%s", result->opened.conversation);
    talk_then(t, parley_ask_start(t->channel, &turn), on_reply);
}

int main(int argc, char **argv)
{
    const struct parley_channel_options options = {.address = argc > 1 ? argv[1] : "127.0.0.1:8001",
                                                   .is_polled = true};
    struct parley_channel *channel = parley_channel_open_with(&options);
    const struct parley_open what = {0};
    struct talk talks[N_TALKS];
    int n_running = N_TALKS;
    struct pollfd fd;

    if (channel == NULL)
        return 1;
    for (int i = 0; i < N_TALKS; i++) {
        talks[i] = (struct talk){.channel = channel, .number = i + 1, .n_running = &n_running};
        talk_then(&talks[i], parley_conversation_open_start(channel, &what), on_opened);
    }
    fd = (struct pollfd){.fd = parley_channel_fd(channel), .events = POLLIN};
    while (n_running > 0) {
        (void)poll(&fd, 1, -1);
        parley_channel_dispatch(channel);
    }
    parley_channel_close(channel);
    return 0;
}
