"""A Stripe for the tests: a stateful server of our own that holds to Stripe's documented rules and misbehaves on command.

It covers what the product uses, and no more. ``shapes.json`` has the fields of its objects, trimmed from Stripe's published fixtures (MIT).
"""

from tests.fake_stripe.server import FakeStripe

__all__ = ("FakeStripe",)
