/* The tools that a request offers to the model, whatever its API, and what they mean for the turn.
 */
#ifndef SERVER_API_TOOLS_H
#define SERVER_API_TOOLS_H

#include <jansson.h>

#include "agents/message.h"
#include "base/arena.h"

struct completed_turn;
struct json_writer;
struct reply_format;
struct reply_parser_config;
struct stored_request;

enum { TOOLS_MAX = 512, TOOLS_MAX_NAME = 64 };

/* Of the parameters of functions that stand for other tools of Responses, by which their calls are
 * told: one with a text as its input, the two shells at the client's, and what edits its files. */
#define TOOLS_CUSTOM_TITLE "custom_tool_input"
#define TOOLS_LOCAL_SHELL_TITLE "local_shell_action"
#define TOOLS_SHELL_TITLE "shell_action"
#define TOOLS_PATCH_TITLE "apply_patch_operation"

struct offered_tool {
    const char *name;
    const json_t *parameters; /* NULL: it has none */
    bool is_strict;           /* its arguments are to match the schema in any case */
};

enum tools_choice { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED };

struct offered_tools {
    struct offered_tool *items; /* [n] */
    size_t n;
    struct text json; /* all of them, in the form of OpenAI's chat completions */
    enum tools_choice choice;
    const char *named; /* TOOLS_REQUIRED: the one that must be called; NULL: any */
    bool is_single;
};

/* INVALID if it is no name of a tool: letters, digits, _, - and dots, at most TOOLS_MAX_NAME. */
enum status tools_check_name(const char *name, const char *field, struct error *err) MUST_CHECK;

/* Tools whose schemas are texts, and their choice. */
struct tool_text {
    const char *name, *description;
    const char *parameters; /* JSON; "": it has none */
    bool is_strict;
};

struct tool_texts {
    const struct tool_text *items; /* [n] */
    size_t n;
    enum tools_choice choice;
    const char *named; /* NULL: any */
    bool is_single;
    bool has_strict; /* one of them is */
};

/* As tools_use, which is called. */
enum status tools_use_texts(struct tool_use *out, const struct constraint **ret_constraint,
                            const char **ret_left_out, const struct tool_texts *texts,
                            const struct reply_format *format, struct arena *arena,
                            struct error *err) MUST_CHECK;

/* How a reply to this request is divided into parts: false if it is text alone. asked may be NULL.
 */
bool tools_divide(struct reply_parser_config *out, const struct stored_request *asked,
                  const struct reply_format *format);
/* Whether a reply to it is JSON as a whole, but for its thoughts. */
bool tools_is_json(const struct stored_request *asked);
/* What a stream says whose reply has ended inside a call, which it has begun. */
enum status tools_cut_call(struct error *err, enum finish finish);

/* How many tokens of the reply have text of a thought. format: the model's, NULL: none. 0 also
 * without memory. */
uint32_t tools_thought_tokens(const struct completed_turn *t, const struct reply_format *format);

/* Writes a call's arguments, which are an object, as the model wrote them, in one line. */
void tools_write_arguments(struct json_writer *w, const char *name, struct text arguments);

/* What is offered to a reply of a model with this format (NULL: one without language), and in
 * *ret_constraint what it must match, NULL: nothing. *ret_left_out lists what is not enforced; ""
 * if all is. INVALID names the field "tools" or "tool_choice". */
enum status tools_use(struct tool_use *out, const struct constraint **ret_constraint,
                      const char **ret_left_out, const struct offered_tools *tools,
                      const struct reply_format *format, struct arena *arena,
                      struct error *err) MUST_CHECK;

#endif
