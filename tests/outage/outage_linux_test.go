// Package outage takes from a running plane what it depends on, and wants to be told, and that the
// plane goes on by itself.
package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/tests/program"
	"github.com/rondo-rl/rondo/tests/smalldisk"
)

var rondo string

func TestMain(m *testing.M) { program.Main(m, &rondo) }

// ask asks a process how it is.
func ask(address, path string) (code int, text string, err error) {
	client := http.Client{Timeout: time.Minute}
	answer, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return answer.StatusCode, string(body), err
}

// wants waits until a process says that it is well, or what fails.
func wants(t *testing.T, address, path string, well bool, words ...string) {
	t.Helper()
	program.Eventually(t, func() error {
		code, text, err := ask(address, path)
		if err != nil {
			return err
		}
		if (code == http.StatusOK) != well || !well && code != http.StatusServiceUnavailable {
			return fmt.Errorf("%s: %d %s", path, code, text)
		}
		for _, word := range words {
			if !strings.Contains(text, word) {
				return fmt.Errorf("%s: %d %s lacks %q", path, code, text, word)
			}
		}
		return nil
	})
}

func address(t *testing.T) string {
	return fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
}

// command runs rondo to its end and gives its standard output, and its errors where it fails.
func command(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), rondo, args...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return string(text) + string(exit.Stderr), exit.ExitCode()
	}
	return string(text), 0
}

// once wants a line that a process prints, now or soon, and does not print twice.
func once(t *testing.T, p *program.Process, line string) {
	t.Helper()
	program.Eventually(t, func() error {
		if !strings.Contains(p.String(), line) {
			return fmt.Errorf("%s: not in\n%s", line, p)
		}
		return nil
	})
	if n := strings.Count(p.String(), line); n != 1 {
		t.Errorf("%s: %d times in\n%s", line, n, p)
	}
}

// eventsOf is how many events a run has.
func eventsOf(t *testing.T, dir, run string) (int64, error) {
	t.Helper()
	out, code := command(t, "run", "show", run, "--dir", dir, "--json")
	var shown struct{ Events int64 }
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != 0 {
		return 0, fmt.Errorf("run show: %d %w\n%s", code, err, out)
	}
	return shown.Events, nil
}

// TestDiskWasFull: a plane whose disk is full says so in its log, at /healthz and /readyz, in
// doctor and in run show, and goes on when there is room.
func TestDiskWasFull(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir := smalldisk.Mount(t, "200m")
	status := address(t)
	up := program.Start(t, exec.Command(rondo, "up", "--dir", dir, "--listen", status))
	wants(t, status, "/readyz", true)
	if out, code := command(t, "run", "open", "r", "--dir", dir); code != 0 {
		t.Fatal(out)
	}
	program.Eventually(t, func() error {
		n, err := eventsOf(t, dir, "r")
		if err == nil && n < 20 {
			err = fmt.Errorf("%d events", n)
		}
		return err
	})
	if out, _ := command(t, "doctor", "--dir", dir); !strings.Contains(out, "its streams take writes") {
		t.Errorf("doctor on a plane that is well:\n%s", out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the plane:\n%s", up)
		}
	})
	free := smalldisk.Fill(t, dir)
	for _, path := range []string{"/healthz", "/readyz"} {
		wants(t, status, path, false, "disk_full", "log_refuses_writes RONDO_r", "no space left on device")
	}
	if out, _ := command(t, "run", "show", "r", "--dir", dir); !strings.Contains(out,
		"outage: log_refuses_writes RONDO_r") {
		t.Errorf("run show on a full disk:\n%s", out)
	}
	if out, code := command(t, "doctor", "--dir", dir); code != 2 ||
		!strings.Contains(out, "log_refuses_writes RONDO_r") {
		t.Errorf("doctor on a full disk: %d\n%s", code, out)
	}
	before, err := eventsOf(t, dir, "r")
	if err != nil {
		t.Fatal(err)
	}
	free()
	program.Eventually(t, func() error {
		n, err := eventsOf(t, dir, "r") // which fails while the log is opened again
		if err == nil && n < before+20 {
			err = fmt.Errorf("%d events after %d on the full disk", n, before)
		}
		return err
	})
	wants(t, status, "/readyz", true)
	for _, line := range []string{`msg="outage began" kind=log_refuses_writes of=RONDO_r `,
		`msg="outage ended" kind=log_refuses_writes of=RONDO_r `, `msg="log restarted"`} {
		once(t, up, line)
	}
	if _, page, err := ask(status, "/metrics"); err != nil ||
		!strings.Contains(page, `rondo_outages_total{kind="log_refuses_writes"} 1`) {
		t.Errorf("metrics: %v\n%s", err, page)
	}
	if out, code := command(t, "audit", "r", "--dir", dir); code != 0 {
		t.Errorf("audit: %d\n%s", code, out)
	}
	up.Stop(t)
}

// TestLogStands: a service beside a log that is stopped for a while says so, and once each in its
// log. The plane whose clock jumps meanwhile, perhaps while its services are starting, goes on.
func TestLogStands(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	dir, status := t.TempDir(), address(t)
	up := program.Start(t, exec.Command(rondo, "up", "--dir", dir, "--listen", status))
	wants(t, status, "/readyz", true)
	var endpoint struct{ NATS, Store string }
	data, err := os.ReadFile(filepath.Join(dir, "endpoint.json"))
	if err == nil {
		err = json.Unmarshal(data, &endpoint)
	}
	if err != nil {
		t.Fatal(err)
	}
	own := address(t)
	service := program.Start(t, exec.Command(rondo, "service", "intake", "--nats", endpoint.NATS,
		"--store", endpoint.Store, "--dir", t.TempDir(), "--metrics-listen", own))
	wants(t, own, "/readyz", true)
	if err := up.Cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wants(t, own, "/readyz", false, "log_unreachable")
	wants(t, own, "/healthz", false, "log_unreachable")
	if err := up.Cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-up.Done:
		t.Fatalf("the plane has ended:\n%s", up)
	case <-time.After(time.Second):
	}
	wants(t, own, "/readyz", true)
	for _, event := range []string{"began", "ended"} {
		once(t, service, `msg="outage `+event+`" kind=log_unreachable`)
	}
}
