package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestArchiveOfKilledRun: a run that was recorded while its plane was killed is restored
// into an empty server, where every decision comes out again; and one changed byte of its
// archive is found and named.
func TestArchiveOfKilledRun(t *testing.T) {
	t.Parallel()
	nightly.Only(t)
	program.NeedSandbox(t)
	dir, elsewhere, pack := t.TempDir(), t.TempDir(), smallPack(t)
	up := serving(t, dir)
	program.Eventually(t, func() error {
		return run(t.Context(), nil, "run", "open", "killed", "--file", smallRun(t, 4), "--tasks", pack, "--dir", dir)
	})
	for i := range 3 {
		program.Eventually(t, func() error { // each time it has gone on
			var now runState
			err := run(t.Context(), &now, "run", "show", "killed", "--dir", dir, "--json")
			if err == nil && now.State == "open" && now.Events < int64(10+30*i) {
				err = fmt.Errorf("%d events\n%s", now.Events, up)
			}
			return err
		})
		up.Kill()
		up = serving(t, dir)
	}
	objects := filepath.Join(dir, "objects")
	program.Eventually(t, func() error {
		_, err := os.Stat(filepath.Join(objects, "runs", "killed", "batches"))
		return err
	})
	program.Eventually(t, func() error { return run(t.Context(), nil, "run", "close", "killed", "--dir", dir) })
	settle(t, "killed", dir, up)
	up.Stop(t)
	mustRun(t, nil, "archive", "seal", "killed", "--dir", dir, "--json")
	var whole struct {
		Events   int      `json:"events"`
		Objects  int      `json:"objects"`
		Findings []string `json:"findings"`
	}
	mustRun(t, &whole, "archive", "verify", "killed", "--dir", dir, "--json")
	if whole.Events == 0 || whole.Objects == 0 || len(whole.Findings) > 0 {
		t.Errorf("%+v", whole)
	}
	named := said(t, "events", "tail", "killed", "--json", "--dir", dir) +
		said(t, "events", "tail", "_", "--json", "--dir", dir)
	for _, folder := range []string{"runs/killed/log", "runs/killed/trajectories", "runs/killed/batches"} {
		flipped(t, filepath.Join(objects, folder), named, func(name string) {
			err := run(t.Context(), &whole, "archive", "verify", "killed", "--dir", dir, "--json")
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 ||
				!strings.Contains(strings.Join(whole.Findings, "\n"), name) {
				t.Errorf("a changed byte of %s: %v: %v", name, err, whole.Findings)
			}
		})
	}
	mustRun(t, nil, "run", "delete", "killed", "--dir", dir, "--json")
	verify(t, "killed", "--dir", dir)

	// An empty server in another directory, over the same store.
	up = start(t, "up", "--dir", elsewhere, "--store", objects)
	program.Eventually(t, func() error {
		return run(t.Context(), nil, "archive", "restore", "killed", "--dir", elsewhere, "--json")
	})
	verify(t, "killed", "--dir", elsewhere)
	up.Stop(t)
}

// serving starts a plane and waits until it can be reached: a command that comes before would look
// into the directory itself.
func serving(t *testing.T, dir string) *program.Process {
	t.Helper()
	up := start(t, "up", "--dir", dir)
	program.Eventually(t, func() error {
		var at struct {
			PID int `json:"pid"`
		}
		text, err := os.ReadFile(filepath.Join(dir, "endpoint.json"))
		if err == nil {
			err = json.Unmarshal(text, &at)
		}
		if err == nil && at.PID != up.Cmd.Process.Pid {
			err = errors.New("the endpoint is that of the killed plane")
		}
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, up)
		}
		return err
	})
	return up
}

// flipped changes one bit of one object of a folder while f looks: of one that events name, as a
// killed service may leave others. Small trajectories lie in packs.
func flipped(t *testing.T, folder, named string, f func(name string)) {
	t.Helper()
	type object struct {
		path, name string
		at, size   int
	}
	var objects []object
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(named, d.Name()) {
			objects = append(objects, object{path, d.Name(), 0, len(data)})
		}
		if filepath.Ext(path) != ".pack" {
			return err
		}
		for _, at := range packedName.FindAllIndex(data, -1) {
			if name := string(data[at[0]:at[1]]); strings.Contains(named, name) {
				objects = append(objects, object{path, name, at[1], 4000}) // an Arrow file's schema is longer
			}
		}
		return err
	})
	if err != nil || len(objects) == 0 {
		t.Fatalf("%s: %d objects, %v", folder, len(objects), err)
	}
	// What was packed again behind a kill is read from its other place.
	objects = slices.DeleteFunc(objects, func(o object) bool {
		return slices.ContainsFunc(objects, func(other object) bool { return other != o && other.name == o.name })
	})
	one := objects[rand.IntN(len(objects))]
	whole, err := os.ReadFile(one.path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(data []byte) {
		if err := os.WriteFile(one.path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	defer write(whole)
	broken := append([]byte(nil), whole...)
	broken[one.at+rand.IntN(one.size)] ^= 1 << rand.IntN(8)
	write(broken)
	f(one.name)
}

// packedName is the name of a trajectory in a pack.
var packedName = regexp.MustCompile(`[A-Za-z0-9_]+-\d+-[0-9a-f]{16}\.arrow`)
