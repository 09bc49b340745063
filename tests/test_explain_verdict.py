"""The sentence that an explanation begins with, and the lines of the program below it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gradir.explanations.formats import Layout, format_explanation
from gradir.explanations.model import STATUSES, Cause, Examined, Excerpt, Explanation
from gradir.ir import Source

VALUES = Examined("backward")
NET = [f"enc.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")] + ["head.weight", "head.bias"]


def found(statuses: dict[str, str], *causes: Cause, examined: Examined = VALUES) -> Explanation:
    return Explanation({**dict.fromkeys(NET, "reached"), **statuses}, causes, examined=examined)


def lost(*names: str, kind: str = "detach", level: str = "error") -> Cause:
    return Cause(kind, level, kind, names, Source("net.py", 7, "Net.forward"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("explanation", "verdict"),
    [
        (found({}), "All 6 parameters get a gradient."),
        (found({"head.bias": "frozen"}), "5 of 6 parameters get a gradient; 1 is frozen."),
        (
            found(dict.fromkeys(NET[:4], "cut"), lost(*NET[:4])),
            "4 of 6 parameters get no gradient: detach() cuts all of enc (net.py:7 in Net.forward).",
        ),
        (
            found({**dict.fromkeys(NET[:4], "cut"), NET[4]: "unused"}, lost(*NET[:4]), lost(NET[5], kind="exit")),
            "5 of 6 parameters get no gradient, 4 of them because detach() cuts all of enc (net.py:7 in Net.forward), "
            "and 1 more error.",
        ),
        (
            found({NET[0]: "zero", NET[2]: "zero"}, lost(NET[0], NET[2], kind="flat")),
            "2 of 6 parameters get a gradient of zero: flat is flat: its derivative is zero everywhere, and so is the "
            "gradient of enc.{0,2}.weight (net.py:7 in Net.forward).",
        ),
        (
            found({NET[0]: "cut"}, lost(*NET[:2], level="info")),
            "5 of 6 parameters get a gradient; 1 gets no gradient, which may be intended: detach() cuts enc.0.weight "
            "(net.py:7 in Net.forward).",
        ),
        (
            # The reason is that of the zeros, and not of what is frozen.
            found(
                {**dict.fromkeys(NET[:4], "frozen"), "head.weight": "zero"},
                Cause("frozen", "info", "", tuple(NET[:4])),
                lost("head.weight", kind="starting", level="note"),
            ),
            "1 of 6 parameters gets a gradient; 4 are frozen; 1 gets a gradient of zero, which does no harm: the other "
            "factor of starting starts at zero, and the gradient of head.weight is zero until that has learned "
            "(net.py:7 in Net.forward).",
        ),
        (
            # A cut that is meant leaves no zeros.
            found(
                {NET[1]: "zero"},
                replace(lost(*NET[:4], level="info"), pattern="stop-gradient"),
                lost(NET[1], kind="rounding", level="note"),
            ),
            "5 of 6 parameters get a gradient; 1 gets a gradient of zero, which does no harm: the gradient of "
            "enc.0.bias is zero except for rounding: the value that rounding adds to all entries is subtracted again "
            "(net.py:7 in Net.forward).",
        ),
        (
            found(dict.fromkeys(NET, "error"), lost("hidden", kind="inplace")),
            "No parameter gets a gradient: inplace writes to hidden, which an earlier operation saved for its "
            "derivative (net.py:7 in Net.forward).",
        ),
        (
            found({NET[0]: "hidden"}),
            "All 6 parameters get a gradient (1 of them inside a function of the graph, such as a reentrant "
            "checkpoint).",
        ),
        (
            found({}, examined=Examined(reason="the graph is large", advice="pass values=True")),
            "All 6 parameters are in the graph. Values were not examined: the graph is large; pass values=True.",
        ),
        (
            found({"head.bias": "unused"}, lost("head.weight", kind="not_zeroed")),
            "5 of 6 parameters get a gradient: the gradient of head.weight is never cleared, so each step adds those "
            "of all steps before it (net.py:7 in Net.forward).",
        ),
        (
            found(dict.fromkeys(NET, "cut"), lost(*NET)).allow(["detach"]),
            "All 6 parameters get no gradient, which is allowed.",
        ),
    ],
)
def test_the_verdict_counts_and_gives_the_gravest_reason(explanation: Explanation, verdict: str) -> None:
    assert explanation.verdict == verdict
    assert explanation.to("text").partition("\n")[0] == verdict
    assert json.loads(explanation.to("json"))["verdict"] == verdict


def test_a_cause_without_names_has_a_subject() -> None:
    error = "RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    raised = Cause("raised", "error", "linear", source=Source("net.py", 7), detail=error)
    assert found(dict.fromkeys(NET, "error"), raised).verdict == (
        f"No parameter gets a gradient: linear raised: {error} (net.py:7)."
    )


def test_all_of_a_module_are_all_its_names_and_no_others() -> None:
    names = ("encoder.w", "encoder.hidden[0].w")
    cause = Cause("not_registered", "error", "", names)
    two = Explanation({"encoder.w": "reached", "encoder.b": "reached", "head.w": "reached"}, (cause,), examined=VALUES)
    assert "all of encoder" not in two.verdict


DEEP = [f"enc.{layer}.{name}" for layer in range(3) for name in ("w", "b")]


@pytest.mark.parametrize(
    ("cut", "zero", "verdict"),
    [
        (DEEP, [], "6 of 8 parameters get no gradient: detach() cuts all of enc (net.py:7)."),
        ([*DEEP, "head.w"], [], "7 of 8 parameters get no gradient: detach() cuts all of enc and head.w (net.py:7)."),
        (
            [*DEEP[:4], "head.w"],
            [],
            "5 of 8 parameters get no gradient: detach() cuts all of enc.{0,1} and head.w (net.py:7).",
        ),
        ([*DEEP, "head.w", "head.b"], [], "All 8 parameters get no gradient: detach() cuts all parameters (net.py:7)."),
        (DEEP[:2], DEEP[2:], "2 of 8 parameters get no gradient: detach() cuts all of enc.0 (net.py:7)."),
    ],
)
def test_a_verdict_names_whole_modules_and_missing_gradients_first(
    cut: list[str], zero: list[str], verdict: str
) -> None:
    statuses = dict.fromkeys([*DEEP, "head.w", "head.b"], "reached") | dict.fromkeys(cut, "cut")
    cause = Cause("detach", "error", "detach", (*zero, *cut), Source("net.py", 7))
    assert Explanation(statuses | dict.fromkeys(zero, "zero"), (cause,), examined=VALUES).verdict == verdict


@given(
    st.dictionaries(st.text(max_size=9), st.sampled_from([*STATUSES, "new word"]), max_size=6),
    st.lists(st.sampled_from(["detach", "frozen", "raised", "zero", "invented"]), max_size=4),
    st.sampled_from(["error", "info", "note"]),
)
def test_any_verdict_is_one_sentence_on_one_line(statuses: dict[str, str], kinds: list[str], level: str) -> None:
    causes = tuple(Cause(kind, level, "op", tuple(statuses), Source("a\nb.py", 1)) for kind in kinds)  # type: ignore[arg-type]
    verdict = Explanation(statuses, causes, examined=VALUES).verdict
    assert verdict.isprintable()
    assert verdict.endswith(".")
    assert not verdict.endswith("..")


LINE = "    return self.head(self.enc(x).relu().detach())"
SHOWN = Excerpt(LINE, LINE.index("detach"), len(LINE) - 1)
ONE = found(
    {"head.bias": "cut"}, Cause("detach", "error", "detach", ("head.bias",), Source("net.py", 12), excerpt=SHOWN)
)


def test_the_line_of_the_program_has_carets_below_the_operation() -> None:
    _, _, first, place, line, carets, _ = ONE.to("text").splitlines()
    assert (first, place) == ("error[detach]: detach() cuts head.bias", "  --> net.py:12")
    assert line == "12 |     return self.head(self.enc(x).relu().detach())"
    assert carets.index("^") == line.index("detach")
    assert carets.count("^") == len("detach()")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_text_is_wrapped_to_the_terminal(width: int) -> None:
    lines = format_explanation(ONE, "text", Layout(width=width)).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()).count("detach() cuts head.bias") == 2
    (carets,) = (line for line in lines if "^" in line)
    assert carets.count("^") == len("detach()")


def test_colour_is_added_only_where_it_is_asked_for_and_changes_no_word() -> None:
    plain, coloured = format_explanation(ONE, "text"), format_explanation(ONE, "text", Layout(color=True))
    assert "\x1b" not in plain
    assert "\x1b[1;31merror[detach]\x1b[0m" in coloured
    for code in ("\x1b[1;31m", "\x1b[1;34m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


def test_wide_characters_move_the_carets() -> None:
    text = "y = 模型(x).detach()"
    excerpt = Excerpt(text, text.index("detach"), len(text))
    cause = Cause("detach", "error", "detach", ("w",), Source("a.py", 3), excerpt=excerpt)
    _, _, _, _, _, carets, _ = Explanation({"w": "cut"}, (cause,), examined=VALUES).to("text").splitlines()
    assert carets.index("^") == len("3 |     ") + text.index("detach") + 2


def test_the_gravest_come_first_and_notes_are_counted() -> None:
    causes = [
        lost(name, kind=kind, level=level)
        for name, kind, level in zip("abc", ["unused", "exit", "detach"], ["note", "info", "error"], strict=True)
    ]
    explanation = Explanation(dict.fromkeys("abc", "cut"), tuple(causes), examined=VALUES)
    text = explanation.to("text")
    assert text.index("error[detach]") < text.index("info[exit]")
    assert "note[" not in text
    assert text.endswith("1 note (unused 1): --all shows it\n")
    assert "note[unused]" in explanation.to("text", all=True)


def test_large_numbers_are_written_alike() -> None:
    names = [f"{chr(97 + number % 26)}{number * 7919 % 10007}" for number in range(3000)]
    statuses = dict.fromkeys(names[1:], "unused") | {names[0]: "reached"}
    report = Explanation(statuses, (Cause("unused", "info", names=tuple(names[1:])),), examined=Examined("backward"))
    assert report.verdict.startswith(
        "1 of 3,000 parameters gets a gradient; 2,999 get no gradient, which may be intended: "
    )
    assert report.verdict.endswith(" and 2,995 more.")
