"""gradir in git: files of any revision, and the driver that makes ``git diff`` show graphs.

`repository` runs git, `sides` says what the words of a comparison name. `driver` installs and removes the driver, with
`attributes` for the attributes file, `configuration` for git's own with the record of what there was before, and
`textconv` for the command that git runs.
"""

from __future__ import annotations
