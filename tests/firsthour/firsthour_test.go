// Package firsthour does what a stranger does in the first hour: `rondo init`, lint, a plane, a run
// and a trainer, as the files that were written say.
package firsthour

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/tests/program"
)

var rondo string

func TestMain(m *testing.M) { program.Main(m, &rondo) }

// aStep is how long it may take from `rondo init` to a trained step, and aMistake how long a
// mistake may go unsaid, on a machine that has much else to do. The test logs how long they took.
const (
	aStep    = 5 * time.Minute
	aMistake = time.Minute
)

// address is the one of the server in the run file that `rondo init` writes.
const address = "http://127.0.0.1:8000"

// stranger is somebody in a folder of their own, with an inference server.
type stranger struct {
	*testing.T
	dir    string
	server *httptest.Server
}

// solvers are the seeds of the first turns of every second rollout of a run's groups: what arrives
// when, and how often, is not the same each time.
func solvers() map[int64]bool {
	seeds := map[int64]bool{}
	for group := range uint64(1000) {
		for member := uint64(0); member < 8; member += 2 {
			seeds[rand.New(rand.NewPCG(0, group<<16|member)).Int64()] = true
		}
	}
	return seeds
}

// model answers as an inference server with the model my-model does: it solves the task
// in every second rollout.
func model(t *testing.T) *httptest.Server {
	solves := solvers()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet && r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[{"id":"my-model","max_model_len":65536}]}`)
			return
		}
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		var request struct {
			Messages []struct{ Role string }
			Seed     int64
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
			http.Error(w, "no messages", http.StatusBadRequest)
			return
		}
		answer := `{"role":"assistant","content":"Done."}`
		prompt, sampled, finish := "1,2,3", "8,9", "stop"
		switch {
		case request.Messages[len(request.Messages)-1].Role == "tool":
			prompt = "1,2,3,4,5,6,7"
		case solves[request.Seed]:
			sampled, finish = "4,5", "tool_calls"
			answer = `{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"run_terminal_cmd",` +
				`"arguments":"{\"command\":\"sed -i 's/split(\\\" \\\")/split()/' count.py\"}"}}]}`
		}
		fmt.Fprintf(w, `{"prompt_token_ids":[%s],"choices":[{"finish_reason":%q,"message":%s,"token_ids":[%s],"logprobs":{"content":[{"logprob":-0.5},{"logprob":-0.25}]}}],`+
			`"usage":{"prompt_tokens":%d,"completion_tokens":2}}`, prompt, finish, answer, sampled,
			strings.Count(prompt, ",")+1)
	}))
	t.Cleanup(server.Close)
	return server
}

// rondo runs a command in the stranger's folder.
func (s *stranger) rondo(args ...string) (out string, err error) {
	s.Helper()
	c := exec.CommandContext(s.Context(), rondo, args...)
	c.Dir = s.dir
	text, err := c.CombinedOutput()
	return string(text), err
}

// must wants a command to succeed and to print some words.
func (s *stranger) must(words string, args ...string) {
	s.Helper()
	if out, err := s.rondo(args...); err != nil || !strings.Contains(out, words) {
		s.Fatalf("rondo %s: %v, want %q:\n%s", strings.Join(args, " "), err, words, out)
	}
}

// edit puts words in the place of others in a copy of the run file.
func (s *stranger) edit(name, from, to string) (file string) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "run.yaml"))
	if err != nil || !bytes.Contains(text, []byte(from)) {
		s.Fatalf("%q is not in run.yaml: %v", from, err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, name),
		bytes.Replace(text, []byte(from), []byte(to), 1), 0o644); err != nil {
		s.Fatal(err)
	}
	return name
}

// mistaken wants a command to fail at once, in one line of plain words that names
// the fault and the remedy.
func (s *stranger) mistaken(fault, remedy string, args ...string) {
	s.Helper()
	began := time.Now()
	out, err := s.rondo(args...)
	took := time.Since(began).Round(time.Millisecond)
	s.Logf("rondo %s took %s", strings.Join(args, " "), took)
	if err == nil || took > aMistake || !strings.Contains(out, fault) ||
		!strings.Contains(out, remedy) {
		s.Errorf("rondo %s, after %s: %v, want %q and %q:\n%s", strings.Join(args, " "), took, err, fault, remedy, out)
	}
	for _, noise := range []string{"goroutine ", "Usage:", "%!", "<nil>"} {
		if strings.Contains(out, noise) {
			s.Errorf("rondo %s says %q:\n%s", strings.Join(args, " "), noise, out)
		}
	}
}

// python is an interpreter that has PyTorch and what the client needs.
func python(t *testing.T) (path string, env []string) {
	if path = os.Getenv("RONDO_PYTHON"); path == "" {
		path = "python3"
	}
	client, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	env = append(os.Environ(), "PYTHONPATH="+client, "PYTHONDONTWRITEBYTECODE=1")
	c := exec.Command(path, "-c", "import rondo, torch")
	c.Env = env
	if out, err := c.CombinedOutput(); err != nil {
		program.Missing(t, "%s lacks torch or the modules of examples/requirements.txt (or set RONDO_PYTHON): %v\n%s",
			path, err, out)
	}
	return path, env
}

// TestFirstHour: from `rondo init` to a trained step it takes some minutes at most, with the files
// as they are written but for the address of the server. Each mistake that a stranger may
// make on the way is said at once, with its remedy.
func TestFirstHour(t *testing.T) {
	program.NeedSandbox(t)
	python, env := python(t)
	s := &stranger{t, t.TempDir(), model(t)}
	began := time.Now()
	s.must("README.md says what comes next", "init")
	s.must("word-count               ok", "tasks", "lint", "tasks")
	lint := time.Since(began)
	up := program.Start(t, exec.Command(rondo, "up", "--dir", filepath.Join(s.dir, ".rondo")))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the plane:\n%s", up)
		}
	})
	program.Eventually(t, func() error {
		_, err := os.Stat(filepath.Join(s.dir, ".rondo", "endpoint.json"))
		return err
	})
	s.edit("run.yaml", address, s.server.URL)
	s.must("run first is open (1 tasks)", "run", "open", "first", "--file", "run.yaml")
	trainer := exec.Command(python, "trainer.py", "first", ".rondo")
	trainer.Dir, trainer.Env = s.dir, env
	trains := program.Start(t, trainer)
	program.Eventually(t, func() error {
		shown, err := s.rondo("run", "show", "first")
		switch ended := program.Alive(up, trains); {
		case ended != nil:
			t.Fatal(ended)
		case err == nil && (!strings.Contains(trains.String(), "step 1: ") ||
			!strings.Contains(shown, "policy my-model at version ") || strings.Contains(shown, "at version 0,")):
			err = fmt.Errorf("no step is trained and published; the trainer:\n%s\n%s", trains, shown)
		}
		return err
	})
	took := time.Since(began)
	trains.Kill()
	t.Logf("tasks proven after %s, a step trained and published after %s", lint.Round(time.Second),
		took.Round(time.Second))
	if took > aStep {
		t.Errorf("a step is trained after %s, which may take %s", took, aStep)
	}
	if !strings.Contains(trains.String(), "32 samples, reward 0.5") {
		t.Errorf("the model solves every second rollout, and the trainer says:\n%s", trains)
	}
	s.must("Its reward is ", "explain", "rollout", "first", "g000001-0")
	s.must("closed", "run", "close", "first")
	s.mistakes()
}

// mistakes are those of a run file, of names and of paths.
func (s *stranger) mistakes() {
	s.mistaken("none: no such folder", "run file", "tasks", "lint", "none")
	s.mistaken("holds no plane", "`rondo up` first", "run", "show", "first", "--dir", "elsewhere")
	// a part of the run file, what is put there, and the words of the fault and the remedy
	for _, c := range [][4]string{
		{s.server.URL, "http://127.0.0.1:9", "run second is not opened",
			"start it, or correct endpoint in the run file"},
		{"policy: my-model", "policy: mymodel", `does not serve the model "mymodel" but "my-model"`, "correct policy"},
		{"group_size: 8", "group_size: 1", "each would be alone", "set a larger group_size"},
		{"tasks: tasks", "tasks: taks", "taks: no such folder", "rondo tasks init"},
		{"group_size: 8", "group_sise: 8", "unknown field", `did you mean "group_size"?`},
	} {
		s.mistaken(c[2], c[3], "run", "open", "second", "--file", s.edit("wrong.yaml", c[0], c[1]))
	}
	s.mistaken("nope.yaml", "`rondo init`", "run", "open", "second", "--file", "nope.yaml")
	s.mistaken(`there is no run "frist"`, "`rondo run list`", "run", "show", "frist")
	if out, err := s.rondo("run", "show", "second"); err == nil || !strings.Contains(out, `there is no run "second"`) {
		s.Errorf("a mistake opened a run: %v\n%s", err, out)
	}
	s.must("proves it", "tasks", "init", "lazy", "--tasks", "unproven")
	if err := os.WriteFile(filepath.Join(s.dir, "unproven/lazy/solution/solve.sh"),
		[]byte("#!/bin/sh\ntrue\n"), 0o755); err != nil {
		s.Fatal(err)
	}
	s.must("are unproven on this machine: `rondo tasks lint unproven`", "run", "open", "lazy",
		"--file", s.edit("wrong.yaml", "tasks: tasks", "tasks: unproven"))
	s.must("closed", "run", "close", "lazy")
	if out, err := s.rondo("tasks", "lint", "unproven"); err == nil || !strings.Contains(out, "it changed nothing") {
		s.Errorf("lint of a task whose solution does nothing: %v\n%s", err, out)
	}
}
