#include "agents/constraint/json_value.h"

#include <math.h>

/* Against the whole part of the other number, whose fraction is what is left. */
static bool integer_is_less(json_int_t a, double b)
{
    const double whole = floor(b);

    if (whole >= 0x1p63 || whole < -0x1p63)
        return whole > 0;
    return a < (json_int_t)whole || (a == (json_int_t)whole && whole < b);
}

static bool is_less_than_integer(double a, json_int_t b)
{
    const double whole = floor(a);

    if (whole >= 0x1p63 || whole < -0x1p63)
        return whole < 0;
    return (json_int_t)whole < b;
}

bool json_number_is_less(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer_value(a) < json_integer_value(b);
    if (json_is_integer(a))
        return integer_is_less(json_integer_value(a), json_real_value(b));
    if (json_is_integer(b))
        return is_less_than_integer(json_real_value(a), json_integer_value(b));
    return json_real_value(a) < json_real_value(b);
}

static bool are_same_objects(const json_t *a, const json_t *b)
{
    json_t *from = (json_t *)a; /* jansson's iterators do not change it */

    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at)) {
        const json_t *other = json_object_get(b, json_object_iter_key(at));

        if (other == NULL || !json_value_is_same(json_object_iter_value(at), other))
            return false;
    }
    return json_object_size(a) == json_object_size(b);
}

bool json_value_is_same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return !json_number_is_less(a, b) && !json_number_is_less(b, a);
    if (json_is_object(a) && json_is_object(b))
        return are_same_objects(a, b);
    if (!json_is_array(a) || !json_is_array(b))
        return json_equal(a, b);
    for (size_t i = 0; i < json_array_size(a) && i < json_array_size(b); i++)
        if (!json_value_is_same(json_array_get(a, i), json_array_get(b, i)))
            return false;
    return json_array_size(a) == json_array_size(b);
}
