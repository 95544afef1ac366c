package verifier_test

import (
	"os"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// hoard keeps as many descriptors under way between sockets as the kernel lets one user of the host
// have, wherever it has them.
const hoard = `import array, errno, os, socket, time
pairs, handle = [], os.open("/dev/null", os.O_RDONLY)
fds = array.array("i", [handle] * 250)
while True:
    pairs.append(socket.socketpair())
    pairs[-1][0].setblocking(False)
    try:
        while True:
            pairs[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    except OSError as e:
        if e.errno == errno.ETOOMANYREFS:
            break
print("enough", flush=True)
time.sleep(600)
`

// passes is a test that hands a descriptor to another process, as worker pools do.
const passes = `python3 -c 'import array, socket
a, b = socket.socketpair()
a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [a.fileno()]))])' && r=1 || r=0
echo $r >/logs/verifier/reward.txt
`

// TestAgentsAreAnotherUser: what an agent left running in its own sandbox takes nothing from the
// tests that the kernel counts by user.
func TestAgentsAreAnotherUser(t *testing.T) {
	s := spec(t, passes)
	if os.Geteuid() != 0 {
		if outcome, err := verifier.Run(t.Context(), s); err != nil || outcome.User != sandbox.UserShared {
			t.Errorf("of an ordinary user it says %q, %v", outcome.User, err)
		}
		t.Skip("to give verifiers a user of their own takes root")
	}
	need(t, "python3")
	agent := sandboxtest.New(t, sandbox.Spec{})
	result, err := agent.Exec(t.Context(), sandbox.Command{Argv: []string{"python3", "-c", hoard}, Background: true})
	if err != nil {
		t.Fatal(err)
	}
	said, err := agent.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c",
		"until grep . " + result.Log + "; do sleep 0.05; done"}})
	if err != nil || strings.TrimSpace(string(said.Stdout)) != "enough" {
		t.Fatalf("the hoard: %s, %v", said.Stdout, err)
	}
	other := sandboxtest.New(t, sandbox.Spec{})
	if result, err := other.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c",
		strings.ReplaceAll(passes, "echo", "exit $((1-r)) #")}}); err != nil || result.ExitCode != 1 {
		t.Errorf("the hoard takes nothing from another agent, so this shows nothing: %+v, %v", result, err)
	}
	if outcome, err := verifier.Run(t.Context(), s); err != nil || outcome.Reward != 1 ||
		outcome.User != sandbox.UserOwn {
		t.Errorf("beside the hoard the tests give %+v, %v", outcome, err)
	}
}
