"""What is read from bytecode, which every Python writes in a way of its own."""

from __future__ import annotations

from functools import reduce
from types import CodeType

import pytest

from gradir.frontends.pytorch.recording.results import LOST, MAYBE, SURE, find_fates


def forms(f, x):
    plain = f(x)
    keywords = f(x, key=1)
    unpacked = f(*x, **plain)
    method = x.f(keywords)
    added = method + unpacked
    added += plain
    total = sum(f(y) for y in x)
    product = reduce(f, x)
    several = list(map(f, x))
    condition = f(x if plain else f)
    if walrus := f(x):
        one = other = f(walrus)
    first, second = f(one)
    star, *rest = x
    for item in map(f, x):
        f(item)
    return [added, total, product, several, condition, other, first, second, star, rest]


def at_once(f, x):
    return f(x)


def by_name(f, x):
    result = f(x)
    return result  # noqa: RET504


def guarded(f, x):
    try:
        return f(x)
    except ValueError:
        return None


def inner(f, x):
    result = None

    def call():
        nonlocal result
        result = f(x)
        if x:
            result = x
        return result

    return call


def variables(code: CodeType) -> dict[str, int]:
    return {fate.variable: fate.direct for fate in find_fates(code).values() if fate.variable}


def test_the_variable_of_a_value_is_found() -> None:
    found = variables(forms.__code__)
    values = ("plain", "keywords", "unpacked", "method", "added", "condition", "walrus", "one", "item")
    assert {name: found.get(name) for name in (*values, "total", "product", "several", "first", "star")} == {
        **dict.fromkeys(values, SURE),
        **dict.fromkeys(("total", "product"), MAYBE),
        "several": LOST,
        # What is unpacked goes to several.
        **dict.fromkeys(("first", "star")),
    }


@pytest.mark.parametrize(
    ("code", "variable", "returned"),
    [
        (at_once.__code__, None, SURE),
        (by_name.__code__, "result", SURE),
        (guarded.__code__, None, SURE),
        (next(found for found in inner.__code__.co_consts if isinstance(found, CodeType)), "result", MAYBE),
    ],
)
def test_a_returned_value_is_found(code: CodeType, variable: str | None, returned: int) -> None:
    assert (variable, returned) in {(fate.variable, fate.returned) for fate in find_fates(code).values()}


def test_a_call_is_known_wherever_python_stays_at_it() -> None:
    # Python 3.11 is at one of several places while it makes a call, by what it learned of it.
    starts = sorted(offset for offset, fate in find_fates(by_name.__code__).items() if fate.variable == "result")
    assert starts == list(range(starts[0], starts[-1] + 2, 2))


def test_a_call_of_what_several_calls_return_is_read() -> None:
    # Python 3.11 pushes a NULL for each at once, outside a function.
    code = compile("y = f(g(h(x)))(x)\nz = f(g(h(k(x))))(x)(x)\nn = f(x)", "script.py", "exec")
    assert variables(code) == dict.fromkeys("yzn", SURE)
