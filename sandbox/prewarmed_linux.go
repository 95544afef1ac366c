package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// kind is what a first process must know from its start: whose it is, and what of the
// host it prepares to show.
type kind struct {
	user uint32
	host wire.Host
}

// host is what a sandbox sees of the host.
func (s Spec) host(level string) wire.Host {
	namespaces := level == IsolationNamespaces
	host := wire.Host{Root: s.Root, Namespaces: namespaces, SwitchUser: namespaces && os.Geteuid() == 0}
	for _, mount := range s.Mounts {
		host.Mounts = append(host.Mounts, wire.Mount(mount))
	}
	return host
}

// key is equal for kinds of which one can stand for the other: what they show must be the same
// files, and not only be called the same.
func (k kind) key() string {
	var key strings.Builder
	fmt.Fprintf(&key, "%d %+v", k.user, k.host)
	for _, path := range k.paths() {
		var found syscall.Stat_t
		if syscall.Stat(path, &found) == nil {
			fmt.Fprintf(&key, " %d:%d", found.Dev, found.Ino)
		}
	}
	return key.String()
}

// paths are those of the host that are shown.
func (k kind) paths() []string {
	paths := []string{k.host.Root + "/"}
	for _, mount := range k.host.Mounts {
		paths = append(paths, mount.Source)
	}
	return paths
}

// first is a sandbox's first process, in its group, that waits to be told what to be.
type first struct {
	process *process
	group   *cgroup
	waited  bool // it was ready before it was asked for
}

// maxPrewarmed bounds how many kinds of first processes are held ready: three roles, with
// one tool chain and without.
const maxPrewarmed = 6

// prewarmed holds one first process of each kind ready while several sandboxes are open, as to
// start one, and to prepare what all sandboxes of its kind have, takes longer than all that
// follows. They go with the last sandbox: whoever has closed its sandboxes leaves nothing behind.
var prewarmed = struct {
	sync.Mutex
	open  int
	ready map[string]chan *first // by the kind's key; gives the process once it has started, or nil
}{ready: map[string]chan *first{}}

// takePrewarmed gives a first process under limits: one that is ready, or will be before any
// other, or else a new one.
func takePrewarmed(of kind, limits Limits) (*first, error) {
	if of.host.Namespaces && limits.CPUs == 0 { // a prewarmed process is in no group of processor time
		key := of.key()
		prewarmed.Lock()
		ready := prewarmed.ready[key]
		delete(prewarmed.ready, key)
		prewarmed.Unlock()
		if ready != nil {
			process := <-ready
			if process != nil && process.group.limit(limits) == nil {
				process.waited = true
				return process, nil
			}
			process.discard()
		}
	}
	return startFirst(of, limits)
}

func startFirst(of kind, limits Limits) (*first, error) {
	group := newCgroup(limits)
	process, err := start(of, group)
	if err != nil {
		return nil, errors.Join(err, group.remove())
	}
	f := &first{process: process, group: group}
	if err := f.show(of); err != nil {
		err = errors.Join(err, process.lastWords())
		f.discard()
		return nil, fmt.Errorf("tell a sandbox's first process what to show: %w", err)
	}
	return f, nil
}

// show tells the process what of the host its sandbox sees. Where no device files can be made for
// it alone, it sees the host's.
func (f *first) show(of kind) error {
	if !of.host.SwitchUser {
		return wire.Write(f.process.control, of.host)
	}
	devices, err := newDevices(of.user)
	if err != nil {
		return wire.Write(f.process.control, of.host)
	}
	defer devices.Close()
	of.host.Devices = true
	return errors.Join(wire.Write(f.process.control, of.host), wire.SendFiles(f.process.control, []*os.File{devices}))
}

func (f *first) discard() {
	if f == nil {
		return
	}
	f.process.control.Close()
	f.process.kill()
	f.process.stderr.Close()
	_ = f.group.remove()
}

// prewarmNext counts a sandbox, and has a first process started for the next one of its
// kind if there are others.
func prewarmNext(of kind) {
	key := of.key()
	prewarmed.Lock()
	defer prewarmed.Unlock()
	prewarmed.open++
	if prewarmed.open == 1 || prewarmed.ready[key] != nil {
		return
	}
	if len(prewarmed.ready) == maxPrewarmed {
		for other, ready := range prewarmed.ready { // any of them
			delete(prewarmed.ready, other)
			(<-ready).discard()
			break
		}
	}
	ready := make(chan *first, 1)
	prewarmed.ready[key] = ready
	go func() {
		// whoever needs one then will learn why there is none
		process, _ := startFirst(of, Spec{}.withDefaults().Limits)
		ready <- process
	}()
}

// stopPrewarming counts a sandbox that was closed, and discards the prewarmed
// processes with the last one.
func stopPrewarming() {
	prewarmed.Lock()
	defer prewarmed.Unlock()
	prewarmed.open--
	if prewarmed.open > 0 {
		return
	}
	for _, ready := range prewarmed.ready {
		(<-ready).discard()
	}
	clear(prewarmed.ready)
}
