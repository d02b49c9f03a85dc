"""MuJoCo's own log of unstable physics goes into the working directory, in a run's folder through a stranger's link."""

import mujoco
import numpy as np
import pytest

from cppo.envs.gymnasium import making
from cppo.envs.mujoco import threads

MODEL = '<mujoco><worldbody><body><joint type="slide"/><geom size=".1"/></body></worldbody></mujoco>'


@pytest.mark.parametrize("whose", ["cppo's", "a worker's"])
def test_no_log_is_written_through_a_link(whose, tmp_path, monkeypatch, caplog):
    before = mujoco.get_mju_user_warning()
    (tmp_path / "VICTIM").write_text("mine")
    (tmp_path / "MUJOCO_LOG.TXT").symlink_to("VICTIM")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(threads, "_told", set())
    if whose == "a worker's":
        mujoco.set_mju_user_warning(None)
        assert making.made(lambda: "environment") == "environment"
    model = mujoco.MjModel.from_xml_string(MODEL)
    for _ in range(2):
        data = mujoco.MjData(model)
        data.qpos[0] = np.nan
        mujoco.mj_step(model, data)
    mujoco.set_mju_user_warning(before)
    assert (tmp_path / "VICTIM").read_text() == "mine"
    assert caplog.text.count("MuJoCo: Nan") == (whose == "cppo's")  # once
