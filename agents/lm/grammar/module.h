/* What the grammar module libparley-grammar.so offers to the program: XGrammar's core behind C
 * functions. The program finds the table by the symbol parley_grammar_module. Only engine.c and the
 * module itself use this. Nothing throws; a failure writes one line to why [why_bytes].
 *
 * A vocabulary and a compiled grammar are immutable and any thread may use them; a matcher belongs
 * to one thread at a time. */
#ifndef AGENTS_LM_GRAMMAR_MODULE_H
#define AGENTS_LM_GRAMMAR_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct grammar_module {
    const char *version; /* PARLEY_VERSION */
    size_t size_bytes;   /* of this struct */
    /* texts [n], lens [n]: the bytes of each token, none for tokens that no text may contain.
     * ends [n_ends]: the tokens that may follow a complete text. NULL on failure. */
    void *(*vocab_open)(const char *const *texts, const size_t *lens, size_t n, const int32_t *ends,
                        size_t n_ends, char *why, size_t why_bytes);
    void (*vocab_close)(void *vocab);

    /* form: an enum constraint_form. NULL on failure, when the engine warns that it leaves out a
     * part, and where no reply is finite. May take long and much memory: see server/compile. */
    void *(*compile)(void *vocab, int form, const char *text, size_t len, bool *ret_no_memory,
                     char *why, size_t why_bytes);
    void (*compiled_close)(void *compiled);
    size_t (*compiled_bytes)(const void *compiled);
    /* As bytes, which a process of the same build with the same vocabulary loads. save gives them
     * to put, once; false where it failed, or put did. The bytes that load gets may be anything. */
    bool (*compiled_save)(const void *compiled,
                          bool (*put)(void *arg, const char *bytes, size_t len), void *arg,
                          char *why, size_t why_bytes);
    void *(*compiled_load)(void *vocab, const char *bytes, size_t len, char *why, size_t why_bytes);

    /* A matcher may do so much work between two calls of matcher_renew, and keep so much memory for
     * each byte of the text; the calls that would take more fail, and is_spent is true from then
     * on. This depends on the grammar and the text alone. */
    void *(*matcher_open)(void *compiled, bool *ret_is_spent); /* NULL without memory, or spent */
    void (*matcher_close)(void *matcher);
    void (*matcher_renew)(void *matcher);
    bool (*matcher_is_spent)(const void *matcher);
    /* mask [(n_vocab + 31) / 32]: a bit for each token that may come next. False on failure. */
    bool (*matcher_mask)(void *matcher, uint32_t *mask);
    bool (*matcher_accept)(void *matcher, int32_t id); /* false: it may not come here */
    bool (*matcher_accept_text)(void *matcher, const char *text, size_t len);
    void (*matcher_take_back)(void *matcher, size_t n); /* the last n accepted tokens or texts */
    bool (*matcher_may_end)(const void *matcher);
    /* The bytes that must come next, at most cap of them and 256; returns how many. */
    size_t (*matcher_forced)(void *matcher, char *out, size_t cap);
    /* The shortest bytes that lead from here to where the text may end, at most cap; returns how
     * many, SIZE_MAX where there are none. They depend on the grammar and the text alone. */
    size_t (*matcher_ending)(void *matcher, char *out, size_t cap);
};

#endif
