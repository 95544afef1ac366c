"""Reports which tests unittest and pytest ran, over a descriptor that the verifier opened.

Python imports this module when it starts, before it can import anything of the workspace. A process takes its nonce from the descriptor,
loads the test programs, remembers what their functions are, and closes the descriptor for everything that it starts. It works with Python
3.5 and newer.
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


def _watch(whole, holders=()):
    """Remembers all members of the classes in whole, and the functions of holders. Returns a function that names a change, or None."""
    import types

    names = {holder: set(vars(holder)) for holder in whole}

    def functions(holder):
        for name, value in list(vars(holder).items()):
            function = getattr(value, "__func__", value)
            function = getattr(function, "fget", function)
            if isinstance(function, types.FunctionType) or holder in names:
                yield name, value, function

    def state(function):
        return tuple(getattr(function, name, None) for name in ("__code__", "__defaults__", "__kwdefaults__"))

    known = [
        (holder, name, value, function, state(function))
        for holder in tuple(whole) + tuple(holders)
        for name, value, function in functions(holder)
    ]

    def changed():
        for holder, name, value, function, before in known:
            if vars(holder).get(name) is not value or any(a is not b for a, b in zip(state(function), before)):
                return "%s.%s" % (getattr(holder, "__qualname__", holder.__name__), name)
        for holder, before in names.items():
            for name in set(vars(holder)) - before:
                return "%s.%s" % (holder.__qualname__, name)
        return None

    return changed


def _origins():
    """Returns two functions: whether code is of a file that the agent left alone, and whether all code that decides on a test is."""
    import inspect
    import json
    import os
    import unittest

    realpath, isfile = os.path.realpath, os.path.isfile
    with open(os.path.join(os.path.dirname(__file__), "changed.json")) as file:
        changed = set(realpath(name) for name in json.load(file))

    def untouched(function):
        code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
        if code is None:
            return False
        name = realpath(code.co_filename)
        return isfile(name) and name not in changed

    case = unittest.TestCase
    decisive = [
        name for name in vars(case) if name.startswith("assert") or name in ("run", "fail", "_callTestMethod", "id", "__str__", "__call__")
    ]

    def known(cls, function):
        functions = [function]
        if cls is not None and issubclass(cls, case):
            bases = cls.__mro__[: cls.__mro__.index(case)]
            functions += [vars(base)[name] for base in bases for name in decisive if name in vars(base)]
        return all(untouched(function) for function in functions)

    return untouched, known


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
    """One run of a test program: the worst status of each test. Tests that the agent wrote are others than those that are asked for."""

    order = ("PASSED", "XFAIL", "SKIPPED", "FAILED", "ERROR")

    def __init__(self, send, changed):
        self.send, self.changed, self.statuses, self.told, self.foreign = send, changed, {}, False, set()

    def note(self, name, status, known=True):
        self.check()
        if not known:
            self.foreign.add(name)
        if self.order.index(status) >= self.order.index(self.statuses.get(name, "PASSED")):
            self.statuses[name] = status

    def check(self):
        changed = self.changed()
        if changed and not self.told:
            self.told = True
            self.send(tampered=changed)

    def finish(self):
        self.check()
        for name, status in self.statuses.items():
            if name in self.foreign:
                continue
            self.send(test=name[:2000], status=status)
        self.send(ran=len(self.statuses))


def _unittest_parts():
    """The classes of unittest that decide how a test ends, for pytest too."""
    import unittest

    return (
        unittest.TestCase,
        unittest.case._Outcome,
        unittest.TestResult,
        unittest.TestSuite,
        unittest.suite.BaseTestSuite,
        unittest.TextTestRunner,
        unittest.TextTestResult,
    )


def _described():
    """Returns a function that describes a test. Lists of Django's tests name it so: unittest prints the description before the status."""
    import inspect

    def described(method):
        function = inspect.unwrap(getattr(method, "__func__", method))
        text = getattr(function, "__doc__", None)
        if not text or text not in getattr(getattr(function, "__code__", None), "co_consts", ()):
            return []  # none, or one that the code does not have
        return text.strip().split("\n")[:1]

    return described


def _unittest(send):
    """Reports the runs of unittest: the outermost ones, and none that a module begins while it is imported."""
    import functools
    import unittest

    result = unittest.TestResult
    runs = {}
    known, described = _origins()[1], _described()

    def before(name, note):
        original = getattr(result, name)

        @functools.wraps(original)
        def method(self, *args, **kwargs):
            note(self, *args)
            return original(self, *args, **kwargs)

        setattr(result, name, method)

    def begin(self):
        if not runs and not _importing():
            runs[id(self)] = _Run(send, changed)

    def end(self):
        run = runs.pop(id(self), None)
        if run:
            run.finish()

    def noting(status):
        def note(self, test, *_):
            run = runs.get(id(self))
            if not run:
                return
            if not isinstance(test, unittest.TestCase):
                run.note(str(test), status)  # it stands for a class or module that could not be set up
                return
            method = getattr(test, test._testMethodName, None)
            ours = known(type(test), method)
            for name in [str(test)] + described(method):
                run.note(name, status, ours)

        return note

    def subtest(self, test, _, err):
        if err is not None:
            noting("FAILED")(self, test)

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
    changed = _watch(_unittest_parts())


def _pytest(send):
    """Reports the outermost run of pytest in this process."""
    import sys
    import types

    try:
        import pluggy  # noqa: F401
        import pytest
        import _pytest.config
        import _pytest.python
        import _pytest.reports
        import _pytest.runner
        import _pytest.skipping
        import _pytest.unittest
    except ImportError:
        return

    runner, reports = _pytest.runner, _pytest.reports
    pluggy_parts = [
        sys.modules[name] for name in ("pluggy._callers", "pluggy.callers", "pluggy._hooks", "pluggy.hooks") if name in sys.modules
    ]
    holders = [
        runner,
        runner.CallInfo,
        runner.SetupState,
        reports,
        reports.TestReport,
        _pytest.python.Function,
        _pytest.skipping,
        _pytest.unittest.TestCaseFunction,
    ]
    holders += pluggy_parts
    first = []
    untouched, known = _origins()
    deciding = (
        "pytest_runtest_protocol",
        "pytest_runtest_call",
        "pytest_runtest_makereport",
        "pytest_runtest_logreport",
        "pytest_pyfunc_call",
        "pytest_collection_modifyitems",
    )

    class Reporter:
        def __init__(self, config):
            self.config, self.run = config, _Run(send, _watch(_unittest_parts(), holders))

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_protocol(self, item):
            yield
            function = getattr(item, "obj", None)
            if function is not None and not known(item.cls if isinstance(item, _pytest.python.Function) else None, function):
                self.run.foreign.add(item.nodeid)

        def hooked(self):
            for name in deciding:
                for hook in getattr(self.config.hook, name).get_hookimpls():
                    if not untouched(hook.function):
                        return "a hook of " + name
            return None

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item, call):
            outcome = yield
            if call.excinfo is not None and outcome.get_result().passed:
                self.run.note(item.nodeid, "FAILED")  # a plugin made a pass of it

        def pytest_runtest_logreport(self, report):
            if report.failed:
                self.run.note(report.nodeid, "FAILED" if report.when == "call" else "ERROR")
            elif report.skipped:
                self.run.note(report.nodeid, "XFAIL" if hasattr(report, "wasxfail") else "SKIPPED")
            elif report.passed and report.when == "call":
                self.run.note(report.nodeid, "PASSED")

        def pytest_collectreport(self, report):
            if report.failed:
                self.run.note(report.nodeid, "ERROR")

        @pytest.hookimpl(trylast=True)
        def pytest_sessionfinish(self):
            hooked = self.hooked()
            if hooked:
                send(tampered=hooked)
            self.run.finish()

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(early_config):
        if not first and not _importing():
            first.append(early_config)
            early_config.pluginmanager.register(Reporter(early_config), "rondo_report_run")

    plugin = types.ModuleType("rondo_report")
    plugin.pytest_load_initial_conftests = pytest_load_initial_conftests
    sys.modules["rondo_report"] = plugin
    _pytest.config.default_plugins += ("rondo_report",)


def _start():
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
