/* Turns that a shared object gives (agents/plugin/parley_teacher.h): the task plugin:FILE.so, or
 * plugin:FILE.so:ARGUMENT. */
#include <limits.h>
#include <string.h>

#include "agents/plugin/library.h"
#include "base/utf8.h"
#include "worlds/teachers/config.h"
#include "worlds/teachers/format.h"

size_t plugin_file_len(const char *path)
{
    const char *argument = strstr(path, ".so:");

    return argument == NULL ? strlen(path) : (size_t)(argument - path) + strlen(".so");
}

static enum status plugin_text(struct text *out, const char *text, struct arena *arena,
                               struct error *err)
{
    size_t len = strlen(text);

    if (len > TEACHER_MAX_LINE_BYTES || !utf8_is_valid(text, len))
        return error_set(err, STATUS_INVALID,
                         len > TEACHER_MAX_LINE_BYTES ? "a text is too long" : "not UTF-8");
    *out = (struct text){arena_strndup(arena, text, len), len};
    return out->text != NULL ? STATUS_OK : error_no_memory(err, len, "a text");
}

/* A list of the object's texts, in the arena. */
static enum status plugin_set_list(struct act *a, enum act_key key, const char *const *texts,
                                   size_t n, struct arena *arena, struct error *err)
{
    struct text *items = arena_alloc(arena, n, sizeof(*items));

    if (items == NULL)
        return error_no_memory(err, n * sizeof(*items), "a list");
    for (size_t i = 0; i < n; i++) {
        if (texts[i] == NULL)
            return error_set(err, STATUS_INVALID, "text %zu of %s is missing", i,
                             act_key_name(key).text);
        if (plugin_text(&items[i], texts[i], arena, err) != STATUS_OK)
            return err->status;
    }
    return act_set(a, key, value_list(items, n), err);
}

static enum status plugin_turn(struct act *a, const struct parley_teacher_turn *turn,
                               struct arena *arena, struct error *err)
{
    struct text text = {0};

    act_init(a, arena);
    if (turn->text == NULL)
        return error_set(err, STATUS_INVALID, "the text is missing");
    if (turn->n_labels == 0)
        return error_set(err, STATUS_INVALID, "the labels are missing");
    if (plugin_text(&text, turn->text, arena, err) != STATUS_OK ||
        act_set(a, ACT_TEXT, value_text(text), err) != STATUS_OK ||
        plugin_set_list(a, ACT_LABELS, turn->labels, turn->n_labels, arena, err) != STATUS_OK)
        return err->status;
    if (turn->n_candidates > 0 && plugin_set_list(a, ACT_LABEL_CANDIDATES, turn->candidates,
                                                  turn->n_candidates, arena, err) != STATUS_OK)
        return err->status;
    if (turn->has_reward && act_set(a, ACT_REWARD, value_real(turn->reward), err) != STATUS_OK)
        return err->status;
    return act_set(a, ACT_EPISODE_DONE, value_bool(turn->is_last), err);
}

static enum status plugin_give_all(struct source *s, const struct parley_teacher *type,
                                   void *teacher, struct error *err)
{
    for (size_t n = 1;; n++) {
        struct parley_teacher_error why = {0};
        struct parley_teacher_turn turn = {0};
        bool begins = s->begins;
        enum status rc;
        struct act a;

        if (!type->next(teacher, &turn, &why)) {
            why.text[sizeof(why.text) - 1] = '\0';
            return why.text[0] == '\0'
                       ? STATUS_OK
                       : error_set(err, STATUS_INVALID, "turn %zu: %s", n, why.text);
        }
        arena_deinit(&s->retired);
        rc = plugin_turn(&a, &turn, s->arena, err);
        if (rc == STATUS_INVALID && s->skip_bad) {
            s->n_skipped++;
            continue;
        }
        if (rc != STATUS_OK)
            return error_prefix(err, "turn %zu", n);
        s->begins = turn.is_last;
        if (source_give(s, &a, begins, err) != STATUS_OK)
            return err->status;
    }
}

static enum status plugin_read(struct source *s, const char *path, struct error *err)
{
    static const char *const folds[] = {
        [FOLD_TRAIN] = "train", [FOLD_VALID] = "valid", [FOLD_TEST] = "test"};
    const size_t len = plugin_file_len(path);
    struct parley_teacher_error why = {0};
    struct plugin_library library;
    char file[PATH_MAX];
    void *teacher;
    enum status rc;

    if (len >= sizeof(file))
        return error_set(err, STATUS_INVALID, "the path of the plug-in is too long");
    memcpy(file, path, len);
    file[len] = '\0';
    if (plugin_library_open(&library, file, err) != STATUS_OK)
        return err->status;
    if (library.teacher == NULL) {
        rc = error_set(err, STATUS_PRECONDITION, "plug-in %.120s: it defines no parley_teacher",
                       file);
        goto out;
    }
    teacher = library.teacher->open(folds[s->fold], path[len] == ':' ? path + len + 1 : "", &why);
    if (teacher == NULL) {
        why.text[sizeof(why.text) - 1] = '\0';
        rc = error_set(err, STATUS_PRECONDITION, "plug-in %.120s: %s", file,
                       why.text[0] != '\0' ? why.text : "its teacher cannot be opened");
        goto out;
    }
    rc = plugin_give_all(s, library.teacher, teacher, err);
    library.teacher->close(teacher);
    if (rc != STATUS_OK)
        (void)error_prefix(err, "plug-in %.120s", file);
out:
    plugin_library_close(&library);
    return rc;
}

const struct data_format plugin_format = {.name = "plugin", .read = plugin_read};
