package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/toolrunner"
	"github.com/rondo-rl/rondo/storage"
	planes "github.com/rondo-rl/rondo/tests/plane"
)

// mended is a verifier that rewards a.txt with "two" in it, and half of that where the agent has
// left no file of its own.
const mended = `grep -q two /app/a.txt && r=1 || r=0.25
echo "{\"reward\": $r}" > /logs/verifier/reward.json
`

// newWorkPlane has a run with one task, "theirs", of which rollouts have a
// workspace, and no tool runner yet.
func newWorkPlane(t *testing.T, change func(*runfile.RunConfig)) *plane {
	t.Helper()
	sandboxtest.Require(t)
	p := &plane{t: t, log: natstest.Log(t)}
	cfg := servicetest.Config("theirs")
	cfg.External, cfg.Endpoint, cfg.GroupSize, cfg.Feeds = true, newBackend(t, counts).url, 1,
		[]runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}
	cfg.Tasks[0].Snapshot = servicetest.Blob(t, p.log.Store(),
		sandboxtest.Pack(t, map[string]string{"a.txt": "one\n", "sub/b.bin": "\x00\xff\xfe"}))
	cfg.Tasks[0].Tests = servicetest.Blob(t, p.log.Store(), sandboxtest.Pack(t, map[string]string{"test.sh": mended}))
	if change != nil {
		change(&cfg)
	}
	planes.Start(t, p.log, "r", cfg)
	p.url = p.serve(nil)
	return p
}

// runner starts a tool runner in a folder, by which it is known, until stop is
// called or the test ends.
func (p *plane) runner(dir string) (stop func()) {
	p.t.Helper()
	env := servicetest.Env(p.t, p.log)
	env.Dir = dir
	return servicetest.Start(p.t, func(ctx context.Context) error {
		return toolrunner.Run(ctx, env, toolrunner.Options{Slots: 4, Pool: runfile.DefaultRunConfig().Pool})
	})
}

// ended is how a command ended, or what a file has.
type ended struct {
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	TimedOut bool   `json:"timed_out"`
	Dropped  int64  `json:"dropped_bytes"`
	Content  string `json:"content"`
	Base64   string `json:"base64"`
	Size     int64  `json:"size"`
	Error    struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// calls asks for something on a rollout's workspace with a key, "" for none. Status 0
// says that nobody answered.
func (p *plane) calls(ctx context.Context, url string, m member, op, key string,
	body map[string]any) (status int, said ended) {
	p.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/rollouts/"+m.ID+"/"+op, bytes.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, said
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil && err != io.EOF {
		p.t.Fatal(err)
	}
	return resp.StatusCode, said
}

// sh runs a line of shell in a rollout's workspace.
func (p *plane) sh(m member, line string) ended {
	p.t.Helper()
	status, said := p.calls(p.t.Context(), p.url, m, "exec", "", map[string]any{"command": []string{"sh", "-c", line}})
	if status != http.StatusOK {
		p.t.Fatalf("%s answered %d: %+v", line, status, said.Error)
	}
	return said
}

// scored waits for the verdict on a rollout.
func (p *plane) scored(m member) events.RolloutScored {
	p.t.Helper()
	return servicetest.WaitData[events.RolloutScored](p.t, p.log, "r", events.RolloutScoredType, m.Rollout)
}

// TestWorkspaceOfAHarness: a harness works in its task's workspace, and the task's verifier decides
// the reward. What comes again is done once.
func TestWorkspaceOfAHarness(t *testing.T) {
	t.Parallel()
	p := newWorkPlane(t, nil)
	p.runner(t.TempDir())
	m := p.start(nil)
	p.say(m, user("Mend it."))
	if got := p.sh(m, "cat a.txt; pwd; echo no >&2; exit 3"); got.Stdout != "one\n/app\n" ||
		got.Stderr != "no\n" || got.ExitCode != 3 {
		t.Errorf("the command said %+v", got)
	}
	for i, c := range []struct {
		op     string
		body   map[string]any
		status int
		said   ended
	}{
		{"write", map[string]any{"path": "new/c.txt", "content": "0123456789"}, 200, ended{Size: 10}},
		{"read", map[string]any{"path": "/app/new/c.txt", "offset": 3, "limit": 4}, 200,
			ended{Content: "3456", Size: 10}},
		{"read", map[string]any{"path": "new/c.txt", "offset": 100}, 200, ended{Size: 10}},
		{"read", map[string]any{"path": "sub/b.bin"}, 200,
			ended{Base64: base64.StdEncoding.EncodeToString([]byte("\x00\xff\xfe")), Size: 3}},
		{"write", map[string]any{"path": "d.bin", "base64": "AP8=", "mode": 0o755}, 200, ended{Size: 2}},
		{"exec", map[string]any{"command": []string{"cat"}, "stdin": "in", "dir": "sub", "env": map[string]string{}},
			200, ended{Stdout: "in"}},
		{"exec", map[string]any{"command": []string{"sh", "-c", "echo $A; pwd"}, "env": map[string]string{"A": "b"},
			"dir": "sub"}, 200, ended{Stdout: "b\n/app/sub\n"}},
		{"exec", map[string]any{"command": []string{"no-such-program"}}, 200, ended{ExitCode: 127}},
		{"read", map[string]any{"path": "nothing"}, 422, ended{}},
		{"exec", map[string]any{"command": []string{}}, 400, ended{}},
		{"exec", map[string]any{"command": []string{"true"}, "timeout_s": -1}, 400, ended{}},
		{"read", map[string]any{"path": ""}, 400, ended{}},
		{"write", map[string]any{"path": "a", "contents": "an unknown field"}, 400, ended{}},
		{"write", map[string]any{"path": "a", "base64": "%"}, 400, ended{}},
	} {
		status, said := p.calls(t.Context(), p.url, m, c.op, fmt.Sprint("k", i), c.body)
		if said.Stderr != "" && c.said.ExitCode == 127 {
			said.Stderr = ""
		}
		if refused := said.Error; status != c.status || status != 200 && refused.Message == "" {
			t.Errorf("%s %v answered %d: %+v", c.op, c.body, status, said)
		}
		if said.Error = c.said.Error; said != c.said {
			t.Errorf("%s %v said %+v, want %+v", c.op, c.body, said, c.said)
		}
	}
	add := map[string]any{"command": []string{"sh", "-c", "echo two >> a.txt; wc -l < a.txt"}}
	for range 3 {
		if status, said := p.calls(t.Context(), p.url, m, "exec", "once", add); status != 200 ||
			strings.TrimSpace(said.Stdout) != "2" {
			t.Errorf("the repeated call answered %d: %+v", status, said)
		}
	}
	if status, said := p.calls(t.Context(), p.url, m, "exec",
		"once", map[string]any{"command": []string{"true"}}); status != http.StatusConflict ||
		said.Error.Code != "key_used" {
		t.Errorf("another call with a key that is used answered %d: %+v", status, said)
	}
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{"verify": true, "reward": 1}, http.StatusBadRequest, nil)
	for range 2 {
		p.post("/rollouts/"+m.ID+"/finish", map[string]any{"verify": true}, http.StatusOK, nil)
	}
	if got := p.scored(m); got.Reward != 1 {
		t.Errorf("the verdict is %+v", got)
	}
	var told struct {
		State      string
		Reward     float64
		Components map[string]float64
		Calls      int
	}
	got, err := p.do(t.Context(), http.MethodGet, "/rollouts/"+m.ID, nil)
	if err != nil || json.Unmarshal(got.body, &told) != nil || told.State != "scored" || told.Reward != 1 ||
		told.Components["reward"] != 1 || told.Calls != 11 {
		t.Errorf("it is told as %s (%v)", got.body, err)
	}
	if status, said := p.calls(t.Context(), p.url, m, "exec", "late", add); status != http.StatusConflict ||
		said.Error.Code != "rollout_over" {
		t.Errorf("a call behind the end answered %d: %+v", status, said)
	}
	if status, said := p.calls(t.Context(), p.url, m, "exec", "once", add); status != 200 ||
		strings.TrimSpace(said.Stdout) != "2" {
		t.Errorf("the answer is forgotten: %d: %+v", status, said)
	}
	servicetest.WaitData[events.BatchReady](t, p.log, "r", events.BatchReadyType, "trainer")
	p.prove(0)
	r := p.rollout(m)
	cfg, err := p.log.Config(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range p.log.Rollouts(t.Context(), "r") {
		if err != nil {
			t.Fatal(err)
		}
		if changed, err := scorer.Compare(t.Context(), p.log.Store(), scorer.Options{}, cfg, cfg.Tasks[0],
			&r); err != nil || len(changed) > 0 {
			t.Errorf("verified again: %+v, %v", changed, err)
		}
	}
	if len(r.Turns) != 1 || len(r.Answers) != 11 {
		t.Errorf("%d turns and %d answered calls", len(r.Turns), len(r.Answers))
	}
}

// TestHostileWorkspace: what an agent does in its workspace stays there, its output is bounded, and
// it has nothing of the verifier's.
func TestHostileWorkspace(t *testing.T) {
	t.Parallel()
	const secret = "AKIAQ3EGRIVLUXM7T2PZ"
	p := newWorkPlane(t, func(cfg *runfile.RunConfig) {
		cfg.Features = append(cfg.Features,
			runfile.FeatureRedactSecrets)
	})
	p.runner(t.TempDir())
	m := p.start(nil)
	p.say(m, user("Mend it."))
	p.sh(m, "ln -s /etc/shadow link; ln -s / root; mkfifo pipe; mkdir -p /tests /logs/verifier; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; echo '{\"reward\": 1}' > /logs/verifier/reward.json; true")
	for _, path := range []string{"../../../../etc/shadow", "link", "root/proc/1/environ", "/dev/zero", "/dev/sda",
		"pipe", "sub", "a\x00b", "/proc/self/mem", strings.Repeat("x/", 2000) + "y"} {
		status, said := p.calls(t.Context(), p.url, m, "read", "", map[string]any{"path": path})
		if status == http.StatusOK && said.Size > 0 && !strings.HasPrefix(path, "root/proc") {
			t.Errorf("read %.40q answered %+v", path, said)
		}
		if status >= 500 || strings.Contains(said.Content+said.Base64, "root:") {
			t.Errorf("read %.40q answered %d: %+v", path, status, said)
		}
	}
	for _, path := range []string{"/dev/full", "/proc/sys/kernel/core_pattern", "/sys/x",
		"/usr/bin/sh", "/etc/passwd"} {
		if status, said := p.calls(t.Context(), p.url, m, "write",
			"", map[string]any{"path": path, "content": "x"}); status != http.StatusUnprocessableEntity {
			t.Errorf("write %s answered %d: %+v", path, status, said)
		}
	}
	if flood := p.sh(m, "yes | head -c 2000000"); len(flood.Stdout) > 70<<10 || flood.Dropped < 1_900_000 {
		t.Errorf("the flood is %d bytes, %d dropped", len(flood.Stdout), flood.Dropped)
	}
	if status, said := p.calls(t.Context(), p.url, m, "exec",
		"", map[string]any{"command": []string{"sleep", "1000"}, "timeout_s": 0.2}); status != 200 || !said.TimedOut {
		t.Errorf("an endless command answered %d: %+v", status, said)
	}
	if status, _ := p.calls(t.Context(), p.url, m, "write",
		"", map[string]any{"path": "big", "content": strings.Repeat("x", events.MaxWorkspaceContent+
			1)}); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a large file answered %d", status)
	}
	if got := p.sh(m, "echo AKIAQ3EG''RIVLUXM7T2PZ; echo AKIAQ3EG''RIVLUXM7T2PZ > key"); strings.Contains(got.Stdout,
		secret) {
		t.Errorf("the secret is told: %+v", got)
	}
	if _, got := p.calls(t.Context(), p.url, m, "read",
		"", map[string]any{"path": "key"}); strings.Contains(got.Content, secret) || got.Size == 0 {
		t.Errorf("the secret is told: %+v", got)
	}
	if got := p.sh(m, "grep -rls 'grep -q two' /tests /logs /app /root /tmp /var; true"); got.Stdout != "" {
		t.Errorf("the verifier's files are seen: %s", got.Stdout)
	}
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{"verify": true}, http.StatusOK, nil)
	if got := p.scored(m); got.Reward != 0.25 {
		t.Errorf("the agent wrote its own reward: %+v", got)
	}
	for _, e := range servicetest.All(t, p.log, "r") {
		if bytes.Contains(e.Data, []byte(secret)) {
			t.Errorf("%s tells the secret", e.ID)
		}
	}
	planes.Prove(t, p.log, "r")
}

// TestUnchangedWorkspace: a harness that changed nothing is scored as the task's snapshot is,
// and only by the verifier.
func TestUnchangedWorkspace(t *testing.T) {
	t.Parallel()
	p := newWorkPlane(t, nil)
	m := p.start(nil)
	p.say(m, user("Mend it."))
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{"verify": true}, http.StatusOK, nil)
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{"reward": 1}, http.StatusConflict, nil)
	if got := p.scored(m); got.Reward != 0.25 {
		t.Errorf("the verdict is %+v", got)
	}
	p.prove(0)
}

// TestCallsOutliveProcesses: a call that was taken in is answered once,
// whoever dies, and asks again.
func TestCallsOutliveProcesses(t *testing.T) {
	t.Parallel()
	p := newWorkPlane(t, nil)
	other := p.serve(nil)
	m := p.start(nil)
	p.say(m, user("Mend it."))
	add := map[string]any{"command": []string{"sh", "-c", "echo two >> a.txt; cat a.txt"}}
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan int)
	go func() {
		status, _ := p.calls(ctx, p.url, m, "exec", "first", add)
		gone <- status
	}()
	servicetest.Wait(t, p.log, "r", events.WorkspaceCalledType, m.Rollout, 1)
	leave() // the harness, or its gateway, dies before the answer
	if status := <-gone; status != 0 {
		t.Fatalf("somebody answered %d", status)
	}
	dir := t.TempDir()
	stop := p.runner(dir)
	stop() // in any phase of the work
	stop = p.runner(dir)
	const want = "one\ntwo\n"
	if status, said := p.calls(t.Context(), other, m, "exec", "first", add); status != 200 || said.Stdout != want {
		t.Errorf("another gateway answered %d: %+v", status, said)
	}
	stop()
	p.runner(dir) // it has no sandbox, and makes it again from the log
	if got := p.sh(m, "cat a.txt"); got.Stdout != want {
		t.Errorf("the workspace is lost: %+v", got)
	}
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{"verify": true}, http.StatusOK, nil)
	if got := p.scored(m); got.Reward != 1 {
		t.Errorf("the verdict is %+v", got)
	}
	p.prove(0)
}

// TestTwoClients: calls of two clients at two gateways, and turns between them, come one
// after the other, each once.
func TestTwoClients(t *testing.T) {
	t.Parallel()
	p := newWorkPlane(t, nil)
	p.runner(t.TempDir())
	urls := []string{p.url, p.serve(nil)}
	m := p.start(nil)
	const n = 8
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			line := fmt.Sprintf("echo %d >> lines", i)
			if status, said := p.calls(t.Context(), urls[i%2], m, "exec", fmt.Sprint("k", i),
				map[string]any{"command": []string{"sh", "-c", line}}); status != 200 {
				t.Errorf("call %d answered %d: %+v", i, status, said)
			}
		})
		clients.Go(func() { p.say(m, user(fmt.Sprint("part ", i))) })
	}
	clients.Wait()
	if got := p.sh(m, "sort lines | tr -d '\\n'"); got.Stdout != "01234567" {
		t.Errorf("the lines are %q", got.Stdout)
	}
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{"verify": true}, http.StatusOK, nil)
	p.scored(m)
	if r := p.rollout(m); len(r.Turns) != n || len(r.Answers) != n+1 {
		t.Errorf("%d turns, %d answers", len(r.Turns), len(r.Answers))
	}
	planes.Prove(t, p.log, "r")
}

// TestCallOfAnEndedRollout: whoever awaits an answer is told when the rollout ends without one.
func TestCallOfAnEndedRollout(t *testing.T) {
	t.Parallel()
	p := newWorkPlane(t, nil)
	m := p.start(nil)
	told := make(chan ended)
	go func() {
		_, said := p.calls(t.Context(), p.url, m, "exec", "", map[string]any{"command": []string{"true"}})
		told <- said
	}()
	servicetest.Wait(t, p.log, "r", events.WorkspaceCalledType, m.Rollout, 1)
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{"failure": "the user gave up"}, http.StatusOK, nil)
	if said := <-told; said.Error.Code != "rollout_over" || !strings.Contains(said.Error.Message, "the user gave up") {
		t.Errorf("it was told %+v", said)
	}
	p.prove(0)
}

// TestNoWorkspace: rollouts of tasks that the run does not have, or that have stages, have none.
func TestNoWorkspace(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newBackend(t, counts).url, nil)
	m := p.start(nil)
	if status, said := p.calls(t.Context(), p.url, m, "exec",
		"", map[string]any{"command": []string{"true"}}); status != http.StatusConflict ||
		said.Error.Code != "no_workspace" {
		t.Errorf("it answered %d: %+v", status, said)
	}
	if status, _ := p.calls(t.Context(), p.url, member{ID: "r.xnobody-0"}, "exec",
		"", map[string]any{"command": []string{"true"}}); status != http.StatusNotFound {
		t.Errorf("a rollout that is not there answered %d", status)
	}
}

// TestForgedEnds: who submits facts himself cannot put another workspace before the verifier, nor
// another verdict in its place.
func TestForgedEnds(t *testing.T) {
	t.Parallel()
	p := newWorkPlane(t, nil)
	p.runner(t.TempDir())
	m := p.start(nil)
	p.say(m, user("Mend it."))
	p.sh(m, "echo mine > b.txt")
	other := servicetest.Blob(t, p.log.Store(), sandboxtest.Pack(t, map[string]string{"a.txt": "two\n"}))
	ended := servicetest.Finished(t, p.log.Store(), "r", m.Rollout, p.recorded(m))
	ended.Verify, ended.Workspace = true, &other
	submit := func(typ events.Type, data any) error {
		_, err := p.log.Submitter.Submit(t.Context(), eventlog.Submission{Run: "r", Type: typ, Entity: m.Rollout,
			Data: data, ID: rand.Text(), Source: "gateway/everybody"})
		return err
	}
	if err := submit(events.RolloutFinishedType, ended); err == nil || !strings.Contains(err.Error(), "workspace") {
		t.Errorf("another workspace: %v", err)
	}
	ended.Workspace = nil
	if err := submit(events.RolloutFinishedType, ended); err == nil || !strings.Contains(err.Error(), "workspace") {
		t.Errorf("no workspace: %v", err)
	}
	p.post("/rollouts/"+m.ID+"/finish", map[string]any{"verify": true}, http.StatusOK, nil)
	finished := p.rollout(m).Finished
	if err := submit(events.RolloutScoredType, events.RolloutScored{Reward: 1,
		Trajectory: finished.Trajectory}); err == nil {
		t.Error("a harness has scored what its verifier scores")
	}
	if got := p.scored(m); got.Reward != 0.25 {
		t.Errorf("the verdict is %+v", got)
	}
}

// recorded is the trajectory of an open rollout, as its turns stand on the log.
func (p *plane) recorded(m member) *storage.Trajectory {
	p.t.Helper()
	tr := servicetest.Trajectory("r", m.Rollout, "theirs")
	tr.DispatchVersion = p.rollout(m).Started.PolicyVersion
	return tr
}
