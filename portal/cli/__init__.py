"""``marl``: the product from a terminal, thin over ``/api/v1``. Nothing of Django is imported here: it installs alone (extra ``cli``)."""
