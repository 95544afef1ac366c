package jail

import (
	"errors"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; arguments are looked at by their low half, which is all that these calls use.
const (
	offsetNumber   = 0
	offsetArch     = 4
	offsetArgument = 16
	argumentSize   = 8
)

// System calls that no build, test or script needs, and through which kernels have been escaped from.
var denied = []uintptr{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_FANOTIFY_INIT, unix.SYS_MEMFD_SECRET,
}

// System calls that reach other processes of the host where no namespace is between.
var deniedOutside = []uintptr{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
}

// One user exists inside, so changing a file's owner could only fail; archivers that believe to be root must not.
var pretended = []uintptr{unix.SYS_FCHOWN, unix.SYS_FCHOWNAT}

// Socket families that stay inside the network namespace and that tests use. Others (vsock above all) reach the host.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// Calls that change a process, by the argument that names it: 0 is the caller. Of another one, init would be worth changing.
var onlySelf = []struct {
	number uintptr
	name   uint32
}{
	{unix.SYS_PRLIMIT64, 0}, {unix.SYS_SCHED_SETSCHEDULER, 0}, {unix.SYS_SCHED_SETPARAM, 0}, {unix.SYS_SCHED_SETATTR, 0},
	{unix.SYS_SETPRIORITY, 0}, {unix.SYS_SETPRIORITY, 1}, // not of a group or a user, and not of another process
	{unix.SYS_IOPRIO_SET, 1},
}

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

var (
	allow      = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	deny       = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	unknown    = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	noFamily   = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)}
	pretend    = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO}
	loadNumber = bpf.LoadAbsolute{Off: offsetNumber, Size: 4}
)

func argument(index uint32) bpf.LoadAbsolute {
	return bpf.LoadAbsolute{Off: offsetArgument + index*argumentSize, Size: 4}
}

// on runs then, which must end in a return or in loadNumber, for one system call.
func on(number uintptr, then ...bpf.Instruction) []bpf.Instruction {
	skip := bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(number), SkipFalse: uint8(len(then))}
	return append([]bpf.Instruction{skip}, then...)
}

// program is the filter: another architecture's calls (int 0x80, x32) do not exist, nor does clone3, whose flags no filter can
// see, so that C libraries fall back to clone.
func program(outside bool) []bpf.Instruction {
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		unknown,
		loadNumber,
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: firstForeignCall, SkipTrue: 1},
		unknown,
	}
	for _, number := range slices.Concat(denied, deniedHere) {
		code = append(code, on(number, deny)...)
	}
	for _, number := range slices.Concat(pretended, pretendedHere) {
		code = append(code, on(number, pretend)...)
	}
	for _, call := range onlySelf {
		code = append(code, on(call.number, argument(call.name), bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, deny, loadNumber)...)
	}
	code = append(code, on(unix.SYS_CLONE3, unknown)...)
	code = append(code, on(unix.SYS_CLONE, argument(0), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipFalse: 1}, deny, allow)...)
	if outside {
		code = append(code, on(unix.SYS_SOCKET, noFamily)...)
		for _, number := range deniedOutside {
			code = append(code, on(number, deny)...)
		}
	}
	code = append(code, on(unix.SYS_SOCKET, onlyFamilies()...)...)
	code = append(code, on(unix.SYS_SOCKETPAIR, onlyFamilies()...)...)
	// A terminal's input can be forged with TIOCSTI and TIOCLINUX.
	code = append(code, on(unix.SYS_IOCTL, argument(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCLINUX, SkipTrue: 1},
		allow, deny)...)
	return append(code, allow)
}

func onlyFamilies() []bpf.Instruction {
	code := []bpf.Instruction{argument(0)}
	for i, family := range families {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: family, SkipTrue: uint8(len(families) - i)})
	}
	return append(code, noFamily, allow)
}

// installFilter puts the filter on every thread of the process.
func installFilter(outside bool) error {
	if auditArch == 0 {
		return errors.New("no system call table for this processor: amd64 and arm64 are supported")
	}
	raw, err := bpf.Assemble(program(outside))
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	other, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return errno
	}
	if other != 0 {
		return errors.New("a thread could not take the filter")
	}
	return nil
}
