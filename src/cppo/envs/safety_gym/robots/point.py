"""The Point: a sphere with an arrow that slides and turns in the plane.

Its slides lie in the frame of its starting pose. That frame is a mocap body, so that one compiled model serves every
world; a mocap parent gives bit for bit the kinematics of a body compiled at that pose.
"""

from cppo.envs.safety_gym.robots.robot import Robot

BODY = """
        <joint name="x" type="slide" axis="1 0 0" damping="0.01"/>
        <joint name="y" type="slide" axis="0 1 0" damping="0.01"/>
        <joint name="z" type="hinge" axis="0 0 1" damping="0.005"/>
        <geom name="robot" type="sphere" size="0.1" friction="1 0.01 0.01" rgba="0.7 0.1 0.1 1"/>
        <geom name="arrow" type="box" pos="0.1 0 0" size="0.05 0.05 0.05" rgba="0.7 0.1 0.1 1"/>
        <site name="robot" rgba="1 0 0 0.1"/>"""

ACTUATORS = """
    <motor site="robot" gear="0.3 0 0 0 0 0" ctrlrange="-1 1" forcerange="-0.05 0.05"/>
    <velocity jointinparent="z" gear="0.3 0 0 0 0 0" kv="1" ctrlrange="-1 1" forcerange="-0.05 0.05"/>"""

POINT = Robot(
    "point", BODY, ACTUATORS, geom='condim="6" density="1"', timestep=0.002, reach=(1.0, 1.0), planar=True, contacts=8
)
