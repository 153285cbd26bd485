/* Shows Markdown at a terminal while the Markdown still arrives: headings, emphasis, lists, quotes
 * and code get a style, and words wrap at the terminal's edge. Each character is shown, the marks
 * of Markdown too, so that a copied text is the text that was sent, but for the spaces at the ends
 * of lines, and those between words that a row's end stands for. */
#ifndef CLI_OUTPUT_MARKDOWN_H
#define CLI_OUTPUT_MARKDOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { MARKDOWN_HEAD_BYTES = 128 };

enum markdown_line {
    MARKDOWN_UNKNOWN, /* the line's first characters do not say yet what the line is */
    MARKDOWN_TEXT,
    MARKDOWN_HEADING,
    MARKDOWN_TABLE, /* not wrapped */
    MARKDOWN_CODE,  /* not wrapped; nor is a fence */
};

struct markdown {
    size_t width; /* columns of the terminal */
    /* Gets what is to be shown, with the escapes that set styles. False ends the output. */
    bool (*write)(void *arg, const char *text, size_t len);
    void *arg;

    size_t column; /* of the cursor; to read */

    /* The rest is markdown.c's. */
    enum markdown_line line;
    char head[MARKDOWN_HEAD_BYTES]; /* [n_head] of a line that is MARKDOWN_UNKNOWN */
    size_t n_head;
    char fence;        /* '`' or '~' inside a block of code, else NUL */
    size_t n_fence;    /* how many of them began the block */
    bool begins_block; /* the present line began it */
    size_t indent;     /* columns before the words of a wrapped line */
    struct buf word;   /* what is not shown yet, with escapes */
    size_t word_width, n_spaces;
    unsigned style, shown; /* shown: the style that the last escape set */
    size_t n_code;         /* backticks that began a span of code; 0: outside */
    char run;              /* the character of a run of marks whose end is not known; NUL: none */
    size_t n_run;
    uint32_t before; /* the character before the run */
    bool is_escaped, is_mid_word, is_good;
};

/* Begins a text at column 0. Characters take columns by the locale's wcwidth. */
void markdown_init(struct markdown *m, size_t width,
                   bool (*write)(void *arg, const char *text, size_t len), void *arg);
void markdown_deinit(struct markdown *m);
/* The terminal has another width from now on; 0: it is not known. */
void markdown_resize(struct markdown *m, size_t width);

/* Takes the next part of the text, which ends between two characters. A word is shown when its end
 * has come. False: a write has failed. */
bool markdown_write(struct markdown *m, const char *text, size_t len);
/* Shows what is held back, and ends all styles. */
bool markdown_end(struct markdown *m);

#endif
