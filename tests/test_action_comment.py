"""The action of the comment, kept in a pull request of an API that stands in for GitHub's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tools import require

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "action" / "comment"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))
(KEEP,) = ACTION["runs"]["steps"]
BOT, SOMEBODY = "github-actions[bot]", "somebody"
MARK = "<!-- gradir check -->\n"
REPORT = "### Autograd graph\n\n**Nodes:** 1 changed\n"
NONE = "### Autograd graph: no difference\n"


class Pull:
    """One pull request: its comments, and what was asked."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.tokens: set[str] = set()
        self.status = 200
        self.url = ""
        self.open: list[dict[str, Any]] = []

    def add(self, body: str, author: str = BOT) -> dict[str, Any]:
        number = len(self.comments) + 1
        self.comments.append({"id": number, "body": body, "user": {"login": author}, "html_url": f"/comment/{number}"})
        return self.comments[-1]

    def answer(self, method: str, path: str, content: Any) -> Any:
        if path.startswith("/repos/a/b/pulls?"):
            assert path == "/repos/a/b/pulls?state=open&head=fork%3Aa%26state%3Dall&per_page=100"
            return self.open
        if method == "GET":
            page = int(re.fullmatch(r"/repos/a/b/issues/7/comments\?per_page=100&page=(\d+)", path)[1])  # type: ignore[index]
            return self.comments[100 * (page - 1) : 100 * page]
        if method == "POST":
            assert path == "/repos/a/b/issues/7/comments"
            return self.add(content["body"])
        number = int(re.fullmatch(r"/repos/a/b/issues/comments/(\d+)", path)[1])  # type: ignore[index]
        self.comments[number - 1]["body"] = content["body"]
        return self.comments[number - 1]


@pytest.fixture
def pull() -> Iterator[Pull]:
    made = Pull()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.asked.append(self.command)
            made.tokens.add(self.headers["Authorization"])
            done = {"message": "no"}
            if made.status == 200:
                done = made.answer(self.command, self.path, json.loads(content) if content else None)
            self.send_response(made.status)
            self.end_headers()
            self.wfile.write(json.dumps(done).encode())

        do_GET = do_POST = do_PATCH = _answer  # noqa: N815 (as the base class calls them)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def keep(pull: Pull, tmp_path: Path, report: str, **more: str) -> str:
    """Run the step as GitHub does, in a folder whose files Python must not import; returns what it says."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the checkout')")
    file = tmp_path / "report.md"
    file.write_text(report, encoding="utf-8")
    given = {
        "${{ inputs.name }}": "gradir check",
        "${{ inputs.report }}": str(file),
        "${{ github.action_path }}/comment.py": str(FOLDER / "comment.py"),
        "${{ github.api_url }}": pull.url,
        "${{ github.repository }}": "a/b",
        "${{ github.event.pull_request.number }}": "7",
        "${{ github.event.workflow_run.head_repository.owner.login }}": "",
        "${{ github.event.workflow_run.head_branch }}": "",
        "${{ github.event.workflow_run.head_sha }}": "",
        "${{ github.token }}": "secret",
    }
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **{name: given[expression] for name, expression in KEEP["env"].items()},
        **more,
    }
    line = [require("bash"), "--noprofile", "--norc", "-eo", "pipefail", "-c", KEEP["run"]]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "secret" not in done.stdout
    return done.stdout


def test_one_comment_is_made_and_then_updated(pull: Pull, tmp_path: Path) -> None:
    pull.add("a review", SOMEBODY)
    assert keep(pull, tmp_path, REPORT) == "gradir: /comment/2\n"
    assert pull.comments[1]["body"] == MARK + REPORT
    assert keep(pull, tmp_path, REPORT) == "gradir: /comment/2\n"
    assert pull.asked == ["GET", "POST", "GET"]
    keep(pull, tmp_path, f"{REPORT}é\n")
    assert pull.comments[1]["body"] == f"{MARK}{REPORT}é\n"
    keep(pull, tmp_path, NONE)
    assert pull.comments[1]["body"] == MARK + NONE
    assert len(pull.comments) == 2
    assert pull.tokens == {"Bearer secret"}


def test_equal_graphs_make_no_comment(pull: Pull, tmp_path: Path) -> None:
    assert keep(pull, tmp_path, NONE) == "gradir: no comment, since nothing differs\n"
    assert pull.asked == ["GET"]


def test_a_comment_of_somebody_else_with_the_mark_stays(pull: Pull, tmp_path: Path) -> None:
    pull.add(MARK, SOMEBODY)
    pull.add(f"said: {MARK}")
    keep(pull, tmp_path, REPORT)
    assert [comment["body"] for comment in pull.comments] == [MARK, f"said: {MARK}", MARK + REPORT]


def test_each_check_has_a_comment_of_its_own(pull: Pull, tmp_path: Path) -> None:
    keep(pull, tmp_path, REPORT)
    keep(pull, tmp_path, REPORT, NAME="--> <b>other\n")
    assert len(pull.comments) == 2
    assert pull.comments[1]["body"].startswith("<!-- %2D%2D%3E %3Cb%3Eother%0A -->\n")


def test_a_comment_behind_many_is_found(pull: Pull, tmp_path: Path) -> None:
    for _ in range(200):
        pull.add("a review", SOMEBODY)
    pull.add(MARK + NONE)
    keep(pull, tmp_path, REPORT)
    assert pull.asked == ["GET", "GET", "GET", "PATCH"]
    assert pull.comments[200]["body"] == MARK + REPORT


def test_a_report_that_is_too_long_is_in_the_summary(pull: Pull, tmp_path: Path) -> None:
    keep(pull, tmp_path, "x" * 65_536)
    assert "is in the job's summary" in pull.comments[0]["body"]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_token_that_may_not_write_is_a_warning(status: int, pull: Pull, tmp_path: Path) -> None:
    pull.status = status
    said = keep(pull, tmp_path, REPORT)
    assert said.startswith(f"::warning title=gradir::no comment: the API answers {status} to http")
    assert "'permissions: pull-requests: write'" in said


def test_an_api_that_is_not_there_is_a_warning(pull: Pull, tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:9", "file:///etc"):
        said = keep(pull, tmp_path, REPORT, API=url)
        assert said.startswith("::warning title=gradir::no comment: ")
        assert said.count("\n") == 1


def test_without_a_pull_request_or_a_report_nothing_is_asked(pull: Pull, tmp_path: Path) -> None:
    assert "not a pull request" in keep(pull, tmp_path, REPORT, PULL="")
    assert "did not finish" in keep(pull, tmp_path, REPORT, REPORT="missing.md")
    assert pull.asked == []


def test_the_event_says_which_pull_request_a_run_was_for(pull: Pull, tmp_path: Path) -> None:
    run = {"PULL": "", "HEAD_OWNER": "fork", "HEAD_BRANCH": "a&state=all", "HEAD_COMMIT": "abc"}
    pull.open = [{"number": 3, "head": {"sha": "abd"}}]
    assert "not a pull request" in keep(pull, tmp_path, REPORT, **run)
    pull.open.append({"number": 7, "head": {"sha": "abc"}})
    assert keep(pull, tmp_path, REPORT, **run) == "gradir: /comment/1\n"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name")
def test_a_hostile_artifact_gives_away_no_file_and_no_token(pull: Pull, tmp_path: Path) -> None:
    link, pipe = tmp_path / "link.md", tmp_path / "pipe.md"
    link.symlink_to("/proc/self/environ")
    os.mkfifo(pipe)
    for report in (link, pipe, tmp_path):
        said = keep(pull, tmp_path, REPORT, REPORT=str(report))
        assert said.startswith("::warning title=gradir::no comment: ")
    assert pull.comments == []


def test_bytes_that_are_no_text_are_a_comment_all_the_same(pull: Pull, tmp_path: Path) -> None:
    report = tmp_path / "bytes.md"
    report.write_bytes(b"\xff\0::error::x")
    keep(pull, tmp_path, REPORT, REPORT=str(report))
    assert pull.comments[0]["body"] == f"{MARK}\ufffd\0::error::x"


def test_the_action_runs_nothing_but_its_script() -> None:
    assert KEEP["run"] == 'python3 -I "$SCRIPT"'
    assert "uses" not in KEEP
