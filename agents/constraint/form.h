/* The forms of a constraint that the engine reads. Also C++. */
#ifndef AGENTS_CONSTRAINT_FORM_H
#define AGENTS_CONSTRAINT_FORM_H

enum constraint_form {
    CONSTRAINT_SCHEMA, /* the grammar of a JSON schema: guard.h */
    CONSTRAINT_REGEX,  /* matches the whole text */
    CONSTRAINT_EBNF,   /* the rule root */
    CONSTRAINT_TAGS,   /* XGrammar's structural tags, with such grammars in them */
};

#endif
