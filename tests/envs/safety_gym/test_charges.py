"""Every hazard, vase, pillar, button and gremlin of every scene is charged where it should be, and only there."""

import numpy as np
import pytest

from cppo.envs import replay
from cppo.envs.safety_gym.robots import CAR, POINT
from cppo.envs.safety_gym.scenes import GREMLIN_HALF, PILLAR_RADIUS, SCENES, VASE_HALF, VASE_HEIGHT

# Where the robot ends, seen from its centre: the Point's sphere behind it, the cars' front bumpers, a knee, the trunk.
EDGE = {
    "point": (-0.1, 0.0), "car": (0.0, -0.175), "racecar": (0.2465, 0.0), "ant": (0.114, 0.114), "doggo": (-0.1, 0.0),
}  # fmt: skip
STEPPED = (POINT, CAR)  # robots that the step leaves about where they are
WITH_OBJECTS = [
    name
    for name, scene in SCENES.items()
    if (scene.hazards or scene.vases or scene.pillars) and (scene.robot in STEPPED or scene.name.endswith("2"))
]


def standing(robot):
    return np.zeros(3) if robot.planar else np.array([0, 0, robot.start, 1, 0, 0, 0, *robot.rest])


def one_at_a_time(scene):
    """Rows of a robot at the origin: object number i touches it in row i, the rest are far away; then nothing does."""
    counts = {kind: getattr(scene, kind) for kind in ("hazards", "pillars", "buttons", "vases", "gremlins")}
    objects = [kind for kind, count in counts.items() for _ in range(count)]
    edge = np.array(EDGE[scene.robot.name])
    out = edge / np.linalg.norm(edge)
    near = {
        "hazards": 0.5 * scene.hazard_size * out,
        "vases": edge + (VASE_HALF - 0.01) * out,
        "gremlins": edge + (GREMLIN_HALF - 0.01) * out,
        "buttons": edge,
        "pillars": edge + (PILLAR_RADIUS - 0.001) * out,
    }
    rows = len(objects) + 1
    place = np.zeros((rows, len(objects), 2))
    place[:] = 6.0 + np.stack([np.arange(len(objects)), 0 * np.arange(len(objects))], 1)
    for row, kind in enumerate(objects):
        place[row, row] = near[kind]
    hazards, pillars, buttons, moving = np.split(place, np.cumsum(list(counts.values())[:3]), axis=1)
    free = [np.concatenate([moving, np.full((*moving.shape[:2], 1), VASE_HEIGHT)], 2)]
    if scene.task == "push":
        free.append(np.broadcast_to([-6.0, 0.0, scene.robot.box_half], (rows, 1, 3)))
    free = np.concatenate(free, 1)
    upright = np.broadcast_to([1.0, 0, 0, 0], (*free.shape[:2], 4))
    poses = np.concatenate([free, upright], 2).reshape(rows, -1)
    zeros = np.zeros((rows, scene.qvel_size))
    transitions = {
        "qpos": np.concatenate([np.tile(standing(scene.robot), (rows, 1)), poses], 1),
        "qvel": zeros,
        "warm": zeros,
        "agent_xy0": np.tile([0, 0, 0.1], (rows, 1)),
        "agent_rot0": np.tile([1.0, 0, 0, 0], (rows, 1)),
        "goal": np.tile([-5.0, -5.0, 0.16], (rows, 1)),
        "goal_next": np.tile([-5.0, -5.0, 0.16], (rows, 1)),
        "hazards": hazards,
        "pillar": np.concatenate([pillars, np.full((rows, scene.pillars, 1), 0.5)], 2),
        "last_a": np.ones(rows),
        "last_b": np.ones(rows),
        "action": np.zeros((rows, scene.robot.actuated)),
    }
    # Of the buttons the one after the one that is touched is wanted.
    wanted = [(row - objects.index("buttons") + 1) % scene.buttons for row in range(rows)] if scene.buttons else zeros
    starts = np.concatenate([moving, 0 * moving[..., :1]], 2)
    transitions |= {"buttons": buttons, "wanted": wanted, "wanted_next": wanted, "gremlins": starts}
    transitions |= {"timer": np.zeros(rows), "timer_next": np.zeros(rows), "clock": np.zeros(rows)}
    transitions |= {"qpos_next": transitions["qpos"], "qvel_next": zeros}
    return objects, transitions


@pytest.mark.parametrize("name", WITH_OBJECTS)
def test_each_object_is_charged_by_itself(name):
    scene = SCENES[name]
    objects, transitions = one_at_a_time(scene)
    expected = [[float(kind == charged) for charged in scene.charged] for kind in objects]
    expected.append([0.0] * len(scene.charged))
    if scene.joined:
        expected = [[max(row)] for row in expected]
    physics = "simulated" if scene.robot in STEPPED and not scene.buttons else "recorded"
    cost = replay(name, transitions, physics=physics)["cost"].reshape(len(expected), -1)
    np.testing.assert_array_equal(cost, expected, err_msg=f"rows: {[*objects, 'nothing']}")
