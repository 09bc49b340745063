"""``gradir help``: show all help of a command, or the values of a kind of argument."""

from __future__ import annotations

import argparse
from typing import Final

from gradir.cli.main import COMMANDS, make_overview, make_parser
from gradir.cli.parser import Parser, fill_paragraphs
from gradir.errors import GradirError, did_you_mean

DESCRIPTION = "Explain a command with all of its examples, or a topic."
EXAMPLES = ("gradir help program", "gradir help capture")

_PROGRAM: Final = """\
A PROGRAM is path/to/file.py:name or package.module:name. gradir imports the file
or module and captures the object of this name:

  a function without arguments that returns a loss, or (model, loss), or
    (model, loss, optimizer), which 'gradir explain' uses
  a loss: a tensor with a graph, or any nesting of tensors
  a module, or a class or function that makes one, run on --input
  an object that a front-end takes, as listed below

Examples:
  gradir capture train.py:loss -o loss.gir
  gradir capture net.py:Net --input 'float32[8,3,32,32]' -o net.gir
  gradir capture train.py:loss -o loss.gir -- --width 64

The arguments after '--' are passed to the program in sys.argv. gradir runs the
program: do not name code that you do not trust.

A script that calls backward by itself needs no function:
  gradir run train.py -o loss.gir
"""

_GRAPH: Final = """\
A GRAPH is one of these:

  model.gir          a file that gradir wrote; also .gir.gz and .gir.zst
  -                  the same on standard input
  main:model.gir     the file in a git revision; :model.gir is the index
  train.py:loss      a program, run and captured: see 'gradir help program'

Examples:
  gradir diff main:model.gir train.py:loss
  gradir summary train.py:loss
"""

_TOPICS: Final = {"program": _PROGRAM, "graph": _GRAPH}
# Further names of topics.
_ALSO: Final = {"spec": "program"}


def add_options(parser: Parser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help=f"a command, or {', '.join(_TOPICS)}", nargs="?")


def run(options: argparse.Namespace) -> int:
    topic = _ALSO.get(options.topic, options.topic)
    if topic is None:
        print(make_overview(), end="")
        return 0
    if topic in COMMANDS:
        print(make_parser(topic).format_help(whole=True), end="")
        return 0
    if topic not in _TOPICS:
        near = did_you_mean(topic, [*COMMANDS, *_TOPICS]) or f": choose a command, or {', '.join(_TOPICS)}"
        raise GradirError(f"unknown help topic {topic!r}{near}; see gradir --help")
    lines = [_TOPICS[topic].rstrip()]
    if topic == "program":
        from gradir.claims import kinds
        from gradir.request import FEATURES

        lines.append("\nFront-ends:")
        for name, kind in kinds().items():
            lines.append(f"  {name} takes {kind.takes}")
            lines += [f"    {text}" for feature, text in FEATURES.items() if feature in kind.features]
    print(fill_paragraphs("\n".join(lines)), end="")
    return 0
