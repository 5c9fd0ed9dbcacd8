"""The door for Stripe's notices: the signature is the key. What is stored is answered with 200; what it means is found out afterwards."""

from __future__ import annotations

import structlog
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseNotFound
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from portal.billing import notices, stripe_client, tasks
from portal.billing.stripe_records import Forged

log = structlog.get_logger(__name__)

MAX_BYTES = 1024 * 1024


@csrf_exempt
@require_POST
def receive(request: HttpRequest) -> HttpResponse:
    stripe, now = stripe_client.connect(), timezone.now()
    if stripe is None:
        return HttpResponseNotFound("There is no Stripe on this installation.\n", content_type="text/plain")
    body = request.read(MAX_BYTES + 1)
    if len(body) > MAX_BYTES:
        return HttpResponse(status=413)
    try:
        notice = stripe.read_notice(body, request.headers.get("Stripe-Signature", ""), now)
    except Forged as error:
        log.warning("notice_refused", reason=str(error))
        return HttpResponseBadRequest("This is no notice of Stripe's for us.\n", content_type="text/plain")
    if notices.store(notice, now):
        tasks.handle_on_commit()
    return HttpResponse(status=200)
