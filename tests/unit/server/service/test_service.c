/* Plays scripts against the chat service, with a clock that the script turns and an agent that
 * answers "re: " and all that it heard. A line of a script is one of:
 *
 *   A> text         A says it; from "A" to "H"
 *   A< text [x|y]   A is told exactly this, with these quick replies, and no other message before
 *   A=waiting       A is there, and has nothing more to read
 *   A-              A's connection is lost
 *   A~              A connects again; a person whose letter is small in ids says its id first
 *   A%              A wants to be told where it is
 *   A@x y pool 1/2  it was told that it was at x, and is told that it is at y: for the task of this
 *                   pool, as the first of two who wait
 *   A@              it is not told where it is
 *   +30             seconds pass
 *   !               the agent fails
 *   *               the agent answers now; * text: it answers this
 *   ? text          the agent was asked this
 *   #               the process is killed, a later one has the journal, and people come back to it
 *
 * Each script is also played with a kill behind each of its lines, where its people may come back,
 * and have got what they were told.
 */
#include "server/service/service.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alarm.h"
#include "base/buf.h"
#include "base/env.h"
#include "server/journal/body_bytes.h"
#include "server/service/keeping.h"
#include "server/service/scene.h"
#include "server/service/user.h"
#include "server/service/worlds.h"
#include "tests/fault/sweep.h"
#include "tests/support/memory_store.h"
#include "tests/unit/base/suite.h"

enum { N_PEERS = 8 };

static uint64_t now_us;
static struct alarm alarm_of_service;
static struct chat_service service;
static struct service_plan *plan;
static struct service_peer peers[N_PEERS];
static bool has_ended[N_PEERS];
static char logged[4096];
static uv_loop_t loop;
static struct journal *j; /* NULL: nothing is kept */
static bool kills_always; /* behind each line of a script */
static unsigned n_notified;

static uint64_t clock_now_us(void *self)
{
    return now_us;
}

static void clock_random(void *self, void *out, size_t n_bytes)
{
    static unsigned n_drawn;

    memset(out, 7, n_bytes);
    n_drawn++;
    memcpy(out, &n_drawn, n_bytes < sizeof(n_drawn) ? n_bytes : sizeof(n_drawn));
}

static const struct env fake_env = {clock_now_us, clock_random, NULL};

/* --- an agent --- */

struct service_agent {
    struct scene *scene;
    char heard[512], asked[512];
    bool is_asked;
};

static struct service_agent *only_agent;       /* the last opened */
static enum status agent_status, reset_status; /* of ask and of reset */
static enum reason agent_reason;               /* of ask */
static size_t n_agents, n_left, n_forgotten;
static uint64_t written_turn; /* as agents were told */

static enum status fake_open(void *self, struct service_agent **out, struct scene *s,
                             const struct service_pool_plan *pool, struct error *err)
{
    struct service_agent *a;

    if (strcmp(pool->model, "missing") == 0)
        return error_set(err, STATUS_NOT_FOUND, "there is no model 'missing'");
    a = try_alloc(1, sizeof(*a));
    if (a == NULL)
        return error_no_memory(err, sizeof(*a), "an agent");
    a->scene = s;
    only_agent = a;
    n_agents++;
    *out = a;
    return STATUS_OK;
}

static enum status fake_hear(struct service_agent *a, const char *name, const char *text,
                             struct error *err)
{
    const size_t at = strlen(a->heard);

    (void)snprintf(a->heard + at, sizeof(a->heard) - at, "%s%s%s%s", at == 0 ? "" : " | ",
                   name == NULL ? "" : name, name == NULL ? "" : ": ", text);
    return STATUS_OK;
}

static void fake_take_heard(struct service_agent *a)
{
    a->is_asked = true;
    memcpy(a->asked, a->heard, sizeof(a->heard));
    a->heard[0] = '\0';
}

static enum status fake_ask(struct service_agent *a, struct error *err)
{
    if (agent_status != STATUS_OK)
        return error_because(err, agent_status, agent_reason, NULL,
                             "1024 requests are waiting already");
    ck_assert(!a->is_asked);
    fake_take_heard(a);
    return STATUS_OK;
}

static enum status fake_reset(struct service_agent *a, struct error *err)
{
    a->heard[0] = '\0';
    a->is_asked = false;
    return reset_status == STATUS_OK ? STATUS_OK : error_set(err, reset_status, "no reset");
}

static void fake_close(struct service_agent *a)
{
    n_agents--;
    if (only_agent == a)
        only_agent = NULL;
    free(a);
}

static void fake_leave(struct service_agent *a)
{
    n_left++;
    fake_close(a);
}

static void fake_keep(const struct service_agent *a, struct body_writer *w)
{
    body_put_u32(w, 7);
}

static enum status fake_restore(void *self, struct service_agent **out, struct scene *s,
                                const struct service_pool_plan *pool, struct body_reader *body,
                                struct error *err)
{
    ck_assert_uint_eq(body_take_u32(body), 7);
    ck_assert_int_eq(body_end(body, err), STATUS_OK);
    return fake_open(self, out, s, pool, err);
}

static void fake_go_on(struct service_agent *a, bool is_asked)
{
    if (is_asked)
        fake_take_heard(a);
}

static void fake_forget(void *self, struct body_reader *body)
{
    struct error err;

    ck_assert_uint_eq(body_take_u32(body), 7);
    ck_assert_int_eq(body_end(body, &err), STATUS_OK);
    n_forgotten++;
}

static void fake_written(void *self, uint64_t turn)
{
    written_turn = turn;
}

static void fake_end(void *self)
{
}

static const struct service_agents fake_agents = {.open = fake_open,
                                                  .hear = fake_hear,
                                                  .ask = fake_ask,
                                                  .reset = fake_reset,
                                                  .close = fake_close,
                                                  .keep = fake_keep,
                                                  .restore = fake_restore,
                                                  .go_on = fake_go_on,
                                                  .leave = fake_leave,
                                                  .forget = fake_forget,
                                                  .written = fake_written,
                                                  .end = fake_end};

/* answer "": what it answers by itself. */
static void agent_answers(const char *answer)
{
    char text[600];

    ck_assert_ptr_nonnull(only_agent);
    ck_assert(only_agent->is_asked);
    (void)snprintf(text, sizeof(text), "%s%s", answer[0] == '\0' ? "re: " : answer + 1,
                   answer[0] == '\0' ? only_agent->asked : "");
    only_agent->is_asked = false;
    service_answered(only_agent->scene, text);
}

/* --- the script --- */

static void on_notify(struct service_peer *p)
{
    n_notified++;
}

static void on_end(struct service_peer *p, enum service_end why, const char *text)
{
    has_ended[p - peers] = true;
}

static void on_log(void *arg, const char *line, size_t len)
{
    (void)snprintf(logged, sizeof(logged), "%.*s", (int)len, line);
}

static uint64_t wall_later_ms;
static bool starts_machine; /* before the next process */

static uint64_t wall_ms(void)
{
    return 1700000000000 + wall_later_ms + now_us / 1000;
}

/* What was appended is durable, and what follows from that: the journal's thread rests. */
static void settle(void)
{
    if (j == NULL)
        return;
    do {
        memory_store_settle(j, &loop);
        if (alarm_of_service.at_us != 0 && alarm_of_service.at_us <= now_us)
            alarm_ring(&alarm_of_service);
    } while (service.keeping->n_writing > 0);
}

static void begin_process(bool is_kept)
{
    const struct service_config config = {.env = &fake_env,
                                          .alarm = &alarm_of_service,
                                          .agents = &fake_agents,
                                          .log = on_log,
                                          .metadata_path = "talks.metadata",
                                          .plan = plan};

    if (starts_machine) {
        wall_later_ms += now_us / 1000;
        now_us = 1000;
        starts_machine = false;
    }
    alarm_of_service = (struct alarm){.tick = service_tick, .owner = &service};
    service_init(&service, &config);
    for (size_t i = 0; i < N_PEERS; i++) {
        has_ended[i] = false;
        service_peer_init(&peers[i], &service, on_notify, on_end);
    }
    if (!is_kept)
        return;
    j = memory_store_open(&loop, 0);
    service_keep(&service, &(struct service_storage){.journal = j, .unix_ms = wall_ms});
    settle();
}

static void begin_plan_kept(const char *yaml, bool is_kept)
{
    char path[] = "/tmp/test-service-XXXXXX";
    const int fd = mkstemp(path);
    struct error err;
    enum status rc;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, yaml, strlen(yaml)), (ssize_t)strlen(yaml));
    (void)close(fd);
    rc = service_plan_open(&plan, path, &err);
    (void)unlink(path);
    ck_assert_msg(rc == STATUS_OK, "%s", err.text);
    now_us = 1000000;
    wall_later_ms = 0;
    logged[0] = '\0';
    agent_status = reset_status = STATUS_OK;
    agent_reason = REASON_NONE;
    store.n = 0;
    begin_process(is_kept);
}

static void begin_plan(const char *yaml)
{
    begin_plan_kept(yaml, false);
}

static void end_process(void)
{
    service_end(&service);
    ck_assert_uint_eq(service.n_users.held + service.bytes.held, 0);
    ck_assert_uint_eq(service.n_waiting + service.n_tasks + n_agents, 0);
    if (j != NULL)
        memory_store_close(j, &loop);
    j = NULL;
    service_deinit(&service);
}

static void end_plan(void)
{
    for (size_t i = 0; i < N_PEERS; i++)
        service_peer_close(&peers[i]);
    end_process();
    service_plan_close(plan);
}

/* The alarm rings at its times, as a loop's does. */
static void pass_s(unsigned s)
{
    const uint64_t until = now_us + (uint64_t)s * 1000000;

    while (alarm_of_service.at_us != 0 && alarm_of_service.at_us <= until) {
        if (alarm_of_service.at_us > now_us)
            now_us = alarm_of_service.at_us;
        alarm_ring(&alarm_of_service);
    }
    now_us = until;
}

static void message_text(char *out, size_t size, const struct service_message *m)
{
    size_t at = (size_t)snprintf(out, size, "%s", m->text);

    for (size_t i = 0; i < m->n_quick_replies; i++)
        at +=
            (size_t)snprintf(out + at, size - at, "%s%s", i == 0 ? " [" : "|", m->quick_replies[i]);
    if (m->n_quick_replies > 0)
        at += (size_t)snprintf(out + at, size - at, "]");
    if (m->payload != NULL)
        (void)snprintf(out + at, size - at, " %s", m->payload);
}

static const char *secret_of(size_t peer)
{
    static char id[] = "secret-of-person-A";

    id[sizeof(id) - 2] = (char)('A' + peer);
    return id;
}

/* The person comes back, without saying anything that counts: too long a text is only answered. */
static void come_back(size_t peer)
{
    static char text[SERVICE_TEXT_MAX_BYTES + 2];
    struct service_message *m;
    struct service_user *u;
    struct error err;

    memset(text, 'x', sizeof(text) - 1);
    ck_assert_int_eq(service_peer_said(&peers[peer], secret_of(peer), text, NULL, &err), STATUS_OK);
    u = peers[peer].user;
    m = container_of(list_last(&u->untaken), struct service_message, link);
    ck_assert_str_eq(m->text, "This message is too long: it was not delivered.");
    list_remove(&m->link);
    service_message_unkeep(u, m);
    u->untaken_bytes -= m->size_bytes;
    shared_limit_give(&service.bytes, 0, m->size_bytes);
    free(m);
}

/* A later process begins. is_killed: nothing that this one does from now on comes into the journal.
 */
static void next_process(bool is_killed)
{
    bool was_there[N_PEERS];

    for (size_t i = 0; i < N_PEERS; i++)
        was_there[i] = peers[i].user != NULL && peers[i].user->has_id;
    store.is_dead = is_killed;
    end_process();
    store.is_dead = false;
    begin_process(true);
    for (size_t i = 0; i < N_PEERS; i++)
        if (was_there[i])
            come_back(i);
    settle();
}

static void kill_process(void)
{
    next_process(true);
}

/* Another process has had the people for a while, and what this one was writing was refused. */
static void lose_people(void)
{
    struct error why;
    bool was_there[N_PEERS];

    for (size_t i = 0; i < N_PEERS; i++)
        was_there[i] = peers[i].user != NULL;
    (void)error_set(&why, STATUS_UNAVAILABLE, "another parleyd has this now: ask again");
    service_leave(&service, &why);
    for (size_t i = 0; i < N_PEERS; i++)
        ck_assert(peers[i].user == NULL && has_ended[i] == was_there[i]);
    ck_assert_uint_eq(service.n_users.held + service.bytes.held + service.n_waiting, 0);
    ck_assert_uint_eq(service.n_tasks + n_agents + service.keeping->queue_bytes, 0);
    ck_assert_int_eq(service_peer_said(&peers[0], NULL, "hi", NULL, &why), STATUS_UNAVAILABLE);
    while (service.keeping->restore != NULL)
        (void)uv_run(&loop, UV_RUN_ONCE);
    settle(); /* what is refused has been */
    store.is_full = false;
    for (size_t i = 0; i < N_PEERS; i++) {
        has_ended[i] = false;
        if (was_there[i] && i >= 4)
            come_back(i);
    }
    settle();
}

/* The process stops in order, and tells so those who are there. */
static void stop_process(void)
{
    service_drain(&service);
    next_process(false);
}

static bool nobody_is_told(void)
{
    for (size_t i = 0; i < N_PEERS; i++)
        if (service_peer_next(&peers[i]) != NULL)
            return false;
    return true;
}

static void expect(const char *line, struct service_peer *p, const char *wanted)
{
    const struct service_message *m = service_peer_next(p);
    char text[2048];

    ck_assert_msg(m != NULL, "%s: nothing was told", line);
    message_text(text, sizeof(text), m);
    ck_assert_msg(strcmp(text, wanted) == 0, "%s: told '%s'", line, text);
    service_peer_took(p);
}

static void expect_place(const char *line, struct service_peer *p, const char *wanted)
{
    struct service_place from, to;
    char text[128] = "";

    if (service_peer_place(p, &from, &to)) {
        size_t at = (size_t)snprintf(text, sizeof(text), "%s %s", service_state_name(from.state),
                                     service_state_name(to.state));

        if (to.pool != NULL)
            at += (size_t)snprintf(text + at, sizeof(text) - at, " %s", to.pool->plan->name);
        if (to.state == SERVICE_WAITING)
            (void)snprintf(text + at, sizeof(text) - at, " %u/%u", to.position, to.n_waiting);
    }
    ck_assert_msg(strcmp(text, wanted) == 0, "%s: told '%s'", line, text);
}

static void play_line(const char *line)
{
    const bool is_person = line[0] >= 'A' && line[0] < 'A' + N_PEERS;
    struct service_peer *p = is_person ? &peers[line[0] - 'A'] : NULL;
    struct error err;

    settle();
    if (line[0] == '+') {
        pass_s((unsigned)strtoul(line + 1, NULL, 10));
    } else if (line[0] == '*') {
        agent_answers(line + 1);
    } else if (line[0] == '?') {
        ck_assert_ptr_nonnull(only_agent);
        ck_assert_msg(only_agent->is_asked && strcmp(only_agent->asked, line + 2) == 0,
                      "%s: asked '%s'", line, only_agent->asked);
    } else if (line[0] == '!') {
        (void)error_set(&err, STATUS_UNAVAILABLE, "the device is gone");
        service_agent_failed(only_agent->scene, &err);
    } else if (line[0] == '#') {
        kill_process();
    } else if (!is_person) {
        ck_abort_msg("no line of a script: %s", line);
    } else if (line[1] == '>') {
        ck_assert_int_eq(service_peer_said(p,
                                           line[0] >= 'E' ? secret_of((size_t)(p - peers)) : NULL,
                                           line + 3, NULL, &err),
                         STATUS_OK);
    } else if (line[1] == '<') {
        expect(line, p, line + 3);
    } else if (line[1] == '-') {
        service_peer_close(p);
    } else if (line[1] == '%') {
        service_peer_watch(p);
    } else if (line[1] == '@') {
        expect_place(line, p, line + 2);
    } else {
        ck_assert_int_eq(line[1], '=');
        ck_assert_msg(service_peer_next(p) == NULL, "%s: told '%s'", line,
                      service_peer_next(p)->text);
        ck_assert_msg(
            strcmp(p->user == NULL ? "gone" : service_state_name(p->user->state), line + 2) == 0,
            "%s: is %s", line, p->user == NULL ? "gone" : service_state_name(p->user->state));
    }
}

/* Lines end with '\n'; "\x01" in a line stands for a line break. */
static void play(const char *script)
{
    char line[2048];

    while (*script != '\0') {
        const size_t len = strcspn(script, "\n");

        ck_assert_uint_lt(len, sizeof(line));
        memcpy(line, script, len);
        line[len] = '\0';
        for (char *c = line; *c != '\0'; c++)
            if (*c == '\x01')
                *c = '\n';
        play_line(line);
        settle();
        if (kills_always && nobody_is_told())
            kill_process();
        now_us += 1000000; /* nobody writes faster */
        script += len + (script[len] == '\n');
    }
}

/* The script with other people, who have an id. NULL: that is not the same. */
static char *script_of_known(const char *script)
{
    char *known = strdup(script);
    bool is_begin = true;

    for (char *c = known; *c != '\0'; c++) {
        if (is_begin && c[0] >= 'A' && c[0] < 'A' + N_PEERS && (c[0] >= 'E' || c[1] == '-')) {
            free(known);
            return NULL;
        }
        if (is_begin && c[0] >= 'A' && c[0] < 'E')
            c[0] = (char)(c[0] + 4);
        is_begin = *c == '\n';
    }
    return known;
}

static void run(const char *yaml, const char *script)
{
    char *known = script_of_known(script);
    char was_logged[sizeof(logged)];

    begin_plan(yaml);
    play(script);
    end_plan();
    if (known == NULL)
        return;
    memcpy(was_logged, logged, sizeof(logged));
    begin_plan_kept(yaml, true);
    kills_always = true;
    play(known);
    kills_always = false;
    end_plan();
    ck_assert_str_eq(logged, was_logged);
    free(known);
}

/* --- ParlAI's demos, by their own files --- */

static const char overworld_demo[] =
    "tasks:\n"
    "  echo:\n"
    "    onboard_world: MessengerEchoOnboardWorld\n"
    "    task_world: MessengerEchoTaskWorld\n"
    "    timeout: 180\n"
    "    agents_required: 1\n"
    "  onboard data: # must be the name returned by the overworld\n"
    "    onboard_world: MessengerOnboardDataOnboardWorld\n"
    "    task_world: MessengerOnboardDataTaskWorld\n"
    "    timeout: 180\n"
    "    agents_required: 1\n"
    "  chat:\n"
    "    onboard_world: MessengerChatOnboardWorld\n"
    "    task_world: MessengerChatTaskWorld\n"
    "    timeout: 180\n"
    "    agents_required: 2\n"
    "task_name: overworld_demo\n"
    "world_module: parlai.chat_service.tasks.overworld_demo.worlds\n"
    "overworld: MessengerOverworld\n"
    "max_workers: 30\n"
    "opt:\n"
    "  debug: True\n"
    "additional_args:\n"
    "  page_id: 1\n";

#define MENU                                                                                    \
    "Welcome to the overworld for the ParlAI messenger demo. Choose one of the demos from the " \
    "listed quick replies.  [echo|onboard data|chat|EXIT]\n"
#define ASK_NAME "Welcome to the onboarding world free chat. Enter your display name.\n"
#define MATCH "You will be matched with a random person. Say [DONE] to end the chat.\n"
#define WAIT \
    "Please wait while we pair you with another person. If you wish to exit, type *EXIT*.\n"
#define NOTICE "Pairing is taking longer than expected. If you wish to exit, type *EXIT*.\n"

START_TEST(test_overworld_demo)
{
    run(overworld_demo,
        "A> hello\n"
        "A< " MENU "A=overworld\n"
        "A> sing\n"
        "A< Invalid option. Choose one of the demos from the listed quick replies.  "
        "[echo|onboard data|chat|EXIT]\n"
        "A> echo\n"
        "A< Transferring to echo\n"
        "A< Welcome to the onboarding world for our echo bot. The next message you send will be "
        "echoed. Use [DONE] to finish the chat.\n"
        "A=task\n"
        "A> one\n"
        "A< one\n"
        "A> we are [DONE] here\n"
        "A< " MENU "A> onboard data\n"
        "A< Transferring to onboard data\n"
        "A< Welcome to the onboarding world the onboarding data demo.\x01"
        "Enter your name.\n"
        "A=onboarding\n"
        "A> Ann\n"
        "A< \x01"
        "Enter your favorite color.\n"
        "A> {name} green\n"
        "A< During onboarding, you said your name was Ann and your favorite color was {name} "
        "green\n"
        "A< " MENU "A> chat\n"
        "A< Transferring to chat\n"
        "A< " ASK_NAME "A> Ann\n"
        "A< " MATCH "A=waiting\n"
        "B> hello\n"
        "B< " MENU "B> chat\n"
        "B< Transferring to chat\n"
        "B< " ASK_NAME "B> Bob\n"
        "B< " MATCH "B=task\n"
        "A=task\n"
        "A> hi\n"
        "B< hi\n"
        "B> hi yourself\n"
        "A< hi yourself\n"
        "A=task\n"
        "B> [DONE]\n"
        "A< The other agent has ended the chat.\n"
        "A< " MENU "B< " MENU "A=overworld\n"
        "B=overworld\n");
    ck_assert_str_eq(logged,
                     "{\"dialog\": [[{\"id\": \"Ann\", \"text\": \"hi\"}, {\"id\": \"Bob\", "
                     "\"text\": \"hi yourself\"}]], \"context\": [], \"metadata_path\": "
                     "\"talks.metadata\", \"task\": \"chat\", \"is_complete\": true}\n");
}
END_TEST

static const char chatbot[] = "tasks:\n"
                              "  default:\n"
                              "    onboard_world: MessengerBotChatOnboardWorld\n"
                              "    task_world: MessengerBotChatTaskWorld\n"
                              "    timeout: 1800\n"
                              "    agents_required: 1\n"
                              "task_name: chatbot\n"
                              "world_module: parlai.chat_service.tasks.chatbot.worlds\n"
                              "overworld: MessengerOverworld\n"
                              "max_workers: 30\n"
                              "opt:\n"
                              "  debug: True\n"
                              "  password: let me in\n"
                              "  models:\n"
                              "    blender_90M:\n"
                              "      model: transformer/generator\n"
                              "      override:\n"
                              "        no_cuda: True\n"
                              "additional_args:\n"
                              "  page_id: 1\n";

#define BOT_MENU                                                                                \
    "Welcome to the overworld for the ParlAI messenger chatbot demo. Please type \"begin\" to " \
    "start, or \"exit\" to exit [begin|exit]\n"
#define BOT_WELCOME                                                                            \
    "Welcome to the ParlAI Chatbot demo. You are now paired with a bot - feel free to send a " \
    "message.Type [DONE] to finish the chat, or [RESET] to reset the dialogue history.\n"
#define PASSWORD                                                                                 \
    "Sorry, this conversation bot is password-protected. If you have the password, please send " \
    "it now.\n"

START_TEST(test_chatbot)
{
    begin_plan(chatbot);
    ck_assert_str_eq(plan->pools[0].model, "blender_90M");
    ck_assert_uint_eq(plan->n_ignored, 3);
    play("A> hello\n"
         "A< " PASSWORD "A> let me\n"
         "A< " PASSWORD "A=new\n"
         "A> let me in\n"
         "A< " BOT_MENU "A> what?\n"
         "A< Invalid option. Please type \"begin\". [begin]\n"
         "A> BEGIN\n"
         "A< " BOT_WELCOME "A=task\n"
         "A> one\n"
         "*\n"
         "A< re: one\n"
         "A> two\n"
         "A> [RESET]\n"
         "A< [History Cleared]\n"
         "A> three\n"
         "*\n"
         "A< re: three\n"
         "A> [DONE]\n"
         "A< " BOT_MENU "A> Exit\n"
         "A< See you later!\nA=new\n"
         "A> hello\n"
         "A< " PASSWORD);
    end_plan();
}
END_TEST

/* --- what ParlAI does wrong, each by its number in the list of its defects --- */

#define CHAT_OF_ANN             \
    "A> hi\n"                   \
    "A< " MENU "A> chat\n"      \
    "A< Transferring to chat\n" \
    "A< " ASK_NAME "A> Ann\n"   \
    "A< " MATCH

static const struct {
    const char *what, *script;
} defects[] = {
    {"1: who waits is answered, and EXIT leads out", CHAT_OF_ANN "A=waiting\n"
                                                                 "A> is anybody there?\n"
                                                                 "A< " WAIT "A> exit\n"
                                                                 "A< " MENU "A=overworld\n"},
    {"2: one notice", CHAT_OF_ANN "+35\n"
                                  "A< " NOTICE "+100\n"
                                  "A=waiting\n"},
    {"3: after the pool's time-out one is in the menu",
     CHAT_OF_ANN "+200\n"
                 "A< " NOTICE "A< Nobody was found to pair you with.\n"
                 "A< " MENU "A> echo\n"
                 "A< Transferring to echo\n"
                 "A< Welcome to the onboarding world for our echo bot. The next message you send "
                 "will be echoed. Use [DONE] to finish the chat.\n"
                 "A=task\n"},
    {"2 and 3: the notice comes again after a second wait", CHAT_OF_ANN "+35\n"
                                                                        "A< " NOTICE "A> EXIT\n"
                                                                        "A< " MENU "A> chat\n"
                                                                        "A< Transferring to chat\n"
                                                                        "A< " ASK_NAME "A> Ann\n"
                                                                        "A< " MATCH "+20\n"
                                                                        "A=waiting\n"
                                                                        "+20\n"
                                                                        "A< " NOTICE "A=waiting\n"},
    {"9: who has an id comes back to its place, and misses nothing",
     "E> hi\n"
     "E< " MENU "E> chat\n"
     "E< Transferring to chat\n"
     "E< " ASK_NAME "E> Eve\n"
     "E< " MATCH CHAT_OF_ANN "A> one\n"
     "E< one\n"
     "E-\n"
     "A> two\n"
     "E> three\n"
     "A< three\n"
     "E< two\n"
     "E=task\n"},
    {"9: one who is away is not paired, and keeps the place",
     "E> hi\n"
     "E< " MENU "E> chat\n"
     "E< Transferring to chat\n"
     "E< " ASK_NAME "E> Eve\n"
     "E< " MATCH "E-\n" CHAT_OF_ANN "A=waiting\n"
     "E> I am back\n"
     "A< I am back\n"
     "A=task\n"
     "E=task\n"},
    {"9: after the grace it is gone, and its partner goes on",
     "E> hi\n"
     "E< " MENU "E> chat\n"
     "E< Transferring to chat\n"
     "E< " ASK_NAME "E> Eve\n"
     "E< " MATCH CHAT_OF_ANN "E-\n"
     "+110\n"
     "A=task\n"
     "+10\n"
     "A< The other agent has ended the chat.\n"
     "A< " MENU "A=overworld\n"
     "E> hello\n"
     "E< " MENU "E=overworld\n"},
    {"a partner without an id is gone at once",
     CHAT_OF_ANN "B> hi\n"
                 "B< " MENU "B> chat\n"
                 "B< Transferring to chat\n"
                 "B< " ASK_NAME "B> Bob\n"
                 "B< " MATCH "B-\n"
                 "A< The other agent has ended the chat.\n"
                 "A< " MENU "A=overworld\n"},
};

START_TEST(test_defects)
{
    for (size_t i = 0; i < sizeof(defects) / sizeof(defects[0]); i++) {
        mark_point();
        run(overworld_demo, defects[i].script);
    }
}
END_TEST

/* Defect 4: ParlAI's users 5 and 6 had no answer with four workers, nor had a newcomer after four
 * had hung up. */
START_TEST(test_no_workers)
{
    struct service_peer many[200];
    struct error err;

    begin_plan(overworld_demo);
    plan->max_workers = 1;
    for (size_t i = 0; i < 200; i++) {
        service_peer_init(&many[i], &service, on_notify, on_end);
        ck_assert_int_eq(service_peer_said(&many[i], NULL, "hi", NULL, &err), STATUS_OK);
        ck_assert_ptr_nonnull(service_peer_next(&many[i]));
    }
    for (size_t i = 0; i < 200; i++)
        service_peer_close(&many[i]);
    ck_assert_uint_eq(service.n_users.held, 0);
    play("A> hi\nA< " MENU);
    end_plan();
}
END_TEST

#define OWN                         \
    "task_name: own\n"              \
    "world_module: parley.worlds\n" \
    "overworld: menu\n"             \
    "max_workers: 1\n"              \
    "grace: 10\n"

/* Defects 5 and 6, and what ParlAI's keys mean: roles, eligibility, backup, next, choices. */
START_TEST(test_own_worlds)
{
    static const char yaml[] =
        OWN "tasks:\n"
            "  pair:\n"
            "    onboard_world: form\n"
            "    ask:\n"
            "    - {key: side, text: Which side?, choices: [left, right], strict: true}\n"
            "    onboard_closing: You are on the {side} side.\n"
            "    task_world: relay\n"
            "    agents_required: 2\n"
            "    eligible: {side: left}\n"
            "    timeout: 60\n"
            "    backup_task: alone\n"
            "    roles: [judge, speaker]\n"
            "    names: always\n"
            "    welcome: You may speak, {side} one.\n"
            "    closing: It is over.\n"
            "    next: bye\n"
            "    idle: 100\n"
            "  alone: {task_world: echo, welcome: You are alone.}\n"
            "  bye: {task_world: tell, welcome: Good bye., next: EXIT}\n";

    run(yaml, "A> hi\n"
              "A< Welcome. Choose what to do. [pair|alone|bye]\n"
              "A> PAIR\n"
              "A< Which side? [left|right]\n"
              "A> up\n"
              "A< Please choose one of these answers. [left|right]\n"
              "A> Left\n"
              "A< Please choose one of these answers. [left|right]\n"
              "A=onboarding\n"
              "A> left\n"
              "A< You are on the left side.\n"
              "A=waiting\n"
              "B> hi\n"
              "B< Welcome. Choose what to do. [pair|alone|bye]\n"
              "B> pair\n"
              "B< Which side? [left|right]\n"
              "B> right\n"
              "B< You are on the right side.\n"
              "B=waiting\n"
              "A=waiting\n"
              "C> hi\n"
              "C< Welcome. Choose what to do. [pair|alone|bye]\n"
              "C> pair\n"
              "C< Which side? [left|right]\n"
              "C> left\n"
              "C< You are on the left side.\n"
              "C< You may speak, left one.\n"
              "A< You may speak, left one.\n"
              "A> order\n"
              "C< judge: order\n"
              "C> yes\n"
              "A< speaker: yes\n"
              "+60\n"
              "B< " NOTICE "B< You are alone.\n"
              "B=task\n"
              "C> exit\n"
              "A< It is over.\n"
              "A< Good bye.\nA< See you later!\n"
              "A=new\n"
              "C< Good bye.\nC< See you later!\n"
              "C=new\n"
              "A> hello\n"
              "A< Welcome. Choose what to do. [pair|alone|bye]\n"
              "A> pair\n"
              "A< Which side? [left|right]\n"
              "+100\n"
              "A< Nobody has said anything for 100 seconds: this is over.\n"
              "A< Welcome. Choose what to do. [pair|alone|bye]\n"
              "A=overworld\n"
              "A> exit\n"
              "A< See you later!\nA=new\n");
}
END_TEST

/* Whoever gets the role of none keeps the first place in the queue. */
START_TEST(test_left_out)
{
    run(OWN "tasks:\n"
            "  trio: {task_world: relay, agents_required: 3, roles: [null, b, c], idle: 20}\n",
        "A> hi\nA< Welcome. Choose what to do. [trio]\nA> trio\n"
        "B> hi\nB< Welcome. Choose what to do. [trio]\nB> trio\n"
        "C> hi\nC< Welcome. Choose what to do. [trio]\nC> trio\n"
        "A=waiting\nB=task\nC=task\n"
        "B> hello\nC< b: hello\n"
        "C> hello\nB< c: hello\n"
        "+19\n"
        "B< Nobody has said anything for 20 seconds: this is over.\n"
        "C< Nobody has said anything for 20 seconds: this is over.\n"
        "A< " NOTICE "A=waiting\n");
}
END_TEST

/* An agent that listens: it hears all, and answers when it is named, or each n-th text; defect 7:
 * an answer that comes late ends nothing and is not lost. */
START_TEST(test_listener)
{
    static const char yaml[] =
        OWN "tasks:\n"
            "  named: {task_world: chat, agents_required: 2, policy: named, agent: Max, model: m,\n"
            "          onboard_world: form, ask: [{key: name, text: Who?}]}\n"
            "  third: {task_world: chat, policy: 3, model: m}\n"
            "  gone: {task_world: chat, model: missing}\n";

    run(yaml, "A> hi\nA< Welcome. Choose what to do. [named|third|gone]\nA> named\n"
              "A< Who?\nA> Ann\n"
              "B> hi\nB< Welcome. Choose what to do. [named|third|gone]\nB> named\n"
              "B< Who?\nB> Bo:b\n"
              "A> to the maximum, Bob\nB< Ann: to the maximum, Bob\n"
              "B> yes. max, what do you think?\nA< Agent_1: yes. max, what do you think?\n"
              "A> Max?\nB< Ann: Max?\n"
              "*\n"
              "A< Max: re: Ann: to the maximum, Bob | Agent_1: yes. max, what do you think?\n"
              "B< Max: re: Ann: to the maximum, Bob | Agent_1: yes. max, what do you think?\n"
              "*\n"
              "A< Max: re: Ann: Max?\nB< Max: re: Ann: Max?\n"
              "B-\n"
              "A< Agent_1 has left.\n"
              "A> max\n!\n"
              "A< Sorry, this world closed. Returning to overworld.\n"
              "A< Welcome. Choose what to do. [named|third|gone]\n"
              "A> third\nA> 1\nA> 2\nA> 3\n*\nA< re: 1 | 2 | 3\nA> 4\nA=task\nA> [DONE]\n"
              "A< Welcome. Choose what to do. [named|third|gone]\n"
              "A> gone\n"
              "A< Sorry, this world closed. Returning to overworld.\n"
              "A< Welcome. Choose what to do. [named|third|gone]\n"
              "A=overworld\n");
}
END_TEST

/* A name that turns the direction of what stands beside it is none. */
START_TEST(test_turned_name)
{
    run(OWN "tasks:\n"
            "  pair: {task_world: relay, agents_required: 2, names: always, onboard_world: form,\n"
            "         ask: [{key: name, text: Who?}]}\n",
        "A> hi\nA< Welcome. Choose what to do. [pair]\nA> pair\nA< Who?\nA> \xE2\x80\xAE"
        "ann\n"
        "B> hi\nB< Welcome. Choose what to do. [pair]\nB> pair\nB< Who?\nB> Zo\xC3\xAB\n"
        "A> hello\nB< Agent_0: hello\nB> hello\nA< Zo\xC3\xAB: hello\n"
        "A> [DONE]\nA< Welcome. Choose what to do. [pair]\n"
        "B< The other agent has ended the chat.\nB< Welcome. Choose what to do. [pair]\n");
}
END_TEST

/* An agent that is busy, or whose model is not loaded, ends nothing, and hears what was said
 * meanwhile, once: people are told so, and why. What is empty is not heard. A reset that fails ends
 * the task, and says nothing else. */
#define HEARD " What was said is heard: do not repeat it, write again later, or EXIT to leave.\n"
START_TEST(test_busy)
{
    char *large = malloc(SERVICE_TOLD_MAX_BYTES + 2);
    struct error err;

    memset(large, 'x', SERVICE_TOLD_MAX_BYTES + 1);
    large[SERVICE_TOLD_MAX_BYTES + 1] = '\0';
    begin_plan(OWN "tasks:\n  bot: {task_world: chat, model: m}\n");
    play("A> hi\nA< Welcome. Choose what to do. [bot]\nA> bot\n");
    agent_status = STATUS_EXHAUSTED;
    play("A> one\nA< There are too many talks now." HEARD "A=task\n");
    agent_status = STATUS_UNAVAILABLE;
    agent_reason = REASON_MODEL_NOT_READY;
    play("A> two\nA< The model is not ready." HEARD "A=task\n");
    agent_reason = REASON_JOURNAL_FAILING;
    play("A> three\nA< The server cannot store texts now." HEARD "A=task\n");
    agent_reason = REASON_SERVER_DRAINING;
    play("A> four\nA< The server is shutting down: nothing is answered any more.\nA=task\n");
    agent_reason = REASON_NONE;
    play("A> five\nA< There is no answer now." HEARD "A=task\n");
    agent_status = STATUS_OK;
    play("A> six\n*\nA< re: one | two | three | four | five | six\nA=task\n"
         "A> \nA=task\n");
    ck_assert(!only_agent->is_asked);
    play("A> seven\n");
    only_agent->is_asked = false;
    service_answered(only_agent->scene, large + 1); /* as much as there may be */
    ck_assert_str_eq(service_peer_next(&peers[0])->text, large + 1);
    service_peer_took(&peers[0]);
    play("A=task\nA> eight\n");
    only_agent->is_asked = false;
    (void)error_set(&err, STATUS_ABORTED, "its answer was cut off");
    service_unanswered(only_agent->scene, &err);
    play("A< There is no answer now." HEARD "A=task\nA> nine\n");
    only_agent->is_asked = false;
    service_answered(only_agent->scene, large);
    free(large);
    play("A< Sorry, this world closed. Returning to overworld.\n"
         "A< Welcome. Choose what to do. [bot]\nA> bot\n");
    reset_status = STATUS_INTERNAL;
    play("A> [RESET]\nA< Sorry, this world closed. Returning to overworld.\n"
         "A< Welcome. Choose what to do. [bot]\nA=overworld\n");
    end_plan();
}
END_TEST

/* The backup of a pool may be before it in the file: its times are armed, too. */
START_TEST(test_backup_before)
{
    run(OWN "tasks:\n"
            "  first: {task_world: relay, agents_required: 2, timeout: 60, notice: 20}\n"
            "  second: {task_world: relay, agents_required: 2, timeout: 10, backup_task: first}\n",
        "A> hi\nA< Welcome. Choose what to do. [first|second]\nA> second\nA=waiting\n"
        "+31\n"
        "A< " NOTICE "A=waiting\n"
        "+40\n"
        "A< Nobody was found to pair you with.\n"
        "A< Welcome. Choose what to do. [first|second]\nA=overworld\n");
}
END_TEST

/* Those who may not be in a task are not looked at when others come; who comes back after a lost
 * connection has its old place before those who came later. */
START_TEST(test_ready)
{
    begin_plan(OWN "tasks:\n"
                   "  trio:\n"
                   "    onboard_world: form\n"
                   "    ask: [{key: side, text: Which side?}]\n"
                   "    task_world: relay\n"
                   "    agents_required: 3\n"
                   "    timeout: 3000\n"
                   "    notice: 3000\n"
                   "    eligible: {side: left}\n");
    for (char c = 'A'; c <= 'G'; c++) {
        char script[160];

        (void)snprintf(script, sizeof(script),
                       "%c> hi\n%c< Welcome. Choose what to do. [trio]\n%c> trio\n"
                       "%c< Which side?\n%c> %s\n%c=waiting\n",
                       c, c, c, c, c, c == 'E' || c == 'F' ? "left" : "right", c);
        play(script);
    }
    ck_assert_ptr_eq(list_first(&service.pools[0].ready), &peers[4].user->ready);
    ck_assert_ptr_eq(list_last(&service.pools[0].ready), &peers[5].user->ready);
    play("E-\n");
    ck_assert_ptr_eq(list_first(&service.pools[0].ready), &peers[5].user->ready);
    play("E> here\nE< " WAIT);
    ck_assert_ptr_eq(list_first(&service.pools[0].ready), &peers[4].user->ready);
    ck_assert_ptr_eq(list_next(&service.pools[0].ready, &peers[4].user->ready),
                     &peers[5].user->ready);
    ck_assert_ptr_eq(list_last(&service.pools[0].ready), &peers[5].user->ready);
    play("F-\n"
         "H> hi\nH< Welcome. Choose what to do. [trio]\nH> trio\n"
         "H< Which side?\nH> left\nH=waiting\n"
         "F> here\nE< Agent_1: here\nH< Agent_1: here\nF=task\nE=task\nH=task\nA=waiting\n"
         "E> hello\nF< Agent_0: hello\nH< Agent_0: hello\n"
         "F> hello\nE< Agent_1: hello\nH< Agent_1: hello\n");
    ck_assert(list_is_empty(&service.pools[0].ready));
    end_plan();
}
END_TEST

/* Where there are too many people, a new one takes the place of the one that is away longest. */
START_TEST(test_full)
{
    struct error err;

    begin_plan(OWN "tasks:\n  pair: {task_world: relay, agents_required: 2}\n");
    service.n_users.max = 3;
    play("E> hi\nE< Welcome. Choose what to do. [pair]\n"
         "F> hi\nF< Welcome. Choose what to do. [pair]\n"
         "A> hi\nA< Welcome. Choose what to do. [pair]\n"
         "F-\nE-\n"
         "B> hi\nB< Welcome. Choose what to do. [pair]\n"
         "E> what\nE< Please choose one of these. [pair]\n");
    ck_assert_int_eq(service_peer_said(&peers[5], NULL, "hi", NULL, &err), STATUS_EXHAUSTED);
    play("E-\n"
         "F> pair\nF< Welcome. Choose what to do. [pair]\nF=overworld\nE=gone\n");
    end_plan();
}
END_TEST

/* Payloads neither fill what waits for a partner, nor are they cheaper than texts. */
START_TEST(test_payloads)
{
    char *payload = xalloc(SERVICE_PAYLOAD_MAX_BYTES + 2);
    struct error err;

    begin_plan(OWN "tasks:\n  pair: {task_world: relay, agents_required: 2}\n");
    play("A> hi\nA< Welcome. Choose what to do. [pair]\nA> pair\n"
         "B> hi\nB< Welcome. Choose what to do. [pair]\nB> pair\nA=task\n");
    memset(payload, ' ', SERVICE_PAYLOAD_MAX_BYTES + 1);
    payload[0] = '{';
    payload[SERVICE_PAYLOAD_MAX_BYTES] = '}';
    ck_assert_int_eq(service_peer_said(&peers[0], NULL, "", payload, &err), STATUS_OK);
    play("B=task\nA< This payload is too long: it was not delivered.\n");
    payload[SERVICE_PAYLOAD_MAX_BYTES - 1] = '}';
    payload[SERVICE_PAYLOAD_MAX_BYTES] = '\0';
    pass_s(10);
    for (size_t i = 0; i < SERVICE_SAYS_AT_ONCE; i++)
        ck_assert_int_eq(service_peer_said(&peers[0], NULL, "", payload, &err), STATUS_OK);
    ck_assert_uint_eq(peers[1].user->untaken_bytes / SERVICE_PAYLOAD_MAX_BYTES, 4);
    expect("payload", &peers[0], "You write too fast: this message was not delivered.");
    ck_assert(!has_ended[0] && !has_ended[1]);
    end_plan();
    free(payload);
}
END_TEST

/* Floods, long texts, a person who reads nothing, a second connection, the stop. */
START_TEST(test_bounds)
{
    char *text = xalloc(SERVICE_TEXT_MAX_BYTES + 2);
    struct error err;

    begin_plan(OWN "tasks:\n  pair: {task_world: relay, agents_required: 2}\n");
    play("A> hi\nA< Welcome. Choose what to do. [pair]\nA> pair\n"
         "B> hi\nB< Welcome. Choose what to do. [pair]\nB> pair\nA=task\n");
    memset(text, 'x', SERVICE_TEXT_MAX_BYTES + 1);
    ck_assert_int_eq(service_peer_said(&peers[0], NULL, text, NULL, &err), STATUS_OK);
    play("B=task\nA< This message is too long: it was not delivered.\n");
    text[SERVICE_TEXT_MAX_BYTES] = '\0';
    pass_s(10);
    for (size_t i = 0; i < SERVICE_SAYS_AT_ONCE; i++)
        ck_assert_int_eq(service_peer_said(&peers[0], NULL, "x", "{\"a\": 1}", &err), STATUS_OK);
    ck_assert_int_eq(service_peer_said(&peers[0], NULL, "x", NULL, &err), STATUS_OK);
    expect("flood", &peers[0], "You write too fast: this message was not delivered.");
    for (size_t i = 0; i < SERVICE_SAYS_AT_ONCE; i++) {
        expect("text", &peers[1], "x");
        expect("payload", &peers[1], " {\"a\": 1}");
    }
    play("B=task\n");
    for (size_t i = 0; i < SERVICE_UNTAKEN_MAX_BYTES / SERVICE_TEXT_MAX_BYTES; i++) {
        ck_assert(!has_ended[1]);
        ck_assert_int_eq(service_peer_said(&peers[0], NULL, text, NULL, &err), STATUS_OK);
        pass_s(1);
    }
    ck_assert(has_ended[1]);
    play("B=gone\nA< The other agent has ended the chat.\n"
         "A< Welcome. Choose what to do. [pair]\nA=overworld\n");
    play("E> hi\n");
    peers[5] = peers[4]; /* F has E's id */
    service_peer_init(&peers[5], &service, on_notify, on_end);
    ck_assert_int_eq(service_peer_said(&peers[5], "secret-of-person-E", "pair", NULL, &err),
                     STATUS_OK);
    ck_assert(has_ended[4]);
    play("E=gone\nF< Welcome. Choose what to do. [pair]\nF=waiting\n");
    service_drain(&service);
    play("F< System: The conversation bot going to go offline soon, finish any active "
         "conversations.\n"
         "A< System: The conversation bot going to go offline soon, finish any active "
         "conversations.\n"
         "A> pair\nA=waiting\nF=waiting\n");
    service_end(&service);
    ck_assert_int_eq(service_peer_said(&peers[6], NULL, "hi", NULL, &err), STATUS_UNAVAILABLE);
    end_plan();
    free(text);
}
END_TEST

static enum status meet_once(void *arg)
{
    static const char *const says[] = {"A hi",  "A pair",  "A Ann",   "E hi",  "E pair",
                                       "E Eve", "A hello", "E hello", "A max", "E [DONE]"};
    enum status rc = STATUS_OK;
    struct error err;

    for (size_t i = 0; i < N_PEERS; i++) {
        has_ended[i] = false;
        service_peer_init(&peers[i], &service, on_notify, on_end);
    }
    for (size_t i = 0; i < sizeof(says) / sizeof(says[0]) && rc == STATUS_OK; i++) {
        struct service_peer *p = &peers[says[i][0] - 'A'];

        if (has_ended[p - peers])
            break;
        rc = service_peer_said(p, says[i][0] == 'E' ? "secret-of-person-E" : NULL, says[i] + 2,
                               NULL, &err);
        settle();
        now_us += 1000000;
        if (only_agent != NULL && only_agent->is_asked)
            agent_answers("");
    }
    service_peer_close(&peers[0]);
    service_peer_close(&peers[4]);
    settle();
    pass_s(SERVICE_GRACE_S);
    settle();
    ck_assert_uint_eq(service.n_users.held + service.bytes.held + service.n_waiting, 0);
    ck_assert_uint_eq(service.n_tasks + n_agents, 0);
    return rc;
}

/* --- what a later process has --- */

#define PAIR                                                                                   \
    OWN "tasks:\n"                                                                             \
        "  pair: {task_world: relay, agents_required: 2, timeout: 60, notice: 20, idle: 50,\n" \
        "         onboard_world: form, ask: [{key: name, text: Who?}, {key: age, text: Age?}]}\n"
#define PAIR_MENU "Welcome. Choose what to do. [pair]\n"

/* A kill takes back what was not durable, and nobody was told of it. */
START_TEST(test_not_durable)
{
    struct error err;

    begin_plan_kept(PAIR, true);
    play("E> hi\nE< " PAIR_MENU "E> pair\nE< Who?\n");
    settle();
    store.is_dead = true;
    ck_assert_int_eq(service_peer_said(&peers[4], NULL, "Eve", NULL, &err), STATUS_OK);
    ck_assert_ptr_null(service_peer_next(&peers[4]));
    play("#\nE=onboarding\nE> Eva\nE< Age?\nE> 9\nE=waiting\n");
    end_plan();
}
END_TEST

/* What a person has not got when the process is killed, or while it is away, it gets later. */
START_TEST(test_untaken)
{
    begin_plan_kept(PAIR, true);
    play("E> hi\nF> hi\n#\nE< " PAIR_MENU "F< " PAIR_MENU "E> pair\nF> pair\n#\nE< Who?\nF< Who?\n"
         "E> Eve\nF> Fay\nE< Age?\nF< Age?\nE> 1\nF> 2\nE=task\nF=task\n"
         "E-\nF> one\nF> two\n#\nF> three\nE> hello\nF< hello\n#\nE< one\nE< two\n#\nE< three\n"
         "E=task\nF> [DONE]\nE< The other agent has ended the chat.\nE< " PAIR_MENU
         "F< " PAIR_MENU);
    ck_assert_uint_eq(store.n, 2);
    play("E-\nF-\n+11\nE=gone\n");
    settle();
    ck_assert_uint_eq(store.n, 0);
    end_plan();
}
END_TEST

/* What an earlier version has told, and no socket takes, is left out: the rest is told. */
START_TEST(test_large_untaken)
{
    for (size_t more = 0; more < 2; more++) {
        begin_plan_kept(PAIR, true);
        play("E> hi\nF> hi\nE< " PAIR_MENU "F< " PAIR_MENU
             "E> pair\nF> pair\nE< Who?\nF< Who?\nE> Eve\nF> Fay\nE< Age?\nF< Age?\n"
             "E> 1\nF> 2\nE-\nF> one\nF> two\n");
        memory_store_enlarge(SERVICE_OF_MESSAGE, "one", SERVICE_TOLD_MAX_BYTES + more);
        play("#\nE> hello\nF< hello\n");
        if (more == 0) {
            ck_assert_uint_eq(strlen(service_peer_next(&peers[4])->text), SERVICE_TOLD_MAX_BYTES);
            service_peer_took(&peers[4]);
        }
        play("E< two\nE=task\nF> [DONE]\nE< The other agent has ended the chat.\nE< " PAIR_MENU
             "F< " PAIR_MENU);
        ck_assert_uint_eq(store.n, 2);
        end_plan();
    }
}
END_TEST

/* Where another process had them, people come back to what was durable; nothing else happens to
 * their tasks. */
START_TEST(test_lost)
{
    struct error err;

    begin_plan_kept(PAIR, true);
    play("E> hi\nE< " PAIR_MENU "E> pair\nE< Who?\nA> hi\nA< " PAIR_MENU);
    settle();
    store.is_full = true;
    ck_assert_int_eq(service_peer_said(&peers[4], NULL, "Eve", NULL, &err), STATUS_OK);
    ck_assert_uint_gt(service.keeping->n_writing, 0);
    lose_people();
    play("A=gone\nE=onboarding\nE> Eva\nE< Age?\nE> 9\nE=waiting\n#\nE=waiting\n");
    ck_assert_str_eq(service_user_answer(peers[4].user, "name"), "Eva");
    end_plan();
    begin_plan_kept(OWN "tasks:\n  bot: {task_world: chat, model: m}\n", true);
    play("E> hi\nE< Welcome. Choose what to do. [bot]\nE> bot\nE> one\n");
    settle();
    n_left = 0;
    lose_people();
    ck_assert_uint_eq(n_left, 1);
    play("E=task\n*\nE< re: one\nE> two\n*\nE< re: two\n");
    end_plan();
}
END_TEST

/* The wall clock goes on while there is no process: a notice, a time-out, a silent task. The grace
 * of people begins anew. */
START_TEST(test_deadlines_go_on)
{
    begin_plan_kept(PAIR, true);
    play("E> hi\nE< " PAIR_MENU "E> pair\nE< Who?\nE> Eve\nE< Age?\nE> 1\nE=waiting\n");
    settle();
    store.is_dead = true;
    now_us += 30 * 1000000;
    play("#\nE< " NOTICE
         "E=waiting\n+15\nE=waiting\n+20\nE< Nobody was found to pair you with.\nE< " PAIR_MENU
         "F> hi\nF< " PAIR_MENU
         "F> pair\nF< Who?\nE> pair\nE< Who?\nF> Fay\nF< Age?\nF> 1\nE> Eve\nE< Age?\nE> 1\n"
         "E=task\nF=task\n");
    settle();
    store.is_dead = true;
    now_us += 60 * 1000000;
    play("#\nE< Nobody has said anything for 50 seconds: this is over.\nE< " PAIR_MENU
         "F< Nobody has said anything for 50 seconds: this is over.\nF< " PAIR_MENU "F-\n");
    settle();
    kill_process();
    play("E=overworld\n+6\nF> hello\nF< Please choose one of these. [pair]\nF=overworld\n");
    end_plan();
}
END_TEST

/* Who has no id, or does not come back, has left; and what the plan has no more is closed. */
START_TEST(test_left_meanwhile)
{
    begin_plan_kept(PAIR, true);
    play("E> hi\nE< " PAIR_MENU "E> pair\nE< Who?\nE> Eve\nE< Age?\nE> 1\n"
         "A> hi\nA< " PAIR_MENU "A> pair\nA< Who?\nA> Ann\nA< Age?\nA> 1\nA=task\nE=task\n"
         "#\nE< The other agent has ended the chat.\nE< " PAIR_MENU "A=gone\nE> pair\nE< Who?\n");
    settle();
    plan->pools[0].onboarding.n_questions = 0;
    play("#\nE< Sorry, this world closed. Returning to overworld.\nE< " PAIR_MENU "E=overworld\n");
    end_plan();
}
END_TEST

/* While the journal cannot be written nobody is told anything, and what people say is not taken.
 * What changes again and again is not queued again and again. Agents are told of what is written.
 */
START_TEST(test_full_disk)
{
    uint64_t turn;
    size_t queued;

    begin_plan_kept(PAIR, true);
    play("E> hi\nE< " PAIR_MENU "E> pair\nE< Who?\n");
    store.is_full = true;
    play(
        "E> Eve\nE=onboarding\nE> Eva\n"
        "E< The journal cannot be written now: this message was not delivered. Please say it again "
        "later.\nE=onboarding\n");
    queued = service.keeping->queue_bytes;
    turn = service.keeping->turn - 1;
    ck_assert_uint_gt(queued, 0);
    ck_assert_uint_lt(written_turn, turn);
    for (int i = 0; i < 5; i++)
        play("E-\nE> again\nE< The journal cannot be written now: this message was not delivered. "
             "Please say it again later.\n");
    ck_assert_uint_eq(service.keeping->queue_bytes, queued);
    store.is_full = false;
    pass_s(SERVICE_RETRY_MS / 1000);
    play("E< Age?\n");
    ck_assert_uint_ge(written_turn, turn);
    play("E> 1\nE=waiting\n#\nE=waiting\n");
    ck_assert_str_eq(service_user_answer(peers[4].user, "name"), "Eve");
    end_plan();
}
END_TEST

/* An orderly stop: who has no id has left, and the others are told so; what ends by that is logged,
 * and its agent closed. The farewell is not for a later process. */
START_TEST(test_stop)
{
    begin_plan_kept(PAIR, true);
    play("A> hi\nA< " PAIR_MENU "A> pair\nA< Who?\nA> Ann\nA< Age?\nA> 1\n"
         "E> hi\nE< " PAIR_MENU "E> pair\nE< Who?\nE> Eve\nE< Age?\nE> 1\n"
         "A> hello\nE< hello\nF> hi\nF< " PAIR_MENU);
    stop_process();
    play("E< The other agent has ended the chat.\nE< " PAIR_MENU "E=overworld\nF=overworld\n");
    ck_assert_ptr_nonnull(strstr(logged, "hello"));
    end_plan();
    begin_plan_kept(OWN "tasks:\n  bot: {task_world: chat, model: m}\n", true);
    play("A> hi\nA< Welcome. Choose what to do. [bot]\nA> bot\nA> one\n*\nA< re: one\n");
    n_left = 0;
    stop_process();
    ck_assert_uint_eq(n_left, 0);
    ck_assert_ptr_nonnull(strstr(logged, "re: one"));
    ck_assert_uint_eq(store.n, 0);
    play("A> hi\nA< Welcome. Choose what to do. [bot]\nA> bot\nA> one\n");
    n_forgotten = 0;
    kill_process();
    ck_assert_uint_eq(n_forgotten, 1);
    settle();
    ck_assert_uint_eq(store.n, 0);
    end_plan();
}
END_TEST

/* A task that cannot go on is logged, and its people are told so behind what they had not got. */
START_TEST(test_plan_changed)
{
    begin_plan_kept(OWN "tasks:\n  trio: {task_world: chat, agents_required: 2, model: m,\n"
                        "         policy: named, agent: Max, names: never}\n",
                    true);
    play("E> hi\nE< Welcome. Choose what to do. [trio]\nE> trio\n"
         "F> hi\nF< Welcome. Choose what to do. [trio]\nF> trio\n"
         "E> one\nF< one\nF-\nE> two\n");
    settle();
    plan->pools[0].task.world = service_world_find(SCENE_TASK, "relay");
    n_forgotten = 0;
    play("#\nF> I am back\nF< two\nF< Sorry, this world closed. Returning to overworld.\n"
         "F< Welcome. Choose what to do. [trio]\nF< Please choose one of these. [trio]\n"
         "E< Sorry, this world closed. Returning to overworld.\n"
         "E< Welcome. Choose what to do. [trio]\n");
    ck_assert_ptr_nonnull(strstr(logged, "one"));
    ck_assert_ptr_nonnull(strstr(logged, "two"));
    ck_assert_uint_eq(n_forgotten, 1);
    ck_assert_uint_eq(service.log_bytes.held + service.heard_bytes.held, 0);
    end_plan();
}
END_TEST

/* What all tasks have in the journal is bounded: a log is cut, and a task whose agent would hear
 * more ends. */
START_TEST(test_kept_bytes)
{
    size_t log, heard;

    begin_plan_kept(OWN "tasks:\n  bot: {task_world: chat, model: m, policy: 3}\n", true);
    play("E> hi\nE< Welcome. Choose what to do. [bot]\nE> bot\nE> 1\nE> 2\nE> 3\n*\n"
         "E< re: 1 | 2 | 3\n");
    ck_assert_uint_eq(service.heard_bytes.held, 0);
    play("E> 4\nE> 5\nE=task\n");
    log = service.log_bytes.held;
    heard = service.heard_bytes.held;
    ck_assert_uint_gt(log, heard);
    ck_assert_uint_gt(heard, 0);
    play("#\nE=task\n");
    ck_assert_uint_eq(service.log_bytes.held, log);
    ck_assert_uint_eq(service.heard_bytes.held, heard);
    service_answering(only_agent->scene); /* the process that was killed had asked it */
    fake_take_heard(only_agent);
    play("E> 6\n");
    ck_assert_uint_eq(only_agent->scene->asked, 5);
    play("*\nE< re: 4 | 5\n");
    ck_assert_uint_lt(service.heard_bytes.held, heard);
    ck_assert_uint_gt(service.heard_bytes.held, 0);
    service.log_bytes.max = service.log_bytes.held;
    play("E> 7\n#\nE=task\n");
    service.heard_bytes.max = service.heard_bytes.held;
    play("E> 8\nE< Sorry, this world closed. Returning to overworld.\n"
         "E< Welcome. Choose what to do. [bot]\n");
    ck_assert_uint_eq(service.log_bytes.held + service.heard_bytes.held, 0);
    ck_assert_ptr_nonnull(strstr(logged, "\"is_complete\": false"));
    end_plan();
}
END_TEST

#define BEGINS "? {\"do\":\"parley\"}\n"
#define SAYS(who, text)                                                         \
    "? {\"who\":\"" who "\",\"act\":{\"id\":\"" who "\",\"text\":\"" text "\"," \
    "\"episode_done\":false}}\n"
#define ASKS(hears, who) "* {\"hears\": [" hears "], \"then\": \"ask\", \"who\": \"" who "\"}"
#define NOT_NOW " Please wait: it is not your turn. This message was not delivered.\n"
#define SCRIPT                                                                               \
    OWN "tasks:\n"                                                                           \
        "  panel: {task_world: 'attached:panel:2', agents_required: 2, roles: [pro, con],\n" \
        "          welcome: Welcome., closing: It is over.}\n"
#define SCRIPT_MENU "Welcome. Choose what to do. [panel]\n"
#define SCRIPT_BEGUN                                                         \
    "A> hi\nA< " SCRIPT_MENU "A> panel\nB> hi\nB< " SCRIPT_MENU "B> panel\n" \
    "A< Welcome.\nB< Welcome.\n" BEGINS

/* A world of one's own says who may speak, who hears it, and when it ends. */
START_TEST(test_script)
{
    run(SCRIPT,
        SCRIPT_BEGUN "B> I first!\nB<" NOT_NOW /* it was not asked yet */
            ASKS(
                "[\"pro\", 0], [\"con\", 0]",
                "pro") "\x01{\"text\": \"Begin.\"}\n"
                       "A< Begin.\nB< Begin.\n"
                       "B> Now?\nB<" NOT_NOW
                       "A> tea\n" SAYS("pro", "tea") "A> and coffee\nA<" NOT_NOW ASKS(
                           "[\"con\", 0]",
                           "con") "\x01{\"id\": \"pro\", \"text\": \"tea\", \"quick_replies\": "
                                  "[\"yes\", \"no\"]}\n"
                                  "B< pro: tea [yes|no]\n"
                                  "B> no\n" SAYS(
                                      "con",
                                      "no") "* {\"hears\": [[\"pro\", 0]], \"then\": "
                                            "\"parley\"}\x01{\"id\": \"con\", \"text\": \"no\"}\n"
                                            "A< con: no\n" BEGINS
                                            "* {\"hears\": [[\"con\", 0]], \"then\": \"world\"}\x01"
                                            "{\"text\": \"\", \"payload\": {\"type\": \"image\"}}\n"
                                            "B<  {\"type\": \"image\"}\n"
                                            "A< " SCRIPT_MENU "B< " SCRIPT_MENU);
    ck_assert_ptr_nonnull(strstr(logged, "[[{\"id\": \"panel\", \"text\": \"Begin.\"}, {\"id\": "
                                         "\"pro\", \"text\": \"tea\"}, {\"id\": \"con\", \"text\": "
                                         "\"no\"}"));
    run(SCRIPT, SCRIPT_BEGUN ASKS("", "pro") "\nA> exit\nB< It is over.\nA< " SCRIPT_MENU
                                             "B< " SCRIPT_MENU);
    run(SCRIPT, SCRIPT_BEGUN "B-\nA< It is over.\nA< " SCRIPT_MENU);
}
END_TEST

/* A person hears an act with 15 quick replies of so many bytes, so many times. */
static void tell_much(int n_bytes, int n_times, bool is_told)
{
    const struct service_message *m;
    struct buf answer;

    begin_plan(SCRIPT);
    play(SCRIPT_BEGUN);
    buf_init(&answer, 1 << 20);
    for (int i = 0; i < n_times; i++)
        ck_assert_int_eq(
            buf_append_text(&answer, i == 0 ? "{\"hears\": [[\"pro\", 0]" : ", [\"pro\", 0]"),
            STATUS_OK);
    for (int i = 0; i < 15; i++)
        ck_assert_int_eq(
            buf_printf(&answer, "%s\"%0*d\"",
                       i == 0 ? "], \"then\": \"world\"}\n{\"quick_replies\": [" : ", ", n_bytes,
                       0),
            STATUS_OK);
    ck_assert_int_eq(buf_append_text(&answer, "]}"), STATUS_OK);
    only_agent->is_asked = false;
    service_answered(only_agent->scene, answer.data);
    ck_assert(!has_ended[0] && !has_ended[1]);
    while ((m = service_peer_next(&peers[0])) != NULL && m->n_quick_replies == 15) {
        service_peer_took(&peers[0]);
        n_times--;
    }
    ck_assert(!is_told || n_times == 0);
    play(is_told ? "A< " SCRIPT_MENU "B< " SCRIPT_MENU
                 : "A< Sorry, this world closed. Returning to overworld.\nA< " SCRIPT_MENU
                   "B< Sorry, this world closed. Returning to overworld.\nB< " SCRIPT_MENU);
    buf_deinit(&answer);
    end_plan();
}

/* An answer that makes no sense, or is too much, ends the task; a worker that is busy is asked
 * again. */
START_TEST(test_script_wrong)
{
    static const char *const wrong[] = {
        "no JSON",
        "[]",
        "{}",
        "{\"then\": \"dance\"}",
        "{\"then\": 3}",
        "{\"then\": \"ask\"}",
        "{\"then\": \"ask\", \"who\": \"judge\"}",
        "{\"then\": \"ask\", \"who\": 1}",
        "{\"hears\": 1, \"then\": \"world\"}",
        "{\"hears\": [1], \"then\": \"world\"}",
        "{\"hears\": [[\"pro\"]], \"then\": \"world\"}",
        "{\"hears\": [[\"pro\", \"con\"]], \"then\": \"world\"}",
        "{\"hears\": [[\"pro\", 0]], \"then\": \"world\"}",
        "{\"hears\": [[\"pro\", -1]], \"then\": \"world\"}\n{}",
        "{\"hears\": [[\"judge\", 0]], \"then\": \"world\"}\n{}",
        "{\"hears\": [[\"pro\", 0]], \"then\": \"world\"}\n{\"text\": 1}",
        "{\"hears\": [[\"pro\", 0]], \"then\": \"world\"}\n{\"payload\": 1}",
        "{\"hears\": [[\"pro\", 0]], \"then\": \"world\"}\n{\"quick_replies\": [1]}",
        "{\"then\": \"world\"}\nno JSON",
        "{\"then\": \"world\"}\n\n{}",
    };
    static const struct {
        int n_bytes, n_times;
        bool is_told;
    } large[] = {{8 << 10, 1, true}, {8 << 10, 4, true}, {8 << 10, 5, false}, {16 << 10, 1, false}};
    char line[200];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        begin_plan(SCRIPT);
        play(SCRIPT_BEGUN);
        (void)snprintf(line, sizeof(line), "* %s", wrong[i]);
        play_line(line);
        play("A< Sorry, this world closed. Returning to overworld.\nA< " SCRIPT_MENU
             "B< Sorry, this world closed. Returning to overworld.\nB< " SCRIPT_MENU);
        end_plan();
    }
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
        tell_much(large[i].n_bytes, large[i].n_times, large[i].is_told);
    begin_plan(SCRIPT);
    play(SCRIPT_BEGUN);
    for (size_t i = 0; i < 64; i++)
        play("* {\"then\": \"parley\"}\n" BEGINS);
    play("* {\"then\": \"parley\"}\nA< Sorry, this world closed. Returning to overworld.\n");
    end_plan();
    begin_plan(SCRIPT);
    agent_status = STATUS_UNAVAILABLE;
    agent_reason = REASON_MODEL_NOT_READY;
    play("A> hi\nA< " SCRIPT_MENU "A> panel\nB> hi\nB< " SCRIPT_MENU "B> panel\nA< Welcome.\n");
    agent_status = STATUS_OK;
    play("A< The model is not ready. What was said is heard: do not repeat it, write again later, "
         "or "
         "EXIT to leave.\nA> again\nA<" NOT_NOW BEGINS);
    end_plan();
}
END_TEST

#define QUAD                                                                                 \
    OWN "tasks:\n"                                                                           \
        "  quad: {task_world: relay, agents_required: 4, timeout: 60, backup_task: alone,\n" \
        "         onboard_world: form, ask: [{key: name, text: Who?}]}\n"                    \
        "  alone: {task_world: echo, welcome: You are alone.}\n"
#define QUAD_MENU "Welcome. Choose what to do. [quad|alone]\n"

/* Who wants to know is told where it is, behind what it is told: each move, and its place in the
 * pool, which is counted once a second at the most. */
START_TEST(test_places)
{
    begin_plan(QUAD);
    play("A%\nA@\n"
         "A> hi\nA@\nA< " QUAD_MENU "A@new overworld\n"
         "A> quad\nA< Who?\nA@overworld onboarding quad\n"
         "A> Ann\nA@onboarding waiting quad 1/1\nA@\n"
         "B> hi\nB< " QUAD_MENU "B> quad\nB< Who?\nB@\n"
         "B> Bob\nA@waiting waiting quad 1/2\n"
         "C%\nC> hi\nC< " QUAD_MENU "C> quad\nC< Who?\n");
    play_line("C> Cat");
    play_line("C@new waiting quad 3/3");
    play_line("A@waiting waiting quad 1/3");
    play_line("B-"); /* in the same second */
    play_line("A@");
    play("+1\nA@waiting waiting quad 1/2\nC@waiting waiting quad 2/2\n"
         "D> hi\nD< " QUAD_MENU "D> quad\nD< Who?\nD> Dan\n"
         "F> hi\nF< " QUAD_MENU "F> quad\nF< Who?\nF> Fay\n"
         "A@waiting task quad\nC@waiting task quad\n"
         "A> [DONE]\nC< The other agent has ended the chat.\nC@\nC< " QUAD_MENU
         "C@task overworld\nA< " QUAD_MENU "A@task overworld\n"
         "A> quad\nA< Who?\nA> Ann\nA@overworld waiting quad 1/1\n+60\n"
         "A< Pairing is taking longer than expected. If you wish to exit, type *EXIT*.\n"
         "A< You are alone.\nA@waiting task alone\n");
    end_plan();
    ck_assert_uint_eq(service.n_watching, 0);
}
END_TEST

/* Who waits keeps the place where the machine has started again, and where its wall clock was set
 * back. */
START_TEST(test_order_without_clock)
{
    static const char order[] = "GFE";

    begin_plan_kept(QUAD, true);
    play("E> hi\nE< " QUAD_MENU "F> hi\nF< " QUAD_MENU "G> hi\nG< " QUAD_MENU);
    play("G> quad\nG< Who?\nG> G\n+1\nF> quad\nF< Who?\nF> F\n+1\nE> quad\nE< Who?\nE> E\n");
    for (int i = 0; i < 2; i++) {
        struct link *l;

        settle();
        starts_machine = i == 0;
        wall_later_ms -= i == 0 ? 0 : (uint64_t)3600 * 1000;
        kill_process();
        l = list_first(&service.pools[0].waiting);
        for (const char *c = order; *c != '\0'; c++, l = list_next(&service.pools[0].waiting, l))
            ck_assert_ptr_eq(l, &peers[*c - 'A'].user->waiting);
        ck_assert_ptr_null(l);
    }
    end_plan();
}
END_TEST

/* A move is told once it is durable, and then at once. */
START_TEST(test_places_kept)
{
    unsigned n;
    struct service_place from, to;
    struct error err;

    begin_plan_kept(QUAD, true);
    play("E%\nE> hi\nE< " QUAD_MENU "E@new overworld\nE> quad\nE< Who?\n"
         "E@overworld onboarding quad\n");
    ck_assert_int_eq(service_peer_said(&peers[4], NULL, "Eve", NULL, &err), STATUS_OK);
    ck_assert(!service_peer_place(&peers[4], &from, &to));
    n = n_notified;
    settle();
    ck_assert_uint_gt(n_notified, n);
    play("E@onboarding waiting quad 1/1\n");
    kill_process();
    play("E@\nE%\nE@new waiting quad 1/1\n");
    end_plan();
}
END_TEST

/* Nobody comes before the journal has answered. */
START_TEST(test_unread)
{
    struct error err;

    store.is_failing = true;
    begin_plan_kept(PAIR, true);
    ck_assert_int_eq(service_peer_said(&peers[4], NULL, "hi", NULL, &err), STATUS_UNAVAILABLE);
    store.is_failing = false;
    pass_s(SERVICE_RETRY_MS / 1000);
    play("E> hi\nE< " PAIR_MENU);
    end_plan();
}
END_TEST

/* A damaged thing is left out, whatever bytes it has: the rest is read. */
START_TEST(test_damaged)
{
    static struct memory_store whole;

    begin_plan_kept(PAIR, true);
    play("E> hi\nE< " PAIR_MENU "F> hi\nF< " PAIR_MENU "E> pair\nE< Who?\n");
    settle();
    whole = store;
    for (size_t i = 0; i < whole.n; i++)
        for (size_t at = JOURNAL_SUM_BYTES; at < whole.kept[i].size_bytes; at++) {
            store = whole;
            store.kept[i].body[at] ^= 0x5a;
            journal_put_sum(store.kept[i].body, store.kept[i].size_bytes);
            kill_process();
        }
    end_plan();
}
END_TEST

/* Whatever allocation fails, nobody stays in a place that is not there, and nothing stays. */
START_TEST(test_no_memory)
{
    static const char yaml[] =
        OWN "tasks:\n  pair: {task_world: chat, agents_required: 2, model: m, policy: named,\n"
            "         agent: Max, onboard_world: form, ask: [{key: name, text: Who?}]}\n";

    begin_plan(yaml);
    ck_assert_int_gt(sweep(meet_once, NULL), 20);
    end_plan();
    begin_plan_kept(yaml, true);
    ck_assert_int_gt(sweep(meet_once, NULL), 40);
    end_plan();
    ck_assert_uint_eq(store.n, 0);
}
END_TEST

SUITE_MAIN("server/service/service", test_overworld_demo, test_chatbot, test_defects,
           test_no_workers, test_own_worlds, test_left_out, test_listener, test_turned_name,
           test_busy, test_backup_before, test_ready, test_full, test_payloads, test_bounds,
           test_not_durable, test_untaken, test_large_untaken, test_lost, test_deadlines_go_on,
           test_left_meanwhile, test_full_disk, test_stop, test_plan_changed, test_kept_bytes,
           test_script, test_script_wrong, test_places, test_order_without_clock, test_places_kept,
           test_unread, test_damaged, test_no_memory)
