package agent

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const memoryPollInterval = 100 * time.Millisecond

// memoryPoller enforces the memory limit where no cgroup can: while anything runs it adds up the resident memory and kills the
// largest process of a sandbox that is above its limit. Shared pages count once for each process, so it errs to the strict side.
type memoryPoller struct {
	kills atomic.Int64
}

func startMemoryPoller(limit int64) *memoryPoller {
	m := &memoryPoller{}
	go func() {
		for range time.Tick(memoryPollInterval) {
			if !alone() {
				m.enforce(limit)
			}
		}
	}()
	return m
}

func (m *memoryPoller) enforce(limit int64) {
	var total int64
	var largest process
	for _, p := range processes() {
		total += p.residentPages
		if p.residentPages > largest.residentPages {
			largest = p
		}
	}
	if total*int64(os.Getpagesize()) <= limit {
		return
	}
	if unix.Kill(largest.pid, unix.SIGKILL) == nil {
		m.kills.Add(1)
	}
}

// count is how many processes were killed so far; a nil poller, where a cgroup limits, has killed none.
func (m *memoryPoller) count() int64 {
	if m == nil {
		return 0
	}
	return m.kills.Load()
}

// scapegoat starts processes that the kernel kills before this one when memory runs out, however small the limit is. They inherit
// that from the start: a process that was marked later may have had children already.
type scapegoat struct {
	score *os.File // of this process; it must be open before the process seals itself off. Nil where it may not be set
	own   []byte
}

func newScapegoat() scapegoat {
	const name = "/proc/self/oom_score_adj"
	own, err := os.ReadFile(name)
	if err != nil {
		return scapegoat{}
	}
	score, _ := os.OpenFile(name, os.O_WRONLY, 0)
	return scapegoat{score, own}
}

// with runs start, one at a time. The score may be raised by everyone, and lowered to what it was.
func (s scapegoat) with(start func()) {
	_, _ = s.score.WriteAt([]byte("1000"), 0)
	defer func() { _, _ = s.score.WriteAt(s.own, 0) }()
	start()
}
