/* Turns have numbers, so that a failed turn is requested again and is answered once. If a worker is
 * lost, this waits for another one. Conversations are kept short, since the server has their
 * transcripts. */
#include "worlds/verbs/attached_data.h"

#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "client/lib/parley.h"

enum {
    ATTACHED_PASS_BYTES = 4 << 20, /* of one conversation */
    ATTACHED_LOST_MS = 60000,      /* how long to wait for a lost worker */
    ATTACHED_RETRY_MS = 200,
};

struct attached_pass {
    struct parley_channel *channel;
    char *name, *fold, *argument;
    char conversation[33]; /* "": none is open */
    uint32_t n_turns;
    size_t n_bytes;
    struct parley_future *reply; /* the last, which holds the text; NULL: none */
};

static enum status attached_failed(const struct parley_error *why, struct error *err)
{
    return error_set(err, (enum status)why->status, "%.300s", why->text);
}

static void attached_leave(struct attached_pass *p)
{
    struct parley_error ignored; /* the conversation expires at the server anyway */

    parley_future_unref(p->reply);
    p->reply = NULL;
    if (p->conversation[0] != '\0')
        (void)parley_close(p->channel, p->conversation, &ignored);
    p->conversation[0] = '\0';
    p->n_turns = 0;
    p->n_bytes = 0;
}

static void attached_close(void *opened)
{
    struct attached_pass *p = opened;

    if (p->channel != NULL)
        attached_leave(p);
    parley_channel_close(p->channel);
    free(p->name);
    free(p->fold);
    free(p->argument);
    free(p);
}

static enum status attached_open(void **out, void *arg, const char *name, const char *fold,
                                 const char *argument, struct error *err)
{
    struct attached_pass *p = xalloc(sizeof(*p));

    p->channel = connection_open(arg); /* prints the error itself */
    p->name = xstrdup(name);
    p->fold = xstrdup(fold);
    p->argument = xstrdup(argument);
    if (p->channel == NULL) {
        attached_close(p);
        return error_set(err, STATUS_UNAVAILABLE, "no server is connected");
    }
    *out = p;
    return STATUS_OK;
}

static enum status attached_begin(struct attached_pass *p, uint64_t n_episodes, struct error *err)
{
    json_t *pass = json_pack("{s:s,s:s,s:I}", "fold", p->fold, "argument", p->argument, "from",
                             (json_int_t)n_episodes);
    char *system = pass == NULL ? NULL : json_dumps(pass, JSON_COMPACT);
    const struct parley_open what = {.model = p->name, .system = system};
    struct parley_opened opened;
    struct parley_error why;
    enum status rc = STATUS_OK;

    if (system == NULL) /* or the argument is not UTF-8 */
        rc = error_set(err, STATUS_INVALID, "the argument is not UTF-8 text");
    else if (parley_conversation_open(p->channel, &what, &opened, &why) != PARLEY_OK)
        rc = attached_failed(&why, err);
    else
        memcpy(p->conversation, opened.conversation, sizeof(p->conversation));
    free(system);
    json_decref(pass);
    return rc;
}

/* The reply to turn n_turns + 1, once. */
static enum status attached_ask(struct attached_pass *p, const struct parley_result **out,
                                struct error *err)
{
    const struct parley_message message = {"user", "next"};
    const struct parley_turn turn = {.conversation = p->conversation,
                                     .turn = p->n_turns + 1,
                                     .messages = &message,
                                     .n_messages = 1};
    const uint64_t end_ms = clock_ms() + ATTACHED_LOST_MS;
    const struct parley_result *result;

    for (;;) {
        parley_future_unref(p->reply);
        p->reply = parley_ask_start(p->channel, &turn);
        if (p->reply == NULL)
            return error_no_memory(err, sizeof(turn), "a turn");
        (void)parley_wait_all(&p->reply, 1, PARLEY_FOREVER);
        result = parley_future_result(p->reply);
        if (result->err.status != PARLEY_UNAVAILABLE || clock_ms() > end_ms)
            break;
        /* A signal may end the wait early, which is harmless. */
        (void)poll(NULL, 0, ATTACHED_RETRY_MS);
    }
    if (result->err.status != PARLEY_OK)
        return attached_failed(&result->err, err);
    if (strcmp(result->done.finish_reason, "stop") != 0)
        return error_set(err, STATUS_DATA_LOSS, "a reply was cut short (%s)",
                         result->done.finish_reason);
    *out = result;
    return STATUS_OK;
}

static enum status attached_next(void *opened, uint64_t n_episodes, bool is_between,
                                 const char **out, size_t *ret_len, struct error *err)
{
    const struct parley_result *result = NULL;
    struct attached_pass *p = opened;

    if (is_between && p->n_bytes > ATTACHED_PASS_BYTES)
        attached_leave(p);
    if (p->conversation[0] == '\0' && attached_begin(p, n_episodes, err) != STATUS_OK)
        return err->status;
    if (attached_ask(p, &result, err) != STATUS_OK)
        return err->status;
    p->n_turns++;
    p->n_bytes += result->len;
    *out = result->text;
    *ret_len = result->len;
    return STATUS_OK;
}

struct attached_data attached_data_of(const struct connection_options *connection)
{
    return (struct attached_data){attached_open, attached_next, attached_close,
                                  (void *)(uintptr_t)connection}; /* only read */
}
