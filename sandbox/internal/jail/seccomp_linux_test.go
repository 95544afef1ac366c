package jail

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// filtered says what the filter answers to a call: the constants of the program.
func filtered(t *testing.T, outside bool) func(number uintptr, arguments ...uint32) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(program(outside))
	if err != nil {
		t.Fatal(err)
	}
	return func(number uintptr, arguments ...uint32) uint32 {
		data := make([]byte, offsetArgument+6*argumentSize)
		// as this machine of bpf reads it
		put := func(offset int, value uint32) { binary.BigEndian.PutUint32(data[offset:], value) }
		put(offsetNumber, uint32(number))
		put(offsetArch, auditArch)
		for i, a := range arguments {
			put(offsetArgument+i*argumentSize, a)
		}
		answer, err := vm.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(answer)
	}
}

// TestEveryNumber: what stands in a list gets its answer, and every other number, of today and of
// later kernels, does not exist.
func TestEveryNumber(t *testing.T) {
	lists := map[string][]uintptr{
		"allowed": slices.Concat(allowed, allowedHere), "denied": slices.Concat(denied, deniedHere),
		"pretended": slices.Concat(pretended, pretendedHere),
		"by argument": {unix.SYS_CLONE, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_PERSONALITY, unix.SYS_IOCTL,
			unix.SYS_MADVISE, unix.SYS_PREADV2},
	}
	for _, call := range onlySelf {
		if !slices.Contains(lists["by argument"], call.number) {
			lists["by argument"] = append(lists["by argument"], call.number)
		}
	}
	list := map[uintptr]string{}
	for name, calls := range lists {
		for _, call := range calls {
			if other := list[call]; other != "" {
				t.Errorf("call %d is %s, and %s", call, name, other)
			}
			list[call] = name
		}
	}
	inside, outside := filtered(t, false), filtered(t, true)
	for number := uintptr(0); number < 2000; number++ {
		want := map[string]uint32{"": unknown.Val, "allowed": allow.Val, "denied": deny.Val,
			"pretended": pretend.Val}[list[number]]
		if list[number] == "by argument" {
			continue
		}
		if got := inside(number); got != want {
			t.Errorf("call %d, %q, is answered %#x, want %#x", number, list[number], got, want)
		}
		if slices.Contains(deniedOutside, number) {
			want = deny.Val
		}
		if got := outside(number); got != want {
			t.Errorf("without namespaces call %d, %q, is answered %#x, want %#x", number, list[number], got, want)
		}
	}
	if len(list) < 300 {
		t.Errorf("%d calls are listed", len(list))
	}
}

// TestArguments: of calls that depend on their arguments.
func TestArguments(t *testing.T) {
	filter, outside := filtered(t, false), filtered(t, true)
	for _, c := range []struct {
		what      string
		number    uintptr
		arguments []uint32
		want      bpf.RetConstant
	}{
		{"a thread", unix.SYS_CLONE, []uint32{unix.CLONE_VM | unix.CLONE_THREAD}, allow},
		{"a user namespace", unix.SYS_CLONE, []uint32{unix.CLONE_NEWUSER | uint32(unix.SIGCHLD)}, deny},
		{"a control group namespace", unix.SYS_CLONE, []uint32{unix.CLONE_NEWCGROUP}, deny},
		{"clone3", unix.SYS_CLONE3, nil, unknown},
		{"TCP", unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, allow},
		{"multipath TCP", unix.SYS_SOCKET, []uint32{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, allow},
		{"ping", unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, allow},
		{"SCTP", unix.SYS_SOCKET, []uint32{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, noProtocol},
		{"DCCP", unix.SYS_SOCKET, []uint32{unix.AF_INET, 6, 0}, noType},
		{"routes", unix.SYS_SOCKET, []uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow},
		{"the packet filter", unix.SYS_SOCKET, []uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
			noProtocol},
		{"vsock", unix.SYS_SOCKET, []uint32{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, noFamily},
		{"packets", unix.SYS_SOCKET, []uint32{unix.AF_PACKET, unix.SOCK_RAW, 0}, noFamily},
		{"ciphers", unix.SYS_SOCKET, []uint32{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, noFamily},
		{"a pair", unix.SYS_SOCKETPAIR, []uint32{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_NONBLOCK, 0}, allow},
		{"forged input", unix.SYS_IOCTL, []uint32{0, unix.TIOCSTI}, deny},
		{"forged input of a console", unix.SYS_IOCTL, []uint32{0, unix.TIOCLINUX}, deny},
		{"the size of a terminal", unix.SYS_IOCTL, []uint32{0, unix.TIOCGWINSZ}, allow},
		{"its own limit", unix.SYS_PRLIMIT64, []uint32{0, unix.RLIMIT_NOFILE}, allow},
		{"another's limit", unix.SYS_PRLIMIT64, []uint32{1, unix.RLIMIT_NOFILE}, deny},
		{"its own priority", unix.SYS_SETPRIORITY, []uint32{unix.PRIO_PROCESS, 0}, allow},
		{"another's priority", unix.SYS_SETPRIORITY, []uint32{unix.PRIO_PROCESS, 1}, deny},
		{"a user's priority", unix.SYS_SETPRIORITY, []uint32{unix.PRIO_USER, 0}, deny},
		{"its own input and output", unix.SYS_IOPRIO_SET, []uint32{1, 0}, allow},
		{"another's scheduler", unix.SYS_SCHED_SETSCHEDULER, []uint32{7}, deny},
		{"which kind it is", unix.SYS_PERSONALITY, []uint32{0xFFFFFFFF}, allow},
		{"no random addresses", unix.SYS_PERSONALITY, []uint32{0x40000}, allow},
		{"memory given back", unix.SYS_MADVISE, []uint32{0, 4096, unix.MADV_DONTNEED}, allow},
		{"a file's pages thrown out", unix.SYS_MADVISE, []uint32{0, 4096, unix.MADV_PAGEOUT}, pretend},
		{"a read", unix.SYS_PREADV2, []uint32{3, 0, 1, 0, 0, 0}, allow},
		{"a read of what is in memory", unix.SYS_PREADV2, []uint32{3, 0, 1, 0, 0, unix.RWF_NOWAIT}, noFlag},
		{"all memory executable", unix.SYS_PERSONALITY, []uint32{0x400000}, deny},
	} {
		if got := filter(c.number, c.arguments...); got != c.want.Val {
			t.Errorf("%s is answered %#x, want %#x", c.what, got, c.want.Val)
		}
		want := c.want.Val
		if c.number == unix.SYS_SOCKET {
			want = noFamily.Val
		}
		if got := outside(c.number, c.arguments...); got != want {
			t.Errorf("without namespaces %s is answered %#x, want %#x", c.what, got, want)
		}
	}
}
