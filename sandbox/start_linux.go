package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox/internal/agent"
)

// When the owner is root, root inside is mapped to a user of the host by its role: one for agents
// and whatever else, one for verifiers, and one for code under test. All have the group of the
// first. They lie in a range that no distribution and no container runtime gives to anyone.
const (
	hostUser      = 1_879_048_192
	verifierUser  = hostUser + 1
	underTestUser = verifierUser + 1 + privateUsers
)

// hostUser is the user of the host that root inside is mapped to.
func (r Role) hostUser() uint32 {
	switch r {
	case RoleVerifier:
		return verifierUser
	case RoleUnderTest:
		return underTestUser
	}
	return hostUser
}

// process is a sandbox's first process.
type process struct {
	command *exec.Cmd
	control *os.File
	stderr  *os.File
}

// start starts a program in a group, as the first process of new namespaces, or of none, and where
// the owner is root as a user. It waits for what boot sends.
func start(of kind, group *cgroup) (*process, error) {
	program, err := firstProgram()
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	inner := os.NewFile(uintptr(pair[1]), "control")
	defer inner.Close()
	stderr, err := scratchFile("sandbox-stderr")
	if err != nil {
		return nil, errors.Join(err, unix.Close(pair[0]))
	}
	p := &process{control: os.NewFile(uintptr(pair[0]), "control"), stderr: stderr}
	p.command = &exec.Cmd{
		Path: program.path(), Args: []string{agent.InitName}, Stderr: p.stderr, Dir: "/",
		ExtraFiles: []*os.File{inner},
		// Two threads of Go code are enough for an init, and its memory is part of the sandbox's;
		// nothing of the owner's environment is known inside.
		Env:         []string{"GOMAXPROCS=2", "GOMEMLIMIT=64MiB", "GOTRACEBACK=single", "PATH=/usr/bin:/bin"},
		SysProcAttr: attributes(of),
	}
	if err := fork(p, group); err != nil {
		if p.command.Process != nil {
			p.kill()
		}
		return nil, errors.Join(&startError{err}, p.control.Close(), p.stderr.Close())
	}
	return p, nil
}

// scratchFile is a file without a name, in memory where the system has such files: a sandbox
// inside of a sandbox has none.
func scratchFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err == nil {
		return os.NewFile(uintptr(fd), name), nil
	}
	file, err := os.CreateTemp("", name)
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name())
}

// startError says that the namespaces themselves were refused.
type startError struct{ err error }

func (e *startError) Error() string {
	return "start its first process in new namespaces: " + e.err.Error()
}
func (e *startError) Unwrap() error { return e.err }

func attributes(of kind) *syscall.SysProcAttr {
	if !of.host.Namespaces {
		// It learns of its owner's end by its socket, and kills what it started before it goes.
		attr := &syscall.SysProcAttr{Setsid: true}
		if of.user != 0 {
			attr.Credential = &syscall.Credential{Uid: of.user, Gid: of.user}
		}
		return attr
	}
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	attr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
		syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	user, group := os.Geteuid(), os.Getegid()
	if user == 0 {
		// The process starts as the host's root without rights over the host, so that it can open
		// what it is to mount, and keeps its rights inside across exec only as ambient
		// capabilities; then it becomes the mapped user.
		user, group = int(of.user), hostUser
		attr.GidMappingsEnableSetgroups = true
		for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
			attr.AmbientCaps = append(attr.AmbientCaps, capability)
		}
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: user, Size: 1}}
	if os.Geteuid() == 0 && user != hostUser {
		// Tool chains' caches belong to the other user: what is not mapped, no overlay can copy up.
		attr.UidMappings = append(attr.UidMappings, syscall.SysProcIDMap{ContainerID: nobody,
			HostID: hostUser, Size: 1})
	}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: group, Size: 1}}
	return attr
}

// nobody is what sandboxes of other roles call the user of agents' sandboxes.
const nobody = 65534

var forks = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		// A parent-death signal is sent when the thread that forked ends, so this one never does.
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

func fork(p *process, group *cgroup) error {
	done := make(chan error)
	forks() <- func() {
		done <- group.start(func() (int, error) {
			if err := p.command.Start(); err != nil {
				return 0, err
			}
			return p.pid(), nil
		})
	}
	return <-done
}

func (p *process) pid() int { return p.command.Process.Pid }

// kill ends the process and with it, as it is the first of its namespace, all others; the
// kernel lets go of it last.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

// leave waits until a process without namespaces, whose socket was closed,
// has killed what it started.
func (p *process) leave() {
	overdue := time.AfterFunc(leaveTime, func() { _ = p.command.Process.Kill() })
	defer overdue.Stop()
	_ = p.command.Wait()
}

const leaveTime = 10 * time.Second

// maxLastWords bounds what is taken over of the process's error output.
const maxLastWords = 4096

// lastWords is what the process wrote before it ended.
func (p *process) lastWords() error {
	text := make([]byte, maxLastWords)
	n, _ := p.stderr.ReadAt(text, 0)
	if n == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(string(text[:n])))
}
