"""Environments that nobody here wrote, with a cost of one line: each example runs (briefly), as it stands."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(("name", "actions"), [("cart_pole_left", "Discrete"), ("half_cheetah_speed", "Box")])
@pytest.mark.slow
def test_training_goes_on_to_the_end(name, actions, tmp_path):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    example = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(example)  # type: ignore[union-attr]
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
