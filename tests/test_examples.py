"""Examples that people copy: each runs (briefly), as it stands. What trains for longer than seconds is slow."""

import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {"hidden": (8,), "value_epochs": 1, "value_minibatches": 2, "epochs": 1, "min_episodes": 1}


def imported(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    example = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(example)  # type: ignore[union-attr]
    return example


def test_each_is_short():
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 60, path.name
    cells = json.loads((EXAMPLES / "first_policy.ipynb").read_text())["cells"]
    assert sum(len(cell["source"]) for cell in cells) <= 60


@pytest.mark.parametrize(("name", "actions"), [("cart_pole_left", "Discrete"), ("half_cheetah_speed", "Box")])
@pytest.mark.slow
def test_training_goes_on_to_the_end(name, actions, tmp_path):
    example = imported(name)
    batch = 4000 if actions == "Discrete" else 10_000
    run = example.main(steps=2 * batch, out=tmp_path / "run")
    assert type(run.plan.spec.action).__name__ == actions
    frame = run.metrics()
    assert frame["steps"].tolist() == [batch, 2 * batch]
    assert frame["cost"].notna().all()
    assert (frame["episodes"] > 0).all()


@pytest.mark.parametrize(("name", "cost"), [("cart_pole_left", "right_of_centre"), ("half_cheetah_speed", "too_fast")])
def test_costs_by_import_path_from_the_folder_of_the_examples(name, cost, monkeypatch):
    """As the comment at the top of each example says."""
    from cppo.envs import from_gymnasium

    monkeypatch.chdir(EXAMPLES)
    make = {"cart_pole_left": "CartPole-v1", "half_cheetah_speed": "HalfCheetah-v5"}[name]
    env = from_gymnasium(make, cost=f"{name}:{cost}", num_envs=2)
    env.reset(seed=0)
    action = 1 if name == "cart_pole_left" else [0.1] * 6
    step = env.step([action, action])
    assert set(step.cost.ravel()) <= {0.0, 1.0}
    assert f"{make} --cost {name}:{cost}" in (EXAMPLES / f"{name}.py").read_text()


def test_the_courier_pays_for_speed_and_for_mud():
    courier = imported("two_costs").Courier()
    courier.reset(seed=0)
    paid = []
    for action in ([0.4, 0.0], [0.0, -1.0], [0.0, -1.0], *[[0.0, -1.0]] * 6, [0.1, 0.0]):
        *_, info = courier.step(np.asarray(action, np.float32))
        paid.append((info["speed"], info["mud"]))
    assert paid[0] == (0.0, 0.0) and paid[1] == (1.0, 0.0) and paid[-1] == (0.0, 1.0)


def test_the_lamp_tells_what_a_push_earns_and_costs():
    lights = imported("image_task").Lights()
    picture, _ = lights.reset(seed=0)
    colours = set()
    for _ in range(20):
        _, column, colour = np.argwhere(picture)[0]
        picture, reward, *_, info = lights.step([1.0])
        assert reward == (-1.0 if column < 6 else 1.0)
        assert info["cost"] == (1.0 if colour == 0 and reward > 0 else 0.0)
        colours.add(colour)
    assert colours == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "columns"), [("two_costs", ["cost.speed", "cost.mud"]), ("image_task", ["cost"])])
def test_an_environment_of_ones_own_trains(name, columns, tmp_path):
    sizes = {"batch_size": 200, "num_envs": 2}
    frame = imported(name).main(steps=400, out=tmp_path / "run", **SMALL | sizes).metrics()
    assert len(frame) == 2 and frame[columns].notna().all(axis=None)
    assert name != "two_costs" or frame["task.distance"].notna().all()


@pytest.mark.slow
def test_fine_tuning_under_a_tighter_limit(tmp_path):
    less = {name: value for name, value in SMALL.items() if name != "hidden"}
    sizes = {"batch_size": 100, "num_envs": 2, "reuse": 1}
    run, before, _ = imported("tighter_limit").main(steps=200, out=tmp_path / "run", episodes=10, **less | sizes)
    assert run.plan.cost_limits == {"cost": 3.0} and run.plan.init_from == "pretrained:PointCircle"
    assert before[0] > 50 and run.summary["best"]


def test_a_sweep_of_limits_ends_with_its_figure(tmp_path):
    sizes = {"batch_size": 200, "num_envs": 20}
    main = imported("limit_sweep").main
    (figure,) = main(200, tmp_path / "limits", (1.0, 2.0, 4.0), "ProbeBox", 1, **SMALL | sizes)
    assert figure.name == "limits-ProbeBox.png" and figure.stat().st_size > 10_000


def test_a_control_loop_keeps_its_rate_without_jax(tmp_path):
    pytest.importorskip("onnxruntime")
    import cppo
    from cppo.policies.export import export

    model = export(cppo.load("pretrained:PointCircle"), "onnx", tmp_path / "circle.onnx")
    example = imported("control_loop")
    assert "jax" not in (EXAMPLES / "control_loop.py").read_text().split('"""')[2]
    late, seen = example.main(str(model), hertz=100.0, steps=20)
    assert late <= 20 and seen.shape == (9,) and np.any(seen[:2])


@pytest.mark.slow
def test_the_notebook_trains_plots_and_watches(tmp_path, monkeypatch):
    """Its cells in order, as a kernel runs them; the display itself is not needed for that."""
    shown = []
    display = types.SimpleNamespace(Image=lambda filename: shown.append(Path(filename)))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(tmp_path)
    cells = json.loads((EXAMPLES / "first_policy.ipynb").read_text())["cells"]
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            text = "".join(cell["source"]).replace("steps = 60_000", "steps = 1_000")
            text = text.replace("episodes=100", "episodes=4")
            exec(compile(text, cell["id"], "exec"), names)
    assert names["run"].summary["steps"] == 1_000
    made = {path.name for path in (tmp_path / "runs" / "notebook").iterdir()}
    assert {"curves.png", "mine.gif", "pretrained.gif"} <= made
    assert shown and shown[0].stat().st_size > 1_000
