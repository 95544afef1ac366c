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
