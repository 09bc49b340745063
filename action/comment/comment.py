"""Keep one comment of a pull request at the report of 'gradir check'; action.yml beside it runs this.

It needs nothing but Python, and runs in a job that runs nothing of the change. The change may have written the report,
so only its text is used: the event says which pull request it is for. A mark at the start of the comment, and its
author, tell it from others, so that it is updated and not repeated. A graph without a difference gets no comment, but
one that is there is updated. Trouble is a warning of the job: the check itself has passed or failed before.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

__all__ = ["main"]

# The author of comments that are written with the token of a job. Anybody may write the mark into theirs.
_AUTHOR: Final = "github-actions[bot]"

_NOTHING: Final = ": no difference\n"
# Characters that GitHub takes in a comment.
_LONGEST: Final = 65_536
# A character has at most four bytes.
_MOST_BYTES: Final = 4 * _LONGEST
_PAGE: Final = 100
_MOST_PAGES: Final = 100
_SECONDS: Final = 30
_TROUBLE: Final = "::warning title=gradir::no comment"


def main() -> int:
    """Write the comment, or say why there is none."""
    try:
        pull = os.environ["PULL"] or _pull_of_run()
        if not pull:
            print("gradir: no comment, since this is not a pull request")
            return 0
        _keep(pull, _report(os.environ["REPORT"]))
    except FileNotFoundError:
        print("gradir: no comment, since the check did not finish")
    except urllib.error.HTTPError as error:
        hint = ""
        if error.code in {401, 403, 404}:
            hint = "; the job needs 'permissions: pull-requests: write', which a pull request of a fork does not get"
        print(f"{_TROUBLE}: the API answers {error.code} to {error.geturl()}{hint}")
    except (OSError, ValueError) as error:
        print(f"{_TROUBLE}: {' '.join(str(error).split())}")
    return 0


def _report(path: str) -> str:
    """The text of the report: of a regular file, since a link could lead to one that holds the token."""
    # O_NONBLOCK: to open a pipe would wait for who writes into it.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("the report is not a regular file")
        return file.read(_MOST_BYTES).decode(errors="replace")


def _pull_of_run() -> str:
    """The number of the open pull request whose head the run that this job follows was started for."""
    owner, branch, commit = (os.environ[f"HEAD_{name}"] for name in ("OWNER", "BRANCH", "COMMIT"))
    if not commit:
        return ""
    head = urllib.parse.quote(f"{owner}:{branch}", safe="")
    found = _ask("GET", f"/pulls?state=open&head={head}&per_page={_PAGE}")
    return next((str(int(each["number"])) for each in found if each["head"]["sha"] == commit), "")


def _keep(pull: str, report: str) -> None:
    # Quoted, so that a name cannot end the comment of HTML.
    name = urllib.parse.quote(os.environ["NAME"], safe="/: ").replace("-", "%2D")
    mark = f"<!-- {name} -->\n"
    body = mark + report
    if len(body) > _LONGEST:
        body = f"{mark}### gradir check\n\nThe report is too long for a comment, and is in the job's summary.\n"
    comments = f"/issues/{urllib.parse.quote(pull, safe='')}/comments"
    found = _find_comment(comments, mark.strip())
    if found is None:
        if report.endswith(_NOTHING):
            print("gradir: no comment, since nothing differs")
            return
        answer = _ask("POST", comments, {"body": body})
    elif found["body"].replace("\r\n", "\n").strip() == body.strip():
        answer = found
    else:
        answer = _ask("PATCH", f"/issues/comments/{int(found['id'])}", {"body": body})
    print(f"gradir: {answer['html_url']}")


def _find_comment(comments: str, mark: str) -> dict[str, Any] | None:
    """The comment that has the mark, of the author of such comments."""
    for page in range(1, _MOST_PAGES + 1):
        entries = _ask("GET", f"{comments}?per_page={_PAGE}&page={page}")
        for entry in entries:
            if (entry.get("user") or {}).get("login") == _AUTHOR and (entry.get("body") or "").startswith(mark):
                found: dict[str, Any] = entry
                return found
        if len(entries) < _PAGE:
            break
    return None


def _ask(method: str, path: str, content: object = None) -> Any:
    url = f"{os.environ['API']}/repos/{urllib.parse.quote(os.environ['REPOSITORY'])}{path}"
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url}: is not the address of an API")
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


if __name__ == "__main__":
    sys.exit(main())
