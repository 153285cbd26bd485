/* What tests of teachers share: files in a folder of their own, a teacher over one, and clones. */
#ifndef TESTS_UNIT_WORLDS_TEACHERS_RIG_H
#define TESTS_UNIT_WORLDS_TEACHERS_RIG_H

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/teacher.h"

static char rig_folder[] = "/tmp/parley-test-XXXXXX";
static struct error rig_err;

/* The path of a file in the folder; of the last few calls. */
static inline const char *rig_path(const char *name)
{
    static char paths[8][128];
    static size_t next;
    char *path = paths[next++ % 8];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", rig_folder, name);
    return path;
}

static inline void rig_write_bytes(const char *name, const void *bytes, size_t n)
{
    FILE *out = fopen(rig_path(name), "we");

    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes, 1, n, out), n);
    ck_assert_int_eq(fclose(out), 0);
}

static inline void rig_write(const char *name, const char *text)
{
    rig_write_bytes(name, text, strlen(text));
}

static inline int rig_run(const char *name, const TTest *const *tests, size_t n,
                          int (*run)(const char *, const TTest *const *, size_t))
{
    char command[64];
    int rc;

    if (mkdtemp(rig_folder) == NULL)
        return EXIT_FAILURE;
    rc = run(name, tests, n);
    (void)snprintf(command, sizeof(command), "rm -r %s", rig_folder);
    if (system(command) != 0)
        rc = EXIT_FAILURE;
    return rc;
}

/* A teacher of PREFIX:FILE in the folder. */
static inline enum status rig_open(struct teacher **out, const char *prefix, const char *name,
                                   const struct teacher_config *config)
{
    char task[200];

    (void)snprintf(task, sizeof(task), "%s:%s", prefix, rig_path(name));
    return teacher_open(out, task, config, &rig_err);
}

struct rig_clone {
    struct participant_clone *c;
    struct arena arena; /* of the last act */
    struct act said;
};

static inline void rig_clone_init(struct rig_clone *r, struct teacher *t, uint32_t thread)
{
    struct participant *p = teacher_participant(t);

    r->c = calloc(1, participant_clone_size(p));
    ck_assert_ptr_nonnull(r->c);
    ck_assert_int_eq(
        participant_clone_init(r->c, p, &(struct participant_slot){0, thread}, &rig_err),
        STATUS_OK);
    arena_init(&r->arena, SIZE_MAX);
}

static inline void rig_clone_deinit(struct rig_clone *r)
{
    participant_clone_deinit(r->c);
    free(r->c);
    arena_deinit(&r->arena);
}

/* Says the next act; true when the clone then says that the epoch is done. */
static inline bool rig_act(struct rig_clone *r)
{
    arena_deinit(&r->arena);
    act_init(&r->said, &r->arena);
    ck_assert_msg(r->c->original->type->act(r->c, &r->said, &rig_err) == STATUS_OK, "%s",
                  rig_err.text);
    return r->c->original->type->epoch_done(r->c);
}

/* The text of the last act, ended by NUL. */
static inline const char *rig_text(struct rig_clone *r)
{
    struct text t = act_text(&r->said);
    char *text = arena_strndup(&r->arena, t.text == NULL ? "" : t.text, t.len);

    ck_assert_ptr_nonnull(text);
    return text;
}

static inline void rig_close(struct teacher *t)
{
    participant_unref(teacher_participant(t));
}

#endif
