"""Django's settings, all derived from ``portal.env``. Reading order: what is installed, where data lives, who may do what, how it looks."""

from __future__ import annotations

import sys

from celery.schedules import crontab
from django.templatetags.static import static

from portal import csp, env, logs

ENV = env.load()
ROOT = env.ROOT
STATE = ENV.state
STATE.mkdir(parents=True, exist_ok=True)

SECRET_KEY = ENV.django_secret()
SECRET_KEY_FALLBACKS = list(ENV.secret_key_fallbacks)
DEBUG = ENV.debug
ALLOWED_HOSTS = list(ENV.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(ENV.trusted_origins)
ROOT_URLCONF = "portal.urls"
ASGI_APPLICATION = "portal.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "tenants",
    "portal.datasets",
    "portal.rewards",
    "portal.jobs",
    "portal.notices",
    "portal.billing",
    "portal.openai",
    "portal.accounts",
    "portal.api",
    "portal.console",
    "portal.pages",
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "channels",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "rest_framework",
    "drf_spectacular",
    "django_celery_beat",
    "django_cotton",
    "django_structlog",
    "csp",
]

MIDDLEWARE = [
    "portal.metrics_web.middleware",
    "portal.requests.request_id",
    "django.middleware.security.SecurityMiddleware",
    "portal.requests.no_nul",
    "portal.static_files.StaticFiles",
    "portal.csp.Middleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "allauth.usersessions.middleware.UserSessionsMiddleware",
    "tenants.middleware.tenant_middleware",
    "portal.console.viewing.middleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_structlog.middlewares.RequestMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["django_cotton.templatetags.cotton"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "csp.context_processors.nonce",
                "portal.pages.context_processors.shell",
            ],
        },
    }
]

# --- where data lives ---------------------------------------------------------------------------------------------------------------
DATABASES = {"default": ENV.database(migrating=sys.argv[1:2] == ["migrate"])}
BLOBS_DIR = STATE / "blobs"
FILE_UPLOAD_TEMP_DIR = STATE / "uploads"
FILE_UPLOAD_TEMP_DIR.mkdir(parents=True, exist_ok=True)
MAX_UPLOAD_BYTES = ENV.max_upload_bytes
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": ENV.redis, "KEY_PREFIX": "marlaas"}}
CHANNEL_LAYERS = {"default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [ENV.redis]}}}
SESSION_ENGINE = "django.contrib.sessions.backends.db"

CELERY_BROKER_URL = ENV.celery_broker
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_TIME_LIMIT = 120
CELERY_TASK_SOFT_TIME_LIMIT = 90
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_BEAT_SCHEDULE = {
    "sweep": {"task": "portal.jobs.tasks.sweep", "schedule": 5.0, "options": {"expires": 5}},
    "retain": {"task": "portal.jobs.tasks.retain", "schedule": crontab(minute=37), "options": {"expires": 3600}},
    "tell-stripe": {"task": "portal.billing.tasks.tell", "schedule": 60.0, "options": {"expires": 60}},
    "tell-people": {"task": "portal.notices.tasks.carry", "schedule": 5.0, "options": {"expires": 5}},
    "handle-notices": {"task": "portal.billing.tasks.handle", "schedule": 30.0, "options": {"expires": 30}},
    "billing-alerts": {"task": "portal.billing.tasks.alert", "schedule": 300.0, "options": {"expires": 300}},
    "chats": {"task": "portal.openai.tasks.sweep", "schedule": 60.0, "options": {"expires": 60}},
    "billing-holds": {"task": "portal.billing.tasks.sweep", "schedule": 60.0, "options": {"expires": 60}},
    "billing-storage": {"task": "portal.billing.tasks.store", "schedule": crontab(minute=7), "options": {"expires": 3600}},
    "billing-nightly": {"task": "portal.billing.tasks.nightly", "schedule": crontab(hour=3, minute=17), "options": {"expires": 3600}},
    "purge": {"task": "portal.accounts.tasks.sweep", "schedule": 60.0, "options": {"expires": 60}},
}

ENGINE_URL = ENV.engine_url
ENGINES = ENV.engines
ENGINE_SECRET = ENV.engine_bearer()
ENGINE_SECRET_FALLBACKS = ENV.engine_secret_fallbacks
DEFAULT_MODEL = ENV.model
METRICS_TOKEN = ENV.metrics_bearer()

CURRENCY = ENV.currency
STARTING_CREDIT_MICROS = int(ENV.starting_credit * 1_000_000)  # exact: it has at most six decimal places
# Without a key credit is granted by operators, and Stripe is told of nothing.
STRIPE_KEY = ENV.stripe_key.get_secret_value() if ENV.stripe_key else ""
STRIPE_WEBHOOK_SECRET = ENV.stripe_webhook_secret.get_secret_value() if ENV.stripe_webhook_secret else ""
STRIPE_API_BASE = ENV.stripe_api_base
GRACE_DAYS = ENV.grace_days

# --- who may do what ----------------------------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend", "allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "account_login"
ALLAUTH_TRUSTED_PROXY_COUNT = ENV.trusted_proxies  # allauth's limits, our own, allow-lists and the audit log: all read the address by it
ACCOUNT_ADAPTER = "tenants.adapter.AccountAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_UNIQUE_EMAIL = True
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_RATE_LIMITS = {"signup": "20/h/ip", "login_failed": "10/5m/ip,5/5m/key", "reset_password": "20/h/ip,5/h/key"}
# Embedded too, where mail lands in a file of the state directory: a sign-up that lets people in at once tells which addresses are taken.
ACCOUNT_EMAIL_VERIFICATION = "mandatory"
ACCOUNT_LOGIN_ON_EMAIL_CONFIRMATION = True  # allauth does it in the session that signed up, and in no other
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_REAUTHENTICATION_METHODS = ["password", "mfa"]  # who reads a person's mail is not yet that person
ACCOUNT_FORMS = {"signup": "tenants.forms.SignupForm"}
ACCOUNT_EMAIL_SUBJECT_PREFIX = "MARLaaS: "
ACCOUNT_LOGOUT_ON_GET = False
MFA_ADAPTER = "portal.accounts.factors.FactorAdapter"
MFA_FORMS = {"activate_totp": "portal.accounts.factors.AppForm"}
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_TOTP_ISSUER = "MARLaaS"
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not ENV.production
USERSESSIONS_TRACK_ACTIVITY = False

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = ENV.production
SECURE_SSL_REDIRECT = ENV.production
# Probes and scrapers come from inside, by plain HTTP and by a process's address instead of the site's name.
ASKED_FROM_INSIDE = ("/healthz", "/readyz", "/metrics")
SECURE_REDIRECT_EXEMPT = [f"^{path[1:]}$" for path in ASKED_FROM_INSIDE]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENV.production else None
SECURE_HSTS_SECONDS = 31_536_000 if ENV.production else 0
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = csp.STRICT

API_CALLS_PER_MINUTE = {"token": ENV.api_calls_per_token, "tenant": ENV.api_calls_per_tenant}
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["portal.api.auth.TokenAuthentication", "portal.api.auth.SessionAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["portal.api.auth.HasScope", "portal.api.parameters.OnlyDocumented"],
    "DEFAULT_THROTTLE_CLASSES": ["portal.api.limits.PerToken"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["portal.api.parsers.JSONParser"],
    "DEFAULT_PAGINATION_CLASS": "portal.api.paging.NewestFirst",
    "DEFAULT_SCHEMA_CLASS": "portal.api.schema.ByNoun",
    "EXCEPTION_HANDLER": "portal.api.errors.handle",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "MARLaaS",
    "DESCRIPTION": "Fine-tune language models by reinforcement learning from verifiable rewards.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "portal.api.schema.common_errors",
        "portal.api.schema.whole_answers",
    ],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
}

# --- how it looks and speaks --------------------------------------------------------------------------------------------------------
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "/static/"
STATIC_ROOT = STATE / "static"
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
STATICFILES_DIRS = [ROOT / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": STATE / "media"}},
    # Hashed names need collectstatic, a step of the production image; embedded, files are served as they lie.
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if ENV.production
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not ENV.production
WHITENOISE_AUTOREFRESH = ENV.debug
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
UNFOLD = {
    "SITE_TITLE": "MARLaaS records",
    "SITE_HEADER": "MARLaaS",
    "SITE_URL": "/",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("img/mark.svg")}],
}

DEFAULT_FROM_EMAIL = SERVER_EMAIL = ENV.email_from
if ENV.email_url:
    globals().update(env.email(ENV.email_url.get_secret_value()))
else:
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = STATE / "mail"

LOGGING_CONFIG = None
logs.configure(json=ENV.production if ENV.log_json is None else ENV.log_json)
DJANGO_STRUCTLOG_IP_LOGGING_ENABLED = False
DJANGO_STRUCTLOG_CELERY_ENABLED = True  # a task's lines carry the id of the request that it follows from
DJANGO_STRUCTLOG_TRUST_UPSTREAM_REQUEST_ID = True  # portal.requests has written it; a client's own never gets so far
