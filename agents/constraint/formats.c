/* The formats of the specification, as regular expressions; of those that are about the characters
 * of all languages, or about ECMAScript, only some texts. */
#include "agents/constraint/string_automaton.h"

#include <string.h>

/* Python and others have no year 0. */
#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define YEAR_LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define FULL_DATE                                                                                 \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|" \
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
/* At most 253 characters in all: few labels of any length, or more of which none is long. */
#define LABEL_TO(n) "[A-Za-z0-9](?:[A-Za-z0-9-]{0," n "}[A-Za-z0-9])?"
#define LABEL30 LABEL_TO("28")
/* Labels that IDNA keeps for itself. */
#define NO_IDNA "^(?!(?:.*\\.)?..--)"
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
#define QUOTED "\"(?:[ !#-?A-\\[\\]-~]|\\\\[ -?A-~])*\""
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
/* Of at most 64 characters before the @, and 254 in all. */
#define EMAIL                                                                                      \
    "^(?=[^@]{1,64}@)(?:" ATEXT "(?:\\." ATEXT ")*|" QUOTED ")@(?:(?:" LABEL30 "\\.){0,5}" LABEL30 \
    "|(?:" LABEL63 "\\.){0,1}" LABEL60 ")$"
/* What ECMAScript and others understand alike: groups that are not in each other, classes, ^ at the
 * beginning and $ at the end. */
#define REGEX_ATOM                                                                                \
    "(?:[A-Za-z0-9 _,:;=@#%&'\"<>~`!/.-]|\\\\[dwsDWS.*+?^$(){}|\\[\\]\\\\]|\\[\\^?(?:[A-Za-z0-9 " \
    "_.,]|"                                                                                       \
    "a-z|A-Z|0-9|\\\\[dws.\\]\\\\])+\\])"
#define REGEX_COUNT "(?:[*+?]|\\{[1-9],?\\})?"
#define REGEX_PIECES "(?:" REGEX_ATOM REGEX_COUNT ")*"
#define REGEX_GROUP "\\((?:\\?:)?" REGEX_PIECES "(?:\\|" REGEX_PIECES ")*\\)" REGEX_COUNT
#define REGEX_ONE "(?:" REGEX_ATOM REGEX_COUNT "|" REGEX_GROUP ")*"

static const struct format {
    const char *name, *regex;
} formats[] = {
    {"date", "^" FULL_DATE "$"},
    {"date-time", "^" FULL_DATE "[Tt]" FULL_TIME "$"},
    {"duration", "^P(?:\\d{1,9}W|" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME ")$"},
    {"email", EMAIL},
    {"hostname",
     NO_IDNA "(?:(?:" LABEL30 "\\.){0,7}" LABEL30 "|(?:" LABEL63 "\\.){0,3}" LABEL60 ")$"},
    {"idn-email", EMAIL},
    {"idn-hostname", "^[a-z0-9]{1,63}(?:\\.[a-z0-9]{1,62}){0,3}$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^" IPV6 "$"},
    {"iri", "^" URI "$"},
    {"iri-reference", "^" URI_REFERENCE "$"},
    {"json-pointer", "^(?:/(?:[^~/]|~[01])*)*$"},
    {"regex", "^\\^?" REGEX_ONE "(?:\\|" REGEX_ONE ")*\\$?$"},
    {"relative-json-pointer", "^(?:0|[1-9]\\d{0,8})(?:#|(?:/(?:[^~/]|~[01])*)*)$"},
    {"time", "^" FULL_TIME "$"},
    {"uri", "^" URI "$"},
    {"uri-reference", "^" URI_REFERENCE "$"},
    {"uri-template", "^(?:[^\\u0000- \"'%<>\\\\^`{|}\\u007F-\\u009F]|" PCT "|\\{[+#./;?&]?" VARIABLE
                     "(?:," VARIABLE ")*\\})*$"},
    {"uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$"},
};

const char *format_regex(const char *name)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].regex;
    return NULL;
}
