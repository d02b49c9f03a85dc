"""Networks from settings: widths, encoders, a user's own module."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import worlds

import cppo
from cppo import algos, envs
from cppo.envs.batched import Transition
from cppo.envs.history import History
from cppo.maths.distributions import IMPOSSIBLE, Categorical, FactorisedCategorical
from cppo.networks import encoders, networks_for
from cppo.settings import replace
from cppo.types import Batch, Box, Discrete, EnvSpec, Episodes, MultiDiscrete, UsageError


def networks(obs_shape=(3,), action=Box((-1.0,), (1.0,)), algo="ppo", **changes):  # noqa: B008 (a frozen value)
    spec = EnvSpec("Sample", obs_shape, action, ("cost",), (1.0,), 10)
    settings = replace(algos.get(algo).settings(), changes)
    return networks_for(spec, settings), settings


def test_widths_may_differ():
    net, _ = networks(hidden=(7, 3))
    params = net.init_policy(jax.random.PRNGKey(0), 0.5)
    assert [layer.weight.shape for layer in params.body.layers] == [(7, 3), (3, 7), (1, 3)]
    assert net.policy(params, jnp.ones(3)).mean.shape == (1,)


@pytest.mark.parametrize(
    ("algo", "obs_shape"),
    [
        ("cppo", (10, 9, 2)),
        ("trpo", (3, 12, 12)),
        ("cvpo", (10, 9, 2)),
        pytest.param("cppo", (3, 12, 12), marks=pytest.mark.slow),
        pytest.param("cvpo", (3, 12, 12), marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_method_takes_pictures(algo, obs_shape):
    changes = {"replay_size": 40, "value_steps": 2, "states": 4} if algo == "cvpo" else {"critic_clock": True}
    limits = {"cost_limit": (1.0,), "batch_size": 40, "num_envs": 4}
    net, settings = networks(obs_shape, Discrete(3), algo, **limits, **changes)
    method, key = algos.get(algo), jax.random.PRNGKey(0)

    def one_update():
        agent = method.init(net, settings, key)
        obs = jnp.zeros((10, 4, *obs_shape))
        action = jax.vmap(lambda o: method.act(net, settings, agent, o, key))(obs)
        number, flag = jnp.zeros((10, 4)), jnp.zeros((10, 4), bool)
        means = Episodes(jnp.zeros(()), jnp.zeros(1), jnp.zeros(1), jnp.ones(()), jnp.ones((), int), jnp.ones((), int))
        batch = Batch(obs, action, obs, number, number[..., None], flag, flag, number, means)
        return agent, method.update(net, settings, agent, batch, key)[0]

    before, after = jax.eval_shape(one_update)  # traced, not run: shapes are what could go wrong
    assert len(before.policy.body.encoder.layers) == 2
    assert jax.tree.map(lambda x: x.shape, before) == jax.tree.map(lambda x: x.shape, after)


def test_a_module_of_one_s_own():
    net, _ = networks(encoder="sample_encoders:Squares")
    params = net.init_policy(jax.random.PRNGKey(0), 0.5)
    assert params.body.layers[0].weight.shape == (64, 6)
    assert params.body.encoder.scale.shape == (3,)  # it is trained along
    slope = jax.grad(lambda p: net.policy(p, jnp.ones(3)).mean.sum())(params)
    assert np.any(np.asarray(slope.body.encoder.scale) != 0)
    value = net.init_value(jax.random.PRNGKey(1))
    assert net.value(value, jnp.ones(3)).shape == ()


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        ("lstm", "one of auto, mlp, cnn, gru"),
        ("cnn", r"takes \(height, width, n\)"),
        ("no_module_here:Thing", "cannot be imported"),
        ("sample_encoders:Matrix", "must return one vector"),
        ("math:sqrt", "cannot be used"),
    ],
)
def test_usage_errors(encoder, words):
    with pytest.raises(UsageError, match=words):
        networks(encoder=encoder)


@pytest.mark.parametrize("shape", [(24, 24, 3), (7, 10, 2), (3, 12, 13), (1, 1, 1)])
def test_the_products_are_the_convolutions_of_the_layers(shape):
    """The weights are those of Equinox's layers, so that saved policies stay what they were."""
    cnn = encoders.CNN(shape, key=jax.random.PRNGKey(0))
    picture = jax.random.uniform(jax.random.PRNGKey(1), shape)
    x = picture if cnn.channels_first else jnp.moveaxis(picture, -1, 0)
    for layer in cnn.layers:
        x = jax.nn.relu(layer(x))
    np.testing.assert_allclose(cnn(picture), x.reshape(-1), rtol=1e-5, atol=1e-6)


def test_lanes_of_pictures_need_no_convolution_of_the_compiler():
    """Which would take minutes there: a batch of weights makes it one of grouped channels."""
    make = jax.vmap(lambda key: encoders.CNN((24, 24, 3), key=key))
    slope = jax.vmap(jax.grad(lambda cnn, picture: cnn(picture).sum()))
    cnns, pictures = make(jax.random.split(jax.random.PRNGKey(0), 2)), jnp.ones((2, 24, 24, 3))
    assert "conv_general_dilated" not in str(jax.make_jaxpr(slope)(cnns, pictures))


def test_pictures_of_any_size():
    for shape in ((2, 3, 1), (84, 84, 4), (4, 84, 84)):
        assert encoders.features(encoders.CNN, shape) > 0
    key, picture = jax.random.PRNGKey(0), jax.random.normal(jax.random.PRNGKey(1), (6, 7, 3))
    last, first = encoders.CNN((6, 7, 3), key=key), encoders.CNN((3, 6, 7), key=key)
    np.testing.assert_allclose(last(picture), first(jnp.moveaxis(picture, -1, 0)), rtol=1e-6)


def test_several_choices_are_a_product():
    """Against the categorical over all pairs."""
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.normal(size=n) for n in (2, 3, 2, 3))
    pad = [IMPOSSIBLE]
    both = FactorisedCategorical(jnp.asarray([[*a, *pad], b]))
    other = FactorisedCategorical(jnp.asarray([[*c, *pad], d]))
    pairs, other_pairs = (Categorical(jnp.asarray((x[:, None] + y).ravel())) for x, y in ((a, b), (c, d)))
    np.testing.assert_allclose(both.kl(other), pairs.kl(other_pairs), rtol=1e-5)
    np.testing.assert_allclose(both.entropy(), pairs.entropy(), rtol=1e-5)
    for i in range(6):
        np.testing.assert_allclose(
            both.log_prob(jnp.asarray([i // 3, i % 3])), pairs.log_prob(jnp.asarray(i)), rtol=1e-5
        )
    drawn = jax.vmap(both.sample)(jax.random.split(jax.random.PRNGKey(0), 4000))
    assert drawn[:, 0].max() == 1  # what does not exist is never drawn
    np.testing.assert_allclose(np.mean(drawn[:, 0]), jax.nn.softmax(a)[1], atol=0.03)
    slope = jax.grad(lambda logits: FactorisedCategorical(logits).entropy())(both.logits)
    assert np.all(np.isfinite(slope))


def test_windows_never_span_two_episodes():
    env = History(envs.build("ProbeState", 3), 4)
    state, window = env.init(jax.random.split(jax.random.PRNGKey(0), 3))
    assert window.shape == (3, 4, *env.env.spec.obs_shape)
    assert (window == window[:, :1]).all()  # filled up with the first observation
    plain, now = env.env.init(jax.random.split(jax.random.PRNGKey(0), 3))
    seen = [now] * 4
    for _ in range(12):  # episodes last ten steps
        action = jnp.full((3, 1), 0.5)
        state, step = env.advance(state, action)
        plain, expected = env.env.advance(plain, action)
        np.testing.assert_allclose(step.final_obs, jnp.stack([*seen[-3:], expected.final_obs], 1))
        seen = [expected.obs] * 4 if expected.truncated.all() else [*seen, expected.obs]
        np.testing.assert_allclose(step.obs, jnp.stack(seen[-4:], 1))


class Recall:
    """The first observation says which sign will be rewarded; later ones say nothing."""

    spec = EnvSpec("Recall", (2,), Box((-1.0,), (1.0,)), ("cost",), (5.0,), 6)

    def reset(self, key):
        cue = jnp.sign(jax.random.normal(key))
        return {"cue": cue, "t": jnp.zeros(())}, jnp.asarray([cue, 1.0])

    def step(self, state, action, key):
        reward = action[0] * state["cue"] * (state["t"] > 0)
        state = {"cue": state["cue"], "t": state["t"] + 1}
        return state, Transition(jnp.zeros(2), reward, jnp.zeros(1), jnp.asarray(False))


@pytest.mark.slow
def test_a_gru_remembers_what_an_mlp_cannot_know(tmp_path, monkeypatch):
    worlds.offer(monkeypatch, "Recall", Recall())
    settings = {"batch_size": 1200, "num_envs": 50, "policy_rate": 3e-3, "kl": 0.05, "value_epochs": 5, "epochs": 10}

    def train(encoder):
        options = dict(steps=48_000, out=tmp_path / encoder, show=False, tensorboard=False)
        run = cppo.train("ppo", "Recall", settings=settings | {"encoder": encoder, "memory": 6}, **options)
        assert cppo.evaluate(run, episodes=10)["policies"][0]["length"] == 6
        return run.summary["final_return"]

    assert abs(train("mlp")) < 0.5  # five steps at random
    assert train("gru") > 3.5  # of five


def test_the_head_covers_every_choice():
    net, _ = networks(action=MultiDiscrete((2, 4)))
    params = net.init_policy(jax.random.PRNGKey(0), 0.5)
    logits = net.policy(params, jnp.ones(3)).logits
    assert (logits[0, 2:] == IMPOSSIBLE).all()
    assert logits.shape == (2, 4)
