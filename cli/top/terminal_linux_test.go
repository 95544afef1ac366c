package top

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/events/natstest"
)

// terminal is a pseudo terminal with the command in it, as ssh gives one.
type terminal struct {
	testing.TB
	master *os.File
	cmd    *exec.Cmd
	mu     sync.Mutex
	shown  bytes.Buffer
}

func openTerminal(t *testing.T, dir string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatal(err)
		}
		t.Skipf("no pseudo terminals here: %v", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	w := &terminal{TB: t, master: master}
	w.size(120, 30)
	w.cmd = exec.Command(os.Args[0], "top", "--every", "100ms", "--dir", dir)
	w.cmd.Env = append(os.Environ(), "RONDO_TEST_MAIN=1", "TERM=xterm-256color")
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = slave, slave, slave
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		master.Close()
	})
	go func() {
		part := make([]byte, 4096)
		for {
			n, err := master.Read(part)
			w.mu.Lock()
			w.shown.Write(part[:n])
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return w
}

func (w *terminal) size(columns, rows uint16) {
	w.Helper()
	if err := unix.IoctlSetWinsize(int(w.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: rows, Col: columns}); err != nil {
		w.Fatal(err)
	}
}

func (w *terminal) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shown.String()
}

// await waits until the terminal was sent a text, and forgets what came before.
func (w *terminal) await(text string) {
	w.Helper()
	natstest.Eventually(w, fmt.Sprintf("the terminal is sent %q", text),
		func() bool { return strings.Contains(w.text(), text) })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shown.Reset()
}

func (w *terminal) end(way func() error) {
	w.Helper()
	if err := way(); err != nil {
		w.Fatal(err)
	}
	if err := w.cmd.Wait(); err != nil {
		w.Errorf("it ended with %v: %q", err, w.text())
	}
	w.await("\x1b[?1049l") // the screen as it was before
}

func TestInATerminal(t *testing.T) {
	r := busy(t)
	for name, way := range map[string]func(w *terminal) error{
		"q":       func(w *terminal) error { _, err := w.master.WriteString("q"); return err },
		"Ctrl-C":  func(w *terminal) error { _, err := w.master.WriteString("\x03"); return err },
		"SIGTERM": func(w *terminal) error { return w.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			w := openTerminal(t, r.Dir)
			w.await("http://10.0.0.1:8000")
			w.size(60, 12) // the footer is drawn anew at the place where it is now
			w.await("quits")
			w.end(func() error { return way(w) })
		})
	}
}
