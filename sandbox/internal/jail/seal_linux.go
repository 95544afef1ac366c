package jail

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxOpenFiles = 16384
	lastSignal   = 64
	// Signals that stay: SIGURG preempts goroutines, and 32 to 34 belong to the C
	// library, where there is one.
	firstLibrarySignal, lastLibrarySignal = 32, 34
)

// sigaction is the kernel's.
type sigaction struct {
	handler, flags, restorer, mask uint64
}

// Handlers that are none.
const (
	byDefault = 0
	ignored   = 1
)

// harmless are signals by which no process ends unless it wants to. Ignored, SIGCHLD would take
// away the exit codes of programs.
var harmless = map[syscall.Signal]bool{unix.SIGCHLD: true, unix.SIGCONT: true, unix.SIGWINCH: true, unix.SIGTSTP: true,
	unix.SIGTTIN: true, unix.SIGTTOU: true, unix.SIGSTOP: true}

func setAction(signal int, now, old *sigaction) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(now)),
		uintptr(unsafe.Pointer(old)), 8, 0, 0)
	return errno
}

// Seal locks the whole process and all that it will start: no new privileges, the system call
// filter on every thread, no core dumps, no reading of its memory, and no signal from inside the
// sandbox that it reacts to. pids is the number of tasks that may run besides its own. A process
// outside of namespaces keeps its signal handlers, as its rules keep signals away, and gives what
// it starts no sockets and no other way to the host's processes.
func Seal(pids int, diskBytes int64, outside bool) error {
	// no_new_privs is a thread's, and reaches the others with the filter, from the
	// thread that installs it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return refused("set no_new_privs", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return refused("make init unreadable", err)
	}
	limits := map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxOpenFiles,
		unix.RLIMIT_FSIZE: uint64(diskBytes)}
	if outside || processesCountPerNamespace() { // outside, nobody else is this user
		limits[unix.RLIMIT_NPROC] = uint64(pids + OwnThreads)
	}
	for limit, value := range limits {
		if err := lower(limit, value); err != nil {
			return refused("set a resource limit", err)
		}
	}
	if !outside {
		ignoreSignals()
	}
	return refused("install the system call filter (seccomp)", installFilter(outside))
}

// OwnThreads is what the process's own threads may add to a limit on tasks: Warm starts them all
// before untrusted code runs.
const OwnThreads = 32

// lower sets a limit, or leaves a lower one that is there already.
func lower(limit int, value uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(limit, &now); err != nil {
		return err
	}
	value = min(value, now.Max)
	return syscall.Setrlimit(limit, &syscall.Rlimit{Cur: value, Max: value})
}

// processesCountPerNamespace: since Linux 5.14 RLIMIT_NPROC counts within the user namespace;
// before, it counts all that the host's user runs.
func processesCountPerNamespace() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 5 || major == 5 && minor >= 14
}

// ignoreSignals has this process ignore signals. The runtime's handlers would let any process of
// the sandbox end it, and with it the rollout, by kill -SEGV 1.
//
// The default of a signal is not enough. The kernel spares a namespace's init from it, but not
// always: Go's threads block signals while they start another thread. If a signal is sent to such a
// thread, the kernel gives it to a thread that does not block it, and ends the process.
//
// Programs that are started here ignore nothing: Go gives them the default of each signal that
// it has had a handler for.
func ignoreSignals() {
	// Go makes none for these two where its parents ignore them, as nohup does, and shells for
	// what runs in the background.
	for _, s := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	for number := 1; number <= lastSignal; number++ {
		if number == int(unix.SIGURG) {
			continue
		}
		var old, now sigaction
		if setAction(number, nil, &old) != 0 || old.handler == ignored {
			continue // SIGKILL and SIGSTOP do nothing to it anyway
		}
		library := number >= firstLibrarySignal && number <= lastLibrarySignal
		switch {
		case harmless[syscall.Signal(number)]:
		case library && old.handler != byDefault:
			continue
		default:
			now.handler = ignored
		}
		setAction(number, &now, nil)
	}
}

const (
	secureNoRoot          = 1 << 0 // root is a user like others: exec gives it no capabilities
	secureNoRootLocked    = 1 << 1
	secureNoSetuidFixup   = 1 << 2
	secureNoSetuidLocked  = 1 << 3
	secureKeepCapsLocked  = 1 << 5
	secureNoAmbientRaise  = 1 << 6
	secureNoAmbientLocked = 1 << 7
	secureBits            = secureNoRoot | secureNoRootLocked | secureNoSetuidFixup | secureNoSetuidLocked |
		secureKeepCapsLocked | secureNoAmbientRaise | secureNoAmbientLocked
	highestCapabilityToDrop = 63
)

// DropCapabilities takes every capability from the calling thread, for good, and where it starts
// programs from all of them too. The goroutine is locked to the thread and must end with it.
func DropCapabilities(starts bool) error {
	runtime.LockOSThread()
	if starts {
		if err := dropInherited(); err != nil {
			return err
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	return refused("drop the capabilities", unix.Capset(&header, &none[0]))
}

// dropInherited keeps programs that the thread starts from getting any capability.
func dropInherited() error {
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
		return refused("set the secure bits", err)
	}
	for capability := uintptr(0); capability <= highestCapabilityToDrop; capability++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err == unix.EINVAL {
			break // past the last one that this kernel knows
		} else if err != nil {
			return refused("drop a capability", err)
		}
	}
	return refused("drop the ambient capabilities", unix.Prctl(unix.PR_CAP_AMBIENT,
		unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
}
