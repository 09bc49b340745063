"""Writes the reference: every public name with its signature and its docstring, every command, exporter and pass.

python docs/build_reference.py [--check]

docs/reference.md is of the Python names, docs/reference-protocols.md of what plug-ins are made with beside them,
docs/reference-commands.md of the commands, docs/reference-plugins.md of exporters, passes and renderers with all their
options. Run from the project's root. With --check nothing is written,
and the exit status is 1 where a page is out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import griffe
from reference_tools import commands_page, plugins_page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WIDTH: Final = 116

HEAD = """\
# Reference of the Python names

The public names of `import gradir`. Names that are neither here nor in the [reference for
plug-ins](reference-protocols.md) may change with any release. [Commands](reference-commands.md) and [exporters,
passes and renderers](reference-plugins.md) have their own pages. `help(gradir.capture)` adds an example and the reason
for each error. Files use the same field names, except `in` and `out` for `inputs` and `outputs` of a node.
"""

PROTOCOLS_HEAD = """\
# Reference for writers of plug-ins

The names for [exporters, renderers, passes and front-ends](plugins.md) beside those of [`import
gradir`](reference.md), by the module to import them from.
"""

# Where a name has its home, by the start of its path, and the part of the page that it stands in.
PARTS: Final = {
    "gradir.api": "Functions",
    "gradir.ir": "The graph",
    "gradir.diffs": "What changed",
    "gradir.explanations": "Explanations and overlays",
    "gradir.overlays": "Explanations and overlays",
    "gradir.distributed": "Ranks",
    "gradir.watches": "Watched trainings",
    "gradir.protocols": "What plug-ins are",
    "gradir.options": "What plug-ins are",
    "gradir.request": "What plug-ins are",
    "gradir.errors": "Errors",
}

# By module what it is to plug-ins, and which names are for them; all that it exports where none are named.
FOR_PLUG_INS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "protocols": (
        "Methods of plug-ins. `help(gradir.protocols)` has those of `running`, `watching` and `run_alike` too.",
        ("ListsChanges", "LiveCapture", "Names", "NoOptions", "OtherFrontendError", "Pass", "Reports", "StoppedError"),
    ),
    "request": ("The features of front-ends.", ("FEATURES",)),
    "ir": ("Types of fields, and of what `Builder` takes and returns.", ()),
    "explanations.model": ("Types of fields of an explanation.", ("Allowed", "ByNode", "Level")),
    "passes": ("Helpers for passes.", ("matching", "within", "without")),
    "review.united": ("Both graphs of a diff in one, for a renderer that draws.", ("UnionGraph",)),
    "ir.marks": (
        "Marks on the nodes of graphs such as `UnionGraph.graph`.",
        (
            "ListedChange",
            "Mark",
            "failure",
            "is_focus",
            "left_out",
            "lost_slots",
            "operation_before",
            "overlay_mark",
            "overlay_marks",
            "overlay_verdict",
            "stands_for_several",
            "status",
            "times",
        ),
    ),
}


# The homes of records that only gradir makes.
REPORTS: Final = ("gradir.diffs", "gradir.explanations", "gradir.distributed", "gradir.watches")

# Members that only gradir itself calls.
FOR_GRADIR: Final = {
    *("Cause.words", "Diff.with_sides", "Explanation.join_tied", "Explanation.locate_in", "FormatError.replace"),
    *("Frontend.run_alike", "Frontend.running", "Frontend.watching", "Ranks.picture", "Ranks.with_files"),
    "Watch.verdict_as",
}


def page() -> str:
    """Return the page of the names of ``import gradir``."""
    package = _package()
    parts: dict[str, list[str]] = {title: [] for title in PARTS.values()}
    for name in _names(package):
        member = package[name]
        found = member.final_target if member.is_alias else member
        if not found.is_attribute:
            title = next(title for home, title in PARTS.items() if found.path.startswith(f"{home}."))
            parts[title].append("\n\n".join(_entry(name, found)))
    sections = [f"## {title}\n\n" + "\n\n".join(entries) for title, entries in parts.items()]
    return HEAD + "\n" + "\n\n".join(sections) + "\n"


def protocols_page() -> str:
    """The page of what plug-ins are made with, without what stands on the other one."""
    package = _package()
    known = set(_names(package))
    sections = []
    for home, (what, chosen) in FOR_PLUG_INS.items():
        module = package[home]
        entries = []
        for name in chosen or [name for name in _names(module) if name not in known]:
            found = module[name].final_target if module[name].is_alias else module[name]
            if found.is_function:
                entries.append(f"- `{_signature(found, name)}`: {' '.join(_write_docstring(found))}")
            else:
                entries.append("\n\n".join((_alias if found.is_attribute else _entry)(name, found)))
        sections.append(f"## gradir.{home}\n\n{what}\n\n" + "\n\n".join(entries))
    return PROTOCOLS_HEAD + "\n" + "\n\n".join(sections) + "\n"


def _package() -> Any:
    return griffe.load("gradir", search_paths=[ROOT], docstring_parser="google")


def _alias(name: str, found: Any) -> Iterator[str]:
    yield f"### {name}"
    # The keys of a table say nothing without the values, which fill a screen.
    if not str(found.value).startswith("{"):
        yield _fence(f"{name} = {found.value}")
    yield from _write_docstring(found)


def _names(package: Any) -> list[str]:
    return [str(name).strip("'\"") for name in package.exports]


def _entry(name: str, found: Any) -> Iterator[str]:
    """A function of ``import gradir``, or a class with its fields and methods."""
    yield f"### {name}"
    if found.is_function:
        yield from _function(found, f"gradir.{name}")
        return
    bases = [str(base) for base in found.bases]
    members = [
        member
        for key, member in found.members.items()
        if not key.startswith("_") and not member.is_alias and f"{name}.{key}" not in FOR_GRADIR
    ]
    inherited = [member for base in found.mro() for key, member in base.members.items() if not key.startswith("_")]
    fields = [member for member in (*members, *inherited) if member.is_attribute and "property" not in member.labels]
    typed = [field for field in fields if field.annotation is not None and not str(field.annotation).startswith("_")]
    head = f"class {name}" + (f"({', '.join(bases)})" if bases and "Error" in bases[0] else "")
    yield _fence("\n    ".join([f"{head}:" if typed else head, *map(_field, typed)]))
    yield from _write_docstring(found)
    properties = [member for member in members if "property" in member.labels]
    told = [(field.name, " ".join(_write_docstring(field)).replace("\n", " ")) for field in typed]
    told += [
        (f"{each.name}: {each.annotation}", " ".join(_write_docstring(each)).replace("\n", " ")) for each in properties
    ]
    yield from ["\n".join(f"- `{name}`: {text}" for name, text in told if text)] if any(dict(told).values()) else []
    for member in members:
        if member.is_function:
            yield f"#### {name}.{member.name}"
            yield from _function(member, f"{name}.{member.name}")


def _function(found: Any, name: str) -> Iterator[str]:
    told = list(_write_docstring(found))
    if told and "The same as `gradir." in told[0]:
        # The function has the arguments and the errors.
        yield told[0]
        return
    yield _fence(_signature(found, name))
    yield from told


def _signature(found: Any, name: str) -> str:
    """The head of a function on one line, or with a line for each parameter where that is too long."""
    given = list(_parameters(found))
    returns = f" -> {found.returns}" if found.returns else ""
    line = f"{name}({', '.join(given)}){returns}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in given) + f"){returns}"


_STARS: Final = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}


def _parameters(found: Any) -> Iterator[str]:
    is_starred = False
    for parameter in found.parameters:
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is griffe.ParameterKind.keyword_only and not is_starred:
            yield "*"
        is_starred |= parameter.kind in {griffe.ParameterKind.keyword_only, griffe.ParameterKind.var_positional}
        typed = f": {parameter.annotation}" if parameter.annotation else ""
        has_default = parameter.default is not None and parameter.kind not in _STARS
        default = f" = {parameter.default}" if has_default else ""
        yield f"{_STARS.get(parameter.kind, '')}{parameter.name}{typed}{default}"


def _field(field: Any) -> str:
    annotation = str(field.annotation)
    # What a field is for a comparison says nothing to who reads it.
    if annotation.startswith("Annotated["):
        annotation = str(field.annotation.slice.elements[0])
    # Nobody makes the records of a report by hand, and __init__ assigns no defaults.
    if any(field.path.startswith(f"{home}.") for home in REPORTS):
        return f"{field.name}: {annotation}"
    has_default = field.value is not None and "class-attribute" in field.labels
    value = str(field.value) if has_default else ""
    known = field.module.members.get(value)
    if value == "NOTHING":
        value = "{}"
    elif known is not None and not known.is_alias:
        value = str(known.value)
    shown = f" = {value}" if value else ""
    return f"{field.name}: {annotation}{shown}"


def _write_docstring(found: Any) -> Iterator[str]:
    """The docstring as Markdown."""
    sections = found.docstring.parsed if found.docstring else []
    for section in sections:
        kind = section.kind.value
        if kind == "text":
            paragraphs = section.value.split("\n\n")
            yield from (each.replace("``", "`") for each in paragraphs if not each.lstrip().startswith(">>>"))
        elif kind == "parameters":
            yield _list_items("Args", section.value, lambda item: f"`{item.name}`")
        elif kind == "raises":
            yield f"Raises {', '.join(f'`{item.annotation}`' for item in section.value)}."
        elif kind == "attributes":
            yield _list_items("Attributes", section.value, lambda item: f"`{item.name}`")
        elif kind != "examples":
            raise ValueError(f"{found.path}: a section of the kind {kind}")


def _list_items(title: str, items: list[Any], name: Callable[[Any], str]) -> str:
    lines = [f"- {name(item)}: {' '.join(item.description.split())}".replace("``", "`") for item in items]
    return f"{title}:\n\n" + "\n".join(lines)


def _fence(code: str) -> str:
    return f"```python\n{code}\n```"


def main() -> None:
    """Write the pages, or say which are out of date."""
    pages = {
        "reference.md": page,
        "reference-protocols.md": protocols_page,
        "reference-commands.md": commands_page,
        "reference-plugins.md": plugins_page,
    }
    late = []
    for name, make in pages.items():
        path, written = DOCS / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != written:
            late.append(name)
            if "--check" not in sys.argv:
                path.write_text(written, encoding="utf-8")
    if late and "--check" in sys.argv:
        sys.exit(f"{', '.join(late)}: out of date: make reference")


if __name__ == "__main__":
    main()
