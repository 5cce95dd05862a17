"""Schemathesis, which nobody here wrote, asks what our own description says may be asked."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.running import Here

load_all_checks()


CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
LEFT_OUT = ("/trace", "/masks", "/positions", "/output_projection", "/metrics")  # slow; no JSON


@pytest.fixture(scope="module")
def api(here: Here) -> Any:
    return schemathesis.openapi.from_url(f"{here.address}/openapi.json")


def test_answers_are_as_described(api: Any, here: Here) -> None:
    seen = set()
    for result in api.get_all_operations():
        operation = result.ok()
        if operation.path.startswith(LEFT_OUT):
            continue
        seen.add(operation.path)
        strategy = st.one_of(operation.as_strategy(generation_mode=mode) for mode in GenerationMode)

        @settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
        @given(case=strategy)
        def asked(case: Any) -> None:
            response = case.call()
            assert response.status_code < 500 or response.status_code == 501, response.text
            case.validate_response(response, checks=CHECKS)

        asked()
    assert {"/translate", "/translate/stream", "/detect", "/languages", "/alternatives"} <= seen
    assert [event for event in here.log.events if event["event"] == "failure"] == []


def test_it_would_notice(api: Any) -> None:
    """The checks do check: an answer that is not described is a failure."""
    case = api["/languages"]["GET"].Case()
    response = case.call()
    case.validate_response(response, checks=CHECKS)
    response.status_code = 418
    with pytest.raises(FailureGroup):
        case.validate_response(response, checks=CHECKS)
