/* Source formats: how a source of data becomes acts, episode by episode. Most formats are a const
 * table with a function for one line: source_read reads the file, checks UTF-8 and length, counts
 * lines and adds the place to errors. A source that is no file of lines has `read` instead. */
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
    /* Reads one line, which is valid UTF-8 and lives as long as the arena. Passes each complete act
     * to source_give. INVALID for a bad line, which skip_bad skips. */
    enum status (*line)(struct source *s, const char *line, size_t len, struct error *err);
    bool keeps_returns; /* a \r before or without \n is a part of its line, as in ParlAI */
    /* Called after the last line. NULL: nothing to do. */
    enum status (*end)(struct source *s, struct error *err);
    /* Set instead of line and end: passes all acts to source_give. path is the task without its
     * prefix. */
    enum status (*read)(struct source *s, const char *path, struct error *err);
};

/* Takes the n turns of one episode. They lie in the source's arena. */
typedef enum status (*source_take_fn)(void *to, struct act *turns, size_t n, struct error *err);

/* The state of one reading. The caller zeroes the struct and fills in its first part; source_read
 * leaves counts and the lines' checksum in it, and frees all else that it allocated. */
struct source {
    const struct data_format *format;
    struct lines lines;
    struct arena *arena; /* the caller's; holds acts and the lines that they borrow from */
    bool recycles;       /* the arena is emptied each time an episode has been taken */
    source_take_fn take; /* called for each episode */
    void *to;            /* for take */
    bool skip_bad;       /* a bad line is counted and skipped; else it is an error */
    enum fold fold;      /* for formats with read */
    const struct attached_data *attached; /* for attached_format; NULL: it is UNIMPLEMENTED */
    size_t n_skipped;                     /* bad lines */
    struct text_line_oddities oddities;   /* likely mistakes of parlai_format's lines */
    struct act *turns;                    /* [n_turns] the current episode */
    size_t n_turns, cap_turns;
    /* State of fbdialog_format: the text since the last labels, the sum of its rewards, and the
     * number of the line before. */
    struct buf context;
    double reward;
    int64_t last_number;
    bool begins;          /* the next act that the format gives begins an episode */
    struct arena retired; /* memory of the episode taken last; freed before the next line */
};

/* Returns the format with that name, NULL if there is none. */
const struct data_format *format_named(const char *name, size_t len);

extern const struct data_format parlai_format, jsonl_format, fbdialog_format, conversations_format,
    plugin_format, attached_format;

/* Returns the length of FILE.so in the path of a plugin's task, FILE.so[:ARGUMENT]. */
size_t plugin_file_len(const char *path);

/* Reads a source to its end and passes each episode to take. Errors in lines begin with
 * "PATH:LINE: ", those of a format with read with the plug-in's path or "attached:NAME". */
enum status source_read(struct source *s, const char *path, size_t max_line_bytes,
                        struct error *err) MUST_CHECK;

/* For a format with read: copies a line into the arena and passes it to another format's line.
 * INVALID if the line is not UTF-8. */
enum status source_line(struct source *s, const struct data_format *format, const char *line,
                        size_t len, struct error *err) MUST_CHECK;

/* For formats: adds one act to the current episode. begins: the act is the first of a new episode,
 * so the acts before it are passed to take. */
enum status source_give(struct source *s, const struct act *a, bool begins,
                        struct error *err) MUST_CHECK;

/* For formats: checks an act that has been read. INVALID unless text is there and is a text, id is
 * a text, labels and candidates are lists of texts (a single text becomes a list, allocated in
 * arena), episode_done is a bool, and reward is a number or one of the texts "NaN", "Infinity" and
 * "-Infinity", which become numbers; if there is a field eval_labels; or if needs_labels and there
 * is no field labels. */
enum status source_check(struct act *a, struct arena *arena, bool needs_labels,
                         struct error *err) MUST_CHECK;

#endif
