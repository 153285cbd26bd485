#include "base/fetch/hub_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/base/suite.h"

/* Names are separated by blanks. */
static struct hub_files files_of(const char *names)
{
    char *text = strdup(names), *rest = text, *name;
    struct hub_files f = {0};

    while ((name = strsep(&rest, " ")) != NULL)
        if (*name != '\0')
            (void)hub_files_add(&f, name);
    free(text);
    return f;
}

static const char folder[] = "config.json tokenizer.json tokenizer_config.json README.md "
                             "model.safetensors pytorch_model.bin onnx/model.onnx "
                             "onnx/config.json 1_Pooling/config.json consolidated.safetensors "
                             "chat_template.jinja merges.txt x.py .gitattributes";
static const char quantized[] = "a-Q8_0.gguf a-Q4_K_M.gguf a-UD-Q4_K_M.gguf mmproj-F16.gguf "
                                "a.imatrix.gguf BF16/a-BF16-00001-of-00002.gguf "
                                "BF16/a-BF16-00002-of-00002.gguf config.json README.md";

/* The files that are chosen, and the one to open. */
START_TEST(files_are_chosen)
{
    static const struct {
        const char *files, *part, *main;
        size_t n;
    } rows[] = {
        {quantized, "", "a-Q4_K_M.gguf", 1},
        {quantized, "q8_0", "a-Q8_0.gguf", 1},
        {quantized, "Q4_K_M", "a-Q4_K_M.gguf", 1},
        {quantized, "UD-Q4_K_M", "a-UD-Q4_K_M.gguf", 1},
        {quantized, "BF16", "BF16/a-BF16-00001-of-00002.gguf", 2},
        {quantized, "BF16/a-BF16-00001-of-00002.gguf", "BF16/a-BF16-00001-of-00002.gguf", 2},
        {quantized, "mmproj-F16.gguf", "mmproj-F16.gguf", 1},
        {"only.gguf mmproj-x.gguf", "", "only.gguf", 1},
        {"x/Q2_K/part-00001-of-00001.gguf x/a.gguf", "Q2_K", "x/Q2_K/part-00001-of-00001.gguf", 1},
        {"Q2_K.gguf b.gguf", "Q2_K", "Q2_K.gguf", 1},
        {folder, "", "", 7},
        {folder, "safetensors", "", 7},
        {"m-f16.gguf config.json model-00001-of-00002.safetensors "
         "model-00002-of-00002.safetensors model.safetensors.index.json",
         "safetensors", "", 4},
        {"config.json modules.json model.safetensors 1_Pooling/config.json 2_Dense/config.json "
         "2_Dense/model.safetensors 3_Dense/config.json 3_Dense/model.safetensors "
         "2_Dense/pytorch_model.bin 2_Dense/onnx/config.json x_Dense/config.json "
         "4_Normalize/x.json",
         "", "", 8},
        {"config.json model.safetensors 1_LogitScore/config.json x/1_LogitScore/config.json", "",
         "", 3},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hub_files f = files_of(rows[i].files);
        const char *file;
        struct error err;
        size_t n = 0;

        ck_assert_int_eq(hub_files_choose(&f, rows[i].part, &file, &err), STATUS_OK);
        ck_assert_str_eq(file, rows[i].main);
        for (size_t k = 0; k < f.n; k++)
            n += f.all[k].is_chosen;
        ck_assert_msg(n == rows[i].n, "%zu: %zu", i, n);
        hub_files_deinit(&f);
    }
}
END_TEST

/* Where nothing fits, the error says what there is. */
START_TEST(what_is_missing_is_said)
{
    static const struct {
        const char *files, *part, *says;
    } rows[] = {
        {"a-Q8_0.gguf a-Q5_0.gguf", "",
         "choose a file by :PART, there is no Q4_K_M; there are: a-Q8_0.gguf, a-Q5_0.gguf"},
        {"a-Q8_0.gguf", "Q4_0", "there is no Q4_0; there are: a-Q8_0.gguf"},
        {"a-XQ4_0.gguf", "Q4_0", "there is no Q4_0"},
        {"a-Q8_0.gguf", "b.gguf", "there is no b.gguf; there are: a-Q8_0.gguf"},
        {"a-00001-of-00003.gguf a-00003-of-00003.gguf", "",
         "file 2 of 3 of the model is missing: a-00002-of-00003.gguf"},
        {"a-00002-of-00002.gguf", "Q4_0", "there is no GGUF file"},
        {"config.json", "", "there is neither a GGUF file nor config.json with model.safetensors"},
        {"model.safetensors", "", "there is neither"},
        {"config.json model.bin", "safetensors", "there is neither"},
        {"", "", "there is neither"},
        {"", "Q4_0", "there is no GGUF file"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hub_files f = files_of(rows[i].files);
        const char *file;
        struct error err;

        ck_assert_int_eq(hub_files_choose(&f, rows[i].part, &file, &err), STATUS_NOT_FOUND);
        ck_assert_msg(strncmp(err.text, rows[i].says, strlen(rows[i].says)) == 0, "%s", err.text);
        hub_files_deinit(&f);
    }
}
END_TEST

/* A long list is cut, and the error says that it is. */
START_TEST(long_lists_are_cut)
{
    struct hub_files f = {0};
    const char *file;
    struct error err;
    char name[32];

    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "a-%03d.gguf", i);
        ck_assert_ptr_nonnull(hub_files_add(&f, name));
    }
    ck_assert_int_eq(hub_files_choose(&f, "", &file, &err), STATUS_NOT_FOUND);
    ck_assert(strstr(err.text, "a-000.gguf, ") != NULL && strstr(err.text, ", …") != NULL);
    hub_files_deinit(&f);
}
END_TEST

/* A cache may have more files than a list may: the model's is found behind them. */
START_TEST(the_last_of_many_is_found)
{
    struct hub_files f = {0};
    const char *file;
    struct error err;
    char name[32];

    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof(name), "text-%04d.txt", i);
        ck_assert_ptr_nonnull(hub_files_add(&f, name));
    }
    ck_assert_ptr_nonnull(hub_files_add(&f, "m.gguf"));
    ck_assert_int_eq(hub_files_choose(&f, "", &file, &err), STATUS_OK);
    ck_assert_str_eq(file, "m.gguf");
    hub_files_deinit(&f);
}
END_TEST

/* A server's list is foreign: no name of it leads out of a folder. */
START_TEST(names_that_lead_out_are_not_taken)
{
    static const char *const wrong[] = {"",     "/a",   "..",    "../a",   "a/../b",
                                        "a/..", "a//b", "a/",    "./a",    "a/.",
                                        "a\\b", "a\nb", "..a/b", "x/..b/", "\x01.gguf"};
    struct hub_files f = {0};
    char longest[1100];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_msg(hub_files_add(&f, wrong[i]) == NULL, "%s", wrong[i]);
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    ck_assert_ptr_null(hub_files_add(&f, longest));
    ck_assert_uint_eq(f.n, 0);
    ck_assert_ptr_nonnull(hub_files_add(&f, ".gitattributes"));
    ck_assert_ptr_nonnull(hub_files_add(&f, "a.b/c..gguf"));
    hub_files_deinit(&f);
}
END_TEST

SUITE_MAIN("base/fetch/hub_files", files_are_chosen, what_is_missing_is_said, long_lists_are_cut,
           the_last_of_many_is_found, names_that_lead_out_are_not_taken)
