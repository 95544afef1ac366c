package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/sandbox/internal/jail"
)

// NewAt makes a sandbox of one level of isolation, where New might give another.
func NewAt(ctx context.Context, level string, spec Spec) (*Sandbox, error) {
	reaping()
	spec = spec.withDefaults()
	return create(ctx, spec, level)
}

// HasLandlock tells whether the kernel has what the middle level takes.
func HasLandlock() bool {
	_, err := jail.NewLandlock(jail.Rules{Scoped: true})
	return err == nil
}

// WithoutCgroups makes sandboxes limit themselves for the time of a test.
func WithoutCgroups(t *testing.T) {
	found := findPlacement
	findPlacement = func() placement { return placement{version: "none"} }
	t.Cleanup(func() { findPlacement = found })
}

// GroupsOf lists the control groups that an owner made and that are still there.
func GroupsOf(owner int) []string {
	var found []string
	for _, parent := range findPlacement().parents {
		groups, _ := filepath.Glob(filepath.Join(parent,
			fmt.Sprintf("%s-%s-%d-*", groupPrefix, processNamespace(), owner)))
		found = append(found, groups...)
	}
	return found
}

// Throttled is how often the sandbox was held back for having used its processor time; false
// where no group does that.
func (s *Sandbox) Throttled() (times int64, limited bool) {
	folder, limited := s.group.folders["cpu"]
	text, err := os.ReadFile(filepath.Join(folder, "cpu.stat"))
	if _, after, found := strings.Cut(string(text), "nr_throttled "); found && limited {
		_, err = fmt.Sscan(after, &times)
	}
	return times, limited && err == nil
}

// LimitsByCgroup tells whether control groups can be made here.
func LimitsByCgroup() bool { return findPlacement().version != "none" }

// ForeignGroup makes a control group as an owner in another process namespace would
// have made it some time ago.
func ForeignGroup(t *testing.T, number int, age time.Duration) string {
	parent := findPlacement().parents["pids"]
	if parent == "" {
		t.Skip("control groups cannot be made here")
	}
	folder := filepath.Join(parent, fmt.Sprintf("%s-1-%d-1-%d", groupPrefix, os.Getpid(), number))
	made := time.Now().Add(-age)
	if err := errors.Join(os.Mkdir(folder, 0o755), os.Chtimes(folder, made, made)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = removeGroup(folder) })
	return folder
}

// Reap is one turn of the reaper.
func Reap() { reap(findPlacement()) }

// ReapEvery sets the reaper's interval, before it starts.
func ReapEvery(interval time.Duration) { reapInterval = interval }

// FewGoPackages lets a test fill a build cache quickly.
func FewGoPackages(t *testing.T) {
	all := goPackages
	goPackages = []string{"fmt", "testing"}
	t.Cleanup(func() { goPackages = all })
}

// Lend makes a folder of the host one that sandboxes of all roles may change by an overlay.
func Lend(folder string) error { return preserve(folder) }

// HostUser is the host's user that owns the sandbox's first process.
func (s *Sandbox) HostUser(t *testing.T) uint32 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nUid:\t")
	var user uint32
	if _, err := fmt.Sscan(after, &user); err != nil {
		t.Fatal(err)
	}
	return user
}

// Prewarmed are the processes that are ready for next sandboxes.
func Prewarmed() (pids []int) {
	prewarmed.Lock()
	defer prewarmed.Unlock()
	for _, ready := range prewarmed.ready {
		select {
		case next := <-ready:
			ready <- next
			pids = append(pids, next.process.pid())
		default:
		}
	}
	return pids
}

// PID is the sandbox's first process, as the host sees it.
func (s *Sandbox) PID() int { return s.process.pid() }

// MemoryLimit is what the sandbox's group may take, files included; false
// where no group limits memory.
func (s *Sandbox) MemoryLimit() (bytes int64, limited bool) {
	file := map[string]string{"v1": "memory.limit_in_bytes", "v2": "memory.max"}[s.group.place.version]
	text, err := os.ReadFile(filepath.Join(s.group.folders["memory"], file))
	if err == nil {
		_, err = fmt.Sscan(string(text), &bytes)
	}
	return bytes, s.group.limitsMemory() && err == nil
}

// ForgetEngine has the next call look for a container engine again.
func ForgetEngine() {
	engine.Lock()
	defer engine.Unlock()
	engine.asked = time.Time{}
}
