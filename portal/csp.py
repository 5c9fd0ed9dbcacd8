"""Content-Security-Policy: strict with nonces on our pages, looser under the path of a third-party interface, and the report door."""

from __future__ import annotations

import json

import structlog
from csp.constants import NONCE, NONE, SELF
from csp.middleware import CSPMiddleware
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

log = structlog.get_logger(__name__)

REPORT_PATH = "/csp-report/"
REPORT_MAX_BYTES = 8 * 1024
REPORTS_FILE_MAX_BYTES = 1024 * 1024

_DIRECTIVES = {
    "default-src": [NONE],
    "script-src": [SELF, NONCE],
    "style-src": [SELF, NONCE],
    "img-src": [SELF, "data:"],
    "font-src": [SELF],
    "connect-src": [SELF],
    "manifest-src": [SELF],
    "form-action": [SELF],
    "base-uri": [NONE],
    "object-src": [NONE],
    "frame-ancestors": [NONE],
    "report-uri": REPORT_PATH,
}
STRICT = {"DIRECTIVES": _DIRECTIVES}
# unfold is built on Alpine, which evaluates expressions and sets inline styles; a nonce beside 'unsafe-inline' would switch that off.
ADMIN = {**_DIRECTIVES, "script-src": [SELF, "'unsafe-inline'", "'unsafe-eval'"], "style-src": [SELF, "'unsafe-inline'"]}
# Buying credit is a form of ours whose answer leads to Stripe's own pages, and browsers look at where it leads.
TO_STRIPE = {**_DIRECTIVES, "form-action": [SELF, "https://checkout.stripe.com", "https://billing.stripe.com"]}
_LOOSER = {"/admin/": ADMIN, "/billing/": TO_STRIPE}


class Middleware(CSPMiddleware):
    """django-csp's, with the looser policies chosen by path: a view cannot loosen itself by accident."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        for prefix, policy in _LOOSER.items():
            if request.path_info.startswith(prefix):
                response._csp_config = policy
        return super().process_response(request, response)


@csrf_exempt
@require_POST
def report(request: HttpRequest) -> HttpResponse:
    """Keep a browser's report: one JSON line in the log folder, and a warning. Anonymous, so small and bounded."""
    body = request.read(REPORT_MAX_BYTES + 1)
    if len(body) > REPORT_MAX_BYTES:
        return HttpResponse(status=413)
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return HttpResponse(status=400)
    log.warning("csp_report", report=document)
    path = settings.STATE / "log" / "csp-reports.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.stat().st_size < REPORTS_FILE_MAX_BYTES:
        with path.open("a") as file:
            file.write(json.dumps(document) + "\n")
    return HttpResponse(status=204)
