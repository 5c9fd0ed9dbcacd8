"""A dataset and a reward to try the product with: additions of two numbers, which the small bundled model half knows."""

from __future__ import annotations

import io
import json
import random

from portal.datasets.actions import create_dataset
from portal.datasets.models import Dataset
from portal.rewards.actions import create_reward
from portal.rewards.models import Reward
from tenants.models import Tenant, User

DATASET_NAME = "Sample: additions"
REWARD_NAME = "Sample: the right number"
ROWS = 400
GRADER = {"type": "numeric", "input": "{{sample.output_text}}", "reference": "{{item.answer}}"}


def ensure_sample(tenant: Tenant, user: User) -> tuple[Dataset, Reward]:
    """The tenant's sample, made on the first call. Raises ``Forbidden`` for viewers."""
    dataset = tenant.datasets.filter(name=DATASET_NAME).first() or create_dataset(tenant, user, DATASET_NAME, additions(ROWS, seed=0))
    reward = tenant.rewards.filter(name=REWARD_NAME).first() or create_reward(tenant, user, REWARD_NAME, GRADER)
    return dataset, reward


def additions(rows: int, seed: int) -> io.BytesIO:
    """JSON Lines with ``rows`` different prompts."""
    pairs = random.Random(seed).sample([(a, b) for a in range(100) for b in range(100)], rows)
    return io.BytesIO("".join(json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)}) + "\n" for a, b in pairs).encode())
