"""gradir in git: files of any revision, and the driver that makes ``git diff`` show graphs.

`repository` runs git, `attributes` edits an attributes file, `driver` installs and removes the driver.
"""

from __future__ import annotations
