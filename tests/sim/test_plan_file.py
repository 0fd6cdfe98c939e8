"""Plans as files: what was saved is what is run."""

from pathlib import Path

import pytest

from barnabas.sim.histories.plan import Operation, make_plan
from barnabas.sim.histories.plan_file import InvalidPlanFile, decode_plan, encode_plan, load_plan, save_plan


@pytest.mark.parametrize("seed", range(20))
def test_plan_comes_back_as_it_was(seed: int) -> None:
    plan = make_plan(seed, brokers=1 + seed % 3)

    assert decode_plan(encode_plan(plan)) == plan


def test_nested_arguments_and_empty_lists_come_back() -> None:
    arguments: dict[str, object] = {"topic": "a", "partitions": 1, "configs": (("x", "1"), ("y", "2"))}
    plan = make_plan(1).with_parts([Operation("admin", "create_topic", arguments, 0.1)], [])

    assert decode_plan(encode_plan(plan)) == plan


def test_file_has_a_line_for_each_operation_and_fault(tmp_path: Path) -> None:
    plan = make_plan(1)
    save_plan(plan, tmp_path / "made" / "plan.json")

    lines = (tmp_path / "made" / "plan.json").read_text().splitlines()

    assert sum('"action":' in line for line in lines) == len(plan.operations)
    assert load_plan(tmp_path / "made" / "plan.json") == plan


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not JSON", "is no plan: Expecting value"),
        ("{}", "is no plan: it lacks 'format'"),
        ('{"format": 2}', "is no plan: its format is 2, this version reads 1"),
        ('{"format": 1, "topics": []}', "is no plan: it lacks 'actors'"),
        ("[]", "is no plan: "),
    ],
)
def test_bad_file_is_told_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(content)

    with pytest.raises(InvalidPlanFile) as raised:
        load_plan(path)

    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlanFile, match=r"cannot read .*nowhere.json: No such file"):
        load_plan(tmp_path / "nowhere.json")
