// Package torch runs the PyTorch example, and kills its trainer, its inference
// server and the plane half way.
package torch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/tests/program"
)

// example is the folder of the example, and an interpreter that has what it needs.
func example(t *testing.T) (folder, python string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", filepath.Join(root, "clients/python"))
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	if python = os.Getenv("RONDO_PYTHON"); python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import rondo, torch, pytest").CombinedOutput(); err != nil {
		program.Missing(t, "%s lacks torch or the modules of examples/requirements.txt (or set RONDO_PYTHON): %v\n%s",
			python, err, out)
	}
	return filepath.Join(root, "examples/torch_grpo"), python
}

func TestPartsOfTheExamples(t *testing.T) {
	folder, python := example(t)
	// of the second one `task llm` runs the rest
	for _, folder := range []string{folder, filepath.Join(filepath.Dir(folder), "grpo_llm")} {
		if out, err := exec.Command(python, "-m", "pytest", "-q", "-p",
			"no:cacheprovider", folder).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

const (
	steps  = 16
	killAt = 6
)

func TestItLearnsAndSurvivesBeingKilled(t *testing.T) {
	folder, python := example(t)
	program.NeedSandbox(t)
	rondo, plane := program.Binary(t), filepath.Join(t.TempDir(), "plane")
	port := strconv.Itoa(natstest.FreePorts(t, 1)[0])
	said, ended := start(t, python, filepath.Join(folder, "run.py"), "--steps", strconv.Itoa(steps), "--dir", plane,
		"--rondo", rondo, "--port", port)

	wait(t, said, ended, fmt.Sprintf("step %d:", killAt))
	killPlane(t, plane)
	kill(t, filepath.Join(folder, "train.py"), plane)
	kill(t, filepath.Join(folder, "serve.py"), port)
	wait(t, said, ended, "held-out tasks, after:")
	if err := <-ended; err != nil {
		t.Fatalf("%v:\n%s", err, said())
	}
	checkSteps(t, said())
	var shown struct {
		State         string
		PolicyVersion int `json:"policy_version"`
		Rewards       []float64
	}
	if err := json.Unmarshal([]byte(run(t, rondo, "run", "show", "seed1", "--dir", plane, "--json")),
		&shown); err != nil {
		t.Fatal(err)
	}
	if shown.State != "closed" || shown.PolicyVersion != steps || len(shown.Rewards) != steps {
		t.Fatalf("%+v", shown)
	}
	first, last := mean(shown.Rewards[:steps/4]), mean(shown.Rewards[steps-steps/4:])
	t.Logf("reward %.3f in the first quarter, %.3f in the last", first, last)
	if last < first+0.05 {
		t.Errorf("reward %.3f in the first quarter, %.3f in the last: nothing was learnt\n%s", first, last, said())
	}
	checkDeltas(t, rondo, plane)
	run(t, rondo, "audit", "seed1", "--dir", plane)
	run(t, rondo, "replay", "seed1", "--verify", "--dir", plane)
}

// checkDeltas finds the last version's delta in the store, and versions that the side-car made of
// deltas and brought to the server.
func checkDeltas(t *testing.T, rondo, plane string) {
	t.Helper()
	var shown struct {
		Version, Bytes int64
		Delta          *struct{ Base, Size int64 }
		Servers        []struct{ Version int64 }
	}
	if err := json.Unmarshal([]byte(run(t, rondo, "weights", "show", "seed1", "--dir", plane, "--json")),
		&shown); err != nil {
		t.Fatal(err)
	}
	if shown.Version != steps || shown.Delta == nil || shown.Delta.Base != steps-1 ||
		shown.Delta.Size > shown.Bytes*7/10 || len(shown.Servers) != 1 {
		t.Errorf("the last version: %+v", shown)
	}
	text, err := os.ReadFile(filepath.Join(plane, "sidecar.log"))
	if err != nil {
		t.Fatal(err)
	}
	if deltas := strings.Count(string(text), "by a delta") + strings.Count(string(text), " deltas"); deltas < steps/2 {
		t.Errorf("the side-car read %d versions by deltas:\n%s", deltas, text)
	}
}

// checkSteps reads the trainer's lines: the second one goes on behind its checkpoint,
// and every step comes once. Only the line of a step whose trainer was killed before it
// could print may be missing.
func checkSteps(t *testing.T, said string) {
	t.Helper()
	resumed := regexp.MustCompile(`going on from step (\d+)`).FindAllStringSubmatch(said, -1)
	if len(resumed) != 1 || strings.Count(said, " died ") != 3 {
		t.Fatalf("trainer, server and plane were killed once, but %v:\n%s", resumed, said)
	}
	checkpoint, _ := strconv.Atoi(resumed[0][1])
	if checkpoint < killAt {
		t.Errorf("the trainer went on from step %d, but was killed behind step %d", checkpoint, killAt)
	}
	before := 0
	for _, line := range regexp.MustCompile(`(?m)^step (\d+):`).FindAllStringSubmatch(said, -1) {
		step, _ := strconv.Atoi(line[1])
		if step != before+1 && !(before < checkpoint && step == checkpoint+1) {
			t.Errorf("step %d came after step %d", step, before)
		}
		before = step
	}
	if before != steps {
		t.Errorf("the last step is %d", before)
	}
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}

// run runs a command to its end and gives what it prints.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	c := exec.Command(name, args...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// start starts a program in a process group that ends with the test. It gives its output
// so far, and how it ended.
func start(t *testing.T, name string, args ...string) (output func() string, ended chan error) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		log.Close()
	})
	return func() string {
		text, _ := os.ReadFile(log.Name())
		return string(text)
	}, ended
}

// wait waits until a program has printed something.
func wait(t *testing.T, said func() string, ended chan error, text string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !strings.Contains(said(),
		text); time.Sleep(100 * time.Millisecond) {
		select {
		case err := <-ended:
			if ended <- err; !strings.Contains(said(), text) {
				t.Fatalf("it ended (%v) and did not say %q:\n%s", err, text, said())
			}
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("it did not say %q:\n%s", text, said())
		}
	}
}

// killPlane kills the process that says it is the plane of a directory.
func killPlane(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "endpoint.json"))
	var plane struct{ PID int }
	if err == nil {
		err = json.Unmarshal(text, &plane)
	}
	if err == nil {
		err = syscall.Kill(plane.PID, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// kill kills the one process that runs a program with a word among its arguments.
func kill(t *testing.T, program, word string) {
	t.Helper()
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, file := range commands {
		words, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) || !bytes.Contains(words, []byte(program+"\x00")) ||
			!bytes.Contains(words, []byte("\x00"+word+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		killed++
	}
	if killed != 1 {
		t.Fatalf("%d processes run %s", killed, program)
	}
}
