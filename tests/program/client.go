package program

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/topology"
)

// Client runs commands and services of one version of rondo over one log and store, each
// process in a folder of its own.
type Client struct {
	t     testing.TB
	rondo string
	env   []string
}

// NewClient is for the program at a path. Beside its own environment a process has what
// settings say, as NAME=VALUE.
func NewClient(t testing.TB, rondo string, settings ...string) *Client {
	return &Client{t: t, rondo: rondo, env: append(os.Environ(), settings...)}
}

// Over are the settings that name a log and a store.
func Over(url, store string) []string { return []string{"RONDO_NATS=" + url, "RONDO_STORE=" + store} }

func (c *Client) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.rondo, args...)
	cmd.Env = append(c.env, "RONDO_DIR="+c.t.TempDir())
	return cmd
}

// Start starts a process that ends with the test. A failed test shows what it printed last.
func (c *Client) Start(args ...string) *Process {
	c.t.Helper()
	p := Start(c.t, c.command(args...))
	c.t.Cleanup(func() {
		if text := p.String(); c.t.Failed() {
			c.t.Logf("%s:\n%s", p.Cmd, text[max(0, len(text)-3000):])
		}
	})
	return p
}

// Must runs a command to its end.
func (c *Client) Must(args ...string) {
	c.t.Helper()
	if out, err := c.command(args...).CombinedOutput(); err != nil {
		c.t.Fatalf("rondo %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// DemoRun is the run that `rondo demo` opens.
const DemoRun = "demo-1"

// ShortDemo is the command for a run of some steps, of eight rollouts each.
func ShortDemo(steps int) []string {
	return []string{"demo", "--steps", fmt.Sprint(steps), "--groups-per-batch", "2", "--group-size",
		"4", "--quiet", "--json"}
}

// Services are the arguments of the three processes that run the services of a demo, with the
// built-in policy at an address.
func Services(policy string) [][]string {
	return [][]string{
		{"service", topology.Intake, topology.DeadLetters, topology.Archiver},
		{"service", topology.QuerySampler, topology.AdvantageCalculator, topology.TrainerFeeder,
			topology.WeightPublisher},
		{"service", topology.Generator, topology.ToolRunner, topology.Scorer, "policy", "trainer", "--policy-listen",
			policy, "--builtin-endpoint", "http://" + policy + "/v1"},
	}
}

// Alive is an error when one of some processes has ended.
func Alive(processes ...*Process) error {
	for _, p := range processes {
		select {
		case <-p.Done:
			return fmt.Errorf("%s has ended:\n%s", p.Cmd, p)
		default:
		}
	}
	return nil
}

// Wait waits for a process to end well while others live.
func (p *Process) Wait(t testing.TB, others ...*Process) {
	t.Helper()
	Eventually(t, func() error {
		if err := Alive(others...); err != nil {
			t.Fatal(err)
		}
		if Alive(p) == nil {
			return fmt.Errorf("%s goes on", p.Cmd)
		}
		return nil
	})
	if code := p.Cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("%s ended with %d:\n%s", p.Cmd, code, p)
	}
}
