"""MuJoCo Warp: many worlds of one model on an NVIDIA GPU, the substeps of an environment step in one CUDA graph.

Warp's own arrays are scratch. A step copies the state in, runs, and hands out views of the result, all on the device;
the caller's jitted function makes new arrays of them. So environments stay functions of an explicit state, for four
small copies a step. JAX and Warp use streams of their own; each side waits for the other before it touches its arrays.

Without a GPU the same code runs on Warp's CPU device, slowly: that is for tests.
"""

# pyright: reportAttributeAccessIssue=false, reportMissingImports=false
# (MuJoCo's compiled module ships no type stubs; Warp is optional)
from __future__ import annotations

from typing import Any, NamedTuple

import jax
import mujoco
from jaxtyping import Float, Int

from cppo.envs.arrays import Array
from cppo.types import UsageError

INSTALL = "install it with: pip install 'cppo[gpu]'"


class Moved(NamedTuple):
    """Views of Warp's arrays after a step; valid until the next one, so copy what is kept."""

    qpos: Float[Array, "world qpos"]
    qvel: Float[Array, "world qvel"]
    warm: Float[Array, "world qvel"]  # acceleration that starts the next constraint solver
    sensors: Float[Array, "world sensor"]
    bodies: Float[Array, "world body 3"]  # positions, m
    overflow: Int[Array, " world"]  # not 0 where contacts or constraints were once dropped for lack of space


def available() -> bool:
    """Whether MuJoCo Warp is installed and both it and JAX see a GPU."""
    try:
        warp, _ = _modules()
    except UsageError:
        return False
    return jax.default_backend() == "gpu" and warp.is_cuda_available()


def require() -> None:
    """Refuse with what is missing."""
    warp, _ = _modules()
    if not warp.is_cuda_available():
        raise UsageError("backend 'warp' needs an NVIDIA GPU and its driver; none was found. Use backend 'threads'.")
    if jax.default_backend() != "gpu":
        raise UsageError("backend 'warp' needs JAX on the GPU: pip install 'jax[cuda12]'. Or use backend 'threads'.")


def _modules() -> tuple[Any, Any]:
    try:
        import mujoco_warp
        import warp
    except ImportError as error:
        raise UsageError(f"backend 'warp' needs MuJoCo Warp ({error}); {INSTALL}. Or use backend 'threads'.") from None
    warp.config.quiet = True
    return warp, mujoco_warp


class WarpPhysics:
    """W worlds of ``model``; ``contacts`` and ``constraints`` are the room for each world.

    ``step`` makes ``substeps`` physics steps, then, with ``look``, evaluates sensors and acceleration at the new state.
    """

    def __init__(
        self, model: mujoco.MjModel, num_envs: int, substeps: int, look: bool, contacts: int, constraints: int
    ):
        self.warp, self.engine = _modules()
        self.room = f"{contacts} contacts and {constraints} constraint rows for each world"
        self.substeps, self.look = substeps, look
        self.model = self.engine.put_model(model)
        self.model.opt.warn_overflow = 0  # reported by the environment, not printed by every kernel
        self.data = self.engine.make_data(model, nworld=num_envs, nconmax=contacts, njmax=constraints)
        self._has_mocap = model.nmocap > 0
        self._graphs: dict[str, Any] = {}

    def step(self, qpos: Array, qvel: Array, warm: Array, mocap: tuple[Array, Array] | None, ctrl: Array) -> Moved:
        """One environment step from float32 arrays on the device."""
        self._load(qpos, qvel, warm, mocap, ctrl)
        self._run("step")
        return self._views()

    def forward(self, qpos: Array, qvel: Array, mocap: tuple[Array, Array] | None, ctrl: Array) -> Moved:
        """Sensors and acceleration at a state, without moving it."""
        self._load(qpos, qvel, qvel * 0, mocap, ctrl)
        self._run("forward")
        return self._views()

    def _load(self, qpos: Array, qvel: Array, warm: Array, mocap: tuple[Array, Array] | None, ctrl: Array) -> None:
        data, wp = self.data, self.warp
        pairs = [(data.qpos, qpos), (data.qvel, qvel), (data.qacc_warmstart, warm), (data.ctrl, ctrl)]
        if mocap is not None and self._has_mocap:
            pairs += [(data.mocap_pos, mocap[0]), (data.mocap_quat, mocap[1])]
        jax.block_until_ready([source for _, source in pairs])
        for target, source in pairs:
            wp.copy(target, wp.from_jax(source, dtype=target.dtype))

    def _run(self, what: str) -> None:
        if not self.data.qpos.device.is_cuda:
            return self._kernels(what)
        if what not in self._graphs:
            self._compile(what)
        self.warp.capture_launch(self._graphs[what])
        self.warp.synchronize_stream()

    def _compile(self, what: str) -> None:
        """Capture ``what`` as a graph. Its kernels must be loaded first, so it runs once, and its state is put back."""
        wp, data = self.warp, self.data
        kept = [(leaf, wp.clone(leaf)) for leaf in (data.qpos, data.qvel, data.qacc_warmstart)]
        self._kernels(what)
        with wp.ScopedCapture() as capture:
            self._kernels(what)
        self._graphs[what] = capture.graph
        for leaf, before in kept:
            wp.copy(leaf, before)
        data.overflow.zero_()

    def _kernels(self, what: str) -> None:
        if what == "step":
            for _ in range(self.substeps):
                self.engine.step(self.model, self.data)
        if what == "forward" or self.look:
            self.engine.forward(self.model, self.data)

    def _views(self) -> Moved:
        data, view = self.data, self.warp.to_jax
        parts = (data.qpos, data.qvel, data.qacc_warmstart, data.sensordata, data.xpos, data.overflow)
        return Moved(*(view(part) for part in parts))
