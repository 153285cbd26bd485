/* Two conversations of one agent, one forked from the other.
 *
 *   cc turns.c $(pkg-config --cflags --libs parley) -o turns
 *   ./turns 127.0.0.1:8001 */
#include <parley.h>
#include <stdio.h>

static void on_piece(void *arg, const char *text, size_t len, const struct parley_token *tokens,
                     size_t n_tokens)
{
    (void)arg;
    (void)tokens;
    (void)n_tokens;
    (void)fwrite(text, 1, len, stdout);
}

static enum parley_status say(struct parley_channel *channel, const char *conversation,
                              const char *text, struct parley_error *err)
{
    const struct parley_message message = {"user", text};
    const struct parley_turn turn = {
        .conversation = conversation, .messages = &message, .n_messages = 1};
    const struct parley_turn_events events = {.piece = on_piece};
    enum parley_status rc = parley_turn(channel, &turn, &events, err);

    (void)puts("");
    return rc;
}

int main(int argc, char **argv)
{
    struct parley_channel *channel = parley_channel_open(argc > 1 ? argv[1] : "127.0.0.1:8001");
    const struct parley_open what = {.system = "Be brief."};
    struct parley_error err = {.status = PARLEY_RESOURCE_EXHAUSTED};
    struct parley_opened opened;
    char fork[33];

    if (channel == NULL || parley_channel_wait(channel, 10000, &err) != PARLEY_OK ||
        parley_conversation_open(channel, &what, &opened, &err) != PARLEY_OK ||
        say(channel, opened.conversation, "Name a river.", &err) != PARLEY_OK ||
        parley_fork(channel, opened.conversation, PARLEY_ALL_TURNS, fork, &err) != PARLEY_OK ||
        say(channel, opened.conversation, "Where does it rise?", &err) != PARLEY_OK ||
        say(channel, fork, "Where does it end?", &err) != PARLEY_OK ||
        parley_close(channel, fork, &err) != PARLEY_OK ||
        parley_close(channel, opened.conversation, &err) != PARLEY_OK)
        (void)fprintf(stderr, "%s: %s\n", parley_status_name(err.status), err.text);
    if (channel != NULL)
        parley_channel_close(channel);
    return err.status == PARLEY_OK ? 0 : 1;
}
