"""Measure the prose of pages, docstrings and comments, and the names of functions; fail when a figure gets worse."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]

# The largest figures that pass. Lower one when the prose got better.
LIMITS = {
    "Markdown": {"words": 44_100, "median": 11, "above 40 words": 0, "What/Where clauses": 1, "forbidden": 2},
    "docstrings": {"words": 58_140, "median": 13, "above 40 words": 1, "What/Where clauses": 1, "forbidden": 0},
    "comments": {"above 40 words": 0, "What/Where clauses": 0, "forbidden": 0},
    "functions": {"named by no verb": 9},
    "code": {"lines": 62_720, "lines per comment": 31},
}
FORBIDDEN = re.compile(
    r"(?i)\b(told|noted|(is|are|be) had|hand(s|ed)? on|com(es?|ing) to|what stands|stands? behind|(is|are) meant"
    r"|is no change|(process|thread|word)e?s? of (its|their) own)\b"
)
CLAUSE = re.compile(r"(What|Where)\b(?!.*\?$)")
# A function whose name begins so is neither a verb nor a noun.
NO_VERB = re.compile(
    r"_*(?!of$)([a-z]*[^e]ed|made|held|told|given|written|drawn|taken|kept|said|sent|seen|shown|known|chosen|frozen|broken|stood"
    r"|gone|done|meant|grown|spoilt|built|left|lost|found|bound|hidden|of|by|in|at|behind|beside|beyond|among|around|past"
    r"|above|below|after|before|between|why|while|until|where|what)(_|$)(?<!embed)(?<!shared_)"
)
BOUNDARY = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[^a-z\s]|gradir\b)")
NOT_PROSE = re.compile(r"(?ms)^ *(```|~~~).*?^ *\1|<!--.*?-->")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of Markdown or a docstring, without code, tables and headings.

    >>> list(sentences("# A title\\n\\nRun `make prose` first. See [the guide](a.md) too.\\n\\n| a | table |"))
    ['Run CODE first.', 'See the guide too.']
    """
    text = re.sub(r"``[^`]+``|`[^`]+`", "CODE", NOT_PROSE.sub("\n\n", text))
    text = re.sub(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])?", r"\1", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\.|\w+:) ?)", text):
        if re.match(r"\s*(\||#|>>>|\.\.\. )| {4}(?! *[-*\d])", block):
            continue
        words = " ".join(block.split()).lstrip("-*0123456789. ")
        yield from (sentence for sentence in BOUNDARY.split(words) if len(sentence.split()) > 2)


def docstrings(source: str) -> Iterator[str]:
    """Yield the docstrings of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""


def comments(source: str) -> Iterator[str]:
    """Yield the comments of a module, each of adjoining lines."""
    for block in re.findall(r"(?m)(?:^ *# .*\n)+", source):
        yield re.sub(r"(?m)^ *# ", "", block)


def functions(source: str) -> Iterator[str]:
    """Yield the names of the functions of a module, without properties."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not any(
            "property" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            yield node.name


def prose(texts: list[str]) -> dict[str, float]:
    """Return the measures of texts, under their names in the limits."""
    found = [sentence for text in texts for sentence in sentences(text)]
    return {
        "words": sum(len(text.split()) for text in texts),
        "median": median(len(sentence.split()) for sentence in found),
        "above 40 words": sum(len(sentence.split()) > 40 for sentence in found),
        "What/Where clauses": sum(bool(CLAUSE.match(sentence)) for sentence in found),
        "forbidden": sum(len(FORBIDDEN.findall(sentence)) for sentence in found),
    }


if __name__ == "__main__":
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changes").glob("*.md")]
    modules = {
        path: path.read_text("utf-8") for name in ("gradir", "exporters") for path in (ROOT / name).rglob("*.py")
    }
    names = [name for source in modules.values() for name in functions(source)]
    core = [line for path, text in modules.items() if ROOT / "gradir" in path.parents for line in text.split("\n")]
    measured = {
        "Markdown": prose([path.read_text("utf-8") for path in pages]),
        "docstrings": prose([text for source in modules.values() for text in docstrings(source)]),
        "comments": prose([text for source in modules.values() for text in comments(source)]),
        "functions": {"named by no verb": sum(bool(NO_VERB.match(name)) for name in names)},
        "code": {
            "lines": sum(text.count("\n") for text in modules.values()),
            "lines per comment": len(core) / sum(line.lstrip().startswith("#") for line in core),
        },
    }
    over = 0
    for group, name, limit in ((group, *limit) for group, limits in LIMITS.items() for limit in limits.items()):
        over += int(measured[group][name]) > limit
        print(f"{group:10} {name:18} {measured[group][name]:8,.0f}   limit {limit:,}")
    sys.exit(f"{over} figures are above their limits; see 'Style' in CONTRIBUTING.md" if over else 0)
