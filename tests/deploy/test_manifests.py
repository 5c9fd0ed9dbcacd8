"""Compose, Kubernetes and Dockerfiles: well-formed, hardened, and of one mind with each other and with the code they start."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from engine.device import disagreements
from tests.deploy import schemas

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = {
    f"{path.name}: {document['kind']} {document['metadata']['name']}": document
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
}
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
IMAGES = {"marlaas-portal": "portal", "marlaas-engine-cuda": "cuda", "marlaas-engine-cpu": "cpu", "marlaas-engine-ascend": "ascend"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pods(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The templates of its pods."""
    spec = manifest.get("spec", {})
    groups = [spec.get("headGroupSpec"), *spec.get("workerGroupSpecs", [])] if manifest["kind"] == "RayCluster" else [spec]
    yield from (group["template"] for group in groups if group and "template" in group)


PODS = [(name, pod) for name, manifest in MANIFESTS.items() for pod in pods(manifest)]
CONTAINERS = [
    (name, container) for name, manifest in MANIFESTS.items() for pod in pods(manifest) for container in pod["spec"]["containers"]
]


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_manifest_fits_its_schema(name: str) -> None:
    manifest = MANIFESTS[name]
    jsonschema.validate(manifest["metadata"], schemas.METADATA)
    if (schema := schemas.SPECS.get((manifest["apiVersion"], manifest["kind"]))) is not None:
        jsonschema.validate(manifest["spec"], schema)
    else:
        assert manifest["kind"] in ("Namespace", "ConfigMap"), "add its schema"


def test_a_field_that_does_not_exist_is_found() -> None:
    broken = yaml.safe_load("{replicas: 1, selector: {}, template: {}, replica: 2}")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schemas.SPECS["apps/v1", "Deployment"])


@pytest.mark.parametrize(("name", "container"), CONTAINERS, ids=[f"{name} {container['name']}" for name, container in CONTAINERS])
def test_each_container_is_read_only_without_privilege_and_bounded(name: str, container: dict[str, Any]) -> None:
    hardened = {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == hardened
    assert "memory" in container["resources"]["limits"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/tmp", "/run/marlaas", "/var/lib/marlaas"}
    assert container["image"] in IMAGES


@pytest.mark.parametrize("part", ["web", "worker", "ingester", "engine"])
def test_each_part_that_stays_is_asked_whether_it_lives(part: str) -> None:
    [container] = [
        c
        for manifest in MANIFESTS.values()
        if manifest["kind"] in ("Deployment", "StatefulSet")
        for pod in pods(manifest)
        for c in pod["spec"]["containers"]
        if c["name"] == part
    ]
    assert {"startupProbe", "livenessProbe"} <= container.keys()


def test_what_people_and_running_steps_lean_on_has_a_disruption_budget() -> None:
    budgets = {name for name, manifest in MANIFESTS.items() if manifest["kind"] == "PodDisruptionBudget"}
    assert {name.split()[-1] for name in budgets} == {"marlaas-web", "marlaas-engine"}


@pytest.mark.parametrize("name", [name for name, manifest in MANIFESTS.items() if manifest["kind"] in ("Service", "PodDisruptionBudget")])
def test_each_selector_finds_pods_of_its_own_file_and_named_ports_exist(name: str) -> None:
    spec = MANIFESTS[name]["spec"]
    wanted = spec["selector"].get("matchLabels", spec["selector"])
    found = [
        pod for other, pod in PODS if other.split(":")[0] == name.split(":")[0] and wanted.items() <= pod["metadata"]["labels"].items()
    ]
    assert found
    ports = {port["name"]: port for pod in found for c in pod["spec"]["containers"] for port in c.get("ports", ())}
    assert {port["targetPort"] for port in spec.get("ports", ()) if isinstance(port["targetPort"], str)} <= ports.keys()


@pytest.mark.parametrize(("name", "pod"), PODS)
def test_each_volume_that_is_mounted_is_there(name: str, pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    claims = [claim["metadata"]["name"] for claim in MANIFESTS[name].get("spec", {}).get("volumeClaimTemplates", ())]
    there = {volume["name"] for volume in spec["volumes"]} | set(claims)
    assert {mount["name"] for c in spec["containers"] for mount in c["volumeMounts"]} <= there
    known = {manifest["metadata"]["name"] for manifest in MANIFESTS.values() if manifest["kind"] == "PersistentVolumeClaim"}
    assert {volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume} <= known


@pytest.mark.parametrize("part", ["web", "worker", "ingester"])
def test_the_engine_leaves_cores_to_what_people_wait_for(part: str) -> None:
    [pod] = [pod for _, pod in PODS if pod["metadata"]["labels"].get("part") == part]
    [container] = pod["spec"]["containers"]
    wanted = container["resources"]["requests"]["cpu"]
    assert (int(wanted[:-1]) / 1000 if wanted.endswith("m") else int(wanted)) >= 0.5, "its weight beside the engine's is what it asks for"
    [preferred] = pod["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"]["labelSelector"]["matchLabels"] == {"app": "marlaas", "part": "engine"}


def test_nothing_may_be_reached_but_what_is_named() -> None:
    policies = {manifest["metadata"]["name"]: manifest["spec"] for manifest in MANIFESTS.values() if manifest["kind"] == "NetworkPolicy"}
    assert policies["nothing-by-default"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    [inside, world] = policies["engine"]["egress"]
    assert list(inside["to"][0]) == ["podSelector"]
    private = {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"}
    assert private <= set(world["to"][0]["ipBlock"]["except"]) and world["ports"] == [{"port": 443}]


def test_the_cluster_asks_for_a_token_and_has_the_engines_version_of_ray() -> None:
    [cluster] = [manifest for manifest in MANIFESTS.values() if manifest["kind"] == "RayCluster"]
    locked = re.search(r"^ray==(\S+)", (DEPLOY / "locks" / "engine-cuda.txt").read_text(), re.MULTILINE)
    assert (cluster["spec"]["authOptions"], cluster["spec"]["rayVersion"]) == ({"mode": "token"}, locked[1])


# compose


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_each_service_fits_its_schema_and_is_hardened(name: str) -> None:
    service = COMPOSE["services"][name]
    jsonschema.validate(service, schemas.COMPOSE_SERVICE)
    assert "no-new-privileges:true" in service["security_opt"]
    assert name == "postgres" or (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    sources = {volume.split(":")[0] for volume in service["volumes"]}
    assert sources - COMPOSE["volumes"].keys() <= {f"./{path.name}" for path in DEPLOY.iterdir()}
    assert set(service["networks"]) <= COMPOSE["networks"].keys()


def test_where_all_want_the_same_cores_the_engine_goes_last() -> None:
    usual = 1024
    shares = {name: service.get("cpu_shares", usual) for name, service in COMPOSE["services"].items()}
    assert shares.pop("engine") * 2 <= min(shares.values())


def secrets_of(side: str) -> set[str]:
    """The settings of this section of deploy/env.example that nobody else should know."""
    section = re.split(r"^# --- ", (DEPLOY / "env.example").read_text().partition(f"# --- {side} ")[2], flags=re.M)[0]
    telling = re.compile(r"(SECRET|KEYS?|FALLBACKS|PASSWORD|(?<!PER_)TOKEN|(DATABASE|REDIS|EMAIL)_URL)$")
    return set(filter(telling.search, re.findall(r"^#? ?([A-Z_]+)=", section, re.M)))


def test_neither_side_of_compose_holds_the_others_secrets() -> None:
    services = COMPOSE["services"]
    assert {"MARLAAS_SECRET_KEY", "DATABASE_URL"} < secrets_of("portal") and "MARLAAS_JUDGE_KEYS" in secrets_of("engine")
    assert {services["engine"]["environment"].get(name) for name in secrets_of("portal")} == {""}
    assert {services["web"]["environment"].get(name) for name in secrets_of("engine")} == {""}


def required_keys(container: dict[str, Any]) -> set[str]:
    """Of the one Secret, what it does not start without."""
    refs = [variable["valueFrom"]["secretKeyRef"] for variable in container.get("env", ()) if "valueFrom" in variable]
    return {ref["key"] for ref in refs if ref["name"] == "marlaas-settings" and not ref.get("optional")}


def test_on_kubernetes_neither_side_holds_the_others_secrets_and_an_example_filled_in_is_enough() -> None:
    given = set(re.findall(r"^([A-Z_]+)=", (DEPLOY / "env.example").read_text(), re.M))
    containers = {container["name"]: container for _, container in CONTAINERS}
    for name in ("web", "worker", "ingester"):
        own = {variable["name"]: variable.get("value") for variable in containers[name]["env"]}
        assert {own.get(secret) for secret in secrets_of("engine") | {"MARLAAS_OWNER_DATABASE_URL"}} == {""}
    for name in ("engine", "launcher"):
        assert "envFrom" not in containers[name] and required_keys(containers[name]) <= given
        told = {variable["name"] for variable in containers[name]["env"]}
        assert not told & secrets_of("portal") and {"MARLAAS_ENGINE_SECRET_FALLBACKS", "MARLAAS_JUDGE_KEYS"} <= told


def test_in_compose_the_portal_stands_before_the_walls_of_the_database_and_owns_nothing() -> None:
    services = COMPOSE["services"]
    for name in ("web", "worker", "ingester"):
        told = services[name]["environment"]
        assert told["DATABASE_URL"].startswith("postgres://marlaas_app:") and told["MARLAAS_OWNER_DATABASE_URL"] == ""
    assert services["migrations"]["environment"]["MARLAAS_OWNER_DATABASE_URL"].startswith("postgres://marlaas_owner:")
    wanted = set(re.findall(r"^\\getenv \w+ (\w+)$", (DEPLOY / "roles.sql").read_text(), re.MULTILINE))
    assert len(wanted) == 3 and wanted <= services["roles"]["environment"].keys()
    assert {"./roles.sql:/roles.sql:ro"} == set(services["roles"]["volumes"]) and "/roles.sql" in services["roles"]["command"]
    assert services["migrations"]["depends_on"] == {"roles": {"condition": "service_completed_successfully"}}


def test_behind_the_proxy_that_both_need_people_have_addresses_of_their_own() -> None:
    [settings] = [manifest["data"] for manifest in MANIFESTS.values() if manifest["kind"] == "ConfigMap"]
    assert settings["MARLAAS_TRUSTED_PROXIES"] == "1"
    assert COMPOSE["services"]["web"]["environment"]["MARLAAS_TRUSTED_PROXIES"].endswith(":-1}")


def test_database_and_queue_are_reached_from_inside_only() -> None:
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert all(
        COMPOSE["services"][name]["networks"] == ["inside"] and "ports" not in COMPOSE["services"][name] for name in ("postgres", "valkey")
    )


# images


@pytest.mark.parametrize("folder", sorted(set(IMAGES.values())))
def test_what_an_image_copies_is_there_and_not_ignored(folder: str) -> None:
    text = (DEPLOY / folder / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().split()
    sources = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert sources and all((ROOT / source).exists() and source.split("/")[0] not in ignored for source in sources)


@pytest.mark.parametrize("folder", ["portal", "cuda", "cpu"])
def test_an_image_runs_as_nobody_by_number(folder: str) -> None:
    assert "\nUSER 10001\n" in (DEPLOY / folder / "Dockerfile").read_text()


@pytest.mark.parametrize("folder", ["portal", "cuda", "cpu", "ascend"])
def test_an_image_does_not_carry_tests_or_secrets(folder: str) -> None:
    text = (DEPLOY / folder / "Dockerfile").read_text()
    assert "COPY . " not in text and "COPY tests" not in text and "SECRET" not in text


# Ascend


def pinned() -> dict[str, str]:
    return dict(re.findall(r"^([a-z-]+)==(\S+)$", (DEPLOY / "ascend" / "constraints.txt").read_text(), re.MULTILINE))


def test_the_pinned_versions_of_ascend_go_together_and_are_those_of_the_base_image() -> None:
    pins = pinned()
    assert {"torch", "torch-npu", "vllm", "vllm-ascend", "transformers"} <= pins.keys()
    assert disagreements(pins) == []
    assert f"vllm-ascend:v{pins['vllm-ascend']}\n" in (DEPLOY / "ascend" / "Dockerfile").read_text()


def test_ascends_image_gets_everything_that_the_engine_needs() -> None:
    def name(line: str) -> str:
        return re.match(r"[A-Za-z0-9-]+", line)[0]

    needed = {name(line) for line in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["engine"])}
    lines = (DEPLOY / "ascend" / "requirements.txt").read_text().splitlines()
    assert needed - {name(line) for line in lines if not line.startswith("#")} == {"transformers"}, "transformers comes with the base image"
