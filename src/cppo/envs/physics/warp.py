"""MuJoCo Warp: many worlds of one model on an NVIDIA GPU, the substeps of an environment step in one CUDA graph.

Warp's own arrays are scratch. A step copies the state in, runs, and hands out views of the result, all on the device;
the caller's jitted function makes new arrays of them. So environments stay functions of an explicit state, for one
small copy a step; taking it apart belongs to the graph. JAX and Warp use streams of their own; each side waits for the
other before it touches its arrays.

Without a GPU the same code runs on Warp's CPU device, slowly: that is for tests.
"""

# pyright: reportAttributeAccessIssue=false, reportMissingImports=false
# (MuJoCo's compiled module ships no type stubs; Warp is optional)
from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jaxtyping import Float, Int

from cppo.envs.arrays import Array
from cppo.types import UsageError

INSTALL = "install it with: pip install 'cppo[gpu]'"


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
        self._places = [self._flat(leaf) for leaf in places]
        self._ends = np.cumsum([0, *(place.shape[1] for place in self._places)])
        self._inputs = self.warp.zeros((num_envs, int(self._ends[-1])), dtype=self.warp.float32)
        outputs = (data.qpos, data.qvel, data.qacc_warmstart, data.sensordata, self._flat(data.xpos), data.overflow)
        self._moved = Moved(*(self.warp.to_jax(leaf) for leaf in outputs))
        self._graphs: dict[str, Any] = {}

    def _flat(self, leaf: Any) -> Any:
        """The same memory as numbers, (world, number)."""
        size = leaf.size * self.warp.types.type_size_in_bytes(leaf.dtype) // 4 // leaf.shape[0]
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
            self._kernels(what)
            return self._moved
        if what not in self._graphs:
            self._kernels(what)  # loads the kernels, which a capture cannot
            with wp.ScopedCapture() as capture:
                self._kernels(what)
            self._graphs[what] = capture.graph
            self.data.overflow.zero_()
        wp.capture_launch(self._graphs[what])
        wp.synchronize_stream()
        return self._moved

    def _kernels(self, what: str) -> None:
        for place, first, last in zip(self._places, self._ends[:-1], self._ends[1:], strict=True):
            self.warp.copy(place, self._inputs[:, int(first) : int(last)])
        if what == "step":
            for _ in range(self.substeps):
                self.engine.step(self.model, self.data)
        if what == "look" or self.look:
            self.engine.forward(self.model, self.data)
