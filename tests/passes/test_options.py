"""Passes describe themselves: names, levels, documented options, spec text there and back, refusals with a hint."""

import pytest

from dlc.api.passes import AnyPass, check_chain
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.passes.presets import PIPELINES
from dlc.plugins.builtin import dlc_passes
from dlc.spec import Spec

PASSES: dict[str, type[AnyPass]] = {lazy.name: lazy.load() for lazy in dlc_passes()}


def made(text: str) -> AnyPass:
    (spec,) = Spec.parse_pipeline(text, "test")
    return PASSES[spec.name].from_spec(spec)


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_declares_itself(name: str) -> None:
    cls = PASSES[name]
    assert cls.name == name
    assert cls.__module__ == f"dlc.passes.{name.replace('-', '_')}"
    assert "→" in (cls.__doc__ or "").splitlines()[0], "the docstring opens with the rewrite"
    assert {cls.level_in, cls.level_out} <= {"ops", "kernels", "plan"}


@pytest.mark.parametrize("name", PASSES)
def test_every_option_is_documented(name: str) -> None:
    for option in PASSES[name].options_doc():
        assert option.doc, option.key
        assert option.default, option.key


@pytest.mark.parametrize("name", PASSES)
def test_spec_text_and_pass_convert_both_ways(name: str) -> None:
    default = made(name)
    assert made(str(default)) == default
    assert default == PASSES[name]()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("fuse{max-nest=4}", "did you mean max-nests?"),
        ("simplify{quick=yes}", ""),
        ("plan-memory{alignment=32}", "did you mean align?"),
        ("lower{a=1}", ""),
    ],
)
def test_unknown_options_are_refused(text: str, hint: str) -> None:
    with pytest.raises(DlcError) as refused:
        made(text)
    (problem,) = refused.value.diagnostics
    assert problem.code == "unknown-option"
    assert hint in problem.help
    assert refused.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "text", ["fuse{max-nests=0}", "plan-memory{align=0}", "simplify{rounds=-1}", "layout{panel=no}"]
)
def test_values_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(DlcError) as refused:
        made(text)
    assert refused.value.diagnostics[0].code == "bad-option"


@pytest.mark.parametrize("name", PIPELINES)
def test_presets_are_chains(name: str) -> None:
    specs = Spec.parse_pipeline(PIPELINES[name], name)
    assert check_chain([PASSES[s.name].from_spec(s) for s in specs], specs, "ops", "plan") == "plan"
