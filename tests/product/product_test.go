// Package product runs examples/product as its README says, on a plane in a process of its own, and
// looks for what must not be there.
package product

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tests/program"
)

const root = "../.."

// python is an interpreter that has what the client needs.
func python(t *testing.T) string {
	t.Helper()
	program := os.Getenv("RONDO_PYTHON")
	if program == "" {
		program = "python3"
	}
	if out, err := exec.Command(program, "-c",
		"import nats, numpy, pyarrow, safetensors").CombinedOutput(); err != nil {
		why := program + " lacks the modules of examples/requirements.txt (or set RONDO_PYTHON): " + string(out)
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	return program
}

// model is an inference server that repeats what it is asked, with tokens; it
// returns how many calls it had.
func model(t *testing.T) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // it does not say how much it takes at once
			http.NotFound(w, r)
			return
		}
		calls.Add(1)
		var request struct {
			Messages []struct{ Role, Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
			http.Error(w, "no messages", http.StatusBadRequest)
			return
		}
		text, err := json.Marshal("You said: " + request.Messages[len(request.Messages)-1].Content)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, `{"prompt_token_ids":[1,2,3],"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":%s},`+
			`"token_ids":[4,5],"logprobs":{"content":[{"logprob":-0.5},{"logprob":-0.25}]}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`, text)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1", calls
}

// command runs a program to its end and gives what it prints.
func command(t *testing.T, env []string, program string, args ...string) string {
	t.Helper()
	c := exec.Command(program, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// up starts a plane as README.md says, with a gateway.
func up(t *testing.T, rondo, plane string) (gateway string) {
	t.Helper()
	listen := fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
	var said bytes.Buffer
	c := exec.Command(rondo, "up", "--dir", plane, "--gateway-listen", listen, "--durability", "100ms")
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		if err := <-ended; err != nil {
			t.Errorf("the plane ended: %v\n%s", err, &said)
		}
	})
	program.Eventually(t, func() error {
		resp, err := http.Get("http://" + listen + "/healthz")
		if err != nil {
			return err
		}
		resp.Body.Close()
		_, err = os.Stat(filepath.Join(plane, "endpoint.json"))
		return err
	})
	return "http://" + listen
}

// TestProduct: users' verdicts come to a batch as rewards, the books close, and nothing is anywhere
// of those who are left out.
func TestProduct(t *testing.T) {
	t.Parallel()
	py := python(t)
	work := t.TempDir()
	rondo, plane := program.Binary(t), filepath.Join(work, "plane")
	url, calls := model(t)
	gateway := up(t, rondo, plane)
	file := filepath.Join(work, "run.yaml")
	text, err := os.ReadFile(root + "/examples/product/run.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte("http://127.0.0.1:8000/v1"), []byte(url)),
		0o644); err != nil {
		t.Fatal(err)
	}
	command(t, nil, rondo, "run", "open", "product", "--dir", plane, "--file", file,
		"--tasks", root+"/demo/packs/sample")
	said := command(t, []string{"PLANE=" + plane, "GATEWAY=" + gateway, "MODEL=" + url,
		"PYTHONPATH=" + root + "/clients/python"}, py, root+"/examples/product/product.py", "product")
	readme, err := os.ReadFile(root + "/examples/product/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(readme, []byte("```text\n"+said+"```")) {
		t.Errorf("README.md does not show what the product prints:\n%s", said)
	}
	if n := calls.Load(); n != 9 {
		t.Errorf("the model was asked %d times, want 9: those who are left out are served, too", n)
	}

	log := connect(t, plane)
	batch := servicetest.WaitData[events.BatchReady](t, log, "product", events.BatchReadyType, "trainer")
	slices.Sort(batch.Rollouts)
	if !slices.Equal(batch.Rollouts, []string{"g000001-0", "g000002-0", "xc6-0", "xc8-0"}) ||
		batch.RewardMean != 0.5625 {
		t.Errorf("the batch is %+v", batch)
	}
	for rollout, want := range map[string]float64{"xc6-0": 1, "xc8-0": 0, "g000001-0": 0.25, "g000002-0": 1} {
		t.Run(rollout, func(t *testing.T) {
			if scored := servicetest.WaitData[events.RolloutScored](t, log, "product", events.RolloutScoredType,
				rollout); scored.Reward != want || scored.Components[runfile.FeedbackComponent] != want {
				t.Errorf("%s is scored %+v, want %g", rollout, scored, want)
			}
		})
	}
	command(t, nil, rondo, "events", "publish", "batch.consumed", "trainer", "--run", "product",
		"--dir", plane, "--data", `{"step":1}`)
	if shown := command(t, nil, rondo, "run", "show", "product",
		"--dir", plane); !strings.Contains(shown, "features: user_traffic, feedback_rewards\n") {
		t.Errorf("run show does not name the features:\n%s", shown)
	}
	command(t, nil, rondo, "run", "close", "product", "--dir", plane)
	command(t, nil, rondo, "audit", "product", "--dir", plane)
	report, err := audit.Check(t.Context(), log.Reader, "product")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		t.Error(f)
	}
	if b := report.Feeds[0]; b.Started != 4 || b.Trained != 4 || !b.AddsUp() {
		t.Errorf("the books say %+v", b)
	}

	for _, c := range []struct {
		planted string
		there   bool
	}{{"def slug(title):", true}, {"for word in", true}, {"must not end in a dash", true},
		{"Thanks, that works.", true}, {"planted", false}, {"LeftOut", false}, {"left out", false}} {
		if found := search(t, log, plane, c.planted); (len(found) > 0) != c.there {
			t.Errorf("%q is in %v, want it anywhere: %t", c.planted, found, c.there)
		}
	}
}

func connect(t *testing.T, plane string) *eventlog.Log {
	t.Helper()
	var told struct{ NATS, Store string }
	data, err := os.ReadFile(filepath.Join(plane, "endpoint.json"))
	if err == nil {
		err = json.Unmarshal(data, &told)
	}
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(told.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	store, err := dir.Open(told.Store)
	if err != nil {
		t.Fatal(err)
	}
	log, err := eventlog.New(nc, store)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// search looks for a text in all events, in all trajectories, and in every
// file of the plane as it is.
func search(t *testing.T, log *eventlog.Log, plane, text string) (found []string) {
	t.Helper()
	for _, run := range []string{"product", events.Catalogue} {
		for _, e := range servicetest.All(t, log, run) {
			if bytes.Contains(e.Data, []byte(text)) {
				found = append(found, e.ID)
			}
		}
	}
	for _, e := range servicetest.All(t, log, "product", events.RolloutFinishedType) {
		data, err := storage.GetBlob(t.Context(), log.Store(),
			servicetest.Data[events.RolloutFinished](t, e).Trajectory)
		if err != nil {
			t.Fatal(err)
		}
		trajectory, err := storage.DecodeTrajectory(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range trajectory.Messages {
			if strings.Contains(m.Content, text) {
				found = append(found, e.Entity)
			}
		}
	}
	err := filepath.WalkDir(plane, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreGone(err)
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return ignoreGone(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// ignoreGone: a plane that works makes and removes files.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
