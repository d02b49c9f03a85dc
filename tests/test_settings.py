"""Settings: what a person may type, and what is refused."""

import dataclasses

import jax
import pytest

from cppo import algos, presets
from cppo.algos.cppo import CPPOSettings
from cppo.algos.on_policy import OnPolicy
from cppo.settings import describe, identity, parse_assignments, replace
from cppo.types import UsageError


def test_text_is_read_as_the_field_s_type():
    changed = replace(
        CPPOSettings(), {"kl": "1e-2", "epochs": "7", "recovery": "false", "hidden": "(32, 32)", "cost_limit": "3"}
    )
    assert (changed.kl, changed.epochs, changed.recovery) == (0.01, 7, False)
    assert (changed.hidden, changed.cost_limit) == ((32, 32), (3.0,))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recovry": "false"}, "Did you mean 'recovery'"),
        ({"kl": "-1"}, "kl is -1.0; it must be above 0"),
        ({"kl": "nan"}, "kl is nan"),
        ({"epochs": "2.5"}, "epochs is '2.5'; it must be a int"),
        ({"recovery": "maybe"}, "recovery is 'maybe'"),
        ({"activation": "sine"}, "one of 'tanh'"),
        ({"cost_limit": "-2"}, "at least 0"),
        ({"switch": "1.5"}, "at most 1"),
    ],
)
def test_wrong_values_are_explained(changes, words):
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        replace(CPPOSettings(), changes)


def test_shared_settings_are_checked_on_their_own():
    with pytest.raises(UsageError, match="discount is"):
        OnPolicy(discount=1.5)


def test_assignments_need_an_equals_sign():
    assert parse_assignments(["kl=0.01", "hidden=(32, 32)"]) == {"kl": "0.01", "hidden": "(32, 32)"}
    with pytest.raises(UsageError, match="name=value"):
        parse_assignments(["kl"])


def test_numbers_are_leaves_and_structure_is_not():
    leaves = jax.tree.leaves(replace(CPPOSettings(), {"cost_limit": (5.0,)}))
    assert 5.0 in leaves
    assert all(isinstance(leaf, float) for leaf in leaves)
    same = jax.tree.structure(CPPOSettings()) == jax.tree.structure(replace(CPPOSettings(), {"kl": 0.5}))
    assert same
    assert jax.tree.structure(CPPOSettings()) != jax.tree.structure(replace(CPPOSettings(), {"epochs": 3}))


@pytest.mark.parametrize("name", algos.TABLE)
def test_every_setting_of_every_algorithm_is_documented(name):
    rows = describe(algos.TABLE[name].settings)
    assert len(rows) == len(dataclasses.fields(algos.TABLE[name].settings))
    assert all(len(doc) > 10 for _, _, doc in rows)


@pytest.mark.parametrize("env", presets.ON_GPU)
def test_a_run_has_more_worlds_on_a_gpu_and_the_same_settings_otherwise(env):
    here, gpu = (presets.settings("cppo", env, backend) for backend in ("threads", "warp"))
    assert gpu["num_envs"] > here["num_envs"]
    assert CPPOSettings().batch_size % gpu["num_envs"] == 0
    assert {**here, "num_envs": 0} == {**gpu, "num_envs": 0}
    assert presets.settings("cvpo", env, "warp") == presets.settings("cvpo", env)


def test_a_setting_of_a_later_version_tells_settings_apart_only_once_it_is_used():
    before, used = CPPOSettings(), CPPOSettings(target_decay=(0.9,))
    assert "target_decay" not in identity(before) and identity(before)["kl"] == before.kl
    assert identity(used) == identity(before) | {"target_decay": (0.9,)}
