#include "client/cli/chat/chat_state.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/output/console.h"
#include "client/cli/chat/transcript.h"

bool chat_begin(struct chat *c)
{
    const struct parley_open what = {
        .model = c->chosen_model != NULL ? c->chosen_model : c->wanted_model, .system = c->system};
    struct parley_opened opened;
    struct parley_error err;

    if (parley_conversation_open(c->channel, &what, &opened, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return false;
    }
    chat_leave(c);
    memcpy(c->conversation, opened.conversation, sizeof(c->conversation));
    memcpy(c->model, opened.model, sizeof(c->model));
    c->n_turns = 0;
    c->is_mine = true;
    return true;
}

/* A conversation at a terminal can be resumed by its id until the server's idle timeout; over a
 * pipe its id is never shown. */
void chat_leave(struct chat *c)
{
    struct parley_error err;
    bool can_be_wanted = console_is_fancy() && isatty(STDIN_FILENO) != 0 && c->n_turns > 0;

    if (*c->conversation == '\0')
        return;
    if (can_be_wanted)
        console_quiet("'parley chat --conversation %s' goes on with it", c->conversation);
    else if (c->is_mine)
        (void)parley_close(c->channel, c->conversation,
                           &err); /* may fail: the conversation then expires when idle */
    *c->conversation = '\0';
}

bool chat_resume(struct chat *c)
{
    Parley__V1__Conversation *found;
    struct parley_error err;

    if (transcript_get(&found, c->channel, c->wanted_conversation, false, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return false;
    }
    (void)snprintf(c->conversation, sizeof(c->conversation), "%s", found->conversation);
    (void)snprintf(c->model, sizeof(c->model), "%s", found->model);
    c->n_turns = found->turns;
    parley__v1__conversation__free_unpacked(found, NULL);
    return true;
}

void chat_count_turns(struct chat *c)
{
    Parley__V1__Conversation *found;
    struct parley_error err;
    uint32_t n_cancelled;

    (void)parley_cancel(c->channel, c->conversation, &n_cancelled, &err); /* there may be none */
    if (transcript_get(&found, c->channel, c->conversation, false, &err) == PARLEY_OK) {
        c->n_turns = found->turns;
        parley__v1__conversation__free_unpacked(found, NULL);
    }
}
