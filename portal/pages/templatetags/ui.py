"""Small helpers of the templates: assets, times, durations, and the sparkline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import template
from django.conf import settings
from django.contrib.messages import constants
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()

SHEETS = ("css/tokens.css", "css/base.css", "css/layout.css", "css/components.css", "css/pages.css")
SCRIPTS = ("js/theme-switch.js", "js/menu.js", "js/times.js", "js/faults.js", "js/polls.js", "js/copy.js", "js/palette.js")
_TONES = {constants.SUCCESS: "good", constants.WARNING: "warn", constants.ERROR: "bad"}
_LABELS = {
    "Email": "Email address",
    "E-mail": "Email address",
    "Remember Me": "Stay signed in on this device",
    "Password (again)": "Password once more",
    "Current Password": "Current password",
    "New Password": "New password",
    "New Password (again)": "New password once more",
    "Authenticator code": "Code that the app shows",
}
_SPARK_WIDTH, _SPARK_HEIGHT = 96, 24
_UNITS = ("B", "kB", "MB", "GB", "TB")


@register.simple_tag
def stylesheets() -> SafeString:
    return format_html_join("\n  ", '<link rel="stylesheet" href="{}">', ((static(path),) for path in SHEETS))


@register.simple_tag
def modules(*names: str) -> SafeString:
    """Module scripts by their file names under static/js; without names those of the frame."""
    paths = [f"js/{name}.js" for name in names] or SCRIPTS
    return format_html_join("\n", '<script type="module" src="{}"></script>', ((static(path),) for path in paths))


@register.simple_tag
def mail_is_filed() -> bool:
    """Whether mail is written to a folder instead of sent: embedded, nobody must wait for a mail that never comes."""
    return settings.EMAIL_BACKEND.endswith("filebased.EmailBackend")


@register.filter
def own_label(label: str) -> str:
    """In our words what allauth calls a field."""
    return _LABELS.get(str(label), label)


@register.filter
def unprompted(bound: Any) -> SafeString:
    """The field without a placeholder: it would say its label again."""
    return bound.as_widget(attrs={"placeholder": False})


@register.simple_tag
def faults_of(form: Any) -> list[dict[str, str]]:
    """Each field that is refused: {"label", "said", "target"}; the last is the id of what is typed or chosen, "" where nothing is shown."""
    return [{"label": own_label(bound.label), "said": " ".join(bound.errors), "target": _target(bound)} for bound in form if bound.errors]


def _target(bound: Any) -> str:
    """Of several boxes the first: they have no id in common."""
    return "" if bound.is_hidden else bound.id_for_label or f"{bound.auto_id}_0"


@register.filter
def part(thing: str, which: object) -> str:
    """As ``portal.pages.deletion`` names a part of a thing."""
    return f"{thing}@{which}"


@register.filter
def tone(message: Any) -> str:
    return _TONES.get(message.level, "info")


@register.simple_tag
def when(moment: datetime | None, style: str = "relative") -> SafeString:
    """A time in UTC that times.js turns into the viewer's zone; ``style``: relative | clock (to the second, of today's) | full."""
    if moment is None:
        return format_html('<span class="faint">{}</span>', "–")
    utc = timezone.localtime(moment, timezone.get_default_timezone())
    words = f"{utc:%H:%M:%S}" if style == "clock" else f"{utc.day} {utc:%b %Y, %H:%M}"
    return format_html('<time datetime="{}" data-local="{}">{} UTC</time>', utc.isoformat(timespec="seconds"), style, words)


@register.filter
def duration(seconds: float | None) -> str:
    """3.2 s · 4 min 05 s · 2 h 11 min · 3 d 4 h"""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


@register.filter
def size(amount: int | None) -> str:
    """Bytes in decimal units, as static/js/format.js shows them: 812 B · 1.4 kB · 512 MB"""
    if amount is None:
        return "–"
    value, unit = float(amount), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.{1 if unit and value < 100 else 0}f} {_UNITS[unit]}"


@register.filter
def decimal(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


@register.simple_tag
def spark(values: Sequence[float]) -> SafeString:
    """The last rewards as a line; its meaning is in the text beside it, so it is hidden from screen readers."""
    if len(values) < 2:
        return SafeString("")
    low, high = min(0.0, *values), max(1.0, *values)
    across = _SPARK_WIDTH / (len(values) - 1)
    points = " ".join(
        f"{i * across:.1f},{_SPARK_HEIGHT - 1 - (value - low) / (high - low) * (_SPARK_HEIGHT - 2):.1f}" for i, value in enumerate(values)
    )
    return format_html(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true"><polyline points="{}"/></svg>',
        _SPARK_WIDTH,
        _SPARK_HEIGHT,
        points,
    )
