package doctor

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// inside says to the program of this test that it runs where it may make no user namespace.
const inside = "RONDO_TEST_WITHOUT_NAMESPACES"

// TestDoctorWithoutNamespaces: a kernel that gives no user namespaces is named, with
// the setting that lets it.
func TestDoctorWithoutNamespaces(t *testing.T) {
	if os.Getenv(inside) != "" {
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(append(trySandbox(t.Context(), false),
			trySandbox(t.Context(), true)...)); err != nil {
			t.Fatal(err)
		}
		return
	}
	sandboxtest.Require(t)
	program := exec.Command(os.Args[0], "-test.run=^TestDoctorWithoutNamespaces$")
	program.Env = append(os.Environ(), inside+"=1")
	program.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := program.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	var found []finding
	if err := json.Unmarshal([]byte(line), &found); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	wantFinding(t, found, "sandbox", levelTrouble, "sysctl user.max_user_namespaces", "tool runners and scorers need")
	// of a plane elsewhere
	wantFinding(t, found, "sandbox", levelWarning, "sysctl user.max_user_namespaces", "none need run here")
}
