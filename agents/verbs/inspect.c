/* parley inspect: prints what a model's file holds, for people or as JSON, and whether it loads
 * here. models_list.c prints the same of each file of a folder. */
#include "agents/verbs/inspect.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "agents/lm/inspection.h"
#include "agents/verbs/verbs.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "cli/output/table.h"

enum { TEMPLATE_LINES = 4, TEMPLATE_LINE_BYTES = 100 };

struct inspect {
    bool is_json;
};

static const struct option_row inspect_rows[] = {
    {"json", NULL, "print one JSON object", OPTION_FLAG, offsetof(struct inspect, is_json), 0},
    {0},
};

static json_t *kinds_json(const struct lm_inspection *x)
{
    json_t *kinds = json_array();

    for (size_t i = 0; i < x->n_kinds; i++) {
        const struct inspection_kind *k = &x->kinds[i];

        (void)json_array_append_new(kinds, json_pack("{sssIsIsI}", "type", k->type, "tensors",
                                                     (json_int_t)k->n_tensors, "parameters",
                                                     (json_int_t)k->n_values, "bytes",
                                                     (json_int_t)k->size_bytes));
    }
    return kinds;
}

static json_t *kv_json(const struct lm_inspection *x)
{
    json_t *kv = json_object();

    for (int type = 0; type < INSPECTION_N_KV_TYPES; type++)
        (void)json_object_set_new(kv, kv_type_name((enum kv_type)type),
                                  json_integer((json_int_t)x->kv_token_bytes[type]));
    return kv;
}

/* Text of a file, which may be no UTF-8: then null. */
static json_t *text_json(const char *text, size_t len)
{
    json_t *json = text == NULL ? NULL : json_stringn(text, len);

    return json == NULL ? json_null() : json;
}

json_t *inspection_json(const char *path, const struct lm_inspection *x)
{
    json_t *json =
        json_pack("{s:s, s:o, s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:I}", "file", path, "name",
                  text_json(x->title, strlen(x->title)), "kind", x->kind, "architecture",
                  text_json(x->architecture, strlen(x->architecture)), "quantisation", x->mix,
                  "parameters", (json_int_t)x->n_parameters, "files", (json_int_t)x->n_files,
                  "size_bytes", (json_int_t)x->size_bytes, "weight_bytes",
                  (json_int_t)x->weight_bytes, "memory_bytes", (json_int_t)x->memory_bytes);
    json_t *more =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:s?, s:o, s:b, s:s?, "
                  "s:s?, s:s?}",
                  "context", (json_int_t)x->context, "layers", (json_int_t)x->n_layers, "width",
                  (json_int_t)x->width, "heads", (json_int_t)x->n_heads, "kv_heads",
                  (json_int_t)x->n_kv_heads, "head_dim", (json_int_t)x->head_dim, "vocabulary",
                  (json_int_t)x->n_vocab, "types", kinds_json(x), "kv_bytes_per_token", kv_json(x),
                  "tokenizer", text_json(x->tokenizer, strlen(x->tokenizer)), "pre_tokenizer",
                  text_json(x->pre_tokenizer, strlen(x->pre_tokenizer)), "template",
                  *x->template_name == '\0' ? NULL : x->template_name, "template_text",
                  text_json(x->template_text, x->template_len), "loads", x->why.status == STATUS_OK,
                  "why", x->why.status == STATUS_OK ? NULL : x->why.text, "fault", x->fault.part,
                  "advice", x->fault.advice);

    (void)json_object_update(json, more);
    json_decref(more);
    return json;
}

static void print_kinds(const struct lm_inspection *x)
{
    char bytes[24];

    for (size_t i = 0; i < x->n_kinds; i++)
        printf("%s %-8s %6zu tensor%s, %s\n", i == 0 ? "weights      " : "             ",
               x->kinds[i].type, x->kinds[i].n_tensors, x->kinds[i].n_tensors == 1 ? "" : "s",
               table_bytes(bytes, x->kinds[i].size_bytes));
}

/* The first lines, each cut where it is long. */
static void print_template(const struct lm_inspection *x)
{
    const char *at = x->template_text, *end = at + x->template_len;

    if (x->template_text == NULL)
        printf("template      none: it takes raw prompts; parleyd --chat-template gives it one\n");
    else if (*x->template_name != '\0')
        printf("template      %s\n", x->template_name);
    else if (x->template_why.status == STATUS_OK)
        printf("template      not tried, since the model does not load\n");
    else
        printf("template      not run here: %s; parleyd --chat-template gives it another\n",
               x->template_why.text);
    for (int i = 0; at != NULL && at < end && i < TEMPLATE_LINES; i++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((newline == NULL ? end : newline) - at);

        (void)out_text("  | ", 4); /* out_end reports a failure */
        (void)out_foreign(at, len < TEMPLATE_LINE_BYTES ? len : TEMPLATE_LINE_BYTES);
        (void)out_text("\n", 1);
        at += len + 1;
    }
}

static void print_memory(const struct lm_inspection *x)
{
    char weights[24], all[24], token[24];

    if (strcmp(x->kind, "lm") != 0) {
        printf("memory        %s of weights\n", table_bytes(weights, x->weight_bytes));
        return;
    }
    printf("memory        %s: %s of weights, and keys and values of a full context in f16\n",
           table_bytes(all, x->memory_bytes), table_bytes(weights, x->weight_bytes));
    for (int type = 0; type < INSPECTION_N_KV_TYPES; type++)
        printf("  --kv %-4s   %s a token\n", kv_type_name((enum kv_type)type),
               table_bytes(token, x->kv_token_bytes[type]));
}

static void print_tokenizer(const struct lm_inspection *x)
{
    printf("tokenizer     ");
    (void)out_foreign(x->tokenizer, strlen(x->tokenizer));
    printf(" ");
    (void)out_foreign(x->pre_tokenizer, strlen(x->pre_tokenizer));
    printf(", %" PRIu64 " tokens\n", x->n_vocab);
}

static void print_inspection(const char *path, const struct lm_inspection *x)
{
    char bytes[24];

    printf("file          %s, %s", path, table_bytes(bytes, x->size_bytes));
    if (x->n_files > 1)
        printf(" in %zu files", x->n_files);
    printf("\nname          ");
    (void)out_foreign(x->title, strlen(x->title));
    printf("\narchitecture  ");
    (void)out_foreign(x->architecture, strlen(x->architecture));
    printf(", %.2f billion parameters, %s\n", (double)x->n_parameters / 1e9, x->mix);
    printf("kind          %s\n", x->kind);
    if (x->n_layers > 0)
        printf("shape         %" PRIu64 " layers of width %" PRIu64 ", %" PRIu64
               " heads of %" PRIu64 ", %" PRIu64 " of keys and values\n",
               x->n_layers, x->width, x->n_heads, x->head_dim, x->n_kv_heads);
    if (x->context > 0)
        printf("context       %" PRIu64 " tokens\n", x->context);
    print_kinds(x);
    print_memory(x);
    if (*x->tokenizer != '\0')
        print_tokenizer(x);
    if (strcmp(x->kind, "lm") == 0)
        print_template(x);
    if (x->why.status == STATUS_OK)
        printf("loads here    yes\n");
    else
        printf("loads here    no: %s\nthe fault     its %s; %s\n", x->why.text, x->fault.part,
               x->fault.advice);
}

enum exit_code inspect_run(const struct verb *verb, int argc, char **argv)
{
    struct inspect options = {0};
    const struct option_group groups[] = {{inspect_rows, &options, NULL}};
    struct lm_inspection x;
    struct load_fault fault;
    struct error err;
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 1, 1, &first, &code))
        return code;
    if (lm_inspect(&x, argv[first], &err) != STATUS_OK) {
        fault = load_fault_of_open(&err);
        if (fault.part == NULL)
            console_error("%s", err.text);
        else
            console_error("%s; the fault is its %s: %s", err.text, fault.part, fault.advice);
        return EXIT_FAILED;
    }
    if (options.is_json)
        (void)out_json(inspection_json(argv[first], &x)); /* out_end reports a failure */
    else
        print_inspection(argv[first], &x);
    lm_inspection_deinit(&x);
    return EXIT_DONE;
}
