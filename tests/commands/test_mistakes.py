"""What people type wrongly: each mistake gets one line that says what to type instead, no traceback, exit status 2.

Where it is the user's own code that fails, the lines of that code follow, and nothing of ours.
"""

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from cppo.commands.cli import main

OLD = Path(__file__).parents[1] / "data" / "old"
FILES = {
    "note.txt": "a file where a folder was meant",
    "foreign/mine.txt": "somebody's folder",
    "broken.toml": "env = PointCircle",
    "typo.toml": 'enviroment = "PointCircle"',
    "table.toml": "[steps]\nnumber = 3",
    "overwrite.toml": "overwrite = true",
    "code.toml": 'env = "world:Good"\ncost_limit = [1.0]',
    "encoder.toml": '[set]\nencoder = "layers:Encoder"',
    "list.json": "[1, 2]",
    "study.toml": 'title = "Two"\nalgos = ["ppo"]',
    "layers.py": "class Raises:\n    def __init__(self, obs_shape, *, key):\n        raise ValueError('no idea')\n",
    "rows.py": "number = 3\n",
    "syntax.py": "def (\n",
    "needs.py": "import something_that_nobody_has\n",
    "world.py": """
import numpy as np

class Box:
    dtype = np.dtype("float32")
    def __init__(self, low, high, shape):
        self.low, self.high, self.shape = np.full(shape, low), np.full(shape, high), shape
    def sample(self):
        return np.zeros(self.shape, np.float32)

class Good:
    observation_space, action_space = Box(-1, 1, (2,)), Box(-1, 1, (1,))
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), self.reward(), False, False, {"cost": 1.0}
    def reward(self):
        return 1.0

class Raises(Good):
    def reward(self):
        return {}["speed"]

class Wordy(Good):
    def reward(self):
        return "much"

class Three(Good):
    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False

class NoSpaces:
    pass

class Needs(Good):
    def __init__(self, size):
        pass

NUMBER = 3

def word(obs, action, next_obs, info):
    return "high"

def key(obs, action, next_obs, info):
    return info["velocity"]
""",
}
LIMIT = "--cost-limit 1"
CODE = "train --cost-limit 1 --episode-length 5 --env"  # an environment of somebody's own
GO_ON = "train --resume runs/stopped"
MISTAKES = [
    # Words
    ("", "name a command: train,"),
    ("trian", "Did you mean train?"),
    ("--steps 100", "comes before any command"),
    ("train --stpes 100", "Did you mean --steps?"),
    ("train --no-overwrit", "Did you mean --overwrite?"),
    ("train PointCircle", "cannot use 'PointCircle'; options begin with --"),
    ("train --kl 0.01", "It is a setting: --set kl=VALUE"),
    ("train --seeds", "--seeds"),
    ("eval", "Folder of the run"),
    ("eval a b", "cannot use 'b'"),
    ("bench foo", "invalid choice 'foo'"),
    ("envs PointCircle", "cannot use 'PointCircle'"),
    # Numbers
    ("train --steps abc", "write a whole number, for example --steps 200000, 2e5, 200k or 10m"),
    ("train --steps 1.5", "write a whole number"),
    ("train --steps 10x", "write a whole number"),
    ("train --steps=0", "steps is 0; it must be at least 1"),
    ("train --steps -5", "steps is -5"),
    ("train --seeds zero", "--seeds 'zero': write a whole number"),
    ("train --seeds 0", "at least one seed"),
    ("train --seed -1", "whole numbers from 0"),
    ("train --cost-limit x", "--cost-limit 'x': write a number"),
    ("train --cost-limit -1", "at least 0"),
    ("train --cost-limit nan", "cost_limit"),
    ("train --cost-limit 1 2", "2 cost limits given; PointCircle has 1 constraints"),
    ("train --env ProbeTwo --cost-limit 1", "for example --cost-limit"),
    ("train --env-workers two", "write a whole number"),
    # Names
    ("train --env PointCircel", "Did you mean 'PointCircle'?"),
    ("train --env point_goal_1", "unknown environment"),
    ("train --algo cpppo", "Did you mean 'cppo'?"),
    ("train --algo ppo-lag", "Did you mean 'ppo_lag'?"),
    ("train --backend tpu", "Backends: auto, jax"),
    ("train --backend warp", "PointCircle has no backend 'warp'"),
    ("train --env AntCircle --backend jax", "AntCircle has no backend 'jax'"),
    ("train --logger wand", "wandb"),
    # Settings
    ("train --set kl", "write name=value"),
    ("train --set colour=red", "unknown setting 'colour'"),
    ("train --set polcy_rate=1e-3", "Did you mean 'policy_rate'?"),
    ("train --set kl=-1", "kl is -1"),
    ("train --set kl=abc", "it must be a float"),
    ("train --set recovery=maybe", "it must be a bool"),
    ("train --set hidden=wide", "hidden"),
    ("train --set batch_size=999", "is not a multiple of num_envs"),
    ("train --set num_envs=0", "num_envs"),
    ("train --set encoder=cn", "one of auto, mlp, cnn, gru"),
    ("train --set encoder=cnn", "it takes (height, width, n)"),
    ("train --set ignore=99", "the last entry of PointCircle"),
    # Places
    ("train --out note.txt", "note.txt"),
    (
        "train --out note.txt/run",
        "note.txt/run: Not a directory, so no run can be there. Choose another --out",
    ),
    ("train --out /proc/cppo", "/proc/cppo"),
    ("train --out foreign", "is not a run of cppo; choose another --out"),
    ("train --out runs/stopped", "Go on with --resume runs/stopped, or add --overwrite"),
    ("train --init-from nothing", "nothing, which is no run"),
    # Going on
    (f"{GO_ON} --set kl=0.1 --cost-limit 1 --env CarGoal1 --algo cpo", "ignore --algo, --cost-limit, --env, --set"),
    (f"{GO_ON} --seeds 3", "--config runs/stopped/config.json --init-from runs/stopped --seeds 3"),
    (f"{GO_ON} --seed=0", "would ignore --seed"),
    (f"{GO_ON} --out elsewhere", "would ignore --out"),
    (f"{GO_ON} --overwrite", "would ignore --overwrite"),
    (f"{GO_ON} --backend jax", "would ignore --backend"),
    (f"{GO_ON} --init-from runs/finished", "would ignore --init-from"),
    (f"{GO_ON} --cost world:word", "would ignore --cost"),
    (f"{GO_ON} --config typo.toml", "unknown entry"),
    (f"{GO_ON} --checkpoint nope", "has no checkpoint 'nope'. There are: last, checkpoint-"),
    (f"{GO_ON} --checkpoint best", "--init-from runs/stopped"),
    ("train --resume nothing", "nothing"),
    ("train --checkpoint last", "--checkpoint goes with --resume RUN"),
    # Files of options
    ("train --config nothing.toml", "there is no file nothing.toml"),
    ("train --config broken.toml", "is no TOML file"),
    ("train --config typo.toml", "Did you mean"),
    ("train --config table.toml", "steps is a table"),
    ("train --config overwrite.toml", "type --overwrite"),
    ("train --config code.toml", "names code to run: env 'world:Good'"),
    ("train --config encoder.toml", "names code to run: encoder 'layers:Encoder'"),
    ("train --config runs/gymnasium", "names code to run"),
    ("train --config list.json", "is no config.json of a run"),
    # Somebody's own environment and cost
    ("train --cost-keys a", "PointCircle is no Gymnasium environment"),
    ("train --env SafetyPointGoal1-v0 --cost-keys a", "safety_gymnasium:SafetyPointGoal1-v0"),
    (f"train --env HalfCheetah-v9 {LIMIT}", "v5"),
    (f"train --env CartPole-v1 {LIMIT}", "or give a function (--cost module:function)"),
    (f"{CODE} nomodule:World", "there is no module 'nomodule'; install it, or go to the folder with nomodule.py"),
    (f"{CODE} world:Goood", "Did you mean 'Good'?"),
    (f"{CODE} world:NUMBER", "is no class and no function that makes an environment"),
    (f"{CODE} world:NoSpaces", "without observation_space, no Gymnasium environment"),
    (f"{CODE} world:Needs", "missing 1 required positional argument: 'size'"),
    (f"{CODE} world:Three", "step returns 3 values; it must return"),
    (f"{CODE} world:Raises", "KeyError: 'speed' (world.py, line 22). Mend it"),
    (f"{CODE} world:Wordy", "much"),
    (f"{CODE} syntax:World", "invalid syntax (syntax.py, line 1)"),
    (f"{CODE} needs:World", "No module named 'something_that_nobody_has' (needs.py, line 1)"),
    ("train --env world:Good", "no cost limit of its own; give one"),
    (f"{CODE} world:Good --cost-keys speed", "info has no speed (it has: cost)"),
    (f"{CODE} world:Good --cost world:absent", "world has no 'absent'"),
    (f"{CODE} world:Good --cost nomodule:f", "there is no module 'nomodule'"),
    (f"{CODE} world:Good --cost world", "write module:function"),
    (f"{CODE} world:Good --cost world:NUMBER", "it must be a function of (obs, action, next_obs, info)"),
    (f"{CODE} world:Good --cost world:word", "high"),
    (f"{CODE} world:Good --cost world:key", "KeyError: 'velocity' (world.py, line 45). Mend it"),
    (f"{CODE} world:Good --cost world:key --cost-keys cost", "not both"),
    (f"{CODE} world:Good --env-python /no/python", "cannot be run"),
    (f"{CODE} world:Good --env-workers 0", "env_workers is 0"),
    (f"{CODE} world:Good --env-timeout 0", "env_timeout is 0"),
    (f"train --env world:Good {LIMIT} --episode-length 0", "episode_length is 0"),
    # Somebody's own algorithm and network
    ("train --algo nomodule:ROW", "there is no module 'nomodule'"),
    ("train --algo rows:ROW", "rows has no 'ROW'"),
    ("train --algo rows:number", "it must be a cppo.algos.Algorithm"),
    ("train --algo syntax:ROW", "invalid syntax (syntax.py, line 1)"),
    ("train --algo needs:ROW", "(needs.py, line 1). Install what it needs"),
    ("train --set encoder=nomodule:Encoder", "there is no module 'nomodule'"),
    ("train --set encoder=layers:Raises", "ValueError: no idea (layers.py, line 3). It is made as Encoder("),
    # What is done with policies
    ("eval nothing", "nothing"),
    ("eval runs/damaged", "add --checkpoint checkpoint-00000002.safetensors"),
    ("eval runs/stopped --checkpoint nope", "has no checkpoint 'nope'. There are: last, checkpoint-"),
    ("eval runs/stopped --checkpoint ../config.json", "has no checkpoint"),
    ("eval runs/stopped --checkpoint best", "keeps no best policy"),
    ("eval runs/stopped --episodes 0", "episodes is 0"),
    ("eval runs/stopped --num-envs 0", "num_envs is 0"),
    ("eval runs/stopped --env PointCircle", "obs_shape"),
    ("eval runs/stopped --cost world:word", "go with --env NAME"),
    ("certify runs/stopped --episodes 1", "at least 2"),
    ("certify runs/stopped --confidence 2", "between 0 and 1"),
    ("certify runs/stopped --trained-seed 9", "seed 9 is not in this run"),
    ("certify runs/stopped --largest-step-cost 0", "above 0"),
    ("video runs/stopped --out film.mov", "write an .mp4 or a .gif"),
    ("video runs/stopped --seed-index 9", "0 to"),
    ("video runs/stopped --renderer vulkan", "use one of auto, mujoco, top"),
    ("video runs/stopped --out film.gif", "there is no picture of Probe"),
    ("export runs/stopped --format tflite", "it must be one of onnx"),
    ("export runs/stopped --push a/b", "--push needs --format hub"),
    ("export runs/stopped --seed-index -1", "this run has 0 to"),
    ("export runs/stopped --cost-critic --format stablehlo", "use --format onnx"),
    ("plot", "name at least one run"),
    ("plot nothing", "nothing"),
    ("plot runs/stopped --out curves.docx", "end its name in .png"),
    ("report nothing", "holds no study"),
    ("report runs/finished --steps 0", "it must be at least 1"),
    ("watch nothing", "is no folder"),
    # Many runs
    ("algos nothing", "unknown algorithm"),
    ("compare --algos nothing", "unknown algorithm"),
    ("compare --set kl=1", "kl"),
    ("study papers", "unknown study 'papers'"),
    ("study nothing.toml", "there is no study nothing.toml"),
    ("study study.toml --list", "study.toml"),
    ("study paper --only PointGoal9", "has no environment 'PointGoal9'"),
    ("study paper --budget soon", "--budget 'soon'"),
    ("tune", "--set-space"),
    ("tune --set-space kl", "kl"),
    ("bench env Nope", "unknown environment"),
    ("bench env ProbeBox --worlds 0", "worlds is 0"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("mistakes")
    shutil.copytree(OLD, place / "runs")
    shutil.copytree(place / "runs" / "stopped", place / "runs" / "damaged")
    newest = sorted((place / "runs" / "damaged" / "checkpoints").glob("checkpoint-*"))[-1]
    newest.write_bytes(newest.read_bytes()[:-100])
    for name, content in FILES.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(content)
    return place


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    for name in FILES:
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    return folder


def test_there_are_a_hundred():
    assert len({typed for typed, _ in MISTAKES}) == len(MISTAKES) >= 100


@pytest.mark.parametrize(("typed", "said"), MISTAKES, ids=[typed or "nothing" for typed, _ in MISTAKES])
def test_a_mistake_gets_one_line(typed, said, here, capsys):
    before = {path for path in here.iterdir() if path.name not in ("__pycache__", "runs")}
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(typed))
    line, *below = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2, line
    assert line.startswith("cppo: ") and said in line
    assert all(other.startswith("    ") or other.startswith(f'  File "{here}') for other in below)
    assert {path for path in here.iterdir() if path.name not in ("__pycache__", "runs")} == before


def test_debug_shows_all(here, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--debug", "--set", "encoder=layers:Raises"])
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said and "encoders.py" in said and "layers.py" in said


def test_what_nobody_foresaw_is_one_line_too(here, capsys, monkeypatch):
    monkeypatch.setattr("cppo.runs.training.make_plan", None)
    with pytest.raises(SystemExit) as stop:
        main(["train"])
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 1 and "TypeError: 'NoneType' object is not callable" in line and "--debug" in line


def test_a_run_s_own_config_names_its_variation(here, capsys):
    """The line that a refused --resume offers is a command that is understood."""
    with pytest.raises(SystemExit):
        main(["train", "--resume", "runs/stopped", "--set", "switch=0.5"])
    offered = capsys.readouterr().err.partition("cppo train ")[2]
    from cppo.commands.cli import parse

    command = parse(["train", *shlex.split(offered)])
    saved = json.loads(Path("runs/stopped/config.json").read_text())
    assert (command.env, command.algo, command.steps) == (saved["env"], saved["algo"], saved["steps"])
    assert command.set[-1] == "switch=0.5" and command.init_from == Path("runs/stopped")
