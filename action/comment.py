"""Keeps one comment of a pull request at what 'gradir check' reported; the last step of action.yml runs it.

It needs nothing but Python. The comment is known by a mark at its start and by who wrote it, so it is updated and not
repeated. A graph that is as it should be gets no comment, but one that is there is updated. Trouble is a warning of the
job: whether the check passes was said before.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

__all__ = ["main"]

_AUTHOR: Final = "github-actions[bot]"
"""Whose comments are written with the token of a job. Anybody may write the mark into theirs."""

_NOTHING: Final = ": no difference\n"
_LONGEST: Final = 65_536
_PAGE: Final = 100
_MOST_PAGES: Final = 100
_SECONDS: Final = 30


def main() -> int:
    """Write the comment, or say why there is none."""
    if not os.environ["PULL"]:
        print("gradir: no comment, since this is no pull request")
        return 0
    if not os.environ["REPORT"]:
        print("gradir: no comment, since the check did not come to its end")
        return 0
    try:
        _keep(Path(os.environ["REPORT"]).read_text(encoding="utf-8"))
    except urllib.error.HTTPError as error:
        hint = ""
        if error.code in {401, 403, 404}:
            hint = "; the job needs 'permissions: pull-requests: write', which a pull request of a fork does not get"
        print(f"::warning title=gradir::no comment: the API answers {error.code} to {error.geturl()}{hint}")
    except (OSError, ValueError) as error:
        print(f"::warning title=gradir::no comment: {' '.join(str(error).split())}")
    return 0


def _keep(report: str) -> None:
    mark = f"<!-- gradir check {_word(os.environ['SPEC'])} against {_word(os.environ['AGAINST'])} -->\n"
    body = mark + report
    if len(body) > _LONGEST:
        body = f"{mark}### gradir check\n\nThe report is too long for a comment, and is in the job's summary.\n"
    number = urllib.parse.quote(os.environ["PULL"], safe="")
    comments = f"/issues/{number}/comments"
    found = _found(comments, mark.strip())
    if found is None:
        if report.endswith(_NOTHING):
            print("gradir: no comment, since nothing differs")
            return
        answer = _asked("POST", comments, {"body": body})
    elif found["body"].replace("\r\n", "\n").strip() == body.strip():
        answer = found
    else:
        answer = _asked("PATCH", f"/issues/comments/{int(found['id'])}", {"body": body})
    print(f"gradir: {answer['html_url']}")


def _found(comments: str, mark: str) -> dict[str, Any] | None:
    """The comment that has the mark, of the author of such comments."""
    for page in range(1, _MOST_PAGES + 1):
        entries = _asked("GET", f"{comments}?per_page={_PAGE}&page={page}")
        for entry in entries:
            if (entry.get("user") or {}).get("login") == _AUTHOR and (entry.get("body") or "").startswith(mark):
                found: dict[str, Any] = entry
                return found
        if len(entries) < _PAGE:
            break
    return None


def _asked(method: str, path: str, content: object = None) -> Any:
    url = f"{os.environ['API']}/repos/{urllib.parse.quote(os.environ['REPOSITORY'])}{path}"
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url}: is no address of an API")
    request = urllib.request.Request(  # noqa: S310 (looked at above)
        url,
        None if content is None else json.dumps(content).encode(),
        {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ['TOKEN']}",
            "Content-Type": "application/json",
            "User-Agent": "gradir",
        },
        method=method,
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
        return json.load(answer)


def _word(text: str) -> str:
    """Text that ends no comment of HTML."""
    return urllib.parse.quote(text, safe="/:").replace("-", "%2D")


if __name__ == "__main__":
    sys.exit(main())
