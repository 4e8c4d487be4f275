"""Sessions of Flask in strings, by Flask-Session."""

import sys

import redis
from flask import Flask, session
from flask_session import Session

app = Flask(__name__)
app.config.update(SESSION_TYPE="redis", SESSION_REDIS=redis.Redis(port=int(sys.argv[1])))
Session(app)


@app.get("/")
def visits():
    session["visits"] = session.get("visits", 0) + 1
    return str(session["visits"])


with app.test_client() as client:
    assert [client.get("/").text for _ in range(3)] == ["1", "2", "3"]
with app.test_client() as other:
    assert other.get("/").text == "1"
