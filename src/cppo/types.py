"""Data records that every part of the project shares.

Axes are named in the same order everywhere: ``time`` (T), ``world`` (W, one copy of the environment), then the
quantity's own axes. A training run adds a leading ``seed`` axis by ``vmap``; nothing below mentions it.
Costs always carry a last axis of m constraints, also when m = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from cppo.errors import TrainingError as TrainingError
from cppo.errors import Unsaved as Unsaved
from cppo.errors import UsageError as UsageError

AnyArray = Array | np.ndarray  # NumPy's come from environments outside JAX, and from files
Key = Array
PyTree = Any
Metrics = dict[str, AnyArray]


@dataclass(frozen=True)
class Box:
    """Continuous actions, one interval for each dimension."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.low),)

    @property
    def size(self) -> int:
        return len(self.low)


@dataclass(frozen=True)
class Discrete:
    """``n`` actions, numbered from 0."""

    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return ()


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once: number i is one of ``sizes[i]``, numbered from 0."""

    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes),)


LOST = ("crash", "hang", "exception", "shape")  # how episodes are lost: ``shape`` where values do not fit the spaces

ActionSpace = Box | Discrete | MultiDiscrete


@dataclass(frozen=True)
class EnvSpec:
    """What an algorithm may know of an environment before the first step.

    ``cost_limits`` are limits on the mean undiscounted cost of an episode, one for each constraint
    (docs/cost-contract.md); a run may override them. Empty: the environment has none of its own, a run must give them.
    """

    name: str
    obs_shape: tuple[int, ...]
    action: ActionSpace
    cost_names: tuple[str, ...]
    cost_limits: tuple[float, ...]
    episode_length: int
    time_limit: bool = True  # False: episodes may be longer than ``episode_length``, which is a guess
    measures: tuple[str, ...] = ()  # what else the task says of an episode: goals reached, fallen, success

    @property
    def num_costs(self) -> int:
        return len(self.cost_names)


class Step(NamedTuple):
    """One step of W worlds. A world whose episode ended is reset at once.

    ``obs`` is what to act on next (after a reset: the new episode's first observation); ``final_obs`` is the true
    successor of the step, which is what a critic must see. The two are equal where no episode ended.
    ``terminated`` is a true end (no future); ``truncated`` is a time limit (the future exists, unseen).
    ``dropped`` marks episodes that were lost with the process they ran in: 1 + the index of the cause in ``LOST``, else
    0. They are truncated, and no mean over episodes counts them (their last step, made up of what was known, is in the
    batch). Environments that lose none leave it out.
    ``measures`` are those that the spec names, for the episode so far; they count where it ended. NaN: unknown. Nothing
    learns from them.
    """

    obs: Float[AnyArray, "world *obs"]
    final_obs: Float[AnyArray, "world *obs"]
    reward: Float[AnyArray, " world"]
    cost: Float[AnyArray, "world constraint"]
    terminated: Bool[AnyArray, " world"]
    truncated: Bool[AnyArray, " world"]
    dropped: Int[AnyArray, " world"] | None = None
    measures: Float[AnyArray, "world measure"] | None = None


@runtime_checkable
class BatchedEnv(Protocol):
    """W copies of an environment as functions of an explicit state.

    ``state`` is a pytree (nested dicts or named tuples) of arrays with leading axis W: it is what a checkpoint saves.
    Each world draws its randomness from its own key, so a world's trajectory depends on its key and its actions
    alone, not on its neighbours.
    ``jittable`` says whether ``init`` and ``advance`` may be traced by JAX (and so vmapped and scanned);
    host environments (threads, Warp, Gymnasium) take and return arrays and run outside jit.
    ``resumable`` says whether ``state`` is complete, so that a saved run goes on bit-exactly.
    """

    spec: EnvSpec
    num_envs: int
    backend: str
    jittable: bool
    resumable: bool

    def init(
        self, keys: AnyArray, ages: Int[AnyArray, " world"] | None = None
    ) -> tuple[PyTree, Float[AnyArray, "world *obs"]]:
        """Start an episode in every world. ``ages`` (default 0) staggers the time counters."""
        ...

    def advance(self, state: PyTree, actions: AnyArray) -> tuple[PyTree, Step]:
        """Step every world and reset those whose episode ended."""
        ...


class Episodes(NamedTuple):
    """Means over recent episodes: those that ended in the batch, or more where too few did (docs/cost-contract.md)."""

    reward: Float[Array, ""]  # undiscounted return
    cost: Float[Array, " constraint"]  # undiscounted cost, the quantity that the limit bounds
    discounted_cost: Float[Array, " constraint"]
    length: Float[Array, ""]
    count: Int[Array, ""]  # episodes averaged over
    ended: Int[Array, ""]  # episodes that ended in this batch


class Batch(NamedTuple):
    """What one collection hands to an algorithm's ``update``."""

    obs: Float[Array, "time world *obs"]
    action: Num[Array, "time world *action"]
    next_obs: Float[Array, "time world *obs"]  # true successors (``Step.final_obs``)
    reward: Float[Array, "time world"]
    cost: Float[Array, "time world constraint"]
    terminated: Bool[Array, "time world"]
    truncated: Bool[Array, "time world"]
    age: Float[Array, "time world"]  # steps that the episode had lasted when ``obs`` was seen
    episodes: Episodes


def as_numpy(tree: PyTree) -> PyTree:
    import jax

    return jax.tree.map(np.asarray, tree)
