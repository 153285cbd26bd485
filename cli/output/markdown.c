/* A line begins as unknown: its first characters are held until they say what the line is. The
 * characters behind them go through two stages: runs of '*', '_' and '`' change the style, and
 * words are held until they end, since only then it is known in which row they stand. */
#include "cli/output/markdown.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "base/utf8.h"
#include "cli/output/out.h"

enum { STYLE_BOLD = 1, STYLE_ITALIC = 2, STYLE_CODE = 4, STYLE_MARK = 8 };

enum {
    WIDTH_UNKNOWN = 80,
    WORD_MAX_BYTES = 1 << 16,
    FENCE_LENGTH = 3,    /* marks that begin a block of code */
    HEADING_MAX = 6,     /* '#'s */
    NUMBER_MAX = 9,      /* digits of a list's item */
    TAB_STOP = 8,        /* columns */
    WIDE = 2,            /* columns of a character behind which a line may end */
    RUN_IS_EMPHASIS = 3, /* marks, at most */
};

void markdown_init(struct markdown *m, size_t width,
                   bool (*write)(void *arg, const char *text, size_t len), void *arg)
{
    *m = (struct markdown){
        .width = width == 0 ? WIDTH_UNKNOWN : width, .write = write, .arg = arg, .is_good = true};
    buf_init(&m->word, WORD_MAX_BYTES);
}

void markdown_deinit(struct markdown *m)
{
    buf_deinit(&m->word);
}

void markdown_resize(struct markdown *m, size_t width)
{
    m->width = width == 0 ? WIDTH_UNKNOWN : width;
    if (m->column > m->width) /* the terminal goes on in another row */
        m->column = (m->column - 1) % m->width + 1;
    if (m->indent >= m->width)
        m->indent = 0;
}

static void markdown_out(struct markdown *m, const char *text, size_t len)
{
    m->is_good = m->is_good && (len == 0 || m->write(m->arg, text, len));
}

static void markdown_out_spaces(struct markdown *m, size_t n)
{
    for (; n > 0; n--)
        markdown_out(m, " ", 1);
}

/* Shows the word that is held, in the next row where this one has no room. */
static void markdown_end_word(struct markdown *m)
{
    const bool is_wrapped = m->line != MARKDOWN_CODE && m->line != MARKDOWN_TABLE;

    if (m->word_width == 0) { /* escapes alone */
        markdown_out(m, m->word.data, m->word.len);
        buf_clear(&m->word);
        return;
    }
    if (is_wrapped && !m->is_mid_word && m->column > m->indent &&
        m->column + m->n_spaces + m->word_width > m->width) {
        markdown_out(m, "\n", 1);
        markdown_out_spaces(m, m->indent);
        m->column = m->indent;
    } else {
        markdown_out_spaces(m, m->n_spaces);
        m->column += m->n_spaces;
    }
    markdown_out(m, m->word.data, m->word.len);
    m->column += m->word_width;
    if (m->column > m->width) /* the terminal has gone on in another row */
        m->column = (m->column - 1) % m->width + 1;
    m->n_spaces = m->word_width = 0;
    buf_clear(&m->word);
}

static void markdown_hold(struct markdown *m, const char *text, size_t len)
{
    m->is_good = buf_append(&m->word, text, len) == STATUS_OK && m->is_good;
}

static void markdown_set_style(struct markdown *m, unsigned style)
{
    char escape[32];
    int n;

    if (style == m->shown)
        return;
    n = snprintf(escape, sizeof(escape), "\033[0%s%s%s%sm", (style & STYLE_BOLD) != 0 ? ";1" : "",
                 (style & STYLE_MARK) != 0 ? ";2" : "", (style & STYLE_ITALIC) != 0 ? ";3" : "",
                 (style & STYLE_CODE) != 0 ? ";36" : "");
    markdown_hold(m, escape, (size_t)n);
    m->shown = style;
}

/* Shows a tab of prose: the columns up to the next stop, or up to the row's end. */
static void markdown_put_tab(struct markdown *m)
{
    const size_t from = m->column + m->n_spaces, to = from + TAB_STOP - from % TAB_STOP;

    if (from < m->width) /* else the row ends before them */
        markdown_out_spaces(m, m->n_spaces);
    markdown_out(m, "\t", 1);
    m->column = to < m->width ? to : m->width;
    m->n_spaces = 0;
}

/* Shows a character in the style of the text. */
static void markdown_put(struct markdown *m, uint32_t character)
{
    const bool is_verbatim = m->line == MARKDOWN_CODE || m->line == MARKDOWN_TABLE;
    char bytes[4];
    int width;

    if (character == ' ' || (character == '\t' && !is_verbatim)) {
        markdown_end_word(m);
        m->is_mid_word = false;
        if (character == ' ')
            m->n_spaces++;
        else
            markdown_put_tab(m);
        return;
    }
    character = out_shown(character);
    width = character == '\t'
                ? (int)(TAB_STOP - (m->column + m->n_spaces + m->word_width) % TAB_STOP)
                : wcwidth((wchar_t)character);
    markdown_set_style(m, m->style);
    markdown_hold(m, bytes, utf8_encode(character, bytes));
    m->word_width += width > 0 ? (size_t)width : 0;
    if (width >= WIDE || is_verbatim) {
        markdown_end_word(m);
    } else if (m->word_width >= m->width || m->word.len > WORD_MAX_BYTES / 2) {
        markdown_end_word(m);
        m->is_mid_word = true; /* too long for a row: the terminal breaks the word */
    }
}

static bool is_word_character(uint32_t character)
{
    return character >= 0x80 || isalnum((int)character) != 0;
}

static bool is_space(uint32_t character)
{
    return character == ' ' || character == '\t' || character == '\n' || character == '\0';
}

/* Whether a run of '*' or '_' may begin and may end an emphasis, by its neighbours. */
static bool run_may_begin(const struct markdown *m, uint32_t after)
{
    return !is_space(after) && (m->run == '*' || !is_word_character(m->before));
}

static bool run_may_end(const struct markdown *m, uint32_t after)
{
    return !is_space(m->before) && (m->run == '*' || !is_word_character(after));
}

static void markdown_put_run(struct markdown *m)
{
    for (size_t i = 0; i < m->n_run; i++)
        markdown_put(m, (unsigned char)m->run);
}

/* The run is over; after: the character behind it. Marks have the style that they begin or end. */
static void markdown_end_run(struct markdown *m, uint32_t after)
{
    const unsigned wanted =
        (m->n_run % 2 == 1 ? STYLE_ITALIC : 0) | (m->n_run >= 2 ? STYLE_BOLD : 0);

    if (m->run == '`') {
        m->style |= STYLE_CODE;
        markdown_put_run(m);
        if (m->n_code == 0)
            m->n_code = m->n_run;
        else if (m->n_code == m->n_run)
            m->n_code = 0;
        if (m->n_code == 0)
            m->style &= ~(unsigned)STYLE_CODE;
    } else if (m->n_run > RUN_IS_EMPHASIS || m->line == MARKDOWN_HEADING) {
        markdown_put_run(m);
    } else if ((m->style & wanted) == wanted && run_may_end(m, after)) {
        markdown_put_run(m);
        m->style &= ~wanted;
    } else {
        if (run_may_begin(m, after))
            m->style |= wanted;
        markdown_put_run(m);
    }
    m->before = (unsigned char)m->run;
    m->run = '\0';
    m->n_run = 0;
}

/* A character behind the mark of its line, no newline. */
static void markdown_inline(struct markdown *m, uint32_t character)
{
    const bool is_mark =
        m->line != MARKDOWN_CODE && !m->is_escaped &&
        (character == '`' || (m->n_code == 0 && (character == '*' || character == '_')));

    if (m->begins_block && character == (unsigned char)m->fence && m->fence == '`')
        m->fence = '\0'; /* code within a line */
    if (m->run != '\0' && (!is_mark || character != (unsigned char)m->run))
        markdown_end_run(m, character);
    if (is_mark) {
        m->run = (char)character;
        m->n_run++;
        return;
    }
    m->is_escaped = character == '\\' && !m->is_escaped && m->n_code == 0;
    markdown_put(m, character);
    m->before = character;
}

/* --- the beginning of a line --- */

/* How the first characters of a line are to be shown: their mark, which may be empty, and the kind
 * of the line. */
struct line_head {
    enum markdown_line line;
    size_t n_mark; /* characters of the head that are the mark */
    unsigned mark_style, style;
    bool is_fence, is_item; /* is_item: wrapped rows begin below the text */
};

static size_t marks_length(const char *text, size_t len, char c)
{
    size_t n = 0;

    while (n < len && text[n] == c)
        n++;
    return n;
}

/* A line inside a block of code; false: more of it is needed. */
static bool head_in_code(const struct markdown *m, struct line_head *out, size_t n_spaces,
                         bool is_whole)
{
    const size_t n = marks_length(m->head + n_spaces, m->n_head - n_spaces, m->fence);

    if (n_spaces + n == m->n_head && !is_whole)
        return false;
    *out = (struct line_head){.line = MARKDOWN_CODE, .style = STYLE_CODE};
    if (n >= m->n_fence && n_spaces + n == m->n_head) {
        out->is_fence = true;
        out->style = STYLE_MARK;
    }
    return true;
}

/* The mark of a list's item, with the space behind it; 0: there is none. *ret_more: more characters
 * are needed to say so. */
static size_t item_length(const char *text, size_t len, bool *ret_more)
{
    size_t n = 0;

    *ret_more = false;
    while (n < len && n < NUMBER_MAX && isdigit((unsigned char)text[n]) != 0)
        n++;
    if (n == len) {
        *ret_more = n > 0;
        return 0;
    }
    if (n > 0 ? text[n] != '.' && text[n] != ')' : strchr("-*+", text[n]) == NULL)
        return 0;
    *ret_more = n + 1 == len;
    return n + 1 < len && text[n + 1] == ' ' ? n + 2 : 0;
}

/* What the held characters say of a line outside of code; false: more of them are needed. */
static bool head_in_text(const struct markdown *m, struct line_head *out, size_t n_spaces,
                         bool is_whole)
{
    const char *text = m->head + n_spaces;
    const size_t len = m->n_head - n_spaces, n = len == 0 ? 0 : marks_length(text, len, text[0]);
    bool is_more;
    size_t n_item;

    *out = (struct line_head){.line = MARKDOWN_TEXT};
    if (len == 0)
        return is_whole;
    if ((text[0] == '`' || text[0] == '~') && (n < len || is_whole)) {
        if (n >= FENCE_LENGTH)
            *out = (struct line_head){.line = MARKDOWN_CODE, .style = STYLE_MARK, .is_fence = true};
        return true;
    }
    if (text[0] == '`' || text[0] == '~')
        return false;
    if (text[0] == '#') {
        if (n < len && n <= HEADING_MAX && text[n] == ' ')
            *out = (struct line_head){.line = MARKDOWN_HEADING, .style = STYLE_BOLD};
        return n < len || is_whole;
    }
    if (text[0] == '|') {
        out->line = MARKDOWN_TABLE;
        return true;
    }
    if (text[0] == '>') {
        *out = (struct line_head){.line = MARKDOWN_TEXT,
                                  .n_mark = n_spaces + 1,
                                  .mark_style = STYLE_MARK,
                                  .style = STYLE_ITALIC,
                                  .is_item = true};
        return true;
    }
    n_item = item_length(text, len, &is_more);
    if (n_item > 0)
        *out = (struct line_head){.line = MARKDOWN_TEXT,
                                  .n_mark = n_spaces + n_item,
                                  .mark_style = STYLE_BOLD,
                                  .is_item = true};
    return !is_more || is_whole;
}

/* Says what the line is, and shows the characters that were held. */
static void markdown_begin_line(struct markdown *m, const struct line_head *head)
{
    const size_t n_head = m->n_head;
    char held[MARKDOWN_HEAD_BYTES];
    size_t at = 0, n;

    memcpy(held, m->head, n_head);
    m->n_head = 0;
    m->line = head->line;
    m->style = head->mark_style;
    while (at < head->n_mark)
        markdown_put(m, (unsigned char)held[at++]);
    if (head->is_item) {
        markdown_end_word(m);
        m->indent = m->column + m->n_spaces < m->width / 2 ? m->column + m->n_spaces : 0;
    }
    m->style = head->style;
    while (at < n_head) {
        uint32_t character;

        n = utf8_next(held + at, n_head - at, &character);
        markdown_inline(m, character);
        at += n;
    }
    if (head->is_fence && m->fence != '\0') {
        m->fence = '\0';
    } else if (head->is_fence) {
        n = marks_length(held, n_head, ' ');
        m->fence = held[n];
        m->n_fence = marks_length(held + n, n_head - n, held[n]);
        m->begins_block = true;
    }
}

/* Decides what the line is if its held characters say so; is_whole: no more of them come. */
static void markdown_look(struct markdown *m, bool is_whole)
{
    const size_t n_spaces = marks_length(m->head, m->n_head, ' ');
    const bool is_last = is_whole || m->n_head + 4 > MARKDOWN_HEAD_BYTES;
    struct line_head head;

    if (m->fence != '\0' ? head_in_code(m, &head, n_spaces, is_last)
                         : head_in_text(m, &head, n_spaces, is_last))
        markdown_begin_line(m, &head);
}

static void markdown_end_line(struct markdown *m)
{
    if (m->line == MARKDOWN_UNKNOWN)
        markdown_look(m, true);
    if (m->run != '\0')
        markdown_end_run(m, '\n');
    markdown_end_word(m);
    markdown_set_style(m, 0);
    markdown_end_word(m);
    m->line = MARKDOWN_UNKNOWN;
    m->n_head = m->indent = m->n_spaces = m->n_code = 0;
    m->style = 0;
    m->before = '\0';
    m->is_escaped = m->begins_block = m->is_mid_word = false;
}

static void markdown_take(struct markdown *m, uint32_t character)
{
    if (character == '\n') {
        markdown_end_line(m);
        markdown_out(m, "\n", 1);
        m->column = 0;
    } else if (m->line == MARKDOWN_UNKNOWN) {
        m->n_head += utf8_encode(character, m->head + m->n_head);
        markdown_look(m, false);
    } else {
        markdown_inline(m, character);
    }
}

bool markdown_write(struct markdown *m, const char *text, size_t len)
{
    size_t n;

    for (size_t at = 0; m->is_good && at < len; at += n) {
        uint32_t character;

        n = utf8_next(text + at, len - at, &character);
        markdown_take(m, character);
    }
    return m->is_good;
}

bool markdown_end(struct markdown *m)
{
    markdown_end_line(m);
    return m->is_good;
}
