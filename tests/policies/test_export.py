"""Policies taken elsewhere give the actions that they gave here."""

import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import cppo
from cppo import algos
from cppo.commands.cli import main
from cppo.networks import networks_for
from cppo.policies.export import hub, onnx_file, stablehlo
from cppo.runs.run import Policy
from cppo.settings import replace
from cppo.types import Box, Discrete, EnvSpec, MultiDiscrete, UsageError

EXAMPLE = Path(__file__).parents[2] / "examples" / "run_onnx.py"
BOX = Box((-1.0, 0.0), (3.0, 0.5))


def policy(action=BOX, obs_shape=(5,), algo="ppo", **changes):
    """A policy with random parameters and a normaliser that has seen something."""
    spec = EnvSpec("Sample", obs_shape, action, ("a", "b"), (1.0, 1.0), 50)
    settings = replace(algos.get(algo).settings(), {"cost_limit": (1.0, 1.0)} | changes)
    networks = networks_for(spec, settings)
    shapes = jax.eval_shape(lambda: algos.get(algo).init(networks, settings, jax.random.PRNGKey(1)))._replace(
        extra=None
    )
    rng = np.random.default_rng(0)
    agent = jax.tree.map(lambda x: (0.3 * rng.standard_normal(x.shape)).astype(np.float32), shapes)
    spread = 10 * rng.uniform(0, 9, obs_shape).astype(np.float32)
    seen = agent.normaliser._replace(count=np.float32(10), sum_squares=spread)
    return Policy(networks, settings, agent._replace(normaliser=seen))


@pytest.mark.parametrize(
    "made",
    [
        {},
        {"activation": "silu", "hidden": (16, 8, 4)},
        {"activation": "elu", "normalise_obs": False, "ignore": (1,), "critic_clock": True, "hold": 5},
        {"action": Discrete(4), "activation": "relu"},
        {"action": MultiDiscrete((2, 5, 3))},
        {"obs_shape": (12, 9, 2)},
        {"obs_shape": (3, 10, 10), "action": Discrete(3)},
    ],
    ids=str,
)
def test_onnx_gives_our_outputs(made, tmp_path):
    ours = policy(**made)
    path = onnx_file.write(ours, tmp_path / "policy.onnx", cost_critic=True)
    assert 0.0 <= onnx_file.check(ours, path, cost_critic=True) <= 1e-5
    session = onnxruntime.InferenceSession(path.read_bytes())
    assert session.get_outputs()[-1].name == "cost_value"
    assert session.get_modelmeta().custom_metadata_map["hold"] == str(made.get("hold", 1))
    obs = np.random.default_rng(1).standard_normal((3, *ours.spec.obs_shape)).astype(np.float32)
    fed = {"obs": obs} | ({"age": np.zeros(3, np.float32)} if made.get("critic_clock") else {})
    action, sampled = session.run(["action", "sampled_action"], fed)
    np.testing.assert_allclose(action, ours.act(obs), atol=1e-5)
    np.testing.assert_array_equal(action, sampled)  # without noise


def test_encoders_without_onnx_form_are_refused(tmp_path):
    with pytest.raises(UsageError, match="--format stablehlo"):
        onnx_file.write(policy(obs_shape=(4, 5), encoder="gru"), tmp_path / "policy.onnx")


def test_a_wrong_file_is_noticed(tmp_path):
    ours, path = policy(), tmp_path / "policy.onnx"
    onnx_file.write(ours, path)
    model = onnx.load(path)
    bias = next(array for array in model.graph.initializer if array.name == "policy_bias_0")
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + 1e-3, bias.name))
    onnx.save(model, path)
    with pytest.raises(RuntimeError, match="differs"):
        onnx_file.check(ours, path)


def test_the_example_runs_without_cppo(tmp_path):
    for made in ({}, {"action": Discrete(4)}):
        path = onnx_file.write(policy(**made), tmp_path / "policy.onnx")
        start = f"import sys; sys.modules['cppo'] = None; sys.argv = ['x', {str(path)!r}]; "
        code = start + f"exec(open({str(EXAMPLE)!r}).read())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "most likely" in done.stdout
        assert "sampled" in done.stdout
    assert len(EXAMPLE.read_text().splitlines()) <= 20


def test_stablehlo_gives_our_actions(tmp_path):
    ours = policy()
    path = stablehlo.write(ours, tmp_path / "policy.stablehlo")
    obs = np.random.default_rng(1).standard_normal((7, 5)).astype(np.float32)
    read = jax.export.deserialize(path.read_bytes())
    np.testing.assert_allclose(read.call(obs), ours.act(obs), atol=1e-6)
    sampled = jax.export.deserialize((tmp_path / "policy-sampled.stablehlo").read_bytes())
    seed = jax.random.PRNGKey(4)
    np.testing.assert_allclose(sampled.call(obs, seed), ours.act(obs, deterministic=False, seed=4), atol=1e-6)
    assert "stablehlo" in (tmp_path / "policy.mlir").read_text()
    stablehlo.write(policy(hold=5), tmp_path / "held.stablehlo")
    assert "held for 5 steps" in (tmp_path / "held.mlir").read_text().splitlines()[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return cppo.train("ppo", "ProbeBox", steps=800, seeds=2, out=folder, show=False, tensorboard=False)


def test_the_command_line(run, tmp_path, capsys):
    main(["export", str(run.folder), "--cost-critic", "--seed-index", "1", "--out", str(tmp_path / "p.onnx")])
    assert "p.onnx" in capsys.readouterr().out
    session = onnxruntime.InferenceSession((tmp_path / "p.onnx").read_bytes())
    (action,) = session.run(["action"], {"obs": np.ones((1, 1), np.float32)})
    np.testing.assert_allclose(action[0], run.policy(1).act(np.ones(1)), atol=1e-5)
    main(["export", str(run.folder), "--format", "stablehlo"])
    assert (run.folder / "policy.stablehlo").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--format", "tflite"), "one of onnx, stablehlo, hub"),
        (("--seed-index", "2"), "0 to 1"),
        (("--push", "me/mine"), "--format hub"),
        (("--format", "hub", "--cost-critic"), "ONNX only"),
    ],
)
def test_usage_errors(run, words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run.folder), *words])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_off_policy_critics_are_refused(tmp_path):
    with pytest.raises(UsageError, match="take actions"):
        onnx_file.write(policy(algo="cvpo"), tmp_path / "p.onnx", cost_critic=True)
    onnx_file.write(policy(algo="cvpo"), tmp_path / "p.onnx")


def test_a_hub_folder_is_a_run(run, tmp_path):
    folder = hub.write(run, tmp_path / "hub")
    names = {path.name for path in folder.iterdir()}
    assert names == {"README.md", "model.safetensors", "config.json", "metrics.jsonl", "summary.json", "versions.json"}
    loaded = cppo.load(folder)
    for seed in (0, 1):
        np.testing.assert_array_equal(loaded.policy(seed).act(np.ones(1)), run.policy(seed).act(np.ones(1)))
    text = (folder / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: cppo\n")
    assert "| seed | return | cost |" in text
    assert loaded.summary["steps"] == 800


def test_push_and_pull(run, tmp_path, monkeypatch):
    """With a stand-in for the Hub that keeps folders in memory."""
    stored = {}

    class Api:
        def create_repo(self, repository, exist_ok):
            assert exist_ok

        def upload_folder(self, repo_id, folder_path):
            stored[repo_id] = folder_path

    library = types.ModuleType("huggingface_hub")
    vars(library).update(HfApi=Api, snapshot_download=stored.__getitem__)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    main(["export", str(run.folder), "--format", "hub", "--out", str(tmp_path / "hub"), "--push", "me/probe"])
    np.testing.assert_array_equal(cppo.load("hf://me/probe").act(np.ones(1)), run.act(np.ones(1)))
