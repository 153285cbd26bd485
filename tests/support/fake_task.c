#include "tests/support/fake_task.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"

struct fake_clone {
    struct participant_clone base;
    size_t at, end;  /* of its episode: the next example, and one past the last */
    size_t due;      /* the example whose reply is awaited; n_examples: none */
    bool is_padding; /* the last act was */
};

static struct fake_task *task_of(const struct participant *p)
{
    return container_of((struct participant *)(uintptr_t)p, struct fake_task, base);
}

static struct fake_clone *clone_of(const struct participant_clone *c)
{
    return container_of((struct participant_clone *)(uintptr_t)c, struct fake_clone, base);
}

static void close_task(struct participant *p)
{
    struct fake_task *t = task_of(p);

    assert(atomic_load(&t->n_open) == atomic_load(&t->n_closed));
    arena_deinit(&t->arena);
    free(t->first);
    free(t->n_answered);
    free(t);
}

static void reset_shared(struct participant *p)
{
    struct fake_task *t = task_of(p);

    atomic_store(&t->next, 0);
    atomic_fetch_add(&t->n_resets, 1);
}

static size_t n_examples(const struct participant *p)
{
    return task_of(p)->n_examples;
}

static size_t n_episodes(const struct participant *p)
{
    return task_of(p)->n_episodes;
}

static void reset(struct participant_clone *base)
{
    struct fake_clone *c = clone_of(base);

    c->at = c->end = 0;
    c->due = task_of(base->original)->n_examples;
    c->is_padding = false;
}

static enum status clone_init(struct participant_clone *c, const struct participant_slot *place,
                              struct error *err)
{
    atomic_fetch_add(&task_of(c->original)->n_open, 1);
    reset(c);
    return STATUS_OK;
}

static void clone_deinit(struct participant_clone *c)
{
    atomic_fetch_add(&task_of(c->original)->n_closed, 1);
}

static enum status act(struct participant_clone *base, struct act *out, struct error *err)
{
    struct fake_clone *c = clone_of(base);
    struct fake_task *t = task_of(base->original);

    if (c->at == c->end) {
        size_t episode = atomic_fetch_add(&t->next, 1);

        if (t->is_endless)
            episode %= t->n_episodes;
        c->is_padding = episode >= t->n_episodes;
        if (c->is_padding) {
            c->due = t->n_examples;
            act_padding(out, out->arena);
            return STATUS_OK;
        }
        c->at = t->first[episode];
        c->end = t->first[episode + 1];
    }
    c->due = c->at++;
    act_share(out, &t->acts[c->due], out->arena);
    return STATUS_OK;
}

static bool is_right(const struct act *asked, const struct act *reply)
{
    const struct text *label = &act_labels(asked)->list.items[0];
    struct text said = act_text(reply);

    return said.len == label->len && memcmp(said.text, label->text, said.len) == 0;
}

static enum status observe(struct participant_clone *base, const struct act *reply,
                           const struct act **ret_observation, struct error *err)
{
    struct fake_clone *c = clone_of(base);
    struct fake_task *t = task_of(base->original);

    *ret_observation = reply;
    if (c->due == t->n_examples)
        return STATUS_OK;
    atomic_fetch_add(&t->n_answered[c->due], 1);
    atomic_fetch_add(&t->n_right, is_right(&t->acts[c->due], reply));
    c->due = t->n_examples;
    return STATUS_OK;
}

static bool epoch_done(const struct participant_clone *base)
{
    const struct fake_clone *c = clone_of(base);
    const struct fake_task *t = task_of(base->original);

    return c->is_padding || (!t->is_endless && c->at == c->end && c->end > 0 &&
                             atomic_load(&t->next) >= t->n_episodes);
}

static const struct participant_type fake_task_type = {
    .name = "fake_task",
    .clone_size = sizeof(struct fake_clone),
    .close = close_task,
    .reset_shared = reset_shared,
    .n_examples = n_examples,
    .n_episodes = n_episodes,
    .clone_init = clone_init,
    .clone_deinit = clone_deinit,
    .reset = reset,
    .observe = observe,
    .act = act,
    .epoch_done = epoch_done,
};

/* "e3 t1 w w w": n words, the first ones name the example. */
static struct text words(struct fake_task *t, const char *what, size_t example, uint32_t n)
{
    char *text = arena_alloc(&t->arena, 32 + 2 * (size_t)n, 1);
    size_t len = 0;

    assert(text != NULL);
    if (n > 0)
        len = (size_t)snprintf(text, 32, "%s%zu", what, example);
    for (uint32_t i = 1; i < n; i++) {
        memcpy(text + len, " w", 2);
        len += 2;
    }
    return (struct text){text, len};
}

static void make_act(struct fake_task *t, size_t i, struct text id)
{
    const struct fake_example *e = &t->examples[i];
    struct text *labels = arena_alloc(&t->arena, 1, sizeof(*labels));
    bool is_last = i + 1 == t->n_examples || t->examples[i + 1].episode != e->episode;
    struct act *a = &t->acts[i];
    struct error err;
    enum status rc;

    assert(labels != NULL);
    labels[0] = words(t, "l", i, e->label_words);
    act_init(a, &t->arena);
    rc = act_set(a, ACT_ID, value_text(id), &err);
    if (rc == STATUS_OK)
        rc = act_set(a, ACT_TEXT, value_text(words(t, "x", i, e->text_words)), &err);
    if (rc == STATUS_OK)
        rc = act_set(a, ACT_EVAL_LABELS, value_list(labels, 1), &err);
    if (rc == STATUS_OK)
        rc = act_set(a, ACT_EPISODE_DONE, value_bool(is_last), &err);
    assert(rc == STATUS_OK);
}

struct fake_task *fake_task_open(const char *id, const struct fake_example *examples, size_t n)
{
    struct fake_task *t = xalloc(sizeof(*t));
    size_t len = strlen(id);

    participant_init(&t->base, &fake_task_type);
    t->examples = examples;
    t->n_examples = n;
    t->n_episodes = examples[n - 1].episode + 1;
    arena_init(&t->arena, SIZE_MAX);
    t->first = xalloc((t->n_episodes + 1) * sizeof(t->first[0]));
    t->n_answered = xalloc(n * sizeof(t->n_answered[0]));
    t->acts = arena_alloc(&t->arena, n, sizeof(t->acts[0]));
    assert(t->acts != NULL);
    for (size_t i = n; i-- > 0;)
        t->first[examples[i].episode] = i;
    t->first[t->n_episodes] = n;
    id = arena_strndup(&t->arena, id, len);
    assert(id != NULL);
    for (size_t i = 0; i < n; i++)
        make_act(t, i, (struct text){id, len});
    return t;
}

struct fake_example *fake_examples(size_t n, size_t turns)
{
    struct fake_example *examples = xalloc(n * turns * sizeof(examples[0]));

    for (size_t i = 0; i < n * turns; i++)
        examples[i] = (struct fake_example){.episode = i / turns,
                                            .turn = i % turns,
                                            .text_words = (uint32_t)(1 + i * 7 % 9),
                                            .label_words = (uint32_t)(1 + i * 5 % 3)};
    return examples;
}

size_t fake_task_example(const struct fake_task *t, const struct act *a)
{
    struct text said = act_text(a);

    for (size_t i = 0; i < t->n_examples; i++) {
        struct text text = act_text(&t->acts[i]);

        if (text.len == said.len && (said.len == 0 || memcmp(text.text, said.text, said.len) == 0))
            return i;
    }
    return t->n_examples;
}

bool fake_task_is_even(const struct fake_task *t, unsigned n)
{
    for (size_t i = 0; i < t->n_examples; i++)
        if (atomic_load(&t->n_answered[i]) != n)
            return false;
    return true;
}

size_t fake_task_n_answers(const struct fake_task *t)
{
    size_t sum = 0;

    for (size_t i = 0; i < t->n_examples; i++)
        sum += atomic_load(&t->n_answered[i]);
    return sum;
}
