from pathlib import Path


def test_greeting():
    assert Path("greeting.txt").read_text() == "Hello, world!\n"
