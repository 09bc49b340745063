"""The published JSON Schema of a diff, generated from its records.

``python schemas/diff_schema.py --write`` writes it, ``--check`` fails when the published file is not what they say.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Final

from definitions import headed, publish, text

from gradir.diffs.changes import Diff
from gradir.diffs.diff_json import FORMAT, VERSION

__all__ = ["PUBLISHED", "diff_schema", "schema_text"]

PUBLISHED: Final = f"schemas/{FORMAT}-{VERSION}.schema.json"
"""Where it is published, from the project's root."""


def diff_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what ``gradir diff --format json`` prints."""
    return headed(Diff, PUBLISHED, f"The difference between two GIR graphs, version {VERSION}")


def schema_text() -> str:
    """The schema as it is published."""
    # msgspec writes Hunk[Node] as Hunk_Node_.
    return re.sub(r"(Hunk_[A-Za-z]+)_", r"\1", text(diff_schema()))


if __name__ == "__main__":
    sys.exit(publish(PUBLISHED, schema_text(), sys.argv))
