#include "agents/lm/chat/named_template.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/lm/jinja/jinja.h"
#include "tests/unit/base/suite.h"

enum { MAX_STEPS = 1 << 20, MAX_BYTES = 1 << 20 };

static struct error err;
static const struct tm now = {.tm_year = 126};

#define USER "{\"role\":\"user\",\"content\":\"Hi\"}"
#define TALK USER ",{\"role\":\"assistant\",\"content\":\"Yes\"}," USER
#define SYSTEM "{\"role\":\"system\",\"content\":\"S\"},"

static void check_text(struct jinja_run *r, const char *name, const char *value)
{
    struct jinja_value v;

    ck_assert(jinja_string(r, value, strlen(value), JINJA_OF_TEMPLATE, &v));
    jinja_set(r, name, v);
}

static void check_render(const char *name, const char *messages, const char *want)
{
    struct jinja_value v = jinja_bool(true);
    struct jinja_text out;
    struct jinja_run run;
    struct arena arena;
    struct jinja *t;
    struct buf text;

    buf_init(&text, SIZE_MAX);
    ck_assert_int_eq(named_template_read(&text, name, &err), STATUS_OK);
    ck_assert_msg(jinja_open(&t, text.data, text.len, &err) == STATUS_OK, "%s: %s", name, err.text);
    arena_init(&arena, MAX_BYTES);
    ck_assert(jinja_begin(&run, t, &arena, &now, MAX_STEPS, &err));
    jinja_set(&run, "add_generation_prompt", v);
    check_text(&run, "bos_token", "<s>");
    check_text(&run, "eos_token", "</s>");
    ck_assert(jinja_parse_json(&run, messages, strlen(messages), &v));
    jinja_set(&run, "messages", v);
    ck_assert_msg(jinja_render(&run, &out) == STATUS_OK, "%s: %s", name, err.text);
    ck_assert_msg(out.len == strlen(want) && memcmp(out.data, want, out.len) == 0,
                  "%s: '%.*s', not '%s'", name, (int)out.len, out.data, want);
    arena_deinit(&arena);
    jinja_close(t);
    buf_deinit(&text);
}

/* Each name, with a system prompt and without. */
START_TEST(names_render)
{
    static const struct {
        const char *name, *talk, *with_system;
    } all[] = {
        {"alpaca",
         "### Instruction:\nHi\n\n### Response:\nYes</s>\n\n### Instruction:\nHi\n\n"
         "### Response:\n",
         "S\n\n### Instruction:\nHi\n\n### Response:\n"},
        {"chatml",
         "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
         "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
         "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
         "<|im_start|>assistant\n"},
        {"gemma",
         "<s><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nYes<end_of_turn>\n"
         "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
         "<s><start_of_turn>user\nS\n\nHi<end_of_turn>\n<start_of_turn>model\n"},
        {"llama2", "<s>[INST] Hi [/INST] Yes </s><s>[INST] Hi [/INST]",
         "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\nHi [/INST]"},
        {"llama3",
         "<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\nYes<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n",
         "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"mistral", "<s>[INST] Hi [/INST] Yes</s>[INST] Hi [/INST]", "<s>[INST] S\n\nHi [/INST]"},
        {"phi3",
         "<|user|>\nHi<|end|>\n<|assistant|>\nYes<|end|>\n<|user|>\nHi<|end|>\n"
         "<|assistant|>\n",
         "<|system|>\nS<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n"},
        {"vicuna", "<s>USER: Hi ASSISTANT: Yes</s>USER: Hi ASSISTANT:", "<s>S USER: Hi ASSISTANT:"},
        {"zephyr", "<|user|>\nHi</s>\n<|assistant|>\nYes</s>\n<|user|>\nHi</s>\n<|assistant|>\n",
         "<|system|>\nS</s>\n<|user|>\nHi</s>\n<|assistant|>\n"},
    };
    size_t n = 0;

    while (named_template_name(n) != NULL)
        n++;
    ck_assert_uint_eq(n, sizeof(all) / sizeof(all[0]));
    for (size_t i = 0; i < n; i++) {
        ck_assert_str_eq(named_template_name(i), all[i].name);
        check_render(all[i].name, "[" TALK "]", all[i].talk);
        check_render(all[i].name, "[" SYSTEM USER "]", all[i].with_system);
    }
}
END_TEST

/* Files, and what is wrong with them. */
START_TEST(files_are_read)
{
    static const char path[] = "test_named_template.jinja";
    char *big = calloc(1, NAMED_TEMPLATE_MAX + 1);
    FILE *file = fopen(path, "w");
    struct buf text;

    ck_assert(file != NULL && big != NULL);
    (void)fputs("{{ messages }}", file);
    (void)fclose(file);
    buf_init(&text, SIZE_MAX);
    ck_assert_int_eq(named_template_read(&text, path, &err), STATUS_OK);
    ck_assert_str_eq(text.data, "{{ messages }}");
    ck_assert_int_eq(truncate(path, 0), 0);
    ck_assert_int_eq(named_template_read(&text, path, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "test_named_template.jinja: the file is empty");
    file = fopen(path, "w");
    ck_assert_uint_eq(fwrite(big, NAMED_TEMPLATE_MAX + 1, 1, file), 1);
    (void)fclose(file);
    ck_assert_int_eq(named_template_read(&text, path, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "more than 1048576 bytes"));
    ck_assert_int_eq(named_template_read(&text, ".", &err), STATUS_UNAVAILABLE);
    ck_assert_int_eq(named_template_read(&text, "chat-ml", &err), STATUS_NOT_FOUND);
    ck_assert_str_eq(err.text,
                     "there is no chat template and no file named 'chat-ml'; the built-in "
                     "templates are: alpaca chatml gemma llama2 llama3 mistral phi3 vicuna "
                     "zephyr");
    (void)unlink(path);
    buf_deinit(&text);
    free(big);
}
END_TEST

SUITE_MAIN("agents/lm/named_template", names_render, files_are_read)
