/* What libparley says of a connection: waits for the server, opens a conversation, takes a turn of
 * it, and prints the reason and the text of the first failure, or "OK". The key is that of
 * PARLEY_API_KEY. `reach_calls ADDRESS WAIT_MS MODEL [CA]`. */
#include <stdio.h>
#include <stdlib.h>

#include "client/lib/parley.h"

enum { CA_MAX_BYTES = 1 << 16 };

static void nothing(void *arg, const struct parley_error *err)
{
    (void)arg;
    (void)err; /* parley_turn returns it, too */
}

static enum parley_status talk(struct parley_channel *channel, const char *model,
                               struct parley_error *err)
{
    const struct parley_open open = {.model = model};
    const struct parley_message message = {"user", "hello"};
    const struct parley_turn_events events = {.end = nothing};
    struct parley_opened opened;
    struct parley_turn turn = {.messages = &message, .n_messages = 1};

    if (parley_conversation_open(channel, &open, &opened, err) != PARLEY_OK)
        return err->status;
    turn.conversation = opened.conversation;
    return parley_turn(channel, &turn, &events, err);
}

int main(int argc, char **argv)
{
    static char ca[CA_MAX_BYTES]; /* zero: it ends the text */
    struct parley_channel_options options = {.key = getenv("PARLEY_API_KEY")};
    struct parley_error err = {0};
    struct parley_channel *channel;
    FILE *file;

    if (argc < 4)
        return 2;
    options.address = argv[1];
    if (argc > 4) {
        file = fopen(argv[4], "re");
        if (file == NULL || fread(ca, 1, sizeof(ca) - 1, file) == 0)
            return 2;
        (void)fclose(file);
        options.is_tls = true;
        options.ca = ca;
    }
    channel = parley_channel_open_with(&options);
    if (channel == NULL)
        return 2;
    if (parley_channel_wait(channel, (uint32_t)strtoul(argv[2], NULL, 10), &err) == PARLEY_OK &&
        talk(channel, argv[3], &err) == PARLEY_OK)
        printf("OK\n");
    else
        printf("%s %s\n", err.reason, err.text);
    parley_channel_close(channel);
    return 0;
}
