/* The options of a verb as tables. A row has an option's name, its meaning, and where its value is
 * stored; the parser and the help text both read the table. */
#ifndef CLI_OPTIONS_OPTIONS_H
#define CLI_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/options/verb.h"

enum option_kind {
    OPTION_FLAG,         /* bool */
    OPTION_TEXT,         /* const char *, into argv */
    OPTION_TEXTS,        /* struct option_texts: may be given again */
    OPTION_U32,          /* uint32_t */
    OPTION_U64,          /* uint64_t */
    OPTION_I64,          /* int64_t, may be negative */
    OPTION_BOOL,         /* bool, said as true or false */
    OPTION_FLOAT,        /* float, finite */
    OPTION_DOUBLE,       /* double, finite */
    OPTION_FLOAT_FROM_0, /* the same, 0 or above */
    OPTION_DOUBLE_FROM_0,
};

enum { OPTION_TEXTS_MAX = 16 };

struct option_texts {
    const char *texts[OPTION_TEXTS_MAX];
    size_t n;
};

struct option_row {
    const char *name;  /* "max-tokens", or with a second name, of one dash: "datatype|dt"; NULL ends
                          a table */
    const char *value; /* what the help calls its value; NULL for a flag */
    const char *help;
    enum option_kind kind;
    size_t offset; /* of the value, in the struct that the group names */
    unsigned set;  /* the bit that is set if the option is given; 0: there is none */
};

struct option_group {
    const struct option_row *rows;
    void *into;
    unsigned *set; /* NULL where no row has a bit */
};

enum options_end {
    OPTIONS_RUN,
    OPTIONS_HELP, /* --help was given; the help was printed on stdout */
    OPTIONS_WRONG,
};

/* Reads the options of argv into the groups. Options and arguments may be mixed; "--" ends the
 * options. The function moves the arguments to the end of argv, in order, and *ret_first is the
 * index of the first one. After OPTIONS_WRONG *err says what is wrong. */
enum options_end options_parse(const struct verb *verb, const struct option_group *groups,
                               size_t n_groups, int argc, char **argv, int *ret_first,
                               struct error *err);

/* Sets the option of a name by a value, as if the command line had it; value may be NULL for a
 * flag. NOT_FOUND, with the nearest name, if no row has that name; INVALID for a wrong value. */
enum status options_set(const struct option_group *group, const char *name, const char *value,
                        struct error *err) MUST_CHECK;

/* Writes the value of a row of the group as text into out, "" if the option was not set. */
void options_show(char *out, size_t size, const struct option_group *group,
                  const struct option_row *row);

/* Does what options_parse does, for a verb that takes from n_min to n_max arguments. The function
 * returns false if the verb must not run: it has then printed the help or what is wrong, and
 * *ret_code is the program's exit code. */
bool options_read(const struct verb *verb, const struct option_group *groups, size_t n_groups,
                  int argc, char **argv, int n_min, int n_max, int *ret_first,
                  enum exit_code *ret_code);

/* Writes the command line of a verb as it is typed, cut where it is too long. argv[0] is the verb.
 * To be called before options_read, which changes the order of argv. */
void options_write_command(char *out, size_t size, int argc, char **argv);

/* Prints a misuse that the tables cannot express, with a hint at the verb's help. The function
 * returns EXIT_MISUSE. */
enum exit_code options_misuse(const struct verb *verb, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
