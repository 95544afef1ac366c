package auth

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/tests/program"
)

func start(t *testing.T, env []string, args ...string) *program.Process {
	t.Helper()
	cmd := exec.Command(rondo, args...)
	cmd.Env = append(os.Environ(), env...)
	return program.Start(t, cmd)
}

// pack is one task whose test takes no time, and file a run of it.
func pack(t *testing.T, steps int) (tasks, file string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("tasks/sum/task.toml",
		"schema_version = \"1.4\"\n[metadata.rondo]\nsnapshot = \"environment/repo\"\n[verifier]\ntimeout_sec = 20\n")
	write("tasks/sum/instruction.md", "`sh sum.sh 3 4` prints the wrong result. Run `sh check.sh` to see.\n")
	write("tasks/sum/environment/repo/sum.sh", "echo $(($1 - $2))\n")
	write("tasks/sum/environment/repo/check.sh",
		"[ \"$(sh sum.sh 3 4)\" = 7 ] && echo PASS || { echo FAIL; exit 1; }\n")
	write("tasks/sum/tests/test.sh",
		"r=0; [ \"$(sh sum.sh 3 4)\" = 7 ] && r=1\necho \"{\\\"reward\\\": $r}\" > /logs/verifier/reward.json\n")
	write("run.yaml", fmt.Sprintf("policy: small\nendpoint: builtin\nseed: 3\nsteps: %d\ngroup_size: 3\nmin_verifier: in-process-without-canaries\nfeeds:\n  - name: trainer\n    groups_per_batch: 1\n"+
		"staleness: {max: 1}\nin_flight: 0\nlimits:\n  turns: 6\n  tokens: 100000\n  timeout: 10m\n  tries: 10\n",
		steps))
	return filepath.Join(dir, "tasks"), filepath.Join(dir, "run.yaml")
}

// TestPlaneUnderLock runs every service as a process of its own with its own credentials for log
// and store, over TLS, from the opening of a run to its archive, and hears of no refusal.
func TestPlaneUnderLock(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	if testing.Short() {
		t.Skip("takes a minute")
	}
	dir := initKeys(t, "--tls", "127.0.0.1", "--tls", "localhost")
	s := serve(t, dir, auth.ConfigFile, auth.TLSConfigFile)
	ca := filepath.Join(dir, auth.CAFile)
	if _, err := nats.Connect(s.ClientURL()); err == nil {
		t.Error("who brings no credentials gets in")
	}
	if _, err := nats.Connect(s.ClientURL(), nats.UserCredentials(creds(dir, "generator"))); err == nil {
		t.Error("a client believes a server whose certificate nobody vouches for")
	}
	address := fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
	plane := []string{"--nats", s.ClientURL(), "--nats-ca", ca, "--store", lockBucket(t, dir)}
	as := func(user string, args ...string) []string {
		return append(append(args, plane...), "--nats-creds", creds(dir, user))
	}
	processes := map[string]*program.Process{}
	for _, name := range auth.Everybody() {
		if name == topology.Admin || name == topology.Gateway {
			continue
		}
		args := []string{"service", name, "--dir", t.TempDir(), "--builtin-endpoint", "http://" + address + "/v1",
			"--policy-listen", address}
		processes[name] = start(t, storeEnv(t, dir, name), as(name, args...)...)
	}
	admin := func(args ...string) string {
		t.Helper()
		return commandWith(t, storeEnv(t, dir, topology.Admin), as(topology.Admin, args...)...)
	}
	tasks, file := pack(t, 2)
	said := func() string {
		var all strings.Builder
		for name, p := range processes {
			fmt.Fprintf(&all, "%s: %s\n", name, p.String())
		}
		return all.String()
	}
	admin("run", "open", "locked", "--file", file, "--tasks", tasks)
	var state struct {
		State   string
		Rewards []float64
	}
	program.Eventually(t, func() error {
		out := admin("run", "show", "locked", "--json")
		if err := json.Unmarshal([]byte(out), &state); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if state.State != "closed" || len(state.Rewards) < 2 ||
			!strings.Contains(processes[topology.Archiver].String(), "log segment sealed") {
			return fmt.Errorf("%s\n%s", out, said())
		}
		return nil
	})
	admin("audit", "locked")
	admin("archive", "verify", "locked")
	for name, p := range processes {
		if said := strings.ToLower(p.String()); strings.Contains(said, "permission") ||
			strings.Contains(said, "refuses the credentials") {
			t.Errorf("%s was refused something:\n%s", name, p.String())
		}
	}
}
