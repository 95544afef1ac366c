package auth

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// harness brings a group as a user of the Python client does, and tries what is not its to state.
const harness = `
import os
import sys

import rondo

with rondo.Client(nats=os.environ["URL"], store=os.environ["STORE"], creds=os.environ["CREDS"], ca=os.environ["CA"], wait=60, timeout=60) as client:
    assert client.config("r")["group_size"] == 2, client.config("r")
    client.state("r", "group.opened", "xmine", {"task": "fix", "size": 2, "policy_version": 0})
    print("stated")
try:
    with rondo.Client(nats=os.environ["URL"], store=os.environ["STORE"], creds=os.environ["CREDS"], ca=os.environ["CA"], wait=60, timeout=600) as client:
        client.state("r", "run.closed", "r", {"reason": "no"})
except rondo.PermissionDenied as error:
    assert "rondo.in.r.run.r.closed" in str(error), error
    print("refused")
try:
    with rondo.Client(nats=os.environ["URL"], store=os.environ["STORE"], creds=os.environ["CREDS"], ca=os.environ["CA"], wait=60, timeout=600) as client:
        client.config("other")
except rondo.PermissionDenied as error:
    print("refused")
sys.modules["nkeys"] = None  # as where it is not installed
try:
    with rondo.Client(nats=os.environ["URL"], store=os.environ["STORE"], creds=os.environ["CREDS"], ca=os.environ["CA"], wait=60, timeout=600) as client:
        client.config("r")
except rondo.ConnectError as error:
    assert "pip install nkeys" in str(error), error
    print("told")
`

// TestPythonClient: the Python client speaks TLS, shows its credentials, and receives its answers
// in the inbox that they name.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	python := interpreter(t)
	dir := initKeys(t, "--tls", "127.0.0.1")
	s := serve(t, dir, auth.ConfigFile, auth.TLSConfigFile)
	ca := filepath.Join(dir, auth.CAFile)
	store := t.TempDir()
	admin := adminLogIn(t, s, dir, store, ca)
	cfg := servicetest.Config("fix")
	cfg.External = true
	servicetest.OpenRun(t, admin, run, cfg)
	intakeLog, err := eventlog.New(connect(t, s, creds(dir, topology.Intake), rootCA(ca)).Conn, admin.Store())
	if err != nil {
		t.Fatal(err)
	}
	env := servicetest.Env(t, intakeLog)
	servicetest.Start(t, func(ctx context.Context) error { return intake.Run(ctx, env) })
	command(t, "auth", "user", "swe", "--out", dir, "--role", "harness", "--run", run)
	runs(t, python, harness, "stated\nrefused\nrefused\ntold\n", "URL="+s.ClientURL(), "STORE="+store,
		"CREDS="+creds(dir, "swe"), "CA="+ca)
}

// interpreter is a Python that has the client's modules.
func interpreter(t *testing.T) string {
	t.Helper()
	python := cmp.Or(os.Getenv("RONDO_PYTHON"), "python3")
	if err := exec.Command(python, "-c", "import nats, nkeys, numpy, pyarrow").Run(); err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("%s lacks nats-py, nkeys, numpy or pyarrow (RONDO_PYTHON names another one)", python)
		}
		t.Skipf("%s lacks nats-py, nkeys, numpy or pyarrow", python)
	}
	return python
}

// runs runs a program with the client in its path, which must print what is wanted.
func runs(t *testing.T, python, program, want string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", "-c", program)
	path, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(append(os.Environ(), "PYTHONPATH="+path), env...)
	var complaints strings.Builder // asyncio says there that it cannot keep a half-closed connection under TLS
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\n%s", err, out, complaints.String())
	}
}
