"""Branches that each edit a graph, brought together by real git with gradir as the merge driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_places import Run, runner
from msgspec.structs import replace
from tools import needs

pytest.importorskip("torch")

from merged_models import model_graph

import gradir
from gradir.ir import Graph

pytest_plugins = ["git_fixtures"]
pytestmark = needs("git")

PROPOSAL = "both edits merged, as a proposal: capture the merged program again, or run gradir check on it"


def marked(graph: Graph, *, is_merged: bool = True) -> Graph:
    options = {name: value for name, value in graph.producer.options.items() if name != "merged"}
    options |= {"merged": True} if is_merged else {}
    return replace(graph, producer=replace(graph.producer, options=options))


class Branches:
    """A repository in which ``main`` and ``topic`` edit one file."""

    def __init__(self, run: Run, folder: Path, name: str = "model.gir", encoding: str = "json") -> None:
        self.run = run
        self.file = folder / name
        self._encoding = encoding

    def commit(self, graph: Graph, branch: str) -> None:
        gradir.save(graph, self.file, format=self._encoding)
        self.run("git", "add", str(self.file))
        self.run("git", "commit", "-q", "-m", branch)

    def start(self, base: Graph, main: Graph, topic: Graph) -> None:
        self.run("gradir", "git", "install")
        self.commit(base, "base")
        self.run("git", "checkout", "-q", "-b", "topic")
        self.commit(topic, "topic")
        self.run("git", "checkout", "-q", "main")
        self.commit(main, "main")

    @property
    def graph(self) -> Graph:
        """The graph of the file, with the head of a capture."""
        return marked(gradir.load(self.file), is_merged=False)


@pytest.fixture
def branches(run: Run, repository: Path) -> Branches:
    made = Branches(run, repository)
    made.start(model_graph(), model_graph("activation"), model_graph("dropout"))
    return made


BOTH = "activation", "dropout"


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("name", ["graph.gir", "a folder/it's a 'graph'.gir.gz", "-x $HOME.gir"])
def test_disjoint_edits_merge_to_a_capture_of_both(name: str, encoding: str, run: Run, repository: Path) -> None:
    (repository / "a folder").mkdir()
    made = Branches(run, repository, f"./{name}", encoding)
    made.start(model_graph(), model_graph("activation"), model_graph("dropout"))
    run("git", "merge", "-q", "-m", "both", "topic")
    assert made.file.read_bytes() == gradir.dumps(
        marked(model_graph(*BOTH)), format=encoding, compress="gzip" if name.endswith(".gz") else None
    )
    assert run("git", "status", "--porcelain") == ""
    assert "merged from two edits: capture the program again" in run("gradir", "info", "--", f"./{name}")


def test_git_without_the_driver_merges_lines_and_with_it_graphs(branches: Branches, run: Run) -> None:
    """A rename of a module changes most lines, and an edit below it is lost in them."""
    run("git", "checkout", "-q", "topic")
    branches.commit(model_graph("dropout", "rename"), "rename")
    run("git", "checkout", "-q", "main")
    run("gradir", "git", "uninstall")
    assert "CONFLICT" in run("git", "merge", "topic", status=1)
    run("git", "merge", "--abort")
    run("gradir", "git", "install")
    run("git", "merge", "-q", "-m", "both", "topic")
    assert branches.graph == model_graph(*BOTH, "rename")


def test_a_rebase_a_cherry_pick_and_a_revert(branches: Branches, run: Run) -> None:
    run("git", "cherry-pick", "topic")
    assert branches.graph == model_graph(*BOTH)
    run("git", "revert", "--no-edit", "HEAD~1")
    assert branches.graph == model_graph("dropout")
    run("git", "reset", "-q", "--hard", "HEAD~2")
    run("git", "checkout", "-q", "topic")
    run("git", "rebase", "-q", "main")
    assert branches.graph == model_graph(*BOTH)


def test_a_stash_is_merged(branches: Branches, run: Run) -> None:
    gradir.save(model_graph("activation", "head"), branches.file)
    run("git", "stash")
    run("git", "merge", "-q", "-m", "both", "topic")
    run("git", "stash", "pop")
    assert branches.graph == model_graph(*BOTH, "head")


def test_branches_that_merged_each_other_before(branches: Branches, run: Run) -> None:
    run("git", "branch", "before")
    run("git", "merge", "-q", "-m", "one way", "topic")
    run("git", "checkout", "-q", "topic")
    run("git", "merge", "-q", "-m", "the other way", "before")
    branches.commit(model_graph(*BOTH, "head"), "head")
    run("git", "checkout", "-q", "main")
    branches.commit(model_graph(*BOTH, "eps"), "eps")
    assert run("git", "merge-base", "--all", "main", "topic").count("\n") == 2
    run("git", "merge", "-q", "-m", "criss-cross", "topic")
    assert branches.graph == model_graph(*BOTH, "head", "eps")


def test_equal_edits_of_both_sides(run: Run, repository: Path) -> None:
    made = Branches(run, repository)
    made.start(model_graph(), model_graph("adapter", "eps"), model_graph("head", "adapter"))
    run("git", "merge", "-q", "-m", "both", "topic")
    assert made.graph == model_graph("adapter", "eps", "head")


@pytest.fixture
def conflicting(run: Run, repository: Path) -> Branches:
    made = Branches(run, repository)
    made.start(model_graph(), model_graph("freeze", "eps"), model_graph("no bias", "head"))
    return made


def test_a_conflict_keeps_ours_and_shows_both_sides_by_module(conflicting: Branches, run: Run) -> None:
    said = run("git", "merge", "topic", status=1)
    assert "CONFLICT (content): Merge conflict in model.gir" in said
    assert "gradir: model.gir: in conflict, and left as ours is: merge the code and capture it again" in said
    assert "blocks.2.up: one side " in said
    assert (
        said.index("  ours\n") < said.index("  theirs\n") < said.index("    + blocks.2.up/mm:1  mm float32[10, 16]\n")
    )
    assert "head" not in said
    assert conflicting.graph == model_graph("freeze", "eps")
    sides = [gradir.loads(run("git", "show", f":{stage}:model.gir").encode()) for stage in (1, 2, 3)]
    assert sides == [model_graph(), model_graph("freeze", "eps"), model_graph("no bias", "head")]


def test_the_conflict_of_the_docs(run: Run, repository: Path) -> None:
    made = Branches(run, repository)
    made.start(model_graph(), model_graph("eps"), model_graph("larger eps"))
    run("git", "merge", "topic", status=1)
    stages = [f":{stage}:model.gir" for stage in (1, 2, 3)]
    said = run("gradir", "merge", *stages, "model.gir", status=1)
    page = (Path(__file__).parents[1] / "docs" / "git.md").read_text(encoding="utf-8")
    shown = page.partition("```text\ngradir: model.gir: in conflict")[2].partition("  ...\n```\n")[0]
    assert said.startswith(f"gradir: model.gir: in conflict{shown}")
    assert "    ~ scope blocks.1.norm  LayerNorm" in shown


def test_the_ways_out_of_a_conflict(conflicting: Branches, run: Run) -> None:
    run("git", "merge", "topic", status=1)
    again = run("gradir", "merge", ":1:model.gir", ":2:model.gir", ":3:model.gir", status=1)
    assert again.startswith("gradir: :2:model.gir: in conflict")
    assert "blocks.2.up: one side " in again
    run("git", "checkout", "--theirs", "model.gir")
    assert conflicting.graph == model_graph("no bias", "head")
    conflicting.commit(model_graph("no bias", "head", "freeze", "eps"), "captured again")
    assert run("git", "status", "--porcelain") == ""


def test_two_files_of_one_name(branches: Branches, run: Run, repository: Path) -> None:
    for branch, edit in (("topic", "head"), ("main", "eps")):
        run("git", "checkout", "-q", branch)
        Branches(run, repository, "new.gir").commit(model_graph(edit), "new")
    said = run("git", "merge", "topic", status=1)
    assert "CONFLICT (add/add): Merge conflict in new.gir" in said
    assert "both sides added the graph, and not the same; from ours to theirs:\n" in said
    assert "blocks.1.norm" in said
    assert gradir.load(repository / "new.gir") == model_graph("eps")


@pytest.mark.parametrize("broken", [b"", b"{", b"\x89GIR", b"<<<<<<< ours\n"])
def test_a_broken_side_loses_nothing(broken: bytes, branches: Branches, run: Run) -> None:
    branches.file.write_bytes(broken)
    run("git", "commit", "-q", "-a", "-m", "broken")
    said = run("git", "merge", "topic", status=1)
    assert "gradir: model.gir (ours): " in said
    assert "CONFLICT (content): Merge conflict in model.gir" in said
    assert branches.file.read_bytes() == broken
    run("git", "checkout", "--theirs", "model.gir")
    assert branches.graph == model_graph("dropout")


def test_without_gradir_a_merge_is_a_conflict_and_ours_stays(branches: Branches, run: Run, tmp_path: Path) -> None:
    (tmp_path / "bin" / "gradir").unlink()
    assert "CONFLICT (content): Merge conflict in model.gir" in run("git", "merge", "topic", status=1)
    assert branches.graph == model_graph("activation")


def test_a_worktree_and_a_repository_that_moved(
    branches: Branches, run: Run, repository: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    run("git", "worktree", "add", "-q", "-b", "other", str(tmp_path / "a tree"), "main")
    inside = runner(tmp_path / "a tree", environment)
    inside("git", "merge", "-q", "-m", "both", "topic")
    assert gradir.load(tmp_path / "a tree" / "model.gir") == marked(model_graph(*BOTH))
    repository.rename(tmp_path / "it moved")
    there = runner(tmp_path / "it moved", environment)
    there("git", "merge", "-q", "-m", "both", "topic")
    assert gradir.load(tmp_path / "it moved" / "model.gir") == marked(model_graph(*BOTH))
    assert " float32" in there("git", "diff", "HEAD~1")


def test_settings_are_commands_to_read(branches: Branches, run: Run) -> None:
    script = 'sh "$(git rev-parse --git-common-dir)/gradir.sh"'
    assert run("git", "config", "merge.gradir.driver") == f"{script} gradir merge -o %A -- %O %A %B %P\n"
    text = run("git", "config", "diff.gradir.textconv")
    assert text.endswith(f"; exec {script} --text gradir git textconv --\n")
    for line in run("git", "config", "--get-regexp", "gradir").splitlines():
        assert len(line) < 160


EARLIER = """\
[diff "gradir"]
	textconv = ": 'plain 1, gradir 0.1.0'; show() { gradir git textconv -- \\"$1\\"; }; show"
	cachetextconv = true
	made = info/attributes
[difftool "gradir"]
	cmd = gradir git difftool -- \\"$LOCAL\\" \\"$REMOTE\\" \\"$MERGED\\"
"""


def test_an_earlier_installation_is_replaced_and_is_removed_whole(
    branches: Branches, run: Run, repository: Path
) -> None:
    run("gradir", "git", "uninstall")
    config, attributes = repository / ".git" / "config", repository / ".git" / "info" / "attributes"
    before = config.read_text()
    config.write_text(f"{before}{EARLIER}[user]\n\tname = a\n")
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text("# gradir: begin\n*.gir diff=gradir -merge\n# gradir: end\n")
    assert "installed by another gradir" in run("gradir", "git", "status", "--local")
    run("gradir", "git", "install")
    assert "-merge" not in attributes.read_text()
    run("git", "merge", "-q", "-m", "both", "topic")
    assert branches.graph == model_graph(*BOTH)
    run("gradir", "git", "uninstall")
    assert config.read_text() == f"{before}[user]\n\tname = a\n"
    assert not attributes.exists()
    assert not (repository / ".git" / "gradir.sh").exists()


def test_a_script_of_somebody_else_stays(run: Run, repository: Path) -> None:
    script = repository / ".git" / "gradir.sh"
    script.write_text("#!/bin/sh\necho mine\n")
    before = (repository / ".git" / "config").read_bytes()
    said = run("gradir", "git", "install", status=2)
    assert said == "gradir: .git/gradir.sh: is not a script of gradir, which needs this path; move it\n"
    run("gradir", "git", "uninstall")
    assert script.read_text() == "#!/bin/sh\necho mine\n"
    assert (repository / ".git" / "config").read_bytes() == before


def test_a_script_that_went_missing_is_reported(branches: Branches, run: Run, repository: Path) -> None:
    (repository / ".git" / "gradir.sh").unlink()
    assert "run 'gradir git install' again" in run("gradir", "git", "status", "--local")
    run("gradir", "git", "install")
    run("git", "merge", "-q", "-m", "both", "topic")
    assert branches.graph == model_graph(*BOTH)
