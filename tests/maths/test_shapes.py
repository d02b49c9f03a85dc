"""The tests run with every annotation of mathematics, networks, algorithms and runs checked (``conftest.py``)."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from cppo.algos import on_policy
from cppo.maths import advantages, distributions, multipliers, shares
from cppo.runs import episodes


def test_a_wrong_shape_raises():
    adv, price = jnp.zeros(5), jnp.ones(2)
    multipliers.penalised(adv, jnp.zeros((2, 5)), price)
    with pytest.raises(TypeCheckError, match="cost_adv"):
        multipliers.penalised(adv, jnp.zeros((5, 2)), price)


def test_a_wrong_kind_of_number_raises():
    signal, flags = jnp.zeros((4, 2)), jnp.zeros((4, 2), bool)
    with pytest.raises(TypeCheckError, match="terminated"):
        advantages.gae(signal, signal, signal, signal, flags, 0.9, 0.9)


def test_shapes_under_vmap_are_those_of_one_lane():
    policy = distributions.Gaussian(jnp.zeros((3, 2)), jnp.zeros((3, 2)))
    assert jax.vmap(lambda d: d.entropy())(policy).shape == (3,)
    with pytest.raises(TypeCheckError):
        policy.entropy()


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        (
            lambda: shares.normal_share(jnp.ones(2), jnp.ones(2), 0.9),
            lambda: shares.normal_share(jnp.ones(2), jnp.ones(3), 0.9),
            "limit",
        ),
        (
            lambda: episodes.lived(episodes.start(3, 1, jnp.zeros(3, int))[0], jnp.zeros((4, 3), bool)),
            lambda: episodes.lived(episodes.start(3, 1, jnp.zeros(3, int))[0], jnp.zeros((4, 3))),
            "ended",
        ),
    ],
    ids=["algos", "runs"],
)
def test_other_rooms_are_checked_too(right, wrong, words):
    right()
    with pytest.raises(TypeCheckError, match=words):
        wrong()


def test_what_is_no_networks_is_refused():
    with pytest.raises(TypeCheckError, match="networks"):
        on_policy.act(SimpleNamespace(), None, None, jnp.zeros((1, 1)), jax.random.PRNGKey(0))
