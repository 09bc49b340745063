"""``python -m gradir`` is the ``gradir`` command."""

from __future__ import annotations

import sys

# Python has put the working directory first, or the folder of this file where the file is run, as git does. Files of
# other people are read there, and nothing beside them is to be imported.
if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]

from gradir.cli import main

sys.exit(main())
