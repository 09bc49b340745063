"""The scripts here are run by tests, and are no modules."""

collect_ignore_glob = ["*.py"]
