"""Read the JSON of a ``.pt2`` file of ``torch.export.save``.

The file is untrusted. gradir loads no pickle, evaluates no expression, imports no module, and reads no more bytes than
the size of the file allows.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

from gradir.codecs.compression import size_limit
from gradir.errors import FormatError
from gradir.frontends.export.program import Body, Input, Named, Part, Program, values_in
from gradir.frontends.export.reading import join_entries, make_call, make_program, modules_of, operation_of, size_text
from gradir.frontends.pytorch.reading.attributes import plain_value
from gradir.frontends.texts import plain_text
from gradir.ir import TensorMeta
from gradir.ir.jsontext import TOO_DEEP, is_too_deep
from gradir.ir.memo import group_by_key
from gradir.ir.model import INT64_MAX
from gradir.ir.text import escape_unprintable, excerpt, summarize_error

T = TypeVar("T")

_LARGEST: Final = 2**28
_MOST_MEMORY: Final = 2**30
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NEWEST: Final = 8
_DEEPEST: Final = 64
_NESTED: Final = 6
_FIELDS: Final = {"as_device": "type", "as_expr": "expr_str"}
_LONGEST: Final = 500
_NOT_FINITE: Final = ("Infinity", "-Infinity", "NaN")
_BEFORE_2_8: Final = "serialized_exported_program.json"
_DTYPES: Final = (
    *("unknown", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64"),
    *("complex128", "bool", "bfloat16", *[""] * 14, "uint16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"),
    *("float8_e5m2fnuz", "float8_e8m0fnu", "uint32", "uint64"),
)
_SPARSE: Final = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
_TABLES: Final[Mapping[str, Sequence[str]]] = {
    "as_scalar_type": _DTYPES,
    "as_layout": ("unknown", *_SPARSE, "_mkldnn", "strided"),
    "as_memory_format": ("unknown", "contiguous_format", "channels_last", "channels_last_3d", "preserve_format"),
}
"""Names by number of the enumerations in ``torch._export.serde.schema``."""


class _Argument(msgspec.Struct):
    name: str
    arg: dict[str, Any]


class _Node(msgspec.Struct):
    target: str
    inputs: list[_Argument]
    outputs: list[dict[str, Any]]
    metadata: dict[str, str] = {}


class _Tensor(msgspec.Struct):
    dtype: int
    sizes: list[dict[str, Any]]
    device: dict[str, str | int | None]
    layout: int = 7
    requires_grad: bool = False


class _Graph(msgspec.Struct):
    """A graph. Each argument is a dict of one key, its kind."""

    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    nodes: list[_Node]
    tensor_values: dict[str, _Tensor]
    sym_int_values: dict[str, dict[str, Any]] = {}
    sym_float_values: dict[str, dict[str, Any]] = {}
    sym_bool_values: dict[str, dict[str, Any]] = {}


class _Signature(msgspec.Struct):
    input_specs: list[dict[str, dict[str, Any]]]
    output_specs: list[dict[str, dict[str, Any]]]


class _Module(msgspec.Struct):
    graph: _Graph
    signature: _Signature


class _Program(msgspec.Struct):
    graph_module: _Module
    schema_version: dict[str, int]
    torch_version: str = ""


class _Weight(msgspec.Struct):
    path_name: str
    tensor_meta: dict[str, Any] | None = None

    def place(self, name: str) -> str:
        """Return the file and metadata of a tensor, or its name if it is empty."""
        meta = msgspec.json.encode(self.tensor_meta).decode()
        return name if '{"as_int":0}' in meta.partition("strides")[0] else self.path_name + meta


class _Weights(msgspec.Struct):
    config: dict[str, _Weight]


def read_archive(file: BinaryIO) -> Program:
    """Read the program in a ``.pt2`` file.

    Raises:
        FormatError: there is none, or it cannot be read.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            name, available = _graph_name(archive), file.seek(0, io.SEEK_END)
            root, model = name.rpartition("models/")[0], name.rpartition("/")[2].removesuffix(".json")
            configs = [f"{root}data/{kind}/{model}_{kind}_config.json" for kind in ("weights", "constants")]
            texts = _read_texts(archive, [name, *(each for each in configs if each in archive.NameToInfo)], available)
            program = _decode(name, texts.pop(name), _Program)
            weights: dict[str, _Weight] = {}
            for place, text in texts.items():
                weights |= _decode(place, text, _Weights).config
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError) as error:
        raise FormatError(f"broken archive: {summarize_error(error)}") from error
    version = program.schema_version.get("major", 0)
    if version > _NEWEST:
        raise FormatError(f"the program has schema {version}, and this gradir reads up to {_NEWEST}; update gradir")
    try:
        return _Reader(weights).read(program)
    except msgspec.ValidationError as error:
        raise FormatError(str(error), place=escape_unprintable(name)) from error


def _graph_name(archive: zipfile.ZipFile) -> str:
    names = [name for name in archive.NameToInfo if name.endswith(".json") and "models/" in name]
    names = [name for name in names if name.endswith("models/model.json")] or names
    names += [name for name in archive.NameToInfo if name.rpartition("/")[2] == _BEFORE_2_8]
    if len(names) == 1:
        return names[0]
    if names:
        raise FormatError(f"the archive has several programs: {', '.join(map(excerpt, names[:3]))}; save one by itself")
    is_compiled = any("aotinductor" in name for name in archive.NameToInfo)
    what = "an AOTInductor package, which has code and no graph" if is_compiled else "no torch.export program"
    raise FormatError(f"the archive has no models/model.json; it is {what}")


def _read_texts(archive: zipfile.ZipFile, names: Sequence[str], available: int) -> dict[str, bytes]:
    """Read JSON files, unless they are too large together."""
    entries = [archive.getinfo(name) for name in names]
    for entry in entries:
        if (method := entry.compress_type) not in _METHODS:
            place = escape_unprintable(entry.filename)
            raise FormatError(f"unknown compression method {method}; save the program again", place=place)
    # The directory of the archive may state more bytes than the file has, or the same bytes several times.
    stored = min(sum(entry.compress_size for entry in entries), available)
    size = sum(entry.file_size for entry in entries)
    if size <= min(_LARGEST, size_limit(stored)):
        texts = {name: archive.read(name) for name in names}
        if sum(map(most_memory, texts.values())) <= _MOST_MEMORY:
            return texts
    raise FormatError(f"{size:,} bytes, which is too large to be read", place=escape_unprintable(names[0]))


def most_memory(text: bytes) -> int:
    """Return a bound on the bytes of decoded JSON, from its punctuation."""
    # An object takes 184 bytes, a list or a short string 56, and an entry of a list 8.
    return len(text) + 64 * (text.count(b",") + text.count(b":") + text.count(b"[")) + 200 * text.count(b"{")


def _decode(name: str, text: bytes, kind: type[T]) -> T:
    if is_too_deep(text):
        raise FormatError(TOO_DEEP, place=escape_unprintable(name))
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(str(error), place=escape_unprintable(name)) from error


class _Reader:
    def __init__(self, weights: Mapping[str, _Weight]) -> None:
        self._waiting: list[tuple[object, Part]] = []
        self._numbers: Mapping[str, Any] = {}
        ties = group_by_key((weight.place(name), name) for name, weight in weights.items())
        self._tied = {name: tuple(names) for names in ties.values() for name in names}

    def read(self, program: _Program) -> Program:
        self._graph, signature = program.graph_module.graph, program.graph_module.signature
        inputs, input_names = self._inputs(signature)
        part = self._part(self._graph)
        while self._waiting:
            inner, empty = self._waiting.pop()
            graph = self._graph = msgspec.convert(inner, _Graph)
            self._numbers = graph.sym_int_values | graph.sym_float_values | graph.sym_bool_values
            self._fill(empty)
        targets = list[str | None]()
        for kind, fields in map(_only_item, signature.output_specs):
            target = fields.get("buffer_name") or fields.get("parameter_name") or fields.get("user_input_name")
            is_write = kind.endswith("_mutation") and isinstance(target, str)
            targets.append(input_names.get(target) if is_write else None)
        return make_program(part, inputs, targets, program.torch_version)

    def _inputs(self, signature: _Signature) -> tuple[dict[str, Input], dict[str, str]]:
        """Return the inputs of the program, and the names of inputs by the names that a mutation gives them."""
        inputs, input_names = {}, {}
        for kind, fields in map(_only_item, signature.input_specs):
            value = self._value("as_tensor", fields.get("arg"))
            known = self._graph.tensor_values.get(value.name) if isinstance(value, Named) else None
            role = {"parameter": "parameter", "user_input": "input"}.get(kind, "buffer")
            if known is not None:
                full = value.name if role == "input" else _check_name(fields.get(f"{kind}_name"))
                tensor = self._tensor(value.name)
                inputs[value.name] = Input(role, self._tied.get(full, (full,)), tensor, known.requires_grad)
                input_names[full] = value.name
        return inputs, input_names

    def _part(self, graph: object) -> Part:
        """Return an empty part, which `read` fills later."""
        part = Part([], [], [])
        self._waiting.append((graph, part))
        return part

    def _fill(self, part: Part) -> None:
        inputs = (self._value(*_only_item(each)) for each in self._graph.inputs)
        part.inputs.extend(each.name if isinstance(each, Named) else "" for each in inputs)
        for node in self._graph.nodes:
            arguments = [
                (each.name or str(place), self._value(*_only_item(each.arg))) for place, each in enumerate(node.inputs)
            ]
            outputs = [self._value(kind, value) for kind, value in map(_only_item, node.outputs) if "tensor" in kind]
            makes = {each.name: self._tensor(each.name) for each in values_in(outputs)}
            modules = [*modules_of(_parse_stack(node.metadata.get("nn_module_stack", "")))]
            for module in modules:
                _check_name(module.path)
            gives_number = any(kind.startswith("as_sym") for output in node.outputs for kind in output)
            trace = node.metadata.get("stack_trace", "")
            call = make_call(operation_of(node.target), arguments, makes, modules, trace, gives_number=gives_number)
            part.calls.extend([] if call is None else [call])
        part.outputs.extend(self._value(*_only_item(each)) for each in self._graph.outputs)

    def _value(self, kind: str, value: Any, deep: int = _NESTED) -> Any:
        """Return a value of a kind such as ``as_tensor`` or ``as_ints``."""
        if type(value) is list and deep:
            return join_entries([self._value(kind, each, deep - 1) for each in value])
        if type(value) is not dict or not deep:
            number = self._numbers.get(value) if kind == "as_name" and isinstance(value, str) else None
            return _parse_constant(kind, value) if number is None else self._value("", number, deep - 1)
        if kind == "as_graph":
            return Body(_check_name(value.get("name")), self._part(value.get("graph", {})))
        if "tensor" in kind and "name" in value:
            return Named(str(value["name"]))
        if kind in _FIELDS or len(value) != 1:
            return _parse_constant(kind, value.get(_FIELDS[kind]) if kind in _FIELDS else value)
        return self._value(*next(iter(value.items())), deep - 1)

    def _tensor(self, name: str) -> TensorMeta:
        known = self._graph.tensor_values.get(name)
        if known is None:
            return TensorMeta(device=None)
        dtype, layout = _entry("as_scalar_type", known.dtype), _entry("as_layout", known.layout)
        sizes = (self._value("", size) for size in known.sizes)
        shape = tuple(size if type(size) is int and 0 <= size <= INT64_MAX else str(size) for size in sizes)
        return TensorMeta(dtype, shape, plain_text(str(known.device.get("type"))), layout)


def _parse_stack(text: str) -> dict[str, tuple[str, str]]:
    entries = (entry.partition(",") for entry in text.split(";") if entry)
    return {key: (rest.rpartition(",")[0], rest.rpartition(",")[2]) for key, _, rest in entries}


def _only_item(tagged: Mapping[str, Any]) -> tuple[str, Any]:
    if len(tagged) != 1:
        raise FormatError(f"expected an object with one key, got {len(tagged)} keys: {excerpt([*tagged][:3])}")
    return next(iter(tagged.items()))


def _check_name(name: Any) -> str:
    """Return a name or path, or raise FormatError if it is too long."""
    if not isinstance(name, str) or len(name) > _LONGEST or name.count(".") > _DEEPEST:
        raise FormatError(f"{excerpt(name)} is not a name of a module or tensor of at most {_LONGEST} characters")
    return name


def _entry(kind: str, number: int) -> str:
    table = _TABLES[kind]
    return table[number] if 0 <= number < len(table) else f"<{number}>"


def _parse_constant(kind: str, value: Any) -> Any:
    if kind in _TABLES:
        return _entry(kind, value) if type(value) is int else None
    if kind == "as_operator":
        return operation_of(str(value)).native
    if kind == "as_expr":
        return plain_text(size_text(str(value)))
    if kind == "as_complex" and type(value) is dict and [*map(type, value.values())] == [float, float]:
        value = complex(*value.values())
    # torch writes floats that JSON lacks as strings.
    is_short = type(value) is int and abs(value) <= INT64_MAX
    is_float = kind.startswith("as_float") and (is_short or value in _NOT_FINITE)
    return None if kind == "as_none" else plain_value(float(value) if is_float else value)
