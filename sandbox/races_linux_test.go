package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

func init() {
	// Changes what the folder d of the workspace is as fast as it can: a folder, a link to one
	// outside of the workspace, or to init's own in /proc.
	actors["racer"] = func() {
		for {
			for _, target := range []string{"", "/root/outside", "/proc/self", "/proc/1"} {
				_ = os.RemoveAll("/app/d")
				if target == "" {
					_ = os.Mkdir("/app/next", 0o755)
				} else {
					_ = os.Symlink(target, "/app/next")
				}
				_ = os.Rename("/app/next", "/app/d")
			}
		}
	}
}

// TestRacesAgainstFileOperations: a folder that is exchanged for a link at any moment leads no
// operation out of the workspace that is done with more rights than commands have, and shows none
// of them the process that does it.
func TestRacesAgainstFileOperations(t *testing.T) {
	t.Parallel()
	files := map[string]string{"d/f": "0", "d/environ": "0"}
	first := workspace(t, files)
	for name := range files {
		if err := first.WriteFile(t.Context(), name, []byte("applied"), 0); err != nil {
			t.Fatal(err)
		}
	}
	change := changes(t, first)
	sb, _ := inside(t, sandbox.Spec{}, map[string]string{"RONDO_TEST_ACTOR": "nothing"})
	snapshot := sandboxtest.Pack(t, files)
	if err := sb.Unpack(t.Context(), "/app", snapshot); err != nil {
		t.Fatal(err)
	}
	if err := sb.SetBase(t.Context()); err != nil {
		t.Fatal(err)
	}
	output(t, sb, "mkdir /root/outside; echo outside > /root/outside/seen")
	racer := run(t, sb, sandbox.Command{Argv: []string{"/opt/program"},
		Env: map[string]string{"RONDO_TEST_ACTOR": "racer"}, Background: true})
	applied := 0
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		for _, err := range []error{sb.Apply(t.Context(), change), sb.Unpack(t.Context(), "/app", snapshot)} {
			if errors.Is(err, sandbox.ErrClosed) {
				t.Fatal(err)
			}
			if err == nil {
				applied++
			}
		}
		data, err := sb.Changes(t.Context())
		if errors.Is(err, sandbox.ErrClosed) {
			t.Fatal(err)
		}
		contents, err := sandbox.Contents(sandbox.Bytes(data))
		for name := range contents {
			if err != nil || strings.Contains(name, "seen") || strings.Contains(name, "status") {
				t.Fatalf("the change holds %s, %v", name, err)
			}
		}
		for _, name := range []string{"d/environ", "d/status", "d/mem"} {
			if data, err := sb.ReadFile(t.Context(), name, 1<<16); err == nil && string(data) != "applied" &&
				string(data) != "0" && len(data) > 0 {
				t.Fatalf("%s reads %q", name, data)
			}
		}
	}
	if applied == 0 {
		t.Error("no operation ever succeeded")
	}
	if got := output(t, sb, fmt.Sprintf("kill -9 %d; ls /root/outside", racer.PID)); got != "seen" {
		t.Errorf("outside of the workspace there is now: %s", got)
	}
}

// TestSetuidFiles give nothing inside, and leave the sandbox without the bit.
func TestSetuidFiles(t *testing.T) {
	t.Parallel()
	sb := workspace(t, map[string]string{"file": "0"})
	got := output(t, sb,
		"cp /bin/cat own; chmod 6755 own; ./own /proc/self/status | grep -E '^(Cap(Prm|Eff)|NoNewPrivs|Uid)'")
	for _, want := range []string{"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
		"NoNewPrivs:\t1", "Uid:\t0\t0\t0\t0"} {
		if !strings.Contains(got, want) {
			t.Errorf("without %q:\n%s", want, got)
		}
	}
	other := workspace(t, map[string]string{"file": "0"})
	if err := other.Apply(t.Context(), changes(t, sb)); err != nil {
		t.Fatal(err)
	}
	if mode := output(t, other, "stat -c %a own"); mode != "755" {
		t.Errorf("elsewhere its mode is %s", mode)
	}
}
