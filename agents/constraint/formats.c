/* The formats of the specification, as regular expressions. A text has a format if all of them are
 * found in it. */
#include "agents/constraint/string_automaton.h"

#include <string.h>

#define YEAR_LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define FULL_DATE                                                                               \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|" \
    "30)|02-(?:0[1-9]|1\\d|2[0-8]))|" YEAR_LEAP "-02-29)"
/* A second 60 comes only at the end of a day in UTC. */
#define FULL_TIME                                                                                 \
    "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]" \
    "\\d)|23:59:60(?:\\.\\d{1,9})?(?:[Zz]|[+-]00:00))"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                     \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32    \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16           \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16     \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 \
    ")?::)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
/* At most 253 characters in all: few labels of any length, or more of which none is long. */
#define LABEL_TO(n) "[A-Za-z0-9](?:[A-Za-z0-9-]{0," n "}[A-Za-z0-9])?"
#define LABEL30 LABEL_TO("28")
#define LABEL60 LABEL_TO("58")
#define LABEL63 LABEL_TO("61")
#define PCT "%[0-9A-Fa-f]{2}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define AUTHORITY                                               \
    "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" PCT ")*@)?(?:\\[" IPV6 \
    "\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|" PCT ")*)(?::\\d*)?"
#define TAIL "(?:\\?(?:[/?]|" PCHAR ")*)?(?:#(?:[/?]|" PCHAR ")*)?"
#define URI                                                                               \
    "[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR \
    "*)*)?|" PCHAR "+(?:/" PCHAR "*)*|)" TAIL
#define SEGMENT_NO_COLON "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" PCT ")+"
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]*:"
#define URI_REFERENCE                                                                              \
    "(?:" SCHEME "(?:" PCHAR "+(?:/" PCHAR "*)*)?|" SEGMENT_NO_COLON "(?:/" PCHAR "*)*|(?:" SCHEME \
    ")?(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?)|)" TAIL
#define VARIABLE "(?:[A-Za-z0-9_]|" PCT ")(?:\\.?(?:[A-Za-z0-9_]|" PCT "))*(?:\\*|:[1-9]\\d{0,3})?"
#define DURATION_DATE "(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?|\\d{1,9}D)"
#define DURATION_TIME "T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S)"
#define QUOTED "\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\""
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

enum { MAX_REGEXES = 4 };

static const struct format {
    const char *name;
    const char *regexes[MAX_REGEXES]; /* ends with NULL; none: it has no automaton */
} formats[] = {
    {"date", {"^" FULL_DATE "$"}},
    {"date-time", {"^" FULL_DATE "[Tt]" FULL_TIME "$"}},
    {"duration", {"^P(?:\\d{1,9}W|" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME ")$"}},
    {"email", {"^(?:" ATEXT "(?:\\." ATEXT ")*|" QUOTED ")@" LABEL "(?:\\." LABEL ")*$"}},
    {"hostname", {"^(?:(?:" LABEL30 "\\.){0,7}" LABEL30 "|(?:" LABEL63 "\\.){0,3}" LABEL60 ")$"}},
    {"idn-email", {NULL}},
    {"idn-hostname", {NULL}},
    {"ipv4", {"^" IPV4 "$"}},
    {"ipv6", {"^" IPV6 "$"}},
    {"iri", {NULL}},
    {"iri-reference", {NULL}},
    {"json-pointer", {"^(?:/(?:[^~/]|~[01])*)*$"}},
    {"regex", {NULL}},
    {"relative-json-pointer", {"^(?:0|[1-9]\\d{0,8})(?:#|(?:/(?:[^~/]|~[01])*)*)$"}},
    {"time", {"^" FULL_TIME "$"}},
    {"uri", {"^" URI "$"}},
    {"uri-reference", {"^" URI_REFERENCE "$"}},
    {"uri-template",
     {"^(?:[^\\u0000- \"'%<>\\\\^`{|}\\u007F-\\u009F]|" PCT "|\\{[+#./;?&]?" VARIABLE
      "(?:," VARIABLE ")*\\})*$"}},
    {"uuid", {"^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$"}},
};

const char *const *format_regexes(const char *name, bool *ret_is_known)
{
    *ret_is_known = false;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(formats[i].name, name) == 0) {
            *ret_is_known = true;
            return formats[i].regexes[0] != NULL ? formats[i].regexes : NULL;
        }
    return NULL;
}
