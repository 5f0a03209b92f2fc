"""Reading what a process tells its operators."""

import httpx
from prometheus_client.parser import text_string_to_metric_families


def probe(port: int, page: str = "healthz") -> tuple[int, str]:
    answer = httpx.get(f"http://127.0.0.1:{port}/{page}", timeout=10)
    return answer.status_code, answer.text.strip()


def values(port: int) -> dict[tuple[str, ...], float]:
    """By name and labels, these in the order of their names."""
    status, text = probe(port, "metrics")
    assert status == 200, text
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {(sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value for sample in samples}
