/* Computes the logits of a prompt and its hidden states, and checks that they do not depend on how
 * it is run.
 * usage: logits MODEL BACKEND KV_TYPE IDS OUT [MAX_CONTEXT [once]]: IDS is a file of int32, OUT
 * gets [n][n_vocab] f32 and behind them [n][width]; once: the logits alone, and nothing is checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/denormals.h"
#include "compute/backends.h"
#include "compute/model/state.h"
#include "compute/model/transformer.h"

enum { MAX_TOKENS = 512, PAGES = 128, LONE_PAGE = 64, N_DRAFTS = 5 };

/* Slots of state: of the sequence, of a fork of it, of another one; of a row that saves several. */
enum { SLOT, SLOT_FORK, SLOT_BESIDE, SLOT_SAVES, N_SAVES = 5, SLOTS = SLOT_SAVES + N_SAVES };

static struct error err;

static void must(enum status rc)
{
    if (rc == STATUS_OK)
        return;
    (void)fprintf(stderr, "%s\n", err.text);
    exit(EXIT_FAILURE);
}

struct run {
    struct backend *backend;
    struct transformer *model;
    size_t n, n_vocab; /* tokens */
    size_t max_context;
    const int32_t *ids;
    int32_t pages[2][MAX_TOKENS / KV_PAGE_TOKENS];
    size_t state_floats; /* 0: the model has no recurrent state */
    float *want_state, *got_state;
};

static void run_open(struct run *r, const struct gguf *g, const char *backend, enum kv_type type,
                     size_t n_threads)
{
    const struct backend_config config = {.n_threads = n_threads};
    const struct transformer_config llama = {.max_tokens = MAX_TOKENS,
                                             .max_logits = MAX_TOKENS,
                                             .max_context = r->max_context,
                                             .n_kv_pages = PAGES,
                                             .n_state_slots = SLOTS,
                                             .max_drafts = 2 * N_DRAFTS,
                                             .kv_type = type};

    must(backend_open(&r->backend, backend, &config, &err));
    must(transformer_open(&r->model, r->backend, g, &llama, &err));
    r->n_vocab = transformer_shape(r->model)->n_vocab;
    r->state_floats = transformer_slot_bytes(r->model) / sizeof(float);
    for (int32_t i = 0; i < MAX_TOKENS / KV_PAGE_TOKENS; i++) {
        r->pages[0][i] = i * 7 % LONE_PAGE;
        r->pages[1][i] = LONE_PAGE + i;
    }
}

static void run_close(struct run *r)
{
    transformer_close(r->model);
    backend_close(r->backend);
}

static int32_t state_at(size_t pos, int32_t slot)
{
    return pos == 0 ? STATES_NONE : slot;
}

/* Tokens pos … pos + n - 1, and beside them a row of another sequence, of some tokens. */
static void run_part(struct run *r, size_t pos, size_t n, size_t n_beside, float *out)
{
    const struct state_save saves[2] = {{n_beside, SLOT_BESIDE}, {n, SLOT}};
    struct transformer_row rows[2] = {{.ids = r->ids,
                                       .n_tokens = n_beside,
                                       .pages = r->pages[1],
                                       .state = STATES_NONE,
                                       .saves = &saves[0],
                                       .n_saves = 1},
                                      {.ids = r->ids + pos,
                                       .n_tokens = n,
                                       .pos = pos,
                                       .pages = r->pages[0],
                                       .state = state_at(pos, SLOT),
                                       .saves = &saves[1],
                                       .n_saves = 1,
                                       .n_logits = n,
                                       .logits = out + pos * r->n_vocab}};
    size_t skip = n_beside == 0;

    must(transformer_forward(r->model, rows + skip, 2 - skip, NULL, 0, &err));
}

static void run_chunks(struct run *r, size_t chunk, size_t n_beside, float *out)
{
    for (size_t pos = 0; pos < r->n; pos += chunk)
        run_part(r, pos, r->n - pos < chunk ? r->n - pos : chunk, n_beside, out);
}

static void read_state(const struct transformer *m, int32_t slot, float *out)
{
    m->backend->type->state->read(m->backend, m->states, slot, out);
}

static bool is_state(const struct run *r, int32_t slot)
{
    if (r->state_floats == 0)
        return true;
    read_state(r->model, slot, r->got_state);
    return memcmp(r->want_state, r->got_state, r->state_floats * sizeof(*r->got_state)) == 0;
}

/* Whether the slot has the state behind the first n tokens. */
static bool is_state_behind(struct run *r, size_t n, int32_t slot, float *scratch)
{
    float *state = xalloc(r->state_floats * sizeof(*state));
    bool is_same;

    read_state(r->model, slot, state);
    run_part(r, 0, n, 0, scratch);
    read_state(r->model, SLOT, r->got_state);
    is_same = memcmp(state, r->got_state, r->state_floats * sizeof(*state)) == 0;
    free(state);
    return is_same;
}

static void check_same_in(const struct run *r, const float *want, const float *got, int32_t slot,
                          const char *what)
{
    if (memcmp(want, got, r->n * r->n_vocab * sizeof(*got)) == 0 && is_state(r, slot))
        return;
    (void)fprintf(stderr, "other bits: %s\n", what);
    exit(EXIT_FAILURE);
}

static void check_same(const struct run *r, const float *want, const float *got, const char *what)
{
    check_same_in(r, want, got, SLOT, what);
}

/* A row that saves its state at several places, and parts that end there. */
static void check_saves(struct run *r, float *got)
{
    struct state_save saves[N_SAVES] = {{1, 0}, {16, 0}, {17, 0}, {r->n / 2, 0}, {r->n, 0}};
    const struct transformer_row row = {.ids = r->ids,
                                        .n_tokens = r->n,
                                        .pages = r->pages[0],
                                        .state = STATES_NONE,
                                        .saves = saves,
                                        .n_saves = N_SAVES};
    float *saved = xalloc((r->state_floats + 1) * sizeof(*saved));

    for (int32_t i = 0; i < N_SAVES; i++)
        saves[i].slot = SLOT_SAVES + i;
    must(transformer_forward(r->model, &row, 1, NULL, 0, &err));
    for (size_t i = 0, pos = 0; i < N_SAVES; pos = saves[i++].n_after) {
        run_part(r, pos, saves[i].n_after - pos, 0, got);
        read_state(r->model, SLOT_SAVES + (int32_t)i, saved);
        read_state(r->model, SLOT, r->got_state);
        if (memcmp(saved, r->got_state, r->state_floats * sizeof(*saved)) != 0)
            must(error_set(&err, STATUS_UNKNOWN, "other bits: state behind %zu tokens",
                           saves[i].n_after));
    }
    free(saved);
}

/* A copy of the last page, then the last token again after it: a fork. */
static void check_fork(struct run *r, const float *want, float *got)
{
    size_t last = (r->n - 1) / KV_PAGE_TOKENS, skip = (r->n - 1) * r->n_vocab;
    const struct kv_copy copy = {.from = r->pages[0][last], .to = PAGES - 1};
    const struct state_save save = {1, SLOT_FORK};
    int32_t pages[MAX_TOKENS / KV_PAGE_TOKENS];
    struct transformer_row row = {.ids = r->ids + r->n - 1,
                                  .n_tokens = 1,
                                  .pos = r->n - 1,
                                  .pages = pages,
                                  .state = SLOT,
                                  .saves = &save,
                                  .n_saves = 1,
                                  .n_logits = 1,
                                  .logits = got + skip};

    if (r->state_floats > 0)
        run_part(r, 0, r->n - 1, 0, got);

    memcpy(got, want, skip * sizeof(*got)); /* this runs the last token only */
    memcpy(pages, r->pages[0], sizeof(pages));
    pages[last] = PAGES - 1;
    must(transformer_forward(r->model, &row, 1, &copy, 1, &err));
    check_same_in(r, want, got, SLOT_FORK, "a fork");
}

/* The first pages are another conversation's, as the prefix cache hands them out. Their owner goes
 * on otherwise in the same steps: one that is taken for the other would show. */
static void check_shared_prefix(struct run *r, const float *want, float *got)
{
    size_t n_shared = r->n / 2 / KV_PAGE_TOKENS, from = n_shared * KV_PAGE_TOKENS, n;
    int32_t pages[MAX_TOKENS / KV_PAGE_TOKENS];

    memcpy(pages, r->pages[1], sizeof(pages));
    memcpy(pages, r->pages[0], n_shared * sizeof(*pages));
    run_part(r, 0, from, 0, got);
    for (size_t pos = from; pos < r->n; pos += n) {
        struct state_save saves[2] = {{.slot = SLOT_FORK}, {.slot = SLOT_BESIDE}};
        struct transformer_row rows[2] = {
            {.ids = r->ids + pos, .pos = pos, .pages = pages, .logits = got + pos * r->n_vocab},
            {.ids = r->ids, .pos = pos, .pages = r->pages[0]}};

        n = r->n - pos < 9 ? r->n - pos : 9;
        for (size_t i = 0; i < 2; i++) {
            rows[i].state = pos == 0 ? STATES_NONE : pos == from ? SLOT : saves[i].slot;
            rows[i].saves = &saves[i];
            rows[i].n_saves = 1;
            saves[i].n_after = n;
        }
        rows[0].n_tokens = rows[0].n_logits = rows[1].n_tokens = n;
        must(transformer_forward(r->model, rows, 2, NULL, 0, &err));
    }
    check_same_in(r, want, got, SLOT_FORK, "a shared prefix");
}

/* A draft that is rejected: other tokens are run, and then overwritten. */
static void check_speculation(struct run *r, const float *want, float *got)
{
    size_t half = r->n / 2, n_draft = r->n - half < 5 ? r->n - half : 5;
    int32_t draft[5] = {1, 2, 3, 4, 5};
    struct transformer_row row = {.ids = draft,
                                  .n_tokens = n_draft,
                                  .pos = half,
                                  .pages = r->pages[0],
                                  .state = state_at(half, SLOT),
                                  .logits = got};

    run_part(r, 0, half, 0, got);
    row.n_logits = 0;
    must(transformer_forward(r->model, &row, 1, NULL, 0, &err));
    run_part(r, half, r->n - half, 0, got);
    check_same(r, want, got, "a rejected draft");
}

/* Drafts of two rows, of which the first n_accepted of one are right, and all of the other: their
 * states are those behind them, and the same bits follow. */
static void check_accepted(struct run *r, const float *want, float *got, size_t n_accepted)
{
    const size_t half = r->n / 2, skip = half * r->n_vocab;
    const struct state_save saves[2] = {{2, SLOT_BESIDE}, {1, SLOT_FORK}};
    int32_t ids[1 + N_DRAFTS];
    struct transformer_row rows[2] = {{.ids = r->ids,
                                       .n_tokens = 2 + N_DRAFTS,
                                       .pages = r->pages[1],
                                       .state = STATES_NONE,
                                       .saves = &saves[0],
                                       .n_saves = 1,
                                       .n_drafts = N_DRAFTS,
                                       .n_accepted = N_DRAFTS - n_accepted},
                                      {.ids = ids,
                                       .n_tokens = 1 + N_DRAFTS,
                                       .pos = half,
                                       .pages = r->pages[0],
                                       .state = SLOT,
                                       .saves = &saves[1],
                                       .n_saves = 1,
                                       .n_drafts = N_DRAFTS,
                                       .n_accepted = n_accepted,
                                       .n_logits = 1 + N_DRAFTS,
                                       .logits = got + skip}};

    for (size_t i = 0; i < 1 + N_DRAFTS; i++)
        ids[i] = i <= n_accepted ? r->ids[half + i] : (r->ids[half + i] + 1) % (int32_t)r->n_vocab;
    run_part(r, 0, half, 0, got);
    must(transformer_forward(r->model, rows, 2, NULL, 0, &err));
    must(transformer_accept(r->model, rows, 2, &err));
    if (memcmp(want + skip, got + skip, (1 + n_accepted) * r->n_vocab * sizeof(*got)) != 0 ||
        !is_state_behind(r, half + 1 + n_accepted, SLOT_FORK, got) ||
        !is_state_behind(r, 2 + N_DRAFTS - n_accepted, SLOT_BESIDE, got))
        must(error_set(&err, STATUS_UNKNOWN, "other bits: %zu accepted drafts", n_accepted));
    /* The slot itself goes on, where it is read and written. */
    run_part(r, 0, half, 0, got);
    rows[1].saves = &(const struct state_save){1, SLOT};
    must(transformer_forward(r->model, rows + 1, 1, NULL, 0, &err));
    must(transformer_accept(r->model, rows + 1, 1, &err));
    run_part(r, half + 1 + n_accepted, r->n - half - 1 - n_accepted, 0, got);
    check_same(r, want, got, "after accepted drafts");
}

static void check_ways(const struct gguf *g, const char *backend, enum kv_type type, struct run *r,
                       const float *want, float *got)
{
    struct run other = *r;

    check_fork(r, want, got);
    check_shared_prefix(r, want, got);
    check_speculation(r, want, got);
    for (size_t i = 0; r->state_floats > 0 && i <= N_DRAFTS; i++)
        check_accepted(r, want, got, i);
    if (strcmp(backend, "cuda") == 0) /* further ways take minutes on a stand-in of the device */
        return;
    run_chunks(r, 7, 0, got);
    check_same(r, want, got, "chunks of 7");
    run_chunks(r, 16, 0, got);
    check_same(r, want, got, "chunks of 16");
    run_chunks(r, 100, 0, got);
    check_same(r, want, got, "chunks of 100");
    if (r->state_floats > 0)
        check_saves(r, got);
    run_chunks(r, 1, 0, got);
    check_same(r, want, got, "token by token");
    run_chunks(r, 50, 33, got);
    check_same(r, want, got, "beside another sequence");
    run_open(&other, g, backend, type, 2);
    run_chunks(&other, 64, 20, got);
    check_same(r, want, got, "two threads");
    run_close(&other);
}

/* The hidden states of tokens pos … pos + n - 1, in a step that also gives a row's logits. */
static void run_hidden_part(struct run *r, size_t pos, size_t n, float *logits, float *out)
{
    const size_t width = transformer_shape(r->model)->width;
    const struct state_save save = {n, SLOT};
    struct transformer_row rows[2] = {{.ids = r->ids + pos,
                                       .n_tokens = n,
                                       .pos = pos,
                                       .pages = r->pages[0],
                                       .state = state_at(pos, SLOT),
                                       .saves = &save,
                                       .n_saves = 1,
                                       .n_hidden = n,
                                       .hidden = out + pos * width},
                                      {.ids = r->ids,
                                       .n_tokens = 2,
                                       .pages = r->pages[1],
                                       .state = STATES_NONE,
                                       .n_logits = 1,
                                       .logits = logits}};

    must(transformer_forward(r->model, rows, 2, NULL, 0, &err));
}

/* out [n][width]. */
static void run_hidden(struct run *r, const float *want_logits, float *got_logits, float *out)
{
    const size_t width = transformer_shape(r->model)->width;
    float *again = xalloc(r->n * width * sizeof(*again));

    run_hidden_part(r, 0, r->n, got_logits, out);
    for (size_t pos = 0; pos < r->n; pos += 11)
        run_hidden_part(r, pos, r->n - pos < 11 ? r->n - pos : 11, got_logits, again);
    if (memcmp(again, out, r->n * width * sizeof(*out)) != 0 ||
        memcmp(got_logits, want_logits + r->n_vocab, r->n_vocab * sizeof(*got_logits)) != 0)
        must(error_set(&err, STATUS_UNKNOWN, "other bits: hidden states"));
    free(again);
}

static size_t read_ids(const char *path, int32_t ids[MAX_TOKENS])
{
    FILE *in = fopen(path, "re");
    size_t n = in != NULL ? fread(ids, sizeof(*ids), MAX_TOKENS, in) : 0;

    if (n == 0)
        must(error_set(&err, STATUS_NOT_FOUND, "%s: no token ids", path));
    (void)fclose(in); /* only read from */
    return n;
}

int main(int argc, char **argv)
{
    static int32_t ids[MAX_TOKENS];
    struct run r = {.ids = ids};
    struct gguf *g;
    enum kv_type type;
    float *want, *got, *hidden;
    size_t n_hidden;
    FILE *out;

    if (argc < 6 || argc > 8)
        return EXIT_FAILURE;
    r.max_context = argc > 6 ? strtoul(argv[6], NULL, 10) : 0;
    denormals_are_zero();
    type = strcmp(argv[3], "f32") == 0 ? KV_F32 : strcmp(argv[3], "f16") == 0 ? KV_F16 : KV_Q8;
    r.n = read_ids(argv[4], ids);
    must(gguf_open(&g, argv[1], &err));
    run_open(&r, g, argv[2], type, 1);
    want = xalloc(r.n * r.n_vocab * sizeof(*want));
    got = xalloc(r.n * r.n_vocab * sizeof(*got));
    run_part(&r, 0, r.n, 0, want);
    r.want_state = xalloc((r.state_floats + 1) * sizeof(*r.want_state));
    r.got_state = xalloc((r.state_floats + 1) * sizeof(*r.got_state));
    if (r.state_floats > 0)
        read_state(r.model, SLOT, r.want_state);
    n_hidden = argc < 8 ? r.n * transformer_shape(r.model)->width : 0;
    hidden = xalloc((n_hidden + 1) * sizeof(*hidden));
    if (argc < 8) {
        check_ways(g, argv[2], type, &r, want, got);
        run_hidden(&r, want, got, hidden);
    }
    out = fopen(argv[5], "we");
    if (out == NULL || fwrite(want, sizeof(*want), r.n * r.n_vocab, out) != r.n * r.n_vocab ||
        fwrite(hidden, sizeof(*hidden), n_hidden, out) != n_hidden || fclose(out) != 0)
        must(error_set(&err, STATUS_UNKNOWN, "%s: cannot be written", argv[5]));
    run_close(&r);
    gguf_close(g);
    free(want);
    free(got);
    free(hidden);
    free(r.want_state);
    free(r.got_state);
    return EXIT_SUCCESS;
}
