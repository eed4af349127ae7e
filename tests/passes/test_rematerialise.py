"""Steps that are executed again: plans that the judges accept, with the same bits, within the limits asked for."""

from collections.abc import Mapping
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc import DlcError, ExitCode, Report, Spec
from dlc.api.plan import Plan, results_of
from dlc.base.types import Array, Type, f32, f64
from dlc.config.config import default_config
from dlc.driver.pipeline import resolve
from dlc.driver.state_text import parse_state, print_state, structure_ops
from dlc.graph import Again, Call, Constant, Graph, Input, Op, Tensor, evaluate, make_graph, verify
from dlc.ops.elementwise import Add, Mul, Relu, Tanh
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc.ops.normalize import BatchNorm
from dlc.ops.reduce import ReduceMean, ReduceSum
from dlc.ops.shape import Reshape, Transpose
from dlc.passes.executions import Executions
from dlc.passes.rematerialise import Rematerialise
from dlc.placement import check_steps
from dlc.placement.evict import evicted
from dlc.placement.repeats import repeats
from dlc.plugins.builtin import dlc_ops
from dlc.plugins.discovery import load_registry
from dlc.verify.kit.random_graphs import feeds
from dlc.verify.plan_run import run_plan
from tests.passes.arena import check_plan, execute
from tests.passes.test_properties import made
from tests.training.nets import step_of

BUDGETS = (
    "rematerialise{budget=5 states=1000}",
    "rematerialise{budget=30 states=1000}",
    "rematerialise{budget=1000 align=1 states=1000}",
)


def backwards(seed: int, layers: int) -> Graph:
    """A random chain with skips and its gradients, whose formulas read what the chain computed."""
    random = Random(seed)
    wide = [random.choice((2, 4, 8, 16)) for _ in range(layers + 1)]
    x = Input("x", Type(f64, (6, wide[0])))
    weights = [Input(f"w{k}", Type(f64, (wide[k], wide[k + 1])), "weight") for k in range(layers)]
    values: list[Op] = [x]
    for w in weights:
        y: Op = random.choice((Tanh, Relu))(MatMul(values[-1], w))
        same = [v for v in values if v.shape == y.shape]
        values.append(Add(y, random.choice(same)) if same and random.random() < 0.4 else y)
    found: dict[str, Op] = {"loss": ReduceSum(values[-1], (0, 1), False)}
    g = values[-1]
    for k in reversed(range(layers)):
        g = Mul(g, values[k + 1])
        if random.random() < 0.3:
            g = Reshape(Reshape(g, to=(g.type.size,)), to=g.shape)
        found[f"g{k}"] = MatMul(Transpose(values[k], (1, 0)), g)
        g = MatMul(g, Transpose(weights[k], (1, 0)))
    return make_graph((x, *weights), found, origins={v.digest: (f"value {k}",) for k, v in enumerate(values)})


def parameter(name: str, *shape: int) -> Op:
    rng = np.random.default_rng(len(name) + sum(shape))
    return Constant(Tensor.of(rng.standard_normal(shape).astype(np.float32) * 0.3), name)


def residual() -> Graph:
    """Blocks of two convolutions with batch norms; statistics are those of the batch when it is trained."""
    x = Input("x", Type(f32, (2, 3, 5, 5)))

    def layer(y: Op, name: str, out: int, active: bool = True) -> Op:
        y = Conv(y, parameter(f"{name}.w", out, y.shape[1], 3, 3), None, pads=(1, 1, 1, 1))
        ones = [Constant(Tensor.of(np.full(out, 1 - (k % 3 == 1), np.float32)), f"{name}.n{k}") for k in range(4)]
        y = BatchNorm(y, ones[0], parameter(f"{name}.b", out), ones[2], ones[3])
        return Relu(y) if active else y

    y = layer(x, "stem", 4)
    for k in range(1):
        y = Relu(Add(layer(layer(y, f"{k}a", 4), f"{k}b", 4, active=False), y))
    y = ReduceMean(y, (2, 3), False)
    return make_graph((x,), {"scores": Gemm(y, parameter("fc.w", 4, 5), None)})


def dense() -> Graph:
    """Layers of very different widths on a large batch, as in an autoencoder."""
    x = Input("x", Type(f32, (32, 12)))
    y: Op = x
    for k, (inner, outer) in enumerate(((12, 48), (48, 6), (6, 48), (48, 5))):
        y = Gemm(y, parameter(f"{k}.w", inner, outer), parameter(f"{k}.b", outer))
        y = Tanh(y) if k < 3 else y
    return make_graph((x,), {"scores": y})


OPS = structure_ops() | {op.text_name: op for op in dlc_ops()}
NETWORKS = {"residual": residual, "dense": dense}


def ordered(graph: Graph, policy: str = "memory") -> Plan:
    kernels = made("fuse").run(made("lower").run(graph, Report()), Report())
    return made(f"order{{policy={policy}}}").run(kernels, Report())


@cache
def training_step(net: str = "residual") -> Plan:
    graph = step_of(NETWORKS[net](), "optimizer=sgd{momentum=0.9}")
    return ordered(made("expand{only=batch_norm,batch_norm_training}").run(graph, Report()))


@cache
def least(net: str = "residual") -> Plan:
    """With as much extra work as that takes."""
    return Rematerialise(budget=1000.0, states=300).run(training_step(net), Report())


def repeated(plan: Plan) -> list[Again]:
    return [step for step in plan.steps if isinstance(step, Again)]


def bits(values: Mapping[str, Array]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in values.items()}


def read_back(plan: Plan, text: str = "") -> Plan:
    tensors = {t.digest: t for t in plan.graph.tensors}
    found = parse_state(text or print_state(plan), OPS, lambda _, digest: tensors.get(digest), "text")
    assert isinstance(found, Plan)
    return found


@settings(max_examples=10, deadline=None, database=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(2, 6), st.sampled_from(BUDGETS), st.sampled_from(["memory", "depth-first"]))
def test_random_steps_give_the_same_bits_and_the_judges_accept_their_plans(
    seed: int, layers: int, text: str, policy: str
) -> None:
    before = ordered(backwards(seed, layers), policy)
    stage = made(text)
    after = stage.run(before, Report())
    assert verify(after.graph, "kernels") == ()
    assert after.graph.inputs == before.graph.inputs and after.graph.names == before.graph.names
    assert int(after.facts["order_peak"]) <= int(before.facts["order_peak"])
    once = sum(step.operations() for step in before.steps)
    assert 0 <= sum(step.operations() for step in after.steps) - once <= once * getattr(stage, "budget") / 100  # noqa: B009
    placed = made("plan-memory").run(after, Report())
    check_plan(placed)
    values = feeds(before.graph, seed)
    want = bits(run_plan(before, values))
    assert bits(run_plan(placed, values)) == want == bits(evaluate(after.graph, values))
    execute(placed, values, seed)
    assert read_back(placed) == placed


def test_most_random_steps_take_less_memory() -> None:
    """What the property above is about does happen."""
    plans = [made(BUDGETS[1]).run(ordered(backwards(seed, 5)), Report()) for seed in range(6)]
    assert sum(bool(repeated(plan)) for plan in plans) >= 3


@pytest.mark.parametrize("net", list(NETWORKS))
def test_a_training_step_updates_weights_to_the_same_bits(net: str) -> None:
    """In one arena that is full of NaNs before, each updated weight in the buffer of the old one."""
    before, after = training_step(net), least(net)
    placed = made("plan-memory").run(after, Report())
    check_plan(placed)
    alone = made("plan-memory{strategy=none}").run(before, Report())
    values = {**feeds(before.graph, 3), "y": np.arange(before.graph.inputs[1].shape[0]) % 5}
    want = run_plan(alone, values)
    assert bits(run_plan(placed, values)) == bits(want)
    for name, value in execute(placed, values, 3).items():  # which adds up in another order every time
        np.testing.assert_allclose(value, want[name], rtol=1e-4, atol=1e-5)
    assert repeated(after) and int(after.facts["order_peak"]) < int(before.facts["order_peak"])


@pytest.mark.parametrize("net", list(NETWORKS))
def test_an_update_comes_after_every_execution_of_what_reads_the_weight(net: str) -> None:
    after = least(net)
    over = {after.graph.outputs[i].digest: after.graph.inputs[j].digest for i, j in after.graph.aliases}
    written: set[str] = set()
    for step in after.steps:
        assert not written & {x.digest for x in step.operands}
        written |= {over[step.digest]} if step.digest in over else set()
    assert len(written) == len(over) > 3


def test_a_limit_is_met_by_the_arena_or_the_error_says_who_takes_it() -> None:
    before = training_step()
    low, high = int(least().facts["order_peak"]), int(before.facts["order_peak"])
    limit = (low + high) // 2
    report = Report()
    placed = made("plan-memory").run(Rematerialise(memory=limit, states=300).run(before, report), Report())
    assert placed.regions["arena"] <= limit < high
    assert report.notes and report.notes[0].startswith(f"peak {high:,} B → ")
    assert len(report.misses) == placed.facts["repeated_steps"] > 0
    report = Report()
    assert Rematerialise(memory=2 * high).run(before, report).graph == before.graph
    assert report.notes == [f"nothing is executed again: peak {high:,} B (optimal for this order)"]
    with pytest.raises(DlcError) as caught:
        Rematerialise(memory=low // 2, states=300).run(before, Report())
    assert caught.value.exit_code == ExitCode.LIMIT
    (problem,) = caught.value.diagnostics
    assert problem.code == "memory-limit" and any(note.startswith("in use there: ") for note in problem.notes)
    assert any("without extra work" in note for note in problem.notes)


def test_outputs_are_computed_once() -> None:
    given_ = Executions.of(training_step())
    for call, cost in zip(given_.model.calls, given_.costs, strict=True):
        values = [call, *(v for v in given_.plan.outputs if v in {x.digest for x in results_of(call)})]
        assert (cost == 0) == (len(values) > 1)
    assert not {x.digest for step in repeated(least()) for x in results_of(step)} & set(least().outputs)


def test_an_execution_again_is_another_op_of_the_same_kernel_and_node() -> None:
    after = least()
    digests = [step.digest for step in after.steps]
    assert len(set(digests)) == len(digests)
    kernels = {step.body.digest for step in after.steps if type(step) is Call}
    assert repeated(after) and {step.body.digest for step in repeated(after)} <= kernels
    named = [after.graph.origin(step) for step in after.steps if type(step) is Call]
    assert {after.graph.origin(step) for step in repeated(after)} <= set(named)


def test_the_text_of_another_execution() -> None:
    text = print_state(least())
    assert text.count(" again 1\n") == sum(step.number == 1 for step in repeated(least()))
    assert read_back(least()) == least()
    with pytest.raises(DlcError, match="expected a number of executions"):
        read_back(least(), text.replace(" again 1\n", " again %1\n", 1))


@settings(max_examples=10, deadline=None, database=None, derandomize=True)
@given(st.integers(0, 2**32), st.integers(2, 7))
def test_the_rule_keeps_its_limit_on_random_steps(seed: int, layers: int) -> None:
    """What large plans follow, on small ones: within the limit, and right for the judge."""
    given_ = Executions.of(ordered(backwards(seed, layers)))
    tasks, sizes = given_.tasks(1), given_.sizes(1)
    limit = int(given_.peak * Random(seed).uniform(0.4, 1))
    steps = evicted(repeats(tasks, sizes, given_.costs, given_.order), limit)
    if steps is None:
        return
    numbers = [given_.order[k] for k in steps]
    after = given_.executed(numbers).plan
    assert Executions.of(after).peak <= limit
    apart = {s: sum(sizes[:s]) for s in range(len(sizes))}
    places = [{s: apart[s] for s in (*tasks[k].reads, *tasks[k].writes)} for k in numbers]
    assert check_steps(tasks, sizes, numbers, places, arena=sum(sizes)) == []


@pytest.mark.parametrize(("target", "learning"), [("c", "gradients"), ("s2train", "step")])
@pytest.mark.parametrize("functions", ["training", "all"])
def test_a_budget_is_spent_where_it_makes_the_program_smaller(target: str, learning: str, functions: str) -> None:
    """`predict` must not get slower for a peak that it does not have."""
    settings = ("rematerialise.budget=15", f"rematerialise.functions={functions}")
    pipeline = resolve(load_registry(), default_config(), target, train="loss=cross-entropy", settings=settings)
    stages = {f.name: step.stage for f in pipeline.functions for step in f.steps if step.name == "rematerialise"}
    spends = {name: stage.budget for name, stage in stages.items() if isinstance(stage, Rematerialise)}
    assert spends.keys() == {f.name for f in pipeline.functions} >= {learning, "predict", "evaluate"}
    assert spends == {name: 15.0 if functions == "all" or name == learning else 0.0 for name in spends}


def test_a_size_holds_for_every_function() -> None:
    settings = ("rematerialise.memory=64KiB",)
    pipeline = resolve(load_registry(), default_config(), "c", train="loss=cross-entropy", settings=settings)
    stages = [step.stage for f in pipeline.functions for step in f.steps if step.name == "rematerialise"]
    assert len(stages) == 4 and len({str(stage) for stage in stages}) == 1


def test_programs_of_one_function_spend_it_there() -> None:
    pipeline = resolve(load_registry(), default_config(), "c", settings=("rematerialise.budget=15",))
    (function,) = pipeline.functions
    assert "rematerialise{budget=15.0 " in str([str(step.stage) for step in function.steps])


def test_options_are_written_as_they_are_read() -> None:
    stage = Rematerialise.from_spec(Spec.parse("rematerialise{memory=64KiB}"))
    assert stage.memory == 64 << 10 and Rematerialise.from_spec(stage.to_spec()) == stage
