/* Reads a chat service's YAML file: each mapping has a table of its keys, and each key a function
 * that reads its value. A key that is in no table is refused with its line. What names another
 * thing of the file (backup_task, next, the worlds) is looked up at the end, when all is read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "base/alloc.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "base/whole_file.h"
#include "server/service/demos.h"
#include "server/service/plan.h"
#include "server/service/script.h"
#include "server/service/service.h"
#include "server/service/user.h"
#include "server/service/worlds.h"

enum {
    PLAN_MAX_BYTES = 1 << 20,
    PLAN_TEXT_MAX_BYTES = 8 << 10,
    WHERE_MAX = 128,
    PLAN_MAX_KEYS = 64, /* of a mapping */
};

static const char own_module[] = "parley.worlds";

/* Texts and names of a pool, and the line of each key in the order of pool_keys; 0: not given. */
struct plan_pool_texts {
    const char *onboard_world, *task_world;
    const char *welcome, *closing, *onboard_welcome, *onboard_closing;
    unsigned lines[PLAN_MAX_KEYS];
};

struct plan_reader {
    struct service_plan *plan;
    yaml_document_t *document;
    struct service_pool_plan *pool; /* whose keys are read; NULL: none */
    struct service_question *question;
    const char *module, *overworld;
    unsigned module_line, overworld_line;
    struct plan_pool_texts pools[SERVICE_MAX_POOLS];
    const char *menu_welcome, *menu_invalid, *menu_moving;
    const char *first_model; /* of opt.models; NULL: none */
    char where[WHERE_MAX];   /* "tasks.chat" */
    struct error *err;
};

struct plan_key {
    const char *name;
    enum status (*read)(struct plan_reader *r, const yaml_node_t *value, void *at,
                        const struct plan_key *key);
    size_t offset; /* in what the table is for */
    uint32_t min, max;
};

/* --- nodes --- */

static const yaml_node_t *plan_node(const struct plan_reader *r, int index)
{
    return yaml_document_get_node(r->document, index);
}

static unsigned plan_line(const yaml_node_t *node)
{
    return (unsigned)node->start_mark.line + 1;
}

static enum status plan_wrong(struct plan_reader *r, const yaml_node_t *node, const char *what)
{
    return error_set(r->err, STATUS_INVALID, "%.100s:%u: %s: %s", r->plan->path, plan_line(node),
                     r->where, what);
}

/* The text of a scalar; NULL for other nodes, and for text with a NUL inside. */
static const char *plan_scalar(const yaml_node_t *node)
{
    const char *text;

    if (node->type != YAML_SCALAR_NODE)
        return NULL;
    text = (const char *)node->data.scalar.value;
    return strlen(text) == node->data.scalar.length ? text : NULL;
}

static bool plan_is_null(const yaml_node_t *node)
{
    const char *text = plan_scalar(node);

    return text != NULL && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (text[0] == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0);
}

static enum status plan_unknown_key(struct plan_reader *r, const yaml_node_t *node,
                                    const char *name, const struct plan_key *keys)
{
    struct suggest near;
    char list[400];
    size_t at = 0;

    suggest_init(&near, name);
    list[0] = '\0';
    for (const struct plan_key *k = keys; k->name != NULL; k++) {
        suggest_try(&near, k->name);
        if (at < sizeof(list))
            at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", at == 0 ? "" : ", ",
                                   k->name);
    }
    if (near.word != NULL)
        return error_set(r->err, STATUS_INVALID,
                         "%.100s:%u: %s: there is no key '%.60s', did you mean '%s'?",
                         r->plan->path, plan_line(node), r->where, name, near.word);
    return error_set(r->err, STATUS_INVALID,
                     "%.100s:%u: %s: there is no key '%.60s': remove it, or use one of %s",
                     r->plan->path, plan_line(node), r->where, name, list);
}

/* Reads a mapping by its table; at is what the offsets are in. */
static enum status plan_mapping(struct plan_reader *r, const yaml_node_t *node,
                                const struct plan_key *keys, void *at)
{
    char where[WHERE_MAX];
    uint64_t seen = 0;

    if (node->type != YAML_MAPPING_NODE)
        return plan_wrong(r, node, "must be a mapping, KEY: VALUE on each line");
    (void)snprintf(where, sizeof(where), "%s", r->where);
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start;
         p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = plan_node(r, p->key);
        const char *name = plan_scalar(key);
        const struct plan_key *k = keys;

        if (name == NULL)
            return plan_wrong(r, key, "keys must be texts");
        while (k->name != NULL && strcmp(k->name, name) != 0)
            k++;
        if (k->name == NULL)
            return plan_unknown_key(r, key, name, keys);
        (void)snprintf(r->where, sizeof(r->where), "%.60s%s%.60s", where,
                       where[0] == '\0' ? "" : ".", name);
        if ((seen & (uint64_t)1 << (k - keys)) != 0)
            return plan_wrong(r, key, "is given twice: remove one");
        seen |= (uint64_t)1 << (k - keys);
        if (r->pool != NULL && at == r->pool)
            r->pools[r->pool - r->plan->pools].lines[k - keys] = plan_line(key);
        if (k->read(r, plan_node(r, p->value), (char *)at + k->offset, k) != STATUS_OK)
            return r->err->status;
        (void)snprintf(r->where, sizeof(r->where), "%s", where);
    }
    return STATUS_OK;
}

/* --- values --- */

static enum status read_plan_text(struct plan_reader *r, const yaml_node_t *value, void *at,
                                  const struct plan_key *key)
{
    const char *text = plan_scalar(value);

    if (text == NULL || plan_is_null(value))
        return plan_wrong(r, value, "must be a text");
    if (strlen(text) > PLAN_TEXT_MAX_BYTES)
        return plan_wrong(r, value, "must be shorter, of at most 8192 bytes");
    *(const char **)at = text;
    return STATUS_OK;
}

/* A short line that is not empty. */
static enum status read_plan_word(struct plan_reader *r, const yaml_node_t *value, void *at,
                                  const struct plan_key *key)
{
    const char *text = plan_scalar(value);

    if (text == NULL || plan_is_null(value) || text[0] == '\0' || strlen(text) > 128 ||
        !utf8_is_plain_line(text))
        return plan_wrong(r, value, "must be one line of 1 to 128 bytes");
    *(const char **)at = text;
    return STATUS_OK;
}

static enum status read_plan_number(struct plan_reader *r, const yaml_node_t *value, void *at,
                                    const struct plan_key *key)
{
    const char *text = plan_scalar(value);
    unsigned long n;
    char *end;

    errno = 0;
    n = text == NULL ? 0 : strtoul(text, &end, 10);
    if (text == NULL || text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 ||
        n < key->min || n > key->max)
        return error_set(r->err, STATUS_INVALID,
                         "%.100s:%u: %s: must be a whole number from %u to %u", r->plan->path,
                         plan_line(value), r->where, key->min, key->max);
    *(uint32_t *)at = (uint32_t)n;
    return STATUS_OK;
}

/* As ParlAI: 0 is the default. */
static enum status read_plan_timeout(struct plan_reader *r, const yaml_node_t *value, void *at,
                                     const struct plan_key *key)
{
    if (read_plan_number(r, value, at, key) != STATUS_OK)
        return r->err->status;
    if (*(uint32_t *)at == 0)
        *(uint32_t *)at = SERVICE_TIMEOUT_S;
    return STATUS_OK;
}

static enum status read_plan_people(struct plan_reader *r, const yaml_node_t *value, void *at,
                                    const struct plan_key *key)
{
    uint32_t n = 0;

    if (read_plan_number(r, value, &n, key) != STATUS_OK)
        return r->err->status;
    r->pool->n_people = n == 0 ? 1 : n; /* as ParlAI */
    return STATUS_OK;
}

static enum status read_plan_bool(struct plan_reader *r, const yaml_node_t *value, void *at,
                                  const struct plan_key *key)
{
    const char *text = plan_scalar(value);

    if (text != NULL && (strcasecmp(text, "true") == 0 || strcasecmp(text, "yes") == 0))
        *(bool *)at = true;
    else if (text != NULL && (strcasecmp(text, "false") == 0 || strcasecmp(text, "no") == 0))
        *(bool *)at = false;
    else
        return plan_wrong(r, value, "must be true or false");
    return STATUS_OK;
}

/* A key of ParlAI's that means nothing here. */
static enum status read_plan_ignored(struct plan_reader *r, const yaml_node_t *value, void *at,
                                     const struct plan_key *key)
{
    struct service_plan *p = r->plan;

    if (p->n_ignored < SERVICE_MAX_IGNORED)
        p->ignored[p->n_ignored++] = xstrdup(r->where);
    return STATUS_OK;
}

static enum status plan_texts(struct plan_reader *r, const yaml_node_t *value, const char **out,
                              size_t *ret_n, size_t max, bool may_be_null)
{
    if (value->type != YAML_SEQUENCE_NODE)
        return plan_wrong(r, value, "must be a list of texts");
    *ret_n = 0;
    for (const yaml_node_item_t *i = value->data.sequence.items.start;
         i < value->data.sequence.items.top; i++) {
        const yaml_node_t *node = plan_node(r, *i);
        const char *text = plan_scalar(node);

        if (*ret_n == max)
            return error_set(r->err, STATUS_INVALID, "%.100s:%u: %s: has more than %zu entries",
                             r->plan->path, plan_line(node), r->where, max);
        if (may_be_null && plan_is_null(node))
            text = NULL;
        else if (text == NULL || text[0] == '\0' || strlen(text) > 128)
            return plan_wrong(r, node, "must have texts of 1 to 128 bytes");
        out[(*ret_n)++] = text;
    }
    return STATUS_OK;
}

/* --- a pool --- */

static enum status read_plan_choices(struct plan_reader *r, const yaml_node_t *value, void *at,
                                     const struct plan_key *key)
{
    return plan_texts(r, value, r->question->choices, &r->question->n_choices, SERVICE_MAX_CHOICES,
                      false);
}

static const struct plan_key question_keys[] = {
    {"key", read_plan_word, offsetof(struct service_question, key), 0, 0},
    {"text", read_plan_text, offsetof(struct service_question, text), 0, 0},
    {"choices", read_plan_choices, 0, 0, 0},
    {"strict", read_plan_bool, offsetof(struct service_question, is_strict), 0, 0},
    {0},
};

static enum status read_plan_ask(struct plan_reader *r, const yaml_node_t *value, void *at,
                                 const struct plan_key *key)
{
    struct service_script *form = &r->pool->onboarding;

    if (value->type != YAML_SEQUENCE_NODE)
        return plan_wrong(r, value, "must be a list of questions, each with key and text");
    for (const yaml_node_item_t *i = value->data.sequence.items.start;
         i < value->data.sequence.items.top; i++) {
        const yaml_node_t *node = plan_node(r, *i);

        if (form->n_questions == SERVICE_MAX_QUESTIONS)
            return plan_wrong(r, node, "has more than 32 questions");
        r->question = &form->questions[form->n_questions];
        if (plan_mapping(r, node, question_keys, r->question) != STATUS_OK)
            return r->err->status;
        if (r->question->key == NULL || r->question->text == NULL)
            return plan_wrong(r, node, "a question needs key and text");
        if (r->question->is_strict && r->question->n_choices == 0)
            return plan_wrong(r, node, "a strict question needs choices");
        for (size_t k = 0; k < form->n_questions; k++)
            if (strcmp(form->questions[k].key, r->question->key) == 0)
                return plan_wrong(r, node, "has two questions with one key: rename one");
        form->n_questions++;
    }
    return STATUS_OK;
}

static enum status read_plan_roles(struct plan_reader *r, const yaml_node_t *value, void *at,
                                   const struct plan_key *key)
{
    const struct service_pool_plan *pool = r->pool;

    if (plan_texts(r, value, r->pool->roles, &r->pool->n_roles, SERVICE_MAX_PEOPLE, true) !=
        STATUS_OK)
        return r->err->status;
    for (size_t i = 0; i < pool->n_roles; i++) {
        if (pool->roles[i] != NULL && !service_is_name(pool->roles[i]))
            return plan_wrong(r, value,
                              "must be names: one line of at most 32 characters, "
                              "without a colon");
        for (size_t k = 0; k < i; k++)
            if (pool->roles[i] != NULL && pool->roles[k] != NULL &&
                strcmp(pool->roles[i], pool->roles[k]) == 0)
                return plan_wrong(r, value, "has one name twice: rename one");
    }
    return STATUS_OK;
}

static enum status read_plan_eligible(struct plan_reader *r, const yaml_node_t *value, void *at,
                                      const struct plan_key *key)
{
    struct service_pool_plan *pool = r->pool;

    if (value->type != YAML_MAPPING_NODE)
        return plan_wrong(r, value, "must be a mapping of a question's key to its answer");
    for (const yaml_node_pair_t *p = value->data.mapping.pairs.start;
         p < value->data.mapping.pairs.top; p++) {
        const char *name = plan_scalar(plan_node(r, p->key));
        const char *text = plan_scalar(plan_node(r, p->value));

        if (name == NULL || text == NULL)
            return plan_wrong(r, plan_node(r, p->key), "must be a question's key and its answer");
        if (pool->n_eligible == SERVICE_MAX_ELIGIBLE)
            return plan_wrong(r, plan_node(r, p->key), "has more than 16 entries");
        pool->eligible[pool->n_eligible++] = (struct service_datum){name, text};
    }
    return STATUS_OK;
}

static enum status read_plan_policy(struct plan_reader *r, const yaml_node_t *value, void *at,
                                    const struct plan_key *key)
{
    const char *text = plan_scalar(value);

    if (text != NULL && strcmp(text, "every") == 0) {
        r->pool->policy = SERVICE_ANSWERS_ALL;
    } else if (text != NULL && strcmp(text, "named") == 0) {
        r->pool->policy = SERVICE_ANSWERS_NAME;
    } else {
        r->pool->policy = SERVICE_ANSWERS_COUNT;
        if (read_plan_number(r, value, &r->pool->policy_n, key) != STATUS_OK)
            return plan_wrong(r, value, "must be every, named, or a number n: each n-th text");
    }
    return STATUS_OK;
}

static enum status read_plan_names(struct plan_reader *r, const yaml_node_t *value, void *at,
                                   const struct plan_key *key)
{
    static const char *const words[] = {"auto", "always", "never"};
    const char *text = plan_scalar(value);

    for (size_t i = 0; i < 3 && text != NULL; i++)
        if (strcmp(text, words[i]) == 0) {
            r->pool->names = (enum service_names)i;
            return STATUS_OK;
        }
    return plan_wrong(r, value, "must be auto, always or never");
}

/* key->min is the text's offset in plan_pool_texts. */
static enum status read_plan_pool_text(struct plan_reader *r, const yaml_node_t *value, void *at,
                                       const struct plan_key *key)
{
    char *texts = (char *)&r->pools[r->pool - r->plan->pools];

    return read_plan_text(r, value, texts + key->min, key);
}

static enum status read_plan_onboard_world(struct plan_reader *r, const yaml_node_t *value,
                                           void *at, const struct plan_key *key)
{
    return plan_is_null(value) ? STATUS_OK : read_plan_pool_text(r, value, at, key);
}

#define POOL(member) offsetof(struct service_pool_plan, member)
#define TEXT(member) offsetof(struct plan_pool_texts, member)

static const struct plan_key pool_keys[] = {
    {"onboard_world", read_plan_onboard_world, 0, TEXT(onboard_world), 0},
    {"task_world", read_plan_pool_text, 0, TEXT(task_world), 0},
    {"timeout", read_plan_timeout, POOL(timeout_s), 0, SERVICE_MAX_S},
    {"agents_required", read_plan_people, 0, 0, SERVICE_MAX_PEOPLE},
    {"backup_task", read_plan_word, POOL(backup), 0, 0},
    {"title", read_plan_word, POOL(title), 0, 0},
    {"onboard_welcome", read_plan_pool_text, 0, TEXT(onboard_welcome), 0},
    {"ask", read_plan_ask, 0, 0, 0},
    {"onboard_closing", read_plan_pool_text, 0, TEXT(onboard_closing), 0},
    {"welcome", read_plan_pool_text, 0, TEXT(welcome), 0},
    {"closing", read_plan_pool_text, 0, TEXT(closing), 0},
    {"notice", read_plan_number, POOL(notice_s), 1, SERVICE_MAX_S},
    {"idle", read_plan_number, POOL(idle_s), 0, SERVICE_MAX_S},
    {"roles", read_plan_roles, 0, 0, 0},
    {"eligible", read_plan_eligible, 0, 0, 0},
    {"next", read_plan_word, POOL(next), 0, 0},
    {"model", read_plan_text, POOL(model), 0, 0},
    {"agent", read_plan_word, POOL(agent_name), 0, 0},
    {"system", read_plan_text, POOL(system), 0, 0},
    {"policy", read_plan_policy, 0, 1, 1000},
    {"max_tokens", read_plan_number, POOL(max_tokens), 0, 1u << 20},
    {"names", read_plan_names, 0, 0, 0},
    {0},
};
_Static_assert(sizeof(pool_keys) / sizeof(pool_keys[0]) <= PLAN_MAX_KEYS, "lines has room");

/* 0: the key is not given. */
static unsigned plan_pool_line(const struct plan_reader *r, size_t pool, const char *key)
{
    const struct plan_key *k = pool_keys;

    while (strcmp(k->name, key) != 0)
        k++;
    return r->pools[pool].lines[k - pool_keys];
}

/* What is wrong with a key of a pool, or with the pool where it is not given. */
static enum status plan_pool_wrong(struct plan_reader *r, size_t pool, const char *key,
                                   const char *what)
{
    const struct service_pool_plan *p = &r->plan->pools[pool];
    const unsigned line = plan_pool_line(r, pool, key);

    return error_set(r->err, STATUS_INVALID, "%.100s:%u: tasks.%s.%s: %s", r->plan->path,
                     line == 0 ? p->line : line, p->name, key, what);
}

/* wanted is not among the names that key takes, of which near is meant perhaps. */
static enum status plan_pool_unknown(struct plan_reader *r, size_t pool, const char *key,
                                     const char *what, const struct suggest *near)
{
    char text[200];

    (void)snprintf(text, sizeof(text), "%s '%.60s'%s%.60s%s", what, near->wanted,
                   near->word == NULL ? "" : ", did you mean '",
                   near->word == NULL ? "" : near->word, near->word == NULL ? "" : "'?");
    return plan_pool_wrong(r, pool, key, text);
}

static enum status read_plan_tasks(struct plan_reader *r, const yaml_node_t *value, void *at,
                                   const struct plan_key *key)
{
    struct service_plan *plan = r->plan;

    if (value->type != YAML_MAPPING_NODE)
        return plan_wrong(r, value, "must be a mapping of names to tasks");
    for (const yaml_node_pair_t *p = value->data.mapping.pairs.start;
         p < value->data.mapping.pairs.top; p++) {
        const yaml_node_t *name = plan_node(r, p->key);
        const char *text = plan_scalar(name);

        (void)snprintf(r->where, sizeof(r->where), "tasks");
        if (text == NULL || text[0] == '\0' || strlen(text) > 60 || !utf8_is_plain_line(text))
            return plan_wrong(r, name, "a task's name must be one line of 1 to 60 bytes");
        if (strcasecmp(text, "EXIT") == 0)
            return plan_wrong(r, name, "EXIT is what people type to leave: use another name");
        if (service_plan_find(plan, text) != SIZE_MAX)
            return plan_wrong(r, name, "has two tasks of one name: rename one");
        if (plan->n_pools == SERVICE_MAX_POOLS)
            return plan_wrong(r, name, "has more than 64 tasks");
        r->pool = &plan->pools[plan->n_pools++];
        *r->pool = (struct service_pool_plan){.name = text,
                                              .line = plan_line(name),
                                              .timeout_s = SERVICE_TIMEOUT_S,
                                              .notice_s = SERVICE_NOTICE_S,
                                              .n_people = 1,
                                              .max_tokens = SERVICE_MAX_TOKENS,
                                              .backup_at = SIZE_MAX,
                                              .next_at = SIZE_MAX};
        (void)snprintf(r->where, sizeof(r->where), "tasks.%s", text);
        if (plan_mapping(r, plan_node(r, p->value), pool_keys, r->pool) != STATUS_OK)
            return r->err->status;
    }
    return STATUS_OK;
}

/* --- opt, and the file --- */

static enum status read_plan_models(struct plan_reader *r, const yaml_node_t *value, void *at,
                                    const struct plan_key *key)
{
    if (value->type != YAML_MAPPING_NODE)
        return plan_wrong(r, value, "must be a mapping of models' names");
    for (const yaml_node_pair_t *p = value->data.mapping.pairs.start;
         p < value->data.mapping.pairs.top; p++) {
        const char *name = plan_scalar(plan_node(r, p->key));
        const yaml_node_t *settings = plan_node(r, p->value);

        if (name == NULL || name[0] == '\0')
            return plan_wrong(r, plan_node(r, p->key), "must have models' names");
        if (r->first_model == NULL)
            r->first_model = name;
        (void)snprintf(r->where, sizeof(r->where), "opt.models.%.60s", name);
        if (settings->type == YAML_MAPPING_NODE && /* ParlAI's settings of the model */
            read_plan_ignored(r, settings, NULL, key) != STATUS_OK)
            return r->err->status;
    }
    return STATUS_OK;
}

static const struct plan_key opt_keys[] = {
    {"password", read_plan_word, offsetof(struct service_plan, password), 0, 0},
    {"models", read_plan_models, 0, 0, 0},
    {"debug", read_plan_ignored, 0, 0, 0},
    {0},
};

static const struct plan_key args_keys[] = {
    {"page_id", read_plan_ignored, 0, 0, 0},
    {"load_model", read_plan_ignored, 0, 0, 0},
    {0},
};

static enum status read_plan_opt(struct plan_reader *r, const yaml_node_t *value, void *at,
                                 const struct plan_key *key)
{
    return plan_is_null(value) ? STATUS_OK : plan_mapping(r, value, opt_keys, r->plan);
}

static enum status read_plan_args(struct plan_reader *r, const yaml_node_t *value, void *at,
                                  const struct plan_key *key)
{
    return plan_is_null(value) ? STATUS_OK : plan_mapping(r, value, args_keys, r->plan);
}

enum { FILE_MODULE, FILE_OVERWORLD, FILE_WELCOME, FILE_INVALID, FILE_MOVING };

static enum status read_plan_file_text(struct plan_reader *r, const yaml_node_t *value, void *at,
                                       const struct plan_key *key)
{
    const char **const out[] = {&r->module, &r->overworld, &r->menu_welcome, &r->menu_invalid,
                                &r->menu_moving};

    if (key->min == FILE_MODULE)
        r->module_line = plan_line(value);
    if (key->min == FILE_OVERWORLD)
        r->overworld_line = plan_line(value);
    return read_plan_text(r, value, out[key->min], key);
}

#define PLAN(member) offsetof(struct service_plan, member)

static const struct plan_key file_keys[] = {
    {"tasks", read_plan_tasks, 0, 0, 0},
    {"task_name", read_plan_word, PLAN(task_name), 0, 0},
    {"world_module", read_plan_file_text, 0, FILE_MODULE, 0},
    {"overworld", read_plan_file_text, 0, FILE_OVERWORLD, 0},
    {"max_workers", read_plan_number, PLAN(max_workers), 1, 1000000},
    {"opt", read_plan_opt, 0, 0, 0},
    {"additional_args", read_plan_args, 0, 0, 0},
    {"welcome", read_plan_file_text, 0, FILE_WELCOME, 0},
    {"invalid", read_plan_file_text, 0, FILE_INVALID, 0},
    {"moving", read_plan_file_text, 0, FILE_MOVING, 0},
    {"grace", read_plan_number, PLAN(grace_s), 0, SERVICE_MAX_S},
    {"principal", read_plan_word, PLAN(principal), 0, 0},
    {"log", read_plan_text, PLAN(log), 0, 0},
    {0},
};

/* --- what names other things --- */

/* The world that a key of a pool names; pool SIZE_MAX: of the file. */
static enum status plan_find_world(struct service_script *script, struct plan_reader *r,
                                   enum scene_kind kind, size_t pool, const char *key,
                                   const char *name)
{
    char list[200], what[400];

    if (demo_has_module(r->module)) {
        if (demo_find(script, r->module, kind, name))
            return STATUS_OK;
        demo_list(r->module, kind, list, sizeof(list));
    } else {
        script->world = service_world_find(kind, name);
        if (script->world != NULL)
            return STATUS_OK;
        service_world_list(kind, list, sizeof(list));
    }
    (void)snprintf(what, sizeof(what), "%s has no world '%.60s', only %s", r->module, name, list);
    return pool != SIZE_MAX ? plan_pool_wrong(r, pool, key, what)
                            : error_set(r->err, STATUS_INVALID, "%.100s:%u: %s: %s", r->plan->path,
                                        r->overworld_line, key, what);
}

static enum status plan_check_module(struct plan_reader *r)
{
    char list[160];

    if (strcmp(r->module, own_module) == 0 || demo_has_module(r->module))
        return STATUS_OK;
    demo_list_modules(list, sizeof(list));
    return error_set(r->err, STATUS_INVALID,
                     "%.60s:%u: world_module: there is no '%.60s', use %s, or %s for the demos of "
                     "ParlAI; worlds of one's own are attached:NAME",
                     r->plan->path, r->module_line, r->module, own_module, list);
}

static enum status plan_finish_menu(struct plan_reader *r)
{
    struct service_script *menu = &r->plan->menu;

    *menu = (struct service_script){.welcome = "Welcome. Choose what to do.",
                                    .invalid = "Please choose one of these.",
                                    .has_exit = true,
                                    .ignores_case = true};
    if (plan_find_world(menu, r, SCENE_MENU, SIZE_MAX, "overworld", r->overworld) != STATUS_OK)
        return r->err->status;
    if (r->menu_welcome != NULL)
        menu->welcome = r->menu_welcome;
    if (r->menu_invalid != NULL)
        menu->invalid = r->menu_invalid;
    if (r->menu_moving != NULL)
        menu->moving = r->menu_moving;
    return STATUS_OK;
}

static enum status plan_finish_form(struct plan_reader *r, size_t i)
{
    static const char *const keys[] = {"ask", "onboard_welcome", "onboard_closing"};
    struct service_script *form = &r->plan->pools[i].onboarding;
    const struct service_script asked = *form;
    const char *name = r->pools[i].onboard_world;

    for (size_t k = 0; name == NULL && k < sizeof(keys) / sizeof(keys[0]); k++)
        if (plan_pool_line(r, i, keys[k]) != 0)
            return plan_pool_wrong(r, i, keys[k], "is of an onboarding: add onboard_world: form");
    if (name == NULL)
        return STATUS_OK;
    if (plan_find_world(form, r, SCENE_FORM, i, "onboard_world", name) != STATUS_OK)
        return r->err->status;
    if (asked.n_questions > 0) {
        memcpy(form->questions, asked.questions, sizeof(form->questions));
        form->n_questions = asked.n_questions;
    }
    if (r->pools[i].onboard_welcome != NULL)
        form->welcome = r->pools[i].onboard_welcome;
    if (r->pools[i].onboard_closing != NULL)
        form->closing = r->pools[i].onboard_closing;
    if (form->invalid == NULL)
        form->invalid = "Please choose one of these answers.";
    return STATUS_OK;
}

static enum status plan_check_people(struct plan_reader *r, size_t i)
{
    const struct service_pool_plan *pool = &r->plan->pools[i];
    const struct service_world *world = pool->task.world;
    size_t n = pool->n_people;
    char what[160];

    if (pool->n_roles > pool->n_people)
        return plan_pool_wrong(r, i, "roles", "has more roles than agents_required");
    for (size_t k = 0; k < pool->n_roles; k++)
        if (pool->roles[k] == NULL)
            n--;
    if (n >= world->min_people && n <= world->max_people)
        return STATUS_OK;
    (void)snprintf(what, sizeof(what), "must give %s from %zu to %zu people, it gives %zu",
                   world->name, world->min_people, world->max_people, n);
    return plan_pool_wrong(r, i, "agents_required", what);
}

/* A key that only agents have; NULL: none is given. */
static const char *plan_agent_key(const struct plan_reader *r, size_t i)
{
    static const char *const keys[] = {"model", "agent", "system", "policy", "max_tokens"};

    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
        if (plan_pool_line(r, i, keys[k]) != 0)
            return keys[k];
    return NULL;
}

/* A world of one's own names its participants, and the roles are these. */
static enum status plan_finish_script(struct plan_reader *r, size_t i)
{
    struct service_pool_plan *pool = &r->plan->pools[i];
    size_t n = 0;

    while (n < pool->n_roles && pool->roles[n] != NULL)
        n++;
    if (n < pool->n_people)
        return plan_pool_wrong(r, i, "roles",
                               "must have a name for each of agents_required, as the world's "
                               "participants have them");
    script_set_agent(pool, r->pools[i].task_world);
    pool->model = pool->agent_name = pool->own_model;
    pool->system = pool->own_system;
    pool->max_tokens = 0;
    if (utf8_count(pool->model) > SERVICE_NAME_MAX_CHARS)
        return plan_pool_wrong(r, i, "task_world", "the world's name has more than 32 characters");
    return STATUS_OK;
}

static enum status plan_finish_agent(struct plan_reader *r, size_t i)
{
    struct service_pool_plan *pool = &r->plan->pools[i];
    const char *key = plan_agent_key(r, i);

    if (key != NULL && (pool->task.world->is_script || !pool->task.world->has_agent))
        return plan_pool_wrong(r, i, key, "is of an agent, and this task_world has none: use chat");
    if (pool->task.world->is_script)
        return plan_finish_script(r, i);
    if (!pool->task.world->has_agent)
        return STATUS_OK;
    if (pool->model == NULL)
        pool->model = r->first_model != NULL ? r->first_model : "";
    if (pool->agent_name == NULL)
        pool->agent_name = pool->model[0] != '\0' ? pool->model : "Agent";
    if (utf8_count(pool->agent_name) > SERVICE_NAME_MAX_CHARS)
        return plan_pool_wrong(r, i, "agent", "must be a name of at most 32 characters");
    return STATUS_OK;
}

static enum status plan_finish_task(struct plan_reader *r, size_t i)
{
    struct service_pool_plan *pool = &r->plan->pools[i];
    struct service_script *task = &pool->task;

    if (r->pools[i].task_world == NULL)
        return plan_pool_wrong(r, i, "task_world", "is missing: add it");
    task->closing = "The other agent has ended the chat.";
    if (plan_find_world(task, r, SCENE_TASK, i, "task_world", r->pools[i].task_world) != STATUS_OK)
        return r->err->status;
    if (r->pools[i].welcome != NULL)
        task->welcome = r->pools[i].welcome;
    if (r->pools[i].closing != NULL)
        task->closing = r->pools[i].closing;
    if (pool->title == NULL)
        pool->title = demo_title(r->module, pool->name);
    if (plan_check_people(r, i) != STATUS_OK)
        return r->err->status;
    return plan_finish_agent(r, i);
}

/* Finds the task that a key names. */
static enum status plan_find_task(size_t *out, struct plan_reader *r, size_t i, const char *key,
                                  const char *name)
{
    const struct service_plan *plan = r->plan;
    struct suggest near;

    if (name == NULL || (*out = service_plan_find(plan, name)) != SIZE_MAX)
        return STATUS_OK;
    suggest_init(&near, name);
    for (size_t k = 0; k < plan->n_pools; k++)
        suggest_try(&near, plan->pools[k].name);
    return plan_pool_unknown(r, i, key, "there is no task", &near);
}

static enum status plan_find_pools(struct plan_reader *r, size_t i)
{
    struct service_pool_plan *pool = &r->plan->pools[i];
    const bool is_exit = pool->next != NULL && strcmp(pool->next, "EXIT") == 0;

    if (plan_find_task(&pool->backup_at, r, i, "backup_task", pool->backup) != STATUS_OK)
        return r->err->status;
    return is_exit ? STATUS_OK : plan_find_task(&pool->next_at, r, i, "next", pool->next);
}

static bool question_takes(const struct service_question *q, const char *text)
{
    for (size_t i = 0; q->is_strict && i < q->n_choices; i++)
        if (strcmp(q->choices[i], text) == 0)
            return true;
    return !q->is_strict;
}

/* Somebody must be able to give the answer that a task wants, in whatever form. */
static enum status plan_check_datum(struct plan_reader *r, size_t pool,
                                    const struct service_datum *wanted)
{
    struct suggest key, value;
    bool is_asked = false;

    suggest_init(&key, wanted->key);
    suggest_init(&value, wanted->value);
    for (size_t i = 0; i < r->plan->n_pools; i++) {
        const struct service_script *form = &r->plan->pools[i].onboarding;

        for (size_t k = 0; k < form->n_questions; k++) {
            const struct service_question *q = &form->questions[k];

            suggest_try(&key, q->key);
            if (strcmp(q->key, wanted->key) != 0)
                continue;
            if (question_takes(q, wanted->value))
                return STATUS_OK;
            is_asked = true;
            for (size_t c = 0; c < q->n_choices; c++)
                suggest_try(&value, q->choices[c]);
        }
    }
    return is_asked ? plan_pool_unknown(r, pool, "eligible", "nobody can choose", &value)
                    : plan_pool_unknown(r, pool, "eligible", "no form asks for", &key);
}

static enum status plan_check_eligible(struct plan_reader *r)
{
    for (size_t i = 0; i < r->plan->n_pools; i++)
        for (size_t k = 0; k < r->plan->pools[i].n_eligible; k++)
            if (plan_check_datum(r, i, &r->plan->pools[i].eligible[k]) != STATUS_OK)
                return r->err->status;
    return STATUS_OK;
}

/* Tasks that end at once and lead to each other would never end. */
static enum status plan_check_circles(struct plan_reader *r)
{
    for (size_t i = 0; i < r->plan->n_pools; i++) {
        size_t at = i, n = 0;

        while (at != SIZE_MAX && r->plan->pools[at].task.world->said == NULL &&
               n++ <= r->plan->n_pools)
            at = r->plan->pools[at].next_at;
        if (n > r->plan->n_pools)
            return plan_pool_wrong(r, i, "next", "leads in a circle of tasks that end at once");
    }
    return STATUS_OK;
}

static enum status plan_finish(struct plan_reader *r)
{
    const struct {
        const char *name;
        bool is_there;
    } needed[] = {{"world_module", r->module != NULL && r->module[0] != '\0'},
                  {"overworld", r->overworld != NULL && r->overworld[0] != '\0'},
                  {"max_workers", r->plan->max_workers != 0},
                  {"task_name", r->plan->task_name != NULL},
                  {"tasks", r->plan->n_pools != 0}};

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!needed[i].is_there)
            return error_set(r->err, STATUS_INVALID, "%.100s: the key '%s' is missing: add it",
                             r->plan->path, needed[i].name);
    if (plan_check_module(r) != STATUS_OK || plan_finish_menu(r) != STATUS_OK)
        return r->err->status;
    for (size_t i = 0; i < r->plan->n_pools; i++)
        if (plan_finish_form(r, i) != STATUS_OK || plan_finish_task(r, i) != STATUS_OK ||
            plan_find_pools(r, i) != STATUS_OK)
            return r->err->status;
    for (size_t i = 0; i < r->plan->n_pools; i++)
        for (size_t k = 0; k < i; k++)
            if (strcasecmp(r->plan->pools[i].title, r->plan->pools[k].title) == 0)
                return plan_pool_wrong(r, i, "title",
                                       "is that of another task: give it one of its own");
    if (plan_check_eligible(r) != STATUS_OK)
        return r->err->status;
    return plan_check_circles(r);
}

/* --- the file --- */

static enum status plan_load(struct service_plan *p, const char *text, size_t len,
                             struct error *err)
{
    yaml_document_t *document = xalloc(sizeof(*document));
    yaml_parser_t parser;
    enum status rc = STATUS_OK;

    if (yaml_parser_initialize(&parser) == 0) {
        free(document);
        return error_no_memory(err, sizeof(parser), "the service's file");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    if (yaml_parser_load(&parser, document) == 0) {
        rc = error_set(err, STATUS_INVALID, "%.100s:%zu: no YAML: %s", p->path,
                       parser.problem_mark.line + 1,
                       parser.problem != NULL ? parser.problem : "it cannot be read");
        free(document);
    } else {
        p->document = document;
    }
    yaml_parser_delete(&parser);
    return rc;
}

static enum status plan_read(struct service_plan *p, struct error *err)
{
    struct plan_reader *r = xalloc(sizeof(*r));
    const yaml_node_t *root = yaml_document_get_root_node(p->document);
    enum status rc;

    *r = (struct plan_reader){.plan = p, .document = p->document, .err = err};
    if (root == NULL)
        rc = error_set(err, STATUS_INVALID, "%.100s: is empty", p->path);
    else if (root->type != YAML_MAPPING_NODE)
        rc = error_set(err, STATUS_INVALID, "%.100s:%u: must be KEY: VALUE on each line", p->path,
                       plan_line(root));
    else
        rc = plan_mapping(r, root, file_keys, p);
    if (rc == STATUS_OK)
        rc = plan_finish(r);
    free(r);
    return rc;
}

enum status service_plan_open(struct service_plan **out, const char *path, struct error *err)
{
    struct service_plan *p = xalloc(sizeof(*p));
    char *text = xalloc(PLAN_MAX_BYTES + 1);
    size_t len = 0;
    enum status rc;

    p->path = xstrdup(path);
    p->grace_s = SERVICE_GRACE_S;
    rc = whole_file_read(text, PLAN_MAX_BYTES, &len, path, err);
    if (rc == STATUS_OK)
        rc = plan_load(p, text, len, err);
    if (rc == STATUS_OK)
        rc = plan_read(p, err);
    if (rc == STATUS_OK) {
        *out = p;
        p = NULL; /* given away */
    }
    free(text);
    service_plan_close(p);
    return rc;
}

void service_plan_close(struct service_plan *p)
{
    if (p == NULL)
        return;
    if (p->document != NULL)
        yaml_document_delete(p->document);
    free(p->document);
    for (size_t i = 0; i < p->n_ignored; i++)
        free(p->ignored[i]);
    for (size_t i = 0; i < p->n_pools; i++) {
        free(p->pools[i].own_model);
        free(p->pools[i].own_system);
    }
    free(p->path);
    free(p);
}

size_t service_plan_find(const struct service_plan *p, const char *name)
{
    for (size_t i = 0; i < p->n_pools; i++)
        if (strcmp(p->pools[i].name, name) == 0)
            return i;
    return SIZE_MAX;
}
