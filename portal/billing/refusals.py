"""Why somebody may not begin for money's sake. A full quota is ``quotas.QuotaExceeded``."""

from __future__ import annotations

from portal.errors import Conflict


class NoCredit(Conflict):
    code = "insufficient_credit"


class PaymentDue(Conflict):
    code = "payment_due"


class SpendingLimit(Conflict):
    code = "spending_limit"
