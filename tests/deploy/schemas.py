"""Schemas of the kinds that deploy/kubernetes uses, trimmed by hand to the fields that stand there: a field too many is a typing error.

Written after the published schemas of Kubernetes 1.31, against which the manifests were checked once; these here need no network.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 0}
YES: Schema = {"type": "boolean"}
WORDS: Schema = {"type": "object", "additionalProperties": TEXT}
QUANTITY: Schema = {"anyOf": [COUNT, {"type": "string", "pattern": r"^\d+(m|Ki|Mi|Gi|Ti)?$"}]}
PORT: Schema = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 65535}, {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,14}$"}]}


def thing(required: str = "", /, **fields: Schema) -> Schema:
    """An object with these fields and no others."""
    return {"type": "object", "properties": fields, "required": required.split(), "additionalProperties": False}


def some(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


SELECTOR = thing(
    matchLabels=WORDS,
    matchExpressions=some(thing("key operator", key=TEXT, operator={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]}, values=some(TEXT))),
)
METADATA = thing("name", name=TEXT, namespace=TEXT, labels=WORDS)
HTTP = thing("path port", path={"type": "string", "pattern": "^/"}, port=PORT)
PROBE = thing(
    httpGet=HTTP,
    tcpSocket=thing("port", port=PORT),
    periodSeconds=COUNT,
    timeoutSeconds=COUNT,
    failureThreshold={"type": "integer", "minimum": 1},
)
AMOUNTS: Schema = {"type": "object", "additionalProperties": QUANTITY}
CONTAINER = thing(
    "name image securityContext resources",
    name=TEXT,
    image=TEXT,
    command=some(TEXT),
    env=some(
        thing(
            "name",
            name=TEXT,
            value={"type": "string"},
            valueFrom=thing("secretKeyRef", secretKeyRef=thing("name key", name=TEXT, key=TEXT, optional=YES)),
        )
    ),
    envFrom=some(thing(configMapRef=thing("name", name=TEXT), secretRef=thing("name", name=TEXT))),
    ports=some(thing("containerPort", name=TEXT, containerPort=PORT)),
    securityContext=thing(
        "readOnlyRootFilesystem allowPrivilegeEscalation capabilities",
        readOnlyRootFilesystem=YES,
        allowPrivilegeEscalation=YES,
        capabilities=thing("drop", drop=some(TEXT)),
    ),
    resources=thing("requests limits", requests=AMOUNTS, limits=AMOUNTS),
    volumeMounts=some(
        thing("name mountPath", name=TEXT, mountPath={"type": "string", "pattern": "^/"}, subPath={"type": "string"}, readOnly=YES)
    ),
    startupProbe=PROBE,
    livenessProbe=PROBE,
    readinessProbe=PROBE,
)
_TERM = thing("topologyKey labelSelector", topologyKey=TEXT, labelSelector=SELECTOR)
_WEIGHED = thing("weight podAffinityTerm", weight={"type": "integer", "minimum": 1, "maximum": 100}, podAffinityTerm=_TERM)
_PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": some(_WEIGHED)}
POD = thing(
    "containers securityContext automountServiceAccountToken",
    containers=some(CONTAINER),
    restartPolicy={"enum": ["Always", "OnFailure", "Never"]},
    automountServiceAccountToken={"const": False},
    terminationGracePeriodSeconds=COUNT,
    securityContext=thing(
        "runAsNonRoot runAsUser seccompProfile",
        runAsNonRoot={"const": True},
        runAsUser={"type": "integer", "minimum": 1},
        runAsGroup=COUNT,
        fsGroup=COUNT,
        seccompProfile=thing("type", type={"const": "RuntimeDefault"}),
    ),
    affinity=thing("podAntiAffinity", podAntiAffinity=thing("preferredDuringSchedulingIgnoredDuringExecution", **_PREFERRED)),
    topologySpreadConstraints=some(
        thing(
            "maxSkew topologyKey whenUnsatisfiable",
            maxSkew=COUNT,
            topologyKey=TEXT,
            whenUnsatisfiable={"enum": ["ScheduleAnyway", "DoNotSchedule"]},
            labelSelector=SELECTOR,
        )
    ),
    volumes=some(
        thing(
            "name",
            name=TEXT,
            emptyDir=thing(medium={"const": "Memory"}, sizeLimit=QUANTITY),
            persistentVolumeClaim=thing("claimName", claimName=TEXT),
        )
    ),
)
TEMPLATE = thing("metadata spec", metadata=thing("labels", labels=WORDS), spec=POD)
ACCESS = {"enum": ["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"]}
CLAIM = thing("accessModes resources", accessModes=some(ACCESS), resources=thing("requests", requests=thing("storage", storage=QUANTITY)))
PEER = thing(
    podSelector=SELECTOR,
    namespaceSelector=SELECTOR,
    ipBlock=thing("cidr", cidr=TEXT, **{"except": some({"type": "string", "pattern": r"/\d+$"})}),
)
POLICY_PORTS = some(thing("port", port=PORT, protocol={"enum": ["TCP", "UDP"]}))
_GROUP = {"rayStartParams": WORDS, "template": TEMPLATE}

# (apiVersion, kind) → the schema of its ``spec``
SPECS: dict[tuple[str, str], Schema] = {
    ("apps/v1", "Deployment"): thing(
        "replicas selector template",
        replicas=COUNT,
        selector=SELECTOR,
        template=TEMPLATE,
        strategy=thing(type={"enum": ["Recreate", "RollingUpdate"]}, rollingUpdate=thing(maxUnavailable=COUNT, maxSurge=COUNT)),
    ),
    ("apps/v1", "StatefulSet"): thing(
        "serviceName replicas selector template",
        serviceName=TEXT,
        replicas=COUNT,
        selector=SELECTOR,
        template=TEMPLATE,
        volumeClaimTemplates=some(thing("metadata spec", metadata=METADATA, spec=CLAIM)),
    ),
    ("batch/v1", "Job"): thing("template", template=TEMPLATE, backoffLimit=COUNT, ttlSecondsAfterFinished=COUNT),
    ("v1", "Service"): thing(
        "selector ports",
        selector=WORDS,
        publishNotReadyAddresses=YES,
        ports=some(thing("port", name=TEXT, port=PORT, targetPort=PORT)),
    ),
    ("v1", "PersistentVolumeClaim"): CLAIM,
    ("policy/v1", "PodDisruptionBudget"): thing("selector", selector=SELECTOR, minAvailable=COUNT, maxUnavailable=COUNT),
    ("networking.k8s.io/v1", "NetworkPolicy"): thing(
        "podSelector policyTypes",
        podSelector=SELECTOR,
        policyTypes=some({"enum": ["Ingress", "Egress"]}),
        ingress=some(thing(**{"from": some(PEER), "ports": POLICY_PORTS})),
        egress=some(thing(to=some(PEER), ports=POLICY_PORTS)),
    ),
    ("ray.io/v1", "RayCluster"): thing(
        "rayVersion headGroupSpec workerGroupSpecs authOptions",
        rayVersion=TEXT,
        authOptions=thing("mode", mode={"const": "token"}),
        headGroupSpec=thing("rayStartParams template", **_GROUP),
        workerGroupSpecs=some(
            thing("groupName rayStartParams template", groupName=TEXT, replicas=COUNT, minReplicas=COUNT, maxReplicas=COUNT, **_GROUP)
        ),
    ),
}
COMPOSE_SERVICE = thing(
    image=TEXT,
    build=thing("context dockerfile", context=TEXT, dockerfile=TEXT),
    user=TEXT,
    command=some({"type": "string"}),
    environment={"type": "object", "additionalProperties": {"type": "string"}},
    env_file=TEXT,
    volumes=some(TEXT),
    tmpfs=some(TEXT),
    networks=some(TEXT),
    ports=some({"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}),
    depends_on={
        "type": "object",
        "additionalProperties": thing(
            "condition", condition={"enum": ["service_healthy", "service_started", "service_completed_successfully"]}
        ),
    },
    healthcheck=thing("test", test=some(TEXT), interval=TEXT, timeout=TEXT, start_period=TEXT, retries=COUNT),
    restart={"enum": ["no", "always", "on-failure", "unless-stopped"]},
    read_only=YES,
    cap_drop=some(TEXT),
    security_opt=some(TEXT),
    shm_size=TEXT,
    cpu_shares={"type": "integer", "minimum": 2},
    stop_grace_period=TEXT,
    deploy={"type": "object"},
)
