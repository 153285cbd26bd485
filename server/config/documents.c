/* Writes the documents row by row from the table of options, each with the escapes of its format.
 */
#include "server/config/documents.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "server/config/options.h"
#include "server/config/setters.h"
#include "server/config/units.h"

enum { HELP_COLUMN = 28, HELP_WIDTH = 96 };

static const char *default_of(const struct config_option *o)
{
    return o->initial != NULL ? o->initial : o->usual;
}

/* --- words, folded --- */

/* Where words go: a line with an indent, folded at HELP_WIDTH. */
struct folder {
    FILE *out;
    const char *indent;
    size_t column;
    bool is_at_start; /* of a line */
};

static void folder_word(struct folder *f, const char *word, size_t len)
{
    if (!f->is_at_start && f->column + 1 + len > HELP_WIDTH) {
        (void)fprintf(f->out, "\n%s", f->indent);
        f->column = strlen(f->indent);
        f->is_at_start = true;
    }
    (void)fprintf(f->out, "%s%.*s", f->is_at_start ? "" : " ", (int)len, word);
    f->column += len + (f->is_at_start ? 0 : 1);
    f->is_at_start = false;
}

static void folder_text(struct folder *f, const char *text)
{
    for (size_t len; *text != '\0'; text += len) {
        text += strspn(text, " ");
        len = strcspn(text, " ");
        if (len > 0)
            folder_word(f, text, len);
    }
}

/* "(20s)" */
static void folder_default(struct folder *f, const struct config_option *o)
{
    char text[160];

    if (default_of(o) == NULL)
        return;
    (void)snprintf(text, sizeof(text), "(%s)", default_of(o)); /* the table's are short */
    folder_text(f, text);
}

/* --- --help --- */

static void help_option(FILE *out, const struct config_option *o)
{
    static const char indent[HELP_COLUMN + 1] = "                            ";
    struct folder f = {.out = out, .indent = indent, .column = HELP_COLUMN, .is_at_start = true};
    int n = fprintf(out, "  %s%s%s%s%s", o->flag,
                    o->value == NULL ? ""
                    : o->is_switch   ? "["
                                     : " ",
                    o->value == NULL ? ""
                    : o->is_switch   ? "="
                                     : "",
                    o->value == NULL ? "" : o->value, o->is_switch ? "]" : "");

    if (n + 2 > HELP_COLUMN)
        (void)fprintf(out, "\n%s", indent);
    else
        (void)fprintf(out, "%*s", HELP_COLUMN - n, "");
    folder_text(&f, o->help);
    folder_default(&f, o);
    (void)fputc('\n', out);
}

void document_help(FILE *out)
{
    (void)fputs("usage: parleyd [--model NAME=PATH]... [--listen ADDRESS]... [--http ADDRESS|off]\n"
                "               [--config FILE] [OPTION]...\n"
                "\n"
                "Serves stateful agents to many conversations over gRPC and HTTP. 'echo' is always "
                "served.\n",
                out);
    for (size_t i = 0; i < config_n_options; i++) {
        const struct config_option *o = &config_options[i];

        if (o->group != NULL)
            (void)fprintf(out, "\n%s:\n", o->group);
        help_option(out, o);
    }
    (void)fputs(
        "\n"
        "The options above --config are also keys of the YAML file (kv_bytes), and they and "
        "--config\n"
        "are also environment variables (PARLEY_KV_BYTES; list entries are separated by commas).\n"
        "An option overrides the variable, the variable the file, and the file the default.\n"
        "When parleyd is ready, it prints one line on stderr: ready grpc=HOST:PORT http=HOST:PORT\n"
        "page=http://HOST:PORT/ models=NAME,... in=MS\n"
        "SIGTERM lets turns in flight finish; a second SIGTERM stops at once.\n"
        "Exit status: 0 stopped as requested, 1 failed, 2 wrong usage or configuration.\n",
        out);
}

/* --- the example --- */

/* Puts "# " before each line of an example, which may have several. */
static void example_lines(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        (void)fputc(*text, out);
        if (*text == '\n')
            (void)fputs("#", out);
    }
    (void)fputc('\n', out);
}

static void example_option(FILE *out, const struct config_option *o)
{
    struct folder f = {.out = out, .indent = "## ", .column = 3, .is_at_start = true};
    const char *example = o->example != NULL ? o->example : o->initial;

    (void)fputs("\n## ", out);
    folder_text(&f, o->help);
    folder_default(&f, o);
    if (o->is_reloadable)
        folder_text(&f, "[SIGHUP]");
    (void)fprintf(out, "\n#%s:%s", o->key, example[0] == '\n' ? "" : " ");
    example_lines(out, example);
}

void document_example(FILE *out)
{
    (void)fputs(
        "## The configuration of parleyd: every key, with an example value. Remove the '#' to "
        "set a key.\n"
        "## Sizes take K, M or G; times take ms, s, m or h. Check the file with parleyd "
        "--check --config FILE.\n"
        "## The default is in parentheses. [SIGHUP]: read again on that signal.\n",
        out);
    for (size_t i = 0; i < config_n_options; i++)
        if (config_options[i].key != NULL && !config_options[i].is_not_in_file)
            example_option(out, &config_options[i]);
}

/* --- roff --- */

static void roff_char(FILE *out, char c)
{
    if (c == '-' || c == '\\')
        (void)fputs(c == '-' ? "\\-" : "\\e", out);
    else
        (void)fputc(c, out);
}

/* A flag and a variable are bold; a word like "HOST:PORT" stays as it is. */
static void roff_word(FILE *out, const char *word, size_t len)
{
    bool is_bold = strncmp(word, "--", 2) == 0 || strncmp(word, "PARLEY_", 7) == 0;
    size_t bold = is_bold ? strcspn(word, " .,:;)'=") : 0;

    if (bold > len)
        bold = len;
    if (word[0] == '.' || word[0] == '\'')
        (void)fputs("\\&", out);
    if (is_bold)
        (void)fputs("\\fB", out);
    for (size_t i = 0; i < len; i++) {
        if (is_bold && i == bold)
            (void)fputs("\\fR", out);
        roff_char(out, word[i]);
    }
    if (is_bold && bold == len)
        (void)fputs("\\fR", out);
}

/* A line for each sentence, as roff has it. */
static void roff_text(FILE *out, const char *text)
{
    for (size_t len; *text != '\0'; text += len) {
        text += strspn(text, " ");
        len = strcspn(text, " ");
        roff_word(out, text, len);
        if (text[len] == ' ')
            (void)fputc(text[len - 1] == '.' && isupper((unsigned char)text[len + 1]) ? '\n' : ' ',
                        out);
    }
}

/* With a capital, but for a word like gRPC. */
static void roff_sentence(FILE *out, const char *clause)
{
    size_t len = strcspn(clause, " ");
    char first = clause[0];

    if (!isupper((unsigned char)clause[1]))
        first = (char)toupper((unsigned char)first);
    roff_char(out, first);
    roff_word(out, clause + 1, len - 1);
    if (clause[len] != '\0')
        (void)fputc(' ', out);
    roff_text(out, clause + len);
}

static void manual_title(FILE *out, const struct config_option *o)
{
    (void)fputs(".TP\n\\fB", out);
    for (const char *c = o->flag; *c != '\0'; c++)
        roff_char(out, *c);
    (void)fputs("\\fR", out);
    if (o->value != NULL) {
        (void)fputs(o->is_switch ? "[=\\fI" : " \\fI", out);
        for (const char *c = o->value; *c != '\0'; c++)
            roff_char(out, *c);
        (void)fputs(o->is_switch ? "\\fR]" : "\\fR", out);
    }
    (void)fputc('\n', out);
}

static void manual_option(FILE *out, const struct config_option *o)
{
    manual_title(out, o);
    roff_sentence(out, o->help);
    (void)fputs(".\n", out);
    if (o->more != NULL) {
        roff_text(out, o->more);
        (void)fputc('\n', out);
    }
    if (default_of(o) != NULL) {
        (void)fputs("Default: ", out);
        roff_text(out, default_of(o));
        (void)fputs(".\n", out);
    }
    if (o->is_reloadable)
        (void)fputs("Read again on SIGHUP.\n", out);
}

void document_manual(FILE *out)
{
    for (size_t i = 0; i < config_n_options; i++) {
        if (config_options[i].group != NULL)
            (void)fprintf(out, ".SS %s\n", config_options[i].group);
        manual_option(out, &config_options[i]);
    }
}

/* --- the table --- */

static const char *unit_of(const struct config_option *o)
{
    const struct config_unit *units = o->units;

    if (o->set == set_drain_timeout || o->set == set_linger)
        units = config_times;
    if (o->set == set_kv_host_bytes)
        units = config_sizes;
    return units == config_times      ? "ms s m h"
           : units == config_sizes    ? "K M G"
           : units == config_ms_in_us ? "milliseconds"
                                      : "";
}

void document_table(FILE *out)
{
    for (size_t i = 0; i < config_n_options; i++) {
        const struct config_option *o = &config_options[i];
        char name[CONFIG_VARIABLE_MAX] = "";

        if (o->key != NULL)
            config_option_variable(name, o);
        (void)fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", o->flag,
                      o->value != NULL ? o->value : "",
                      o->key != NULL && !o->is_not_in_file ? o->key : "", name,
                      default_of(o) != NULL ? default_of(o) : "", unit_of(o),
                      o->is_reloadable ? "reloadable" : "", o->help);
    }
}
