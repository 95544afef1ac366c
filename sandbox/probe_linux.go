package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing/fstest" // it has the standard library's file system in memory

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

func probe(ctx context.Context) (Report, error) {
	report := Report{Isolation: IsolationNone, Cgroup: "none"}
	if program, err := firstProgram(); err == nil {
		report.FirstProcess = program.name
	}
	snapshot, done, err := emptySnapshot(ctx)
	if err != nil {
		report.Detail = err.Error()
		return report, err
	}
	defer done()
	s, err := New(ctx, Spec{Name: "probe", Snapshot: snapshot})
	if err != nil {
		report.Detail = err.Error()
		return report, err
	}
	defer s.Close()
	result, err := s.Exec(ctx, Command{Argv: []string{"true"}})
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("run true in sandbox probe: exit code %d: %s", result.ExitCode,
			strings.TrimSpace(string(result.Stderr)))
	}
	if err != nil {
		report.Detail = err.Error()
		return report, err
	}
	report.Isolation, report.Filesystem, report.Cgroup, report.SharedInodes = s.Isolation(), s.FSMode(),
		s.Cgroup(), s.SharedInodes()
	if report.Cgroup == "none" {
		report.Detail = "control groups cannot be made here: memory is limited by polling every 100 ms (pages, page tables, shared memory, buffers of pipes and sockets; " +
			"not the kernel's other objects, such as mappings, nor what is taken and freed between two looks), memfd_create is refused, processes are limited by a resource limit"
	}
	return report, nil
}

// emptySnapshot is one to try out whether workspaces can share snapshots.
func emptySnapshot(ctx context.Context) (snapshot *Snapshot, done func(), err error) {
	data, err := Pack(fstest.MapFS{})
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", groupPrefix+"-"+self()+"-") // the reaper knows whose it is
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	all, err := OpenSnapshots(dir, RoleAgent, 0)
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(data)
	snapshot, err = all.Use(ctx, hex.EncodeToString(sum[:]),
		func(context.Context) (io.ReadCloser, error) { return Bytes(data).Open() })
	if err != nil {
		return nil, nil, err
	}
	return snapshot, func() { snapshot.Release(); os.RemoveAll(dir) }, nil
}

// advice says what to do about a refusal, by what the system's settings show.
func advice(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, syscall.ENOSYS.Error()):
		return "the kernel is too old: Linux 5.14 or newer is needed"
	case strings.Contains(text, syscall.ENOSPC.Error()):
		return "the limit on user namespaces is reached: sysctl user.max_user_namespaces=10000"
	case !strings.Contains(text, syscall.EPERM.Error()) && !strings.Contains(text, syscall.EACCES.Error()):
		return ""
	case setting("kernel/unprivileged_userns_clone") == "0":
		return "this system forbids user namespaces to ordinary users: sysctl kernel.unprivileged_userns_clone=1"
	case setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor restricts user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give this program a profile with the rule userns"
	case strings.Contains(text, "mount proc"):
		return "parts of /proc are masked, as in most containers: start the container with --security-opt systempaths=unconfined"
	}
	return "in a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined; elsewhere allow user namespaces"
}

func setting(name string) string {
	text, _ := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(text))
}

// explain adds the advice to an error that is the kernel's refusal.
func explain(err error) error {
	var start *startError
	if !errors.As(err, &start) && !errors.Is(err, wire.ErrRefused) {
		return err
	}
	if hint := advice(err); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}
