package opening

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/open"
)

// TestPackFiles: a task's modules, and what a step of it brings along with its setup.sh, are
// objects of their own in the store.
func TestPackFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tidy")
	for name, text := range map[string]string{
		"task.toml": "[metadata.rondo]\nsnapshot = \"environment/repo\"\nmodules = \"environment/modules\"\ntoolchains = [\"go\"]\n[[steps]]\nname = \"one\"\n[[steps]]\nname = \"two\"\n",
		"environment/modules/a.test/a/@v/v1.0.0.mod": "module a.test/a\n",
		"environment/repo/a.sh":                      "true\n", "tests/test.sh": "echo 0 > /logs/verifier/reward.txt\n",
		"steps/one/instruction.md": "Begin.", "steps/one/workdir/b.sh": "true\n",
		"steps/two/instruction.md": "Go on.", "steps/two/workdir/c.sh": "true\n",
		"steps/two/workdir/setup.sh": "true\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list, err := LoadTasks(dir)
	if err != nil {
		t.Fatal(err)
	}
	store, err := open.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	specs, err := PackTasks(t.Context(), store, list, runfile.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	steps := specs[0].Steps
	if len(steps) != 2 || steps[0].Files != nil || steps[1].Files == nil {
		t.Fatalf("%+v", steps)
	}
	for _, c := range []struct {
		ref  storage.Ref
		want []string
	}{{specs[0].Snapshot, []string{"a.sh", "b.sh"}}, {*steps[1].Files, []string{"c.sh", "setup.sh"}},
		{specs[0].Modules, []string{"a.test", "a.test/a", "a.test/a/@v", "a.test/a/@v/v1.0.0.mod"}}} {
		data, err := storage.GetBlob(t.Context(), store, c.ref)
		if err != nil {
			t.Fatal(err)
		}
		found, err := sandbox.Contents(sandbox.Bytes(data))
		if names := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(names, c.want) {
			t.Errorf("%q, want %q; %v", names, c.want, err)
		}
	}
}
