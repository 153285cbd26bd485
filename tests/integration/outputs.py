"""What a page shows as the output of its commands or its program, and whether that is what came.

The convention: a fenced block ```text that directly follows a block of shell lines or a program in Python is its whole standard output.
`…` in it stands for any text within one line: times, ids, addresses, what is left out of a long line. All else is compared as it is, but
for blanks at the end of a line. A line has to show something: of `…` alone it is an error."""
import re

FENCE = "```text"
ANY = "…"


class Output:
    """The lines that a page shows, the first of them at this line of the page."""

    def __init__(self, line, lines):
        self.line, self.lines = line, lines


def output_after(lines, at):
    """The output that is shown behind the lines up to `at` (an index of the page's lines), or None."""
    while at < len(lines) and lines[at].strip() == "":
        at += 1
    if at == len(lines) or lines[at].rstrip() != FENCE:
        return None
    end = lines.index("```", at + 1)
    return Output(at + 2, lines[at + 1 : end])


def matches(shown, seen):
    return re.fullmatch(".*".join(map(re.escape, shown.rstrip().split(ANY))), seen.rstrip()) is not None


def compare(page, output, seen):
    """Fails with the place of the first line that is not as it is shown."""
    came = seen.rstrip("\n").split("\n")
    for i, shown in enumerate(output.lines):
        place = f"{page}:{output.line + i}"
        assert shown.strip(f"{ANY} ") != "" or shown.strip() == "", f"{place}: a line of {ANY} alone shows nothing"
        assert i < len(came), f"{place}: expected\n  {shown}\nand the output ended. It was\n{seen}"
        assert matches(shown, came[i]), f"{place}: expected\n  {shown}\nseen\n  {came[i]}\nin the output\n{seen}"
    assert len(came) <= len(output.lines), f"{page}:{output.line + len(output.lines)}: expected the end, seen\n  {came[len(output.lines)]}\nin the output\n{seen}"


def fails(page, output, seen):
    """What compare says, or None."""
    try:
        compare(page, output, seen)
    except AssertionError as failure:
        return str(failure)
    return None


def test():
    """What is shown must be what came: each line, no more of them, and no less. A failure has its place, what was expected and what was seen."""
    page = ["    ask", "", "```text", "Berlin, in … ms", "done …", "```"]
    shown = output_after(page, 1)
    assert (shown.line, shown.lines) == (4, ["Berlin, in … ms", "done …"])
    assert output_after(page, 4) is None and output_after(["    ask", "", "Text.", *page[2:]], 1) is None and output_after(["", ""], 0) is None
    for right in ("Berlin, in 12 ms\ndone 1\n", "Berlin, in  ms  \ndone (a.b)"):
        assert fails("page.md", shown, right) is None, right
    for wrong, place, expected, seen in [
        ("Bonn, in 12 ms\ndone 1\n", "page.md:4: ", "Berlin, in … ms", "Bonn, in 12 ms"),
        ("Berlin, in 12 s\ndone 1\n", "page.md:4: ", "Berlin, in … ms", "Berlin, in 12 s"),
        ("Berlin, in 12\nand 3 ms\ndone 1\n", "page.md:4: ", "Berlin, in … ms", "Berlin, in 12"),
        ("Berlin, in 1 ms\nnot done 1\n", "page.md:5: ", "done …", "not done 1"),
        ("Berlin, in 1 ms\n", "page.md:5: ", "done …", "ended"),
        ("Berlin, in 1 ms\ndone 1\nand more\n", "page.md:6: ", "the end", "and more"),
        ("", "page.md:4: ", "Berlin, in … ms", "seen\n  \n"),
    ]:
        said = fails("page.md", shown, wrong)
        assert said is not None and said.startswith(place) and expected in said and seen in said, (wrong, said)
    assert fails("page.md", Output(9, ["…"]), "Berlin\n").startswith("page.md:9: ")
    assert fails("page.md", Output(9, ["a.c"]), "abc\n").startswith("page.md:9: ")
