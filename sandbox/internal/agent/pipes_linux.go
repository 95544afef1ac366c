package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// maxComplaint is how much of the end of a program's standard error is kept, in bytes.
const maxComplaint = 2 << 10

// openPipes starts a program at two pipes, on a thread without capabilities. Of its
// standard error the end is kept.
func (a *agent) openPipes(request wire.Request) error {
	theirs, in, out, complaints, err := pipes()
	defer closeAll(theirs)
	if err != nil {
		return fmt.Errorf("open pipes: %w", errors.Join(err, closeAll([]*os.File{in, out, complaints})))
	}
	sent := a.private.command(request)
	c := &command{request: sent, ended: make(chan unix.WaitStatus, 1)}
	files := []uintptr{theirs[0].Fd(), theirs[1].Fd(), theirs[2].Fd()}
	a.launcher.do(func() {
		c.pid, err = a.reaper.start(c, func() (int, error) {
			return a.fork(sent, &syscall.ProcAttr{Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
		})
	})
	if err != nil {
		_ = closeAll([]*os.File{in, out, complaints})
		if code, text := launchFailure(err, request.Argv); code != 0 {
			return fmt.Errorf("%w: %s", wire.ErrInvalid, strings.TrimSpace(text))
		}
		return err
	}
	t := &terminal{command: c, in: in, out: out, ended: make(chan struct{})}
	a.atTerminals.Store(request.ID, t)
	heard := make(chan []byte, 1)
	go func() { heard <- endOf(complaints) }()
	go func() {
		t.status = <-c.ended
		until := time.Now().Add(drainTime) // others may hold the pipes
		_, _ = out.SetReadDeadline(until), complaints.SetReadDeadline(until)
		t.complaint = <-heard
		close(t.ended)
	}()
	return nil
}

// endOf reads a file to its end, closes it, and keeps the last of it.
func endOf(f *os.File) (tail []byte) {
	defer f.Close()
	for buffer := make([]byte, maxComplaint); ; {
		n, err := f.Read(buffer)
		tail = append(tail, buffer[:n]...)
		tail = append(tail[:0], tail[max(0, len(tail)-maxComplaint):]...)
		if err != nil {
			return tail
		}
	}
}

// pipes makes a program's three files, and this side of them.
func pipes() (theirs []*os.File, in, out, complaints *os.File, err error) {
	input, in, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, nil, err
	}
	theirs = append(theirs, input)
	out, output, err := os.Pipe()
	if err != nil {
		return theirs, in, nil, nil, err
	}
	theirs = append(theirs, output)
	complaints, said, err := os.Pipe()
	return append(theirs, said), in, out, complaints, err
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// hangUp ends a program and all that belongs to its group, and lets whoever reads or writes go.
func (a *agent) hangUp(id uint64) {
	known, ok := a.atTerminals.LoadAndDelete(id)
	if !ok {
		return
	}
	t := known.(*terminal)
	a.reaper.kill(t.command)
	<-t.ended
	_ = t.in.Close()
	_ = t.out.Close()
}
