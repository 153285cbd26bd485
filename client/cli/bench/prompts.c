#include "client/cli/bench/prompts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"

/* Common words, which are single tokens in vocabularies of English text; calibration drops those
 * that are not. */
static const char *const common[] = {
    "the",   "of",    "and",    "to",    "in",    "a",     "is",    "that",  "it",    "was",
    "for",   "on",    "are",    "with",  "as",    "his",   "they",  "be",    "at",    "one",
    "have",  "this",  "from",   "or",    "had",   "by",    "hot",   "but",   "some",  "what",
    "there", "we",    "can",    "out",   "other", "were",  "all",   "your",  "when",  "up",
    "use",   "word",  "how",    "said",  "an",    "each",  "she",   "which", "do",    "their",
    "time",  "if",    "will",   "way",   "about", "many",  "then",  "them",  "write", "would",
    "like",  "so",    "these",  "her",   "long",  "make",  "thing", "see",   "him",   "two",
    "has",   "look",  "more",   "day",   "could", "go",    "come",  "did",   "my",    "sound",
    "no",    "most",  "number", "who",   "over",  "know",  "water", "than",  "call",  "first",
    "down",  "side",  "been",   "now",   "find",  "house", "place", "year",  "live",  "back",
    "give",  "very",  "after",  "under", "name",  "good",  "man",   "think", "say",   "great",
    "where", "help",  "much",   "line",  "right", "too",   "old",   "any",   "same",  "tell",
    "work",  "world", "night",  "hand",  "high",  "light", "food",  "city",
};

enum { N_COMMON = sizeof(common) / sizeof(common[0]) };

/* The turn number by which a system prompt is drawn; no real turn has it. */
enum { SYSTEM_TURN = 0 };

/* The one by which it is drawn whether a system prompt is shared; and what is set in a
 * conversation's number then, that none is the shared one's. */
#define SHARED_TURN UINT32_MAX
#define OWN (1U << 31)

void prompts_init(struct prompts *p, uint64_t seed)
{
    *p = (struct prompts){.seed = seed,
                          .words = xalloc(sizeof(common)),
                          .n_words = N_COMMON,
                          .n_system = 4,
                          .shared = 1};
    memcpy(p->words, common, sizeof(common));
}

void prompts_deinit(struct prompts *p)
{
    for (size_t i = 0; i < p->n_lines; i++)
        free(p->lines[i]);
    free(p->lines);
    free(p->words);
}

static enum status add_line(struct prompts *p, const char *line, size_t len, struct error *err)
{
    char **lines = try_realloc(p->lines, p->n_lines + 1, sizeof(*lines));

    if (lines == NULL)
        return error_no_memory(err, (p->n_lines + 1) * sizeof(*lines), "prompts");
    p->lines = lines;
    lines[p->n_lines] = try_strndup(line, len);
    if (lines[p->n_lines] == NULL)
        return error_no_memory(err, len, "a prompt");
    p->n_lines++;
    return STATUS_OK;
}

enum status prompts_read(struct prompts *p, const char *path, struct error *err)
{
    FILE *file = fopen(path, "re");
    enum status rc = STATUS_OK;
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;

    if (file == NULL)
        return error_set(err, STATUS_NOT_FOUND, "cannot read %s: %s", path, strerror(errno));
    while (rc == STATUS_OK && (len = getline(&line, &cap, file)) >= 0) {
        if (len > 0 && line[len - 1] == '\n')
            len--;
        if (len > 0)
            rc = add_line(p, line, (size_t)len, err);
    }
    if (rc == STATUS_OK && ferror(file) != 0)
        rc = error_set(err, STATUS_UNKNOWN, "cannot read %s: %s", path, strerror(errno));
    if (rc == STATUS_OK && p->n_lines == 0)
        rc = error_set(err, STATUS_INVALID, "%s has no prompts", path);
    free(line);
    (void)fclose(file); /* nothing was written */
    return rc;
}

enum status prompts_join(struct buf *out, const char *const *words, size_t n)
{
    enum status rc;

    buf_clear(out);
    /* The first word has no space before it, and so may be another token. It is therefore always
     * the same word. */
    rc = buf_append_text(out, common[0]);
    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        rc = buf_append(out, " ", 1);
        if (rc == STATUS_OK)
            rc = buf_append_text(out, words[i]);
    }
    return rc;
}

/* n words drawn by (seed, c, turn). */
static enum status prompts_draw(const struct prompts *p, uint32_t c, uint32_t turn, size_t n,
                                struct buf *out)
{
    const char **words = try_alloc(n == 0 ? 1 : n, sizeof(*words));
    enum status rc;

    if (words == NULL)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < n; i++) {
        float u = counter_rng_uniform(p->seed, c, (uint32_t)i, turn);

        words[i] = p->words[(size_t)((double)u * (double)p->n_words)];
    }
    rc = prompts_join(out, words, n);
    free(words);
    return rc;
}

enum status prompts_system(const struct prompts *p, uint32_t c, struct buf *out)
{
    buf_clear(out);
    if (p->n_lines > 0)
        return STATUS_OK;
    if (p->shares_system)
        c = (double)counter_rng_uniform(p->seed, c, 0, SHARED_TURN) < p->shared ? 0 : c | OWN;
    return prompts_draw(p, c, SYSTEM_TURN, p->n_system, out);
}

enum status prompts_text(const struct prompts *p, uint32_t c, uint32_t turn, uint32_t n_tokens,
                         struct buf *out)
{
    uint32_t overhead = p->overhead[turn > 1];

    if (p->n_lines == 0)
        return prompts_draw(p, c, turn, n_tokens > overhead ? n_tokens - overhead : 0, out);
    buf_clear(out);
    return buf_append_text(out, p->lines[(c + turn - 1) % p->n_lines]);
}
