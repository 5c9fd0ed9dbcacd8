"""The MARLaaS engine: multi-LoRA rollout and serialized training for many jobs over one frozen base model.

Never imports Django. The portal reaches it over HTTP only (``engine.service``).
"""
