"""Documents that are small and ask for much memory: the most for each byte, in every place of the format."""

from __future__ import annotations

import json
from functools import cache

import msgpack


@cache
def bombs(count: int) -> dict[str, bytes]:
    """By name; each repeats its smallest part ``count`` times."""
    documents = _make_documents(count)
    spelled = {f"json {name}": json.dumps(each, separators=(",", ":")).encode() for name, each in documents.items()}
    return {**spelled, **{f"msgpack {name}": msgpack.packb(each) for name, each in documents.items()}}


def _document(**changes: object) -> object:
    return {"format": "gir", "version": "1.0", "nodes": [], **changes}


def _node(**fields: object) -> object:
    return _document(nodes=[{"id": "a", **fields}])


def _make_documents(count: int) -> dict[str, object]:
    maps: list[object] = [{}] * count
    names = [f"{number:x}" for number in range(count)]
    return {
        "nodes": _document(nodes=[{"id": name} for name in names]),
        "equal nodes": _document(nodes=[{"id": ""}] * count),
        "wide ids": _document(nodes=[{"id": f"\N{GRINNING FACE}{name}"} for name in names]),
        "outputs": _node(out=maps),
        "null inputs": _node(**{"in": [None] * count}),
        "inputs": _node(**{"in": [["a", 0]] * count}),
        "slots": _node(saved=[{"slot": ""}] * count),
        "names": _node(names=names),
        "attributes": _node(attrs=dict.fromkeys(names, 0)),
        "lists": _node(attrs={"": [[]] * count}),
        "short lists": _node(attrs={"": [[1]] * count}),
        "floats": _node(attrs={"": [1.5] * count}),
        "cuts": _document(cuts=[{"kind": ""}] * count),
        "scopes": _document(scopes=[{"path": name} for name in names]),
        "unknown maps": _document(later=maps),
        "unknown nested maps": _document(later=[{"": {"": {}}}] * count),
        "wrong maps": _document(requires=maps),
        "wrong attributes": _node(attrs={"": maps}),
        "outputs beside an unknown key": _node(out=maps, later=0),
        "nodes with an unknown key": _document(nodes=[{"id": name, "later": 0} for name in names]),
        "no document": {"x": maps},
        "no mapping": maps,
    }
