"""The entry point of the front-end for exported programs; importing it does not import torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set
from typing import BinaryIO, ClassVar

from gradir.errors import CaptureError
from gradir.ir import Graph
from gradir.protocols import LiveCapture
from gradir.request import CaptureRequest


class ExportFrontend:
    """Captures programs of torch.export and torch.fx, and reads ``.pt2`` files."""

    framework: ClassVar[str] = "torch"
    takes: ClassVar[str] = "a torch.export program or an FX GraphModule"
    install: ClassVar[str] = "pip install 'gradir[torch]'"
    features: ClassVar[Set[str]] = frozenset({"forward", "joint", "sources"})
    reads: ClassVar[Mapping[str, str]] = {".pt2": "a torch.export program"}
    before: ClassVar[Set[str]] = frozenset({"torch"})

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise CaptureError(f"an exported program needs PyTorch: {self.install}") from error
        if torch.__version__ < torch.torch_version.TorchVersion("2.8"):
            raise CaptureError(
                f"an exported program needs torch 2.8 or later, and this is {torch.__version__}: update it"
            )

    @classmethod
    def claims(cls, value: object) -> bool:
        """Return whether a value is an exported program or an FX GraphModule."""
        kinds = (
            ("torch.export", "ExportedProgram"),
            ("torch.fx", "GraphModule"),
            ("gradir.frontends.pytorch.target", "Traced"),
        )
        return any(isinstance(value, getattr(sys.modules.get(module), name, ())) for module, name in kinds)

    def capture(self, request: CaptureRequest) -> LiveCapture:
        """Return the graph of an exported program, without running the program."""
        import torch

        from gradir.frontends.export.assemble import Assembly, trace_places
        from gradir.frontends.export.fx import program_of
        from gradir.frontends.texts import ShownPaths

        if request.graph in {"joint", "compiled"}:
            from gradir.frontends.export.joint import joint_program

            program = joint_program(request.target)
        else:
            program = program_of(request.target)
        return Assembly(program, trace_places(ShownPaths(), (torch.__path__[0],)))

    def read(self, file: BinaryIO) -> Graph:
        """Return the graph of the program in a ``.pt2`` file, without reading weights or pickles.

        Raises:
            FormatError: the file has no program, or none that gradir can read.
        """
        from gradir.frontends.export.archive import read_archive
        from gradir.frontends.export.assemble import Assembly, foreign_path, trace_places

        return Assembly(read_archive(file), trace_places(foreign_path)).graph
