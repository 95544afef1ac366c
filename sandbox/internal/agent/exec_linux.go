package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

const (
	// termGrace is what a command gets between SIGTERM and SIGKILL when its time is over.
	termGrace = 500 * time.Millisecond
	// drainTime bounds the wait for output after a command and all that it left behind are gone;
	// only a process that was there before and was handed the pipe can still hold it.
	drainTime = 250 * time.Millisecond
	// largestPipe is what an ordinary user's pipe can hold at most.
	largestPipe = 1 << 20
	// Exit codes of POSIX shells for a program that cannot be run or found.
	exitNotExecutable, exitNotFound = 126, 127
	exitSignalBase                  = 128
)

// command is one run of a program.
type command struct {
	request wire.Request
	pid     int
	ended   chan unix.WaitStatus
	cancel  chan struct{}
	flood   chan struct{}
	outputs [2]stream // stdout, stderr
	report  stream    // where the request asks for one
	result  wire.Exec
}

// stream is the reading side of one of a command's pipes.
type stream struct {
	output
	pipe *os.File
	over chan struct{} // the command has ended
	done chan struct{}
}

func (a *agent) exec(request wire.Request, stdin []byte) (wire.Response, [][]byte, error) {
	c := &command{request: a.private.command(request), ended: make(chan unix.WaitStatus, 1),
		cancel: make(chan struct{}, 1), flood: make(chan struct{}, 3)}
	a.running.Store(request.ID, c)
	defer a.running.Delete(request.ID)
	before, kills, begin := snapshot(), a.memory.count(), time.Now()
	if err := a.launch(c, stdin); err != nil {
		code, text := launchFailure(err, request.Argv)
		if code == 0 {
			return wire.Response{}, nil, err
		}
		return wire.Response{Exec: &wire.Exec{ExitCode: code}}, [][]byte{nil, []byte(text)}, nil
	}
	if request.Background {
		return wire.Response{Exec: &c.result}, nil, nil
	}
	status := a.await(c)
	if c.result.Leftovers = a.reaper.killLeftovers(before); c.result.Leftovers > 0 {
		c.result.Detached = time.Now().UnixNano()
	} else {
		c.result.Detached = a.reaper.lastOrphan(begin)
	}
	c.result.ExitCode, c.result.Signaled = exitCode(status), status.Signaled()
	c.result.OutOfMemory = a.memory.count() > kills
	stdout, stderr := a.private.inward(c.outputs[0].finish()), a.private.inward(c.outputs[1].finish())
	c.result.StdoutBytes = len(stdout)
	c.result.Dropped = c.outputs[0].dropped() + c.outputs[1].dropped()
	var report []byte
	if request.Report > 0 {
		report = c.report.finish()
		c.result.ReportBytes, c.result.ReportDropped = len(report), c.report.dropped()
	}
	return wire.Response{Exec: &c.result}, [][]byte{stdout, stderr, report}, nil
}

func (a *agent) cancel(id uint64) {
	if c, ok := a.running.Load(id); ok {
		select {
		case c.(*command).cancel <- struct{}{}:
		default: // asked before
		}
	}
}

// await waits for the command's end, and makes it end when one of its limits is reached.
func (a *agent) await(c *command) unix.WaitStatus {
	var status unix.WaitStatus
	ended := false
	stop := make(chan struct{})
	defer close(stop)
	hunger := newHunger(time.Duration(c.request.WallMillis)*time.Millisecond,
		func() map[int]usage { return usages(c.pid) })
	over := hunger.watch(stop)
	select {
	case status = <-c.ended:
		ended = true
	case <-over:
		c.result.TimedOut = true
		_ = unix.Kill(-c.pid, unix.SIGTERM)
		select {
		case status = <-c.ended:
			ended = true
		case <-time.After(termGrace):
		}
	case <-c.flood:
		c.result.OutputExceeded = true
	case <-c.cancel: // it is killed below
	}
	if !ended {
		_ = unix.Kill(-c.pid, unix.SIGKILL)
		status = <-c.ended
	}
	c.result.StarvedMillis = hunger.starved().Milliseconds()
	return status
}

func exitCode(status unix.WaitStatus) int {
	if status.Signaled() {
		return exitSignalBase + int(status.Signal())
	}
	return status.ExitStatus()
}

// launch starts the program on a thread without capabilities.
func (a *agent) launch(c *command, stdin []byte) (err error) {
	files, closeAll, err := a.open(c, stdin)
	defer closeAll()
	if err != nil {
		return err
	}
	a.launcher.do(func() {
		c.pid, err = a.reaper.start(c, func() (int, error) {
			return a.fork(c.request, &syscall.ProcAttr{Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
		})
	})
	c.result.PID = c.pid
	return err
}

// fork starts, on the launcher's thread, the request's program with its environment in its folder.
func (a *agent) fork(request wire.Request, attributes *syscall.ProcAttr) (int, error) {
	dir := a.private.path(request.Path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return 0, &noFolder{request.Path}
	}
	program, err := find(request.Argv[0], dir, request.Env)
	if err != nil {
		return 0, err
	}
	attributes.Dir = dir
	for name, value := range request.Env {
		attributes.Env = append(attributes.Env, name+"="+value)
	}
	var pid int
	a.scapegoat.run(func() { pid, err = syscall.ForkExec(program, request.Argv, attributes) })
	if err != nil {
		return 0, &os.PathError{Op: "start", Path: program, Err: err}
	}
	return pid, nil
}

type noFolder struct{ path string }

func (e *noFolder) Error() string { return "no such working folder: " + e.path }

// find looks a program up as a shell would, in the PATH that it will have.
func find(name, dir string, env map[string]string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, folder := range strings.Split(env["PATH"], ":") {
		if folder == "" {
			folder = dir
		}
		candidate := folder + "/" + name
		if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", &os.PathError{Op: "start", Path: name, Err: fs.ErrNotExist}
}

// launchFailure answers the exit code and text that a shell would give, or 0 where the
// fault is not the command's.
func launchFailure(err error, argv []string) (int, string) {
	var folder *noFolder
	switch {
	case errors.As(err, &folder):
		return exitNotExecutable, err.Error() + "\n"
	case errors.Is(err, fs.ErrNotExist):
		return exitNotFound, argv[0] + ": command not found\n"
	case errors.Is(err, syscall.EAGAIN):
		return exitNotExecutable, argv[0] + ": cannot start: the sandbox's limit on processes is reached\n"
	case errors.Is(err, syscall.ENOSPC):
		return exitNotExecutable, argv[0] + ": cannot start: no space left on device\n"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.E2BIG),
		errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EINVAL):
		return exitNotExecutable, fmt.Sprintf("%s: cannot start: %v\n", argv[0], err)
	}
	return 0, ""
}

// open makes the command's three files; closeAll closes this side's copies of what the command got.
func (a *agent) open(c *command, stdin []byte) (files []uintptr, closeAll func(), err error) {
	var opened []*os.File
	closeAll = func() {
		for _, f := range opened {
			f.Close()
		}
	}
	in, err := input(stdin)
	if err != nil {
		return nil, closeAll, err
	}
	opened = append(opened, in)
	if c.request.Background {
		log, err := a.backgroundLog(c)
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, log)
		return []uintptr{in.Fd(), log.Fd(), log.Fd()}, closeAll, nil
	}
	files = []uintptr{in.Fd()}
	for i := range c.outputs {
		reading, writing, err := os.Pipe()
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, writing)
		files = append(files, writing.Fd())
		if c.request.Stream {
			c.outputs[i].send = func(data []byte) {
				// the last answer says it if the owner is gone
				_ = a.respond(wire.Response{ID: c.request.ID, Stream: i + 1}, a.private.inward(data))
			}
		}
		c.outputs[i].begin(reading, c.request.Output, c.flood)
	}
	if c.request.Report > 0 {
		far, err := c.openReport()
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, far)
		for len(files) < wire.ReportFD {
			files = append(files, closed)
		}
		files = append(files, far.Fd())
	}
	return files, closeAll, nil
}

// closed is a descriptor that a started program does not have.
const closed = ^uintptr(0)

// openReport makes the socket on which a command reports, with its greeting already in it,
// and reads this end of it.
func (c *command) openReport() (far *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	far = os.NewFile(uintptr(pair[1]), "report")
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, errors.Join(err, far.Close(), unix.Close(pair[0]))
	}
	near := os.NewFile(uintptr(pair[0]), "report")
	if _, err := near.WriteString(c.request.Greeting); err != nil {
		return nil, errors.Join(err, far.Close(), near.Close())
	}
	c.report.begin(near, c.request.Report, c.flood)
	return far, nil
}

// input is a pipe that carries the bytes, or nothing to read.
func input(data []byte) (*os.File, error) {
	if len(data) == 0 {
		return os.Open(os.DevNull)
	}
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() {
		defer writing.Close()
		_, _ = writing.Write(data) // a command need not read its input
	}()
	return reading, nil
}

// backgroundLog is the file that takes a background command's output.
func (a *agent) backgroundLog(c *command) (file *os.File, err error) {
	c.result.Log = fmt.Sprintf("/tmp/background-%d.log", c.request.ID)
	a.work.do(func() {
		file, err = os.OpenFile(a.private.path(c.result.Log),
			os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o644)
	})
	return file, err
}

func (s *stream) begin(pipe *os.File, limit int, flood chan<- struct{}) {
	s.pipe, s.limit, s.over, s.done = pipe, limit, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.done)
		defer pipe.Close()
		if s.drain(pipe) {
			flood <- struct{}{}
			<-s.over // a pipe that is closed before would end the command in the place of who is told
		}
		rest(pipe, func(data []byte) { _, _ = s.Write(data) })
	}()
}

// rest takes what already is in a pipe whose time is over: who reads it may have been
// slow, or slowed by the owner.
func rest(pipe *os.File, take func([]byte)) {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, wire.MaxChunk)
	_ = raw.Control(func(fd uintptr) {
		for taken := 0; taken < largestPipe; {
			n, err := unix.Read(int(fd), buffer)
			if n <= 0 || err != nil {
				return
			}
			take(buffer[:n])
			taken += n
		}
	})
}

// finish waits for the end of the stream, but no longer than the drain time.
func (s *stream) finish() []byte {
	close(s.over)
	_ = s.pipe.SetReadDeadline(time.Now().Add(drainTime))
	<-s.done
	return s.text()
}
