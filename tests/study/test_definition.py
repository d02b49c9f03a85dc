"""A study's file says what it means, or one sentence says what is wrong with it."""

import pytest

from cppo.study.definition import Part, Study, read
from cppo.types import UsageError


def written(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return read(path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('seeds = "2"', r"mine.toml: seeds is '2'; it must be a whole number from 1, for example seeds = 4\."),
        ("seeds = 0", "seeds is 0; it must be a whole number from 1"),
        ("seeds = true", "seeds is True"),
        ("first_seed = -1", "first_seed is -1; it must be a whole number from 0"),
        ('steps = "100"', r"steps is '100'; it must be a whole number from 1, for example steps = 100000\."),
        ("steps = 1.5", "steps is 1.5"),
        ("steps = inf", "steps is inf"),
        ('variants = ["a"]', r"variants is \['a'\]; it must be a table of labels"),
        ("variants = { a = 1 }", r"variant 'a' is 1; it must be a table of .* for example variants = \{"),
        ("variants = { a = {}, b = {} }", "the variants 'a' and 'b' are one and the same"),
        ("part = 3", r"part is 3; write each part as a table that begins with \[\[part\]\]"),
        ("part = [3]", r"part is \[3\]; write each part"),
        ("part = []", "has no part, so no run"),
        ("algos = [1]", r"algos is \[1\]; it must be a list of names"),
        ("algos = []", r"algos is \[\]; it must be a list of names"),
        ("settings = 3", "settings is 3; it must be a table"),
        ("backend = 3", "backend is 3; it must be a name"),
        ("name = 3", "name is 3; it must be text"),
        (
            "parts = 3",
            "unknown entry 'parts'. Did you mean 'part'.* A study has name, title, part, envs, algos, seeds,",
        ),
        ("variant = {}", "unknown entry 'variant'. Did you mean 'variants'"),
    ],
)
def test_a_wrong_entry_is_named_with_what_it_may_be(entry, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        written(tmp_path, f'envs = ["ProbeBox"]\n{entry}\n')


def test_what_can_mean_one_thing_only_is_understood(tmp_path):
    study = written(tmp_path, 'envs = "ProbeBox"\nsteps = 1e5\n[part]\nalgos = "ppo"\nseeds = 2.0\n')
    assert [(run.env, run.algo, run.seed, run.steps) for run in study.runs()] == [
        ("ProbeBox", "ppo", 0, 100_000),
        ("ProbeBox", "ppo", 1, 100_000),
    ]
    assert type(study.runs()[0].steps) is int
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is no TOML"):
        read(tmp_path / "bad.toml")


def test_without_a_change_a_variant_is_the_algorithm_itself():
    variants = {"as chosen": {}, "slow": {"kl": 0.005}}
    study = Study("mine", [Part(envs=["ProbeBox"], seeds=1, variants=variants, settings={"switch": 0.9})])
    plain, slow = study.runs()
    assert (plain.variant, slow.variant) == ("", "slow")
    assert plain.settings == {"switch": 0.9}


def test_a_cut_that_leaves_nothing_says_so():
    study = Study("mine", [Part(envs=["ProbeBox"], algos=["cppo"]), Part(envs=["ProbeTwo"], algos=["cpo", "ppo"])])
    with pytest.raises(UsageError, match="no run of cpo on ProbeBox; it has cppo on ProbeBox; cpo, ppo on ProbeTwo"):
        study.cut(only=["ProbeBox"], algos=["cpo"])
    assert len(study.cut(only=["ProbeTwo"], algos=["cpo"], seeds=1).runs()) == 1


def test_settings_at_the_top_hold_for_parts_that_have_some_of_their_own(tmp_path):
    path = tmp_path / "mine.toml"
    text = 'envs = ["ProbeBox"]\nseeds = 1\n[settings]\ncost_limit = 1.5\nkl = 0.01\n'
    path.write_text(text + '[[part]]\nalgos = ["cppo"]\nsettings = { kl = 0.03 }\n[[part]]\nalgos = ["ppo"]\n')
    found = [(run.plan.settings.cost_limit, run.plan.settings.kl) for run in read(path).runs()]
    assert found == [((1.5,), 0.03), ((1.5,), 0.01)]


@pytest.mark.parametrize(("text", "words"), [("x = (", "line 1: SyntaxError"), ("\nimport no_such", "line 2: Module")])
def test_a_study_that_python_cannot_read_is_named_with_its_line(text, words, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        read(path)
