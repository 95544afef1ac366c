package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// terminal is a program whose input and output the owner has: at a pseudo terminal of
// its own, or at two pipes.
type terminal struct {
	command *command
	in, out *os.File // both are the pseudo terminal's
	reading sync.Mutex
	ended   chan struct{}
	status  unix.WaitStatus // once ended is closed, and so is what follows
	// complaint is the end of what a program at pipes wrote to its standard error.
	complaint []byte
}

// terminals serves the operations on terminals, which are named by the request that opened them.
func (a *agent) terminals(request wire.Request, body []byte) (response wire.Response, out [][]byte, err error) {
	switch request.Op {
	case wire.OpTerminal:
		return response, nil, a.openTerminal(request)
	case wire.OpPipes:
		return response, nil, a.openPipes(request)
	case wire.OpHangUp:
		a.hangUp(request.Target)
		return response, nil, nil
	}
	known, ok := a.atTerminals.Load(request.Target)
	if !ok {
		return response, nil, fmt.Errorf("%w: no terminal %d", wire.ErrInvalid, request.Target)
	}
	t := known.(*terminal)
	switch request.Op {
	case wire.OpType:
		_, err = t.in.Write(body)
		return response, nil, err
	case wire.OpResize:
		return response, nil, resize(t.out, request.Rows, request.Columns)
	}
	return t.read(request.Max)
}

// openTerminal starts a program as the leader of a session whose terminal it has, on a
// thread without capabilities.
func (a *agent) openTerminal(request wire.Request) (err error) {
	sent := a.private.command(request)
	c := &command{request: sent, ended: make(chan unix.WaitStatus, 1)}
	before := snapshot()
	var master *os.File
	a.launcher.do(func() {
		var slave *os.File
		if master, slave, err = pseudoTerminal(request.Rows, request.Columns); err != nil {
			return
		}
		defer slave.Close()
		at := slave.Fd()
		c.pid, err = a.reaper.start(c, func() (int, error) {
			return a.fork(sent, &syscall.ProcAttr{Files: []uintptr{at, at, at},
				Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true}})
		})
		if err != nil {
			master.Close()
		}
	})
	if err != nil {
		return fmt.Errorf("open a terminal: %w", err)
	}
	t := &terminal{command: c, in: master, out: master, ended: make(chan struct{})}
	a.atTerminals.Store(request.ID, t)
	go func() {
		t.status = <-c.ended
		a.reaper.killLeftovers(before) // which also ends the output that is read
		close(t.ended)
	}()
	return nil
}

// pseudoTerminal opens both sides of a new one.
func pseudoTerminal(rows, columns uint16) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	master = os.NewFile(uintptr(fd), "terminal")
	err = errors.Join(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0), resize(master, rows, columns))
	if err == nil {
		// By number, as paths below /dev mean what the sandbox's folders say.
		other, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER,
			unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno == 0 {
			return master, os.NewFile(other, "terminal"), nil
		}
		err = fmt.Errorf("open the other side of a terminal: %w", errno)
	}
	return nil, nil, errors.Join(err, master.Close())
}

func resize(master *os.File, rows, columns uint16) error {
	connection, err := master.SyscallConn()
	if err != nil {
		return err
	}
	sizeErr := connection.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
	return errors.Join(err, sizeErr)
}

// read waits for output. When there will be no more it answers how the program ended,
// and what it complained of.
func (t *terminal) read(limit int64) (response wire.Response, out [][]byte, err error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	buffer := make([]byte, min(limit, wire.MaxTerminalRead))
	n, err := t.out.Read(buffer)
	if n > 0 {
		return response, [][]byte{buffer[:n]}, nil
	}
	if err != nil && !isHangup(err) {
		return response, nil, err
	}
	<-t.ended
	return wire.Response{Exec: &wire.Exec{ExitCode: exitCode(t.status)}}, [][]byte{t.complaint}, nil
}

// isHangup tells the errors of reading that say that no more will come: nobody has the
// other side of the terminal open, the program has ended and left its pipe to others,
// or the owner has hung up.
func isHangup(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, os.ErrClosed)
}
