/* The happy path: a stream says hello and join; the snapshot says that the person is in; entries
 * are shown, and texts are said one after the other, each with its number, and acknowledged.
 *
 * The channel's thread puts what comes into the inbox, and waits while that is full. When the
 * stream ends, another one follows with the token of the first and the last entry that was shown;
 * a text without an answer is sent again with its number. A timer wakes the caller for the next
 * attempt, for a text that came too soon, and for giving up. */
#include "client/cli/chat/attendance.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"
#include "cli/output/console.h"
#include "client/lib/duplex.h"

enum {
    INBOX_MAX = 256,
    FIRST_DELAY_MS = 50,
    LAST_DELAY_MS = 1000,
    LEAVE_MS = 2000, /* then the server finds out by itself */
};

struct attendance_frame {
    struct link link;
    Parley__V1__RoomsAttachResponse *response;
};

struct attendance_text {
    struct link link;
    char text[];
};

static void copy_frame_text(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text);
}

/* --- the channel's thread --- */

static void attendance_wake(const struct attendance *a)
{
    uint64_t one = 1;

    (void)!write(a->event_fd, &one, sizeof(one)); /* fails only if the counter is full */
}

static void on_attendance_message(void *arg, const void *data, size_t len)
{
    struct attendance *a = arg;
    struct attendance_frame *f = xalloc(sizeof(*f));

    f->response = parley__v1__rooms_attach_response__unpack(NULL, len, data);
    (void)pthread_mutex_lock(&a->lock);
    while (a->n_inbox >= INBOX_MAX && !a->is_closed)
        (void)pthread_cond_wait(&a->has_room, &a->lock);
    list_push(&a->inbox, &f->link);
    a->n_inbox++;
    attendance_wake(a);
    (void)pthread_mutex_unlock(&a->lock);
}

static void on_attendance_end(void *arg, const struct parley_error *err)
{
    struct attendance *a = arg;

    (void)pthread_mutex_lock(&a->lock);
    a->has_call_ended = true;
    a->call_err = *err;
    attendance_wake(a); /* with the lock: it may be closed right after */
    (void)pthread_mutex_unlock(&a->lock);
}

/* --- what is sent --- */

static bool attendance_send(const struct attendance *a, const Parley__V1__RoomsAttachRequest *m)
{
    return a->call != NULL && duplex_send(a->call, &m->base); /* false: the stream's end follows */
}

static void attendance_send_text(struct attendance *a)
{
    Parley__V1__RoomsAttachRequest m = PARLEY__V1__ROOMS_ATTACH_REQUEST__INIT;
    Parley__V1__RoomSay say = PARLEY__V1__ROOM_SAY__INIT;
    struct link *first = list_first(&a->to_say);

    a->say_ms = 0;
    if (!a->is_in || first == NULL)
        return;
    say.room = (char *)a->room;
    say.client_seq = a->client_seq;
    say.text = container_of(first, struct attendance_text, link)->text;
    m.frame_case = PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_SAY;
    m.say = &say;
    (void)attendance_send(a, &m); /* a lost one is sent again */
}

static void attendance_end(struct attendance *a, const struct parley_error *err)
{
    a->has_ended = true;
    a->is_in = false;
    if (err != NULL)
        a->err = *err;
}

static void attendance_send_leave(struct attendance *a)
{
    Parley__V1__RoomsAttachRequest m = PARLEY__V1__ROOMS_ATTACH_REQUEST__INIT;
    Parley__V1__RoomLeave leave = PARLEY__V1__ROOM_LEAVE__INIT;

    leave.room = (char *)a->room;
    m.frame_case = PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_LEAVE;
    m.leave = &leave;
    if (!a->is_in || !attendance_send(a, &m))
        attendance_end(a, NULL);
}

/* The first text has its answer. */
static void attendance_drop_text(struct attendance *a)
{
    struct link *first = list_pop(&a->to_say);

    free(container_of(first, struct attendance_text, link));
    if (list_is_empty(&a->to_say) && a->is_leaving)
        attendance_send_leave(a);
    else
        attendance_send_text(a);
}

void attendance_say(struct attendance *a, const char *text)
{
    const size_t n = strlen(text) + 1;
    struct attendance_text *t = xalloc(sizeof(*t) + n);
    const bool is_first = list_is_empty(&a->to_say);

    memcpy(t->text, text, n);
    list_push(&a->to_say, &t->link);
    if (is_first)
        attendance_send_text(a);
}

void attendance_type(struct attendance *a, bool on)
{
    Parley__V1__RoomsAttachRequest m = PARLEY__V1__ROOMS_ATTACH_REQUEST__INIT;
    Parley__V1__RoomTyping typing = PARLEY__V1__ROOM_TYPING__INIT;

    typing.room = (char *)a->room;
    typing.on = on;
    m.frame_case = PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_TYPING;
    m.typing = &typing;
    if (a->is_in)
        (void)attendance_send(a, &m); /* a lost one is of no account */
}

void attendance_invite(struct attendance *a, const char *agent, const char *name)
{
    Parley__V1__RoomsAttachRequest m = PARLEY__V1__ROOMS_ATTACH_REQUEST__INIT;
    Parley__V1__RoomInvite invite = PARLEY__V1__ROOM_INVITE__INIT;

    invite.room = (char *)a->room;
    invite.agent = (char *)agent;
    invite.name = (char *)name;
    m.frame_case = PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_INVITE;
    m.invite = &invite;
    if (a->is_in)
        (void)attendance_send(a, &m); /* the stream's end follows, and is shown */
}

void attendance_dismiss(struct attendance *a, const char *id)
{
    Parley__V1__RoomsAttachRequest m = PARLEY__V1__ROOMS_ATTACH_REQUEST__INIT;
    Parley__V1__RoomDismiss dismiss = PARLEY__V1__ROOM_DISMISS__INIT;

    dismiss.room = (char *)a->room;
    dismiss.participant = (char *)id;
    m.frame_case = PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_DISMISS;
    m.dismiss = &dismiss;
    if (a->is_in)
        (void)attendance_send(a, &m); /* as above */
}

void attendance_stop(struct attendance *a)
{
    Parley__V1__RoomsAttachRequest m = PARLEY__V1__ROOMS_ATTACH_REQUEST__INIT;
    Parley__V1__RoomStop stop = PARLEY__V1__ROOM_STOP__INIT;

    stop.room = (char *)a->room;
    m.frame_case = PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_STOP;
    m.stop = &stop;
    if (a->is_in)
        (void)attendance_send(a, &m); /* as above */
}

void attendance_leave(struct attendance *a)
{
    if (a->has_ended || a->is_leaving)
        return;
    a->is_leaving = true;
    a->leave_ms = env_now_ms(&env_real) + LEAVE_MS;
    if (list_is_empty(&a->to_say) || !a->is_in)
        attendance_send_leave(a); /* else after the last text */
}

static void attendance_connect(struct attendance *a)
{
    const struct duplex_events events = {on_attendance_message, on_attendance_end, a};
    Parley__V1__RoomsAttachRequest m = PARLEY__V1__ROOMS_ATTACH_REQUEST__INIT;
    Parley__V1__RoomHello hello = PARLEY__V1__ROOM_HELLO__INIT;
    Parley__V1__RoomJoin join = PARLEY__V1__ROOM_JOIN__INIT;
    static const struct parley_error no_memory = {.status = PARLEY_RESOURCE_EXHAUSTED,
                                                  .text = "out of memory for a call"};

    a->again_ms = 0;
    a->call = duplex_start(a->channel, "/parley.v1.Rooms/Attach", &events);
    if (a->call == NULL) {
        attendance_end(a, &no_memory);
        return;
    }
    if (*a->token != '\0')
        hello.token = a->token;
    else
        hello.name = (char *)a->wanted_name;
    m.frame_case = PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_HELLO;
    m.hello = &hello;
    (void)attendance_send(a, &m); /* a failure ends the stream */
    join.room = (char *)a->room;
    join.after_seq = a->last_seq;
    m.frame_case = PARLEY__V1__ROOMS_ATTACH_REQUEST__FRAME_JOIN;
    m.join = &join;
    (void)attendance_send(a, &m); /* as above */
}

/* --- what comes --- */

static struct attendance_person *attendance_find(struct attendance *a, const char *id)
{
    for (size_t i = 0; i < a->n_people; i++)
        if (strcmp(a->people[i].id, id) == 0)
            return &a->people[i];
    return NULL;
}

/* NULL: there are too many, which the server does not allow. */
static struct attendance_person *attendance_add(struct attendance *a, const char *id,
                                                const char *name)
{
    struct attendance_person *p = attendance_find(a, id);

    if (p == NULL && a->n_people < ATTENDANCE_MAX_PEOPLE)
        p = &a->people[a->n_people++];
    if (p == NULL)
        return NULL;
    *p = (struct attendance_person){0};
    copy_frame_text(p->id, sizeof(p->id), id);
    copy_frame_text(p->name, sizeof(p->name), name);
    return p;
}

static void attendance_take_member(struct attendance *a, const Parley__V1__RoomMember *m)
{
    struct attendance_person *p = attendance_add(a, m->participant, m->name);

    if (p == NULL)
        return;
    p->is_away = m->presence == PARLEY__V1__ROOM_PRESENCE__ROOM_PRESENCE_AWAY;
    p->is_typing = m->typing != 0;
    p->is_agent = m->kind == PARLEY__V1__ROOM_KIND__ROOM_KIND_AGENT;
}

static void attendance_take_snapshot(struct attendance *a, const Parley__V1__RoomSnapshot *m)
{
    const bool is_first = !a->is_in;

    a->is_in = a->was_entered = true;
    a->give_up_ms = 0;
    a->delay_ms = FIRST_DELAY_MS;
    a->n_people = 0;
    for (size_t i = 0; i < m->n_members; i++)
        attendance_take_member(a, m->members[i]);
    if (!is_first)
        return;
    a->next_seq = m->next_seq;
    if (list_is_empty(&a->to_say) || a->client_seq == 0)
        a->client_seq = m->next_client_seq;
    attendance_send_text(a); /* perhaps once more: the number tells */
}

static void attendance_settle(struct attendance *a, uint32_t client_seq, uint32_t seq)
{
    if (client_seq == 0 || client_seq != a->client_seq || list_is_empty(&a->to_say))
        return;
    a->client_seq++;
    a->n_said++;
    a->said_seq = seq;
    attendance_drop_text(a);
}

static void attendance_take_entry(struct attendance *a, const Parley__V1__RoomEntry *m)
{
    const bool is_mine = strcmp(m->participant, a->id) == 0;
    const bool is_said = m->kind == PARLEY__V1__ROOM_ENTRY_KIND__ROOM_ENTRY_KIND_SAID;
    struct attendance_person *p;
    uint32_t n_missed;

    if (m->seq <= a->last_seq)
        return;
    n_missed = a->last_seq == 0 ? 0 : m->seq - a->last_seq - 1;
    a->last_seq = m->seq;
    p = attendance_find(a, m->participant);
    if (m->kind == PARLEY__V1__ROOM_ENTRY_KIND__ROOM_ENTRY_KIND_LEFT) {
        if (p != NULL)
            *p = a->people[--a->n_people];
    } else if (m->kind == PARLEY__V1__ROOM_ENTRY_KIND__ROOM_ENTRY_KIND_JOINED) {
        if (p == NULL && (p = attendance_add(a, m->participant, m->name)) != NULL)
            p->is_agent = m->from_kind == PARLEY__V1__ROOM_KIND__ROOM_KIND_AGENT;
    } else if (p != NULL && is_said) {
        p->is_typing = false;
    }
    if (is_mine && is_said)
        attendance_settle(a, m->client_seq, m->seq);
    a->entry(a->arg, m, n_missed, is_mine && is_said);
}

static void attendance_take_error(struct attendance *a, const Parley__V1__RoomError *m)
{
    struct parley_error err = {.status = PARLEY_FAILED_PRECONDITION};

    if (m->client_seq == 0) {
        if (a->is_in) {
            a->refused(a->arg, m);
            return;
        }
        /* join was refused */
        if (strcmp(m->code, "RESOURCE_EXHAUSTED") == 0)
            err.status = m->retry_ms > 0 ? PARLEY_UNAVAILABLE : PARLEY_RESOURCE_EXHAUSTED;
        else if (strcmp(m->code, "UNAVAILABLE") == 0)
            err.status = PARLEY_UNAVAILABLE;
        else if (strcmp(m->code, "INVALID_ARGUMENT") == 0)
            err.status = PARLEY_INVALID_ARGUMENT;
        (void)snprintf(err.text, sizeof(err.text), "%s", m->message);
        if (err.status != PARLEY_UNAVAILABLE)
            attendance_end(a, &err);
        else
            a->lost = err;
        parley_call_cancel(a->call);
        return;
    }
    if (m->client_seq != a->client_seq || list_is_empty(&a->to_say))
        return;
    if (m->retry_ms > 0) {
        a->say_ms = env_now_ms(&env_real) + m->retry_ms;
        return;
    }
    a->refused(a->arg, m);
    attendance_drop_text(a);
}

static void attendance_take(struct attendance *a, const Parley__V1__RoomsAttachResponse *m)
{
    switch (m->frame_case) {
    case PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_WELCOME:
        copy_frame_text(a->id, sizeof(a->id), m->welcome->participant);
        copy_frame_text(a->token, sizeof(a->token), m->welcome->token);
        copy_frame_text(a->name, sizeof(a->name), m->welcome->name);
        break;
    case PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_SNAPSHOT:
        attendance_take_snapshot(a, m->snapshot);
        break;
    case PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_ENTRY:
        attendance_take_entry(a, m->entry);
        break;
    case PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_MEMBER:
        attendance_take_member(a, m->member);
        break;
    case PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_ACK:
        attendance_settle(a, m->ack->client_seq, m->ack->seq);
        break;
    case PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_LEFT:
        copy_frame_text(a->why, sizeof(a->why), m->left->why);
        attendance_end(a, NULL);
        break;
    case PARLEY__V1__ROOMS_ATTACH_RESPONSE__FRAME_ERROR:
        attendance_take_error(a, m->error);
        break;
    default: /* of a newer server */
        break;
    }
}

/* --- connections --- */

/* The stream has ended. */
static void attendance_lose(struct attendance *a, const struct parley_error *err)
{
    const uint64_t now = env_now_ms(&env_real);
    static const struct parley_error ended = {.status = PARLEY_UNAVAILABLE,
                                              .text = "the server ended the stream"};

    parley_call_unref(a->call);
    a->call = NULL;
    a->is_in = false;
    if (a->has_ended)
        return;
    if (a->is_leaving) {
        attendance_end(a, NULL);
        return;
    }
    if (err->status == PARLEY_OK)
        a->lost = ended;
    else if (err->status != PARLEY_CANCELLED) /* it was cancelled here: lost says why */
        a->lost = *err;
    if (a->give_up_ms == 0)
        a->give_up_ms = now + a->patience_ms;
    if (a->lost.status != PARLEY_UNAVAILABLE || now >= a->give_up_ms) {
        attendance_end(a, &a->lost);
        return;
    }
    a->again_ms = now + a->delay_ms;
    a->delay_ms = a->delay_ms < LAST_DELAY_MS / 2 ? 2 * a->delay_ms : LAST_DELAY_MS;
}

static bool attendance_is_due(uint64_t at_ms, uint64_t now)
{
    return at_ms != 0 && at_ms <= now;
}

static void attendance_do_due(struct attendance *a)
{
    const uint64_t now = env_now_ms(&env_real);

    if (attendance_is_due(a->leave_ms, now))
        attendance_end(a, NULL);
    if (a->has_ended)
        return;
    if (attendance_is_due(a->say_ms, now))
        attendance_send_text(a);
    if (attendance_is_due(a->give_up_ms, now)) {
        if (a->call != NULL)
            parley_call_cancel(a->call); /* its end follows */
        else
            attendance_end(a, &a->lost);
    } else if (attendance_is_due(a->again_ms, now)) {
        attendance_connect(a);
    }
}

static void attendance_set_timer(const struct attendance *a)
{
    const uint64_t times[] = {a->give_up_ms, a->again_ms, a->say_ms, a->leave_ms};
    const uint64_t now = env_now_ms(&env_real);
    struct itimerspec when = {0};
    uint64_t first = 0;

    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
        if (times[i] != 0 && (first == 0 || times[i] < first))
            first = times[i];
    if (first != 0) {
        const uint64_t left = first > now ? first - now : 1; /* 0 would stop it */

        when.it_value.tv_sec = (time_t)(left / 1000);
        when.it_value.tv_nsec = (long)(left % 1000) * 1000000;
    }
    (void)timerfd_settime(a->timer_fd, 0, &when, NULL); /* fails only for wrong arguments */
}

void attendance_step(struct attendance *a)
{
    struct parley_error call_err = {0};
    bool has_call_ended;
    struct list frames;
    struct link *l;
    uint64_t n;

    (void)!read(a->event_fd, &n, sizeof(n)); /* fails when there is nothing to clear */
    (void)!read(a->timer_fd, &n, sizeof(n)); /* as above */
    list_init(&frames);
    (void)pthread_mutex_lock(&a->lock);
    list_move(&a->inbox, &frames);
    a->n_inbox = 0;
    has_call_ended = a->has_call_ended;
    a->has_call_ended = false;
    if (has_call_ended)
        call_err = a->call_err;
    (void)pthread_cond_signal(&a->has_room);
    (void)pthread_mutex_unlock(&a->lock);
    while ((l = list_pop(&frames)) != NULL) {
        struct attendance_frame *f = container_of(l, struct attendance_frame, link);

        if (f->response != NULL && !a->has_ended)
            attendance_take(a, f->response);
        if (f->response != NULL)
            parley__v1__rooms_attach_response__free_unpacked(f->response, NULL);
        free(f);
    }
    if (has_call_ended)
        attendance_lose(a, &call_err);
    attendance_do_due(a);
    attendance_set_timer(a);
}

bool attendance_has_unsaid(const struct attendance *a)
{
    return !list_is_empty(&a->to_say);
}

bool attendance_is_settled(const struct attendance *a)
{
    const uint32_t up_to = a->said_seq >= a->next_seq ? a->said_seq : a->next_seq - 1;

    return a->is_in && list_is_empty(&a->to_say) && a->last_seq >= up_to;
}

/* --- life --- */

bool attendance_open(struct attendance *a)
{
    struct epoll_event event = {.events = EPOLLIN};

    (void)pthread_mutex_init(&a->lock, NULL); /* cannot fail on Linux, nor can the next */
    (void)pthread_cond_init(&a->has_room, NULL);
    list_init(&a->inbox);
    list_init(&a->to_say);
    a->delay_ms = FIRST_DELAY_MS;
    a->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    a->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    a->fd = epoll_create1(EPOLL_CLOEXEC);
    if (a->event_fd < 0 || a->timer_fd < 0 || a->fd < 0 ||
        epoll_ctl(a->fd, EPOLL_CTL_ADD, a->event_fd, &event) != 0 ||
        epoll_ctl(a->fd, EPOLL_CTL_ADD, a->timer_fd, &event) != 0) {
        console_error("no file descriptor is left: %s", strerror(errno));
        return false;
    }
    attendance_connect(a);
    return true;
}

static void close_if_open(int fd)
{
    if (fd >= 0)
        (void)close(fd); /* nothing was written */
}

void attendance_close(struct attendance *a)
{
    struct link *l;

    if (a->call != NULL) {
        (void)pthread_mutex_lock(&a->lock);
        a->is_closed = true;
        (void)pthread_cond_signal(&a->has_room);
        (void)pthread_mutex_unlock(&a->lock);
        parley_call_cancel(a->call);
        for (bool has_ended = false; !has_ended;) {
            struct pollfd one = {.fd = a->event_fd, .events = POLLIN};
            uint64_t n;

            (void)poll(&one, 1, -1); /* a signal only ends the wait early */
            (void)!read(a->event_fd, &n, sizeof(n));
            (void)pthread_mutex_lock(&a->lock);
            has_ended = a->has_call_ended;
            (void)pthread_mutex_unlock(&a->lock);
        }
        parley_call_unref(a->call);
    }
    while ((l = list_pop(&a->inbox)) != NULL) {
        struct attendance_frame *f = container_of(l, struct attendance_frame, link);

        if (f->response != NULL)
            parley__v1__rooms_attach_response__free_unpacked(f->response, NULL);
        free(f);
    }
    while ((l = list_pop(&a->to_say)) != NULL)
        free(container_of(l, struct attendance_text, link));
    close_if_open(a->fd);
    close_if_open(a->event_fd);
    close_if_open(a->timer_fd);
    (void)pthread_cond_destroy(&a->has_room);
    (void)pthread_mutex_destroy(&a->lock);
}
