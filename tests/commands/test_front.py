"""The front: what starts at once, what names the version, what a pipe gets, and files of options."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cppo
from cppo.commands import cli, words
from cppo.commands.train import Train
from cppo.errors import UsageError

OLD = Path(__file__).parents[1] / "data" / "old"
LIGHT = """
import sys
from cppo.commands import cli
try:
    cli.main(sys.argv[1:])
except SystemExit:
    pass
heavy = {"jax", "numpy", "matplotlib", "pandas"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize("typed", [["--help"], ["train", "--help"], ["--version"], ["watch", "."]])
def test_the_command_line_waits_for_no_jax(typed, tmp_path):
    done = subprocess.run([sys.executable, "-c", LIGHT, *typed], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cppo" in done.stdout or "Runs in" in done.stdout


def test_everything_that_the_package_offers_is_found():
    assert set(cppo._HOMES) | {"envs", "maths"} == set(cppo.__all__)
    for name in cppo.__all__:
        assert getattr(cppo, name) is not None and name in dir(cppo)
    assert cppo.algos.get("cppo").name == "cppo", "rooms are found, too"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cppo.nothing  # noqa: B018


def test_the_version(capsys):
    cli.main(["--version"])
    assert capsys.readouterr().out.startswith("cppo 0.")


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_window_shows_names_that_can_be_typed(columns, capsys, monkeypatch):
    from cppo import algos
    from cppo.commands import algos as algos_command
    from cppo.commands import envs as envs_command
    from cppo.envs.registry import TABLE

    for command in (envs_command, algos_command):  # a console of before may have another window's width
        monkeypatch.setattr(command, "console", cli.Console(width=columns))
    for command, names in (("envs", TABLE), ("algos", algos.TABLE)):
        cli.main([command])
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= columns and not any("…" in line for line in lines)
        assert {line.split()[0] for line in lines if line.strip()} >= set(names)


def test_a_pipe_that_closes_ends_watch_quietly():
    command = f"{sys.executable} -m cppo watch {OLD} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert done.stdout.count("\n") == 1 and done.stderr == ""


@pytest.mark.parametrize("text", ["20000", "2e4", "20k", "20,000", "20_000", "0.02m"])
def test_numbers_of_steps(text):
    assert cli.parse(["train", "--steps", text]).steps == 20_000
    assert cli.parse(["eval", "x", f"--episodes={text}"]).episodes == 20_000


def parsed(*typed) -> Train:
    return cli.parse(["train", *map(str, typed)])


def test_options_from_a_toml_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'env = "ProbeBox"\nsteps = "1.2k"\nseeds = 2\ncost-limit = [2.5]\ntensorboard = false\n'
        "[settings]\nhidden = [8, 8]\nrecovery = false\nkl = 0.02\n"
    )
    found = parsed("--config", path, "--seeds", 3, "--set", "kl=0.03")
    assert (found.env, found.steps, found.seeds, found.cost_limit) == ("ProbeBox", 1200, 3, (2.5,))
    assert not found.tensorboard and found.config == path
    assert found.set == ["hidden=[8, 8]", "recovery=False", "kl=0.02", "kl=0.03"], "the typed one comes last and wins"


def test_the_config_of_a_run_makes_the_same_plan(tmp_path):
    """Every old run but the one whose environment is somebody's code; another method keeps nothing of the settings."""
    from cppo.runs.plan import load_plan, make_plan
    from cppo.settings import parse_assignments

    for name in ("finished", "replay", "stopped"):
        found, saved = parsed("--config", OLD / name), load_plan(OLD / name)
        again = make_plan(
            found.algo,
            found.env,
            backend=found.backend,
            seeds=found.seeds,
            seed=found.seed,
            steps=found.steps,
            cost_limit=found.cost_limit,
            settings=parse_assignments(found.set),
        )
        assert again == saved
    evaluated = json.loads((OLD / "finished" / "config.json").read_text()) | {"eval_every": 80, "eval_episodes": 5}
    (tmp_path / "config.json").write_text(json.dumps(evaluated))
    assert (parsed("--config", tmp_path).eval_every, parsed("--config", tmp_path).eval_episodes) == (80, 5)
    other = parsed("--config", OLD / "finished", "--algo", "ppo")
    assert (other.algo, other.set, other.cost_limit) == ("ppo", [], None)
    assert parsed("--config", OLD / "finished", "--algo", load_plan(OLD / "finished").algo).set


def test_a_file_runs_no_code_unless_it_is_trusted(tmp_path):
    path = tmp_path / "config.json"
    saved = json.loads((OLD / "gymnasium" / "config.json").read_text())
    path.write_text(json.dumps(saved))
    with pytest.raises(UsageError, match=r"names code to run: .*--trust"):
        parsed("--config", path)
    assert parsed("--config", path, "--trust").env == saved["env"]
    assert parsed("--config", path, "--env", "ProbeBox").env == "ProbeBox", "what is typed instead is the user's word"
    sneaky = tmp_path / "sneaky.toml"
    sneaky.write_text('env = "a:B"\ntrust = true')
    with pytest.raises(UsageError, match="type --trust"):
        parsed("--config", sneaky)


def test_every_training_command_says_how_to_repeat_it(tmp_path, monkeypatch, capsys):
    class Done:
        def __call__(self):
            pass

    monkeypatch.setattr(cli, "parse", lambda typed: Done())
    cli.main(["study", "my study.toml", "--seeds", "2"])
    assert "Repeat it with: cppo study 'my study.toml' --seeds 2" in capsys.readouterr().out
    for name in sorted(
        cli.COMMANDS.keys() - {"train", "envs", "algos", "watch", "check"}
    ):  # a run says it by its config
        cli.main([name, "runs/first"])
        assert f"Repeat it with: cppo {name} runs/first" in capsys.readouterr().out
    monkeypatch.setattr(Done, "json", True, raising=False)
    cli.main(["eval", "runs/first", "--json"])
    assert capsys.readouterr().out == "", "what a program reads is JSON alone"


def test_words_that_belong_to_an_option_go_with_it():
    typed = ["--seeds", "3", "--resume", "run", "--set", "a=1", "--resume=run"]
    assert words.without("--resume", typed) == ["--seeds", "3", "--set", "a=1"]
    assert words.given(["--no-tensorboard", "--cost-limit", "-1"]) == {"tensorboard", "cost_limit"}
