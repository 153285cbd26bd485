#include "base/fetch/model_name.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static const char long_word[] =
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/* A name of the hub is an owner, a repository, and a part that may be missing. */
START_TEST(names_of_the_hub_are_read)
{
    struct model_name n;
    struct error err;

    ck_assert_int_eq(model_name_parse(&n, "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0", &err), STATUS_OK);
    ck_assert_int_eq(n.kind, MODEL_NAME_HUB);
    ck_assert_str_eq(n.owner, "Qwen");
    ck_assert_str_eq(n.repo, "Qwen3-0.6B-GGUF");
    ck_assert_str_eq(n.part, "Q8_0");
    ck_assert_int_eq(model_name_parse(&n, "hf:a/b", &err), STATUS_OK);
    ck_assert_str_eq(n.part, "");
    ck_assert_int_eq(model_name_parse(&n, "hf:a/b:UD/x y (1).gguf", &err), STATUS_OK);
    ck_assert_str_eq(n.part, "UD/x y (1).gguf");
}
END_TEST

/* A name of Ollama has its registry, namespace and tag where they are not given. */
START_TEST(names_of_ollama_are_read)
{
    struct model_name n;
    struct error err;

    ck_assert_int_eq(model_name_parse(&n, "ollama:qwen3", &err), STATUS_OK);
    ck_assert_int_eq(n.kind, MODEL_NAME_OLLAMA);
    ck_assert_str_eq(n.host, "registry.ollama.ai");
    ck_assert_str_eq(n.owner, "library");
    ck_assert_str_eq(n.repo, "qwen3");
    ck_assert_str_eq(n.part, "latest");
    ck_assert_int_eq(model_name_parse(&n, "ollama:me/mine:1b-q4_K_M", &err), STATUS_OK);
    ck_assert_str_eq(n.owner, "me");
    ck_assert_str_eq(n.part, "1b-q4_K_M");
    ck_assert_int_eq(model_name_parse(&n, "ollama:hf.co/o/r-GGUF:Q8_0", &err), STATUS_OK);
    ck_assert_str_eq(n.host, "hf.co");
    ck_assert_str_eq(n.owner, "o");
    ck_assert_str_eq(n.repo, "r-GGUF");
}
END_TEST

/* No word of a name leads out of a folder, is empty, or is longer than a file's name. */
START_TEST(other_names_are_refused)
{
    static const char *const wrong[] = {
        "hf:",        "hf:a",          "hf:/b",         "hf:a/",        "hf:a/b/c",
        "hf:a/b:",    "hf:../b",       "hf:a/..",       "hf:.a/b",      "hf:a/b..c",
        "hf:a--b/c",  "hf:a/b--c",     "hf:a b/c",      "hf:a/b:../c",  "hf:a/b:/c",
        "hf:a/b:c/",  "hf:a/b:c//d",   "hf:a/b:c/../d", "hf:a/b:.c",    "hf:a:b/c",
        "ollama:",    "ollama:/a",     "ollama:a/",     "ollama:a:",    "ollama:a/b/c/d",
        "ollama:..",  "ollama:a/../b", "ollama:a:..",   "ollama:a:b/c", "ollama:a:b:c",
        "ollama:a b", "hf:\xff/b",     "ollama:a//b",   "ollama://a/b", "hf:a/b:c\n",
    };
    struct model_name n;
    struct error err;
    char text[300];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert(model_name_is_one(wrong[i]));
        ck_assert_msg(model_name_parse(&n, wrong[i], &err) == STATUS_INVALID, "%s", wrong[i]);
        ck_assert(strstr(err.text, "is no name of ") != NULL);
    }
    (void)snprintf(text, sizeof(text), "hf:%s/a", long_word);
    ck_assert_int_eq(model_name_parse(&n, text, &err), STATUS_INVALID);
    (void)snprintf(text, sizeof(text), "ollama:%s", long_word);
    ck_assert_int_eq(model_name_parse(&n, text, &err), STATUS_INVALID);
    (void)snprintf(text, sizeof(text), "hf:a/b:%s%s", long_word, long_word);
    ck_assert_int_eq(model_name_parse(&n, text, &err), STATUS_INVALID);
    ck_assert(!model_name_is_one("./hf:a/b") && !model_name_is_one("HF:a/b") &&
              !model_name_is_one("") && !model_name_is_one("hf"));
}
END_TEST

/* What is served without a name has one made of its path. */
START_TEST(names_are_made_of_paths)
{
    static const struct {
        const char *path, *name;
    } rows[] = {
        {"/a/SmolLM2-135M.Q4_1.gguf", "SmolLM2-135M.Q4_1"},
        {"m.GGUF", "m"},
        {"x/big-00001-of-00003.gguf", "big"},
        {"a b(c).gguf", "a-b-c-"},
        {"/x/.gguf", "gguf"},
        {"x/echo.gguf", "model"},
        {"/", "model"},
        {"/nowhere/folder///", "folder"},
        {"...", "model"},
        {"", "model"},
        {"hf:Qwen/Qwen3-0.6B-GGUF:Q8_0", "Qwen3-0.6B"},
        {"hf:a/-gguf", "-gguf"},
        {"hf:a/b", "b"},
        {"ollama:qwen3", "qwen3"},
        {"ollama:me/qwen3:0.6b", "qwen3-0.6b"},
        {"\xff\xfe.gguf", "--"},
    };
    char name[MODEL_NAME_SERVED_MAX + 1], text[300];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        model_name_served(name, rows[i].path);
        ck_assert_str_eq(name, rows[i].name);
    }
    (void)snprintf(text, sizeof(text), "%s.gguf", long_word);
    model_name_served(name, text);
    ck_assert_uint_eq(strlen(name), MODEL_NAME_SERVED_MAX);
}
END_TEST

SUITE_MAIN("base/fetch/model_name", names_of_the_hub_are_read, names_of_ollama_are_read,
           other_names_are_refused, names_are_made_of_paths)
