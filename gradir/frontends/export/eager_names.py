"""The names that modules and tensors of a compiled call have in the eager graph."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from gradir.frontends.export.program import bare_path
from gradir.frontends.pytorch.target import Traced
from gradir.frontends.walks import below

_VARIABLE: Final = re.compile(r"[LG]\.((?!__)\w[\w.]*)")


class EagerNames:
    """Gives modules and tensors the names that they have in the eager graph.

    The call may make modules anew. Such a root is found by its class, in the order of calls.
    """

    def __init__(self, target: Traced) -> None:
        modules = target.modules
        self._paths = {id(module): path for module, path in modules.paths.items()}
        self._owned = {id(each.tensor): each for each in modules.owned}
        self._by_name = {name: each for each in modules.owned for name in each.names}
        self._waiting = [(type(module), path) for path, module in modules.roots.items()]
        self._roots: dict[str, str] = {}

    def forget_texts(self) -> None:
        """Forget what Dynamo calls the modules of one graph, which it may call others in the next."""
        self._roots = {}

    def stack(self, stack: Mapping[str, Any]) -> dict[str, Any]:
        """Return the modules of a node with their eager paths."""
        found = {}
        for key, (text, kind) in stack.items():
            number, _, call = str(key).partition("@")
            bare = bare_path(text.partition("@")[0])
            known = int(number) if number.isdecimal() else 0
            if known not in self._paths:
                self._paths[known] = self._path(bare, kind)
            path = self._paths[known]
            self._note(bare, path)
            found[f"{path}@{call}"] = path, kind
        return found

    def _note(self, bare: str, path: str) -> None:
        """Note what Dynamo calls a module, and the modules above it: a frame calls its own ``self``."""
        while bare and bare not in self._roots:
            self._roots[bare] = path
            (bare, _, inner), (path, _, last) = bare.rpartition("."), path.rpartition(".")
            if inner != last:
                return

    def _path(self, bare: str, kind: Any) -> str:
        """Return the path of a module that the eager run did not have."""
        known = self._known(bare)
        fitting = None if known is not None else next((each for each in self._waiting if each[0] is kind), None)
        if fitting is not None:
            self._waiting.remove(fitting)
            return fitting[1]
        return known or bare.partition(".")[2].partition(".")[2]

    def _known(self, bare: str) -> str | None:
        """Return the path of what is below a module that has one."""
        above, rest = bare, ""
        while above:
            if above in self._roots:
                return below(self._roots[above], rest) if rest else self._roots[above]
            above, _, last = above.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
        return None

    def input(self, source: str, tensor: object) -> tuple[str, tuple[str, ...]]:
        """Return the role and the names of an input."""
        bare = bare_path(source)
        owned = self._owned.get(id(tensor)) or self._by_name.get(self._known(bare) or "")
        if owned is not None:
            return "parameter" if owned.is_parameter else "buffer", owned.names
        # Dynamo begins the names that it makes up itself with underscores.
        name = _VARIABLE.fullmatch(bare)
        return "input", (name[1],) if name is not None else ()
