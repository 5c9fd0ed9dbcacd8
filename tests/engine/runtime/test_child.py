import pytest

from engine import settings as engine_settings
from engine.runtime.child import variables


@pytest.mark.parametrize("endpoints", [{}, {"wiki": "https://wiki.example/api.php", "own": "http://127.0.0.1:1/"}])
def test_a_child_engine_reads_the_settings_that_its_owner_has(tmp_path, monkeypatch, endpoints):
    own = engine_settings.load(state=tmp_path, device="cpu", kv_gib=0.25, search_endpoints=endpoints)
    for name, value in variables(own).items():
        monkeypatch.setenv(name, value)
    assert engine_settings.load() == own
