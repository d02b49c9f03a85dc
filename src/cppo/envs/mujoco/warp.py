"""MuJoCo Warp: many worlds of one model on an NVIDIA GPU, the substeps of an environment step in one CUDA graph.

Warp's own arrays are scratch. A step copies the state in, runs, and hands out the result, all on the device. So
environments stay functions of an explicit state, for a small copy each way; taking it apart belongs to the graph.

``run`` steps from the host: JAX and Warp use streams of their own, and each side waits for the other before it touches
its arrays; what comes back are views that the caller's jitted function makes new arrays of. ``call`` steps inside a
compiled program, on its stream: XLA calls back into Python, which enqueues a copy in, the graph and a copy out, and
nobody waits. The graph touches Warp's own arrays alone, so it does not matter where XLA puts its buffers, and XLA is
told not to record the call into graphs of its own (Warp's contains loops, which a graph within a graph may not).

An environment's step has three parts: ``inputs`` (jittable), the physics (one CUDA graph) and ``finish`` (jittable). A
collector joins many whole steps, policy and records included, in one compiled program (``call``); ``advance`` makes a
single one (``run``). Nothing waits for a value on the host, except in ``attend`` every ``REFILL`` steps.

Without a GPU the same code runs on Warp's CPU device, slowly: that is for tests.
"""

# pyright: reportAttributeAccessIssue=false, reportMissingImports=false
# (MuJoCo's compiled module ships no type stubs; Warp is optional)
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from cppo.envs.mujoco.arrays import Array
from cppo.types import UsageError

if TYPE_CHECKING:
    import mujoco

REFILL = 100  # steps between two looks from the host; an episode without a mishap lasts 1,000, so one spare is enough
INSTALL = "install it with: pip install 'cppo[gpu]'"


class Bodies(NamedTuple):
    """Physics state of W worlds."""

    qpos: Float[Array, "world qpos"]
    qvel: Float[Array, "world qvel"]
    warm: Float[Array, "world qvel"]


class Moved(NamedTuple):
    """What a step gave. The arrays are Warp's own and change with the next step, so copy what is kept."""

    qpos: Float[Array, "world qpos"]
    qvel: Float[Array, "world qvel"]
    warm: Float[Array, "world qvel"]  # acceleration that starts the next constraint solver
    sensors: Float[Array, "world sensor"]
    bodies: Float[Array, "world body*3"]  # positions, m
    overflow: Int[Array, " world"]  # not 0 where contacts or constraints were once dropped for lack of space


def available() -> bool:
    """Whether MuJoCo Warp is installed and both it and JAX see a GPU."""
    if jax.default_backend() != "gpu":
        return False
    try:
        warp, _ = _modules()
    except UsageError:
        return False
    return warp.is_cuda_available()


def require() -> None:
    """Refuse with what is missing."""
    warp, _ = _modules()
    if not warp.is_cuda_available():
        raise UsageError("backend 'warp' needs an NVIDIA GPU and its driver; none was found. Use backend 'threads'.")
    if jax.default_backend() != "gpu":
        raise UsageError("backend 'warp' needs JAX on the GPU: pip install 'jax[cuda12]'. Or use backend 'threads'.")


def _modules() -> tuple[Any, Any]:
    try:
        import warp

        warp.config.quiet = True  # before the next import, which starts it
        import mujoco_warp
    except ImportError as error:
        raise UsageError(f"backend 'warp' needs MuJoCo Warp ({error}); {INSTALL}. Or use backend 'threads'.") from None
    return warp, mujoco_warp


class WarpPhysics:
    """W worlds of ``model``; ``contacts`` and ``constraints`` are the room for each world.

    ``run("step", inputs)`` makes ``substeps`` physics steps, then, with ``look``, evaluates sensors and acceleration at
    the new state; ``run("look", inputs)`` only evaluates. ``pack`` makes the one array that both take.
    """

    def __init__(
        self, model: mujoco.MjModel, num_envs: int, substeps: int, look: bool, contacts: int, constraints: int
    ):
        self.warp, self.engine = _modules()
        self.room = f"{contacts} contacts and {constraints} constraint rows for each world"
        self.substeps, self.look = substeps, look
        self.model = self.engine.put_model(model)
        self.model.opt.warn_overflow = 0  # reported by the environment, not printed by every kernel
        self.data = data = self.engine.make_data(model, nworld=num_envs, nconmax=contacts, njmax=constraints)
        places = [data.qpos, data.qvel, data.qacc_warmstart, data.ctrl]
        places += [data.mocap_pos, data.mocap_quat] if model.nmocap else []
        self._places = _columns([self._flat(leaf) for leaf in places])
        self._inputs = self.warp.array(np.concatenate([place.numpy() for place, _ in self._places], 1), dtype=float)
        results = (data.qpos, data.qvel, data.qacc_warmstart, data.sensordata, self._flat(data.xpos), data.overflow)
        self._moved = Moved(*(self.warp.to_jax(leaf) for leaf in results))
        self._results = _columns([self._flat(leaf) for leaf in results])
        self._outputs = self.warp.zeros((num_envs, self._results[-1][1].stop), dtype=float)
        self._graphs: dict[str, Any] = {}
        self._callables: dict[str, Any] = {}

    def _flat(self, leaf: Any) -> Any:
        """The same memory as numbers, (world, number)."""
        size = leaf.size * self.warp.types.type_size_in_bytes(leaf.dtype) // 4 // leaf.shape[0]
        if not size:
            return self.warp.zeros((leaf.shape[0], 0), dtype=float)
        return self.warp.array(
            ptr=leaf.ptr, dtype=self.warp.float32, shape=(leaf.shape[0], size), device=leaf.device, copy=False
        )

    @staticmethod
    def pack(qpos: Array, qvel: Array, warm: Array, ctrl: Array, *mocap: Array) -> Float[Array, "world number"]:
        """A state and its controls as one array; jittable."""
        parts = (qpos, qvel, warm, ctrl, *mocap)
        return jnp.concatenate([part.reshape(len(qpos), -1).astype(jnp.float32) for part in parts], axis=1)

    def run(self, what: str, inputs: Float[Array, "world number"]) -> Moved:
        """``what`` is "step" or "look"; ``inputs`` are on the device."""
        wp = self.warp
        wp.copy(self._inputs, wp.from_jax(jax.block_until_ready(inputs)))
        if not self._inputs.device.is_cuda:
            self._kernels(what, self._inputs, self._outputs)
            return self._moved
        wp.capture_launch(self.graph(what))
        wp.synchronize_stream()
        return self._moved

    def call(self, what: str, inputs: Float[Array, "world number"]) -> Moved:
        """``run`` as part of a compiled program; the arrays are the program's own."""
        if what not in self._callables:
            if self._inputs.device.is_cuda:
                self.graph(what)  # while tracing: a program that runs had better not compile kernels
            self._callables[what] = self._callable(what)
        (outputs,) = self._callables[what](inputs)
        moved = Moved(*(outputs[:, columns] for _, columns in self._results))
        return moved._replace(overflow=jax.lax.bitcast_convert_type(moved.overflow[:, 0], jnp.int32))

    def _callable(self, what: str) -> Callable[..., Any]:
        wp, this = self.warp, weakref.ref(self)  # Warp keeps the function for ever; it should not keep the worlds
        table = wp.array(dtype=wp.float32, ndim=2)

        def physics(inputs: Any, outputs: Any) -> None:
            here = this()
            assert here is not None, "a compiled program outlived its environment"
            if not inputs.device.is_cuda:
                here._kernels(what, inputs, outputs)
                return
            wp.copy(here._inputs, inputs)
            wp.capture_launch(here._graphs[what])
            wp.copy(outputs, here._outputs)

        physics.__annotations__ = {"inputs": table, "outputs": table}
        ours = wp.JaxCallableGraphMode["NONE"]  # the graph is captured already
        return wp.jax_callable(physics, graph_mode=ours, output_dims={"outputs": self._outputs.shape}, vmap_method=None)

    def graph(self, what: str) -> Any:
        """The CUDA graph that reads ``_inputs`` and writes ``_outputs``; the first time it is captured."""
        if what not in self._graphs:
            wp = self.warp
            self._kernels(what, self._inputs, self._outputs)  # loads the kernels, which a capture cannot
            with wp.ScopedCapture() as capture:
                self._kernels(what, self._inputs, self._outputs)
            wp.capture_launch(capture.graph)  # makes it executable
            self.data.overflow.zero_()
            wp.synchronize_device()  # the next launch may come from another stream
            self._graphs[what] = capture.graph
        return self._graphs[what]

    def _kernels(self, what: str, inputs: Any, outputs: Any) -> None:
        for place, columns in self._places:
            self.warp.copy(place, inputs[:, columns])
        if what == "step":
            for _ in range(self.substeps):
                self.engine.step(self.model, self.data)
        if what == "look" or self.look:
            self.engine.forward(self.model, self.data)
        for place, columns in self._results:
            if place.size:
                self.warp.copy(outputs[:, columns], place)


def _columns(tables: list[Any]) -> list[tuple[Any, slice]]:
    """Each table with its columns in the one that joins them."""
    ends = np.cumsum([0, *(table.shape[1] for table in tables)])
    return [(table, slice(int(a), int(b))) for table, a, b in zip(tables, ends[:-1], ends[1:], strict=True)]


class Watch:
    """Asks every ``REFILL`` steps whether contacts overflowed, and says so whenever twice as many worlds have."""

    def __init__(self, name: str, physics: WarpPhysics):
        self.name, self.physics = name, physics
        self.steps = self.reported = 0

    def due(self, steps: int) -> bool:
        before, self.steps = self.steps, self.steps + steps
        return before // REFILL != self.steps // REFILL

    def look(self, qpos: Array) -> None:
        jax.block_until_ready(qpos)  # the step that read Warp's arrays is over
        overflown = int((self.physics.data.overflow.numpy() != 0).sum())
        if overflown > 2 * self.reported:
            self.reported = overflown
            print(
                f"warning: {self.name}: {overflown} worlds had more contacts than fit ({self.physics.room}); "
                "their physics dropped some. Please report the scene and the policy."
            )
