package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
)

// bubblewrap is bwrap showing the same parts of the host, with the same namespaces, and
// running the same command.
func bubblewrap(ctx context.Context) (func() error, error) {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, errors.New("bwrap is not installed, so there is nothing to compare with (Debian and Ubuntu: apt-get install bubblewrap)")
	}
	args := []string{
		"--unshare-all", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
		"--tmpfs", "/root", "--tmpfs", "/app",
		"--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/alternatives", "/etc/alternatives", "--ro-bind-try",
		"/etc/ssl/certs", "/etc/ssl/certs",
		"--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache", "--cap-drop", "ALL", "--chdir", "/app",
	}
	for _, folder := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		if link, err := os.Readlink(folder); err == nil {
			args = append(args, "--symlink", link, folder)
		} else {
			args = append(args, "--ro-bind-try", folder, folder)
		}
	}
	run := func() error {
		out, err := exec.CommandContext(ctx, path, append(args, "true")...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("bwrap: %w: %s", err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	return run, run()
}

// settle is the wait before memory is looked at: a sandbox gives back what its start took when
// it turns out to be held.
const settle = 3 * time.Second

// hold makes sandboxes that each run one command, and looks at the memory that all of them take.
func hold(ctx context.Context, count int, r *Result) (err error) {
	runtime.GC()
	before, err := availableMiB()
	if err != nil {
		return err
	}
	begin := time.Now()
	var held []*sandbox.Sandbox
	closeAll := func() (err error) {
		for _, sb := range held {
			err = errors.Join(err, sb.Close())
		}
		held = nil
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	for range count {
		sb, err := sandbox.New(ctx, sandbox.Spec{Name: "bench"})
		if err != nil {
			return err
		}
		held = append(held, sb)
		if err := runTrue(ctx, sb); err != nil {
			return err
		}
	}
	r.Held, r.HeldCreate = count, time.Since(begin).Seconds()
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := availableMiB()
	if err != nil {
		return err
	}
	r.HeldMiB = (before - after) / float64(count)
	var charged int64
	for _, sb := range held {
		charged += sb.MemoryBytes()
	}
	r.HeldCharged = float64(charged) / (1 << 20) / float64(count)
	begin = time.Now()
	err = closeAll()
	r.HeldDestroy = time.Since(begin).Seconds()
	return err
}

// processorTime is that of this process and of those that it has waited for.
func processorTime() time.Duration {
	var all time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if syscall.Getrusage(who, &used) == nil {
			all += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		}
	}
	return all
}

// availableMiB is the memory that the machine can still give.
func availableMiB() (float64, error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "MemAvailable:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("/proc/meminfo says nothing of MemAvailable")
}
