#include "client/cli/chat/transcript.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "client/cli/connection.h"

static enum parley_status get_page(Parley__V1__Conversation **out, struct parley_channel *channel,
                                   const Parley__V1__ConversationsGetRequest *request,
                                   struct parley_error *err)
{
    ProtobufCMessage *answer;
    enum parley_status rc;

    rc = connection_call(&answer, channel, "/parley.v1.Conversations/Get", &request->base,
                         &parley__v1__conversation__descriptor, 0, err);
    if (rc == PARLEY_OK)
        *out = (Parley__V1__Conversation *)answer;
    return rc;
}

/* Moves the turns of a later page behind those of c. */
static void append_page(Parley__V1__Conversation *c, Parley__V1__Conversation *page)
{
    size_t n = c->n_transcript + page->n_transcript;

    c->transcript = xrealloc(c->transcript, (n + 1) * sizeof(c->transcript[0]));
    for (size_t i = 0; i < page->n_transcript; i++)
        c->transcript[c->n_transcript++] = page->transcript[i];
    page->n_transcript = 0;
}

/* Adds the pages after the first; c has no next_page_token then. */
static enum parley_status get_other_pages(Parley__V1__Conversation *c,
                                          struct parley_channel *channel,
                                          Parley__V1__ConversationsGetRequest *request,
                                          struct parley_error *err)
{
    while (*c->next_page_token != '\0') {
        Parley__V1__Conversation *page;
        enum parley_status rc;
        char *token;

        request->page_token = c->next_page_token;
        rc = get_page(&page, channel, request, err);
        if (rc != PARLEY_OK)
            return rc;
        append_page(c, page);
        token = c->next_page_token;
        c->next_page_token = page->next_page_token;
        page->next_page_token = token;
        parley__v1__conversation__free_unpacked(page, NULL);
    }
    return PARLEY_OK;
}

enum parley_status transcript_get(Parley__V1__Conversation **out, struct parley_channel *channel,
                                  const char *conversation, bool with_text,
                                  struct parley_error *err)
{
    enum { TRIES = 5, PAGE = 1000 };
    enum parley_status rc = PARLEY_OK;

    for (int i = 0; i < TRIES; i++) {
        Parley__V1__ConversationsGetRequest request = PARLEY__V1__CONVERSATIONS_GET_REQUEST__INIT;
        Parley__V1__Conversation *c;

        request.conversation = (char *)conversation;
        request.without_transcript = !with_text;
        request.page_size = PAGE;
        rc = get_page(&c, channel, &request, err);
        if (rc != PARLEY_OK)
            return rc;
        rc = get_other_pages(c, channel, &request, err);
        if (rc == PARLEY_OK) {
            *out = c;
            return rc;
        }
        parley__v1__conversation__free_unpacked(c, NULL);
        if (rc != PARLEY_OUT_OF_RANGE) /* OUT_OF_RANGE: turns were rewound between two pages */
            return rc;
    }
    return rc;
}

/* One message; false when it could not be written. */
typedef bool (*write_fn)(FILE *out, uint32_t turn, const char *role, const char *text);

static bool transcript_write_text(FILE *out, uint32_t turn, const char *role, const char *text)
{
    return fprintf(out, "%s: %s\n\n", role, text) >= 0;
}

static bool write_json(FILE *out, uint32_t turn, const char *role, const char *text)
{
    json_t *line = json_pack("{si,ss,ss}", "turn", (int)turn, "role", role, "text", text);
    bool is_good =
        line != NULL && json_dumpf(line, out, JSON_COMPACT) == 0 && fputc('\n', out) != EOF;

    json_decref(line);
    return is_good;
}

static bool transcript_write_all(const Parley__V1__Conversation *c, FILE *out, write_fn write)
{
    bool is_good = *c->system == '\0' || write(out, 0, "system", c->system);

    for (size_t i = 0; is_good && i < c->n_transcript; i++) {
        const Parley__V1__TranscriptTurn *turn = c->transcript[i];

        for (size_t j = 0; is_good && j < turn->n_messages; j++)
            is_good = write(out, turn->turn, turn->messages[j]->role, turn->messages[j]->text);
        if (turn->finish_reason != PARLEY__V1__FINISH_REASON__FINISH_REASON_OBSERVED)
            is_good = is_good && write(out, turn->turn, "assistant", turn->reply);
    }
    return is_good;
}

bool transcript_write(const Parley__V1__Conversation *c, FILE *out)
{
    return transcript_write_all(c, out, transcript_write_text);
}

bool transcript_write_json(const Parley__V1__Conversation *c, FILE *out)
{
    return transcript_write_all(c, out, write_json);
}

static bool ends_in(const char *text, const char *end)
{
    size_t len = strlen(text), n = strlen(end);

    return len >= n && strcmp(text + len - n, end) == 0;
}

enum status transcript_save(const Parley__V1__Conversation *c, const char *path, struct error *err)
{
    bool is_json = ends_in(path, ".json") || ends_in(path, ".jsonl"), is_good;
    FILE *out = fopen(path, "wxe");

    if (out == NULL && errno == EEXIST)
        return error_set(err, STATUS_EXISTS, "%s exists already; nothing was saved", path);
    if (out == NULL)
        return error_set(err, STATUS_UNKNOWN, "%s: %s", path, strerror(errno));
    errno = 0;
    is_good = is_json ? transcript_write_json(c, out) : transcript_write(c, out);
    is_good = fclose(out) == 0 && is_good;
    return is_good ? STATUS_OK
                   : error_set(err, STATUS_UNKNOWN, "%s: %s", path,
                               errno == 0 ? "cannot be written" : strerror(errno));
}
