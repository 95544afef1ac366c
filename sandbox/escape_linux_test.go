package sandbox_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
)

// The escapes are tried for real: this test program runs inside a sandbox, as whoever runs the
// test, and tries. What it achieves, and should not, it prints.

func init() {
	actors["escape"] = func() {
		tryFiles()
		tryCalls()
		tryNetwork()
		tryInit()
		tryPrivileges()
	}
}

func init() {
	actors["shoot"] = func() {
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
			for target := 1; target < os.Getpid(); target++ {
				for signal := syscall.Signal(1); signal <= 64; signal++ {
					_ = syscall.Kill(target, signal)
				}
			}
		}
	}
}

// TestInitOutlivesSignals: no signal ends the sandbox's first process, also while it starts
// programs: its threads block signals then. What it starts ignores none.
func TestInitOutlivesSignals(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sb := sandboxtest.New(t, sandbox.Spec{Mounts: []sandbox.Mount{{Source: program, Target: "/opt/program"}}})
	shot := make(chan error, 1)
	go func() {
		_, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"/opt/program"},
			Env: map[string]string{"RONDO_TEST_ACTOR": "shoot"}})
		shot <- err
	}()
	for {
		if _, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"/bin/true"}}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-shot:
			if err != nil {
				t.Fatal(err)
			}
			const library = 7 << 31 // 32 to 34 are the C library's, which sets them when it needs them
			line := output(t, sb, "grep SigIgn /proc/self/status")
			if mask, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(line, "SigIgn:")), 16,
				64); err != nil || mask&^library != 0 {
				t.Errorf("a program begins with %s (%v)", line, err)
			}
			return
		default:
		}
	}
}

func escaped(format string, arguments ...any) { fmt.Printf("ESCAPED: "+format+"\n", arguments...) }

// inside runs this test program in a sandbox.
func inside(t *testing.T, spec sandbox.Spec, env map[string]string) (*sandbox.Sandbox, sandbox.Result) {
	t.Helper()
	sb, result, err := tryInside(t, spec, env)
	if err != nil {
		t.Fatal(err)
	}
	return sb, result
}

// tryInside is inside for a program with which the sandbox may end.
func tryInside(t *testing.T, spec sandbox.Spec, env map[string]string) (*sandbox.Sandbox, sandbox.Result, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: program, Target: "/opt/program"})
	sb := sandboxtest.New(t, spec)
	result, err := sb.Exec(t.Context(), sandbox.Command{Argv: []string{"/opt/program"}, Env: env})
	return sb, result, err
}

func TestEscapes(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RONDO_TEST_SECRET", "secret of the environment")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	abstract, err := net.Listen("unix", "@rondo-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	sb, result := inside(t, sandbox.Spec{}, map[string]string{
		"RONDO_TEST_ACTOR": "escape", "SECRET": secret, "LISTENER": listener.Addr().String(),
		"ABSTRACT": abstract.Addr().String(),
		"HOST_PID": strconv.Itoa(os.Getpid()),
	})
	if result.ExitCode != 0 || len(result.Stdout) != 0 || len(result.Stderr) != 0 {
		t.Errorf("exit code %d\n%s%s", result.ExitCode, result.Stdout, result.Stderr)
	}
	if got := output(t, sb, "echo alive"); got != "alive" {
		t.Errorf("the sandbox does not serve any more: %q", got)
	}
	if after, err := os.ReadFile(secret); err != nil || string(after) != "secret of the host" {
		t.Errorf("the host's file is now %q, %v", after, err)
	}
}

func tryFiles() {
	secret := os.Getenv("SECRET")
	paths := []string{secret, "/proc/1/root" + secret, "/proc/1/cwd" + secret, "/proc/self/root" + secret,
		"/proc/self/cwd/../../.." + secret, "/../../../.." + secret}
	for i := range 64 { // a descriptor of the host's left open
		paths = append(paths, fmt.Sprintf("/proc/self/fd/%d%s", i, secret),
			fmt.Sprintf("/proc/self/fd/%d/../../../../../..%s", i, secret))
	}
	for _, name := range paths {
		if data, err := os.ReadFile(name); err == nil {
			escaped("read %s: %s", name, data)
		}
	}
	for _, name := range []string{"/etc/shadow", "/home", "/var/run/docker.sock", "/run/docker.sock", "/sys/kernel",
		"/boot", "/proc/kcore", "/dev/mem", "/dev/kvm", "/dev/vda", "/dev/sda", "/.scratch"} {
		if file, err := os.Open(name); err == nil {
			escaped("open %s", name)
			file.Close()
		}
	}
	for _, name := range []string{"/usr/bin/planted", "/bin/sh", "/etc/passwd", "/planted",
		"/proc/sys/kernel/core_pattern", "/proc/sys/user/max_user_namespaces", "/proc/sys/net/ipv4/ip_forward",
		"/proc/sysrq-trigger", "/opt/program", "/etc/ld.so.preload"} {
		if file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644); err == nil {
			escaped("open %s for writing", name)
			file.Close()
		}
	}
	for _, name := range []string{"/usr", "/etc", "/bin", "/dev/null"} {
		if err := os.Chmod(name, 0o777); err == nil {
			escaped("chmod %s", name)
		}
	}
	if os.Getenv("RONDO_TEST_SECRET") != "" {
		escaped("the owner's environment")
	}
	if hosts, _ := filepath.Glob("/proc/[0-9]*"); len(hosts) > 3 {
		escaped("sees processes %v", hosts)
	}
}

// tryCalls tries the system calls that the filter must refuse, with arguments that would be refused
// otherwise too, so what counts is the error.
func tryCalls() {
	refused := map[string]struct {
		number uintptr
		want   syscall.Errno
	}{
		"ptrace":            {unix.SYS_PTRACE, unix.EPERM},
		"process_vm_readv":  {unix.SYS_PROCESS_VM_READV, unix.EPERM},
		"mount":             {unix.SYS_MOUNT, unix.EPERM},
		"umount2":           {unix.SYS_UMOUNT2, unix.EPERM},
		"open_tree":         {unix.SYS_OPEN_TREE, unix.EPERM},
		"move_mount":        {unix.SYS_MOVE_MOUNT, unix.EPERM},
		"fsopen":            {unix.SYS_FSOPEN, unix.EPERM},
		"mount_setattr":     {unix.SYS_MOUNT_SETATTR, unix.EPERM},
		"pivot_root":        {unix.SYS_PIVOT_ROOT, unix.EPERM},
		"chroot":            {unix.SYS_CHROOT, unix.EPERM},
		"unshare":           {unix.SYS_UNSHARE, unix.EPERM},
		"setns":             {unix.SYS_SETNS, unix.EPERM},
		"bpf":               {unix.SYS_BPF, unix.EPERM},
		"keyctl":            {unix.SYS_KEYCTL, unix.EPERM},
		"add_key":           {unix.SYS_ADD_KEY, unix.EPERM},
		"perf_event_open":   {unix.SYS_PERF_EVENT_OPEN, unix.EPERM},
		"userfaultfd":       {unix.SYS_USERFAULTFD, unix.EPERM},
		"io_uring_setup":    {unix.SYS_IO_URING_SETUP, unix.EPERM},
		"open_by_handle_at": {unix.SYS_OPEN_BY_HANDLE_AT, unix.EPERM},
		"kexec_load":        {unix.SYS_KEXEC_LOAD, unix.EPERM},
		"init_module":       {unix.SYS_INIT_MODULE, unix.EPERM},
		"reboot":            {unix.SYS_REBOOT, unix.EPERM},
		"swapon":            {unix.SYS_SWAPON, unix.EPERM},
		"clock_settime":     {unix.SYS_CLOCK_SETTIME, unix.EPERM},
		"io_uring_enter":    {unix.SYS_IO_URING_ENTER, unix.EPERM},
		"io_uring_register": {unix.SYS_IO_URING_REGISTER, unix.EPERM},
		"process_vm_writev": {unix.SYS_PROCESS_VM_WRITEV, unix.EPERM},
		"pidfd_getfd":       {unix.SYS_PIDFD_GETFD, unix.EPERM},
		"request_key":       {unix.SYS_REQUEST_KEY, unix.EPERM},
		"fanotify_init":     {unix.SYS_FANOTIFY_INIT, unix.EPERM},
		"clone3":            {unix.SYS_CLONE3, unix.ENOSYS},
		"statmount":         {unix.SYS_STATMOUNT, unix.ENOSYS},
		"listmount":         {unix.SYS_LISTMOUNT, unix.ENOSYS},
		"a later kernel's":  {600, unix.ENOSYS},
		"x32 getpid":        {0x40000000 + 39, unix.ENOSYS},
	}
	for name, call := range refused {
		if _, _, errno := syscall.RawSyscall6(call.number, 0, 0, 0, 0, 0, 0); errno != call.want {
			escaped("%s answers %v (%d), not %v", name, errno, errno, call.want)
		}
	}
	for _, flag := range []uintptr{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWNET, unix.CLONE_NEWPID} {
		if _, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, flag|uintptr(unix.SIGCHLD), 0, 0, 0, 0,
			0); errno != unix.EPERM {
			escaped("clone with %#x answers %v", flag, errno)
			os.Exit(1) // perhaps there are two of us now
		}
	}
	for _, device := range []struct{ kind, major, minor uint32 }{{unix.S_IFBLK, 8, 0}, {unix.S_IFCHR, 1, 1}} {
		if err := unix.Mknod("/tmp/device", device.kind|0o666,
			int(unix.Mkdev(device.major, device.minor))); err == nil {
			escaped("mknod of device %d:%d", device.major, device.minor)
		}
	}
	// what stands for a deleted file in an overlay some kernels let everyone make
	_ = unix.Mknod("/tmp/whiteout", unix.S_IFCHR|0o666, 0)
	if file, err := os.Open("/tmp/whiteout"); err == nil {
		escaped("open a whiteout")
		file.Close()
	}
	var character byte = 'x'
	if _, _, errno := syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSTI,
		uintptr(unsafe.Pointer(&character))); errno != unix.EPERM {
		escaped("TIOCSTI answers %v", errno)
	}
}

func tryNetwork() {
	for network, address := range map[string]string{"tcp": os.Getenv("LISTENER"), "unix": os.Getenv("ABSTRACT"),
		"tcp4": "1.1.1.1:53", "udp": "8.8.8.8:53", "tcp6": "[2606:4700:4700::1111]:53"} {
		if conn, err := net.DialTimeout(network, address, time.Second); err == nil {
			escaped("connected to %s %s", network, address)
			conn.Close()
		}
	}
	for name, protocol := range map[string]int{"netfilter": unix.NETLINK_NETFILTER, "xfrm": unix.NETLINK_XFRM,
		"crypto": unix.NETLINK_CRYPTO} {
		if fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, protocol); err == nil {
			escaped("netlink socket of %s", name)
			unix.Close(fd)
		}
	}
	for name, family := range map[string]int{"vsock": unix.AF_VSOCK, "packet": unix.AF_PACKET, "alg": unix.AF_ALG,
		"bluetooth": unix.AF_BLUETOOTH} {
		if fd, err := unix.Socket(family, unix.SOCK_STREAM, 0); err == nil {
			escaped("socket of family %s", name)
			unix.Close(fd)
		}
	}
	if interfaces, err := net.Interfaces(); err != nil || len(interfaces) != 1 ||
		interfaces[0].Flags&net.FlagLoopback == 0 {
		escaped("interfaces %v, %v; only lo should be there", interfaces, err)
	}
	// Its own loopback must work, though.
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		escaped("cannot listen on localhost: %v", err)
		return
	}
	defer listener.Close()
	conn, err := net.DialTimeout("tcp", listener.Addr().String(), 5*time.Second)
	if err != nil {
		escaped("cannot connect to its own localhost: %v", err)
		return
	}
	conn.Close()
}

// tryInit tries to end, stop, read and write the sandbox's first process. That the sandbox still
// serves is seen from outside.
func tryInit() {
	// Its threads have the numbers before the first command's.
	shot := 0
	for signal := syscall.Signal(1); signal <= 64; signal++ {
		for target := 1; target < os.Getpid(); target++ {
			if syscall.Kill(target, 0) == nil {
				shot++
			}
			_ = syscall.Kill(target, signal)
			_, _, _ = syscall.RawSyscall(unix.SYS_TKILL, uintptr(target), uintptr(signal), 0)
			_, _, _ = syscall.RawSyscall(unix.SYS_TGKILL, 1, uintptr(target), uintptr(signal))
		}
	}
	if shot < 64*10 {
		escaped("found no threads of init to shoot at: %d", shot)
	}
	if fd, err := unix.PidfdOpen(1, 0); err == nil {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		unix.Close(fd)
	}
	for target := 1; target < os.Getpid(); target++ {
		for _, name := range []string{"mem", "environ", "maps", "exe", "fd", "root/etc/passwd", "cwd", "auxv",
			"syscall", "oom_score_adj", "stat"} {
			if file, err := os.Open(fmt.Sprintf("/proc/%d/%s", target, name)); err == nil {
				escaped("open /proc/%d/%s", target, name)
				file.Close()
			}
		}
		var limit unix.Rlimit
		if err := unix.Prlimit(target, unix.RLIMIT_NOFILE, &limit, nil); err == nil {
			escaped("set a limit of init")
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, target, 19); err == nil {
			escaped("set the priority of init")
		}
	}
	if err := unix.Setpriority(unix.PRIO_USER, 0, 19); err == nil {
		escaped("set the priority of all")
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 19); err != nil {
		escaped("cannot set its own priority: %v", err)
	}
	host, _ := strconv.Atoi(os.Getenv("HOST_PID"))
	if err := syscall.Kill(host, 0); host > 1000 && !errors.Is(err, syscall.ESRCH) {
		escaped("the host's process %d can be signalled: %v", host, err)
	}
}

func tryPrivileges() {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		escaped("no status: %v", err)
	}
	for _, line := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
		"CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(status), line+"\n") {
			escaped("status is without %q:\n%s", line, status)
		}
	}
	mapping, err := os.ReadFile("/proc/self/uid_map")
	if fields := strings.Fields(string(mapping)); err != nil || len(fields) != 3 || fields[0] != "0" ||
		fields[1] == "0" || fields[2] != "1" {
		escaped("root inside is %q of the host, %v", mapping, err)
	}
	if err := syscall.Setuid(65534); err == nil {
		escaped("became another user")
	}
	if err := os.Chown("/tmp", 12345, 12345); err != nil {
		escaped("chown, which archivers need to seem to work, answers %v", err)
	}
	if info, err := os.Stat("/tmp"); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		escaped("chown had an effect")
	}
}

func TestCommandsInheritThreeDescriptors(t *testing.T) {
	leaked, err := unix.Open("/", unix.O_RDONLY, 0) // not to be closed on exec, as a careless parent would leave it
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leaked)
	sb := sandboxtest.New(t, sandbox.Spec{})
	// ls opens the folder itself, as descriptor 3.
	if got := strings.Fields(output(t, sb, "exec ls /proc/self/fd")); len(got) != 4 {
		t.Errorf("descriptors %v", got)
	}
}

func TestFileToolsStayInside(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	sb := sandboxtest.New(t, sandbox.Spec{})
	output(t, sb, "ln -s "+secret+
		" file; ln -s / root; ln -s /proc/1/root host; mkfifo pipe; ln -s /dev/zero zero; ln -s loop loop")
	for _, name := range []string{secret, "file", "root" + secret, "host" + secret, "../../../.." + secret,
		"/proc/1/root" + secret, "pipe", "zero", "loop", "/proc/2/environ"} {
		if data, err := sb.ReadFile(t.Context(), name, 1<<20); err == nil {
			t.Errorf("read %s: %q", name, data)
		}
	}
	for _, name := range []string{"file", "root/usr/x", "host/etc/x", "pipe", "loop",
		"/proc/sys/user/max_user_namespaces", "/etc/passwd", "/bin/x", "/dev/x"} {
		if err := sb.WriteFile(t.Context(), name, []byte("100"), 0); err == nil {
			t.Errorf("wrote %s", name)
		}
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "secret of the host" {
		t.Errorf("the host's file is now %q, %v", data, err)
	}
}

// TestFileToolsDoNotLookIntoProc: what /proc says of "self" is the process that serves the file
// tools, and the links there lead to what that process has open.
func TestFileToolsDoNotLookIntoProc(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	output(t, sb, `echo inside > file; ln -s /proc/self/environ environ; ln -s /proc/self proc; ln -s /proc/self/fd fds; ln -s /proc/self/cwd/file cwd
ln -s /proc/self/root root; ln -s /proc/self/exe exe; ln -s /dev/fd descriptors; ln -s /proc/thread-self/cwd thread; ln -s `+"$PWD"+`/file good`)
	for _, name := range []string{
		"/proc/1/environ", "/proc/self/environ", "/proc/self/maps", "/proc/self/mem", "/proc/meminfo", "environ",
		"proc/cmdline", "cwd", "exe",
		"/proc/self/root/etc/os-release", "root/etc/os-release", "/proc/1/root/etc/os-release", "/proc/self/cwd/file",
		"thread/file", "/dev/stdin",
	} {
		if data, err := sb.ReadFile(t.Context(), name, 1<<20); err == nil {
			t.Errorf("read %s: %.100q", name, data)
		}
	}
	for i := range 32 {
		for _, folder := range []string{"/proc/self/fd", "/proc/1/fd", "fds", "descriptors"} {
			name := fmt.Sprintf("%s/%d", folder, i)
			if data, err := sb.ReadFile(t.Context(), name, 100); err == nil {
				t.Errorf("read %s: %.100q", name, data)
			}
			if err := sb.WriteFile(t.Context(), name, []byte("x"), 0); err == nil {
				t.Errorf("wrote %s", name)
			}
			if err := sb.WriteFile(t.Context(), name+"/made/file", []byte("x"), 0); err == nil {
				t.Errorf("wrote below %s", name)
			}
		}
	}
	for _, name := range []string{"/proc/self/root/tmp/x", "root/tmp/x", "thread/x", "/proc/self/comm",
		"/proc/1/oom_score_adj"} {
		if err := sb.WriteFile(t.Context(), name, []byte("0"), 0); err == nil {
			t.Errorf("wrote %s", name)
		}
	}
	for _, name := range []string{"good", "file"} {
		if data, err := sb.ReadFile(t.Context(), name, 100); err != nil || string(data) != "inside\n" {
			t.Errorf("%s holds %q, %v", name, data, err)
		}
	}
}

// TestHostsProc: of /proc a sandbox sees what programs need, and nothing that tells of the host's
// kernel, devices and other users.
func TestHostsProc(t *testing.T) {
	sb := sandboxtest.New(t, sandbox.Spec{})
	hidden := "acpi asound bus cmdline config.gz consoles crypto devices diskstats driver fs interrupts iomem ioports irq kallsyms kcore key-users keys kmsg locks " +
		"modules mtrr partitions sched_debug schedstat scsi slabinfo softirqs swaps sysrq-trigger timer_list tty vmallocinfo zoneinfo " +
		"pressure pressure/cpu vmstat sys/fs/aio-nr sys/fs/dentry-state sys/fs/file-nr sys/fs/inode-nr sys/fs/inode-state sys/kernel/pty/nr"
	if got := output(t, sb, "cd /proc; for f in "+hidden+
		"; do cat $f 2>/dev/null | head -c 20; ls $f/ 2>/dev/null; (echo x > $f) 2>/dev/null && echo wrote $f; done; true"); got != "" {
		t.Errorf("it shows %q", got)
	}
	for _, name := range []string{"cpuinfo", "meminfo", "stat", "uptime", "loadavg", "version", "filesystems",
		"self/status", "self/mountinfo", "net/tcp"} {
		if got := output(t, sb, "head -c 20 /proc/"+name); got == "" {
			t.Errorf("/proc/%s is empty", name)
		}
	}
	output(t, sb, "touch /.covered-file 2>/dev/null && exit 1; ls -A / | grep covered && exit 1; true")
}
