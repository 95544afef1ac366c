package weights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestGC: versions that are old go when they are told to, and everybody who asks
// for one of them is told.
func TestGC(t *testing.T) {
	r := clitest.NewRecorded(t)
	for version := int64(1); version <= 4; version++ {
		publish(t, r, version)
	}
	before := time.Now().Add(-10 * 24 * time.Hour)
	for info, err := range r.Log.Store().List(t.Context(), "") {
		if err == nil {
			err = os.Chtimes(filepath.Join(r.Dir, "objects", info.Key), before, before)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	to := t.TempDir()
	for i, c := range []struct {
		args  string
		parts []string
		fails bool
	}{
		{"gc small --keep 2", []string{"version 1 ", "stays: open run first", "0 objects (0 bytes)"}, false},
		{"gc small --keep 1", []string{"--keep 1"}, true},
		{"gc small --older-than 1h", []string{"--older-than 1h"}, true},
		{"gc other", []string{"nothing was published for policy other"}, true},
		{"close", nil, false},
		{"gc small", []string{"0 objects (0 bytes)"}, false},
		{"gc small --keep 2 --older-than 480h", []string{"0 objects (0 bytes)"}, false},
		{"gc small --keep 2", []string{"version 2 ", "could be collected", "2 objects (", "--delete deletes them"},
			false},
		{"fetch small --version 1 --to " + to + "/a", nil, false},
		{"gc small --keep 2 --delete --json", []string{`"version":1,`, `"collected":true`, `"deleted":2,`,
			`"deletes":true`}, false},
		{"gc small --keep 2 --delete",
			[]string{"0 objects (0 bytes) that no version needs which stays, and 0 that are too young; 0 of them deleted"}, false},
		{"list", []string{"collected 2", "small   4 (current)  full"}, false},
		{"show small --version 1", []string{"it was collected 2", "model.safetensors"}, false},
		{"show small --version 3 --json", []string{`"version":3`}, false},
		{"fetch small --version 1 --to " + to + "/b",
			[]string{"policy small, version 1: it was collected, and its files are deleted", "replaced 2"}, true},
		{"fetch small --to " + to + "/b", nil, false},
		{"diff small --from 1 --to 4", []string{"version 1: it was collected"}, true},
		{"diff small", []string{"version 3 to 4"}, false},
	} {
		if c.args == "close" {
			servicetest.CloseRun(t, r.Log, "first")
			continue
		}
		output, err := clitest.Run(t, New, append([]string{"weights", "--dir", r.Dir}, strings.Fields(c.args)...)...)
		if err != nil {
			output += err.Error()
		}
		if (err != nil) != c.fails {
			t.Errorf("%d. %s: %v", i, c.args, err)
		}
		for _, part := range c.parts {
			if !strings.Contains(output, part) {
				t.Errorf("%d. %s says\n%s\nwant %q", i, c.args, output, part)
			}
		}
	}
}
