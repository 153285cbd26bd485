#!/usr/bin/env python3
"""Writes a shell's completions of parleyd or parley, from their own tables of options.

usage: completions.py bash|zsh|fish parleyd WRITE_DOCUMENTS     from `write_documents table`
       completions.py bash|zsh|fish parley PARLEY               from what `parley --help` and `parley VERB --help` print

Words before the program, such as qemu-aarch64 -L FOLDER, run it.
"""
import re
import subprocess
import sys

HELP = "List the options of a verb."

def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def of_parleyd(program):
    """{"": options}; an option is (flag, value, help)."""
    rows = (line.split("\t") for line in said(*program, "table").splitlines())
    return {"": [(row[0], row[1], row[7]) for row in rows]}, {}, {}


def of_parley(program):
    """{verb: options}, {verb: what it does}, {verb: the words that its usage has behind it}."""
    verbs = dict(re.findall(r"^  ([\w-]+)  +(\S.*)$", said(*program, "--help"), re.M))
    found = r"^  (--[\w-]+)(?:, -\w+)? ?(\S*)(?:  +|\n +)(\S.*(?:\n {30}\S.*)*)$"
    helps = {verb: said(*program, verb, "--help") for verb in verbs}
    options = {verb: [(flag, value, " ".join(text.split())) for flag, value, text in re.findall(found, text, re.M)] for verb, text in helps.items()}
    usages = {verb: text.split("\n\n")[0].removeprefix(f"usage: parley {verb} ") for verb, text in helps.items()}
    actions = {verb: re.findall(r"(?:^|\|)\s*\[?([a-z][a-z0-9-]*)(?![\w:\[])", usage) for verb, usage in usages.items()}
    assert verbs and all(options.values()) and "show" in actions["conversations"], "the help of parley has another form"
    return options, verbs, {verb: words for verb, words in actions.items() if words}


def is_file(value):
    return any(word in value for word in ("FILE", "PATH", "DIR")) and "NAME=" not in value


def choices(value):
    """The words of on|off|auto, without those that stand for something: SIZE."""
    return [word for word in value.split("|") if re.fullmatch("[a-z0-9]+", word)] if "|" in value else []


def bash(name, options, verbs, actions):
    lines = [f"# bash completion of {name}; written by tools/completions.py", f"_{name}()", "{",
             "    local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} verb= word",
             "    COMPREPLY=()"]
    if verbs:
        lines += ["    for word in \"${COMP_WORDS[@]:1:COMP_CWORD - 1}\"; do", f"        case $word in {'|'.join(verbs)}) verb=$word; break ;; esac", "    done"]
    lines += ["    case $verb:$before in"]
    if verbs:
        lines.append(f"    :help) COMPREPLY=($(compgen -W '{' '.join(verbs)}' -- \"$now\")); return ;;")
    for verb, words in actions.items():
        lines.append(f"    {verb}:{verb}) COMPREPLY=($(compgen -W '{' '.join(words + [row[0] for row in options[verb]])}' -- \"$now\")); return ;;")
    for verb, rows in options.items():
        for flag, value, _ in rows:
            if choices(value):
                lines.append(f"    {verb}:{flag}) COMPREPLY=($(compgen -W '{' '.join(choices(value))}' -- \"$now\")); return ;;")
            elif is_file(value):
                lines.append(f"    {verb}:{flag}) COMPREPLY=($(compgen -f -- \"$now\")); return ;;")
            elif value:
                lines.append(f"    {verb}:{flag}) return ;;")
    lines += ["    esac", "    case $verb in"]
    for verb, rows in options.items():
        lines.append(f"    {verb or repr('')}) COMPREPLY=($(compgen -W '{' '.join(row[0] for row in rows)}' -- \"$now\")) ;;")
    if verbs:
        lines.append(f"    *) COMPREPLY=($(compgen -W '{' '.join(verbs)} help version --help --version' -- \"$now\")) ;;")
    lines += ["    esac", "    [[ ${#COMPREPLY[@]} -gt 0 || $now == -* ]] || COMPREPLY=($(compgen -f -- \"$now\"))", "}",
              f"complete -o filenames -F _{name} {name}"]
    return lines


def quoted(text):
    return text.replace("\\", "\\\\").replace("'", "'\\''")


def zsh_row(row):
    flag, value, text = row
    text = re.sub(r"([\[\]:])", r"\\\1", text)
    words = choices(value)
    action = f":{value.replace(':', chr(92) + ':')}:" + (f"({' '.join(words)})" if words else "_files" if is_file(value) else "") if value else ""
    return f"'{quoted(flag)}{'=' if value else ''}[{quoted(text)}]{quoted(action)}'"


def zsh(name, options, verbs, actions):
    lines = [f"#compdef {name}", "# written by tools/completions.py", f"_{name}() {{"]
    if verbs:
        lines += ["    local -a verbs=("] + [f"        '{verb}:{quoted(text.replace(':', ' '))}'" for verb, text in verbs.items()]
        lines += [f"        'help:{HELP}'", "    )", "    if (( CURRENT == 2 )); then", "        _describe verb verbs", "        return", "    fi",
                  "    local verb=$words[2]", "    shift words; (( CURRENT-- ))", "    case $verb in"]
        for verb, rows in options.items():
            first = f"'1:action:({' '.join(actions[verb])})' " if verb in actions else ""
            lines += [f"    {verb}) _arguments {' '.join(map(zsh_row, rows))} {first}'*:file:_files' ;;"]
        lines += ["    help) _describe verb verbs ;;", "    esac"]
    else:
        lines += ["    _arguments \\"] + [f"        {zsh_row(row)} \\" for row in options[""]] + ["        '*:: :'"]
    return lines + ["}", f"_{name} \"$@\""]


def fish(name, options, verbs, actions):
    lines = ["# written by tools/completions.py"]
    for verb, text in verbs.items():
        lines.append(f"complete -c {name} -n __fish_use_subcommand -a {verb} -d '{fish_text(text)}'")
    if verbs:
        lines.append(f"complete -c {name} -n __fish_use_subcommand -a help -d '{HELP}'")
        lines.append(f"complete -c {name} -n '__fish_seen_subcommand_from help' -a '{' '.join(verbs)}'")
    for verb, words in actions.items():
        where = f"__fish_seen_subcommand_from {verb}; and not __fish_seen_subcommand_from {' '.join(words)}"
        lines.append(f"complete -c {name} -n '{where}' -a '{' '.join(words)}'")
    for verb, rows in options.items():
        for flag, value, text in rows:
            where = f" -n '__fish_seen_subcommand_from {verb}'" if verb else ""
            takes = "" if not value else f" -x -a '{' '.join(choices(value))}'" if choices(value) else " -r -F" if is_file(value) else " -x"
            lines.append(f"complete -c {name}{where} -l {flag[2:]}{takes} -d '{fish_text(text)}'")
    return lines


def fish_text(text):
    return text.replace("\\", "\\\\").replace("'", "\\'")


def main():
    shell, name, *program = sys.argv[1:]
    found = {"parleyd": of_parleyd, "parley": of_parley}[name](program)
    print("\n".join({"bash": bash, "zsh": zsh, "fish": fish}[shell](name, *found)))


if __name__ == "__main__":
    main()
