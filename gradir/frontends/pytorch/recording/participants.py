"""Select the modules and threads that took part in a capture, besides the given model."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import FrameType
from typing import NamedTuple

from torch import nn

from gradir.frontends.pytorch.private import ACCUMULATOR, DYNAMO, own_modules, own_parameters, sequence_number
from gradir.frontends.pytorch.reading.members import ModuleMap, has_parameters, modules_in
from gradir.frontends.pytorch.reading.tensors import Modules, modules_below
from gradir.frontends.pytorch.reading.walk import Walk
from gradir.frontends.pytorch.recording.sources import is_user_code
from gradir.frontends.pytorch.recording.timelines import Frame, ScopeLookup, Timeline
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import frames_from


class Participants(NamedTuple):
    """The outermost modules besides the given model (strays), and the threads that ran modules."""

    strays: Sequence[nn.Module]
    timelines: Sequence[Timeline]
    recording: Collection[Timeline]


def find_strays(outermost: Iterable[nn.Module], known: Mapping[nn.Module, str]) -> list[nn.Module]:
    """Return the outermost modules that contain no known module; a wrapper of a known model is left out."""
    return [module for module in outermost if known.keys().isdisjoint(modules_in(module))]


def variable_of(module: nn.Module, frame: FrameType | None) -> str:
    """Return the global variable with a module or its wrapper, in the outermost file of the user around a frame."""
    found = ""
    for outer in frames_from(frame):
        if is_user_code(outer.f_code):
            # Not the local variables, since reading them keeps their values alive while the function runs.
            names = (name for name, value in [*outer.f_globals.items()] if value is module or _wraps(value, module))
            found = next((name for name in names if name.isidentifier() and not name.startswith("_")), found)
    return found


def _wraps(value: object, module: nn.Module) -> bool:
    return type(value).__module__ == DYNAMO and any(inner is module for inner in own_modules(value).values())


def add_strays(modules: Modules, strays: Sequence[nn.Module], variables: Mapping[int, str]) -> Modules:
    """Return the modules with each stray as a root, named by its variable in ``variables``, or by its class."""
    if strays and not modules.roots:
        # Besides a single model there may be modules without parameters, such as its criterion.
        models = [module for module in strays if has_parameters(module)] or strays
        if len(models) == 1:
            modules = modules_below({"": models[0]})
            strays = [module for module in strays if module is not models[0]]
    if not strays:
        return modules
    named = dict(modules.roots)
    used = {*modules.paths.values(), *(path.partition(".")[0] for path in modules.paths.values())}
    counts: dict[str, int] = {}
    for module in strays:
        wanted = plain_text(variables.get(id(module)) or type(module).__name__)
        count = counts.get(wanted, 0) + 1
        while (name := wanted if count == 1 else f"{wanted}_{count}") in used:
            count += 1
        counts[wanted] = count
        used.add(name)
        named[name] = module
    return modules_below(named)


def select_participants(
    ran: Participants, known: Mapping[nn.Module, str], walked: Walk, holders: Mapping[int, nn.Module]
) -> Participants:
    """Leave out the strays that made no captured node and own no captured leaf, and threads that ran only these."""
    leaves = {id(fn.variable) for fn in walked.edges if type(fn).__name__ == ACCUMULATOR}
    holding = {id(holders[leaf]) for leaf in leaves & holders.keys()}
    place_of = ModuleMap[str]()
    idle, owning = set[int](), set[int]()
    for place, stray in enumerate(ran.strays):
        members = list(modules_in(stray))
        own = {id(tensor) for member in members for tensor in own_parameters(member).values()}
        owns = not leaves.isdisjoint(own) or not holding.isdisjoint(map(id, members))
        (owning if owns else idle).update(map(id, members))
        for member in members:
            place_of.setdefault(member, str(place))
    # Sequence numbers do not tell whether a thread ran a criterion of this model or another model.
    ignored = idle - owning

    def ran_other(line: Timeline) -> bool:
        return any(frame is not None and id(frame.module) not in ignored for frame in line.snapshot()[1])

    timelines = [line for line in ran.timelines if line in ran.recording or ran_other(line)]
    for module in known:
        place_of.setdefault(module, "")
    used = set(ScopeLookup(timelines, place_of)(list(walked.edges)))
    strays = [stray for place, stray in enumerate(ran.strays) if id(stray) in owning or str(place) in used]
    return Participants(strays, timelines, ran.recording)


def count_calls(timelines: Iterable[Timeline], walked: Walk) -> Counter[int]:
    """Count the calls of each module, by id(), within the outermost calls that made a captured node."""
    numbers = sorted(sequence_number(fn) for fn in walked.edges if type(fn).__name__ != ACCUMULATOR)
    calls: Counter[int] = Counter()
    for starts, frames in map(Timeline.snapshot, timelines):
        # The caller of a frame precedes it.
        outermost: dict[int, Frame] = {}
        modules: dict[int, int] = {}
        made: set[int] = set()
        places = [bisect_left(numbers, start) for start in starts]
        for frame, begin, end in zip(frames, places, [*places[1:], len(numbers)], strict=True):
            if frame is None or frame.checks:
                continue
            modules[id(frame)] = id(frame.module)
            first = outermost.setdefault(id(frame), outermost.get(id(frame.caller), frame))
            if begin < end:
                made.add(id(first))
        calls.update(module for key, module in modules.items() if id(outermost[key]) in made)
    return calls
