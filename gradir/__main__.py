"""``python -m gradir`` is the ``gradir`` command."""

from __future__ import annotations

import sys

from gradir.cli import main

sys.exit(main())
