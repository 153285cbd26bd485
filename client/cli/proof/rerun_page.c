/* The page of a rerun: one file without references. All texts of conversations are escaped, and
 * shown as on a terminal, so that none can reorder its line; and the page allows no script. */
#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "cli/output/out.h"
#include "cli/output/svg.h"
#include "client/cli/proof/rerun_report.h"

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n<title>parley rerun</title>\n"
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 "
    "1rem;color:#222;background:#fff}h1{font-size:1.6rem;margin:0}h2{font-size:1.1rem;margin:2rem "
    "0 .5rem;overflow-wrap:anywhere}p{margin:.2rem 0}.about{color:#666}code{background:#f3f3f3;"
    "padding:.1rem .3rem;border-radius:3px;overflow-wrap:anywhere}.pair{display:grid;"
    "grid-template-columns:1fr 1fr;gap:1rem;margin:.4rem 0 1.2rem}.pair>div{border:1px solid "
    "#e3e3e3;border-radius:6px;padding:.6rem .8rem;white-space:pre-wrap;overflow-wrap:anywhere}"
    ".said{white-space:pre-wrap;overflow-wrap:anywhere;margin:.8rem 0 .2rem}mark{background:"
    "#ffe9a8;color:inherit}.pair b{display:block;color:#666;font-weight:600}@media(max-width:"
    "40rem){.pair{grid-template-columns:1fr}}@media(prefers-color-scheme:dark){:root{color-scheme:"
    "dark}body{color:#ddd;background:#16181c}.about,.pair b{color:#a4a8ae}code{background:#24272d}"
    ".pair>div{border-color:#383c42}mark{background:#5c4a12}}</style></head><body>\n";

/* Text that a peer sent. */
static void page_text(FILE *out, const char *text, size_t len)
{
    size_t n;

    for (size_t at = 0; at < len; at += n) {
        char shown[5] = "";
        uint32_t character;

        n = utf8_next(text + at, len - at, &character);
        (void)utf8_encode(out_shown(character), shown); /* at most 4 bytes */
        svg_text(out, shown);
    }
}

void rerun_page_begin(FILE *out, const char *command)
{
    (void)fputs(head, out);
    (void)fputs("<h1>parley rerun</h1>\n<p class=\"about\"><code>", out);
    page_text(out, command, strlen(command));
    (void)fputs("</code></p>\n", out);
}

/* How many bytes both texts begin with, up to the begin of a character. */
static size_t common_bytes(const char *a, const char *b)
{
    size_t n = 0;

    while (a[n] != '\0' && a[n] == b[n])
        n++;
    while (n > 0 && ((unsigned char)a[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static void page_reply(FILE *out, const char *title, const char *text, size_t n_common)
{
    (void)fprintf(out, "<div><b>%s</b>", title);
    page_text(out, text, n_common);
    (void)fputs("<mark>", out);
    page_text(out, text + n_common, strlen(text + n_common));
    (void)fputs("</mark></div>\n", out);
}

static void page_turn(FILE *out, const Parley__V1__VerifiedTurn *t)
{
    const Parley__V1__TranscriptTurn *was = t->recorded, *is = t->computed;
    const char *old = was == NULL ? "" : was->reply, *now = is == NULL ? "" : is->reply;
    const size_t n = common_bytes(old, now);

    for (size_t i = 0; was != NULL && i < was->n_messages; i++) {
        (void)fputs("<p class=\"said\"><b>", out);
        page_text(out, was->messages[i]->role, strlen(was->messages[i]->role));
        (void)fputs("</b> ", out);
        page_text(out, was->messages[i]->text, strlen(was->messages[i]->text));
        (void)fputs("</p>\n", out);
    }
    (void)fprintf(out, "<p class=\"about\">turn %" PRIu32 "%s: ", t->turn,
                  t->is_behind_new ? ", behind a new reply" : "");
    page_text(out, t->why, strlen(t->why));
    if (t->difference != NULL &&
        t->difference->divergence_case == PARLEY__V1__TOKEN_DIFFERENCE__DIVERGENCE_KL)
        (void)fprintf(out, "; KL %.4f nats", t->difference->kl);
    (void)fputs("</p>\n<div class=\"pair\">", out);
    page_reply(out, "was", old, n);
    page_reply(out, "is", now, n);
    (void)fputs("</div>\n", out);
}

void rerun_page_job(FILE *out, const struct proof_job *job)
{
    size_t n_same = 0;

    (void)fputs("<h2>", out);
    svg_text(out, job->conversation);
    (void)fputs("</h2>\n", out);
    for (size_t i = 0; i < job->answer->n_turns; i++) {
        const Parley__V1__VerifiedTurn *t = job->answer->turns[i];

        n_same += t->verdict == PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_SAME;
        if (t->verdict == PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_DIFFERS ||
            t->verdict == PARLEY__V1__VERIFIED_TURN__VERDICT__VERDICT_UNCHECKED)
            page_turn(out, t);
    }
    (void)fprintf(out, "<p class=\"about\">turns that are the same: %zu</p>\n", n_same);
}

void rerun_page_end(FILE *out, const struct rerun_report *r)
{
    const size_t n = r->n_same + r->n_differ;

    (void)fprintf(out,
                  "<h2>In sum</h2>\n<p>conversations %zu, turns %zu: %zu same, %zu differ (%.1f "
                  "%%), %zu unchecked</p>\n<p>tokens computed %" PRIu64
                  ", of these behind a difference %" PRIu64 "</p>\n",
                  r->n_conversations, r->n_turns, r->n_same, r->n_differ,
                  n == 0 ? 0 : 100 * (double)r->n_differ / (double)n, r->n_unchecked, r->n_tokens,
                  r->n_new_tokens);
    if (r->n_kl > 0)
        (void)fprintf(out, "<p>mean KL at the first difference: %.4f nats, of %zu turns</p>\n",
                      r->sum_kl / (double)r->n_kl, r->n_kl);
    (void)fputs("</body></html>\n", out);
}
