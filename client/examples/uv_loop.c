/* A turn on libuv's loop: the channel's descriptor is one more handle.
 *
 *   cc uv_loop.c $(pkg-config --cflags --libs parley libuv) -o uv_loop
 *   ./uv_loop 127.0.0.1:8001 */
#include <parley.h>
#include <stdio.h>
#include <uv.h>

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    parley_channel_dispatch(poll->data);
}

static void on_piece(void *arg, const char *text, size_t len, const struct parley_token *tokens,
                     size_t n_tokens)
{
    (void)arg;
    (void)tokens;
    (void)n_tokens;
    (void)fwrite(text, 1, len, stdout);
}

static void on_end(void *arg, const struct parley_error *err)
{
    if (err->status != PARLEY_OK)
        (void)fprintf(stderr, "%s: %s", parley_status_name(err->status), err->text);
    (void)puts("");
    uv_close(arg, NULL); /* closes the loop's last handle */
}

int main(int argc, char **argv)
{
    const struct parley_channel_options options = {.address = argc > 1 ? argv[1] : "127.0.0.1:8001",
                                                   .is_polled = true};
    struct parley_channel *channel = parley_channel_open_with(&options);
    const struct parley_message message = {"user", "Name a river."};
    const struct parley_open what = {0};
    struct parley_opened opened;
    struct parley_error err;
    uv_poll_t poll;

    if (channel == NULL || parley_conversation_open(channel, &what, &opened, &err) != PARLEY_OK)
        return 1;
    (void)uv_poll_init(uv_default_loop(), &poll, parley_channel_fd(channel));
    poll.data = channel;
    (void)uv_poll_start(&poll, UV_READABLE, on_readable);
    {
        const struct parley_turn turn = {
            .conversation = opened.conversation, .messages = &message, .n_messages = 1};
        const struct parley_turn_events events = {.piece = on_piece, .end = on_end, .arg = &poll};

        parley_call_unref(parley_turn_start(channel, &turn, &events));
    }
    (void)uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    parley_channel_close(channel);
    return 0;
}
