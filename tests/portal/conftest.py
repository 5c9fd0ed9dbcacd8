from __future__ import annotations

from tests.portal.fixtures import alone, django_db_modify_db_settings, django_db_setup, engine, world

__all__ = ("alone", "django_db_modify_db_settings", "django_db_setup", "engine", "world")
