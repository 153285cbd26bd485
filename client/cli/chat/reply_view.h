/* Shows replies on stdout: where a person at a terminal with colours reads them, as Markdown whose
 * words wrap; else as they are. */
#ifndef CLIENT_CLI_CHAT_REPLY_VIEW_H
#define CLIENT_CLI_CHAT_REPLY_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/output/markdown.h"

struct reply_view {
    struct markdown markdown;
    bool is_markdown;
    bool has_text, ends_line; /* of what was written; ends_line: its last character is a newline */
};

/* Begins a reply. */
void reply_view_begin(struct reply_view *v);
/* False: stdout cannot be written any more. */
bool reply_view_write(struct reply_view *v, const char *text, size_t len);
/* Shows what is held back, and ends the line; without any text, an empty line only if is_whole. */
void reply_view_end(struct reply_view *v, bool is_whole);

/* Between the two, the caller may print one line that is erased again. */
void reply_view_pause(struct reply_view *v);
void reply_view_resume(struct reply_view *v);

#endif
