"""Read files of any git revision, and install drivers with which git shows and merges graphs.

`repository` runs git and reads the arguments of a comparison. `driver` installs the drivers and the script
``gradir.sh``, which git runs. `configuration` edits git's files.
"""

from __future__ import annotations
