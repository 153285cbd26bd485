/* Vocabularies: how texts become words, in which order words are numbered, and what is no
 * vocabulary. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agents/words/tokens.h"
#include "agents/words/word_table.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/write.h"
#include "tests/unit/base/suite.h"

static struct error err;

static struct text text_of(const char *text)
{
    return (struct text){text, strlen(text)};
}

static void add(struct word_table *t, const char *text)
{
    ck_assert_int_eq(word_table_add(t, text_of(text), &err), STATUS_OK);
}

/* Words are runs of letters, numbers and _; anything else visible stands alone, and a newline. */
START_TEST(tokens_are_parlais)
{
    static const char *const want[] = {"Don", "'", "t", "go", "\n", "caf\xc3\xa9", "_x1", "!", "!"};
    const struct text text = text_of("Don't  go\n\tcaf\xc3\xa9 _x1!!");
    size_t at = 0, n = 0;
    struct text word;

    while ((word = token_next(text, &at)).text != NULL) {
        ck_assert_uint_lt(n, sizeof(want) / sizeof(want[0]));
        ck_assert_uint_eq(word.len, strlen(want[n]));
        ck_assert_mem_eq(word.text, want[n], word.len);
        n++;
    }
    ck_assert_uint_eq(n, sizeof(want) / sizeof(want[0]));
}
END_TEST

/* The four special words, then by falling count, then by bytes; the rest is cut off and unknown. */
START_TEST(numbers_follow_counts)
{
    static const int32_t want[] = {4, 5, 6, WORD_UNKNOWN, WORD_UNKNOWN};
    struct word_table *t;
    struct buf ids, said;

    buf_init(&ids, SIZE_MAX);
    buf_init(&said, SIZE_MAX);
    ck_assert_int_eq(word_table_open(&t, &err), STATUS_OK);
    add(t, "b c a c");
    add(t, "c a d");
    ck_assert_int_eq(word_table_settle(t, 4, &err), STATUS_INVALID);
    ck_assert_int_eq(word_table_settle(t, 7, &err), STATUS_OK);
    ck_assert_uint_eq(word_table_n(t), 7);
    ck_assert_int_eq(word_table_encode(t, "c a b d nowhere", 15, &ids, &err), STATUS_OK);
    ck_assert_uint_eq(ids.len, sizeof(want));
    ck_assert_mem_eq(ids.data, want, sizeof(want));
    ck_assert_int_eq(word_table_decode(t, want, 4, &said, &err), STATUS_OK);
    ck_assert_uint_eq(said.len, strlen("c a b __unk__"));
    ck_assert_mem_eq(said.data, "c a b __unk__", said.len);
    ck_assert_int_eq(word_table_decode(t, (const int32_t[]){7}, 1, &said, &err), STATUS_INVALID);
    ck_assert_int_eq(word_table_decode(t, (const int32_t[]){-1}, 1, &said, &err), STATUS_INVALID);
    buf_deinit(&said);
    buf_deinit(&ids);
    word_table_close(t);
    word_table_close(NULL);
}
END_TEST

static char path[] = "/tmp/word-table-XXXXXX.gguf";

static void write_words(const char *const *words, size_t n)
{
    struct gguf_writer *w;
    int fd;

    memcpy(path + strlen(path) - 11, "XXXXXX", 6);
    fd = mkstemps(path, 5);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(gguf_writer_open(&w, path, &err), STATUS_OK);
    gguf_write_texts(w, "words", n);
    for (size_t i = 0; i < n; i++)
        gguf_write_item(w, words[i], strlen(words[i]));
    gguf_write_tensor(w, "t", 1, 1);
    gguf_write_data(w, (const float[]){1}, 1);
    ck_assert_int_eq(gguf_writer_commit(w, &err), STATUS_OK);
    gguf_writer_close(w);
}

static enum status read_words(struct word_table **out)
{
    struct gguf *g;
    enum status rc;

    ck_assert_int_eq(gguf_open(&g, path, &err), STATUS_OK);
    rc = word_table_read(out, g, "words", &err);
    gguf_close(g);
    ck_assert_int_eq(unlink(path), 0);
    return rc;
}

/* What was written is read, in the same order; what is no vocabulary is refused by name. */
START_TEST(files)
{
    static const char *const good[] = {"__null__", "__start__", "__end__", "__unk__", "z", "a"};
    static const char *const others[][6] = {
        {"__null__", "__start__", "__end__", "__unk__", "z", "z"},
        {"__null__", "__start__", "__end__", "__unk__", "z", ""},
        {"__null__", "__start__", "__end__", "__unk__", "z", "\xff"},
        {"__start__", "__null__", "__end__", "__unk__", "z", "a"},
    };
    struct word_table *t = NULL;

    write_words(good, 6);
    ck_assert_int_eq(read_words(&t), STATUS_OK);
    ck_assert_uint_eq(word_table_n(t), 6);
    ck_assert_mem_eq(word_table_word(t, 4).text, "z", 1);
    word_table_close(t);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        write_words(others[i], 6);
        ck_assert_int_eq(read_words(&t), STATUS_DATA_LOSS);
        ck_assert_ptr_nonnull(strstr(err.text, "word "));
    }
    write_words(good, 4);
    ck_assert_int_eq(read_words(&t), STATUS_DATA_LOSS);
}
END_TEST

SUITE_MAIN("agents/words/word_table", tokens_are_parlais, numbers_follow_counts, files)
