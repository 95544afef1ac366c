"""Reports which tests unittest and pytest ran, over a descriptor that the verifier opened.

Python imports this module when it starts, before it can import anything of the workspace. A process takes its nonce from the
descriptor, loads the test programs, and closes the descriptor for everything that it starts. Code under test runs in the same process
and can forge what is reported: canaries show that it does. It works with Python 3.5 and newer.
"""


def _channel():
    """Takes this process's nonce. Returns a function that sends a record, or None where the verifier opened no channel."""
    import json
    import os
    import socket

    try:
        channel = socket.socket(fileno=os.dup(9))
        nonce = channel.recv(33, socket.MSG_DONTWAIT)
        os.close(9)
    except (OSError, ValueError):
        return None
    if len(nonce) != 33:
        return None
    sendall, dumps, getpid, nonce = channel.sendall, json.dumps, os.getpid, nonce[:32] + b" "
    owner = getpid()

    def send(**record):
        if getpid() == owner:  # and no process that it forked
            sendall(nonce + dumps(record).encode() + b"\n")

    return send


def _importing():
    """Tells whether some import is under way: code that a module runs when it is imported is no run of the tests."""
    import sys

    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class _Run:
    """One run of a test program: the worst status of each test, and what the first ones that failed did so with."""

    order = ("PASSED", "XFAIL", "SKIPPED", "FAILED", "ERROR")

    def __init__(self, send):
        self.send, self.statuses, self.messages = send, {}, {}

    def note(self, name, status, message=""):
        if self.order.index(status) >= self.order.index(self.statuses.get(name, "PASSED")):
            self.statuses[name] = status
            if message and len(self.messages) < 200:
                self.messages.setdefault(name, message[:400])

    def finish(self):
        for name, status in self.statuses.items():
            said = {"message": self.messages[name]} if name in self.messages else {}
            self.send(test=name[:2000], status=status, **said)
        self.send(ran=len(self.statuses))


def _described(method):
    """Describes a test. Lists of Django's tests name it so: unittest prints the description before the status."""
    text = getattr(method, "__doc__", None)
    return text.strip().split("\n")[:1] if text else []


def _unittest(send):
    """Reports the runs of unittest: the outermost ones, and none that a module begins while it is imported."""
    import functools
    import traceback
    import unittest

    result = unittest.TestResult
    runs = {}

    def before(name, note):
        original = getattr(result, name)

        @functools.wraps(original)
        def method(self, *args, **kwargs):
            note(self, *args)
            return original(self, *args, **kwargs)

        setattr(result, name, method)

    def begin(self):
        if not runs and not _importing():
            runs[id(self)] = _Run(send)

    def end(self):
        run = runs.pop(id(self), None)
        if run:
            run.finish()

    def failure(err):
        try:
            return "".join(traceback.format_exception_only(err[0], err[1])).strip()
        except Exception:
            return ""

    def noting(status):
        def note(self, test, err=None):
            run = runs.get(id(self))
            if not run:
                return
            message = failure(err) if status in ("FAILED", "ERROR") else ""
            if not isinstance(test, unittest.TestCase):
                run.note(str(test), status, message)  # it stands for a class or module that could not be set up
                return
            for name in [str(test)] + _described(getattr(test, test._testMethodName, None)):
                run.note(name, status, message)

        return note

    def subtest(self, test, _, err):
        if err is not None:
            noting("FAILED")(self, test, err)

    before("startTestRun", begin)
    before("stopTestRun", end)
    before("addSubTest", subtest)
    for name, status in (
        ("addSuccess", "PASSED"),
        ("addExpectedFailure", "XFAIL"),
        ("addSkip", "SKIPPED"),
        ("addFailure", "FAILED"),
        ("addUnexpectedSuccess", "FAILED"),
        ("addError", "ERROR"),
    ):
        before(name, noting(status))


def _failure(report):
    """What a test of pytest failed with, without the way to it."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash:
        return str(crash.message)
    text = str(report.longrepr)
    return "\n".join(line[1:].strip() for line in text.splitlines() if line.startswith("E  ")) or text[-400:]


def _pytest(send):
    """Reports the outermost run of pytest in this process."""
    import sys
    import types

    try:
        import pytest
        import _pytest.config
    except ImportError:
        return

    first = []

    class Reporter:
        def __init__(self):
            self.run = _Run(send)

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item, call):
            outcome = yield
            if call.excinfo is not None and outcome.get_result().passed:
                self.run.note(item.nodeid, "FAILED")  # a plugin made a pass of it

        def pytest_runtest_logreport(self, report):
            if report.failed:
                self.run.note(report.nodeid, "FAILED" if report.when == "call" else "ERROR", _failure(report))
            elif report.skipped or report.when == "call":
                otherwise = "SKIPPED" if report.skipped else "PASSED"
                self.run.note(report.nodeid, "XFAIL" if hasattr(report, "wasxfail") else otherwise)

        def pytest_collectreport(self, report):
            if report.failed:
                self.run.note(report.nodeid, "ERROR", _failure(report))

        @pytest.hookimpl(trylast=True)
        def pytest_sessionfinish(self):
            self.run.finish()

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(early_config):
        if not first and not _importing():
            first.append(early_config)
            early_config.pluginmanager.register(Reporter(), "rondo_report_run")

    plugin = types.ModuleType("rondo_report")
    plugin.pytest_load_initial_conftests = pytest_load_initial_conftests
    sys.modules["rondo_report"] = plugin
    _pytest.config.default_plugins += ("rondo_report",)


def _trusted():
    """Leaves folders that somebody can have written to out of what PYTHONPATH names. Returns the whole path of modules."""
    import os
    import sys

    path = sys.path[:]
    named = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(":")]
    own = (sys.prefix + "/", sys.exec_prefix + "/", sys.base_prefix + "/")

    def trusted(entry):
        entry = os.path.abspath(entry)
        return entry not in named or (entry + "/").startswith(own) or not os.access(entry, os.W_OK)

    sys.path[:] = [entry for entry in path if trusted(entry)]
    return path


def _start():
    """Loads the test programs and what they need of the standard library, from where no code under test can be."""
    import sys

    path = _trusted()
    try:
        _report()
    finally:
        sys.path[:] = path


def _report():
    import atexit
    import sys
    import threading

    send = _channel()
    if send is None:
        return
    with open("/proc/self/cmdline", "rb") as file:
        command = file.read(4096).split(b"\0")
    send(begin=command[0].decode("ascii", "replace")[:200])

    def end():
        # At the process's own end no function of Python's has called this one, and it is the main thread.
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            sys._getframe(1)
        except ValueError:
            send(end=True)

    atexit.register(end)
    _unittest(send)
    if any(word in (b"pytest", b"py.test") or word.endswith((b"/pytest", b"/py.test")) for word in command):
        _pytest(send)


_start()
