"""A trained policy for use elsewhere: ONNX for any runtime, StableHLO for XLA, a folder for the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from cppo import files
from cppo.runs.run import Run
from cppo.types import UsageError

FORMATS = ("onnx", "stablehlo", "hub")


def export(
    run: Run | str | Path,
    format: str = "onnx",
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    cost_critic: bool = False,
    trust: bool = False,
) -> Path:
    """Write the policy of ``seed`` (default: the best one) and return where; see docs/take-it-along.md."""
    run = run if isinstance(run, Run) else Run(run, trust=trust)
    if format not in FORMATS:
        raise UsageError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    if cost_critic and format != "onnx":
        raise UsageError("the cost critic is exported to ONNX only; leave out --cost-critic or use --format onnx.")
    if format == "onnx":
        from cppo.policies.export import onnx_file

        return onnx_file.write(run.policy(seed), Path(out or run.output("policy.onnx")), cost_critic)
    if format == "stablehlo":
        from cppo.policies.export import stablehlo

        return stablehlo.write(run.policy(seed), Path(out or run.output("policy.stablehlo")))
    from cppo.policies.export import hub

    place = run.output("hub")
    return hub.write(run, Path(out) if out else files.subfolder(place.parent, place.name))
