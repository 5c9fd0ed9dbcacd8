from __future__ import annotations

from django.apps import AppConfig


class OpenAIConfig(AppConfig):
    name = "portal.openai"
    label = "openai"
