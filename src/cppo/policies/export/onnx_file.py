"""A policy as one ONNX graph: normaliser, network, action in the environment's units; written from the parameters.

Inputs   obs (n, ...)            observations as the environment gives them
         noise                   Box: standard normal (n, actions); else uniform on (0, 1), shaped like logits.
                                 Optional: without it sampled_action is the most likely action
         age (n)                 steps that the episode has lasted; only where a cost critic has a clock
Outputs  action                  the most likely action
         sampled_action          an action drawn by means of noise
         mean, log_std | logits  the distribution, in units where bounds are ±1
         cost_value (n, m)       by request: expected discounted future cost of each constraint
Metadata env, action, costs; hold: steps of the environment that each action is given for
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cppo import files
from cppo.maths import distributions, normalise
from cppo.networks import Body, GaussianHead, Head, scale_action
from cppo.networks.encoders import CNN
from cppo.runs.run import Policy
from cppo.types import Box, Discrete, MultiDiscrete, UsageError

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto, ValueInfoProto

Output = tuple[int, tuple[int, ...]]  # kind of number, shape of one

OPSET, IR = 17, 8  # read by every runtime since 2022
TOLERANCE = 1e-5


class Graph:
    """Nodes and constants of an ONNX graph under construction; values are named by strings."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def constant(self, name: str, value: ArrayLike, dtype: DTypeLike = np.float32) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, kind: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        out = out or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out


def write(policy: Policy, path: Path, cost_critic: bool = False) -> Path:
    """Write the graph and, where onnxruntime is installed, hold its outputs against ours."""
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError:
        raise UsageError("ONNX files need the onnx package: pip install 'cppo[export]'") from None
    spec = policy.spec
    graph = Graph()
    inputs = [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["n", *spec.obs_shape])]
    seen = _normalised(graph, policy, "policy", policy.settings.obs_floor, policy.settings.normalise_obs)
    if policy.settings.ignore:
        kept = np.ones(spec.obs_shape, np.float32)
        kept[..., list(policy.settings.ignore)] = 0.0
        seen = graph.add("Mul", seen, graph.constant("kept", kept))
    module = policy.networks.policy_module(policy.agent.policy)
    outputs = _head(graph, policy, module, _body(graph, "policy", module.body, seen, None), inputs)
    if cost_critic:
        outputs["cost_value"] = _cost_values(graph, policy, inputs)
    infos = [helper.make_tensor_value_info(name, kind, ["n", *shape]) for name, (kind, shape) in outputs.items()]
    made = helper.make_graph(graph.nodes, "policy", inputs, infos, graph.constants)
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="cppo", doc_string=__doc__
    )
    about = {"env": spec.name, "action": str(spec.action), "costs": json.dumps(spec.cost_names)}
    helper.set_model_props(model, about | {"hold": str(policy.hold)})
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(path, model.SerializeToString())
    check(policy, path, cost_critic)
    return path


def _normalised(graph: Graph, policy: Policy, name: str, floor: float, wanted: bool) -> str:
    stats = policy.agent.normaliser
    if not wanted or float(stats.count) == 0:
        return "obs"
    deviation = np.sqrt(np.asarray(stats.sum_squares) / max(float(stats.count), 1.0))
    centred = graph.add("Sub", "obs", graph.constant(f"{name}_mean", stats.mean))
    scaled = graph.add("Div", centred, graph.constant(f"{name}_scale", np.maximum(deviation, float(floor))))
    low, high = (graph.constant(f"{name}_clip_{side:+.0f}", side * normalise.CLIP) for side in (-1.0, 1.0))
    return graph.add("Clip", scaled, low, high)


def _body(graph: Graph, name: str, body: Body, x: str, more: str | None) -> str:
    """An encoder and its layers."""
    if isinstance(body.encoder, CNN):
        x = _cnn(graph, name, body.encoder, x)
    elif body.encoder is not None:
        raise UsageError(
            f"the encoder {type(body.encoder).__name__} has no ONNX form here (mlp and cnn do); use --format stablehlo."
        )
    x = graph.add("Flatten", x, axis=1)
    x = x if more is None else graph.add("Concat", x, more, axis=1)
    for index, layer in enumerate(body.layers):
        weight = graph.constant(f"{name}_weight_{index}", layer.weight)
        x = graph.add("Gemm", x, weight, graph.constant(f"{name}_bias_{index}", np.asarray(layer.bias)), transB=1)
        if index < len(body.layers) - 1:
            x = _activation(graph, body.activation, x)
    return x


def _activation(graph: Graph, function: Callable, x: str) -> str:
    from cppo.networks import ACTIVATIONS

    name = next(name for name, known in ACTIVATIONS.items() if known is function)
    if name == "silu":
        return graph.add("Mul", x, graph.add("Sigmoid", x))
    return graph.add({"tanh": "Tanh", "relu": "Relu", "elu": "Elu"}[name], x)


def _cnn(graph: Graph, name: str, cnn: CNN, x: str) -> str:
    x = x if cnn.channels_first else graph.add("Transpose", x, perm=[0, 3, 1, 2])
    for index, layer in enumerate(cnn.layers):
        weight = graph.constant(f"{name}_kernel_{index}", layer.weight)
        bias = graph.constant(f"{name}_kernel_bias_{index}", np.asarray(layer.bias).reshape(-1))
        x = graph.add("Conv", x, weight, bias, strides=[2, 2], pads=[1, 1, 1, 1])
        x = graph.add("Relu", x)
    return x


def _head(graph: Graph, policy: Policy, module: Head, out: str, inputs: list[ValueInfoProto]) -> dict[str, Output]:
    """Actions and the distribution's parameters; adds the optional input ``noise``."""
    from onnx import TensorProto, helper

    action = policy.spec.action

    def noise(shape: tuple[int, ...], value: float) -> str:
        inputs.append(helper.make_tensor_value_info("noise", TensorProto.FLOAT, [None, *shape]))
        return graph.constant("noise", np.full((1, *shape), value))

    if isinstance(action, Box):
        assert isinstance(module, GaussianHead)
        graph.add("Identity", out, out="mean")
        log_std = graph.constant("log_std_values", np.asarray(module.log_std)[None])
        rows = graph.add("Mul", out, graph.constant("zero", 0.0))
        graph.add("Add", rows, log_std, out="log_std")
        spread = graph.add("Mul", noise((action.size,), 0.0), graph.constant("std", np.exp(module.log_std)[None]))
        for name, value in (("action", out), ("sampled_action", graph.add("Add", out, spread))):
            _to_env(graph, action, value, name)
        size = (action.size,)
        return dict.fromkeys(("action", "sampled_action", "mean", "log_std"), (TensorProto.FLOAT, size))
    if isinstance(action, Discrete):
        logits, shape = graph.add("Identity", out, out="logits"), (action.n,)
    else:
        assert isinstance(action, MultiDiscrete)
        shape = (len(action.sizes), max(action.sizes))
        rows = graph.add("Reshape", out, graph.constant("logits_shape", [-1, *shape], np.int64))
        exists = np.arange(shape[1]) < np.asarray(action.sizes)[:, None]
        mask = graph.constant("exists", exists[None], bool)
        logits = graph.add("Where", mask, rows, graph.constant("impossible", distributions.IMPOSSIBLE), out="logits")
    uniform = noise(shape, 0.5)
    surprise = graph.add("Neg", graph.add("Log", uniform))  # −log(−log u) is Gumbel: the highest sum is a sample
    gumbel = graph.add("Neg", graph.add("Log", surprise))
    for name, value in (("action", logits), ("sampled_action", graph.add("Add", logits, gumbel))):
        graph.add("ArgMax", value, out=name, axis=-1, keepdims=0)
    actions = (TensorProto.INT64, shape[:-1])
    return {"action": actions, "sampled_action": actions, "logits": (TensorProto.FLOAT, shape)}


def _to_env(graph: Graph, action: Box, value: str, name: str) -> None:
    """As ``networks.scale_action``."""
    bounds = [graph.constant(f"{name}_{side}", number) for side, number in (("below", -1.0), ("above", 1.0))]
    unit = graph.add("Add", graph.add("Clip", value, *bounds), graph.constant(f"{name}_one", 1.0))
    low, high = np.asarray(action.low, np.float32), np.asarray(action.high, np.float32)
    grown = graph.add("Mul", unit, graph.constant(f"{name}_half_width", 0.5 * (high - low)[None]))
    graph.add("Add", grown, graph.constant(f"{name}_low", low[None]), out=name)


def _cost_values(graph: Graph, policy: Policy, inputs: list[ValueInfoProto]) -> Output:
    from onnx import TensorProto, helper

    if hasattr(policy.agent.cost_value, "target"):
        raise UsageError("critics of off-policy methods take actions, too, and are not exported; omit --cost-critic.")
    networks, count = policy.networks, policy.spec.num_costs
    seen = _normalised(graph, policy, "critic", policy.settings.critic_floor, True)
    more = None
    if networks.more_inputs:
        inputs.append(helper.make_tensor_value_info("age", TensorProto.FLOAT, ["n"]))
        length = float(policy.spec.episode_length * policy.hold)
        share = graph.add("Mul", "age", graph.constant("age_scale", 2.0 / length))
        column = graph.add("Unsqueeze", share, graph.constant("last_axis", [1], np.int64))
        more = graph.add("Sub", column, graph.constant("age_one", 1.0))
    values = []
    for index in range(count):
        params = jax.tree.map(lambda x, i=index: x[i], policy.agent.cost_value.params)
        values.append(_body(graph, f"cost_{index}", networks.value_module(params), seen, more))
    graph.add("Concat", *values, out="cost_value", axis=1)
    return TensorProto.FLOAT, (count,)


def check(policy: Policy, path: Path, cost_critic: bool = False) -> float | None:
    """The largest difference between the file's outputs and ours on random observations; None without onnxruntime.

    More than 1e-5 (relative beyond size 1) is an error.
    """
    try:
        import onnxruntime
    except ImportError:
        return None
    rng = np.random.default_rng(0)
    spec, stats = policy.spec, policy.agent.normaliser
    spread = np.sqrt(np.asarray(stats.sum_squares) / max(float(stats.count), 1.0)) + 0.1
    obs = (np.asarray(stats.mean) + spread * rng.standard_normal((64, *spec.obs_shape))).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns that the noise may be left out
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    fed: dict[str, np.ndarray] = {"obs": obs}
    names = {entry.name for entry in session.get_inputs()}
    if "age" in names:
        fed["age"] = rng.integers(0, spec.episode_length * policy.hold, 64).astype(np.float32)
    ours = _our_outputs(policy, obs, fed, rng, cost_critic)
    theirs = dict(zip(ours, session.run(list(ours), fed), strict=True))
    worst = 0.0
    for name, value in ours.items():
        error = np.abs(value - theirs[name]) / np.maximum(1.0, np.abs(value))
        worst = max(worst, float(error.max()))
    if worst > TOLERANCE:
        raise RuntimeError(f"{path} differs from the policy by {worst:.2g}; please report this.")
    return worst


def _our_outputs(
    policy: Policy, obs: np.ndarray, fed: dict[str, np.ndarray], rng: np.random.Generator, cost_critic: bool
) -> dict[str, np.ndarray]:
    """What the file should give; draws the noise that it is fed."""
    spec, agent, settings = policy.spec, policy.agent, policy.settings
    seen = normalise.policy_view(settings, agent, jnp.asarray(obs))
    spread = jax.vmap(lambda o: policy.networks.policy(agent.policy, o))(seen)
    ours = {"action": policy.act(obs)}
    if isinstance(spread, distributions.Gaussian):
        fed["noise"] = rng.standard_normal(spread.mean.shape).astype(np.float32)
        drawn = spread.mean + np.exp(spread.log_std) * fed["noise"]
        ours |= {"sampled_action": scale_action(spec, drawn), "mean": spread.mean, "log_std": spread.log_std}
    else:
        assert isinstance(spread, distributions.Categorical | distributions.FactorisedCategorical)
        fed["noise"] = rng.uniform(0.01, 0.99, spread.logits.shape).astype(np.float32)
        drawn = np.argmax(spread.logits - np.log(-np.log(fed["noise"])), axis=-1)
        ours |= {"sampled_action": drawn, "logits": spread.logits}
    if cost_critic:
        view = normalise.apply(agent.normaliser, jnp.asarray(obs), settings.critic_floor).reshape(len(obs), -1)
        if "age" in fed:
            share = 2.0 * fed["age"] / (spec.episode_length * policy.hold) - 1.0
            view = jnp.concatenate([view, share[:, None]], axis=1)
        value = jax.vmap(jax.vmap(policy.networks.value, in_axes=(None, 0)), in_axes=(0, None))
        ours["cost_value"] = np.asarray(value(agent.cost_value.params, view)).T
    return {name: np.asarray(value) for name, value in ours.items()}
