#include "worlds/score/normal.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unicase.h>
#include <unictype.h>

#include "agents/words/tokens.h"
#include "base/utf8.h"

enum kind { KIND_OTHER, KIND_WORD, KIND_SPACE };

enum { SIGMA = 0x3A3, SMALL_SIGMA = 0x3C3, FINAL_SIGMA = 0x3C2, I_WITH_DOT = 0x130, DOT = 0x307 };

static enum kind normal_kind_of(uint32_t c)
{
    if (c < 0x80) {
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
            return KIND_WORD;
        return is_white_space(c) || (c > 0x20 && c < 0x7F) ? KIND_SPACE : KIND_OTHER;
    }
    if (is_white_space(c))
        return KIND_SPACE;
    return is_alphanumeric(c) ? KIND_WORD : KIND_OTHER;
}

/* A capital sigma is final behind a cased character and not before one; case-ignorable characters
 * between are skipped. */
static bool is_final_sigma(const char *text, size_t at, size_t next, size_t len)
{
    uint32_t c = 0;
    bool cased = false;

    while (at > 0) {
        size_t from = at - 1;

        while (from > 0 && at - from < 4 && ((unsigned char)text[from] & 0xC0) == 0x80)
            from--;
        (void)utf8_next(text + from, at - from, &c); /* the text is never empty */
        if (!uc_is_property_case_ignorable(c)) {
            cased = uc_is_property_cased(c);
            break;
        }
        at = from;
    }
    if (!cased)
        return false;
    while (next < len) {
        next += utf8_next(text + next, len - next, &c);
        if (!uc_is_property_case_ignorable(c))
            return !uc_is_property_cased(c);
    }
    return true;
}

struct normal_writer {
    struct buf *out;
    char *to;        /* in out's memory, with room for the whole text */
    size_t word;     /* the start of the run of word characters at the end */
    size_t n, start; /* start: the start of this text */
    bool in_word, owes_space;
};

/* At the end of a run of word characters: removes it if it is an article. */
static void end_word(struct normal_writer *w)
{
    const char *run = w->to + w->word;
    size_t len = w->n - w->word;

    w->in_word = false;
    if ((len == 1 && run[0] == 'a') || (len == 2 && memcmp(run, "an", 2) == 0) ||
        (len == 3 && memcmp(run, "the", 3) == 0)) {
        w->n = w->word;
        if (w->n > w->start && w->to[w->n - 1] == ' ')
            w->n--;
        w->owes_space = true;
    }
}

static void normal_writer_put(struct normal_writer *w, uint32_t c)
{
    enum kind kind = normal_kind_of(c);

    if (w->in_word && kind != KIND_WORD)
        end_word(w);
    if (kind == KIND_SPACE) {
        w->owes_space = true;
        return;
    }
    if (w->owes_space && w->n > w->start)
        w->to[w->n++] = ' ';
    w->owes_space = false;
    if (kind == KIND_WORD && !w->in_word) {
        w->in_word = true;
        w->word = w->n;
    }
    if (c < 0x80)
        w->to[w->n++] = (char)c;
    else
        w->n += utf8_encode(c, w->to + w->n);
}

/* Lower case may turn two bytes into three, and one byte of invalid UTF-8 becomes three. */
static enum status normal_writer_reserve(struct buf *out, size_t size_bytes)
{
    static const char zeros[256];
    size_t len = out->len;
    enum status rc = STATUS_OK;

    if (out->cap > len && out->cap - len > size_bytes)
        return STATUS_OK;
    for (size_t done = 0; done < size_bytes && rc == STATUS_OK; done += sizeof(zeros))
        rc = buf_append(out, zeros, sizeof(zeros));
    out->len = len;
    return rc;
}

enum status normalise(struct buf *out, const char *text, size_t len)
{
    struct normal_writer w;

    if (normal_writer_reserve(out, 3 * len + 8) != STATUS_OK)
        return STATUS_EXHAUSTED;
    w = (struct normal_writer){.out = out, .to = out->data, .n = out->len, .start = out->len};
    for (size_t at = 0; at < len;) {
        unsigned char byte = (unsigned char)text[at];
        size_t here = at;
        uint32_t c;

        if (byte < 0x80) {
            at++;
            normal_writer_put(&w, byte >= 'A' && byte <= 'Z' ? byte + 32u : byte);
            continue;
        }
        at += utf8_next(text + at, len - at, &c);
        if (c == SIGMA) {
            normal_writer_put(&w, is_final_sigma(text, here, at, len) ? FINAL_SIGMA : SMALL_SIGMA);
        } else if (c == I_WITH_DOT) { /* the only character whose lower case has two characters */
            normal_writer_put(&w, 'i');
            normal_writer_put(&w, DOT);
        } else {
            normal_writer_put(&w, uc_tolower(c));
        }
    }
    if (w.in_word)
        end_word(&w);
    out->len = w.n;
    if (out->data != NULL)
        out->data[w.n] = '\0';
    return STATUS_OK;
}
