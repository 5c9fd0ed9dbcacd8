"""What operators did, and why. Rows are added, never changed: this is what one looks at when somebody asks who stopped his job."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone


class Act(models.Model):
    """One deed of an operator.

    ``about``: the public id of what it was done to, or "engine" or "engine:NAME"; no key, since rows outlive what they name.
    """

    at = models.DateTimeField(default=timezone.now)
    by = models.CharField(max_length=254)
    deed = models.CharField(max_length=40)
    about = models.CharField(max_length=64)
    reason = models.CharField(max_length=500)
    detail = models.JSONField(default=dict)
    outcome = models.CharField(max_length=500, blank=True, help_text="What went wrong; empty: it was done.")

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=["about", "-id"], name="act_about"),)

    def __str__(self) -> str:
        return f"{self.deed} of {self.about} by {self.by}"

    def delete(self, *args: Any, **options: Any) -> tuple[int, dict[str, int]]:
        raise PermissionError(f"{self} stands; it is never deleted")
