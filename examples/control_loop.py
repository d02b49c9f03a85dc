"""A policy in ONNX inside a control loop at a fixed rate, without JAX.

cppo export pretrained:PointCircle --out circle.onnx && python examples/control_loop.py circle.onnx
"""

import sys
import time

import numpy as np
import onnxruntime


class Robot:
    """Stands for yours: what it reads, and what it is told. Here it drifts where it is sent."""

    def __init__(self, size):
        self.seen = np.zeros(size, np.float32)

    def read(self):
        return self.seen

    def send(self, action):
        self.seen[: len(action)] += 0.1 * action


def main(model, hertz=20.0, steps=100):
    """Steps of the loop that came too late; each waits for its moment, so that no delay adds up."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    hold = int(session.get_modelmeta().custom_metadata_map.get("hold", 1))  # steps that an action is given for
    robot, late, began = Robot(session.get_inputs()[0].shape[-1]), 0, time.perf_counter()
    for step in range(steps):
        if step % hold == 0:  # the most likely actions, in the robot's units
            (actions,) = session.run(["action"], {"obs": robot.read()[None]})
        robot.send(actions[0])
        left = began + (step + 1) / hertz - time.perf_counter()
        late += left < 0
        time.sleep(max(left, 0.0))
    return late, robot.read()


if __name__ == "__main__":
    late, seen = main(sys.argv[1])
    print(f"{late} steps late; the robot ended at {seen}")
