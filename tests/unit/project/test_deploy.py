"""The dashboard and the alert rules ask for what a broker serves: names, labels, and the values that are known."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from barnabas.base.metric_table import METRICS
from barnabas.base.metrics import Kind
from barnabas.broker.http import process_text
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode
from tests.support.promql import Matcher, Selector, parse

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "barnabas.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
OF_TARGETS = {"instance", "job"}
"""Labels that Prometheus adds."""
FUNCTIONS = {
    *(
        "sum",
        "max",
        "count",
        "rate",
        "increase",
        "predict_linear",
        "deriv",
        "changes",
        "histogram_quantile",
        "clamp_min",
        "vector",
    ),
}
KNOWN_VALUES = {
    "api": {api.name for api in APIS.values()},
    "code": {code.name for code in ErrorCode},
    "kernel": {"compiled", "python"},
    "job": {"barnabas"},
}


class Asked(NamedTuple):
    """An expression, and the text that shows what it finds."""

    where: str
    expression: str
    shown: str


def served() -> dict[str, set[str]]:
    """The labels of every sample. That a broker serves what the table says, `test_served_metrics` tells."""
    labels_of: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(process_text().decode()):
        labels_of |= {sample.name: set(sample.labels) for sample in family.samples}
    for metric in METRICS:
        if metric.kind is Kind.HISTOGRAM:
            labels_of[f"{metric.name}_bucket"] = {*metric.label_names, "le"}
            labels_of[f"{metric.name}_sum"] = labels_of[f"{metric.name}_count"] = set(metric.label_names)
        else:
            labels_of[metric.name] = set(metric.label_names)
    return labels_of


SERVED = served()


def asked() -> Iterator[Asked]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield Asked(panel["title"], target["expr"], target["legendFormat"])
    for rule in RULES:
        yield Asked(rule["alert"], rule["expr"], " ".join(rule["annotations"].values()))


def test_there_is_something_to_check() -> None:
    assert len(RULES) > 10
    assert len(list(asked())) > 40
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def check_selector(selector: Selector) -> None:
    assert selector.name in SERVED, f"{selector.name} is not served"
    for matcher in selector.matchers:
        assert matcher.label in SERVED[selector.name] | OF_TARGETS, f"{selector.name} has no label {matcher.label}"
        check_values(matcher)


def check_values(matcher: Matcher) -> None:
    known = KNOWN_VALUES.get(matcher.label)
    for value in matcher.values:
        assert known is None or value in known, f"{matcher.label} is never {value}"


@pytest.mark.parametrize("one", list(asked()), ids=lambda one: one.where)
def test_expression_asks_for_what_is_served(one: Asked) -> None:
    expression = parse(one.expression)
    assert expression.selectors
    assert expression.functions <= FUNCTIONS
    for selector in expression.selectors:
        check_selector(selector)
    labels = OF_TARGETS.union(*(SERVED[selector.name] for selector in expression.selectors))
    assert set(expression.grouped_by) <= labels
    # What is added up keeps the labels that it is grouped by, and no others.
    is_grouped = bool(expression.grouped_by) or bool(expression.functions & {"sum", "max", "count"})
    kept = set(expression.grouped_by) if is_grouped else labels
    assert set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", one.shown)) <= kept


def test_variables_of_the_dashboard_are_labels_that_are_served() -> None:
    queries = {one["name"]: one["definition"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"}
    assert set(queries) == {"instance", "topic", "group"}
    for query in queries.values():
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
        assert found, query
        (selector,) = parse(found[1]).selectors
        check_selector(selector)
        assert found[2] in SERVED[selector.name] | OF_TARGETS
    used = set(re.findall(r"\$(\w+)", " ".join(one.expression for one in asked())))
    assert used <= {*queries, "__rate_interval"}


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("sum(rate(barnabas_request_error_total[5m]))", "barnabas_request_error_total is not served"),
        ('sum(barnabas_log_bytes{api="Produce"})', "barnabas_log_bytes has no label api"),
        ('sum(barnabas_request_errors_total{code="STORAGE_ERROR"})', "code is never STORAGE_ERROR"),
    ],
)
def test_mistake_in_an_expression_is_found(expression: str, complaint: str) -> None:
    (selector,) = parse(expression).selectors
    with pytest.raises(AssertionError, match=complaint):
        check_selector(selector)
