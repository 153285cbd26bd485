/* Chat templates for models whose file has none, or another than is wanted: some well-known ones by
 * name, and those of files. */
#ifndef AGENTS_LM_CHAT_NAMED_TEMPLATE_H
#define AGENTS_LM_CHAT_NAMED_TEMPLATE_H

#include "base/buf.h"
#include "base/status.h"

enum { NAMED_TEMPLATE_MAX = 1 << 20 }; /* bytes of a file */

/* Appends the Jinja text of a template to out: the one of that name ("chatml", "gemma", …), else
 * the file's. NOT_FOUND, which lists the names, where there is neither. */
enum status named_template_read(struct buf *out, const char *name_or_path,
                                struct error *err) MUST_CHECK;

/* The i-th name in order, NULL behind the last. */
const char *named_template_name(size_t i);

#endif
