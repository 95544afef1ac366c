package observability_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/tests/program"
)

// runFile is a run of short rollouts, which goes on for longer than the test.
const runFile = `policy: small
endpoint: builtin
seed: 3
steps: 500
group_size: 3
feeds:
  - {name: trainer, groups_per_batch: 2}
staleness: {max: 1}
in_flight: 0
limits: {turns: 6, tokens: 100000, timeout: 90s, tries: 10}
`

// page is what a plane serves.
func pageOf(t *testing.T, base string) string {
	t.Helper()
	answer, err := http.Get(base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v\n%s", answer.Status, err, text)
	}
	return string(text)
}

// total adds up the series of a metric.
func total(page, name string) (sum float64) {
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(page, -1) {
		v, _ := strconv.ParseFloat(m[1], 64)
		sum += v
	}
	return sum
}

// TestLivePlane: promtool takes what a plane serves while it trains, the table of metrics lists all
// of it, and it says what happens. The log is one of JSON objects, and quiet.
func TestLivePlane(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	needPromtool(t)
	dir := t.TempDir()
	up := program.Start(t, exec.Command(rondo, "up", "--dir", dir, "--durability", "100ms", "--log-format", "json"))
	var base string
	program.Eventually(t, func() error {
		e, err := plane.ReadEndpoint(dir)
		if base = e.HTTP; err == nil && base == "" {
			err = fmt.Errorf("no address\n%s", up)
		}
		return err
	})
	file := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(file, []byte(runFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(rondo, "run", "open", "first", "--dir", dir,
		"--file", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var page string
	program.Eventually(t, func() error {
		page = pageOf(t, base)
		for _, name := range []string{"rondo_rollout_reward_count", "rondo_batches_total", "rondo_turns_total",
			"rondo_tokens_total", "rondo_log_bytes", "rondo_log_limit_bytes",
			"rondo_store_bytes", "rondo_disk_bytes", "rondo_consumer_ack_floor", "rondo_turn_staleness_versions_count",
			"rondo_fate_tokens_total", "rondo_rollouts_in_flight", "rondo_rollout_oldest_seconds",
			"rondo_groups_completed_total", "rondo_policy_version", "rondo_staleness_limit_versions"} {
			if total(page, name) <= 0 {
				return fmt.Errorf("%s is 0 or missing in\n%s\n%s", name, page, up)
			}
		}
		return nil
	})
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(page)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	known := defined(t) // of this project: what Go's own client says of a process is documented there
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (rondo_\S+) (\S+)$`).FindAllStringSubmatch(page, -1) {
		if known[m[1]].kind != m[2] {
			t.Errorf("%s is a %s, and in the table %q", m[1], m[2], known[m[1]].kind)
		}
	}
	quiet(t, up.String())
}

// quiet: each line is an object with a fixed message, nothing is amiss, and there are few lines: no
// line for each rollout or turn.
func quiet(t *testing.T, log string) {
	t.Helper()
	lines := 0
	for line := range strings.Lines(log) {
		var l struct{ Level, Msg, Time string }
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Msg == "" || l.Time == "" {
			t.Errorf("a line is %q: %v", line, err)
		}
		if l.Level != "INFO" {
			t.Errorf("a healthy plane logs %s", line)
		}
		lines++
	}
	if lines == 0 || lines > 40 {
		t.Errorf("%d lines:\n%s", lines, log)
	}
}
