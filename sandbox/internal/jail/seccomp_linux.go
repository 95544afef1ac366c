package jail

import (
	"errors"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data; arguments are looked at by their low half, which is
// all that these calls use.
const (
	offsetNumber   = 0
	offsetArch     = 4
	offsetArgument = 16
	argumentSize   = 8
)

// Sockets that stay inside the network namespace and that tests use: families, each with its
// protocols, and the highest type. Others reach the host (vsock), or have the kernel load a module.
var families = []struct {
	family    uint32
	protocols []uint32
}{
	{unix.AF_UNIX, []uint32{0, unix.AF_UNIX}},
	{unix.AF_INET, internet},
	{unix.AF_INET6, internet},
	{unix.AF_NETLINK, []uint32{unix.NETLINK_ROUTE, unix.NETLINK_SOCK_DIAG, unix.NETLINK_KOBJECT_UEVENT}},
}

var internet = []uint32{0, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP,
	unix.IPPROTO_ICMPV6, unix.IPPROTO_MPTCP}

const (
	highestSocketType = unix.SOCK_SEQPACKET
	socketTypes       = 0xF // the rest are flags
)

// Ways to run older programs, of which none makes memory executable that a program has not made so;
// and the question which one it is.
var personalities = []uint32{0, 0x40000 /* ADDR_NO_RANDOMIZE */, 8 /* another kernel's name, PER_LINUX32 */, 0xFFFFFFFF}

// Calls that change a process, by the argument that names it: 0 is the caller. Of another one, init
// would be worth changing.
var onlySelf = []struct {
	number uintptr
	name   uint32
}{
	{unix.SYS_PRLIMIT64, 0}, {unix.SYS_SCHED_SETSCHEDULER, 0}, {unix.SYS_SCHED_SETPARAM, 0},
	{unix.SYS_SCHED_SETATTR, 0},
	{unix.SYS_SETPRIORITY, 0}, {unix.SYS_SETPRIORITY, 1}, // not of a group or a user, and not of another process
	{unix.SYS_IOPRIO_SET, 1},
}

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

var (
	allow      = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	deny       = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	unknown    = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	noType     = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ESOCKTNOSUPPORT)}
	noProtocol = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)}
	noFlag     = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)}
	noFamily   = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)}
	pretend    = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO}
	loadNumber = bpf.LoadAbsolute{Off: offsetNumber, Size: 4}
)

func argument(index uint32) bpf.LoadAbsolute {
	return bpf.LoadAbsolute{Off: offsetArgument + index*argumentSize, Size: 4}
}

// onCall runs then, which must end in a return or in loadNumber, for one system call.
func onCall(number uintptr, then ...bpf.Instruction) []bpf.Instruction {
	skip := bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(number), SkipFalse: uint8(len(then))}
	return append([]bpf.Instruction{skip}, then...)
}

// program is the filter: what is allowed by name or by argument passes, what is known and forbidden
// is refused, and nothing else exists. That is another architecture's calls (int 0x80, x32), too,
// and clone3, whose flags no filter can see, so that C libraries fall back to clone.
func program(outside bool) []bpf.Instruction {
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		unknown,
		loadNumber,
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: firstForeignCall, SkipTrue: 1},
		unknown,
	}
	if outside {
		code = append(code, onCall(unix.SYS_SOCKET, noFamily)...)
		code = append(code, answer(deny, deniedOutside)...)
	}
	code = append(code, answer(allow, slices.Concat(allowed, allowedHere))...)
	code = append(code, byArgument()...)
	code = append(code, answer(pretend, slices.Concat(pretended, pretendedHere))...)
	code = append(code, answer(deny, slices.Concat(denied, deniedHere))...)
	return append(code, unknown)
}

// answer gives one answer to a list of calls, by ranges of their numbers.
func answer(with bpf.RetConstant, calls []uintptr) (code []bpf.Instruction) {
	calls = slices.Sorted(slices.Values(calls))
	for i := 0; i < len(calls); {
		first := calls[i]
		for i++; i < len(calls) && calls[i] <= calls[i-1]+1; i++ {
		}
		code = append(code,
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: uint32(first), SkipFalse: 2},
			bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: uint32(calls[i-1]), SkipTrue: 1},
			with)
	}
	return code
}

// byArgument decides on calls of which not all is allowed.
func byArgument() (code []bpf.Instruction) {
	for _, call := range onlySelf {
		code = append(code, onCall(call.number, argument(call.name),
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1}, deny, loadNumber)...)
	}
	for _, call := range onlySelf {
		code = append(code, onCall(call.number, allow)...) // it is the caller's own
	}
	code = append(code, onCall(unix.SYS_CLONE, argument(0),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipFalse: 1}, deny, allow)...)
	code = append(code, onCall(unix.SYS_SOCKET, sockets()...)...)
	code = append(code, onCall(unix.SYS_SOCKETPAIR, sockets()...)...)
	// Which pages of files are in memory, all sandboxes share: nobody changes that
	// by advice, or learns it.
	code = append(code, onCall(unix.SYS_MADVISE, append(onValues(2, []uint32{unix.MADV_COLD, unix.MADV_PAGEOUT},
		pretend), allow)...)...)
	code = append(code, onCall(unix.SYS_PREADV2, argument(5),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.RWF_NOWAIT, SkipFalse: 1}, noFlag, allow)...)
	code = append(code, onCall(unix.SYS_PERSONALITY, append(onValues(0, personalities, allow), deny)...)...)
	// A terminal's input can be forged with TIOCSTI and TIOCLINUX.
	return append(code, onCall(unix.SYS_IOCTL, append(onValues(1, []uint32{unix.TIOCSTI, unix.TIOCLINUX}, deny),
		allow)...)...)
}

// onValues gives an answer where an argument is one of the values, and goes on where it is not.
func onValues(index uint32, values []uint32, with bpf.RetConstant) []bpf.Instruction {
	code := []bpf.Instruction{argument(index)}
	for _, value := range values {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipFalse: 1}, with)
	}
	return code
}

func sockets() []bpf.Instruction {
	code := []bpf.Instruction{
		argument(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: socketTypes},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: highestSocketType, SkipFalse: 1}, noType,
	}
	for _, f := range families {
		protocols := append(onValues(2, f.protocols, allow), noProtocol)
		code = append(code, argument(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: f.family,
			SkipFalse: uint8(len(protocols))})
		code = append(code, protocols...)
	}
	return append(code, noFamily)
}

// RefuseMemfd takes files in memory (memfd_create) from the process and all that it will start, for
// where no control group counts them. What asks for one is told that the kernel has none, and takes
// a file in /dev/shm or /tmp, which the disk limit bounds.
func RefuseMemfd() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return refused("set no_new_privs", err)
	}
	code := append([]bpf.Instruction{loadNumber}, onCall(unix.SYS_MEMFD_CREATE, unknown)...)
	return refused("install the filter of files in memory (seccomp)", install(append(code, allow)))
}

// installFilter puts the filter on every thread of the process.
func installFilter(outside bool) error {
	if auditArch == 0 {
		return errors.New("no system call table for this processor: amd64 and arm64 are supported")
	}
	return install(program(outside))
}

// install puts a filter, on top of others, on every thread of the process.
func install(code []bpf.Instruction) error {
	raw, err := bpf.Assemble(code)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	other, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return errno
	}
	if other != 0 {
		return errors.New("a thread could not take the filter")
	}
	return nil
}
