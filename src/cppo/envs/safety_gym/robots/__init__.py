"""The robots of Safety Gym, a file each. A new one is a file here and its name in ``ROBOTS``."""

from cppo.envs.safety_gym.robots.ant import ANT
from cppo.envs.safety_gym.robots.car import CAR
from cppo.envs.safety_gym.robots.doggo import DOGGO
from cppo.envs.safety_gym.robots.point import POINT
from cppo.envs.safety_gym.robots.racecar import RACECAR
from cppo.envs.safety_gym.robots.robot import Robot

ROBOTS = (POINT, CAR, RACECAR, ANT, DOGGO)

__all__ = ["ANT", "CAR", "DOGGO", "POINT", "RACECAR", "ROBOTS", "Robot"]
