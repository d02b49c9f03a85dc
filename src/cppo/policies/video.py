"""A film of a trained policy: the world, what the robot sees, and return and cost so far, as an MP4 or a GIF."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from cppo import envs
from cppo.run import Policy, Run
from cppo.types import BatchedEnv, EnvSpec, UsageError

SIZE = 480  # pixels, edge of the picture
STRIP = 24  # pixels, height of a line of text
HOLD = 15  # frames that the last picture of an episode stays
RENDERERS = ("auto", "mujoco", "top")
# Seconds of an environment step; PointCircle has no time of its own.
SECONDS = {"PointCircle": 0.1, "AntCircle": 0.05}
NO_ENCODER = (
    "no MP4 encoder here ({reason}). Install one with: pip install imageio imageio-ffmpeg; or write a GIF, which needs "
    "none: --out {gif}"
)


def film(
    run: Run,
    out: Path,
    *,
    seed: int | None = None,
    episodes: int = 1,
    deterministic: bool = True,
    renderer: str = "auto",
    episode_seed: int = 0,
    steps: int | None = None,
) -> Path:
    """Write ``episodes`` episodes of a policy of ``run`` to ``out`` (.mp4 or .gif); ``steps`` cuts episodes short."""
    if episodes < 1:
        raise UsageError(f"episodes is {episodes}; it must be at least 1.")
    if renderer not in RENDERERS:
        raise UsageError(f"renderer is {renderer!r}; use one of {', '.join(RENDERERS)}.")
    if out.suffix.lower() not in (".mp4", ".gif"):
        raise UsageError(f"--out {out} ends in {out.suffix or 'nothing'}; write an .mp4 or a .gif.")
    if run.plan.source is not None:
        raise UsageError("films are of cppo's own environments; record others with gymnasium.wrappers.RecordVideo.")
    if run.plan.settings.encoder == "gru":
        raise UsageError("films of policies with encoder=gru are not supported.")
    name = run.plan.env
    camera = camera_of(name, renderer)
    policy = run.policy(seed)
    env = envs.build(name, 1, envs.backends(name)[0] if "jax" in envs.backends(name) else "threads")
    seconds = SECONDS.get(name) or _seconds(name)
    every = max(1, round(1 / 25 / seconds))
    writer = _gif if out.suffix.lower() == ".gif" else _mp4
    pictures = _pictures(env, policy, camera, run, episodes, deterministic, episode_seed, every, steps)
    writer(out, pictures, 1 / (seconds * every))
    return out


def _seconds(name: str) -> float:
    from cppo.envs.tasks.scenes import SCENES

    return 10 * SCENES[name].robot.timestep


def _pictures(
    env: BatchedEnv,
    policy: Policy,
    camera: Any,
    run: Run,
    episodes: int,
    deterministic: bool,
    seed: int,
    every: int,
    steps: int | None,
) -> Iterator[np.ndarray]:
    init, advance = (jax.jit(env.init), jax.jit(env.advance)) if env.jittable else (env.init, env.advance)
    keys = jax.random.split(jax.random.PRNGKey(seed), 1)
    state, obs = init(keys if env.jittable else np.asarray(keys))
    length = min(steps or env.spec.episode_length, env.spec.episode_length)
    for episode in range(episodes):
        reward, cost = 0.0, np.zeros(env.spec.num_costs)
        camera.restart()
        for t in range(length + 1):
            if t % every == 0 or t == length:
                picture = camera.draw(state, np.asarray(obs[0]))
                title = f"{run.plan.algo} on {env.spec.name}" + (f", episode {episode + 1}" if episodes > 1 else "")
                yield caption(picture, env.spec, run.plan.cost_limits, title, t, reward, cost)
            if t == length:
                break
            action = policy.act(np.asarray(obs), deterministic, seed=seed * 1_000_003 + t)
            state, step = advance(state, action)
            reward, cost = reward + float(step.reward[0]), cost + np.asarray(step.cost[0])
            obs = step.obs
            if bool(step.terminated[0] | step.truncated[0]):
                break
        final = caption(picture, env.spec, run.plan.cost_limits, title, t + 1, reward, cost)
        yield from [final] * HOLD


def caption(
    picture: np.ndarray, spec: EnvSpec, limits: dict[str, float], title: str, t: int, reward: float, cost: np.ndarray
) -> np.ndarray:
    """The picture over lines of text: title and step, return, and each cost with its limit and a bar."""
    size = picture.shape[1]
    lines = 2 + len(limits)
    height = STRIP * lines + STRIP // 2
    image = Image.new("RGB", (size, picture.shape[0] + height + height % 2), (24, 24, 28))
    image.paste(Image.fromarray(picture), (0, 0))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=15)

    def write(line: int, left: str, right: str, colour: tuple[int, int, int] = (235, 235, 235)) -> None:
        y = picture.shape[0] + 6 + line * STRIP
        draw.text((10, y), left, colour, font)
        draw.text((size - 10, y), right, colour, font, anchor="ra")

    write(0, title, f"step {min(t, spec.episode_length)} of {spec.episode_length}")
    write(1, "return", f"{reward:.2f}")
    for line, ((name, limit), spent) in enumerate(zip(limits.items(), cost, strict=True), start=2):
        over = spent > limit
        colour = (240, 90, 80) if over else (120, 210, 130)
        write(line, name if name == "cost" else f"cost {name}", f"{spent:.0f} of {limit:g}", colour)
        top, left, right = picture.shape[0] + 10 + line * STRIP, 150, size - 110
        draw.rectangle((left, top, right, top + 9), outline=(110, 110, 115))
        share = min(1.0, spent / limit) if limit > 0 else float(spent > 0)
        draw.rectangle((left, top, left + share * (right - left), top + 9), fill=colour)
    return np.asarray(image)


def camera_of(name: str, renderer: str) -> Any:
    """What draws a state of environment ``name``: MuJoCo's renderer where it works, else the view from above."""
    from cppo.envs.tasks.scenes import SCENES

    if name not in (*SECONDS, *SCENES):
        raise UsageError(f"there is no picture of {name}; films exist for {', '.join([*SECONDS, *SCENES])}.")
    if name == "PointCircle":
        return PointCircleCamera()
    above = AntCamera() if name == "AntCircle" else SafetyGymCamera(SCENES[name])
    if renderer == "top":
        return above
    try:
        return MuJoCoCamera(SCENES.get(name), above)
    except UsageError as error:
        if renderer == "mujoco":
            raise
        print(f"Drawing from above in place of MuJoCo's pictures: {error}")
        return above


class SafetyGymCamera:
    """Safety Gym from above."""

    def __init__(self, scene: Any):
        self.scene = scene

    def restart(self) -> None:
        """Nothing to forget."""

    def draw(self, state: Any, obs: np.ndarray) -> np.ndarray:
        from cppo.envs import top_view

        return top_view.safety_gym(self.scene, state, obs, SIZE)


class PointCircleCamera:
    """PointCircle from above, with the way so far."""

    def __init__(self) -> None:
        self.trail: list[np.ndarray] = []

    def restart(self) -> None:
        self.trail = []

    def draw(self, state: Any, obs: np.ndarray) -> np.ndarray:
        from cppo.envs import point_circle, top_view

        self.trail.append(obs[:2])
        ahead = obs[:2] + 1.5 * np.array([np.cos(obs[2]), np.sin(obs[2])])
        legs = [[obs[:2], ahead]]
        return top_view.circle_run(
            np.array(self.trail), point_circle.RADIUS, point_circle.CORRIDOR, legs, 0.5, SIZE, 20.0
        )


class AntCamera:
    """AntCircle from above, with the way so far; ``size`` pixels."""

    def __init__(self, size: int = SIZE):
        import mujoco

        from cppo.envs.physics.models import ant_model

        self.size, self.model = size, ant_model()
        self.data = mujoco.MjData(self.model)  # pyright: ignore[reportAttributeAccessIssue]
        self.trail: list[np.ndarray] = []

    def restart(self) -> None:
        self.trail = []

    def draw(self, state: Any, obs: np.ndarray) -> np.ndarray:
        import mujoco

        from cppo.envs import top_view
        from cppo.envs.tasks import ant_circle

        self.data.qpos[:] = state.qpos[0]
        mujoco.mj_kinematics(self.model, self.data)  # pyright: ignore[reportAttributeAccessIssue]
        self.trail.append(np.array(self.data.qpos[:2]))
        place = self.data.geom_xpos[:, :2]
        legs = [[self.data.qpos[:2], *(place[i] for i in range(first, first + 3))] for first in range(2, 14, 3)]
        return top_view.circle_run(
            np.array(self.trail), ant_circle.RADIUS, ant_circle.LINE, legs, 0.25, self.size, 13.0
        )


class MuJoCoCamera:
    """MuJoCo's own picture; the Ant's shows the view from above in a corner, since its camera stays close."""

    def __init__(self, scene: Any, above: Any):
        from cppo.envs.rendering import Picture

        self.picture = Picture(scene, SIZE, SIZE)
        self.corner = None if scene is not None else AntCamera(SIZE // 3)

    def restart(self) -> None:
        if self.corner is not None:
            self.corner.restart()

    def draw(self, state: Any, obs: np.ndarray) -> np.ndarray:
        picture = self.picture.draw(state, obs)
        if self.corner is not None:
            picture = picture.copy()
            corner = self.corner.draw(state, obs)
            picture[: len(corner), -len(corner) :] = corner
        return picture


def _mp4(out: Path, pictures: Iterator[np.ndarray], rate: float) -> None:
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(NO_ENCODER.format(reason=reason, gif=out.with_suffix(".gif"))) from error
    out.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*os.fork.*")  # the encoder is a process that never touches JAX
        with imageio.get_writer(str(out), fps=rate, macro_block_size=2) as writer:
            for picture in pictures:
                writer.append_data(picture)  # pyright: ignore[reportAttributeAccessIssue]


def _gif(out: Path, pictures: Iterator[np.ndarray], rate: float) -> None:
    frames = [Image.fromarray(picture).quantize(64) for picture in pictures]
    out.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=round(1000 / rate), loop=0)
