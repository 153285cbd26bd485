/* Fetches conversations page by page. Writes them as text, JSON lines, Markdown or a page, and cuts
 * the few words that lists show. */
#include "client/cli/chat/transcript.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <wchar.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "cli/output/out.h"
#include "cli/output/svg.h"
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

static bool transcript_write_json(FILE *out, uint32_t turn, const char *role, const char *text)
{
    json_t *line = json_pack("{si,ss,ss}", "turn", (int)turn, "role", role, "text", text);
    bool is_good =
        line != NULL && json_dumpf(line, out, JSON_COMPACT) == 0 && fputc('\n', out) != EOF;

    json_decref(line);
    return is_good;
}

static bool transcript_write_markdown(FILE *out, uint32_t turn, const char *role, const char *text)
{
    return fprintf(out, "## %s\n\n%s\n\n", role, text) >= 0;
}

static bool transcript_write_html(FILE *out, uint32_t turn, const char *role, const char *text)
{
    (void)fprintf(out, "<section>\n<h2>");
    svg_text(out, role);
    (void)fprintf(out, "</h2>\n<pre>");
    svg_text(out, text);
    return fprintf(out, "</pre>\n</section>\n") >= 0;
}

static bool write_messages(const Parley__V1__Conversation *c, FILE *out, write_fn write)
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

static void begin_page(const Parley__V1__Conversation *c, FILE *out)
{
    (void)fprintf(out, "<!doctype html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n<title>");
    svg_text(out, c->model);
    (void)fprintf(
        out,
        " %.8s</title>\n<style>\nbody { max-width: 45em; margin: 2em auto; padding: 0 1em; "
        "font-family: sans-serif; }\nh2 { font-size: 1em; color: #666; }\n"
        "pre { white-space: pre-wrap; overflow-wrap: anywhere; font: inherit; }\n</style>\n"
        "</head>\n<body>\n<h1>",
        c->conversation);
    svg_text(out, c->model);
    (void)fprintf(out, "</h1>\n<p>conversation %s, %u turns</p>\n", c->conversation, c->turns);
}

bool transcript_write(const Parley__V1__Conversation *c, enum transcript_layout layout, FILE *out)
{
    bool is_good = true;

    switch (layout) {
    case TRANSCRIPT_TEXT:
        return write_messages(c, out, transcript_write_text);
    case TRANSCRIPT_JSON:
        return write_messages(c, out, transcript_write_json);
    case TRANSCRIPT_MARKDOWN:
        is_good = fprintf(out, "# %s\n\nconversation %s, %u turns\n\n", c->model, c->conversation,
                          c->turns) >= 0;
        return write_messages(c, out, transcript_write_markdown) && is_good;
    case TRANSCRIPT_HTML:
        begin_page(c, out);
        is_good = write_messages(c, out, transcript_write_html);
        return fprintf(out, "</body>\n</html>\n") >= 0 && is_good;
    }
    return is_good;
}

bool transcript_layout_read(enum transcript_layout *out, const char *word)
{
    static const struct {
        const char *word;
        enum transcript_layout layout;
    } words[] = {
        {"text", TRANSCRIPT_TEXT}, {"markdown", TRANSCRIPT_MARKDOWN}, {"html", TRANSCRIPT_HTML}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(words[i].word, word) == 0) {
            *out = words[i].layout;
            return true;
        }
    return false;
}

/* --- a few words --- */

void transcript_words(char out[TRANSCRIPT_WORDS_BYTES], const char *text, size_t n_columns)
{
    static const char cut[] = "…";
    size_t n = 0, at = 0, left = strlen(text);

    while (left > 0) {
        const size_t n_spaces = strspn(text, " \t\r\n");
        uint32_t character;
        char shown[4];
        size_t len, n_shown;
        int width;

        text += n_spaces;
        left -= n_spaces;
        if (left == 0)
            break;
        len = utf8_next(text, left, &character);
        n_shown = utf8_encode(out_shown(character), shown);
        width = wcwidth((wchar_t)out_shown(character));
        if (n + (width > 1 ? (size_t)width : 1) >= n_columns ||
            at + 1 + n_shown + sizeof(cut) > TRANSCRIPT_WORDS_BYTES) {
            memcpy(out + at, cut, sizeof(cut));
            return;
        }
        if (n_spaces > 0 && at > 0) {
            out[at++] = ' ';
            n++;
        }
        memcpy(out + at, shown, n_shown);
        at += n_shown;
        n += width > 0 ? (size_t)width : 0;
        text += len;
        left -= len;
    }
    out[at] = '\0';
}

void transcript_first_words(char out[TRANSCRIPT_WORDS_BYTES], struct parley_channel *channel,
                            const char *conversation, size_t n_columns)
{
    Parley__V1__ConversationsGetRequest request = PARLEY__V1__CONVERSATIONS_GET_REQUEST__INIT;
    Parley__V1__Conversation *c;
    struct parley_error ignored; /* the conversation may be closed by now */

    *out = '\0';
    request.conversation = (char *)(uintptr_t)conversation; /* is only read */
    request.page_size = 1;
    if (get_page(&c, channel, &request, &ignored) != PARLEY_OK)
        return;
    if (c->n_transcript > 0 && c->transcript[0]->n_messages > 0)
        transcript_words(out, c->transcript[0]->messages[0]->text, n_columns);
    parley__v1__conversation__free_unpacked(c, NULL);
}

/* --- files --- */

static bool ends_in(const char *text, const char *end)
{
    size_t len = strlen(text), n = strlen(end);

    return len >= n && strcmp(text + len - n, end) == 0;
}

enum status transcript_save(const Parley__V1__Conversation *c, const char *path, struct error *err)
{
    const enum transcript_layout layout = ends_in(path, ".json") || ends_in(path, ".jsonl")
                                              ? TRANSCRIPT_JSON
                                          : ends_in(path, ".md")   ? TRANSCRIPT_MARKDOWN
                                          : ends_in(path, ".html") ? TRANSCRIPT_HTML
                                                                   : TRANSCRIPT_TEXT;
    FILE *out = fopen(path, "wxe");
    bool is_good;

    if (out == NULL && errno == EEXIST)
        return error_set(err, STATUS_EXISTS, "%s exists already; nothing was saved", path);
    if (out == NULL)
        return error_set(err, STATUS_UNKNOWN, "%s: %s", path, strerror(errno));
    errno = 0;
    is_good = transcript_write(c, layout, out);
    is_good = fclose(out) == 0 && is_good;
    return is_good ? STATUS_OK
                   : error_set(err, STATUS_UNKNOWN, "%s: %s", path,
                               errno == 0 ? "cannot be written" : strerror(errno));
}
