/* Source formats: how a data file becomes acts, episode by episode. A format is a const table over
 * lines; the framework reads, checks UTF-8 and length, counts lines and adds the place to errors.
 */
#ifndef WORLDS_TEACHERS_FORMAT_H
#define WORLDS_TEACHERS_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"
#include "worlds/message/act.h"
#include "worlds/message/datatype.h"
#include "worlds/message/text_line.h"
#include "worlds/teachers/lines.h"

struct source;
struct attached_data;

struct data_format {
    const char *name; /* the prefix of a task: "parlai" */
    /* One line, valid UTF-8; it lives as long as the arena. Passes each complete act to
     * source_give. */
    enum status (*line)(struct source *s, const char *line, size_t len, struct error *err);
    bool keeps_returns; /* a \r before or without \n is a part of its line, as ParlAI has it */
    /* After the last line; may be NULL. */
    enum status (*end)(struct source *s, struct error *err);
    /* Instead of lines: passes all acts. path: what stands behind the prefix. */
    enum status (*read)(struct source *s, const char *path, struct error *err);
};

/* Takes the turns of one episode, which lie in the arena. */
typedef enum status (*source_take_fn)(void *to, struct act *turns, size_t n, struct error *err);

struct source {
    const struct data_format *format;
    struct lines lines;
    struct arena *arena; /* of acts and the lines they borrow from */
    bool recycles;       /* the arena is cleared once an episode has been taken */
    source_take_fn take;
    void *to;
    bool skip_bad;
    enum fold fold; /* for those that read, as: */
    const struct attached_data *attached;
    size_t n_skipped;
    struct text_line_oddities oddities;
    /* the current episode */
    struct act *turns; /* [n_turns] */
    size_t n_turns, cap_turns;
    /* a format's own: fbdialog's text so far, reward and line number */
    struct buf context;
    double reward;
    int64_t last_number;
    bool begins;          /* the next act given begins an episode */
    struct arena retired; /* of episodes that were taken; freed before the next line */
};

/* NULL for an unknown name. */
const struct data_format *format_named(const char *name, size_t len);
const struct data_format *format_at(size_t i); /* NULL after the last */

extern const struct data_format parlai_format, jsonl_format, fbdialog_format, conversations_format,
    plugin_format, attached_format;

/* Of plugin's FILE.so[:ARGUMENT], the length of FILE.so. */
size_t plugin_file_len(const char *path);

/* Reads the file to its end. Errors begin with "PATH:LINE: ", or "PATH: ". Leaves the lines'
 * checksum and size in *s, whose other members the caller has filled or zeroed. */
enum status source_read(struct source *s, const char *path, size_t max_line_bytes,
                        struct error *err) MUST_CHECK;

/* For formats that read: one line, as a file of another format has it; it is copied. */
enum status source_line(struct source *s, const struct data_format *format, const char *line,
                        size_t len, struct error *err) MUST_CHECK;

/* For formats. Adds one act; begins: it is the first of an episode, so the acts before it are an
 * episode and are passed to take. */
enum status source_give(struct source *s, const struct act *a, bool begins,
                        struct error *err) MUST_CHECK;

/* Checks an act that a format has read: text a text, labels and candidates lists of texts (a single
 * text becomes a list), episode_done a bool, reward a number, no eval_labels. */
enum status source_check(struct act *a, struct arena *arena, bool needs_labels,
                         struct error *err) MUST_CHECK;

#endif
