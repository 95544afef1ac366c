package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/services/intake"
)

// named are the arguments of usages that name what must be there.
var named = []string{"RUN", "OLD", "POLICY", "ROLLOUT", "GROUP", "NAME", "DIR", "TASK", "TOOL", "TYPE",
	"FOLDER", "SOURCE", "REF"}

// fresh are commands whose name is that of something new.
var fresh = []string{"rondo run open", "rondo auth user", "rondo man", "rondo init", "rondo tasks init"}

// TestUnknownNames: each command that takes a name refuses one that nobody has, at once, with what
// to do, whether or not it follows what happens. Each such command has a row.
func TestUnknownNames(t *testing.T) {
	r := clitest.NewRecorded(t, intake.Run)
	r.Whole(1, "fix-a", 0, 1, 0)
	folder, keys := t.TempDir(), filepath.Join(t.TempDir(), "auth")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if err := os.WriteFile(filepath.Join(folder, "a.py"), []byte("x = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"auth init --out " + keys, "index sync " + folder + " --dir " + r.Dir} {
		if out, err := rondo(t, strings.Fields(args)...); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
	}
	served, err := plane.ReadEndpoint(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(t.TempDir(), "nope")
	onPlane := []string{
		"run show nope", "run steps nope", "run tasks nope", "run steps nope --follow", "run steps first --feed nope",
		"run steps first --feed nope --follow", "run cancel nope", "run close nope", "run continue nope --as new",
		"run delete nope", "run pause nope", "run recover nope", "run resume nope", "run open new --tasks " + gone,
		"run open new --file " + gone,
		"events tail nope", "events tail nope --follow", "events tail first --type nope",
		"events tail first --entity nope", "events publish nope e --run first --data {}",
		"events publish run.paused nope --run nope --data {\"reason\":\"x\"}",
		"tools list --run nope", "trajectories export nope --out " + gone,
		"trajectories export first --format nope --out " + gone, "trajectories list nope",
		"trajectories show nope g000001-0",
		"trajectories show first nope", "weights diff nope", "weights fetch nope --to " + t.TempDir(),
		"weights gc nope", "weights list nope", "weights mirror nope --to " + t.TempDir(),
		"weights promote nope 1", "weights rollback nope", "weights show nope",
		"weights fetch first --engine nope --engine-url http://127.0.0.1:1 --to " + t.TempDir(),
		"weights fetch small --from " + gone + " --to " + t.TempDir(),
		"sandbox open nope -- ls", "sandbox open g000001-0 --run nope -- ls", "archive restore nope",
		"archive seal nope", "archive verify nope", "index pairs nope --out " + gone,
		"tasks import sessions nope " + t.TempDir(),
		"index search " + folder + " q --in nope", "index status " + folder + " --embedder nope",
		"index status " + gone, "index search " + gone + " q", "index sync " + gone, "index forget " + gone,
		"explain batch nope 1", "explain batch first 1 --feed nope", "explain group nope g000001",
		"explain group first nope", "explain rollout nope r", "explain rollout first nope",
		"fork nope --turn 0 --count 1", "fork g000001-0 --turn 0 --count 1 --run nope",
		"invalidate nope --where reward=1 --reason x", "invalidate first --where task=nope --reason x",
		"mark nope g000001-0", "mark first nope", "invalidate first --where rollout=nope --reason x --dry-run",
		"invalidate first --where nope=1 --reason x",
		"release nope", "release nope --once", "release nope --verify", "release small --run nope --once",
		"release small --by nope",
		"eval --policy nope", "eval --policy nope --follow", "eval --policy nope@99",
		"eval --policy small@0 --against nope", "eval --from nope", "eval --from first --against nope",
		"eval --policy small@0 --tasks " + gone, "replay nope --verify", "replay nope --tools", "replay nope --as new",
		"replay first --tools --rollouts nope", "replay first --as new --from nope",
		"diff nope first", "diff first nope", "diff first first --feed nope", "audit nope", "audit nope --watch",
		"audit first --feed nope", "audit first --by nope", "track --to nope", "gc --abandon nope",
		"gc --retention " + gone, "cat nope", "logs nope", "logs nope --follow", "logs first nope",
		"logs first nope --follow", "agents build nope", "agents show nope", "agents remove nope",
	}
	elsewhere := []string{
		"nope", "run nope", "events nope", "completion nope", "help nope", "help run nope", "service nope",
		"tasks import nope", "events schema nope", "tasks build " + gone, "tasks show nope",
		"tasks run nope", "tasks lint " + gone, "tasks import swebench " + gone + " " + t.TempDir(),
		"tasks import r2egym " + gone + " " + t.TempDir(),
		"tasks import terminal-bench " + gone + " " + t.TempDir(), "tasks import git " + gone + " " + t.TempDir(),
		"tools list --set nope", "tools show nope",
		"weights quantize " + gone + " --to " + t.TempDir(), "auth revoke nope --out " + keys,
		"auth rotate nope --out " + keys, "auth show nope --out " + keys,
		"auth user x --run r --role nope --out " + keys,
		"auth user x --service nope --out " + keys, "advantage --estimator nope", "advantage --preset nope",
		"demo --pack nope", "doctor --file " + gone,
	}
	tried := map[string]bool{}
	for i, line := range slices.Concat(onPlane, elsewhere) {
		args := strings.Fields(line)
		if found, _, err := New().Find(args); err == nil {
			tried[found.CommandPath()] = true
		}
		if i < len(onPlane) {
			at := slices.Index(args, "--")
			if at < 0 {
				at = len(args)
			}
			args = slices.Insert(args, at, "--nats", served.NATS, "--store", served.Store)
		}
		t.Run(line, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			root := New()
			root.SetArgs(args)
			root.SetOut(io.Discard)
			root.SetErr(io.Discard)
			err := root.ExecuteContext(ctx)
			switch {
			case err == nil || ctx.Err() != nil || errors.Is(err, context.Canceled):
				t.Fatalf("it ends with %v", err)
			case !strings.Contains(err.Error(), "nope"):
				t.Errorf("the error does not name it: %v", err)
			}
		})
	}
	for _, cmd := range commands(New()) {
		if takes := slices.ContainsFunc(strings.FieldsFunc(cmd.Use,
			func(r rune) bool { return strings.ContainsRune(" [].|", r) }),
			func(word string) bool { return slices.Contains(named, word) }); takes &&
			!tried[cmd.CommandPath()] && !slices.Contains(fresh, cmd.CommandPath()) {
			t.Errorf("%s takes a name, and has no row here", cmd.CommandPath())
		}
	}
}

// commands are all that can be run.
func commands(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		all = append(all, commands(sub)...)
	}
	if cmd.Runnable() {
		all = append(all, cmd)
	}
	return all
}
