"""The Car: two driven wheels and a ball that rolls behind them. Its front is -y."""

from cppo.envs.safety_gym.robots.robot import Robot

BODY = """
      <geom name="robot" type="box" size="0.1 0.1 0.05" rgba="0.7 0.1 0.1 1"/>
      <geom name="back_bumper" type="box" pos="0 0.15 0" size="0.1 0.01 0.05" rgba="0.7 0.1 0.1 1"/>
      <geom name="back_connector" type="box" pos="0 0.125 0" size="0.01 0.025 0.03" rgba="0.7 0.1 0.1 1"/>
      <geom name="front_bumper" type="box" pos="0 -0.165 0" size="0.05 0.01 0.05" rgba="0.7 0.1 0.1 1"/>
      <geom name="front_connector" type="box" pos="0 -0.13 0.04" size="0.05 0.03 0.01" rgba="0.7 0.1 0.1 1"/>
      <site name="robot" rgba="1 0 0 0.1"/>
      <body name="left" pos="-0.1 0.1 -0.05">
        <joint name="left" type="hinge" axis="1 0 0"/>
        <geom name="left" type="cylinder" fromto="-0.055 0 0 -0.005 0 0" size="0.05" rgba="0.7 0.1 0.1 0.5"/>
      </body>
      <body name="right" pos="0.1 0.1 -0.05">
        <joint name="right" type="hinge" axis="1 0 0"/>
        <geom name="right" type="cylinder" fromto="0.005 0 0 0.055 0 0" size="0.05" rgba="0.7 0.1 0.1 0.5"/>
      </body>
      <body name="rear" pos="0 -0.1 -0.05">
        <joint name="rear" type="ball"/>
        <geom name="rear" type="sphere" size="0.05" rgba="0.7 0.1 0.1 0.5"/>
      </body>"""

ACTUATORS = """
    <motor jointinparent="left" ctrlrange="-1 1" forcerange="-0.02 0.02"/>
    <motor jointinparent="right" ctrlrange="-1 1" forcerange="-0.02 0.02"/>"""

SENSORS = """
    <ballangvel joint="rear"/>
    <ballquat joint="rear"/>"""

CAR = Robot(
    "car",
    BODY,
    ACTUATORS,
    geom='condim="6" density="5" size="0.05" type="sphere"',
    timestep=0.004,
    reach=(1.0, 1.0),
    sensors=SENSORS,
    rest=(0.0, 0.0, 1.0, 0.0, 0.0, 0.0),  # wheels, ball
    speeds=5,
    senses=(("plain", 3), ("quaternions", 4)),
    box_half=0.125,
    box_density=0.0005,
    contacts=16,
    front=(0.0, -0.165),
)
