package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/jail"
	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// The caller's side of a link: the command under-test, which is this program under another name.

const (
	// CallName is the command that runs a command in the other sandbox.
	CallName = "under-test"
	// CallFolder is where the command lies, with the socket that it connects to.
	CallFolder = "/run/under-test"
	callSocket = CallFolder + "/socket"
	// Exit codes as those of timeout(1).
	exitTimedOut, exitCallFailed = 124, 125
	// maxCallOutput bounds each stream of a call: a shell that keeps it in a variable
	// must not run out of memory.
	maxCallOutput = 8 << 20
	// waitingCalls is how many callers may wait to be accepted.
	waitingCalls = 128
	callFiles    = 16      // of the folder
	callSpare    = 1 << 20 // bytes, beside the program
)

const callUsage = "usage: under-test [-t SECONDS] [-C FOLDER] [--] COMMAND [ARGUMENT...]"

// calledUnderTest reports whether this program was started as the command.
func calledUnderTest() bool {
	return len(os.Args) > 0 && (os.Args[0] == CallName || strings.HasSuffix(os.Args[0], "/"+CallName))
}

// offerCalls puts the command into its folder, which nothing can change from then on, and sends the
// socket that calls come to over the link.
func offerCalls(link *os.File) error {
	defer link.Close()
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer program.Close()
	info, err := program.Stat()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(CallFolder, 0o755); err != nil {
		return err
	}
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=755", info.Size()+callSpare, callFiles)
	if err := unix.Mount("tmpfs", CallFolder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return os.NewSyscallError("mount", err)
	}
	if err := copyProgram(program, CallFolder+"/"+CallName); err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	listener := os.NewFile(uintptr(socket), "calls")
	defer listener.Close()
	if err := unix.Bind(socket, &unix.SockaddrUnix{Name: callSocket}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(socket, waitingCalls); err != nil {
		return os.NewSyscallError("listen", err)
	}
	if err := jail.Lock(CallFolder); err != nil {
		return err
	}
	raw, err := listener.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = wire.SendDescriptors(link, []int{int(fd)}) })
	return errors.Join(err, controlErr)
}

func copyProgram(program *os.File, name string) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, program)
	return errors.Join(err, file.Close())
}

// underTest is the command. It answers its exit code.
func underTest(args []string) int {
	c, err := parseCall(args)
	if err == nil {
		var code int
		if code, err = c.run(); err == nil {
			return code
		}
	}
	fmt.Fprintln(os.Stderr, CallName+": "+err.Error())
	return exitCallFailed
}

func parseCall(args []string) (c caller, err error) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && len(args[0]) > 1 {
		option := args[0]
		args = args[1:]
		if option == "--" {
			break
		}
		if len(args) == 0 {
			return c, errors.New(callUsage)
		}
		switch option {
		case "-t":
			seconds, err := strconv.ParseFloat(args[0], 64)
			if err != nil || !(seconds >= 0.001 && seconds <= unlimited.Seconds()) {
				return c, fmt.Errorf("-t %s: want a number of seconds from 0.001 to %g", args[0], unlimited.Seconds())
			}
			c.WallMillis = int64(seconds * 1000)
		case "-C":
			c.Dir = args[0]
		default:
			return c, fmt.Errorf("%s: unknown option; %s", option, callUsage)
		}
		args = args[1:]
	}
	if len(args) == 0 || args[0] == "" {
		return c, errors.New(callUsage)
	}
	here, err := syscallWorkingFolder()
	if c.Dir == "" {
		c.Dir = here
	} else if !strings.HasPrefix(c.Dir, "/") {
		c.Dir = here + "/" + c.Dir
	}
	c.Argv, c.Env = args, os.Environ()
	return c, err
}

// syscallWorkingFolder is where this process is, whatever its environment says.
func syscallWorkingFolder() (string, error) {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Getcwd(buffer)
	if err != nil || n < 1 {
		return "", fmt.Errorf("find the working folder: %w", err)
	}
	return string(buffer[:n-1]), nil
}

// caller is one run of the command.
type caller struct {
	wire.Call
	conn    *os.File
	outputs []*callOutput
	tooMuch chan int // the descriptor whose output is more than is allowed
}

// callOutput copies what comes out of a pipe to a descriptor.
type callOutput struct {
	pipe *os.File
	to   int
	done chan struct{}
}

// run asks for the command and passes its streams on. The other side gets pipes of this process
// alone, so that whatever still holds them there keeps nobody here waiting, and none of this side's
// files can be opened there.
func (c *caller) run() (int, error) {
	input, err := standardInput()
	if err != nil {
		return 0, err
	}
	if c.conn, err = connect(); err != nil {
		return 0, err
	}
	defer c.conn.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	in, err := c.send()
	if err != nil {
		return 0, err
	}
	if input != nil {
		go func() {
			defer in.Close()
			_, _ = io.Copy(in, input) // the command need not read all of it
		}()
	} else {
		in.Close()
	}
	c.tooMuch = make(chan int, len(c.outputs))
	for _, out := range c.outputs {
		go c.copyOutput(out)
	}
	return c.wait(signals)
}

// standardInput is what the command reads; nil for nothing. A file that was read in part is
// most likely a list that the tests go through, and not meant for the command, to which it
// may tell what is expected.
func standardInput() (*os.File, error) {
	var found unix.Stat_t
	if err := unix.Fstat(0, &found); err != nil {
		return nil, nil // it is closed
	}
	switch found.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return nil, errors.New("the standard input is a folder")
	case unix.S_IFREG:
		at, err := unix.Seek(0, 0, io.SeekCurrent)
		if err == nil && at > 0 && at < found.Size {
			return nil, errors.New("the standard input is a file that was partly read: give the command another input, such as </dev/null")
		}
	}
	return os.Stdin, nil
}

func connect() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: callSocket})
	}
	if err != nil {
		return nil, fmt.Errorf("reach the sandbox of the code under test: %w", err)
	}
	return os.NewFile(uintptr(fd), "call"), nil
}

// send asks for the command, with three pipes, and gives this side's end of the first.
func (c *caller) send() (in *os.File, err error) {
	sizes, body, err := c.Encode()
	if err != nil {
		return nil, err
	}
	theirs := make([]*os.File, 1, 3)
	defer func() { _ = closeAll(theirs) }()
	if theirs[0], in, err = os.Pipe(); err != nil {
		return nil, err
	}
	places := []int{1, 2}
	if sameFile(1, 2) {
		places = places[:1] // one pipe for both keeps the order
	}
	for _, to := range places {
		pipe, writing, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, writing)
		c.outputs = append(c.outputs, &callOutput{pipe, to, make(chan struct{})})
	}
	if err := wire.SendFiles(c.conn, []*os.File{theirs[0], theirs[1], theirs[len(theirs)-1]}); err != nil {
		return nil, err
	}
	return in, wire.Write(c.conn, sizes, body)
}

func sameFile(a, b int) bool {
	var one, other unix.Stat_t
	return unix.Fstat(a, &one) == nil && unix.Fstat(b, &other) == nil && one.Dev == other.Dev && one.Ino == other.Ino
}

// copyOutput copies until nobody writes any more, or this process does not wait any longer.
func (c *caller) copyOutput(out *callOutput) {
	defer close(out.done)
	written := 0
	pass := func(data []byte) bool {
		if written += len(data); written > maxCallOutput {
			c.tooMuch <- out.to
			return false
		}
		return writeAll(out.to, data)
	}
	buffer := make([]byte, wire.MaxChunk)
	for {
		n, err := out.pipe.Read(buffer)
		if n > 0 && !pass(buffer[:n]) {
			out.pipe.Close() // who goes on writing gets a signal
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			rest(out.pipe, func(data []byte) { _ = pass(data) })
		}
		if err != nil {
			return
		}
	}
}

// writeAll writes to a descriptor that may be somebody's who does not block. To one whose reader is
// gone it ends this process by a signal, like other programs.
func writeAll(fd int, data []byte) bool {
	for len(data) > 0 {
		n, err := syscall.Write(fd, data)
		switch {
		case err == syscall.EAGAIN:
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
		case err == syscall.EPIPE:
			_, _ = os.NewFile(uintptr(fd), "").Write(data)
			return false
		case err != nil && err != syscall.EINTR:
			return false
		case n > 0:
			data = data[n:]
		}
	}
	return true
}

// wait waits for the command's end, and makes it end when this process is asked to.
func (c *caller) wait(signals <-chan os.Signal) (int, error) {
	type ending struct {
		wire.CallEnd
		err error
	}
	ended := make(chan ending, 1)
	go func() {
		var end ending
		_, end.err = wire.Read(c.conn, &end.CallEnd, func() (int64, error) { return 0, nil })
		ended <- end
	}()
	var by syscall.Signal
	var much int
	var end ending
	select {
	case end = <-ended:
	case s := <-signals:
		by, _ = s.(syscall.Signal)
	case much = <-c.tooMuch:
	}
	if by != 0 || much != 0 {
		_ = unix.Shutdown(int(c.conn.Fd()), unix.SHUT_WR)
		end = <-ended // the command and all that it started are gone by then
	}
	c.drain()
	if by == 0 && much == 0 && len(c.tooMuch) > 0 {
		much = <-c.tooMuch // it was the last that the command wrote
	}
	switch {
	case by != 0:
		return exitSignalBase + int(by), nil
	case much != 0:
		return 0, fmt.Errorf("the command was ended: it wrote more than %d MiB to descriptor %d", maxCallOutput>>20,
			much)
	case end.err != nil:
		return 0, fmt.Errorf("the sandbox of the code under test is gone: %w", end.err)
	case end.Message != "":
		fmt.Fprintln(os.Stderr, CallName+": "+end.Message)
	}
	return end.ExitCode, nil
}

// drain waits for the end of the output, but only for a moment: somebody else in the other sandbox
// may have got hold of the pipe.
func (c *caller) drain() {
	for _, out := range c.outputs {
		_ = out.pipe.SetReadDeadline(time.Now().Add(drainTime))
	}
	for _, out := range c.outputs {
		<-out.done
	}
}
