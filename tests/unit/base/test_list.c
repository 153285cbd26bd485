#include "base/list.h"

#include "tests/unit/base/suite.h"

struct item {
    int before; /* so that link is not the first member */
    struct link link;
    char name;
};

static struct item a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'}, d = {.name = 'd'};

static char name_of(const struct link *link)
{
    return container_of(link, const struct item, link)->name;
}

/* The list holds exactly these, in this order, both ways round. */
static void check_names(const struct list *list, const char *want)
{
    const struct link *at;
    size_t n = 0;

    for (at = list_first(list); at != NULL; at = list_next(list, at)) {
        ck_assert_int_eq(name_of(at), want[n]);
        ck_assert(link_is_on(at));
        ck_assert_ptr_eq(at->next->prev, at);
        n++;
    }
    ck_assert_int_eq(want[n], '\0');
    ck_assert_int_eq(list_is_empty(list), n == 0);
    if (n > 0)
        ck_assert_int_eq(name_of(list_last(list)), want[n - 1]);
    else
        ck_assert_ptr_null(list_last(list));
}

/* Items come out as they went in. */
START_TEST(push_and_pop)
{
    struct list list;

    list_init(&list);
    check_names(&list, "");
    ck_assert_ptr_null(list_pop(&list));
    list_push(&list, &a.link);
    list_push(&list, &b.link);
    list_push_front(&list, &c.link);
    check_names(&list, "cab");
    ck_assert_ptr_eq(list_pop(&list), &c.link);
    ck_assert(!link_is_on(&c.link));
    ck_assert_ptr_eq(list_pop(&list), &a.link);
    ck_assert_ptr_eq(list_pop(&list), &b.link);
    check_names(&list, "");
}
END_TEST

/* An item can be removed from any place, and its link says so. */
START_TEST(remove_anywhere)
{
    struct item *const all[] = {&a, &b, &c};
    const char *const left[] = {"bc", "ac", "ab"};

    for (int i = 0; i < 3; i++) {
        struct list list;

        list_init(&list);
        for (int k = 0; k < 3; k++)
            list_push(&list, &all[k]->link);
        list_remove(&all[i]->link);
        ck_assert(!link_is_on(&all[i]->link));
        check_names(&list, left[i]);
    }
}
END_TEST

/* An item goes in before another, or before the head, which is the end. */
START_TEST(insert_before)
{
    struct list list;

    list_init(&list);
    list_insert_before(&list.head, &d.link);
    list_insert_before(&d.link, &b.link);
    list_insert_before(&b.link, &a.link);
    list_insert_before(&d.link, &c.link);
    check_names(&list, "abcd");
}
END_TEST

/* Moving joins in order and empties the source, whichever of the two is empty. */
START_TEST(move_joins)
{
    struct list from, to;

    list_init(&from);
    list_init(&to);
    list_move(&from, &to);
    check_names(&to, "");
    list_push(&from, &a.link);
    list_push(&from, &b.link);
    list_move(&from, &to);
    check_names(&from, "");
    check_names(&to, "ab");
    list_push(&from, &c.link);
    list_move(&from, &to);
    check_names(&from, "");
    check_names(&to, "abc");
    list_move(&from, &to);
    check_names(&to, "abc");
    list_push(&from, &d.link); /* the source can be used again */
    check_names(&from, "d");
}
END_TEST

/* After link_init an item is on no list. */
START_TEST(link_starts_off)
{
    struct link link = {&link, &link};

    link_init(&link);
    ck_assert(!link_is_on(&link));
}
END_TEST

SUITE_MAIN("list", push_and_pop, remove_anywhere, insert_before, move_joins, link_starts_off)
