"""Write the head of gradir's HTML pages, which open from disk without network access."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape


def hash_for_policy(text: str) -> str:
    """Return the hash that names an inline script or style in a Content-Security-Policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def head(title: str, style: str, *, scripts: str, styles: str = "", images: str = "data:") -> str:
    """Return a page up to its body; its policy allows ``scripts``, ``styles`` (default: this ``style``) and ``images``.

    >>> print(head("a < b", "", scripts="'none'").splitlines()[-3])
    <title>a &lt; b</title>
    """
    # Names in a graph are untrusted: the browser runs the page's own script only and asks no host.
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles or hash_for_policy(style)}; img-src {images}; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{escape(title)}</title>
<style>{style}</style>
</head>"""
