"""Films: every kind of world draws, the text is there, a file comes out, and what is missing is said."""

import sys

import jax
import numpy as np
import pytest
from PIL import Image

import cppo
from cppo import envs
from cppo.commands.cli import main
from cppo.envs.safety_gym.view import FromAbove
from cppo.policies import video
from cppo.runs import checkpoint
from cppo.runs.group import Group
from cppo.runs.learner import learner_for
from cppo.runs.plan import make_plan
from cppo.types import UsageError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run before its first update: a film does not ask how good the policy is."""
    folder = tmp_path_factory.mktemp("film")
    plan = make_plan("ppo", "PointCircle", settings={"hidden": (8, 8)})
    plan.save(folder, {})
    checkpoint.save(folder / "checkpoints", 0, Group([plan]).start().sections[0], {"wall_seconds": 0.0})
    return cppo.load(folder)


def colours(picture):
    return {tuple(pixel) for pixel in picture.reshape(-1, 3)[::7]}


@pytest.mark.parametrize("name", ["CarPush2", "PointGoal2", "CarCircle2", "AntCircle", "PointCircle"])
def test_every_world_draws_from_above(name):
    env = envs.build(name, 1)
    state, obs = env.init(np.asarray(jax.random.split(jax.random.PRNGKey(0), 1)))
    camera = video.camera_of(name, "top")
    camera.restart()
    first = camera.draw(state, np.asarray(obs[0]))
    assert first.shape == (video.SIZE, video.SIZE, 3) and first.dtype == np.uint8
    assert len(colours(first)) > 20
    state, step = env.advance(state, np.ones((1, env.spec.action.size)))
    for _ in range(5):
        state, step = env.advance(state, np.ones((1, env.spec.action.size)))
    assert (camera.draw(state, np.asarray(step.obs[0])) != first).any()


def test_every_step_is_drawn_and_actions_are_held(run):
    """One decision in ten steps: a picture of each step, and the same action in between."""
    asked, env = [], envs.build("PointCircle", 1)

    class Still:
        hold = 10

        def act(self, obs, deterministic, seed):
            asked.append(obs)
            return np.zeros((1, 2), np.float32)

    class Camera:
        def restart(self):
            pass

        def draw(self, state, obs):
            return np.zeros((40, 480, 3), np.uint8)

    pictures = list(video._pictures(run, Still(), env, Camera(), video.Take(1, True, 0, 1, 30)))
    assert len(asked) == 3 and len(pictures) == 31 + video.HOLD


def test_caption_turns_red_over_the_limit():
    picture = np.zeros((40, 480, 3), np.uint8)
    spec = envs.spec("PointPush2")
    limits = dict(zip(spec.cost_names, spec.cost_limits, strict=True))
    good, bad = (
        video.caption(picture, spec, limits, "title", 3, 1.5, np.array([1.0, second])) for second in (24.0, 26.0)
    )
    assert good.shape == bad.shape and good.shape[0] > 40 + 4 * video.STRIP
    red = lambda image: int(((image[..., 0] > 200) & (image[..., 1] < 120)).sum())  # noqa: E731
    assert red(good) == 0 and red(bad) > 100


@pytest.mark.filterwarnings("ignore:os.fork")
def test_mp4_and_gif(run, tmp_path):
    import imageio_ffmpeg

    out = tmp_path / "film.mp4"
    main(["video", str(run.folder), "--out", str(out)])
    about, *frames = imageio_ffmpeg.read_frames(str(out))
    assert len(frames) == 50 + video.HOLD  # 50 steps; the last picture stays
    assert about["size"][0] == video.SIZE and np.frombuffer(frames[0], np.uint8).std() > 10
    assert video.film(run, tmp_path / "film.gif", steps=3).stat().st_size > 1000


def test_errors_say_what_to_do(run, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"an \.mp4 or a \.gif"):
        video.film(run, tmp_path / "film.avi")
    with pytest.raises(UsageError, match="no picture of ProbeBox"):
        video.camera_of("ProbeBox", "auto")
    with pytest.raises(UsageError, match="one of auto, mujoco, top"):
        video.film(run, tmp_path / "film.mp4", renderer="crayons")
    with pytest.raises(SystemExit):
        main(["video", str(run.folder), "--seed-index", "5"])
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UsageError, match=r"pip install imageio-ffmpeg.*film\.gif"):
        video.film(run, tmp_path / "film.mp4")


def test_without_a_renderer_the_view_from_above_takes_over(monkeypatch, capsys):
    import mujoco

    def broken(*arguments):
        raise RuntimeError("no OpenGL")

    broken.__module__ = mujoco.Renderer.__module__
    monkeypatch.setattr(mujoco, "Renderer", broken)
    with pytest.raises(UsageError, match="apt install libegl1"):
        video.camera_of("PointGoal1", "mujoco")
    assert isinstance(video.camera_of("PointGoal1", "auto"), FromAbove)
    assert "no OpenGL" in capsys.readouterr().out


def untrained(env, folder):
    """A run on a Gymnasium environment before its first update."""
    plan = make_plan("ppo", env, settings={"hidden": (8,), "batch_size": 8, "num_envs": 2}, cost_limit=1.0)
    folder.mkdir()
    plan.save(folder, {})
    state = {"agent": learner_for([plan]).init_agents()}
    checkpoint.save(folder / "checkpoints", 0, state, {"wall_seconds": 0.0})
    return cppo.load(folder)


def test_a_gymnasium_environment_draws_its_own_film(tmp_path):
    run = untrained(envs.from_gymnasium("sample_envs:Drawn", episode_length=4), tmp_path / "run")
    out = video.film(run, tmp_path / "film.gif", steps=3)
    with Image.open(out) as film:
        first = np.asarray(film.convert("RGB"))
        film.seek(3)
        later = np.asarray(film.convert("RGB"))
        assert film.info["duration"] == 200  # five pictures a second, as its metadata says
    assert first.shape[1] == video.SIZE and first[:160].max() < 20, "the picture keeps its proportions: 480 by 160"
    assert later[80, 240, 0] == pytest.approx(120, abs=20), "the third step"


def test_what_draws_no_pictures_says_so(tmp_path):
    run = untrained(envs.from_gymnasium("sample_envs:Line", episode_length=4), tmp_path / "run")
    with pytest.raises(UsageError, match=r"render_mode is None: it draws no pictures.*rgb_array"):
        video.film(run, tmp_path / "film.gif")
