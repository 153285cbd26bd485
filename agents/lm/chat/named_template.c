/* The texts follow the models' own templates, without tools:
 * https://huggingface.co/docs/transformers/chat_templating says what they mean. Where a family has
 * no role for it, the system prompt stands before the first message. */
#include "agents/lm/chat/named_template.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SYSTEM_APART                                                                    \
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}" \
    "{% set turns = messages[1:] %}{% else %}{% set system = '' %}"                     \
    "{% set turns = messages %}{% endif %}"
#define SYSTEM_BEFORE_FIRST "(system + '\\n\\n' if system and loop.first else '')"

static const char alpaca[] =
    SYSTEM_APART "{{ system + '\\n\\n' if system else '' }}"
                 "{% for m in turns %}{% if m['role'] == 'assistant' %}"
                 "{{ '### Response:\\n' + m['content'] + eos_token + '\\n\\n' }}{% else %}"
                 "{{ '### Instruction:\\n' + m['content'] + '\\n\\n' }}{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}";

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static const char gemma[] = SYSTEM_APART
    "{{ bos_token }}{% for m in turns %}{{ '<start_of_turn>' + "
    "('model' if m['role'] == 'assistant' else m['role']) + '\\n' + " SYSTEM_BEFORE_FIRST
    " + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

static const char llama2[] =
    SYSTEM_APART "{% for m in turns %}{% if m['role'] == 'assistant' %}"
                 "{{ ' ' + m['content'] + ' ' + eos_token }}{% else %}{{ bos_token + '[INST] ' + "
                 "('<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' if system and loop.first else '') + "
                 "m['content'] + ' [/INST]' }}{% endif %}{% endfor %}";

static const char llama3[] =
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ "
    "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{% endif %}";

static const char mistral[] =
    SYSTEM_APART "{{ bos_token }}{% for m in turns %}{% if m['role'] == 'assistant' %}"
                 "{{ ' ' + m['content'] + eos_token }}{% else %}{{ '[INST] ' + " SYSTEM_BEFORE_FIRST
                 " + m['content'] + ' [/INST]' }}{% endif %}{% endfor %}";

static const char phi3[] =
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

static const char vicuna[] =
    SYSTEM_APART "{{ bos_token + system }}{{ ' ' if system else '' }}{% for m in turns %}"
                 "{% if m['role'] == 'assistant' %}{{ ' ASSISTANT: ' + m['content'] + eos_token }}"
                 "{% else %}{{ 'USER: ' + m['content'] }}{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}{{ ' ASSISTANT:' }}{% endif %}";

static const char zephyr[] =
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + eos_token + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

static const struct {
    const char *name, *text;
} templates[] = {
    {"alpaca", alpaca}, {"chatml", chatml}, {"gemma", gemma},
    {"llama2", llama2}, {"llama3", llama3}, {"mistral", mistral},
    {"phi3", phi3},     {"vicuna", vicuna}, {"zephyr", zephyr},
};

enum { N_TEMPLATES = sizeof(templates) / sizeof(templates[0]), READ_BYTES = 4096 };

const char *named_template_name(size_t i)
{
    return i < N_TEMPLATES ? templates[i].name : NULL;
}

static enum status template_unknown(const char *name, struct error *err)
{
    (void)error_set(
        err, STATUS_NOT_FOUND,
        "there is no chat template and no file named '%.80s'; the built-in templates are:", name);
    for (size_t i = 0; i < N_TEMPLATES; i++) {
        size_t len = strlen(err->text);

        (void)snprintf(err->text + len, sizeof(err->text) - len, " %s", templates[i].name);
    }
    return err->status;
}

static enum status append_file(struct buf *out, FILE *from, struct error *err)
{
    size_t before = out->len;
    char part[READ_BYTES];
    size_t n;

    while ((n = fread(part, 1, sizeof(part), from)) > 0) {
        if (out->len - before + n > NAMED_TEMPLATE_MAX)
            return error_set(err, STATUS_INVALID, "the file has more than %d bytes",
                             NAMED_TEMPLATE_MAX);
        if (buf_append(out, part, n) != STATUS_OK)
            return error_no_memory(err, n, "a chat template");
    }
    if (ferror(from) != 0)
        return error_set(err, STATUS_UNAVAILABLE, "cannot read it: %s", strerror(errno));
    if (out->len == before)
        return error_set(err, STATUS_INVALID, "the file is empty");
    return STATUS_OK;
}

enum status named_template_read(struct buf *out, const char *name_or_path, struct error *err)
{
    enum status rc;
    FILE *from;

    for (size_t i = 0; i < N_TEMPLATES; i++)
        if (strcmp(templates[i].name, name_or_path) == 0)
            return buf_append_text(out, templates[i].text) == STATUS_OK
                       ? STATUS_OK
                       : error_no_memory(err, strlen(templates[i].text), "a chat template");
    from = fopen(name_or_path, "re");
    if (from == NULL && errno == ENOENT)
        return template_unknown(name_or_path, err);
    if (from == NULL)
        return error_set(err, STATUS_UNAVAILABLE, "cannot open %.200s: %s", name_or_path,
                         strerror(errno));
    rc = append_file(out, from, err);
    (void)fclose(from);
    return rc == STATUS_OK ? rc : error_prefix(err, "%.200s", name_or_path);
}
