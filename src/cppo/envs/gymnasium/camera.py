"""The pictures that a Gymnasium environment draws of itself (``render_mode="rgb_array"``), for films."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from cppo.envs.gymnasium.env import GymnasiumEnv


class GymnasiumCamera:
    """Asks the environment, which must be running, for its picture; all come out ``width`` pixels wide."""

    def __init__(self, env: GymnasiumEnv, width: int):
        self.env, self.width = env, width

    def restart(self) -> None:
        """Nothing to forget."""

    def draw(self, state: Any, obs: np.ndarray) -> np.ndarray:
        image = Image.fromarray(self.env.picture())
        height = 2 * round(self.width * image.height / image.width / 2)  # encoders want even numbers
        return np.asarray(image.resize((self.width, max(2, height)), Image.Resampling.LANCZOS))
