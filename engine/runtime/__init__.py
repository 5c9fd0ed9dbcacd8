"""Ray, and nothing but Ray: puts the engine's parts into processes and keeps them alive.

``launcher`` starts (or joins) Ray and creates the named, detached actors; ``rollout_pool`` and ``train_group`` are the manager's ports to
them; ``http_actor`` serves HTTP in front of ``manager_actor``. No decision about jobs is taken here.

    launcher ── creates ──> HttpActor ──> ManagerActor ──> RolloutActor × replicas (vLLM's core is its child)
       │                                        └────────> TrainActor × ranks (one process group)
       └── reaper: kills what the run left behind, should the launcher itself be killed
"""
