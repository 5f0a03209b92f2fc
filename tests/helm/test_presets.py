"""Every preset is a chart that a cluster would take."""

import json
import re
from functools import cache
from pathlib import Path

import jsonschema
import kubernetes_validate
import promql_parser
import pytest
from charting import CHART, PRESETS, ROOT, Document, documents, rendered, run_helm

#: Resources of others, whose schemas Kubernetes does not have: the documented fields that the chart uses.
FOREIGN = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "schemas").glob("*.json")}
KUBERNETES = "1.37"


@pytest.mark.parametrize("preset", PRESETS)
def test_lint_has_nothing_to_say(preset: str) -> None:
    done = run_helm("lint", "--strict", str(CHART), "--values", str(CHART / f"values-{preset}.yaml"))
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize(
    ("preset", "options"),
    [
        *((preset, []) for preset in PRESETS),
        ("single-gpu", ["--set", "autoscaling.kind=keda,autoscaling.prometheus=http://prometheus:9090"]),
        ("single-gpu", ["--set", "autoscaling.kind=hpa,autoscaling.oldestSeconds=900"]),
    ],
)
def test_all_resources_are_as_their_schemas_say(preset: str, options: list[str]) -> None:
    found = documents(rendered(*options, preset=preset))
    assert found
    for each in found:
        check(each)


def check(document: Document) -> None:
    _check(json.dumps(document))


@cache
def _check(text: str) -> None:
    """Presets have much in common, and the schemas are large."""
    document = json.loads(text)
    if document["kind"] in FOREIGN:
        jsonschema.validate(document, FOREIGN[document["kind"]])
    else:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_googles_load_balancer_takes_the_ingress_and_no_keys_in_plain() -> None:
    (ingress,) = (each for each in documents(rendered(preset="gke")) if each["kind"] == "Ingress")
    annotations = ingress["metadata"]["annotations"]
    assert annotations["kubernetes.io/ingress.class"] == "gce"
    assert annotations["kubernetes.io/ingress.allow-http"] == "false"
    assert "ingressClassName" not in ingress["spec"]


@pytest.mark.parametrize("kind", sorted(FOREIGN))
def test_the_schemas_of_others_refuse_what_is_wrong(kind: str) -> None:
    document = next(each for each in documents(rendered(preset="gke")) if each["kind"] == kind)
    for broken in (document | {"spec": {}}, document | {"spec": document["spec"] | {"zz": 1}}):
        with pytest.raises(jsonschema.ValidationError):
            check(broken)


def test_alerts_can_be_read_and_each_has_a_runbook() -> None:
    (rule,) = (each for each in documents(rendered(preset="gke")) if each["kind"] == "PrometheusRule")
    for alert in (each for group in rule["spec"]["groups"] for each in group["rules"]):
        promql_parser.parse(alert["expr"])
        file, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        lines = (ROOT / file).read_text().splitlines()
        assert anchor in [line.strip("# ").lower() for line in lines if line.startswith("#")]


def test_all_volumes_of_the_release_are_watched() -> None:
    claims = "depot.volume.existingClaim=files,hub.existingClaim=weights,metrics.alerts.enabled=true"
    (rule,) = (each for each in documents(rendered("--set", claims, preset="kind")) if each["kind"] == "PrometheusRule")
    alerts = {each["alert"]: each["expr"] for group in rule["spec"]["groups"] for each in group["rules"]}
    asked = re.search('persistentvolumeclaim=~"(.*?)"', alerts["OpenRLVolumeFilling"])
    assert asked is not None
    for claim in ("files", "weights", "openrl-depot", "data-openrl-valkey-0"):
        assert re.fullmatch(asked[1], claim), claim
    for expression in alerts.values():
        promql_parser.parse(expression)


def test_metrics_that_scaling_and_alerts_ask_for_are_told() -> None:
    from openrl.gateway.metrics import BrokerCollector, QueueCollector

    collectors = (QueueCollector(list), BrokerCollector(lambda: None))
    told = {family.name for collector in collectors for family in collector.describe()}
    asked = set(re.findall(r"openrl_(?:queue|broker)[a-z_]+", rendered(preset="gke")))
    assert len(asked) > 4
    assert asked <= told


def test_a_series_that_is_away_is_no_zero_and_one_of_another_release_no_demand() -> None:
    """KEDA takes an empty answer of Prometheus' for a zero by default: workers would go while the broker is away."""
    told = "autoscaling.kind=keda,autoscaling.prometheus=http://prometheus:9090"
    for each in documents(rendered("--set", told, preset="single-gpu")):
        for trigger in each["spec"]["triggers"] if each["kind"] == "ScaledObject" else ():
            promql_parser.parse(trigger["metadata"]["query"])
            assert 'namespace="rl"' in trigger["metadata"]["query"]
            assert trigger["metadata"]["ignoreNullValues"] == "false"


def test_the_age_of_the_oldest_counts_where_it_is_asked_for() -> None:
    def targets(*options: str) -> dict[str, str]:
        found = documents(rendered("--set", ",".join(("autoscaling.kind=keda", *options)), preset="kind"))
        scaled = {each["metadata"]["name"]: each["spec"] for each in found if each["kind"] == "ScaledObject"}
        asked = [trigger["metadata"] for trigger in scaled["openrl-device-tiny"]["triggers"]]
        return {each["valueLocation"]: each["targetValue"] for each in asked}

    demand = {f'openrl_queue_demand{{kind="{kind}",base_model="tiny"}}': "16" for kind in ("train", "sample")}
    oldest = {f'openrl_queue_oldest_seconds{{kind="{kind}",base_model="tiny"}}': "900" for kind in ("train", "sample")}
    assert targets() == demand
    assert targets("autoscaling.oldestSeconds=900") == demand | oldest


@pytest.mark.parametrize(("oldest", "count"), [(0, 3), (900, 6)])
def test_an_autoscaler_selects_by_what_a_rule_records(oldest: int, count: int) -> None:
    """Names of models are no label values of Kubernetes'."""
    found = documents(
        rendered("--set", f"autoscaling.kind=hpa,autoscaling.oldestSeconds={oldest}", preset="single-gpu")
    )
    (rule,) = (each for each in found if each["kind"] == "PrometheusRule")
    recorded = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    for record in recorded:
        promql_parser.parse(record["expr"])
    asked = [
        metric["external"]["metric"]
        for each in found
        if each["kind"] == "HorizontalPodAutoscaler"
        for metric in each["spec"]["metrics"]
    ]
    assert len(asked) == count, "training and sampling of the device worker, and rewards"
    for metric in asked:
        labels = metric["selector"]["matchLabels"]
        assert all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", value) for value in labels.values())
        assert [r for r in recorded if r["record"] == metric["name"] and labels.items() <= r["labels"].items()]
