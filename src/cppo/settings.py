"""Settings of an algorithm: frozen dataclasses whose numbers are array leaves and whose structure is static.

``float`` fields (learning rates, limits, β, δ, …) are leaves of a pytree, so one compiled program serves every value
and a study may ``vmap`` over them; all other fields (sizes, switches, names) are part of the structure. Each field
carries its documentation and its permitted range; values are checked when a settings object is built.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, no_type_check

import jax

from cppo.errors import UsageError, meant

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")
Plain = bool | int | float | str
Setting = Plain | tuple[float, ...] | tuple[int, ...]
FLOAT_TYPES = ("float", "tuple[float, ...]")


def setting(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] | None = None,
    later: bool = False,
) -> Any:
    """A documented field with its range; ``later``: it came after others had been saved (see ``identity``)."""
    rules = dict(at_least=at_least, above=above, at_most=at_most, below=below, choices=choices, later=later)
    return dataclasses.field(default=default, metadata={"doc": doc, **rules})


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(cls: type[T]) -> type[T]:
    """Make a class a settings record: frozen, keyword-only, validated, and a pytree of its float fields."""
    cls.__post_init__ = _validate  # pyright: ignore[reportAttributeAccessIssue]  (no class has one before)
    made = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    fields = dataclasses.fields(made)  # pyright: ignore[reportArgumentType]  (what the line above made is one)
    for field in fields:
        # Types are told apart by name, and a module may be written without ``from __future__ import annotations``.
        field.type = field.type.__name__ if isinstance(field.type, type) else str(field.type)
    names = {field.name: field.type in FLOAT_TYPES for field in fields}
    jax.tree_util.register_dataclass(
        made,
        data_fields=[name for name, leaf in names.items() if leaf],
        meta_fields=[name for name, leaf in names.items() if not leaf],
    )
    return no_type_check(made)  # its ``float`` leaves are tracers where JAX rebuilds it: no checker may insist


def _validate(self: DataclassInstance) -> None:
    for field in dataclasses.fields(self):
        for value in _numbers(getattr(self, field.name)):
            _check(field, value)


def _numbers(value: object) -> tuple[Plain, ...]:
    """Plain values to check; arrays and tracers pass unchecked, since they come from values that were checked."""
    if isinstance(value, tuple | list):
        return tuple(item for item in value if isinstance(item, int | float | str))
    return (value,) if isinstance(value, bool | int | float | str) else ()


def _check(field: dataclasses.Field, value: Plain) -> None:
    rules = field.metadata
    wrong = isinstance(value, float) and math.isnan(value)
    if not isinstance(value, str | bool):
        wrong |= rules.get("at_least") is not None and value < rules["at_least"]
        wrong |= rules.get("above") is not None and value <= rules["above"]
        wrong |= rules.get("at_most") is not None and value > rules["at_most"]
        wrong |= rules.get("below") is not None and value >= rules["below"]
    wrong |= rules.get("choices") is not None and value not in rules["choices"]
    if wrong:
        raise UsageError(f"{field.name} is {value!r}; it must be {_range(rules)}. ({field.metadata['doc']})")


def _range(rules: Mapping[str, Any]) -> str:
    if rules.get("choices") is not None:
        return "one of " + ", ".join(repr(choice) for choice in rules["choices"])
    words = {"at_least": "at least", "above": "above", "at_most": "at most", "below": "below"}
    said = [f"{word} {rules[name]:g}" for name, word in words.items() if rules.get(name) is not None]
    return " and ".join(said) or "a number"


def replace(base: D, changes: Mapping[str, object]) -> D:
    """``base`` with named fields changed; text is read as the field's type, unknown names are refused with a
    suggestion."""
    fields = {field.name: field for field in dataclasses.fields(base)}
    parsed = {}
    for name, value in changes.items():
        if name not in fields:
            raise UsageError(f"unknown setting {name!r}.{meant(name, fields)} Settings: {', '.join(sorted(fields))}.")
        parsed[name] = read(fields[name], value)
    return dataclasses.replace(base, **parsed)


def read(field: dataclasses.Field, value: Any) -> Setting:
    """A value for ``field`` from what a person typed or a JSON file holds."""
    kind = str(field.type)
    literal = _literal(value) if isinstance(value, str) and kind != "str" else value
    try:
        if kind.startswith("tuple["):
            items = literal if isinstance(literal, tuple | list) else (literal,)
            return tuple((float if "float" in kind else int)(item) for item in items)
        if kind == "bool":
            if isinstance(literal, bool):
                return literal
        elif kind == "float":
            if not isinstance(literal, bool):
                return float(literal)
        elif kind == "int":
            if not isinstance(literal, bool) and float(literal) == int(literal):
                return int(literal)
        elif kind == "str":
            return str(value)
    except (TypeError, ValueError):
        pass
    raise UsageError(f"{field.name} is {value!r}; it must be a {kind}, for example {field.name}={field.default!r}.")


def _literal(text: str) -> Any:
    lowered = text.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text


def parse_assignments(items: list[str] | tuple[str, ...]) -> dict[str, str]:
    """``["kl=0.01", "recovery=false"]`` as a dict."""
    pairs = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {item!r}: write name=value, for example --set recovery=false.")
        pairs[name.strip()] = value.strip()
    return pairs


def as_dict(values: Any) -> dict[str, Any]:
    """Plain values for a JSON file, from settings or from what stands in for those of an unknown algorithm."""
    return dict(vars(values))


def describe(cls: type[DataclassInstance]) -> list[tuple[str, str, str]]:
    """Rows (name, default, documentation) for a person."""
    return [(f.name, repr(f.default), f.metadata["doc"]) for f in dataclasses.fields(cls)]


def identity(values: Any) -> dict[str, Any]:
    """What tells these settings from others: all but fields of later versions that are at their default."""
    fields = dataclasses.fields(values) if dataclasses.is_dataclass(values) else ()
    same = {field.name for field in fields if _untouched(field, getattr(values, field.name))}
    return {name: value for name, value in as_dict(values).items() if name not in same}


def _untouched(field: dataclasses.Field, value: Any) -> bool:
    return bool(field.metadata.get("later")) and value == field.default
