/* The messages of a conversation, as the server keeps them, printed for a person or for programs.
 */
#ifndef CLIENT_CLI_CHAT_TRANSCRIPT_H
#define CLIENT_CLI_CHAT_TRANSCRIPT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"
#include "client/lib/parley.h"
#include "parley/v1/conversations.pb-c.h"

/* Fetches all pages of the transcript. The caller frees *out by
 * parley__v1__conversation__free_unpacked(*out, NULL). */
enum parley_status transcript_get(Parley__V1__Conversation **out, struct parley_channel *channel,
                                  const char *conversation, bool with_text,
                                  struct parley_error *err);

enum transcript_layout {
    TRANSCRIPT_TEXT, /* "role: text" with an empty line after each */
    TRANSCRIPT_JSON, /* {"turn":…,"role":…,"text":…} a line; the system prompt is of turn 0 */
    TRANSCRIPT_MARKDOWN, /* a heading for each message, then its text as it is */
    TRANSCRIPT_HTML,     /* a page of its own, without scripts */
};

/* "text", "markdown" or "html"; false for any other word. */
bool transcript_layout_read(enum transcript_layout *out, const char *word);
/* False when a write failed. */
bool transcript_write(const Parley__V1__Conversation *c, enum transcript_layout layout, FILE *out);

/* The beginning of a text as one line of at most n_columns characters, with "…" where it is cut.
 * Control characters are as out_shown shows them. */
enum { TRANSCRIPT_WORDS_BYTES = 256 };
void transcript_words(char out[TRANSCRIPT_WORDS_BYTES], const char *text, size_t n_columns);
/* The same of the first message of a conversation, which is asked for; "" where it has none. */
void transcript_first_words(char out[TRANSCRIPT_WORDS_BYTES], struct parley_channel *channel,
                            const char *conversation, size_t n_columns);

/* Into a new file: JSON lines where the name ends in .json or .jsonl, Markdown for .md, a page for
 * .html, else text. */
enum status transcript_save(const Parley__V1__Conversation *c, const char *path,
                            struct error *err) MUST_CHECK;

#endif
