"""Compiled models against the numbers of the originals."""

import mujoco
import numpy as np
import pytest

from cppo.envs.ant_circle.physics import ant_model
from cppo.envs.safety_gym.models import navigation_model
from cppo.envs.safety_gym.scenes import SCENES


def close(value, expected):
    np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["PointGoal1", "PointPush1"])
def test_point_body(name):
    model = navigation_model(SCENES[name])
    robot = model.body("robot")
    close(robot.mass, 0.0051887902)
    close(robot.ipos, [0.0192723151, 0, 0])
    close(np.sort(robot.inertia), [1.8421827486e-5, 2.6494595972e-5, 2.6494595972e-5])
    close(model.dof_damping[:3], [0.01, 0.01, 0.005])
    close(model.actuator_gear[:, 0], 0.3)
    close(model.actuator_forcerange, [[-0.05, 0.05]] * 2)
    close(model.actuator_ctrlrange, [[-1, 1]] * 2)
    assert (model.nq, model.nv, model.nu) == (10, 9, 2)
    assert model.opt.timestep == 0.002
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER


def test_vase_and_push_boxes():
    vase = navigation_model(SCENES["PointGoal1"]).body("vase0")
    close(vase.mass, 8e-6)
    close(vase.inertia, 5.333333333e-8)
    point_box = navigation_model(SCENES["PointPush1"]).body("box")
    close(point_box.mass, 1.28e-4)
    np.testing.assert_allclose(np.sort(point_box.inertia), [5.3333e-6, 5.3333e-6, 7.2533e-6], rtol=1e-5)
    car_box = navigation_model(SCENES["CarPush1"]).body("box")
    close(car_box.mass, 1.5625e-5)
    np.testing.assert_allclose(np.sort(car_box.inertia), [2.5431e-7, 2.5431e-7, 3.4587e-7], rtol=3e-5)


def test_car_bodies():
    model = navigation_model(SCENES["CarPush1"])
    robot = model.body("robot")
    close(robot.mass, 0.0239)
    close(robot.ipos, [0, 0.0039539749, 0.0010041841])
    close(robot.inertia, [2.2844207194e-4, 1.7390058229e-4, 9.4811843677e-5])
    close(model.body("left").mass, 0.0019634954)
    close(np.sort(model.body("right").inertia), [1.6362461737e-6, 1.6362461737e-6, 2.4543692606e-6])
    close(model.body("rear").mass, 0.0026179939)
    close(model.body("rear").inertia, 2.617993878e-6)
    close(model.body("robot").subtreemass, 0.0304449847)
    close(model.actuator_forcerange, [[-0.02, 0.02]] * 2)
    close(model.dof_damping[:11], [0] * 6 + [0.001] * 5)
    assert (model.nq, model.nv, model.nu) == (20, 17, 2)
    assert model.opt.timestep == 0.004


def test_ant():
    model = ant_model()
    assert (model.nq, model.nv, model.nu, model.nbody) == (15, 14, 8, 14)
    close(model.body("torso").mass, 0.3272492347)
    close(model.body("aux_1").mass, 0.0391577537)
    close(model.body("front_left_foot").mass, 0.0675922045)
    close(model.body_mass.sum(), 0.9108800827)
    joints = [model.joint(int(i)).name for i in model.actuator_trnid[:, 0]]
    assert joints == ["hip_4", "ankle_4", "hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3"]
    close(model.actuator_gear[:, 0], 150)
    assert model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4


def test_friction_and_contact_dimension_reach_every_object():
    for scene in SCENES.values():
        model = navigation_model(scene)
        assert set(model.geom_condim) == {6}
        close(model.geom_solimp, [[0.9, 0.95, 0.001, 0.5, 2]] * model.ngeom)
        close(model.geom_margin, 0)
