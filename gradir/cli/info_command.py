"""``gradir info``: summarize a ``.gir`` file."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from gradir import api, files
from gradir.cli.report import write_output
from gradir.cli.sources import add_graph_argument, find_source, load, refuse_program_options, report_raised
from gradir.errors import FormatError

if TYPE_CHECKING:
    from gradir.cli.parser import Parser
    from gradir.codecs.surveyor import Survey
    from gradir.ir import Cut

DESCRIPTION = "Print the format and producer of a graph, its counts, and the parameters that get no gradient."
EXAMPLES = ("gradir info model.gir", "gradir info train.py:loss --json")
DETAILS = """\
gradir counts what is in a file without loading its graph: 'gradir validate' checks it.

Exit status: 0 done, 1 the program raised and the graph ends there, 2 trouble.
"""

_MOST_CUTS: Final = 20
_MOST_OPS: Final = 8


def add_options(parser: Parser) -> None:
    add_graph_argument(parser)
    parser.group("output").add_argument("--json", action="store_true", help="print all of it as JSON")


def run(options: argparse.Namespace) -> int:
    from gradir import codecs
    from gradir.ir.jsontext import json_text

    source, status = find_source(options.file), 0
    if source.is_program:
        loaded = load(options, source)
        data, status = codecs.encode(loaded.graph), report_raised(loaded)
    else:
        refuse_program_options(options, source.word)
        data = source.read()
    with files.naming(source.name):
        found = _survey_file(data, source.name)
    if options.json:
        fields = {**msgspec.structs.asdict(found), **found.others, "compression": found.compression}
        del fields["others"]
        files.write_bytes("-", msgspec.json.format(json_text(fields).encode(), indent=2) + b"\n")
    else:
        write_output("-", describe_survey(found).encode())
    return status


def _survey_file(data: bytes, name: str) -> Survey:
    from gradir import codecs

    try:
        return codecs.survey(data)
    except FormatError:
        from gradir.claims import reader_of

        if not reader_of(name):
            raise
        return codecs.survey(codecs.encode(api.decode_graph(data, name)))


def describe_survey(survey: Survey) -> str:
    """Return the lines that ``gradir info`` prints."""
    from gradir.ir.head import MERGED
    from gradir.ir.text import amount, escape_unprintable, pluralize, tensor_text

    counts, producer = survey.totals, survey.producer
    framework = f"{producer.framework} {producer.framework_version}".strip()
    # A graph made by hand has no producer.
    made_by = f"gradir {producer.gradir}".rstrip() if producer.gradir or framework else ""
    made_by += f" from {framework}" if framework else ""
    if producer.options.get(MERGED) is True:
        made_by += ", merged from two edits: capture the program again"
    roles = ", ".join(f"{count:,} {role}" for role, count in sorted(survey.roles.items()))
    common = ", ".join(f"{count:,} {op}" for op, count in islice(survey.ops.items(), _MOST_OPS))
    encoding = f"{survey.encoding}, {survey.compression}" if survey.compression else survey.encoding
    rows = [
        ("format", f"GIR {survey.version} ({encoding})"),
        *([("made by", made_by)] if made_by else []),
        ("nodes", f"{counts.nodes:,} ({roles})"),
        ("edges", f"{counts.edges:,}"),
        ("operations", common + (", …" if len(survey.ops) > _MOST_OPS else "")),
        ("modules", f"{survey.scopes:,}"),
        ("parameters", f"{amount(counts.parameters)} elements"),
        ("saved for backward", f"{amount(counts.saved_bytes)} bytes"),
        (
            "outputs",
            ", ".join(f"{output.id} {', '.join(map(tensor_text, output.tensors))}" for output in survey.outputs),
        ),
    ]
    rows += [(key, _value_text(value)) for key, value in survey.others.items() if value]
    rows += [(cut.kind, _cut_text(cut)) for cut in survey.cuts[:_MOST_CUTS]]
    if len(survey.cuts) > _MOST_CUTS:
        noun = "more cut" if any(cut.is_place for cut in survey.cuts) else "more parameter"
        rows.append(("", f"… and {pluralize(len(survey.cuts) - _MOST_CUTS, noun)}"))
    return "".join(f"{escape_unprintable(name):<20}{escape_unprintable(text)}\n" for name, text in rows)


def _value_text(value: object) -> str:
    from gradir.ir import Rank
    from gradir.ir.jsontext import json_text

    if isinstance(value, Rank):
        return f"{value.rank:,} of {value.world:,}"
    if isinstance(value, str):
        return value
    return f"{value:,}" if type(value) is int else json_text(value)


def _cut_text(cut: Cut) -> str:
    from gradir.ir.cuts import cut_text
    from gradir.ir.text import tensor_text

    if cut.is_place:
        return cut_text(cut)
    names = ", ".join(cut.names)
    return names if cut.tensor is None else f"{names} {tensor_text(cut.tensor)}"
