package agent

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// The server's side of a link: it runs the commands that programs of another sandbox
// ask for with under-test.

const (
	// maxCalls bounds the commands that run at once. More wait for their turn.
	maxCalls = 64
	// callTime bounds the wait for a request whose caller has connected.
	callTime = 10 * time.Second
	// unlimited is the time of a command without a limit of its own: the tests have one.
	unlimited = 24 * time.Hour
)

// notTaken are variables of the caller that mean its own sandbox, and so nothing here.
var notTaken = map[string]bool{
	"PATH": true, "HOME": true, "USER": true, "LOGNAME": true, "SHELL": true, "PWD": true, "OLDPWD": true,
	"SHLVL": true, "_": true,
	"TMPDIR": true, "TEST_DIR": true, "ENV": true, "BASH_ENV": true,
}

// linkSocket is the socket over which the listening socket of calls goes from the
// caller's side to the server's.
func (a *agent) linkSocket() *os.File {
	fd := a.boot.Files[len(a.boot.Files)-1]
	_ = unix.SetNonblock(fd, true) // so that to wait for it takes no thread
	return os.NewFile(uintptr(fd), "link")
}

// serveCalls waits for the caller's sandbox to stand, and serves its calls until this process ends.
func (a *agent) serveCalls(link *os.File) {
	defer link.Close()
	descriptors, err := wire.ReceiveFiles(link)
	if err != nil || len(descriptors) != 1 {
		wire.CloseFiles(descriptors)
		return // the caller's sandbox was never made
	}
	listener := os.NewFile(uintptr(descriptors[0]), "calls")
	defer listener.Close()
	slots := make(chan struct{}, maxCalls)
	for {
		slots <- struct{}{}
		conn, err := accept(listener)
		if err != nil {
			return
		}
		go func() {
			defer func() { <-slots }()
			defer conn.Close()
			a.serveCall(conn)
		}()
	}
}

// accept waits for a connection.
func accept(listener *os.File) (*os.File, error) {
	raw, err := listener.SyscallConn()
	if err != nil {
		return nil, err
	}
	for {
		fd := -1
		var accepted error
		err := raw.Read(func(at uintptr) bool {
			fd, _, accepted = unix.Accept4(int(at), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return accepted != unix.EAGAIN
		})
		switch {
		case err != nil:
			return nil, err
		case accepted == nil:
			return os.NewFile(uintptr(fd), "call"), nil
		case accepted != unix.EINTR && accepted != unix.ECONNABORTED:
			return nil, os.NewSyscallError("accept", accepted)
		}
	}
}

// serveCall runs the command of one call. It answers when nothing of the command runs any more.
func (a *agent) serveCall(conn *os.File) {
	_ = conn.SetReadDeadline(time.Now().Add(callTime))
	call, err := receiveCall(conn)
	_ = conn.SetReadDeadline(time.Time{})
	var answer wire.CallEnd
	if err == nil {
		answer, err = a.runCall(conn, call)
	}
	if err != nil {
		answer = wire.CallEnd{ExitCode: exitCallFailed, Message: err.Error()}
	}
	_ = wire.Write(conn, answer) // a caller that is gone needs none
}

// calledWith is a call that was received.
type calledWith struct {
	wire.Call
	files []int
}

// receiveCall takes the three pipes of a caller and its request. Nothing but pipes crosses:
// a file of the caller could be opened again, and more of it read or written than the
// caller's descriptor allows.
func receiveCall(conn *os.File) (call calledWith, err error) {
	call.files, err = wire.ReceiveFiles(conn)
	if err != nil {
		return call, err
	}
	defer func() {
		if err != nil {
			wire.CloseFiles(call.files)
		}
	}()
	if len(call.files) != 3 {
		return call, fmt.Errorf("%w: %d descriptors in place of 3", wire.ErrProtocol, len(call.files))
	}
	for i, fd := range call.files {
		var found unix.Stat_t
		if err := unix.Fstat(fd, &found); err != nil || found.Mode&unix.S_IFMT != unix.S_IFIFO {
			return call, fmt.Errorf("%w: descriptor %d is not a pipe", wire.ErrProtocol, i)
		}
	}
	var sizes wire.CallSizes
	body, err := wire.Read(conn, &sizes, func() (int64, error) { return wire.MaxCall, nil })
	if err != nil {
		return call, err
	}
	call.Call, err = sizes.Decode(body)
	return call, err
}

// runCall runs a command until it ends, its time is over, or its caller hangs up, and
// ends what it left behind.
func (a *agent) runCall(conn *os.File, call calledWith) (wire.CallEnd, error) {
	wall := unlimited.Milliseconds()
	if call.WallMillis > 0 {
		wall = min(wall, call.WallMillis)
	}
	c := &command{
		request: wire.Request{Path: call.Dir, Argv: call.Argv, Env: a.callEnv(call.Env), WallMillis: wall},
		ended:   make(chan unix.WaitStatus, 1), cancel: make(chan struct{}, 1),
	}
	before, err := a.startCall(c, call.files)
	if err != nil {
		code, text := launchFailure(err, call.Argv)
		if code == 0 {
			return wire.CallEnd{}, err
		}
		return wire.CallEnd{ExitCode: code, Message: strings.TrimSpace(text)}, nil
	}
	go func() {
		_, _ = conn.Read(make([]byte, 1)) // until the caller hangs up; it sends nothing more
		c.cancel <- struct{}{}
	}()
	status := a.await(c)
	a.clearCall(before)
	if c.result.TimedOut {
		return wire.CallEnd{ExitCode: exitTimedOut}, nil
	}
	return wire.CallEnd{ExitCode: exitCode(status)}, nil
}

// startCall starts a call's command at the caller's pipes, which it closes on this side,
// and tells who ran before.
func (a *agent) startCall(c *command, files []int) (before map[key]bool, err error) {
	defer wire.CloseFiles(files)
	a.calling.Lock()
	defer a.calling.Unlock()
	before = snapshot()
	attributes := &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, fd := range files {
		attributes.Files = append(attributes.Files, uintptr(fd))
	}
	a.launcher.do(func() {
		c.pid, err = a.reaper.start(c, func() (int, error) { return a.fork(c.request, attributes) })
	})
	return before, err
}

// clearCall ends what a call left behind. Where no other one runs, that is everything, which not
// even a fork bomb escapes.
func (a *agent) clearCall(before map[key]bool) {
	a.calling.Lock()
	defer a.calling.Unlock()
	if len(a.reaper.sessions()) > 0 {
		a.reaper.killLeftovers(before)
	} else {
		a.reaper.killAll()
	}
}

// callEnv is the environment of a call's command: the server's own, and over it what the caller has
// set that its sandbox had not.
func (a *agent) callEnv(caller []string) map[string]string {
	env := map[string]string{}
	for name, value := range a.boot.LinkEnv {
		env[name] = value
	}
	for _, variable := range caller {
		name, value, ok := strings.Cut(variable, "=")
		had, was := a.boot.Withheld[name]
		if !ok || !variableName(name) || notTaken[name] || strings.HasPrefix(name, "LD_") || was && had == value {
			continue
		}
		env[name] = value
	}
	return env
}

// variableName tells names of variables from other texts that a shell puts into an
// environment, such as functions.
func variableName(name string) bool {
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}
