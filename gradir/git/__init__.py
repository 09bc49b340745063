"""gradir in git: files of any revision, and the drivers that make git show and merge graphs.

`repository` runs git, `sides` says what the words of a comparison name. `driver` installs and removes the drivers, with
`attributes` for the attributes file, `configuration` for git's own with the record of what there was before, and
`textconv` for the commands that git runs, by the script ``gradir.sh``.
"""

from __future__ import annotations
