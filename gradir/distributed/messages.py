"""Match the messages that ranks send to each other in the forward pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gradir.distributed.reading import RankFile
from gradir.distributed.simulation import Key
from gradir.ir import Collective, TensorMeta
from gradir.ir.text import pluralize

_FORWARD: Final = "forward"


class Channel(NamedTuple):
    """The tensors that one rank sends to another in a group in the forward pass, in order."""

    sender: int
    receiver: int
    group: str
    tensors: tuple[tuple[TensorMeta, ...], ...]


_Way = tuple[Key, int, int]
"""A group, the rank that sends, and the rank that receives."""


def find_channels(ranks: Sequence[RankFile]) -> tuple[list[Channel], list[str]]:
    """Match each send with its receive, by group and in order, and return the forward channels and troubles.

    Gradients go to an earlier stage or, without stages, back to the rank that sent first.
    """
    found, troubles = _match_messages(ranks)
    stages = {one.rank.rank: one.rank.stage for one in ranks}
    channels: list[Channel] = []
    for way, tensors in found.items():
        key, sender, receiver = way
        from_stage, to_stage, back = stages[sender], stages[receiver], found.get((key, receiver, sender))
        if from_stage is not None and to_stage is not None:
            is_forward = from_stage < to_stage
        elif back is None:
            is_forward = True
        elif sorted(map(str, back)) == sorted(map(str, tensors)) and len(firsts := _find_first_ways(ranks, way)) == 1:
            is_forward = way in firsts
        else:
            is_forward = False
            if sender < receiver:
                pair = f"ranks {sender} and {receiver} send to each other on {key[0]}"
                troubles.append(f"{pair}: gradir cannot recognize the gradients and links no message")
        if is_forward:
            channels.append(Channel(sender, receiver, key[0], tensors))
    return sorted(channels, key=lambda one: one[:3]), troubles


def _match_messages(ranks: Sequence[RankFile]) -> tuple[dict[_Way, tuple[tuple[TensorMeta, ...], ...]], list[str]]:
    sent: defaultdict[_Way, list[Collective]] = defaultdict(list)
    received: defaultdict[_Way, list[Collective]] = defaultdict(list)
    for one in ranks:
        for way, issued in _messages(one):
            (sent if issued.op == "send" else received)[way].append(issued)
    known = {one.rank.rank for one in ranks}
    found: dict[_Way, tuple[tuple[TensorMeta, ...], ...]] = {}
    troubles: list[str] = []
    for way in sorted({**sent, **received}, key=lambda way: (way[1:], way[0])):
        (label, _), sender, receiver = way
        route = f"from rank {sender} to rank {receiver} on {label}"
        missing = [rank for rank in (sender, receiver) if rank not in known]
        if missing:
            count = pluralize(len(sent[way]) + len(received[way]), "message")
            troubles.append(f"{count} {route} cannot be matched: rank {missing[0]} has no file")
            continue
        pairs = list(zip(sent[way], received[way], strict=False))
        unequal = next((number for number, pair in enumerate(pairs) if len({*map(_describe, pair)}) > 1), None)
        if unequal is not None:
            sides = "sent as {} and received as {}".format(*map(_describe, pairs[unequal]))
            troubles.append(f"message {unequal + 1} {route} is {sides}: gradir links no later message")
            pairs = pairs[:unequal]
        elif len(sent[way]) != len(received[way]):
            counts = f"{pluralize(len(sent[way]), 'message')} sent and {len(received[way]):,} received"
            troubles.append(f"{counts} {route}: those that have no other side are not linked")
        forward = tuple(one.tensors for one, _ in pairs if one.phase == _FORWARD)
        if forward:
            found[way] = forward
    return found, troubles


def _messages(one: RankFile) -> Iterator[tuple[_Way, Collective]]:
    rank = one.rank.rank
    # A rank with a thousand collectives has few groups.
    keys: Mapping[str, Key] = {label: (label, members) for label, members in one.rank.groups.items()}
    for issued in one.collectives:
        if issued.peer is None or issued.op not in ("send", "recv"):
            continue
        key = keys[issued.group]
        other = key[1][issued.peer]
        yield ((key, rank, other) if issued.op == "send" else (key, other, rank)), issued


def _describe(issued: Collective) -> str:
    return f"{', '.join(map(str, issued.tensors))} in {issued.phase}"


def _find_first_ways(ranks: Iterable[RankFile], way: _Way) -> set[_Way]:
    """Return the ways of the first messages that two ranks exchange, as each of them issues them."""
    key, *pair = way
    both = (one for one in ranks if one.rank.rank in pair)
    return {next(each for each, _ in _messages(one) if each[0] == key and {*each[1:]} == {*pair}) for one in both}
