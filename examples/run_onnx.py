"""Run an exported policy with nothing but onnxruntime and NumPy:  python run_onnx.py policy.onnx"""

import sys

import numpy as np
import onnxruntime

onnxruntime.set_default_logger_severity(3)  # it warns that the noise may be left out
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
shape = [size if isinstance(size, int) else 3 for size in session.get_inputs()[0].shape]  # a batch of three
obs = np.zeros(shape, np.float32)  # what your environment shows
(action,) = session.run(["action"], {"obs": obs})
print("most likely", action)

noise = session.get_overridable_initializers()[0].shape[1:]  # Box actions: standard normal noise; others: uniform
draw = np.random.standard_normal if "log_std" in {out.name for out in session.get_outputs()} else np.random.random
(action,) = session.run(["sampled_action"], {"obs": obs, "noise": draw((3, *noise)).astype(np.float32)})
print("sampled", action)
