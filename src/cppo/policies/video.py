"""A film of a trained policy: the world, what the robot sees, and return and cost so far, as an MP4 or a GIF."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from cppo import envs, files
from cppo.envs.gymnasium.camera import GymnasiumCamera
from cppo.envs.gymnasium.env import GymnasiumEnv
from cppo.envs.views import Camera
from cppo.runs.plan import Plan
from cppo.runs.run import Policy, Run
from cppo.types import BatchedEnv, EnvSpec, UsageError

SIZE = 480  # pixels, edge of the picture
STRIP = 24  # pixels, height of a line of text
HOLD = 15  # frames that the last picture of an episode stays
RENDERERS = ("auto", "mujoco", "top")
NO_ENCODER = (
    "no MP4 encoder here ({reason}). Install one with: pip install imageio-ffmpeg; or write a GIF, which needs "
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
    if run.plan.settings.encoder == "gru":
        raise UsageError("films of policies with encoder=gru are not supported.")
    env, camera, seconds = _set(run.plan, renderer)
    try:
        every = max(1, round(1 / 25 / seconds))
        writer = _gif if out.suffix.lower() == ".gif" else _mp4
        take = Take(episodes, deterministic, episode_seed, every, steps)
        writer(out, _pictures(run, run.policy(seed), env, camera, take), 1 / (seconds * every))
    finally:
        envs.close(env)
    return out


def _set(plan: Plan, renderer: str) -> tuple[BatchedEnv, Camera, float]:
    """One world, what draws it, and how many seconds a step lasts."""
    if plan.source is None:
        env = envs.build(plan.env, 1, envs.backends(plan.env)[-1])
        return env, camera_of(plan.env, renderer), envs.view(plan.env).seconds
    if renderer != "auto":
        raise UsageError(f"{plan.env} draws itself (render_mode rgb_array); leave out --renderer.")
    env = GymnasiumEnv(plan.source, 1, plan.spec, pictures=True)
    try:
        env.init(np.asarray(jax.random.split(jax.random.PRNGKey(0), 1)))
        env.picture()  # refuses what cannot draw, and says how fast
    except BaseException:
        env.close()
        raise
    return env, GymnasiumCamera(env, SIZE), 1 / env.rate


class Take(NamedTuple):
    """What is filmed."""

    episodes: int
    deterministic: bool
    seed: int
    every: int  # steps from picture to picture
    steps: int | None  # where to cut episodes


def _pictures(run: Run, policy: Policy, env: BatchedEnv, camera: Camera, take: Take) -> Iterator[np.ndarray]:
    name = run.plan.env
    init, advance = (jax.jit(env.init), jax.jit(env.advance)) if env.jittable else (env.init, env.advance)
    keys = jax.random.split(jax.random.PRNGKey(take.seed), 1)
    state, obs = init(keys if env.jittable else np.asarray(keys))
    length = min(take.steps or env.spec.episode_length, env.spec.episode_length)
    for episode in range(take.episodes):
        reward, cost = 0.0, np.zeros(env.spec.num_costs)
        title = f"{run.plan.algo} on {name}" + (f", episode {episode + 1}" if take.episodes > 1 else "")
        camera.restart()
        for t in range(length + 1):
            if t % take.every == 0 or t == length:
                picture = camera.draw(state, np.asarray(obs[0]))
                yield caption(picture, env.spec, run.plan.cost_limits, title, t, reward, cost)
            if t == length:
                break
            if t % policy.hold == 0:
                action = policy.act(np.asarray(obs), take.deterministic, seed=take.seed * 1_000_003 + t)
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


def camera_of(name: str, renderer: str) -> Camera:
    """What draws a state of environment ``name``: MuJoCo's renderer where it works, else the view from above."""
    view = envs.view(name)
    if renderer == "top" or view.picture is None:
        return view.above(SIZE)
    try:
        picture = view.picture(SIZE, SIZE)
    except UsageError as error:
        if renderer == "mujoco":
            raise
        print(f"Drawing from above in place of MuJoCo's pictures: {error}")
        return view.above(SIZE)
    return Inset(picture, view.above(SIZE // 3)) if view.inset else picture


class Inset:
    """A picture with another camera's in its upper right corner."""

    def __init__(self, whole: Camera, corner: Camera):
        self.whole, self.corner = whole, corner

    def restart(self) -> None:
        self.whole.restart()
        self.corner.restart()

    def draw(self, state: Any, obs: np.ndarray) -> np.ndarray:
        picture, corner = self.whole.draw(state, obs).copy(), self.corner.draw(state, obs)
        picture[: len(corner), -len(corner) :] = corner
        return picture


def _mp4(out: Path, pictures: Iterator[np.ndarray], rate: float) -> None:
    try:
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(NO_ENCODER.format(reason=reason, gif=out.with_suffix(".gif"))) from error
    first = next(pictures)
    size = (first.shape[1], first.shape[0])
    out.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*os.fork.*")  # the encoder is a process that never touches JAX
        with files.replacing(out) as partial:
            path, container = str(partial.absolute()), ["-f", "mp4"]  # the partial file's name does not tell it
            # imageio-ffmpeg declares no types: those of its defaults are taken for them.
            writer = imageio_ffmpeg.write_frames(path, size, fps=rate, macro_block_size=2, output_params=container)  # pyright: ignore[reportArgumentType]
            with contextlib.closing(writer):
                writer.send(None)  # starts the encoder
                for picture in itertools.chain([first], pictures):
                    writer.send(np.ascontiguousarray(picture))


def _gif(out: Path, pictures: Iterator[np.ndarray], rate: float) -> None:
    frames = [Image.fromarray(picture).quantize(64) for picture in pictures]
    out.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(out) as partial:
        frames[0].save(partial, "GIF", save_all=True, append_images=frames[1:], duration=round(1000 / rate), loop=0)
