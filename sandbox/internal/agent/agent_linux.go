// Package agent is the init process of a sandbox: it builds the sandbox around itself, then serves
// its owner's requests over one inherited socket until that closes, which ends the sandbox.
package agent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/archive"
	"github.com/rondo-rl/rondo/sandbox/internal/jail"
	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// settled is how long after its start a sandbox counts as one that is held.
const settled = time.Second

// requests that may wait for a thread; the owner sends no more than it has callers.
const queue = 64

type agent struct {
	conn *os.File
	host wire.Host
	boot wire.Boot
	// sharedInodes are places inside that show the host's inodes.
	sharedInodes []string
	private      *private // nil where namespaces isolate
	work         *workers // looks at files
	// launcher starts the commands, all from one thread: what is started by threads that restricted
	// themselves one by one could not see one another.
	launcher *workers
	reaper   *reaper
	memory   *memoryPoller
	// scapegoat makes commands the first to be killed when memory runs out.
	scapegoat scapegoat
	writing   sync.Mutex
	// One archive operation at a time: they look at the whole workspace.
	archiving sync.Mutex
	inputs    inputs
	// calling is held while a call of another sandbox starts, and while the processes that
	// one left behind are killed.
	calling   sync.Mutex
	workspace *os.Root
	base      *archive.Base
	running   sync.Map // request id of an exec -> its cancel channel
	// atTerminals are the programs at terminals and at pipes, by the id of the
	// request that started them.
	atTerminals sync.Map
}

// InitName is the name under which the program is started again as a sandbox's first process.
const InitName = "rondo-sandbox-init"

// init is where that process serves the sandbox, and ends: before the packages that the rest of the
// program is made of are initialised, which would take more time and memory than the sandbox.
// Packages that a program's others do not wait for come in the order of their paths.
func init() {
	if calledUnderTest() {
		os.Exit(underTest(os.Args[1:]))
	}
	if len(os.Args) != 1 || os.Args[0] != InitName {
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run builds the sandbox and serves it. It returns when the owner hangs up, or was told why the
// sandbox cannot be built; the process must then exit.
func run() error {
	a := &agent{conn: os.NewFile(wire.ControlFD, "control")}
	if err := a.start(); err != nil {
		return a.respond(wire.Response{Error: wire.Wrap(err)})
	}
	if err := a.respond(wire.Response{SharedInodes: a.sharedInodes}); err != nil {
		return err
	}
	// A sandbox that is held gives back what starting took; one for a single
	// command has no time for that.
	time.AfterFunc(settled, debug.FreeOSMemory)
	err := a.serve()
	if a.private != nil {
		a.reaper.killAll() // where namespaces isolate, everything ends with this process
	}
	return err
}

// closeInherited closes what the owner's own parents left open for whomever it starts: a
// folder of the host among it would be a way out. What this process opened itself is
// marked to be closed on exec.
func closeInherited() error {
	names, err := readNames("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list open descriptors: %w", err)
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if fd == wire.ControlFD {
			unix.CloseOnExec(fd)
		}
		if err != nil || fd <= wire.ControlFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

func (a *agent) start() error {
	syscall.Umask(0o022) // whatever the owner's is: files of commands are recorded with their modes
	if err := closeInherited(); err != nil {
		return err
	}
	root, err := a.prepare()
	if err != nil {
		return err
	}
	files, err := wire.ReceiveFiles(a.conn) // which may be long in coming
	if err != nil {
		return fmt.Errorf("wait for a sandbox: %w", err)
	}
	archives, err := wire.Read(a.conn, &a.boot, func() (int64, error) { return archive.MaxArchive, nil })
	if err != nil {
		return fmt.Errorf("read the sandbox's description: %w", err)
	}
	a.boot.Files = files
	if root != nil {
		err = root.Complete(a.boot)
		a.sharedInodes = root.Shared()
	} else {
		a.private, err = newPrivate(a.boot, a.host.Mounts)
	}
	if err != nil {
		return err
	}
	if err := a.unpackReadOnly(archives); err != nil {
		return err
	}
	if a.workspace, err = os.OpenRoot(a.private.path(a.boot.Workdir)); err != nil {
		return err
	}
	if a.boot.Shared() {
		if a.base, err = readBase(files[wire.BaseFile]); err != nil {
			return err
		}
	}
	if a.boot.Link == wire.LinkCaller {
		if err := offerCalls(a.linkSocket()); err != nil {
			return fmt.Errorf("offer the command %s: %w", CallName, err)
		}
	}
	if a.boot.Proxy {
		if err := offerProxy(a.linkSocket()); err != nil {
			return fmt.Errorf("listen for its owner's proxy: %w", err)
		}
	}
	a.scapegoat = newScapegoat()
	if err := a.seal(); err != nil {
		return err
	}
	a.reaper = startReaper()
	if a.boot.Link == wire.LinkServer {
		go a.serveCalls(a.linkSocket())
	}
	if a.boot.PollMemory > 0 {
		a.memory = startMemoryPoller(a.boot.PollMemory, a.private == nil)
	}
	return nil
}

// prepare does what can be done before it is known what for, and gives a root to complete
// where there are namespaces.
func (a *agent) prepare() (*jail.Root, error) {
	if _, err := wire.Read(a.conn, &a.host, func() (int64, error) { return 0, nil }); err != nil {
		return nil, fmt.Errorf("read what the sandbox sees of the host: %w", err)
	}
	if !a.host.Namespaces {
		return nil, nil
	}
	devices := -1
	if a.host.Devices {
		files, err := wire.ReceiveFiles(a.conn)
		if err != nil {
			return nil, fmt.Errorf("receive the device files: %w", err)
		}
		devices = files[0]
	}
	root, err := jail.Prepare(a.host, devices)
	if err == nil {
		warmThreads()
	}
	return root, err
}

// seal locks this process, and starts the threads on which all is done that programs or
// names inside decide over.
func (a *agent) seal() (err error) {
	rules, err := a.rules()
	if err != nil {
		return err
	}
	starts, looks := rules.Restrict, rules.Restrict
	if a.private == nil {
		starts = func() error { return errors.Join(jail.DropCapabilities(true), rules.Restrict()) }
		looks = func() error { return errors.Join(jail.DropCapabilities(false), rules.Restrict()) }
	}
	if a.boot.Landlock {
		warmThreads()
	}
	if a.boot.PollMemory > 0 && (a.private == nil || a.boot.Landlock) {
		if err := jail.RefuseMemfd(); err != nil {
			return err
		}
	}
	if a.private == nil || a.boot.Landlock {
		if err := jail.Seal(a.boot.PIDs, a.boot.DiskBytes, a.private != nil); err != nil {
			return err
		}
	}
	if a.launcher, err = startWorkers(1, starts); err != nil {
		return err
	}
	a.work, err = startWorkers(workerThreads, looks)
	return err
}

// rules are nil where Landlock is not what isolates and the kernel has none.
func (a *agent) rules() (*jail.Landlock, error) {
	var written, shown []string
	for _, mount := range a.host.Mounts {
		if mount.Overlay {
			written = append(written, mount.Target)
		} else if mount.Source == mount.Target {
			shown = append(shown, mount.Source)
		}
	}
	switch {
	case a.boot.Landlock:
		return jail.NewLandlock(jail.OutsideRules(a.private.folder, shown))
	case a.private != nil:
		return nil, nil
	}
	rules, err := jail.NewLandlock(jail.InsideRules(append(written, a.boot.Workdir)))
	if errors.Is(err, jail.ErrNoLandlock) {
		return nil, nil
	}
	return rules, err
}

// readBase takes what the owner knows of the workspace, which nothing inside has touched yet.
func readBase(fd int) (*archive.Base, error) {
	file := os.NewFile(uintptr(fd), "base")
	defer file.Close()
	return archive.DecodeBase(file)
}

// unpackReadOnly fills the folders that nothing in the sandbox may change.
func (a *agent) unpackReadOnly(archives []byte) error {
	for i, target := range a.boot.ReadOnly {
		size := a.boot.Lengths[i]
		if size > len(archives) {
			return fmt.Errorf("%w: archive for %s is cut short", wire.ErrProtocol, target)
		}
		if err := unpack(a.private.path(target), bytes.NewReader(archives[:size])); err != nil {
			return fmt.Errorf("unpack %s: %w", target, err)
		}
		archives = archives[size:]
		lock := jail.Lock
		if a.private != nil {
			lock = func(target string) error { return a.private.scripts(a.private.path(target)) }
		}
		if err := lock(target); err != nil {
			return fmt.Errorf("make %s read-only: %w", target, err)
		}
	}
	return nil
}

func (a *agent) serve() error {
	reader := bufio.NewReaderSize(a.conn, 64<<10)
	for {
		var request wire.Request
		body, err := wire.Read(reader, &request, func() (int64, error) { return archive.MaxArchive, nil })
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if request.Op == wire.OpPiece {
			a.inputs.piece(request, body)
			continue
		}
		if request.Stream && (request.Op == wire.OpUnpack || request.Op == wire.OpApply) {
			a.inputs.open(request.ID)
		}
		go a.handle(request, body)
	}
}

func (a *agent) handle(request wire.Request, body []byte) {
	response, out, err := a.answer(request, body)
	if request.Op == wire.OpCancel {
		return
	}
	response.ID = request.ID
	response.Error = wire.Wrap(err)
	if err := a.respond(response, out...); err != nil {
		os.Exit(1) // the owner is gone
	}
}

func (a *agent) answer(request wire.Request, body []byte) (response wire.Response, out [][]byte, err error) {
	switch request.Op {
	case wire.OpExec:
		return a.exec(request, body)
	case wire.OpTerminal, wire.OpPipes, wire.OpScreen, wire.OpType, wire.OpResize, wire.OpHangUp:
		return a.terminals(request, body)
	case wire.OpCancel:
		a.cancel(request.Target)
		return response, nil, nil
	case wire.OpKill:
		a.reaper.killAll()
		return response, nil, nil
	case wire.OpUnpack, wire.OpBase, wire.OpChanges, wire.OpApply:
		response, err := a.tree(request, body)
		return response, nil, err
	}
	a.work.do(func() { response, out, err = a.file(request, body) })
	return response, out, err
}

// tree serves the operations on whole trees. They run with init's capabilities, so that no mode
// bits of the workspace can hide it from its owner, and below a root that names cannot leave.
func (a *agent) tree(request wire.Request, body []byte) (response wire.Response, err error) {
	from, done := a.inputs.archive(request, body)
	defer done()
	a.archiving.Lock()
	defer a.archiving.Unlock()
	switch request.Op {
	case wire.OpUnpack:
		return response, limits(unpack(a.private.path(request.Path), from))
	case wire.OpApply:
		return response, limits(archive.Apply(a.workspace, from))
	case wire.OpBase:
		a.base, err = archive.Scan(a.workspace)
		return response, limits(err)
	}
	if a.base == nil {
		return response, fmt.Errorf("%w: the workspace has no base to compare with", wire.ErrInvalid)
	}
	found, err := archive.Diff(a.workspace, a.base, a.boot.DiskBytes, outputs{a, request.ID})
	response.Differs, response.Links = found.Differs, found.Links
	return response, limits(err)
}

// limits lets the owner tell a tree that is too large, or refused, from a fault of the sandbox.
func limits(err error) error {
	switch {
	case errors.Is(err, archive.ErrTooLarge):
		return fmt.Errorf("%w: %w", wire.ErrTooLarge, err)
	case errors.Is(err, archive.ErrInvalid):
		return fmt.Errorf("%w: %w", wire.ErrInvalid, err)
	}
	return err
}

func unpack(dir string, data io.Reader) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return archive.Unpack(root, data)
}

func (a *agent) respond(response wire.Response, body ...[]byte) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	return wire.Write(a.conn, response, body...)
}
