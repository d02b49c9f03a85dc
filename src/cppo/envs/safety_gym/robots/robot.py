"""What the scenes ask of a robot: its model's parts, its place in the state, and what is observed of it."""

from __future__ import annotations

from dataclasses import dataclass

SENSES = """
    <accelerometer site="robot"/>
    <velocimeter site="robot"/>
    <gyro site="robot"/>
    <magnetometer site="robot"/>"""
SENSES_SIZE = 12  # entries of these in sensordata; the first of every robot

# How a stretch of sensordata is observed: as it is, not at all, each angle as sine and cosine, or each quaternion as
# a rotation matrix.
OBSERVED = {"plain": 1.0, "unseen": 0.0, "angles": 2.0, "quaternions": 9 / 4}  # numbers seen for each entry


@dataclass(frozen=True)
class Robot:
    """A robot as its scenes know it. The body called "robot" is its root, and so is the site that its senses are at."""

    name: str
    # Its model.
    body: str  # what its root holds
    actuators: str
    geom: str  # defaults of all geoms of the scene
    timestep: float  # s, one physics step
    reach: tuple[float, ...]  # of the actions, to either side of 0
    joint: str = 'damping="0.001"'  # defaults of its joints
    integrator: str = "Euler"
    sensors: str = ""  # besides ``SENSES``
    assets: str = ""
    contact: str = ""
    equality: str = ""
    # Its state.
    planar: bool = False  # two slides and a hinge in the frame of its starting pose, stepped in closed form; else free
    start: float = 0.1  # m, height of its root at a reset
    rest: tuple[float, ...] = ()  # joint positions at a reset, after the pose of the root
    jitter: float = 0.0  # rad, by which these differ at most
    speeds: int = 0  # entries of qvel after those of the root
    fallen: float | None = None  # m, an episode ends where the root is no higher
    # What is seen of it.
    senses: tuple[tuple[str, int], ...] = ()  # stretches of sensordata after ``SENSES``: of ``OBSERVED``, entries
    site: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m, where its senses sit
    # What depends on it elsewhere.
    box_half: float = 0.2  # m, half edge of the push box that goes with it
    box_density: float = 0.001  # kg / m^3
    contacts: int = 0  # to reserve for it on a GPU; 0: it does not run there
    front: tuple[float, float] = (0.1, 0.0)  # m, a mark at its front in pictures, seen from its root
    radius: float = 0.1  # m, of the disc that it is on the report's page

    @property
    def actuated(self) -> int:
        return len(self.reach)

    @property
    def low(self) -> tuple[float, ...]:
        return tuple(-bound for bound in self.reach)

    @property
    def high(self) -> tuple[float, ...]:
        return self.reach

    @property
    def positions(self) -> int:
        """Entries of qpos."""
        return (3 if self.planar else 7) + len(self.rest)

    @property
    def velocities(self) -> int:
        """Entries of qvel."""
        return (3 if self.planar else 6) + self.speeds

    @property
    def sensed(self) -> int:
        """Entries of sensordata."""
        return SENSES_SIZE + sum(size for _, size in self.senses)

    @property
    def observed(self) -> int:
        """Numbers of the observation."""
        return SENSES_SIZE + sum(round(OBSERVED[kind] * size) for kind, size in self.senses)
