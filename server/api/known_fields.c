/* Goes through the members of a request's objects, and looks for each in the tables of the API, in
 * those of sampling, and in the one below. */
#include "server/api/known_fields.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/api/nested_fields.h"
#include "server/http/exchange.h"
#include "server/json/foreign_fields.h"
#include "server/json/sampling.h"

enum { OTHERS_MAX = 32, OTHERS_MAX_BYTES = 4096, PATH_MAX_BYTES = 96 };

struct known_field {
    const char *path; /* of the member: "stream_options.include_usage" */
    unsigned apis;
};

#define CHAT FIELDS_OF_CHAT
#define COMPLETIONS FIELDS_OF_COMPLETIONS
#define RESPONSES FIELDS_OF_RESPONSES
#define MESSAGES FIELDS_OF_MESSAGES
#define OLLAMA_CHAT FIELDS_OF_OLLAMA_CHAT
#define OLLAMA_GENERATE FIELDS_OF_OLLAMA_GENERATE
#define TOKENS FIELDS_OF_TOKENS
#define EMBEDDINGS FIELDS_OF_EMBEDDINGS
#define OLLAMA_EMBED FIELDS_OF_OLLAMA_EMBED
#define OPENAI (CHAT | COMPLETIONS | RESPONSES)
#define OLLAMA (OLLAMA_CHAT | OLLAMA_GENERATE)
#define REPLIES (OPENAI | MESSAGES | OLLAMA)
#define THINKING (CHAT | RESPONSES | MESSAGES | OLLAMA | TOKENS)
#define ALL (REPLIES | TOKENS | EMBEDDINGS | OLLAMA_EMBED)

/* clang-format off */
/* Those with readers of their own. */
static const struct known_field read_elsewhere[] = {
    {"add_special", COMPLETIONS | OLLAMA_GENERATE | TOKENS},
    {"add_special_tokens", COMPLETIONS | OLLAMA_GENERATE | TOKENS},
    {"chat_template_kwargs", THINKING},
    {"documents", EMBEDDINGS},
    {"enable_thinking", THINKING},
    {"format", OLLAMA},
    {"function_call", CHAT | OLLAMA_CHAT | TOKENS},
    {"functions", CHAT | OLLAMA_CHAT | TOKENS},
    {"grammar", REPLIES},
    {"guided_choice", REPLIES},
    {"guided_grammar", REPLIES},
    {"guided_json", REPLIES},
    {"guided_regex", REPLIES},
    {"images", OLLAMA_GENERATE},
    {"input", EMBEDDINGS | OLLAMA_EMBED},
    {"json_schema", REPLIES},
    {"keep_alive", OLLAMA},
    {"logit_bias", OPENAI},
    {"max_completion_tokens", CHAT},
    {"max_output_tokens", RESPONSES},
    {"messages", MESSAGES},
    {"output_config.effort", MESSAGES},
    {"output_config.format", MESSAGES},
    {"parallel_tool_calls", CHAT | RESPONSES | OLLAMA_CHAT | TOKENS},
    {"parse_special", COMPLETIONS | OLLAMA_GENERATE | TOKENS},
    {"prompt", COMPLETIONS | OLLAMA_EMBED},
    {"prompt_logprobs", CHAT | COMPLETIONS},
    {"query", EMBEDDINGS},
    {"reasoning.effort", CHAT | RESPONSES},
    {"reasoning.max_tokens", CHAT | RESPONSES},
    {"reasoning.summary", RESPONSES},
    {"reasoning_effort", THINKING},
    {"structured_outputs", REPLIES},
    {"structured_outputs.choice", REPLIES},
    {"structured_outputs.grammar", REPLIES},
    {"structured_outputs.json", REPLIES},
    {"structured_outputs.json_object", REPLIES},
    {"structured_outputs.regex", REPLIES},
    {"structured_outputs.structural_tag", REPLIES},
    {"system", MESSAGES},
    {"text.format", RESPONSES},
    {"text_1", EMBEDDINGS},
    {"text_2", EMBEDDINGS},
    {"think", OLLAMA},
    {"thinking", THINKING},
    {"thinking.budget_tokens", THINKING},
    {"thinking.type", THINKING},
    {"thinking_budget", THINKING},
    {"thinking_budget_tokens", THINKING},
    {"thinking_token_budget", THINKING},
    {"tool_choice", CHAT | RESPONSES | MESSAGES | OLLAMA_CHAT | TOKENS},
    {"tools", CHAT | RESPONSES | MESSAGES | OLLAMA_CHAT | TOKENS},
};

/* Those that change nothing here, whatever their values are; docs/fields.md has the reasons. */
static const struct known_field without_effect[] = {
    {"adaptive_decay", REPLIES},
    {"backend_sampling", REPLIES},
    {"betas", MESSAGES},
    {"cache_control", MESSAGES},
    {"cache_prompt", REPLIES},
    {"dry_allowed_length", REPLIES},
    {"dry_base", REPLIES},
    {"dry_penalty_last_n", REPLIES},
    {"dry_sequence_breakers", REPLIES},
    {"dynatemp_exponent", REPLIES},
    {"early_stopping", REPLIES},
    {"id_slot", REPLIES},
    {"inference_geo", MESSAGES},
    {"keep_alive", OLLAMA_EMBED},
    {"length_penalty", REPLIES},
    {"media_io_kwargs", REPLIES},
    {"metadata", CHAT | COMPLETIONS},
    {"mirostat_eta", REPLIES},
    {"mirostat_tau", REPLIES},
    {"mm_processor_kwargs", REPLIES},
    {"n_cache_reuse", REPLIES},
    {"n_discard", REPLIES},
    {"n_keep", REPLIES},
    {"options", OLLAMA_EMBED},
    {"options.embedding_only", OLLAMA},
    {"options.f16_kv", OLLAMA},
    {"options.logits_all", OLLAMA},
    {"options.low_vram", OLLAMA},
    {"options.main_gpu", OLLAMA},
    {"options.mirostat_eta", OLLAMA},
    {"options.mirostat_tau", OLLAMA},
    {"options.num_batch", OLLAMA},
    {"options.num_ctx", OLLAMA},
    {"options.num_gpu", OLLAMA},
    {"options.num_keep", OLLAMA},
    {"options.num_predict", OLLAMA},
    {"options.num_thread", OLLAMA},
    {"options.numa", OLLAMA},
    {"options.penalize_newline", OLLAMA},
    {"options.use_mlock", OLLAMA},
    {"options.use_mmap", OLLAMA},
    {"options.vocab_only", OLLAMA},
    {"prediction", CHAT},
    {"prompt_cache_key", CHAT | COMPLETIONS},
    {"prompt_cache_options", OPENAI},
    {"prompt_cache_retention", CHAT | COMPLETIONS},
    {"reasoning.generate_summary", RESPONSES},
    {"safety_identifier", CHAT | COMPLETIONS},
    {"service_tier", OPENAI | MESSAGES},
    {"spaces_between_special_tokens", REPLIES},
    {"speculative.n_max", REPLIES},
    {"speculative.n_min", REPLIES},
    {"speculative.p_min", REPLIES},
    {"store", CHAT | COMPLETIONS},
    {"stream_options.include_obfuscation", OPENAI},
    {"truncate", OLLAMA_EMBED},
    {"truncation_side", REPLIES},
    {"user", CHAT | COMPLETIONS | EMBEDDINGS},
    {"user_profile_id", MESSAGES},
    {"workspace_id", MESSAGES},
    {"xtc_threshold", REPLIES},
};
/* clang-format on */

static int known_by_path(const void *key, const void *row)
{
    return strcmp(key, ((const struct known_field *)row)->path);
}

static bool known_is_among(const struct known_field *rows, size_t n, const char *path, unsigned api)
{
    const struct known_field *row = bsearch(path, rows, n, sizeof(rows[0]), known_by_path);

    return row != NULL && (row->apis & api) != 0;
}

static bool object_knows(const struct known_object *o, const char *name, unsigned api)
{
    char path[PATH_MAX_BYTES];

    for (size_t i = 0; i < sizeof(o->tables) / sizeof(o->tables[0]); i++)
        if (o->tables[i] != NULL && field_table_has(o->tables[i], name))
            return true;
    if ((o->has_sampling && sampling_json_knows(name)) ||
        (o->has_foreign && foreign_fields_know(name)))
        return true;
    if (snprintf(path, sizeof(path), "%s%s", o->path, name) >= (int)sizeof(path))
        return false;
    return known_is_among(read_elsewhere, sizeof(read_elsewhere) / sizeof(read_elsewhere[0]), path,
                          api) ||
           known_is_among(without_effect, sizeof(without_effect) / sizeof(without_effect[0]), path,
                          api);
}

/* Appends a name in letters that a header may have. */
static enum status others_add(struct buf *others, const char *path, const char *name)
{
    char shown[PATH_MAX_BYTES];
    size_t n = (size_t)snprintf(shown, sizeof(shown), "%s%.64s", path, name);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)shown[i]) && strchr("._-", shown[i]) == NULL)
            shown[i] = '?';
    return buf_printf(others, "%s%s", others->len == 0 ? "" : ", ", n == 0 ? "?" : shown);
}

/* The list that is being made. */
struct others {
    struct buf text;
    size_t n;
};

/* Adds a name, or says that there are more. */
static enum status others_take(struct others *o, const char *path, const char *name)
{
    if (o->n >= OTHERS_MAX)
        return STATUS_OK;
    return ++o->n == OTHERS_MAX ? buf_append_text(&o->text, ", and more")
                                : others_add(&o->text, path, name);
}

/* Whether the list ends with the name already, or has it before a comma. */
static bool others_have(const struct others *o, const char *path, const char *name)
{
    struct buf one;
    bool has = false;

    if (o->text.len == 0)
        return false;
    buf_init(&one, OTHERS_MAX_BYTES);
    if (others_add(&one, path, name) == STATUS_OK && buf_append(&one, "", 1) == STATUS_OK)
        for (const char *at = o->text.data;
             !has && (at = memmem(at, o->text.len - (size_t)(at - o->text.data), one.data,
                                  one.len - 1)) != NULL;
             at++) {
            const size_t end = (size_t)(at - o->text.data) + one.len - 1;

            has = (at == o->text.data || at[-1] == ' ') &&
                  (end == o->text.len || o->text.data[end] == ',');
        }
    buf_deinit(&one);
    return has;
}

/* A member of an entry of a list is named once, without the entry's place. */
static enum status others_take_nested(void *arg, const char *path, const char *name,
                                      struct error *err)
{
    struct others *o = arg;
    char holder[PATH_MAX_BYTES];
    size_t n = 0;

    for (; *path != '\0' && n + 2 < sizeof(holder); path++)
        if (*path != '[' && *path != ']')
            holder[n++] = *path;
    holder[n++] = '.';
    holder[n] = '\0';
    if (o->n >= OTHERS_MAX || others_have(o, holder, name))
        return STATUS_OK;
    return others_take(o, holder, name) == STATUS_OK ? STATUS_OK
                                                     : error_no_memory(err, 0, "the request");
}

static enum status object_list_others(struct others *others, const struct known_object *o,
                                      unsigned api)
{
    json_t *members = (json_t *)o->object; /* jansson's iterators change nothing */
    enum status rc = STATUS_OK;

    for (void *at = json_object_iter(members); at != NULL && rc == STATUS_OK;
         at = json_object_iter_next(members, at)) {
        const char *name = json_object_iter_key(at);

        if (!json_is_null(json_object_iter_value(at)) && !object_knows(o, name, api))
            rc = others_take(others, o->path, name);
    }
    return rc;
}

enum status known_fields_list_others(const char **out, const struct known_object *objects, size_t n,
                                     enum field_owner api, struct arena *arena, struct error *err)
{
    struct others others = {.n = 0};
    enum status rc = STATUS_OK;
    const char *list = "";

    buf_init(&others.text, OTHERS_MAX_BYTES);
    for (size_t i = 0; i < n && rc == STATUS_OK; i++)
        rc = object_list_others(&others, &objects[i], api);
    if (rc != STATUS_OK)
        rc = error_no_memory(err, 0, "the request");
    for (size_t i = 0; i < n && rc == STATUS_OK; i++)
        if (objects[i].path[0] == '\0')
            rc = nested_fields_check(objects[i].object, api, others_take_nested, &others, err);
    if (rc == STATUS_OK && others.text.len > 0)
        list = arena_strndup(arena, others.text.data, others.text.len);
    if (rc == STATUS_OK && list == NULL)
        rc = error_no_memory(err, 0, "the request");
    if (rc == STATUS_OK)
        *out = list;
    buf_deinit(&others.text);
    return rc;
}

enum status known_fields_name_others(struct exchange *x, const json_t *body,
                                     const struct field_table *table, enum field_owner api,
                                     struct error *err)
{
    const struct known_object object = {.object = body, .path = "", .tables = {table}};
    const char *others;

    if (known_fields_list_others(&others, &object, 1, api, exchange_arena(x), err) != STATUS_OK)
        return err->status;
    if (others[0] != '\0')
        exchange_set_unenforced(x, others);
    return STATUS_OK;
}
