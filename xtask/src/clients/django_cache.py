"""Django's cache and sessions by django-redis."""

import sys
from importlib import import_module

import django
from django.conf import settings

place = f"redis://127.0.0.1:{sys.argv[1]}/3"
backend = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": place}
engine = "django.contrib.sessions.backends.cache"
settings.configure(CACHES={"default": backend}, SESSION_ENGINE=engine, SECRET_KEY="secret")
django.setup()

from django.core.cache import cache  # noqa: E402

cache.set("value", {"list": [1, 2]}, 60)
assert cache.get("value") == {"list": [1, 2]}
assert 0 < cache.ttl("value") <= 60
cache.set("number", 1)
assert cache.incr("number", 2) == 3
many = {f"many:{i}": i for i in range(50)}
cache.set_many(many)
assert cache.get_many(list(many)) == many
assert cache.delete_pattern("many:*") == 50

Store = import_module(engine).SessionStore
session = Store()
session["user"] = 7
session.save()
assert Store(session_key=session.session_key)["user"] == 7
session.flush()
assert "user" not in Store(session_key=session.session_key)
