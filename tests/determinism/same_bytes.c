/* Replies do not depend on how they were computed: golden prompts, greedy and by a seed, go through
 * two turns in every way there is, and ids and log-probabilities are compared bit for bit with
 * those of one conversation alone: one thread, no cache, no guesses, the whole prompt in one step.
 *
 * Ways: 1, 2, 7 or 64 rows in a step; chunks of 1, 16, 64 or 512 tokens; threads; the processor's
 * instruction sets; with and without guesses at next tokens; pages found in the cache or not, taken
 * away between turns and in the middle of one; in a fork.
 *
 *     same_bytes tiny|state|cuda|cuda_orders|short|whole
 *
 * tiny: a small model made in memory; state: one with recurrent state; cuda: as tiny, the cpu's
 * replies held against those of the CUDA backend, which PARLEY_CUDA_MODULE may name; cuda_orders: a
 * few ways of these, for a stand-in of the device that runs each kernel in many orders; short: a
 * choice of ways that takes seconds; whole: all of them, with progress and a table. Exits with 0
 * when all is equal, 3 when a bit differs, 1 when it could not be told. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "tests/support/lm_driver.h"

#define MODEL_FILE "SmolLM2-135M-Instruct.Q4_1.gguf"

enum {
    MAX_ROWS = 64,
    N_TURNS = 2,
    MAX_REPLY = 24,
    MAX_CASES = 32,
    MAX_MESSAGES = 8,
    N_TOP = 2,
};

/* --- what is said --- */

struct prompt {
    struct message messages[MAX_MESSAGES];
    size_t n_messages;
};

/* A prompt and how to answer it. */
struct one_case {
    const struct prompt *prompt;
    struct sampling sampling;
};

struct said {
    int32_t id;
    float logprob;
    struct top_logprob top[N_TOP];
};

struct reply_bits {
    struct said said[N_TURNS][MAX_REPLY];
    size_t n[N_TURNS];
};

/* --- how it is computed --- */

enum how {
    PLAIN,
    FORKED,  /* the second turn in a fork */
    EVICTED, /* pages taken in the middle of turns, and between them */
    N_HOWS,
};

static const char *const how_names[] = {"plain", "forked", "evicted"};

struct way {
    const char *set; /* of instructions; NULL: the best; "cuda": no processor's */
    size_t n_threads;
    enum speculate speculate;
    bool has_cache;
    size_t n_rows, chunk;
    enum how how;
};

struct suite {
    const char *model; /* NULL: tiny */
    bool has_state;    /* the tiny model */
    json_t *lines;
    struct prompt prompts[MAX_CASES];
    struct one_case cases[MAX_CASES];
    size_t n_cases, n_reply, n_pages;
    struct reply_bits want[MAX_CASES];
    size_t n_ways, n_tokens, n_wrong;
    uint64_t n_accepted, n_found, n_recomputed; /* so that no way is one by name only */
};

static void fail(const char *what, const struct error *err)
{
    (void)fprintf(stderr, "same_bytes: %s: %s\n", what, err->text);
    exit(1);
}

/* --- prompts --- */

static void read_prompt(struct prompt *out, const json_t *line)
{
    const json_t *messages = json_object_get(line, "messages");
    struct error err = {0};

    for (size_t i = 0; i < json_array_size(messages) && i < MAX_MESSAGES; i++) {
        const json_t *m = json_array_get(messages, i);
        struct message *to = &out->messages[out->n_messages++];

        if (role_parse(&to->role, json_string_value(json_object_get(m, "role")), &err) != STATUS_OK)
            fail("golden prompts", &err);
        to->text = json_string_value(json_object_get(m, "content"));
        to->len = strlen(to->text);
    }
}

/* Every step-th golden prompt from the first-th on, greedy and by a seed. */
static void read_cases(struct suite *s, size_t first, size_t step, size_t n_prompts)
{
    FILE *in = fopen(GOLDEN_DIR "/greedy.jsonl", "re");
    char line[32768];

    s->lines = json_array();
    for (size_t i = 0; in != NULL && fgets(line, sizeof(line), in) != NULL; i++) {
        struct prompt *p = &s->prompts[s->n_cases / 2];
        json_t *json = json_loads(line, 0, NULL);

        if (i < first || (i - first) % step != 0 || s->n_cases == 2 * n_prompts) {
            json_decref(json);
            continue;
        }
        (void)json_array_append_new(s->lines, json);
        read_prompt(p, json);
        for (int k = 0; k < 2; k++) {
            struct sampling *how = &s->cases[s->n_cases].sampling;

            s->cases[s->n_cases++].prompt = p;
            sampling_init(how);
            how->temperature = k == 0 ? 0.0f : 0.8f;
            how->top_p = 0.95f;
            how->repetition_penalty = k == 0 ? 1.0f : 1.1f;
            how->has_seed = true;
            how->seed = i;
            how->max_tokens = (uint32_t)s->n_reply;
            how->want_logprobs = true;
            how->n_logprobs = N_TOP;
        }
    }
    if (in != NULL)
        (void)fclose(in);
    if (s->n_cases != 2 * n_prompts) {
        (void)fprintf(stderr, "same_bytes: %s has too few prompts\n", GOLDEN_DIR "/greedy.jsonl");
        exit(1);
    }
}

/* --- one way --- */

static struct agent *open_agent(const struct suite *s, const struct way *w, enum status *ret_rc)
{
    const struct tiny_config tiny = {.type = DTYPE_Q4_1, .seed = 5, .has_state = s->has_state};
    bool is_cuda = w->set != NULL && strcmp(w->set, "cuda") == 0;
    struct agent_config config = drive_config(is_cuda ? "cuda" : "cpu", s->n_pages);
    struct agent *a = NULL;
    struct error err;

    config.options.n_threads = w->n_threads;
    config.max_step_tokens = 512;
    config.options.speculate = w->speculate;
    config.options.no_prefix_cache = !w->has_cache;
    if (w->set != NULL && !is_cuda)
        (void)setenv("PARLEY_CPU", w->set, 1);
    if (s->model == NULL) {
        *ret_rc = drive_open(&a, &tiny, &config, &err);
    } else {
        config.path = s->model;
        config.options.kv_type = KV_F16;
        config.options.kv_bytes = 0;
        *ret_rc = agent_open(&a, "lm", &config, &err);
    }
    (void)unsetenv("PARLEY_CPU");
    if (*ret_rc != STATUS_OK && (is_cuda || *ret_rc != STATUS_PRECONDITION)) /* has not the set */
        fail("the model", &err);
    return a;
}

static void record(struct reply_bits *out, int turn, const struct reply *r)
{
    out->n[turn] = r->n_tokens;
    for (size_t i = 0; i < r->n_tokens; i++) {
        struct said *said = &out->said[turn][i];

        said->id = r->tokens[i].id;
        said->logprob = r->tokens[i].logprob;
        memcpy(said->top, r->tokens[i].top, sizeof(said->top));
    }
}

static bool is_same(const struct reply_bits *a, const struct reply_bits *b)
{
    bool same = true;

    for (int turn = 0; turn < N_TURNS; turn++)
        same = same && a->n[turn] == b->n[turn] &&
               memcmp(a->said[turn], b->said[turn], a->n[turn] * sizeof(a->said[turn][0])) == 0;
    return same;
}

static void begin(struct drive *d, struct clone *c, const struct one_case *k, int turn)
{
    static const struct message again = {
        .role = ROLE_USER, .text = "Say that again, word for word.", .len = 30};
    struct error err;

    if ((turn == 0 ? drive_begin_messages(d, c, k->prompt->messages, k->prompt->n_messages,
                                          &k->sampling, &err)
                   : drive_begin_messages(d, c, &again, 1, &k->sampling, &err)) != STATUS_OK)
        fail("a turn", &err);
}

/* Runs the turns; where pages are to be taken, now and then from another row: ever more rarely, so
 * that the smallest chunks get on. */
static void run(struct agent *a, struct drive *const *drives, size_t n, const struct way *w)
{
    size_t i = 1, victim = 0, next = 5;

    for (; drive_step(a, drives, n, w->chunk) != 0; i++) {
        struct drive *d = drives[victim % n];

        if (w->how != EVICTED || i < next)
            continue;
        if (d->turn.reply.finish == FINISH_NONE)
            a->type->release(a, &d->turn.row);
        victim++;
        next += next / 2;
    }
}

/* Between the turns. */
static void disturb(struct agent *a, struct clone **clones, size_t n, enum how how)
{
    struct clone *child;
    struct error err;

    if (how == EVICTED)
        while (lm_cache_evict_one(&container_of(a, struct lm, base)->cache))
            continue;
    for (size_t i = 0; how == FORKED && i < n; i++) {
        if (clone_fork(&child, clones[i], 1, &err) != STATUS_OK)
            fail("a fork", &err);
        clone_close(clones[i]);
        clones[i] = child;
    }
}

/* Cases first … first + n - 1 (in a round) at once. */
static void converse(const struct suite *s, struct agent *a, const struct way *w, size_t first,
                     struct reply_bits *got)
{
    const struct clone_config plain = {0};
    struct drive drives[MAX_ROWS], *all[MAX_ROWS];
    struct clone *clones[MAX_ROWS];
    struct error err;

    for (size_t i = 0; i < w->n_rows; i++)
        if (clone_open(&clones[i], a, &plain, &err) != STATUS_OK)
            fail("a conversation", &err);
    for (int turn = 0; turn < N_TURNS; turn++) {
        for (size_t i = 0; i < w->n_rows; i++) {
            all[i] = &drives[i];
            begin(all[i], clones[i], &s->cases[(first + i) % s->n_cases], turn);
        }
        run(a, all, w->n_rows, w);
        for (size_t i = 0; i < w->n_rows; i++) {
            if (all[i]->turn.row.outcome == ROW_FAILED)
                fail("a row", &all[i]->turn.row.err);
            record(&got[i], turn, &all[i]->turn.reply);
            drive_end(all[i], true);
        }
        if (turn == 0)
            disturb(a, clones, w->n_rows, w->how);
    }
    for (size_t i = 0; i < w->n_rows; i++)
        clone_close(clones[i]);
}

/* All cases in this way. Returns how many of their replies differ. */
static size_t try_way(struct suite *s, struct agent *a, const struct way *w)
{
    static struct reply_bits got[MAX_ROWS];
    size_t n_wrong = 0;

    for (size_t first = 0; first < s->n_cases; first += w->n_rows) {
        converse(s, a, w, first, got);
        for (size_t i = 0; i < w->n_rows; i++) {
            n_wrong += !is_same(&got[i], &s->want[(first + i) % s->n_cases]);
            s->n_tokens += got[i].n[0] + got[i].n[1];
        }
    }
    s->n_ways++;
    s->n_wrong += n_wrong;
    return n_wrong;
}

static const char *speculate_name(enum speculate s)
{
    return s == SPECULATE_OFF ? "off" : s == SPECULATE_ON ? "on" : "auto";
}

static void print_way(const struct way *w, const struct agent_info *info, size_t n_wrong)
{
    (void)printf("%-8s %7zu %6s %5s %4zu %5zu %-8s %8llu %8llu %8llu  %s\n",
                 w->set == NULL ? "best" : w->set, w->n_threads, speculate_name(w->speculate),
                 w->has_cache ? "on" : "off", w->n_rows, w->chunk, how_names[w->how],
                 (unsigned long long)info->text.accepted_tokens,
                 (unsigned long long)info->cache.hit_tokens,
                 (unsigned long long)info->cache.recomputes, n_wrong == 0 ? "same" : "DIFFERS");
    (void)fflush(stdout);
}

/* One engine, several ways; its counters tell that they are what they are called. */
static void try_ways(struct suite *s, struct way w, const struct way *ways, size_t n)
{
    struct agent_info info = {0};
    enum status rc;
    struct agent *a = open_agent(s, &w, &rc);

    if (rc != STATUS_OK) {
        (void)printf("%-8s is not in this processor\n", w.set);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t n_wrong;

        w.n_rows = ways[i].n_rows;
        w.chunk = ways[i].chunk;
        w.how = ways[i].how;
        n_wrong = try_way(s, a, &w);
        agent_describe(a, &info);
        print_way(&w, &info, n_wrong);
    }
    s->n_accepted += info.text.accepted_tokens;
    s->n_found += info.cache.hit_tokens;
    s->n_recomputed += info.cache.recomputes;
    agent_unref(a);
}

/* --- the ways --- */

static const char *const sets[] = {NULL, "avx2", "vnni256", "neon", "dotprod", "generic"};

enum { N_SETS = sizeof(sets) / sizeof(sets[0]) };

static void try_some(struct suite *s)
{
    static const struct way many[] = {
        {.n_rows = 2, .chunk = 16, .how = FORKED},
        {.n_rows = 7, .chunk = 1, .how = EVICTED},
        {.n_rows = MAX_ROWS, .chunk = 64, .how = PLAIN},
    };
    static const struct way few[] = {{.n_rows = 4, .chunk = 512, .how = PLAIN}};

    try_ways(s, (struct way){.n_threads = 2, .speculate = SPECULATE_ON, .has_cache = true}, many,
             sizeof(many) / sizeof(many[0]));
    try_ways(s, (struct way){.n_threads = 1, .speculate = SPECULATE_AUTO}, many, 2);
    /* generic, the last, is too slow for the real model here */
    for (size_t i = 1; i < N_SETS - (s->model != NULL); i++)
        try_ways(s, (struct way){.set = sets[i], .n_threads = 1, .speculate = SPECULATE_ON}, few,
                 1);
}

static void try_cuda(struct suite *s)
{
    static const struct way many[] = {
        {.n_rows = 1, .chunk = 7, .how = PLAIN},
        {.n_rows = 2, .chunk = 16, .how = FORKED},
        {.n_rows = 7, .chunk = 1, .how = EVICTED},
        {.n_rows = MAX_ROWS, .chunk = 64, .how = PLAIN},
    };

    try_ways(s, (struct way){.set = "cuda", .speculate = SPECULATE_ON, .has_cache = true}, many,
             sizeof(many) / sizeof(many[0]));
    try_ways(s, (struct way){.set = "cuda", .speculate = SPECULATE_OFF}, many, 3);
}

static void try_cuda_orders(struct suite *s)
{
    static const struct way many[] = {
        {.n_rows = 2, .chunk = 16, .how = FORKED},
        {.n_rows = 7, .chunk = 8, .how = EVICTED},
    };
    static const struct way plain[] = {{.n_rows = 2, .chunk = 64, .how = EVICTED}};

    try_ways(s, (struct way){.set = "cuda", .speculate = SPECULATE_ON, .has_cache = true}, many,
             sizeof(many) / sizeof(many[0]));
    try_ways(s, (struct way){.set = "cuda", .speculate = SPECULATE_OFF}, plain, 1);
}

static void try_all(struct suite *s)
{
    static const size_t rows[] = {1, 2, 7, MAX_ROWS}, chunks[] = {1, 16, 64, 512};
    struct way ways[4 * 4 * N_HOWS];
    size_t n = 0;

    for (size_t i = 0; i < 4 * 4 * N_HOWS; i++)
        ways[n++] = (struct way){
            .n_rows = rows[i % 4], .chunk = chunks[i / 4 % 4], .how = (enum how)(i / 16)};
    for (size_t i = 0; i < N_SETS; i++)
        for (int k = 0; k < 8; k++)
            try_ways(s,
                     (struct way){.set = sets[i],
                                  .n_threads = k % 2 == 0 ? 1 : 2,
                                  .speculate = k / 2 % 2 == 0 ? SPECULATE_OFF : SPECULATE_ON,
                                  .has_cache = k / 4 == 0},
                     ways, n);
}

/* The replies that all others are held to. */
static void compute_wanted(struct suite *s)
{
    const struct way alone = {
        .n_threads = 1, .speculate = SPECULATE_OFF, .n_rows = 1, .chunk = 512, .how = PLAIN};
    enum status rc;
    struct agent *a = open_agent(s, &alone, &rc);

    for (size_t i = 0; i < s->n_cases; i++)
        converse(s, a, &alone, i, &s->want[i]);
    agent_unref(a);
}

int main(int argc, char **argv)
{
    static struct suite s;
    const char *what = argc == 2 ? argv[1] : "", *model = getenv("PARLEY_MODEL");
    bool is_whole = strcmp(what, "whole") == 0, is_cuda = strcmp(what, "cuda") == 0;
    bool is_orders = strcmp(what, "cuda_orders") == 0;
    bool has_state = strcmp(what, "state") == 0;
    bool is_tiny = is_cuda || is_orders || has_state || strcmp(what, "tiny") == 0;

    if (!is_whole && !is_tiny && strcmp(what, "short") != 0) {
        (void)fprintf(stderr, "usage: same_bytes tiny|state|cuda|cuda_orders|short|whole\n");
        return 2;
    }
    if (!is_tiny)
        s.model = model != NULL && *model != '\0' ? model : MODEL_DIR "/" MODEL_FILE;
    s.has_state = has_state;
    s.n_reply = is_whole ? MAX_REPLY : 12;
    s.n_pages = is_orders ? 512 : 4096; /* in orders all of the device's memory is watched */
    if (is_whole)
        read_cases(&s, 0, 4, 4);
    else
        read_cases(&s, 3, 3, is_orders ? 1 : 2);
    compute_wanted(&s);
    (void)printf("%-8s %7s %6s %5s %4s %5s %-8s %8s %8s %8s\n", "set", "threads", "guess", "cache",
                 "rows", "chunk", "how", "right", "cached", "again");
    if (is_whole)
        try_all(&s);
    else if (is_cuda)
        try_cuda(&s);
    else if (is_orders)
        try_cuda_orders(&s);
    else
        try_some(&s);
    json_decref(s.lines);
    (void)printf("%zu ways, %zu tokens, %zu replies differ\n", s.n_ways, s.n_tokens, s.n_wrong);
    if (s.n_accepted == 0 || s.n_found == 0 || s.n_recomputed == 0) {
        (void)fprintf(stderr, "same_bytes: no guess was right, or nothing was cached, or nothing "
                              "computed again: this proves too little\n");
        return 1;
    }
    return s.n_wrong == 0 ? 0 : 3;
}
