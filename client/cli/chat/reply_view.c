#include "client/cli/chat/reply_view.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/output/console.h"
#include "cli/output/out.h"

static bool view_write(void *arg, const char *text, size_t len)
{
    return out_text(text, len);
}

void reply_view_begin(struct reply_view *v)
{
    *v = (struct reply_view){.is_markdown = out_has_colours() && isatty(STDIN_FILENO) != 0};
    markdown_init(&v->markdown, console_columns(STDOUT_FILENO), view_write, NULL);
}

bool reply_view_write(struct reply_view *v, const char *text, size_t len)
{
    bool is_good;

    if (v->is_markdown)
        markdown_resize(&v->markdown, console_columns(STDOUT_FILENO));
    is_good = v->is_markdown ? markdown_write(&v->markdown, text, len) : out_foreign(text, len);
    if (len > 0) {
        v->has_text = true;
        v->ends_line = text[len - 1] == '\n';
    }
    return is_good && out_flush();
}

void reply_view_end(struct reply_view *v, bool is_whole)
{
    if (v->is_markdown)
        (void)markdown_end(&v->markdown); /* out_end reports a failure */
    if (v->has_text ? !v->ends_line || !out_is_tty() : is_whole)
        (void)out_text("\n", 1);
    (void)out_flush();
    markdown_deinit(&v->markdown);
}

/* Whether the cursor is within a line of the text: the column is known of Markdown alone. */
static bool view_is_mid_line(const struct reply_view *v)
{
    return v->is_markdown ? v->markdown.column > 0 : v->has_text && !v->ends_line;
}

void reply_view_pause(struct reply_view *v)
{
    if (view_is_mid_line(v))
        (void)out_text("\n", 1);
    (void)out_flush();
}

/* Goes back to where the text has stopped; where that is not known, it goes on in the next row. */
void reply_view_resume(struct reply_view *v)
{
    char escape[48];
    int n;

    if (!v->is_markdown || v->markdown.column == 0)
        return;
    n = snprintf(escape, sizeof(escape), "\033[A\033[%zuC", v->markdown.column);
    (void)out_text(escape, (size_t)n);
    (void)out_flush();
}
