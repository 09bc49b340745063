"""The rule about compositions, such as a written-out GELU, that became one operation or module, or the reverse."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from gradir.diffs.changes import ADDED_OR_REMOVED, Finding
from gradir.ir.edges import sources
from gradir.ir.text import value_text
from gradir.review.common_change import is_changed_node
from gradir.review.evidence import find_read_owner
from gradir.review.wording import operation_text
from gradir.vocabulary.shared import COMMUTATIVE, COMPOSITIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set

    from gradir.diffs.changes import Change
    from gradir.passes.translating import Word
    from gradir.review.evidence import Evidence

    # A node of the second graph (True) or of the first.
    Member = tuple[bool, str]
    Words = Mapping[int, Word]

# Words of compositions, which are equal with other settings too.
_WORDS: Final = frozenset(word.partition("[")[0] for key in COMPOSITIONS for word in key.split()) | {"add"}
_ATTENTION: Final = "attention"
# Words of compositions that need other shapes than their single operation.
_RESHAPING: Final = frozenset({_ATTENTION, "gather", "matmul"})
# Words that a composition may have in addition.
_MASKS: Final = frozenset({"add", "where"})
# If more operations for each edited one are in the same modules, a search of all takes too long.
_MOST_AROUND: Final = 64
_SHAPES: Final = frozenset({"expand", "permute", "reshape", "same"})


class _Group(NamedTuple):
    """Nodes of both graphs that compute the same words, and the numbers of these words in both."""

    members: dict[Member, None]
    words: list[tuple[int, int]]


@dataclass(eq=False)
class _Rewrite:
    """A composition in one graph and the operation in the other; ``is_joined`` if the operation is in the second."""

    composition: str
    is_joined: bool
    # Both graphs have the composition, in different operations.
    is_both: bool
    members: Set[Member]
    changes: list[int] = field(default_factory=list)


def report_compositions(evidence: Evidence) -> Iterator[Finding]:
    """Report compositions that became one operation of the same inputs, and the reverse."""
    edited = {member for change in evidence.changes for member in _find_edited(change)}
    # A composition has several nodes.
    if len(edited) <= 2 or len({is_after for is_after, _ in edited}) == 1:
        return
    owners = _find_rewrites(evidence, edited)
    rewrites = {*owners.values()}
    scopes: defaultdict[Member, set[_Rewrite | None]] = defaultdict(set)
    places: dict[_Rewrite | None, str] = {}
    for is_after, graph in zip((False, True), evidence.graphs if rewrites else (), strict=False):
        for node in graph.nodes.values():
            if node.role == "function" and node.op not in evidence.vocabulary.accumulators:
                owner = owners.get((is_after, node.id))
                scopes[is_after, node.scope].add(owner)
                places[owner] = node.scope
    for at in evidence.left if rewrites else ():
        owner = _find_owner(evidence.changes[at], owners, scopes)
        if owner is not None:
            owner.changes.append(at)
    grouped: defaultdict[tuple[str, str, bool, bool, tuple[float, ...]], list[_Rewrite]] = defaultdict(list)
    for rewrite in dict.fromkeys(owners.values()):
        changes = [evidence.changes[at] for at in rewrite.changes]
        edits = {change.kind for change in changes if change.subject == "scope"}
        if rewrite.is_both and "changed" in edits:
            # The other class of the module says more.
            continue
        rewrite.is_joined &= not (rewrite.is_both and "removed" in edits)
        operation, is_module = _name_operation(rewrite, changes)
        scales = _find_scales(rewrite, evidence) if rewrite.composition == _ATTENTION else ()
        grouped[rewrite.composition, operation, rewrite.is_joined, is_module, scales].append(rewrite)
    for (composition, operation, is_joined, is_module, scales), found in grouped.items():
        yield Finding(
            "rewritten",
            "change",
            tuple(places[rewrite] for rewrite in found),
            tuple(tuple(rewrite.changes) for rewrite in found),
            *((composition, operation) if is_joined else (operation, composition)),
            count=len(found),
            details={"joined": is_joined, "module": is_module, **({"scale": scales} if scales else {})},
        )


def _has(change: Change, key: str) -> bool:
    return any(each.path == (key,) for each in change.fields)


def _find_edited(change: Change) -> Iterator[Member]:
    """Yield the nodes of a change of operations."""
    if change.subject == "node" and (change.kind in ADDED_OR_REMOVED or _has(change, "op")):
        if change.kind != "added":
            yield False, change.old_id or change.id
        if change.kind != "removed":
            yield True, change.id


def _find_rewrites(evidence: Evidence, edited: Collection[Member]) -> dict[Member, _Rewrite]:
    from gradir.passes.shared_words import list_words

    both = []
    for is_after, graph in zip((False, True), evidence.graphs, strict=True):
        own = {key for side, key in edited if side == is_after}
        # Unchanged operations of the same modules may be part of a composition.
        scopes = {node.scope for node in graph.nodes.values() if node.id in own}
        inside = {node.id for node in graph.nodes.values() if node.scope in scopes}
        both.append(list_words(graph, inside if len(inside) <= _MOST_AROUND * len(edited) else own))
    owners: dict[Member, _Rewrite] = {}
    reshaping: set[Member] = set()
    for group in _group_words(both, _pair_words(evidence, both)):
        sizes = Counter(is_after for is_after, _ in group.members)
        is_joined = sizes[False] > sizes[True]
        many, few = ([both[side][pair[side]] for pair in group.words] for side in (not is_joined, is_joined))
        names = sorted(_name_word(word, both[not is_joined]) for word in many)
        composition = COMPOSITIONS.get(" ".join(names), "")
        is_single = sizes[False] != sizes[True] and all(len(word.parts) == 1 for word in few)
        is_both = min(sizes.values()) > 1 and names == sorted(_name_word(word, both[is_joined]) for word in few)
        # A composition may have a mask or an added constant, so one of them must not be missing.
        words, nodes = evidence.vocabulary.shared, [graph.nodes for graph in evidence.graphs]
        operations = ((side, nodes[side][key].op) for side, key in group.members)
        masks = Counter(side for side, op in operations if words.get(op, op).partition("(")[0] in _MASKS)
        is_both &= masks[False] == masks[True]
        are_edited = [member in edited for member in group.members]
        if composition and (all(are_edited) if is_single else is_both and any(are_edited)):
            rewrite = _Rewrite(composition, is_joined or not is_single, not is_single, group.members.keys())
            owners.update(dict.fromkeys(group.members, rewrite))
            reshaping.update(group.members if any(name.partition("[")[0] in _RESHAPING for name in names) else ())
    _add_shape_operations(evidence, edited, owners, reshaping)
    return owners


def _name_word(word: Word, words: Words) -> str:
    """Return a word with its settings; the addition of a tensor is a ``bias``."""
    if word.op == "add" and any(slot is not None and not words[slot.word].op for slot in word.inputs):
        return "bias"
    settings = ",".join(f"{key}={value}" for key, value in word.settings)
    return f"{word.op}[{settings}]" if settings else word.op


def _pair_words(evidence: Evidence, both: Sequence[Words]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of words that compute the same from the same nodes, apart from matched nodes."""
    nodes = [graph.nodes for graph in evidence.graphs]
    composed = [{part.id for word in words.values() if len(word.parts) > 1 for part in word.parts} for words in both]
    matched = {
        old: new
        for old, new in evidence.matched.items()
        if nodes[0][old].op == nodes[1][new].op and old not in composed[0] and new not in composed[1]
    }
    known: dict[Hashable, int] = {}
    unmatched: list[dict[int, list[int]]] = []
    for words, names in zip(both, (matched, {new: new for new in matched.values()}), strict=True):
        numbers: dict[int, int] = {}
        repeats: Counter[Hashable] = Counter()
        found: dict[int, list[int]] = {}
        for number, word in words.items():
            inputs = [None if slot is None else (numbers[slot.word], slot.output_nr) for slot in word.inputs]
            name = names.get(word.node.id)
            key: Hashable = (name, word.op)
            if name is None:
                attrs = {} if word.op in _WORDS else word.node.attrs
                settings = tuple((each, value_text(attrs[each])) for each in sorted(attrs))
                key = word.op, tuple(sorted(inputs, key=str) if word.op in COMMUTATIVE else inputs), settings
                # A word without inputs equals no other, except for a parameter with another name.
                own = word.node.shape if word.node.role == "parameter" else (len(unmatched), number)
                key = key if any(inputs) else (word.node.role, own)
            else:
                # Each output of a split has its own word.
                repeats[key] += 1
                key = key, repeats[key]
            numbers[number] = known.setdefault(key, len(known))
            if name is None and word.op:
                found.setdefault(numbers[number], []).append(number)
        unmatched.append(found)
    for key, first in unmatched[0].items():
        second = unmatched[1].get(key, [])
        yield from zip(first, second, strict=True) if len(first) == len(second) else ()


def _group_words(both: Sequence[Words], pairs: Iterable[tuple[int, int]]) -> Iterable[_Group]:
    """Group words of one operation, such as the product and the sum of ``addmm``."""
    groups: dict[Member, _Group] = {}
    for pair in pairs:
        members = [(bool(side), part.id) for side, at in enumerate(pair) for part in both[side][at].parts]
        found = {id(group): group for member in members if (group := groups.get(member))}
        # The smaller groups join the largest one.
        joined, *others = sorted([*found.values(), _Group({}, [])], key=lambda group: -len(group.members))
        for group in (*others, _Group(dict.fromkeys(members), [pair])):
            joined.members.update(group.members)
            joined.words.extend(group.words)
            groups.update(dict.fromkeys(group.members, joined))
    return {id(group): group for group in groups.values()}.values()


def _add_shape_operations(
    evidence: Evidence, edited: Collection[Member], owners: dict[Member, _Rewrite], reshaping: Collection[Member]
) -> None:
    """Add shape operations that only serve or follow one composition."""
    meanings = evidence.vocabulary.meanings
    for is_after, graph in zip((False, True), evidence.graphs if reshaping else (), strict=False):
        shapes = {
            key: meaning
            for key, node in graph.nodes.items()
            if (meaning := meanings.get(node.op.strip("_"))) in _SHAPES and len(node.inputs) == 1
        }
        reached: dict[str, _Rewrite] = {key: owners[side, key] for side, key in reshaping if side == is_after}
        users: defaultdict[str, set[_Rewrite | None]] = defaultdict(set)
        for node in reversed([*graph.nodes.values()]):
            serves = users[node.id] if node.id in shapes and (is_after, node.id) in edited else ()
            reached.update((node.id, owner) for owner in serves if owner is not None and len(serves) == 1)
            for source in sources(node):
                users[source].add(reached.get(node.id))
        for key, meaning in shapes.items():
            follows = reached.get(sources(graph.nodes[key])[0]) if key not in reached else None
            # An added or removed transpose of the result is another edit.
            if follows is not None and not (meaning == "permute" and (is_after, key) in edited):
                reached[key] = follows
        for key, owner in reached.items():
            if (is_after, key) in edited:
                owners.setdefault((is_after, key), owner)


def _find_owner(
    change: Change, owners: Mapping[Member, _Rewrite], scopes: Mapping[Member, set[_Rewrite | None]]
) -> _Rewrite | None:
    """Return the composition that explains a change; of a reader, the one that it reads from."""
    if change.subject == "scope" and (change.kind in ADDED_OR_REMOVED or _has(change, "class")):
        owner, *others = scopes.get((change.kind != "removed", change.id), {None})
        return None if others else owner
    edited = [*_find_edited(change)]
    member = owners.get((True, change.id)) if change.subject == "node" and change.kind != "removed" else None
    if not edited and member is not None and all(each.path[0] in {"in", "saved"} for each in change.fields):
        return member
    if edited or not is_changed_node(change):
        return next((owners[member] for member in edited if member in owners), None)
    # An edit of the program moves the lines below it.
    edges = tuple(each for each in change.fields if each.path != ("source",))
    return find_read_owner(replace(change, fields=edges), owners)


def _name_operation(rewrite: _Rewrite, changes: Sequence[Change]) -> tuple[str, bool]:
    modules: dict[str, None] = {}
    operations: dict[str, None] = {}
    for change in changes:
        names = {each.path: (each.before, each.after)[rewrite.is_joined] for each in change.fields}
        name = names.get(("class",), names.get(("op",), change.label))
        text = operation_text(change, name, before=not rewrite.is_joined)
        if change.kind != ("removed" if rewrite.is_joined else "added"):
            if change.subject == "scope":
                modules[text] = None
            elif not rewrite.members.isdisjoint(_find_edited(change)):
                operations[text] = None
    if rewrite.is_both and not modules:
        return "other operations", False
    return ", ".join(modules or operations), bool(modules)


def _find_scales(rewrite: _Rewrite, evidence: Evidence) -> tuple[float, ...]:
    """Return both factors of an attention's scores, unless equal or unknown."""
    scales = [1.0, 1.0]
    for is_after, key in rewrite.members:
        nodes = evidence.graphs[is_after].nodes
        node = nodes[key]
        meaning = evidence.vocabulary.meanings.get(node.op.strip("_"))
        factor = node.attrs.get("other", 1.0) if meaning == "mul" else 1.0
        if meaning == _ATTENTION and (factor := node.attrs.get("scale")) is None:
            width = (nodes[sources(node)[0]].shape or (None,))[-1]
            factor = width**-0.5 if isinstance(width, int) and width else None
        if not isinstance(factor, (int, float)) or not factor:
            return ()
        scales[is_after] *= 1 / factor if node.op.strip("_") == "div" else factor
    before, after = (float(f"{scale:.6g}") for scale in scales)
    return () if before == after else (before, after)
