import os
from pathlib import Path


def test_greeting():
    assert Path("/app/hello.txt").read_text() == "HELLO, WORLD\n"


def test_environment():
    assert os.environ["GREETED"] == "world" and os.environ["TEST_DIR"] == "/tests"
