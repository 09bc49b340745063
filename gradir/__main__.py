"""``python -m gradir`` is the ``gradir`` command."""

from __future__ import annotations

import sys

# Python puts the working directory first, or the folder of this file if git runs the file. gradir reads files of other
# people there and must not import modules beside them.
if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]

from gradir.cli import main

sys.exit(main())
