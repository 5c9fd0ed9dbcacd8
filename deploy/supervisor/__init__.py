"""One process that starts and watches every part of an embedded installation.

supervisor ── keeper ── valkey        settings.py  where everything lies and which ports it takes
           ├─ keeper ── engine        services.py  the parts: command, order, readiness
           ├─ keeper ── migrations    runner.py    one part's life: start, ready, crash, back-off, stop
           ├─ keeper ── web           keeper.py    adopts and ends whatever its part leaves behind
           ├─ keeper ── worker        app.py       all runners together, one lock, one stop
           └─ keeper ── ingester      progress.py  what a person sees meanwhile
"""
