package power

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/power/forgetful"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestUpIsCut: `rondo run open` says that a run is open, and the power is cut. `rondo up` syncs
// once in an hour and the disk keeps nothing that was not synced: the run is there all the same,
// and takes facts. A plane that stops well keeps all that it was told. The key that the
// dashboard has printed stays good.
func TestUpIsCut(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts planes")
	}
	disk, mount, rondo := forgetful.NewDisk(), t.TempDir(), ""
	var up *program.Process
	plane := filepath.Join(mount, "plane")
	file := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(file, []byte("policy: small\nendpoint: builtin\nexternal: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) ([]byte, error) {
		c := exec.CommandContext(t.Context(), rondo, append(args, "--dir", plane)...)
		out, err := c.Output()
		select {
		case <-up.Done:
			t.Fatal("the plane has ended") // and the command has asked one of its own
		default:
		}
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("rondo %v: %w\n%s", args, err, exit.Stderr)
		}
		return out, err
	}
	life := func(while func(), stop func(*program.Process)) {
		t.Helper()
		unmount, err := forgetful.Mount(disk, mount)
		if err != nil {
			program.Missing(t, "%v", err)
		}
		if rondo == "" {
			rondo = program.Binary(t)
		}
		up = program.Start(t, exec.Command(rondo, "up", "--dir", plane, "--durability", "1h"))
		defer func() {
			if t.Failed() {
				t.Log(up)
			}
			stop(up)
			if err := unmount(); err != nil {
				t.Errorf("unmount: %v", err)
			}
			disk = disk.Cut(nil)
		}()
		program.Eventually(t, func() error { // a command that comes sooner has the folder for itself
			if !strings.Contains(up.String(), "plane started") {
				return errors.New("the plane has not started")
			}
			return nil
		})
		while()
	}
	kill := (*program.Process).Kill
	stop := func(p *program.Process) { p.Stop(t) }
	open := func(run string) {
		program.Eventually(t, func() error {
			_, err := ask("run", "open", run, "--file", file)
			return err
		})
	}
	state := func(run, want string) {
		t.Helper()
		var now struct{ State string }
		program.Eventually(t, func() error {
			out, err := ask("run", "show", run, "--json")
			if err != nil {
				return err
			}
			return json.Unmarshal(out, &now)
		})
		if now.State != want {
			t.Errorf("run %s is %q, want %q", run, now.State, want)
		}
	}
	key := ""
	life(func() {
		open("first")
		program.Eventually(t, func() (err error) {
			key, err = dashboardKey(plane)
			return err
		})
	}, kill)
	life(func() {
		if again, err := dashboardKey(plane); err != nil || again != key {
			t.Errorf("the dashboard's key was %q and is %q, %v", key, again, err)
		}
		state("first", "open")
		open("second")
		if _, err := ask("run", "close", "first"); err != nil {
			t.Error(err)
		}
		state("first", "closed")
	}, stop)
	life(func() { state("first", "closed"); state("second", "open") }, kill)
}

func dashboardKey(plane string) (string, error) {
	key, err := os.ReadFile(filepath.Join(plane, "dashboard.token"))
	return string(key), err
}
