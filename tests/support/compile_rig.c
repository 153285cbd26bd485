#include "tests/support/compile_rig.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agents/constraint/form.h"
#include "agents/lm/grammar/vocab_file.h"

enum { N_BYTES = 256 };

void compile_rig_open(struct compile_rig *r)
{
    static char bytes[N_BYTES];
    const char *texts[N_BYTES + 1];
    size_t lens[N_BYTES + 1];
    const int32_t end = N_BYTES;
    struct error err;

    (void)signal(SIGPIPE, SIG_IGN); /* as parleyd */
    for (int i = 0; i <= N_BYTES; i++) {
        bytes[i % N_BYTES] = (char)i;
        texts[i] = i < N_BYTES ? &bytes[i] : "";
        lens[i] = i < N_BYTES;
    }
    ck_assert_int_eq(vocab_file_make(&r->vocab_fd, texts, lens, N_BYTES + 1, &end, 1, &err),
                     STATUS_OK);
    ck_assert_int_eq(uv_loop_init(&r->loop), 0);
    compiler_init(&r->compiler, &r->loop);
    ck_assert_int_eq(compiler_user_open(&r->user, &r->compiler, &err), STATUS_OK);
    r->real = strdup(getenv("PARLEY_COMPILE"));
    (void)snprintf(r->script, sizeof(r->script), "/tmp/parley-compile.%06d",
                   (int)getpid() % 1000000);
}

void compile_rig_close(struct compile_rig *r)
{
    compiler_user_close(r->user);
    compiler_close(&r->compiler);
    ck_assert_int_eq(uv_run(&r->loop, UV_RUN_DEFAULT), 0);
    ck_assert_uint_eq(compiler_count(&r->compiler).n_processes, 0);
    ck_assert_int_eq(uv_loop_close(&r->loop), 0);
    (void)close(r->vocab_fd);
    compile_rig_use(r, NULL);
    (void)unlink(r->script); /* if there is one */
    free(r->real);
}

void compile_rig_use(struct compile_rig *r, const char *commands)
{
    char made[sizeof(r->script)];
    FILE *f;
    int fd;

    if (commands == NULL) {
        ck_assert_int_eq(setenv("PARLEY_COMPILE", r->real, 1), 0);
        return;
    }
    memcpy(made, r->script, sizeof(made));
    memcpy(strrchr(made, '.') + 1, "XXXXXX", 6);
    fd = mkstemp(made);
    ck_assert_int_ge(fd, 0);
    f = fdopen(fd, "w");
    fprintf(f, "#!/bin/sh\n%s\n", commands);
    ck_assert_int_eq(fchmod(fd, 0700), 0);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(rename(made, r->script), 0); /* one that was started reads the old one */
    ck_assert_int_eq(setenv("PARLEY_COMPILE", r->script, 1), 0);
}

static void on_done(struct compile_job *job, char *bytes, size_t len, const struct error *err)
{
    struct rig_job *j = container_of(job, struct rig_job, job);

    j->bytes = bytes;
    j->n_bytes = len;
    j->err = *err;
    j->n_done++;
}

void compile_rig_job(struct compile_rig *r, struct rig_job *j, const char *regex)
{
    *j = (struct rig_job){
        .job = {.form = CONSTRAINT_REGEX,
                .text = regex,
                .len = strlen(regex),
                .vocab_fd = r->vocab_fd,
                .n_tokens = N_BYTES + 1,
                .done = on_done},
    };
}

enum status compile_rig_submit(struct compile_rig *r, struct rig_job *j)
{
    const struct agent_compiler *c = compiler_user_agents(r->user);
    enum status rc = c->submit(c->self, &j->job, &j->err);

    ck_assert_uint_eq(j->n_done, 0);
    return rc;
}

void compile_rig_cancel(struct compile_rig *r, struct rig_job *j)
{
    const struct agent_compiler *c = compiler_user_agents(r->user);

    c->cancel(c->self, &j->job);
}

void compile_rig_await(struct compile_rig *r, struct rig_job *j)
{
    while (j->n_done == 0)
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    ck_assert_uint_eq(j->n_done, 1);
}

void compile_rig_settle(struct compile_rig *r, size_t n_processes)
{
    while (compiler_count(&r->compiler).n_processes > n_processes)
        (void)uv_run(&r->loop, UV_RUN_ONCE);
    ck_assert_uint_eq(compiler_count(&r->compiler).n_processes, n_processes);
}
