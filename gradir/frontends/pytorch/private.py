"""The private names of torch, each with its use and with the effect if a release lacks it.

The rest of the front-end imports them from here, under plainer names.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter, methodcaller
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils import checkpoint

from gradir.errors import CaptureError


class PrivateName(NamedTuple):
    """A private name of torch, and the releases that have it: ``since`` is the first, and ``until`` the first without.

    A name can be imported, or is an attribute of an object such as a ``grad_fn``, where ``*`` is any ending.
    ``module:word`` is a word in the source of a module, and ``library:text`` a text in one of torch's libraries.
    """

    name: str
    use: str
    without: str = "nothing can be captured"
    since: str = ""
    until: str = ""


NAMES: Final[list[PrivateName]] = []


def _word(name: str, use: str, *rest: str, **releases: str) -> str:
    """Register a name without looking it up, and return its last word."""
    NAMES.append(PrivateName(name, use, *rest, **releases))
    return name.replace(":", ".").rpartition(".")[2].rstrip("*")


def _node(name: str, use: str, *rest: str, **releases: str) -> str:
    """Register a custom Function, and return the name of its nodes."""
    return f"{_word(name, use, *rest, **releases)}Backward"


def _reader(name: str, use: str) -> Callable[[Any], Any]:
    """Register an attribute that every capture needs, and return its reader."""
    return attrgetter(_word(name, use))


def _find(name: str, use: str) -> Any:
    """Look up a name that every capture needs."""
    _word(name, use)
    try:
        return pkgutil.resolve_name(name)
    except (AttributeError, ImportError) as error:
        why = f"torch {torch.__version__} has no {name}, which is needed {use}: use an older torch, or a newer gradir"
        raise CaptureError(why) from error


def _code(function: Any) -> CodeType | None:
    return getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)


# The order in which a thread makes nodes.
_ORDER: Final = "to find which module and line made a node"
next_sequence_number: Final[Callable[[], int]] = _find("torch._C._autograd._get_sequence_nr", _ORDER)
sequence_number: Final[Callable[[Any], int]] = methodcaller(_word("grad_fn._sequence_nr", _ORDER))
# Whether the node of a custom Function gets its number before its __init__ runs.
NUMBERED_FIRST: Final = torch.__version__ >= torch.torch_version.TorchVersion("2.13")

# The code of the frames on a stack.
_INSIDE: Final = "to find what runs inside a custom Function"
MODULE_CALL: Final = _code(_find("torch.nn.Module._call_impl", "to recognize calls of modules"))
OVERRIDES_CALL: Final = _code(_find("torch.overrides.handle_torch_function", "to find what only passes on a result"))
norms_of: Final = _find("torch._foreach_norm", "to look at the gradients of many parameters at once")
_STEP: Final = _find("torch.optim.Optimizer.profile_hook_step", "to find what an optimizer writes")
# The code that runs the step of every optimizer.
OPTIMIZER_STEP: Final[CodeType] = _STEP(len).__code__
_FUNCTION_CALL: Final = _code(_find("torch.autograd.Function.apply", _INSIDE))
_BOXED: Final = _word(
    "torch.autograd.function.BackwardCFunction.apply_boxed",
    _INSIDE,
    "modules are reported to run outside",
    since="2.13",
)
_FUNCTION_BACKWARD: Final = _code(_find("torch.autograd.function.BackwardCFunction.apply", _INSIDE))
_BOXED_CALL: Final = _code(getattr(BackwardCFunction, _BOXED, None))
# By id(), since code takes long to hash.
_FUNCTION_CALLS: Final = {id(_FUNCTION_CALL), id(_FUNCTION_BACKWARD), id(_BOXED_CALL)}


def is_function_call(code: CodeType) -> bool:
    """Return whether code is torch's call of a custom Function, or the Function's own forward where torch has none."""
    return id(code) in _FUNCTION_CALLS or (_FUNCTION_CALL is None and bool(_forward_of(code)))


def find_function_name(frame: FrameType) -> str:
    """Return the name of the custom Function that a frame runs, for a frame whose code `is_function_call`."""
    # A class may inherit its forward, and only the context knows the class.
    local, code = frame.f_locals, frame.f_code
    kind = local.get("cls", getattr(type(local.get(code.co_varnames[0])), FORWARD_CLASS, None))
    return getattr(kind, "__name__", "") or _forward_of(code) or code.co_name


@lru_cache(maxsize=4096)
def _forward_of(code: CodeType) -> str:
    """Return the custom Function that has this code as its forward: torch 2.14 calls that without Python code."""
    classes = [torch.autograd.Function]
    for kind in classes:
        if _code(vars(kind).get("forward")) is code:
            return kind.__name__
        classes += kind.__subclasses__()
    return ""


# Modules and tensors.
_MADE_OF: Final = ("to find what a traced module is made of", "it seems to be empty")
_TRACED: Final = _word("torch.jit._script:_actual_script_module", *_MADE_OF)


def fields_of(thing: object) -> dict[str, Any]:
    """Return an object's own attributes, without calling its class's ``__getattribute__``."""
    try:
        fields = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return fields if type(fields) is dict else {}


def _members(name: str, use: str) -> Callable[[object], dict[str, Any]]:
    """Register an attribute with members of a module, and return a function that reads these by name."""
    word = _word(name, use)

    def members_of(module: object) -> dict[str, Any]:
        fields = fields_of(module)
        found = fields.get(word)
        if found is None and _TRACED in fields:
            found = fields_of(fields[_TRACED]).get(word)
        # A scripted module keeps them in C++, in an object that is no dict.
        return found if isinstance(found, dict) else {} if found is None else dict(found.items())

    return members_of


own_parameters: Final = _members("module._parameters", "to name the parameters of a module while it runs")
own_modules: Final = _members("module._modules", "to find the modules of a model")
own_buffers: Final = _members("module._buffers", "to name the buffers of a module")
hooks_of_module: Final = _members("module._backward_hooks", "to name the hook that changes a gradient")
_of_any_class: Final = vars(_find("torch._C.TensorBase", "to ask a tensor whatever its class says"))
output_nr_of: Final[Callable[[Any], int]] = _of_any_class["output_nr"].__get__
name_of: Final[Callable[[Any], str | None]] = _of_any_class["name"].__get__
base_of: Final = _reader("tensor._base", "to show what an output is a view of")
version_of: Final = _reader("tensor._version", "to find what changed after it was saved")
hooks_of: Final = _reader("tensor._backward_hooks", "to refuse what communicates in every backward")
backward_pre_hooks_of: Final = _members("module._backward_pre_hooks", "to name the hook that changes a gradient")
storage_handle: Final[Callable[[Any], int]] = _reader("storage._cdata", "to find which tensors share their memory")
StorageWeakRef: Final = _find("torch.multiprocessing.reductions.StorageWeakRef", "to keep the places of memory apart")
_BREAKS: Final = "they are reported as unreached, and verifying breaks the next forward"
_FLAT: Final = ("to find the parameters in a flat one", _BREAKS)
FLAT_PARAMETER: Final = _word("torch.distributed.fsdp._flat_param:_is_flat_param", *_FLAT)
_CUT: Final = ("to recognize a cut of torch's own", "it is reported as one of the program's")
SPECTRAL_NORM: Final = _word("torch.nn.utils.parametrizations:_SpectralNorm", *_CUT)
without_overrides: Final = _find("torch._C.DisableTorchFunction", "to read tensors without running overrides")
_MODES: Final = "torch.utils._python_dispatch"
disable_modes: Final = _find(f"{_MODES}._disable_current_modes", "to look at a graph while it is recorded")
_STANDS_IN: Final = "to stand in for the tensor of a gradient edge"
make_subclass: Final[Callable[..., Any]] = _find("torch.Tensor._make_subclass", _STANDS_IN)
no_override: Final = _find("torch._C._disabled_torch_function_impl", _STANDS_IN)
without_dispatch_modes: Final = _find("torch._C._DisableTorchDispatch", "to read tensors without notice of modes")

# Nodes.
_REGISTERED: Final = "to name the nodes of registered operators"
_HIDDEN: Final = "what it hides is not reported as hidden"
output_metadata: Final = _reader("grad_fn._input_metadata", "to read the shape and dtype of a node's outputs")
SAVED: Final = _word("grad_fn._saved_*", "to find the attributes of a node")
PACKED: Final = _word("grad_fn._raw_saved_*", "to look at what is saved without unpacking it")
_UNPACKED: Final = "it is unpacked instead, unless that would run code of the user's"
_word("packed.data", "to look at what is saved without unpacking it", _UNPACKED, since="2.11")
_word("packed.unpack_hook", "to find what a hook packed", _UNPACKED, since="2.11")
_word("packed.unpack", "to find what is stale or freed", _UNPACKED, since="2.12")
# Whether torch shows all that without unpacking.
SHOWS_SAVED: Final = torch.__version__ >= torch.torch_version.TorchVersion("2.12")
_UNREAD: Final = "what cannot be unpacked is unread"
FREED: Final = _word("libtorch_cpu:after they have already been freed", "to find what is freed", _UNREAD)
STALE: Final = _word("libtorch_cpu:modified by an inplace operation", "to find what is stale", _UNREAD)
packed_tensors: Final = _reader("context._raw_saved_tensors", "to look at what is saved without unpacking it")
FORWARD_CLASS: Final = _word("context._forward_cls", "to find the class of a custom Function")
registered_operators: Final[Callable[[], list[str]]] = _find("torch._C._dispatch_get_all_op_names", _REGISTERED)
GENERATED: Final = _word("torch._library.autograd:GeneratedBackwardFor_", _REGISTERED, "their names are long")
UNTYPED_NODE: Final = _word("libtorch_python:CppFunction", "to distinguish nodes of C++", "they are one operation")
ACCUMULATOR: Final = _word("libtorch_python:AccumulateGrad", "to find the leaves")
# The function that switches gradients on and off, as function modes see it.
SWITCH: Final = "_set_grad_enabled"
CHECKPOINT: Final = _node("torch.utils.checkpoint:CheckpointFunction", "to find checkpoints", _HIDDEN)
_AOT: Final = "torch._functorch._aot_autograd"
_COMPILED_PART: Final = _node(f"{_AOT}.runtime_wrappers:CompiledFunction", "to find compiled parts", _HIDDEN)
_SCRIPTED_PART: Final = _word("libtorch_cpu:DifferentiableGraphBackward", "to find scripted parts", _HIDDEN)
# Functions that stand for a graph of their own, which autograd does not show.
OPAQUE: Final = frozenset({CHECKPOINT, _COMPILED_PART, _SCRIPTED_PART})
# torch makes this node after a module with a full backward hook, when the module's call seems to have ended.
AFTER_FORWARD: Final = _node("torch.nn.modules._functions:BackwardHookFunction", "to find its module", "it is wrong")
# Modules of torch with Functions that run user code; all other Functions reach only their inputs.
RUN_ANYTHING: Final = ("torch.utils.checkpoint", "torch._library.")

# Tensors without data.
_FAKE: Final = "torch._subclasses.fake_tensor"
FakeTensor: Final = _find(f"{_FAKE}.FakeTensor", "to recognize tensors without data")
FakeTensorMode: Final = _find(f"{_FAKE}.FakeTensorMode", "to capture without data")
unset_fake_temporarily: Final = _find(f"{_FAKE}.unset_fake_temporarily", "to keep the tensors of meshes real")
_REFUSED: Final = "such models are refused"
REMEMBERED: Final = _word("torch._subclasses.meta_utils:tensor_memo", "to move a model without data", _REFUSED)
TRUNCATED_NORMAL: Final = _word("torch.nn.init._no_grad_trunc_normal_", "to initialise without data", _REFUSED)
# torch raises one of these when a program needs the values of a tensor without data.
LOOKED_AT: Final = (
    _find(f"{_FAKE}.DataDependentOutputException", "to find what looks at values"),
    _find(f"{_FAKE}.DynamicOutputShapeException", "to find what looks at values"),
)
Operator: Final = _find("torch._ops.OpOverload", "to find what makes tensors of numbers alone")
PACKET: Final = _word("operator._overloadpacket", "to find torch's formula for the FLOPs of an operation", "no FLOPs")
schema_of: Final = _reader("operator._schema", "to find what an operation writes, and what makes tensors of numbers")
no_dispatch: Final = _find("torch.utils._mode_utils.no_dispatch", "to compute the values of small tensors")

# The forward pass.
# Whether torch dispatches each ``detach`` again, on its own result.
DETACHES_TWICE: Final = torch.__version__ < torch.torch_version.TorchVersion("2.11")
TorchDispatchMode: Final = _find(f"{_MODES}.TorchDispatchMode", "to record every operation")
# The operation that ``item`` runs.
READS_A_NUMBER: Final = "_local_scalar_dense"
_WHOLE: Final = "to note a compiled part as one operation"
_IN_PARTS: Final = "its operations are recorded instead, and it is compiled once more"
DYNAMO: Final = "torch._dynamo.eval_frame"
COMPILED_CALLS: Final = _word(f"{DYNAMO}:_TorchDynamoContext", _WHOLE, _IN_PARTS)
COMPILED_BEGINS: Final = _word(f"{DYNAMO}:_callback_from_stance", _WHOLE, _IN_PARTS, since="2.6")
_word("torch._dynamo.external_utils:wrap_inline", _WHOLE, _IN_PARTS)
# torch calls this attribute of a function that the compiler must not trace; making it would import the compiler.
KEPT_APART: Final = "__dynamo_disable"
# The modules with the functions in which torch wraps user code to compile.
WRAPPERS: Final = "torch._dynamo."
COMPILED_ENDS: Final = _word(f"{DYNAMO}:_maybe_set_eval_frame", _WHOLE, _IN_PARTS, since="2.5")
# A context that only cond, scan and similar operators enter, to compile their function arguments.
DYNAMO_UTILS: Final = "torch._dynamo.utils"
COMPILES_BODIES: Final = _word(f"{DYNAMO_UTILS}:disable_cache_limit", "to run all else in eager", "cond cuts gradients")
function_modes: Final[Callable[[], list[Any]]] = _find("torch.overrides._get_current_function_mode_stack", _WHOLE)
pop_function_mode: Final[Callable[[], Any]] = _find("torch.overrides._pop_mode", _WHOLE)
push_function_mode: Final[Callable[[Any], None]] = _find("torch.overrides._push_mode", _WHOLE)
EXPORTS: Final = "torch.export._trace"
EXPORTS_STRICTLY: Final = _word(f"{EXPORTS}:_export_to_torch_ir", "to let a program export", "strict exports fail")
_IN_ORDER: Final = "to leave modes out of turn"
dispatch_modes: Final[Callable[[], list[Any]]] = _find(f"{_MODES}._get_current_dispatch_mode_stack", _IN_ORDER)
pop_dispatch_mode: Final[Callable[[], Any]] = _find(f"{_MODES}._pop_mode", _IN_ORDER)
push_dispatch_mode: Final[Callable[[Any], None]] = _find(f"{_MODES}._push_mode", _IN_ORDER)
_DEFAULT: Final = _word("torch._GLOBAL_DEVICE_CONTEXT", "to record below modes", "it cannot change its default device")
# It holds the mode of a thread's default device, which torch expects at the bottom of the stack.
default_device: Final = getattr(torch, _DEFAULT, None)

# The engine.
_COUNT: Final = "to count what the engine runs"
current_backward: Final[Callable[[], int]] = _find("torch._C._current_graph_task_id", "to find which backward runs")
profiler_enabled: Final[Callable[[], bool]] = _find("torch._C._autograd._profiler_enabled", _COUNT)
_enable_profiler: Final = _find("torch._C._autograd._enable_profiler_legacy", _COUNT)
record_functions: Final[Callable[[bool], None]] = _find("torch._C._autograd._enable_record_function", _COUNT)
stop_profile: Final = _find("torch._C._autograd._disable_profiler_legacy", _COUNT)
_profiler: Final = _find("torch._C._profiler", _COUNT)
EVENT: Final = "autograd::engine::evaluate_function: "
_word(f"libtorch_cpu:{EVENT}", _COUNT)
# The first event of the thread that switched the profile on.
BEGUN: Final = _word("libtorch_cpu:__start_profile", "to find which thread began the backward")
# The node from which the engine starts for several outputs.
ENGINES_OWN: Final = "torch::autograd::" + _word("libtorch_cpu:GraphRoot", "to leave out where the engine starts")


def start_profile() -> None:
    """Start the legacy profiler quietly; its Python class fails on events that end in another thread."""
    quiet = [False] * 5
    _enable_profiler(_profiler.ProfilerConfig(_profiler.ProfilerState.CPU, *quiet, _profiler._ExperimentalConfig()))


# Training on many processes.
_CHANGED: Final = "verifying changes the next backward"
_SHARDED: Final = "to let `fully_shard` reduce nothing"
DDP: Final = "torch.nn.parallel.distributed"
FSDP: Final = "torch.distributed.fsdp._fully_shard"
COLLECTIVES: Final = "torch.distributed.distributed_c10d"
STORE: Final = _word(f"{COLLECTIVES}:_get_default_store", "to notify others of a captured step", "they fail")
GROUP_CALLED: Final = _word(
    f"{COLLECTIVES}:_resolve_process_group", "to label groups", "they have the names of one process"
)
GROUPS: Final = _word(f"{COLLECTIVES}:_world", "to number groups", "a rank that stops numbers only those that it used")
TENSOR_SPEC: Final = "torch.distributed.tensor._dtensor_spec"
_word(f"{TENSOR_SPEC}:DTensorSpec", "to say how a tensor is placed", "it is not reported")
DDP_SINK: Final = _node(f"{DDP}:_DDPSink", "to let a static graph reduce nothing", _CHANGED)
DDP_ENQUEUED: Final = _word(f"{DDP}:_static_graph_delay_allreduce_enqueued", "to let it reduce nothing", _CHANGED)
DDP_DELAYED: Final = _word(f"{DDP}:_delayed_all_reduce_hook", "to refuse what reduces in every backward", _CHANGED)
_word(f"{DDP}:ddp_weakref", "to find the model of a static graph", _CHANGED)
_STATE_OF: Final = ("to find out whether a wrapper reduces gradients", "it is not reported")
DDP_SYNCS: Final = _word(f"{DDP}:require_backward_grad_sync", *_STATE_OF)
DDP_IGNORES: Final = _word(f"{DDP}:parameters_to_ignore", *_STATE_OF)
DDP_PARAMETERS: Final = _word(f"{DDP}:_module_parameters", *_STATE_OF)
DDP_HOOKS: Final = _word(f"{DDP}:_comm_hooks", *_STATE_OF)
DDP_FINISHED: Final = _word("torch.distributed.Reducer._check_reducer_finalized", *_STATE_OF)
# torch 2.5 has these in torch.distributed._composable.fsdp.
FSDP_FUNCTION: Final = _node(f"{FSDP}._fsdp_param_group:RegisterPostBackwardFunction", _SHARDED, _CHANGED, since="2.6")
FSDP_STATE: Final = _word(f"{FSDP}._fully_shard:_get_fsdp_state", _SHARDED, _CHANGED, since="2.6")
# The attributes of a module's state with its groups, or with its only one.
FSDP_GROUPS: Final = (
    _word(f"{FSDP}._fsdp_state:_fsdp_param_groups", _SHARDED, _CHANGED, since="2.12"),
    _word(f"{FSDP}._fsdp_state:_fsdp_param_group", _SHARDED, _CHANGED, since="2.6"),
)
_FORMS: Final = ("to recognize that the parameter of an optimizer is the one that ran", "it is reported to be in none")
FSDP_PARAMETERS: Final = _word(f"{FSDP}._fsdp_param_group:fsdp_params", *_FORMS, since="2.6")
# The attributes of a parameter with the tensor that a forward uses, and with that of the optimizer.
FSDP_FORMS: Final = (
    _word(f"{FSDP}._fsdp_param:_unsharded_param", *_FORMS, since="2.6"),
    _word(f"{FSDP}._fsdp_param:sharded_param", *_FORMS, since="2.6"),
)
_WHOLE_PARTS: Final = ("to run a dry forward with true weights", "it has those of one process")
FSDP_PART: Final = _word(f"{FSDP}._fsdp_param:_sharded_param_data", *_WHOLE_PARTS, since="2.6")
FSDP_GATHERING: Final = _word(f"{FSDP}._fsdp_param_group:_all_gather_process_group", *_WHOLE_PARTS, since="2.6")
FSDP_REDUCES: Final = _word(f"{FSDP}._fsdp_param_group:reduce_grads", _SHARDED, _CHANGED, since="2.6")

PIPELINES: Final = "torch.distributed.pipelining"
_STAGES: Final = ("to find the stage of a pipeline", "it is not reported")
MICROBATCHES: Final = _word(f"{PIPELINES}.schedules:_n_microbatches", *_STAGES)
# The attributes of a schedule with the stages of its process, or with its only one.
STAGES: Final = (_word(f"{PIPELINES}.schedules:_stages", *_STAGES), _word(f"{PIPELINES}.schedules:_stage", *_STAGES))
_MICROBATCH: Final = ("to find the microbatch of a message", "it is not reported")
# The buffers into which a stage receives, by microbatch.
_ARGUMENTS: Final = _word(f"{PIPELINES}.stage:args_recv_info", *_MICROBATCH)
RECEIVED: Final = (_ARGUMENTS, _word(f"{PIPELINES}.stage:grad_recv_info", *_MICROBATCH))
# The outputs of a stage by microbatch, in pairs or in records with the field below.
SENT: Final = (
    _word(f"{PIPELINES}.stage:fwd_cache", *_MICROBATCH, until="2.15"),
    _word(f"{PIPELINES}.stage:_forward_chunk_states", *_MICROBATCH, since="2.15"),
)
SENT_OUTPUTS: Final = _word(f"{PIPELINES}.stage:live_outputs", *_MICROBATCH, since="2.15")
# The function that computes the gradients of a stage's inputs before those of its parameters.
INPUTS_FIRST: Final = _word(f"{PIPELINES}._backward:stage_backward_input", *_STAGES)
JOIN: Final = "torch.distributed.algorithms.join"
# The modules in which a process waits for others.
OPERATIONS: Final = "torch._ops"
WAITING: Final = ("torch.distributed.", "torch.nn.parallel.", OPERATIONS)
# Texts of DistributedDataParallel's errors about the model, in a process without communication errors.
REFUSALS: Final = ("expects same model across all ranks", "appears not to match", "Expected to have finished reduction")
_NOTING: Final = "to record collectives"
_NOTHING_NOTED: Final = "it cannot be recorded"
_RUNNING_NODE: Final = _word("torch._C._current_autograd_node", _NOTING, _NOTHING_NOTED)
_FINISHED: Final = _word("torch._C._distributed_c10d._create_work_from_future", "to send nothing", _NOTHING_NOTED)
_FUNCTIONAL: Final = _word("libtorch_cpu:_c10d_functional", _NOTING, "functional collectives are not recorded")
_DTENSOR: Final = _word("libtorch_cpu:_dtensor", _NOTING, "what a distributed tensor exchanges is not all recorded")
# The namespaces of the operations that communicate.
COMMUNICATING: Final = frozenset({"c10d", _FUNCTIONAL, _DTENSOR})
_FUNCTIONS: Final = "torch.distributed._functional_collectives"
_NOTHING: Final = ("to leave out functions that communicate nothing", "they are recorded")
_WRAP: Final = _word(f"{_FUNCTIONS}:_wrap_tensor_autograd", *_NOTHING, since="2.11")
# Operations in these namespaces that do not communicate.
SILENT: Final = frozenset({"wait_tensor", _WRAP, "check_for_nan", "mesh_get_process_group"})
_IMITATES: Final = "to make a rank of any number in one process"
_NOT_IMITATED: Final = "it cannot be made"
# The backend that sends nothing.
NOT_SENDING: Final = "fake"
UNSENT_BACKEND: Final = "torch.testing._internal.distributed.fake_pg"
_word(f"{UNSENT_BACKEND}:FakeStore", _IMITATES, _NOT_IMITATED)
MAKE_GROUP: Final = _word(f"{COLLECTIVES}:_new_process_group_helper", _IMITATES, _NOT_IMITATED)
# The modules that have a name for the function that makes the default process group.
MAKERS: Final = ("torch.distributed", COLLECTIVES, "torch.distributed.device_mesh")


def running_node() -> Any:
    """Return the node that the engine runs in this thread, if there is one."""
    return getattr(torch._C, _RUNNING_NODE)()


def make_finished_work(future: Any) -> Any:
    """Return the work of a collective that ends with the future."""
    from torch._C import _distributed_c10d

    return getattr(_distributed_c10d, _FINISHED)(future)


def process_group_of(boxed: Any) -> Any:
    """Return the process group in an operation's boxed argument, or ``None``."""
    from torch.distributed import ProcessGroup

    try:
        return ProcessGroup.unbox(boxed)
    except (AttributeError, RuntimeError, TypeError):
        return None


# Graphs that run backward only once.
_USED_UP: Final = "verifying uses the graph up"
_SELECTIVE: Final = _word("torch.utils.checkpoint:_CachedTorchDispatchMode", "to refuse such checkpoints", _USED_UP)
_word("torch.utils.checkpoint:recompute_fn", "to refuse such checkpoints", _USED_UP)
_word("torch.utils.checkpoint:recompute_context", "to refuse such checkpoints", _USED_UP)
SelectiveCheckpoint: Final = getattr(checkpoint, _SELECTIVE, ())
RESIZE: Final = _word("torch.TypedStorage._resize_", "to refuse what frees storages", _USED_UP)
TYPED_STORAGE: Final = _word("tensor._typed_storage", "to refuse what frees storages", _USED_UP)
COMPILED: Final = "torch._functorch."
DONATES: Final = f"{COMPILED}config.donated_buffer"
_word(DONATES, "to refuse what was compiled to run once", _USED_UP)
_word(f"{_AOT}.runtime_wrappers:compiled_bw", "to refuse what was compiled to run once", _USED_UP)
_word(f"{_AOT}.schemas:bw_donated_idxs", "to refuse what was compiled to run once", _USED_UP)

SCALE_UPDATE: Final = _word(
    "torch._amp_update_scale_", "to tell the update of a GradScaler from a use", "its update counts as a use"
).rstrip("_")
