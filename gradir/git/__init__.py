"""Read files of any git revision, and install drivers with which git shows and merges graphs.

`repository` runs git, `sides` reads the arguments of a comparison, `driver` installs the drivers, `configuration`
edits git's files, and `textconv` has the script ``gradir.sh`` that git runs.
"""

from __future__ import annotations
