#include "server/service/plan.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"

#define HEAD "world_module: parley.worlds\noverworld: menu\ntask_name: t\nmax_workers: 1\n"
#define ONE HEAD "tasks:\n  a:\n    task_world: echo\n"

static enum status open_text(struct service_plan **out, const char *text, size_t len,
                             struct error *err)
{
    char path[] = "/tmp/test-plan-XXXXXX";
    const int fd = mkstemp(path);
    enum status rc;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
    (void)close(fd);
    rc = service_plan_open(out, path, err);
    (void)unlink(path);
    return rc;
}

/* The message for a wrong file has the line, the key, and the values that the key takes. */
START_TEST(test_wrong)
{
    static const struct {
        const char *yaml, *error;
    } rows[] = {
        {"", ": is empty"},
        {"- a\n", ":1: must be KEY: VALUE on each line"},
        {"a: [\n", ": no YAML: "},
        {"overworld: menu\n", ": the key 'world_module' is missing: add it"},
        {"world_module: parley.worlds\n", ": the key 'overworld' is missing: add it"},
        {"world_module: parley.worlds\noverworld: menu\n", ": the key 'max_workers' is missing"},
        {"world_module: parley.worlds\noverworld: menu\nmax_workers: 1\n",
         "'task_name' is missing"},
        {HEAD, ": the key 'tasks' is missing: add it"},
        {HEAD "tasks: {}\n", ": the key 'tasks' is missing: add it"},
        {HEAD "tasks: 3\n", ":5: tasks: must be a mapping of names to tasks"},
        {HEAD "tasks:\n  a:\n", ":6: tasks.a: must be a mapping"},
        {HEAD "tasks:\n  a: {timeout: 3}\n", ":6: tasks.a.task_world: is missing: add it"},
        {ONE "    timout: 3\n", ":8: tasks.a: there is no key 'timout', did you mean 'timeout'?"},
        {ONE "    blargh: 3\n", ":8: tasks.a: there is no key 'blargh': remove it, or use one of "
                                "onboard_world, task_world"},
        {ONE "    timeout: soon\n", ":8: tasks.a.timeout: must be a whole number from 0 to 604800"},
        {ONE "    timeout: -1\n", ":8: tasks.a.timeout: must be a whole number"},
        {ONE "    timeout: 99999999999999999999\n", ":8: tasks.a.timeout: must be a whole number"},
        {ONE "    timeout: [1]\n", ":8: tasks.a.timeout: must be a whole number"},
        {ONE "    timeout: 3\n    timeout: 3\n", ":9: tasks.a.timeout: is given twice: remove one"},
        {ONE "    timeout: 9\n    agents_required: 2\n",
         ":9: tasks.a.agents_required: must give echo from 1 to 1 people, it gives 2"},
        {ONE "    backup_task: talk\n", ":8: tasks.a.backup_task: there is no task 'talk'"},
        {ONE "    title: \"a\\nb\"\n", ":8: tasks.a.title: must be one line of 1 to 128 bytes"},
        {ONE "  \"a\\u202Eb\": {task_world: echo}\n", ":8: tasks: a task's name must be one line"},
        {ONE "    next: talc\n  talk: {task_world: echo}\n",
         ":8: tasks.a.next: there is no task 'talc', did you mean 'talk'?"},
        {ONE "    policy: every\n", ":8: tasks.a.policy: is of an agent, and this task_world has "
                                    "none: use chat"},
        {ONE "    max_tokens: 256\n", ":8: tasks.a.max_tokens: is of an agent"},
        {ONE "    ask: []\n", ":8: tasks.a.ask: is of an onboarding: add onboard_world: form"},
        {ONE "    onboard_closing: x\n", ":8: tasks.a.onboard_closing: is of an onboarding"},
        {ONE
         "    onboard_world: form\n    ask:\n    - {key: k, text: t}\n    - {key: k, text: u}\n",
         ":11: tasks.a.ask: has two questions with one key: rename one"},
        {ONE "    eligible: {topic: tea}\n", ":8: tasks.a.eligible: no form asks for 'topic'"},
        {ONE
         "    onboard_world: form\n    ask: [{key: topic, text: t}]\n    eligible: {topik: t}\n",
         ":10: tasks.a.eligible: no form asks for 'topik', did you mean 'topic'?"},
        {ONE
         "    onboard_world: form\n    ask: [{key: k, text: t, choices: [coffee], strict: yes}]\n"
         "    eligible: {k: coffe}\n",
         ":10: tasks.a.eligible: nobody can choose 'coffe', did you mean 'coffee'?"},
        {ONE "    onboard_world: form\n    ask: [{key: k}]\n", "a question needs key and text"},
        {ONE "    onboard_world: form\n    ask: [{key: k, text: t, strict: true}]\n",
         "a strict question needs choices"},
        {ONE "    onboard_world: form\n    ask: [{key: k, text: t, strict: maybe}]\n",
         "ask.strict: must be true or false"},
        {ONE "    onboard_world: frm\n",
         ":8: tasks.a.onboard_world: parley.worlds has no world 'frm', only form"},
        {ONE "  a: {task_world: echo}\n", ":8: tasks: has two tasks of one name: rename one"},
        {ONE "  exit: {task_world: echo}\n", "EXIT is what people type to leave"},
        {ONE "  b: {task_world: echo, title: A}\n", ":8: tasks.b.title: is that of another task"},
        {ONE "  b: {task_world: tell, next: c}\n  c: {task_world: tell, next: b}\n",
         ":8: tasks.b.next: leads in a circle of tasks that end at once"},
        {ONE "  b: {task_world: relay, agents_required: 2, roles: [x, null]}\n",
         "agents_required: must give relay from 2 to 64 people, it gives 1"},
        {ONE "  b: {task_world: relay, agents_required: 2, roles: [x, y, z]}\n",
         ":8: tasks.b.roles: has more roles than agents_required"},
        {ONE "  b: {task_world: relay, agents_required: 2, roles: [x, x]}\n",
         ":8: tasks.b.roles: has one name twice: rename one"},
        {ONE "  b: {task_world: relay, agents_required: 2, roles: [x, \"y:z\"]}\n",
         ":8: tasks.b.roles: must be names: one line"},
        {ONE "  b: {task_world: chat, policy: often}\n",
         "tasks.b.policy: must be every, named, or a number n: each n-th text"},
        {ONE "  b: {task_world: chat, names: some}\n", "names: must be auto, always or never"},
        {ONE "  b: {task_world: 'attached:'}\n",
         "has no world 'attached:', only tell, echo, relay, "
         "chat, attached:NAME"},
        {ONE "  b: {task_world: 'attached:p', roles: []}\n",
         ":8: tasks.b.roles: must have a name for each"},
        {ONE "  b: {task_world: 'attached:p', roles: [~]}\n",
         "agents_required: must give attached:NAME from 1 to 64 people, it gives 0"},
        {ONE "  b: {task_world: 'attached:p', roles: [x], model: m}\n",
         ":8: tasks.b.model: is of an agent"},
        {ONE "  b: {task_world: 'attached:p', roles: [x], max_tokens: 0}\n",
         ":8: tasks.b.max_tokens: is of an agent"},
        {ONE "  b: {task_world: 'attached:a name that is longer than thirty-two', roles: [x]}\n",
         ":8: tasks.b.task_world: the world's name has more than 32 characters"},
        {ONE "opt: {passwort: x}\n", ":8: opt: there is no key 'passwort', did you mean "
                                     "'password'?"},
        {ONE "additional_args: {foo: x}\n", "remove it, or use one of page_id, load_model"},
        {ONE "opt: {password: \"\"}\n", "opt.password: must be one line of 1 to 128 bytes"},
        {ONE "max_workers: 0\n", ":8: max_workers: is given twice"},
        {"max_workers: 0\n", ":1: max_workers: must be a whole number from 1 to 1000000"},
        {"world_module: my.worlds\noverworld: X\ntask_name: t\nmax_workers: 1\n"
         "tasks: {a: {task_world: Y}}\n",
         ":1: world_module: there is no 'my.worlds', use parley.worlds, or "},
        {"world_module: parlai.chat_service.tasks.chatbot.worlds\noverworld: X\ntask_name: t\n"
         "max_workers: 1\ntasks: {a: {task_world: Y}}\n",
         ":2: overworld: parlai.chat_service.tasks.chatbot.worlds has no world 'X', only "
         "MessengerOverworld"},
        {"world_module: parlai.chat_service.tasks.chatbot.worlds\noverworld: MessengerOverworld\n"
         "task_name: t\nmax_workers: 1\ntasks: {a: {task_world: echo}}\n",
         "has no world 'echo', only MessengerBotChatTaskWorld"},
        {ONE "<<: {}\n", "there is no key '<<'"},
        {ONE "? [a]\n: b\n", "keys must be texts"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct service_plan *p = NULL;
        struct error err = {0};

        ck_assert_msg(open_text(&p, rows[i].yaml, strlen(rows[i].yaml), &err) == STATUS_INVALID,
                      "row %zu is taken", i);
        ck_assert_msg(strstr(err.text, rows[i].error) != NULL, "row %zu: %s", i, err.text);
    }
}
END_TEST

START_TEST(test_defaults)
{
    static const char yaml[] = ONE "    timeout: 0\n    agents_required: 0\n"
                                   "  b: {task_world: chat}\n"
                                   "  c: {task_world: 'attached:w:a\"b:c', roles: [x]}\n"
                                   "opt: {debug: true, models: {m1: {model: x}, m2: }}\n"
                                   "additional_args: {page_id: 1}\n";
    struct service_plan *p;
    struct error err;

    ck_assert_int_eq(open_text(&p, yaml, strlen(yaml), &err), STATUS_OK);
    ck_assert_uint_eq(p->pools[0].timeout_s, 300);
    ck_assert_uint_eq(p->pools[0].notice_s, 30);
    ck_assert_uint_eq(p->pools[0].n_people, 1);
    ck_assert_uint_eq(p->grace_s, 120);
    ck_assert_str_eq(p->pools[1].model, "m1");
    ck_assert_str_eq(p->pools[1].agent_name, "m1");
    ck_assert_uint_eq(p->pools[1].max_tokens, 256);
    ck_assert_str_eq(p->pools[2].model, "w");
    ck_assert_uint_eq(p->pools[2].max_tokens, 0);
    ck_assert_str_eq(p->pools[2].system,
                     "{\"argument\":\"a\\\"b:c\",\"script\":true,\"whole\":true}");
    ck_assert_uint_eq(p->n_ignored, 3);
    ck_assert_str_eq(p->ignored[0], "opt.debug");
    ck_assert_str_eq(p->ignored[1], "opt.models.m1");
    ck_assert_str_eq(p->ignored[2], "additional_args.page_id");
    service_plan_close(p);
    ck_assert_int_eq(service_plan_open(&p, "/nowhere/x.yaml", &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot be read"));
    service_plan_close(NULL);
}
END_TEST

/* Every prefix of a file, and each byte of it turned into others, is read or refused. */
START_TEST(test_torn)
{
    static const char yaml[] = HEAD
        "opt: {password: x, models: {m: {a: b}}}\ntasks:\n  a: {task_world: chat, roles: [j, ~],"
        " agents_required: 2, eligible: {k: x}, policy: 3}\n  b: {onboard_world: form, ask: "
        "[{key: k, text: t, choices: [x, y], strict: yes}], task_world: tell, next: a}\n";
    static const char others[] = "{}[]:,-#&*!|>'\"%@`\n\t\x01 \xff\x00";
    char text[sizeof(yaml)];
    struct service_plan *p;
    struct error err;

    for (size_t len = 0; len < sizeof(yaml); len++)
        if (open_text(&p, yaml, len, &err) == STATUS_OK)
            service_plan_close(p);
    for (size_t at = 0; at + 1 < sizeof(yaml); at += 3)
        for (size_t i = 0; i < sizeof(others) - 1; i++) {
            memcpy(text, yaml, sizeof(yaml));
            text[at] = others[i];
            if (open_text(&p, text, sizeof(yaml) - 1, &err) == STATUS_OK)
                service_plan_close(p);
        }
}
END_TEST

SUITE_MAIN("server/service/plan", test_wrong, test_defaults, test_torn)
