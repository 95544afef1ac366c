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

// openPipes starts a program at two pipes, on a thread without capabilities. Its standard error goes nowhere: nobody would bound it.
func (a *agent) openPipes(request wire.Request) error {
	theirs, in, out, err := pipes()
	defer closeAll(theirs)
	if err != nil {
		return fmt.Errorf("open pipes: %w", errors.Join(err, closeAll([]*os.File{in, out})))
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
		_ = closeAll([]*os.File{in, out})
		if code, text := launchFailure(err, request.Argv); code != 0 {
			return fmt.Errorf("%w: %s", wire.ErrInvalid, strings.TrimSpace(text))
		}
		return err
	}
	t := &terminal{command: c, in: in, out: out, ended: make(chan struct{})}
	a.atTerminals.Store(request.ID, t)
	go func() {
		t.status = <-c.ended
		_ = out.SetReadDeadline(time.Now().Add(drainTime)) // others may hold the pipe
		close(t.ended)
	}()
	return nil
}

// pipes makes a program's three files, and this side of the first two.
func pipes() (theirs []*os.File, in, out *os.File, err error) {
	input, in, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	theirs = append(theirs, input)
	out, output, err := os.Pipe()
	if err != nil {
		return theirs, in, nil, err
	}
	theirs = append(theirs, output)
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	return append(theirs, nowhere), in, out, err
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
