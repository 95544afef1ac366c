package sandbox

import (
	"errors"
	"sync"
)

// first is a sandbox's first process, in its group, that waits to be told what to be.
type first struct {
	process *process
	group   *cgroup
	waited  bool // it was ready before it was asked for
}

// spares holds one first process of each user ready while several sandboxes are open, as to start one takes longer than all that follows.
// They go with the last sandbox: whoever has closed its sandboxes leaves nothing behind.
var spares = struct {
	sync.Mutex
	open  int
	ready map[uint32]chan *first // gives the process once it has started, or nil
}{ready: map[uint32]chan *first{}}

// takeSpare gives a first process under limits: one that is ready, or will be before any other, or else a new one.
func takeSpare(level string, user uint32, limits Limits) (*first, error) {
	if level == IsolationNamespaces && limits.CPUs == 0 { // a spare is in no group of processor time
		spares.Lock()
		ready := spares.ready[user]
		delete(spares.ready, user)
		spares.Unlock()
		if ready != nil {
			spare := <-ready
			if spare != nil && spare.group.limit(limits) == nil {
				spare.waited = true
				return spare, nil
			}
			spare.discard()
		}
	}
	return startFirst(level, user, limits)
}

func startFirst(level string, user uint32, limits Limits) (*first, error) {
	group := newCgroup(limits)
	process, err := start(level, user, group)
	if err != nil {
		return nil, errors.Join(err, group.remove())
	}
	return &first{process: process, group: group}, nil
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

// spareNext counts a sandbox, and has a first process started for the one after it if there are others.
func spareNext(user uint32) {
	spares.Lock()
	defer spares.Unlock()
	spares.open++
	if spares.open == 1 || spares.ready[user] != nil {
		return
	}
	ready := make(chan *first, 1)
	spares.ready[user] = ready
	go func() {
		spare, _ := startFirst(IsolationNamespaces, user, Spec{}.withDefaults().Limits) // whoever needs one then will learn why there is none
		ready <- spare
	}()
}

// spareNoMore counts a sandbox that was closed, and lets the spares go with the last one.
func spareNoMore() {
	spares.Lock()
	defer spares.Unlock()
	spares.open--
	if spares.open > 0 {
		return
	}
	for _, ready := range spares.ready {
		(<-ready).discard()
	}
	clear(spares.ready)
}
