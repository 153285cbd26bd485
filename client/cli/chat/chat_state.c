#include "client/cli/chat/chat_state.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/output/console.h"
#include "cli/output/out.h"
#include "client/cli/chat/listing.h"
#include "client/cli/chat/reply_view.h"
#include "client/cli/chat/transcript.h"

enum { SHOWN_TURNS = 3 };

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
    memcpy(c->version, opened.version, sizeof(c->version));
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
    if (!can_be_wanted && c->is_mine && !c->is_in_doubt)
        (void)parley_close(c->channel, c->conversation,
                           &err); /* may fail: the conversation then expires when idle */
    else if (can_be_wanted && getenv("PARLEY_SERVER_ENDS") == NULL) /* as ./run chat says */
        console_quiet("'parley chat --conversation %s' goes on with it", c->conversation);
    *c->conversation = '\0';
}

static void show_message(const char *mark, const char *text)
{
    (void)out_text(mark, strlen(mark)); /* out_end reports a failure */
    (void)out_foreign(text, strlen(text));
    (void)out_text("\n", 1);
}

/* Shows the last turns, so that a person knows where the conversation stands. */
static void show_last_turns(const Parley__V1__Conversation *found)
{
    const size_t first = found->n_transcript > SHOWN_TURNS ? found->n_transcript - SHOWN_TURNS : 0;

    if (first > 0)
        console_quiet("… %zu turn%s before", first, first == 1 ? "" : "s");
    for (size_t i = first; i < found->n_transcript; i++) {
        const Parley__V1__TranscriptTurn *turn = found->transcript[i];
        struct reply_view view;

        for (size_t k = 0; k < turn->n_messages; k++)
            show_message("> ", turn->messages[k]->text);
        if (turn->finish_reason == PARLEY__V1__FINISH_REASON__FINISH_REASON_OBSERVED)
            continue;
        reply_view_begin(&view);
        (void)reply_view_write(&view, turn->reply, strlen(turn->reply));
        reply_view_end(&view, true);
    }
    (void)out_flush();
}

bool chat_go_to(struct chat *c, const char *conversation)
{
    const bool is_shown = console_is_fancy() && out_is_tty() && isatty(STDIN_FILENO) != 0;
    char id[LISTING_ID_CHARS];
    Parley__V1__Conversation *found;
    struct parley_error err;
    bool is_here;

    if (listing_resolve(id, c->channel, conversation, &err) != PARLEY_OK ||
        transcript_get(&found, c->channel, id, is_shown, &err) != PARLEY_OK) {
        (void)connection_complain(&err);
        return false;
    }
    is_here = strcmp(found->conversation, c->conversation) == 0;
    if (!is_here && c->is_mine && c->n_turns == 0 && *c->conversation != '\0')
        (void)parley_close(c->channel, c->conversation,
                           &err); /* may fail: the conversation then expires when idle */
    (void)snprintf(c->conversation, sizeof(c->conversation), "%s", found->conversation);
    (void)snprintf(c->model, sizeof(c->model), "%s", found->model);
    (void)snprintf(c->version, sizeof(c->version), "%s", found->version);
    c->n_turns = found->turns;
    c->is_mine = is_here && c->is_mine;
    c->is_in_doubt = false;
    if (is_shown)
        show_last_turns(found);
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
