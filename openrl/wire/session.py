"""Requests about sessions."""

from typing import Annotated, Literal

from pydantic import Field

from openrl.wire.base import Metadata, Wire

Tag = Annotated[str, Field(max_length=1000)]


class CreateSession(Wire):
    type: Literal["create_session"] = "create_session"
    tags: Annotated[list[Tag], Field(fail_fast=True, default_factory=list, max_length=100)]
    user_metadata: Metadata | None = None
    sdk_version: str = ""
    project_id: str | None = None
    display_name: str | None = None


class Heartbeat(Wire):
    type: Literal["session_heartbeat"] = "session_heartbeat"
    session_id: str


class FinishReason(Wire):
    type: Literal["success", "errored", "interrupted"]


class FinishSession(Wire):
    reason: FinishReason
    detail: str | None = None
