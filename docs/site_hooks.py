"""What the site adds to docs/: pages of other folders, the schemas, the live pages, links from names to the reference.

MkDocs calls the functions named ``on_…``. The live pages are those that docs/live_pages.py made in the folder that
``GRADIR_SITE_LIVE`` names, ``.site/live`` without it.
"""

from __future__ import annotations

import json
import logging
import os
import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files, InclusionLevel

from gradir import __version__

ROOT: Final = Path(__file__).resolve().parents[1]
# What is warned of fails a strict build.
LOG: Final = logging.getLogger("mkdocs.hooks.gradir")

# Pages of other folders, by the name that they have in the site.
ELSEWHERE: Final = {
    "CONTRIBUTING.md": "contributing.md",
    "changes/README.md": "changes.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
    "viewer/README.md": "viewer.md",
}
TITLES: Final = {
    "changes.md": "Fragments of the changelog",
    "examples.md": "The examples' files",
    "viewer.md": "The page's script",
}
SCHEMAS: Final = sorted((ROOT / "schemas").glob("*.schema.json"))

_SHIM: Final = "https://unpkg.com/iframe-worker/shim"
_LINK: Final = re.compile(r"(\[(?:docs/)?[\w-]+\.md)?(\]\()([^)#:\s]*)((?:#[^)\s]*)?\))")
_FENCE: Final = re.compile(r"^( *)(```+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_NAME: Final = re.compile(r"(?<![\[`])`(?:gradir\.)?([A-Za-z_][\w.]*?)(\([^`]*\))?`(?![\]`])")
# Groups of entry points, and the version, which the reference does not list.
_NO_NAMES: Final = frozenset({"exporters", "renderers", "passes", "frontends", "vocabularies", "__version__"})
_CALLED: Final = re.compile(r"`gradir\.([A-Za-z_]\w*)[`(](?<!\.sh`)")


def on_files(files: Files, config: Any) -> Files:
    """Add what does not lie in docs/."""
    for source, name in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    for schema in SCHEMAS:
        files.append(File.generated(config, f"schemas/{schema.name}", content=schema.read_text(encoding="utf-8")))
    files.append(File.generated(config, "schemas.md", content=_schemas_page()))
    live = Path(os.environ.get("GRADIR_SITE_LIVE") or ROOT / ".site" / "live")
    listed = json.loads((live / "live.json").read_text(encoding="utf-8"))
    for kind, pages in listed.items():
        for page in pages:
            name = f"gallery/live/{kind}/{page['page']}"
            file = File.generated(config, name, abs_src_path=str(live / kind / page["page"]))
            # Copied as it is: no page of the site's.
            file.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(file)
    files.append(File.generated(config, "gallery/examples.md", content=_examples_page(listed["examples"])))
    files.append(File.generated(config, "gallery/reviews.md", content=_reviews_page(listed["reviews"])))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links to other folders to their pages in the site, and names to the reference."""
    here = page.file.src_uri
    source = next((path for path, name in ELSEWHERE.items() if name == here), f"docs/{here}")
    parts = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        parts += [_prose(markdown[end : fence.start()], here, source), fence[0]]
        end = fence.end()
    text = "".join([*parts, _prose(markdown[end:], here, source)])
    return text.replace("{version}", __version__) if here == "index.md" else text


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Take the script of a search from the disk from the site itself, and name what readers of screens need."""
    folder = posixpath.relpath("assets", posixpath.dirname(page.url) or ".")
    output = output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
    return output.replace(_SHIM, f"{folder}/iframe-worker.js")


def _prose(text: str, here: str, source: str) -> str:
    text = _LINK.sub(lambda link: _link(link, here, source), text)
    if here.startswith("reference"):
        return text
    package = ROOT / "gradir"
    for called in _CALLED.findall(text):
        is_module = (package / called).is_dir() or (package / f"{called}.py").is_file()
        if called not in _anchors() and called not in _NO_NAMES and not is_module:
            LOG.warning("%s names gradir.%s, which there is not", source, called)
    return "\n".join(line if line.startswith(("#", "    ")) else _link_names(line, here) for line in text.split("\n"))


def _link(link: re.Match[str], here: str, source: str) -> str:
    """A link of the file as the site has it: where it is the name of a page, its title stands there."""
    words, middle, target, rest = link.groups()
    page = ROOT / posixpath.dirname(source) / target
    if words and page.is_file():
        words = f"[{_title(page)}"
    return (words or "") + middle + _target(target, here, source) + rest


@cache
def _title(page: Path) -> str:
    found = re.search(r"^# (.+?)(?: \{.*\})?$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else page.name


def _target(link: str, here: str, source: str) -> str:
    """Where a link of the file leads in the site; as it is where that knows no such file."""
    if not link:
        return link
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if whole in ELSEWHERE:
        whole = ELSEWHERE[whole]
    elif whole == "schemas":
        whole = "schemas.md"
    elif whole.startswith("docs/"):
        whole = whole.removeprefix("docs/")
    return posixpath.relpath(whole, posixpath.dirname(here) or ".")


def _link_names(line: str, here: str) -> str:
    """The line with links from the names of `import gradir` to the reference."""
    page = posixpath.relpath("reference.md", posixpath.dirname(here) or ".")

    def linked(name: re.Match[str]) -> str:
        is_told = name[0].startswith("`gradir.") or ("." in name[1] and name[1][0].isupper())
        anchor = _anchors().get(name[1])
        # Inside the words of a link no other can stand.
        before = line[: name.start()]
        if not is_told or anchor is None or before.count("[") > before.count("]"):
            return name[0]
        return f"[{name[0]}]({page}#{anchor})"

    return _NAME.sub(linked, line)


@cache
def _anchors() -> dict[str, str]:
    """Every name of docs/reference.md with its place there."""
    text = _FENCE.sub("", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"))
    names = re.findall(r"^####? ([\w.]+)$", text, re.MULTILINE)
    return {name: name.lower().replace(".", "") for name in names}


def _schemas_page() -> str:
    rows = []
    for path in SCHEMAS:
        told = json.loads(path.read_text(encoding="utf-8"))
        rows.append(f"| [{path.name}](schemas/{path.name}) | {told.get('title', '')} |")
    table = "\n".join(rows)
    return f"""# Schemas

The JSON Schemas of the files that gradir writes, as they are published: one of each version of a format, never edited
later. [format.md](format.md) says in words what they check, and [diff.md](diff.md) what a diff holds.

| Schema | Of |
|---|---|
{table}
"""


def _examples_page(pages: list[dict[str, Any]]) -> str:
    rows = "\n".join(
        f"| [{page['spec']}](live/examples/{page['page']}) | {page['nodes']:,} | {page['told']} |" for page in pages
    )
    return f"""# Live pages of the examples

Each is what `gradir view examples/PROGRAM` opens: click, search, ask for a path; `?` lists the keys.

| Page | Nodes | What it shows |
|---|--:|---|
{rows}
"""


def _reviews_page(pages: list[dict[str, Any]]) -> str:
    rows = "\n".join(f"| [{page['name']}](live/reviews/{page['page']}) | {page['told']} |" for page in pages)
    return f"""# Live pages of the reviews

`gradir diff before.gir after.gir --format html` writes such a page: both graphs in one picture, beside a list of the
changes. There is one for each edit of [reviewing.md](../reviewing.md).

| Page | First line of the report |
|---|---|
{rows}
"""
